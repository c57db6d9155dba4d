"""Whether a worker lives and takes segments, over HTTP, for whoever restarts it.

    GET /healthz     200 while the event loop turns: kill the worker otherwise
    GET /readyz      200 while it takes segments and the store answers; else 503 with the reason as text

Rule 1: nothing of a run is shown, so it needs no token; every other path is 404, every other method 405.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress

from handrail.errors import ConfigError

_MOST_BYTES = 8192
_PATIENCE_S = 5.0


class HealthServer:
    """Answers the two questions on an address.

    Args:
        why_not_ready: Returns why no segments are taken, as a sentence; empty where they are.
    """

    def __init__(self, why_not_ready: Callable[[], str]) -> None:
        self._why_not_ready = why_not_ready
        self._server: asyncio.Server | None = None

    async def listen(self, host: str, port: int) -> str:
        """Listen there, port 0 for any that is free; return the address.

        Raises:
            ConfigError: It cannot.
        """
        try:
            self._server = await asyncio.start_server(
                self._serve, host, port, limit=_MOST_BYTES
            )
        except OSError as error:
            raise ConfigError(
                f"cannot listen on {host}:{port}: {error.strerror}"
            ) from error
        name, free_port, *_ = self._server.sockets[0].getsockname()
        return (
            f"http://[{name}]:{free_port}"
            if ":" in name
            else f"http://{name}:{free_port}"
        )

    async def close(self) -> None:
        """Listen no longer."""
        if self._server is not None:
            self._server.close()

    async def _serve(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        with suppress(
            OSError,
            ValueError,
            TimeoutError,
            asyncio.IncompleteReadError,
            asyncio.LimitOverrunError,
            asyncio.CancelledError,  # the worker ends; asyncio would log that
        ):
            head = await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), _PATIENCE_S)
            method, path, _ = head.split(b"\r\n", 1)[0].decode("ascii").split(" ")
            status, text = self._answer(method, path.partition("?")[0])
            body = f"{text}\n".encode()
            writer.write(
                f"HTTP/1.1 {status}\r\nContent-Type: text/plain; charset=utf-8\r\n"
                f"Content-Length: {len(body)}\r\nCache-Control: no-store\r\nConnection: close\r\n\r\n".encode()
            )
            if method != "HEAD":
                writer.write(body)
            await writer.drain()
        writer.close()

    def _answer(self, method: str, path: str) -> tuple[str, str]:
        if path not in ("/healthz", "/readyz"):
            return "404 Not Found", "there are /healthz and /readyz"
        if method not in ("GET", "HEAD"):
            return "405 Method Not Allowed", "only GET is answered"
        if path == "/readyz" and (reason := self._why_not_ready()):
            return "503 Service Unavailable", reason
        return "200 OK", "ok"
