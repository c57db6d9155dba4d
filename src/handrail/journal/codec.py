"""What a run leaves behind, so that it can be gone on with, looked at, forked and replayed, by any process and version.

A run is its input and its steps. A step has a key that names its place, not its order:

    3.m     the model's third answer
    3.0     the result of the first call of that turn
    3.0.p   a person's word on that call
    3.2     behind the results of its two calls: of the step that followed the first, with the call that code made

So calls that ran side by side may have ended in any order, and code that has changed meanwhile finds what it needs.
Resuming is running: the same generators are driven again, and what has a step is answered from it.

Rule 1: the model's answer is a step before its calls run; a write is settled before its result is one.
Rule 2: the format is documented here and versioned. What cannot be read is refused with `JournalMismatch`.
"""

from __future__ import annotations

import hashlib
from base64 import b64decode
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from msgspec import Struct, field
from msgspec.structs import asdict, astuple, fields, replace

from handrail.calls import Media, ToolCall, ToolResult
from handrail.core.budgets import Budget
from handrail.core.results import plain
from handrail.effects import Approval
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


class RunInput(Struct, frozen=True):
    """What a run was asked: everything that it needs to be begun again, but for tools, dependencies and secrets."""

    messages: Sequence[Message]
    model: str
    options: Options = field(default_factory=Options)
    budget: Mapping[str, Json] = field(default_factory=dict)
    output: Json = None
    done_before: Sequence[str] = ()
    """What the run that this one was forked from has done since, as `policy.act` tells it: a person is asked again."""
    flow: Sequence[Json] = ()
    """The rules of its course, as `flow.rules_as_json` tells them."""
    workflow: Sequence[Json] = ()
    """Of a run whose steps a function makes: its name, and its arguments."""


def model_key(turn: int) -> str:
    """Return the key of a model's answer."""
    return f"{turn}.m"


def call_key(turn: int, index: int) -> str:
    """Return the key of a call's result."""
    return f"{turn}.{index}"


def person_key(turn: int, index: int) -> str:
    """Return the key of a person's word on a call."""
    return f"{turn}.{index}.p"


def toolset_digest(tools: Iterable[Any]) -> str:
    """Return what tells one set of tools from another: names and schemas, not texts, so that a mended typo is none."""
    told = sorted(keys.canonical({"name": tool.name, "parameters": tool.parameters}) for tool in tools)
    return hashlib.sha256("\n".join(told).encode()).hexdigest()[:16]


def budget_as_json(budget: Budget) -> dict[str, Json]:
    """Return a budget as a journal keeps it."""
    told: dict[str, Json] = plain(asdict(budget))
    return told


def budget_from_json(body: Json) -> Budget:
    """Return a budget from a journal; what it does not know of is left out."""
    known = {each.name for each in fields(Budget)}
    with _reading("a budget", body) as told:
        return Budget(**{name: _amounts(value) for name, value in told.items() if name in known})


def _amounts(value: Json) -> Any:
    """Return what a budget holds, which is numbers; of infinity JSON has only the name."""
    if isinstance(value, Mapping):
        return {name: _amounts(each) for name, each in value.items()}
    if isinstance(value, list):
        return tuple(map(_amounts, value))
    return float(value) if isinstance(value, str) else value


# ---------------------------------------------------------------------- as JSON, and back


def turn_as_json(turn: Turn) -> dict[str, Json]:
    """Return a model's answer as a journal keeps it."""
    return _without_empty(
        {
            "text": turn.text,
            "reasoning": turn.reasoning,
            "calls": [[call.id, call.name, call.arguments] for call in turn.calls],
            "finish": turn.finish,
            "usage": list(astuple(turn.usage)),
            "refusal": turn.refusal,
            "raw": plain(turn.raw) if turn.raw else None,
            "server_side": plain(list(turn.server_side)) if turn.server_side else None,
            "waits_for": turn.waits_for,
        }
    )


