"""A store in one SQLite file: durable on one machine, for any number of its processes.

    Runtime(tools, store="sqlite:///handrail.db")       # beside the program; four slashes for an absolute path

Every commit is flushed to the disk before anybody is told (WAL, `synchronous=FULL`). Leases run by this machine's clock
as SQLite reads it. A clock that is set forward ends leases early, which docs/decisions/0008-stores.md goes through; one
that is set back makes them last longer.

Rule 1: a transaction that may write begins with BEGIN IMMEDIATE, so that nobody else is in it from its first row on.
Rule 2: a file that is no longer at its path takes no claim: another process would not see it. Nor does one whose log or
        index (`-wal`, `-shm`) is not: another process would make new ones, and neither see our commits nor our locks.
"""

from __future__ import annotations

import errno
import os
import sqlite3
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from itertools import chain
from pathlib import Path
from threading import Lock
from typing import Any

from handrail.errors import ConfigError, StoreUnavailable
from handrail.process_identity import owner
from handrail.stores.durable import (
    KEPT_S,
    KeptText,
    Named,
    Refused,
    Values,
    statements,
    values,
    widened,
)
from handrail.stores.ledger import Row
from handrail.stores.sql_runs import DurableRuns

# How long commits of other processes are waited for. Each takes milliseconds; many on a slow disk, seconds. Whoever
# waits in vain hears that nothing was claimed while there is still time to act on it; Postgres has the same bound.
BUSY_S = 10.0

# Which byte of the file `-shm` a writer holds: SQLite's WAL-mode file format, section 2.3.1, "Locks" (WAL_WRITE_LOCK).
_WRITE_LOCK = 120

_SQL = statements("sqlite.sql")
_MIGRATIONS = ("schema_1", "schema_2", "schema_3", "schema_4", "schema_5")
VERSION = len(_MIGRATIONS)
"""The version of the tables that this handrail knows."""

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

    def __init__(self, path: str | os.PathLike[str] = "", *, create: bool = True) -> None:
        file = file_of(os.fspath(path))
        if not create and not file.exists():
            raise ConfigError(f"there is no store {file}")
        super().__init__(SqliteBase(file), f"sqlite:{file}")


