"""A conversation as the turns of a template: results with the answer that asked for them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

from msgspec import Struct, field
from msgspec.structs import replace

from handrail.calls import ToolResult
from handrail.dialects import parts
from handrail.messages import (
    AssistantMessage,
    Message,
    SystemMessage,
    ToolMessage,
    Turn,
    UserMessage,
)
from handrail_openmodels.prompts.chat_template import Template


class AnswerTurn(Struct, frozen=True):
    """An answer of the model, and the results of its calls as far as they are there."""

    turn: Turn
    results: list[ToolResult] = field(default_factory=list)


Entry: TypeAlias = "UserMessage | SystemMessage | AnswerTurn"
"""What a template writes as one turn, or as an answer with what came of it."""


def has_results(entries: Sequence[Entry]) -> bool:
    """Whether these end with results."""
    newest = entries[-1] if entries else None
    return isinstance(newest, AnswerTurn) and bool(newest.results)


def user_text(message: UserMessage) -> str:
    """Return a user's text. A prompt is text: of a picture it can only say that there is one."""
    pictures = [
        each for part in message.parts if (each := parts.parse_attachment(part))
    ]
    return "\n".join(
        [
            message.text,
            *(
                f"[{each.media_type or 'a file'}, which cannot be shown]"
                for each in pictures
            ),
        ]
    )


def split_system(messages: Sequence[Message]) -> tuple[list[str], Sequence[Message]]:
    """Return the system messages that a conversation begins with, and the rest of it."""
    begins = next(
        (
            place
            for place, each in enumerate(messages)
            if not isinstance(each, SystemMessage)
        ),
        len(messages),
    )
    return [
        each.text for each in messages[:begins] if isinstance(each, SystemMessage)
    ], messages[begins:]


def group_turns(messages: Sequence[Message], template: Template) -> list[Entry]:
    """Return the messages as turns of a template: results with their calls, and as few as it takes."""
    entries: list[Entry] = []
    for message in messages:
        before = entries[-1] if entries else None
        if isinstance(message, SystemMessage) and template.system is None:
            message = UserMessage(message.text)
        match message:
            case ToolMessage(result=result) if isinstance(before, AnswerTurn):
                before.results.append(result)
            case ToolMessage(result=result):  # of a call that nobody knows of
                entries.append(AnswerTurn(Turn(), [result]))
            case AssistantMessage(turn=turn):
                entries.append(AnswerTurn(turn))
            case UserMessage() if template.merges and isinstance(before, UserMessage):
                entries[-1] = UserMessage(
                    f"{user_text(before)}\n\n{user_text(message)}"
                )
            case _:
                entries.append(message)
    return [each for entry in entries for each in _in_call_order(entry, template)]


def without_old_calls(entries: Sequence[Entry]) -> list[Entry]:
    """Return the turns without the calls and the results before the last user turn."""
    last = max(
        (place for place, each in enumerate(entries) if isinstance(each, UserMessage)),
        default=0,
    )
    texts: list[Entry] = [
        each
        for each in entries[:last]
        if not (isinstance(each, AnswerTurn) and _has_calls(each))
    ]
    return [*texts, *entries[last:]]


def _has_calls(answer: AnswerTurn) -> bool:
    return bool(answer.turn.calls or answer.results)


def _in_call_order(entry: Entry, template: Template) -> list[Entry]:
    """Return an answer with its results in the order of its calls, for some families as one answer for each call."""
    if not isinstance(entry, AnswerTurn) or not entry.turn.calls:
        return [entry]
    calls = entry.turn.calls
    places = {call.id: place for place, call in enumerate(calls)}
    results = sorted(
        entry.results, key=lambda result: places.get(result.call_id, len(places))
    )
    if not template.single or len(calls) == 1:
        return [AnswerTurn(entry.turn, results)]
    return _one_answer_per_call(entry.turn, results)


def _one_answer_per_call(turn: Turn, results: Sequence[ToolResult]) -> list[Entry]:
    """Return an answer for each call, with its results; the text is in the first, other calls' results in the last."""
    first, *others = turn.calls
    turns = [replace(turn, calls=[first]), *(Turn(calls=[call]) for call in others)]
    answers = [
        AnswerTurn(
            each,
            [result for result in results if result.call_id == each.calls[0].id],
        )
        for each in turns
    ]
    ids = {call.id for call in turn.calls}
    answers[-1].results.extend(
        result for result in results if result.call_id not in ids
    )
    return [*answers]
