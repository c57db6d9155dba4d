"""`handrail mcp`: look at an MCP server without a model."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import click

from handrail import _lazy
from handrail.cli import exits, options, settings
from handrail.cli.printer import console, print_columns
from handrail.core.redaction import Redactor
from handrail.errors import HandrailError
from handrail.invisible import json_text, printable

if TYPE_CHECKING:
    from mcp import types
    from mcp.shared import exceptions

    from handrail_mcp import servers, toolset
else:
    types = _lazy.module("mcp.types")
    exceptions = _lazy.module("mcp.shared.exceptions")
    servers = _lazy.module("handrail_mcp.servers")
    toolset = _lazy.module("handrail_mcp.toolset")


@click.group("mcp", cls=options.Commands)
def command() -> None:
    """Look at an MCP server: what it lists, what a tool answers, and what goes over the wire.

    \b
    Examples:
      handrail mcp inspect "npx -y @modelcontextprotocol/server-everything"
      handrail mcp inspect https://mcp.example/mcp --header "Authorization: Bearer TOKEN"
    """


@command.command("inspect")
@click.argument("server")
@click.option(
    "--call",
    "tool",
    metavar="TOOL",
    default="",
    help="Call a tool by its name at the server, with ARGUMENTS.",
)
@click.argument("arguments", default="{}", required=False)
@click.option(
    "--env",
    "variables",
    metavar="NAME[=VALUE]",
    multiple=True,
    help="A variable for a server that is started; without a value, ours. May be repeated.",
)
@click.option(
    "--header",
    "headers",
    metavar="NAME: VALUE",
    multiple=True,
    help="A header for a server at an address. May be repeated.",
)
@click.option(
    "--timeout", "timeout_s", type=float, default=60.0, help="Seconds for a call."
)
@click.option("--wire", is_flag=True, help="Show every message on stderr.")
@options.raw
@options.as_json
@options.debug
def inspect(
    server: str,
    tool: str,
    arguments: str,
    variables: Sequence[str],
    headers: Sequence[str],
    timeout_s: float,
    wire: bool,
    raw: bool,
    as_json: bool,
) -> int:
    """Show what a server lists, or call one of its tools by hand.

    SERVER is a command line, an address, or a name in handrail.toml. A call goes to the server as it is: there is no
    policy, no ledger and no retry.

    \b
    Examples:
      handrail mcp inspect "uvx mcp-server-time"
      handrail mcp inspect "uvx mcp-server-time" --call get_current_time '{"timezone": "Asia/Shanghai"}'
      handrail mcp inspect shop --wire --json
    """
    chosen: dict[str, Any] = {}
    if variables:
        chosen["env"] = dict(map(_read_variable, variables))
    if headers:
        chosen["headers"] = dict(map(_read_header, headers))
    if wire:
        chosen["watch"] = _Wire(raw=raw)
    return asyncio.run(
        _inspect(server, chosen, tool, _read_arguments(arguments), timeout_s, as_json)
    )


def _read_variable(text: str) -> tuple[str, str]:
    name, given, value = text.partition("=")
    if not given and name not in os.environ:
        raise click.UsageError(
            f"--env {name}: no such variable is set here; give it a value: {name}=VALUE"
        )
    return (name, value if given else os.environ[name])


def _read_header(text: str) -> tuple[str, str]:
    name, colon, value = text.partition(":")
    if not colon or not name.strip():
        raise click.UsageError(f'--header {text!r}: write it as "Name: value"')
    return (name.strip(), value.strip())


def _read_arguments(text: str) -> dict[str, Any]:
    try:
        arguments = json.loads(options.text_or_stdin(text))
    except ValueError as error:
        raise click.UsageError(f"ARGUMENTS is not JSON: {error}") from error
    if not isinstance(arguments, dict):
        raise click.UsageError(
            'ARGUMENTS is a JSON object, such as \'{"city": "Paris"}\''
        )
    return arguments


class _Wire:
    """Prints each message of the protocol, secrets masked unless they are wanted."""

    def __init__(self, *, raw: bool) -> None:
        self._redactor = None if raw else Redactor()

    def __call__(self, direction: str, message: Any) -> None:
        text = json_text(message)
        if self._redactor is not None:
            text = self._redactor.text(text)
        arrow = "-->" if direction == "sent" else "<--"
        click.echo(f"{arrow} {text}", err=True)


async def _inspect(
    server: str,
    chosen: Mapping[str, Any],
    tool: str,
    arguments: dict[str, Any],
    timeout_s: float,
    as_json: bool,
) -> int:
    named = servers.choose_server(server, settings.table("mcp"))
    tools = await named.connect(prefix="", **chosen)
    try:
        if tool:
            return await _call(tools, tool, arguments, timeout_s, as_json)
        document = await _describe(tools)
    finally:
        await tools.aclose()
    if as_json:
        click.echo(json_text({"v": 1, **document}))
    else:
        _print(document)
    return exits.Exit.OK


# ---------------------------------------------------------------------- what it lists


async def _describe(tools: toolset.McpToolset) -> dict[str, Any]:
    connection = tools.connection
    info = connection.server_info
    listed = await connection.list_tools()
    return {
        "server": connection.name,
        "calls_itself": f"{info.name} {info.version}" if info is not None else "",
        "protocol": connection.protocol_version,
        "capabilities": sorted(
            connection.capabilities.model_dump(by_alias=True, exclude_none=True)
        ),
        "instructions": connection.instructions,
        "tools": [_describe_tool(each) for each in listed],
        "resources": await _list(connection, "resources"),
        "prompts": await _list(connection, "prompts"),
        "problems": tools.problems,
        "stderr": connection.stderr,
    }


def _describe_tool(tool: types.Tool) -> dict[str, Any]:
    hints = tool.annotations
    return {
        "name": tool.name,
        "description": tool.description or "",
        "hints": hints.model_dump(by_alias=True, exclude_none=True) if hints else {},
        "input_schema": tool.input_schema,
        "output_schema": tool.output_schema,
    }


async def _list(connection: Any, what: str) -> list[str]:
    """Return the addresses of a server's resources, or the names of its prompts."""
    if getattr(connection.capabilities, what) is None:
        return []
    if what == "resources":
        pages = connection.read_pages(
            lambda session, params: session.list_resources(params=params)
        )
        return [str(each.uri) async for page in pages for each in page.resources]
    pages = connection.read_pages(
        lambda session, params: session.list_prompts(params=params)
    )
    return [each.name async for page in pages for each in page.prompts]