class SqliteBase:
    """A connection to the file; see `durable.Base`."""

    def __init__(self, file: Path) -> None:
        if sqlite3.sqlite_version_info < _OLDEST_SQLITE:
            raise ConfigError(f"SQLite {sqlite3.sqlite_version} is too old for a store; it must be 3.35 or newer")
        self.file = file
        self._owner, self._now = owner(), 0.0
        self._created(file)
        try:
            self._db = sqlite3.connect(file, timeout=BUSY_S, isolation_level=None, check_same_thread=False)
            try:
                self._prepare()
            except BaseException:
                self._db.close()
                raise
        except sqlite3.Error as error:
            raise _unopened(file, error) from error
        beside = (file.with_name(f"{file.name}{end}") for end in ("", "-wal", "-shm"))
        self._identities = [(str(each), _identity(each)) for each in beside]

    def begin(self) -> float:
        """See `durable.Base.begin`."""
        with self._told():
            self._db.execute("BEGIN IMMEDIATE")
            if gone := [file for file, known in self._identities if _identity(file) != known]:
                raise StoreUnavailable(
                    f"the store {gone[0]} was removed or replaced while it was open; nothing was claimed. "
                    "Put the file back, or start again with the new one"
                )
            [self._now] = self._db.execute(_SQL["clock"]).fetchone()
            return self._now

    def rows(self, named: Sequence[Named]) -> Iterable[Values]:
        """See `durable.Base.rows`."""
        acts = [(scope, run_id, fingerprint) for scope, _, run_id, fingerprint in named if run_id]
        with self._told():
            found = self._run_with(_SQL["rows"], [each[:2] for each in named]) + self._run_with(_SQL["acts"], acts)
        return sorted(found, key=lambda row: row[8])

    def write(self, new: Sequence[Row], old: Sequence[Row], texts: Sequence[KeptText]) -> None:
        """See `durable.Base.write`."""
        with self._told():
            whole = [*new, *(row for row in old if row.state == "claimed")]
            ended = [row for row in old if row.state != "claimed"]
            mine = self._owner, self._now
            self._run_with(_SQL["write"], [values(row) + mine for row in whole])
            self._run_with(_SQL["settle"], [(row.scope, row.key, row.state, row.value, self._now) for row in ended])
            for text in texts:
                self._db.execute(_SQL["forget"])
                self._db.execute(_SQL["keep"], (text.run_id, text.handle, text.body, KEPT_S))

    def commit(self) -> None:
        """See `durable.Base.commit`."""
        with self._told():
            self._db.execute("COMMIT")

    def rollback(self) -> None:
        """See `durable.Base.rollback`."""
        try:
            if self._db.in_transaction:
                self._db.execute("ROLLBACK")
        except sqlite3.Error:
            pass  # the disk is gone; what was not committed is not there

    def load_result(self, run_id: str, handle: str) -> bytes | None:
        """See `durable.Base.load_result`."""
        with self._told():
            found: tuple[bytes] | None = self._db.execute(_SQL["kept"], (run_id, handle)).fetchone()
        return found[0] if found else None

    def close(self) -> None:
        """See `durable.Base.close`."""
        self._db.close()

    # ------------------------------------------------------------------ upkeep, see `upkeep.Keeper`

    def run(self, statement: str, given: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        """Run a statement; return its rows."""
        with self._told():
            return self._db.execute(statement, given).fetchall()

    def run_with(self, statement: str, rows: Sequence[Sequence[Any]]) -> list[tuple[Any, ...]]:
        """See `durable.Keeper.run_with`."""
        with self._told():
            return self._run_with(statement, rows)

    def _run_with(self, statement: str, rows: Sequence[Sequence[Any]]) -> list[tuple[Any, ...]]:
        # Many rows in one statement cost half as much as a JSON document that is taken apart there.
        pieces = widened(statement, rows)
        return list(chain.from_iterable(self._db.execute(piece, given).fetchall() for piece, given in pieces))

    def add(self, statement: str, rows: Sequence[Sequence[Any]]) -> None:
        """Run a statement for each of these, in one transaction."""
        try:
            with self._told():
                self._db.execute("BEGIN IMMEDIATE")
                self._db.executemany(statement, rows)
            self.commit()
        finally:
            self.rollback()

    def columns(self, table: str) -> list[str]:
        """Name the columns of a table."""
        return [name for (name,) in self.run("SELECT name FROM pragma_table_info(?)", (table,))]

    def now(self) -> float:
        """Return the time by this machine's clock."""
        [[now]] = self.run(_SQL["clock"])
        return float(now)

    def size_bytes(self) -> int:
        """Return the size of the file and of its log."""
        files = (self.file, self.file.with_name(f"{self.file.name}-wal"))
        return sum(file.stat().st_size for file in files if file.exists())

    def shrink(self, *, rewrite: bool) -> None:
        """See `durable.Keeper.shrink`. What was deleted is used again by itself."""
        if rewrite:
            self.run("VACUUM")
        self.run("PRAGMA wal_checkpoint(TRUNCATE)")

    # ------------------------------------------------------------------ opening

    def _created(self, file: Path) -> None:
        """Make the file if it is not there, for its owner only: results of tools lie in it."""
        if file.is_dir():
            raise ConfigError(f"the store {file} is a directory; name a file in it")
        if not file.parent.is_dir():
            raise ConfigError(f"the store {file} cannot be made: there is no directory {file.parent}")
        # POSIX: closing a file lets go of every lock that this process has on it, also those of another connection.
        # Others would take that one for closed, and remove its log. So a file that is there is not opened here.
        with _CREATING:
            try:
                if not file.exists():
                    os.close(os.open(file, os.O_RDWR | os.O_CREAT, 0o600))
            except OSError as error:
                raise ConfigError(f"the store {file} cannot be written to: {error.strerror}") from error
        if not os.access(file, os.R_OK | os.W_OK):
            raise ConfigError(f"the store {file} cannot be written to: {os.strerror(errno.EACCES)}")

    def _prepare(self) -> None:
        """Set the connection up, and the tables where there are none."""
        self._become_wal()
        self._db.execute("PRAGMA synchronous=FULL")
        self._db.execute("BEGIN IMMEDIATE")
        version = self._version()
        if version > VERSION:
            raise ConfigError(
                f"the store {self.file} has version {version} and this handrail knows {VERSION}; use a newer handrail"
            )
        for migration in _MIGRATIONS[version:]:
            for statement in _SQL[migration].split(";\n"):
                if statement.strip():
                    self._db.execute(statement)
            version += 1
            self._db.execute(_SQL["migrated"], (version,))
        self._db.execute("COMMIT")

    def _become_wal(self) -> None:
        """Write ahead. While others open the file too, SQLite does not wait here, so we do."""
        until = time.monotonic() + BUSY_S
        while True:
            try:
                [mode] = self._db.execute("PRAGMA journal_mode=WAL").fetchone()
                break
            except sqlite3.OperationalError as error:
                if error.sqlite_errorcode & 0xFF not in _BUSY or time.monotonic() > until:
                    raise
                time.sleep(0.01)
        if mode != "wal":
            raise ConfigError(
                f"the store {self.file} cannot have a write-ahead log; it must lie on a disk of this machine"
            )

    def _version(self) -> int:
        tables = {name for (name,) in self._db.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
        if tables and "schema_version" not in tables:
            raise ConfigError(f"{self.file} is a database of something else; name another file for the store")
        if not tables:
            return 0
        version: int = self._db.execute("SELECT max(version) FROM schema_version").fetchone()[0]
        return version

    @contextmanager
    def _told(self) -> Iterator[None]:
        """Say in our words what SQLite raised."""
        try:
            yield
        except sqlite3.Error as error:
            code = getattr(error, "sqlite_errorcode", 0) & 0xFF
            words = f"{_WORDS.get(code, error)}{_holder(self.file) if code in _BUSY else ''}; nothing was recorded"
            if code in _REFUSED or isinstance(error, sqlite3.DataError):
                raise Refused(f"the store {self.file} {words}") from error
            raise StoreUnavailable(f"the store {self.file} {words}") from error
        except OverflowError as error:
            raise Refused(f"the store {self.file} was given a number that is too large: {error}") from error


_CREATING = Lock()
"""Held while a file is made, so that no connection of another thread has locks on it when it is closed again."""

_BUSY = {sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED}
_REFUSED = {sqlite3.SQLITE_FULL, sqlite3.SQLITE_TOOBIG, sqlite3.SQLITE_CONSTRAINT, sqlite3.SQLITE_MISMATCH}
_WORDS = {
    sqlite3.SQLITE_BUSY: f"was busy for {BUSY_S:g} s: another process holds it",
    sqlite3.SQLITE_FULL: "is full: its disk has no room",
    sqlite3.SQLITE_IOERR: "could not be read or written: its disk failed or is full",
    sqlite3.SQLITE_CORRUPT: "is corrupted; restore it from a backup",
    sqlite3.SQLITE_NOTADB: "is corrupted; restore it from a backup",
    sqlite3.SQLITE_READONLY: "is read-only",
    sqlite3.SQLITE_CANTOPEN: "cannot be opened: its directory is gone or may not be written to",
    sqlite3.SQLITE_TOOBIG: "was given a value of more than 1 GB",
}


def _unopened(file: Path, error: sqlite3.Error) -> ConfigError | StoreUnavailable:
    """Return why a file cannot be a store: by its nature, or just now."""
    code = getattr(error, "sqlite_errorcode", 0) & 0xFF
    if code == sqlite3.SQLITE_NOTADB:
        return ConfigError(f"{file} is no SQLite database; name another file for the store")
    words = f"the store {file} {_WORDS.get(code, error)}"
    passing = code in _BUSY or code in (sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR)
    return StoreUnavailable(words) if passing else ConfigError(words)


def _holder(file: Path) -> str:
    """Say which process is in the middle of a transaction, where the system tells (Linux); for the end of a sentence.

    The lock itself must not be asked: opening and closing the file would let go of every lock that we have on it.
    """
    try:
        found = _identity(file.with_name(f"{file.name}-shm"))
        if found is None:
            return ""
        place = f"{os.major(found[0]):02x}:{os.minor(found[0]):02x}:{found[1]}"
        for line in Path("/proc/locks").read_text().splitlines():
            *_, mode, pid, where, begin, _ = line.split()
            if (mode, where, begin) == ("WRITE", place, str(_WRITE_LOCK)):
                state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
                frozen = f", which was stopped (`kill -CONT {pid}` lets it go on, `kill -9 {pid}` lets others on)"
                return f", {pid}{frozen if state in 'Tt' else ''}"
    except (OSError, ValueError):
        pass  # no Linux, or gone by now
    return ""


def _identity(file: Path | str) -> tuple[int, int] | None:
    """Return what tells a file from another one at the same path, or None where there is none."""
    try:
        found = os.stat(file)  # noqa: PTH116  # once for every group: a third of the cost of Path.stat
    except OSError:
        return None
    return found.st_dev, found.st_ino


def file_of(place: str) -> Path:
    """Take the path from `sqlite:` and what follows it."""
    if place.startswith("//"):
        if not place.startswith("///"):
            raise ConfigError(
                f"the store 'sqlite:{place}' names a host; write sqlite:///file.db, or sqlite:////path/to/file.db"
            )
        place = place[3:]
    if not place or place == ":memory:":
        raise ConfigError("a store of the kind 'sqlite' is a file: sqlite:///file.db; 'memory' is one in memory")
    return Path(place).expanduser().absolute()
