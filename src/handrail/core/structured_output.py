"""Answers of a given form: how a model is brought to give one, and whether it did.

    run = await runtime.run("...", model=..., output=Report)          # run.output is a Report

A form is described to the model as one JSON object. There are three ways to get it, and a dialect says which suits it
(`output_by`): the provider holds the answer to the schema (`native`), the model calls a tool whose arguments are the
answer (`tool`), or the prompt describes the form (`prompt`). Whichever way it came, the answer is parsed and validated
here like the arguments of a call, and one that does not fit goes back with the reason.

Rule 1: `run.output` is valid by the form, or None. No way is trusted to have held it.
Rule 2: an answer is read with lossless repairs only; words around it are ignored if only the prompt described the form.
Rule 3: an answer beside calls is not taken: the model wrote it before it saw their results.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Container, Mapping, Sequence
from dataclasses import is_dataclass
from functools import partial
from typing import Any, cast, get_args, get_origin

import pydantic
from msgspec import Struct
from msgspec.structs import replace
from typing_extensions import is_typeddict

from handrail import logs
from handrail.calls import ToolCall, ToolResult
from handrail.core import results as shaping
from handrail.errors import (
    Code,
    ConfigError,
    Failure,
    Json,
    ModelError,
    ToolDefinitionError,
)
from handrail.messages import Finish, Message, Output, SystemMessage, Turn, Way
from handrail.parsing import jsontext
from handrail.parsing.names import advise
from handrail.ports import Request
from handrail.schemas.docstrings import Docs
from handrail.schemas.hints import Signature, describe_function, import_schema
from handrail.schemas.validation import Checker
from handrail.schemas.walk import Schema, check_size
from handrail.tools.function_tool import FunctionTool
from handrail.tools.toolset import Toolset

_AFTER: Mapping[Way, Way] = {"native": "tool", "tool": "prompt"}
"""What is tried when a server refuses to be asked in a way."""
_REFUSED_REQUEST = (400, 422)
_WRAPPED = re.compile(
    r"(?P<before>(?>\s*<think>.*?</think>)?[^{}\[\]]*+)(?P<object>\{.*\})(?P<after>[^{}\[\]]*+)",
    re.S,
)
"""One object among words; with brackets among them it might be a part of something larger. A model's thoughts come
first, where the server leaves them in the text. Atomic, so that no text takes more than one pass."""
_FENCE = re.compile(r"```\w*")
_TOOL = "answer"
_VALUE = "value"
"""The one property of the object that wraps any other value: a list, a number, one of several words."""


class Form(Struct, frozen=True):
    """What an answer is to be, where the type alone does not say enough: `output=Form(Report, by="tool")`.

    Attributes:
        of: A pydantic model, a dataclass, a `TypedDict`, any other type that JSON can hold (`list[int]`, an `Enum`),
            or a JSON Schema as a dictionary; the answer is then plain JSON.
        by: The way to get it; by default what suits the model's dialect.
        max_attempts: How many answers the model may give; the last of them ends the run.
    """

    of: Any
    by: Way | None = None
    max_attempts: int = 3

    def __post_init__(self) -> None:
        if self.by is not None and self.by not in get_args(Way):
            ways = get_args(Way)
            advice = advise(str(self.by), ways, f"it is one of {', '.join(ways)}")
            raise ConfigError(f"`by` of a Form is {self.by!r}; {advice}")


class Answer(Struct, frozen=True):
    """An answer that has the form: its value, its text, and the names of what was repaired or ignored in it."""

    value: Any
    text: str
    repairs: Sequence[str] = ()


class OutputSchema(Struct, frozen=True):
    """A form as it is described and checked: the schema of one object, and the function that makes a value of it."""

    name: str
    checker: Checker
    bind: Callable[[dict[str, Json]], Any]

    @property
    def schema(self) -> Schema:
        """The JSON Schema of the object."""
        return self.checker.schema

    def read(
        self, text: str, finish: Finish = "stop", *, words_around: bool = False
    ) -> Answer | Failure:
        """Parse and validate an answer; a failure says to the model what is wrong with it."""
        parsed = jsontext.parse(text, finish, lossy=False)
        ignored: Sequence[str] = ()
        if isinstance(parsed, Failure) and words_around:
            wrapped = _WRAPPED.fullmatch(text)
            if wrapped:
                parsed = jsontext.parse(wrapped["object"], finish, lossy=False)
                ignored = _name_surroundings(wrapped)
        if isinstance(parsed, Failure):
            return _about_an_answer(parsed)
        checked = self.checker.check(parsed.value)
        if isinstance(checked, Failure):
            return _about_an_answer(checked)
        value = self._make_value(checked.arguments)
        if isinstance(value, Failure):
            return _about_an_answer(value)
        return Answer(value, text, (*ignored, *parsed.repairs, *checked.repairs))

    def _make_value(self, arguments: dict[str, Json]) -> Any:
        try:
            return self.bind(arguments)
        except Exception as error:
            # a validator of the engineer's own, which met a case that its author did not expect
            logs.log_exception(
                f"checking an answer of the form {self.name!r} failed", error
            )
            return Failure(
                Code.INTERNAL_ERROR,
                "The answer could not be checked.",
                "Answer again, more plainly.",
            )


def _name_surroundings(found: re.Match[str]) -> Sequence[str]:
    """Return what surrounds an object, by the names of `jsontext.REPAIRS`."""
    words = {"text_before": found["before"], "text_after": found["after"]}
    names = [name for name, text in words.items() if _FENCE.sub("", text).strip()]
    if all("```" in text for text in words.values()):
        names.append("code_fence")
    return names


def _about_an_answer(failure: Failure) -> Failure:
    """Reword a failure about arguments for an answer."""
    message = failure.message
    for of_arguments, of_answer in _WORDING:
        message = message.replace(of_arguments, of_answer)
    suggestion = _STRICTLY
    if failure.code not in _NO_JSON:
        suggestion = failure.suggestion.replace("Call again", "Answer again")
    return replace(failure, message=message, suggestion=suggestion)


_WORDING = (
    ("The arguments end ", "The answer ends "),
    ("The arguments", "The answer"),
    ("arguments must be", "the answer must be"),
)
_NO_JSON = {Code.BAD_JSON, Code.TRUNCATED_CALL}
_STRICTLY = "Answer again with the whole JSON object of the form that was asked for, in strict JSON."


def plan(of: Any) -> OutputSchema:
    """Return how a form is described and checked.

    Raises:
        ConfigError: It has no JSON form, or is no valid JSON Schema.
    """
    name = ""
    if isinstance(of, type):
        name = getattr(of, "__name__", "")
    try:
        if isinstance(of, Mapping):
            schema = _plan_schema(of)
        else:
            schema = _plan_type(of, name or _TOOL)
        schema.checker.compile()
    except ToolDefinitionError as error:
        raise ConfigError(
            f"output={name or of!r} cannot be described to a model: {error}"
        ) from error
    return schema


def _plan_schema(schema: Mapping[str, Json]) -> OutputSchema:
    form = cast(Schema, dict(schema))
    if form.get("type", "object") == "object" and (
        "type" in form or "properties" in form
    ):
        return OutputSchema(_TOOL, Checker(import_schema(form)), dict)
    check_size(form)
    definitions: Schema = {
        word: form.pop(word) for word in ("$defs", "definitions") if word in form
    }
    form.pop("$schema", None)
    whole: Schema = {
        "type": "object",
        "properties": {_VALUE: form},
        "required": [_VALUE],
        **definitions,
    }
    return OutputSchema(_TOOL, Checker(import_schema(whole)), _unwrap)


def _plan_type(hint: Any, name: str) -> OutputSchema:
    def answer(value: Any) -> Any:
        return value

    answer.__annotations__ = {_VALUE: hint}
    signature = describe_function(answer, Docs(), name=name)
    hint = signature.visible[_VALUE]
    if _is_object(hint):
        signature = replace(signature, model=hint)
    return OutputSchema(
        _name_form(hint), Checker(signature.schema), partial(_bind, signature)
    )


def _is_object(hint: Any) -> bool:
    """Whether the type's own JSON is an object, so that the answer need not be put into one."""
    if not isinstance(hint, type) and not is_typeddict(hint):
        return False
    is_model = (
        isinstance(hint, type)
        and issubclass(hint, pydantic.BaseModel)
        and not hint.__pydantic_root_model__
    )
    return not get_origin(hint) and (
        is_model or is_dataclass(hint) or is_typeddict(hint)
    )


