"""Random names: of runs that were given none, of kept results, of errors that a person looks up in the log.

Rule: what must not be guessed (a token of an API, the boundary around a text from outside) comes from `secrets` itself:
a simulation sets `source` here.
"""

from __future__ import annotations

import secrets
from typing import Any

source: Any = secrets
"""Where random names come from: whatever has the `token_hex` of `secrets`."""


def token_hex(nbytes: int) -> str:
    """Return a text of random hexadecimal digits, two for each byte."""
    return str(source.token_hex(nbytes))
