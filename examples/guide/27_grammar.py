"""What a model may write, as a grammar: the forms that decoders take, and what changes when the tools change."""

import json
from typing import Annotated, Literal

from pydantic import Field

import handrail as hr


@hr.tool(effect="read")
def find_orders(status: Literal["open", "shipped"], limit: Annotated[int, Field(ge=1, le=50)] = 10) -> list[str]:
    """Find orders."""
    return []


@hr.tool(effect="write")
def cancel_order(number: Annotated[str, Field(pattern="^A-[0-9]{4}$")]) -> str:
    """Cancel an order."""
    return "cancelled"


tools = hr.Toolset([find_orders, cancel_order])
grammar = hr.grammar(tools, "hermes", tool_choice="required", parallel=False)
print(grammar)
print(next(line for line in grammar.lark.splitlines() if line.startswith("call:")).partition(" | ")[0])
tags = grammar.tags["format"]["elements"][-1]["tags"]
print(json.dumps({**tags[0], "content": "..."}))
print([field for engine in ("vllm", "sglang", "llama.cpp") for field in grammar.fields(engine)])

tools.remove("cancel_order")
print("cancel_order" in hr.grammar(tools, "hermes").lark)
