"""What a durable store asks of the connection to its database, and what it gives to it.

A group goes to the database as one JSON document and not row by row. Each statement lets go of the interpreter's lock,
and with a busy event loop beside it the thread gets it back after milliseconds: docs/decisions/0008-stores.md.

Rule 1: everything of a connection happens in one thread; a `Connection` need not be safe for several.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Protocol, TypeAlias

from msgspec import Struct

from handrail.stores.ledger import Restored, Row

# How long a long result can be read: as long as a run, which a person may take weeks to approve.
RESULT_LIFETIME_S = 30 * 24 * 3600.0

Values: TypeAlias = Sequence[Any]
"""The columns of a row of the ledger, in the order of `Row`."""

WriteName: TypeAlias = tuple[str, str, str | None, str | None]
"""Scope and key of a write; and its run and fingerprint, where the same act in that run counts as well."""


class RetryGroup(Exception):
    """Nothing was committed: another process was quicker, or the connection is new. The group is decided again."""


class Refused(Exception):
    """The database refused a value and is well otherwise: other requests of the group may pass."""


class SavedResult(Struct, frozen=True):
    """A long result on its way to the database, as UTF-8 that also encodes lone surrogates."""

    run_id: str
    handle: str
    body: bytes


class Statements(Protocol):
    """Statements in the transaction of a group."""

    def run(self, statement: str, given: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        """Run a statement with `?` for each given value; return its rows."""
        ...

    def run_with(
        self, statement: str, rows: Sequence[Sequence[Any]]
    ) -> list[tuple[Any, ...]]:
        """Run a statement whose `VALUES (?)` takes all these rows; return its own."""
        ...

    def write_rows(
        self, statement: str, rows: Sequence[Sequence[Any]], *, every: bool = False
    ) -> None:
        """As `run_with`, where the rows it returns are not needed: it may be run as late as at the commit.

        Args:
            every: The statement is to return as many rows as it takes; else `RetryGroup` is raised, at the latest by
                `commit`.
        """
        ...


class Database(Statements, Protocol):
    """Statements on an open database: for runs, questions, locks, maintenance."""

    def add(self, statement: str, rows: Sequence[Sequence[Any]]) -> None:
        """Run a statement for each of these rows, in one transaction."""
        ...

    def columns(self, table: str) -> list[str]:
        """Return the names of the columns of a table."""
        ...

    def now(self) -> float:
        """Return the time by the database's clock."""
        ...

    def size_bytes(self) -> int:
        """Return the room that the tables take."""
        ...

    def shrink(self, *, rewrite: bool) -> None:
        """Make the space of deleted rows reusable; with `rewrite` return it to the disk, which blocks all others."""
        ...

    def checkpoint(self) -> None:
        """Carry what was committed into the tables, where the database leaves that to a connection; stops nobody."""
        ...

    def shrink_some(self) -> bool:
        """Return a little unused space to the disk, in a few milliseconds, if there is much; return whether it did."""
        ...


class Transaction(Statements, Protocol):
    """The transaction of a group.

    Whatever fails raises StoreUnavailable, `RetryGroup` or `Refused`, with nothing committed. Only `commit` may leave
    open whether it succeeded, when the connection broke in the middle.

    Attributes:
        restored: What was lost when the store was set back, as `begin` found it.
    """

    restored: Restored | None

    def begin(self) -> float:
        """Begin a transaction; return the time."""
        ...

    def rows(self, names: Sequence[WriteName]) -> Iterable[Values]:
        """Return the rows that a group names.

        That is the row of each key and, where a run is named, the last row of the same act in that run that did not
        fail; ordered by `begun`.
        """
        ...

    def write(
        self, new: Sequence[Row], old: Sequence[Row], results: Sequence[SavedResult]
    ) -> None:
        """Insert new rows, update old ones, and insert long results."""
        ...

    def commit(self) -> None:
        """Commit the transaction to the disk."""
        ...

    def rollback(self) -> None:
        """Roll back the transaction; never raises."""
        ...


class Connection(Database, Transaction, Protocol):
    """A connection to a database, with the transaction of a group.

    Attributes:
        holds_rows: How the end of a SELECT says that its rows are held until the commit, without waiting for others.
    """

    holds_rows: str

    def forget_waits(self) -> None:
        """Forget how long others were waited for: a group or a job begins, and is to wait as long as any other."""
        ...

    def foresee(self) -> Transaction | None:
        """Return a transaction on what the database is expected to hold, which only its commit asks; None where none.

        It raises `RetryGroup` where it knows too little, and where the database holds something else: then nothing was
        committed, and the group is decided on what is there.
        """
        ...

    def load_result(self, run_id: str, handle: str) -> bytes | None:
        """Return a saved result that has not expired."""
        ...

    def open_reading(self) -> Connection:
        """Open another connection to the same database, which can change nothing."""
        ...

    def open_another(self) -> Connection:
        """Open another connection to the same database, for deletions: it waits for nobody for long.

        A power failure may undo what it has committed.
        """
        ...

    def reopen(self) -> None:
        """Open the connection in a fork, in place of the copy of its parent's, of which nothing is used.

        Raises:
            StoreUnavailable: It cannot be opened now.
            SetupError: It cannot be opened in this process.
        """
        ...

    def close(self) -> None:
        """Close the connection."""
        ...
