"""Stored runs, and events, as people and other programs read them: what the command line and the server share."""
