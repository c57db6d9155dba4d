"""A simulated world around the real `Runtime`: time, the store's answers, the far side, people, and deaths.

A process is an event loop in which nothing happens by itself. Its store is the real store in memory, whose answers come
when the world says so; its tools ask a far side that the world answers. So a world is a function of the options that
are taken, and can be run again from the start: `search` does so for every list of options up to a number of
disturbances.

Rule 1: nothing waits but on the loop, the store and the clock, all of which are the world's.
Rule 2: the first option is the undisturbed one, and costs nothing; so every world comes to its end.
Rule 3: what fails in the world itself, or only reaches a log, ends the search; see `World.fail`.
"""

from __future__ import annotations

import asyncio
import heapq
import threading
import typing
from asyncio import events
from collections.abc import Callable, Coroutine, Iterable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import cache, partial
from hashlib import blake2b
from typing import TYPE_CHECKING, Any
from unittest.mock import patch

import handrail as hr
from handrail import futures, process_identity
from handrail.effects import Claimed, ClaimState
from handrail.engine import unsaved_records
from handrail.engine.unsaved_records import UnsavedRecords
from handrail.errors import StoreUnavailable
from handrail.futures import StoreFuture
from handrail.messages import ToolMessage
from handrail.records import ApprovalRequest, name_write
from handrail.stores.memory_runs import FullMemoryStore
from handrail.surroundings import chance, clock

if TYPE_CHECKING:
    from tests.prove.scenarios import Scenario

UNIX_S = 1_700_000_000.0
MOST_STEPS = 400
MOST_STARTS = 12
"""A process that was started so often is left alone: the world is checked as it stands."""

COMMITS = ("claim", "settle", "begin_run", "append_entry", "ask", "use", "decide")
LOCKS_S = {"is locked for 1 s": 1.0, "is locked for 60 s": 60.0}
"""A claim finds what it touches locked by a write of elsewhere, as only a store of several processes answers."""
READS = ("look_up", "load_run", "list_approvals", "list_standing_approvals")


class _Selector:
    def select(self, timeout: float | None = None) -> list[Any]:
        return []

    def close(self) -> None:
        pass


class SimulatedLoop(asyncio.BaseEventLoop):
    """An event loop in which time passes, and answers come, only when the world says so."""

    _ready: Any
    _scheduled: Any
    _timer_cancelled_count: int

    def __init__(self, world: World) -> None:
        super().__init__()
        self.world = world
        self._selector = _Selector()
        self._thread_id = threading.get_ident()
        self.set_exception_handler(self._note_failure)

    def _note_failure(self, _: object, context: dict[str, Any]) -> None:
        if (
            "handle" in context
        ):  # a callback; a task that nobody asked is no failure of the loop
            self.world.fail(context["exception"])

    def time(self) -> float:
        return self.world.now

    def _process_events(self, _: object) -> None:
        pass

    def _write_to_self(self) -> None:
        pass

    def close(self) -> None:
        """Forget everything: whatever waits here never goes on, as in a process that was killed."""
        self._ready.clear()
        self._scheduled.clear()
        self._closed = True

    def create_task(self, coro: Any, **how: Any) -> Any:
        task: Any = super().create_task(coro, **how)
        task._log_destroy_pending = False
        return task

    def drain(self) -> None:
        """Run what is ready, and the timers that are due, until everything waits."""
        events._set_running_loop(self)
        try:
            for _ in range(20_000):
                due = self.next_timer()
                if not self._ready and (due is None or due > self.world.now):
                    return
                self._run_once()  # type: ignore[attr-defined]
            raise RuntimeError("a process is busy for ever")
        finally:
            events._set_running_loop(None)

    def next_timer(self) -> float | None:
        """Return when the next timer is due; None without one."""
        while self._scheduled and self._scheduled[0]._cancelled:
            heapq.heappop(self._scheduled)._scheduled = False
            self._timer_cancelled_count -= 1
        return self._scheduled[0]._when if self._scheduled else None


@dataclass(eq=False)
class Pending:
    """Something that a process waits for: the store, an attempt at the far side, or its `verify`."""

    process: Process
    kind: str
    name: str
    about: str
    answer: Callable[[str], str]
    """Answers in one of the ways of `Scenario.outcomes`; returns what the process sees of that."""


