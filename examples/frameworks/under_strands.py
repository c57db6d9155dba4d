"""An agent of Strands whose tools run under handrail: it is interrupted, and goes on when a person has answered."""

import asyncio
from tempfile import TemporaryDirectory

from strands import Agent
from strands.session.file_session_manager import FileSessionManager

import handrail as hr
from handrail_frameworks.bench.on_strands import ScriptedStrandsModel
from handrail_frameworks.bench.scenarios import ScriptedTurn
from handrail_frameworks.strands import as_tools


@hr.tool(effect="write", approve="amount > 100")
def pay(order: str, amount: int) -> str:
    """Pay for an order."""
    return f"paid {amount}"


SCRIPT = [
    ScriptedTurn(calls=[("call_1", "pay", '{"order": "A-1", "amount": 900}')]),
    ScriptedTurn(text="It is paid.", finish="stop"),
]


async def main(folder: str) -> None:
    async with hr.Runtime([pay], store=f"sqlite:///{folder}/handrail.db") as runtime:
        agent = Agent(
            model=ScriptedStrandsModel(SCRIPT),
            tools=as_tools(runtime),
            session_manager=FileSessionManager("ticket-881", storage_dir=folder),
            callback_handler=None,
        )
        waiting = await agent.invoke_async("Pay order A-1.")
        [interrupt] = waiting.interrupts
        shown = interrupt.reason
        print("asks:", shown["tool"], shown["arguments"], "because", shown["reason"])

        word = {"approved": True, "by": "anna", "arguments": {"order": "A-1", "amount": 500}}  # less than was asked for
        answer = {"interruptResponse": {"interruptId": interrupt.id, "response": word}}
        result = await agent.invoke_async([answer])
        texts = [part["toolResult"]["content"][0]["text"] for m in agent.messages for part in m["content"]
                 if "toolResult" in part]  # fmt: skip
        print(texts, result.stop_reason)


with TemporaryDirectory() as folder:
    asyncio.run(main(folder))