def _name_form(hint: Any) -> str:
    """Return the form's name as providers accept it: generic models have brackets in theirs."""
    name = ""
    if isinstance(hint, type):
        name = getattr(hint, "__name__", "")
    if name.isascii() and name.isidentifier() and len(name) <= 64:
        return name
    return _TOOL


def _unwrap(arguments: dict[str, Json]) -> Any:
    return arguments[_VALUE]


def _bind(signature: Signature, arguments: dict[str, Json]) -> Any:
    bound = signature.bind(arguments)
    if isinstance(bound, Failure):
        return bound
    return bound[_VALUE]


# ---------------------------------------------------------------------- one run


class OutputTracker(Struct):
    """The answer that a run waits for: in which way the model is asked for it now, and how often it has tried.

    Attributes:
        fixed: The way is the engineer's choice, so a server that refuses it ends the run.
        settled: A server has taken a request in this way, so a later refusal is about something else.
    """

    plan: OutputSchema
    way: Way
    max_attempts: int = 3
    fixed: bool = False
    tried: int = 0
    settled: bool = False
    _shown: tuple[Toolset, Toolset] | None = None
    _tool: FunctionTool | None = None

    # -- how the model is asked

    def prepare_request(self, request: Request, choice: str = "") -> Request:
        """Return the request as it asks for the answer in the present way; `choice` is the flow's, if it has one."""
        options = request.options
        tools = cast(Toolset, request.tools)
        if self.way == "native":
            return replace(
                request,
                options=replace(
                    options, output=Output(self.plan.schema, self.plan.name)
                ),
            )
        if self.way == "tool":
            with_answer = self._with_tool(tools)
            # Without tools, or where none of them may be called, only the answer is left to give.
            must = {
                "": "required" if len(tools) else self.tool_name,
                "none": self.tool_name,
            }
            choice = must.get(choice, choice)
            return replace(
                request, tools=with_answer, options=replace(options, tool_choice=choice)
            )
        return replace(
            request,
            messages=_add_instruction(request.messages, self._instruction(tools)),
        )

    @property
    def tool_name(self) -> str:
        """The name of the tool that takes the answer."""
        if self._tool is not None:
            return self._tool.name
        return _TOOL

    def fall_back(self, error: ModelError) -> bool:
        """Change to the next way if the server refuses requests of this one; return whether there is one."""
        if (
            self.fixed
            or self.settled
            or error.status not in _REFUSED_REQUEST
            or self.way not in _AFTER
        ):
            return False
        self.way = _AFTER[self.way]
        return True

    def _with_tool(self, tools: Toolset) -> Toolset:
        """Return the tools and the one that takes the answer, under a name that no other has."""
        if self._shown is None or self._shown[0] is not tools:
            self._tool = FunctionTool(
                _never_called,
                name=name_output_tool(tools),
                description=_DESCRIPTION,
                parameters=self.plan.schema,
                effect="read",
            )
            self._shown = tools, Toolset([*tools, self._tool])
        return self._shown[1]

    def _instruction(self, tools: Toolset) -> str:
        before = "Answer"
        if len(tools):
            before = "Call tools as you need them. When you know enough, answer"
        return (
            f"{before} with one JSON object that fits this JSON Schema, and with nothing around it:\n"
            f"{shaping.as_text(self.plan.schema)}"
        )

    # -- what it answered

    def without_answers(self, turn: Turn) -> Turn:
        """Return the turn with only those calls that are for tools; the same turn when all are."""
        calls = [call for call in turn.calls if not self._is_answer(call)]
        if len(calls) == len(turn.calls):
            return turn
        return replace(turn, calls=calls)

    def _is_answer(self, call: ToolCall) -> bool:
        return (
            self.way == "tool"
            and self._shown is not None
            and self._shown[1].resolve(call.name) is self._tool
        )

    def read_text(self, turn: Turn) -> Answer | Failure:
        """Read the text of a turn without calls."""
        self.tried += 1
        if not turn.text.strip():
            return Failure(Code.BAD_JSON, "It was empty.", _STRICTLY)
        answer = self.plan.read(
            turn.text, turn.finish, words_around=self.way == "prompt"
        )
        if isinstance(answer, Failure) and self.way == "tool":
            return Failure(
                Code.BAD_JSON,
                "The answer was not given by a call.",
                f"Call `{self.tool_name}` with it.",
            )
        return answer

    def read_call(self, turn: Turn) -> Answer | Failure:
        """Read a turn with a call that gives the answer."""
        self.tried += 1
        if len(turn.calls) > 1:
            return Failure(
                Code.RULE_VIOLATED,
                f"`{self.tool_name}` was called beside other calls, and nothing of it was taken.",
                f"Read the results; then call `{self.tool_name}` once and alone.",
            )
        return self.plan.read(turn.calls[0].arguments, turn.finish)

    def results(
        self, turn: Turn, others: Sequence[ToolResult], answer: Answer | Failure
    ) -> list[ToolResult]:
        """Return one result for each call of the turn, given those of the calls that are for tools."""
        waiting = iter(others)
        return [
            _result(call, answer) if self._is_answer(call) else next(waiting)
            for call in turn.calls
        ]

    @property
    def is_exhausted(self) -> bool:
        """Whether the model has had all its attempts."""
        return self.tried >= self.max_attempts


