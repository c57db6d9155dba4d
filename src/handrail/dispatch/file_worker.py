"""The dispatcher on SQLite: one worker process for each file, which a lock of the operating system holds.

Its segments are rows of the store. They need no heartbeat and no clock: the lock is let go with the death of the
process, and whoever stands by has the file then. A process that is frozen keeps it.

Rule 1: whoever has the lock performs everything that the store has; a segment that is begun is an earlier process's.
"""

from __future__ import annotations

import asyncio
import fcntl
import json
import logging
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from threading import Lock
from typing import IO, TypeVar

from handrail.dispatch.port import Running, Segment, Timing
from handrail.dispatch.shift import Shift, ShiftDispatcher
from handrail.errors import StoreUnavailable
from handrail.futures import StoreAnswer, wait_for
from handrail.process_identity import owner
from handrail.stores.database import Database
from handrail.stores.requests import GroupOperation
from handrail.stores.sql_values import decode_name, encode_name, statements
from handrail.stores.sqlite import SqliteStore

T = TypeVar("T")

log = logging.getLogger("handrail.worker")

_SQL = statements("file_worker.sql", package="handrail.dispatch")
_HELD: dict[Path, int] = {}
"""The files whose lock this process has, and the process that took them: a fork has none of its parent's."""
_held_lock = Lock()


class FileDispatcher(ShiftDispatcher):
    """Has segments performed by the one worker process of a file; see `port.Dispatcher`.

    Args:
        store: A store in SQLite.
        timing: How soon things are noticed.
    """

    def __init__(self, store: SqliteStore, *, timing: Timing | None = None) -> None:
        super().__init__(timing)
        self._store = store
        self._file = store.file.with_name(f"{store.file.name}.worker")
        self._wake_up = asyncio.Event()
        self._holder = ""
        """The process that has the file, while this one stands by."""
        self._under_way: dict[str, asyncio.Task[None]] = {}
        """What is performed or not settled yet, by run."""

    def why_waiting(self) -> str:
        """See `port.Dispatcher.why_waiting`."""
        if not self._holder:
            return ""
        return f"the worker stands by: {self._holder} carries out the runs of {self._store.place}"

    def _take_no_more(self) -> None:
        self._wake_up.set()

    async def _work(self, shift: Shift, queues: Sequence[str]) -> None:
        self._wake_up = asyncio.Event()
        while not shift.is_stopping:
            with _locked(self._file) as holder:
                self._note_holder(holder)
                if not holder:
                    await self._work_alone(shift, queues)
            if not shift.is_stopping:
                await self._sleep()

    def _note_holder(self, holder: str) -> None:
        before, self._holder = self._holder, holder
        if holder and holder != before:
            log.info("%s", self.why_waiting())
        elif before and not holder:
            log.info("the worker has %s now", self._store.place)

    async def _work_alone(self, shift: Shift, queues: Sequence[str]) -> None:
        """Perform what waits in the file, until the shift is stopping and all is settled."""
        is_sure = False
        is_silent = False
        while not shift.is_stopping:
            self._wake_up.clear()
            try:
                if not is_sure:
                    await self._transact(self._release_unheld)
                is_sure = False  # the answer to a claim may be lost
                for running in await self._claim(shift.concurrency, queues):
                    self._start(shift, running)
                is_sure = True
                is_silent = False
            except StoreUnavailable as error:
                if not is_silent:
                    log.warning(
                        "the worker cannot reach its store and tries again: %s", error
                    )
                is_silent = True
            await self._sleep()
        try:
            await asyncio.gather(*self._under_way.values())
        finally:
            for task in self._under_way.values():
                task.cancel()

    async def _sleep(self) -> None:
        with suppress(TimeoutError):
            await asyncio.wait_for(self._wake_up.wait(), self.timing.poll_s)

    def _release_unheld(self, database: Database, _: float) -> None:
        """Let wait again what is begun and not performed here: its worker has died."""
        database.run(_SQL["release_unheld"], (self._names_under_way(),))

    def _names_under_way(self) -> str:
        return json.dumps([encode_name(run_id) for run_id in self._under_way])

    async def _claim(self, concurrency: int, queues: Sequence[str]) -> list[Running]:
        """Take as many segments as can be performed beside those under way."""
        free = concurrency - len(self._under_way)
        names = json.dumps([encode_name(queue) for queue in queues])

        def claim(database: Database, now: float) -> list[Running]:
            given = (now, self._names_under_way(), names, names)
            taken: list[Running] = []
            while len(taken) < free and (rows := database.run(_SQL["claim"], given)):
                taken += [_running(*row) for row in rows]
            return taken

        return await self._transact(claim) if free > 0 else []

    def _start(self, shift: Shift, running: Running) -> None:
        run_id = running.segment.run_id
        task = asyncio.create_task(self._carry_out(shift, running))
        self._under_way[run_id] = task

        def forget(_: asyncio.Task[None]) -> None:
            del self._under_way[run_id]
            self._wake_up.set()

        task.add_done_callback(forget)

    async def _carry_out(self, shift: Shift, running: Running) -> None:
        """Perform a segment, and finish it or let it wait again; a store that is away is asked until it answers."""
        segment = running.segment
        place = (encode_name(segment.run_id), segment.number)
        performing = shift.start(running)
        await shift.until_over(performing)
        is_handed_over = not performing.done() or performing.cancelled()
        is_handed_back = not is_handed_over and performing.exception() is not None

        def settle(database: Database, now: float) -> None:
            if is_handed_over:
                database.run(_SQL["release"], (0.0, *place))
            elif is_handed_back:
                due = now + self.timing.wait_before(running.attempt + 1)
                database.run(_SQL["release"], (due, *place))
            else:
                database.run(_SQL["finish"], place)

        while True:
            try:
                return await self._transact(settle)
            except StoreUnavailable:
                await asyncio.sleep(self.timing.poll_s)

    async def _transact(self, operation: Callable[[Database, float], T]) -> T:
        answer: StoreAnswer[T] = self._store.open_writer().submit(
            GroupOperation(lambda database, now, _: [operation(database, now)])
        )
        return await wait_for(answer)


def _running(
    run_id: str, number: int, queue: str, attempt: int, after_death: int
) -> Running:
    segment = Segment(decode_name(run_id), number, decode_name(queue))
    return Running(segment, attempt, after_death=bool(after_death))


@contextmanager
def _locked(file: Path) -> Iterator[str]:
    """Hold the lock of a file for the time of the block, if it is free; yield who has it, or nothing where we do.

    The lock is one of the process, which its forks do not inherit. It does not part two workers of one process, and
    ends where this process closes the file anywhere; `_HELD` is asked first, for both reasons.
    """
    with _held_lock:
        is_ours = _HELD.get(file) == os.getpid()
        lock = None if is_ours else file.open("a+")
        holder = "another worker of this process" if lock is None else _try_lock(lock)
        if not holder:
            _HELD[file] = os.getpid()
    try:
        yield holder
    finally:
        with _held_lock:
            if lock is not None:
                lock.close()
            if not holder:
                del _HELD[file]


def _try_lock(lock: IO[str]) -> str:
    """Take the lock, and write down who has it for those who stand by; return who has it where it is not free."""
    try:
        fcntl.lockf(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        lock.seek(0)
        return lock.read(200).strip() or "another process"
    lock.truncate(0)
    lock.write(f"{owner()}\n")
    lock.flush()
    return ""
