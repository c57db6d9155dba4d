"""A service that is down is left alone for a while, and one that wants few requests gets few."""

import asyncio
import logging

import handrail as hr


@hr.tool(effect="read", timeout_s=5, limits=hr.Limits(max_attempts=1, breaker=3))
async def search(words: str) -> str:
    """Ask a search service, which is down."""
    raise ConnectionRefusedError("connection refused")


@hr.tool(effect="read", timeout_s=5, limits=hr.Limits(rate="2/min", rate_key="{user}"))
async def ask_partner(user: str) -> str:
    """Ask a partner, who answers each user twice a minute."""
    return f"an answer for {user}"


async def main() -> None:
    async with hr.Runtime([search, ask_partner]) as runtime:
        for number in range(1, 5):
            failure = (await runtime.call("search", {"words": f"printer {number}"})).failure
            print(f"search {number}: {failure.code}: {failure.message} {failure.suggestion}")
        for user in ("ann", "ann", "ann", "bob"):
            result = await runtime.call("ask_partner", {"user": user})
            print(f"{user}: {result.value if result.ok else f'{result.failure.code}: {result.failure.message}'}")


logging.disable()  # what tools raise is logged; this page shows what is returned
asyncio.run(main())
