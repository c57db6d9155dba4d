"""`handrail call`: one call by hand, checked and carried out as a model's would be."""

from __future__ import annotations

import asyncio
import sys
from contextlib import redirect_stdout
from typing import TYPE_CHECKING, Any

import click
from msgspec import Struct

from handrail import _lazy
from handrail.approvers.terminal import printable
from handrail.calls import ToolResult
from handrail.cli import completion_names, exits, options
from handrail.cli.options import Setup
from handrail.core.results import plain
from handrail.errors import Code, Failure
from handrail.events import AttemptStarted, CallFinished, Event
from handrail.invisible import json_text
from handrail.ports import Observer, Store
from handrail.tools.tool import BaseTool

if TYPE_CHECKING:
    from handrail.cli import printer, store_access, timeline
else:
    store_access = _lazy.module("handrail.cli.store_access")
    printer = _lazy.module("handrail.cli.printer")
    timeline = _lazy.module("handrail.cli.timeline")


@click.command("call")
@click.argument("tool", shell_complete=completion_names.tools)
@click.argument("arguments", default="{}", required=False)
@options.setup
@options.store
@options.as_json
@options.verbose
@options.debug
def command(
    tool: str,
    arguments: str,
    setup: Setup,
    store: str,
    as_json: bool,
    verbose: bool,
) -> int:
    """Call one tool by hand, with every check that a model's call gets.

    ARGUMENTS is a JSON object, or `-` for stdin. It is read as a model's text is: harmless deviations from JSON are
    repaired, and each repair is named. The result on stdout is what a model would read. With a store, a write whose
    key is in it is not done again; its first result is returned.

    \b
    Examples:
      handrail call get_weather '{"city": "北京"}' --tools examples/weather.py
      echo '{"order_id": "A-1", "amount": 20}' | handrail call refund - --tools examples/orders.py --yes-to high
      handrail call refund '{"order_id": "A-1", "amount": 20}' --tools examples/orders.py --store sqlite:///handrail.db
    """
    if not setup.places:
        raise click.UsageError(
            "Name where the tools are: --tools FILE_OR_MODULE[:ATTRIBUTE]."
        )
    observers: list[Observer] = []
    if verbose:
        stderr = printer.console(sys.stderr)
        observers.append(printer.Printer(timeline.Timeline(detail="all"), stderr))
    text = options.text_or_stdin(arguments)
    if store == options.NO_STORE:
        result = _perform(setup, observers, tool, text, store)
    else:
        with store_access.open_store(store, create=True, writes=True) as ledger:
            result = _perform(setup, observers, tool, text, ledger)
    if as_json:
        click.echo(json_text(_document(result)))
    elif result.failure is None:
        is_screen = sys.stdout.isatty()
        click.echo(printable(result.text, keep="\n\t") if is_screen else result.text)
    else:
        _print_failure(
            result.failure,
            setup.tools.resolve(tool),
            is_stored=store != options.NO_STORE,
        )
    return exits.of_failure(result.failure)


def _print_failure(failure: Failure, tool: object, *, is_stored: bool) -> None:
    click.echo(f"{failure.code}: {printable(failure.message)}", err=True)
    if failure.suggestion:
        click.echo(printable(failure.suggestion), err=True)
    if not isinstance(tool, BaseTool):
        return
    if failure.code == Code.APPROVAL_PENDING:
        hint = "answer it with `handrail approvals`, then make the same call again"
        if not is_stored:
            hint = (
                f"nobody is at the terminal: call it from one, approve it with --yes-to {tool.effective_risk}, "
                "or give --store, which keeps the question"
            )
        click.echo(hint, err=True)
    elif failure.code == Code.NOT_APPROVED:
        hint = f"call it from a terminal, or approve it with --yes-to {tool.effective_risk}"
        click.echo(hint, err=True)


class _Progress(Struct):
    """How far the call had come when it was interrupted; an observer."""

    started: bool = False
    ok: bool = False

    def __call__(self, event: Event) -> None:
        self.started |= isinstance(event, AttemptStarted)
        self.ok |= isinstance(event, CallFinished) and event.result.ok


def _perform(
    setup: Setup,
    observers: list[Observer],
    name: str,
    arguments: str,
    store: str | Store,
) -> ToolResult:
    """Carry out the call; when it is interrupted, say what a person must know of a write."""
    tool = setup.tools.resolve(name)
    progress = _Progress()
    if isinstance(tool, BaseTool):
        setup.check_injected([tool])
    try:
        with redirect_stdout(sys.stderr):  # what tools print is no result
            return asyncio.run(
                _call(setup, [*observers, progress], name, arguments, store)
            )
    except KeyboardInterrupt:
        if isinstance(tool, BaseTool) and tool.writes and progress.started:
            if progress.ok:
                effect = "took effect"
            else:
                effect = "may have taken effect; look before you call it again"
            click.echo(f"`{tool.name}` was under way and {effect}", err=True)
        raise


async def _call(
    setup: Setup,
    observers: list[Observer],
    tool: str,
    arguments: str,
    store: str | Store,
) -> ToolResult:
    async with setup.runtime(*observers, store=store) as runtime:
        return await runtime.call(tool, arguments, inject=setup.inject)


def _document(result: ToolResult) -> dict[str, Any]:
    document: dict[str, Any] = {
        "v": 1,
        "tool": result.name,
        "ok": result.ok,
        "attempts": result.attempts,
    }
    if result.replayed:
        document["replayed"] = True
    if result.repairs:
        document["repairs"] = list(result.repairs)
    if result.failure is not None:
        return {**document, **result.failure.as_json()}
    return {**document, "value": plain(result.value), "text": result.text}
