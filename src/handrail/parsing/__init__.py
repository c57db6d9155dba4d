"""What a model wrote, as values: text to JSON, and names to the tools that they mean."""
