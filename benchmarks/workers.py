"""Workers of one store that die, freeze and are replaced: `python -m benchmarks.workers --runs 10000 --kills 100`.

Runs are submitted to a Postgres of our own, or to any store with `--store`. Four processes carry them out, and a person
approves one call of each run from yet another connection. Meanwhile workers are killed and frozen, the server
is restarted twice, and in the middle all workers are replaced by ones with another version of the tools. In the end the
world is compared with the journals.

| counted | is |
|---|---|
| second effects | writes that happened twice |
| lost | results that say so of a write that never happened, or journals without the result |
| unfinished | runs that had not ended in time |
| take-over p95 | from a kill to the next begin of each run that was under way in that process |

Beside these it prints how far the work is, the parts of each take-over beyond the goal, the story of each run that had
not ended, was poisoned or left behind, and why the store did not answer a call.
"""

from __future__ import annotations

import argparse
import asyncio
import logging
import os
import random
import re
import signal
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from threading import Event, Thread
from time import monotonic, sleep, time
from typing import Any

from tests.journeys.worlds import Far, declaration, tool

import handrail as hr
from benchmarks.take_overs import TakeOver, Trails
from benchmarks.verdicts import load_journals, print_broken
from handrail import admin
from handrail.dispatch.choice import open_dispatcher
from handrail.dispatch.port import Running, Segment, Timing
from handrail.dispatch.worker import Worker
from handrail.testing import ScriptedModel, call
from handrail.testing.crashes import opener

MOST_SHOWN = 20
"""How many runs and take-overs are described each."""
MOST_SUBMITTED = 100
"""How many runs are submitted at once."""
PROGRESS_S = 15.0
STRAGGLES_S = 15.0
"""A run that ends so long after all others was left behind."""
WORKERS = 4
CONCURRENCY = 8
WRITES = ("key", "verify", "none")
TIMEOUT_S = 5.0
"""Of each write. Whoever takes a run over waits for so long, and 30 s more, before it asks `verify`."""


# ---------------------------------------------------------------------- in the workers


def script() -> list[Any]:
    """Return what the model says: a read and a write, a write, and one that a person is asked about."""

    def title(messages: Sequence[Any], replay: str) -> str:
        question = next(
            each.text for each in messages if isinstance(each, hr.UserMessage)
        )
        return f"{question.removeprefix('Go ')}-{replay}"

    return [
        lambda messages: [call("look"), call("open_key", title=title(messages, "key"))],
        lambda messages: [call("open_verify", title=title(messages, "verify"))],
        lambda messages: [call("open_none", title=title(messages, "none"))],
        "Three tickets.",
    ]


def tools_of(far: Far, version: int) -> list[Any]:
    """Return the tools of a version: the second one has another tool, and describes one otherwise."""
    fn, settings = declaration(far, "none")
    settings |= {"effect": "destructive", "timeout_s": TIMEOUT_S}
    asked = hr.FunctionTool(fn, **settings)
    look = hr.FunctionTool(
        lambda: "fine",
        name="look",
        description=f"Look around, version {version}.",
        parameters={"type": "object"},
        effect="read",
    )
    keyed, verified = (
        tool(far, replay, timeout_s=TIMEOUT_S) for replay in ("key", "verify")
    )
    found = [look, keyed, verified, asked]
    if version > 1:
        found.append(
            hr.FunctionTool(
                lambda: "new",
                name="fresh",
                parameters={"type": "object"},
                effect="read",
            )
        )
    return found


class Witness(Worker):
    """A worker that writes down when it begins a segment and when it is done with it."""

    far: Far

    async def _perform(self, segment: Segment, running: Running) -> None:
        place = f"{os.getpid()} {segment.run_id}"
        self.far.add("begun", f"{time()} {place} {running.attempt}")
        try:
            await super()._perform(segment, running)
        finally:
            self.far.add("left", f"{time()} {place}")


async def work(place: str, folder: Path, version: int, timing: Timing) -> None:
    """Work until SIGTERM."""
    far = Far(folder)
    async with hr.Runtime(tools_of(far, version), store=opener(place)()) as runtime:
        dispatcher = open_dispatcher(runtime.store, timing=timing)
        worker = Witness(
            runtime,
            dispatcher,
            model=ScriptedModel(script()),
            concurrency=CONCURRENCY,
        )
        worker.far = far
        stopping: list[Any] = []
        asyncio.get_running_loop().add_signal_handler(
            signal.SIGTERM,
            lambda: stopping.append(asyncio.ensure_future(worker.stop(grace_s=5.0))),
        )
        await worker.work()


