"""How the tests reach the shop: over stdio or HTTP, in either revision, as a client that can ask a person or cannot."""

import socket
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx2
from mcp import Client, StdioServerParameters, types
from mcp.client.stdio import stdio_client
from mcp.client.streamable_http import streamable_http_client

from handrail import SyncRuntime

OLD = "legacy"
NEW = "2026-07-28"
ROOT = Path(__file__).parents[2]


@dataclass
class Person:
    """The person at a client: answers each form with the next of these, and keeps what was shown."""

    answers: list[types.ElicitResult]
    shown: list[str] = field(default_factory=list)
    forms: list[Any] = field(default_factory=list)

    async def __call__(self, _: Any, form: Any) -> types.ElicitResult:
        self.shown.append(form.message)
        self.forms.append(form.requested_schema)
        return self.answers.pop(0)


def accept(**content: Any) -> types.ElicitResult:
    return types.ElicitResult(action="accept", content=content)


DECLINE = types.ElicitResult(action="decline")
CLOSE = types.ElicitResult(action="cancel")


@dataclass
class Shop:
    """A shop, and a way to it."""

    folder: Path
    mode: str = OLD
    url: str = ""

    @asynccontextmanager
    async def client(
        self, person: Person | None = None, *, token: str = "", **how: Any
    ) -> AsyncIterator[Client]:
        """Open a client; it can ask a person only if it is given one."""
        name = how.pop("name", "tests")
        how["client_info"] = types.Implementation(name=name, version="1")
        headers = how.pop("headers", {})
        if token:
            headers["Authorization"] = f"Bearer {token}"
        async with AsyncExitStack() as stack:
            target: Any
            if self.url:
                http = httpx2.AsyncClient(headers=headers, timeout=60)
                await stack.enter_async_context(http)
                target = streamable_http_client(self.url, http_client=http)
            else:
                log = stack.enter_context((self.folder / "stderr").open("a"))
                target = stdio_client(self.command, errlog=log)
            yield await stack.enter_async_context(
                Client(target, mode=self.mode, elicitation_callback=person, **how)
            )

    @property
    def command(self) -> StdioServerParameters:
        """What starts the shop on stdio."""
        arguments = ["-W", "ignore", "-m", "tests.handrail_mcp.shop", str(self.folder)]
        return StdioServerParameters(command=sys.executable, args=arguments, cwd=ROOT)

    def written(self, file: str, word: str) -> list[str]:
        """Return the lines of a file that hold a word."""
        path = self.folder / file
        lines = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
        return [line for line in lines if word in line]

    def elsewhere(self) -> SyncRuntime:
        """Return a runtime on the shop's store, as another process has it."""
        return SyncRuntime([], store=f"sqlite:///{self.folder}/shop.db")


@contextmanager
def serve_shop(folder: Path, *tokens: str) -> Iterator[str]:
    """Run the shop on a free port; yield its address."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    arguments = [str(folder), str(port), *tokens]
    with (folder / "http.log").open("a") as log:
        program = subprocess.Popen(
            [
                sys.executable,
                "-W",
                "ignore",
                "-m",
                "tests.handrail_mcp.shop",
                *arguments,
            ],
            cwd=ROOT,
            stdout=log,
            stderr=log,
        )
        try:
            wait_until(lambda: listens(port))
            yield f"http://127.0.0.1:{port}/mcp"
        finally:
            program.terminate()
            program.wait(20)


def listens(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port), 1).close()
    except OSError:
        return False
    return True


def wait_until(holds: Any, limit_s: float = 60) -> None:
    """Wait until something holds."""
    limit = time.monotonic() + limit_s
    while not holds():
        assert time.monotonic() < limit, "it never came to hold"
        time.sleep(0.02)


def text_of(result: types.CallToolResult) -> str:
    return "\n".join(getattr(each, "text", "") for each in result.content)


def code_of(result: types.CallToolResult) -> str:
    assert result.is_error
    assert result.structured_content is not None
    return str(result.structured_content["error_code"])
