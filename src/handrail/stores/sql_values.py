"""How names, values and rows are written for a database, and read back.

Rule 1: no two names are encoded alike.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Sequence
from functools import cache
from hashlib import sha256
from importlib import resources
from itertools import chain
from typing import Any

from pydantic_core import to_json

from handrail.errors import ConfigError, Json, StoreUnavailable
from handrail.stores.database import Values
from handrail.stores.ledger import Row

# Postgres has room for some 2,700 bytes in an index, where two names of up to four bytes a character must fit.
MAX_NAME_CHARACTERS = 300

MAX_NEW_RUN_CHARACTERS = 275
"""The longest name of a new run. The keys of its writes are this name and a place. A longer key would be stored as a
digest, in which retention would not find the run."""

_NOT_STORABLE = re.compile("[\0\x10\ud800-\udfff]")
_ESCAPE = re.compile("\x10([0-9a-f]{4})")


def encode_name(name: str) -> str:
    r"""Return a name as every database can hold it.

    NUL and lone surrogates become hexadecimal digits behind a DLE, the rest of a long name its digest.

    >>> encode_name("refund:881"), encode_name("a\0b")
    ('refund:881', 'a\x100000b')
    """
    if name.isprintable() and len(name) <= MAX_NAME_CHARACTERS:
        return name  # nearly always, at a fifth of the time
    if _NOT_STORABLE.search(name):
        name = _NOT_STORABLE.sub(lambda found: f"\x10{ord(found[0]):04x}", name)
    if len(name) > MAX_NAME_CHARACTERS:
        name = f"{name[:200]}\x10sha256:{sha256(name.encode()).hexdigest()}"
    return name


def are_short_names(*names: str) -> bool:
    """Whether `encode_name` returns each of these names as it is: one look at all of them."""
    together = "".join(names)
    return together.isprintable() and len(together) <= MAX_NAME_CHARACTERS


def decode_name(name: str) -> str:
    """Return the name that `encode_name` encoded so, unless it was too long and ends in its digest."""
    if "\x10" not in name:
        return name
    return _ESCAPE.sub(lambda found: chr(int(found[1], 16)), name)


def encode_run_id(run_id: str, *, is_new: bool = True) -> str:
    """Return the name of a run as every database can hold it.

    Args:
        is_new: The run begins; one that is stored may have a longer name.

    Raises:
        ConfigError: It is too long: read back, it would name another run.
    """
    encoded = encode_name(run_id)
    most = MAX_NEW_RUN_CHARACTERS if is_new else MAX_NAME_CHARACTERS
    if len(encoded) > most or decode_name(encoded) != run_id:
        written = _NOT_STORABLE.sub("\x10....", run_id)
        raise ConfigError(
            f"the run {run_id[:40]!r}... cannot be stored: its name takes {len(written):,} characters, "
            f"and {most} are possible; one that not every database can hold takes five"
        )
    return encoded


def encode_json(value: Any, write: Callable[[Any], str] = json.dumps) -> str:
    """Return a value as ASCII JSON, which every database can hold.

    Raises:
        StoreUnavailable: It is no JSON.
    """
    try:
        return write(value)
    except (TypeError, ValueError, RecursionError) as error:
        raise StoreUnavailable(
            f"the value cannot be stored, because it is no JSON: {error}"
        ) from error


def encode_journal(value: Any) -> str:
    """Return what `journal` made as ASCII JSON, at a third of what `encode_json` takes.

    Raises:
        StoreUnavailable: It is no JSON.
    """
    try:
        return to_json(value, ensure_ascii=True).decode()
    except ValueError:  # a lone surrogate, or too deep; or indeed no JSON
        return encode_json(value)


def encode_optional(value: Any) -> str | None:
    """Return a value as ASCII JSON; None stays None."""
    return None if value is None else encode_json(value)


def decode_optional(text: str | None) -> Json:
    """Return the value of JSON; None stays None."""
    return None if text is None else json.loads(text)


def row_values(row: Row) -> tuple[Any, ...]:
    """Return the columns of a row, in the order of `Row`."""
    return (
        row.scope,
        row.key,
        row.fingerprint.hex(),
        row.run_id,
        row.state,
        row.replay,
        row.fence,
        row.lease_until,
        row.begun,
        row.value,
        row.epoch,
        row.tool,
        row.place,
    )


def row_from(values: Values) -> Row:
    """Return the row of these columns."""
    scope, key, fingerprint, *others = values
    row = Row(scope, key, bytes.fromhex(fingerprint), *others)
    row.stored = True
    row.changed = False
    return row


# ---------------------------------------------------------------------- statements

MAX_STATEMENT_ROWS = 256
"""In one statement: no database takes more than 32,766 values there, and a longer one gains nothing."""


def statements(file: str, *, package: str = "handrail.stores") -> dict[str, str]:
    """Return the statements of a `.sql` file of a package; each follows a line `-- name: what it is for`."""
    text = resources.files(package).joinpath(file).read_text(encoding="utf-8")
    _, *parts = re.split(r"^-- (\w+): .*\n", text, flags=re.MULTILINE)
    return dict(zip(parts[::2], parts[1::2], strict=True))


def expand_rows(
    statement: str, rows: Sequence[Sequence[Any]]
) -> Iterator[tuple[str, list[Any]]]:
    """Yield a statement with as many rows in its `VALUES (?)`, and their values, until none is left.

    In pieces of a power of two, so that few statements, which a connection prepares once, serve every number of them.
    """
    at = 0
    while left := len(rows) - at:
        count = min(1 << (left.bit_length() - 1), MAX_STATEMENT_ROWS)
        piece = rows[at : at + count]
        yield (
            _repeat_row(statement, count, len(piece[0])),
            list(chain.from_iterable(piece)),
        )
        at += count


@cache
def _repeat_row(statement: str, rows: int, values: int) -> str:
    row = f"({', '.join('?' * values)})"
    return statement.replace("(?)", ", ".join([row] * rows))
