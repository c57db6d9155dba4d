"""`handrail tools`: your tools as a model will see them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import click

from handrail import plugins
from handrail.cli import completion, completion_names, options
from handrail.cli.loading import tools_from
from handrail.cli.printer import console, print_columns
from handrail.core.policy import Policy
from handrail.dialects import WireDialect, dialect
from handrail.errors import ConfigError, Json
from handrail.invisible import json_text
from handrail.parsing.names import nearest
from handrail.schemas.openapi import LeftOut, Operation
from handrail.tools.tool import BaseTool
from handrail.tools.toolset import Toolset

MOST_NAMED = 20
"""How many tools a sentence names."""


_form = click.option(
    "--format",
    "form",
    default="json",
    metavar="FORMAT",
    shell_complete=completion_names.forms,
    help="json, mcp, or a wire such as openai-chat, anthropic or gemini.",
)


@click.group("tools", cls=options.Commands)
def command() -> None:
    """Show tools as a model sees them.

    \b
    Examples:
      handrail tools list --tools examples/orders.py
      handrail tools show refund --tools examples/orders.py
      handrail tools schema --tools examples/weather.py --format openai-chat
      handrail tools from-openapi shop.json
    """


@command.command("list")
@options.tools
@options.as_json
@options.debug
def list_tools(places: Sequence[str], as_json: bool) -> None:
    """List tools with their effect, their risk and when a person is asked.

    \b
    Example:
      handrail tools list --tools examples/orders.py --json
    """
    tools = _load_tools(places)
    if as_json:
        click.echo(json_text({"v": 1, "tools": [_facts(tool) for tool in tools]}))
        return
    rows = [
        (
            tool.name,
            tool.effect or "undeclared",
            tool.effective_risk,
            _asks(tool),
            tool.summary,
        )
        for tool in tools
    ]
    print_columns(
        console(), rows, ("tool", "effect", "risk", "asks a person", "summary")
    )


@command.command("show")
@click.argument("name", shell_complete=completion_names.tools)
@options.tools
@_form
@options.as_json
@options.debug
def show(name: str, places: Sequence[str], form: str, as_json: bool) -> None:
    """Show one tool: what it declares, and its arguments as JSON Schema or its definition on a wire.

    \b
    Examples:
      handrail tools show get_weather --tools examples/weather.py
      handrail tools show get_weather --tools examples/weather.py --format openai-chat
    """
    tool = _require_tool(_load_tools(places), name)
    facts = {**_facts(tool), "description": tool.description}
    # Gemini puts all tools into one entry, so what a wire says of one tool is the list that it makes of it.
    if form == "json":
        label = "parameters"
        schema: Json = tool.parameters
    else:
        label = form
        schema = _definitions(Toolset([tool]), form)
    if as_json:
        click.echo(json_text({"v": 1, **facts, label: schema}))
        return
    rows = [
        (each.replace("_", " "), _text(fact))
        for each, fact in facts.items()
        if fact not in (None, "", [])
    ]
    print_columns(console(), rows)
    click.echo(f"\n{label}\n{json_text(schema, indent=2)}")


@command.command("schema")
@click.argument("names", nargs=-1, shell_complete=completion_names.tools)
@options.tools
@_form
@click.option(
    "--strict",
    is_flag=True,
    help="In the provider's strict form, where a schema allows it without loss.",
)
@options.debug
def schema(
    names: Sequence[str], places: Sequence[str], form: str, strict: bool
) -> None:
    """Print the definitions of tools as a provider gets them, or as plain JSON Schema.

    \b
    Examples:
      handrail tools schema --tools examples/weather.py
      handrail tools schema get_weather --tools examples/weather.py --format openai-chat
    """
    tools = _load_tools(places)
    if names:
        chosen = Toolset([_require_tool(tools, name) for name in names])
    else:
        chosen = tools
    click.echo(json_text(_definitions(chosen, form, strict), indent=2))


@command.command("from-openapi")
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
def from_openapi(
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
    from handrail_toolbox.openapi import openapi

    # Only looked at: where they are is asked for when they are used.
    tools = openapi(file, base_url=base_url or _NOWHERE, include=include or ("*",))
    if form:
        click.echo(json_text(_definitions(tools, form), indent=2))
    elif as_json:
        left = [
            {"name": each.name, "route": _route(each), "why": each.reason}
            for each in tools.left_out
        ]
        operations = [
            {**_facts(tool), "route": _route(tool.operation)}
            for tool in tools.operations
        ]
        click.echo(json_text({"v": 1, "tools": operations, "left_out": left}))
    else:
        rows = [
            (
                tool.name,
                tool.effect or "undeclared",
                _asks(tool),
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


def _definitions(tools: Toolset, form: str, strict: bool = False) -> Json:
    if form == "json":
        return {
            tool.name: (tool.strict_parameters if strict else None) or tool.parameters
            for tool in tools
        }
    forms = [*plugins.FORMS, *plugins.list_names("dialects")]
    if form not in forms:
        choices = ", ".join(["json", *plugins.FORMS, *options.wires()])
        raise ConfigError(f"there is no format {form!r}; the formats are {choices}")
    if form not in plugins.FORMS and not isinstance(dialect(form), WireDialect):
        raise ConfigError(
            f"{form} writes tools into a prompt; see `handrail render --dialect {form}`"
        )
    return tools.definitions(form, strict=strict)


def _load_tools(places: Sequence[str]) -> Toolset:
    if not places:
        raise click.UsageError(
            "Name where the tools are: --tools FILE_OR_MODULE[:ATTRIBUTE]."
        )
    return tools_from(places)


def _require_tool(tools: Toolset, name: str) -> BaseTool:
    if tool := tools.get(name):
        return tool
    names = [tool.name for tool in tools]
    if near := nearest(name, names):
        raise ConfigError(
            f"there is no tool {name!r}; did you mean {' or '.join(map(repr, near))}?"
        )
    if len(names) > MOST_NAMED:
        more = f" and {len(names) - MOST_NAMED} more"
    else:
        more = ""
    raise ConfigError(
        f"there is no tool {name!r}; there are {', '.join(names[:MOST_NAMED])}{more}"
    )


def _facts(tool: BaseTool) -> dict[str, Any]:
    return {
        "name": tool.name,
        "effect": tool.effect,
        "permission": tool.required_permission,
        "risk": tool.effective_risk,
        "asks_a_person": _asks(tool),
        "timeout_s": tool.timeout_s,
        "key": tool.key if isinstance(tool.key, str) else None,
        "resource": tool.resource,
        "tags": list(tool.tags),
        "then": tool.then.tool.name if tool.then else None,
        "ends_run": tool.limits.ends_run or None,
        "filled_by_the_caller": options.list_injected(tool),
        "summary": tool.summary,
    }


def _asks(tool: BaseTool) -> str:
    """Say when a person is asked, under the default policy."""
    approvers = ""
    if tool.write.required_approvals > 1:
        approvers = f", {tool.write.required_approvals} people"
    if isinstance(tool.approve, str):
        return f"when {tool.approve}{approvers}"
    always = tool.approve is True or tool.effective_risk == Policy().ask_from
    if always:
        return f"always{approvers}"
    if tool.approve:
        return f"by a rule{approvers}"
    return "no"


def _text(fact: Any) -> str:
    if isinstance(fact, (list, tuple)):
        return ", ".join(map(str, fact))
    if isinstance(fact, float):
        return f"{fact:g}"
    return str(fact)
