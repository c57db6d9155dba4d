"""A conversation made fit to send, and small.

Providers refuse a whole conversation for one call without a result, one result without its call, or one string that is
no JSON. Conversations get so by crashes, by cutting, by other programs. `sanitize` makes any list of messages fit:

    an orphan call      gets a result: the real one if it can be found, else the truth that nobody knows
    an orphan result    is left out
    results             follow directly after their calls, in their order, one for each
    an id used twice    is changed in the later call
    arguments           that are no JSON object are shown under one key
    an empty answer     is left out

`fold` makes it smaller: old results become handles, which the model can read with `read_result`.

Rule 1: sound messages are returned as they are, the same object. What is sanitized once is sound.
Rule 2: nothing is invented: where a call's end is unknown, a write is in doubt.
"""

from __future__ import annotations

import json
import operator
import re
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import lru_cache
from itertools import count

from msgspec import Struct, field
from msgspec.structs import replace

from handrail.calls import ToolCall, ToolResult
from handrail.core.results import failure_text
from handrail.errors import Code, Failure, Json
from handrail.messages import (
    AssistantMessage,
    Message,
    SystemMessage,
    ToolMessage,
    Turn,
    UserMessage,
)
from handrail.parsing import jsontext
from handrail.tools import keys


class Sanitized(Struct, frozen=True):
    """Messages that are fit to send, and a sentence for people for each thing that was changed."""

    messages: Sequence[Message]
    notes: Sequence[str] = ()


def sanitize(
    messages: Sequence[Message],
    *,
    find_result: Callable[[ToolCall], ToolResult | None] | None = None,
    reads: Callable[[str], bool] | None = None,
) -> Sanitized:
    """Return the messages as every provider takes them.

    Args:
        find_result: Returns the result of a call that has none here, from a ledger or a journal; None if there is none.
        reads: Whether the tool of that name only reads. A lost call of any other may have had an effect.
    """
    if _is_sound(messages):
        return Sanitized(messages)
    sanitizer = _Sanitizer(messages, find_result, reads)
    fit = list(sanitizer.sanitize())
    if _same(fit, messages):
        return Sanitized(messages, sanitizer.notes)
    return Sanitized(fit, sanitizer.notes)


def as_history(arguments: str) -> str:
    """Return a call's arguments as they may stand in a history: the text itself where it is a JSON object.

    Text with one reading goes back as that object; other text goes back under one key, so that the model can see what
    it wrote and correct it.

    >>> as_history('{"city": "Oslo"}'), as_history("{'city': 'Oslo'}"), as_history('[1')
    ('{"city": "Oslo"}', '{"city":"Oslo"}', '{"INVALID_JSON": "[1"}')
    """
    # A history is written in every turn; checking each text once makes that linear in what is new.
    if len(arguments) < _MOST_REMEMBERED_CHARS:
        return _as_object_cached(arguments)
    return _as_object(arguments)


_MOST_REMEMBERED_CHARS = 2_000


def _as_object(arguments: str) -> str:
    if not arguments.strip():
        return "{}"
    try:
        if isinstance(jsontext.loads(arguments), dict):
            return arguments
    except jsontext.NotJson:
        pass
    parsed = jsontext.parse(arguments, lossy=False)
    if isinstance(parsed, jsontext.Parsed):
        return keys.canonical(parsed.value)
    # Some providers refuse half a character even when it is escaped.
    text = arguments.encode("utf-8", "replace").decode()
    return json.dumps({"INVALID_JSON": text}, ensure_ascii=False)


_as_object_cached = lru_cache(maxsize=4096)(_as_object)


# ---------------------------------------------------------------------- sound or not


def _is_sound(messages: Sequence[Message]) -> bool:
    """Whether the messages are fit as they are; nearly every list is, and this is the whole cost of looking."""
    waiting: deque[str] = deque()
    seen: set[str] = set()
    for message in messages:
        if isinstance(message, ToolMessage):
            if not waiting or waiting.popleft() != message.result.call_id:
                return False
        elif waiting:
            return False
        elif isinstance(message, AssistantMessage):
            ids = [call.id for call in message.turn.calls]
            if not (seen.isdisjoint(ids) and _is_sound_turn(message.turn, ids)):
                return False
            seen.update(ids)
            waiting.extend(ids)
    return not waiting


