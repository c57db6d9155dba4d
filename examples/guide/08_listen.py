"""Three ways to see a run: an observer, the stream of its events, and its transcript."""

import asyncio
import logging

import handrail as hr
from handrail.events import CallFinished, Event, Streamed
from handrail.messages import TextDelta
from handrail.testing import ScriptedServer, call


@hr.tool(effect="read", timeout_s=5)
async def get_weather(city: str) -> str:
    """Tell the weather of a city."""
    return "sunny"


def log(event: Event) -> None:
    """Note each result; an observer sees everything, changes nothing, and must not block."""
    if isinstance(event, CallFinished):
        logging.getLogger("calls").info("%s %s", event.call.name, event.result.ok)


async def main() -> None:
    with ScriptedServer([call("get_weather", city="Paris"), "It is sunny in Paris."], pause_s=0.01) as server:
        async with hr.Runtime([get_weather], observers=[log]) as runtime:
            stream = runtime.stream("How is Paris?", model=server.model, options=hr.Options(stream=True))
            async for event in stream:
                match event:
                    case Streamed(TextDelta(text)):
                        print(text, end="", flush=True)
                    case CallFinished():
                        print(f"({event.call.name}: {event.result.text})")
    print("\n--", stream.run.transcript(), sep="\n")


asyncio.run(main())
