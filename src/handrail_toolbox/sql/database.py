"""What the SQL tools need of a database, and how what it answers becomes short enough to be read."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import isfinite, isnan
from typing import Any, Protocol

from msgspec import Struct

from handrail.calls import Page
from handrail.errors import Code, ToolError
from handrail.parsing import names
from handrail_toolbox.sql.guard import Query

PAGE_BYTES = 14 * 1024
"""How long the rows of one answer may be together, as JSON: a little less than a result may hold."""
MOST_CELL = 1_000
"""How many characters of one value are shown."""
LEAST_CELL = 20
MOST_SHOWN = 300


class Column(Struct, frozen=True):
    """A column; `key` says that it is part of the primary key, `refers_to` names `table.column` of a foreign key."""

    name: str
    type: str
    nullable: bool = True
    key: bool = False
    refers_to: str = ""


class Table(Struct, frozen=True):
    """A table or a view, with its columns in order."""

    name: str
    kind: str
    columns: Sequence[Column]


class Share(Struct, frozen=True):
    """What part of an answer is wanted, and how long it may take.

    Attributes:
        time_s: When the engine itself ends the query.
        given_up: Whether nobody waits for the answer any more.
        offset: How many rows to leave out.
        limit: How many to return at most.
    """

    time_s: float
    given_up: Callable[[], bool]
    offset: int = 0
    limit: int = 0


class Database(Protocol):
    """One database, open for reading only."""

    dialect: str

    def tables(self, share: Share) -> Sequence[Table]:
        """Return the tables and views that can be read.

        Raises:
            ToolError: See `query`.
        """
        ...

    def query(self, query: Query, share: Share) -> Page:
        """Return some rows of what a query gives.

        Raises:
            ToolError: The engine refused it, could not make sense of it, was not done in time, or is not there.
        """
        ...


def cell_size(columns: int) -> int:
    """Return how many characters of each value are shown when there are so many columns."""
    return max(LEAST_CELL, min(MOST_CELL, PAGE_BYTES // max(1, columns)))


def cell(value: Any, most: int) -> Any:
    """Return a value as it is shown: long text is cut, bytes are counted, what JSON has no number for is a word."""
    if isinstance(value, bytes | memoryview):
        return f"[{len(value)} bytes]"
    if isinstance(value, float) and not isfinite(value):
        if isnan(value):
            return "NaN"
        if value > 0:
            return "Infinity"
        return "-Infinity"
    if isinstance(value, str) and len(value) > most:
        return value[:most] + " [cut]"
    return value


def too_slow(time_s: float) -> ToolError:
    """Return the failure of a query that the engine ended."""
    return ToolError(
        "QUERY_TOO_SLOW",
        f"The query was stopped: it had not ended after {time_s:.1f} s. Nothing was changed.",
        suggestion="Ask for less: a narrower WHERE, fewer tables joined, an aggregate instead of rows. "
        "`describe_table` names the keys, which are quick to look up.",
    )


def unavailable(name: str) -> ToolError:
    """Return the failure of a database that does not answer; nothing of where it is."""
    return ToolError(
        Code.UNAVAILABLE,
        f"The database {name!r} does not answer.",
        suggestion="Try again later, or tell the user that it cannot be reached.",
        retryable=True,
    )


def missing_file(name: str) -> ToolError:
    """Return the failure of a database whose file is not there; whoever set it up reads this first."""
    return ToolError(
        "UNAVAILABLE",
        f"The database {name!r} has no file yet.",
        suggestion="Tell the user; calling again will not help until somebody puts the file in its place.",
    )


def query_failure(
    message: str, wrong: str, tables: Callable[[], Sequence[Table]]
) -> ToolError:
    """Return the failure of a query that the engine could not make sense of, with names that are near.

    Args:
        message: The engine's own words about the query.
        wrong: The name that it does not know, if that is what is wrong.
        tables: What there is; asked only when there is a name to look for.
    """
    suggestion = "Mend the query and send it again; `list_tables` and `describe_table` tell what there is."
    if wrong:
        there = tables()
        all_names = {table.name for table in there} | {
            column.name for table in there for column in table.columns
        }
        if near := [f"`{name}`" for name in names.nearest(wrong, sorted(all_names))]:
            suggestion = f"Did you mean {' or '.join(near)}? {suggestion}"
    return ToolError(
        "QUERY_FAILED", f"The database says: {words(message)}", suggestion=suggestion
    )


def words(text: str) -> str:
    """Return an engine's message in one line; a part of the query in it may hold any character."""
    printable = "".join(
        each if each.isprintable() else " " for each in text[: 2 * MOST_SHOWN]
    )
    return " ".join(printable.split())[:MOST_SHOWN]