def _is_sound_turn(turn: Turn, ids: Sequence[str]) -> bool:
    if len(set(ids)) < len(ids) or _is_empty(turn):
        return False
    return all(as_history(call.arguments) == call.arguments for call in turn.calls)


def _is_empty(turn: Turn) -> bool:
    return not (turn.text or turn.calls or turn.refusal or turn.server_side)


def _same(fit: Sequence[Message], messages: Sequence[Message]) -> bool:
    return len(fit) == len(messages) and all(map(operator.is_, fit, messages))


class _Sanitizer:
    """One pass over one list. `used` holds the ids of the messages before the present one."""

    def __init__(
        self,
        messages: Sequence[Message],
        find_result: Callable[[ToolCall], ToolResult | None] | None,
        reads: Callable[[str], bool] | None,
    ) -> None:
        self.messages = messages
        self.find_result = find_result
        self.reads = reads
        self.notes: list[str] = []
        self.results = _pair_results(messages)
        self.used: set[str] = set()
        self.numbers: dict[str, Iterator[int]] = {}
        self.taken = {call.id for turn in _turns(messages) for call in turn.calls}

    def sanitize(self) -> Iterator[Message]:
        """Yield the messages as they may be sent."""
        paired = {id(each) for results in self.results.values() for each in results}
        for position, message in enumerate(self.messages):
            if isinstance(message, AssistantMessage):
                yield from self._answer(message, position)
            elif isinstance(message, ToolMessage):
                if id(message) not in paired:
                    self.notes.append(
                        f"a result of {message.result.call_id!r} has no call of its own; it was left out"
                    )
            else:
                yield message

    def _answer(self, message: AssistantMessage, position: int) -> Iterator[Message]:
        turn = message.turn
        if _is_empty(turn):
            self.notes.append("an empty answer was left out")
            return
        by_id: dict[str, deque[ToolMessage]] = {}
        for result in self.results.get(position, []):
            by_id.setdefault(result.result.call_id, deque()).append(result)
        calls: list[ToolCall] = []
        results: list[Message] = []
        for call in turn.calls:
            fit = self._fit(call)
            calls.append(fit)
            waiting = by_id.get(call.id)
            if waiting:
                results.append(_rename(waiting.popleft(), fit.id))
            else:
                results.append(self._make_result(call, fit.id))
        if not all(map(operator.is_, calls, turn.calls)):
            turn = replace(turn, calls=tuple(calls), raw=_raw_with(calls, turn))
            message = AssistantMessage(turn)
        yield message
        yield from results

    def _fit(self, call: ToolCall) -> ToolCall:
        """Return the call with an id of its own and arguments that are JSON."""
        name = call.id
        if name in self.used:
            name = self._find_free_id(call.id)
            self.notes.append(
                f"the id {call.id!r} was used for two calls; the later one is {name!r} now"
            )
        self.used.add(name)
        arguments = as_history(call.arguments)
        if arguments != call.arguments:
            self.notes.append(f"the arguments of {call.id!r} were no JSON object")
        if name == call.id and arguments == call.arguments:
            return call
        return replace(call, id=name, arguments=arguments)

    def _find_free_id(self, id: str) -> str:
        """Return an id that no call of the conversation has: the given one with a number."""
        numbers = self.numbers.setdefault(id, count(2))
        names = (f"{id}_{number}" for number in numbers)
        return next(
            name for name in names if name not in self.used and name not in self.taken
        )

    def _make_result(self, call: ToolCall, id: str) -> ToolMessage:
        """Return the result of a call that has none here."""
        self.notes.append(f"the call {call.id!r} of {call.name} had no result")
        if self.find_result is not None:
            result = self.find_result(call)
            if result is not None:
                return ToolMessage(replace(result, call_id=id))
        failure = lost_write(call.name)
        if self.reads is not None and self.reads(call.name):
            failure = lost_read(call.name)
        return ToolMessage(
            ToolResult(id, call.name, failure=failure, text=failure_text(failure))
        )


