"""A store in one SQLite file: durable on one machine, for any number of its processes.

    Runtime(tools, store="sqlite:///handrail.db")       # beside the program; four slashes for an absolute path

Every commit is flushed to the disk before anybody is answered (WAL, `synchronous=FULL`). Leases run by this machine's
clock as SQLite reads it. A clock that is set forward ends leases early, see docs/decisions/0008-stores.md; one that is
set back makes them last longer.

Rule 1: a transaction that may write begins with BEGIN IMMEDIATE, so that nobody else is in it from its first row on.
Rule 2: a file that is no longer at its path takes no claim: another process would not see it. Nor does one whose log or
        index (`-wal`, `-shm`) is not: another process would make new ones, and neither see our commits nor our locks.
"""

from __future__ import annotations

import errno
import os
import sqlite3
from collections.abc import Iterable, Sequence
from itertools import chain
from pathlib import Path
from threading import Lock
from typing import Any

from handrail.errors import ConfigError, StoreUnavailable
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
from handrail.stores.ledger import Restored, Row
from handrail.stores.sql_runs import DurableRuns
from handrail.stores.sql_values import expand_rows, row_values, statements
from handrail.stores.sqlite_forks import FORKS, Work
from handrail.surroundings.clock import monotonic, sleep

# How long commits of other processes are waited for. Each takes milliseconds; many on a slow disk, seconds. A caller
# learns that nothing was claimed while there is still time to act on it; Postgres has the same bound.
BUSY_S = 10.0

ASK_MS = 8
"""How long SQLite may wait at a time for a file that callers wait for: it sleeps for 1, 2 and 5 ms, and is asked again.
Left to itself it goes on with up to 100 ms, while others take the file again and again."""

# Which byte of the file `-shm` a writer holds: SQLite's WAL-mode file format, section 2.3.1, "Locks" (WAL_WRITE_LOCK).
_WRITE_LOCK = 120

# What `PRAGMA auto_vacuum` answers for a file that can be made smaller in steps, and the pages of a step.
_INCREMENTAL = 2
_SHRINK_PAGES = 128

_SQL = statements("sqlite.sql")
VERSION = 1
"""The version of the tables that this handrail makes and opens."""
"""The version of the tables that this handrail knows."""

_BEGUN = 8
"""The position of `begun` among the columns of a row."""

_OPEN = ("claimed", "waiting")
"""The states of a write that has an owner, whose row is written whole."""

# `json_each` with ON CONFLICT, and dropping columns in later migrations, need no newer one.
_OLDEST_SQLITE = (3, 35, 0)


class SqliteStore(DurableRuns):
    """A store in a file, which is made when it is not there. Its directory must exist.

    Args:
        path: Of the file; a URL's slashes may stand before it: `///relative.db`, `////absolute.db`.
        create: Make the file when it is not there.

    Raises:
        ConfigError: There can be no store at this path, or something else lies there.
        StoreUnavailable: It cannot be opened now.
    """

    def __init__(
        self, path: str | os.PathLike[str] = "", *, create: bool = True
    ) -> None:
        file = path_from_url(os.fspath(path))
        if not create and not file.exists():
            raise ConfigError(f"there is no store {file}")
        super().__init__(SqliteConnection(file, asks_often=True), f"sqlite:{file}")
        self.file = file

    def _enqueue_segment(self, database: Database, segment: Sequence[Any]) -> bool:
        """See `SubmittedRuns`: the segments are rows of the store."""
        return bool(database.run(_SQL["enqueue"], segment))


