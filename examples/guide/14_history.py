"""A conversation that a provider would refuse: it was cut off between a call and its result."""

import asyncio

import handrail as hr
from handrail.events import Event, HistoryMended
from handrail.testing import ScriptedModel


@hr.tool(effect="write", key="refund:{order_id}", timeout_s=5)
async def refund(order_id: str) -> str:
    """Pay an order back."""
    return "paid"


LOST = [  # in the chat form, as another program saved it before it was killed
    {"role": "user", "content": "Refund order A-1."},
    {"role": "assistant", "tool_calls": [{"id": "c1", "function": {"name": "refund", "arguments": "{}"}}]},
    {"role": "user", "content": "Did you?"},
]


def print_event(event: Event) -> None:
    """Print what was mended."""
    if isinstance(event, HistoryMended):
        print(*event.notes, sep="\n")


async def main() -> None:
    model = ScriptedModel(["I do not know yet; I shall look it up."])
    async with hr.Runtime([refund], observers=[print_event]) as runtime:
        await runtime.run(LOST, model=model)
    (result,) = [each.result for each in model.requests[0].messages if isinstance(each, hr.ToolMessage)]
    print(result.text)


asyncio.run(main())
