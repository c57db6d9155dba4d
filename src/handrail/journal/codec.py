"""The format of a journal: a run can be resumed, inspected, forked and replayed from it, by any process and version.

A run is its input and its steps. A step has a key that names its position, not its order:

    3.m     the model's third answer
    3.0     the result of the first call of that turn
    3.0.p   a person's decision on that call
    3.2     after the results of its two calls: of the step that followed the first, with the call that code made
    3.q     the question before that answer, where it is not the first of its run; see `rounds`
    3.f     the results that became handles before that answer; see `rounds`

So calls that ran side by side may have ended in any order, and code that has changed meanwhile finds what it needs.
Resuming is running: the same generators are driven again, and answered from the steps as far as there are steps.

Rule 1: the model's answer is a step before its calls run; a write is settled before its result is one.
Rule 2: the format is documented here and versioned. What cannot be read is refused with `JournalMismatch`.
"""

from __future__ import annotations

import hashlib
import json
from base64 import b64decode
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Any

from msgspec import Struct, field
from msgspec.json import encode
from msgspec.structs import asdict, astuple, replace

from handrail.calls import TRUSTED, Label, Media, ToolCall, ToolResult
from handrail.core.budgets import Budget
from handrail.core.results import is_written_as, plain
from handrail.errors import Code, ConfigError, Failure, JournalMismatch, Json
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
from handrail.records import JournalStep
from handrail.tools import keys

_quote = json.encoder.encode_basestring_ascii
_encode_ascii = json.JSONEncoder(separators=(",", ":")).encode


class RunInput(Struct, frozen=True):
    """The input of a run: everything needed to start it again, except tools, dependencies and secrets."""

    messages: Sequence[Message]
    model: str
    options: Options = field(default_factory=Options)
    budget: Mapping[str, Json] = field(default_factory=dict)
    output: Json = None
    done_before: Sequence[str] = ()
    """Later writes of the run that this one was forked from, by `policy.describe_write`: a person is asked again."""
    flow: Sequence[Json] = ()
    """The rules of its flow, see `flow.rules_as_json`."""
    workflow: Sequence[Json] = ()
    """Name and arguments of the function that makes the run's steps; empty if a model does."""
    boundary_secret: str = ""
    """Of which the marks around results are made; empty without them."""
    trust: Mapping[str, Json] | None = None
    """What it took over from the run that started it, see `trust.Trust.as_json`; None where that is nothing."""
    principal: str = ""
    """On whose behalf it acts, whoever resumes it; empty where nobody is named."""


def model_key(turn: int) -> str:
    """Return the key of a model's answer."""
    return f"{turn}.m"


def call_key(turn: int, index: int) -> str:
    """Return the key of a call's result."""
    return f"{turn}.{index}"


def toolset_digest(tools: Iterable[Any]) -> str:
    """Return the digest of a set of tools: of names and schemas, not of texts, which may be corrected."""
    lines = sorted(
        keys.canonical({"name": tool.name, "parameters": tool.parameters})
        for tool in tools
    )
    return hashlib.sha256("\n".join(lines).encode()).hexdigest()[:16]


def budget_as_json(budget: Budget) -> dict[str, Json]:
    """Return a budget as a journal stores it."""
    members: dict[str, Json] = plain(asdict(budget))
    return members


def budget_from_json(body: Json) -> Budget:
    """Return a budget from a journal; unknown members are left out."""
    with _reading("a budget", body) as members:
        return Budget(
            **{
                name: _parse_amounts(value)
                for name, value in members.items()
                if name in Budget.__struct_fields__
            }
        )


def _parse_amounts(value: Json) -> Any:
    """Return the numbers of a budget; JSON holds infinity as a text."""
    if isinstance(value, Mapping):
        return {name: _parse_amounts(each) for name, each in value.items()}
    if isinstance(value, list):
        return tuple(map(_parse_amounts, value))
    if isinstance(value, str):
        return float(value)
    return value


# ---------------------------------------------------------------------- as JSON, and back


def turn_as_json(turn: Turn) -> dict[str, Json]:
    """Return a model's answer as a journal stores it."""
    return _without_empty(
        {
            "text": turn.text,
            "reasoning": turn.reasoning,
            "calls": [_call_as_json(call) for call in turn.calls],
            "finish": turn.finish,
            "usage": list(astuple(turn.usage)),
            "refusal": turn.refusal,
            "raw": plain(turn.raw) if turn.raw else None,
            "server_side": plain(list(turn.server_side)) if turn.server_side else None,
            "waits_for": turn.waits_for,
        }
    )


