"""Ten turns with forty tools: how much of its input a provider reads from its cache, and what is left to pay."""

import asyncio

from prefix_cache import PrefixCache, input_price

import handrail as hr
from handrail.testing import ScriptedServer, call


def make_tool(number: int) -> hr.FunctionTool:
    def read(page: int) -> str:
        return f"shelf {number}, page {page}: nothing new"

    return hr.FunctionTool(
        read,
        name=f"read_shelf_{number}",
        description=f"Read a page of the papers on shelf {number} of the archive, as they were scanned.",
        effect="read",
    )


async def main() -> None:
    script = [*(call(f"read_shelf_{n}", page=n) for n in range(9)), "Nothing new."]
    async with hr.Runtime([make_tool(n) for n in range(40)], selector="all") as runtime:
        for cache in ("auto", None):
            with ScriptedServer(script, wire="anthropic", cache=PrefixCache()) as server:
                options = hr.Options(cache=cache)
                run = await runtime.run("What is new on the shelves?", model=server.model, options=options)
                share, price = run.spent.cache_read_share, input_price(run.spent.usage)
                print(f"cache={cache!r:6} {share:4.0%} read from the cache; the input costs {price:.2f} of its price")


asyncio.run(main())
