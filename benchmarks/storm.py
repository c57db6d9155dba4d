"""Processes on one store that die and freeze in four ways: `python -m benchmarks.storm --kills 5000 --store ...`.

`chaos` kills at random moments and lets one process carry a run at a time. Here several processes carry the same runs
at once and take them from each other, and each of them comes to one of these ends:

| end | is |
|---|---|
| moment | SIGKILL from outside, after a random time |
| line | SIGKILL by itself, at a random line of handrail's Python |
| call | the kernel kills it as it makes a system call of a random kind, by a filter taken in the middle of its work |
| freeze | SIGSTOP after a random time, SIGCONT after another, then SIGKILL |

Leases are real: whoever finds a claim of a dead process takes it over, and waits for one that is frozen. One write in
four runs in a worker process. In the end the world is compared with what the journals say and what the models had seen.
"""

from __future__ import annotations

import asyncio
import ctypes
import os
import random
import signal
import struct
import sys
import tempfile
import threading
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from time import monotonic, sleep
from typing import Annotated, Any

from tests.journeys.worlds import CLASSES, Far, tool

import handrail as hr
from benchmarks.chaos import Remembering
from benchmarks.verdicts import (
    argument_parser,
    find_end,
    find_lost_texts,
    load_journals,
    print_broken,
)
from handrail.ports import Store
from handrail.testing import ScriptedModel, call
from handrail.testing.crashes import Child, opener

PROCESSES = 3
RUNS_OF_A_BATCH = 24
RUNS_AT_ONCE = 6
SHORTEST_LIFE_S = 0.02
LONGEST_LIFE_S = 0.3
MOST_LINES = 100_000
# Who takes over a `verify` write waits until the dead owner's request can no longer arrive: this long, and 30 s.
WRITE_TIMEOUT_S = 5.0
WRITES = (*CLASSES, "apart")
_HANDRAIL = str(Path(hr.__file__).parent)
_CALLS = {
    # x86_64 and aarch64: write, pwrite64, fdatasync, read, sendto, recvfrom, futex, openat, epoll_(p)wait, close, clone
    "x86_64": (1, 18, 75, 0, 44, 45, 202, 257, 232, 3, 56),
    "aarch64": (64, 68, 83, 63, 206, 207, 98, 56, 22, 57, 220),
}
_SECCOMP = {"x86_64": 317, "aarch64": 277}
ENDS = (
    "moment",
    "line",
    "freeze",
    *(("call",) if os.uname().machine in _CALLS else ()),
)


@hr.tool(effect="write", isolation="process", name="open_apart", timeout_s=30)
def open_apart(title: str, folder: Annotated[str, hr.Injected]) -> str:
    """Open a ticket from a process of its own."""
    far = Far(Path(folder))
    far.add("asked", title)
    far.add("effects", f"- {title}")
    return f"opened {title}"


# ---------------------------------------------------------------------- in the processes that die


@dataclass(frozen=True)
class Fate:
    """How a process ends: the end's name, after how long, and after how many lines or before which call."""

    end: str
    after_s: float
    lines: int = 0
    number: int = 0

    def begin(self) -> None:
        """Prepare the ends that a process comes to by itself."""
        if self.end == "line":
            _die_at_line(self.lines)
        elif self.end == "call":
            timer = threading.Timer(self.after_s, _die_at_call, [self.number])
            timer.daemon = True
            timer.start()


def _die_at_line(lines: int) -> None:
    left = [lines]

    def at_line(frame: Any, event: str, _: Any) -> Any:
        if not frame.f_code.co_filename.startswith(_HANDRAIL):
            return None
        left[0] -= 1
        if left[0] <= 0:
            os.kill(os.getpid(), signal.SIGKILL)
        return at_line

    threading.settrace(at_line)
    sys.settrace(at_line)


