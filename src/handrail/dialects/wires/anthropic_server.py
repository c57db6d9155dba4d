"""The provider's side of Anthropic's Messages API: what a client asks, parsed, and the frame of an answer."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from handrail.calls import Media, ToolResult
from handrail.dialects import Envelope, json_bodies
from handrail.dialects.names import NameMap
from handrail.dialects.parts import Attachment
from handrail.dialects.wires.anthropic_blocks import (
    Block,
    as_blocks,
    is_own_form,
    parse_message,
)
from handrail.dialects.writing import event
from handrail.errors import Code, ConfigError, Failure, Json
from handrail.messages import (
    AssistantMessage,
    Finish,
    Message,
    Options,
    Output,
    SystemMessage,
    ToolMessage,
    Turn,
    Usage,
    UserMessage,
)
from handrail.ports import Described


def parse_request(
    body: Mapping[str, Json], names: NameMap
) -> tuple[list[Message], list[Described], Options]:
    """Return what a client asked: messages, tools and options.

    Raises:
        ConfigError: The request cannot be read.
        ModelError: What a client sends back of an answer cannot be read.
    """
    rest = dict(body)
    contents = json_bodies.items(rest.pop("messages", []), "`messages`")
    messages = [
        *_parse_message({"role": "system", "content": rest.pop("system", None)}, names)
    ]
    for content in contents:
        messages += _parse_message(json_bodies.mapping(content, "a message"), names)
    own_tools: list[Described] = []
    provider_tools: list[Mapping[str, Json]] = []
    for entry in json_bodies.items(rest.pop("tools", None) or [], "`tools`"):
        tool = json_bodies.mapping(entry, "a tool")
        if _is_ours(tool):
            own_tools.append(_parse_tool(tool))
        else:
            provider_tools.append(tool)
    choice = json_bodies.mapping(
        rest.pop("tool_choice", None) or {"type": "auto"}, "`tool_choice`"
    )
    alone = choice.get("disable_parallel_tool_use")
    output = _take_output(rest.pop("output_config", None), rest)
    options = Options(
        model=str(rest.pop("model", "")),
        tool_choice=str(
            choice.get("name") or _CHOICES.get(str(choice.get("type")), "auto")
        ),
        parallel=None if alone is None else not alone,
        strict=any(tool.strict_parameters is not None for tool in own_tools),
        max_tokens=rest.pop("max_tokens", None),
        temperature=rest.pop("temperature", None),
        stream=bool(rest.pop("stream", False)),
        output=output,
        provider_tools=tuple(provider_tools),
        extra=rest,
    )
    return messages, own_tools, options


_CHOICES: Mapping[str, str] = {"auto": "auto", "any": "required", "none": "none"}
"""`Options.tool_choice` by the type of a request's choice; one of another type names its tool."""


def _is_ours(tool: Mapping[str, Json]) -> bool:
    return tool.get("type") in (None, "custom")


def _parse_tool(tool: Mapping[str, Json]) -> Described:
    parameters = tool.get("input_schema")
    if not tool.get("name") or not isinstance(parameters, dict):
        raise ConfigError("the request has a tool without a name or an `input_schema`")
    if tool.get("strict"):
        strict = parameters
    else:
        strict = None
    return Described(
        str(tool["name"]), str(tool.get("description") or ""), parameters, strict
    )


def _take_output(config: Json, rest: dict[str, Json]) -> Output | None:
    """Return the form that the answer must have; what else the field says is left to the others."""
    if not isinstance(config, Mapping):
        return None
    form = config.get("format")
    if others := {key: value for key, value in config.items() if key != "format"}:
        rest["output_config"] = others
    if isinstance(form, Mapping) and isinstance(form.get("schema"), Mapping):
        return Output(form["schema"])
    return None


def _parse_message(message: Mapping[str, Json], names: NameMap) -> Iterator[Message]:
    """Yield what one message of a request says, results of calls first."""
    role = message.get("role")
    blocks = as_blocks(message.get("content"))
    match role:
        case "system":
            if text := "\n\n".join(str(block.get("text") or "") for block in blocks):
                yield SystemMessage(text)
        case "assistant":
            yield AssistantMessage(
                parse_message({"role": role, "content": blocks}, names)
            )
        case "user":
            yield from _parse_user_blocks(blocks)
        case _:
            raise ConfigError(
                f"a message has the role {role!r}; it is user or assistant"
            )