def _turns(messages: Sequence[Message]) -> Iterator[Turn]:
    return (
        message.turn for message in messages if isinstance(message, AssistantMessage)
    )


def _pair_results(messages: Sequence[Message]) -> dict[int, list[ToolMessage]]:
    """Return for each answer, by its position, the results of its calls: those that follow before the id is used again.

    Of more results than calls the last ones count, since they are the newest.
    """
    asked_at: dict[str, int] = {}
    counts: dict[tuple[int, str], int] = {}
    results: dict[tuple[int, str], list[ToolMessage]] = {}
    for position, message in enumerate(messages):
        if isinstance(message, AssistantMessage):
            for call in message.turn.calls:
                asked_at[call.id] = position
                counts[position, call.id] = counts.get((position, call.id), 0) + 1
        elif isinstance(message, ToolMessage):
            call_id = message.result.call_id
            if call_id in asked_at:
                results.setdefault((asked_at[call_id], call_id), []).append(message)
    pairs: dict[int, list[ToolMessage]] = {}
    for (asked, call_id), candidates in results.items():
        newest = candidates[-counts[asked, call_id] :]
        pairs.setdefault(asked, []).extend(newest)
    return pairs


def _rename(message: ToolMessage, id: str) -> ToolMessage:
    if message.result.call_id == id:
        return message
    return ToolMessage(replace(message.result, call_id=id))


def _raw_with(calls: Sequence[ToolCall], turn: Turn) -> Mapping[str, Json] | None:
    """Return the provider's message with the new ids of the calls, so that signatures still go back beside them.

    None where an id in it means two calls. Changed arguments do not matter: a dialect writes the calls itself.
    """
    renamed = {old.id: new.id for old, new in zip(turn.calls, calls, strict=True)}
    if len(renamed) != len(calls):
        return None
    raw: Mapping[str, Json] | None = _with_ids(turn.raw, renamed)
    return raw


def _with_ids(value: Json, renamed: Mapping[str, str]) -> Json:
    if isinstance(value, Mapping):
        return {key: _with_id(key, each, renamed) for key, each in value.items()}
    if isinstance(value, list):
        return [_with_ids(each, renamed) for each in value]
    return value


def _with_id(key: str, value: Json, renamed: Mapping[str, str]) -> Json:
    if key in _IDS and isinstance(value, str):
        return renamed.get(value, value)
    if key in _ARGUMENTS:
        return value
    return _with_ids(value, renamed)


_IDS = {"id", "call_id"}
"""The keys under which providers put the id of a call."""
_ARGUMENTS = {"input", "args", "arguments"}
"""The keys of arguments, which may have an `id` of their own."""


def lost_read(name: str) -> Failure:
    """Return the failure of a read that was never answered."""
    return Failure(
        Code.CANCELLED,
        f"`{name}` was never answered: the conversation was interrupted before its result.",
        "Call it again if you still need it.",
        retryable=True,
    )


def lost_write(name: str) -> Failure:
    """Return the failure of a write of which nobody knows whether it happened."""
    return Failure(
        Code.IN_DOUBT,
        f"The conversation was interrupted before the result of `{name}`: it may or may not have happened.",
        "Find out with a tool that reads, or ask the user, before you do anything again.",
    )


# ---------------------------------------------------------------------- folding

_WIDE = r"[\u1100-\u11ff\u2e80-\u9fff\uac00-\ud7ff\uf900-\ufaff\uff00-\uffef\U00020000-\U0003ffff]"
"""Compiled when first met, which takes longer than importing this module."""
_CHARACTERS_A_TOKEN = 4
"""Of English; other alphabets take two to three, which `Window.scale` learns from what the provider counts."""
_TOKENS_OF_A_MESSAGE = 4
_TOKENS_OF_MEDIA = 1_000
"""Between a small picture and a large one; providers count by pixels."""

_SMALLEST_FOLDED = 200
"""Tokens. A handle takes about forty, and a small result is a fact rather than a page."""
_FOLD_TO = 0.7
"""Of the window. Folding changes what a provider has cached, so it is done seldom and for long."""
_SHOWN = 120


