"""What many waiting segments cost: a fetch and an enqueuing with 100,000 of them, against 100, for every dispatcher.

Each figure is a ratio of the best of several rounds in one process, without the commit: what the statements cost.
"""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from benchmarks.measuring import Figure
from benchmarks.stores import postgres, sqlite
from handrail import plugins
from handrail.dispatch.lease import LeaseDispatcher
from handrail.dispatch.port import Segment
from handrail.dispatch.rows import encode_segment

FEW, MANY = 100, 100_000
ROUNDS, FETCHES = 7, 30
SHAPES: dict[str, Callable[[int], str]] = {
    "one scope": lambda _: "s",
    "1,000 scopes": lambda number: f"s{number % 1000}",
    "a scope each": lambda number: f"s{number}",
}


def figures(quick: bool) -> list[Figure]:
    """Measure every dispatcher with every shape of what waits; only the first shape where it must be quick."""
    many = MANY // 10 if quick else MANY
    shapes = [*SHAPES][: 1 if quick else None]
    measured = []
    for kind, name in (
        ("sqlite", "lease"),
        ("postgres", "lease"),
        ("postgres", "procrastinate"),
    ):
        for shape in shapes:
            with _opened(kind, name) as dispatcher:
                if dispatcher is not None:
                    what = f"{name} on {kind}, {many:,} wait, {shape}"
                    measured += _measure(dispatcher, what, SHAPES[shape], many)
    return measured


def _measure(
    dispatcher: Any, what: str, scope_of: Callable[[int], str], many: int
) -> list[Figure]:
    _fill(dispatcher, scope_of, 0, FEW)
    few_us = _fetch_and_enqueue_us(dispatcher, FEW)
    _fill(dispatcher, scope_of, FEW, many)
    many_us = _fetch_and_enqueue_us(dispatcher, many)
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


_INSERTS = {
    "lease": "INSERT INTO segments(run_id, number, queue, scope, priority, segment, since, turn) VALUES (?)",
    "procrastinate": "INSERT INTO handrail_jobs.procrastinate_jobs(lock, handrail_number, queue_name, handrail_scope, "
    "priority, args, handrail_since, handrail_turn, task_name, queueing_lock) VALUES (?)",
}


def _fill(
    dispatcher: Any, scope_of: Callable[[int], str], first: int, end: int
) -> None:
    """Let many segments wait, with the turns that enqueuing one after the other would give them."""
    is_ours = isinstance(dispatcher, LeaseDispatcher)
    turns: Counter[str] = Counter(map(scope_of, range(first)))
    rows: list[tuple[Any, ...]] = []
    for number in range(first, end):
        segment = Segment(f"r{number}", scope=scope_of(number))
        body = encode_segment(segment)
        turn = turns[segment.scope]
        turns[segment.scope] += 1
        run, scope = segment.run_id, segment.scope
        row = (run, 1, "default", scope, 0, body, 0.0, turn)
        if not is_ours:
            body = json.dumps({"segment": body})
            task = ("handrail.segment", f"{run}/1")
            row = (run, 1, "default", scope, 0, body, 0.0, turn, *task)
        rows.append(row)
    statement = _INSERTS["lease" if is_ours else "procrastinate"]
    dispatcher.transact(lambda database, _: database.run_with(statement, rows)).result()


def _fetch_and_enqueue_us(dispatcher: Any, waiting: int) -> tuple[float, float]:
    """Return what fetching and enqueuing a segment take, in microseconds; what was fetched waits again afterwards."""
    rows = dispatcher._rows

    def measure(database: Any, now: float) -> tuple[float, float]:
        rows.beat(database, now, "benchmark")
        fetched = []
        started = time.perf_counter()
        for _ in range(FETCHES):
            fetched += rows.claim(
                database, worker="benchmark", queue="default", most=1, aside=()
            )
        fetching_s = time.perf_counter() - started
        assert len(fetched) == FETCHES
        for held in fetched:
            rows.finish(database, "benchmark", held)
        started = time.perf_counter()
        for held in fetched:
            rows.enqueue(database, now, held.segment)
        enqueuing_s = time.perf_counter() - started
        return fetching_s * 1e6 / FETCHES, enqueuing_s * 1e6 / FETCHES

    rounds = [dispatcher.transact(measure).result() for _ in range(ROUNDS)]
    assert dispatcher.stats().result().waiting == waiting
    fetches, enqueuings = zip(*rounds, strict=True)
    return min(fetches), min(enqueuings)


@contextmanager
def _opened(kind: str, name: str) -> Iterator[Any]:
    with {"sqlite": sqlite, "postgres": postgres}[kind]() as store:
        if store is None:
            yield None
            return
        dispatcher = plugins.load("dispatchers", name)(store)
        yield dispatcher
        dispatcher.close()
