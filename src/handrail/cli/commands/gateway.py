"""`handrail gateway`: many MCP servers as one, with policy, approvals, pins and a log."""

from __future__ import annotations

import asyncio
import shutil
import sys
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from handrail import _lazy
from handrail.cli import cases, completion, options
from handrail.cli.exits import Exit
from handrail.cli.printer import console, print_columns
from handrail.cli.store_access import (
    LOG,
    QUESTIONS,
    brief,
    moment,
    print_json,
    print_table,
    say,
)
from handrail.errors import ConfigError
from handrail.futures import result_now
from handrail.mcp import client_configs, gateway_settings
from handrail.mcp.gateway_settings import GatewaySettings, read_gateway
from handrail.mcp.rule_check import find_faults
from handrail.ports import AuditStore
from handrail.records import AuditRecord

if TYPE_CHECKING:
    from handrail.mcp import gateways
    from handrail.mcp.gateways import Gateway
    from handrail.mcp.pins import Pin, Pins
else:
    # the package `mcp` takes a second to import
    gateways = _lazy.module("handrail.mcp.gateways")

DEFAULT_FILE = Path("~/.config/handrail/gateway.toml")

_IS_FILE = click.Path(path_type=Path)


@click.group("gateway", cls=options.Commands, invoke_without_command=True)
@click.option(
    "--config",
    "file",
    metavar="FILE",
    type=_IS_FILE,
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


def _settings(context: click.Context) -> GatewaySettings:
    return read_gateway(context.obj)


# ---------------------------------------------------------------------- serving


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


# ---------------------------------------------------------------------- clients' files


@command.command("import")
@click.argument("client_file", metavar="FILE", type=_IS_FILE)
@options.as_json
@options.debug
@click.pass_context
def import_file(context: click.Context, client_file: Path, as_json: bool) -> None:
    """Move the servers of a client's file behind the gateway; the file as it was is kept beside it.

    Knows the files of Claude Desktop, Claude Code, Cursor, Windsurf and VS Code.

    \b
    Examples:
      handrail gateway import ~/.cursor/mcp.json
      handrail gateway import .vscode/mcp.json
    """
    file: Path = context.obj
    client_file = client_file.expanduser()
    command = [_find_program(), "gateway", "--config", str(file.resolve()), "run"]
    # First what can be refused: the client's file is changed last.
    preview = client_configs.preview_move(client_file, command)
    gateway_settings.add_servers(file, preview.servers)
    imported = client_configs.move_servers(client_file, command)
    if as_json:
        document = {"config": str(file), "servers": [*imported.servers]}
        print_json({**document, "left": dict(imported.left)})
        return
    say(f"moved to {file}: {', '.join(imported.servers)}")
    for name, why in imported.left.items():
        say(f"left with the client: {name}, because {why}")
    say(f"to undo it: handrail gateway restore {client_file}")
    say("next: handrail gateway list, then agree to the tools you want")


@command.command("restore")
@click.argument("client_file", metavar="FILE", type=_IS_FILE)
@click.option("--force", is_flag=True, help="Even if it was changed after the import.")
@options.debug
def restore(client_file: Path, force: bool) -> None:
    """Put a client's file back as it was before the import, byte for byte.

    \b
    Example:
      handrail gateway restore ~/.cursor/mcp.json
    """
    client_configs.restore(client_file.expanduser(), force=force)
    say(f"{client_file} is as it was")


def _find_program() -> str:
    """Return how a client starts us: it may have another PATH."""
    beside = Path(sys.argv[0]).resolve()
    if beside.name.startswith("handrail") and beside.is_file():
        return str(beside)
    return shutil.which("handrail") or "handrail"


# ---------------------------------------------------------------------- servers and tools


@command.command("list")
@options.as_json
@options.debug
@click.pass_context
def list_tools(context: click.Context, as_json: bool) -> None:
    """Start every server and list its tools, and whether each can be called.

    \b
    Example:
      handrail gateway list --json
    """
    gateway = _start(context)
    rows = [row for each in gateway.upstreams.values() for row in _rows(gateway, each)]
    if as_json:
        heads = ("server", "tool", "state", "name", "effect", "risk")
        tools: Any = [dict(zip(heads, row, strict=True)) for row in rows]
        print_json({"tools": tools, "problems": dict(gateway.problems)})
        return
    heads = ("server", "tool", "state", "name here", "effect", "risk")
    print_table(rows, heads, "no server lists a tool")
    for problem in gateway.problems.values():
        click.echo(problem, err=True)


def _rows(gateway: Gateway, upstream: Any) -> list[tuple[str, ...]]:
    server = upstream.server_name
    rows: list[tuple[str, ...]] = []
    for name, tool in upstream.by_name.items():
        seen = gateway.runtime.policy.sees(tool)
        state = "ready" if seen else "not permitted"
        about = (tool.effect or "", tool.effective_risk)
        rows.append((server, tool.definition.name, state, name, *about))
    rows += [
        (server, name, pin.state, "", "", "")
        for name, pin in upstream.quarantined.items()
    ]
    return rows


def _start(context: click.Context) -> Gateway:
    """Return a gateway whose servers were asked for their tools, and are closed again."""
    gateway = gateways.gateway(_settings(context))

    async def look() -> None:
        try:
            await gateway.start()
        finally:
            await gateway.aclose()

    asyncio.run(look())
    return gateway


@command.command("classify")
@click.argument("server")
@options.debug
@click.pass_context
def classify(context: click.Context, server: str) -> None:
    """Draft what the tools of a server do, from its own hints, for a person to read.

    Nothing is changed: paste what you agree with into the file.

    \b
    Example:
      handrail gateway classify files >> draft.toml
    """
    gateway = _start(context)
    upstream = _find_server(gateway, server)
    listed = {tool.name: tool for tool in upstream.listed}
    click.echo(
        f"# Drafted from the hints of {server!r}, which may be wrong. Read each."
    )
    for line in gateways.draft(server, listed.values()):
        click.echo(line)


def _find_server(gateway: Gateway, server: str) -> Any:
    if server not in gateway.upstreams:
        raise ConfigError(
            f"there is no server {server!r}; there are {', '.join(gateway.upstreams)}"
        )
    if server in gateway.problems:
        raise ConfigError(gateway.problems[server])
    return gateway.upstreams[server]


# ---------------------------------------------------------------------- pins


@command.group("pins", cls=options.Commands)
def pins() -> None:
    """Show what tools have changed since somebody agreed to them, and agree.

    \b
    Examples:
      handrail gateway pins diff
      handrail gateway pins agree files
      handrail gateway pins agree files write_file
    """


@pins.command("list")
@options.as_json
@options.debug
@click.pass_context
def list_pins(context: click.Context, as_json: bool) -> None:
    """List every tool that was seen, and whether somebody has agreed to it.

    \b
    Example:
      handrail gateway pins list
    """
    found = _pins(context).get()
    if as_json:
        states: Any = {name: pin.state for name, pin in found.items()}
        print_json({"tools": states})
        return
    rows = [(pin.server, pin.tool, pin.state) for pin in found.values()]
    none = "no tool was seen yet; see: handrail gateway list"
    print_table(rows, ("server", "tool", "state"), none)


@pins.command("diff")
@click.argument("server", required=False, default="")
@click.argument("tool", required=False, default="")
@options.debug
@click.pass_context
def diff(context: click.Context, server: str, tool: str) -> int:
    """Show what tools say now that nobody has agreed to. The exit code is 1 where there is any.

    \b
    Example:
      handrail gateway pins diff files
    """
    open_pins = _find_open(_pins(context), server, tool)
    for pin in open_pins:
        click.echo(pin.diff())
    if not open_pins:
        click.echo("nothing has changed", err=True)
    return Exit.ERROR if open_pins else Exit.OK


@pins.command("agree")
@click.argument("server")
@click.argument("tools", nargs=-1)
@click.option("-y", "--yes", is_flag=True, help="Do not ask.")
@options.debug
@click.pass_context
def agree(context: click.Context, server: str, tools: Sequence[str], yes: bool) -> None:
    """Show what the tools of a server say of themselves, and let them be called.

    \b
    Examples:
      handrail gateway pins agree files
      handrail gateway pins agree files write_file --yes
    """
    stored = _pins(context)
    names = tools or [""]
    shown = [pin for name in names for pin in _find_open(stored, server, name)]
    if not shown:
        say(f"every tool of {server} is agreed to")
        return
    for pin in shown:
        click.echo(pin.diff())
    if not yes:
        click.confirm("Agree to this?", abort=True, err=True)
    digests = {pin.tool: pin.digest for pin in shown}
    stored.agree(server, list(digests), digests=digests)
    say(f"agreed: {', '.join(digests)}")


def _pins(context: click.Context) -> Pins:
    from handrail.mcp.pins import Pins

    return Pins(_settings(context).pins)


def _find_open(stored: Pins, server: str, tool: str) -> list[Pin]:
    """Return the pins of a server, or of one tool, that nobody has agreed to."""
    found = stored.get(server)
    if server and not found:
        raise ConfigError(
            f"no tool of {server!r} was seen yet; look at it with: handrail gateway list"
        )
    if tool and tool not in found:
        raise ConfigError(f"no tool {tool!r} of {server!r} was seen")
    chosen = [found[tool]] if tool else list(found.values())
    return [pin for pin in chosen if pin.state != "agreed"]


# ---------------------------------------------------------------------- policy


@command.command("explain")
@click.argument("tool")
@click.argument("arguments", required=False, default="{}")
@options.as_json
@options.debug
@click.pass_context
def explain(context: click.Context, tool: str, arguments: str, as_json: bool) -> int:
    """Say what would become of a call, and why. Nothing runs, and nobody is asked.

    \b
    Example:
      handrail gateway explain files_write_file '{"path": "/etc/passwd"}'
    """
    given = cases.parse_json(arguments, "ARGUMENTS")
    if not isinstance(given, dict):
        raise ConfigError(f"the arguments are {brief(given)}; write a JSON object")
    gateway = gateways.gateway(_settings(context))
    verdict = asyncio.run(gateways.explain_call(gateway, tool, given))
    if as_json:
        print_json(dict(verdict))
    else:
        say(f"{verdict['decision']}: {verdict['reason']}")
    return Exit.DENIED if verdict["decision"] == "deny" else Exit.OK


@command.command("validate")
@click.option(
    "--strict",
    is_flag=True,
    help="Also ask the servers for their tools; a fault ends with exit code 1.",
)
@options.as_json
@options.debug
@click.pass_context
def validate(context: click.Context, strict: bool, as_json: bool) -> int:
    """Check the file, and its rules for shapes that let more through than they mean to.

    \b
    Example:
      handrail gateway validate --strict
    """
    settings = _settings(context)
    tools: Sequence[Any] = ()
    faults: list[str] = []
    if strict:
        gateway = _start(context)
        tools = [tool for each in gateway.upstreams.values() for tool in each]
        faults += gateway.problems.values()
        faults += [
            text for each in gateway.upstreams.values() for text in each.problems
        ]
    faults += find_faults(settings.policy, tools)
    if as_json:
        print_json({"faults": list(faults)})
    for fault in () if as_json else faults:
        say(fault)
    if not (faults or as_json):
        say(
            f"no fault found; servers: {len(settings.servers)}, rules: {len(settings.policy.rules)}"
        )
    return Exit.ERROR if strict and faults else Exit.OK


# ---------------------------------------------------------------------- today


_DAY_S = 24 * 3600
_PAGE = 1000


@command.command("today")
@options.as_json
@options.debug
@click.pass_context
def today(context: click.Context, as_json: bool) -> None:
    """Say what was done in the last 24 hours: by tool, and each write, refusal and question.

    \b
    Example:
      handrail gateway today
    """
    place = _settings(context).store
    with LOG.open(place) as store:
        records = [
            record for record in _records(store) if record.at > time.time() - _DAY_S
        ]
    with QUESTIONS.open(place) as questions:
        waiting = result_now(questions.list_approvals(state="open", run_id=""))
    ends = [record for record in records if record.event == "CallFinished"]
    counts = Counter(
        (str(record.body.get("tool")), _end_of(record.body)) for record in ends
    )
    if as_json:
        rows: Any = [
            {"tool": tool, "end": end, "calls": count}
            for (tool, end), count in sorted(counts.items())
        ]
        print_json({"calls": rows, "waiting": [each.id for each in waiting]})
        return
    table = [(tool, end, str(count)) for (tool, end), count in sorted(counts.items())]
    print_table(table, ("tool", "end", "calls"), "no call ended in the last 24 hours")
    notable = [record for record in ends if _end_of(record.body) != "done"]
    if notable:
        click.echo()
        lines = [
            (moment(each.at), str(each.body.get("tool")), _end_of(each.body))
            for each in notable
        ]
        print_columns(console(), lines, ("when", "tool", "end"))
    for question in waiting:
        say(
            f"waits for you: {question.id} {question.tool} (handrail approvals show {question.id} --store {place})"
        )


def _records(store: AuditStore) -> list[AuditRecord]:
    records: list[AuditRecord] = []
    after = 0
    while page := result_now(store.log(after=after, most=_PAGE)):
        records += page
        after = page[-1].seq
    return records


def _end_of(body: Mapping[str, Any]) -> str:
    code = body.get("code") or body.get("error_code")
    return str(code) if code else "done"
