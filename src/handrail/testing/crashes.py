"""Kills a process at the worst moment of a write, resumes its run in a new one, and counts effects: on your own tool.

    crash = Crash(Boundary.AFTER_EFFECT, "sqlite:////tmp/crash.db")
    survived = crash(refund, {"order_id": "A-1"}, effects=count_refunds)      # asserts what effects.md promises

As a pytest fixture, `crash` runs a test once for each boundary. A process is forked, drives a run on a real store, and
kills itself with SIGKILL between two steps; another one then resumes the run. Nothing sleeps, and only leases are
simulated: they expire at once, as if everybody had waited.

Rule 1: a process reports its boundary before it is killed, so a boundary that was never reached fails the test.
Rule 2: this process never opens the store: a database that is open does not survive a fork.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import traceback
import warnings
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from enum import Enum
from functools import partial
from inspect import signature
from secrets import token_hex
from typing import Any, TypeAlias, TypeVar

from msgspec import Struct
from msgspec.structs import replace

from handrail import plugins
from handrail.calls import ToolResult
from handrail.effects import Claim, ReplayClass, Settle
from handrail.engine.verbs import ResumeOptions, RunOptions
from handrail.errors import Code, ConfigError, HandrailError, Json
from handrail.futures import StoreAnswer
from handrail.journal.codec import result_as_json, result_from_json
from handrail.messages import ToolMessage
from handrail.network.descriptors import wait_readable
from handrail.ports import Model, Store
from handrail.records import JournalEntry
from handrail.runs import Run
from handrail.surroundings.clock import monotonic
from handrail.sync import SyncRuntime
from handrail.testing import ScriptedModel, call
from handrail.tools.tool import BaseTool
from handrail.tools.toolset import Tools, Toolset

T = TypeVar("T")
Deed: TypeAlias = Callable[[SyncRuntime], Json]
"""What a process does with a runtime; what it returns must be JSON, since it comes from another process."""

# A process of ours that says nothing for so long hangs: everything that it waits for takes milliseconds.
PATIENCE_S = 60.0

# How much of a process's output an error quotes.
_MOST_SHOWN = 2000

# Whoever comes after the dead need not wait until their lease is over.
_OVER_S = -1.0


class Boundary(Enum):
    """Between which two steps of a write its process dies."""

    BEFORE_CLAIM = "before claim"
    AFTER_CLAIM = "after claim"
    AFTER_EFFECT = "after effect"
    AFTER_SETTLE = "after settle"
    AFTER_JOURNAL = "after journal"


_UNKNOWN = {Boundary.AFTER_CLAIM, Boundary.AFTER_EFFECT}


def effects_wanted(replay: ReplayClass, boundary: Boundary) -> int:
    """Return how often a write must have taken effect, once its run has been resumed."""
    if replay == "none" and boundary is Boundary.AFTER_CLAIM:
        return 0
    return 1


def ends_in_doubt(replay: ReplayClass, boundary: Boundary) -> bool:
    """Whether nobody can know what became of a write."""
    return replay == "none" and boundary in _UNKNOWN


class NotReached(HandrailError):
    """A process ended by itself and did not come to the boundary: the test proves nothing."""


# ---------------------------------------------------------------------- processes


class Child:
    """A forked process at its work.

    Args:
        work: What it does, with a function by which it says that it has come to its boundary; returns JSON.
    """

    def __init__(self, work: Callable[[Callable[[], None]], Json]) -> None:
        sys.stdout.flush()
        sys.stderr.flush()
        self._line, theirs = os.pipe()
        with warnings.catch_warnings():
            # Threads of the parent are not in the child, which uses nothing of theirs.
            warnings.simplefilter("ignore", DeprecationWarning)
            self.pid = os.fork()
        if self.pid == 0:
            os.close(self._line)
            _work(work, theirs)
        os.close(theirs)
        self._output = b""
        self._over = False

    def wait_for_boundary(self) -> None:
        """Wait until it has come to its boundary.

        Raises:
            NotReached: It ended by itself.
        """
        while b"\n" not in self._output and self._more():
            pass
        if not self._output.startswith(b"reached\n"):
            words = self._output[:_MOST_SHOWN].decode(errors="replace")
            raise NotReached(
                f"the process ended before it came to the boundary; it told: {words}"
            )

    def result(self) -> Json:
        """Wait for its end; return what its work returned.

        Raises:
            RuntimeError: Its work raised, or something killed it.
        """
        while self._more():
            pass
        last = self._output.removeprefix(b"reached\n")
        if not last:
            raise RuntimeError(f"the process {self.pid} ended without a word")
        raised, value = json.loads(last)
        if raised:
            raise RuntimeError(f"the process {self.pid} raised:\n{value}")
        return value

    def end(self) -> None:
        """Kill it if it is alive, and reap it."""
        if not self._over:
            os.kill(self.pid, signal.SIGKILL)
            while self._more():
                pass

    def _more(self) -> bool:
        """Read the next part of its output; return False at the end."""
        if self._over:
            return False
        until = monotonic() + PATIENCE_S
        if not wait_readable(self._line, timeout_s=max(0.0, until - monotonic())):
            os.kill(self.pid, signal.SIGKILL)
            raise RuntimeError(
                f"the process {self.pid} said nothing for {PATIENCE_S:g} s, and was killed"
            )
        piece = os.read(self._line, 1 << 16)
        self._output += piece
        if not piece:
            os.close(self._line)
            os.waitpid(self.pid, 0)
            self._over = True
        return bool(piece)


def _work(work: Callable[[Callable[[], None]], Json], line: int) -> None:
    """Do the work in the child, report its result, and exit without running the parent's exit handlers."""
    try:
        report = [False, work(lambda: _say(line, b"reached\n"))]
    except BaseException:
        report = [True, traceback.format_exc()]
    try:
        _say(line, json.dumps(report).encode())
        sys.stdout.flush()
        sys.stderr.flush()
    finally:
        os._exit(0)


