"""What the caller fills in: the model neither sees these parameters nor may send them."""

import asyncio
from dataclasses import dataclass
from typing import Annotated

import handrail as hr


@dataclass
class Deps:
    """What the program has, and its tools need."""

    invoices: dict[str, list[str]]


@hr.tool(effect="read", timeout_s=5)
async def list_invoices(year: int, tenant: Annotated[str, hr.Injected], context: hr.Context[Deps]) -> list[str]:
    """List the invoices of a year."""
    assert context.attempt == 1
    assert context.remaining_s() <= 5
    return [name for name in context.deps.invoices[tenant] if name.endswith(str(year))]


async def main() -> None:
    deps = Deps({"acme": ["A-7/2024", "A-8/2025"], "other": ["B-1/2025"]})
    async with hr.Runtime([list_invoices]) as runtime:
        print("the model sees", list(list_invoices.parameters["properties"]))
        result = await runtime.call("list_invoices", {"year": 2025}, inject={"tenant": "acme"}, deps=deps)
        print(result.value)
        forged = {"year": 2025, "tenant": "other"}
        result = await runtime.call("list_invoices", forged, inject={"tenant": "acme"}, deps=deps)
        print(result.failure.code)


asyncio.run(main())
