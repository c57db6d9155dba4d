"""The scenarios on Google's ADK: an app whose invocations can be resumed, with its sessions in SQLite."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator, Sequence
from typing import Any

from google.adk.agents import LlmAgent
from google.adk.apps.app import App, ResumabilityConfig
from google.adk.errors.already_exists_error import AlreadyExistsError
from google.adk.models import BaseLlm, LlmRequest, LlmResponse
from google.adk.runners import Runner
from google.adk.sessions import Session
from google.adk.sessions.sqlite_session_service import SqliteSessionService
from google.adk.tools.function_tool import FunctionTool
from google.genai import types

from handrail.runtime import Runtime
from handrail_frameworks.bench.play import Case
from handrail_frameworks.bench.scenarios import EDITED, ScriptedTurn, Talk, turn_after

CONFIRMATION = "adk_request_confirmation"
USER = "anna"


class ScriptedLlm(BaseLlm):
    """Answers with the turns of a script."""

    script: Sequence[ScriptedTurn]
    turns: int = 0

    async def generate_content_async(
        self, llm_request: LlmRequest, stream: bool = False
    ) -> AsyncGenerator[LlmResponse, None]:
        """Yield the turn after those in the request."""
        ids = [
            str(part.function_call.id)
            for content in llm_request.contents
            for part in content.parts or ()
            if part.function_call
        ]
        self.turns += 1
        yield _as_response(turn_after(self.script, ids))


def _as_response(turn: ScriptedTurn) -> LlmResponse:
    parts = [
        types.Part(
            function_call=types.FunctionCall(id=id, name=name, args=_parse(text))
        )
        for id, name, text in turn.calls
    ]
    is_cut = turn.finish == "length"
    reason = types.FinishReason.MAX_TOKENS if is_cut else types.FinishReason.STOP
    content = types.Content(role="model", parts=parts or [types.Part(text=turn.text)])
    return LlmResponse(content=content, finish_reason=reason)


def _parse(text: str) -> dict[str, Any]:
    """Return arguments as ADK's models for other providers do: what is no JSON is no arguments."""
    try:
        arguments: dict[str, Any] = json.loads(text)
    except ValueError:
        return {}
    return arguments


def play(case: Case) -> Talk:
    """Carry out a step."""
    return asyncio.run(_play(case))


async def _play(case: Case) -> Talk:
    model = ScriptedLlm(model="scripted", script=case.scenario.script)
    tools, runtime = _make_tools(case)
    app = App(
        name="shop",
        root_agent=LlmAgent(name="shop", model=model, tools=tools),
        resumability_config=ResumabilityConfig(is_resumable=True),
    )
    sessions = SqliteSessionService(str(case.folder / "adk.db"))
    runner = Runner(app=app, session_service=sessions)
    key: dict[str, Any] = {"app_name": "shop", "user_id": USER, "session_id": case.run}
    session = await _open_session(sessions, key)
    error = ""
    try:
        given = await _input(case, session, runtime)
        async for _ in runner.run_async(user_id=USER, session_id=case.run, **given):
            pass
    except Exception as failure:
        error = type(failure).__name__
    finally:
        if runtime is not None:
            await runtime.close()
    session = await sessions.get_session(**key)
    return _as_talk(session, model.turns, error)


async def _open_session(service: SqliteSessionService, key: dict[str, Any]) -> Session:
    if (session := await service.get_session(**key)) is not None:
        return session
    try:
        return await service.create_session(**key)
    except AlreadyExistsError:  # another worker was quicker
        return await _open_session(service, key)


async def _input(case: Case, session: Session, runtime: Runtime | None) -> Any:
    if case.step.word:
        answer = await _decide(case, session, runtime)
        return {
            "new_message": types.Content(role="user", parts=[answer]),
            "invocation_id": session.events[-1].invocation_id,
        }
    if case.step.resumes and session.events:
        return {"invocation_id": session.events[-1].invocation_id}
    text = types.Part(text="Do it.")
    return {"new_message": types.Content(role="user", parts=[text])}


async def _decide(case: Case, session: Session, runtime: Runtime | None) -> types.Part:
    """Return a person's word on the call that waits, as a client of ADK sends it."""
    (asked,) = [
        call
        for event in session.events
        for call in event.get_function_calls()
        if call.name == CONFIRMATION
    ]
    answer: dict[str, Any] = {"confirmed": case.step.word != "deny"}
    if case.step.word == "deny":
        answer["payload"] = {"reason": "That is too much."}
    elif case.step.word == "edit":
        answer["payload"] = {"arguments": EDITED}
    reply = types.FunctionResponse(id=asked.id, name=CONFIRMATION, response=answer)
    return types.Part(function_response=reply)


def _make_tools(case: Case) -> tuple[list[Any], Runtime | None]:
    if case.how == "handrail":
        from handrail_frameworks.adk import HandrailBaseToolset

        runtime = case.make_runtime()
        return [HandrailBaseToolset(runtime)], runtime
    tools: list[FunctionTool] = []
    for fn, description in case.functions():
        asks = fn.__name__ in case.scenario.asks
        tool = FunctionTool(fn, require_confirmation=asks)
        tool.description = description
        tools.append(tool)
    return tools, None


def _as_talk(session: Session | None, turns: int, error: str) -> Talk:
    events = session.events if session else []
    replies = [reply for event in events for reply in event.get_function_responses()]
    asked = [
        call.id
        for event in events
        for call in event.get_function_calls()
        if call.name == CONFIRMATION
    ]
    answered = {reply.id for reply in replies if reply.name == CONFIRMATION}
    return Talk(
        texts=[
            json.dumps(each.response) for each in replies if each.name != CONFIRMATION
        ],
        waits=any(id not in answered for id in asked),
        turns=turns,
        error=error,
    )
