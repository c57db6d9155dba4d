"""Sandboxes for a Python program that a model wrote."""
