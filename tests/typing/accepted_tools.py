"""Declarations of tools that mypy and pyright accept, with the types that they reveal."""

from __future__ import annotations

from collections.abc import Callable
from typing import assert_type

import handrail as hr
from handrail import BaseTool, FunctionTool, Then, tool


@hr.tool
def add(first: int, second: int = 0) -> int:
    """Add two numbers."""
    return first + second


@hr.tool()
def shout(text: str) -> str:
    """Write a text in capitals."""
    return text.upper()


@hr.tool(effect="read", timeout_s=5, tags=["orders"], aliases=("订单",))
async def find_order(order_id: str) -> dict[str, str]:
    """Find an order."""
    return {"order_id": order_id}


@tool(
    effect="write",
    key="refund:{order_id}",
    approve="amount > 100",
    write=hr.Write(required_approvals=2),
    limits=hr.Limits(max_concurrency=4, max_attempts=1, rate="30/min"),
    isolation="process",
    then=Then(add, {"first": 1}),
)
def refund(order_id: str, amount: float) -> None:
    """Pay an order back."""


# A decorated function keeps its signature.
assert_type(add(1, second=2), int)
assert_type(shout("hello"), str)
assert_type(refund("A-2", 20.0), None)


async def awaited() -> None:
    assert_type(await find_order("A-2"), dict[str, str])


# It is a tool, and a function where one is wanted.
assert_type(add.timeout_s, float)
assert_type(add.fn(1), int)
assert_type(shout.replace(name="cry")("hello"), str)
takes_a_function: Callable[[str], str] = shout
is_a_tool: BaseTool = refund
any_function_tool: FunctionTool = add

# A function that exists already.
assert_type(hr.tool(len)([1]), int)
assert_type(hr.tool(len, effect="read", name="count")("abc"), int)
assert_type(FunctionTool(len, effect="read")("abc"), int)
described = FunctionTool(print, name="say", description="Say it.", parameters={"type": "object"})
assert_type(described.name, str)

# Tools with different signatures are a list of tools.
listed = [add, shout, find_order, refund]
hr.Toolset(listed)
hr.Toolset([add, print])
tools = hr.Toolset([add, shout])
assert_type(refund.limits.rate, str | None)
assert_type(refund.write.required_approvals, int)
tools.redeclare("add", timeout_s=3, write=hr.Write(required_approvals=2))
assert_type(tools["add"], BaseTool)
assert_type(tools.get("add"), BaseTool | None)
assert_type([each.name for each in tools], list[str])


class Search(hr.BaseTool):
    """Search the handbook."""

    name = "search_docs"
    effect = "read"
    tags = ("docs",)
    limits = hr.Limits(max_attempts=2, after=["log_in"])
    sends = hr.Sends(trust="trusted")

    def run(self, query: str) -> list[str]:
        return [query]


assert_type(Search().replace(timeout_s=1.5), Search)
