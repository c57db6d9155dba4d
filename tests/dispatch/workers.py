"""Workers for the tests of dispatchers: in this process, and as processes of their own that are killed and frozen."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from contextlib import asynccontextmanager
from pathlib import Path

from handrail import plugins
from handrail.dispatch.choice import open_dispatcher
from handrail.dispatch.port import HandBack, Running, Segment, Timing
from handrail.errors import HandrailError
from handrail.stores.sql_values import encode_name

ROOT = Path(__file__).parents[2]
PATIENCE_S = 60.0

PROMPT = Timing(poll_s=0.05, beat_s=0.2, dead_s=60.0, sweep_s=60.0, again_s=0.05)
"""Nobody counts as dead, however busy the machine is."""
MORTAL = Timing(poll_s=0.05, beat_s=0.25, dead_s=2.0, sweep_s=0.25, again_s=0.05)
"""A worker that died is noticed while a test waits."""


def open_store(place: str):
    kind, _, rest = place.partition(":")
    return plugins.load("stores", kind)(rest)


def enqueue(store, run_id, number=1, *, queue="default", priority=0, undo=False):
    """Enqueue a segment as the store does for a run that goes on, in a transaction; return whether it is new."""
    row = (encode_name(run_id), number, encode_name(queue), priority)

    def run(database, _):
        is_new = store._enqueue(database, row)
        if undo:
            raise HandrailError("on second thoughts")
        return is_new

    return store._submit(run).result(PATIENCE_S)


_TABLES = {
    False: ("segments", "run_id", "begun = 0"),
    True: ("handrail_jobs.procrastinate_jobs", "lock", "status = 'todo'"),
}


def count_segments(store) -> tuple[int, int]:
    """How many segments wait, and how many are under way."""
    table, _, waits = _TABLES[store.has_own_connections]
    counted = f"SELECT count(CASE WHEN {waits} THEN 1 END), count(*) FROM {table}"
    [[waiting, together]] = store.use_connection(lambda database: database.run(counted))
    return waiting, together - waiting


def drop_segments(store, run_id: str) -> None:
    """Delete the segments of a run, as if they had been performed."""
    table, run, _ = _TABLES[store.has_own_connections]
    delete = f"DELETE FROM {table} WHERE {run} = ? RETURNING 1"
    store.use_connection(lambda database: database.run(delete, (run_id,)))


async def until(condition) -> None:
    """Wait until something is true."""
    async with asyncio.timeout(PATIENCE_S):
        while not condition():
            await asyncio.sleep(0.01)


class Worker:
    """Performs segments on this loop and records what it does.

    Attributes:
        started: Each segment in the order in which it was begun.
        running: What it performs now, by run.
        gate: Segments end once it is set; it is, unless a test clears it.
        refuses: Runs that it hands back; `fails`: runs that raise the first time.
    """

    def __init__(self, dispatcher, *, concurrency: int = 1, queues: Sequence[str] = ()):
        self.dispatcher = dispatcher
        self.started: list[Segment] = []
        self.attempts: list[int] = []
        self.after_death: list[bool] = []
        self.finished: list[Segment] = []
        self.running: dict[str, Running] = {}
        self.gate = asyncio.Event()
        self.gate.set()
        self.refuses: set[str] = set()
        self.fails: set[str] = set()
        self._shape = {"concurrency": concurrency, "queues": queues}

    async def perform(self, segment: Segment, running: Running) -> None:
        self.started.append(segment)
        self.attempts.append(running.attempt)
        self.after_death.append(running.after_death)
        self.running[segment.run_id] = running
        try:
            if segment.run_id in self.refuses:
                raise HandBack
            if segment.run_id in self.fails:
                self.fails.discard(segment.run_id)
                raise ValueError("it failed")
            await self.gate.wait()
            self.finished.append(segment)
        finally:
            del self.running[segment.run_id]

    @property
    def runs(self) -> list[str]:
        return [segment.run_id for segment in self.started]

    @asynccontextmanager
    async def at_work(self, grace_s: float = PATIENCE_S):
        """Work for as long as the block lasts."""
        shift = asyncio.ensure_future(self.dispatcher.work(self.perform, **self._shape))
        try:
            yield self
        finally:
            await self.dispatcher.stop(grace_s=grace_s)
            await shift


class OtherProcess:
    """`python -m tests.dispatch.workers PLACE FOLDER SECONDS`: a worker that performs until a file is there.

    It writes what it begins to a file, and what it learns of it.
    """

    def __init__(self, place: str, folder: Path, timing: Timing) -> None:
        self.folder = folder
        words = [place, str(folder), str(timing.beat_s), str(timing.dead_s)]
        self.process = subprocess.Popen(
            [sys.executable, "-m", "tests.dispatch.workers", *words],
            cwd=ROOT,
            env=os.environ | {"PYTHONPATH": str(ROOT)},
        )

    def said(self) -> list[str]:
        """Return the lines that it has written."""
        lines = self.folder / f"{self.process.pid}.log"
        return lines.read_text().splitlines() if lines.exists() else []

    def let_go(self) -> None:
        """Let it finish what it performs."""
        (self.folder / "go").touch()

    def freeze(self) -> None:
        self.process.send_signal(signal.SIGSTOP)

    def thaw(self) -> None:
        self.process.send_signal(signal.SIGCONT)

    def kill(self) -> None:
        self.process.kill()
        self.process.wait(PATIENCE_S)


def main() -> None:
    place, folder, beat_s, dead_s = sys.argv[1:]
    timing = Timing(
        poll_s=0.05, beat_s=float(beat_s), dead_s=float(dead_s), sweep_s=0.25
    )
    dispatcher = open_dispatcher(open_store(place), timing=timing)
    log = (Path(folder) / f"{os.getpid()}.log").open("a", buffering=1)

    async def perform(segment: Segment, running: Running) -> None:
        print("began", segment.run_id, running.attempt, file=log)
        while not (Path(folder) / "go").exists():
            if running.lost.is_set():
                print("lost", segment.run_id, file=log)
                return
            await asyncio.sleep(0.02)
        print("ended", segment.run_id, file=log)

    asyncio.run(dispatcher.work(perform, concurrency=4))


if __name__ == "__main__":
    main()
