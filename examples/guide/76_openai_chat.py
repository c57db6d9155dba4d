"""A shop's agent behind Chat Completions: its tools run there, the caller's here; sent twice is one run."""

import asyncio
from pathlib import Path
from tempfile import TemporaryDirectory

import httpx2
import openai
from starlette.applications import Starlette

import handrail as hr
from handrail.server.endpoints import Endpoints
from handrail.testing import ScriptedModel, call


@hr.tool(effect="write")
def note(text: str) -> str:
    """Note something about the customer."""
    print("noted:", text)
    return "noted"


locate = {"name": "locate", "description": "Find where the user is.", "parameters": {"type": "object"}}
model = ScriptedModel([[call("note", text="moved"), call("locate")], "The nearest shop is in Oslo."])


async def main(store: str) -> None:
    async with hr.Runtime([note], store=store) as runtime:
        app = Starlette(routes=Endpoints(runtime, {"shop": model}).routes)
        transport = httpx2.AsyncClient(transport=httpx2.ASGITransport(app))
        async with openai.AsyncOpenAI(base_url="http://shop/v1", api_key="none", http_client=transport) as client:
            messages = [{"role": "user", "content": "I have moved. Where is your nearest shop?"}]
            tools = [{"type": "function", "function": locate}]
            for attempt in (1, 2):  # the answer to the first was lost on its way
                key = {"Idempotency-Key": "question-881"}
                asked = await client.chat.completions.create(
                    model="shop", messages=messages, tools=tools, extra_headers=key
                )
                (wanted,) = asked.choices[0].message.tool_calls
                print(attempt, asked.choices[0].finish_reason, wanted.function.name)
            messages += [asked.choices[0].message, {"role": "tool", "tool_call_id": wanted.id, "content": "Oslo"}]
            answer = await client.chat.completions.create(model="shop", messages=messages, tools=tools)
            print(answer.choices[0].message.content)


with TemporaryDirectory() as folder:
    asyncio.run(main(f"sqlite:///{Path(folder, 'handrail.db')}"))
