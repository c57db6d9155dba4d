"""Rows that are lists of `from` and `value`: `sharegpt`, `hermes` and `toolace`."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from handrail.calls import ToolCall, ToolResult
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
from handrail_openmodels.training.examples import (
    ConversationBuilder,
    Example,
    Function,
    Unwritable,
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
    split_thought,
    think,
    wrap_functions,
)

Row = dict[str, Json]
Entry = tuple[str, str]
"""Who speaks, and what."""


def _entries(speakers: Sequence[Entry]) -> list[Json]:
    return [{"from": speaker, "value": value} for speaker, value in speakers]


def _refuse_speaker(speaker: Json) -> ConfigError:
    return ConfigError(f"a conversation of this form has no speaker {speaker!r}")


def _split_system(messages: Sequence[Message]) -> tuple[str, list[Message]]:
    """Return the system messages before the conversation as one text, and the rest.

    Raises:
        Unwritable: There is a system message later in the conversation.
    """
    texts: list[str] = []
    rest = list(messages)
    while rest and isinstance(rest[0], SystemMessage):
        texts.append(rest.pop(0).text)  # type: ignore[union-attr]  # a system message
    if any(isinstance(message, SystemMessage) for message in rest):
        raise Unwritable("it has a system message after its beginning")
    return "\n\n".join(texts), rest


def _rounds(
    messages: Sequence[Message],
) -> Iterator[Message | list[ToolResult]]:
    """Yield the messages; join adjacent questions, and give the results of an answer as one list."""
    results: list[ToolResult] = []
    question: UserMessage | None = None
    for message in messages:
        if isinstance(message, ToolMessage):
            results.append(message.result)
            continue
        if results:
            yield results
            results = []
        if isinstance(message, UserMessage):
            question = message if question is None else _join(question, message)
            continue
        if question is not None:
            yield question
            question = None
        yield message
    if results:
        yield results
    if question is not None:
        yield question


def _join(first: UserMessage, second: UserMessage) -> UserMessage:
    return UserMessage(f"{first.text}\n\n{second.text}", (*first.parts, *second.parts))


# ---------------------------------------------------------------------- sharegpt

_ASKS = ("human", "observation")
_ANSWERS = ("gpt", "function_call")


def write_sharegpt(example: Example) -> Row:
    """Return the row of LLaMA-Factory's ShareGPT form, in which questions and answers alternate.

    Several calls are one JSON list, and their results one list of texts. Text beside calls is left out.

    Raises:
        Unwritable: Questions and answers do not alternate.
    """
    system, messages = _split_system(example.messages)
    images = ImagePlaces()
    entries = [_write_sharegpt(each, images) for each in _rounds(messages)]
    for number, (speaker, _) in enumerate(entries):
        if speaker not in (_ASKS, _ANSWERS)[number % 2]:
            raise Unwritable("its questions and answers do not alternate")
    if len(entries) % 2:
        raise Unwritable("it does not end with an answer")
    row: Row = {"conversations": _entries(entries)}
    if system:
        row["system"] = system
    if example.tools:
        row["tools"] = dump([dict(each) for each in example.tools])
    return {**row, **images.column()}


def _write_sharegpt(each: Message | list[ToolResult], images: ImagePlaces) -> Entry:
    match each:
        case list():
            texts = [images.place(one.text, find_result_images(one)) for one in each]
            return "observation", texts[0] if len(texts) == 1 else dump(list(texts))
        case UserMessage(text=text):
            return "human", images.place(text, find_user_images(each))
        case AssistantMessage(turn=turn) if turn.calls:
            calls: list[Json] = [call_object(call) for call in turn.calls]
            value = dump(calls[0] if len(calls) == 1 else calls)
            return "function_call", think(turn.reasoning) + value
        case AssistantMessage(turn=turn):
            return "gpt", think(turn.reasoning) + (turn.text or turn.refusal)
        case _:
            raise AssertionError("system messages are written apart")


def read_sharegpt(row: Mapping[str, Any]) -> Example:
    """Return the example of such a row."""
    made = ConversationBuilder()
    images = ImageReader(row)
    if row.get("system"):
        made.add(SystemMessage(row["system"]))
    for entry in row["conversations"]:
        value = entry.get("value") or ""
        match entry.get("from"):
            case "system":
                made.add(SystemMessage(value))
            case "human":
                made.add(images.user(value))
            case "gpt":
                reasoning, text = split_thought(value)
                made.answer(text, reasoning=reasoning)
            case "function_call":
                reasoning, text = split_thought(value)
                calls = load(text, "a call")
                if not isinstance(calls, list):
                    calls = [calls]
                made.answer("", map(read_call_object, calls), reasoning)
            case "observation":
                for text in _split_results(value, made.unanswered):
                    made.result(text, media=images.media(text))
            case speaker:
                raise _refuse_speaker(speaker)
    return Example(made.messages, read_functions(row.get("tools")))


def _split_results(value: str, wanted: int) -> list[str]:
    """Return the text of each result. A value that is no list of `wanted` texts is the first; the others are empty."""
    if wanted < 2:
        return [value]
    try:
        texts = json.loads(value)
    except ValueError:
        texts = None
    if isinstance(texts, list) and len(texts) == wanted:
        return [text if isinstance(text, str) else dump(text) for text in texts]
    return [value, *[""] * (wanted - 1)]


# ---------------------------------------------------------------------- hermes

_HERMES = SYNTAXES["hermes"]
_SYSTEM = re.compile(r"<\|im_start\|>system\n(.*?)<\|im_end\|>", re.DOTALL)
_RESPONSE = re.compile(r"<tool_response>\n(.*?)\n</tool_response>(?:\n|\Z)", re.DOTALL)


def write_hermes(example: Example) -> Row:
    """Return the row of the Hermes models: calls in <tool_call> tags, results in <tool_response> tags."""
    forbid_images(example)
    entries: list[Entry] = []
    if example.tools:
        entries.append(("system", _describe_tools(example.tools)))
    for each in _rounds(example.messages):
        match each:
            case list():
                texts = [
                    f"<tool_response>\n{one.text}\n</tool_response>" for one in each
                ]
                entries.append(("tool", "\n".join(texts)))
            case SystemMessage(text=text):
                entries.append(("system", text))
            case UserMessage(text=text):
                entries.append(("human", text))
            case AssistantMessage(turn=turn):
                entries.append(("gpt", _write_hermes_answer(turn)))
            case _:
                raise AssertionError("results come in lists")
    row: Row = {"conversations": _entries(entries)}
    if example.tools:
        row["tools"] = dump(wrap_functions(example.tools))
    return row


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


def _write_hermes_answer(turn: Turn) -> str:
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
                raise _refuse_speaker(speaker)
    return Example(made.messages, tools)


# ---------------------------------------------------------------------- toolace

_PYTHON = SYNTAXES["llama3-pythonic"]
_OFFER = (
    "You can call these functions. Write calls as [name1(parameter1=value1), name2(...)], and nothing beside them.\n"
    "Here is a list of functions in JSON format:\n"
)


def write_toolace(example: Example) -> Row:
    """Return the row of ToolACE: calls as Python writes them, results as a list of `name` and `results`.

    Text and reasoning beside calls are left out.
    """
    forbid_images(example)
    system, messages = _split_system(example.messages)
    if example.tools:
        offer = _OFFER + dump([dict(each) for each in example.tools])
        system = f"{system}\n\n{offer}" if system else offer
    entries: list[Entry] = []
    for each in _rounds(messages):
        match each:
            case list():
                results: list[Json] = [
                    {"name": one.name, "results": one.text} for one in each
                ]
                entries.append(("tool", dump(results)))
            case UserMessage(text=text):
                entries.append(("user", text))
            case AssistantMessage(turn=turn) if turn.calls:
                calls = [
                    ToolCall(call.id, call.name, dump(call_object(call)["arguments"]))
                    for call in turn.calls
                ]
                value = write_answer(_PYTHON, Turn(calls=tuple(calls)))
                entries.append(("assistant", value))
            case AssistantMessage(turn=turn):
                entries.append(("assistant", turn.text or turn.refusal))
            case _:
                raise AssertionError("system messages are written apart")
    return {"system": system, "conversations": _entries(entries)}


def read_toolace(row: Mapping[str, Any]) -> Example:
    """Return the example of such a row."""
    made = ConversationBuilder()
    system, offered, listed = str(row.get("system") or "").partition(_OFFER)
    tools = read_functions(listed) if offered else ()
    if system.strip():
        made.add(SystemMessage(system.removesuffix("\n\n") if offered else system))
    for entry in row["conversations"]:
        value = entry.get("value") or ""
        match entry.get("from"):
            case "user" | "human":
                made.add(UserMessage(value))
            case "assistant" | "gpt":
                turn = read_answer(_PYTHON, value) if value[:1] == "[" else Turn(value)
                calls = [(call.name, call.arguments) for call in turn.calls]
                made.answer("" if calls else value, calls)
            case "tool":
                for text in _read_toolace_results(value):
                    made.result(text)
            case speaker:
                raise _refuse_speaker(speaker)
    return Example(made.messages, tools)


def _read_toolace_results(value: str) -> list[str]:
    try:
        results = json.loads(value)
    except ValueError:
        return [value]
    if not isinstance(results, list):
        return [value]
    texts = [
        each["results"] if isinstance(each, dict) and "results" in each else each
        for each in results
    ]
    return [text if isinstance(text, str) else dump(text) for text in texts]
