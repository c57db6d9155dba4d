"""How a wire format or a prompt format spells requests, calls and results. One file per dialect, one contract for all.

A dialect is pure: it turns values into text or dictionaries and back, and never opens a connection.
"""
