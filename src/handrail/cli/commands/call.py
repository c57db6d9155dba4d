"""`handrail call`: one call by hand, checked and carried out as a model's would be."""

from __future__ import annotations

import asyncio
import json
import sys
from typing import Any

import click

from handrail.approvers.terminal import printable
from handrail.calls import ToolResult
from handrail.cli import exits, options
from handrail.cli.options import Setup
from handrail.cli.printer import Printer, console
from handrail.cli.timeline import Timeline
from handrail.shaping import plain


@click.command("call")
@click.argument("tool")
@click.argument("arguments", default="{}", required=False)
@options.setup
@options.as_json
@options.verbose
@options.debug
def command(tool: str, arguments: str, setup: Setup, as_json: bool, verbose: bool) -> int:
    """Call one tool by hand, with every check that a model's call gets.

    ARGUMENTS is a JSON object, or `-` for stdin. It is read as a model's text is: harmless deviations from JSON are
    mended, and named. The result on stdout is what a model would read.

    \b
    Examples:
      handrail call get_weather '{"city": "北京"}' --tools examples/weather.py
      echo '{"order_id": "A-1", "amount": 20}' | handrail call refund - --tools examples/orders.py --yes-to high
    """
    observers = [Printer(Timeline(detail="all"), console(sys.stderr))] if verbose else []
    result = asyncio.run(_call(setup, observers, tool, options.text_or_stdin(arguments)))
    if as_json:
        click.echo(json.dumps(_document(result), ensure_ascii=False))
    elif result.failure is None:
        click.echo(printable(result.text, keep="\n\t") if sys.stdout.isatty() else result.text)
    if result.failure is not None and not as_json:
        click.echo(f"{result.failure.code}: {printable(result.failure.message)}", err=True)
        if result.failure.suggestion:
            click.echo(printable(result.failure.suggestion), err=True)
    return exits.of_failure(result.failure)


async def _call(setup: Setup, observers: list[Any], tool: str, arguments: str) -> ToolResult:
    async with setup.runtime(*observers) as runtime:
        return await runtime.call(tool, arguments)


def _document(result: ToolResult) -> dict[str, Any]:
    told: dict[str, Any] = {"v": 1, "tool": result.name, "ok": result.ok, "attempts": result.attempts}
    if result.repairs:
        told["repairs"] = list(result.repairs)
    if result.failure is not None:
        return {**told, **result.failure.as_json()}
    return {**told, "value": plain(result.value), "text": result.text}
