"""A client of AG-UI in thirty lines: it shows what the agent does, and answers when it is interrupted."""

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import httpx2
from starlette.applications import Starlette

import handrail as hr
from handrail.server.endpoints import Endpoints
from handrail.testing import ScriptedModel, call


@hr.tool(effect="destructive")
def close_account(user: str) -> str:
    """Close an account for good."""
    return f"the account of {user} is closed"


model = ScriptedModel([call("close_account", user="anna"), "Your account is closed."])


async def run(client: httpx2.AsyncClient, number: int, **more: Any) -> AsyncIterator[dict[str, Any]]:
    question = {"id": "m1", "role": "user", "content": "Please close my account."}
    body = {"threadId": "t1", "runId": f"run-{number}", "messages": [question], **more}
    async with client.stream("POST", "http://support/agui", json=body) as answer:
        async for line in answer.aiter_lines():
            if line.startswith("data: "):
                yield json.loads(line.removeprefix("data: "))


async def main(store: str) -> None:
    async with hr.Runtime([close_account], store=store) as runtime:
        app = Starlette(routes=Endpoints(runtime, {"support": model}).routes)
        async with httpx2.AsyncClient(transport=httpx2.ASGITransport(app)) as client:
            async for event in run(client, 1):
                print(event["type"], event.get("toolCallName", ""))
            (interrupt,) = event["outcome"]["interrupts"]
            print(interrupt["message"])
            answer = {"interruptId": interrupt["id"], "status": "resolved", "payload": {"approved": True}}
            async for event in run(client, 2, resume=[answer]):
                print(event["type"], event.get("content") or event.get("delta", ""))


with TemporaryDirectory() as folder:
    asyncio.run(main(f"sqlite:///{Path(folder, 'handrail.db')}"))
