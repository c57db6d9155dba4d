"""The provider's side of OpenAI Responses: what a client asks, parsed, and the items and events of an answer."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from handrail.calls import Media, ToolResult
from handrail.dialects import json_bodies
from handrail.dialects.names import NameMap
from handrail.dialects.parts import parse_attachment
from handrail.dialects.wires.responses_items import parse_answer
from handrail.dialects.writing import pieces
from handrail.errors import ConfigError, Json, ModelError
from handrail.messages import (
    AssistantMessage,
    Finish,
    Message,
    Options,
    Output,
    SystemMessage,
    ToolMessage,
    Turn,
    UserMessage,
)
from handrail.ports import Described

STATELESS: Mapping[str, Json] = {
    "store": False,
    "include": ["reasoning.encrypted_content"],
}
"""Said in every request: keep nothing, and give us the reasoning in a form that can come back."""

_ENDINGS: Mapping[Finish, tuple[str, str]] = {
    "stop": ("completed", ""),
    "calls": ("completed", ""),
    "length": ("incomplete", "max_output_tokens"),
    "refused": ("incomplete", "content_filter"),
    "error": ("incomplete", ""),
}

FIRST_EVENTS = ("created", "in_progress")


def parse_request(
    body: Mapping[str, Json],
) -> tuple[list[Message], list[Described], Options]:
    """Return what a client asked: messages, tools and options.

    Raises:
        ConfigError: The request cannot be read.
    """
    rest = {
        name: value
        for name, value in body.items()
        if value is not None and STATELESS.get(name) != value
    }
    instructions = rest.pop("instructions", None)
    messages = _messages(rest.pop("input", []))
    entries = [
        _require_object(tool, "a tool")
        for tool in _require_list(rest.pop("tools", []), "`tools`")
    ]
    tools = [_parse_tool(tool) for tool in entries if tool.get("type") == "function"]
    options = Options(
        model=str(rest.pop("model", "")),
        tool_choice=_parse_choice(rest.pop("tool_choice", None)),
        parallel=rest.pop("parallel_tool_calls", None),
        strict=any(tool.strict_parameters is not None for tool in tools),
        max_tokens=rest.pop("max_output_tokens", None),
        temperature=rest.pop("temperature", None),
        stream=bool(rest.pop("stream", False)),
        output=_take_output(rest),
        provider_tools=tuple(
            tool for tool in entries if tool.get("type") != "function"
        ),
        extra=rest,
    )
    return (
        [SystemMessage(str(instructions)), *messages] if instructions else messages,
        tools,
        options,
    )


def _require_object(value: Json, what: str) -> Mapping[str, Json]:
    if not isinstance(value, json_bodies.OBJECT):
        raise ConfigError(
            f"{what} is {json_bodies.kind(value)} in the request, not an object"
        )
    return value


def _require_list(value: Json, what: str) -> list[Json]:
    if not isinstance(value, list):
        raise ConfigError(
            f"{what} is {json_bodies.kind(value)} in the request, not a list"
        )
    return value


def _messages(value: Json) -> list[Message]:
    if isinstance(value, str):
        return [UserMessage(value)]
    messages: list[Message] = []
    model_items: list[Mapping[str, Json]] = []
    for item in _require_list(value, "`input`"):
        entry = _require_object(item, "an item of `input`")
        message = _message(entry)
        if message is None:
            model_items.append(entry)
            continue
        if model_items:
            messages.append(_parse_turn(model_items))
            model_items = []
        messages.append(message)
    if model_items:
        messages.append(_parse_turn(model_items))
    return messages


def _message(item: Mapping[str, Json]) -> Message | None:
    """Return a message of a person or a tool; None for items of the model, and for items that are no messages."""
    if str(item.get("type")) in _OUTPUTS:
        text, parts = _content(item.get("output"))
        media = [
            Media(seen.media_type, url=seen.link)
            for part in parts
            if (seen := parse_attachment(part))
        ]
        return ToolMessage(
            ToolResult(str(item.get("call_id", "")), value=text, text=text, media=media)
        )
    if item.get("type") == "item_reference":
        raise ConfigError(
            "the request has an `item_reference`: what it names is stored by the provider, and not here"
        )
    if item.get("type") not in (None, "message"):
        # a call, or an item of the provider's such as `additional_tools`, which is sent back unchanged
        return None
    match item.get("role"):
        case "system" | "developer":
            return SystemMessage(_content(item.get("content"))[0])
        case "user":
            text, parts = _content(item.get("content"))
            return UserMessage(text, tuple(parts))
    return None


_OUTPUTS = {"function_call_output", "custom_tool_call_output"}


def _content(content: Json) -> tuple[str, list[dict[str, Json]]]:
    """Return the text of a content, and its parts in the chat form where it has any."""
    if content is None or isinstance(content, str):
        return content or "", []
    parts = [
        _require_object(part, "a part of a message")
        for part in _require_list(content, "the content of a message")
    ]
    texts = [
        str(part.get("text", ""))
        for part in parts
        if part.get("type") in ("input_text", "output_text", "text")
    ]
    return "".join(texts), [_chat_part(part) for part in parts]


def _chat_part(part: Mapping[str, Json]) -> dict[str, Json]:
    match part:
        case {"type": "input_text"}:
            return {**part, "type": "text"}
        case {"type": "input_image", "image_url": str(url)}:
            if part.get("detail"):
                detail = {"detail": part["detail"]}
            else:
                detail = {}
            return {"type": "image_url", "image_url": {"url": url, **detail}}
        case {"type": "input_file", "file_url": str(url)}:
            return {"type": "file", "file": {"file_data": url}}
        case {"type": "input_file"}:
            return {
                "type": "file",
                "file": {key: value for key, value in part.items() if key != "type"},
            }
    return dict(part)


def _parse_turn(items: Sequence[Mapping[str, Json]]) -> AssistantMessage:
    """Return the turn that a request spells as items; an assistant's message may be plain text there."""
    output = [{"type": "message", **item} for item in items]
    try:
        return AssistantMessage(
            parse_answer({"status": "completed", "output": output}, str)
        )
    except ModelError as error:
        raise ConfigError(
            f"the model's items in the request cannot be read: {error}"
        ) from error


