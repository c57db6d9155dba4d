"""What the console's server takes over a large store: 100,000 kept runs, searched, and listeners to its events.

`python -m benchmarks.console [RUNS]` makes a store in a temporary folder and prints what each question takes at the
server, as wall time of this machine, the best of five.
"""

from __future__ import annotations

import asyncio
import json
import sqlite3
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from handrail.events import ModelAsked
from handrail.futures import result_now
from handrail.stores.sqlite import SqliteStore
from handrail_server.access import Principal
from handrail_server.hub import EventHub
from handrail_server.run_index import RunFilter, RunIndex

RUNS = 100_000
LISTENERS = 1_000
_TOOLS = ("get_order", "refund", "send_mail", "restart_service", "search")
_ADMINISTRATOR = Principal("bench", "administer")


def fill(place: Path, runs: int) -> None:
    """Make a store with so many runs of two calls each, and their records in the audit log."""
    SqliteStore(str(place), create=True).close()
    database = sqlite3.connect(place)
    database.execute("PRAGMA synchronous=OFF")
    now = time.time()
    database.executemany(
        "INSERT INTO runs(run_id, journal_v, input, created, updated, owner, status, epoch, entered, result) "
        "VALUES (?, 1, ?, ?, ?, '', ?, 1, 4, ?)",
        (_run(number, now) for number in range(runs)),
    )
    database.executemany(
        "INSERT INTO steps(run_id, step_key, seq, kind, epoch, body, elapsed_s, at) VALUES (?, ?, ?, ?, 1, ?, 0.1, ?)",
        (step for number in range(runs) for step in _steps(number, now)),
    )
    database.executemany(
        "INSERT INTO audit(seq, at, run_id, event, body, prev, hash) VALUES (?, ?, ?, 'CallFinished', ?, '', '')",
        (record for number in range(runs) for record in _records(number, now)),
    )
    database.commit()
    database.close()


def _run(number: int, now: float) -> tuple[Any, ...]:
    status = "waiting" if number % 1000 == 0 else "done"
    question = (
        f"Where is order {number}, and who has paid for it? Please look it up. " * 3
    )
    body = {
        "messages": [{"user": question}],
        "model": "openai:x",
        "options": {},
        "budget": {},
    }
    result = {"v": 1, "status": status, "text": "It is paid.", "reason": ""}
    at = now - 100_000 + number
    return f"r_{number:08}", json.dumps(body), at, at + 1, status, json.dumps(result)


def _steps(number: int, now: float) -> Iterator[tuple[Any, ...]]:
    run = f"r_{number:08}"
    tool = _TOOLS[number % len(_TOOLS)]
    calls = [[f"c{index}", tool, json.dumps({"order": number})] for index in range(2)]
    yield run, "1.m", 1, "model", json.dumps({"calls": calls, "finish": "calls"}), now
    for index in range(2):
        body: dict[str, Any] = {"call": f"c{index}", "name": tool, "text": "x" * 300}
        if number % 500 == 0:
            body["failure"] = ["TIMEOUT", "It took too long.", "", True, []]
        yield run, f"1.{index}", 2 + index, "call", json.dumps(body), now
    yield (
        run,
        "2.m",
        4,
        "model",
        json.dumps({"text": "It is paid.", "finish": "stop"}),
        now,
    )


def _records(number: int, now: float) -> Iterator[tuple[Any, ...]]:
    run = f"r_{number:08}"
    body = json.dumps(
        {
            "call": "c0",
            "tool": "refund",
            "ok": True,
            "seconds": 0.1,
            "arguments": {"order": number},
        }
    )
    for index in range(5):
        yield number * 5 + index + 1, now, run, body


def best_ms(ask: Callable[[], Any], times: int = 5) -> float:
    """Return the least time that a question takes, in milliseconds."""
    spent = []
    for _ in range(times):
        started = time.perf_counter()
        ask()
        spent.append(time.perf_counter() - started)
    return min(spent) * 1000


def measure_search(runs: int) -> None:
    """Print what lists and searches take over so many runs."""
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder) / "kept.db"
        fill(place, runs)
        size = place.stat().st_size / 1e6
        print(f"{runs:,} runs, {2 * runs:,} calls, {size:,.0f} MB")
        with SqliteStore(str(place)) as store:
            index = RunIndex(store)
            started = time.perf_counter()
            index.refresh(at_least=0)
            print(f"read through once          {time.perf_counter() - started:8.1f} s")

            def ask(wanted: RunFilter) -> Callable[[], Any]:
                def look() -> Any:
                    index.refresh(at_least=0)
                    return index.search(wanted, _ADMINISTRATOR, before=None, most=50)

                return look

            for name, wanted in {
                "the newest 50": RunFilter(),
                "words in one question": RunFilter(words=(f"order {runs // 3},",)),
                "words in none": RunFilter(words=("nothing", "such")),
                "those that wait": RunFilter(is_waiting=True),
                "of a tool, with a failure": RunFilter(
                    tool="search", failure="TIMEOUT"
                ),
            }.items():
                print(f"{name:<26} {best_ms(ask(wanted)):8.1f} ms")
            run = f"r_{runs // 2:08}"
            print(
                f"{'a run of the middle':<26} {best_ms(lambda: result_now(store.load_run(run))):8.1f} ms"
            )
            print(
                f"{'its audit records':<26} {best_ms(lambda: result_now(store.log(run_id=run, most=1000))):8.1f} ms"
            )


async def measure_listeners(count: int) -> None:
    """Print how long an event takes to so many listeners, one of which never reads."""
    hub = EventHub()
    hub.attach(asyncio.get_running_loop())
    listeners = [aiter(hub.listen()) for _ in range(count)]
    for each in listeners:
        await anext(each)
    hub.listen()  # never read
    observe = hub.observer()
    started = time.perf_counter()
    for turn in range(100):
        observe(ModelAsked(turn, 1, 1, run_id="r_1"))
        await asyncio.gather(*map(anext, listeners))
    spent = (time.perf_counter() - started) / 100
    print(f"an event to {count:,} listeners  {spent * 1000:8.1f} ms")


def main() -> None:
    """Measure, and print."""
    measure_search(int(sys.argv[1]) if len(sys.argv) > 1 else RUNS)
    asyncio.run(measure_listeners(LISTENERS))


if __name__ == "__main__":
    main()
