"""`handrail runs`: runs that are kept in a store, in whatever process they began."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Mapping, Sequence
from contextlib import redirect_stdout
from dataclasses import dataclass
from typing import Any, get_args

import click
from msgspec.structs import replace

from handrail import admin
from handrail.approvers.terminal import printable
from handrail.cli import completion_names, exits, exporting, interrupts, is_debugging, options
from handrail.cli.exits import Exit
from handrail.cli.loading import tools_from
from handrail.cli.next_steps import lines_on, way_on
from handrail.cli.options import Setup
from handrail.cli.progress import Watch, watched
from handrail.cli.run_history import RunHistory, retold
from handrail.cli.run_pages import Page, document, facts, question_in, stands
from handrail.cli.store_access import (
    EVERY,
    RUNS,
    moment,
    opened,
    print_json,
    print_table,
    run_named,
    say,
)
from handrail.cli.timeline import shortened
from handrail.engine.nested_runs import outer_run
from handrail.engine.resume import is_under_way
from handrail.engine.scoped_store import kept_name, name_in, scope_of
from handrail.errors import ConfigError, HandrailError, ModelError, RunUnderWay
from handrail.futures import result_now
from handrail.invisible import json_text
from handrail.journal.codec import budget_from_json, input_from_json, toolset_digest
from handrail.messages import Turn
from handrail.ports import ApprovalStore, Listener, Request, Store
from handrail.process_identity import is_gone
from handrail.records import RecordStatus, RunRecord, StoredRun
from handrail.runs import Run
from handrail.tools.tool import BaseTool
from handrail.tools.toolset import Toolset


@click.group("runs", cls=options.Commands)
def command() -> None:
    """Look at kept runs, go on with them, cancel, fork, replay and export them.

    A run is kept when it was begun with a store: `handrail run --store sqlite:///handrail.db`, or
    `Runtime(store=...)`. Any process can then go on with it. Once `handrail.db` lies in the present folder, it is the
    store of every command there; HANDRAIL_STORE and `place` in handrail.toml go before it.

    \b
    Examples:
      handrail runs list --status waiting
      handrail runs show r_1f2e3d4c
      handrail runs resume r_1f2e3d4c --tools shop.tools
      handrail runs resume --all --tools shop.tools
      handrail runs export r_1f2e3d4c --format openai --tools shop.tools
    """


# ---------------------------------------------------------------------- looking


@command.command("list")
@click.option("--status", type=click.Choice(get_args(RecordStatus)), help="Only runs that stand so.")
@click.option("-n", "most", metavar="N", type=click.IntRange(min=1), default=20, show_default=True, help="At most.")
@options.store
@options.as_json
@options.debug
def list_runs(status: str | None, most: int, store: str, as_json: bool) -> None:
    """List runs, the newest first.

    \b
    Example:
      handrail runs list --status waiting
    """
    with RUNS.opened(store) as kept:
        records = result_now(kept.list_runs(status=status or "", most=most))
    if as_json:
        print_json({"runs": [facts(record) for record in records]})
        return
    rows = [(each.run_id, stands(each), moment(each.updated), shortened(question_in(each))) for each in records]
    of = f" that stand as {status}" if status else ""
    print_table(rows, ("run", "stands", "changed", "question"), f"there are no runs{of} in this store")


@command.command("show")
@click.argument("run", shell_complete=completion_names.runs)
@click.option("--wire", is_flag=True, help="Show the answers as the provider sent them, where it needs them back.")
@options.verbose
@options.store
@options.as_json
@options.debug
@click.pass_context
def show(
    context: click.Context,
    run: str,
    wire: bool,
    verbose: bool,
    store: str,
    as_json: bool,
) -> None:
    """Tell the story of a run from its journal alone: question, calls, results, where it stands, how it can go on.

    \b
    Examples:
      handrail runs show r_1f2e3d4c
      handrail runs show r_1f2e3d4c --json | jq .questions
    """
    with RUNS.opened(store) as kept:
        run = run_named(kept, run)
        told = retold(_found(result_now(kept.load_run(run)), run))
        if isinstance(kept, ApprovalStore):
            questions = result_now(kept.list_approvals(state="", run_id=run))
        else:
            questions = ()
        doubts = lines_on(told.begun.steps, run, kept, store)
    if as_json:
        print_json(document(told, questions))
        return
    page = Page(told, questions, store, doubts)
    page.head()
    if is_debugging(context):
        click.echo("\n" + printable(told.as_run().transcript(debug=True), keep="\n"))
    else:
        page.turns(whole=verbose)
    if wire:
        page.wire()
    page.end()


def _found(begun: StoredRun | None, run: str) -> StoredRun:
    if begun is None:
        raise ConfigError(f"there is no run {run!r} in this store; `handrail runs list` shows those that there are")
    return begun


# ---------------------------------------------------------------------- driving


_run = click.argument("run", shell_complete=completion_names.runs)
_model = options.model(required=False)


@command.command("resume")
@click.argument("run", required=False, shell_complete=completion_names.runs)
@click.option(
    "--all",
    "every",
    is_flag=True,
    help="Every run that can go on: its process is gone or has left it, or all that it waits for is answered.",
)
@click.option("--anyway", is_flag=True, help="Also when it is poisoned, or when its process lives.")
@_model
@options.setup
@options.new_budget
@options.store
@watched
@click.pass_context
def resume(
    context: click.Context,
    run: str | None,
    every: bool,
    anyway: bool,
    model: str | None,
    setup: Setup,
    limits: Mapping[str, Any],
    store: str,
    watch: Watch,
) -> int:
    """Go on with a run that was interrupted, waits for a person, or ended by its budget; or with every one that can.

    What has happened is not done again. The model is the one that the run began with, unless another is named; the
    tools are named again, and the budget is the old one but for what is given here. With `--all` the exit code is the
    highest of them, and one that cannot go on hinders no other.

    A run that was taken over five times in a row by processes that died in it is poisoned. It is left alone until
    somebody has looked and says --anyway, or cancels it. A run whose process lives is taken from it when you agree at
    the terminal, or say --anyway: that process then records nothing more of it.

    \b
    Examples:
      handrail runs resume r_1f2e3d4c --tools shop.tools
      handrail runs resume r_1f2e3d4c --tools shop.tools --max-turns 80
      handrail runs resume --all --tools shop.tools       # at the start of a machine, or from cron
    """
    if (run is None) is not every:
        raise click.UsageError("name one RUN, or say --all.")
    if anyway and every:
        raise click.UsageError("--anyway is said of one RUN that somebody has looked at, not of all.")
    with opened(store, writes=True) as kept:
        wheel = Wheel(kept, store, setup, watch, is_debugging(context))
        if run is not None:
            return _resumed(wheel, run_named(kept, run), model, limits, anyway=anyway)
        if poisoned := result_now(RUNS.of(kept, store).list_runs(status="poisoned", most=EVERY)):
            names = ", ".join(record.run_id for record in poisoned)
            watch.tell(f"left alone, because poisoned (runs resume RUN --anyway insists): {names}")
        codes = [_resumed_or_told(wheel, each, model, limits) for each in wheel.ready()]
        if not codes:
            watch.tell("no run can go on by itself: none was left by its process, and none has all its answers")
        return max(codes, default=Exit.OK)


def _resumed(wheel: Wheel, run: str, model: str | None, limits: Mapping[str, Any], *, anyway: bool = False) -> Exit:
    record = wheel.checked(run)
    takes_it = anyway or _agrees_to_take(record)
    if takes_it and is_under_way(record) and (anyway or not record.is_poisoned):
        wheel.watch.tell(f"{run} is taken over: whoever drove it until now records nothing more of it")
    insisting = {"anyway": True} if takes_it else {}
    return wheel.ended(
        wheel.driven(
            "resume",
            run,
            **_how(record, model, limits),
            **insisting,
        )
    )


def _agrees_to_take(record: RunRecord) -> bool:
    """Ask at the terminal whether to take a run from a living process; without a terminal the answer is no."""
    if record.is_poisoned or not is_under_way(record) or not sys.stdin.isatty():
        return False
    who = f"{record.run_id} is under way in another process, which lives ({record.owner.rpartition(':')[0]})."
    return click.confirm(f"{who} Take it from there?", default=False, err=True)


def _resumed_or_told(wheel: Wheel, run: str, model: str | None, limits: Mapping[str, Any]) -> Exit:
    wheel.watch.tell(f"\n{run}")
    try:
        return _resumed(wheel, run, model, limits)
    except RunUnderWay:
        wheel.watch.tell("another process has begun to go on with it")
        return Exit.OK
    except HandrailError as error:
        click.echo(printable(f"{run}: {error}"), err=True)
        return exits.of_error(error)


@command.command("fork")
@_run
@click.option(
    "--at-turn",
    metavar="N",
    type=click.IntRange(min=1),
    required=True,
    help="The first turn in which the model is asked anew.",
)
@_model
@options.setup
@options.new_budget
@options.store
@watched
@click.pass_context
def fork(
    context: click.Context,
    run: str,
    at_turn: int,
    model: str | None,
    setup: Setup,
    limits: Mapping[str, Any],
    store: str,
    watch: Watch,
) -> int:
    """Begin a new run that has the first turns of another and asks the model anew from a turn on.

    What the other run has written since is not done again without a person's word.

    \b
    Example:
      handrail runs fork r_1f2e3d4c --at-turn 3 --tools shop.tools --model openai:NAME
    """
    with opened(store, writes=True) as kept:
        wheel = Wheel(kept, store, setup, watch, is_debugging(context))
        run = run_named(kept, run)
        forked = wheel.driven(
            "fork",
            run,
            at_turn=at_turn,
            **_how(wheel.checked(run), model, limits),
        )
        watch.tell(f"{forked.id} is the fork of {run}")
        return wheel.ended(forked)


@command.command("replay")
@_run
@options.setup
@options.store
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
        wheel = Wheel(kept, store, setup, watch, is_debugging(context))
        run = run_named(kept, run)
        record = wheel.checked(run)
        replayed = wheel.driven("replay", run, **_silent(record))
    code = watch.conclude(replayed, debugging=is_debugging(context))
    return _compared(replayed, record, code, watch)


@dataclass
class Silent:
    """A model that nobody asks."""

    name: str = "replay"

    async def ask(self, request: Request, listener: Listener | None = None) -> Turn:  # noqa: ARG002
        """See `ports.Model.ask`."""
        raise ModelError("a replay asks no model")


@dataclass(frozen=True, slots=True)
class Wheel:
    """What a kept run is driven with: the store that keeps it, tools and consent, and who looks on."""

    kept: Store
    place: str
    setup: Setup
    watch: Watch
    debugging: bool

    def checked(self, run: str) -> RunRecord:
        """Return the run, if the tools are there that it can be driven with.

        Raises:
            ConfigError: There is no such run, or a tool that it has called is not named again: the call that waits
                would be answered as if there were none.
        """
        begun = _found(result_now(RUNS.of(self.kept, self.place).load_run(run)), run)
        tools = self.setup.tools
        self.setup.check_injected(tools.filter(self.setup.policy.sees))
        if begun.record.toolset in ("", toolset_digest(tools.snapshot())):
            return begun.record
        missing = [name for name in _awaited(retold(begun)) if not isinstance(tools.resolve(name), BaseTool)]
        if missing or not len(tools):
            if missing:
                what = f"it has called {', '.join(missing)}"
            else:
                what = "it was begun with some"
            raise ConfigError(f"the run {run!r} needs its tools again: {what}; name them with --tools PLACE")
        self.watch.tell("the tools are not quite those that this run was begun with; calls are checked by today's")
        return begun.record

    def ready(self) -> Sequence[str]:
        """Name the runs that can go on, the oldest first. What a run's call started goes on with that run alone."""
        runs = result_now(RUNS.of(self.kept, self.place).list_runs(most=EVERY))
        unfinished = {record.run_id for record in runs if record.status in ("queued", "running", "waiting")}
        inside: dict[str, list[str]] = {}
        for record in runs:
            outer = outer_run(record.run_id)
            while outer:
                inside.setdefault(outer, []).append(record.run_id)
                outer = outer_run(outer)
        left_to_others = {name for outer in unfinished for name in inside.get(outer, ())}
        ready = [record for record in reversed(runs) if self._can_go_on(record, inside.get(record.run_id, ()))]
        return [record.run_id for record in ready if record.run_id not in left_to_others]

    def _can_go_on(self, record: RunRecord, inside: Sequence[str]) -> bool:
        if record.status == "waiting" and isinstance(self.kept, ApprovalStore):
            names = (record.run_id, *inside)
            asked = [each for name in names for each in result_now(self.kept.list_approvals(state="", run_id=name))]
            return bool(asked) and all(question.state != "open" for question in asked)
        return record.status == "queued" or (record.status == "running" and is_gone(record.owner))

    def driven(self, verb: str, run: str, **how: Any) -> Run:
        """Drive a run by one of the runtime's verbs."""
        with redirect_stdout(sys.stderr):  # what tools print is no result
            return asyncio.run(self._drive(verb, run, **how))

    async def _drive(self, verb: str, run: str, **how: Any) -> Run:
        setup = self.setup
        watch = self.watch
        here: dict[str, Any] = {"printer": watch.printer, "terminal": setup.consent.terminal, "inject": setup.inject}
        scope = scope_of(run)  # commands name runs as they are kept, a runtime those of its scope
        async with setup.runtime(*watch.observers, store=self.kept, scope=scope) as runtime:
            ended = await interrupts.driven(
                runtime,
                getattr(runtime, verb),
                name_in(run),
                **here,
                **how,
            )
        return replace(ended, id=kept_name(scope, ended.id))

    def ended(self, run: Run) -> Exit:
        """Print what came of a run, and what may be done next; return the exit code."""
        code = self.watch.conclude(run, debugging=self.debugging)
        self.watch.tell(way_on(self.kept, run, self.setup, self.place))
        return code


