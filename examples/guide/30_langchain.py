"""A LangChain agent whose tools run under handrail: a person approves, and the payment is made once."""

from langchain.agents import create_agent
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.types import Command

import handrail as hr
from handrail_frameworks.bench.on_langchain import ScriptedChat
from handrail_frameworks.bench.scenarios import ScriptedTurn
from handrail_frameworks.langchain import HandrailMiddleware

paid: list[int] = []


@hr.tool(effect="write", approve="amount > 100")
def pay(order: str, amount: int) -> str:
    """Pay for an order."""
    paid.append(amount)
    return f"paid {amount}"


# What a model would write: two calls of one payment, and an answer.
CALL = '{"order": "A-1", "amount": 900}'
SCRIPT = [
    ScriptedTurn(calls=[("call_1", "pay", CALL)]),
    ScriptedTurn(calls=[("call_2", "pay", CALL)]),
    ScriptedTurn(text="The order is paid.", finish="stop"),
]
runtime = hr.Runtime([pay])  # in a service: store="postgresql://..."
model = ScriptedChat(script=SCRIPT)
agent = create_agent(model, middleware=[HandrailMiddleware(runtime)], checkpointer=InMemorySaver())
thread = {"configurable": {"thread_id": "ticket-881"}}

state = agent.invoke({"messages": [("user", "Pay order A-1.")]}, thread)
print("asks:", state["__interrupt__"][0].value["action_requests"])
state = agent.invoke(Command(resume={"decisions": [{"type": "approve", "by": "anna"}]}), thread)
for message in state["messages"][1:]:
    print(f"{message.type}: {message.content}")
print("payments:", len(paid))
runtime.blocking.close()
