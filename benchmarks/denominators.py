"""What handrail is measured against: the loop that anybody writes first, the one that production makes of it, no loop.

`hand`  provider dictionaries, `json.loads`, checks by hand (tool, required, unknown, type, enum), `await fn(**args)`,
        `json.dumps`, `gather` for several calls.
`prod`  hand, with what an incident adds: a dictionary for idempotency, `wait_for`, a retry loop.
`bare`  parse, compiled schema check, await: what cannot be left out. Nobody beats this.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from typing import Any, TypeAlias

import jsonschema_rs
from pydantic_core import from_json

CITIES = ("Paris", "北京", "Nairobi", "La Paz")
SCHEMA = {
    "type": "object",
    "properties": {
        "city": {"type": "string"},
        "days": {"type": "integer"},
        "unit": {"type": "string", "enum": ["celsius", "fahrenheit"]},
    },
    "required": ["city"],
}
TYPES = {
    "string": str,
    "integer": int,
    "number": (int, float),
    "boolean": bool,
    "array": list,
    "object": dict,
}


async def get_weather(
    city: str, days: int = 1, unit: str = "celsius"
) -> dict[str, Any]:
    """Get the weather of a city."""
    return {"city": city, "days": days, "unit": unit, "temperature": 21.5}


TOOLS: dict[str, tuple[Callable[..., Awaitable[Any]], dict[str, Any]]] = {
    "get_weather": (get_weather, SCHEMA)
}


def arguments_of(turn: int, call: int) -> str:
    """The text that the model writes for one call; different in every one."""
    return f'{{"city": "{CITIES[call % len(CITIES)]} {turn}", "days": {call + 1}, "unit": "celsius"}}'


Write: TypeAlias = Callable[[int, int], tuple[str, str]]
"""Gives the tool and the text of the arguments of one call, by its turn and its place in the turn."""


def write_weather(turn: int, call: int) -> tuple[str, str]:
    """Write a call of `get_weather`."""
    return "get_weather", arguments_of(turn, call)


def answer_of(
    turn: int, turns: int, calls: int, write: Write = write_weather
) -> dict[str, Any]:
    """The provider's answer to a turn (from 0), fresh as a client would hand it over."""
    usage = {"prompt_tokens": 100, "completion_tokens": 20, "total_tokens": 120}
    if turn >= turns:
        message: dict[str, Any] = {
            "role": "assistant",
            "content": "It is 21.5 degrees everywhere.",
        }
        return {
            "choices": [{"index": 0, "message": message, "finish_reason": "stop"}],
            "usage": usage,
        }
    written = [write(turn, call) for call in range(calls)]
    wanted = [
        {
            "id": f"call_{turn}_{call}",
            "type": "function",
            "function": {"name": name, "arguments": text},
        }
        for call, (name, text) in enumerate(written)
    ]
    message = {"role": "assistant", "content": None, "tool_calls": wanted}
    return {
        "choices": [{"index": 0, "message": message, "finish_reason": "tool_calls"}],
        "usage": usage,
    }


class Provider:
    """A fake provider: answers by the number of answers that the conversation holds."""

    def __init__(
        self,
        turns: int,
        calls: int,
        pause_s: float = 0.0,
        write: Write = write_weather,
    ) -> None:
        self.turns, self.calls, self.pause_s = turns, calls, pause_s
        self.write = write

    async def complete(self, messages: list[dict[str, Any]]) -> dict[str, Any]:
        """Answer, after the pause."""
        if self.pause_s:
            await asyncio.sleep(self.pause_s)
        turn = (len(messages) - 1) // (self.calls + 1)
        return answer_of(turn, self.turns, self.calls, self.write)


def fault_in(arguments: dict[str, Any], schema: dict[str, Any]) -> str:
    """What a hand-written check says of arguments."""
    for name in schema.get("required", ()):
        if name not in arguments:
            return f"missing parameter {name}"
    for name, value in arguments.items():
        wanted = schema["properties"].get(name)
        if wanted is None:
            return f"unknown parameter {name}"
        if not isinstance(value, TYPES[wanted["type"]]):
            return f"{name} must be {wanted['type']}"
        if "enum" in wanted and value not in wanted["enum"]:
            return f"{name} must be one of {wanted['enum']}"
    return ""


async def hand_call(call: dict[str, Any]) -> dict[str, Any]:
    """Carry out one call as the first version does."""
    function = call["function"]
    name = function["name"]
    if name not in TOOLS:
        content = json.dumps({"error": f"unknown tool {name}"})
        return {"role": "tool", "tool_call_id": call["id"], "content": content}
    fn, schema = TOOLS[name]
    try:
        arguments = json.loads(function["arguments"])
    except ValueError as error:
        return {
            "role": "tool",
            "tool_call_id": call["id"],
            "content": json.dumps({"error": str(error)}),
        }
    if fault := fault_in(arguments, schema):
        return {
            "role": "tool",
            "tool_call_id": call["id"],
            "content": json.dumps({"error": fault}),
        }
    try:
        content = json.dumps(await fn(**arguments), ensure_ascii=False)
    except Exception as error:
        content = json.dumps({"error": str(error)})
    return {"role": "tool", "tool_call_id": call["id"], "content": content}


_DONE: dict[tuple[str, str], dict[str, Any]] = {}


async def prod_call(call: dict[str, Any]) -> dict[str, Any]:
    """Carry out one call as the version after the first incidents does."""
    key = (call["id"], call["function"]["arguments"])
    if key in _DONE:
        return _DONE[key]
    for attempt in range(3):
        try:
            result = _DONE[key] = await asyncio.wait_for(hand_call(call), 30)
            return result
        except (TimeoutError, ConnectionError):
            await asyncio.sleep(0.2 * 2**attempt)
    return {
        "role": "tool",
        "tool_call_id": call["id"],
        "content": json.dumps({"error": "gave up"}),
    }


async def loop(
    provider: Provider,
    carry: Callable[[dict[str, Any]], Awaitable[dict[str, Any]]] = hand_call,
) -> str:
    """Ask, carry out, feed back, until there is an answer."""
    messages: list[dict[str, Any]] = [{"role": "user", "content": "How warm is it?"}]
    tokens = 0
    for _ in range(1000):
        answer = await provider.complete(messages)
        message = answer["choices"][0]["message"]
        tokens += answer["usage"]["total_tokens"]
        messages.append(message)
        calls = message.get("tool_calls")
        if not calls:
            return str(message["content"])
        messages.extend(await asyncio.gather(*(carry(call) for call in calls)))
    raise RuntimeError("too many turns")


async def prod(provider: Provider) -> str:
    """The loop with the production executor."""
    _DONE.clear()
    return await loop(provider, prod_call)


_VALIDATOR = jsonschema_rs.validator_for(SCHEMA)


async def bare(provider: Provider) -> str:
    """Parse, check, await; no messages, no errors, one call after another."""
    for turn in range(provider.turns):
        for call in range(provider.calls):
            arguments = from_json(arguments_of(turn, call))
            if _VALIDATOR.is_valid(arguments):
                await get_weather(**arguments)
    return "done"
