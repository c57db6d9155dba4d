"""A dialect in one file: a model that calls a tool by writing the line `CALL name {...}`.

In a package of your own, this is what makes it known to every command and to `handrail.dialect("call-lines")`:

    [project.entry-points."handrail.dialects"]
    call-lines = "call_lines:DIALECT"

echo "How warm is it in Paris?" | handrail render --dialect call-lines --tools examples/weather.py
echo 'CALL get_weather {"city": "Paris"}' | handrail parse --dialect call-lines --tools examples/weather.py
"""

import json
from collections.abc import Iterator
from dataclasses import dataclass, field

from handrail import ToolCall, ToolResult, Turn
from handrail.dialects.writing import as_history, in_call_order, result_text
from handrail.messages import AssistantMessage, Delta, TextDelta, ToolMessage, conversation_of


@dataclass(frozen=True)
class CallLines:
    """Every line says who speaks. What people, tools and the model wrote goes on in lines that begin with a space."""

    name: str = "call-lines"

    def encode_request(self, messages, tools=None, options=None) -> str:
        """Return the prompt: the tools, what was said, and the word after which the model goes on."""
        told = [f"TOOL {each.name} {json.dumps(each.parameters)} {_inside(each.description)}" for each in tools or ()]
        said = [line for message in conversation_of(messages) for line in _lines(message)]
        return "\n".join([*told, *said, "MODEL\n"])

    def encode_results(self, calls, results) -> str:
        """Return the lines that carry results."""
        ordered: list[ToolResult] = in_call_order(calls, results)
        return "\n".join(f"RESULT {_inside(result_text(result))}" for result in ordered)

    def decode(self, text, tools=None, *, opened="") -> Turn:
        """Return what the model wrote; `opened` is what the prompt wrote for it already."""
        stream = self.stream(tools, opened=opened)
        stream.feed(text)
        return stream.close()

    def stream(self, tools=None, *, opened="") -> "Lines":
        """Return a reader for text that is on its way."""
        return Lines(rest=opened)


@dataclass
class Lines:
    """Reads line by line: a line is passed on once it has ended, for only then can it be told from a call."""

    rest: str = ""
    text: str = ""
    calls: list[ToolCall] = field(default_factory=list)

    def feed(self, chunk) -> list[Delta]:
        """Take the next piece and return what is new in it."""
        *whole, self.rest = (self.rest + chunk).split("\n")
        return self._take([f"{line}\n" for line in whole])

    def close(self) -> Turn:
        """Return the whole turn. A call that was cut stays incomplete, and handrail refuses to run it."""
        self._take([self.rest])
        return Turn(self.text, calls=tuple(self.calls), finish="calls" if self.calls else "stop")

    def _take(self, lines: list[str]) -> list[Delta]:
        told = "".join(line for line in lines if not self._is_call(line))
        self.text += told
        return [TextDelta(told)] if told else []

    def _is_call(self, line: str) -> bool:
        word, _, call = line.strip().partition(" ")
        name, _, arguments = call.partition(" ")
        if word != "CALL" or not name:
            return False
        self.calls.append(ToolCall(f"call_{len(self.calls)}", name, arguments))
        return True


def _lines(message) -> Iterator[str]:
    match message:
        case AssistantMessage(turn):
            yield f"MODEL {_inside(turn.text)}" if turn.text else "MODEL"
            yield from (f"CALL {call.name} {_inside(as_history(call.arguments))}" for call in turn.calls)
        case ToolMessage(result):
            yield f"RESULT {_inside(result_text(result))}"
        case _:
            yield f"{type(message).__name__.removesuffix('Message').upper()} {_inside(message.text)}"


def _inside(text: str) -> str:
    """Set the lines of a text apart, so that nobody can forge a line of ours."""
    return "\n ".join(text.splitlines())


DIALECT = CallLines()
