"""A pydantic-ai agent whose tools run under handrail: one is handrail's, one is its own, declared in a line."""

from pydantic_ai import Agent, DeferredToolRequests, DeferredToolResults
from pydantic_ai.messages import ModelResponse, TextPart, ToolCallPart
from pydantic_ai.models.function import FunctionModel
from pydantic_ai.toolsets import FunctionToolset

import handrail as hr
from handrail_frameworks.pydantic_ai import HandrailToolset


@hr.tool(effect="write", approve="amount > 100")
def pay(order: str, amount: int) -> str:
    """Pay for an order."""
    return f"paid {amount}"


def note(text: str) -> str:
    """Write a note."""
    return "noted"


PAY = ToolCallPart("pay", '{"order": "A-1", "amount": 900}', "call_1")
NOTE = ToolCallPart("note", "{'text': 'is paid',}", "call_2")  # not quite JSON, as models write it
ANSWERS = [ModelResponse([PAY, NOTE]), ModelResponse([TextPart("Done.")])]
runtime = hr.Runtime([pay])
toolset = HandrailToolset(
    runtime, wrapped=FunctionToolset([note]), declare={"note": {"effect": "write", "key": "note:{text}"}}
)
agent = Agent(FunctionModel(lambda *_: ANSWERS.pop(0)), toolsets=[toolset], output_type=[str, DeferredToolRequests])

waiting = agent.run_sync("Pay order A-1.", conversation_id="ticket-881")
question = waiting.output.metadata["call_1"]
print("asks:", question["tool"], question["arguments"], "because", question["reason"])
word = DeferredToolResults(approvals={"call_1": True}, metadata={"call_1": {"by": "anna"}})
result = agent.run_sync(message_history=waiting.all_messages(), deferred_tool_results=word)
print([part.content for message in result.all_messages() for part in message.parts if part.part_kind == "tool-return"])
