"""`handrail chat`: questions and answers in the terminal, with tools."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import redirect_stdout
from typing import Any

import click

from handrail.approvers.terminal import printable
from handrail.cli import completion_names, exits, interrupts, options
from handrail.cli.exits import Exit
from handrail.cli.next_steps import describe_next_steps
from handrail.cli.options import Setup
from handrail.cli.printer import Printer, console
from handrail.cli.store_access import command_line, find_session, open_store
from handrail.cli.timeline import Timeline
from handrail.core.budgets import Budget
from handrail.errors import ConfigError
from handrail.messages import Message, UserMessage
from handrail.ports import RunStore
from handrail.runs import Run
from handrail.sessions.session import Session

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
@options.conversation(completion_names.runs)
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
    latest: bool,
    session: str,
    wire: bool,
    raw: bool,
    verbose: bool,
) -> int:
    """Chat with a model that can use your tools.

    The answer appears as it arrives, and calls as they run; what needs approval is asked here. Ctrl-C cancels the
    answer under way, and leaves at the prompt, as Ctrl-D does. Without a terminal every line of stdin is a question.
    The exit code is that of the last answer. /help, /tools and /quit are answered here; the model does not see them.

    With a store the conversation is stored as one run. --continue goes on with the last one, --session with any.

    \b
    Examples:
      handrail chat --tools examples/weather.py --model openai:NAME
      HANDRAIL_MODEL=openai:qwen3@http://localhost:8000/v1 handrail chat --tools examples/orders.py
      handrail chat --continue --tools examples/orders.py --model openai:NAME --store sqlite:///handrail.db
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
        name = find_session(run_store, store, latest=latest, name=session)
        if latest and system:
            raise click.UsageError(
                "--system sets the instructions of a new conversation; leave it out with --continue."
            )
        runtime = setup.runtime(printer, store=run_store)
        talk = Session(runtime, id=name, model=model, system=system, budget=budget)
        here: dict[str, Any] = {
            "printer": printer,
            "terminal": setup.consent.terminal,
            "inject": setup.inject,
        }

        def answer(question: str) -> Run:
            with redirect_stdout(sys.stderr):  # what tools print is no answer
                run = runner.run(interrupts.drive(runtime, talk.run, question, **here))
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
            if name and (messages := runner.run(talk.messages())):
                click.echo(f"{name}: {_count_questions(messages)} so far", err=True)
            code = _hold(answer, tools)
            if isinstance(run_store, RunStore) and runner.run(talk.messages()):
                again = command_line(f"chat --session {talk.id}", store)
                click.echo(f"go on:   {again} ...", err=True)
            return code
        finally:
            with redirect_stdout(sys.stderr):
                runner.run(runtime.close())


def _count_questions(messages: Sequence[Message]) -> str:
    count = sum(isinstance(message, UserMessage) for message in messages)
    return "1 question" if count == 1 else f"{count} questions"


def _hold(answer: Callable[[str], Run], tools: Mapping[str, str]) -> Exit:
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
        try:
            run = answer(question)
        except ConfigError as error:
            # It was not asked: the last question waits for a person, or somebody else asks.
            click.echo(printable(str(error)), err=True)
            code = exits.of_error(error)
        else:
            code = exits.of_run(run.status, options.call_failures(run))
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
