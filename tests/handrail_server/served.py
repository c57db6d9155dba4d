"""Real servers for tests: in a thread of this process, or in a process that can be killed."""

import asyncio
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx2
import uvicorn

import handrail as hr
from handrail.serving.listening import open_socket
from handrail.stores.memory_runs import FullMemoryStore
from handrail.testing import ScriptedModel, call
from handrail_server.access import Access
from handrail_server.app import create_app
from handrail_server.deployment import Deployment

PATIENCE_S = 120.0
"""Beyond it something hangs, also where many others compute: a server alone takes 3 s to start."""


@hr.tool(effect="read")
def get_order(order_id: str) -> dict[str, Any]:
    """Look an order up by its number."""
    return {"order_id": order_id, "paid": 49}


@hr.tool(effect="destructive")
def delete_order(order_id: str) -> str:
    """Delete an order for good."""
    return f"deleted {order_id}"


ASKING = [
    [call("get_order", order_id="A-1"), call("delete_order", order_id="A-1")],
    "It is gone.",
]
"""A script whose second call waits for a person."""


class Served:
    """A server, and a client of it."""

    def __init__(self, url: str, deployment: Deployment | None = None) -> None:
        self.url = url.rstrip("/")
        self.deployment = deployment
        self.client = httpx2.Client(base_url=self.url, timeout=PATIENCE_S)

    def get(self, path: str, **how: Any) -> Any:
        """Return the JSON at a path of the API."""
        answer = self.client.get(f"/api/v1{path}", **how)
        assert answer.status_code == 200, answer.text
        return answer.json()

    def post(self, path: str, body: Any = None, status: int = 200, **how: Any) -> Any:
        """Send JSON to a path of the API; return the JSON of the answer."""
        answer = self.client.post(f"/api/v1{path}", json=body or {}, **how)
        assert answer.status_code == status, answer.text
        return answer.json()

    def run_until(self, run_id: str, status: str) -> Any:
        """Wait until a run stands so; return it whole."""
        return wait_until(
            lambda: self.get(f"/runs/{run_id}"),
            lambda page: page["run"]["status"] == status,
        )

    def question(self) -> Any:
        """Wait for the one open question; return it."""
        questions = wait_until(lambda: self.get("/approvals")["items"], bool)
        return questions[0]

    def word(self, question: Any, verdict: str = "approve", **more: Any) -> Any:
        """Answer a question; return the whole answer of HTTP."""
        body = {"verdict": verdict, "digest": question["digest"], **more}
        return self.client.post(f"/api/v1/approvals/{question['id']}", json=body)


def wait_until(look: Any, is_there: Any) -> Any:
    """Look until it is there; return what was seen."""
    deadline = time.monotonic() + PATIENCE_S
    while not is_there(seen := look()):
        assert time.monotonic() < deadline, seen
        time.sleep(0.02)
    return seen


@contextmanager
def serving(
    *tools: Any,
    model: Any = None,
    store: Any = None,
    access: Access | None = None,
    **how: Any,
) -> Iterator[Served]:
    """Serve tools in a thread of this process."""
    runtime = hr.Runtime(
        tools or (get_order, delete_order), store=store or FullMemoryStore()
    )
    models = () if model is None else (model,)
    deployment = Deployment(runtime, models=models, place="here")
    app = create_app(deployment, access, **how)
    listener = open_socket("127.0.0.1", 0)
    config = uvicorn.Config(
        app, log_config=None, access_log=False, lifespan="on", proxy_headers=False,
        timeout_graceful_shutdown=2,
    )  # fmt: skip
    server = uvicorn.Server(config)
    thread = threading.Thread(
        target=lambda: asyncio.run(server.serve(sockets=[listener]))
    )
    thread.start()
    served = Served(f"http://127.0.0.1:{listener.getsockname()[1]}", deployment)
    try:
        wait_until(lambda: server.started, bool)
        yield served
    finally:
        served.client.close()
        server.should_exit = True
        thread.join(PATIENCE_S)


def scripted(*script: Any) -> ScriptedModel:
    """Return a model that says what the script tells it."""
    return ScriptedModel(list(script or ASKING))


@contextmanager
def served_process(*words: str, folder: Path, **environ: str) -> Iterator[Any]:
    """Start `handrail serve` as a process of its own; yield its client and the process."""
    kept = {
        k: v
        for k, v in os.environ.items()
        if not k.startswith(("HANDRAIL_", "OPENAI_"))
    }
    process = subprocess.Popen(
        [sys.executable, "-m", "handrail", "serve", "--json", "--http", "0", *words],
        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, cwd=folder,
        text=True, env={**kept, **environ},
    )  # fmt: skip
    try:
        assert process.stdout is not None
        line = process.stdout.readline()
        served = Served(json.loads(line)["url"])
        with served.client:
            yield served, process
    finally:
        if process.poll() is None:
            process.send_signal(signal.SIGTERM)
        process.wait(PATIENCE_S)
        process.stdout.close()
