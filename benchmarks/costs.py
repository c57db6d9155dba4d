"""Single costs: definitions in a request, streaming, registering, importing."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

import handrail as hr
from benchmarks.measuring import Figure, best_of
from handrail.dialects.openai_chat import DIALECT
from handrail.models.http import HttpModel
from handrail.ports import Request


def thousand_tools(quick: bool) -> list[Figure]:
    """What 1,000 unchanged tools add to writing a request, after the first one."""
    tools = hr.Toolset(_tools(1000))
    model = HttpModel("m", DIALECT, "http://127.0.0.1/v1", {})
    messages = [hr.UserMessage("?")]
    with_tools = best_of(lambda: model.body(Request(messages, tools), False), rounds=5, times=20)
    without = best_of(lambda: model.body(Request(messages, hr.Toolset()), False), rounds=5, times=20)
    return [Figure("carrying 1,000 unchanged tools in a request", (with_tools - without) * 1e3, "ms", 0.1)]


def streaming(quick: bool) -> list[Figure]:
    """CPU for each delta of a call's arguments, and whether it grows with their number."""
    per_delta = {count: _per_delta(count) for count in (200, 2000)}
    growth = per_delta[2000] / per_delta[200]
    return [
        Figure(
            "streaming, per argument delta at 2,000 deltas",
            per_delta[2000] * 1e6,
            "us",
            10.0,
            note=f"x {growth:.2f} of 200",
        )
    ]


def _per_delta(count: int) -> float:
    def chunk(call: dict[str, Any], finish: str | None = None) -> bytes:
        choice = {"index": 0, "delta": {"tool_calls": [call]} if call else {}, "finish_reason": finish}
        body = {"id": "c", "object": "chat.completion.chunk", "created": 1, "model": "m", "choices": [choice]}
        return f"data: {json.dumps(body)}\n\n".encode()

    first = chunk({"index": 0, "id": "call_1", "type": "function", "function": {"name": "f", "arguments": ""}})
    text = json.dumps({"text": "x" * (count * 4)})
    pieces = [chunk({"index": 0, "function": {"arguments": text[at : at + 4]}}) for at in range(0, len(text), 4)]
    chunks = [first, *pieces, chunk({}, "tool_calls"), b"data: [DONE]\n\n"]

    def read() -> None:
        stream = DIALECT.stream()
        for each in chunks:
            stream.feed(each)
        assert stream.close().calls[0].arguments == text

    return best_of(read, rounds=5) / len(pieces)


def register(quick: bool) -> list[Figure]:
    """Registering 10,000 functions, each with hints and a docstring."""
    functions = _tools(10_000)
    return [Figure("register 10,000 tools", best_of(lambda: hr.Toolset(functions), rounds=3), "s CPU", 1.0)]


def _tools(count: int) -> list[Any]:
    made: dict[str, Any] = {}
    source = '''def tool_{n}(city: str, days: int = 1, unit: str = "celsius") -> dict:
    """Get reading {n} of a city.

    Args:
        city: Name of the city.
        days: How many days ahead.
        unit: Unit of the reading.
    """
    return {{}}
'''
    exec("".join(source.format(n=n) for n in range(count)), made)
    return [made[f"tool_{n}"] for n in range(count)]


def importing(quick: bool) -> list[Figure]:
    """CPU of importing everything that a run needs, in a fresh interpreter, against pydantic alone."""
    ours = _import_cpu("import handrail; handrail.Runtime, handrail.tool, handrail.SyncRuntime")
    theirs = _import_cpu("import pydantic; pydantic.TypeAdapter, pydantic.BaseModel")
    return [
        Figure("import handrail, with Runtime and tool", ours, "s CPU", 0.15),
        Figure("  against pydantic alone", ours / theirs, "x pydantic", 2.0),
    ]


def _import_cpu(statement: str) -> float:
    program = f"import time; b = time.process_time(); {statement}; print(time.process_time() - b)"
    runs = [
        subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True) for _ in range(7)
    ]
    return min(float(run.stdout) for run in runs)
