"""Rows that are lists of messages with roles: `openai`, `trl`, `swift`, `llamafactory-v1`; pairs for `preference`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from handrail.calls import Media, ToolResult
from handrail.dialects.parts import Attachment
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
    ImagePlaces,
    ImageReader,
    call_object,
    dump,
    find_result_images,
    find_user_images,
    forbid_images,
    load,
    read_call_object,
    read_functions,
    read_image,
    think,
    wrap_functions,
)

Row = dict[str, Json]


def _tools_column(functions: Sequence[Function], *, as_text: bool = False) -> Row:
    if not functions:
        return {}
    wrapped = wrap_functions(functions)
    return {"tools": dump(wrapped) if as_text else wrapped}


def _refuse_role(role: Json) -> ConfigError:
    return ConfigError(f"a message of this form has no role {role!r}")


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


# ---------------------------------------------------------------------- trl


def write_trl(example: Example) -> Row:
    """Return the row of a language-modeling set of TRL: arguments are objects, results have names and no ids."""
    images: list[Json] = []
    messages = [_write_trl(message, images) for message in example.messages]
    row: Row = {"messages": messages, **_tools_column(example.tools)}
    if images:
        row["images"] = images
    return row


def read_trl(row: Mapping[str, Any]) -> Example:
    """Return the example of such a row."""
    messages = _read_trl(row["messages"], iter(row.get("images") or ()))
    return Example(messages, read_functions(row.get("tools")))


def write_preference(pair: Pair) -> Row:
    """Return the row of a preference set of TRL."""
    for part in (pair.prompt, pair.chosen, pair.rejected):
        forbid_images(Example(part))
    return {
        "prompt": [_write_trl(message, []) for message in pair.prompt],
        "chosen": [_write_trl(message, []) for message in pair.chosen],
        "rejected": [_write_trl(message, []) for message in pair.rejected],
        **_tools_column(pair.tools),
    }


def read_preference(row: Mapping[str, Any]) -> Pair:
    """Return the pair of such a row."""
    prompt, chosen, rejected = (
        _read_trl(row[name], iter(())) for name in ("prompt", "chosen", "rejected")
    )
    return Pair(prompt, chosen, rejected, read_functions(row.get("tools")))


def _write_trl(message: Message, images: list[Json]) -> Row:
    match message:
        case SystemMessage(text=text):
            return {"role": "system", "content": text}
        case UserMessage(text=text):
            shown = find_user_images(message)
            return {"role": "user", "content": _content(text, shown, images)}
        case AssistantMessage(turn=turn):
            return _write_trl_answer(turn)
        case ToolMessage(result=result):
            content = _content(result.text, find_result_images(result), images)
            return {"role": "tool", "name": result.name, "content": content}


def _content(text: str, shown: Sequence[Attachment], images: list[Json]) -> Json:
    if not shown:
        return text
    images += [each.link for each in shown]
    return [*({"type": "image"} for _ in shown), {"type": "text", "text": text}]


def _write_trl_answer(turn: Turn) -> Row:
    answer: Row = {"role": "assistant"}
    if turn.text or turn.refusal or not turn.calls:
        answer["content"] = turn.text or turn.refusal
    if turn.reasoning:
        answer["reasoning_content"] = turn.reasoning
    if turn.calls:
        answer["tool_calls"] = [
            {"type": "function", "function": call_object(call)} for call in turn.calls
        ]
    return answer


def _read_trl(entries: Sequence[Any], images: Iterator[str]) -> list[Message]:
    made = ConversationBuilder()
    for entry in entries:
        content = entry.get("content") or ""
        shown: tuple[Media, ...] = ()
        if isinstance(content, list):
            shown = tuple(
                read_image(next(images, ""))
                for part in content
                if part.get("type") == "image"
            )
            content = "".join(part.get("text", "") for part in content)
        match entry.get("role"):
            case "system":
                made.add(SystemMessage(content))
            case "user" if shown:
                words = {"type": "text", "text": content}
                made.add(UserMessage(content, (*shown, words)))
            case "user":
                made.add(UserMessage(content))
            case "assistant":
                calls = [
                    read_call_object(each.get("function", each))
                    for each in entry.get("tool_calls") or ()
                ]
                made.answer(content, calls, entry.get("reasoning_content") or "")
            case "tool":
                made.result(content, entry.get("name") or "", shown)
            case role:
                raise _refuse_role(role)
    return made.messages


# ---------------------------------------------------------------------- swift


def write_swift(example: Example) -> Row:
    """Return the row of ms-swift: calls and results are entries of their own, `loss` is false on masked answers."""
    images = ImagePlaces()
    messages: list[Json] = []
    answers = 0
    for message in example.messages:
        if isinstance(message, AssistantMessage):
            entries = list(_write_swift_answer(message.turn))
            if answers in example.masked:
                entries = [{**entry, "loss": False} for entry in entries]
            messages += entries
            answers += 1
        else:
            messages.append(_write_swift(message, images))
    return {
        **_tools_column(example.tools, as_text=True),
        "messages": messages,
        **images.column(),
    }


def _write_swift(message: Message, images: ImagePlaces) -> Row:
    match message:
        case SystemMessage(text=text):
            return {"role": "system", "content": text}
        case UserMessage(text=text):
            shown = images.place(text, find_user_images(message))
            return {"role": "user", "content": shown}
        case ToolMessage(result=result):
            shown = images.place(result.text, find_result_images(result))
            return {"role": "tool_response", "content": shown}
        case _:
            raise AssertionError("answers are written apart")


def _write_swift_answer(turn: Turn) -> Iterator[Row]:
    text = think(turn.reasoning) + (turn.text or turn.refusal)
    if text or not turn.calls:
        yield {"role": "assistant", "content": text}
    for call in turn.calls:
        yield {"role": "tool_call", "content": dump(call_object(call))}


def read_swift(row: Mapping[str, Any]) -> Example:
    """Return the example of such a row: an answer is an `assistant` and the `tool_call` entries after it."""
    made = ConversationBuilder()
    images = ImageReader(row)
    masked = set()
    for entry in row["messages"]:
        content = entry.get("content") or ""
        match entry.get("role"):
            case "system":
                made.add(SystemMessage(content))
            case "user":
                made.add(images.user(content))
            case "assistant":
                made.answer(content)
            case "tool_call":
                made.call(*read_call_object(load(content, "a call")))
            case "tool_response" | "tool":
                made.result(content, media=images.media(content))
            case role:
                raise _refuse_role(role)
        if entry.get("loss") is False:
            masked.add(len(Example(made.messages).turns) - 1)
    return Example(made.messages, read_functions(row.get("tools")), frozenset(masked))


# ---------------------------------------------------------------------- llamafactory-v1


def write_llamafactory(example: Example) -> Row:
    """Return the row of LLaMA-Factory's newer form: each content is a list of typed values."""
    forbid_images(example)
    return {
        "messages": [_write_typed(message) for message in example.messages],
        **_tools_column(example.tools, as_text=True),
    }