class SqliteConnection:
    """A connection to the file; see `database.Connection`.

    Args:
        read_only: The connection can change nothing, and the file must be there.
        asks_often: Callers wait for this connection, so it asks for the file every few milliseconds. Others let these
            have it first.
    """

    holds_rows = ""
    """A transaction has the whole file."""

    def __init__(
        self, file: Path, *, read_only: bool = False, asks_often: bool = False
    ) -> None:
        if sqlite3.sqlite_version_info < _OLDEST_SQLITE:
            raise ConfigError(
                f"SQLite {sqlite3.sqlite_version} is too old for a store; it must be 3.35 or newer"
            )
        self.file = file
        self._at_work = _AtWork(file)
        self._read_only = read_only
        self._now = 0.0
        self.restored: Restored | None = None
        self._asks_for_s = BUSY_S if asks_often else 0.0
        """For how long a busy file is asked for again."""
        if not read_only:
            _create_file(file)
        self._open()

    def _open(self) -> None:
        FORKS.check(self.file)
        self._owner = owner()
        self._at_work.begin()
        try:
            self._db = sqlite3.connect(
                f"{self.file.as_uri()}?mode=rw",
                timeout=BUSY_S,
                isolation_level=None,
                check_same_thread=False,
                uri=True,
            )
            self._at_work.db = self._db
            try:
                if self._read_only:
                    # not `mode=ro`: the last connection that is closed removes the log
                    self._db.execute("PRAGMA query_only=ON")
                else:
                    self._prepare()
                if self._asks_for_s:
                    self._db.execute(f"PRAGMA busy_timeout={ASK_MS}")
            except BaseException:
                self._db.close()
                raise
        except sqlite3.Error as error:
            raise _error_of_opening(self.file, error) from error
        finally:
            self._at_work.end()
        beside = (
            self.file.with_name(f"{self.file.name}{end}")
            for end in ("", "-wal", "-shm")
        )
        self._identities = [(str(each), _identity(each)) for each in beside]

    def reopen(self) -> None:
        """See `database.Connection.reopen`."""
        file, identity = self._identities[0]
        if _identity(file) != identity:
            raise _replaced(file)
        self._open()

    def forget_waits(self) -> None:
        """See `database.Connection.forget_waits`: each statement counts its own."""

    def begin(self) -> float:
        """See `database.Connection.begin`."""
        with self._at_work:
            self._execute("BEGIN IMMEDIATE")
            self._check_files()
            self._now, since, at = self._db.execute(_SQL["begin"]).fetchone()
            self.restored = None if since is None else Restored(since, at)
            return self._now

    def _check_files(self) -> None:
        """Raise StoreUnavailable where other processes would not find the file, its log or its index any more."""
        for file, identity in self._identities:
            if _identity(file) != identity:
                raise _replaced(file)

    def rows(self, names: Sequence[WriteName]) -> Iterable[Values]:
        """See `database.Connection.rows`."""
        keys = [name[:2] for name in names]
        acts = [
            (scope, run_id, fingerprint)
            for scope, _, run_id, fingerprint in names
            if run_id
        ]
        with self._at_work:
            rows = self._run_with(_SQL["rows"], keys) + self._run_with(
                _SQL["acts"], acts
            )
        return sorted(rows, key=lambda row: row[_BEGUN])

    def write(
        self, new: Sequence[Row], old: Sequence[Row], results: Sequence[SavedResult]
    ) -> None:
        """See `database.Connection.write`."""
        with self._at_work:
            whole = [*new, *(row for row in old if row.state in _OPEN)]
            ended = [row for row in old if row.state not in _OPEN]
            self._run_with(
                _SQL["write"],
                [(*row_values(row), self._owner, self._now) for row in whole],
            )
            self._run_with(
                _SQL["settle"],
                [
                    (row.scope, row.key, row.state, row.value, self._now)
                    for row in ended
                ],
            )
            for result in results:
                self._db.execute(_SQL["forget"])
                self._db.execute(
                    _SQL["keep"],
                    (result.run_id, result.handle, result.body, RESULT_LIFETIME_S),
                )

    def commit(self) -> None:
        """See `database.Connection.commit`."""
        with self._at_work:
            self._db.execute("COMMIT")

    def rollback(self) -> None:
        """See `database.Connection.rollback`."""
        try:
            if self._db.in_transaction:
                self._db.execute("ROLLBACK")
        except sqlite3.Error:
            pass  # the disk is gone; what was not committed is not there
        self._at_work.end()

    def foresee(self) -> None:
        """See `database.Connection.foresee`: a file is as near as what we remember of it."""

    def load_result(self, run_id: str, handle: str) -> bytes | None:
        """See `database.Connection.load_result`."""
        with self._at_work:
            row: tuple[bytes] | None = self._execute(
                _SQL["kept"], (run_id, handle)
            ).fetchone()
        return row[0] if row else None

    def open_reading(self) -> SqliteConnection:
        """See `database.Connection.open_reading`."""
        return self._open_same(read_only=True)

    def open_another(self) -> SqliteConnection:
        """See `database.Connection.open_another`."""
        connection = self._open_same(read_only=False)
        # Nobody waits for the disk while others wait for the file.
        connection.run("PRAGMA synchronous=NORMAL")
        # A commit that checkpoints takes as long as the disk, and says nothing of how long others waited for it.
        connection.run("PRAGMA wal_autocheckpoint=0")
        return connection

    def _open_same(self, *, read_only: bool) -> SqliteConnection:
        self._check_files()  # what is not there would be made
        connection = SqliteConnection(self.file, read_only=read_only)
        try:
            self._check_files()
        except StoreUnavailable:
            connection.close()
            raise
        return connection

    def close(self) -> None:
        """See `database.Connection.close`."""
        self._at_work.begin()
        try:
            self._db.close()
        finally:
            self._at_work.end()

    # ------------------------------------------------------------------ statements

    def run(self, statement: str, given: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        """Run a statement; return its rows."""
        with self._at_work:
            return self._execute(statement, given).fetchall()

    def run_with(
        self, statement: str, rows: Sequence[Sequence[Any]]
    ) -> list[tuple[Any, ...]]:
        """See `database.Database.run_with`."""
        with self._at_work:
            return self._run_with(statement, rows)

    def write_rows(
        self, statement: str, rows: Sequence[Sequence[Any]], *, every: bool = False
    ) -> None:
        """See `database.Database.write_rows`."""
        if len(self.run_with(statement, rows)) < len(rows) and every:
            raise RetryGroup

    def _run_with(
        self, statement: str, rows: Sequence[Sequence[Any]]
    ) -> list[tuple[Any, ...]]:
        # Many rows in one statement cost half as much as a JSON document that is taken apart there.
        pieces = expand_rows(statement, rows)
        return list(
            chain.from_iterable(
                self._execute(piece, given).fetchall() for piece, given in pieces
            )
        )

    def _execute(self, statement: str, given: Sequence[Any] = ()) -> sqlite3.Cursor:
        """Execute a statement; while the file is busy, ask for it again."""
        until: float | None = None
        while True:
            try:
                return self._db.execute(statement, given)
            except sqlite3.OperationalError as error:
                now = monotonic()
                until = now + self._asks_for_s if until is None else until
                if not _is_busy(error) or now >= until:
                    raise
                self._at_work.pause(0.001)

    def add(self, statement: str, rows: Sequence[Sequence[Any]]) -> None:
        """Run a statement for each of these, in one transaction."""
        try:
            with self._at_work:
                self._execute("BEGIN IMMEDIATE")
                self._db.executemany(statement, rows)
            self.commit()
        finally:
            self.rollback()

    def columns(self, table: str) -> list[str]:
        """Name the columns of a table."""
        return [
            name
            for (name,) in self.run("SELECT name FROM pragma_table_info(?)", (table,))
        ]

    def now(self) -> float:
        """Return the time by this machine's clock."""
        [[now]] = self.run(_SQL["clock"])
        return float(now)

    def size_bytes(self) -> int:
        """Return the size of the file and of its log."""
        files = (self.file, self.file.with_name(f"{self.file.name}-wal"))
        return sum(file.stat().st_size for file in files if file.exists())

    def shrink(self, *, rewrite: bool) -> None:
        """See `database.Database.shrink`. What was deleted is used again by itself."""
        if not rewrite:
            return
        self.run(
            "PRAGMA auto_vacuum=INCREMENTAL"
        )  # a file of old cannot shrink otherwise
        self.run("VACUUM")
        self.run("PRAGMA wal_checkpoint(TRUNCATE)")

    def checkpoint(self) -> None:
        """See `database.Database.checkpoint`."""
        self.run("PRAGMA wal_checkpoint(PASSIVE)")

    def shrink_some(self) -> bool:
        """See `database.Database.shrink_some`."""
        [[pages]] = self.run("PRAGMA page_count")
        [[unused]] = self.run("PRAGMA freelist_count")
        [[mode]] = self.run("PRAGMA auto_vacuum")
        if mode != _INCREMENTAL or unused < max(pages // 5, _SHRINK_PAGES):
            return False
        with self._at_work:
            # as a script: a statement without columns is left after its first step, which returns one page
            self._db.executescript(f"PRAGMA incremental_vacuum({_SHRINK_PAGES})")
        return True

    # ------------------------------------------------------------------ opening

    def _prepare(self) -> None:
        """Set the connection up, and the tables where there are none."""
        self._db.execute("PRAGMA auto_vacuum=INCREMENTAL")  # of a new file only
        self._become_wal()
        self._db.execute("PRAGMA synchronous=FULL")
        self._db.execute("BEGIN IMMEDIATE")
        version = self._version()
        if not version:
            for statement in _SQL["schema"].split(";\n"):
                if statement.strip():
                    self._db.execute(statement)
            self._db.execute(_SQL["made"], (VERSION,))
        elif version != VERSION:
            raise ConfigError(
                f"the store {self.file} has version {version} and this handrail knows {VERSION}; "
                "open it with the handrail that made it, or name another file"
            )
        self._db.execute("COMMIT")

    def _become_wal(self) -> None:
        """Write ahead. While others open the file too, SQLite does not wait here, so we do."""
        until = monotonic() + BUSY_S
        while True:
            try:
                [mode] = self._db.execute("PRAGMA journal_mode=WAL").fetchone()
                break
            except sqlite3.OperationalError as error:
                if not _is_busy(error) or monotonic() > until:
                    raise
                sleep(0.01)
        if mode != "wal":
            raise ConfigError(
                f"the store {self.file} cannot have a write-ahead log; it must lie on a disk of this machine"
            )

    def _version(self) -> int:
        tables = {
            name
            for (name,) in self._db.execute(
                "SELECT name FROM sqlite_master WHERE type = 'table'"
            )
        }
        if tables and "schema_version" not in tables:
            raise ConfigError(
                f"{self.file} is a database of something else; name another file for the store"
            )
        if not tables:
            return 0
        version: int = self._db.execute(
            "SELECT max(version) FROM schema_version"
        ).fetchone()[0]
        return version


def _replaced(file: str) -> StoreUnavailable:
    return StoreUnavailable(
        f"the store {file} was removed or replaced while it was open; nothing was claimed. "
        "Put the file back, or start again with the new one"
    )


class _AtWork(Work):
    """A context in which a connection works: nobody forks meanwhile, nor while its transaction is open afterwards.

    It raises `Refused` or StoreUnavailable for what SQLite raised. A class, since there is one such context for every
    few rows: a generator would cost as much as the statement.
    """

    __slots__ = ()

    def __enter__(self) -> None:
        """Begin to work."""
        self.begin()

    def __exit__(self, _: object, error: BaseException | None, __: object) -> None:
        """End the work, unless a transaction is open; translate the error, if there is one."""
        if self.can_rest():
            self.end()
        if error is None:
            return
        if isinstance(error, sqlite3.Error):
            code = getattr(error, "sqlite_errorcode", 0) & 0xFF
            holder = _describe_writer(self.file) if _is_busy(error) else ""
            message = f"the store {self.file} {_MESSAGES.get(code, error)}{holder}; nothing was recorded"
            if code in _REFUSED or isinstance(error, sqlite3.DataError):
                raise Refused(message) from error
            raise StoreUnavailable(message) from error
        if isinstance(error, OverflowError):
            raise Refused(
                f"the store {self.file} was given a number that is too large: {error}"
            ) from error


_CREATING = Lock()
"""Held while a file is made, so that no connection of another thread has locks on it when it is closed again."""


def _create_file(file: Path) -> None:
    """Make the file if it is not there, for its owner only: results of tools lie in it."""
    if file.is_dir():
        raise ConfigError(f"the store {file} is a directory; name a file in it")
    if not file.parent.is_dir():
        raise ConfigError(
            f"the store {file} cannot be made: there is no directory {file.parent}"
        )
    # POSIX: closing a file lets go of every lock that this process has on it, also those of another connection.
    # Others would take that one for closed, and remove its log. So a file that is there is not opened here.
    with _CREATING:
        try:
            if not file.exists():
                os.close(os.open(file, os.O_RDWR | os.O_CREAT, 0o600))
        except OSError as error:
            raise ConfigError(
                f"the store {file} cannot be written to: {error.strerror}"
            ) from error
    if not os.access(file, os.R_OK | os.W_OK):
        raise ConfigError(
            f"the store {file} cannot be written to: {os.strerror(errno.EACCES)}"
        )


_BUSY = {sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED}
_REFUSED = {
    sqlite3.SQLITE_FULL,
    sqlite3.SQLITE_TOOBIG,
    sqlite3.SQLITE_CONSTRAINT,
    sqlite3.SQLITE_MISMATCH,
}
_MESSAGES = {
    sqlite3.SQLITE_BUSY: f"was busy for {BUSY_S:g} s: another process holds it",
    sqlite3.SQLITE_FULL: "is full: its disk has no room",
    sqlite3.SQLITE_IOERR: "could not be read or written: its disk failed or is full",
    sqlite3.SQLITE_CORRUPT: "is corrupted; restore it from a backup",
    sqlite3.SQLITE_NOTADB: "is corrupted; restore it from a backup",
    sqlite3.SQLITE_READONLY: "is read-only",
    sqlite3.SQLITE_CANTOPEN: "cannot be opened: its directory is gone or may not be written to",
    sqlite3.SQLITE_TOOBIG: "was given a value of more than 1 GB",
}


def _is_busy(error: sqlite3.Error) -> bool:
    """Whether another connection has what a statement needs."""
    return getattr(error, "sqlite_errorcode", 0) & 0xFF in _BUSY


def _error_of_opening(
    file: Path, error: sqlite3.Error
) -> ConfigError | StoreUnavailable:
    """Return why a file cannot be opened as a store: for good, or just now."""
    code = getattr(error, "sqlite_errorcode", 0) & 0xFF
    if code == sqlite3.SQLITE_NOTADB:
        return ConfigError(
            f"{file} is no SQLite database; name another file for the store"
        )
    message = f"the store {file} {_MESSAGES.get(code, error)}"
    if code in _BUSY or code in (sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR):
        return StoreUnavailable(message)
    return ConfigError(message)


def _describe_writer(file: Path) -> str:
    """Return which process is in the middle of a transaction, where the system says so (Linux), to end a sentence.

    The lock itself must not be asked: opening and closing the file would let go of every lock that we have on it.
    """
    try:
        identity = _identity(file.with_name(f"{file.name}-shm"))
        if identity is None:
            return ""
        device, inode = identity
        wanted = (
            "WRITE",
            f"{os.major(device):02x}:{os.minor(device):02x}:{inode}",
            str(_WRITE_LOCK),
        )
        for line in Path("/proc/locks").read_text().splitlines():
            *_, mode, pid, address, begin, _ = line.split()
            if (mode, address, begin) == wanted:
                state = (
                    Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
                )
                if state not in "Tt":
                    return f", {pid}"
                return f", {pid}, which was stopped (`kill -CONT {pid}` resumes it, `kill -9 {pid}` ends it)"
    except (OSError, ValueError):
        pass  # no Linux, or gone by now
    return ""


def _identity(file: Path | str) -> tuple[int, int] | None:
    """Return device and inode of a file, or None where there is none."""
    try:
        status = os.stat(file)  # noqa: PTH116  # once for every group: a third of the cost of Path.stat
    except OSError:
        return None
    return status.st_dev, status.st_ino


def path_from_url(place: str) -> Path:
    """Return the path of a store from what follows `sqlite:`."""
    if place.startswith("//"):
        if not place.startswith("///"):
            raise ConfigError(
                f"the store 'sqlite:{place}' names a host; write sqlite:///file.db, or sqlite:////path/to/file.db"
            )
        place = place[3:]
    if not place or place == ":memory:":
        raise ConfigError(
            "a store of the kind 'sqlite' is a file: sqlite:///file.db; 'memory' is one in memory"
        )
    return Path(place).expanduser().absolute()