def _die_at_call(number: int) -> None:
    """Have the kernel kill this process, all its threads, when any of them makes that system call next."""
    code = b"".join(
        struct.pack("=HBBI", *instruction)
        for instruction in (
            (0x20, 0, 0, 0),
            (0x15, 0, 1, number),
            (0x06, 0, 0, 0x8000_0000),
            (0x06, 0, 0, 0x7FFF_0000),
        )
    )

    class Program(ctypes.Structure):
        _fields_ = [("length", ctypes.c_ushort), ("filter", ctypes.c_char_p)]

    libc = ctypes.CDLL(None)
    libc.prctl(38, ctypes.c_ulong(1), 0, 0, 0)  # PR_SET_NO_NEW_PRIVS
    program = Program(len(code) // 8, code)
    # of all threads
    libc.syscall(
        ctypes.c_long(_SECCOMP[os.uname().machine]), 1, 1, ctypes.byref(program)
    )


def script(run_id: str) -> list:
    """Return what the model of a run says; every fourth run opens a ticket from a worker process too."""
    writes = [
        call(f"open_{replay}", title=f"{run_id}-{replay}")
        for replay in writes_of(run_id)
    ]
    return [[call("look"), writes[0]], *writes[1:], "Done."]


def writes_of(run_id: str) -> tuple[str, ...]:
    """Return the replay classes of a run's writes."""
    return WRITES if int(run_id.rpartition("_")[2]) % 4 == 0 else CLASSES


class Witness(Remembering):
    """A model that writes down what it has seen, before it answers."""

    def __init__(self, run_id: str, far: Far) -> None:
        super().__init__(run_id, far)
        ScriptedModel.__init__(self, script(run_id))


def carry(
    opened: Callable[[], Store],
    folder: Path,
    run_ids: list[str],
    fate: Fate,
    begun: Callable[[], None],
) -> None:
    """Begin or go on with these runs, as others do, until all have ended or this process has."""
    store = opened()
    begun()
    fate.begin()
    asyncio.run(_carry(store, Far(folder), run_ids))


async def _carry(store: Any, far: Far, run_ids: list[str]) -> None:
    places = asyncio.Semaphore(RUNS_AT_ONCE)
    look = hr.FunctionTool(
        lambda: "fine", name="look", parameters={"type": "object"}, effect="read"
    )
    locked = [
        tool(far, replay, resource="ticket:{title}", timeout_s=WRITE_TIMEOUT_S)
        for replay in CLASSES
    ]
    async with hr.Runtime([look, *locked, open_apart], store=store) as runtime:

        async def one(run_id: str) -> None:
            async with places:
                while True:
                    stored = await asyncio.wrap_future(store.load_run(run_id))
                    if stored is not None and stored.record.status == "done":
                        break
                    settings = {
                        "model": Witness(run_id, far),
                        "inject": {"folder": str(far.folder)},
                    }
                    try:
                        if stored is None:
                            await runtime.run("Go.", run_id=run_id, **settings)
                        else:
                            await runtime.resume(run_id, anyway=True, **settings)
                    except hr.ConfigError:  # another process has begun it meanwhile
                        pass
                    # the other one may be at it
                    await asyncio.sleep(random.uniform(0.01, 0.2))
                far.add("ended", run_id)

        await asyncio.gather(*map(one, run_ids))
    store.close()


# ---------------------------------------------------------------------- killing


@dataclass
class Seat:
    """A place for one process after the other."""

    child: Child | None = None
    fate: Fate = field(default_factory=lambda: Fate("moment", 0.0))
    acts: list[tuple[float, int]] = field(default_factory=list)
    """Signals that it gets, and when."""


def fate_of(dice: random.Random, stretch: float) -> Fate:
    """Throw the dice for one process."""
    number = dice.choice(_CALLS.get(os.uname().machine, (1,)))
    lines = int(100 * (MOST_LINES / 100) ** dice.random() * stretch)
    return Fate(
        dice.choice(ENDS),
        dice.uniform(SHORTEST_LIFE_S, LONGEST_LIFE_S) * stretch,
        lines,
        number,
    )


def _acts(fate: Fate, now: float, dice: random.Random) -> list[tuple[float, int]]:
    if fate.end == "moment":
        return [(now + fate.after_s, signal.SIGKILL)]
    if fate.end == "freeze":
        frozen = now + fate.after_s
        thawed = frozen + dice.uniform(0.05, 0.5)
        return [
            (frozen, signal.SIGSTOP),
            (thawed, signal.SIGCONT),
            (thawed + fate.after_s, signal.SIGKILL),
        ]
    # it may never come to its line or its call
    return [(now + 10 * fate.after_s + 1.0, signal.SIGKILL)]


def storm(
    opened: Callable[[], Store],
    folder: Path,
    run_ids: list[str],
    until: float,
    dice: random.Random,
) -> Counter:
    """Carry out the runs in processes that are killed at random; return how many processes ended in which way.

    At `until` the killing stops and one more process finishes what is left: a run that is unfinished then never ends.
    """
    ends = _end_processes(opened, folder, run_ids, until, dice)
    with suppress(RuntimeError):  # it hung: the runs are found unfinished
        # Nobody kills this one: it finishes the runs that the others had taken over last.
        Child(partial(carry, opened, folder, run_ids, Fate("none", 0.0))).result()
    return ends


def _end_processes(
    opened: Callable[[], Store],
    folder: Path,
    run_ids: list[str],
    until: float,
    dice: random.Random,
) -> Counter:
    """Start processes and kill them until one has finished all runs, or `until` has come."""
    ends: Counter = Counter()
    seats = [Seat() for _ in range(PROCESSES)]
    far = Far(folder)
    stretch = 1.0
    progress = 0
    try:
        while monotonic() < until:
            for seat in seats:
                if seat.child is None:
                    seat.fate = fate_of(dice, stretch)
                    shuffled = dice.sample(run_ids, len(run_ids))
                    seat.child = Child(
                        partial(carry, opened, folder, shuffled, seat.fate)
                    )
                    # Nobody waits until it has begun: one that is frozen may hold the store until it is thawed here.
                    seat.acts = _acts(seat.fate, monotonic(), dice)
                    before = progress
                    progress = len(set(far.lines("ended")))
                    # so that long runs get done
                    stretch = 1.0 if progress > before else min(stretch * 1.3, 16.0)
                elif (how := find_end(seat.child)) is not None:
                    if how == "done":
                        seat.child.result()  # raises what it raised
                        seat.child = None
                        return ends
                    seat.child.end()
                    ends[seat.fate.end] += 1
                    seat.child = None
                elif seat.acts and monotonic() >= seat.acts[0][0]:
                    os.kill(seat.child.pid, seat.acts.pop(0)[1])
            sleep(0.003)
    finally:
        for seat in seats:
            if seat.child is not None:
                seat.child.end()
    return ends


# ---------------------------------------------------------------------- judging


PROMISES = ("repeated", "lost", "lies", "stuck", "unfinished")


@dataclass
class Verdict:
    """The outcome. Every list is empty unless a promise was broken."""

    writes: int = 0
    in_doubt: int = 0
    ends: Counter = field(default_factory=Counter)
    repeated: list[str] = field(default_factory=list)
    lost: list[str] = field(default_factory=list)
    lies: list[str] = field(default_factory=list)
    stuck: list[str] = field(default_factory=list)
    unfinished: list[str] = field(default_factory=list)

    @property
    def broken(self) -> dict[str, list[str]]:
        """Every promise that was broken, by its kind."""
        kinds = {kind: getattr(self, kind) for kind in PROMISES}
        return {kind: found for kind, found in kinds.items() if found}


def judge(
    verdict: Verdict, opened: Callable[[], Store], far: Far, run_ids: list[str]
) -> None:
    """Compare the world with the journals of these runs, and the journals with what the models have seen."""
    happened = Counter(line.split()[-1] for line in far.lines("effects"))
    store: Any = opened()
    journals = load_journals(store, run_ids)
    store.close()
    for run_id, results in journals.by_run.items():
        for replay in writes_of(run_id):
            title = f"{run_id}-{replay}"
            weigh(verdict, results.get(f"open_{replay}"), title, happened[title])
    verdict.lost += find_lost_texts(far, journals)
    verdict.unfinished += journals.unfinished
    with hr.SyncRuntime(
        [tool(far, "none", resource="ticket:{title}")], store=opened()
    ) as runtime:
        # the lock of a ticket is free once its run has ended
        for run_id in run_ids[:4]:
            title = f"{run_id}-verify"
            probe = runtime.call("open_none", {"title": title}, run=f"probe-{run_id}")
            if not probe.ok:
                verdict.stuck.append(f"{title}: {probe.text}")


def weigh(
    verdict: Verdict, result: hr.ToolResult | None, title: str, happened: int
) -> None:
    """Judge one write: what was told of it against how often it happened."""
    verdict.writes += 1
    if happened > 1:
        verdict.repeated.append(f"{title}: {happened} times")
    if result is None:
        verdict.lost.append(f"{title}: the journal has no result")
    elif result.ok and not happened:
        verdict.lies.append(f"{title}: told as done, and nothing happened")
    elif result.failure is not None and result.failure.code == hr.Code.IN_DOUBT:
        verdict.in_doubt += 1
    elif result.failure is not None and happened:
        verdict.lies.append(f"{title}: told as {result.failure.code}, and it happened")


def storms(
    kills: int,
    *,
    store: str,
    folder: Path,
    seconds: float,
    seed: int,
    runs: int = RUNS_OF_A_BATCH,
) -> Verdict:
    """Carry batches of runs through storms until so many processes were ended, or the time is over."""
    verdict = Verdict()
    opened = opener(store)
    dice = random.Random(seed)
    until = monotonic() + seconds
    batch = 0
    while (
        verdict.ends.total() < kills and monotonic() < until and not verdict.unfinished
    ):
        far = Far(folder / f"batch-{batch}")
        run_ids = [f"s_{seed:x}_{batch}_{number}" for number in range(runs)]
        verdict.ends += storm(opened, far.folder, run_ids, until, dice)
        findings = Child(
            lambda _, far=far, run_ids=run_ids: _judge_in_fork(opened, far, run_ids)
        ).result()
        for kind, found in findings.items():
            setattr(verdict, kind, getattr(verdict, kind) + found)
        batch += 1
    return verdict


def _judge_in_fork(
    opened: Callable[[], Store], far: Far, run_ids: list[str]
) -> dict[str, Any]:
    """Judge in a process of its own: a store that is open does not survive the next fork."""
    verdict = Verdict()
    judge(verdict, opened, far, run_ids)
    return {"writes": verdict.writes, "in_doubt": verdict.in_doubt, **verdict.broken}


def main() -> int:
    """Print the counts; the exit code is 1 when a promise was broken."""
    parser = argument_parser("storm", __doc__.splitlines()[0], seconds=3600.0)
    parser.add_argument("--kills", type=int, default=500)
    given = parser.parse_args()
    began = monotonic()
    with tempfile.TemporaryDirectory(prefix="handrail-storm-") as folder:
        store = given.store or f"sqlite:///{folder}/storm.db"
        verdict = storms(
            given.kills,
            store=store,
            folder=Path(folder),
            seconds=given.seconds,
            seed=given.seed,
        )
    ends = ", ".join(f"{number} by {end}" for end, number in verdict.ends.most_common())
    took = f"{monotonic() - began:.0f} s, {store.partition(':')[0]}"
    print(f"seed {given.seed}: {verdict.ends.total()} ends ({ends}), {took}")
    print(f"  writes {verdict.writes}, in doubt {verdict.in_doubt}")
    print_broken({kind: getattr(verdict, kind) for kind in PROMISES}, width=12)
    return 1 if verdict.broken else 0


if __name__ == "__main__":
    sys.exit(main())
