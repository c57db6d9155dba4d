"""A shop's agent behind Chat Completions: its tools run there, the caller's here; sent twice is one run."""

import asyncio

import httpx2
import openai
from starlette.applications import Starlette

import handrail as hr
from handrail.stores.memory_runs import FullMemoryStore
from handrail.testing import ScriptedModel, call
from handrail_server.endpoints import Endpoints


@hr.tool(effect="write")
def note(text: str) -> str:
    """Note something about the customer."""
    print("noted:", text)
    return "noted"


locate = {"name": "locate", "description": "Find where the user is.", "parameters": {"type": "object"}}
REQUEST = {"model": "shop", "tools": [{"type": "function", "function": locate}]}
model = ScriptedModel([[call("note", text="moved"), call("locate")], "The nearest shop is in Oslo."])
app = Starlette(routes=Endpoints(hr.Runtime([note], store=FullMemoryStore()), {"shop": model}).routes)


async def main() -> None:
    transport = httpx2.AsyncClient(transport=httpx2.ASGITransport(app))
    async with openai.AsyncOpenAI(base_url="http://shop/v1", api_key="none", http_client=transport) as shop:
        talk = [{"role": "user", "content": "I have moved. Where is your nearest shop?"}]
        for _ in range(2):  # the answer to the first was lost on its way
            asked = await shop.chat.completions.create(messages=talk, extra_headers={"Idempotency-Key": "q"}, **REQUEST)
            (wanted,) = asked.choices[0].message.tool_calls
            print(asked.choices[0].finish_reason, wanted.function.name)
        talk += [asked.choices[0].message, {"role": "tool", "tool_call_id": wanted.id, "content": "Oslo"}]
        print((await shop.chat.completions.create(messages=talk, **REQUEST)).choices[0].message.content)


asyncio.run(main())