# ---------------------------------------------------------------------- around them


@dataclass
class Trouble:
    """What befalls the workers, and when it did."""

    kills: int
    freezes: int
    restarts: int
    killed: list[tuple[float, int]] = field(default_factory=list)
    frozen: int = 0
    restarted: int = 0
    deployed: bool = False
    log: list[tuple[float, str]] = field(default_factory=list)
    """What was done, and when."""
    began: float = field(default_factory=time)

    def show(self, ended: int, left: int) -> None:
        """Print how far the work is."""
        print(
            f"  {time() - self.began:5.0f} s: {ended:,} runs ended, {left:,} segments performed, {len(self.killed)} "
            f"kills, {self.frozen} freezes, {self.restarted} restarts{', deployed' if self.deployed else ''}",
            flush=True,
        )

    def note(self, what: str) -> None:
        """Write down what is done now."""
        self.log.append((time(), what))


@dataclass
class Fleet:
    """The workers of a store, one process each."""

    place: str
    folder: Path
    timing: Timing
    far: Far
    version: int = 1
    workers: list[subprocess.Popen[bytes]] = field(default_factory=list)
    read_bytes: int = 0

    def count_left(self) -> int:
        """Return how many segments were done with since this was asked last."""
        file = self.folder / "left"
        if not file.exists():
            return 0
        with file.open("rb") as lines:
            lines.seek(self.read_bytes)
            new = lines.read()
        self.read_bytes += len(new)
        return new.count(b"\n")

    def fill(self) -> None:
        """Start a worker for each that is gone."""
        self.workers = [each for each in self.workers if each.poll() is None]
        while len(self.workers) < WORKERS:
            self.workers.append(self._start())

    def _start(self) -> subprocess.Popen[bytes]:
        timing = f"{self.timing.beat_s},{self.timing.dead_s},{self.timing.sweep_s}"
        words = ["--serve", self.place, str(self.folder), str(self.version), timing]
        with (self.folder / "log").open("ab") as log:
            return subprocess.Popen(
                [sys.executable, "-m", "benchmarks.workers", *words], stderr=log
            )

    def replace_all(self) -> None:
        """Deploy the next version: one worker after the other is told to end, and a new one started."""
        self.version += 1
        for each in list(self.workers):
            each.terminate()
            each.send_signal(signal.SIGCONT)  # it may be frozen
            self.workers.append(self._start())
            each.wait(60)

    def end(self) -> None:
        """Kill all."""
        for each in self.workers:
            with suppress(ProcessLookupError):
                each.send_signal(signal.SIGCONT)
            each.kill()
            each.wait()


async def submit_all(
    store: Any, run_ids: Sequence[str], *, times: int = 1, **how: Any
) -> None:
    """Submit the runs, many at once; a second time changes nothing."""
    async with hr.Runtime([], store=store) as runtime:
        for start in range(0, len(run_ids), MOST_SUBMITTED):
            submitting = [
                runtime.submit(f"Go {run_id}", run_id=run_id, idempotent=True, **how)
                for run_id in run_ids[start : start + MOST_SUBMITTED]
                for _ in range(times)
            ]
            await asyncio.gather(*submitting)


@contextmanager
def people(place: str) -> Iterator[None]:
    """Approve whatever is asked, eight questions at a time, beside everything else."""
    over = Event()
    store: Any = opener(place)()

    def approve(question_id: str) -> None:
        # somebody was quicker, or it is closed; or the database is away, and it is asked again
        with suppress(hr.ConfigError, hr.StoreUnavailable):
            admin.approve(store, question_id, by="anna")

    def approve_all() -> None:
        with ThreadPoolExecutor(8) as hands:
            while not over.wait(0.1):
                with suppress(hr.StoreUnavailable):
                    rows = store.use_connection(
                        lambda database: database.run(
                            "SELECT id FROM approvals WHERE state = 'open' LIMIT 100"
                        )
                    )
                    list(hands.map(approve, [question_id for (question_id,) in rows]))

    approving = Thread(target=approve_all)
    approving.start()
    try:
        yield
    finally:
        over.set()
        approving.join()
        store.close()


def count_ended(store: Any) -> int:
    """Return how many runs have ended, also those that are poisoned."""
    [[count]] = store.use_connection(
        lambda database: database.run(
            "SELECT count(*) FROM runs WHERE status NOT IN ('queued', 'running', 'waiting')"
        )
    )
    return int(count)


