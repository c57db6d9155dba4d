"""The console and its API inside a web service of your own: an ASGI application over your runtime."""

import asyncio

import httpx2

import handrail as hr
from handrail.stores.memory_runs import FullMemoryStore
from handrail.testing import ScriptedModel, call
from handrail_server.app import create_app
from handrail_server.deployment import Deployment


@hr.tool(effect="destructive")
def delete_order(order_id: str) -> str:
    """Delete an order for good."""
    return f"deleted {order_id}"


model = ScriptedModel([[call("delete_order", order_id="A-1")], "It is gone."])
deployment = Deployment(hr.Runtime([delete_order], store=FullMemoryStore()), models=[model])
app = create_app(deployment)  # for uvicorn, or to mount in your application


async def main() -> None:
    deployment.begin()  # a web server does this, and `close`, by the application's lifespan
    async with httpx2.AsyncClient(transport=httpx2.ASGITransport(app), base_url="http://localhost/api/v1") as web:
        run = (await web.post("/runs", json={"question": "Delete A-1."})).json()["id"]
        while not (questions := (await web.get("/approvals")).json()["items"]):
            await asyncio.sleep(0.01)
        asked = questions[0]
        print(asked["tool"], asked["arguments"], "-", asked["reason"])
        await web.post(f"/approvals/{asked['id']}", json={"verdict": "approve", "digest": asked["digest"]})
        while (page := (await web.get(f"/runs/{run}")).json())["run"]["status"] != "done":
            await asyncio.sleep(0.01)
        print(page["run"]["final_text"])
    await deployment.close()


asyncio.run(main())
