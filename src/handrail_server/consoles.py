"""Serves the console for a command, and says where."""

from __future__ import annotations

import sys
import webbrowser
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager, redirect_stdout
from pathlib import Path
from typing import Any
from urllib.parse import quote

import click

from handrail.cli import settings
from handrail.cli.loading import file_at
from handrail.cli.options import NO_STORE, Setup
from handrail.cli.store_access import mask_password, open_store
from handrail.errors import ConfigError, describe_install
from handrail.invisible import json_text
from handrail.ports import Store
from handrail.runtime import Runtime
from handrail.serving.listening import is_local, parse_address
from handrail.serving.tokens import Role
from handrail.stores.memory_runs import FullMemoryStore

try:
    from handrail_server.access import Access, Proxies, single_token
    from handrail_server.deployment import Deployment, RunDefaults
    from handrail_server.endpoints.mounting import mount_endpoints
    from handrail_server.hub import EventHub
    from handrail_server.running import serve as run_server
    from handrail_server.running import serve_beside
except ModuleNotFoundError as error:
    if (error.name or "").partition(".")[0] not in ("starlette", "uvicorn", "anyio"):
        raise
    raise ConfigError(
        f"the console needs the extra `server`: {describe_install('server')}"
    ) from error


def serve(
    setup: Setup,
    *,
    store: str,
    address: str,
    models: Sequence[str],
    system: str,
    token: str,
    tokens_file: Path | None,
    hosts: Sequence[str],
    origins: Sequence[str],
    proxies: Sequence[str],
    identity_header: str,
    identity_role: Role,
    opens: bool,
    lang: str | None,
    as_json: bool,
) -> int:
    """Serve the console and the API until the process gets a signal to end; return the exit code."""
    host, port = parse_address(address, "--http")
    if token and tokens_file:
        raise click.UsageError("--token and --tokens exclude each other.")
    behind = Proxies.named(proxies, identity_header, identity_role)
    if not (is_local(host) or token or tokens_file or proxies):
        raise ConfigError(
            f"on {host} anybody who reaches this machine could approve calls; give --tokens FILE or --token, "
            "or serve on 127.0.0.1"
        )
    everybody = setup.consent.terminal.by
    accepted: Any = None
    if token:
        accepted = single_token(token, everybody)
    elif tokens_file is not None:
        accepted = file_at(tokens_file)
    access = Access(accepted, everybody=everybody, proxies=behind)
    setup.check_injected(setup.tools.filter(setup.policy.sees))
    with open_server_store(store) as opened:
        deployment = Deployment(
            setup.unattended_runtime(opened),
            models=models,
            place=mask_password(store),
            lang=lang or "",
            defaults=RunDefaults(inject=setup.inject, system=system),
            pins_file=str(settings.table("mcp").get("pins", "")),
        )

        endpoints = mount_endpoints(deployment)

        def announce(url: str) -> None:
            say_where(url, token, as_json=as_json, opens=opens)
            if store == NO_STORE and not as_json:
                click.echo("runs are lost when it ends: --store keeps them", err=True)
            if endpoints is not None and not as_json:
                where = f"clients of OpenAI's find it at {url}v1, front ends of AG-UI at {url}agui"
                click.echo(where, err=True)

        stdout = sys.stdout
        with redirect_stdout(sys.stderr):  # what tools print is no result
            sys.stderr.flush()
            stdout.flush()
            run_server(
                deployment,
                access,
                host=host,
                port=port,
                hosts=hosts,
                origins=origins,
                routes=() if endpoints is None else endpoints.routes,
                started=announce,
            )
    return 0


@contextmanager
def open_server_store(place: str) -> Iterator[Store]:
    """Open the store of a server: the named one, else one in memory for as long as the server lives."""
    if place == NO_STORE:
        yield FullMemoryStore()
        return
    with open_store(place, create=True, writes=True) as store:
        yield store


@asynccontextmanager
async def serve_run_beside(
    runtime: Runtime, hub: EventHub, place: str
) -> AsyncIterator[str]:
    """Serve the console beside a run of this process, and open it in a browser; give its address.

    Args:
        hub: Observes the run.
    """
    deployment = Deployment(
        runtime, hub=hub, place=mask_password(place), closes_runtime=False
    )
    async with serve_beside(deployment) as url:
        open_browser(url)
        yield url


def open_browser(url: str) -> None:
    """Open an address where somebody sits at a screen; elsewhere it is only printed."""
    if sys.stdout.isatty():
        webbrowser.open(url)


def run_address(url: str, run_id: str) -> str:
    """Return where the console shows a run."""
    return f"{url}#/runs/{quote(run_id, safe='')}"


def show_run(place: str, run_id: str) -> None:
    """Serve the console for a stored run until the process gets a signal to end."""
    with open_store(place) as store:
        deployment = Deployment(Runtime(store=store), place=mask_password(place))

        def announce(url: str) -> None:
            address = run_address(url, run_id)
            click.echo(f"the run is at {address}; end with Ctrl-C", err=True)
            open_browser(address)

        run_server(deployment, port=0, started=announce)


def say_where(url: str, token: str, *, as_json: bool, opens: bool) -> None:
    """Say where the console is, and open it."""
    if as_json:
        click.echo(json_text({"v": 1, "url": url}), file=sys.__stdout__)
        assert sys.__stdout__ is not None
        sys.__stdout__.flush()
    else:
        click.echo(f"the console is at {url}; end with Ctrl-C", err=True)
    if opens:
        webbrowser.open(f"{url}#token={token}" if token else url)
