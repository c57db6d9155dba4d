"""What a deadline can do, and what the answer says of it."""

import asyncio
import time

import handrail as hr


@hr.tool(effect="read", timeout_s=5, limits=hr.Limits(attempt_timeout_s=0.1, max_attempts=2))
async def look_up(context: hr.Context[None]) -> str:
    """Hang once, then answer."""
    if context.attempt == 1:
        await asyncio.sleep(60)
    return f"found on attempt {context.attempt}"


@hr.tool(effect="read", timeout_s=0.1)
def count_slowly(context: hr.Context[None]) -> None:
    """Block a thread, politely: look whether the call was given up."""
    while not context.cancelled.is_set():
        time.sleep(0.01)


@hr.tool(effect="write", timeout_s=0.1)
async def pay() -> None:
    """Start a write that does not end in time."""
    await asyncio.sleep(60)


async def main() -> None:
    async with hr.Runtime([look_up, count_slowly, pay], backoff=hr.Backoff(first_s=0)) as runtime:
        print((await runtime.call("look_up")).value)
        for name in ("count_slowly", "pay"):
            failure = (await runtime.call(name)).failure
            print(f"{failure.code}: {failure.message}")


asyncio.run(main())
