"""Runs whose calls are of one shape, and a mixed set: handrail's loop against the same loop by hand.

`loop` measures the one call that takes the short way each time. Here are those that do not: a list, a model in a
model, an address in a text, a write with its ledger, a resource, a result of 50 rows; and four tools together.

Every tool of handrail has the same function by hand, with the schema that a person would write for it.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from time import process_time
from typing import Any

import pydantic

import handrail as hr
from benchmarks import denominators
from benchmarks.denominators import CITIES, SCHEMA, Provider, Write
from benchmarks.loops import UNBOUND, FakeModel, get_weather
from benchmarks.measuring import Figure, interleaved

Schema = dict[str, Any]


class Item(pydantic.BaseModel):
    """One line of an order."""

    name: str
    count: int


class Order(pydantic.BaseModel):
    """An order."""

    customer: str
    items: list[Item]


async def find_places(words: list[str], limit: int = 5) -> dict[str, Any]:
    """Find places by words."""
    return {"found": words, "limit": limit}


async def price_order(order: Order, currency: str = "EUR") -> dict[str, Any]:
    """Price an order."""
    count = sum(item.count for item in order.items)
    return {"customer": order.customer, "count": count, "currency": currency}


async def fetch_page(url: str) -> dict[str, Any]:
    """Fetch a page."""
    return {"url": url, "status": 200}


async def summarize(text: str, sentences: int = 3) -> dict[str, Any]:
    """Summarize a text."""
    return {"characters": len(text), "sentences": sentences}


async def save_note(title: str, text: str) -> dict[str, Any]:
    """Save a note."""
    return {"title": title, "saved": len(text)}


async def list_rows(table: str) -> list[dict[str, Any]]:
    """List 50 rows of a table."""
    return [{"id": n, "name": f"row {n}", "table": table} for n in range(50)]


async def _price_by_hand(
    order: dict[str, Any], currency: str = "EUR"
) -> dict[str, Any]:
    return await price_order(Order.model_validate(order), currency)


def _schema(required: Sequence[str], **properties: str) -> Schema:
    described = {name: {"type": kind} for name, kind in properties.items()}
    return {"type": "object", "properties": described, "required": list(required)}


BY_HAND: Mapping[str, tuple[Callable[..., Awaitable[Any]], Schema]] = {
    "get_weather": (denominators.get_weather, SCHEMA),
    "find_places": (find_places, _schema(["words"], words="array", limit="integer")),
    "price_order": (
        _price_by_hand,
        _schema(["order"], order="object", currency="string"),
    ),
    "fetch_page": (fetch_page, _schema(["url"], url="string")),
    "summarize": (summarize, _schema(["text"], text="string", sentences="integer")),
    "save_note": (save_note, _schema(["title", "text"], title="string", text="string")),
    "list_rows": (list_rows, _schema(["table"], table="string")),
}

WRITES = {
    "find_places": lambda turn, n: {"words": ["café", CITIES[n], str(turn)]},
    "price_order": lambda turn, n: {
        "order": {
            "customer": f"c_{turn}",
            "items": [{"name": "tea", "count": n + 1}, {"name": "cup", "count": 2}],
        }
    },
    "fetch_page": lambda turn, n: {"url": f"https://example.org/{turn}/{n}?a=1"},
    "summarize": lambda turn, n: {
        "text": f"Report {turn}, {n}: all is well here. " * 16
    },
    "save_note": lambda turn, n: {
        "title": f"note {n}",
        "text": f"Note of turn {turn}.",
    },
    "list_rows": lambda turn, n: {"table": f"t_{turn}_{n}"},
}
"""What the model writes for a call of each tool; different in every call."""


@dataclass(frozen=True)
class Shape:
    """One kind of run: four calls a turn, of these tools in turn."""

    what: str
    tools: Sequence[hr.FunctionTool]
    usual: float | None = None
    goal: float | None = None

    def write(self, turn: int, call: int) -> tuple[str, str]:
        """Return the tool and the text of one call."""
        name = self.tools[call % len(self.tools)].name
        if name == "get_weather":
            return name, denominators.arguments_of(turn, call)
        return name, json.dumps(WRITES[name](turn, call), ensure_ascii=False)


_reads = partial(hr.FunctionTool, effect="read")
_writes = partial(hr.FunctionTool, effect="write")

MIXED = (
    _reads(find_places),
    _reads(price_order),
    _reads(summarize),
    _writes(save_note, resource="note:{title}"),
)

SHAPES = (
    Shape("10 turns x 4 calls: flat read", [_reads(get_weather)], usual=1.7),
    Shape("  list of texts", [_reads(find_places)]),
    Shape("  model with a list of models", [_reads(price_order)]),
    Shape("  address in a text", [_reads(fetch_page)]),
    Shape("  text of 600 characters", [_reads(summarize)]),
    Shape("  result of 50 rows", [_reads(list_rows)]),
    Shape("  write, ledger in memory", [_writes(save_note)]),
    Shape("  write with a resource", [_writes(save_note, resource="note:{title}")]),
    Shape("  mixed: list, model, long text, write with a resource", MIXED, goal=3.0),
    Shape("  the same, all declared reads", [_reads(t.fn) for t in MIXED], goal=2.5),
)

TURNS = 10


async def shapes_of_calls(quick: bool) -> list[Figure]:
    """10 turns x 4 calls of each shape, each against hand with the same tool."""
    tables = denominators.TOOLS.copy()
    denominators.TOOLS.update(BY_HAND)
    try:
        return [await _measure(shape, quick) for shape in SHAPES]
    finally:
        denominators.TOOLS.clear()
        denominators.TOOLS.update(tables)


async def long_results(quick: bool) -> list[Figure]:
    """What a result costs that is cut, against its JSON alone, and how long it stops the loop."""
    rows = [
        {"id": n, "name": f"row {n}", "text": "plain text, and more of it"}
        for n in range(13_500)
    ]
    size = len(json.dumps(rows))

    async def list_many(count: int) -> list[dict[str, Any]]:
        """List rows."""
        return rows[:count]

    runtime = hr.Runtime([_reads(list_many)])
    times = await interleaved(
        {
            "json": lambda: _write(rows),
            "cut": lambda: runtime.call("list_many", {"count": len(rows)}),
        },
        rounds=3 if quick else 7,
        times=1,
    )
    stopped_s = min(
        [
            await _time_stop(runtime.call("list_many", {"count": len(rows)}))
            for _ in range(7)
        ]
    )
    return [
        Figure(
            f"a result of {size / 1e6:.1f} MB, cut",
            times["cut"] * 1e3,
            "ms",
            note=f"{times['cut'] / times['json']:.1f} x its JSON",
        ),
        Figure("  the loop stops for", stopped_s * 1e3, "ms", 10.0, note="by the CPU of the process"),
    ]  # fmt: skip


async def _write(value: object) -> str:
    return json.dumps(value)


async def _time_stop(call: Awaitable[Any]) -> float:
    """Return the longest time in which nothing else ran beside a call, as CPU of all threads.

    Whatever holds the interpreter's lock stops the loop too; other programs of the machine do not count.
    """
    longest = 0.0
    is_over = False

    async def watch() -> None:
        nonlocal longest
        before = process_time()
        while not is_over:
            await asyncio.sleep(0)
            now = process_time()
            longest = max(longest, now - before)
            before = now

    watching = asyncio.create_task(watch())
    await asyncio.sleep(0)
    await call
    is_over = True
    await watching
    return longest


def make_contestants(shape: Shape) -> dict[str, Callable[[], Awaitable[Any]]]:
    """Return a run of this shape by hand, while `denominators.TOOLS` has the tools, and by handrail."""
    texts = {
        (turn, call): shape.write(turn, call)
        for turn in range(TURNS)
        for call in range(4)
    }
    write: Write = lambda turn, call: texts[turn, call]  # noqa: E731  # a table
    provider, model = Provider(TURNS, 4, write=write), FakeModel(TURNS, 4, write=write)
    runtime = hr.Runtime(list(shape.tools), budget=UNBOUND)

    async def ours() -> None:
        run = await runtime.run("How is it?", model=model)
        assert run.ok and run.spent.calls == 4 * TURNS, run

    return {"hand": lambda: denominators.loop(provider), "handrail": ours}


async def _measure(shape: Shape, quick: bool) -> Figure:
    times = await interleaved(
        make_contestants(shape),
        rounds=5 if quick else 15,
        times=5,
    )
    hand, handrail = times["hand"], times["handrail"]
    per_call = f"{handrail / 40 * 1e6:.1f} of {hand / 40 * 1e6:.1f} us a call"
    return Figure(
        shape.what,
        handrail / hand,
        "x hand",
        shape.goal,
        usual=shape.usual,
        note=per_call,
    )
