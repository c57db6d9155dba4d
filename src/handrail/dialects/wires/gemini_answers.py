"""What Gemini answers, whole or chunk by chunk: a chunk is a whole answer that holds the next parts.

Calls come whole, or, where a client asked for it, argument by argument: each piece says by a path where it belongs.

Rule 1: parts go back as they came. Only texts that follow one another are joined, and none that is signed.
Rule 2: a call that was still open when the answer ended has no closing brace, so nobody takes it for whole.
Rule 3: what the path of an argument says is bounded: no list with holes, no more levels than a request could carry.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import pairwise
from typing import TypeAlias

from handrail.calls import ToolCall
from handrail.dialects import json_bodies, provider_errors, received
from handrail.dialects.call_assembly import with_ids
from handrail.dialects.names import NameMap
from handrail.errors import Json, ModelError
from handrail.messages import (
    ArgumentsDelta,
    Delta,
    Finish,
    ReasoningDelta,
    TextDelta,
    Turn,
    Usage,
)
from handrail.schemas.walk import split_words

Part: TypeAlias = "dict[str, Json]"

FINISHES: Mapping[str, Finish] = {
    "STOP": "stop",
    "MAX_TOKENS": "length",
    "CONTINUATION": "length",
    # The provider interrupted its own tools: the answer is as unfinished as one that was cut.
    "TOO_MANY_TOOL_CALLS": "length",
    # The model called a tool that it does not have. The call is there, so it can be answered.
    "UNEXPECTED_TOOL_CALL": "stop",
    **dict.fromkeys(
        split_words(
            "SAFETY RECITATION LANGUAGE BLOCKLIST PROHIBITED_CONTENT SPII MODEL_ARMOR ESCALATION PUP_LIMITED_DISABLED "
            "IMAGE_SAFETY IMAGE_PROHIBITED_CONTENT IMAGE_RECITATION"
        ),
        "refused",
    ),
}
"""Reasons to finish. Others, and those yet to be invented, are no good end."""

_WORTH_ANOTHER_TRY = {
    "MALFORMED_FUNCTION_CALL",
    "UNEXPECTED_TOOL_CALL",
    "MALFORMED_RESPONSE",
}
"""The model wrote what Gemini's own parser refused, and the answer holds none of it: mostly the next one is good."""

_RUN_BY_GEMINI = frozenset(
    ("executableCode", "codeExecutionResult", "toolCall", "toolResponse")
)


def _is_run_by_gemini(part: Part) -> bool:
    return not _RUN_BY_GEMINI.isdisjoint(part)


_SEARCH_METADATA = ("groundingMetadata", "urlContextMetadata")


