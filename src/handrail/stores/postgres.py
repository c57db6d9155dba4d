"""A store in Postgres: durable for any number of processes on any number of machines. Needs `handrail[postgres]`.

    Runtime(tools, store="postgresql://user@host/database")

The tables lie in a schema of their own, `handrail`. Leases run by the server's clock; no machine needs the right time.

Nearly always a group is one message, decided on what is expected to be there; see `foreseen`.

Rule 1: rows that are there are held from the first look at them until the commit; of two who insert the same row one
        finds it taken, and decides again. Whoever claims an act that counts in its run holds that act first.
Rule 2: whether a commit succeeded whose answer was lost is asked of the server and not guessed. Each connection counts
        its groups there; the number of a transaction is given to another one after a crash.
Rule 3: a connection string may hold a password: nothing of its text is shown but host and database.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import cache
from hashlib import sha256
from itertools import count
from secrets import token_hex
from typing import Any
from weakref import WeakSet

from msgspec.json import encode

from handrail.errors import ConfigError, StoreUnavailable, describe_install
from handrail.process_identity import owner
from handrail.stores.database import (
    RESULT_LIFETIME_S,
    Database,
    Refused,
    RetryGroup,
    SavedResult,
    Values,
    WriteName,
)
from handrail.stores.foreseen import ENTER, ForeseenGroup, GroupAnswer, Recollection
from handrail.stores.group_commit import Writer
from handrail.stores.ledger import Restored, Row
from handrail.stores.shared_log import SharedLog
from handrail.stores.sql_values import decode_name, encode_name, row_values, statements
from handrail.surroundings.clock import monotonic, sleep

try:
    import psycopg
    from psycopg import errors
    from psycopg.conninfo import conninfo_to_dict, make_conninfo
    from psycopg.pq import ExecStatus, TransactionStatus
    from psycopg.pq.abc import PGresult
except ImportError as missing:
    raise ConfigError(
        f"a store in Postgres needs psycopg; install it: {describe_install('postgres')}"
    ) from missing

_SQL = statements("postgres.sql")
VERSION = 1
"""The version of the tables that this handrail makes and opens."""
"""The version of the tables that this handrail knows."""

_BEGUN = 8
"""The position of `begun` among the columns of a row."""

_OLDEST_SERVER = 130000

# How long a server that has gone is waited for. A restart takes a few seconds; a caller needs an answer soon.
RECONNECT_S = 10.0

FROZEN_S = 3.0
"""For how many seconds a process may send nothing in the middle of a transaction: as many as the server's own limit."""
MAX_WAITS = 3
"""How often a group or a job waits for a lock, 3.5 s each time, before it is refused: as long as SQLite's in all."""
_QUICKER = (errors.DeadlockDetected, errors.SerializationFailure)
"""What the server says when another process was quicker: nothing was committed."""
_REFUSED_GROUP = (*_QUICKER, errors.LockNotAvailable, errors.UniqueViolation)
"""What the server says of a group that it has not committed, and that is decided again."""

_LOCK = 0x68616E64  # "hand": its holder is making the tables

# A server that vanishes without a word is missed after some 20 s, and one that does not answer at all is given up.
_CONNECTION_SETTINGS: dict[str, Any] = {
    "connect_timeout": 10, "keepalives_idle": 10, "keepalives_interval": 5, "keepalives_count": 2,
    "tcp_user_timeout": 20_000, "application_name": "handrail",
}  # fmt: skip


# Who only reads holds nobody up, and may take its time over what it has read.
_READING = (
    "SELECT set_config('default_transaction_read_only', 'on', false), "
    "set_config('idle_in_transaction_session_timeout', '60s', false)"
)
# Who deletes gives way at once, and a deletion that is undone is made again.
_DELETING = "SELECT set_config('lock_timeout', '20ms', false), set_config('synchronous_commit', 'off', false)"


# procrastinate's trigger makes a channel of the queue's name; a channel has at most 63 bytes, and
# `procrastinate_queue_v1#` takes 23 of them.
_MOST_QUEUE_BYTES = 40


