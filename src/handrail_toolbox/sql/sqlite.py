"""A SQLite file, open for reading only.

`mode=ro` alone is not enough: a connection so opened still attaches and vacuums into new files. What holds is the
authorizer, which the engine asks for each thing that a statement does when it is compiled.

Rule 1: the authorizer lets pass what it knows; anything new in a later SQLite is refused.
Rule 2: a connection lives for one query, so that nothing of one reaches the next.
"""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from urllib.parse import quote

from handrail.calls import Page
from handrail.errors import ConfigError, ToolError
from handrail.surroundings.clock import monotonic
from handrail.tools.paging import Gathering
from handrail_toolbox.sql.database import (
    PAGE_BYTES,
    Column,
    Share,
    Table,
    cell,
    cell_size,
    missing_file,
    query_failure,
    too_slow,
    unavailable,
    words,
)
from handrail_toolbox.sql.guard import FUNCTIONS, Query

# How often the engine is asked to stop: after so many steps of its machine, far less than a millisecond.
_STEPS = 1_000

# A single function call cannot be interrupted. Values of this size keep the worst of them, `instr` and `replace` of
# one half in the other, at about five seconds; the call itself has ended long before, only its thread is late.
_LONGEST_VALUE = 1_000_000

_LIMITS: Mapping[int, int] = {
    sqlite3.SQLITE_LIMIT_LENGTH: _LONGEST_VALUE,
    sqlite3.SQLITE_LIMIT_ATTACHED: 0,
    sqlite3.SQLITE_LIMIT_SQL_LENGTH: 100_000,
    sqlite3.SQLITE_LIMIT_COMPOUND_SELECT: 100,
    sqlite3.SQLITE_LIMIT_EXPR_DEPTH: 200,
    # GLOB's too: a megabyte by `*[a-z][a-z]...` of 1,000 is six seconds
    sqlite3.SQLITE_LIMIT_LIKE_PATTERN_LENGTH: 200,
    sqlite3.SQLITE_LIMIT_WORKER_THREADS: 0,
}

_MODULES = ("json_each", "json_tree")
_QUOTE = '"'
_UNKNOWN = re.compile(r"no such (?:column|table|function): (?:[\w$]+\.)?(.+)")
_TABLES = "SELECT name, type FROM sqlite_master WHERE type IN ('table', 'view') AND substr(name, 1, 7) <> 'sqlite_'"
_VIRTUAL = f"{_TABLES} AND sql LIKE 'CREATE VIRTUAL %'".replace("name, type", "name", 1)