def turn_from_json(body: Json) -> Turn:
    """Return a model's answer from a journal."""
    with _reading("a model's answer", body) as told:
        return Turn(
            told.get("text", ""),
            told.get("reasoning", ""),
            tuple(ToolCall(*each) for each in told.get("calls", ())),
            told["finish"],
            Usage(*told.get("usage", ())),
            told.get("refusal", ""),
            told.get("raw"),
            tuple(told.get("server_side", ())),
            told.get("waits_for", ""),
        )


def result_as_json(result: ToolResult) -> dict[str, Json]:
    """Return a call's result as a journal keeps it. A value without a JSON form is kept as the text that it has."""
    failure, value = result.failure, plain(result.value) if result.ok else None
    told: dict[str, Json] = {} if value is None else {"value": value}
    return told | _without_empty(
        {
            "call": result.call_id,
            "name": result.name,
            "failure": failure and _failure_as_json(failure),
            "text": result.text,
            "attempts": result.attempts,
            "replayed": result.replayed,
            "note": result.note,
            "repairs": list(result.repairs),
            "handle": result.handle,
            "media": [[each.media_type, each.base64, each.url, each.name] for each in result.media],
            "done_under": result.done_under,
        }
    )


def result_from_json(body: Json) -> ToolResult:
    """Return a call's result from a journal."""
    with _reading("a call's result", body) as told:
        return ToolResult(
            told.get("call", ""),
            told.get("name", ""),
            told.get("value"),
            _failure_from_json(told["failure"]) if "failure" in told else None,
            told.get("text", ""),
            told.get("attempts", 0),
            told.get("replayed", False),
            told.get("note", ""),
            tuple(told.get("repairs", ())),
            told.get("handle", ""),
            tuple(Media(kind, b64decode(data), url, name) for kind, data, url, name in told.get("media", ())),
            told.get("done_under", ""),
        )


def calls_in(steps: Iterable[JournalStep]) -> Iterator[tuple[JournalStep, str, ToolCall, Finish]]:
    """Yield what was called in a run: the step that tells it, the key of its result, the call, the turn's finish."""
    for step in steps:
        if step.kind == "model":
            answer = turn_from_json(step.body)
            yield from (
                (step, call_key(step.turn, index), call, answer.finish) for index, call in enumerate(answer.calls)
            )
        elif call := call_by_code(step):
            yield step, step.key, call, "calls"


def call_by_code(step: JournalStep) -> ToolCall | None:
    """Return the call that a step tells of, where code made it and it stands in no model's answer."""
    body = step.body
    if step.kind != "call" or not isinstance(body, Mapping) or "arguments" not in body:
        return None
    return ToolCall(str(body.get("call", "")), str(body.get("name", "")), str(body["arguments"]))


class Doubt(Struct, frozen=True):
    """A write that a step of a run left in doubt.

    Attributes:
        scope: With `key` its name in the ledger; these and `fingerprint`, in hex, are empty where it never got there.
    """

    tool: str
    scope: str
    key: str
    fingerprint: str


def doubt_in(step: JournalStep) -> Doubt | None:
    """Return the write that a step leaves in doubt; None where it leaves none."""
    body = step.body
    if step.kind != "call" or (failure := result_from_json(body).failure) is None or failure.code != Code.IN_DOUBT:
        return None
    scope, key, fingerprint = body.get("write") or ("", "", "")
    return Doubt(str(body.get("name", "")), str(scope), str(key), str(fingerprint))


def approval_as_json(approval: Approval) -> dict[str, Json]:
    """Return a person's word as a journal keeps it."""
    told = {"granted": approval.granted, "by": approval.by, "reason": approval.reason}
    return told if approval.arguments is None else {**told, "arguments": dict(approval.arguments)}


def approval_from_json(body: Json) -> Approval:
    """Return a person's word from a journal."""
    with _reading("a person's word", body) as told:
        return Approval(told["granted"], told.get("by", ""), told.get("reason", ""), told.get("arguments"))