def estimate_tokens(text: str) -> int:
    """Estimate the tokens of a text: one for four characters of an alphabet, one for each wide character.

    >>> estimate_tokens("a word or two"), estimate_tokens("北京天气")
    (4, 4)
    """
    wide = 0
    if not text.isascii():
        wide = len(re.findall(_WIDE, text))
    return wide + -(-(len(text) - wide) // _CHARACTERS_A_TOKEN)


def estimate_size(message: Message) -> int:
    """Estimate the tokens of a message."""
    match message:
        case SystemMessage(text=text):
            size = estimate_tokens(text)
        case UserMessage(text=text, parts=parts):
            size = estimate_tokens(text) + _TOKENS_OF_MEDIA * sum(
                not _is_text(part) for part in parts
            )
        case AssistantMessage(turn=turn):
            size = estimate_tokens(turn.text) + estimate_tokens(turn.reasoning)
            for call in turn.calls:
                size += estimate_tokens(call.name) + estimate_tokens(call.arguments)
        case ToolMessage(result=result):
            size = estimate_tokens(result.text) + _TOKENS_OF_MEDIA * len(result.media)
    return size + _TOKENS_OF_A_MESSAGE


def _is_text(part: object) -> bool:
    return isinstance(part, Mapping) and part.get("type") == "text"


class Window(Struct):
    """How large a conversation may grow, and what one estimated token is for this model and this text.

    Attributes:
        tokens: The most that a request is to hold, tools and all.
        scale: Tokens as the provider counts them for each one estimated, over the last requests.
        asked: The estimated tokens of the messages of the last request.
        sizes: Those of each of them. A conversation grows at its end, so each message is looked at once; whoever
            changes one calls `forget_sizes`.
    """

    tokens: int
    scale: float = 1.0
    asked: int = 0
    sizes: list[int] = field(default_factory=list)
    measured: Sequence[Message] = ()
    """The conversation that `sizes` belongs to."""

    def overflows(self, messages: Sequence[Message]) -> int:
        """Return by how many estimated tokens to shrink before the next request; 0 while it fits."""
        if self.size(messages) <= self.tokens:
            return 0
        return self.asked - int(self.tokens * _FOLD_TO / self.scale)

    def size(self, messages: Sequence[Message]) -> int:
        """Return about how many tokens the messages have, and remember it for what the provider will count."""
        if messages is not self.measured:
            self.forget_sizes()
            self.measured = messages
        new = list(map(estimate_size, messages[len(self.sizes) :]))
        self.sizes += new
        self.asked += sum(new)
        return round(self.asked * self.scale)

    def forget_sizes(self) -> None:
        """Look at each message again next time."""
        self.measured = ()
        self.sizes = []
        self.asked = 0

    def learn_scale(self, input_tokens: int) -> None:
        """Move `scale` halfway to what the provider counted for the last request."""
        if input_tokens and self.asked:
            # A server that counts absurdly is bounded, and one that leaves out what it had cached does not lull.
            latest = min(max(input_tokens / self.asked, 0.5), 4.0)
            self.scale = (self.scale + latest) / 2


def to_fold(
    messages: Sequence[Message], sizes: Sequence[int], excess_tokens: int
) -> list[int]:
    """Return the positions of the results that are to become handles, oldest first, until the excess is gone.

    The results of the newest turn stay, and so do small ones.
    """
    newest = max(
        (at for at, each in enumerate(messages) if isinstance(each, AssistantMessage)),
        default=0,
    )
    chosen: list[int] = []
    for position, message in enumerate(messages[:newest]):
        if excess_tokens <= 0:
            break
        size = sizes[position]
        if isinstance(message, ToolMessage) and size >= _SMALLEST_FOLDED:
            chosen.append(position)
            excess_tokens -= size - _SMALLEST_FOLDED // 4
    return chosen


def fold(message: ToolMessage, handle: str) -> ToolMessage:
    """Return a result whose text is stored under a handle: its beginning, and how to read it again.

    Pictures and the like are left out: the model has seen them.
    """
    result = message.result
    text = f"{result.text[:_SHOWN]}\n[... left out to save room; read it again with read_result(handle={handle!r}) ...]"
    return ToolMessage(replace(result, text=text, handle=handle, media=()))
