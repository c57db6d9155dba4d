"""What it costs to keep a store at its size: time is compressed, so that what is kept for weeks is kept for seconds."""

from __future__ import annotations

import subprocess
import sys
import time
from concurrent.futures import Future
from threading import Event, Thread
from typing import Any

from benchmarks.measuring import Figure
from benchmarks.questions import QUICK_ROWS, ROWS, fill, write_until
from benchmarks.stores import postgres, sqlite
from handrail.records import AuditEntry, JournalEntry, JournalStep, RunRecord
from handrail.stores.retention import Retention, keep, keep_regularly

RUNS_A_SECOND = 100
STEPS = 5
PERIOD_S = 20.0
WRITES_A_SECOND = 200


def figures(quick: bool) -> list[Figure]:
    """A store that takes runs and keeps them for a while; and one from which a million old rows are deleted."""
    rows: list[Figure] = []
    for kind, opened in (("sqlite", sqlite), ("postgres", postgres)):
        with opened() as store:
            if store is not None:
                rows += _steady(kind, store, PERIOD_S if not quick else 5.0)
        with opened() as store:
            if store is not None:
                rows += _deletion(kind, store, QUICK_ROWS if quick else ROWS)
    return rows


def _steady(kind: str, store: Any, period_s: float) -> list[Figure]:
    """Take runs for six periods, and look how far the store grows after the second one."""
    stop, latencies = Event(), [0.0]
    retention = Retention(runs_s=period_s, results_s=period_s, audit_s=period_s)
    keeper = Thread(target=keep_regularly, args=(store, retention, stop))
    keeper.start()
    sizes: list[int] = []
    began = time.perf_counter()
    number = 0
    while (elapsed := time.perf_counter() - began) < 6 * period_s:
        _take_run(store, f"run-{number}", latencies)
        number += 1
        if elapsed > 2 * period_s and number % RUNS_A_SECOND == 0:
            sizes.append(store.use_connection(lambda base: base.size_bytes()))
        time.sleep(max(0.0, number / RUNS_A_SECOND - (time.perf_counter() - began)))
    stop.set()
    keeper.join()
    what = f"{kind}: {RUNS_A_SECOND} runs/s, kept for {period_s:g} s,"
    latencies.sort()
    return [
        Figure(f"{what} largest size", max(sizes) / sizes[0], "x steady", 1.2,
               note=f"{number / 6 / period_s:.0f} runs/s, {sizes[0] / 1e6:.1f} MB"),
        Figure(f"{what} slowest write", latencies[-1] * 1e3, "ms", 50.0,
               note=f"99 %: {latencies[len(latencies) * 99 // 100] * 1e3:.1f} ms"),
    ]  # fmt: skip


def _take_run(store: Any, run_id: str, latencies: list[float]) -> None:
    """Begin and end a run with steps, one write and two records, and note how long each wait was."""

    def wait(answer: Future[Any]) -> Any:
        began = time.perf_counter()
        value = answer.result()
        latencies.append(time.perf_counter() - began)
        return value

    epoch = wait(
        store.begin_run(RunRecord(run_id, {"messages": ["How warm is it?"]}))
    ).record.epoch
    write_until(store, _After(1), latencies)
    steps = [JournalStep(f"{n}.m", "model", {"text": "x" * 200}) for n in range(STEPS)]
    wait(
        store.append_entry(JournalEntry(run_id, epoch, steps, "done", {"text": "warm"}))
    )
    wait(store.append_audit([AuditEntry(run_id, "CallFinished", {"call": "c"})] * 2))


class _After(Event):
    """Set after it was looked at so often."""

    def __init__(self, times: int) -> None:
        super().__init__()
        self._left = times

    def is_set(self) -> bool:
        self._left -= 1
        return self._left < 0


def _deletion(kind: str, store: Any, rows: int) -> list[Figure]:
    """Delete many old rows in another process, beside writes; first look how slow these are alone."""
    fill(store, rows)
    alone: list[float] = [0.0]
    _write_beside(store, alone, lambda: time.sleep(10))
    beside: list[float] = [0.0]
    began = time.perf_counter()
    place = store.place if kind == "sqlite" else store._writer._connection._place
    words = [
        sys.executable,
        "-m",
        "handrail",
        "store",
        "keep",
        place,
        "--runs",
        "30m",
        "--audit",
        "30m",
    ]
    _write_beside(
        store,
        beside,
        lambda: subprocess.run(words, check=True, stdout=subprocess.DEVNULL),
    )
    took_s = time.perf_counter() - began
    beside.sort()
    left = keep(store, Retention(runs_s=1800.0, audit_s=1800.0), dry_run=True)
    assert (left.effects, left.runs) == (0, 0)
    return [
        Figure(
            f"{kind}: slowest write while {2 * rows + rows // 10:,} rows go", beside[-1] * 1e3, "ms", 500.0,
            note=f"{WRITES_A_SECOND} writes/s; 99.9 %: {beside[len(beside) * 999 // 1000] * 1e3:.1f} ms; "
            f"alone {max(alone) * 1e3:.1f} ms; it took {took_s:.0f} s",
        )
    ]  # fmt: skip


def _write_beside(store: Any, latencies: list[float], deed: Any) -> None:
    stop = Event()
    writer = Thread(
        target=write_until, args=(store, stop, latencies, 1 / WRITES_A_SECOND)
    )
    writer.start()
    try:
        deed()
    finally:
        stop.set()
        writer.join()
