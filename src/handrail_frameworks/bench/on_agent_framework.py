"""The scenarios on Microsoft's Agent Framework; a session is saved as JSON after each run, as its application does."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from typing import Any

from agent_framework import (
    Agent,
    AgentSession,
    BaseChatClient,
    ChatResponse,
    Content,
    FunctionInvocationLayer,
    Message,
    tool,
)

from handrail.runtime import Runtime
from handrail_frameworks.bench.play import Case
from handrail_frameworks.bench.scenarios import EDITED, ScriptedTurn, Talk, turn_after

FINISH: dict[str, Any] = {"calls": "tool_calls", "stop": "stop", "length": "length"}


class ScriptedChatClient(FunctionInvocationLayer, BaseChatClient):
    """Answers with the turns of a script."""

    def __init__(self, script: Sequence[ScriptedTurn]) -> None:
        super().__init__()
        self.script = script
        self.turns = 0
        self.messages: Sequence[Message] = ()

    def _inner_get_response(
        self, *, messages: Sequence[Message], stream: bool, options: Any, **_: Any
    ) -> Any:
        async def answer() -> ChatResponse:
            self.turns += 1
            self.messages = messages
            calls = _contents(messages, "function_call")
            turn = turn_after(self.script, [str(each.call_id) for each in calls])
            contents = [
                Content.from_function_call(id, name, arguments=text)
                for id, name, text in turn.calls
            ]
            message = Message(
                role="assistant", contents=contents or [Content.from_text(turn.text)]
            )
            return ChatResponse(messages=[message], finish_reason=FINISH[turn.finish])

        return answer()


def play(case: Case) -> Talk:
    """Carry out a step."""
    return asyncio.run(_play(case))


async def _play(case: Case) -> Talk:
    client = ScriptedChatClient(case.scenario.script)
    agent, runtime = _make_agent(case, client)
    file = case.folder / "session.json"
    session = AgentSession(session_id=case.run)
    requests: list[Content] = []
    if file.exists():
        saved = json.loads(file.read_text())
        session = AgentSession.from_dict(saved["session"])
        requests = [Content.from_dict(each) for each in saved["requests"]]
    error = ""
    try:
        given = await _input(case, requests, runtime)
        response = await agent.run(given, session=session)
        requests = list(response.user_input_requests)
        shown = [each.to_dict() for each in requests]
        saved = {"session": session.to_dict(), "requests": shown}
        file.write_text(json.dumps(saved))
        messages = [*client.messages, *response.messages]
    except Exception as failure:
        error = type(failure).__name__
        messages = [*client.messages]
    finally:
        if runtime is not None:
            await runtime.close()
    results = _contents(messages, "function_result")
    texts = [f"{each.result} {each.exception or ''}" for each in results]
    waits = bool(requests)
    return Talk(texts=texts, waits=waits, turns=client.turns, error=error)


async def _input(case: Case, requests: list[Content], runtime: Runtime | None) -> Any:
    if not case.step.word:
        return "Do it."
    (asked,) = requests
    if case.step.word == "edit" and runtime is not None:
        (question,) = await runtime.approvals.list()
        await runtime.approvals.edit(question.id, EDITED, by="anna")
    answer = asked.to_function_approval_response(case.step.word != "deny")
    return Message(role="user", contents=[answer])


def _make_agent(
    case: Case, client: ScriptedChatClient
) -> tuple[Agent[Any], Runtime | None]:
    if case.how == "handrail":
        from handrail_frameworks.agent_framework import HandrailFunctionMiddleware

        runtime = case.make_runtime()
        handrail = HandrailFunctionMiddleware(runtime)
        return Agent(
            client=client, tools=handrail.tools, middleware=[handrail]
        ), runtime
    tools = [
        tool(
            fn,
            description=description,
            approval_mode="always_require"
            if fn.__name__ in case.scenario.asks
            else "never_require",
        )
        for fn, description in case.functions()
    ]
    return Agent(client=client, tools=tools), None


def _contents(messages: Sequence[Message], kind: str) -> list[Content]:
    return [
        content
        for message in messages
        for content in message.contents
        if content.type == kind
    ]