@dataclass(frozen=True)
class Effect:
    """What happened at the far side."""

    act: str
    order: str
    amount: float
    process: str
    key: str
    call_id: str
    at: float

    @property
    def run_id(self) -> str:
        """The run whose call it was."""
        return self.process.partition(".")[0].rstrip("*")


@dataclass(eq=False)
class Late:
    """What may still arrive at the far side, or be reported, until `until`."""

    process: str
    label: str
    until: float
    happen: Callable[[], None]


@dataclass(frozen=True)
class Option:
    """What may happen next; `cost` is 1 for a disturbance."""

    cost: int
    label: str
    take: Callable[[], None]


class ProcessStore(FullMemoryStore):
    """The world's store as one process sees it: each answer comes when the world gives it."""

    def __init__(self, world: World, process: Process) -> None:
        self.__dict__.update(world.store.__dict__)
        self._process = process


def _forward(name: str) -> Callable[..., Any]:
    def method(self: ProcessStore, *arguments: Any, **named: Any) -> Any:
        if self._process.store is not self or self._process.state != "running":
            return StoreFuture(is_running=True)  # of a process that has died
        return self._process.ask_store(name, arguments, named)

    return method


for _name in COMMITS + READS:
    setattr(ProcessStore, _name, _forward(_name))


@dataclass(eq=False)
class Process:
    """One process, started again under the same name after it died. Its program is `main`."""

    world: World
    name: str
    run_id: str
    main: Callable[[Process], Coroutine[Any, Any, Any]]
    starts: int = 0
    state: str = "new"
    """`new`, `running`, `dead`, `waiting` for a person, or `ended`."""
    pending: list[Pending] = field(default_factory=list)
    history: list[tuple[Any, ...]] = field(default_factory=list)
    """What it was answered since its start, and when: this decides what it does next. Empty while it does not run."""
    waits_for: set[str] = field(default_factory=set)
    """The questions that were open when it left its run to people."""
    result: Any = None
    told: tuple[object, ...] = ()
    """What of its result the promises look at."""
    error: BaseException | None = None

    loop: SimulatedLoop = field(init=False)
    store: ProcessStore = field(init=False)
    task: Any = field(init=False, default=None)
    _names: int = 0

    @property
    def identity(self) -> str:
        """The name of this process as handrail records it; each start is another one."""
        return f"{self.name}.{self.starts}"

    def make_name(self, size: int) -> str:
        """Return a name as `chance.token_hex` does: another one each time, the same ones in each world."""
        self._names += 1
        seed = f"{self.identity}/{self._names}".encode()
        return blake2b(seed, digest_size=size).hexdigest()

    def start(self) -> None:
        """Start, or start again after a death."""
        if self.world.steps > 1 and self.starts < 2:
            self.world.now += self.world.scenario.pause_s
            self.world.is_disturbed |= self.world.scenario.pause_s > 0
        self.starts += 1
        self.world.last = self
        self._names = 0
        self.pending = []
        self.state = "running"
        self.history = [
            (
                self.world.now,
                self.world.is_deployed,
                self.world.load_run(self.run_id) is None,
            )
        ]
        self.loop = SimulatedLoop(self.world)
        self.store = ProcessStore(self.world, self)
        self.task = self.loop.create_task(self.main(self))

    def die(self) -> None:
        """End as after SIGKILL: nothing that waits here goes on."""
        self.state = "dead"
        self.pending = []
        self.history = []
        self.loop.close()
        self.task = None

    def drain(self) -> None:
        """Run until everything waits; notice the end."""
        if self.state != "running":
            return
        self.loop.drain()
        if self.task.done():
            self._end()

    def _end(self) -> None:
        is_cancelled = self.task.cancelled()
        self.pending = []
        self.error = None if is_cancelled else self.task.exception()
        self.result = None
        if not is_cancelled and self.error is None:
            self.result = self.task.result()
        record = self.world.load_run(self.run_id)
        if record is not None and record.status == "waiting":
            self.state = "waiting"
            # with no question of its own it waits for the result that another run is to get
            own = self.world.open_questions(self.run_id)
            asked = own or self.world.open_questions()
            self.waits_for = {each.id for each in asked}
        elif (record is not None and record.status == "running") or isinstance(
            self.error, StoreUnavailable
        ):
            self.state = "dead"  # its end was not recorded: somebody resumes it
            self.world.note_death(self)
        else:
            self.state = "ended"
        if getattr(self.result, "status", "") == "moved":
            self.world.note_death(
                self
            )  # it was fenced, in the midst of whatever it did
        self.history = []
        self.told = _summarize(self.result, self.error)
        self.loop.close()

    def ask_store(
        self, name: str, arguments: tuple[Any, ...], named: dict[str, Any]
    ) -> StoreFuture[Any]:
        """Ask the world's store; return a future of its answer."""
        future: StoreFuture[Any] = StoreFuture(is_running=True)

        def answer(how: str) -> str:
            if how == "is silent":
                future.set_exception(StoreUnavailable("away"))
                return "nothing"
            if how in LOCKS_S:
                self.world.locked_until = self.world.now + LOCKS_S[how]
            value, error = self.world.ask_store(self, name, arguments, named)
            if error is not None:
                future.set_exception(error)
                return repr(error)
            if how == "answer is lost":
                future.set_exception(StoreUnavailable("away"))
                return "nothing"
            if how != "dies after it":
                future.set_result(value)
            return repr(value)

        about = _describe(name, arguments)
        self.pending.append(Pending(self, "store", name, about, answer))
        return future