def _awaited(told: RunHistory) -> Sequence[str]:
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


def _silent(record: RunRecord) -> dict[str, Any]:
    """Return what replays without a key. An answer with a form needs its own model, which is not asked either."""
    if input_from_json(record.input).output:
        return {}
    return {"model": Silent()}


def _compared(run: Run, record: RunRecord, code: Exit, watch: Watch) -> Exit:
    """Say whether a replay came to the end that is kept."""
    ended = record.result
    if isinstance(ended, Mapping):
        kept = (ended["status"], ended["text"])
    else:
        kept = ("", "")
    if kept == (run.status, run.text):
        watch.tell("the replay came to the end that is kept; nothing was asked, run or recorded")
        return code
    click.echo(f"the replay ended otherwise: {run.status}, where {kept[0] or 'no end'} is kept", err=True)
    return Exit.ERROR


@command.command("cancel")
@_run
@options.decided_by
@options.store
@options.as_json
@options.debug
def cancel(run: str, by: str, store: str, as_json: bool) -> None:
    """End a run, in whatever process it is.

    One that waits is over with that. One that is under way ends at its next step: a write that has begun is finished
    and recorded first.

    \b
    Example:
      handrail runs cancel r_1f2e3d4c
    """
    with RUNS.opened(store) as kept:
        run = run_named(kept, run)
        record = _found(result_now(kept.load_run(run)), run).record
        status = record.status
        if status != "cancelled":
            status = admin.cancel(kept, run, by=by).status
    if as_json:
        print_json({"run_id": run, "was": record.status, "status": status})
    elif record.status == "cancelled":
        say(f"{run} was cancelled before")
    elif status == "cancelled":
        say(f"{run} is cancelled; it was {record.status}, and nobody drove it")
    elif is_gone(record.owner):
        say(f"{run} has been asked to end; its process is gone, so it ends with the next one that goes on with it")
    else:
        say(f"{run} has been asked to end; whoever drives it ends it at its next step")


# ---------------------------------------------------------------------- export


@command.command("export")
@click.argument("runs", nargs=-1, required=True, shell_complete=completion_names.runs)
@click.option(
    "--format",
    "form",
    type=click.Choice(list(exporting.FORMS)),
    default="jsonl",
    show_default=True,
    help="The journal itself, or conversations to train a model with.",
)
@options.tools
@options.store
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
    tools: Toolset | None
    if places:
        tools = tools_from(places)
    else:
        tools = None
    with RUNS.opened(store) as kept:
        runs = [run_named(kept, run) for run in runs]
        found = [
            retold(_found(result_now(kept.load_run(run)), run)) for run in runs
        ]  # all of them, before any is printed
    for each in found:
        for line in exporting.FORMS[form](each, tools):
            click.echo(json_text(line))
