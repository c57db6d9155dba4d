"""A rule that no file can say: a policy of one's own, with a field, that decides before the others do."""

import asyncio
from collections.abc import Mapping

import handrail as hr
from handrail.core.policy import Decision, Verdict
from handrail.errors import Json


class DeskPolicy(hr.Policy, frozen=True):
    """What a support agent may do for one customer; `customer` comes from the session, not from the model."""

    customer: str = ""

    def judge(self, tool: hr.BaseTool, arguments: Mapping[str, Json]) -> Verdict:
        if tool.writes and arguments.get("customer") != self.customer:
            return Verdict(Decision.DENY, tool.effective_risk, f"this conversation is with {self.customer}")
        return super().judge(tool, arguments)


@hr.tool(effect="write", key="credit:{customer}", approve="amount > 50", timeout_s=5)
async def credit(customer: str, amount: float) -> str:
    """Give a customer a credit note."""
    return f"{amount:g} for {customer}"


async def main() -> None:
    async with hr.Runtime([credit], policy=DeskPolicy(customer="ann")) as runtime:
        for arguments in ({"customer": "ben", "amount": 5}, {"customer": "ann", "amount": 5}):
            result = await runtime.call("credit", arguments)
            print(result.value if result.ok else f"{result.failure.code}: {result.failure.message}")


asyncio.run(main())
