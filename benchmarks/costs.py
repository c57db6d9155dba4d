"""Single costs: definitions in a request, streaming, registering, importing."""

from __future__ import annotations

import asyncio
import gc
import json
import os
import subprocess
import sys
from collections.abc import Callable, Mapping
from functools import partial
from statistics import median
from tempfile import TemporaryDirectory
from threading import Event
from time import perf_counter, process_time, thread_time
from typing import Any, cast

import handrail as hr
from benchmarks import denominators, loops
from benchmarks.measuring import Figure, best_of
from handrail.dialects import Envelope, ServerDialect, WireDialect
from handrail.dialects.writing import pieces
from handrail.models.http_model import HttpModel
from handrail.ports import Request, Sandbox, SandboxJob
from handrail.sandboxes.levels import SANDBOXED, list_sandboxes
from handrail.testing import ScriptedServer

WIRES = ("openai-chat", "openai-responses", "anthropic")


def thousand_tools(quick: bool) -> list[Figure]:
    """What 1,000 unchanged tools add to writing a request, after the first one."""
    tools, none, messages = (
        hr.Toolset(_tools(1000)),
        hr.Toolset(),
        [hr.UserMessage("?")],
    )
    figures = []
    for wire in WIRES[:1] if quick else WIRES[:-1]:  # Bedrock's has no transport here
        model = HttpModel(
            "m", cast(WireDialect, hr.dialect(wire)), "http://127.0.0.1/v1", {}
        )
        carrying, without = (
            best_of(
                lambda: model.body(Request(messages, shown), False), rounds=5, times=20
            )
            for shown in (tools, none)
        )
        what = f"carrying 1,000 unchanged tools in a request, {wire}"
        figures.append(Figure(what, (carrying - without) * 1e3, "ms", 0.1))
    return figures


def streaming(quick: bool) -> list[Figure]:
    """CPU for each delta of a call's arguments, and whether it grows with their number."""
    figures = []
    for name in ("openai-chat",) if quick else (*WIRES, "hermes"):
        per_delta = {
            count: _per_delta(name, count) * 1e6 for count in (500, 2_000, 8_000)
        }
        figures.append(
            Figure(
                f"streaming, per argument delta at 2,000 deltas, {name}",
                per_delta[2_000],
                "us",
                10.0,
                note=f"{per_delta[500]:.1f} at 500, {per_delta[8_000]:.1f} at 8,000",
            )
        )
    heard_s = min(asyncio.run(_hear_deltas()) for _ in range(2 if quick else 5))
    what = "  over HTTP with events, openai-chat (client's thread)"
    return [*figures, Figure(what, heard_s * 1e6, "us", 15.0)]


_STREAMED_PIECES = 2_000
_STREAMED_CHARS = 12
"""Of each piece, as `ScriptedServer` cuts them."""


async def _hear_deltas() -> float:
    """CPU seconds of the client's thread for each piece of a text whose events somebody listens to, connected once."""
    text = "x" * (_STREAMED_CHARS * _STREAMED_PIECES)
    with ScriptedServer([text]) as server:
        async with hr.Runtime() as runtime:
            for _ in range(2):
                gc.collect()
                began = thread_time()
                events = [
                    event async for event in runtime.stream("?", model=server.model)
                ]
                spent_s = thread_time() - began
    pieces = sum(type(event) is hr.events.Streamed for event in events)
    assert pieces >= _STREAMED_PIECES, pieces
    return spent_s / pieces


PIECE_CHARS = 4
"""About a token."""


def _per_delta(name: str, count: int) -> float:
    """CPU seconds for each delta."""
    dialect = hr.dialect(name)
    text = json.dumps({"text": "x" * (count * PIECE_CHARS - 12)})
    turn = hr.Turn(calls=[hr.ToolCall("c", "f", text)], finish="calls")
    if isinstance(dialect, ServerDialect):
        told = dialect.encode_stream(
            turn, Envelope("m", "a", 1), piece_chars=PIECE_CHARS
        )
    else:
        told = pieces(cast(Any, dialect).encode_answer(turn), PIECE_CHARS)
    chunks = [each.encode() for each in told]

    def read() -> None:
        stream = dialect.stream()
        for each in chunks:
            stream.feed(each)
        assert stream.close().calls[0].arguments == text

    return best_of(read, rounds=5) / count


