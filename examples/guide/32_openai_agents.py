"""An agent of the OpenAI Agents SDK whose tools run under handrail: it waits as JSON, and its approval is bound."""

import asyncio
import json

from agents import Agent, RunConfig, Runner, RunState

import handrail as hr
from handrail_frameworks.bench.on_openai_agents import ScriptedAgentsModel
from handrail_frameworks.bench.scenarios import ScriptedTurn
from handrail_frameworks.openai_agents import as_function_tools


@hr.tool(effect="write", approve="amount > 100")
def pay(order: str, amount: int) -> str:
    """Pay for an order."""
    return f"paid {amount}"


SCRIPT = [ScriptedTurn(calls=[("call_1", "pay", '{"order": "A-1", "amount": 900}')]), ScriptedTurn(text="It is paid.")]
CONFIG = RunConfig(tracing_disabled=True)


async def main() -> None:
    async with hr.Runtime([pay]) as runtime:
        # The context of a run says which conversation it belongs to.
        tools = as_function_tools(runtime, run=lambda ctx: ctx.context["thread"])
        agent = Agent(name="shop", model=ScriptedAgentsModel(SCRIPT), tools=tools)
        waiting = await Runner.run(agent, "Pay order A-1.", context={"thread": "ticket-881"}, run_config=CONFIG)
        saved = json.dumps(waiting.to_state().to_json())  # until a person has looked at it

        [question] = await runtime.approvals.list()
        print("asks:", question.tool, dict(question.arguments), "because", question.reason)
        state = await RunState.from_json(agent, json.loads(saved))
        state.approve(state.get_interruptions()[0])
        result = await Runner.run(agent, state, run_config=CONFIG)
        print([item.output for item in result.new_items if item.type == "tool_call_output_item"], result.final_output)


asyncio.run(main())
