"""`handrail runs`: runs that are kept in a store, in whatever process they began."""

from __future__ import annotations

import asyncio
import json
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import redirect_stdout
from dataclasses import dataclass, replace
from typing import Any, get_args

import click

from handrail.approvers.terminal import printable
from handrail.cli import conversing, exporting, is_debugging, options
from handrail.cli.exits import Exit
from handrail.cli.keeping import (
    RUNS,
    command_line,
    laid_out,
    moment,
    opened,
    print_json,
    print_table,
    say,
    span,
    way_on,
)
from handrail.cli.loading import tools_from
from handrail.cli.options import Setup
from handrail.cli.printer import Printer, console, print_columns
from handrail.cli.retelling import Retold, lines_of, question_of, retold
from handrail.cli.timeline import Timeline, shortened
from handrail.cli.watching import Watch, watched
from handrail.errors import ConfigError, Json, ModelError
from handrail.host import now_of
from handrail.journal import budget_from_json, input_from_json, toolset_digest
from handrail.messages import Turn
from handrail.ports import ApprovalStore, Listener, Request, Store
from handrail.records import Begun, Question, RecordStatus, RunRecord
from handrail.runs import Run
from handrail.tools import BaseTool
from handrail.toolset import Toolset


@click.group("runs")
def command() -> None:
    """Look at kept runs, go on with them, cancel, fork, replay and export them.

    A run is kept when it was begun with a store: `handrail run --store sqlite:///handrail.db`, or
    `Runtime(store=...)`. Any process can then go on with it.

    \b
    Examples:
      handrail runs list --status waiting
      handrail runs show r_1f2e3d4c
      handrail runs resume r_1f2e3d4c --tools shop.tools
      handrail runs export r_1f2e3d4c --format openai --tools shop.tools
    """


# ---------------------------------------------------------------------- looking


@command.command("list")
@click.option("--status", type=click.Choice(get_args(RecordStatus)), help="Only runs that stand so.")
@click.option("-n", "most", metavar="N", type=click.IntRange(min=1), default=20, show_default=True, help="At most.")
@options.kept
@options.as_json
@options.debug
def list_runs(status: str | None, most: int, store: str, as_json: bool) -> None:
    """List runs, the newest first.

    \b
    Example:
      handrail runs list --status waiting
    """
    with RUNS.opened(store) as kept:
        records = now_of(kept.records(status=status or "", most=most))
    if as_json:
        print_json({"runs": [_facts(record) for record in records]})
        return
    rows = [
        (record.run_id, _stands(record), moment(record.updated), shortened(question_of(input_from_json(record.input))))
        for record in records
    ]
    of = f" that stand as {status}" if status else ""
    print_table(rows, ("run", "stands", "changed", "question"), f"there are no runs{of} in this store")


@command.command("show")
@click.argument("run")
@click.option("--wire", is_flag=True, help="Show the answers as the provider sent them, where it needs them back.")
@options.verbose
@options.kept
@options.as_json
@options.debug
@click.pass_context
def show(context: click.Context, run: str, wire: bool, verbose: bool, store: str, as_json: bool) -> None:
    """Tell the story of a run from its journal alone: question, calls, results, where it stands, how it can go on.

    \b
    Examples:
      handrail runs show r_1f2e3d4c
      handrail runs show r_1f2e3d4c --json | jq .questions
    """
    with RUNS.opened(store) as kept:
        told = retold(_found(now_of(kept.recorded(run)), run))
        questions = now_of(kept.questions(state="", run_id=run)) if isinstance(kept, ApprovalStore) else ()
    if as_json:
        print_json(_document(told, questions))
        return
    page = _Page(told, questions, store)
    page.head()
    if is_debugging(context):
        click.echo("\n" + printable(told.as_run().transcript(debug=True), keep="\n"))
    else:
        page.turns(whole=verbose)
    if wire:
        page.wire()
    page.end()


def _found(begun: Begun | None, run: str) -> Begun:
    if begun is None:
        raise ConfigError(f"there is no run {run!r} in this store; `handrail runs list` shows those that there are")
    return begun