def turn_as_text(turn: Turn, model: str) -> str:
    """Return a usual answer and its model's name as ASCII JSON, as `turn_as_json` has it; empty for any other."""
    if (
        turn.raw
        or turn.reasoning
        or turn.refusal
        or turn.server_side
        or turn.waits_for
        or any(call.program or type(call.id) is not str for call in turn.calls)
    ):
        return ""
    calls = [
        f"[{_quote(call.id)},{_quote(call.name)},{_quote(call.arguments)}]"
        for call in turn.calls
    ]
    text = f'"text":{_quote(turn.text)},' if turn.text else ""
    called = f'"calls":[{",".join(calls)}],' if calls else ""
    named = f',"model":{_quote(model)}' if model else ""
    return f'{{{text}{called}"finish":{_quote(turn.finish)},"usage":{_usage_as_text(turn.usage)}{named}}}'


@lru_cache(maxsize=256)
def _usage_as_text(usage: Usage) -> str:
    return encode(astuple(usage)).decode()


def _call_as_json(call: ToolCall) -> list[Json]:
    members: list[Json] = [call.id, call.name, call.arguments]
    if call.program:
        members.append(call.program)
    return members


def turn_from_json(body: Json) -> Turn:
    """Return a model's answer from a journal."""
    with _reading("a model's answer", body) as members:
        return Turn(
            text=members.get("text", ""),
            reasoning=members.get("reasoning", ""),
            calls=tuple(ToolCall(*each) for each in members.get("calls", ())),
            finish=members["finish"],
            usage=Usage(*members.get("usage", ())),
            refusal=members.get("refusal", ""),
            raw=members.get("raw"),
            server_side=tuple(members.get("server_side", ())),
            waits_for=members.get("waits_for", ""),
        )


def answering_model(body: Json) -> str:
    """Return the name of the model that gave a recorded answer; empty where the answer does not say."""
    name = body.get("model") if isinstance(body, Mapping) else None
    return name if isinstance(name, str) else ""


def result_as_json(result: ToolResult) -> dict[str, Json]:
    """Return a call's result as a journal stores it. A value without a JSON form is stored as its text."""
    members: dict[str, Json] = {}
    if result.ok and (value := plain(result.value)) is not None:
        members["value"] = value
    if result.ok and not (
        result.note
        or result.repairs
        or result.handle
        or result.media
        or result.done_under
    ):
        return _add_usual(members, result)
    return members | _without_empty(
        {
            "call": result.call_id,
            "name": result.name,
            "failure": result.failure and _failure_as_json(result.failure),
            "text": result.text,
            "attempts": result.attempts,
            "replayed": result.replayed,
            "note": result.note,
            "repairs": list(result.repairs),
            "handle": result.handle,
            "media": [_media_as_json(each) for each in result.media],
            "done_under": result.done_under,
            "labels": label_as_json(result.label),
        }
    )


def result_as_text(result: ToolResult) -> str:
    """Return a usual success as ASCII JSON, as `result_as_json` has it; empty for any other result.

    The text of such a result is the JSON of its value, so one encoding serves for both members.
    """
    if (
        result.failure is not None
        or result.note
        or result.repairs
        or result.handle
        or result.media
        or result.done_under
        or type(result.call_id) is not str
    ):
        return ""
    text = _quote(result.text)
    value = text
    if type(result.value) is not str:
        if "\\" in result.text or not is_written_as(result.value, result.text):
            return ""
        # The text has no backslash, so quoting escaped only quotation marks, and what is not ASCII.
        value = text[1:-1].replace('\\"', '"')
    elif result.value != result.text:
        return ""
    call = result.call_id
    name = result.name
    replayed = "true" if result.replayed else "false"
    ending = f'"attempts":{result.attempts},"replayed":{replayed}{_label_as_text(result.label)}}}'
    if call and name and text != '""':  # in one go, as nearly all are
        return f'{{"value":{value},"call":{_quote(call)},"name":{_quote(name)},"text":{text},{ending}'
    call = f'"call":{_quote(call)},' if call else ""
    name = f'"name":{_quote(name)},' if name else ""
    shown = f'"text":{text},' if result.text else ""
    return f'{{"value":{value},{call}{name}{shown}{ending}'


