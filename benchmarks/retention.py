"""What it costs to keep a store at its size: time is compressed, so that what is kept for weeks is kept for seconds.

python -m benchmarks retention                                    # both stores; deletions and long results too
python -m benchmarks.retention --store sqlite --period 600        # an hour of 100 runs/s, kept for ten minutes
python -m benchmarks.retention --store postgres --rows 1000000    # a million old rows go, beside 200 writes/s
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import time
from collections.abc import Sequence
from concurrent.futures import Future
from itertools import count
from secrets import token_hex
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
THREADS = 16
RESULTS_A_SECOND = 20
RESULT_BYTES = 256 * 1024


STORES = {"sqlite": sqlite, "postgres": postgres}


def figures(quick: bool) -> list[Figure]:
    """A store that takes runs and keeps them for a while; and one from which a million old rows are deleted."""
    rows: list[Figure] = []
    for kind, opened in STORES.items():
        with opened() as store:
            if store is not None:
                rows += _steady(kind, store, PERIOD_S if not quick else 5.0)
        with opened() as store:
            if store is not None:
                rows += _deletion(kind, store, QUICK_ROWS if quick else ROWS)
        with opened() as store:
            if store is not None:
                rows += _long_results(kind, store, 100 if quick else 500)
    return rows


def _steady(kind: str, store: Any, period_s: float) -> list[Figure]:
    """Take runs for six periods, and look how far the store grows after the second one.

    A period without a keeper, or two minutes, come first: what writes wait for on this machine anyway.
    """
    alone: list[float] = []
    _take_runs(store, "alone", min(period_s, 120.0), alone)
    stop = Event()
    retention = Retention(runs_s=period_s, results_s=period_s, audit_s=period_s)
    keeper = Thread(target=keep_regularly, args=(store, retention, stop))
    sizes: list[int] = []
    watch = Thread(target=_watch_size, args=(store, stop, 2 * period_s, sizes))
    keeper.start()
    watch.start()
    latencies: list[float] = []
    number = _take_runs(store, "run", 6 * period_s, latencies)
    stop.set()
    keeper.join()
    watch.join()
    what = f"{kind}: {RUNS_A_SECOND} runs/s, kept for {period_s:g} s,"
    alone.sort()
    latencies.sort()
    return [
        Figure(f"{what} largest size", max(sizes) / sizes[0], "x steady", 1.2,
               note=f"{number / 6 / period_s:.0f} runs/s, {sizes[0] / 1e6:.1f} MB"),
        Figure(f"{what} slowest write", latencies[-1] * 1e3, "ms", 50.0,
               note=f"99.9 %: {_share(latencies, 999):.1f}, 99 %: {_share(latencies, 990):.1f} ms; "
               f"without a keeper {alone[-1] * 1e3:.1f}, {_share(alone, 999):.1f}, {_share(alone, 990):.1f} ms"),
    ]  # fmt: skip


def _share(latencies: list[float], thousandths: int) -> float:
    """Return what so many thousandths of the sorted times stay below, in milliseconds."""
    return latencies[len(latencies) * thousandths // 1000] * 1e3


def _watch_size(store: Any, stop: Event, after_s: float, sizes: list[int]) -> None:
    """Note the size of the store every second, on a connection of its own."""
    connection = store.open_connection()
    while not stop.wait(after_s):
        sizes.append(connection.size_bytes())
        after_s = 1.0
    connection.close()


def _take_runs(store: Any, name: str, seconds: float, latencies: list[float]) -> int:
    """Take runs at their rate, in as many threads as that needs; return how many."""
    numbers = count()
    began = time.perf_counter()
    taken: list[int] = []

    def take() -> None:
        for number in numbers:
            wait_s = number / RUNS_A_SECOND - (time.perf_counter() - began)
            if time.perf_counter() - began + max(0.0, wait_s) > seconds:
                return
            time.sleep(max(0.0, wait_s))
            _take_run(store, f"{name}-{number}", latencies)
            taken.append(number)

    threads = [Thread(target=take) for _ in range(THREADS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return len(taken)


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


def _long_results(kind: str, store: Any, number: int) -> list[Figure]:
    """Save long results beside writes, and delete them beside writes: what these wait for, and the room it takes."""
    runs = [f"long-{at}" for at in range(number)]
    for run_id in runs:
        epoch = store.begin_run(RunRecord(run_id, {})).result().record.epoch
        store.append_entry(JournalEntry(run_id, epoch, (), "done")).result()
    before = store.use_connection(lambda base: base.size_bytes())
    alone: list[float] = []
    _write_beside(store, alone, lambda: time.sleep(number / RESULTS_A_SECOND))
    saving: list[float] = []
    _write_beside(store, saving, lambda: _save_results(store, runs))
    size = store.use_connection(lambda base: base.size_bytes()) - before
    deleting: list[float] = []
    everything = Retention(results_s=0.001)
    began = time.perf_counter()
    _write_beside(store, deleting, lambda: keep(store, everything, rest=time.sleep))
    took_s = time.perf_counter() - began
    for latencies in (alone, saving, deleting):
        latencies.sort()
    what = f"{kind}: {number} results of {RESULT_BYTES >> 10} KB,"
    return [
        Figure(f"{what} room beside their bytes", size / (number * RESULT_BYTES), "x", 1.2),
        Figure(f"{what} slowest write while they are saved", saving[-1] * 1e3, "ms", 50.0,
               note=f"{RESULTS_A_SECOND} results/s; 99 %: {_share(saving, 990):.1f} ms; "
               f"alone {alone[-1] * 1e3:.1f} and {_share(alone, 990):.1f} ms"),
        Figure(f"{what} slowest write while they go", deleting[-1] * 1e3, "ms", 50.0,
               note=f"in {took_s:.1f} s; 99 %: {_share(deleting, 990):.1f} ms"),
    ]  # fmt: skip


def _save_results(store: Any, runs: Sequence[str]) -> None:
    """Save a long result for each run, at their rate; random text, which no server compresses."""
    text = token_hex(RESULT_BYTES // 2)
    began = time.perf_counter()
    for at, run_id in enumerate(runs):
        wait_s = at / RESULTS_A_SECOND - (time.perf_counter() - began)
        time.sleep(max(0.0, wait_s))
        store.save_result(run_id, f"{at:8}{text[8:]}").result()


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


def main() -> None:
    """Keep one store steady, or delete rows from it."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.retention")
    parser.add_argument("--store", choices=[*STORES], required=True)
    parser.add_argument("--period", type=float, default=PERIOD_S, metavar="S")
    parser.add_argument("--rows", type=int, default=0)
    options = parser.parse_args()
    with STORES[options.store]() as store:
        if store is None:
            parser.error("there is no Postgres here")
        if options.rows:
            rows = _deletion(options.store, store, options.rows)
        else:
            rows = _steady(options.store, store, options.period)
    print(*rows, sep="\n")


if __name__ == "__main__":
    main()
