"""Runs a server until the process gets a signal to end."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager

import uvicorn
from starlette.routing import BaseRoute

from handrail.serving.listening import open_socket, own_names, serve_app
from handrail_server.access import Access
from handrail_server.app import create_app
from handrail_server.deployment import Deployment


def serve(
    deployment: Deployment,
    access: Access | None = None,
    *,
    host: str = "127.0.0.1",
    port: int = 8000,
    hosts: Sequence[str] = (),
    origins: Sequence[str] = (),
    routes: Iterable[BaseRoute] = (),
    started: Callable[[str], None] | None = None,
) -> None:
    """Serve a deployment, and close its runtime.

    Args:
        port: 0 is any that is free.
        hosts: More names under which the server is reached.
        started: Called with the address once the server listens.

    Raises:
        ConfigError: It cannot listen there.
    """
    listener = open_socket(host, port)
    bound = listener.getsockname()[1]
    shown = f"[{host}]" if ":" in host else host
    app = create_app(
        deployment,
        access,
        names=own_names(host, hosts),
        origins=origins,
        routes=routes,
    )
    if started is not None:
        started(f"http://{shown}:{bound}/")
    asyncio.run(serve_app(app, listener, log_level="warning"))


class _QuietServer(uvicorn.Server):
    """A server beside a program that has its own ways with signals."""

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Leave signals to the program."""
        yield


@asynccontextmanager
async def serve_beside(deployment: Deployment, port: int = 0) -> AsyncIterator[str]:
    """Serve a deployment on this machine, on the running loop; give the address.

    Raises:
        ConfigError: It cannot listen there.
    """
    listener = open_socket("127.0.0.1", port)
    app = create_app(deployment)
    config = uvicorn.Config(
        app,
        log_level="warning",
        log_config=None,
        access_log=False,
        proxy_headers=False,
        timeout_graceful_shutdown=1,
        lifespan="on",
    )
    server = _QuietServer(config)
    serving = asyncio.ensure_future(server.serve(sockets=[listener]))
    try:
        yield f"http://127.0.0.1:{listener.getsockname()[1]}/"
    finally:
        server.should_exit = True
        await asyncio.wait([serving])
