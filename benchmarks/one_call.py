"""The one call that is measured alone, and how a provider of each wire sends it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Literal, cast

import handrail as hr
from handrail.dialects import Envelope, ServerDialect

Unit = Literal["celsius", "fahrenheit"]


async def get_weather(
    city: str, days: int = 1, unit: Unit = "celsius"
) -> dict[str, Any]:
    """Get the weather of a city.

    Args:
        city: Name of the city.
        days: How many days ahead.
        unit: Unit of the temperature.
    """
    return {"city": city, "days": days, "unit": unit, "temperature": 21.5}


READ = hr.FunctionTool(get_weather, effect="read")

HANDLE_USUALLY = {
    "openai-chat": 1.4,
    "anthropic": 1.6,
    "openai-responses": 1.6,
}
"""What `handle` costs, in calls. A chat message is as a client takes it out of the answer, the others are whole."""


def messages_of_one_call(arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Return what a provider of each wire sends for one call."""
    call = hr.ToolCall("call_a1", "get_weather", json.dumps(arguments))
    turn = hr.Turn(calls=[call], finish="calls", usage=hr.Usage(100, 20))
    messages: dict[str, Any] = {}
    for wire in HANDLE_USUALLY:
        server = cast(ServerDialect, hr.dialect(wire))
        messages[wire] = server.encode_turn(turn, Envelope("any", "answer_1", 0))
    messages["openai-chat"] = messages["openai-chat"]["choices"][0]["message"]
    return messages
