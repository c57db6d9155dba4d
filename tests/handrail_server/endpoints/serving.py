"""Applications with the endpoints, served on a free port by a thread of this process."""

import asyncio
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

import openai
import uvicorn
from starlette.applications import Starlette

import handrail as hr
from handrail.calls import ToolCall
from handrail.cli.demo.cluster import TOOLS, Cluster
from handrail.cli.demo.story import TEXTS, script
from handrail.messages import TextDelta, Turn
from handrail.serving.listening import open_socket
from handrail.testing import ScriptedServer, line_for
from handrail_server.endpoints import Endpoints
from handrail_server.endpoints.driving import Requester

QUESTION = TEXTS["en"].question
ANSWER = TEXTS["en"].answer
LOOKING = TEXTS["en"].looking


class Served:
    """A server under way: its address, its runtime, and clients of it."""

    def __init__(self, url: str, runtime: hr.Runtime) -> None:
        self.url = url
        self.runtime = runtime
        self._clients: dict[str, openai.OpenAI] = {}

    def client(self, principal: str = "anna") -> openai.OpenAI:
        """Return the official client, which does not retry by itself."""
        if principal not in self._clients:
            self._clients[principal] = openai.OpenAI(**self._of(principal))
        return self._clients[principal]

    def async_client(self, principal: str = "anna") -> openai.AsyncOpenAI:
        """Return the same for asyncio, to be closed."""
        return openai.AsyncOpenAI(**self._of(principal))

    def close(self) -> None:
        """Close the clients."""
        for client in self._clients.values():
            client.close()

    def _of(self, principal: str) -> dict[str, Any]:
        url = f"{self.url}/v1"
        return {"base_url": url, "api_key": principal, "max_retries": 0}


def identify(request: Any) -> Requester:
    """Return whose request it is: of whoever the token names, who may do what the name says."""
    name = request.headers.get("authorization", "").removeprefix("Bearer ")
    return Requester(
        name,
        may_start=name != "visitor",
        may_approve=name not in ("visitor", "clerk"),
    )


@contextmanager
def serve_endpoints(
    runtime: hr.Runtime, models: Mapping[str, Any], **settings: Any
) -> Iterator[Served]:
    """Serve the endpoints of a runtime."""
    listener = open_socket("127.0.0.1", 0)
    settings.setdefault("identify", identify)
    endpoints = Endpoints(runtime, models, **settings)

    @asynccontextmanager
    async def live(_: Starlette) -> Any:
        async with runtime:
            yield
            await endpoints.aclose()

    app = Starlette(routes=endpoints.routes, lifespan=live)
    config = uvicorn.Config(
        app, log_config=None, lifespan="on", timeout_graceful_shutdown=5
    )
    server = uvicorn.Server(config)
    thread = threading.Thread(
        target=lambda: asyncio.run(server.serve(sockets=[listener])), daemon=True
    )
    thread.start()
    served = Served(f"http://127.0.0.1:{listener.getsockname()[1]}", runtime)
    try:
        yield served
    finally:
        served.close()
        server.should_exit = True
        thread.join(20)
        listener.close()


@contextmanager
def serve_demo(folder: Path) -> Iterator[tuple[Served, Cluster]]:
    """Serve the demo: its scripted model behind a real server, its tools, its stand-in cluster."""
    cluster = Cluster(hanging=0)
    with ScriptedServer(script("en")) as model:
        runtime = hr.Runtime(
            TOOLS,
            store=f"sqlite:///{folder}/runs.db",
            policy=hr.Policy(own_approval=True),
        )
        with serve_endpoints(
            runtime,
            {"operator": model.model},
            system=TEXTS["en"].system,
            options=lambda _: {"deps": cluster},
        ) as served:
            yield served, cluster


class Told:
    """A model that says lines, each chosen by the last question; its words come one by one."""

    name = "told"

    def __init__(self) -> None:
        self.scripts: dict[str, Sequence[Any]] = {}
        """The lines of a run, by a word of its first question."""
        self.gates: dict[str, threading.Event] = {}
        """What an answer waits for before each word but the first, by a word of the question."""
        self.requests: list[Any] = []

    async def ask(self, request: Any, listener: Any = None) -> Turn:
        """See `ports.Model.ask`."""
        self.requests.append(list(request.messages))
        question = next(
            m.text for m in request.messages if isinstance(m, hr.UserMessage)
        )
        word = question.split()[0]
        turn = line_for(self.scripts.get(word, [f"{word}?"]), request.messages)
        gate = self.gates.get(word)
        for number, piece in enumerate(turn.text.split(" ") if turn.text else ()):
            if number and gate is not None:
                await asyncio.to_thread(gate.wait, 10)
            if listener is not None:
                listener.delta(TextDelta(piece if not number else f" {piece}"))
        return turn


class World:
    """What the tools of these tests act on, and what their model says."""

    def __init__(self, folder: Path) -> None:
        self.model = Told()
        self.notes: list[str] = []
        self.gate = threading.Event()
        self.started = threading.Event()

        @hr.tool(effect="read")
        def look(city: str) -> str:
            """Look at the weather of a city."""
            return f"{city}: 12 degrees"

        @hr.tool(effect="write")
        def note(text: str) -> str:
            """Write a note down."""
            self.notes.append(text)
            return "noted"

        @hr.tool(effect="destructive")
        def erase(text: str) -> str:
            """Erase a note."""
            self.notes.remove(text)
            return "erased"

        @hr.tool(effect="write", timeout_s=20)
        async def linger(text: str) -> str:
            """Write a note down, slowly."""
            self.notes.append(text)
            self.started.set()
            while not self.gate.is_set():
                await asyncio.sleep(0.01)
            return "noted at last"

        @hr.tool(effect="write", timeout_s=0.2)
        async def stall(text: str) -> str:
            """Write a note down, and never answer."""
            self.notes.append(text)
            await asyncio.sleep(60)
            return "never"

        @hr.tool(effect="read")
        def leak() -> str:
            """Fail with words that nobody outside may read."""
            raise RuntimeError("the password is hunter2")

        self.runtime = hr.Runtime(
            [look, note, erase, linger, stall, leak],
            store=f"sqlite:///{folder}/runs.db",
            secrets=["sesame-sesame"],
            policy=hr.Policy(own_approval=True),
        )

    def says(self, word: str, *lines: Any) -> str:
        """Have the model answer a question that begins with this word, line by line; return the word."""
        self.model.scripts[word] = lines
        return word


def both(*calls: ToolCall, text: str = "") -> Turn:
    """Return a turn with several calls."""
    return Turn(text, calls=calls, finish="calls")


@contextmanager
def serve_world(folder: Path) -> Iterator[tuple[Served, World]]:
    """Serve a world."""
    world = World(folder)
    models = {"told": world.model, "broken": Broken()}
    with serve_endpoints(world.runtime, models) as served:
        yield served, world
        world.gate.set()


class Broken:
    """A model that raises."""

    name = "broken"

    async def ask(self, request: Any, listener: Any = None) -> Turn:
        """See `ports.Model.ask`."""
        raise RuntimeError("the password is hunter2")


def wait_until(check: Callable[[], Any]) -> Any:
    """Return what `check` returns, once it is true."""
    for _ in range(1000):
        if value := check():
            return value
        time.sleep(0.01)
    raise AssertionError("it did not come true in 10 s")


ASK_USER = {
    "type": "function",
    "function": {
        "name": "ask_user",
        "description": "Ask the user something.",
        "parameters": {
            "type": "object",
            "properties": {"question": {"type": "string"}},
            "required": ["question"],
        },
    },
}
"""A tool of the caller's, as Chat Completions has it."""