@lru_cache(maxsize=256)
def _label_as_text(label: Label) -> str:
    members = label_as_json(label)
    return f',"labels":{_encode_ascii(members)}' if members else ""


def _add_usual(members: dict[str, Json], result: ToolResult) -> dict[str, Json]:
    """Add what nearly every success consists of, in half the time that all fields take."""
    if result.call_id:
        members["call"] = result.call_id
    if result.name:
        members["name"] = result.name
    if result.text:
        members["text"] = result.text
    members["attempts"] = result.attempts
    members["replayed"] = result.replayed
    labels = label_as_json(result.label)
    if labels:
        members["labels"] = labels
    return members


def result_from_json(body: Json) -> ToolResult:
    """Return a call's result from a journal."""
    with _reading("a call's result", body) as members:
        failure: Failure | None = None
        if "failure" in members:
            failure = _failure_from_json(members["failure"])
        return ToolResult(
            call_id=members.get("call", ""),
            name=members.get("name", ""),
            value=members.get("value"),
            failure=failure,
            text=members.get("text", ""),
            attempts=members.get("attempts", 0),
            replayed=members.get("replayed", False),
            note=members.get("note", ""),
            repairs=tuple(members.get("repairs", ())),
            handle=members.get("handle", ""),
            media=tuple(map(_media_from_json, members.get("media", ()))),
            done_under=members.get("done_under", ""),
            label=label_from_json(members.get("labels")),
        )


def label_as_json(label: Label) -> dict[str, Json] | None:
    """Return a label as journals and the audit log have it: what is not as of trusted, public words."""
    if label is TRUSTED:
        return None
    return dict(_label_members(label))


@lru_cache(maxsize=256)
def _label_members(label: Label) -> Mapping[str, Json]:
    """Return what of a label is not as of trusted, public words: nearly every result has the label of its tool."""
    return {
        name: value
        for name in Label.__struct_fields__
        if (value := getattr(label, name)) != getattr(TRUSTED, name)
    }


def label_from_json(body: Json) -> Label:
    """Return a label from a journal; that of trusted, public words where there is none."""
    return Label(**body) if body else TRUSTED


def calls_in(
    steps: Iterable[JournalStep],
) -> Iterator[tuple[JournalStep, str, ToolCall, Finish]]:
    """Yield the calls of a run: the step that holds the call, the key of its result, the call, the turn's finish."""
    for step in steps:
        if step.kind == "model":
            answer = turn_from_json(step.body)
            for index, call in enumerate(answer.calls):
                yield step, call_key(step.turn, index), call, answer.finish
        elif code_call := call_by_code(step):
            yield step, step.key, code_call, "calls"


def call_by_code(step: JournalStep) -> ToolCall | None:
    """Return the call that a step holds, where code made it and no model's answer holds it."""
    body = step.body
    if step.kind != "call" or not isinstance(body, Mapping) or "arguments" not in body:
        return None
    return ToolCall(
        str(body.get("call", "")), str(body.get("name", "")), str(body["arguments"])
    )


class Doubt(Struct, frozen=True):
    """A write that a step of a run left in doubt.

    Attributes:
        scope: With `key` its name in the ledger; these and `fingerprint`, in hex, are empty if it has no row there.
    """

    tool: str
    scope: str
    key: str
    fingerprint: str


def doubt_in(step: JournalStep) -> Doubt | None:
    """Return the write that a step leaves in doubt; None where it leaves none."""
    body = step.body
    if step.kind != "call":
        return None
    failure = result_from_json(body).failure
    if failure is None or failure.code != Code.IN_DOUBT:
        return None
    scope, key, fingerprint = body.get("write") or ("", "", "")
    return Doubt(str(body.get("name", "")), str(scope), str(key), str(fingerprint))


def input_as_json(run_input: RunInput) -> dict[str, Json]:
    """Return the input of a run as a store has it."""
    options = run_input.options
    members: dict[str, Json] = {
        "messages": [message_as_json(each) for each in run_input.messages],
        "model": run_input.model,
        "options": _without_empty(
            {
                "tool_choice": options.tool_choice,
                "parallel": options.parallel,
                "strict": options.strict,
                "max_tokens": options.max_tokens,
                "temperature": options.temperature,
                "provider_tools": plain(list(options.provider_tools)),
                "extra": plain(dict(options.extra)),
                "boundaries": options.boundaries,
                "effort": options.effort,
                # what is not there is "auto"
                "cache": "" if options.cache == "auto" else options.cache or "none",
                "output": options.output
                and [plain(options.output.schema), options.output.name],
            }
        ),
        "budget": dict(run_input.budget),
        "output": run_input.output,
        "done_before": list(run_input.done_before),
    }
    if run_input.flow:
        members["flow"] = list(run_input.flow)
    if run_input.workflow:
        members["workflow"] = list(run_input.workflow)
    if run_input.boundary_secret:
        members["boundary_secret"] = run_input.boundary_secret
    if run_input.trust:
        members["trust"] = dict(run_input.trust)
    if run_input.principal:
        members["principal"] = run_input.principal
    return members


