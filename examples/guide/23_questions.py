"""A service asks people: a question in the result, a preview for its buttons, a word that comes back with the call."""

import asyncio

import handrail as hr


@hr.tool(effect="write", key="refund:{order_id}", approve="amount > 100", timeout_s=5)
def refund(order_id: str, amount: float) -> str:
    """Pay a part of an order back, once."""
    return f"{amount:g} paid back"


def tell(question: hr.ApprovalRequest) -> None:
    print("to the team:", question.tool, dict(question.arguments), "|", question.reason)


async def main() -> None:
    async with hr.Runtime([refund], notify=tell) as runtime:
        call = hr.ToolCall("c1", "refund", '{"order_id": "A-2", "amount": 180}')
        small = await runtime.preview("refund", {"order_id": "A-1", "amount": 20}, run="chat-7")
        print("20 would", small.decision)
        # the model's call waits, and its result holds the question
        [waiting] = await runtime.calls([call], run="chat-7")
        print(waiting.question.id if waiting.question else "", [each.tool for each in await runtime.approvals.list()])
        # somebody presses a button in the application, and the call is made again with the word
        word = hr.Approval(True, by="anna", arguments={"order_id": "A-2", "amount": 150})
        [done] = await runtime.calls([call], run="chat-7", words={"c1": word})
        print(done.text)

        # a word is for what was shown: other arguments are asked about again
        other = hr.ToolCall("c2", "refund", '{"order_id": "A-3", "amount": 900}')
        [asked] = await runtime.calls([other], run="chat-7", words={"c2": word})
        assert asked.question is not None
        await runtime.approvals.deny(asked.question.id, by="ben", reason="too much")
        [denied] = await runtime.calls([other], run="chat-7")
        print(denied.failure.message if denied.failure else "")


asyncio.run(main())
