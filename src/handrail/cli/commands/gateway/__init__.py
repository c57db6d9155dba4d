"""`handrail gateway`: many MCP servers as one, with policy, approvals, pins and a log."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from handrail import _lazy
from handrail.cli import completion, options
from handrail.cli.commands.gateway.files import import_file, restore
from handrail.cli.commands.gateway.pins import pins
from handrail.cli.commands.gateway.servers import (
    classify,
    explain,
    list_tools,
    validate,
)
from handrail.cli.commands.gateway.today import today
from handrail.errors import ConfigError

if TYPE_CHECKING:
    from handrail.mcp.gateways import gateway as gateways
else:
    # the package `mcp` takes a second to import
    gateways = _lazy.module("handrail.mcp.gateways.gateway")

DEFAULT_FILE = Path("~/.config/handrail/gateway.toml")


@click.group("gateway", cls=options.Commands, invoke_without_command=True)
@click.option(
    "--config",
    "file",
    metavar="FILE",
    type=click.Path(path_type=Path),
    default=DEFAULT_FILE,
    show_default=True,
    envvar="HANDRAIL_GATEWAY",
    show_envvar=True,
    shell_complete=completion.files,
    help="The servers and the rules, in TOML.",
)
@click.pass_context
def command(context: click.Context, file: Path) -> int | None:
    """Put many MCP servers behind one, which checks, asks, records and limits every call.

    A tool cannot be called before somebody has agreed to what it says of itself, and not again after that has changed.
    A call of high risk waits for a person: at the client if it can ask, else by `handrail approvals`. Without a command
    the gateway serves by stdio.

    \b
    Examples:
      handrail gateway import ~/.cursor/mcp.json      # then restart the editor
      handrail gateway list
      handrail gateway pins agree files
      handrail gateway explain files_write_file '{"path": "/etc/passwd"}'
      handrail gateway today
    """
    context.obj = file.expanduser()
    if context.invoked_subcommand is None:
        _serve(context.obj, "")
    return None


@command.command("run")
@click.option(
    "--http",
    "address",
    metavar="HOST:PORT",
    default="",
    help="Serve by streamable HTTP in place of stdio.",
)
@options.debug
@click.pass_context
def run(context: click.Context, address: str) -> None:
    """Serve, until the client leaves or Ctrl-C.

    \b
    Examples:
      handrail gateway run
      handrail gateway --config team.toml run --http 127.0.0.1:8321
    """
    _serve(context.obj, address)


def _serve(file: Path, address: str) -> None:
    gateway = gateways.gateway(file)
    if not address:
        gateway.run("stdio")
        return
    host, colon, port = address.rpartition(":")
    if not (colon and port.isdecimal()):
        raise ConfigError(f"{address!r} is no address such as 127.0.0.1:8321")
    click.echo(f"serving http://{address}/mcp", err=True)
    gateway.run("streamable-http", host=host, port=int(port))


for each in (
    import_file,
    restore,
    list_tools,
    classify,
    explain,
    validate,
    pins,
    today,
):
    command.add_command(each)
