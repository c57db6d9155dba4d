"""A dispatcher whose segments are rows of a database: how work is claimed, watched, finished and handed over.

The tables differ (`rows.SegmentRows`), the way to work with them does not. While it works there is one round after the
other on the caller's event loop: send a heartbeat, look for dead workers, look at what we hold, claim, sleep until a
notification arrives or the next poll is due.

Rule 1: what the database says is held, and nobody performs, is settled or released in the next round: the answer to
        a claim may be lost, and so may the statement that finishes a segment.
Rule 2: nobody counts as dead only because nobody could beat. A worker judges the others once the database has been in
        reach for two beats without a long gap, so that all who live have beaten. Each beat records since when that
        holds. A worker that starts, or was frozen, continues from the beats of others, even if they have died since.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from contextlib import suppress
from secrets import token_hex
from typing import Any, TypeVar

from handrail.dispatch.port import (
    DispatchStats,
    HandBack,
    Perform,
    Running,
    Segment,
    Timing,
    Transaction,
)
from handrail.dispatch.rows import Held, Requeued, SegmentRows
from handrail.errors import ConfigError, StoreUnavailable
from handrail.futures import StoreAnswer, wait_for
from handrail.logs import log
from handrail.process_identity import owner
from handrail.stores.database import Database
from handrail.stores.durable import DurableStore
from handrail.stores.group_commit import Writer
from handrail.stores.requests import GroupOperation
from handrail.surroundings.clock import monotonic
from handrail.workers import fork_safety

T = TypeVar("T")

ENQUEUED = "segment"
CANCELLED = "cancel"
"""The notifications: a segment waits, and a run is to end. They come from the database, or from this process."""

_LARGEST_NUMBER = 2**31 - 1
_MOST_ASIDE = 1000
_CANCEL_S = 5.0
"""How many seconds a cancelled task may take to end before its segment is handed over."""
_MOST_SHOWN = 10
_LEAVE_S = 10.0
"""How many seconds a worker that ends waits for its database; after that the others find it dead."""


class TableDispatcher:
    """See `port.Dispatcher`.

    Args:
        store: The store whose database has the tables.
        rows: The statements on them.
        timing: How soon things are noticed.
    """

    def __init__(self, store: DurableStore, rows: SegmentRows, timing: Timing) -> None:
        if timing.dead_s < 2 * timing.beat_s:
            raise ConfigError(
                f"a worker that beats every {timing.beat_s:g} s may not count as dead after {timing.dead_s:g} s; "
                "make dead_s at least twice beat_s"
            )
        self.timing = timing
        self._store = store
        self._rows = rows
        self._lock = fork_safety.new_lock()
        self._own_writer: Writer | None = None
        self._is_closed = False
        self._shift: _Shift | None = None

    # ------------------------------------------------------------------ for everybody

    def enqueue(
        self, segment: Segment, *, connection: Transaction | None = None
    ) -> StoreAnswer[bool]:
        """See `port.Dispatcher.enqueue`."""
        _check(segment)
        if connection is not None:
            database: Any = connection
            is_new = self._rows.enqueue(database, database.now(), segment)
            if is_new:
                self._wake_after_commit()
            return is_new
        answer = self.transact(
            lambda database, now: self._rows.enqueue(database, now, segment)
        )
        answer.add_done_callback(lambda _: self._hear(ENQUEUED))
        return answer

    def cancel(self, run_id: str) -> Future[bool]:
        """See `port.Dispatcher.cancel`."""
        answer = self.transact(lambda database, _: self._rows.cancel(database, run_id))
        answer.add_done_callback(lambda _: self._hear(CANCELLED))
        return answer

    def requeue_dead(self) -> Future[int]:
        """See `port.Dispatcher.requeue_dead`."""
        dead_s = self.timing.dead_s
        return self.transact(
            lambda database, now: len(self._rows.requeue_dead(database, now, dead_s))
        )

    def stats(self) -> Future[DispatchStats]:
        """See `port.Dispatcher.stats`."""
        dead_s = self.timing.dead_s
        return self.transact(
            lambda database, now: self._rows.stats(database, now, dead_s)
        )

    def close(self) -> None:
        """See `port.Dispatcher.close`."""
        with self._lock:
            self._is_closed = True
            writer = self._own_writer
            self._own_writer = None
        if writer is not None:
            writer.close()

    # ------------------------------------------------------------------ for workers

    async def work(
        self, perform: Perform, *, concurrency: int, queues: Sequence[str] = ()
    ) -> None:
        """See `port.Dispatcher.work`."""
        if concurrency < 1:
            raise ConfigError(
                f"a worker performs at least one segment at once, not {concurrency}"
            )
        if self._shift is not None:
            raise ConfigError("this dispatcher works already; make another one")
        self._shift = shift = _Shift(
            self, self._rows, perform, concurrency=concurrency, queues=tuple(queues)
        )
        stop_listening = self.listen(shift.hear)
        try:
            await shift.run()
        finally:
            self._shift = None
            await asyncio.to_thread(stop_listening)

    async def stop(self, *, grace_s: float) -> None:
        """See `port.Dispatcher.stop`."""
        shift = self._shift
        if shift is not None:
            await shift.stop(grace_s)

    def listen(self, hear: Callable[[str], None]) -> Callable[[], None]:  # noqa: ARG002
        """Call `hear`, from any thread, when there may be work; return what ends that. Polling alone does as well."""
        return lambda: None

    # ------------------------------------------------------------------ the connection

    def transact(self, operation: Callable[[Database, float], T]) -> Future[T]:
        """Run an operation in a transaction, with the time by the database's clock. It may be run twice."""
        return self._writer().submit(
            GroupOperation(lambda database, now, _: [operation(database, now)])
        )

    def read(self, job: Callable[[Database], T]) -> Future[T]:
        """Run statements that only read."""
        return self._writer().submit(job)

    def _writer(self) -> Writer:
        with self._lock:
            if self._is_closed:
                raise StoreUnavailable("the dispatcher is closed")
            if not self._store.has_own_connections:
                return self._store.open_writer()
            if self._own_writer is None:
                self._own_writer = self._store.open_writer()
            return self._own_writer

    def _hear(self, what: str) -> None:
        shift = self._shift
        if shift is not None:
            shift.hear(what)

    def _wake_after_commit(self) -> None:
        """Wake our own worker once the transaction is over in which a segment was enqueued."""
        if self._shift is not None and not self._store.has_own_connections:
            # behind the transaction in the same queue
            over = self.read(lambda _: None)
            over.add_done_callback(lambda _: self._hear(ENQUEUED))


