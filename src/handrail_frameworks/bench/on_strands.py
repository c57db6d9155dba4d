"""The scenarios on Strands Agents, which stores its sessions in files."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterable, Sequence
from typing import Any

from strands import Agent, tool
from strands.hooks import BeforeToolCallEvent, HookProvider, HookRegistry
from strands.models.model import Model
from strands.session.file_session_manager import FileSessionManager

from handrail.errors import ConfigError
from handrail.runtime import Runtime
from handrail_frameworks.bench.play import Case
from handrail_frameworks.bench.scenarios import EDITED, ScriptedTurn, Talk, turn_after

WORDS: dict[str, Any] = {
    "approve": True,
    "deny": {"approved": False, "reason": "That is too much."},
    "edit": {"approved": True, "arguments": EDITED},
}
STOPS = {"calls": "tool_use", "stop": "end_turn", "length": "max_tokens"}


class ScriptedStrandsModel(Model):
    """Answers with the turns of a script."""

    def __init__(self, script: Sequence[ScriptedTurn]) -> None:
        self.script = script
        self.turns = 0

    def update_config(self, **_: Any) -> None:
        """Change nothing."""

    def get_config(self) -> dict[str, Any]:
        """Return no settings."""
        return {}

    def structured_output(self, *_: Any, **__: Any) -> AsyncGenerator[Any, None]:
        """Refuse: the scenarios ask for no form."""
        raise ConfigError("a scripted model gives no answer of a given form")

    async def stream(self, messages: Any, *_: Any, **__: Any) -> AsyncIterable[Any]:
        """Yield the turn after those in the messages."""
        ids = [use["toolUseId"] for use in _parts(messages, "toolUse")]
        turn = turn_after(self.script, ids)
        self.turns += 1
        yield {"messageStart": {"role": "assistant"}}
        if not turn.calls:
            yield {"contentBlockStart": {"start": {}}}
            yield {"contentBlockDelta": {"delta": {"text": turn.text}}}
            yield {"contentBlockStop": {}}
        for id, name, text in turn.calls:
            start = {"toolUse": {"name": name, "toolUseId": id}}
            yield {"contentBlockStart": {"start": start}}
            yield {"contentBlockDelta": {"delta": {"toolUse": {"input": text}}}}
            yield {"contentBlockStop": {}}
        yield {"messageStop": {"stopReason": STOPS[turn.finish]}}


class AskFirst(HookProvider):
    """Asks a person before some tools, as the documentation of Strands shows."""

    def __init__(self, names: Sequence[str]) -> None:
        self._names = names

    def register_hooks(self, registry: HookRegistry, **_: Any) -> None:
        """Listen to the calls of tools."""
        registry.add_callback(BeforeToolCallEvent, self._ask)

    def _ask(self, event: BeforeToolCallEvent) -> None:
        if event.tool_use["name"] not in self._names:
            return
        answer = event.interrupt("approval", reason=event.tool_use["input"])
        if answer is True:
            return
        if answer["approved"]:
            event.tool_use["input"] = answer["arguments"]
        else:
            event.cancel_tool = answer["reason"]


def play(case: Case) -> Talk:
    """Carry out a step."""
    return asyncio.run(_play(case))


async def _play(case: Case) -> Talk:
    model = ScriptedStrandsModel(case.scenario.script)
    tools, runtime = _make_tools(case)
    agent = Agent(
        model=model,
        tools=tools,
        hooks=[] if runtime else [AskFirst(case.scenario.asks)],
        session_manager=FileSessionManager(case.run, storage_dir=str(case.folder)),
        callback_handler=None,
    )
    error = ""
    waits = False
    try:
        result = await agent.invoke_async(_input(case, agent))
        waits = result.stop_reason == "interrupt"
    except Exception as failure:
        error = type(failure).__name__
    finally:
        if runtime is not None:
            await runtime.close()
    texts = [
        part.get("text", "")
        for result in _parts(agent.messages, "toolResult")
        for part in result["content"]
    ]
    return Talk(texts=texts, waits=waits, turns=model.turns, error=error)


def _input(case: Case, agent: Agent) -> Any:
    if not case.step.word:
        return "Do it."
    return [
        {"interruptResponse": {"interruptId": id, "response": WORDS[case.step.word]}}
        for id in agent._interrupt_state.interrupts  # a new process finds them nowhere else
    ]


def _make_tools(case: Case) -> tuple[list[Any], Runtime | None]:
    if case.how == "handrail":
        from handrail_frameworks.strands import as_tools

        runtime = case.make_runtime()
        return list(as_tools(runtime)), runtime
    return [
        tool(description=description)(fn) for fn, description in case.functions()
    ], None


def _parts(messages: Any, kind: str) -> list[Any]:
    return [
        part[kind]
        for message in messages
        for part in message["content"]
        if kind in part
    ]