def job_queue(queue: str) -> str:
    """Return how procrastinate names a queue: a long name by its digest."""
    name = encode_name(queue)
    if len(name.encode()) > _MOST_QUEUE_BYTES:
        digest = sha256(queue.encode("utf-8", "surrogatepass")).hexdigest()
        name = f"\x10{digest[:39]}"
    return name


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
        self._has_queue = False

    def _enqueue_segment(self, database: Database, segment: Sequence[Any]) -> bool:
        """See `SubmittedRuns`: the segments are jobs of procrastinate, whose tables a worker makes."""
        run_id, number, queue, lane = segment
        if not self._has_queue:
            [[self._has_queue]] = database.run(_SQL["has_queue"])
        if not self._has_queue:
            raise ConfigError("the tables of procrastinate are not there")
        given = (run_id, number, job_queue(decode_name(queue)), queue, lane)
        [[is_new]] = database.run(_SQL["enqueue"], given)
        return bool(is_new)

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
        # A pooler would pass our name on to whoever has the connection next, so it is set with the other settings.
        missing.pop("application_name", None)
        self._unnamed = make_conninfo(place, **missing)
        self.place = (
            f"postgres:{given.get('host') or 'localhost'}/{given.get('dbname') or ''}"
        )
        self._place = place
        self._settings = settings
        self._waits = 0
        """How often the present group or job has waited for a lock in vain."""
        self._types: dict[tuple[str, str], str] = {}
        self._open()
        _CONNECTIONS.add(self)
        if settings:
            return  # the tables are there
        try:
            self._make_tables(create)
        except psycopg.Error as error:
            self._db.close()
            message = f"the tables of {self.place} cannot be made: {_first_line(error)}"
            if isinstance(error, psycopg.OperationalError):
                raise StoreUnavailable(message) from error
            raise ConfigError(message) from error
        except ConfigError:
            self._db.close()
            raise

    def _open(self) -> None:
        self._owner = owner()
        self._recollection = Recollection()
        self._writer = token_hex(8)
        self.restored: Restored | None = None
        self._number = 0
        """Of the last group that this connection has counted."""
        self._delayed: list[tuple[str, Sequence[Any]]] = []
        self._db = self._connect()

    def reopen(self) -> None:
        """See `database.Connection.reopen`."""
        self._open()

    def leave_to_parent(self) -> None:
        """Drop the connection in a fork. Nothing is sent to the server, which would take it for the parent's."""
        _PARENTS.append(self._db)  # never to be closed here
        if not self._db.closed:
            nowhere = os.open(os.devnull, os.O_RDWR)
            os.dup2(nowhere, self._db.fileno(), inheritable=False)
            os.close(nowhere)

    def forget_waits(self) -> None:
        """See `database.Connection.forget_waits`."""
        self._waits = 0

    def begin(self) -> float:
        """See `database.Connection.begin`."""
        self._delayed.clear()
        with self._translate_errors():
            # two statements in one message, which cannot be prepared
            cursor = self._db.execute(_SQL["begin"], prepare=False)
            cursor.nextset()
            now, since, at = cursor.fetchone() or (0.0, None, None)
        self.restored = None if since is None else Restored(since, at)
        self._recollection.note_clock(now)
        return float(now)

    def rows(self, names: Sequence[WriteName]) -> Iterable[Values]:
        """See `database.Connection.rows`."""
        found = self.run(_SQL["rows"], (_LOCK, encode(names).decode()))
        rows_by_key = {row[1:3]: row[1:] for row in found if row[0]}
        acts = [row[1:] for row in found if row[1:3] not in rows_by_key]
        return sorted([*acts, *rows_by_key.values()], key=lambda row: row[_BEGUN])

    def write(
        self, new: Sequence[Row], old: Sequence[Row], results: Sequence[SavedResult]
    ) -> None:
        """See `database.Connection.write`."""
        if new:
            self._delay(
                _must_be_all(_SQL["insert"]), (self._owner, _as_json(new), len(new))
            )
        if old:
            self._delay(_SQL["update"], (self._owner, _as_json(old)))
        for result in results:
            self._delay(_SQL["forget"])
            self._delay(
                _SQL["keep"],
                (result.run_id, result.handle, result.body, RESULT_LIFETIME_S),
            )

        self._recollection.note_writes((*new, *old), self._owner)

    def commit(self) -> None:
        """See `database.Connection.commit`."""
        self._number += 1
        self._delay(_SQL["count_group"], (self._writer, self._number))
        try:
            with self._translate_errors(), self._db.pipeline():
                self._run_delayed()
                self._db.execute("COMMIT")
        except RetryGroup as error:
            self._raise_unless_committed(error)

    def foresee(self) -> ForeseenGroup | None:
        """See `database.Connection.foresee`; a store that was set back is asked each time."""
        if self.restored is not None:
            return None
        return ForeseenGroup(self._recollection, self._owner, self._commit_whole_group)

    def _commit_whole_group(self, parts: Sequence[Any]) -> GroupAnswer | None:
        """Have the server commit a group, if everything is as expected; return None if its answer was lost."""
        self._number += 1
        given = encode((self._writer, self._number, *parts))
        lock = b"%d" % _LOCK
        owner = self._owner.encode()
        try:
            with self._translate_errors():
                try:
                    clock, is_chained, has_pending, seq = self._db.call_server(
                        _SQL["commit_group"], (lock, owner, given)
                    )
                except errors.UniqueViolation as error:
                    raise RetryGroup from error  # a row that was not expected
        except RetryGroup as error:
            self._raise_unless_committed(error)
            return None
        answer = GroupAnswer(
            float(clock or 0),
            None if is_chained is None else is_chained == b"t",
            None if has_pending is None else has_pending == b"t",
            None if seq is None else int(seq),
        )
        self._recollection.note_clock(answer.clock)
        return answer

    def _raise_unless_committed(self, error: RetryGroup) -> None:
        """Find out on a new connection whether the last group was committed, whose answer was lost.

        Wait for a group that the server still works on; one that it has not started never will be.

        Raises:
            RetryGroup: It was not committed.
            StoreUnavailable: The server does not say.
        """
        if isinstance(error.__cause__, _REFUSED_GROUP):
            raise error  # the server refused it; nothing is unknown
        self._delayed.clear()  # what was not sent any more is not sent with the question
        number = self._number
        self._number += 1
        until = monotonic() + RECONNECT_S
        while True:
            try:
                [[before]] = self.run(_SQL["outcome"], (self._writer, self._number))
                break
            except (RetryGroup, Refused):
                if monotonic() > until:
                    raise StoreUnavailable(
                        f"the connection to {self.place} broke in a commit, and the server does not say how that ended"
                    ) from None
        if before != number:
            raise error

    def rollback(self) -> None:
        """See `database.Connection.rollback`."""
        self._delayed.clear()
        try:
            # psycopg prepares all of its statements again behind a ROLLBACK
            if self._db.pgconn.transaction_status != TransactionStatus.IDLE:
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
        if self._number and not self._db.closed:
            with suppress(psycopg.Error):
                self._db.execute(_SQL["forget_groups"], (self._writer,))
        self._db.close()

    # ------------------------------------------------------------------ statements

    def run(self, statement: str, given: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        """Run a statement; return its rows."""
        with self._translate_errors():
            if self._delayed:
                with self._db.pipeline():
                    self._run_delayed()
                    cursor = self._db.execute(_with_markers(statement), given)
            else:
                cursor = self._db.execute(_with_markers(statement), given)
            return cursor.fetchall() if cursor.description else []

    def run_with(
        self, statement: str, rows: Sequence[Sequence[Any]]
    ) -> list[tuple[Any, ...]]:
        """See `database.Database.run_with`."""
        if not rows:
            return []
        found = self.run(*self._with_rows(statement, rows))
        if statement == ENTER:
            self._recollection.note_entries(rows, found)
        return found

    def write_rows(
        self, statement: str, rows: Sequence[Sequence[Any]], *, every: bool = False
    ) -> None:
        """See `database.Database.write_rows`."""
        if not rows:
            return
        whole, given = self._with_rows(statement, rows)
        if every:
            self._delay(_must_be_all(whole), (*given, len(rows)))
        else:
            self._delay(whole, given)

    def _with_rows(
        self, statement: str, rows: Sequence[Sequence[Any]]
    ) -> tuple[str, tuple[str]]:
        """Return a statement that takes its rows as one JSON text, and the text: a value bound for each costs 3 us."""
        if not self._types:
            for table, column, kind in self.run(_SQL["types"]):
                self._types[table, column] = kind
        return _with_json(statement, len(rows[0]), self._types), (
            encode(rows).decode(),
        )

    def _delay(self, statement: str, given: Sequence[Any] = ()) -> None:
        """Run a statement together with the next one whose answer is needed, or with the commit: in one message."""
        self._delayed.append((_with_markers(statement), given))

    def _run_delayed(self) -> None:
        """Send the delayed statements; the connection is in a pipeline, and tells of errors at its end."""
        for statement, given in self._delayed:
            self._db.execute(statement, given)
        self._delayed.clear()

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
        options = "ANALYZE, TRUNCATE false, SKIP_LOCKED"
        if rewrite:
            options = "FULL, ANALYZE"
            self.run(_SQL["patiently"], (False,))  # for transactions to end
        self.run(
            f"VACUUM ({options}) effects, acts, kept, runs, steps, approvals, audit, audit_pending"
        )

    def checkpoint(self) -> None:
        """See `database.Database.checkpoint`. The server does this by itself."""

    def shrink_some(self) -> bool:
        """See `database.Database.shrink_some`. The server does this by itself."""
        return False

    # ------------------------------------------------------------------ connecting

    def _connect(self) -> _ServerConnection:
        try:
            db = _ServerConnection.connect(self._unnamed, autocommit=True)
        except psycopg.Error as error:
            raise StoreUnavailable(
                f"no connection to {self.place}: {_first_line(error)}"
            ) from error
        if db.info.server_version < _OLDEST_SERVER:
            db.close()
            raise ConfigError(
                f"the server of {self.place} is too old for a store; it must be Postgres 13 or newer"
            )
        encoding = db.info.parameter_status("server_encoding")
        if encoding != "UTF8":
            db.close()
            raise ConfigError(
                f"the database of {self.place} is encoded in {encoding}, which cannot hold every text; "
                "a store needs one that was made with ENCODING 'UTF8'"
            )
        # before anything is set: a setting would stay behind on a connection that is somebody else's next
        if self._is_pooled_by_transaction(db):
            db.close()
            raise ConfigError(
                f"{self.place} is a pooler that gives each transaction another connection to the server, and a store "
                "needs connections of its own; name the server itself, or a pool with pool_mode = session"
            )
        db.execute(_SQL["settings"])
        if self._settings:
            db.execute(self._settings)
        return db

    def _is_pooled_by_transaction(self, db: _ServerConnection) -> bool:
        """Whether two connections share a process of the server, or one is served by several.

        A server reports its process to the client that connects. A pooler reports a number of its own, even where each
        client has a connection to itself; then both are tried in turns.
        """
        try:
            if _server_process(db) == db.info.backend_pid:
                return False
            with _ServerConnection.connect(self._unnamed, autocommit=True) as other:
                # in no regular order: a pool may give its connections in turns
                order = (db, other, db, db, other, other, db, other)
                served = [(each is db, _server_process(each)) for each in order]
        except psycopg.Error as error:
            db.close()
            raise StoreUnavailable(
                f"no connection to {self.place}: {_first_line(error)}"
            ) from error
        return len({process for _, process in served}) != 2 or len(set(served)) != 2

    def _reconnect(self) -> None:
        """Get a new connection, waiting for a server that starts again.

        Raises:
            StoreUnavailable: It did not come back.
        """
        self._db.close()
        until = monotonic() + RECONNECT_S
        wait_s = 0.05
        while True:
            try:
                self._db = self._connect()
                return
            except (StoreUnavailable, psycopg.Error) as error:
                if monotonic() + wait_s > until:
                    raise StoreUnavailable(
                        f"{self.place} has been gone for {RECONNECT_S:g} s; {error}"
                    ) from error
            sleep(wait_s)
            wait_s = min(2 * wait_s, 1.0)

    def _make_tables(self, create: bool) -> None:
        """Make the tables where there are none, one process after the other."""
        with self._db.transaction():
            self._db.execute(_SQL["patiently"], (True,))
            self._db.execute("SELECT pg_advisory_xact_lock(%s)", (_LOCK,))
            [table] = self._db.execute(_SQL["version"]).fetchone() or [None]
            if table:
                [version] = self._db.execute(
                    "SELECT max(version) FROM schema_version"
                ).fetchone() or [0]
                if version != VERSION:
                    raise ConfigError(
                        f"the store {self.place} has version {version} and this handrail knows {VERSION}; "
                        "open it with the handrail that made it, or name another database"
                    )
                return
            if not create:
                raise ConfigError(f"there is no store in {self.place}")
            self._db.execute("CREATE SCHEMA IF NOT EXISTS handrail")
            self._db.execute(_SQL["schema"])
            self._db.execute(_SQL["made"], (VERSION,))

    @contextmanager
    def _translate_errors(self) -> Iterator[None]:
        """Raise our exceptions for what psycopg raised; where the connection is gone, get a new one first."""
        try:
            yield
        except _QUICKER as error:
            raise RetryGroup from error
        except errors.LockNotAvailable as error:
            if self._settings == _DELETING or self._waits_again():
                raise RetryGroup from error
            raise Refused(
                f"{self.place} refused it: {_first_line(error)}; nothing was recorded"
            ) from error
        except (psycopg.DataError, psycopg.IntegrityError) as error:
            raise Refused(
                f"{self.place} refused it: {_first_line(error)}; nothing was recorded"
            ) from error
        except psycopg.Error as error:
            if not (self._db.closed or _is_loss(error)):
                raise StoreUnavailable(
                    f"{self.place} failed: {_first_line(error)}; nothing was recorded"
                ) from error
            self._reconnect()
            raise RetryGroup from error

    def _waits_again(self) -> bool:
        """Whether to wait for a lock once more, having ended who was frozen with it.

        The server's own limit for idle transactions does not end all of these. In the middle of a pipeline it counts a
        transaction as active; and a request to flush, which a pipeline sends, takes the limit off an idle one.
        """
        self.rollback()  # the statement that was refused may have been in a transaction
        self._waits = (self._waits + 1) % MAX_WAITS
        if self._waits:
            with suppress(psycopg.Error):  # then it is only waited for
                self._db.execute(_SQL["end_frozen"], (FROZEN_S,))
        return self._waits > 0


_CONNECTIONS: WeakSet[PostgresConnection] = WeakSet()
_PARENTS: list[_ServerConnection] = []


def _leave_connections() -> None:
    for each in list(_CONNECTIONS):
        each.leave_to_parent()
    _CONNECTIONS.clear()


if hasattr(os, "register_at_fork"):  # elsewhere nothing forks
    os.register_at_fork(after_in_child=_leave_connections)


class _ServerConnection(psycopg.Connection[tuple[Any, ...]]):
    """A connection that calls a function of the server without a cursor: a third of the CPU of a small call."""

    def __init__(self, *given: Any, **named: Any) -> None:
        super().__init__(*given, **named)
        self._names: dict[str, bytes] = {}

    def call_server(self, statement: str, given: Sequence[bytes]) -> list[bytes | None]:
        """Run a statement that returns one row, prepared when it is first run; return the row as text.

        Raises:
            psycopg.Error: As `execute`.
        """
        try:
            answer = self._call_prepared(statement, given)
        except errors.InvalidSqlStatementName:  # psycopg drops all, behind a ROLLBACK
            self._names.clear()
            answer = self._call_prepared(statement, given)
        return [answer.get_value(0, at) for at in range(answer.nfields)]

    def _call_prepared(self, statement: str, given: Sequence[bytes]) -> PGresult:
        name = self._names.get(statement)
        if name is None:
            name = b"handrail_%d" % len(self._names)
            query = _with_numbers(statement).encode()
            _raise_unless(self.pgconn.prepare(name, query), ExecStatus.COMMAND_OK)
            self._names[statement] = name
        answer = self.pgconn.exec_prepared(name, given)
        _raise_unless(answer, ExecStatus.TUPLES_OK)
        return answer


def _server_process(db: _ServerConnection) -> int:
    [process] = db.execute("SELECT pg_backend_pid()", prepare=False).fetchone() or [0]
    return int(process)


def _raise_unless(answer: PGresult, wanted: ExecStatus) -> None:
    if answer.status == wanted:
        return
    error = errors.error_from_result(answer)
    if error.sqlstate is None:  # libpq itself says that the connection is lost
        raise psycopg.OperationalError(str(error))
    raise error


def _with_numbers(statement: str) -> str:
    """Return a statement with its markers as the server itself counts them: `$1`, `$2`."""
    number = count(1)
    return re.sub("%s", lambda _: f"${next(number)}", statement)


def _is_loss(error: psycopg.Error) -> bool:
    """Whether a connection is of no more use, though libpq has not closed it yet.

    The server has announced its end, or libpq itself cannot go on, as where a server goes away amid a pipeline.
    """
    if error.sqlstate is None:
        return isinstance(error, psycopg.OperationalError)
    return error.sqlstate.startswith(_ENDING)


_ENDING = ("08", "57P0", "25P03")
"""Classes of what a server says at a connection's end: broken, shut down, or idle in a transaction for too long."""


def _as_json(rows: Sequence[Row]) -> str:
    # As arrays for `unnest` they cost twice as much of our CPU, and the server no less.
    return encode([row_values(row) for row in rows]).decode()


_INSERT = re.compile(r"(INSERT INTO (\w+)\(([^)]*)\)) VALUES \(\?\)")


_prepared: dict[tuple[str, int], str] = {}


def _with_json(
    statement: str, columns: int, types: Mapping[tuple[str, str], str]
) -> str:
    """Return a statement whose `VALUES (?)` is one JSON text, of an array for each row."""
    prepared = _prepared.get((statement, columns))
    if prepared is not None:
        return prepared
    if insert := _INSERT.search(statement):
        begin, table, names = insert.groups()
        values = [
            f"(r ->> {at})::{types[table, name.strip()]}"
            for at, name in enumerate(names.split(","))
        ]
        rows = f"{begin} SELECT {', '.join(values)} FROM json_array_elements(%s::json) AS r"
        made = statement.replace(insert[0], rows)
    else:
        values = [f"r ->> {at} AS column{at + 1}" for at in range(columns)]
        rows = f"(SELECT {', '.join(values)} FROM json_array_elements(%s::json) AS r)"
        made = statement.replace("(VALUES (?))", rows)
    _prepared[statement, columns] = made
    return made


@cache
def _must_be_all(statement: str) -> str:
    """Return a statement that fails where it returns fewer rows than the number given behind its other values."""
    if statement.startswith("WITH "):
        last = statement.rindex("INSERT INTO")
        return f"{statement[:last].rstrip()}, made AS ({statement[last:]}) SELECT be_all_1(count(*), %s) FROM made"
    return f"WITH made AS ({statement}) SELECT be_all_1(count(*), %s) FROM made"


@cache
def _with_markers(statement: str) -> str:
    return statement.replace("?", "%s")


def _first_line(error: Exception) -> str:
    """Return the message without its details, which may hold secret values."""
    return (str(error).splitlines() or [type(error).__name__])[0]
