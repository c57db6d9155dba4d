"""The first program: a model, a tool, and what lies between. The model is a script, so it runs without a key."""

import asyncio

import handrail as hr
from handrail.testing import ScriptedServer, call


@hr.tool(effect="read", timeout_s=5)
async def get_weather(city: str) -> dict[str, object]:
    """Get the current temperature of a city in degrees Celsius."""
    return {"city": city, "celsius": 21}


async def main() -> None:
    answers = [call("get_weather", town="Paris"), call("get_weather", city="Paris"), "It is 21 °C."]
    with ScriptedServer(answers) as server:
        async with hr.Runtime([get_weather]) as runtime:
            run = await runtime.run("How warm is it in Paris?", model=server.model)  # or model="openai:NAME"
    print(run.transcript(debug=True))
    print(run)


asyncio.run(main())