def _stands(record: RunRecord) -> str:
    """Return how a run stands; of one that is over, how it ended."""
    ended = record.result.get("status", "") if isinstance(record.result, Mapping) else ""
    return str(ended or record.status) if record.status == "done" else record.status


def _facts(record: RunRecord) -> dict[str, Json]:
    asked = input_from_json(record.input)
    return {
        "run": record.run_id, "status": record.status, "ended": _stands(record), "question": question_of(asked),
        "model": asked.model, "created": record.created, "updated": record.updated, "epoch": record.epoch,
        "cancel_requested": record.cancel_requested, "forked_from": record.forked_from, "forked_at": record.forked_at,
    }  # fmt: skip


def _document(told: Retold, questions: Sequence[Question]) -> dict[str, Json]:
    turns = [
        {
            "turn": each.number, "text": each.turn.text, "finish": each.turn.finish,
            "calls": [
                {"id": call.id, "name": call.name, "arguments": call.arguments, "has_result": result is not None}
                for call, result in zip(each.turn.calls, each.results, strict=True)
            ],
        }
        for each in told.turns
    ]  # fmt: skip
    asked = [{"id": each.id, "tool": each.tool, "state": each.state, "arguments": each.arguments} for each in questions]
    return {**_facts(told.begun.record), "turns": turns, "questions": asked, "result": told.as_run().as_json()}


class _Page:
    """A kept run as a person reads it, on stdout."""

    def __init__(self, told: Retold, questions: Sequence[Question], place: str) -> None:
        self._told, self._questions, self._place = told, questions, place
        self._at_s = 0.0
        self._printer = Printer(Timeline(), console(), now=lambda: self._at_s)

    def head(self) -> None:
        """Who asked what, of whom, when."""
        record, (status, reason, _) = self._told.begun.record, self._told.ending
        rows = [
            (record.run_id, f"{status}: {reason}" if reason else status),
            ("begun", f"{moment(record.created)}; changed {moment(record.updated)}"),
            ("model", self._told.asked.model or "an object, which cannot be kept"),
        ]
        rows += [("fork", f"of {record.forked_from} at turn {record.forked_at}")] if record.forked_from else []
        print_columns(console(), rows)
        self._printer.question(self._told.question)

    def turns(self, *, whole: bool) -> None:
        """What was said and done."""
        words = {question.call_id: question for question in self._questions}
        for told in self._told.turns:
            for self._at_s, line in lines_of(told, words, whole=whole):
                self._printer.show(line)

    def wire(self) -> None:
        """The answers as they were received."""
        for told in self._told.turns:
            self._printer.say(f"turn {told.number}, as the provider sent it")
            raw = told.turn.raw
            say(laid_out(raw) if raw else "not kept: nothing in it has to go back as it was")

    def end(self) -> None:
        """Where it stands, and the command to go on."""
        status, _, text = self._told.ending
        if text:
            self._printer.say(text)
        self._printer.say("\n".join(self._next(status)))

    def _next(self, status: str) -> Iterator[str]:
        run_id = self._told.begun.record.run_id
        go_on = command_line(f"runs resume {run_id} --tools ...", self._place)
        for question in self._questions:
            if question.state == "open":
                yield f"{question.tool} waits for a person, who has {span(question.expires - time.time())} to decide"
                yield f"decide:  {command_line(f'approvals approve {question.id}', self._place)}   (or deny)"
        if status in ("waiting", "failed", "cancelled", "poisoned"):
            yield f"go on:   {go_on}"
        elif status in ("running", "queued"):
            yield "it is under way, or its process died in the middle of it; then another one can take it over"
            yield f"go on:   {go_on}"
        elif status == "budget":
            yield f"go on:   {command_line(f'runs resume {run_id} --tools ... --max-turns N', self._place)}"
        else:
            yield "it is over"


# ---------------------------------------------------------------------- driving


_run = click.argument("run")
_model = options.model(required=False)