def name_output_tool(tools: Container[str]) -> str:
    """Return the name of the tool that takes the answer of a run with these tools, which none of them has."""
    name = _TOOL
    number = 1
    while name in tools:
        number += 1
        name = f"{_TOOL}_{number}"
    return name


_DESCRIPTION = (
    "Give the answer. Call it once, alone and last, when you know all that it asks for."
)


def _never_called(**answer: Json) -> Json:
    """Take the answer, among the tools; calls are read here and never carried out."""
    return answer


def track_output(output: Any, by: Way) -> OutputTracker:
    """Return the tracker of the answer that a run waits for.

    Args:
        output: A type, a JSON Schema or a `Form`.
        by: The way that suits the model, unless the form names one.
    """
    form = output if isinstance(output, Form) else Form(output)
    if form.max_attempts < 1:
        raise ConfigError(
            f"max_attempts is {form.max_attempts}; a model needs at least one to answer"
        )
    return OutputTracker(
        plan(form.of), form.by or by, form.max_attempts, fixed=form.by is not None
    )


def find_way(model: object) -> Way:
    """Return the way that suits a model, as it or its dialect says; `prompt` if neither does."""
    way: Way = getattr(getattr(model, "wire", model), "output_by", "prompt")
    return way


def to_the_model(failure: Failure) -> str:
    """Return why an answer was not taken, as the next message to the model."""
    return f"This answer was not taken. {failure.message} {failure.suggestion}".rstrip()


def _result(call: ToolCall, answer: Answer | Failure) -> ToolResult:
    if isinstance(answer, Failure):
        return ToolResult(
            call.id, call.name, failure=answer, text=shaping.failure_text(answer)
        )
    return ToolResult(
        call.id,
        call.name,
        value=answer.value,
        text="The answer is taken.",
        repairs=answer.repairs,
    )


def _add_instruction(messages: Sequence[Message], instruction: str) -> list[Message]:
    """Add to the system message. No second one, because many templates take only one."""
    if messages:
        first = messages[0]
        if isinstance(first, SystemMessage):
            return [SystemMessage(f"{first.text}\n\n{instruction}"), *messages[1:]]
    return [SystemMessage(instruction), *messages]
