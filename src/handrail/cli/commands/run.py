"""`handrail run`: one question, with tools, and its answer on stdout."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Sequence
from contextlib import redirect_stdout
from typing import Any

import click

from handrail.approvers.terminal import printable
from handrail.budgets import Budget
from handrail.cli import conversing, exits, is_debugging, options
from handrail.cli.options import Setup
from handrail.cli.printer import Printer, console
from handrail.cli.records import Recorder
from handrail.cli.timeline import Detail, Timeline
from handrail.ports import Observer
from handrail.runs import Run, as_line


@click.command("run")
@click.argument("question")
@options.model(required=True)
@click.option("--system", default="", metavar="TEXT", help="What the model is told before the question.")
@options.setup
@options.budget
@options.as_json
@click.option("--jsonl", "as_jsonl", is_flag=True, help="Print every event as a line of JSON, then the run.")
@options.wire
@options.quiet
@options.verbose
@options.debug
@click.pass_context
def command(
    context: click.Context, question: str, model: str, system: str, setup: Setup, budget: Budget, as_json: bool,
    as_jsonl: bool, wire: bool, quiet: bool, verbose: bool,
) -> int:  # fmt: skip
    """Ask a model one question and let it use your tools.

    The answer goes to stdout, what happens meanwhile to stderr. QUESTION may be `-` for stdin. The exit code tells how
    it ended; see `handrail --help`.

    \b
    Examples:
      handrail run "How warm is it in Paris?" --tools examples/weather.py --model openai:NAME
      handrail run "Refund order 881" --tools shop.tools:refunds --yes-to low,medium --max-calls 10
      handrail run "..." --tools examples/weather.py --jsonl | jq .event
    """
    if as_json and as_jsonl:
        raise click.UsageError("--json prints one document and --jsonl one line per event; choose one.")
    detail: Detail = "ends" if quiet or as_json or as_jsonl else "all" if verbose else "short"
    printer = Printer(Timeline(detail=detail, wire=wire and not as_jsonl), console(sys.stderr))
    recorder = Recorder(sys.stdout, wire=wire) if as_jsonl else None
    observers: list[Observer] = [printer, recorder] if recorder else [printer]
    asked = options.text_or_stdin(question)
    setup.check_injected(setup.tools.filter(setup.policy.sees))
    with redirect_stdout(sys.stderr):  # what tools print is no result
        run = asyncio.run(_run(setup, printer, observers, asked, model=model, system=system, budget=budget))
    if is_debugging(context):
        click.echo(printable(run.transcript(debug=True), keep="\n"), err=True)
    if recorder:
        recorder.write({"v": 1, "event": "run", "run": run.as_json()})
    elif as_json:
        click.echo(as_line(run.as_json()))
    elif run.text:
        click.echo(printable(run.text, keep="\n\t") if sys.stdout.isatty() else run.text)
    return exits.of_run(run.status, options.failures_of(run))


async def _run(setup: Setup, printer: Printer, observers: Sequence[Observer], question: str, **how: Any) -> Run:
    here: dict[str, Any] = {"printer": printer, "terminal": setup.consent.terminal, "inject": setup.inject}
    async with setup.runtime(*observers) as runtime:
        return await conversing.ask(runtime, question, **here, **how)