def _describe(name: str, arguments: tuple[Any, ...]) -> str:
    """Return what a request to the store is about, for the trace."""
    request: Any = arguments[0] if arguments else None
    if name == "settle":
        return str(request.state)
    if name == "claim":
        return str(request.key)
    if name == "append_entry":
        steps = ",".join(step.key for step in request.steps)
        return f"{steps} {request.status}" if request.status else steps
    if name == "ask":
        return "result" if request.awaits_result else "approval"
    return ""


class World:
    """One execution: everybody who takes part, and what has happened so far.

    Args:
        choose: Takes the world and the options of its next step; returns the number of one.
    """

    def __init__(
        self, scenario: Scenario, choose: Callable[[World, list[Option]], int]
    ) -> None:
        self.scenario = scenario
        self.choose = choose
        self.now = 1000.0
        self.is_deployed = False
        self.store = FullMemoryStore(clock=self.time, now=self.monotonic)
        self.effects: list[Effect] = []
        self.late: list[Late] = []
        self.delivered: dict[str, str] = {}
        self.people: list[str] = []
        self.is_cancelled = False
        self.locked_until = 0.0
        self.steps = 0
        self.trace: list[str] = []
        self.cost = 0
        self.violations: list[tuple[str, str]] = []
        self.reached: set[str] = set()
        self.active: Process | None = None
        """Whose code runs now; None while people act."""
        self.failure: BaseException | None = None
        self.is_disturbed = False
        """Whether anything but the order of processes was other than it should be."""
        self.unanswered: set[str] = set()
        """Runs whose own claim or question the store has not answered once, or too late."""
        self.left_alone: set[str] = set()
        """What a process had claimed and not settled when it died, as `records.name_write` has it, and its run."""
        self.last: Process | None = None
        """Who went on last."""
        self.processes = [
            Process(self, name, name.rstrip("*"), scenario.main)
            for name in scenario.runs
        ]
        self._settled: dict[tuple[str, str], tuple[str, int]] = {}

    # ------------------------------------------------------------------ what handrail asks the machine for

    def monotonic(self) -> float:
        return self.now

    def time(self) -> float:
        return UNIX_S + self.now

    def sleep(self, seconds: float, /) -> None:
        raise AssertionError("nothing in a simulated process may hold up its thread")

    def token_hex(self, nbytes: int | None = None) -> str:
        if self.active is None:  # code of a process that has died, on its way out
            return "0" * 2 * (nbytes or 32)
        return self.active.make_name(nbytes or 32)

    def name_own(self) -> str:
        return self.active.identity if self.active is not None else "a person's program"

    def is_gone(self, owner: str) -> bool:
        if self.scenario.counts_as_gone:  # though it lives
            return owner not in ("", self.name_own())
        living = [each.identity for each in self.processes if each.state == "running"]
        is_gone = bool(owner) and owner not in living
        if self.active is not None:
            self.active.history.append((owner, is_gone))
        return is_gone

    def is_seen_from_here(self, owner: str) -> bool:
        return not self.scenario.is_elsewhere

    def shares_our_boot(self, owner: str) -> bool:
        return not self.scenario.is_elsewhere

    def _spawn(self, records: UnsavedRecords) -> None:
        async def take_steps() -> None:
            for waits_for in records.offer_until_saved():
                if isinstance(waits_for, Future):
                    await asyncio.wait([asyncio.wrap_future(waits_for)])
                else:
                    await asyncio.sleep(waits_for)

        if self.active is not None:  # else code of a process that has died
            self.active.loop.create_task(take_steps())

    @contextmanager
    def _in_place_of_the_machine(self) -> Iterator[None]:
        places: list[tuple[Any, str]] = [
            (clock, "source"),
            (chance, "source"),
            (process_identity, "source"),
        ]
        before = [getattr(module, name) for module, name in places]
        spawn = unsaved_records.spawn
        for module, name in places:
            setattr(module, name, self)
        unsaved_records.spawn = self._spawn
        loud = patch.object(futures, "log_exception", lambda _, error: self.fail(error))
        try:
            with loud:
                yield
        finally:
            unsaved_records.spawn = spawn
            for (module, name), value in zip(places, before, strict=True):
                setattr(module, name, value)

    # ------------------------------------------------------------------ the run of the world

    def run(self) -> None:
        """Take one option after the other until nothing can happen any more."""
        global CURRENT
        CURRENT = self
        try:
            with self._in_place_of_the_machine():
                while self._step():
                    pass
        finally:
            for process in self.processes:
                if process.state == "running":
                    process.loop.close()
            CURRENT = None

    def _step(self) -> bool:
        for process in self.processes:
            with self._running(process):
                process.drain()
        if self.failure is not None:
            raise RuntimeError(f"the world broke: {self.trace}") from self.failure
        options = self.options()
        if not options:
            return False
        self.steps += 1
        if self.steps > MOST_STEPS:
            self.violate("ends", f"nothing has come to its end in {MOST_STEPS} steps")
            return False
        option = options[self.choose(self, options)]
        self.trace.append(option.label)
        self.cost += option.cost
        option.take()
        return True

    @contextmanager
    def _running(self, process: Process) -> Iterator[None]:
        self.active = process
        try:
            yield
        finally:
            self.active = None

    def fail(self, error: BaseException) -> None:
        """Note a failure of the world, or one that would only be logged; the next step raises it."""
        self.failure = self.failure or error

    @contextmanager
    def loudly(self) -> Iterator[None]:
        """Note what code of the world raises, which handrail would take for the failure of a tool."""
        try:
            yield
        except BaseException as error:
            self.fail(error)
            raise

    def violate(self, promise: str, words: str) -> None:
        """Note that a promise is broken."""
        if (promise, words) not in self.violations:
            self.violations.append((promise, words))

    def load_run(self, run_id: str) -> Any:
        """Return the record of a run; None if it was not begun."""
        return self.store._runs.get(run_id)

    def ask_store(
        self,
        process: Process,
        name: str,
        arguments: tuple[Any, ...],
        named: dict[str, Any],
    ) -> tuple[Any, Exception | None]:
        """Ask the store for a process; look at what changes in the ledger. Return its answer, or what it raises."""
        try:
            if name == "claim" and self.now < self.locked_until:
                answer: Any = Claimed(ClaimState.LOCKED)
            else:
                answer = getattr(self.store, name)(*arguments, **named)
        except hr.HandrailError as error:
            return None, error
        if name in ("claim", "look_up") and answer is not None:
            self.reached.add(f"{type(answer.state).__name__}.{answer.state.name}")
            if name == "claim" and answer.state is ClaimState.FRESH:
                self._judge_approval(arguments[0].approval)
            if name == "claim" and answer.state.is_taken:
                # as a durable store does, so that others learn of its death
                claim = arguments[0]
                row = self.store._ledger.rows.get((claim.scope, claim.key))
                if row is not None:
                    row.owner = process.identity
        for key, row in self.store._ledger.rows.items():
            state, fence = self._settled.get(key, ("", 0))
            if (state == "done" != row.state) or row.fence < fence:
                words = (
                    f"{key[1]} went from {state} ({fence}) to {row.state} ({row.fence})"
                )
                self.violate("ledger", words)
            self._settled[key] = (row.state, row.fence)
            self.reached.add(f"Row.{row.state}")
        return answer, None

    def _judge_approval(self, id: str) -> None:
        """Note a write that starts under an approval whose time is over."""
        question = self.store._approvals.get(id)
        if question is not None and question.expires < self.time():
            self.violate("allowed", "it started after its approval had expired")

    # ------------------------------------------------------------------ the far side

    def running_process(self) -> Process:
        """Return the process whose code runs now."""
        loop = asyncio.get_running_loop()
        with self.loudly():
            return next(
                each
                for each in self.processes
                if each.state == "running" and each.loop is loop
            )

    async def reach_far_side(self, order: str, amount: float, context: Any) -> str:
        """Do something at the far side, whose answer is the world's choice. The body of every tool."""
        process = self.running_process()
        act = base_key(context.idempotency_key or context.call_id)
        future: asyncio.Future[str] = process.loop.create_future()
        until = self.now + self.scenario.timeout_s

        def happen() -> None:
            knows_keys = self.scenario.far_honours_keys
            since = self.now - self.scenario.forgets_keys_s
            if knows_keys and any(
                each.act == act and each.at >= since for each in self.effects
            ):
                return
            key = context.idempotency_key or ""
            self.effects.append(
                Effect(
                    act, order, amount, process.identity, key, context.call_id, self.now
                )
            )

        def answer(how: str) -> str:
            if how.startswith(("ok", "effect")):
                happen()
            if how.endswith("effect late"):
                self.late.append(
                    Late(
                        process.identity,
                        f"the late request for {act} arrives",
                        until,
                        happen,
                    )
                )
            if how == "reports late":
                self.late.append(
                    Late(
                        process.identity,
                        f"the attempt for {act} reports at last",
                        until + 60,
                        report,
                    )
                )
            if not future.cancelled():
                _answer_attempt(future, how, act)
            return _see(future)

        def report() -> None:
            happen()
            is_alive = process.state == "running" and process.loop is future.get_loop()
            if is_alive and not future.done():
                future.set_result(f"receipt-{act}")

        process.pending.append(Pending(process, "far side", "attempt", act, answer))
        return await self._await(future)

    async def _await(self, future: asyncio.Future[str]) -> str:
        while True:
            try:
                return await asyncio.shield(future)
            except asyncio.CancelledError:
                if not self.scenario.swallows_cancellation:
                    future.cancel()
                    raise

    async def verify(self, context: Any) -> hr.Found | hr.NotFound | hr.Unknown:
        """Look whether something has happened; how truly, is the world's choice."""
        process = self.running_process()
        act = base_key(context.idempotency_key)
        future: asyncio.Future[Any] = process.loop.create_future()

        def answer(how: str) -> str:
            happened = any(each.act == act for each in self.effects)
            if future.cancelled():
                return "nothing"
            if how == "raises":
                future.set_exception(RuntimeError("verify broke"))
            elif how == "cannot tell":
                future.set_result(hr.Unknown())
            elif happened:
                future.set_result(hr.Found(f"receipt-{act}"))
            else:
                future.set_result(hr.NotFound())
            return _see(future)

        process.pending.append(Pending(process, "far side", "verify", act, answer))
        found: hr.Found | hr.NotFound | hr.Unknown = await future
        return found

    # ------------------------------------------------------------------ what may happen next

    def options(self) -> list[Option]:
        """Return what may happen next, the undisturbed way first."""
        options = [*self._answers(), *self._starts()]
        is_quiet = not options
        if is_quiet:
            options = [*self._resumptions(), *self._restarts(), *self._words()]
        options += self._passing_of_time(options)
        options += [
            Option(0, late.label, partial(self._arrive, late)) for late in self.late
        ]
        if is_quiet and (silence := self._silence()):
            cost = 1 if options else 0
            options.append(Option(cost, "nobody answers in time", silence))
        options += self._cancellations()
        return options

    def _answers(self) -> Iterator[Option]:
        """Answers to what processes wait for; a store answers one process in order.

        The process that went on last goes on for nothing; that another one overtakes it is a disturbance.
        """
        waiting = [each for each in self.processes if each.pending]
        waiting.sort(key=lambda each: each is not self.last)
        for number, process in enumerate(waiting):
            cost = 1 if number else 0
            has_store = False
            for event in process.pending:
                if event.kind == "store":
                    if has_store:
                        continue
                    has_store = True
                for more, how in self.scenario.outcomes(event):
                    label = f"{process.identity} {event.name}({event.about}) {how}"
                    take = partial(self._answer, event, how)
                    yield Option(cost + more, label.rstrip(), take)

    def _answer(self, event: Pending, how: str) -> None:
        process = event.process
        self.last = process
        if how in ("is silent", "answer is lost"):
            self._note_unanswered(event)
        self.is_disturbed |= how not in ("", "ok", "tells the truth")
        process.pending.remove(event)
        with self._running(process):
            seen = event.answer(how)
        process.history.append((event.kind, event.name, event.about, seen, self.now))
        is_certain = self.scenario.declare.get("one_request") or how != "refused"
        if not is_certain or how == "hangs":
            self.note_death(process)  # its tool did not say that nothing happened
        if "dies" in how:
            self.note_death(process)
            process.die()

    def _note_unanswered(self, event: Pending) -> None:
        if event.name in ("claim", "look_up", "ask"):
            self.unanswered.add(event.process.run_id)

    def note_death(self, process: Process) -> None:
        """Note what a process leaves behind that has died, or was cancelled and has ended without a word."""
        self.left_alone.add(process.run_id)
        for row in self.store._ledger.rows.values():
            if row.owner == process.identity and not row.is_settled:
                self.left_alone.add(name_write(row.scope, row.key, row.fence))

    def _starts(self) -> Iterator[Option]:
        is_busy = any(each.pending for each in self.processes)
        for process in self.processes:
            if process.state == "new":
                label = f"{process.name} starts"
                yield Option(1 if is_busy else 0, label, process.start)
                is_busy = True

    def _resumptions(self) -> Iterator[Option]:
        """Runs that waited for people, and of whose questions one is closed now: each answer wakes a run."""
        for process in self.processes:
            if process.state != "waiting" or process.starts >= MOST_STARTS:
                continue
            still_open = {each.id for each in self.open_questions()}
            if not process.waits_for <= still_open or not process.waits_for:
                yield Option(0, f"{process.name} is resumed", process.start)

    def _restarts(self) -> Iterator[Option]:
        for process in self.processes:
            if process.state == "dead" and process.starts < MOST_STARTS:
                yield Option(0, f"{process.name} is started again", process.start)
                if self.scenario.deploy and not self.is_deployed:
                    label = f"{process.name} is started again, in its next version"
                    yield Option(0, label, partial(self._deploy, process))

    def _deploy(self, process: Process) -> None:
        self.is_deployed = True
        process.start()

    def _words(self) -> Iterator[Option]:
        """What people, and the far side of a deferred tool, may say now."""
        for question in self.open_questions():
            yield from self.scenario.words(self, question)

    def _passing_of_time(self, others: list[Option]) -> Iterable[Option]:
        timers = [
            due
            for each in self.processes
            if each.state == "running" and (due := each.loop.next_timer()) is not None
        ]
        if not timers:
            return
        at = min(timers)
        if any(late.until <= at for late in self.late):
            return  # it arrives before that
        label = f"time passes ({at - self.now:.2f} s)"
        if not others:
            yield Option(0, label, partial(self._pass_time, at))
        elif self.scenario.is_slow and any(each.pending for each in self.processes):
            yield Option(1, f"meanwhile {label}", partial(self._overtake_time, at))

    def _overtake_time(self, at: float) -> None:
        self.is_disturbed = True
        for process in self.processes:
            for event in process.pending:
                self._note_unanswered(event)
                if (
                    event.name == "attempt"
                ):  # which may be cut off before it has reached anybody
                    self.note_death(process)
        self._pass_time(at)

    def _pass_time(self, at: float) -> None:
        self.now = max(self.now, at)

    def _arrive(self, late: Late) -> None:
        self.late.remove(late)
        late.happen()

    def _silence(self) -> Callable[[], None] | None:
        """Let the time of every open question pass; None without one."""
        questions = self.open_questions()
        if not questions:
            return None
        at = max(each.expires for each in questions) - UNIX_S + 1.0

        def pass_time() -> None:
            self.scenario.note_silence(self, questions)
            self.people.append("nobody answers")
            self.now = at

        return pass_time

    def _cancellations(self) -> Iterator[Option]:
        if not self.scenario.cancels or self.is_cancelled:
            return
        for process in self.processes:
            record = self.load_run(process.run_id)
            if record is not None and record.status in ("running", "waiting"):
                label = f"somebody cancels the run {process.run_id}"
                yield Option(1, label, partial(self._cancel, process.run_id))
            if process.state == "running" and process.pending:
                label = f"the caller of {process.identity} is cancelled"
                yield Option(1, label, partial(self._cancel_caller, process))

    def _cancel(self, run_id: str) -> None:
        self.is_cancelled = self.is_disturbed = True
        self.people.append(f"cancel {run_id}")
        self.store.request_cancel(run_id)

    def _cancel_caller(self, process: Process) -> None:
        self.is_cancelled = self.is_disturbed = True
        process.history.append(("cancelled", self.now))
        process.task.cancel()

    # ------------------------------------------------------------------ people

    def open_questions(self, run_id: str = "") -> list[ApprovalRequest]:
        """Return the questions that wait for a word."""
        return list(self.store.list_approvals(state="open", run_id=run_id))

    def say(self, label: str, word: Callable[[], object]) -> None:
        """Give a person's word; one that comes too late changes nothing."""
        self.people.append(label)
        with suppress(hr.ConfigError):
            word()

    # ------------------------------------------------------------------ the state, to see the same one again

    def key(self) -> int:
        """Return a digest of everything that decides what may happen from now on."""
        store = self.store
        ledger = store._ledger
        seen = (
            *(repr(row) for row in ledger.rows.values()),
            [(act, row.key) for act, row in ledger._by_act.items()],
            [(act, row.key) for act, row in ledger._recent_acts.items()],
            *map(_repr, store._approvals.values()),
            *map(_repr, store._runs.values()),
            *(
                _repr(each)
                for steps in store._steps.values()
                for each in steps.values()
            ),
            list(store._texts),
            self._settled,
            [
                (
                    each.name,
                    each.starts,
                    each.state,
                    each.history,
                    sorted(each.waits_for),
                    each.told,
                )
                for each in self.processes
            ],
            self.effects,
            [(each.process, each.label, each.until) for each in self.late],
            self.people,
            self.delivered,
            sorted(self.unanswered),
            sorted(self.left_alone),
            (
                self.now,
                self.locked_until,
                self.last.name if self.last else "",
                self.is_deployed,
                self.is_cancelled,
            ),
            (self.is_disturbed, self.steps > 1),
        )
        return hash(repr(seen))


