"""`handrail gateway list`, `classify`, `explain` and `validate`: what there is, and what the rules say of it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import click

from handrail import _lazy
from handrail.cli import cases, options
from handrail.cli.exits import Exit
from handrail.cli.store_access import brief, print_json, print_table, say
from handrail.errors import ConfigError
from handrail_mcp.commands.gateway.shared import (
    MOST_SENTENCE_CHARS,
    settings_of,
    shorten,
    start_gateway,
)
from handrail_mcp.gateways.rule_check import find_faults

if TYPE_CHECKING:
    from handrail_mcp.gateways import gateway as gateways
    from handrail_mcp.gateways.gateway import Gateway
else:
    # the package `mcp` takes a second to import
    gateways = _lazy.module("handrail_mcp.gateways.gateway")


@click.command("list")
@options.as_json
@options.debug
@click.pass_context
def list_tools(context: click.Context, as_json: bool) -> None:
    """Start every server and list its tools, and whether each can be called.

    \b
    Example:
      handrail gateway list --json
    """
    gateway = start_gateway(context)
    rows = [row for each in gateway.upstreams.values() for row in _rows(gateway, each)]
    if as_json:
        heads = ("server", "tool", "state", "name", "effect", "risk")
        tools: Any = [dict(zip(heads, row, strict=True)) for row in rows]
        problems = dict(gateway.problems)
        print_json(
            {"tools": tools, "problems": problems, "notes": _list_notes(gateway)}
        )
        return
    heads = ("server", "tool", "state", "name here", "effect", "risk")
    rows = [(row[0], shorten(row[1]), *row[2:]) for row in rows]
    print_table(rows, heads, "no server lists a tool")
    for sentence in (*gateway.problems.values(), *_list_notes(gateway)):
        click.echo(shorten(sentence, MOST_SENTENCE_CHARS), err=True)


def _list_notes(gateway: Gateway) -> list[str]:
    """Return sentences about tools that are left out or look odd."""
    return [note for each in gateway.upstreams.values() for note in each.list_notes()]


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


@click.command("classify")
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
    gateway = start_gateway(context)
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


@click.command("explain")
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
    verdict = gateways.explain_call(start_gateway(context), tool, given)
    if as_json:
        print_json(dict(verdict))
    else:
        say(f"{verdict['decision']}: {verdict['reason']}")
    return Exit.DENIED if verdict["decision"] == "deny" else Exit.OK


@click.command("validate")
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
    settings = settings_of(context)
    tools: Sequence[Any] = ()
    faults: list[str] = []
    if strict:
        gateway = start_gateway(context)
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
