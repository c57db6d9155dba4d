"""Rows of the Hermes models: `conversations` of `from` and `value`, with calls and results in tags."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from itertools import groupby
from typing import Any, Final

from handrail.errors import ConfigError, Json
from handrail.messages import (
    AssistantMessage,
    Message,
    SystemMessage,
    ToolMessage,
    Turn,
    UserMessage,
)
from handrail.ports import Described
from handrail_openmodels.prompts.hermes import DIALECTS
from handrail_openmodels.prompts.reader import read_answer, write_answer
from handrail_openmodels.prompts.syntaxes import SYNTAXES
from handrail_openmodels.training.examples import ConversationBuilder, Example, Function
from handrail_openmodels.training.texts import (
    dump,
    forbid_images,
    read_functions,
    wrap_functions,
)

_SPEAKERS: Final[Mapping[type[Message], str]] = {
    SystemMessage: "system",
    UserMessage: "human",
    AssistantMessage: "gpt",
    ToolMessage: "tool",
}
_JOINED: Final[Mapping[type[Message], str]] = {UserMessage: "\n\n", ToolMessage: "\n"}
"""What stands between adjacent messages of a kind whose texts are one entry."""

_HERMES = SYNTAXES["hermes"]
_SYSTEM = re.compile(r"<\|im_start\|>system\n(.*?)<\|im_end\|>", re.DOTALL)
_RESPONSE = re.compile(r"<tool_response>\n(.*?)\n</tool_response>(?:\n|\Z)", re.DOTALL)


def write_hermes(example: Example) -> dict[str, Json]:
    """Return the row of the Hermes models: calls in <tool_call> tags, results in <tool_response> tags."""
    forbid_images(example.messages)
    entries: list[Json] = []
    if example.tools:
        entries.append({"from": "system", "value": _describe_tools(example.tools)})
    for kind, adjacent in groupby(example.messages, type):
        values = [_write_message(message) for message in adjacent]
        if kind in _JOINED:
            values = [_JOINED[kind].join(values)]
        entries += [{"from": _SPEAKERS[kind], "value": value} for value in values]
    row: dict[str, Json] = {"conversations": entries}
    if example.tools:
        row["tools"] = dump(wrap_functions(example.tools))
    return row


def _write_message(message: Message) -> str:
    match message:
        case SystemMessage(text=text) | UserMessage(text=text):
            return text
        case ToolMessage(result=result):
            return f"<tool_response>\n{result.text}\n</tool_response>"
        case AssistantMessage(turn=turn):
            return _write_answer(turn)


def _describe_tools(functions: Sequence[Function]) -> str:
    tools = [
        Described(
            str(each.get("name")),
            str(each.get("description") or ""),
            dict(each.get("parameters") or {"type": "object", "properties": {}}),
        )
        for each in functions
    ]
    prompt = DIALECTS["hermes-2-pro"].encode_request([UserMessage("")], tools)
    found = _SYSTEM.search(prompt)
    return found[1] if found else ""


def _write_answer(turn: Turn) -> str:
    text = turn.text or turn.refusal
    if text and turn.calls and not text.endswith("\n"):
        text += "\n"
    return write_answer(_HERMES, Turn(text, reasoning=turn.reasoning, calls=turn.calls))


def read_hermes(row: Mapping[str, Any]) -> Example:
    """Return the example of such a row."""
    made = ConversationBuilder()
    tools = read_functions(row.get("tools"))
    for number, entry in enumerate(row["conversations"]):
        value = entry.get("value") or ""
        match entry.get("from"):
            case "system" if not number and tools and "<tools>" in value:
                continue
            case "system":
                made.add(SystemMessage(value))
            case "human" | "user":
                made.add(UserMessage(value))
            case "gpt" | "assistant":
                turn = read_answer(_HERMES, value)
                calls = [(call.name, call.arguments) for call in turn.calls]
                made.answer(turn.text, calls, turn.reasoning)
            case "tool":
                for text in _RESPONSE.findall(value) or [value]:
                    made.result(text)
            case speaker:
                raise ConfigError(
                    f"a conversation of this form has no speaker {speaker!r}"
                )
    return Example(made.messages, tools)
