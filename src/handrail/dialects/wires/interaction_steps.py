"""Answers of Gemini's Interactions API, whole and streamed: the reading side of `interactions`.

An answer is a list of steps: thoughts, output, calls, and what Gemini ran itself. A stream starts each step, adds to it
by its index and stops it; steps may come interleaved, and arguments come as text.

Rule 1: steps go back unchanged and in their order, so that signatures are right byte for byte.
Rule 2: an unknown status is `error`, and so is a stream without its last event.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import TypeAlias

from handrail.calls import ToolCall
from handrail.dialects import json_bodies, provider_errors, received
from handrail.dialects.call_assembly import with_ids
from handrail.dialects.names import NameMap
from handrail.errors import Json
from handrail.messages import (
    ArgumentsDelta,
    Delta,
    Finish,
    ReasoningDelta,
    TextDelta,
    Turn,
    Usage,
)

Step: TypeAlias = "dict[str, Json]"

CALL = "function_call"
RESULT = "function_result"
INPUT = "user_input"
OUTPUT = "model_output"
THOUGHT = "thought"

FINISHES: Mapping[str, Finish] = {
    "completed": "stop",
    "requires_action": "calls",
    "incomplete": "length",
    "budget_exceeded": "length",
    "requires_continuation": "length",
}
"""How an interaction ended, by its status. Every other status is `error`, unless the interaction still runs."""

REFUSALS = frozenset(
    (
        "blocked",
        "blocklist",
        "content_blocked",
        "content_filtered",
        "prohibited_content",
        "recitation",
        "safety",
        "spii",
    )
)
"""Error codes by which the model, or a filter, refused to answer."""

_UNFINISHED = frozenset(("in_progress", "queued"))
_OURS = frozenset((CALL, RESULT, INPUT, OUTPUT, THOUGHT))
_STEP_OF_DELTA: Mapping[Json, str] = {
    "text": OUTPUT,
    "text_annotation_delta": OUTPUT,
    "thought_signature": THOUGHT,
    "thought_summary": THOUGHT,
}
"""The kind of step to start for a delta whose step has no start event."""

_CONTENTS = frozenset(("image", "audio", "video", "document"))


class StepAssembler:
    """Builds a turn from the steps of one answer."""

    def __init__(self, names: NameMap) -> None:
        self._names = names
        self._steps: list[_Step] = []
        self._calls: list[_Step] = []
        # by the index that the provider gave
        self._open: dict[Json, _Step] = {}
        self._id = self._status = ""
        self._usage: Mapping[str, Json] = {}
        self._errors: Sequence[Json] = ()

    # -- whole ---------------------------------------------------------------------------------------------------------

    def take_interaction(self, interaction: Mapping[str, Json]) -> None:
        """Read the fields of an interaction, whole or from an event of a stream.

        Raises:
            ModelError: It is unreadable.
        """
        self._id = json_bodies.text_or_empty(interaction, "id") or self._id
        self._status = json_bodies.text_or_empty(interaction, "status") or self._status
        usage = interaction.get("usage")
        if usage is not None and isinstance(usage, json_bodies.OBJECT):
            self._usage = usage
        errors = interaction.get("errors")
        if isinstance(errors, list):
            self._errors = errors
        steps = json_bodies.items(interaction.get("steps") or [], "`steps`")
        if not self._steps:  # a stream has sent them already
            self.take_steps(steps)

    def take_steps(self, steps: Sequence[Json]) -> None:
        """Read whole steps.

        Raises:
            ModelError: One is unreadable.
        """
        for each in steps:
            fields = json_bodies.mapping(each, "a step")
            if fields.get("type") in (INPUT, RESULT):  # a stored answer repeats them
                continue
            step = self._begin(None, fields)
            step.check_content()
            step.is_whole = True

    # -- streamed ------------------------------------------------------------------------------------------------------

    def take_event(self, payload: Mapping[str, Json], deltas: list[Delta]) -> None:
        """Read one event, and append what is new in it.

        Raises:
            ModelError: It is an error, or unreadable.
        """
        kind = payload.get("event_type")
        if kind == "error" or payload.get("error"):
            raise provider_errors.classify(None, {}, payload)
        index = payload.get("index")
        if not isinstance(index, int | str | None):
            raise json_bodies.unreadable(
                f"an index is {json_bodies.kind(index)}, not a number"
            )
        match kind:
            case "step.start":
                step = json_bodies.mapping(payload.get("step"), "a step")
                self._tell_start(self._begin(index, step), deltas)
            case "step.delta":
                self._take_delta(
                    index, json_bodies.mapping(payload.get("delta"), "a delta"), deltas
                )
            case "step.stop":
                self._end(index, deltas)
            case "interaction.created":
                # Only the last event says how it ended.
                self._id = json_bodies.text_or_empty(_interaction(payload), "id")
            case "interaction.completed":
                self.take_interaction(_interaction(payload))

    def _begin(self, index: Json, fields: Mapping[str, Json]) -> _Step:
        step = _Step(len(self._calls), fields)
        self._steps.append(step)
        if step.kind == CALL:
            self._calls.append(step)
        if index is not None:
            self._open[index] = step
        return step

    def _tell_start(self, step: _Step, deltas: list[Delta]) -> None:
        """Append the text that a step begins with."""
        step.check_content()
        deltas += map(TextDelta, step.texts("content", of=OUTPUT))
        deltas += map(ReasoningDelta, step.texts("summary", of=THOUGHT))

    def _take_delta(
        self, index: Json, delta: Mapping[str, Json], deltas: list[Delta]
    ) -> None:
        kind = delta.get("type")
        step = self._open.get(index)
        if step is None and isinstance(kind, str) and kind in _STEP_OF_DELTA:
            step = self._begin(index, {"type": _STEP_OF_DELTA[kind]})
        if step is None:
            raise json_bodies.unreadable("a delta belongs to no step")
        if kind == "text":
            text = json_bodies.string(delta.get("text") or "", "`text` of a delta")
            if step.add_text("content", text):
                deltas.append(TextDelta(text))
        elif kind == "thought_summary":
            self._take_summary(step, delta.get("content"), deltas)
        elif kind == "arguments_delta":
            text = json_bodies.string(delta.get("arguments") or "", "arguments")
            if step.kind == CALL and text:
                step.pieces.append(text)
                deltas.append(self._delta(step, text))
        else:
            step.add_fields(kind, delta)

    def _take_summary(self, step: _Step, content: Json, deltas: list[Delta]) -> None:
        fields = json_bodies.mapping(content or {}, "a thought's summary")
        if fields.get("type", "text") != "text":
            step.add_content("summary", fields)
            return
        text = json_bodies.string(fields.get("text") or "", "`text` of a summary")
        if step.add_text("summary", text):
            deltas.append(ReasoningDelta(text))

    def _end(self, index: Json, deltas: list[Delta]) -> None:
        step = self._open.pop(index, None)
        if step is None:
            return
        step.is_whole = True
        if step.kind == CALL and not step.pieces:
            deltas.append(self._delta(step, step.arguments))

    def _delta(self, step: _Step, text: str) -> ArgumentsDelta:
        return ArgumentsDelta(step.position, self._names.from_wire(step.name), text)

    # -- the turn ------------------------------------------------------------------------------------------------------

    def turn(self, finish: Finish | None = None) -> Turn:
        """Return the turn of all that was taken.

        Args:
            finish: How it ended, where no status says it.

        Raises:
            ModelError: The interaction failed, and says why.
        """
        refusal = self._refusal()
        finish = finish or FINISHES.get(self._status, "error")
        calls = with_ids(
            [ToolCall(each.id, each.name, each.arguments) for each in self._calls],
            self._id,
        )
        if finish == "stop" and calls:
            finish = "calls"
        if refusal is not None:
            finish = "refused"
        waits_for = self._waits_for(finish, has_calls=bool(calls))
        if waits_for:
            finish = "calls"
        steps = [step.raw() for step in self._steps]
        raw: dict[str, Json] = {"id": self._id} if self._id else {}
        return Turn(
            text="".join(self._texts("content", of=OUTPUT)),
            reasoning="".join(self._texts("summary", of=THOUGHT)),
            calls=self._names.own_calls(calls),
            finish=finish,
            usage=_usage(self._usage),
            refusal=refusal or "",
            raw=raw | {"steps": steps},
            server_side=tuple(
                raw
                for step, raw in zip(self._steps, steps, strict=True)
                if step.kind not in _OURS
            ),
            waits_for=waits_for,
        )

    def _texts(self, field: str, *, of: str) -> Iterator[str]:
        for step in self._steps:
            yield from step.texts(field, of=of)

    def _refusal(self) -> str | None:
        """Return why the model did not answer; None where it did.

        Raises:
            ModelError: It failed for another reason.
        """
        if self._status not in ("failed", "cancelled"):
            return None
        causes = [*self._errors, *(step.error for step in self._steps)]
        errors = [
            each for each in causes if each and isinstance(each, json_bodies.OBJECT)
        ]
        if not errors:
            return None
        code = str(errors[0].get("code") or "").lower()
        if code in REFUSALS:
            return json_bodies.text_or_empty(errors[0], "message")
        raise provider_errors.classify(None, {}, {"error": dict(errors[0])})

    def _waits_for(self, finish: Finish, *, has_calls: bool) -> str:
        if self._status in _UNFINISHED:
            return f"the end of the interaction {self._id!r}, which is {self._status}"
        if finish == "calls" and not has_calls:
            return "an action that no step of the answer names"
        return ""


def _interaction(payload: Mapping[str, Json]) -> Mapping[str, Json]:
    return json_bodies.mapping(payload.get("interaction") or {}, "an interaction")


class _Step:
    """A step, as far as it has arrived."""

    __slots__ = (
        "_fields",
        "_given",
        "id",
        "is_whole",
        "kind",
        "name",
        "pieces",
        "position",
    )

    def __init__(self, position: int, fields: Mapping[str, Json]) -> None:
        # clients give fields that were not on the wire as None
        self._fields = {
            key: value
            for key, value in received.sendable_fields(fields).items()
            if value is not None
        }
        self.kind = json_bodies.string(fields.get("type") or "", "a step's type")
        self.position = position
        self.id = self.name = ""
        self.is_whole = False
        self.pieces: list[str] = []
        self._given = fields.get("arguments") or {}
        if self.kind == CALL:
            self.id = json_bodies.string(fields.get("id") or "", "a call's id")
            self.name = json_bodies.string(fields.get("name") or "", "a tool's name")
            if isinstance(self._given, str):
                self.pieces.append(self._given)

    @property
    def arguments(self) -> str:
        """The text of the arguments. Arguments sent as an object lack their last `}` until the step has ended: a call
        that was cut must not run."""
        if self.pieces:
            return "".join(self.pieces)
        text = json_bodies.json_text(self._given, "the arguments of a call")
        return text if self.is_whole else text.removesuffix("}")

    @property
    def error(self) -> Json:
        """The step's error, verbatim from the provider."""
        return self._fields.get("error")

    def check_content(self) -> None:
        """Check the form of what holds texts."""
        for field in ("content", "summary"):
            contents = self._fields.get(field)
            if contents is None:
                continue
            self._fields[field] = [
                {**json_bodies.mapping(each, f"`{field}` of a step")}
                for each in json_bodies.items(contents, f"`{field}` of a step")
            ]

    def texts(self, field: str, *, of: str) -> Iterator[str]:
        """Yield the texts of a field, where the step is of that kind."""
        if self.kind != of:
            return
        for each in self._fields.get(field) or ():
            text = each.get("text")
            if isinstance(text, _Pieces):
                yield "".join(text)
            elif text and each.get("type") == "text":
                yield json_bodies.string(text, "a text of a step")

    def add_text(self, field: str, text: str) -> bool:
        """Add a piece of text; return whether there was any."""
        contents = self._contents(field)
        if not contents or contents[-1].get("type") != "text":
            contents.append({"type": "text"})
        pieces = contents[-1].get("text") or ""
        if not isinstance(pieces, _Pieces):
            pieces = _Pieces([json_bodies.string(pieces, "a text of a step")])
            contents[-1]["text"] = pieces
        pieces.append(text)
        return bool(text)

    def add_content(self, field: str, fields: Mapping[str, Json]) -> None:
        """Add an image, or another content that is no text."""
        self._contents(field).append(received.sendable_fields(fields))

    def add_fields(self, kind: Json, delta: Mapping[str, Json]) -> None:
        """Add what a delta of any other type says: the step's own fields, annotations of a text, a picture."""
        fields = received.sendable_fields(delta)
        if kind == "text_annotation_delta":
            self._annotate(fields.get("annotations"))
            return
        if isinstance(kind, str) and kind in _CONTENTS:
            self.add_content("content", fields)
            return
        for key, value in fields.items():
            if key in ("type", "content", "summary") or value in (None, ""):
                continue
            before = self._fields.get(key)
            if isinstance(before, list) and isinstance(value, list):
                value = [*before, *value]
            self._fields[key] = value

    def _annotate(self, annotations: Json) -> None:
        contents = self._contents("content")
        if not contents:
            contents.append({"type": "text", "text": ""})
        given = contents[-1].get("annotations")
        contents[-1]["annotations"] = [
            *(given if isinstance(given, list) else ()),
            *json_bodies.items(annotations or [], "`annotations`"),
        ]

    def _contents(self, field: str) -> list[Json]:
        contents: list[Json] = self._fields.setdefault(field, [])
        return contents

    def raw(self) -> Step:
        """Return the step as it goes back."""
        raw = dict(self._fields)
        for field in ("content", "summary"):
            if field in raw:
                raw[field] = [_join_text(each) for each in raw[field]]
        if self.kind == CALL:
            raw["arguments"] = _object(self.arguments)
        return raw


class _Pieces(list[str]):
    """A text that arrives in pieces."""


def _join_text(content: Mapping[str, Json]) -> dict[str, Json]:
    text = content.get("text")
    if isinstance(text, _Pieces):
        return {**content, "text": "".join(text)}
    return {**content}


def _object(text: str) -> Json:
    """Return the arguments as an object, empty if they are none. What is sent back is written from the call."""
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return {}
    if isinstance(value, dict) and received.is_sendable(value):
        return value
    return {}


def _usage(usage: Mapping[str, Json]) -> Usage:
    """Return the usage; add what Gemini counts apart: its own tools to the input, thoughts to the output."""

    def count(name: str) -> int:
        return json_bodies.count(usage, f"total_{name}_tokens")

    return Usage(
        count("input") + count("tool_use"),
        count("output") + count("thought"),
        count("cached"),
        count("thought"),
    )
