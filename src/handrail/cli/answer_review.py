"""A model's answer as a person looks at it: every call with what admission would mend in it, or refuse it for.

Nothing runs, and nobody is asked: a call is taken as far as its tool's schema.

Rule 1: without tools only the text of the arguments is judged; a call is never refused for a tool that nobody named.
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


class JudgedCall(Struct, frozen=True):
    """One call, and how it would be read.

    Attributes:
        tool: The tool that is meant, where tools are known and its name was written differently.
        arguments: As the tool would get them; None when they cannot be read.
        failure: Why it would be refused.
    """

    call: ToolCall
    tool: str = ""
    arguments: Mapping[str, Json] | None = None
    repairs: Sequence[str] = ()
    failure: Failure | None = None

    def as_json(self) -> Document:
        """Return the call: `arguments` is the model's own text, `value` what is read in it."""
        told: Document = {"id": self.call.id, "name": self.call.name, "arguments": self.call.arguments}
        told |= {"tool": self.tool} if self.tool else {}
        told |= {
            "value": self.arguments,
            "repairs": list(self.repairs),
            "lossy": any(map(_is_guess, self.repairs)),
        }
        if self.failure is None:
            return told
        return {**told, "failure": self.failure.as_json()}


class JudgedTurn(Struct, frozen=True):
    """A whole answer."""

    dialect: str
    turn: Turn
    calls: Sequence[JudgedCall]

    @property
    def ok(self) -> bool:
        """Whether no call would be refused."""
        return all(judged.failure is None for judged in self.calls)

    def as_json(self) -> Document:
        """Return everything that is known of the answer."""
        turn = self.turn
        return {
            "ok": self.ok,
            "dialect": self.dialect,
            "text": turn.text,
            "reasoning": turn.reasoning,
            "refusal": turn.refusal,
            "calls": [judged.as_json() for judged in self.calls],
            "finish": turn.finish,
            "usage": asdict(turn.usage),
            "server_side": [dict(each) for each in turn.server_side],
        }

    def rows(self) -> Iterator[tuple[str, str]]:
        """Yield what a person reads, as pairs of a label and a text of one or more lines."""
        turn = self.turn
        usage = self.turn.usage
        for label, text in (("reasoning", turn.reasoning), ("text", turn.text), ("refusal", turn.refusal)):
            if text:
                yield label, text
        for each in turn.server_side:
            yield "provider", json.dumps(each, ensure_ascii=False)
        for number, judged in enumerate(self.calls, start=1):
            yield f"call {number}", "\n".join(_lines_of(judged))
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


def judged(dialect: str, turn: Turn, tools: Toolset | None) -> JudgedTurn:
    """Return an answer with every call judged."""
    return JudgedTurn(dialect, turn, [_judged(call, turn.finish, tools) for call in turn.calls])


def told(read: Callable[[Json], JudgedTurn], text: str, *, as_json: bool, as_jsonl: bool) -> Exit:
    """Print what is read in a text, or in each of its lines; return the exit code.

    Raises:
        HandrailError: The one text cannot be read. With `as_json`, what came from the model is a document even then.
    """
    if as_jsonl:
        return cases.print_lines(text, lambda case: read(case).as_json())
    try:
        seen = read(text)
    except ModelError as error:
        if not as_json:
            raise
        cases.print_document(cases.document_of(error))
        return Exit.ERROR
    if as_json:
        cases.print_document(seen.as_json())
    else:
        print_columns(console(), seen.rows())
    return Exit.OK if seen.ok else Exit.ERROR


def _judged(call: ToolCall, finish: Finish, tools: Toolset | None) -> JudgedCall:
    if tools is None:
        parsed = jsontext.parse(call.arguments, finish)
        if isinstance(parsed, Failure):
            return JudgedCall(call, failure=parsed)
        return JudgedCall(call, "", parsed.value, parsed.repairs)
    known = admission.parse_call(call, tools, finish)
    if isinstance(known, Failure):
        return JudgedCall(call, failure=known)
    tool = known.tool
    read = JudgedCall(call, "" if tool.name == call.name else tool.name, known.arguments, known.repairs)
    checked = tool.check_arguments(known.arguments)
    if isinstance(checked, Failure):
        return replace(read, failure=checked)
    bound = tool.bind(checked.arguments)
    read = replace(
        read,
        arguments=checked.arguments,
        repairs=(*known.repairs, *checked.repairs),
    )
    if isinstance(bound, Failure):
        return replace(read, failure=bound)
    return read


def _lines_of(judged: JudgedCall) -> Iterator[str]:
    call = judged.call
    yield f"{call.name}  ({call.id})"
    if judged.arguments is None:
        yield call.arguments
    else:
        yield json.dumps(judged.arguments, ensure_ascii=False, indent=2)
    if judged.tool:
        yield f"~ meant is the tool {judged.tool}"
    for name in judged.repairs:
        yield f"~ {name}{_what(name)}"
    if judged.failure is not None:
        yield f"✗ {judged.failure.code}: {judged.failure.message}"
        if judged.failure.suggestion:
            yield f"  {judged.failure.suggestion}"


def _what(name: str) -> str:
    repair = jsontext.REPAIRS.get(name)
    if repair is None:
        return ""
    return f": {repair.what}{'' if repair.lossless else ' (a guess: for reads only)'}"


def _is_guess(name: str) -> bool:
    return name in jsontext.REPAIRS and not jsontext.REPAIRS[name].lossless