def register(quick: bool) -> list[Figure]:
    """Registering 10,000 functions, each with hints and a docstring."""
    functions = _tools(10_000)
    registered_s = best_of(lambda: hr.Toolset(functions), rounds=3)
    first_s, turn_s = asyncio.run(_ask_with(functions, rounds=1 if quick else 3))
    return [
        Figure("register 10,000 tools", registered_s, "s CPU", 1.0),
        Figure("  and the first request, which chooses among them", first_s, "s CPU", 1.2),
        Figure("  each further turn with them, all alike", turn_s * 1e3, "ms"),
    ]  # fmt: skip


async def _ask_with(functions: list[Any], rounds: int) -> tuple[float, float]:
    """CPU seconds of a new set's first request, and of a turn of a later run."""
    first, more = loops.FakeModel(0, 1), loops.FakeModel(10, 1, write=_call_first_tool)
    first_s = turn_s = float("inf")
    for _ in range(rounds):
        gc.collect()
        began = process_time()
        runtime = hr.Runtime(functions, budget=loops.UNBOUND)
        await runtime.run("What is reading 17 of Oslo?", model=first)
        first_s = min(first_s, process_time() - began)
        began = process_time()
        await runtime.run("What is reading 17 of Oslo?", model=more)
        turn_s = min(turn_s, (process_time() - began) / 11)
    return first_s, turn_s


def _call_first_tool(turn: int, call: int) -> tuple[str, str]:
    return "tool_17", denominators.arguments_of(turn, call)


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
    count, best = (
        100 if quick else 300,
        dict.fromkeys(("apart", "beside"), float("inf")),
    )
    async with hr.Runtime([apart, beside]) as runtime:
        for _ in range(10):
            for name in best:
                began = perf_counter()
                for number in range(count):
                    assert (await runtime.call(name, {"number": number})).ok
                best[name] = min(best[name], (perf_counter() - began) / count)
    more_s = best["apart"] - best["beside"]
    return [
        Figure(
            "a call in a warm process, over one in a thread",
            more_s * 1e6,
            "us",
            100.0,
            note="by the clock",
        )
    ]


def boxes(quick: bool) -> list[Figure]:
    """What an empty Python program takes in each sandbox that this machine has, and in none; and a tool at each level.

    Start to end, in turn, so that what else the machine does falls on all of them alike.
    """
    sandboxes = [each for each in list_sandboxes() if not each.lacks]
    ways: dict[str, Callable[[], object]] = {
        "an empty Python program, alone": lambda: subprocess.run(
            [sys.executable, "-I", "-S", "-c", "pass"], check=True
        ),
        **{
            f"an empty Python program, {each.level}": partial(_run_empty, each)
            for each in sandboxes
        },
    }
    tools = [
        hr.FunctionTool(
            add_one, name=f"at_{level}", effect="read", isolation=level, **how
        )
        for level, how in _TOOLS_APART.items()
        if level not in SANDBOXED or any(each.level == level for each in sandboxes)
    ]
    with hr.SyncRuntime(tools) as runtime:
        for tool in tools:
            ways[f"a call of x + 1, {tool.isolation}"] = partial(
                runtime.call, tool.name, {"x": 1}
            )
        times_s = _time_in_turn(ways, 10 if quick else 40)
    return [
        Figure(name, median(taken) * 1e3, "ms", note="by the clock, median")
        for name, taken in times_s.items()
    ]


_TOOLS_APART: Mapping[Any, Mapping[str, Any]] = {
    "none": {},
    "process": {"sandbox": {"mounts": ["/usr"]}},
    "isolated": {},
}


def add_one(x: int) -> int:
    """Add one."""
    return x + 1


def _run_empty(sandbox: Sandbox) -> None:
    job = SandboxJob([sandbox.python, "-I", "-S", "-c", "pass"])
    assert sandbox.run(job, Event()).exit_code == 0


