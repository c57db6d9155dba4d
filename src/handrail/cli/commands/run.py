"""`handrail run`: one question, with tools, and its answer on stdout."""

from __future__ import annotations

import asyncio
import sys
from contextlib import redirect_stdout
from typing import Any

import click

from handrail.cli import completion_names, interrupts, is_debugging, options
from handrail.cli.next_steps import describe_next_steps
from handrail.cli.options import Setup
from handrail.cli.progress import Watch, watch_options
from handrail.cli.store_access import find_session, open_store
from handrail.core.budgets import Budget
from handrail.ports import Store
from handrail.runs import Run
from handrail.sessions.session import Session


@click.command("run")
@click.argument("question")
@options.model(required=True)
@click.option(
    "--system",
    default="",
    metavar="TEXT",
    help="Instructions for the model, before the question.",
)
@options.setup
@options.budget
@options.store
@options.conversation(completion_names.runs)
@watch_options
@click.pass_context
def command(
    context: click.Context,
    question: str,
    model: str,
    system: str,
    setup: Setup,
    budget: Budget,
    store: str,
    latest: bool,
    session: str,
    watch: Watch,
) -> int:
    """Ask a model one question and let it use your tools.

    The answer goes to stdout, what happens meanwhile to stderr. QUESTION may be `-` for stdin. The exit code tells how
    it ended; see `handrail --help`.

    \b
    Examples:
      handrail run "How warm is it in Paris?" --tools examples/weather.py --model openai:NAME
      handrail run "Refund order 881" --tools shop.tools:refunds --yes-to medium --max-calls 10
      handrail run "..." --tools examples/weather.py --jsonl | jq .event
      handrail run "..." --tools shop.tools --store sqlite:///handrail.db    # stored; see `handrail runs`
      handrail run "And yesterday?" --continue --tools examples/weather.py --store sqlite:///handrail.db
    """
    text = options.text_or_stdin(question)
    if not text.strip():
        where = "; stdin has none" if question == "-" else ""
        raise click.UsageError(f"The question is empty{where}.")
    setup.check_injected(setup.tools.filter(setup.policy.sees))
    with open_store(store, create=True, writes=True) as run_store:
        name = find_session(run_store, store, latest=latest, name=session)
        if latest and system:
            raise click.UsageError(_SYSTEM_IS_SET)
        with redirect_stdout(sys.stderr):  # what tools print is no result
            run = asyncio.run(
                _run(
                    setup,
                    watch,
                    run_store,
                    text,
                    model=model,
                    name=name,
                    system=system,
                    budget=budget,
                )
            )
        code = watch.conclude(run, debugging=is_debugging(context))
        watch.tell(describe_next_steps(run_store, run, setup, store))
    return code


_SYSTEM_IS_SET = "--system sets the instructions of a new conversation; leave it out with --continue."


async def _run(
    setup: Setup,
    watch: Watch,
    store: Store,
    question: str,
    *,
    name: str,
    system: str,
    **how: Any,
) -> Run:
    here: dict[str, Any] = {
        "printer": watch.printer,
        "terminal": setup.consent.terminal,
        "inject": setup.inject,
    }
    async with setup.runtime(*watch.observers, store=store) as runtime:
        session = Session(runtime, id=name, system=system)
        return await interrupts.drive(runtime, session.run, question, **here, **how)
