"""Bearer tokens of an HTTP server, and who each one proves to be."""

from __future__ import annotations


class Tokens:
    """Tokens by what they prove."""
