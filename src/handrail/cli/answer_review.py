"""Reviews a model's answer for a person: what admission would repair in each call, or why it would refuse it.

Nothing runs, and nobody is asked: a call is checked against its tool's schema and no further.

Rule 1: without tools only the text of the arguments is checked; no call is refused for a tool that nobody named.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence

from msgspec import Struct
from msgspec.structs import asdict, replace

from handrail.calls import ToolCall
from handrail.cli import cases
from handrail.cli.cases import Document
from handrail.cli.exits import Exit
from handrail.cli.printer import console, print_columns
from handrail.core import admission
from handrail.errors import Failure, Json, ModelError
from handrail.messages import Finish, Turn
from handrail.parsing import jsontext
from handrail.tools.toolset import Toolset


class CallReview(Struct, frozen=True):
    """One call, and the result of its checks.

    Attributes:
        tool: The tool that the call resolves to, if the model spelled its name differently.
        arguments: The arguments that the tool would get; None if they cannot be parsed.
        failure: The reason for a refusal.
    """

    call: ToolCall
    tool: str = ""
    arguments: Mapping[str, Json] | None = None
    repairs: Sequence[str] = ()
    failure: Failure | None = None

    def as_json(self) -> Document:
        """Return the call: `arguments` is the model's own text, `value` the parsed arguments."""
        document: Document = {
            "id": self.call.id,
            "name": self.call.name,
            "arguments": self.call.arguments,
        }
        document |= {"tool": self.tool} if self.tool else {}
        document |= {
            "value": self.arguments,
            "repairs": list(self.repairs),
            "lossy": any(map(_is_guess, self.repairs)),
        }
        if self.failure is None:
            return document
        return {**document, "failure": self.failure.as_json()}


class TurnReview(Struct, frozen=True):
    """A whole answer."""

    dialect: str
    turn: Turn
    calls: Sequence[CallReview]
    looks_like: str = ""
    """The dialect in which a text without a call has one."""

    @property
    def ok(self) -> bool:
        """Whether every call would be admitted, and none is taken for text."""
        return not self.looks_like and all(
            review.failure is None for review in self.calls
        )

    def as_json(self) -> Document:
        """Return the whole answer as JSON."""
        turn = self.turn
        hint = {"looks_like": self.looks_like} if self.looks_like else {}
        return {
            "ok": self.ok,
            "dialect": self.dialect,
            **hint,
            "text": turn.text,
            "reasoning": turn.reasoning,
            "refusal": turn.refusal,
            "calls": [review.as_json() for review in self.calls],
            "finish": turn.finish,
            "usage": asdict(turn.usage),
            "server_side": [dict(each) for each in turn.server_side],
        }

    def rows(self) -> Iterator[tuple[str, str]]:
        """Yield pairs of a label and a text of one or more lines, for a person."""
        turn = self.turn
        usage = self.turn.usage
        for label, text in (
            ("reasoning", turn.reasoning),
            ("text", turn.text),
            ("refusal", turn.refusal),
        ):
            if text:
                yield label, text
        if self.looks_like:
            yield (
                "hint",
                f"the text looks like a call of {self.looks_like}: parse it with --dialect {self.looks_like}",
            )
        for each in turn.server_side:
            yield "provider", json.dumps(each, ensure_ascii=False)
        for number, review in enumerate(self.calls, start=1):
            yield f"call {number}", "\n".join(_call_lines(review))
        yield "finish", _FINISHES[turn.finish]
        if usage.input_tokens or usage.output_tokens:
            yield "tokens", f"{usage.input_tokens} in, {usage.output_tokens} out"


_FINISHES: Mapping[Finish, str] = {
    "stop": "stop",
    "calls": "calls",
    "length": "length: it was cut, so no call in it would run",
    "refused": "refused: the model or its provider declined",
    "error": "error: it has no clean end, so no call in it would run",
}


def review_turn(dialect: str, turn: Turn, tools: Toolset | None) -> TurnReview:
    """Review every call of an answer."""
    return TurnReview(
        dialect, turn, [_review_call(call, turn.finish, tools) for call in turn.calls]
    )


def print_review(
    read: Callable[[Json], TurnReview], text: str, *, as_json: bool, as_jsonl: bool
) -> Exit:
    """Print the review of a text, or of each of its lines; return the exit code.

    Raises:
        HandrailError: The one text cannot be read. With `as_json`, an error of the model's is printed as a document.
    """
    if as_jsonl:
        return cases.print_lines(text, lambda case: read(case).as_json())
    try:
        review = read(text)
    except ModelError as error:
        if not as_json:
            raise
        cases.print_document(cases.error_document(error))
        return Exit.ERROR
    if as_json:
        cases.print_document(review.as_json())
    else:
        print_columns(console(), review.rows())
    return Exit.OK if review.ok else Exit.ERROR


def _review_call(call: ToolCall, finish: Finish, tools: Toolset | None) -> CallReview:
    if tools is None:
        parsed = jsontext.parse(call.arguments, finish)
        if isinstance(parsed, Failure):
            return CallReview(call, failure=parsed)
        return CallReview(call, "", parsed.value, parsed.repairs)
    parsed_call = admission.parse_call(call, tools, finish)
    if isinstance(parsed_call, Failure):
        return CallReview(call, failure=parsed_call)
    tool = parsed_call.tool
    review = CallReview(
        call,
        "" if tool.name == call.name else tool.name,
        parsed_call.arguments,
        parsed_call.repairs,
    )
    checked = tool.check_arguments(parsed_call.arguments)
    if isinstance(checked, Failure):
        return replace(review, failure=checked)
    bound = tool.bind(checked.arguments)
    review = replace(
        review,
        arguments=checked.arguments,
        repairs=(*parsed_call.repairs, *checked.repairs),
    )
    if isinstance(bound, Failure):
        return replace(review, failure=bound)
    return review


def _call_lines(review: CallReview) -> Iterator[str]:
    call = review.call
    yield f"{call.name}  ({call.id})"
    if review.arguments is None:
        yield call.arguments
    else:
        yield json.dumps(review.arguments, ensure_ascii=False, indent=2)
    if review.tool:
        yield f"~ meant is the tool {review.tool}"
    for name in review.repairs:
        yield f"~ {name}{explain_repair(name)}"
    if review.failure is not None:
        yield f"✗ {review.failure.code}: {review.failure.message}"
        if review.failure.suggestion:
            yield f"  {review.failure.suggestion}"


def explain_repair(name: str) -> str:
    """Return what a repair did, for the place behind its name; empty for one without a text."""
    repair = jsontext.REPAIRS.get(name)
    if repair is None:
        return ""
    if repair.lossless:
        return f": {repair.what}"
    return f": {repair.what} (a guess: for reads only)"


def _is_guess(name: str) -> bool:
    return name in jsontext.REPAIRS and not jsontext.REPAIRS[name].lossless