def _say(line: int, words: bytes) -> None:
    while words:
        words = words[os.write(line, words) :]


# ---------------------------------------------------------------------- dying


class Moment(Struct, frozen=True):
    """When a process dies, or with SIGSTOP freezes: at the n-th time that it comes to a boundary."""

    boundary: Boundary
    nth: int = 1
    by: signal.Signals = signal.SIGKILL


class MortalStore:
    """Does what another store does, until it kills or freezes its own process at a moment.

    Args:
        reached: Called just before that.
    """

    def __init__(
        self, store: Store, moment: Moment, reached: Callable[[], None]
    ) -> None:
        # As attributes, not by `__getattr__`: protocol checks look at the attributes of a store.
        for name in dir(store):
            if not name.startswith("_"):
                setattr(self, name, getattr(store, name))
        self._store = store
        self._moment = moment
        self._reached = reached
        self._left = moment.nth
        self._unrecorded = 0  # settled writes that the journal does not have yet
        self._at = {
            "claim": (Boundary.BEFORE_CLAIM, Boundary.AFTER_CLAIM),
            "settle": (Boundary.AFTER_EFFECT, Boundary.AFTER_SETTLE),
            "append_entry": (None, Boundary.AFTER_JOURNAL),
        }
        for name in self._at.keys() & vars(self).keys():
            setattr(self, name, partial(self._ask_store, name, getattr(store, name)))

    def _ask_store(
        self, name: str, ask: Callable[[Any], Any], asked: Claim | Settle | JournalEntry
    ) -> Any:
        """Ask the store and return its answer; die before or after that, if the moment is there."""
        if isinstance(asked, Claim):
            asked = replace(asked, lease_s=_OVER_S)
        if isinstance(asked, Settle):
            self._unrecorded += 1
        if isinstance(asked, JournalEntry):
            ended_calls = sum(step.kind == "call" for step in asked.steps)
            if not (ended_calls and self._unrecorded):
                # not the end of a write, but a turn, a read or a refused call
                return ask(asked)
            self._unrecorded = max(0, self._unrecorded - ended_calls)
        before, after = self._at[name]
        self._die_at(before)
        answer = ask(asked)
        if self._moment.boundary is after:
            answer = _wait_for(answer)
            self._die_at(after)
        return answer

    def _die_at(self, boundary: Boundary | None) -> None:
        if self._moment.boundary is not boundary:
            return
        self._left -= 1
        if self._left == 0:
            if self._moment.by == signal.SIGSTOP:
                # Whoever freezes in the middle of a commit to SQLite holds everybody up until it thaws. Whatever was
                # asked before this has been committed when this is answered.
                _wait_for(self._store.load_result("", ""))
            self._reached()
            os.kill(os.getpid(), self._moment.by)