def _parse_tool(tool: Mapping[str, Json]) -> Described:
    if not tool.get("name"):
        raise ConfigError("the request has a function without a name")
    parameters = dict(
        _require_object(
            tool.get("parameters") or {"type": "object", "properties": {}},
            "`parameters`",
        )
    )
    if tool.get("strict"):
        strict = parameters
    else:
        strict = None
    return Described(
        str(tool["name"]), str(tool.get("description") or ""), parameters, strict
    )


def _parse_choice(choice: Json) -> str:
    if isinstance(choice, Mapping):
        return str(choice.get("name", "auto"))
    return str(choice or "auto")


def _take_output(rest: dict[str, Json]) -> Output | None:
    """Take the form of the answer out of what a request says of its text."""
    match rest.get("text"):
        case {
            "format": {
                "type": "json_schema",
                "name": str(name),
                "schema": dict(schema),
            },
            **others,
        }:
            rest.pop("text")
            if others:
                rest["text"] = others
            return Output(schema, name)
    return None


def encode_output(turn: Turn, names: NameMap, id: str) -> Iterator[dict[str, Json]]:
    """Yield the items of an answer; their ids are made from the answer's."""
    if turn.reasoning:
        thoughts = [{"type": "summary_text", "text": turn.reasoning}]
        yield {"id": f"rs_{id}", "type": "reasoning", "summary": thoughts}
    content: list[dict[str, Json]] = []
    if turn.text:
        content.append({"type": "output_text", "text": turn.text, "annotations": []})
    if turn.refusal:
        content.append({"type": "refusal", "refusal": turn.refusal})
    if content:
        head = {
            "id": f"msg_{id}",
            "type": "message",
            "status": "completed",
            "role": "assistant",
        }
        yield {**head, "content": content}
    for number, call in enumerate(turn.calls):
        yield {
            "id": f"fc_{id}_{number}",
            "type": "function_call",
            "status": "completed",
            "call_id": call.id,
            "name": names.to_wire(call.name),
            "arguments": call.arguments,
        }


def encode_ending(turn: Turn) -> dict[str, Json]:
    """Return the fields that say how an answer ended, and what it used."""
    status, reason = _ENDINGS[
        "stop" if turn.refusal and turn.finish == "refused" else turn.finish
    ]
    spent = turn.usage
    usage = {
        "input_tokens": spent.input_tokens,
        "input_tokens_details": {
            "cached_tokens": spent.cached_tokens,
            "cache_write_tokens": spent.cache_written_tokens,
        },
        "output_tokens": spent.output_tokens,
        "output_tokens_details": {"reasoning_tokens": spent.reasoning_tokens},
        "total_tokens": spent.input_tokens + spent.output_tokens,
    }
    return {
        "status": status,
        "incomplete_details": {"reason": reason} if reason else None,
        "usage": usage,
    }


def encode_item_events(
    item: dict[str, Json], index: int, piece_chars: int
) -> Iterator[dict[str, Json]]:
    """Yield the events of an item: announced empty, its texts in pieces and whole, then the item itself."""
    if item["type"] == "function_call":
        history = "arguments"
    elif item["type"] == "reasoning":
        history = "summary"
    else:
        history = "content"
    if "status" in item:
        progress = {"status": "in_progress"}
    else:
        progress = {}
    blank = "" if history == "arguments" else []
    yield {
        "type": "response.output_item.added",
        "output_index": index,
        "item": {**item, **progress, history: blank},
    }
    place = {"item_id": item["id"], "output_index": index}
    if history == "arguments":
        yield from _text_events(
            "function_call_arguments", "arguments", item[history], place, piece_chars
        )
    else:
        for number, part in enumerate(item[history]):
            yield from _part_events(
                part, {**place, f"{history}_index": number}, piece_chars
            )
    yield {"type": "response.output_item.done", "output_index": index, "item": item}


_PART_EVENTS: Mapping[str, tuple[str, str, str]] = {
    "output_text": ("content_part", "output_text", "text"),
    "refusal": ("content_part", "refusal", "refusal"),
    "summary_text": ("reasoning_summary_part", "reasoning_summary_text", "text"),
}


def _part_events(
    part: dict[str, Json], place: dict[str, Json], piece_chars: int
) -> Iterator[dict[str, Json]]:
    frame, name, key = _PART_EVENTS[part["type"]]
    yield {"type": f"response.{frame}.added", **place, "part": {**part, key: ""}}
    yield from _text_events(
        name,
        key,
        part[key],
        place | ({"logprobs": []} if key == "text" else {}),
        piece_chars,
    )
    yield {"type": f"response.{frame}.done", **place, "part": part}


def _text_events(
    name: str, key: str, text: str, place: dict[str, Json], piece_chars: int
) -> Iterator[dict[str, Json]]:
    for piece in pieces(text, piece_chars):
        yield {"type": f"response.{name}.delta", **place, "delta": piece}
    yield {"type": f"response.{name}.done", **place, key: text}