class _Shift:
    """One worker at work, until it is stopped."""

    def __init__(
        self,
        dispatcher: TableDispatcher,
        rows: SegmentRows,
        perform: Perform,
        *,
        concurrency: int,
        queues: tuple[str, ...],
    ) -> None:
        self._dispatcher = dispatcher
        self._rows = rows
        self._perform = perform
        self._concurrency = concurrency
        self._queues = {rows.queue_name(queue) for queue in queues}
        self._timing = dispatcher.timing
        self._worker = f"{owner()}/{token_hex(4)}"
        self._loop = asyncio.get_running_loop()
        self._wake_up = asyncio.Event()
        self._ended = asyncio.Event()
        self._is_stopping = False
        self._is_over = False
        self._is_given_up = False
        self._rounds: asyncio.Future[None] | None = None
        self._running: dict[tuple[int, int], Running] = {}
        self._tasks: dict[tuple[int, int], asyncio.Task[None]] = {}
        self._unsettled: dict[tuple[int, int], bool] = {}
        """What was performed and is held still, and whether it is finished (else it waits again)."""
        self._aside: dict[int, float] = {}
        """Rows that are left to other workers, and until when."""
        self._next_queue = 0
        self._promising: list[str] = []
        """The queues that had more waiting when we last looked."""
        # in monotonic seconds, long ago: the last look at what we hold and at the queues, beat and round that succeeded
        self._looked = self._probed = -1e9
        self._beaten = self._reached = -1e9
        self._in_reach_since: float | None = None
        """Since when the database has been in reach without a long gap, by its clock."""
        self._beaten_at = -1e9
        """When the database had our last beat, by its clock."""
        self._sweep_at = -1e9
        self._is_silent = False

    def hear(self, what: str) -> None:
        """Look for work now, and at what we hold unless work is all that there can be; from any thread."""
        if what != ENQUEUED:
            self._looked = -1e9
        with suppress(RuntimeError):  # the loop is closed, and nobody works
            self._loop.call_soon_threadsafe(self._wake_up.set)

    async def run(self) -> None:
        """Work until `stop` was called and what ran has ended."""
        self._rounds = asyncio.ensure_future(self._work_rounds())
        try:
            await self._rounds
        except asyncio.CancelledError:
            if not self._is_given_up:
                raise
            log.warning(
                "the worker ends, and its store does not answer: %d segments were neither finished nor handed over, "
                "and go on elsewhere once it is found dead",
                len({*self._running, *self._unsettled}),
            )
        finally:
            await self._end_tasks()
            if not self._is_given_up:
                leaving = asyncio.ensure_future(self._leave())
                await asyncio.wait({leaving}, timeout=_LEAVE_S)
                leaving.cancel()
            self._ended.set()

    async def _work_rounds(self) -> None:
        while not (self._is_stopping and (self._is_over or not self._tasks)):
            await self._round()
            await self._sleep()

    async def stop(self, grace_s: float) -> None:
        """Claim no more, wait for what runs, cancel it after the grace, and wait until the shift has ended."""
        self._is_stopping = True
        self._wake_up.set()
        if self._tasks:
            # a NaN would put the loop's timers out of order
            await asyncio.wait([*self._tasks.values()], timeout=max(0.0, grace_s))
        await self._end_tasks()
        self._is_over = True
        self._wake_up.set()
        try:
            await asyncio.wait_for(self._ended.wait(), 2 * _LEAVE_S)
        except TimeoutError:
            self._is_given_up = True
            if self._rounds is not None:
                self._rounds.cancel()
            await self._ended.wait()

    async def _end_tasks(self) -> None:
        """Cancel what runs. What does not end in time is handed over as it is: the run's epoch fences it."""
        tasks = [*self._tasks.values()]
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks, timeout=_CANCEL_S)

    # ------------------------------------------------------------------ one round

    async def _round(self) -> None:
        self._wake_up.clear()
        try:
            await self._stay_alive()
            await self._look_at_held()
            if not self._is_stopping:
                await self._claim()
        except StoreUnavailable as error:
            if not self._is_silent:
                log.warning(
                    "the worker cannot reach its store and tries again: %s", error
                )
            self._is_silent = True
        else:
            if self._is_silent:
                log.info("the worker reaches its store again")
            self._is_silent = False
            self._reached = monotonic()

    async def _sleep(self) -> None:
        wait_s = self._timing.poll_s
        # While the database is away the sweep stays due, and must not shorten the wait.
        if not self._is_silent:
            wait_s = min(wait_s, max(0.0, self._sweep_at - monotonic()))
        with suppress(TimeoutError):
            await asyncio.wait_for(self._wake_up.wait(), wait_s)

    async def _stay_alive(self) -> None:
        """Beat when it is time, and look for dead workers when it is time."""
        now = monotonic()
        if now - self._reached > self._gap_s:
            # We have just started, were frozen, or the database was gone.
            self._in_reach_since = None
        if now - self._beaten >= self._timing.beat_s or self._in_reach_since is None:
            self._in_reach_since, self._beaten_at = await self._transact(self._beat)
            self._beaten = now
        if now >= self._sweep_at:
            dead, next_s = await self._transact(self._sweep)
            self._sweep_at = now + next_s
            _log_dead(dead)

    @property
    def _gap_s(self) -> float:
        """How long the database may be out of reach before all who live get two beats of time to say so.

        After a shorter time whoever lives is not yet silent for long enough to count as dead.
        """
        return max(self._timing.beat_s, self._timing.dead_s - 3 * self._timing.beat_s)

    def _beat(self, database: Database, at: float) -> tuple[float, float]:
        """Say that we are alive; return since when the database has been in reach, and its time."""
        since = self._reached_since(at)
        reached = self._rows.beat(
            database,
            at,
            self._worker,
            since=at if since is None else since,
            gap_s=self._gap_s,
        )
        return reached, at

    def _reached_since(self, at: float) -> float | None:
        """Return from when on the database has been in reach until now; None if our last beat is too long ago.

        Asked within the transaction: its begin may have waited for the database. None too where the database's clock
        was set: beats from before say nothing about the time since.
        """
        is_lately = 0 <= at - self._beaten_at <= self._timing.beat_s + self._gap_s
        return self._in_reach_since if is_lately else None

    def _sweep(self, database: Database, at: float) -> tuple[list[Requeued], float]:
        """Take the segments of dead workers from them; return these, and after how many seconds to sweep again.

        That is when the most silent worker will have died if it stays silent: then it need not wait for a sweep.
        """
        timing = self._timing
        since = self._reached_since(at)
        if since is None:
            return [], timing.poll_s
        early_s = since + 2 * timing.beat_s - at
        if early_s > 0:
            return [], min(early_s, timing.sweep_s)
        dead = self._rows.requeue_dead(database, at, timing.dead_s)
        beat = self._rows.oldest_beat(database)
        if beat is None:
            return dead, timing.sweep_s
        left_s = beat + timing.dead_s - at
        return dead, min(max(left_s, timing.poll_s), timing.sweep_s)

    async def _look_at_held(self) -> None:
        """Tell what runs here whether it was cancelled or lost; settle what nobody performs."""
        now = monotonic()
        if now - self._looked < self._timing.poll_s:
            return
        self._looked = now
        rows = await self._read(
            lambda database: self._rows.held(database, self._worker)
        )
        held = {(each.id, each.attempt): each for each in rows}
        for name, running in self._running.items():
            if name not in held:
                running.lost.set()
                continue
            running.sure_until = self._sure_until
            if held[name].cancelled:
                running.cancelled.set()
        for name, each in held.items():
            if name not in self._running:
                await self._settle(each, self._unsettled.get(name, False))
        for name in [*self._unsettled]:
            if name not in held:
                del self._unsettled[name]

    async def _claim(self) -> None:
        free = self._concurrency - len(self._running)
        if free < 1:
            return
        if not self._promising or monotonic() - self._probed > self._timing.poll_s:
            await self._probe()
        queues = [*self._promising]
        for place in range(len(queues)):
            queue = queues[(self._next_queue + place) % len(queues)]
            taken = await self._claim_from(queue, free)
            if monotonic() > self._sure_until:
                # frozen meanwhile; the next round settles what is still ours
                self._looked = -1e9
                return
            for each in taken:
                self._start(each)
            if len(taken) < free:
                self._promising.remove(queue)
            free -= len(taken)
            if free < 1:
                break
        self._next_queue += 1

    async def _probe(self) -> None:
        """Find out which of our queues have work."""
        self._probed = monotonic()
        waiting = await self._read(self._rows.waiting_queues)
        self._promising = [
            queue for queue in waiting if not self._queues or queue in self._queues
        ]

    async def _claim_from(self, queue: str, most: int) -> list[Held]:
        now = monotonic()
        self._aside = {each: at for each, at in self._aside.items() if at > now}
        aside = [*self._aside]
        return await self._transact(
            lambda database, _: self._rows.claim(
                database, worker=self._worker, queue=queue, most=most, aside=aside
            )
        )

    # ------------------------------------------------------------------ one segment

    @property
    def _sure_until(self) -> float:
        """Until when nobody can have taken what we held after our last beat: nobody counts us as dead before."""
        return self._beaten + self._timing.dead_s

    def _start(self, held: Held) -> None:
        name = (held.id, held.attempt)
        for (row_id, _), earlier in self._running.items():
            if row_id == held.id:  # taken from us while we were silent
                earlier.lost.set()
        running = Running(held.segment, held.attempt, after_death=held.after_death)
        running.sure_until = self._sure_until
        if held.cancelled:
            running.cancelled.set()
        self._running[name] = running
        task = self._loop.create_task(
            self._carry_out(held, running), name=f"segment of {held.segment.run_id}"
        )
        self._tasks[name] = task

    async def _carry_out(self, held: Held, running: Running) -> None:
        """Perform a segment, and settle it as it ended."""
        name = (held.id, held.attempt)
        is_done = False
        try:
            await self._perform(held.segment, running)
            is_done = True
        except HandBack:
            self._set_aside(held)
        except asyncio.CancelledError:
            pass  # handed over; the task ends here
        except Exception as error:
            log.error(
                "a segment of the run %s failed and waits again: %s",
                held.segment.run_id[:100],
                type(error).__name__,
            )
            log.debug("the failed segment", exc_info=error)
            self._set_aside(held)
        try:
            self._unsettled[name] = is_done
            await self._settle(held, is_done)
        except StoreUnavailable:
            pass  # the next round that reaches the store does it
        finally:
            self._running.pop(name, None)
            self._tasks.pop(name, None)
            self._wake_up.set()

    def _set_aside(self, held: Held) -> None:
        if len(self._aside) >= _MOST_ASIDE:
            del self._aside[next(iter(self._aside))]
        self._aside[held.id] = monotonic() + self._timing.aside_s

    async def _settle(self, held: Held, is_done: bool) -> None:
        """Finish a segment, or let it wait again. Nothing changes where another worker has it by now."""
        if is_done:
            await self._transact(
                lambda database, _: self._rows.finish(database, self._worker, held)
            )
        else:
            await self._transact(
                lambda database, at: self._rows.release(
                    database, at, self._worker, held
                )
            )
        self._unsettled.pop((held.id, held.attempt), None)

    async def _leave(self) -> None:
        """Hand over whatever is held still, and sign off."""

        def leave(database: Database, now: float) -> None:
            for held in self._rows.held(database, self._worker):
                if self._unsettled.get((held.id, held.attempt), False):
                    self._rows.finish(database, self._worker, held)
                else:
                    self._rows.release(database, now, self._worker, held)
            self._rows.leave(database, self._worker)

        with suppress(StoreUnavailable):  # the others will find us dead
            await self._transact(leave)

    async def _transact(self, operation: Callable[[Database, float], T]) -> T:
        answer: StoreAnswer[T] = self._dispatcher.transact(operation)
        return await wait_for(answer)

    async def _read(self, job: Callable[[Database], T]) -> T:
        answer: StoreAnswer[T] = self._dispatcher.read(job)
        return await wait_for(answer)


