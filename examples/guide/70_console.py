"""The console and its API inside a web service of your own: an ASGI application over your runtime."""

import asyncio

import httpx2

import handrail as hr
from handrail.server.app import create_app
from handrail.server.deployment import Deployment
from handrail.stores.memory_runs import FullMemoryStore
from handrail.testing import ScriptedModel, call


@hr.tool(effect="destructive")
def delete_order(order_id: str) -> str:
    """Delete an order for good."""
    return f"deleted {order_id}"


model = ScriptedModel([[call("delete_order", order_id="A-1")], "It is gone."])
runtime = hr.Runtime([delete_order], store=FullMemoryStore())  # or "sqlite:///handrail.db"
deployment = Deployment(runtime, models=[model])
app = create_app(deployment)  # for uvicorn, or to mount in your application


async def main() -> None:
    deployment.begin()  # a web server does this, and `close`, by the application's lifespan
    web = httpx2.AsyncClient(transport=httpx2.ASGITransport(app), base_url="http://localhost/api/v1")
    async with web:
        run = (await web.post("/runs", json={"question": "Delete A-1."})).json()["id"]
        while not (questions := (await web.get("/approvals")).json()["items"]):
            await asyncio.sleep(0.01)
        question = questions[0]
        print(question["tool"], question["arguments"], "-", question["reason"])
        word = {"verdict": "approve", "digest": question["digest"]}
        decided = await web.post(f"/approvals/{question['id']}", json=word)
        print(decided.json()["approval"]["state"], "by the person who started the server")
        again = await web.post(f"/approvals/{question['id']}", json=word)
        print(again.status_code, again.json()["error"]["code"])
        while (page := (await web.get(f"/runs/{run}")).json())["run"]["status"] != "done":
            await asyncio.sleep(0.01)
        for each in page["calls"][0]["decisions"]:
            print("-", each["step"], each["outcome"])
        print(page["run"]["final_text"])
    await deployment.close()


asyncio.run(main())
