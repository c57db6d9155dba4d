"""handrail: the execution layer between language models and the world."""

__version__ = "0.1.0"
