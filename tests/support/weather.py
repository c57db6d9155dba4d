"""One weather call in every dialect: what goes to the model, and what a model answers."""

from __future__ import annotations

import json
from typing import Any

from handrail import plugins
from handrail.calls import ToolCall
from handrail.dialects import Dialect, Envelope, ServerDialect, WireDialect, dialect
from handrail.messages import Turn, Usage
from handrail.tools.function_tool import FunctionTool
from handrail.tools.toolset import Toolset
from tests.support import recorded

QUESTION = "How warm is it in Paris?"


def get_weather(city: str) -> float:
    """Get the temperature of a city in degrees Celsius."""
    return 21.0


TOOLS = Toolset([FunctionTool(get_weather, effect="read")])
CALL = ToolCall("call_1", "get_weather", '{"city": "Paris"}')
TURN = Turn(calls=[CALL], finish="calls", usage=Usage(120, 18))


def every_dialect() -> list[Dialect]:
    return [dialect(name) for name in plugins.list_names("dialects")]


def every_writer() -> list[Dialect]:
    """Return the dialects in which a model can be asked."""
    return [dialect(name) for name in plugins.list_writers()]


def every_caller() -> list[Dialect]:
    """Return the dialects that have a form for calls."""
    return [each for each in every_dialect() if each.name != "plain"]


def every_wire() -> list[WireDialect]:
    return [each for each in every_dialect() if isinstance(each, WireDialect)]


def answer_in(spoken: Dialect) -> str:
    """Return what a model that speaks this dialect writes to call the tool: a body, or text."""
    if isinstance(spoken, ServerDialect):
        body = spoken.encode_turn(
            TURN, Envelope("NAME", "answer_1", 1_767_225_600), TOOLS
        )
        return json.dumps(body, ensure_ascii=False, indent=2)
    if isinstance(spoken, WireDialect):
        return json.dumps(
            recorded.body(spoken.name, "weather"), ensure_ascii=False, indent=2
        )
    prompt: Any = spoken
    if hasattr(prompt, "written"):
        return prompt.encode_answer(TURN, TOOLS)
    from handrail_openmodels.prompts import reader

    return reader.write_answer(prompt.syntax, TURN, TOOLS)


def stream_in(spoken: WireDialect) -> str:
    """Return the same answer as the provider would stream it."""
    if not isinstance(spoken, ServerDialect):
        return recorded.events(spoken.name, "weather")
    return "".join(
        spoken.encode_stream(TURN, Envelope("NAME", "answer_1", 1_767_225_600), TOOLS)
    )
