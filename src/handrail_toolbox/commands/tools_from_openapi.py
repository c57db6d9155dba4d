"""`handrail tools from-openapi`: the operations of an OpenAPI document as tools."""

from __future__ import annotations

from collections.abc import Sequence

import click

from handrail.cli import completion, completion_names, options
from handrail.cli.commands.tools import asks_of, definitions, facts_of
from handrail.cli.printer import console, print_columns
from handrail.invisible import json_text
from handrail.schemas.openapi import LeftOut, Operation
from handrail_toolbox.openapi import openapi


@click.command("from-openapi")
@click.argument("file", shell_complete=completion.files)
@click.option(
    "--base-url",
    metavar="URL",
    default="",
    help="Where the service is, in place of what the document says.",
)
@click.option(
    "--include",
    metavar="PATTERN",
    multiple=True,
    help="Operations by name, with * and ?; all by default.",
)
@click.option(
    "--format",
    "form",
    default="",
    metavar="FORMAT",
    shell_complete=completion_names.forms,
    help="Print definitions: json, mcp, or a wire such as openai-chat. Without it a table.",
)
@options.as_json
@options.debug
def command(
    file: str, base_url: str, include: Sequence[str], form: str, as_json: bool
) -> None:
    """Show the operations of an OpenAPI 3 document as tools, and which of them cannot be used.

    Every command that takes tools takes them as --tools openapi:FILE, or openapi:FILE@URL. The credential of a
    security scheme is in HANDRAIL_AUTH_ and the scheme's name, such as HANDRAIL_AUTH_API_KEY.

    \b
    Examples:
      handrail tools from-openapi shop.json
      handrail tools from-openapi shop.json --format openai-chat > definitions.json
      handrail call getOrder '{"order_id": "A-1"}' --tools openapi:shop.json@http://localhost:8000
    """
    # Only looked at: where they are is asked for when they are used.
    tools = openapi(file, base_url=base_url or _NOWHERE, include=include or ("*",))
    if form:
        click.echo(json_text(definitions(tools, form), indent=2))
    elif as_json:
        left = [
            {"name": each.name, "route": _route(each), "why": each.reason}
            for each in tools.left_out
        ]
        operations = [
            {**facts_of(tool), "route": _route(tool.operation)}
            for tool in tools.operations
        ]
        click.echo(json_text({"v": 1, "tools": operations, "left_out": left}))
    else:
        rows = [
            (
                tool.name,
                tool.effect or "undeclared",
                asks_of(tool),
                _route(tool.operation),
                tool.summary,
            )
            for tool in tools.operations
        ]
        print_columns(
            console(), rows, ("tool", "effect", "asks a person", "request", "summary")
        )
    for each in tools.left_out:
        click.echo(f"left out: {each.name} ({_route(each)}): {each.reason}", err=True)


_NOWHERE = "http://nowhere.invalid"


def _route(operation: Operation | LeftOut) -> str:
    return f"{operation.method.upper()} {operation.path}"
