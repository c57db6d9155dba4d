"""`handrail tools`: your tools as a model will see them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import click

from handrail import plugins
from handrail.cli import completion_names, options
from handrail.cli.loading import tools_from
from handrail.cli.printer import console, print_columns
from handrail.core.policy import Policy
from handrail.dialects import WireDialect, dialect
from handrail.errors import ConfigError, Json
from handrail.invisible import json_text
from handrail.parsing.names import nearest
from handrail.tools.tool import BaseTool
from handrail.tools.toolset import Toolset

MOST_NAMED = 20
"""How many tools a sentence names."""


form_option = click.option(
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
        click.echo(json_text({"v": 1, "tools": [facts_of(tool) for tool in tools]}))
        return
    rows = [
        (
            tool.name,
            tool.effect or "undeclared",
            tool.effective_risk,
            asks_of(tool),
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
@form_option
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
    facts = {**facts_of(tool), "description": tool.description}
    # Gemini puts all tools into one entry, so what a wire says of one tool is the list that it makes of it.
    if form == "json":
        label = "parameters"
        schema: Json = tool.parameters
    else:
        label = form
        schema = definitions(Toolset([tool]), form)
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
@form_option
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
    click.echo(json_text(definitions(chosen, form, strict), indent=2))


def definitions(tools: Toolset, form: str, strict: bool = False) -> Json:
    """Return the definitions of tools in a form: `json`, or what `Toolset.definitions` takes."""
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


def facts_of(tool: BaseTool) -> dict[str, Any]:
    """Return what a tool declares, for a document."""
    return {
        "name": tool.name,
        "effect": tool.effect,
        "permission": tool.required_permission,
        "risk": tool.effective_risk,
        "asks_a_person": asks_of(tool),
        "timeout_s": tool.timeout_s,
        "key": tool.key if isinstance(tool.key, str) else None,
        "resource": tool.resource,
        "tags": list(tool.tags),
        "then": tool.then.tool.name if tool.then else None,
        "ends_run": tool.limits.ends_run or None,
        "filled_by_the_caller": options.list_injected(tool),
        "summary": tool.summary,
    }


def asks_of(tool: BaseTool) -> str:
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
