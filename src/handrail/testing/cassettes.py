"""Records a run on a tape: a JSON file of a model's answers and tools' results, so that a test needs neither of them.

    def test_the_desk_finds_the_order(cassette):                         # `pytest --record-cassettes` writes the tape
        with cassette.runtime([find_order, refund]) as runtime:
            run = runtime.run("Where is order 7?", model=cassette.model("openai:NAME"))

While a tape is played, handrail does everything as usual (checks, policy, approvals, ledger) except the last step: no
tool is started. Its result comes from the tape, found by name and arguments, in the order in which it was recorded.

Rule 1: a call that is not on the tape ends the test with `NotOnTape`; no tool of a tape that is played ever runs.
Rule 2: nothing goes on a tape, or is compared with one, before secrets are taken out of it.
Rule 3: what is recorded twice alike gives the same file: no times, no token counts, calls in the order of their turn.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from msgspec import Struct, field
from msgspec.structs import replace
from pydantic_core import to_jsonable_python

from handrail.calls import ToolCall, ToolResult
from handrail.core.redaction import Redactor, texts_in
from handrail.credentials.secret import Secret
from handrail.effects import Approval
from handrail.engine.engine import Engine
from handrail.errors import Code, ConfigError, Failure, HandrailError, Json, ToolError
from handrail.events import ApprovalGiven, CallAdmitted, CallFinished, Event
from handrail.journal.codec import (
    result_as_json,
    result_from_json,
    turn_as_json,
    turn_from_json,
)
from handrail.messages import AssistantMessage, Turn, UserMessage
from handrail.ports import Listener, Model, Request
from handrail.runtime import Runtime
from handrail.sync import SyncRuntime
from handrail.tools import keys
from handrail.tools.settings import Limits, Sandbox
from handrail.tools.tool import BaseTool
from handrail.tools.toolset import Tools, Toolset

CASSETTE_V = 1
"""The version of the files. A newer one is refused."""

LONGEST_LINE = 96


class NotOnTape(HandrailError):
    """A run asks for what was not recorded: its tools, its prompts or its code have changed."""


class TapedCall(Struct):
    """One call of a tool as it lies on the tape: `arguments` are those that the tool got, `result` how it ended."""

    tool: str
    arguments: Json
    result: ToolResult

    def as_json(self) -> dict[str, Json]:
        """Return the call as the file holds it: what a model reads is computed from it."""
        fields = result_as_json(self.result)
        ending: dict[str, Json] = {
            name: fields[name] for name in ("value", "failure") if name in fields
        }
        return {"tool": self.tool, "arguments": self.arguments, **ending}


class TapedTurn(Struct):
    """One answer of a model; `asked` is the last message of a person before it."""

    asked: str
    answer: Turn

    def as_json(self, redactor: Redactor) -> dict[str, Json]:
        """Return the answer as the file holds it: what the provider wrapped it in, and what it cost, is left out."""
        answer = turn_as_json(self.answer)
        fields = redactor.value(
            {
                name: each
                for name, each in answer.items()
                if name not in ("raw", "usage", "calls")
            }
        )
        calls = [
            [
                redactor.text(call.id),
                redactor.name(call.name),
                _redact_arguments(call.arguments, redactor),
            ]
            for call in self.answer.calls
        ]
        return {"asked": redactor.text(self.asked), **fields, "calls": calls}


class Tape(Struct):
    """What lies in a file."""

    turns: list[TapedTurn] = field(default_factory=list)
    calls: list[TapedCall] = field(default_factory=list)

    @classmethod
    def read(cls, file: Path) -> Tape:
        """Read a file.

        Raises:
            ConfigError: It is no tape, or one of an unsupported version.
        """
        try:
            document = json.loads(file.read_text(encoding="utf-8"))
            if document["v"] > CASSETTE_V:
                raise ConfigError(
                    f"{file} was recorded by a newer handrail (version {document['v']})"
                )
            turns = [
                TapedTurn(each["asked"], turn_from_json(each))
                for each in document["turns"]
            ]
            calls = [
                TapedCall(each["tool"], each["arguments"], result_from_json(each))
                for each in document["calls"]
            ]
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise ConfigError(
                f"{file} is no cassette that can be read: {error!r}"
            ) from error
        return cls(turns, calls)

    def write(self, file: Path, redactor: Redactor) -> None:
        """Write a file, without secrets."""
        document = {
            "v": CASSETTE_V,
            "turns": [each.as_json(redactor) for each in self.turns],
            "calls": [redactor.value(each.as_json()) for each in self.calls],
        }
        file.parent.mkdir(parents=True, exist_ok=True)
        file.touch(mode=0o600)
        # redaction may miss a secret, so only the owner may read the file
        file.chmod(0o600)
        file.write_text(f"{format_json(document)}\n", encoding="utf-8")


def format_json(value: Json, indent: int = 0) -> str:
    """Return JSON for people and their diffs: what fits on a line is on one, the rest is broken where it is nested.

    >>> print(format_json({"calls": [["call_1", "find_order"], ["call_2", "x" * 90]]}))
    {
      "calls": [
        ["call_1", "find_order"],
        [
          "call_2",
          "xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx"
        ]
      ]
    }
    """
    line = json.dumps(value, ensure_ascii=False)
    if (
        not value
        or not isinstance(value, dict | list)
        or len(line) + indent <= LONGEST_LINE
    ):
        return line
    inner = "\n" + " " * (indent + 2)
    if isinstance(value, list):
        parts = [format_json(each, indent + 2) for each in value]
    else:
        parts = [
            f"{json.dumps(name, ensure_ascii=False)}: {format_json(each, indent + 2)}"
            for name, each in value.items()
        ]
    first, last = ("[", "]") if isinstance(value, list) else ("{", "}")
    return first + inner + f",{inner}".join(parts) + "\n" + " " * indent + last


class Cassette:
    """A tape, in the recorder or in the player.

    Args:
        file: Where it lies.
        record: Run the tools, ask the model, and write the file when this is closed; else play it.
        secrets: Values that are secret, as text or `hr.Secret`, beside what looks like one. Those of a runtime that
            this makes are added.

    Raises:
        ConfigError: There is nothing to play.
    """

    def __init__(
        self, file: Path, *, record: bool = False, secrets: Sequence[str | Secret] = ()
    ) -> None:
        if not record and not file.exists():
            raise ConfigError(
                f"there is no cassette {file}; record it: pytest --record-cassettes"
            )
        self.file = file
        self.records = record
        self._secrets = list(texts_in(list(secrets)))
        self._redactor = Redactor(self._secrets)
        self._tape = Tape() if record else Tape.read(file)
        self._tools: dict[str, BaseTool] = {}
        # by the identity of the call: two of one turn may be alike
        self._under_way: dict[int, TapedCall] = {}
        self._played: set[int] = set()
        self._missing: list[str] = []

    # ------------------------------------------------------------------ what a test uses

    def runtime(self, tools: Tools, **how: Any) -> SyncRuntime:
        """Return a `SyncRuntime` whose tools are on the tape; `how` as it takes."""
        return SyncRuntime(self.tools(tools), **self._with_observer(how))

    def async_runtime(self, tools: Tools, **how: Any) -> Runtime:
        """Return a `Runtime` whose tools are on the tape; `how` as it takes."""
        return Runtime(self.tools(tools), **self._with_observer(how))

    def _with_observer(self, how: dict[str, Any]) -> dict[str, Any]:
        if secrets := how.get("secrets"):
            self._secrets += texts_in(list(secrets))
            self._redactor = Redactor(self._secrets)
        if self.records:
            return {**how, "observers": (*how.get("observers", ()), self.observe)}
        return how

    def model(self, model: str | Model) -> Model:
        """Return the model on the tape; the one that is named here is asked while it is recorded."""
        return TapedModel(self, model, model if isinstance(model, str) else model.name)

    def tools(self, tools: Tools) -> Toolset:
        """Return the tools; those of a tape that is played look like them and do nothing."""
        toolset = Toolset(tools)
        self._tools |= {tool.name: tool for tool in toolset}
        if self.records:
            return toolset
        return Toolset([self._replaying(tool) for tool in toolset])

    def observe(self, event: Event) -> None:
        """Record the calls of a runtime: an observer."""
        match event:
            case CallAdmitted(call=tool_call, arguments=arguments):
                self._begin(tool_call, dict(arguments))
            case ApprovalGiven(
                call=tool_call, approval=Approval(arguments=dict() as edited)
            ):
                self._begin(tool_call, edited)
            case CallFinished(call=tool_call, result=result) if (
                taped := self._under_way.pop(id(tool_call), None)
            ):
                taped.result = _without_reference(result)
                if not result.attempts or result.replayed:
                    self._tape.calls.remove(taped)

    def close(self) -> None:
        """Write what was recorded.

        Raises:
            NotOnTape: Something was missing while it was played, even if whoever asked has swallowed it.
        """
        if self.records:
            self._tape.write(self.file, self._redactor)
        elif self._missing:
            raise NotOnTape(self._missing[0])

    # ------------------------------------------------------------------ recording

    def _begin(self, tool_call: ToolCall, arguments: dict[str, Json]) -> None:
        tool = self._tools.get(tool_call.name)
        if tool is None:
            return  # of another toolset, or handrail's own
        bound = tool.bind(arguments)
        if isinstance(bound, Failure):
            got = arguments
        else:
            got = self._canonical(bound)
        taped = self._under_way.get(id(tool_call))
        if taped is None:
            taped = self._under_way[id(tool_call)] = TapedCall(
                tool.name, got, ToolResult(tool_call.id)
            )
            self._tape.calls.append(taped)
        taped.arguments = got

    def note(self, asked: str, answer: Turn) -> None:
        """Record a model's answer."""
        self._tape.turns.append(TapedTurn(self._redactor.text(asked), answer))

    def _canonical(self, bound: Mapping[str, Any]) -> Json:
        """Return arguments as the tape spells them, whatever types the tool has for them."""
        return self._redactor.value(
            to_jsonable_python(dict(bound), fallback=repr, inf_nan_mode="strings")
        )

    # ------------------------------------------------------------------ playing

    def answer(self, asked: str, place: int) -> Turn:
        """Return a model's answer.

        Raises:
            NotOnTape: It was not asked that.
        """
        answers = [
            each.answer
            for each in self._tape.turns
            if each.asked == self._redactor.text(asked)
        ]
        if place >= len(answers):
            raise self._missing_error(f"answer {place + 1} of the model to {asked!r}")
        return answers[place]

    def _replaying(self, tool: BaseTool) -> BaseTool:
        """Return a tool that checks and judges as this one does, and takes its values from the tape."""
        # What would touch the world beside the call itself: a process, asking whether it happened, opening.
        silent = tool.replace(
            verify=None,
            isolation="none",
            sandbox=Sandbox(mounts=(), writable=()),
            limits=Limits(breaker=0, max_attempts=1),
            blocking=False,
        )
        vars(silent).update(
            opens=False, is_async=False, bind_call=partial(self._ready, tool)
        )
        return silent

    def _ready(
        self, tool: BaseTool, bound: Mapping[str, Any], *_: Any
    ) -> Callable[[], Json]:
        """Find a call on the tape when the tool would be started. What is raised here ends the run."""
        arguments = self._canonical(bound)
        wanted = keys.canonical(arguments)
        for place, taped in enumerate(self._tape.calls):
            if (
                place not in self._played
                and taped.tool == tool.name
                and keys.canonical(taped.arguments) == wanted
            ):
                self._played.add(place)
                return partial(_end_as, taped.result)
        raise self._missing_error(
            f"{'the write' if tool.writes else 'the read'} {tool.name}({wanted})"
        )

    def _missing_error(self, what: str) -> NotOnTape:
        left = [
            each.tool
            for place, each in enumerate(self._tape.calls)
            if place not in self._played
        ]
        still = f"; not played yet: {', '.join(left)}" if left else ""
        self._missing.append(
            f"{what} is not on {self.file.name}, and nothing was done{still}. "
            "If it is meant, record it again: pytest --record-cassettes"
        )
        return NotOnTape(self._missing[-1])