def input_from_json(body: Json) -> RunInput:
    """Return the input of a run from a store."""
    with _reading("a run's input", body) as members:
        fields_of_options = dict(members["options"])
        output = fields_of_options.pop("output", None)
        if fields_of_options.get("cache") == "none":
            fields_of_options["cache"] = None
        options = Options(**fields_of_options)
        if output:
            options = replace(options, output=Output(*output))
        return RunInput(
            messages=[message_from_json(each) for each in members["messages"]],
            model=members["model"],
            options=options,
            budget=members["budget"],
            output=members.get("output"),
            done_before=tuple(members.get("done_before", ())),
            flow=tuple(members.get("flow", ())),
            workflow=tuple(members.get("workflow", ())),
            boundary_secret=members.get("boundary_secret", ""),
            trust=members.get("trust"),
            principal=members.get("principal", ""),
        )


def message_as_json(message: Message) -> dict[str, Json]:
    """Return a message as a journal stores it."""
    match message:
        case SystemMessage(text=text):
            return {"system": text}
        case UserMessage(text=text, parts=parts):
            if not parts:
                return {"user": text}
            return {"user": text, "parts": [_part_as_json(each) for each in parts]}
        case AssistantMessage(turn=turn):
            return {"assistant": turn_as_json(turn)}
        case ToolMessage(result=result):
            return {"result": result_as_json(result)}


def _part_as_json(part: Mapping[str, Json] | Media) -> Json:
    if isinstance(part, Media):
        return {"media": _media_as_json(part)}
    return {"part": plain(dict(part))}


def _media_as_json(media: Media) -> list[Json]:
    return [media.media_type, media.base64, media.url, media.name]


def _media_from_json(body: Sequence[Json]) -> Media:
    media_type, data, url, name = body
    return Media(media_type, b64decode(data), url, name)


def message_from_json(body: Json) -> Message:
    """Return a message from a journal."""
    with _reading("a message", body) as members:
        if "system" in members:
            return SystemMessage(members["system"])
        if "user" in members:
            return UserMessage(
                members["user"], tuple(map(_part_from_json, members.get("parts", ())))
            )
        if "assistant" in members:
            return AssistantMessage(turn_from_json(members["assistant"]))
        return ToolMessage(result_from_json(members["result"]))


def _part_from_json(body: Mapping[str, Json]) -> Mapping[str, Json] | Media:
    if "media" in body:
        return _media_from_json(body["media"])
    part: Mapping[str, Json] = body["part"]
    return part


def _failure_as_json(failure: Failure) -> list[Json]:
    details = plain(list(failure.details))
    return [
        str(failure.code),
        failure.message,
        failure.suggestion,
        failure.retryable,
        details,
    ]


def _failure_from_json(body: Json) -> Failure:
    code, message, suggestion, retryable, details = body
    return Failure(code, message, suggestion, retryable, tuple(details))


def _without_empty(fields: dict[str, Json]) -> dict[str, Json]:
    """Return the fields without empty texts, lists and None; numbers and booleans stay."""
    return {
        name: value
        for name, value in fields.items()
        if value or type(value) in (int, float, bool)
    }


class _reading:  # used as `with _reading(...)`, like a function
    """Raises JournalMismatch for whatever is wrong with a journal's body."""

    def __init__(self, what: str, body: Json) -> None:
        self._what = what
        self._body = body

    def __enter__(self) -> Any:
        if not isinstance(self._body, Mapping):
            raise JournalMismatch(
                f"{self._what} in the journal is of type {type(self._body).__name__}"
            )
        return self._body

    def __exit__(self, _: Any, error: BaseException | None, __: Any) -> None:
        if isinstance(
            error,
            (KeyError, TypeError, ValueError, IndexError, AttributeError, ConfigError),
        ):
            raise JournalMismatch(
                f"{self._what} in the journal cannot be read: {error!r}"
            ) from error