@command.command("resume")
@_run
@_model
@options.setup
@options.new_budget
@options.kept
@watched
@click.pass_context
def resume(
    context: click.Context, run: str, model: str | None, setup: Setup, limits: Mapping[str, Any], store: str,
    watch: Watch,
) -> int:  # fmt: skip
    """Go on with a run that was interrupted, waits for a person, or ended by its budget.

    What has happened is not done again. The model is the one that the run began with, unless another is named; the
    tools are named again, and the budget is the old one but for what is given here.

    \b
    Examples:
      handrail runs resume r_1f2e3d4c --tools shop.tools
      handrail runs resume r_1f2e3d4c --tools shop.tools --max-turns 80
    """
    with opened(store) as kept:
        record = _checked(kept, run, setup, store, watch)
        if record.status == "running":
            watch.tell(f"{run} is taken over: whoever drove it until now records nothing more of it")
        how = _how(record, model, limits)
        return _driven(context, "resume", kept, run, setup, store, watch, **how)


@command.command("fork")
@_run
@click.option(
    "--at-turn", metavar="N", type=click.IntRange(min=1), required=True,
    help="The first turn in which the model is asked anew.",
)  # fmt: skip
@_model
@options.setup
@options.new_budget
@options.kept
@watched
@click.pass_context
def fork(
    context: click.Context, run: str, at_turn: int, model: str | None, setup: Setup, limits: Mapping[str, Any],
    store: str, watch: Watch,
) -> int:  # fmt: skip
    """Begin a new run that has the first turns of another and asks the model anew from a turn on.

    What the other run has written since is not done again without a person's word.

    \b
    Example:
      handrail runs fork r_1f2e3d4c --at-turn 3 --tools shop.tools --model openai:NAME
    """
    with opened(store) as kept:
        record = _checked(kept, run, setup, store, watch)
        how = _how(record, model, limits)
        return _driven(context, "fork", kept, run, setup, store, watch, at_turn=at_turn, **how)


@command.command("replay")
@_run
@options.setup
@options.kept
@watched
@click.pass_context
def replay(context: click.Context, run: str, setup: Setup, store: str, watch: Watch) -> int:
    """Drive a run along its journal alone: no model is asked, no tool is run, nothing is recorded.

    The exit code is that of the run, or 1 when it does not come to the end that is kept.

    \b
    Example:
      handrail runs replay r_1f2e3d4c --tools shop.tools
    """
    with opened(store) as kept:
        record = _checked(kept, run, setup, store, watch)
        how = {} if input_from_json(record.input).output else {"model": Silent()}
        return _driven(context, "replay", kept, run, setup, store, watch, **how)


@dataclass
class Silent:
    """A model that nobody asks, so that a replay needs no key; where the answer has a form its own model shapes it."""

    name: str = "replay"

    async def ask(self, request: Request, listener: Listener | None = None) -> Turn:  # noqa: ARG002
        """See `ports.Model.ask`."""
        raise ModelError("a replay asks no model")


def _checked(kept: Store, run: str, setup: Setup, place: str, watch: Watch) -> RunRecord:
    """Return the run that is to be driven, with tools that it can be driven with.

    Raises:
        ConfigError: There is no such run, or a tool that it was told of is not named again: its next call would be
            answered as if there were none.
    """
    begun = _found(now_of(RUNS.of(kept, place).recorded(run)), run)
    record, told = begun.record, retold(begun)
    setup.check_injected(setup.tools.filter(setup.policy.sees))
    if record.toolset in ("", toolset_digest(setup.tools.snapshot())):
        return record
    missing = [name for name in _awaited(told) if not isinstance(setup.tools.resolve(name), BaseTool)]
    if missing or not len(setup.tools):
        what = f"it has called {', '.join(missing)}" if missing else "it was begun with some"
        raise ConfigError(f"the run {run!r} needs its tools again: {what}; name them with --tools PLACE")
    watch.tell("the tools are not quite those that this run was begun with; calls are checked against those of today")
    return record


def _awaited(told: Retold) -> Sequence[str]:
    """Name the tools whose calls have no result yet. Calls that only give an answer its form never have one."""
    calls = [
        call.name
        for each in told.turns
        for call, result in zip(each.turn.calls, each.results, strict=True)
        if result is None and told.asked.output is None
    ]
    return list(dict.fromkeys(calls))


