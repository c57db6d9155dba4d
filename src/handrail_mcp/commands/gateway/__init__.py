"""`handrail gateway`: many MCP servers as one, with policy, approvals, pins and a log."""

from __future__ import annotations

from pathlib import Path

import click

import handrail_mcp as protocol
from handrail.cli import completion, options, settings
from handrail.cli.commands.serve import http_options
from handrail.cli.loading import file_at
from handrail_mcp.commands.gateway.files import import_file, restore
from handrail_mcp.commands.gateway.pins import pins
from handrail_mcp.commands.gateway.servers import (
    classify,
    explain,
    list_tools,
    validate,
)
from handrail_mcp.commands.gateway.today import today
from handrail_mcp.commands.serve_mcp import check_http_options, serve_http

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
    settings.apply_otel()
    if context.invoked_subcommand is None:
        protocol.gateway(context.obj).run("stdio")
    return None


@command.command("run")
@http_options
@click.option(
    "--dry-run",
    is_flag=True,
    help="Only judge each call, and say what would become of it; no tool is called.",
)
@options.debug
@click.pass_context
def run(
    context: click.Context,
    address: str,
    tokens_file: Path | None,
    hosts: tuple[str, ...],
    origins: tuple[str, ...],
    dry_run: bool,
) -> None:
    """Serve, until the client leaves or Ctrl-C.

    Without --http one client talks over stdin and stdout: this is what editors and assistants start.

    \b
    Examples:
      handrail gateway run
      handrail gateway run --dry-run
      handrail gateway --config team.toml run --http 8321 --tokens tokens.toml
    """
    check_http_options(address, tokens_file, hosts, origins, as_json=False)
    gateway = protocol.gateway(
        context.obj,
        tokens=None if tokens_file is None else file_at(tokens_file),
        dry_run=dry_run,
        hosts=hosts,
        origins=origins,
    )
    if address:
        guarded = tokens_file is not None
        serve_http(gateway, address, guarded=guarded, as_json=False)
    else:
        gateway.run("stdio")


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