def _log_dead(dead: Sequence[Requeued]) -> None:
    """Name each worker that was found dead, and the runs that wait again."""
    by_worker: dict[str, list[Requeued]] = {}
    for each in dead:
        by_worker.setdefault(each.worker, []).append(each)
    for worker, lost in by_worker.items():
        silent_s = lost[0].silent_s
        silence = "" if silent_s is None else f", silent for {silent_s:.1f} s"
        shown = ", ".join(each.run_id[:100] for each in lost[:_MOST_SHOWN])
        more = ", ..." if len(lost) > _MOST_SHOWN else ""
        log.warning(
            "the worker %s%s, counts as dead; its runs under way wait for another worker (%d): %s%s",
            worker or "of an unknown name",
            silence,
            len(lost),
            shown,
            more,
        )


def _check(segment: Segment) -> None:
    """Raise ConfigError for a segment that cannot be stored."""
    for number in (segment.number, segment.priority):
        if not isinstance(number, int) or isinstance(number, bool):
            raise ConfigError(
                f"number and priority of a segment are whole numbers, not {number!r}"
            )
    if not 1 <= segment.number <= _LARGEST_NUMBER:
        raise ConfigError(
            f"the number of a segment is between 1 and {_LARGEST_NUMBER:,}, not {segment.number}"
        )
    if abs(segment.priority) > _LARGEST_NUMBER:
        raise ConfigError(
            f"the priority of a segment is between -{_LARGEST_NUMBER:,} and {_LARGEST_NUMBER:,}, "
            f"not {segment.priority}"
        )