def _wait_for(answer: StoreAnswer[T]) -> T:
    if isinstance(answer, Future):
        return answer.result(PATIENCE_S)
    return answer


def start(deed: Deed, tools: Tools, *, store: str, moment: Moment, **how: Any) -> Child:
    """Begin a deed in a process that ends at a moment, on a store by its name.

    Args:
        how: As for `Runtime`.
    """

    toolset = _compile(tools)
    open_store = opener(store)

    def work(reached: Callable[[], None]) -> Json:
        return _drive(deed, toolset, MortalStore(open_store(), moment, reached), how)

    return Child(work)


def start_and_kill(
    deed: Deed, tools: Tools, *, store: str, moment: Moment, **how: Any
) -> None:
    """Begin a deed in a process that is killed at a moment; return once it is dead.

    Raises:
        NotReached: The process ended before that moment.
    """
    child = start(
        deed,
        tools,
        store=store,
        moment=moment,
        **how,
    )
    try:
        child.wait_for_boundary()
    finally:
        child.end()


def run_in_child(deed: Deed, tools: Tools, *, store: str, **how: Any) -> Json:
    """Do a deed in a process of its own; return what it returned."""
    toolset = _compile(tools)
    open_store = opener(store)
    child = Child(lambda _: _drive(deed, toolset, open_store(), how))
    try:
        return child.result()
    finally:
        child.end()


def _compile(tools: Tools) -> Toolset:
    """Return the tools compiled: that costs more than a fork, and both processes would do it."""
    toolset = Toolset(tools)
    for tool in toolset:
        _ = tool.checker, tool.bind, tool.injected_parameters
    return toolset


def opener(store: str) -> Callable[[], Store]:
    """Return what opens a store of that name. Its module is imported now, so that a forked process need not.

    Raises:
        ConfigError: There is no such store, or it would die with its process.
    """
    kind, _, place = store.partition(":")
    if kind == "memory":
        raise ConfigError(
            "a store in memory dies with its process; name one that survives: sqlite:///crash.db"
        )
    return partial(plugins.load("stores", kind), place)


def _drive(deed: Deed, tools: Tools, store: Any, how: Mapping[str, Any]) -> Json:
    with SyncRuntime(tools, store=store, **how) as runtime:
        result = deed(runtime)
    store.close()
    return result


# ---------------------------------------------------------------------- what survives


class Survived(Struct, frozen=True):
    """What became of a run whose process was killed.

    Attributes:
        effects: How much more there was in the end than before the run.
        results: What the model read, in order.
    """

    boundary: Boundary
    effects: int
    status: str
    text: str
    results: Sequence[ToolResult]


# What a run takes and the runtime does not. A resumed run knows some of it by itself.
_OF_A_RUN = RunOptions.__annotations__.keys() - signature(SyncRuntime).parameters.keys()
_OF_A_RESUMED_RUN = _OF_A_RUN & ResumeOptions.__annotations__.keys()


