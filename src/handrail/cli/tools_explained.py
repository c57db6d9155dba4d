"""What `handrail tools --explain` prints: what of each declaration reaches a provider, and what does not."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from itertools import groupby

import click

from handrail.cli.printer import console, print_columns
from handrail.dialects import Dialect, dialect
from handrail.dialects.explaining import Part, explain_request, explain_tool
from handrail.dialects.wires.base import BaseWire
from handrail.invisible import json_text
from handrail.models.provider_table import ROWS
from handrail.tools.tool import BaseTool
from handrail.tools.toolset import Toolset


def find_wire(name: str, *, copy: bool) -> Dialect:
    """Return the dialect of that name, or that of a provider, as the provider's own server is spoken to.

    Args:
        copy: As a server is spoken to that copies the API.

    Raises:
        ConfigError: There is neither.
    """
    row = ROWS.get(name)
    if row is None:
        found = dialect(name)
    else:
        found = dialect(row.compatible or row.dialect if copy else row.dialect)
    if isinstance(found, BaseWire):
        return dataclasses.replace(found, server="copy" if copy else "own")
    return found


def explain(
    tools: Toolset, wire: Dialect, model: str, *, strict: bool, as_json: bool
) -> None:
    """Print what becomes of each declaration, and of what a run wishes."""
    explained = [(tool, explain_tool(wire, tool, strict=strict)) for tool in tools]
    first = next(iter(tools), None)
    request = [] if first is None else explain_request(wire, first, model)
    if as_json:
        _print_json(wire, explained, request)
        return
    for tool, parts in explained:
        click.echo(f"{tool.name}, as {wire.name} gets it")
        print_columns(console(), [*_rows(parts)])
        click.echo()
    if request:
        click.echo("and in a request")
        print_columns(console(), [*_rows(request)])


def _print_json(
    wire: Dialect,
    explained: Sequence[tuple[BaseTool, Sequence[Part]]],
    request: Sequence[Part],
) -> None:
    tools = [
        {"name": tool.name, "parts": [part.as_json() for part in parts]}
        for tool, parts in explained
    ]
    whole = {
        "v": 1,
        "dialect": wire.name,
        "tools": tools,
        "request": [part.as_json() for part in request],
    }
    click.echo(json_text(whole))


def _rows(parts: Sequence[Part]) -> list[tuple[str, str, str]]:
    """Return the lines of a table; parts of which there is nothing more to say share one."""
    rows = []
    for key, group in groupby(parts, key=lambda part: (part.reach, part.field, part.note)):  # fmt: skip
        reach, field, note = key
        names = ", ".join(part.name for part in group)
        rows.append((names, reach, "; ".join(filter(None, [field, note]))))
    return rows
