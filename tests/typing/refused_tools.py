"""Mistakes in the declaration of a tool that mypy and pyright refuse; each line says part of a message or its code."""

from __future__ import annotations

import handrail as hr
from handrail import FunctionTool, Then


@hr.tool
def add(first: int, second: int = 0) -> int:
    """Add two numbers."""
    return first + second


@hr.tool(effect="read")
async def find_order(order_id: str) -> str:
    """Find an order."""
    return order_id


# Settings: the name, the type and the words.
hr.tool(efect="read")  # error: overload
hr.tool(effect="destrictive")  # error: overload | "effect"
hr.tool(people=2)  # error: overload
hr.tool(most_at_once=1)  # error: overload
hr.tool(attempts=3)  # error: overload
hr.tool(timeout_s="5")  # error: overload | "timeout_s"
hr.tool(isolation="box")  # error: overload | "isolation"
hr.tool(required_approvals=2)  # error: overload
hr.tool(limits=hr.Write())  # error: overload | "limits"
hr.Write(required_approvals="two")  # error: required_approvals
hr.Limits(max_atempts=2)  # error: max_atempts
hr.Limits(on_doubt="ask")  # error: on_doubt
hr.Sandbox(["/data"])  # error: positional
hr.Sends(trust="maybe")  # error: trust
hr.tool(then=add)  # error: overload | "then"
hr.tool(3)  # error: overload | "fn"
FunctionTool(add, efect="read")  # error: efect
FunctionTool(add, write=hr.Write(on_doubt="wait"))  # error: on_doubt
hr.Write(on_doubt="ask").on_doubt = "tell"  # error: read-only | on_doubt
FunctionTool(3)  # error: "F" | "fn"
FunctionTool()  # error: fn
Then("add", {})  # error: BaseTool
add.replace(max_concurency=2)  # error: max_concurency
add.replace(tags=5)  # error: tags
hr.Toolset([add]).redeclare("add", risk="huge")  # error: risk
hr.Toolset(["add"])  # error: BaseTool

# Calls of a decorated function.
add("1")  # error: "int"
add()  # error: first
add(1, third=3)  # error: third
add(1).upper()  # error: upper
find_order("A-2").upper()  # error: upper
add.fn("1")  # error: "int"
add.timeout  # error: timeout
