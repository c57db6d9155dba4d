"""Rows that are lists of messages with roles: conversations for `openai`, pairs for `preference`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from handrail.calls import ToolResult
from handrail.dialects.wires import openai_chat
from handrail.errors import ConfigError, Json
from handrail.messages import (
    AssistantMessage,
    Message,
    SystemMessage,
    ToolMessage,
    Turn,
    UserMessage,
    conversation_of,
)
from handrail_openmodels.training.examples import (
    ConversationBuilder,
    Example,
    Function,
    Pair,
)
from handrail_openmodels.training.texts import (
    forbid_images,
    load_arguments,
    read_call_object,
    read_functions,
    wrap_functions,
)

Row = dict[str, Json]


def _tools_column(functions: Sequence[Function]) -> Row:
    return {"tools": wrap_functions(functions)} if functions else {}


# ---------------------------------------------------------------------- openai


def write_openai(example: Example) -> Row:
    """Return the row of OpenAI's fine-tuning: the chat form, arguments as text, `weight` 0 on masked answers."""
    body = openai_chat.DIALECT.encode_request(example.messages)
    messages = list(body["messages"])
    places = [at for at, each in enumerate(messages) if each["role"] == "assistant"]
    for number, place in enumerate(places):
        if number in example.masked:
            messages[place] = {**messages[place], "weight": 0}
    row: Row = {"messages": messages, **_tools_column(example.tools)}
    if example.tools and example.parallel is not None:
        row["parallel_tool_calls"] = example.parallel
    return row


def read_openai(row: Mapping[str, Any]) -> Example:
    """Return the example of such a row."""
    entries = row["messages"]
    messages = conversation_of(entries)
    names = {
        call.id: call.name
        for message in messages
        if isinstance(message, AssistantMessage)
        for call in message.turn.calls
    }
    named: list[Message] = [
        ToolMessage(_name_result(message.result, names))
        if isinstance(message, ToolMessage)
        else message
        for message in messages
    ]
    weights = [
        each.get("weight", 1) for each in entries if each.get("role") == "assistant"
    ]
    return Example(
        named,
        read_functions(row.get("tools")),
        frozenset(number for number, weight in enumerate(weights) if not weight),
        row.get("parallel_tool_calls"),
    )


def _name_result(result: ToolResult, names: Mapping[str, str]) -> ToolResult:
    return ToolResult(
        result.call_id,
        result.name or names.get(result.call_id, ""),
        value=result.text,
        text=result.text,
    )


# ---------------------------------------------------------------------- preference


def write_preference(pair: Pair) -> Row:
    """Return the row of a preference set of TRL: arguments are objects, results have names and no ids."""
    return {
        "prompt": _write_messages(pair.prompt),
        "chosen": _write_messages(pair.chosen),
        "rejected": _write_messages(pair.rejected),
        **_tools_column(pair.tools),
    }


def _write_messages(messages: Sequence[Message]) -> list[Json]:
    forbid_images(messages)
    return [_write_message(message) for message in messages]


def _write_message(message: Message) -> Row:
    match message:
        case SystemMessage(text=text):
            return {"role": "system", "content": text}
        case UserMessage(text=text):
            return {"role": "user", "content": text}
        case AssistantMessage(turn=turn):
            return _write_answer(turn)
        case ToolMessage(result=result):
            return {"role": "tool", "name": result.name, "content": result.text}


def _write_answer(turn: Turn) -> Row:
    answer: Row = {"role": "assistant"}
    if turn.text or turn.refusal or not turn.calls:
        answer["content"] = turn.text or turn.refusal
    if turn.reasoning:
        answer["reasoning_content"] = turn.reasoning
    if turn.calls:
        answer["tool_calls"] = [
            {
                "type": "function",
                "function": {"name": call.name, "arguments": load_arguments(call)},
            }
            for call in turn.calls
        ]
    return answer


def read_preference(row: Mapping[str, Any]) -> Pair:
    """Return the pair of such a row."""
    prompt, chosen, rejected = (
        _read_messages(row[name]) for name in ("prompt", "chosen", "rejected")
    )
    return Pair(prompt, chosen, rejected, read_functions(row.get("tools")))


def _read_messages(entries: Sequence[Any]) -> list[Message]:
    made = ConversationBuilder()
    for entry in entries:
        content = entry.get("content") or ""
        match entry.get("role"):
            case "system":
                made.add(SystemMessage(content))
            case "user":
                made.add(UserMessage(content))
            case "assistant":
                calls = [
                    read_call_object(each.get("function", each))
                    for each in entry.get("tool_calls") or ()
                ]
                made.answer(content, calls, entry.get("reasoning_content") or "")
            case "tool":
                made.result(content, entry.get("name") or "")
            case role:
                raise ConfigError(f"a message of this form has no role {role!r}")
    return made.messages
