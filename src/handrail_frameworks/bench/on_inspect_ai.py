"""The scenarios on Inspect: an evaluation of one sample, which is run again where others resume."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from functools import wraps
from typing import Any

from inspect_ai import Task, eval
from inspect_ai.dataset import Sample
from inspect_ai.model import (
    ChatMessageAssistant,
    ChatMessageTool,
    ModelOutput,
    ModelUsage,
    get_model,
)
from inspect_ai.model import Model as InspectModel
from inspect_ai.solver import generate, use_tools
from inspect_ai.tool import Tool, ToolCall, ToolDef

from handrail_frameworks.bench.asking import answer_question
from handrail_frameworks.bench.play import Case
from handrail_frameworks.bench.scenarios import ScriptedTurn, Talk, turn_after

MOST_MESSAGES = 60
STOPS: dict[str, Any] = {"calls": "tool_calls", "stop": "stop", "length": "max_tokens"}


def scripted_model(script: Sequence[ScriptedTurn]) -> InspectModel:
    """Return a model that answers with the turns of a script."""

    def answer(messages: Sequence[Any], *_: Any) -> ModelOutput:
        ids = [
            call.id
            for message in messages
            if isinstance(message, ChatMessageAssistant)
            for call in message.tool_calls or ()
        ]
        return _as_output(turn_after(script, ids))

    return get_model("mockllm/model", custom_outputs=answer, memoize=False)


def _as_output(turn: ScriptedTurn) -> ModelOutput:
    output = ModelOutput.from_content(
        "mockllm", turn.text, stop_reason=STOPS[turn.finish]
    )
    calls = [_as_call(*call) for call in turn.calls]
    output.choices[0].message.tool_calls = calls or None
    output.usage = ModelUsage()  # else Inspect counts tokens, with a file from the net
    return output


def _as_call(id: str, name: str, text: str) -> ToolCall:
    """Return a call as the models of Inspect do: what is no JSON is an error of parsing."""
    try:
        return ToolCall(id, name, json.loads(text))
    except ValueError as error:
        reason = f"Error parsing the following tool call arguments: {text}: {error}"
        return ToolCall(id, name, {}, parse_error=reason)


def play(case: Case) -> Talk:
    """Carry out a step."""
    runtime = None
    if case.how == "handrail":
        from handrail_frameworks.inspect_ai import as_tools

        runtime = case.make_runtime()
        answer_question(case, runtime)
        tools = as_tools(runtime, run=case.run)
    else:
        tools = [_as_plain_tool(fn, text) for fn, text in case.functions()]
    task = Task(
        dataset=[Sample("Do it.")],
        solver=[use_tools(tools), generate()],
        message_limit=MOST_MESSAGES,
    )
    (log,) = eval(
        task,
        model=scripted_model(case.scenario.script),
        log_dir=str(case.folder / "logs"),
        display="none",
    )
    if runtime is not None:
        runtime.blocking.close()
    sample = log.samples[0]
    return Talk(
        texts=[_text(each) for each in sample.messages if each.role == "tool"],
        error=sample.error.message.partition("(")[0] if sample.error else "",
        turns=sum(each.role == "assistant" for each in sample.messages),
    )


def _as_plain_tool(fn: Callable[..., Any], description: str) -> Tool:
    @wraps(fn)
    async def call(**arguments: Any) -> Any:
        return fn(**arguments)

    return ToolDef(call, name=fn.__name__, description=description).as_tool()


def _text(message: ChatMessageTool) -> str:
    return str(message.error.message if message.error else message.text)