def trouble_until_done(
    fleet: Fleet, place: str, runs: int, trouble: Trouble, server: Any, *, until: float,
    dice: random.Random,
) -> None:  # fmt: skip
    """Kill, freeze, restart and deploy in even steps of the work, until every run has ended."""
    store = opener(place)()
    segments = 2 * runs  # until the question, and after it
    thaw: list[tuple[float, int]] = []
    ended = left = 0
    shown = monotonic()
    try:
        while ended < runs and monotonic() < until:
            fleet.fill()
            with suppress(hr.StoreUnavailable):
                ended = count_ended(store)
            left += fleet.count_left()
            share = min(1.0, (left + 1) / segments)
            if monotonic() - shown > PROGRESS_S:
                shown = monotonic()
                trouble.show(ended, left)
            if len(trouble.killed) < trouble.kills * share:
                victim = dice.choice(fleet.workers)
                victim.kill()
                trouble.killed.append((time(), victim.pid))
                trouble.note(f"killed {victim.pid}")
                victim.wait()
            elif trouble.frozen < trouble.freezes * share:
                victim = dice.choice(fleet.workers)
                victim.send_signal(signal.SIGSTOP)
                trouble.frozen += 1
                trouble.note(f"froze {victim.pid}")
                thaw.append((monotonic() + 2 * fleet.timing.dead_s, victim.pid))
            elif server is not None and trouble.restarted < trouble.restarts * share:
                trouble.note("stops Postgres")
                server.stop(signal.SIGINT)
                server.start()
                trouble.note("started Postgres")
                trouble.restarted += 1
            elif not trouble.deployed and share > 0.5:
                trouble.note("deploys")
                fleet.replace_all()
                trouble.note("deployed")
                trouble.deployed = True
            for at, pid in list(thaw):
                if monotonic() > at:
                    with suppress(ProcessLookupError):
                        os.kill(pid, signal.SIGCONT)
                        trouble.note(f"thawed {pid}")
                    thaw.remove((at, pid))
            sleep(0.1)
    finally:
        store.close()


# ---------------------------------------------------------------------- judging


@dataclass
class Verdict:
    """The outcome. Every list is empty unless a promise was broken."""

    second_effects: list[str] = field(default_factory=list)
    lost: list[str] = field(default_factory=list)
    unfinished: list[str] = field(default_factory=list)
    stories: list[str] = field(default_factory=list)
    """What befell each run that had not ended, was poisoned or left behind."""
    silences: list[str] = field(default_factory=list)
    """What workers logged of calls for which the store did not answer."""
    in_doubt: int = 0
    take_overs: list[TakeOver] = field(default_factory=list)

    @property
    def broken(self) -> dict[str, list[str]]:
        """What broke each promise."""
        return {
            "second effects": self.second_effects,
            "lost": self.lost,
            "unfinished": self.unfinished,
        }


def judge(place: str, far: Far, run_ids: Sequence[str], trouble: Trouble) -> Verdict:
    """Compare the world with the journals."""
    verdict = Verdict()
    happened = Counter(line.split()[-1] for line in far.lines("effects"))
    store: Any = opener(place)()
    journals = load_journals(store, run_ids)
    verdict.unfinished = journals.unfinished
    verdict.second_effects = [
        f"{title}: {count} times" for title, count in happened.items() if count > 1
    ]
    for run_id, results in journals.by_run.items():
        for replay in WRITES:
            title = f"{run_id}-{replay}"
            result = results.get(f"open_{replay}")
            if (
                result is not None
                and result.failure is not None
                and result.failure.code == hr.Code.IN_DOUBT
            ):
                verdict.in_doubt += 1
            elif result is None or not result.ok or not happened[title]:
                verdict.lost.append(
                    f"{title}: {happened[title]} effects, and the journal has {result!r}"
                )
    trails = Trails.of(far)
    verdict.take_overs = sorted(trails.find_take_overs(trouble.killed))
    remarkable = [*verdict.unfinished, *trails.find_stragglers(STRAGGLES_S)]
    verdict.silences = find_silences(far.folder / "log")
    for run_id in dict.fromkeys(remarkable[:MOST_SHOWN]):
        story = trails.describe(run_id, trouble.began, trouble.log)
        verdict.stories.append(f"{run_id}, {describe_rows(store, run_id)}: {story}")
    store.close()
    return verdict


