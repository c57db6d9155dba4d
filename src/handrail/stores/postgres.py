"""A store in Postgres: durable for any number of processes on any number of machines. Needs `handrail[postgres]`.

    Runtime(tools, store="postgresql://user@host/database")

The tables lie in a schema of their own, `handrail`. Leases run by the server's clock; no machine needs the right time.

Rule 1: rows that are there are held from the first look at them until the commit; of two who insert the same row one
        finds it taken, and decides again. Whoever claims an act that counts in its run holds that act first.
Rule 2: whether a commit succeeded whose answer was lost is asked of the server and not guessed.
Rule 3: a connection string may hold a password: nothing of its text is shown but host and database.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from typing import Any

from handrail.errors import ConfigError, StoreUnavailable
from handrail.process_identity import owner
from handrail.stores.database import (
    RESULT_LIFETIME_S,
    Refused,
    RetryGroup,
    SavedResult,
    Values,
    WriteName,
)
from handrail.stores.group_commit import Writer
from handrail.stores.ledger import Row
from handrail.stores.shared_log import SharedLog
from handrail.stores.sql_values import expand_rows, row_values, statements

try:
    import psycopg
    from psycopg import errors
    from psycopg.conninfo import conninfo_to_dict, make_conninfo
except ImportError as missing:
    raise ConfigError(
        "a store in Postgres needs psycopg; install it: pip install 'handrail[postgres]'"
    ) from missing

_SQL = statements("postgres.sql")
_MIGRATIONS = tuple(name for name in _SQL if name.startswith("schema_"))
VERSION = len(_MIGRATIONS)
"""The version of the tables that this handrail knows."""

_BEGUN = 8
"""The position of `begun` among the columns of a row."""

# `pg_xact_status` over 64 bits, which Rule 2 needs.
_OLDEST_SERVER = 130000

# How long a server that has gone is waited for. A restart takes a few seconds; a caller needs an answer soon.
RECONNECT_S = 10.0

_LOCK = 0x68616E64  # "hand": its holder is making the tables

# A server that vanishes without a word is missed after some 20 s, and one that does not answer at all is given up.
_CONNECTION_SETTINGS: dict[str, Any] = {
    "connect_timeout": 10, "keepalives_idle": 10, "keepalives_interval": 5, "keepalives_count": 2,
    "tcp_user_timeout": 20_000, "application_name": "handrail",
}  # fmt: skip


_READING = "SET default_transaction_read_only = on"
# Who deletes gives way at once, and a deletion that is undone is made again.
_DELETING = "SELECT set_config('lock_timeout', '20ms', false), set_config('synchronous_commit', 'off', false)"


class PostgresStore(SharedLog):
    """A store in a Postgres database. The schema `handrail` is made when it is not there.

    Args:
        place: A connection string or URL of libpq; `postgresql:` may be missing before its slashes.
        create: Make the tables when they are not there.

    Raises:
        ConfigError: There can be no store, or its tables are of a newer handrail.
        StoreUnavailable: The server does not answer, or does not let us in.
    """

    has_own_connections = True

    def __init__(self, place: str = "", *, create: bool = True) -> None:
        url = f"postgresql:{place}" if place.startswith("//") else place
        connection = PostgresConnection(url, create=create)
        self._url = url
        super().__init__(connection, connection.place)
        self.conninfo = connection.conninfo

    def open_writer(self) -> Writer:
        """See `DurableStore.open_writer`."""
        return Writer(PostgresConnection(self._url, create=False), self.place)


class PostgresConnection:
    """A connection to the server, and how to get a new one; see `database.Connection`.

    Args:
        create: Make the tables where there are none.
        settings: What else is set on each connection.
    """

    holds_rows = " FOR UPDATE SKIP LOCKED"

    def __init__(self, place: str, *, create: bool = True, settings: str = "") -> None:
        try:
            given = conninfo_to_dict(place)
        except psycopg.Error:
            raise ConfigError(
                "the store's place is no connection string; write postgresql://user@host:5432/database"
            ) from None
        missing = {
            name: value
            for name, value in _CONNECTION_SETTINGS.items()
            if name not in given
        }
        self.conninfo = make_conninfo(place, **missing)
        self.place = (
            f"postgres:{given.get('host') or 'localhost'}/{given.get('dbname') or ''}"
        )
        self._place = place
        self._settings = settings
        self._owner = owner()
        self._transaction = ""
        self._db = self._connect()
        if settings:
            return  # the tables are there
        try:
            self._migrate(create)
        except psycopg.Error as error:
            self._db.close()
            message = f"the tables of {self.place} cannot be made: {_first_line(error)}"
            if isinstance(error, psycopg.OperationalError):
                raise StoreUnavailable(message) from error
            raise ConfigError(message) from error
        except ConfigError:
            self._db.close()
            raise

    def begin(self) -> float:
        """See `database.Connection.begin`."""
        with self._translate_errors(), self._db.pipeline():
            self._db.execute("BEGIN")
            [now] = self._db.execute(_SQL["clock"]).fetchone() or [0.0]
        return now

    def rows(self, names: Sequence[WriteName]) -> Iterable[Values]:
        """See `database.Connection.rows`."""
        names_json = json.dumps(names)
        with self._translate_errors(), self._db.pipeline():
            if any(run_id is not None for _, _, run_id, _ in names):
                # Two inserts of one act under two keys would not see each other. All acts share 1024 locks, since a
                # server has room for a few thousand; two acts of one lock merely wait for each other's commit.
                self._db.execute(_SQL["take_turns"], (_LOCK, names_json))
            rows = self._db.execute(_SQL["rows"], (names_json,))
            acts = self._db.execute(_SQL["acts"], (names_json,))
            rows_by_key = {row[:2]: row for row in rows.fetchall()}
            other_rows = [row for row in acts.fetchall() if row[:2] not in rows_by_key]
        return sorted([*other_rows, *rows_by_key.values()], key=lambda row: row[_BEGUN])

    def write(
        self, new: Sequence[Row], old: Sequence[Row], results: Sequence[SavedResult]
    ) -> None:
        """See `database.Connection.write`."""
        with self._translate_errors():
            with self._db.pipeline():
                transaction = self._db.execute(_SQL["transaction"])
                inserted = (
                    self._db.execute(_SQL["insert"], (self._owner, _as_json(new)))
                    if new
                    else None
                )
                if old:
                    self._db.execute(_SQL["update"], (self._owner, _as_json(old)))
                for result in results:
                    self._db.execute(_SQL["forget"])
                    self._db.execute(
                        _SQL["keep"],
                        (result.run_id, result.handle, result.body, RESULT_LIFETIME_S),
                    )
                [self._transaction] = transaction.fetchone() or [""]
            if inserted and inserted.rowcount < len(new):
                raise RetryGroup

    def commit(self) -> None:
        """See `database.Connection.commit`."""
        try:
            with self._translate_errors():
                self._db.execute("COMMIT")
        except RetryGroup:
            # on a new connection: ask how the transaction on the old one ended
            outcome = self._wait_for_outcome()
            if outcome == "committed":
                return
            if outcome == "aborted":
                raise
            raise StoreUnavailable(
                f"the connection to {self.place} broke in a commit, and the server does not say how that ended"
            ) from None

    def _wait_for_outcome(self) -> str:
        """Ask how the transaction ended; the server may not have seen yet that its connection is gone."""
        until = time.monotonic() + RECONNECT_S
        wait_s = 0.01
        while True:
            with self._translate_errors():
                [outcome] = self._db.execute(
                    _SQL["outcome"], (self._transaction,)
                ).fetchone() or [""]
            if outcome != "in progress" or time.monotonic() + wait_s > until:
                return str(outcome)
            time.sleep(wait_s)
            wait_s = min(2 * wait_s, 1.0)

    def rollback(self) -> None:
        """See `database.Connection.rollback`."""
        try:
            if not self._db.closed:
                self._db.execute("ROLLBACK")
        except psycopg.Error:
            self._db.close()  # the next transaction begins on another connection

    def load_result(self, run_id: str, handle: str) -> bytes | None:
        """See `database.Connection.load_result`."""
        with self._translate_errors():
            row = self._db.execute(
                _SQL["kept"], (run_id, handle), binary=True
            ).fetchone()
        return bytes(row[0]) if row else None

    def open_reading(self) -> PostgresConnection:
        """See `database.Connection.open_reading`."""
        return PostgresConnection(self._place, create=False, settings=_READING)

    def open_another(self) -> PostgresConnection:
        """See `database.Connection.open_another`."""
        return PostgresConnection(self._place, create=False, settings=_DELETING)

    def close(self) -> None:
        """See `database.Connection.close`."""
        self._db.close()

    # ------------------------------------------------------------------ statements

    def run(self, statement: str, given: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        """Run a statement; return its rows."""
        with self._translate_errors():
            cursor = self._db.execute(_with_markers(statement), given)
            return cursor.fetchall() if cursor.description else []

    def run_with(
        self, statement: str, rows: Sequence[Sequence[Any]]
    ) -> list[tuple[Any, ...]]:
        """See `database.Database.run_with`."""
        with self._translate_errors():
            with self._db.pipeline():
                cursors = [
                    self._db.execute(_with_markers(piece), given)
                    for piece, given in expand_rows(statement, rows)
                ]
            return [
                row
                for cursor in cursors
                if cursor.description
                for row in cursor.fetchall()
            ]

    def add(self, statement: str, rows: Sequence[Sequence[Any]]) -> None:
        """Run a statement for each of these, in one transaction."""
        with (
            self._translate_errors(),
            self._db.transaction(),
            self._db.cursor() as cursor,
        ):
            cursor.executemany(_with_markers(statement), rows)

    def columns(self, table: str) -> list[str]:
        """Name the columns of a table."""
        return [name for (name,) in self.run(_SQL["columns"], (table,))]

    def now(self) -> float:
        """Return the server's time."""
        [[now]] = self.run(_SQL["clock"])
        return float(now)

    def size_bytes(self) -> int:
        """Return the size of our tables and their indexes."""
        [[size]] = self.run(_SQL["size"])
        return int(size)

    def shrink(self, *, rewrite: bool) -> None:
        """See `database.Database.shrink`. Also updates the planner's statistics."""
        # not TRUNCATE: everybody waits while the end of a table is cut off
        options = "FULL, ANALYZE" if rewrite else "ANALYZE, TRUNCATE false"
        self.run(
            f"VACUUM ({options}) effects, acts, kept, runs, steps, approvals, audit, audit_pending"
        )

    def checkpoint(self) -> None:
        """See `database.Database.checkpoint`. The server does this by itself."""

    def shrink_some(self) -> bool:
        """See `database.Database.shrink_some`. The server does this by itself."""
        return False

    # ------------------------------------------------------------------ connecting

    def _connect(self) -> psycopg.Connection[tuple[Any, ...]]:
        try:
            db = psycopg.connect(self.conninfo, autocommit=True)
        except psycopg.Error as error:
            raise StoreUnavailable(
                f"no connection to {self.place}: {_first_line(error)}"
            ) from error
        if db.info.server_version < _OLDEST_SERVER:
            db.close()
            raise ConfigError(
                f"the server of {self.place} is too old for a store; it must be Postgres 13 or newer"
            )
        db.execute(_SQL["settings"])
        if self._settings:
            db.execute(self._settings)
        return db

    def _reconnect(self) -> None:
        """Get a new connection, waiting for a server that starts again.

        Raises:
            StoreUnavailable: It did not come back.
        """
        self._db.close()
        until = time.monotonic() + RECONNECT_S
        wait_s = 0.05
        while True:
            try:
                self._db = self._connect()
                return
            except (StoreUnavailable, psycopg.Error) as error:
                if time.monotonic() + wait_s > until:
                    raise StoreUnavailable(
                        f"{self.place} has been gone for {RECONNECT_S:g} s; {error}"
                    ) from error
            time.sleep(wait_s)
            wait_s = min(2 * wait_s, 1.0)

    def _migrate(self, create: bool) -> None:
        """Make the tables where there are none, one process after the other."""
        with self._db.transaction():
            self._db.execute("SELECT pg_advisory_xact_lock(%s)", (_LOCK,))
            [table] = self._db.execute(_SQL["version"]).fetchone() or [None]
            version = 0
            if table:
                [version] = self._db.execute(
                    "SELECT max(version) FROM schema_version"
                ).fetchone() or [0]
            elif not create:
                raise ConfigError(f"there is no store in {self.place}")
            else:
                self._db.execute("CREATE SCHEMA IF NOT EXISTS handrail")
            if version > VERSION:
                raise ConfigError(
                    f"the store {self.place} has version {version} and this handrail knows {VERSION}; "
                    "use a newer handrail"
                )
            for number, migration in enumerate(_MIGRATIONS[version:], version + 1):
                self._db.execute(_SQL[migration])
                self._db.execute(_SQL["migrated"], (number,))

    @contextmanager
    def _translate_errors(self) -> Iterator[None]:
        """Raise our exceptions for what psycopg raised; where the connection is gone, get a new one first."""
        try:
            yield
        except (errors.DeadlockDetected, errors.SerializationFailure) as error:
            raise RetryGroup from error
        except errors.LockNotAvailable as error:
            if self._settings == _DELETING:
                raise RetryGroup from error
            raise Refused(
                f"{self.place} refused it: {_first_line(error)}; nothing was recorded"
            ) from error
        except (psycopg.DataError, psycopg.IntegrityError) as error:
            raise Refused(
                f"{self.place} refused it: {_first_line(error)}; nothing was recorded"
            ) from error
        except psycopg.Error as error:
            if not self._db.closed:
                raise StoreUnavailable(
                    f"{self.place} failed: {_first_line(error)}; nothing was recorded"
                ) from error
            self._reconnect()
            raise RetryGroup from error


def _as_json(rows: Sequence[Row]) -> str:
    # As arrays for `unnest` they cost twice as much of our CPU, and the server no less.
    return json.dumps([row_values(row) for row in rows])


@cache
def _with_markers(statement: str) -> str:
    return statement.replace("?", "%s")


def _first_line(error: Exception) -> str:
    """Return the message without its details, which may hold secret values."""
    return (str(error).splitlines() or [type(error).__name__])[0]