def _time_in_turn(
    ways: Mapping[str, Callable[[], object]], rounds: int
) -> Mapping[str, list[float]]:
    times_s: dict[str, list[float]] = {name: [] for name in ways}
    for number in range(rounds + 3):
        for name, run in ways.items():
            began = perf_counter()
            run()
            if number >= 3:  # the first ones start what stays
                times_s[name].append(perf_counter() - began)
    return times_s


def importing(quick: bool) -> list[Figure]:
    """CPU of a fresh interpreter for everything that a run needs, and for one call on top, against pydantic alone."""
    spent = import_cpu(IMPORTS, rounds=5 if quick else 15)
    theirs = spent["pydantic"]
    return [
        Figure(
            "import handrail, with Runtime and tool", spent["handrail"], "s CPU", 0.15
        ),
        Figure(
            "  against pydantic alone",
            spent["handrail"] / theirs,
            "x pydantic",
            2.0,
            usual=1.5,
        ),
        Figure(
            "import, make a runtime with one tool, carry one call",
            spent["one call"],
            "s CPU",
        ),
        Figure(
            "  against pydantic alone",
            spent["one call"] / theirs,
            "x pydantic",
            usual=2.4,
        ),
        Figure(
            "  the least: asyncio, pydantic, two arguments described",
            spent["least"] / theirs,
            "x pydantic",
        ),
        Figure("handrail --version", spent["version"] / theirs, "x pydantic"),
    ]


_ONE_CALL = """
import asyncio
from handrail import Runtime, tool

@tool(effect="read")
def add(a: int, b: int) -> int:
    "Add two numbers."
    return a + b

async def main():
    async with Runtime([add]) as runtime:
        assert (await runtime.call("add", {"a": 1, "b": 2})).value == 3

asyncio.run(main())
"""

_LEAST = """
import asyncio, pydantic, typing_extensions
pydantic.TypeAdapter(typing_extensions.TypedDict("Arguments", {"a": int, "b": int}))
"""

_VERSION = """
import contextlib, io
from handrail.cli import main
with contextlib.redirect_stdout(io.StringIO()):
    main(["--version"], standalone_mode=False)
"""

IMPORTS = {
    "pydantic": "import pydantic; pydantic.TypeAdapter, pydantic.BaseModel",
    "handrail": "import handrail; handrail.Runtime, handrail.tool",
    "one call": _ONE_CALL,
    "least": _LEAST,
    "version": _VERSION,
}
"""What is measured in a fresh interpreter. `one call` is what a user pays before the first result."""


def import_calls(program: str) -> int:
    """Return how many functions a program calls in a fresh interpreter, Python's and C's: the same on every machine."""
    counting = _COUNTED.format(program=program)
    told = subprocess.run(
        [sys.executable, "-c", counting], capture_output=True, text=True, check=True
    )
    return int(told.stdout)


_COUNTED = """\
import sys
calls = 0
def count(frame, event, argument):
    global calls
    calls += event in ("call", "c_call")
program = compile({program!r}, "program", "exec")
sys.setprofile(count)
exec(program, {{}})
sys.setprofile(None)
print(calls)
"""


def import_cpu(programs: Mapping[str, str], *, rounds: int) -> dict[str, float]:
    """Return CPU seconds of each program in a fresh interpreter, in turn, the best of each.

    Modules are compiled before: whoever installs a package has them compiled, and compiling ours costs more than
    importing it. An environment in which Python keeps no bytecode would compile ours every time and pydantic's never.
    """
    best = dict.fromkeys(programs, float("inf"))
    with TemporaryDirectory() as compiled:
        environment = {
            name: value
            for name, value in os.environ.items()
            if name != "PYTHONDONTWRITEBYTECODE"
        }
        environment["PYTHONPYCACHEPREFIX"] = compiled
        for _ in range(rounds + 1):  # the first one compiles
            for name, program in programs.items():
                timed = f"import time; began = time.process_time()\n{program}\nprint(time.process_time() - began)"
                command = [sys.executable, "-c", timed]
                told = subprocess.run(
                    command, capture_output=True, text=True, check=True, env=environment
                )
                best[name] = min(best[name], float(told.stdout))
    return best
