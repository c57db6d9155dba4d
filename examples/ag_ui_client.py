"""A client of AG-UI in thirty lines: it shows what the agent does, and answers when it is interrupted."""

import asyncio
import json

import httpx2
from starlette.applications import Starlette

import handrail as hr
from handrail.stores.memory_runs import FullMemoryStore
from handrail.testing import ScriptedModel, call
from handrail_server.endpoints import Endpoints


@hr.tool(effect="destructive")
def close_account(user: str) -> str:
    """Close an account for good."""
    return f"the account of {user} is closed"


model = ScriptedModel([call("close_account", user="anna"), "Your account is closed."])
app = Starlette(routes=Endpoints(hr.Runtime([close_account], store=FullMemoryStore()), {"support": model}).routes)


async def run(client: httpx2.AsyncClient, **more: object) -> dict:
    talk = {"threadId": "t1", "messages": [{"id": "m1", "role": "user", "content": "Please close my account."}]}
    async with client.stream("POST", "http://support/agui", json={**talk, **more}) as answer:
        async for line in answer.aiter_lines():
            if line.startswith("data: "):
                event = json.loads(line.removeprefix("data: "))
                print(event["type"], event.get("toolCallName") or event.get("content") or event.get("delta", ""))
    return event


async def main() -> None:
    async with httpx2.AsyncClient(transport=httpx2.ASGITransport(app)) as client:
        (asked,) = (await run(client, runId="1"))["outcome"]["interrupts"]
        answer = {"interruptId": asked["id"], "status": "resolved", "payload": {"approved": True}}
        await run(client, runId="2", resume=[answer])


asyncio.run(main())
