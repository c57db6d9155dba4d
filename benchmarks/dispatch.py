"""What many waiting segments cost: a fetch and an enqueuing with 100,000 of them, against 100, on both engines.

Each figure is a ratio of the best of several rounds in one process, without the commit: what the statements cost.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from benchmarks.measuring import Figure
from benchmarks.stores import postgres, sqlite
from handrail.dispatch.choice import prepare_queue
from handrail.dispatch.file_worker import _SQL as FILE_SQL
from handrail.errors import HandrailError

FEW, MANY = 100, 100_000
ROUNDS, FETCHES = 7, 30
SHAPES: dict[str, Callable[[int], str]] = {
    "one scope": lambda number: f"@s/{number}",
    "1,000 scopes": lambda number: f"@s{number % 1000}/{number}",
    "a scope each": lambda number: f"@s{number}/{number}",
}


def figures(quick: bool) -> list[Figure]:
    """Measure every engine with every shape of what waits; only the first shape where it must be quick."""
    many = MANY // 10 if quick else MANY
    measured = []
    for kind, opened in (("sqlite", sqlite), ("postgres", postgres)):
        for shape in [*SHAPES][: 1 if quick else None]:
            with opened() as store:
                if store is not None:
                    prepare_queue(store)
                    what = f"{kind}, {many:,} wait, {shape}"
                    measured += _measure(store, what, SHAPES[shape], many)
    return measured


def _measure(
    store: Any, what: str, name_of: Callable[[int], str], many: int
) -> list[Figure]:
    _fill(store, name_of, 0, FEW)
    few_us = _fetch_and_enqueue_us(store, name_of)
    _fill(store, name_of, FEW, many)
    many_us = _fetch_and_enqueue_us(store, name_of)
    return [
        Figure(
            f"{verb}, {what}",
            with_many / with_few,
            f"x with {FEW}",
            goal=2.0,
            note=f"{with_few:.0f} -> {with_many:.0f} us",
        )
        for verb, with_few, with_many in zip(
            ("a fetch", "enqueuing"), few_us, many_us, strict=True
        )
    ]


def _fill(store: Any, name_of: Callable[[int], str], first: int, end: int) -> None:
    def fill(database: Any, _: float) -> None:
        for number in range(first, end):
            store._enqueue(database, (name_of(number), 1, "default", 0))

    store._submit(fill).result()


def _fetch_and_enqueue_us(
    store: Any, name_of: Callable[[int], str]
) -> tuple[float, float]:
    """Return what enqueuing and fetching a segment take, in microseconds; each round is rolled back."""
    fetches: list[float] = []
    enqueuings: list[float] = []

    def measure(database: Any, now: float) -> None:
        started = time.perf_counter()
        for number in range(FETCHES):
            store._enqueue(database, (f"{name_of(number)}-new", 1, "default", 0))
        enqueued = time.perf_counter()
        for _ in range(FETCHES):
            if store.has_own_connections:
                database.run(
                    "SELECT handrail_jobs.procrastinate_fetch_job_v2(NULL, NULL)"
                )
            else:
                database.run(FILE_SQL["claim"], (now, "[]", "[]", "[]"))
        enqueuings.append((enqueued - started) * 1e6 / FETCHES)
        fetches.append((time.perf_counter() - enqueued) * 1e6 / FETCHES)
        raise HandrailError("roll back")

    for _ in range(ROUNDS):
        with suppress(HandrailError):
            store._submit(measure).result()
    return min(fetches), min(enqueuings)
