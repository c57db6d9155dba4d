"""What several processes on one store cost each other: the writes a second of 64 callers in 1, 2, 4, 16 processes.

    python -m benchmarks processes              # Postgres and SQLite
    python -m benchmarks.processes --store postgres --processes 1,16 --seconds 10

Each caller makes one run after the other: a claim before each write, a settlement behind it, journal and audit log. The
figure is the share of one process's writes that so many reach, the better of two rounds; the note says what the
server's connections were waiting for, as a share of their number.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import IO, Any

from benchmarks import stores
from benchmarks.measuring import Figure

CALLERS = 64
LOOK_S = 0.02
KINDS: dict[str, tuple[Callable[[], AbstractContextManager[Any]], tuple[int, ...]]] = {
    "postgres": (stores.postgres, (1, 4, 16)),
    "sqlite": (stores.sqlite, (1, 2, 4)),
}


def figures(quick: bool) -> list[Figure]:
    """Both stores, by number of processes."""
    return [
        figure
        for kind in KINDS
        for figure in measure(kind, seconds=2 if quick else 6, rounds=1 if quick else 2)
    ]


def measure(
    kind: str, *, seconds: float, rounds: int, counts: Sequence[int] = ()
) -> list[Figure]:
    """Measure one kind of store, each round on a new one."""
    opened, usual_counts = KINDS[kind]
    best: dict[int, tuple[float, str]] = {}
    for _ in range(rounds):
        for count in counts or usual_counts:
            with opened() as store:
                if store is None:
                    return []
                found = _race(store, kind, count, seconds)
                best[count] = max(best.get(count, (0.0, "")), found)
    alone = best[min(best)][0]
    return [
        Figure(
            f"{kind}: {CALLERS} callers in {count} process{'es' if count > 1 else ''}",
            alone / rate,
            "x alone",
            goal=1.0 if kind == "postgres" and count > 1 else None,
            note=f"{rate:,.0f} writes/s, {notes}",
        )
        for count, (rate, notes) in best.items()
    ]


def _race(store: Any, kind: str, count: int, seconds: float) -> tuple[float, str]:
    """Let processes write at once; return writes a second, with notes."""
    place = _place(store, kind)
    command = [sys.executable, "-m", "benchmarks.writing_process", place]
    command += [str(CALLERS // count), str(seconds)]
    children = [
        subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        for _ in range(count)
    ]
    for child in children:
        _output(child).readline()  # it is ready
    for child in children:
        assert child.stdin is not None
        child.stdin.write("\n")
        child.stdin.close()
    waits: Counter[str] = Counter()
    looks = 0
    until = time.monotonic() + seconds
    while kind == "postgres" and time.monotonic() < until:
        waits.update(_waits(store))
        looks += 1
        time.sleep(LOOK_S)
    reports = [json.loads(_output(child).readline()) for child in children]
    writes = sum(done for done, _ in reports)
    cpu_s = sum(cpu for _, cpu in reports)
    for child in children:
        child.wait()
    most = [
        f"{name} {times / looks / count:.0%}" for name, times in waits.most_common(3)
    ]
    notes = [f"{cpu_s / max(1, writes) * 1e3:.2f} ms of our CPU a write", *most]
    return writes / seconds, ", ".join(notes)


def _place(store: Any, kind: str) -> str:
    if kind == "sqlite":
        return f"sqlite:///{store.place.partition(':')[2]}"
    return f"postgres:{store.conninfo}"


def _output(child: subprocess.Popen[str]) -> IO[str]:
    assert child.stdout is not None
    return child.stdout


def _waits(store: Any) -> list[str]:
    """Return what each connection of a child is doing: its wait, or `cpu`; those that wait for us are left out."""
    rows = store.use_connection(
        lambda connection: connection.run(
            "SELECT coalesce(wait_event_type || ':' || wait_event, 'cpu') FROM pg_stat_activity "
            "WHERE application_name = 'handrail' AND pid <> pg_backend_pid() AND state <> 'idle'"
        )
    )
    return [name for (name,) in rows]


def main() -> None:
    """Measure one kind of store, by number of processes."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.processes")
    parser.add_argument("--store", choices=[*KINDS], default="postgres")
    parser.add_argument("--processes", default="", metavar="N,N")
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=6.0)
    options = parser.parse_args()
    counts = [int(each) for each in options.processes.split(",") if each]
    rows = measure(
        options.store, seconds=options.seconds, rounds=options.rounds, counts=counts
    )
    print(*rows, sep="\n")


if __name__ == "__main__":
    main()