def input_as_json(asked: RunInput) -> dict[str, Json]:
    """Return what a run was asked as a store keeps it."""
    options = asked.options
    return {
        "messages": [_message_as_json(each) for each in asked.messages],
        "model": asked.model,
        "options": _without_empty(
            {
                "tool_choice": options.tool_choice,
                "parallel": options.parallel,
                "strict": options.strict,
                "max_tokens": options.max_tokens,
                "temperature": options.temperature,
                "provider_tools": plain(list(options.provider_tools)),
                "extra": plain(dict(options.extra)),
                "output": options.output and [plain(options.output.schema), options.output.name],
            }
        ),
        "budget": dict(asked.budget),
        "output": asked.output,
        "done_before": list(asked.done_before),
        **({"flow": list(asked.flow)} if asked.flow else {}),
        **({"workflow": list(asked.workflow)} if asked.workflow else {}),
    }


def input_from_json(body: Json) -> RunInput:
    """Return what a run was asked."""
    with _reading("a run's input", body) as told:
        options = dict(told["options"])
        output = options.pop("output", None)
        return RunInput(
            [_message_from_json(each) for each in told["messages"]],
            told["model"],
            replace(Options(**options), output=Output(*output) if output else None),
            told["budget"],
            told.get("output"),
            tuple(told.get("done_before", ())),
            tuple(told.get("flow", ())),
            tuple(told.get("workflow", ())),
        )


def _message_as_json(message: Message) -> dict[str, Json]:
    match message:
        case SystemMessage(text=text):
            return {"system": text}
        case UserMessage(text=text, parts=parts):
            shown = [_part_as_json(each) for each in parts]
            return {"user": text, "parts": shown} if shown else {"user": text}
        case AssistantMessage(turn=turn):
            return {"assistant": turn_as_json(turn)}
        case ToolMessage(result=result):
            return {"result": result_as_json(result)}


def _part_as_json(part: Mapping[str, Json] | Media) -> Json:
    if isinstance(part, Media):
        return {"media": [part.media_type, part.base64, part.url, part.name]}
    return {"part": plain(dict(part))}


def _message_from_json(body: Json) -> Message:
    with _reading("a message", body) as told:
        if "system" in told:
            return SystemMessage(told["system"])
        if "user" in told:
            return UserMessage(told["user"], tuple(map(_part_from_json, told.get("parts", ()))))
        if "assistant" in told:
            return AssistantMessage(turn_from_json(told["assistant"]))
        return ToolMessage(result_from_json(told["result"]))


def _part_from_json(told: Mapping[str, Json]) -> Mapping[str, Json] | Media:
    if "media" in told:
        kind, data, url, name = told["media"]
        return Media(kind, b64decode(data), url, name)
    part: Mapping[str, Json] = told["part"]
    return part


def _failure_as_json(failure: Failure) -> list[Json]:
    details = plain(list(failure.details))
    return [str(failure.code), failure.message, failure.suggestion, failure.retryable, details]


def _failure_from_json(told: Json) -> Failure:
    code, message, suggestion, retryable, details = told
    return Failure(code, message, suggestion, retryable, tuple(details))


def _without_empty(fields: dict[str, Json]) -> dict[str, Json]:
    """Return the fields that say something; a number always does, and so does a choice of two that is made."""
    return {name: value for name, value in fields.items() if value or type(value) in (int, float, bool)}


class _reading:  # noqa: N801  # used as `with _reading(...)`, like a function
    """Turns whatever is wrong with a journal's body into one clear error."""

    def __init__(self, what: str, body: Json) -> None:
        self._what, self._body = what, body

    def __enter__(self) -> Any:
        if not isinstance(self._body, Mapping):
            raise JournalMismatch(f"{self._what} in the journal is of type {type(self._body).__name__}")
        return self._body

    def __exit__(self, _: Any, error: BaseException | None, __: Any) -> None:
        if isinstance(error, (KeyError, TypeError, ValueError, IndexError, AttributeError, ConfigError)):
            raise JournalMismatch(f"{self._what} in the journal cannot be read: {error!r}") from error