CURRENT: World | None = None
"""The world that is run just now: tools are made once for many worlds, and find theirs here."""


def current() -> World:
    """Return the world that is run just now."""
    assert CURRENT is not None
    return CURRENT


def base_key(key: str) -> str:
    """Return the key of a write without what marks a repetition that a person wanted."""
    return key.partition("/again-")[0]


def _answer_attempt(future: asyncio.Future[str], how: str, act: str) -> None:
    if how == "ok":
        future.set_result(f"receipt-{act}")
    elif "answer is lost" in how:
        future.set_exception(ConnectionResetError("lost"))
    elif how == "NoEffect":
        future.set_exception(hr.NoEffect("cannot be reached"))
    elif how == "refused":
        future.set_exception(ConnectionRefusedError("refused"))
    elif how == "ToolError":
        future.set_exception(hr.ToolError("the far side said no"))


def _see(future: asyncio.Future[Any]) -> str:
    """Return what a process sees of an answer of the far side."""
    if not future.done() or future.cancelled():
        return "nothing"
    return repr(future.exception() or future.result())


def _summarize(run: Any, error: BaseException | None) -> tuple[object, ...]:
    if run is None:
        return (repr(error),)
    results = [each.result for each in run.messages if isinstance(each, ToolMessage)]
    return run.status, [(each.call_id, each.text) for each in results]


# typing asks anew for the names of a protocol at each `isinstance`, which takes a tenth of every world
typing._get_protocol_attrs = cache(typing._get_protocol_attrs)  # type: ignore[attr-defined]

_reprs: dict[int, tuple[object, str]] = {}


def _repr(record: object) -> str:
    """Return the text of a record, which never changes: most are asked for again and again."""
    known = _reprs.get(id(record))
    if known is None or known[0] is not record:
        known = _reprs[id(record)] = (record, repr(record))
    return known[1]