class AnswerAssembler:
    """One answer on its way to a turn."""

    def __init__(self, names: NameMap) -> None:
        self._names = names
        self._parts: list[_TextPart | _CallPart | Part] = []
        self._calls: list[_CallPart] = []
        self._open: _CallPart | None = None
        self._beside: list[Part] = []
        self._usage: dict[str, Json] = {}
        self._finish = self._why = self._id = ""
        self._candidates_came = False

    def take(self, chunk: Mapping[str, Json], deltas: list[Delta]) -> None:
        """Read one chunk, and append what is new in it.

        Raises:
            ModelError: It is an error, or unreadable.
        """
        candidates = chunk.get("candidates")
        if chunk.get("error") or (not candidates and provider_errors.error_in(chunk)):
            raise provider_errors.classify(None, {}, chunk)
        self._take_usage(chunk.get("usageMetadata"))
        feedback = chunk.get("promptFeedback")
        if feedback is not None and isinstance(feedback, json_bodies.OBJECT):
            self._take_feedback(feedback)
        self._id = self._id or json_bodies.text_or_empty(chunk, "responseId")
        for candidate in json_bodies.items(candidates or [], "`candidates`"):
            fields = json_bodies.mapping(candidate, "a candidate")
            if fields.get("index") in (0, None):
                self._candidates_came = True
                self._take_candidate(fields, deltas)

    def _take_usage(self, usage: Json) -> None:
        """Merge the counts, which are totals so far; not every chunk has all of them."""
        if isinstance(usage, json_bodies.OBJECT):
            self._usage |= {
                key: value for key, value in usage.items() if value is not None
            }

    def _take_feedback(self, feedback: Mapping[str, Json]) -> None:
        """Note why the prompt was blocked, if it was."""
        if feedback.get("blockReason"):
            self._candidates_came = True
            self._finish = "SAFETY"
            self._why = json_bodies.text_or_empty(
                feedback, "blockReasonMessage"
            ) or json_bodies.text_or_empty(feedback, "blockReason")

    def turn(self) -> Turn:
        """Return the turn of all chunks; `finish` is `error` where they did not say how it ended.

        Raises:
            ModelError: The provider could not read what its model wrote (`retryable`); there was no answer in it.
        """
        if not self._candidates_came:
            raise json_bodies.unreadable("it has no `candidates`")
        calls = with_ids(
            [ToolCall(call.id, call.name, call.arguments) for call in self._calls],
            self._id,
        )
        self._raise_if_malformed(has_calls=bool(calls))
        finish = FINISHES.get(self._finish, "error")
        if finish == "stop" and calls:
            finish = "calls"
        refusal = ""
        if finish == "refused":
            refusal = self._why or self._finish
        parts = [part if isinstance(part, dict) else part.raw() for part in self._parts]
        run_by_gemini = [part for part in parts if _is_run_by_gemini(part)]
        texts: list[str] = []
        thoughts: list[str] = []
        for part in self._parts:
            if isinstance(part, _TextPart):
                (thoughts if part.is_thought else texts).extend(part.pieces)
        return Turn(
            text="".join(texts),
            reasoning="".join(thoughts),
            calls=self._names.own_calls(calls),
            finish=finish,
            usage=_usage(self._usage),
            refusal=refusal,
            raw={"role": "model", "parts": parts},
            server_side=(*run_by_gemini, *self._beside),
        )

    def _raise_if_malformed(self, *, has_calls: bool) -> None:
        if self._finish not in _WORTH_ANOTHER_TRY or (
            has_calls and self._finish in FINISHES
        ):
            return
        raise ModelError(
            f"the model wrote what its provider cannot read ({self._finish}): {self._why or 'no reason was given'}",
            code=self._finish,
            retryable=True,
            answered=True,
        )

    def _take_candidate(
        self, candidate: Mapping[str, Json], deltas: list[Delta]
    ) -> None:
        content = json_bodies.mapping(
            candidate.get("content") or {}, "the content of a candidate"
        )
        for part in json_bodies.items(content.get("parts") or [], "`parts`"):
            self._take_part(json_bodies.mapping(part, "a part"), deltas)
        for key in _SEARCH_METADATA:
            metadata = candidate.get(key)
            if metadata and received.is_sendable(metadata):
                self._beside.append({key: metadata})
        self._finish = (
            json_bodies.text_or_empty(candidate, "finishReason") or self._finish
        )
        self._why = json_bodies.text_or_empty(candidate, "finishMessage") or self._why

    def _take_part(self, part: Mapping[str, Json], deltas: list[Delta]) -> None:
        if part.get("functionCall") is not None:
            self._take_call(
                part,
                json_bodies.mapping(part["functionCall"], "a `functionCall`"),
                deltas,
            )
        elif part.get("text") is not None:
            self._take_text(_TextPart(part), deltas)
        elif fields := received.sendable_fields(part):
            self._parts.append(fields)

    def _take_text(self, text: _TextPart, deltas: list[Delta]) -> None:
        if self._parts:
            last = self._parts[-1]
        else:
            last = None
        if isinstance(last, _TextPart) and last.continues_in(text):
            last.pieces += text.pieces
        elif text.pieces or text.besides:
            self._parts.append(text)
        if text.is_thought:
            deltas += map(ReasoningDelta, text.pieces)
        else:
            deltas += map(TextDelta, text.pieces)

    def _take_call(
        self, part: Mapping[str, Json], fields: Mapping[str, Json], deltas: list[Delta]
    ) -> None:
        call = self._open
        if call is None or fields.get("name"):
            if not any(fields.values()):
                return  # the end of a call that had ended
            call = _CallPart(len(self._calls), part, fields)
            self._calls.append(call)
            self._parts.append(call)
        call.grow(fields)
        if fields.get("willContinue"):
            self._open = call
        else:
            self._open = None
        if self._open is None:
            call.is_whole = True
            deltas.append(
                ArgumentsDelta(
                    call.position, self._names.from_wire(call.name), call.arguments
                )
            )


class _TextPart:
    """A part with text, as far as it came."""

    __slots__ = ("besides", "is_thought", "pieces")

    def __init__(self, part: Mapping[str, Json]) -> None:
        text = json_bodies.string(part["text"], "the text of a part")
        if text:
            self.pieces = [text]
        else:
            self.pieces = []
        self.is_thought = bool(part.get("thought"))
        self.besides = received.sendable_fields(
            {k: v for k, v in part.items() if k not in ("text", "thought")}
        )

    def continues_in(self, other: _TextPart) -> bool:
        """Whether two parts can be one: a signature belongs to the very part that it came with."""
        return (
            not (self.besides or other.besides) and self.is_thought == other.is_thought
        )

    def raw(self) -> Part:
        """Return the part as it goes back."""
        if self.is_thought:
            thought = {"thought": True}
        else:
            thought = {}
        return {"text": "".join(self.pieces), **thought, **self.besides}


