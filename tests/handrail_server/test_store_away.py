"""While the store does not answer, each route says that, and not that the request was wrong."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable

import httpx2
import pytest

import handrail as hr
from handrail.errors import StoreUnavailable
from handrail.stores.sqlite import SqliteStore
from handrail.testing import ScriptedModel
from handrail_server.app import create_app
from handrail_server.deployment import Deployment
from handrail_server.endpoints.mounting import mount_endpoints
from tests.handrail_server.served import ASKING, delete_order, get_order


class Leaving(SqliteStore):
    """A store that stops to answer some of what it is asked."""

    away: Callable[[str], bool] = staticmethod(lambda _: False)

    def __getattribute__(self, name):
        if name in _ASKED and type(self).away(name):

            def refuse(*_, **__):
                raise StoreUnavailable("the store does not answer")

            return refuse
        return super().__getattribute__(name)


_ASKED = frozenset(
    (
        "begin_run", "append_entry", "load_run", "list_runs", "ask", "decide", "list_approvals", "list_writes",
        "load_write", "request_cancel", "log", "append_audit",
    )
)  # fmt: skip
_WRITES = _ASKED - {
    "load_run",
    "list_runs",
    "list_approvals",
    "list_writes",
    "load_write",
    "log",
}

_SHOWN = {
    "messages": [
        {"id": "1", "role": "user", "parts": [{"type": "text", "text": "Go."}]}
    ]
}
REQUESTS = [
    ("POST", "/api/v1/runs", {"question": "Delete it."}),
    ("GET", "/api/v1/runs/{run}", None),
    ("GET", "/api/v1/runs/{run}/messages", None),
    ("GET", "/api/v1/runs/{run}/audit", None),
    ("POST", "/api/v1/runs/{run}/cancel", {}),
    ("POST", "/api/v1/runs/{run}/resume", {}),
    ("POST", "/api/v1/runs/{run}/fork", {"at": 1}),
    ("GET", "/api/v1/approvals", None),
    (
        "POST",
        "/api/v1/approvals/{question}",
        {"verdict": "approve", "digest": "{digest}"},
    ),
    ("GET", "/api/v1/ledger", None),
    ("GET", "/api/v1/audit", None),
    (
        "POST",
        "/v1/chat/completions",
        {"messages": [{"role": "user", "content": "Delete it."}]},
    ),
    ("POST", "/v1/responses", {"input": "Delete it."}),
    (
        "POST",
        "/agui",
        {
            "threadId": "t",
            "runId": "r",
            "messages": [{"id": "1", "role": "user", "content": "Go."}],
        },
    ),
    (
        "POST",
        "/v1/ui-messages",
        {
            "messages": [
                {"id": "1", "role": "user", "parts": [{"type": "text", "text": "Go."}]}
            ]
        },
    ),
]


@pytest.mark.parametrize(("method", "path", "body"), REQUESTS)
@pytest.mark.parametrize("is_all_away", [True, False])
def test_a_store_that_is_away_is_told_as_that(
    method, path, body, is_all_away, tmp_path, monkeypatch
):
    async def main():
        store = Leaving(str(tmp_path / "h.db"))
        deployment = Deployment(
            hr.Runtime([get_order, delete_order], store=store),
            models=[ScriptedModel(ASKING)],
        )
        endpoints = mount_endpoints(deployment)
        assert endpoints is not None
        app = create_app(deployment, routes=endpoints.routes)
        transport = httpx2.ASGITransport(app)
        async with httpx2.AsyncClient(
            transport=transport, base_url="http://localhost"
        ) as client:
            begun = await client.post("/api/v1/runs", json={"question": "Delete it."})
            run = (
                begun.json()["run"]["id"]
                if "run" in begun.json()
                else begun.json()["id"]
            )
            question = await _question(client)
            names = {
                "run": run,
                "question": question["id"],
                "digest": question["digest"],
            }
            sent = None
            if body is not None:
                sent = json.loads(json.dumps(body).replace("{digest}", names["digest"]))
            monkeypatch.setattr(
                Leaving,
                "away",
                staticmethod(lambda name: is_all_away or name in _WRITES),
            )
            answer = await client.request(method, path.format(**names), json=sent)
            monkeypatch.undo()
        await deployment.close()
        return answer

    answer = asyncio.run(main())
    if method == "GET" and not is_all_away:
        assert answer.status_code == 200
        return
    if answer.headers["content-type"].startswith("text/event-stream"):
        # the answer had begun, so its end says it
        assert "the server's store does not answer" in answer.text
        return
    assert answer.status_code == 503, answer.text
    assert answer.json()["error"]["code"] == "store_unavailable"


async def _question(client):
    for _ in range(500):
        found = (await client.get("/api/v1/approvals")).json()["items"]
        if found:
            return found[0]
        await asyncio.sleep(0.01)
    raise AssertionError("no question was asked")