def _print(document: Mapping[str, Any]) -> None:
    target = console()
    rows = [
        (label.replace("_", " "), _as_text(document[label]))
        for label in (
            "server",
            "calls_itself",
            "protocol",
            "capabilities",
            "instructions",
        )
        if document[label]
    ]
    print_columns(target, rows)
    click.echo("")
    print_columns(
        target,
        [
            (each["name"], _name_hints(each["hints"]), _first_line(each["description"]))
            for each in document["tools"]
        ],
        ("tool", "hints", "description"),
    )
    for label in ("resources", "prompts"):
        if document[label]:
            click.echo(f"\n{label}: {printable(', '.join(document[label]))}")
    for problem in document["problems"]:
        click.echo(f"warning: {printable(problem)}", err=True)


def _as_text(value: Any) -> str:
    return ", ".join(value) if isinstance(value, list) else str(value)


def _first_line(text: str) -> str:
    return text.strip().partition("\n")[0]


_HINTS = {
    "readOnlyHint": ("reads", "writes"),
    "destructiveHint": ("destroys", "destroys nothing"),
    "idempotentHint": ("idempotent", ""),
    "openWorldHint": ("open world", "closed world"),
}


def _name_hints(hints: Mapping[str, Any]) -> str:
    """Return a server's hints in words; `-` where it says nothing."""
    words = [
        yes if hints[hint] else no
        for hint, (yes, no) in _HINTS.items()
        if hint in hints
    ]
    return ", ".join(filter(None, words)) or "-"


# ---------------------------------------------------------------------- calling


async def _call(
    tools: toolset.McpToolset,
    tool: str,
    arguments: dict[str, Any],
    timeout_s: float,
    as_json: bool,
) -> int:
    def report(done: float, total: float | None, note: str) -> None:
        of = f"/{total:g}" if total is not None else ""
        click.echo(printable(f"... {done:g}{of} {note}"), err=True)

    try:
        answer = await tools.connection.call(
            tool, arguments, timeout_s=timeout_s, progress=report
        )
    except exceptions.MCPError as error:
        raise HandrailError(
            f"the MCP server {tools.server_name!r} answered with the error {error.code}: {printable(error.message)}"
        ) from error
    document = answer.model_dump(by_alias=True, mode="json", exclude_none=True)
    if as_json:
        click.echo(json_text({"v": 1, "result": document}))
    else:
        click.echo(_show_answer(document))
    return exits.Exit.ERROR if document.get("isError") else exits.Exit.OK


def _show_answer(document: Mapping[str, Any]) -> str:
    if "inputRequests" in document:
        return f"it asks for input:\n{json_text(document['inputRequests'], indent=2)}"
    parts = [_show_content(each) for each in document.get("content", ())]
    if "structuredContent" in document:
        parts.append(f"structured: {json_text(document['structuredContent'])}")
    return "\n".join(parts)


def _show_content(content: Mapping[str, Any]) -> str:
    if content["type"] == "text":
        return printable(content["text"], keep="\n\t")
    with suppress(KeyError):
        size = len(content["data"]) * 3 // 4
        return f"[{content['type']}: {content['mimeType']}, {size:,} bytes]"
    return json_text(content)
