"""Models: a dialect with a transport."""
