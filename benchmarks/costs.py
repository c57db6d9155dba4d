"""Single costs: definitions in a request, streaming, registering, importing."""

from __future__ import annotations

import json
import subprocess
import sys
from time import perf_counter
from typing import Any, cast

import handrail as hr
from benchmarks.measuring import Figure, best_of
from handrail.dialects import Envelope, ServerDialect, WireDialect
from handrail.dialects.prompts import PromptDialect
from handrail.dialects.writing import pieces
from handrail.models.http import HttpModel
from handrail.ports import Request

WIRES = ("openai-chat", "openai-responses", "anthropic", "gemini", "cohere", "bedrock")


def thousand_tools(quick: bool) -> list[Figure]:
    """What 1,000 unchanged tools add to writing a request, after the first one."""
    tools, none, messages = hr.Toolset(_tools(1000)), hr.Toolset(), [hr.UserMessage("?")]
    figures = []
    for wire in WIRES[:1] if quick else WIRES[:-1]:  # Bedrock's has no transport here
        model = HttpModel("m", cast(WireDialect, hr.dialect(wire)), "http://127.0.0.1/v1", {})
        carrying, without = (
            best_of(lambda: model.body(Request(messages, shown), False), rounds=5, times=20) for shown in (tools, none)
        )
        what = f"carrying 1,000 unchanged tools in a request, {wire}"
        figures.append(Figure(what, (carrying - without) * 1e3, "ms", 0.1))
    return figures


def streaming(quick: bool) -> list[Figure]:
    """CPU for each delta of a call's arguments, and whether it grows with their number."""
    figures = []
    for name in ("openai-chat",) if quick else (*WIRES, "hermes"):
        per_delta = {count: _per_delta(name, count) * 1e6 for count in (500, 2_000, 8_000)}
        figures.append(
            Figure(
                f"streaming, per argument delta at 2,000 deltas, {name}",
                per_delta[2_000],
                "us",
                10.0,
                note=f"{per_delta[500]:.1f} at 500, {per_delta[8_000]:.1f} at 8,000",
            )
        )
    return figures


PIECE_CHARS = 4
"""About a token."""


def _per_delta(name: str, count: int) -> float:
    """CPU seconds for each delta. Gemini streams a call whole, so there it is the text that comes in pieces."""
    dialect = hr.dialect(name)
    text = json.dumps({"text": "x" * (count * PIECE_CHARS - 12)})
    turn = hr.Turn(text) if name == "gemini" else hr.Turn(calls=[hr.ToolCall("c", "f", text)], finish="calls")
    if isinstance(dialect, ServerDialect):
        told = dialect.encode_stream(turn, Envelope("m", "a", 1), piece_chars=PIECE_CHARS)
    else:
        told = pieces(cast(PromptDialect, dialect).written(turn), PIECE_CHARS)
    chunks = [each.encode() for each in told]

    def read() -> None:
        stream = dialect.stream()
        for each in chunks:
            stream.feed(each)
        answer = stream.close()
        assert (answer.calls[0].arguments if answer.calls else answer.text) == text

    return best_of(read, rounds=5) / count


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


@hr.tool(effect="read", isolation="process")
def apart(number: int) -> int:
    """Give a number back, from a process of its own."""
    return number


@hr.tool(effect="read")
def beside(number: int) -> int:
    """Give a number back, from a thread."""
    return number


async def worker_calls(quick: bool) -> list[Figure]:
    """What a call in a warm process takes longer than one in a thread: by the clock, for both sides work."""
    count, best = 100 if quick else 300, dict.fromkeys(("apart", "beside"), float("inf"))
    async with hr.Runtime([apart, beside]) as runtime:
        for _ in range(10):
            for name in best:
                began = perf_counter()
                for number in range(count):
                    assert (await runtime.call(name, {"number": number})).ok
                best[name] = min(best[name], (perf_counter() - began) / count)
    more_s = best["apart"] - best["beside"]
    return [Figure("a call in a warm process, over one in a thread", more_s * 1e6, "us", 100.0, note="by the clock")]


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
