"""A tool that shows a picture, and a person who shows a file: `hr.Media`, spelled as each provider wants it."""

import asyncio
import json

import handrail as hr
from handrail.testing import ScriptedServer, call

PIXEL = bytes.fromhex("89504e470d0a1a0a")  # the beginning of a PNG


@hr.tool(effect="read", timeout_s=5)
async def draw_load(hours: int) -> list[object]:
    """Draw the load of the last hours."""
    return [f"the load of {hours} hours", hr.Media("image/png", PIXEL, name="load.png")]


def shapes(value: object) -> str:
    """Return the JSON without what is long in it."""
    return json.dumps(value).replace("iVBORw0KGgo=", "...")


async def main() -> None:
    question = hr.UserMessage("", [{"type": "text", "text": "Is this normal?"}, hr.Media("text/plain", b"no errors")])
    async with hr.Runtime([draw_load]) as runtime:
        for wire in ("anthropic", "openai-chat"):
            with ScriptedServer([call("draw_load", hours=3), "It is."], wire=wire) as server:
                await runtime.run(question, model=server.model)
            print(wire)
            for message in server.requests[-1]["messages"]:
                if message["role"] != "assistant":
                    print("  ", shapes(message))


asyncio.run(main())