def find_silences(log: Path) -> list[str]:
    """Return what workers have logged of calls for which the store did not answer."""
    if not log.exists():
        return []
    lines = log.read_text(errors="replace").splitlines()
    return [line for line in lines if "the store did not take" in line]


def describe_rows(store: Any, run_id: str) -> str:
    """Return how the store has a run that has not ended: its status, its segment and its questions."""
    parts = []
    for statement in (
        "SELECT status, epoch, owner FROM runs WHERE run_id = ?",
        "SELECT 'segment', segment, 'deaths', deaths, 'woken', woken, note FROM submitted WHERE run_id = ?",
        "SELECT state FROM approvals WHERE run_id = ?",
        "SELECT 'job', args ->> 'number', status, attempts FROM handrail_jobs.procrastinate_jobs WHERE lock = ?",
    ):
        with suppress(hr.StoreUnavailable):  # a store without procrastinate
            rows = store.use_connection(
                lambda database, statement=statement: database.run(statement, (run_id,))
            )
            parts += [" ".join(map(str, row)) for row in rows]
    return ", ".join(parts)


@contextmanager
def server_of_our_own() -> Iterator[Any]:
    """Start a Postgres that can be restarted."""
    lacking = [name for name in ("psycopg", "pytest") if find_spec(name) is None]
    if lacking:
        raise SystemExit(
            f"a Postgres of our own needs {' and '.join(lacking)}: install what the tests need, or name a store "
            "with --store"
        )
    from tests.stores.servers import Server, binaries

    programs = binaries()
    if programs is None:
        raise SystemExit("no Postgres here; name a store with --store")
    server = Server(programs)
    server.start()
    try:
        yield server
    finally:
        server.remove()


def measure(
    runs: int, trouble: Trouble, *, place: str, folder: Path, timing: Timing, seconds: float, seed: int,
    server: Any = None,
) -> Verdict:  # fmt: skip
    """Carry so many runs through the trouble; return the verdict."""
    run_ids = [f"r_{seed:x}_{number}" for number in range(runs)]
    far = Far(folder)
    asked = time()
    with opener(place)() as store:
        asyncio.run(submit_all(store, run_ids, times=2))
    trouble.began = time()
    print(f"submitted {runs:,} runs twice in {trouble.began - asked:.0f} s", flush=True)
    fleet = Fleet(place, folder, timing, far)
    until = monotonic() + seconds
    try:
        with people(place):
            trouble_until_done(
                fleet,
                place,
                runs,
                trouble,
                server,
                until=until,
                dice=random.Random(seed),
            )
    finally:
        fleet.end()
    return judge(place, far, run_ids, trouble)


def delays_of_ten(place: str, far: Far, name: str) -> list[float]:
    """Submit ten runs of a tenant, and return after how many seconds the first segment of each was done, sorted."""
    began = time()
    with opener(place)() as store, hr.SyncRuntime([], store=store) as runtime:
        for number in range(10):
            runtime.submit(f"Go {name}-{number}", run_id=f"{number}", scope=name)
    while True:
        ended: dict[str, float] = {}
        for at, _, run_id in map(str.split, far.lines("left")):
            if run_id.startswith(f"@{name}/"):
                ended.setdefault(run_id, float(at) - began)
        if len(ended) == 10:
            return sorted(ended.values())
        sleep(0.1)


def measure_fairness(place: str, folder: Path, timing: Timing, runs: int) -> None:
    """Print how much later ten runs of a tenant are taken while another one has many waiting."""
    far = Far(folder)
    fleet = Fleet(place, folder, timing, far)
    try:
        fleet.fill()
        delays_of_ten(place, far, "first")  # until all workers have started
        alone = [delays_of_ten(place, far, f"alone{at}") for at in range(3)]
        fleet.end()
        asked = time()
        with opener(place)() as store:
            run_ids = [f"big-{number}" for number in range(runs)]
            asyncio.run(submit_all(store, run_ids, scope="big"))
        print(f"submitted {runs:,} runs in {time() - asked:.0f} s", flush=True)
        fleet.fill()
        delays_of_ten(place, far, "again")
        beside = [delays_of_ten(place, far, f"beside{at}") for at in range(3)]
    finally:
        fleet.end()
    taken = len({line.split()[2] for line in far.lines("left") if "@big/" in line})
    for what, delays in (("alone", alone), ("beside", beside)):
        print(
            f"{what}: the last of ten after {', '.join(f'{each[-1]:.1f}' for each in delays)} s"
        )
    print(f"{runs - taken} of the {runs} runs of the other tenant still waited then")


