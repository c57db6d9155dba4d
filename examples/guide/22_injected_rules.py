"""Rules that know whose call it is: a key, a limit and a check look at what the caller injects."""

import asyncio
from typing import Annotated

import handrail as hr

Tenant = Annotated[str, hr.Injected(secret=False)]
Limit = Annotated[int, hr.Injected]


@hr.tool(
    effect="write",
    key="order:{tenant}:{number}",
    approve="amount > limit",
    check=lambda amount, tenant, **_: "trials pay nothing" if tenant == "trial" and amount else None,
)
async def order(number: int, amount: int, tenant: Tenant, limit: Limit, context: hr.Context) -> str:
    """Place an order, once for each number."""
    return f"ordered for {tenant}, under {context.idempotency_key}"


async def main() -> None:
    async with hr.Runtime([order]) as runtime:
        for tenant, limit in (("acme", 100), ("acme", 100), ("globex", 100), ("initech", 20), ("trial", 100)):
            inject = {"tenant": tenant, "limit": limit}
            result = await runtime.call("order", {"number": 7, "amount": 50}, inject=inject)
            again = ", repeated" if result.replayed else ""
            print(f"{result.value}{again}" if result.ok else f"{tenant}: {result.failure.code}")


asyncio.run(main())