class SqliteDatabase:
    """See `Database`.

    Args:
        name: What the model calls it.
        path: Its file, which must be there.
    """

    dialect = "sqlite"

    def __init__(self, name: str, path: str) -> None:
        self.name = name
        if not path:
            raise ConfigError(
                f"the database {name!r} names no file: write sqlite:///shop.db"
            )
        # Resolved now: the program may go into another folder later.
        self._path = Path(path).resolve()
        self._uri = f"file:{quote(str(self._path))}?mode=ro"

    def tables(self, share: Share) -> Sequence[Table]:
        """See `Database.tables`."""
        with self._open(share) as connection:
            names = connection.execute(f"{_TABLES} ORDER BY name").fetchall()
            return [
                Table(name, kind, _columns(connection, name)) for name, kind in names
            ]

    def query(self, query: Query, share: Share) -> Page:
        """See `Database.query`."""
        with self._open(share) as connection:
            readable = {name for name, _ in connection.execute(_TABLES)} | set(_MODULES)
            # A module makes its table when it is first looked at, by statements that nobody may make afterwards.
            for name in [
                *_MODULES,
                *(name for (name,) in connection.execute(_VIRTUAL)),
            ]:
                connection.execute(
                    f'SELECT 1 FROM "{name.replace(_QUOTE, _QUOTE * 2)}" LIMIT 0'
                )
            connection.set_authorizer(_authorizer({name.lower() for name in readable}))
            values = {
                str(place): value for place, value in enumerate(query.parameters, 1)
            }
            cursor = connection.execute(query.text, values)
            columns = [name for name, *_ in cursor.description or ()]
            most = cell_size(len(columns))
            page = Gathering(share.offset, 0, PAGE_BYTES, share.limit)
            for row in islice(cursor, share.offset, None):
                if not page.take([cell(value, most) for value in row]):
                    break
            return page.page(columns)

    @contextmanager
    def _open(self, share: Share) -> Iterator[sqlite3.Connection]:
        """Open the file for one query, and word what the engine says."""
        until = monotonic() + share.time_s
        try:
            connection = sqlite3.connect(
                self._uri,
                uri=True,
                timeout=1.0,
                isolation_level=None,
            )
        except sqlite3.Error:
            raise self._unavailable() from None
        try:
            for limit, most in _LIMITS.items():
                connection.setlimit(limit, most)
            connection.set_progress_handler(
                lambda: share.given_up() or monotonic() > until, _STEPS
            )
            # Views of the file may be somebody's trap too: they get the functions of a query, no others.
            connection.execute("PRAGMA trusted_schema = OFF")
            connection.execute("PRAGMA query_only = ON")
            yield connection
        except sqlite3.Error as error:
            raise self._failure(error, share) from None
        finally:
            connection.close()

    def _unavailable(self) -> ToolError:
        if self._path.exists():
            return unavailable(self.name)
        return missing_file(self.name)

    def _failure(self, error: sqlite3.Error, share: Share) -> ToolError:
        message = str(error)
        code = getattr(error, "sqlite_errorcode", 0) & 0xFF
        if code == sqlite3.SQLITE_INTERRUPT:
            return too_slow(share.time_s)
        if code in (
            sqlite3.SQLITE_CANTOPEN,
            sqlite3.SQLITE_BUSY,
            sqlite3.SQLITE_LOCKED,
            sqlite3.SQLITE_IOERR,
        ):
            return self._unavailable()
        if code in (sqlite3.SQLITE_AUTH, sqlite3.SQLITE_READONLY):
            return ToolError(
                "QUERY_REFUSED",
                f"The query was not run. The database says: {words(message)}.",
                suggestion="It may read the tables of `list_tables` with common functions, and nothing else.",
            )
        if code == sqlite3.SQLITE_TOOBIG:
            return ToolError(
                "VALUE_TOO_LONG",
                f"A row or a value of the query is longer than {_LONGEST_VALUE:,} bytes.",
                suggestion="Name the columns that you need and leave the long one out; length(column) tells how long.",
            )
        unknown = _UNKNOWN.match(message)
        return query_failure(
            message, unknown[1] if unknown else "", lambda: self.tables(share)
        )


def _columns(connection: sqlite3.Connection, table: str) -> Sequence[Column]:
    """Return the columns of a table; none for a view that is broken, or a trap."""
    try:
        return list(_read_columns(connection, table))
    except sqlite3.OperationalError as error:
        if error.sqlite_errorcode & 0xFF == sqlite3.SQLITE_ERROR:
            return ()
        raise


def _read_columns(connection: sqlite3.Connection, table: str) -> Iterator[Column]:
    refers = {
        row[3]: f"{row[2]}.{row[4] or 'its key'}"
        for row in connection.execute(
            "SELECT * FROM pragma_foreign_key_list(?)", (table,)
        )
    }
    described = connection.execute(
        'SELECT name, type, "notnull", pk FROM pragma_table_info(?)', (table,)
    )
    for name, kind, strict, key in described:
        yield Column(
            name, kind or "any", not (strict or key), bool(key), refers.get(name, "")
        )


def _authorizer(readable: set[str]) -> Callable[..., int]:
    """Return what the engine asks: SELECT, the reading of these tables, and functions that compute."""

    def allows(
        action: int,
        first: str | None,
        second: str | None,
        database: str | None,
        _within: str | None,
    ) -> int:
        allowed = False
        if action in (sqlite3.SQLITE_SELECT, sqlite3.SQLITE_RECURSIVE):
            allowed = True
        elif action == sqlite3.SQLITE_READ:
            # Without a column and a database nothing is read: rows are counted, perhaps of a name that WITH has made.
            allowed = (first or "").lower() in readable or not (second or database)
        elif action == sqlite3.SQLITE_FUNCTION:
            allowed = (second or "").lower() in FUNCTIONS
        elif action == sqlite3.SQLITE_PRAGMA:
            # full-text search asks by it whether its index is fresh
            allowed = first == "data_version" and second is None
        if allowed:
            return sqlite3.SQLITE_OK
        return sqlite3.SQLITE_DENY

    return allows
