"""One runtime for many tenants and users: each call names its principal."""

import asyncio

import handrail as hr


@hr.tool(effect="write", key="ticket:{number}", timeout_s=10)
async def create_ticket(context: hr.Context, number: int) -> str:
    """Create a ticket, once for each number."""
    return f"ticket {number} in run {context.run_id}"


READERS = hr.Policy(max_permission="read")


async def main() -> None:
    async with hr.Runtime([create_ticket]) as runtime:
        for tenant, user in (("acme", "ann"), ("acme", "bob"), ("globex", "eve")):
            result = await runtime.call("create_ticket", {"number": 7}, run=f"for-{user}", scope=tenant, principal=user)
            print(f"{tenant}, {user}: {result.value}{', repeated' if result.replayed else ''}")
        refused = await runtime.call("create_ticket", {"number": 8}, scope="acme", policy=READERS)
        print(refused.failure.code)


asyncio.run(main())