class TapedModel(Struct):
    """A model in the recorder or in the player."""

    cassette: Cassette
    model: str | Model
    name: str
    _real: Model | None = None

    async def ask(self, request: Request, listener: Listener | None = None) -> Turn:
        """See `ports.Model.ask`."""
        place = 0
        asked = ""
        for message in request.messages:
            place += isinstance(message, AssistantMessage)
            if isinstance(message, UserMessage):
                place = 0
                asked = message.text
        if not self.cassette.records:
            return self.cassette.answer(asked, place)
        self._real = self._real or Engine().resolve_model(self.model)
        answer = await self._real.ask(request, listener)
        self.cassette.note(asked, answer)
        return answer


def _redact_arguments(arguments: str, redactor: Redactor) -> str:
    """Return a call's arguments without secrets; unchanged text if they hold none."""
    try:
        value = json.loads(arguments)
    except (ValueError, RecursionError):  # what is no JSON is recorded all the same
        return redactor.text(arguments)
    redacted = redactor.value(value)
    if redacted == value:
        return arguments
    return json.dumps(redacted, ensure_ascii=False)


def _end_as(result: ToolResult) -> Json:
    """End as a call did that was recorded."""
    if result.failure is None:
        return result.value
    failure = result.failure
    raise ToolError(
        failure.code,
        failure.message,
        suggestion=failure.suggestion,
        retryable=failure.retryable,
        details=failure.details,
    )


def _without_reference(result: ToolResult) -> ToolResult:
    """Return a result without the reference that leads to its exception in a log."""
    failure = result.failure
    if failure is None or failure.code != Code.INTERNAL_ERROR:
        return result
    message = re.sub(r"\(reference [0-9a-f]+\)", "(reference 0)", failure.message)
    return replace(result, failure=replace(failure, message=message))
