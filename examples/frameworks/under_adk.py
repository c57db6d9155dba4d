"""An agent of Google's ADK whose tools run under handrail: the confirmation is bound to what was shown."""

import asyncio

from google.adk.agents import LlmAgent
from google.adk.runners import InMemoryRunner
from google.genai import types

import handrail as hr
from handrail_frameworks.adk import HandrailBaseToolset
from handrail_frameworks.bench.on_adk import CONFIRMATION, ScriptedLlm
from handrail_frameworks.bench.scenarios import ScriptedTurn


@hr.tool(effect="write", approve="amount > 100")
def pay(order: str, amount: int) -> str:
    """Pay for an order."""
    return f"paid {amount}"


SCRIPT = [ScriptedTurn(calls=[("call_1", "pay", '{"order": "A-1", "amount": 900}')]), ScriptedTurn(text="It is paid.")]


async def main() -> None:
    async with hr.Runtime([pay]) as runtime:
        model = ScriptedLlm(model="scripted", script=SCRIPT)
        agent = LlmAgent(name="shop", model=model, tools=[HandrailBaseToolset(runtime)])
        runner = InMemoryRunner(agent=agent, app_name="shop")
        await runner.session_service.create_session(app_name="shop", user_id="anna", session_id="ticket-881")

        async def say(part: types.Part) -> list:
            message = types.Content(role="user", parts=[part])
            return [e async for e in runner.run_async(user_id="anna", session_id="ticket-881", new_message=message)]

        events = await say(types.Part(text="Pay order A-1."))
        [asked] = [call for event in events for call in event.get_function_calls() if call.name == CONFIRMATION]
        question = asked.args["toolConfirmation"]["payload"]
        print("asks:", question["tool"], question["arguments"], "because", question["reason"])

        # The word counts for this question only.
        word = {"confirmed": True, "payload": {"question": question["question"], "by": "anna"}}
        answer = types.FunctionResponse(id=asked.id, name=CONFIRMATION, response=word)
        for event in await say(types.Part(function_response=answer)):
            print([reply.response for reply in event.get_function_responses()] or event.content.parts[0].text)


asyncio.run(main())