def _parse_user_blocks(blocks: Sequence[Block]) -> Iterator[Message]:
    contents: list[Block] = []
    for block in blocks:
        if block.get("type") == "tool_result":
            yield ToolMessage(_result(block))
        else:
            contents.append(block)
    if contents or not blocks:
        parts: tuple[Mapping[str, Json] | Media, ...] = ()
        if [*map(set, contents)] != [{"type", "text"}]:
            parts = tuple(map(_part, contents))
        yield UserMessage(_join_text(contents), parts)


def _join_text(blocks: Iterable[Block]) -> str:
    return "".join(
        str(block.get("text") or "") for block in blocks if block.get("type") == "text"
    )


def _part(block: Block) -> Block:
    """Return a block as the chat form spells it, where it does."""
    media = _media(block)
    if media is None:
        return block
    if media.media_type.startswith("image/"):
        return {"type": "image_url", "image_url": {"url": media.link}}
    if media.url:
        return block
    return {"type": "file", "file": {"filename": media.name, "file_data": media.link}}


def _media(block: Block) -> Media | None:
    """Return what a block shows; None where it shows nothing, or what only the provider holds."""
    source = block.get("source")
    if block.get("type") not in ("image", "document") or not isinstance(
        source, Mapping
    ):
        return None
    if block["type"] == "image":
        kind = "image/*"
    else:
        kind = "application/pdf"
    name = str(block.get("title") or "")
    match source.get("type"):
        case "url":
            return Media(kind, url=str(source.get("url")), name=name)
        case "text":
            return Media("text/plain", str(source.get("data")).encode(), name=name)
        case "base64":
            thing = Attachment(
                str(source.get("media_type") or kind), str(source.get("data"))
            )
            return Media(thing.media_type, thing.bytes, name=name)
        case _:
            return None


def _result(block: Block) -> ToolResult:
    content = as_blocks(block.get("content"))
    text = _join_text(content)
    if block.get("is_error"):
        failure = Failure(Code.TOOL_ERROR, text)
    else:
        failure = None
    media = tuple(filter(None, map(_media, content)))
    id = str(block.get("tool_use_id") or "")
    if failure:
        value = None
    else:
        value = block.get("content")
    own = ToolResult(id, value=value)
    if is_own_form(own):
        return own
    return ToolResult(id, value=value, failure=failure, text=text, media=media)


def encode_head(envelope: Envelope) -> dict[str, Json]:
    """Return the fields that an answer begins with."""
    return {
        "id": envelope.id,
        "type": "message",
        "role": "assistant",
        "model": envelope.model,
    }


_FINISH_WORDS: Mapping[Finish, str | None] = {
    "stop": "end_turn",
    "calls": "tool_use",
    "length": "max_tokens",
    "refused": "refusal",
    "error": None,
}


def encode_end(turn: Turn) -> dict[str, Json]:
    """Return the fields that say how an answer ended."""
    if turn.refusal:
        details = {"type": "refusal", "category": None, "explanation": turn.refusal}
    else:
        details = None
    return {
        "stop_reason": _FINISH_WORDS[turn.finish],
        "stop_sequence": None,
        "stop_details": details,
    }


def encode_usage(usage: Usage) -> dict[str, Json]:
    """Return the usage as the API counts it: what came from its cache apart."""
    return {
        "input_tokens": usage.input_tokens
        - usage.cached_tokens
        - usage.cache_written_tokens,
        "cache_creation_input_tokens": usage.cache_written_tokens,
        "cache_read_input_tokens": usage.cached_tokens,
        "output_tokens": usage.output_tokens,
        "output_tokens_details": {"thinking_tokens": usage.reasoning_tokens},
    }


def encode_event(type: str, **fields: Any) -> str:
    """Return one event of a stream."""
    return event({"type": type, **fields}, type)
