"""Keeps connections to SQLite safe across a fork: it waits until they are idle, and the child closes its copies.

SQLite remembers in memory which locks its process has on a file. A fork copies the memory and not the locks, so a copy
that was made in the middle of a transaction takes the file for locked, for ever (https://sqlite.org/howtocorrupt.html,
"Carrying an open database connection across a fork").

Rule 1: this process is forked while none of its connections runs a statement or has a transaction open.
Rule 2: the child closes every copy before it opens the file itself: connections share what SQLite remembers.
Rule 3: where a connection was not idle in time, the child keeps all copies as they are and refuses their files.
"""

from __future__ import annotations

import os
import sqlite3
from contextlib import suppress
from pathlib import Path
from threading import Condition
from weakref import WeakSet

from handrail.errors import SetupError
from handrail.surroundings.clock import sleep

MOST_WAIT_S = 15.0
"""How long a fork waits at most: longer than a connection waits for other processes."""


class Forks:
    """Which connections of this process are at work, and whether the process is just being forked."""

    def __init__(self) -> None:
        self._change = Condition()
        self._forking = 0
        self._open: WeakSet[Work] = WeakSet()
        self._at_work: set[Work] = set()
        self._kept: list[Work] = []
        """Copies that must never be closed here, nor collected."""

    def begin(self, work: Work) -> None:
        """Let a connection work; wait first while the process is being forked."""
        with self._change:
            while self._forking:
                self._change.wait()
            self._open.add(work)
            self._at_work.add(work)

    def end(self, work: Work) -> None:
        """Note that a connection is idle."""
        with self._change:
            self._at_work.discard(work)
            if self._forking:
                self._change.notify_all()

    def check(self, file: Path) -> None:
        """Raise SetupError in a fork that must not open this file."""
        if any(each.file == file for each in self._kept):
            raise SetupError(
                f"this process was forked while its parent was at work on the store {file} for {MOST_WAIT_S:g} s, so "
                "it cannot use that store; start it by another way (spawn), or fork before the store is used"
            )

    def hold(self) -> None:
        """Before a fork: let no connection begin, and wait until all are idle."""
        with self._change:
            self._forking += 1
            self._change.wait_for(lambda: not self._at_work, MOST_WAIT_S)

    def resume(self) -> None:
        """After a fork, in the parent: let them work again."""
        with self._change:
            self._forking -= 1
            self._change.notify_all()

    def leave(self) -> None:
        """After a fork, in the child: close the copies."""
        copies = list(self._open)
        self._change = Condition()
        self._forking = 0
        self._open = WeakSet()
        if self._at_work or self._kept:
            self._kept += copies
            self._at_work = set()
            return
        for each in copies:
            with suppress(sqlite3.Error):  # it was not in use, and is not used again
                if each.db is not None:
                    each.db.close()


FORKS = Forks()

if hasattr(os, "register_at_fork"):  # elsewhere nothing forks
    os.register_at_fork(
        before=FORKS.hold,
        after_in_parent=FORKS.resume,
        after_in_child=FORKS.leave,
    )


class Work:
    """The work of one connection, which does one thing at a time.

    Args:
        file: The database.
    """

    __slots__ = ("__weakref__", "_is_begun", "db", "file")

    def __init__(self, file: Path) -> None:
        self.file = file
        self.db: sqlite3.Connection | None = None
        self._is_begun = False

    def begin(self) -> None:
        """Begin to work, unless it has begun."""
        if not self._is_begun:
            FORKS.begin(self)
            self._is_begun = True

    def end(self) -> None:
        """End the work."""
        if self._is_begun:
            self._is_begun = False
            FORKS.end(self)

    def can_rest(self) -> bool:
        """Whether no transaction is open."""
        try:
            return self.db is None or not self.db.in_transaction
        except sqlite3.ProgrammingError:  # it is closed
            return True

    def pause(self, seconds: float) -> None:
        """Sleep; let a fork happen meanwhile, unless a transaction is open."""
        is_idle = self.can_rest()
        if is_idle:
            self.end()
        sleep(seconds)
        if is_idle:
            self.begin()
