"""Runs a server until the process is told to end."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Sequence

from starlette.routing import BaseRoute

from handrail.server.access import Access
from handrail.server.app import create_app
from handrail.server.deployment import Deployment
from handrail.serving.listening import open_socket, own_names, serve_app


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