class Crash(Struct, frozen=True):
    """Kills runs at one boundary, on one store, and resumes them."""

    boundary: Boundary
    store: str

    def __call__(
        self,
        tool: BaseTool,
        arguments: Mapping[str, Json],
        *,
        effects: Callable[[], int],
        **how: Any,
    ) -> Survived:
        """Let a run make one call of a write, die at the boundary and be resumed; assert that it keeps its promise.

        Args:
            effects: Counts what the tool has done to the world, outside of every process: in a file, in a database.
            how: As for `Runtime`, and as for its `run`: `inject`, `deps`.

        Raises:
            AssertionError: Another number of effects than its replay class promises, or the model read otherwise.
            NotReached: The call did not come to the boundary: it was refused, say.
        """
        tool = Toolset([tool])[tool.name]
        if not tool.writes:
            raise ConfigError(
                f"{tool.name!r} is a read; it may run again, and there is nothing to prove"
            )
        model = ScriptedModel([call(tool.name, **arguments), "done"])
        survived = self.run(
            [tool],
            model=model,
            effects=effects,
            **how,
        )
        replay = tool.replay_class
        (result,) = survived.results
        wanted = effects_wanted(replay, self.boundary)
        where = f"{tool.name}, killed {self.boundary.value} (replay class {replay!r})"
        counted = f"{where}: {survived.effects} effects, {wanted} wanted"
        if survived.effects == 0 != wanted:
            counted += "; effects are counted in this process, so they must lie outside of the one that is killed"
        assert survived.effects == wanted, counted
        if ends_in_doubt(replay, self.boundary):
            assert (
                result.failure is not None and result.failure.code == Code.IN_DOUBT
            ), f"{where}: {result.text}"
        else:
            assert result.ok, f"{where}: {result.text}"
        return survived

    def run(
        self,
        tools: Tools,
        *,
        model: str | Model,
        effects: Callable[[], int],
        question: str = "Go on.",
        write: int = 1,
        **how: Any,
    ) -> Survived:
        """Let a run die where its n-th write comes to the boundary, and resume it; assert that it ends.

        Args:
            effects: Counts what the tools have done to the world.
            write: Which time it comes to the boundary, from 1.
            how: As for `Runtime`, and as for its `run`: `inject`, `deps`.

        Raises:
            AssertionError: The run does not end, or a call has no result.
            NotReached: No write came to the boundary.
        """
        run_id = f"r_{token_hex(4)}"
        before = effects()
        moment = Moment(self.boundary, write)
        of_run = {name: how.pop(name) for name in _OF_A_RUN & how.keys()}
        begin = partial(
            _run_and_report,
            verb="run",
            on=question,
            model=model,
            run_id=run_id,
            **of_run,
        )
        start_and_kill(
            begin,
            tools,
            store=self.store,
            moment=moment,
            **how,
        )
        report = run_in_child(
            partial(
                _run_and_report,
                verb="resume",
                on=run_id,
                model=model,
                **{name: of_run[name] for name in _OF_A_RESUMED_RUN & of_run.keys()},
            ),
            tools,
            store=self.store,
            **how,
        )
        results = [result_from_json(each) for each in report["results"]]
        assert report["status"] == "done", (
            f"killed {self.boundary.value}, the run ended {report['status']}: {report['reason']}"
        )
        assert len(results) == report["calls"], (
            f"{report['calls']} calls have {len(results)} results"
        )
        return Survived(
            self.boundary, effects() - before, report["status"], report["text"], results
        )


def _run_and_report(runtime: SyncRuntime, *, verb: str, on: str, **how: Any) -> Json:
    """Run or resume; return what a parent wants to know of it."""
    run: Run = getattr(runtime, verb)(on, **how)
    results = [
        result_as_json(message.result)
        for message in run.messages
        if isinstance(message, ToolMessage)
    ]
    return {
        "status": run.status,
        "reason": run.reason,
        "text": run.text,
        "calls": run.spent.calls,
        "results": results,
    }


__all__ = [
    "Boundary",
    "Child",
    "Crash",
    "MortalStore",
    "Moment",
    "NotReached",
    "Survived",
    "run_in_child",
    "start",
    "start_and_kill",
]