def _how(record: RunRecord, model: str | None, limits: Mapping[str, Any]) -> dict[str, Any]:
    how: dict[str, Any] = {"model": model} if model else {}
    if limits:
        how["budget"] = replace(budget_from_json(input_from_json(record.input).budget), **limits)
    return how


def _driven(
    context: click.Context, verb: str, kept: Store, run_id: str, setup: Setup, place: str, watch: Watch, **how: Any
) -> int:
    before = now_of(RUNS.of(kept, place).recorded(run_id))
    with redirect_stdout(sys.stderr):  # what tools print is no result
        run = asyncio.run(_drive(verb, kept, run_id, setup, watch, **how))
    if verb == "fork":
        watch.tell(f"{run.id} is the fork of {run_id}")
    code = watch.conclude(run, debugging=is_debugging(context))
    if verb == "replay":
        return _compared(run, before, code, watch)
    watch.tell(way_on(kept, run, setup, place))
    return code


async def _drive(verb: str, kept: Store, run_id: str, setup: Setup, watch: Watch, **how: Any) -> Run:
    here: dict[str, Any] = {"printer": watch.printer, "terminal": setup.consent.terminal, "inject": setup.inject}
    async with setup.runtime(*watch.observers, store=kept) as runtime:
        return await conversing.driven(runtime, getattr(runtime, verb), run_id, **here, **how)


def _compared(run: Run, before: Begun | None, code: Exit, watch: Watch) -> Exit:
    """Say whether a replay came to the end that is kept."""
    ended = before.record.result if before is not None else None
    kept = (ended["status"], ended["text"]) if isinstance(ended, Mapping) else ("", "")
    if kept == (run.status, run.text):
        watch.tell("the replay came to the end that is kept; nothing was asked, run or recorded")
        return code
    click.echo(f"the replay ended otherwise: {run.status}, where {kept[0] or 'no end'} is kept", err=True)
    return Exit.ERROR


@command.command("cancel")
@_run
@options.kept
@options.as_json
@options.debug
def cancel(run: str, store: str, as_json: bool) -> None:
    """End a run, in whatever process it is.

    One that waits is over with that. One that is under way ends at its next step: a write that has begun is finished
    and recorded first.

    \b
    Example:
      handrail runs cancel r_1f2e3d4c
    """
    with RUNS.opened(store) as kept:
        record = _found(now_of(kept.recorded(run)), run).record
        if record.status != "cancelled" and not now_of(kept.request_cancel(run)):
            raise ConfigError(f"the run {run!r} is over ({_stands(record)}); there is nothing to cancel")
        status = _found(now_of(kept.recorded(run)), run).record.status
    if as_json:
        print_json({"run": run, "was": record.status, "status": status})
    elif record.status == "cancelled":
        say(f"{run} was cancelled before")
    elif status == "cancelled":
        say(f"{run} is cancelled; it was {record.status}, and nobody drove it")
    else:
        say(f"{run} has been asked to end; whoever drives it ends it at its next step")


# ---------------------------------------------------------------------- export


@command.command("export")
@click.argument("runs", nargs=-1, required=True)
@click.option(
    "--format", "form", type=click.Choice(list(exporting.FORMS)), default="jsonl", show_default=True,
    help="The journal itself, or conversations to train a model with.",
)  # fmt: skip
@options.tools
@options.kept
@options.debug
def export(runs: Sequence[str], form: str, places: Sequence[str], store: str) -> None:
    """Print runs as lines of JSON, as other programs take them.

    `jsonl` is the journal: the run, then its steps. `openai` is fine-tuning data in the chat form, `hermes` in that of
    the Hermes models; both tell of the tools when these are named, because a journal has only their names. What the
    run was told and did is in it whole, with whatever secrets that held.

    \b
    Examples:
      handrail runs export r_1f2e3d4c > run.jsonl
      handrail runs export r_1f2e3d4c r_5b6a7988 --format openai --tools shop.tools > training.jsonl
    """
    tools: Toolset | None = tools_from(places) if places else None
    with RUNS.opened(store) as kept:
        found = [retold(_found(now_of(kept.recorded(run)), run)) for run in runs]  # all of them, before any is printed
    for each in found:
        for line in exporting.FORMS[form](each, tools):
            click.echo(json.dumps(line, ensure_ascii=False))
