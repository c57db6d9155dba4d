"""`handrail chat`: questions and answers in the terminal, with tools."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import redirect_stdout
from typing import Any

import click

from handrail.cli import exits, interrupts, options
from handrail.cli.exits import Exit
from handrail.cli.next_steps import describe_next_steps
from handrail.cli.options import Setup
from handrail.cli.printer import Printer, console
from handrail.cli.store_access import open_store
from handrail.cli.timeline import Timeline
from handrail.core.budgets import Budget
from handrail.messages import Message, SystemMessage, UserMessage
from handrail.runs import Run

try:  # gives the prompt editing and history; Windows has none
    import readline  # noqa: F401  # imported for its effect
except ImportError:
    pass

PROMPT = "\n> "

_HELP = """/tools  list the tools that the model can use
/quit   leave (so does Ctrl-D); Ctrl-C cancels the answer under way
Whatever else is typed is a question to the model."""


@click.command("chat")
@options.model(required=True)
@click.option(
    "--system",
    default="",
    metavar="TEXT",
    help="Instructions for the model, before the first question.",
)
@options.setup
@options.budget
@options.store
@options.raw
@options.wire
@options.verbose
@options.debug
def command(
    model: str,
    system: str,
    setup: Setup,
    budget: Budget,
    store: str,
    wire: bool,
    raw: bool,
    verbose: bool,
) -> int:
    """Chat with a model that can use your tools.

    The answer appears as it arrives, and calls as they run; what needs approval is asked here. Ctrl-C cancels the
    answer under way, and leaves at the prompt, as Ctrl-D does. Without a terminal every line of stdin is a question.
    The exit code is that of the last answer. /help, /tools and /quit are answered here; the model does not see them.

    \b
    Examples:
      handrail chat --tools examples/weather.py --model openai:NAME
      HANDRAIL_MODEL=openai:qwen3@http://localhost:8000/v1 handrail chat --tools examples/orders.py
    """
    timeline = Timeline(
        streams=True,
        detail="all" if verbose else "short",
        wire=wire,
        raw=raw,
    )
    printer = Printer(timeline, console(sys.stderr), answers=console())
    with (
        open_store(store, create=True, writes=True) as run_store,
        asyncio.Runner() as runner,
    ):
        runtime = setup.runtime(printer, store=run_store)
        here: dict[str, Any] = {
            "printer": printer,
            "terminal": setup.consent.terminal,
            "inject": setup.inject,
        }

        def answer(messages: Sequence[Message]) -> Run:
            with redirect_stdout(sys.stderr):  # what tools print is no answer
                run = runner.run(
                    interrupts.ask(
                        runtime,
                        messages,
                        **here,
                        model=model,
                        budget=budget,
                    )
                )
            printer.close()
            if steps := describe_next_steps(run_store, run, setup, store):
                click.echo(steps, err=True)
            return run

        try:
            # a wrong name or a missing key is reported before the first question
            runtime._engine.resolve_model(model)
            setup.check_injected(setup.tools.filter(setup.policy.sees))
            tools = {
                tool.name: tool.description
                for tool in setup.tools.filter(setup.policy.sees)
            }
            return _hold(answer, tools, [SystemMessage(system)] if system else [])
        finally:
            with redirect_stdout(sys.stderr):
                runner.run(runtime.close())


def _hold(
    answer: Callable[[Sequence[Message]], Run],
    tools: Mapping[str, str],
    messages: Sequence[Message],
) -> Exit:
    """Talk until the person leaves; return the exit code of the last answer."""
    code = Exit.OK
    while (question := _next_question()) is not None:
        match question.strip():
            case "":
                continue
            case "/quit" | "/exit":
                break
            case "/help":
                click.echo(_HELP, err=True)
                continue
            case "/tools":
                click.echo(
                    "\n".join(_tool_lines(tools)) or "there are no tools", err=True
                )
                continue
        run = answer([*messages, UserMessage(question)])
        code = exits.of_run(run.status, options.call_failures(run))
        # A question that got neither a word nor a call is forgotten, so that it can be asked again. What was done
        # stays known, also when the answer to it was cancelled.
        if len(run.messages) > len(messages) + 1:
            messages = run.messages
    return code


def _tool_lines(tools: Mapping[str, str]) -> Iterator[str]:
    for name, description in tools.items():
        yield f"{name}: {(description.strip().splitlines() or [''])[0]}"


def _next_question() -> str | None:
    """Return the next question, or None when there are no more."""
    if sys.stdin is None or sys.stdin.closed:
        return None
    if not sys.stdin.isatty():
        line = sys.stdin.readline()
        return line.rstrip("\n") if line else None
    try:
        return input(PROMPT)
    except EOFError:
        click.echo(err=True)
        return None
