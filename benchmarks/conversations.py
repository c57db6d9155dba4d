"""What long conversations cost: `python -m benchmarks.conversations [--sessions 30000] [--rounds 100] [--kept 3000]`.

Many users talk to one runtime, a round each in turn, and an hour passes after every round of all. A round makes a call
of a tool, the same one each time, and answers. None may be refused for what an earlier round did.

    handle      a loop of one's own: `runtime.handle(message, run=...)`, with the answers handed over
    session     `hr.SyncSession` over a SQLite store, which keeps nothing in memory between two questions

Memory is that of the objects, counted by `tracemalloc` after a collection; the store's file is counted beside it.
"""

from __future__ import annotations

import argparse
import gc
import json
import sys
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from time import process_time
from typing import Any

import handrail as hr
from benchmarks.measuring import Figure
from handrail.messages import Turn
from handrail.ports import Listener, Request
from handrail.testing import ManualClock

GOAL_BYTES = 4096
"""Of an idle session."""

CALL = {
    "role": "assistant",
    "content": None,
    "tool_calls": [
        {
            "id": "call_1",
            "type": "function",
            "function": {"name": "look", "arguments": '{"place": "here"}'},
        }
    ],
}
ANSWER = {"role": "assistant", "content": "There is nothing here."}


@hr.tool(effect="read", timeout_s=5, blocking=False)
def look(place: str) -> str:
    """Look at a place."""
    return f"There is nothing at {place}, and there was nothing before."


class Looker:
    """A model that looks once in each round, and then answers."""

    name = "looker"

    async def ask(self, request: Request, listener: Listener | None = None) -> Turn:
        """See `ports.Model.ask`."""
        if isinstance(request.messages[-1], hr.ToolMessage):
            return Turn("There is nothing here.")
        number = len(request.messages)
        call = hr.ToolCall(f"call_{number}", "look", '{"place": "here"}')
        return Turn(calls=(call,), finish="calls")


def talk_by_handle(sessions: int, rounds: int) -> list[Figure]:
    """Hand the messages of many conversations to one runtime."""
    clock = ManualClock()
    refused = 0

    def one_round(runtime: hr.SyncRuntime, number: int) -> None:
        nonlocal refused
        run = f"user-{number}"
        (reply,) = runtime.handle(CALL, run=run)
        refused += not reply["content"].startswith("There is nothing at here")
        runtime.handle(ANSWER, run=run)

    with hr.SyncRuntime([look], budget=hr.Budget(calls=2), now=clock) as runtime:
        one_round(runtime, 0)
        idle_bytes = _bytes_kept(lambda n: one_round(runtime, n), sessions)
        began = process_time()
        for _ in range(rounds - 1):
            clock.advance(3600.0)
            for number in range(sessions):
                one_round(runtime, number)
        spent_s = process_time() - began
    what = f"handle: {sessions:,} sessions, {rounds} rounds"
    return _figures(what, refused, idle_bytes, spent_s, sessions * (rounds - 1))


def talk_by_session(sessions: int, rounds: int) -> list[Figure]:
    """Ask many sessions in a SQLite store."""
    clock = ManualClock()
    refused = 0
    held: list[hr.SyncSession] = []

    def one_round(session: hr.SyncSession) -> None:
        nonlocal refused
        run = session.run("What is there?", model=Looker())
        refused += run.status != "done" or run.spent.calls != 1

    with TemporaryDirectory() as folder:
        file = Path(folder, "sessions.db")
        with hr.SyncRuntime(
            [look],
            store=f"sqlite:///{file}",
            budget=hr.Budget(calls=1, turns=2),
            now=clock,
        ) as runtime:
            one_round(hr.SyncSession(runtime, id="first"))

            def begin(number: int) -> None:
                session = hr.SyncSession(runtime, id=f"user-{number}")
                held.append(session)
                one_round(session)

            idle_bytes = _bytes_kept(begin, sessions)
            began = process_time()
            for _ in range(rounds - 1):
                clock.advance(3600.0)
                for session in held:
                    one_round(session)
            spent_s = process_time() - began
        size = sum(each.stat().st_size for each in file.parent.iterdir())
    what = f"session: {sessions:,} sessions, {rounds} rounds"
    figures = _figures(what, refused, idle_bytes, spent_s, sessions * (rounds - 1))
    stored = size / (sessions * rounds)
    return [*figures, Figure(f"{what}: the store's, a round", stored, "bytes")]


def _bytes_kept(begin: Callable[[int], Any], sessions: int) -> float:
    """Return how many bytes are kept for each session after its first round."""
    gc.collect()
    tracemalloc.start()
    for number in range(sessions):
        begin(number)
    gc.collect()
    kept, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    return kept / sessions


def _figures(
    what: str, refused: int, idle_bytes: float, spent_s: float, count: int
) -> list[Figure]:
    return [
        Figure(f"{what}: refused", refused, "calls", goal=0),
        Figure(f"{what}: idle", idle_bytes, "bytes", goal=GOAL_BYTES),
        Figure(f"{what}: CPU", spent_s / max(count, 1) * 1e6, "us/round"),
    ]


def conversations(quick: bool) -> list[Figure]:
    """Measure a share of what `main` does by default."""
    sessions = 200 if quick else 2_000
    return [*talk_by_handle(sessions, 10), *talk_by_session(sessions // 10, 10)]


def main() -> int:
    """Measure, print, and return 1 if a goal was missed."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.conversations", description=__doc__
    )
    parser.add_argument("--sessions", type=int, default=30_000)
    parser.add_argument("--rounds", type=int, default=100)
    parser.add_argument(
        "--kept", type=int, default=3_000, help="how many of them are in a store too"
    )
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    figures = talk_by_handle(options.sessions, options.rounds)
    if options.kept:
        figures += talk_by_session(options.kept, options.rounds)
    if options.json:
        json.dump([each.as_json() for each in figures], sys.stdout, indent=1)
    else:
        print(*figures, sep="\n")
    return int(
        any(each.goal is not None and each.value > each.goal for each in figures)
    )


if __name__ == "__main__":
    sys.exit(main())
