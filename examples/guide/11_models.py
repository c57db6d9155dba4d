"""One agent on three wires and an open model. Only the model's name changes; here each is a script behind real HTTP."""

import asyncio

import handrail as hr
from handrail.testing import ScriptedServer, call


@hr.tool(effect="read", timeout_s=5)
async def get_weather(city: str) -> str:
    """Tell the weather of a city."""
    return "sunny, 21 °C"


async def main() -> None:
    async with hr.Runtime([get_weather]) as runtime:
        for wire in ("openai-chat", "openai-responses", "anthropic", "hermes"):
            with ScriptedServer([call("get_weather", city="Paris"), "It is sunny."], wire=wire) as server:
                run = await runtime.run("How is Paris?", model=server.model)  # or model="anthropic:NAME"
                name, path = server.model.partition("@")[0], server.paths[-1]
                print(f"{name:25} {run.status}  POST {path}")
    print(server.requests[-1]["prompt"][-300:])  # what the open model read


asyncio.run(main())
