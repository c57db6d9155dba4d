"""What people's questions cost a store of a million rows, and whether anybody's commit waits for them."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future
from contextlib import ExitStack
from hashlib import sha256
from threading import Event, Thread
from typing import Any

from benchmarks.measuring import Figure
from benchmarks.stores import postgres, sqlite
from handrail.audit.chain import FIRST, digest
from handrail.effects import Claim, Settle
from handrail.stores.sql_values import statements

ROWS = 1_000_000
QUICK_ROWS = 50_000
WRITES_A_RUN = 10

NEW_INDEXES = ("audit_run", "effects_failed", "runs_status", "runs_created")

QUESTIONS: Mapping[str, Callable[[Any], Future[Any]]] = {
    "log of one run": lambda store: store.log(run_id="run-77"),
    "failed writes": lambda store: store.list_writes(state="failed"),
    "writes in doubt": lambda store: store.list_writes(state="in_doubt"),
    "waiting runs": lambda store: store.list_runs(status="waiting"),
    "poisoned runs": lambda store: store.list_runs(status="poisoned"),
    "browse 100 runs": lambda store: store.browse_runs(most=100),
    "open questions": lambda store: store.list_approvals(),
    "all long-ended runs": lambda store: store.browse_runs(since=9e9),
}


def questions(quick: bool) -> list[Figure]:
    """The slowest commit beside each question: on the writer's connection without indexes, and as it is now."""
    figures = []
    for kind, opened in (("sqlite", sqlite), ("postgres", postgres)):
        with opened() as store, opened() as empty:
            if store is None:
                continue
            rows = QUICK_ROWS if quick else ROWS
            fill(store, rows)
            made_again = _drop_indexes(store, kind)
            with _ask_the_writer(store):
                before = _slowest_commits(store)
            for statement in made_again:
                store.use_connection(lambda base, run=statement: base.run(run))
            after = _slowest_commits(store)
            figures += [
                Figure(
                    f"{kind}, {rows:,} rows: slowest commit beside `{name}`", after[name][0] * 1e3, "ms",
                    note=f"{before[name][0] * 1e3:.1f} ms before; the answer takes {after[name][1] * 1e3:.1f} ms, "
                    f"{before[name][1] * 1e3:.1f} before",
                )
                for name in QUESTIONS
            ]  # fmt: skip
            figures.append(_claims(kind, store, empty, rows))
    return figures


def fill(store: Any, rows: int) -> None:
    """Give a store so many writes and records, of runs with ten of each, all an hour old."""
    began = time.time() - 3600

    def runs() -> Iterator[tuple[Any, ...]]:
        for n in range(rows // WRITES_A_RUN):
            yield f"run-{n}", "done", began, began + n * 1e-3

    def effects() -> Iterator[tuple[Any, ...]]:
        for n in range(rows):
            run_id = f"run-{n // WRITES_A_RUN}"
            state = "failed" if n % 100_000 == 7 else "done"
            yield (
                "refund",
                f"{run_id}/{n}/0",
                sha256(b"%d" % n).hexdigest(),
                run_id,
                state,
                began,
                began,
            )

    def audit() -> Iterator[tuple[Any, ...]]:
        prev = FIRST
        for n in range(1, rows + 1):
            run_id = f"run-{n // WRITES_A_RUN}"
            body = '{"tool":"refund"}'
            hash = digest(n, began, run_id, event="CallFinished", body=body, prev=prev)
            yield n, began, run_id, body, prev, hash
            prev = hash

    inserts = {
        "INSERT INTO runs(run_id, status, created, updated, journal_v, input) VALUES (?, ?, ?, ?, 1, '{}')": runs(),
        "INSERT INTO effects(scope, key, fingerprint, run_id, state, replay, owner, fence, lease_until, begun, value, "
        "updated) VALUES (?, ?, ?, ?, ?, 'none', '', 1, 0, ?, '{\"id\": 1}', ?)": effects(),
        "INSERT INTO audit(seq, at, run_id, event, body, prev, hash) "
        "VALUES (?, ?, ?, 'CallFinished', ?, ?, ?)": audit(),
    }
    for statement, values in inserts.items():
        while piece := [each for each, _ in zip(values, range(20_000), strict=False)]:
            store.use_connection(
                lambda base, run=statement, given=piece: base.add(run, given)
            )
    store.use_connection(lambda base: base.shrink(rewrite=False))


def _drop_indexes(store: Any, kind: str) -> list[str]:
    """Drop the indexes for questions; return the statements that make them again."""
    made = statements(f"{kind}.sql")["schema_6"].split(";\n")
    again = [
        each for each in made if any(f"INDEX {name} " in each for name in NEW_INDEXES)
    ]
    for name in NEW_INDEXES:
        store.use_connection(lambda base, name=name: base.run(f"DROP INDEX {name}"))
    return again


def _ask_the_writer(store: Any) -> ExitStack:
    """Let questions have the writer's connection until this is closed."""
    reader, store._reader = store._reader, _WriterAsReader(store._writer)
    stack = ExitStack()
    stack.callback(lambda: setattr(store, "_reader", reader))
    return stack


class _WriterAsReader:
    def __init__(self, writer: Any) -> None:
        self.ask = writer.submit


def _slowest_commits(store: Any) -> dict[str, tuple[float, float]]:
    """Return the slowest commit beside each question, and how long its answer took, in seconds."""
    return {
        name: beside(store, lambda ask=ask: ask(store).result())
        for name, ask in QUESTIONS.items()
    }


def beside(store: Any, deed: Callable[[], Any], times: int = 5) -> tuple[float, float]:
    """Return the slowest question of a lone caller while a deed is done, and how long that took, in seconds."""
    stop, latencies = Event(), [0.0]
    writer = Thread(target=write_until, args=(store, stop, latencies))
    writer.start()
    took = 0.0
    for _ in range(times):
        began = time.perf_counter()
        deed()
        took = max(took, time.perf_counter() - began)
    stop.set()
    writer.join()
    return max(latencies), took


_NUMBER = iter(range(10**9))


def write_until(
    store: Any, stop: Event, latencies: list[float], pause_s: float = 0.0
) -> None:
    """Claim and settle until `stop` is set, one write after the other, and note how long each question took."""
    while not stop.is_set():
        number = next(_NUMBER)
        key = f"live-{number}/1/0"
        began = time.perf_counter()
        claimed = store.claim(
            Claim("", key, b"%032d" % number, f"live-{number}", "none", 60.0)
        ).result()
        between = time.perf_counter()
        store.settle(Settle("", key, claimed.fence, "done", {"id": number})).result()
        latencies += [between - began, time.perf_counter() - between]
        if pause_s:
            stop.wait(max(0.0, pause_s - (time.perf_counter() - began)))


def _claims(kind: str, store: Any, empty: Any, rows: int) -> Figure:
    """How much slower a claim and a settlement are in the large store than in an empty one: CPU, in turn, best of 5."""
    best = {id(store): float("inf"), id(empty): float("inf")}
    for _ in range(5):
        for each in (store, empty):
            began = time.process_time()
            for _ in range(300):
                write_until(each, _OnceSet(), [])
            best[id(each)] = min(best[id(each)], time.process_time() - began)
    return Figure(
        f"{kind}: claim + settle with {rows:,} rows, against an empty store",
        best[id(store)] / best[id(empty)], "x",
    )  # fmt: skip


class _OnceSet(Event):
    """Set when it is looked at for the second time."""

    def is_set(self) -> bool:
        was = super().is_set()
        self.set()
        return was
