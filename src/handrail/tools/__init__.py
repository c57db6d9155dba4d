"""What a programmer declares: tools, what they do to the world, and the sets that a run can see."""