def _write_typed(message: Message) -> Row:
    match message:
        case SystemMessage(text=text):
            return {"role": "system", "content": [_typed_value("text", text)]}
        case UserMessage(text=text):
            return {"role": "user", "content": [_typed_value("text", text)]}
        case ToolMessage(result=result):
            return {"role": "tool", "content": [_typed_value("text", result.text)]}
        case AssistantMessage(turn=turn):
            content = []
            if turn.reasoning:
                content.append(_typed_value("reasoning", turn.reasoning))
            if turn.text or turn.refusal or not turn.calls:
                content.append(_typed_value("text", turn.text or turn.refusal))
            content += [
                _typed_value("tool_call", dump(call_object(call)))
                for call in turn.calls
            ]
            return {"role": "assistant", "content": content}


def _typed_value(kind: str, value: str) -> Row:
    return {"type": kind, "value": value}


def read_llamafactory(row: Mapping[str, Any]) -> Example:
    """Return the example of such a row."""
    made = ConversationBuilder()
    for entry in row["messages"]:
        values: dict[str, list[str]] = {"text": [], "reasoning": [], "tool_call": []}
        for part in entry["content"]:
            values.setdefault(part["type"], []).append(part["value"])
        text = "".join(values["text"])
        match entry.get("role"):
            case "system":
                made.add(SystemMessage(text))
            case "user":
                made.add(UserMessage(text))
            case "assistant":
                calls = [
                    read_call_object(load(each, "a call"))
                    for each in values["tool_call"]
                ]
                made.answer(text, calls, "".join(values["reasoning"]))
            case "tool":
                made.result(text)
            case role:
                raise _refuse_role(role)
    return Example(made.messages, read_functions(row.get("tools")))