def main() -> int:
    """Print the counts; the exit code is 1 when a promise was broken."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.workers")
    parser.add_argument("--runs", type=int, default=10_000)
    parser.add_argument("--kills", type=int, default=100)
    parser.add_argument("--freezes", type=int, default=20)
    parser.add_argument("--restarts", type=int, default=2, help="of our own Postgres")
    parser.add_argument("--seconds", type=float, default=7200.0)
    parser.add_argument(
        "--seed", type=int, default=random.SystemRandom().randrange(1 << 31)
    )
    parser.add_argument("--store", default="", help="a Postgres of our own by default")
    parser.add_argument(
        "--dead",
        type=float,
        default=20.0,
        help="when a silent worker counts as dead, in seconds",
    )
    parser.add_argument(
        "--fair", action="store_true", help="only look how tenants share the workers"
    )
    given = parser.parse_args()
    trouble = Trouble(given.kills, given.freezes, given.restarts)
    timing = Timing(beat_s=given.dead / 4, dead_s=given.dead, sweep_s=given.dead / 4)
    began = monotonic()
    with tempfile.TemporaryDirectory(prefix="handrail-workers-") as folder:
        how: dict[str, Any] = {
            "folder": Path(folder),
            "timing": timing,
            "seconds": given.seconds,
            "seed": given.seed,
        }
        if given.fair:
            with server_of_our_own() as server:
                measure_fairness(server.dsn, Path(folder), timing, given.runs)
            return 0
        if given.store:
            verdict = measure(given.runs, trouble, place=given.store, **how)
        else:
            with server_of_our_own() as server:
                verdict = measure(
                    given.runs, trouble, place=server.dsn, server=server, **how
                )
    print_verdict(verdict, trouble, given, monotonic() - began)
    return 1 if any(verdict.broken.values()) else 0


def print_verdict(
    verdict: Verdict, trouble: Trouble, given: argparse.Namespace, took_s: float
) -> None:
    """Print what was done and what came of it."""
    print(
        f"seed {given.seed}: {given.runs} runs, {WORKERS} workers, {len(trouble.killed)} kills, "
        f"{trouble.frozen} freezes, {trouble.restarted} restarts, deployed: {trouble.deployed}, {took_s:.0f} s"
    )
    print_broken(verdict.broken, width=24)
    for line in verdict.silences[:MOST_SHOWN]:
        print(f"    {line}")
    for story in verdict.stories:
        print(f"    {story}")
    print(f"  {'in doubt':24}{verdict.in_doubt:6}")
    if verdict.take_overs:
        p95 = verdict.take_overs[int(0.95 * (len(verdict.take_overs) - 1))].waited_s
        longest = verdict.take_overs[-1]
        print(
            f"  {'take-overs':24}{len(verdict.take_overs):6}, p95 {p95:.1f} s, longest {longest.waited_s:.1f} s"
        )
        print_slow_take_overs(verdict, trouble, given.dead)


def print_slow_take_overs(verdict: Verdict, trouble: Trouble, dead_s: float) -> None:
    """Print the parts of each take-over beyond the goal, and what was done around the slowest."""
    slow = [each for each in verdict.take_overs if each.waited_s > 1.25 * dead_s]
    if not slow:
        return
    print(
        f"  {len(slow)} of them beyond {1.25 * dead_s:g} s; in seconds after the kill:"
    )
    for each in slow[-MOST_SHOWN:]:
        print(f"    {each.describe()}")
    longest = slow[-1]
    print(f"  meanwhile, in seconds after the kill of {longest.run_id}:")
    for at, what in trouble.log:
        since_s = at - longest.killed_at
        if -2 * dead_s < since_s < longest.waited_s:
            print(f"    {since_s:7.1f}  {what}")


def serve(place: str, folder: str, version: str, timing: str) -> None:
    """Be a worker."""
    if not re.fullmatch(r"[0-9.,]+", timing):
        raise SystemExit(f"{timing!r} are no times")
    logging.basicConfig(
        level=logging.INFO, format="%(created).1f %(process)d %(name)s %(message)s"
    )
    beat_s, dead_s, sweep_s = map(float, timing.split(","))
    paces = Timing(poll_s=0.2, beat_s=beat_s, dead_s=dead_s, sweep_s=sweep_s)
    asyncio.run(work(place, Path(folder), int(version), paces))


if __name__ == "__main__":
    if sys.argv[1:2] == ["--serve"]:
        serve(*sys.argv[2:])
    else:
        sys.exit(main())