class _CallPart:
    """A part with a call, as far as it came."""

    __slots__ = (
        "_args",
        "_leaves",
        "_part",
        "_sent",
        "_text",
        "id",
        "is_whole",
        "name",
        "position",
    )

    def __init__(
        self, position: int, part: Mapping[str, Json], fields: Mapping[str, Json]
    ) -> None:
        self.position = position
        self.id = json_bodies.string(fields.get("id") or "", "a call's id")
        self.name = json_bodies.string(fields.get("name") or "", "a tool's name")
        self.is_whole = False
        self._args: Json = None
        self._leaves: dict[tuple[str | int, ...], list[Json]] = {}
        self._text: str | None = None
        self._part = part
        self._sent = fields

    def grow(self, fields: Mapping[str, Json]) -> None:
        """Add what a piece says of the arguments."""
        if fields.get("args") is not None:
            self._args = fields["args"]
        for piece in json_bodies.items(
            fields.get("partialArgs") or [], "`partialArgs`"
        ):
            argument = json_bodies.mapping(piece, "a partial argument")
            values = [argument[key] for key in _VALUES if argument.get(key) is not None]
            if values or "nullValue" in argument:
                path = tuple(
                    _steps(
                        json_bodies.string(
                            argument.get("jsonPath"), "the path of an argument"
                        )
                    )
                )
                self._leaves.setdefault(path, []).extend(values)

    @property
    def arguments(self) -> str:
        """The text of the arguments."""
        if self._text is None or not self.is_whole:
            try:
                text = json_bodies.write(self._value())
            except (TypeError, ValueError, RecursionError) as error:
                raise json_bodies.unreadable(
                    "the arguments of a call have no JSON form"
                ) from error
            if self.is_whole:
                self._text = text
            else:
                self._text = text.removesuffix("}")
        return self._text

    def raw(self) -> Part:
        """Return the part as it goes back."""
        args = self._value()
        if not (args and received.is_sendable(args)):
            args = {}
        sent = {key: self._sent[key] for key in ("id", "name") if key in self._sent}
        raw: Part = {"functionCall": {**sent, "args": args}}
        for key, value in self._part.items():
            if key != "functionCall" and received.is_sendable(value):
                raw[key] = value
        return raw

    def _value(self) -> Json:
        args: Json = {} if self._args is None else self._args
        if not self._leaves:
            return args
        root = json.loads(json.dumps(args))  # what was received stays as it is
        for path, pieces in self._leaves.items():
            _put(root, path, _join_pieces(pieces))
        return root


_VALUES = ("stringValue", "numberValue", "boolValue")
_STEP = re.compile(
    r"""\.([^.\[\]]+)|\[(\d{1,9})\]|\['((?:[^'\\]|\\.)*)'\]|\["((?:[^"\\]|\\.)*)"\]"""
)
_ESCAPED = re.compile(r"\\(.)")
_MOST_STEPS = 64


def _steps(path: str) -> Iterator[str | int]:
    """Yield the names and places of a normalized path of RFC 9535, such as `$.steps[0].name`."""
    at = 1
    count = 0
    while at < len(path):
        step = _STEP.match(path, at)
        count += 1
        if step is None or count > _MOST_STEPS:
            raise json_bodies.unreadable(
                f"the path of an argument begins with {received.beginning(path)}"
            )
        at = step.end()
        name = step[1] or step[3] or step[4]
        yield int(step[2]) if step[2] else _ESCAPED.sub(r"\1", name or "")
    if not count or path[0] != "$":
        raise json_bodies.unreadable(
            f"the path of an argument is {received.beginning(path)}"
        )


def _join_pieces(pieces: Sequence[Json]) -> Json:
    """Return a text from its pieces, or the one value that came."""
    if pieces and all(isinstance(piece, str) for piece in pieces):
        return "".join(pieces)
    return pieces[-1] if pieces else None


def _put(root: Json, path: Sequence[str | int], value: Json) -> None:
    """Set what a path names, and make what leads there."""
    here = root
    for step, after in pairwise(path):
        here = _child(here, step, [] if isinstance(after, int) else {})
    _child(here, path[-1], value)


def _child(here: Json, step: str | int, value: Json) -> Json:
    if isinstance(here, dict) and isinstance(step, str):
        return here.setdefault(step, value)
    if isinstance(here, list) and isinstance(step, int) and step <= len(here):
        if step == len(here):
            here.append(value)
        return here[step]
    raise json_bodies.unreadable(
        "the paths of a call's arguments contradict one another"
    )


def parse_chunks(body: Json | bytes) -> Iterable[Mapping[str, Json]]:
    """Return the chunks of a whole body: one, or the list that a streamed answer is without `alt=sse`."""
    value = json_bodies.parse_body(body)
    return [
        json_bodies.mapping(each, "the body")
        for each in (value if isinstance(value, list) else [value])
    ]


def _usage(usage: Mapping[str, Json]) -> Usage:
    """Return the usage with all that the model read and wrote; Gemini counts its tools' results and thoughts apart."""
    thoughts = json_bodies.count(usage, "thoughtsTokenCount")
    return Usage(
        json_bodies.count(usage, "promptTokenCount")
        + json_bodies.count(usage, "toolUsePromptTokenCount"),
        json_bodies.count(usage, "candidatesTokenCount") + thoughts,
        json_bodies.count(usage, "cachedContentTokenCount"),
        thoughts,
    )
