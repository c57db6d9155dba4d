"""Random names: of runs that were given none, of kept results, of errors that a person looks up in the log.

Rule: what must not be guessed (a token of an API, the boundary around a text from outside) comes from `secrets` itself:
a simulation sets `source` here.
"""

from __future__ import annotations

import secrets
from typing import Protocol


class Chance(Protocol):
    """Where random names come from: the module `secrets`, or a simulation."""

    def token_hex(self, nbytes: int | None = None) -> str:
        """Return a text of random hexadecimal digits, two for each byte."""
        ...


source: Chance = secrets


def token_hex(nbytes: int) -> str:
    """Return a text of random hexadecimal digits, two for each byte."""
    return source.token_hex(nbytes)
