"""`handrail serve mcp`: your tools for the clients of the Model Context Protocol."""

from __future__ import annotations

import sys
from collections.abc import Callable
from contextlib import redirect_stdout
from functools import wraps
from pathlib import Path
from typing import Any, TypeVar, cast

import click

import handrail_mcp as protocol
from handrail.cli import options
from handrail.cli.commands.serve import http_options
from handrail.cli.exits import Exit
from handrail.cli.loading import file_at
from handrail.cli.options import Setup
from handrail.cli.store_access import open_store
from handrail.errors import ConfigError
from handrail.invisible import json_text
from handrail.serving import listening

F = TypeVar("F", bound=Callable[..., Any])


def _checks_installed(command: F) -> F:
    """Say that the protocol is not installed before the tools are loaded: a file of theirs may hide its package."""

    @wraps(command)
    def with_check(*words: Any, **how: Any) -> Any:
        _ = protocol.ToolServer
        return command(*words, **how)

    return cast(F, with_check)


@click.command("mcp")
@_checks_installed
@options.setup
@options.store
@click.option(
    "--name",
    default="handrail",
    show_default=True,
    metavar="NAME",
    help="The name that clients read; servers of one store with different names share no run.",
)
@http_options
@click.option(
    "--ask",
    type=click.Choice(["client", "nobody"]),
    default="client",
    show_default=True,
    help="Who is asked where a call needs approval: the person at the client, or nobody: `handrail approvals` answers.",
)
@options.as_json
@options.debug
def command(
    setup: Setup,
    store: str,
    name: str,
    address: str,
    tokens_file: Path | None,
    hosts: tuple[str, ...],
    origins: tuple[str, ...],
    ask: str,
    as_json: bool,
) -> int:
    """Serve tools over the Model Context Protocol.

    Without --http one client talks over stdin and stdout: this is what editors and assistants start. The log goes to
    stderr. A client that gives a call an idempotency key, in `_meta` as `handrail/idempotency-key` or in the header
    `Idempotency-Key`, may send it again after a lost connection: it is done once.

    \b
    Examples:
      handrail serve mcp --tools examples/weather.py
      handrail serve mcp --tools shop.tools --store sqlite:///handrail.db --http 8000
      handrail serve mcp --tools shop.tools --http 0.0.0.0:8000 --tokens tokens.toml --host-name mcp.example.com
    """
    if not setup.places:
        raise click.UsageError(
            "Name where the tools are: --tools FILE_OR_MODULE[:ATTRIBUTE]."
        )
    check_http_options(address, tokens_file, hosts, origins, as_json=as_json)
    setup.check_injected(setup.tools.filter(setup.policy.sees))
    with open_store(store, create=True, writes=True) as opened:
        server = protocol.ToolServer(
            setup.unattended_runtime(opened),
            name,
            options=lambda _: {"inject": setup.inject},
            ask_client=ask == "client",
            tokens=None if tokens_file is None else file_at(tokens_file),
            hosts=hosts,
            origins=origins,
        )
        if address:
            serve_http(
                server, address, guarded=tokens_file is not None, as_json=as_json
            )
        else:
            server.run("stdio")
    return Exit.OK


def check_http_options(
    address: str,
    tokens_file: Path | None,
    hosts: tuple[str, ...],
    origins: tuple[str, ...],
    *,
    as_json: bool,
) -> None:
    """Refuse options of HTTP without an address."""
    given = {
        "--tokens": tokens_file,
        "--host-name": hosts,
        "--origin": origins,
        "--json": as_json,
    }
    idle = [name for name, value in given.items() if value]
    if idle and not address:
        raise click.UsageError(f"{idle[0]} is for HTTP; add --http HOST:PORT.")


def serve_http(
    server: protocol.ToolServer, address: str, *, guarded: bool, as_json: bool
) -> None:
    """Serve by streamable HTTP until the process gets a signal to end.

    Args:
        guarded: Whether tokens say whose calls are served; without them only this machine is.

    Raises:
        ConfigError: It cannot listen there, or everybody could call the tools.
    """
    host, port = listening.parse_address(address, "--http")
    if not guarded and not listening.is_local(host):
        raise ConfigError(
            f"on {host} anybody who reaches this machine could call the tools; give --tokens FILE, "
            "or serve on 127.0.0.1"
        )

    stdout = sys.stdout

    def announce(url: str) -> None:
        if as_json:
            document = {"v": 1, "url": url, "name": server.name}
            click.echo(json_text(document), file=stdout)
            stdout.flush()
        else:
            count = len(server.runtime.tools)
            tools = "1 tool" if count == 1 else f"{count} tools"
            if not count:
                tools = "the tools of other servers"
            click.echo(f"serving {tools} on {url}; end with Ctrl-C", err=True)

    with redirect_stdout(sys.stderr):  # what tools print is no result
        server.run("streamable-http", host=host, port=port, started=announce)
