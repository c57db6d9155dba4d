"""`handrail runs`: the runs in a store, whichever process started them."""

from __future__ import annotations

import asyncio
import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import redirect_stdout
from dataclasses import dataclass
from itertools import islice
from shlex import quote
from typing import Any, cast, get_args

import click
from msgspec.structs import replace

from handrail import admin, plugins
from handrail.approvers.terminal import printable
from handrail.cli import (
    completion_names,
    exits,
    interrupts,
    is_debugging,
    options,
    printer,
)
from handrail.cli.exits import Exit
from handrail.cli.next_steps import (
    describe_awaited,
    describe_next_steps,
    doubt_lines,
    undone_writes,
)
from handrail.cli.options import Setup
from handrail.cli.progress import Watch, watch_options
from handrail.cli.run_pages import RunPage
from handrail.cli.store_access import (
    EVERY,
    RUNS,
    command_line,
    is_of_tenant,
    open_store,
    print_json,
    print_table,
    resolve_run_id,
    say,
)
from handrail.cli.timeline import shorten
from handrail.core.budgets import Budget
from handrail.dispatch.submitting import describe_missing_provider
from handrail.engine.nested_runs import outer_run
from handrail.engine.resume import is_under_way
from handrail.engine.scoped_store import parse_scope, qualify_name, strip_scope
from handrail.errors import (
    ConfigError,
    HandrailError,
    Json,
    ModelError,
    RunNameTaken,
    RunUnderWay,
)
from handrail.futures import result_now
from handrail.history.facts import document, facts, question_text, run_status
from handrail.history.run_history import RunHistory, read_history
from handrail.invisible import json_text
from handrail.journal.codec import budget_from_json, input_from_json, toolset_digest
from handrail.messages import Turn
from handrail.ports import (
    ApprovalStore,
    LedgerStore,
    Listener,
    Request,
    RunStore,
    Store,
    SubmittedRunStore,
)
from handrail.process_identity import is_gone
from handrail.records import (
    ApprovalRequest,
    RecordStatus,
    RunRecord,
    StoredRun,
    Submission,
    WriteRecord,
    describe_time,
)
from handrail.runs import Run, describe_ending
from handrail.surroundings.clock import unix_time
from handrail.sync import SyncRuntime
from handrail.tools.tool import BaseTool

_LOOKED_AT = 1_000
"""Among how many writes, the newest ones, `list` looks for runs that calls alone have used."""


@click.group("runs", cls=options.Commands)
def command() -> None:
    """List and show stored runs; resume, wake, cancel, fork, replay and export them.

    A run is stored when it was started with a store: `handrail run --store sqlite:///handrail.db`, or
    `Runtime(store=...)`. Any process can then resume it. Once `handrail.db` exists in the current folder, it is the
    store of every command there; HANDRAIL_STORE and `place` in handrail.toml take precedence.

    \b
    Examples:
      handrail runs list --status waiting
      handrail runs show r_1f2e3d4c
      handrail runs resume r_1f2e3d4c --tools shop.tools
      handrail runs resume --all --tools shop.tools
      handrail runs export --format openai --tools shop.tools
    """


# ---------------------------------------------------------------------- looking


@command.command("list")
@click.option(
    "--status",
    type=click.Choice(get_args(RecordStatus)),
    help="Only runs with this status.",
)
@click.option(
    "-n",
    "most",
    metavar="N",
    type=click.IntRange(min=1),
    default=20,
    show_default=True,
    help="At most.",
)
@options.tenant
@options.store
@options.as_json
@options.debug
def list_runs(
    status: str | None, most: int, tenant: str | None, store: str, as_json: bool
) -> None:
    """List runs, the newest first, then those that calls alone have used, by their last write.

    \b
    Example:
      handrail runs list --status waiting --scope acme
    """
    with RUNS.open(store) as run_store:
        found = result_now(
            run_store.list_runs(
                status=status or "",
                most=min(most + 1, EVERY) if tenant is None else EVERY,
            )
        )
        matching = [each for each in found if is_of_tenant(each.run_id, tenant)]
        records = matching[:most]
        submitted = _list_submitted(run_store, records)
        doubts = _count_doubts(run_store)
        called = [] if status else _list_called(run_store, tenant, most)
    if as_json:
        print_json(
            {
                "calls": [
                    {"run_id": each.run_id, "updated": each.updated, "tool": each.tool}
                    for each in called
                ],
                "runs": [
                    {
                        **facts(each),
                        **_describe_place(each, submitted),
                        "in_doubt": doubts[each.run_id],
                    }
                    for each in records
                ],
            }
        )
        return
    rows = [
        (
            each.run_id,
            f"{run_status(each)}{_describe_carrier(each, submitted)}{_describe_doubts(each, doubts)}",
            describe_time(each.updated),
            f"{shorten(question_text(each))}{_describe_note(each, submitted)}",
        )
        for each in records
    ]
    rows += [
        (each.run_id, "calls alone", describe_time(each.updated), each.tool)
        for each in called
    ]
    which = f"{status} runs" if status else "runs"
    print_table(
        rows,
        ("run", "status", "changed", "question"),
        f"there are no {which} in this store",
    )
    if len(matching) > most:
        click.echo(f"there are more; to see as many again: -n {2 * most}", err=True)


def _list_called(
    store: RunStore, tenant: str | None, most: int
) -> Sequence[WriteRecord]:
    """Return the last write of each run that `handle` and `call` alone have used, among the newest writes.

    Such a run has no journal; one whose calls have only read is in nothing but the audit log.
    """
    if not isinstance(store, LedgerStore):
        return []
    last: dict[str, WriteRecord] = {}
    for write in result_now(store.list_writes(most=_LOOKED_AT)):
        if write.run_id and is_of_tenant(write.run_id, tenant):
            last.setdefault(write.run_id, write)
    newest = {each.run_id for each in result_now(store.list_runs(most=_LOOKED_AT))}
    called = (
        write
        for run_id, write in last.items()
        if run_id not in newest and result_now(store.load_run(run_id)) is None
    )
    return list(islice(called, min(most, _LOOKED_AT)))


def _list_submitted(
    store: RunStore, records: Sequence[RunRecord]
) -> Mapping[str, Submission]:
    """Return how the runs that go to workers are carried out."""
    if not isinstance(store, SubmittedRunStore):
        return {}
    return result_now(store.list_submitted([each.run_id for each in records]))


def _count_doubts(store: RunStore) -> Counter[str]:
    """Count the writes in doubt that nobody has settled, by run."""
    if not isinstance(store, LedgerStore):
        return Counter()
    writes = result_now(store.list_writes(state="in_doubt", most=EVERY))
    return Counter(each.run_id for each in writes)


def _describe_doubts(record: RunRecord, doubts: Mapping[str, int]) -> str:
    """Return how many writes of a run that is over are in doubt, as text behind its status."""
    # before that its process, or the next one, may find out by itself
    if record.status in ("queued", "running") or not doubts.get(record.run_id):
        return ""
    return f", {doubts[record.run_id]} in doubt"


def _describe_carrier(record: RunRecord, submitted: Mapping[str, Submission]) -> str:
    """Return who carries a run out, where it waits for a worker, or that nobody does, as text behind its status."""
    if run_status(record) == "running" and is_gone(record.owner):
        return " (its process died)"
    submission = submitted.get(record.run_id)
    if submission is None:
        return ""
    if record.status == "running":
        return f" in {record.owner.rpartition(':')[0]}"
    if record.status == "queued":
        return f" in {submission.queue}"
    return ""


def _describe_note(record: RunRecord, submitted: Mapping[str, Submission]) -> str:
    """Return why a queued run waits longer than for its turn: on a line of its own, since no column is that wide."""
    submission = submitted.get(record.run_id)
    if submission is None or record.status != "queued" or not submission.note:
        return ""
    return f"\n{printable(submission.note)}"


def _describe_place(
    record: RunRecord, submitted: Mapping[str, Submission]
) -> dict[str, Json]:
    submission = submitted.get(record.run_id)
    if submission is None:
        return {}
    return {
        "queue": submission.queue,
        "priority": submission.priority,
        "segment": submission.segment,
        "note": submission.note,
        "worker": record.owner.rpartition(":")[0],
    }


@command.command("show")
@click.argument("run", shell_complete=completion_names.runs)
@click.option(
    "--wire",
    is_flag=True,
    help="Show the answers as the provider sent them, where it needs them back.",
)
@click.option(
    "--console",
    is_flag=True,
    help="Open the run in the console, in a browser; end with Ctrl-C.",
)
@options.verbose
@options.store
@options.as_json
@options.debug
@click.pass_context
def show(
    context: click.Context,
    run: str,
    wire: bool,
    console: bool,
    verbose: bool,
    store: str,
    as_json: bool,
) -> None:
    """Show a run from its journal alone: question, calls, results, status, and how to go on.

    \b
    Examples:
      handrail runs show r_1f2e3d4c
      handrail runs show r_1f2e3d4c --json | jq .questions
      handrail runs show r_1f2e3d4c --console
    """
    if console:
        _show_in_console(run, store)
        return
    with RUNS.open(store) as run_store:
        run = resolve_run_id(run_store, run)
        if isinstance(run_store, ApprovalStore):
            questions = result_now(run_store.list_approvals(state="", run_id=run))
        else:
            questions = ()
        stored = result_now(run_store.load_run(run))
        if stored is None:
            _show_calls(run, questions, run_store, store, as_json=as_json)
            return
        history = read_history(stored)
        submissions = _list_submitted(run_store, [history.stored.record])
        doubts = doubt_lines(history.stored.steps, run, run_store, store)
        undone = undone_writes(run, run_store)
    if as_json:
        print_json(
            {
                **document(history, questions),
                **_describe_place(history.stored.record, submissions),
                "undone": [{"tool": tool, "step": step} for tool, step in undone],
            }
        )
        return
    taken_back = [f"{tool}, step {step}, was taken back" for tool, step in undone]
    page = RunPage(
        history,
        questions,
        store,
        [*doubts, *taken_back],
        submission=submissions.get(run),
    )
    page.head()
    if is_debugging(context):
        click.echo("\n" + printable(history.as_run().transcript(debug=True), keep="\n"))
    else:
        page.turns(whole=verbose)
    if wire:
        page.wire()
    page.end()


def _show_calls(
    run: str,
    questions: Sequence[ApprovalRequest],
    store: object,
    place: str,
    *,
    as_json: bool,
) -> None:
    """Show what is known of a run that `handle` and `call` alone have used, which has no journal.

    Raises:
        ConfigError: Nothing is.
    """
    writes: Sequence[WriteRecord] = ()
    if isinstance(store, LedgerStore):
        writes = result_now(store.list_writes(run_id=run, most=EVERY))
    if not (writes or questions):
        require_run(None, run)
    now = unix_time()
    if as_json:
        shown = [
            {
                "tool": each.tool,
                "scope": each.scope,
                "key": each.key,
                "state": each.state_at(now),
                "why": each.why(now) or None,
            }
            for each in writes
        ]
        asked = [{"id": each.id, "state": each.state} for each in questions]
        print_json({"run_id": run, "status": None, "writes": shown, "questions": asked})
        return
    say(f"{run} was used by calls alone (`call`, `handle`): there is no journal of it")
    rows = [
        (each.tool, each.key, each.state_at(now).replace("_", " "), each.why(now))
        for each in writes
    ]
    asked_rows = [(each.tool, each.id, each.state, each.reason) for each in questions]
    printer.print_columns(printer.console(), [*rows, *asked_rows])
    say(f"look:    {command_line(f'ledger list --run {quote(run)}', place)}")
    say(f"         {command_line(f'audit tail --run {quote(run)}', place)}")


def _show_in_console(run: str, place: str) -> None:
    with RUNS.open(place) as run_store:
        run = resolve_run_id(run_store, run)
        require_run(result_now(run_store.load_run(run)), run)
    plugins.load("consoles", "browser").show_run(place, run)


def require_run(stored: StoredRun | None, run: str) -> StoredRun:
    """Return a run, or raise the error that there is none of that name."""
    if stored is None:
        raise ConfigError(
            f"there is no run {run!r} in this store; `handrail runs list` lists what there is"
        )
    return stored


# ---------------------------------------------------------------------- runs of workers


@command.command("submit")
@click.argument("question")
@options.model(required=False)
@click.option(
    "--system",
    default="",
    metavar="TEXT",
    help="Instructions for the model, before the question.",
)
@click.option(
    "--queue",
    metavar="NAME",
    default="default",
    show_default=True,
    help="Which workers may take it: those that name this queue, or none.",
)
@click.option(
    "--priority",
    metavar="N",
    type=int,
    default=0,
    show_default=True,
    help="Larger first, among the waiting runs of one tenant.",
)
@click.option(
    "--run-id",
    metavar="NAME",
    default=None,
    help="A name for the run: the same question under the same name is submitted once.",
)
@click.option("--scope", metavar="TENANT", default="", help="The tenant.")
@options.budget
@options.store
@options.as_json
@options.debug
def submit(
    question: str,
    model: str | None,
    system: str,
    queue: str,
    priority: int,
    run_id: str | None,
    scope: str,
    budget: Budget,
    store: str,
    as_json: bool,
) -> None:
    """Store a run for the workers of a store, and print its name; see `handrail worker`.

    QUESTION may be `-` for stdin. Without --model the run is asked of the worker's model.

    \b
    Examples:
      handrail runs submit "Refund order 881" --store postgresql://user@host/database
      run=$(handrail runs submit "Refund order 881") && handrail runs wait $run
    """
    text = options.text_or_stdin(question)
    if not text.strip():
        raise click.UsageError("The question is empty.")
    if store == options.NO_STORE:
        raise RUNS.missing(store)
    with (
        open_store(store, create=True, writes=True) as run_store,
        SyncRuntime([], store=run_store, scope=scope) as runtime,
    ):
        try:
            name = runtime.submit(
                text,
                model=model or "",
                system=system,
                queue=queue,
                priority=priority,
                run_id=run_id,
                idempotent=run_id is not None,
                budget=budget,
            )
        except RunNameTaken:
            stored_name = qualify_name(scope, run_id or "")
            look = command_line(f"runs show {stored_name}", store)
            raise ConfigError(
                f"a run {stored_name!r} is stored already, with another question, model or system message: look at it "
                f"({look}), or give the new one another --run-id"
            ) from None
    if missing := describe_missing_provider(model or ""):
        click.echo(
            printable(
                f"this process has {missing}: the run waits until a worker has it"
            ),
            err=True,
        )
    stored_name = qualify_name(scope, name)
    if as_json:
        print_json({"run_id": stored_name, "queue": queue})
    else:
        click.echo(stored_name)


@command.command("wait")
@click.argument("run", shell_complete=completion_names.runs)
@click.option(
    "--within",
    "within_s",
    metavar="SECONDS",
    type=options.Seconds(min=0),
    default=None,
    help="Give up after so long; without it as long as it takes.",
)
@options.store
@options.as_json
@options.debug
def wait(run: str, within_s: float | None, store: str, as_json: bool) -> int:
    """Wait until a run has ended, or waits for a person, in whichever process; print its answer.

    The exit code tells how it ended, as for `handrail run`; it is 2 if it has not ended within --within.

    \b
    Example:
      handrail runs wait r_1f2e3d4c --within 60
    """
    with RUNS.open(store) as run_store:
        run = resolve_run_id(run_store, run)
        with SyncRuntime([], store=cast(Store, run_store)) as runtime:
            ended = runtime.result(
                strip_scope(run), within_s=within_s, scope=parse_scope(run)
            )
        steps = describe_awaited(run_store, ended, run, store)
    if as_json:
        click.echo(json_text({**ended.as_json(), "run_id": run}))
    else:
        if ended.text:
            click.echo(printable(ended.text, keep="\n"))
        if not ended.ok:
            ending = describe_ending(ended.status, ended.reason, "{status}: {reason}")
            click.echo(printable(f"{run} is {ending}"), err=True)
        if steps:
            click.echo(printable(steps, keep="\n"), err=True)
    return exits.of_run(ended.status, options.call_failures(ended))


# ---------------------------------------------------------------------- driving


_run = click.argument("run", shell_complete=completion_names.runs)
_model = options.model(required=False)


@command.command("resume")
@click.argument("run", required=False, shell_complete=completion_names.runs)
@click.option(
    "--all",
    "every",
    is_flag=True,
    help="Resume every run that can: its process is gone or has left it, or all its questions are answered.",
)
@click.option(
    "--anyway",
    is_flag=True,
    help="Resume it even if it is poisoned or its process is alive.",
)
@_model
@options.setup
@options.new_budget
@options.store
@watch_options
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
    """Resume a run that was interrupted, failed, waits for a person, or used up its budget; or every run that can.

    Completed calls are not repeated. The run keeps its model unless you name another, and its budget except for the
    limits given here; name its tools again. With `--all` the exit code is the highest one, and a run that cannot be
    resumed does not stop the others. Runs that were submitted to workers are left to them: name one to resume it here.

    A run is poisoned when five processes in a row took it over and died in it. It is skipped until somebody has looked
    at it and passes --anyway, or cancels it. A run whose process is alive is taken over if you agree at the terminal or
    pass --anyway; its former process can then record nothing more of it.

    \b
    Examples:
      handrail runs resume r_1f2e3d4c --tools shop.tools
      handrail runs resume r_1f2e3d4c --tools shop.tools --max-turns 80
      handrail runs resume --all --tools shop.tools       # at the start of a machine, or from cron
    """
    if (run is None) is not every:
        raise click.UsageError("name one RUN, or pass --all.")
    if anyway and every:
        raise click.UsageError(
            "--anyway takes one RUN that somebody has looked at; leave out --all."
        )
    with open_store(store, writes=True) as run_store:
        driver = RunDriver(run_store, store, setup, watch, is_debugging(context))
        if run is not None:
            return _resume_run(
                driver, resolve_run_id(run_store, run), model, limits, anyway=anyway
            )
        if poisoned := result_now(
            RUNS.of(run_store, store).list_runs(status="poisoned", most=EVERY)
        ):
            names = ", ".join(record.run_id for record in poisoned)
            watch.tell(
                f"skipped, because poisoned (resume one with `runs resume RUN --anyway`): {names}"
            )
        ready, of_workers = driver.ready()
        if of_workers:
            watch.tell(
                f"left to the workers of this store (resume one with `runs resume RUN`): {', '.join(of_workers)}"
            )
        codes = [_resume_or_report(driver, each, model, limits) for each in ready]
        if not (codes or of_workers):
            watch.tell(
                "nothing to resume: no run was abandoned, and none has all its answers"
            )
        return max(codes, default=Exit.OK)


def _resume_run(
    driver: RunDriver,
    run: str,
    model: str | None,
    limits: Mapping[str, Any],
    *,
    anyway: bool = False,
) -> Exit:
    record = driver.require_tools(run)
    takes_it = anyway or _agrees_to_take(record)
    if takes_it and is_under_way(record) and (anyway or not record.is_poisoned):
        driver.watch.tell(
            f"{run} is taken over: its former process can record nothing more of it"
        )
    insisting = {"anyway": True} if takes_it else {}
    return driver.conclude(
        driver.drive(
            "resume",
            run,
            **_run_settings(record, model, limits),
            **insisting,
        )
    )


def _agrees_to_take(record: RunRecord) -> bool:
    """Ask at the terminal whether to take a run from a living process; without a terminal the answer is no."""
    if record.is_poisoned or not is_under_way(record) or not sys.stdin.isatty():
        return False
    who = f"{record.run_id} is under way in another process, which is alive ({record.owner.rpartition(':')[0]})."
    return click.confirm(f"{who} Take it from there?", default=False, err=True)


def _resume_or_report(
    driver: RunDriver, run: str, model: str | None, limits: Mapping[str, Any]
) -> Exit:
    driver.watch.tell(f"\n{run}")
    try:
        return _resume_run(driver, run, model, limits)
    except RunUnderWay:
        driver.watch.tell("another process has resumed it")
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
    help="The first turn in which the model is asked again.",
)
@_model
@options.setup
@options.new_budget
@options.store
@watch_options
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
    """Start a new run from the first turns of another; the model is asked again from the given turn on.

    Writes that the other run made after that turn are not repeated without a person's approval.

    \b
    Example:
      handrail runs fork r_1f2e3d4c --at-turn 3 --tools shop.tools --model openai:NAME
    """
    with open_store(store, writes=True) as run_store:
        driver = RunDriver(run_store, store, setup, watch, is_debugging(context))
        run = resolve_run_id(run_store, run)
        fork_run = driver.drive(
            "fork",
            run,
            at_turn=at_turn,
            **_run_settings(driver.require_tools(run), model, limits),
        )
        watch.tell(f"{fork_run.id} is the fork of {run}")
        return driver.conclude(fork_run)


@command.command("replay")
@_run
@options.setup
@options.store
@watch_options
@click.pass_context
def replay(
    context: click.Context, run: str, setup: Setup, store: str, watch: Watch
) -> int:
    """Replay a run from its journal alone: no model is asked, no tool runs, nothing is recorded.

    The exit code is that of the run, or 1 when the replay ends differently.

    \b
    Example:
      handrail runs replay r_1f2e3d4c --tools shop.tools
    """
    with open_store(store) as run_store:
        driver = RunDriver(run_store, store, setup, watch, is_debugging(context))
        run = resolve_run_id(run_store, run)
        record = driver.require_tools(run)
        replay_run = driver.drive("replay", run, **_replay_settings(record))
    code = watch.conclude(replay_run, debugging=is_debugging(context))
    return _compare_with_record(replay_run, record, code, watch)


@dataclass
class UnaskedModel:
    """A model that must not be asked."""

    name: str = "replay"

    async def ask(self, request: Request, listener: Listener | None = None) -> Turn:  # noqa: ARG002  # `ports.Model`
        """See `ports.Model.ask`."""
        raise ModelError("a replay asks no model")


@dataclass(frozen=True, slots=True)
class RunDriver:
    """Drives a stored run: its store, tools and consent, and who watches."""

    store: Store
    place: str
    setup: Setup
    watch: Watch
    debugging: bool

    def require_tools(self, run: str) -> RunRecord:
        """Return the run, if the tools that it needs are here.

        Raises:
            ConfigError: There is no such run, or a tool that it has called is missing: the waiting call would be
                answered as one of an unknown tool.
        """
        stored = require_run(
            result_now(RUNS.of(self.store, self.place).load_run(run)), run
        )
        tools = self.setup.tools
        self.setup.check_injected(tools.filter(self.setup.policy.sees))
        if stored.record.toolset in ("", toolset_digest(tools.snapshot())):
            return stored.record
        missing = [
            name
            for name in _pending_tools(read_history(stored))
            if not isinstance(tools.resolve(name), BaseTool)
        ]
        if missing:
            raise _tools_missing(run, f"it has called {', '.join(missing)}")
        if stored.record.toolset == toolset_digest(()):
            # the process that submitted it had none, and left them to the worker
            return stored.record
        if not len(tools):
            raise _tools_missing(run, "it started with some")
        self.watch.tell(
            "the tools differ from those that this run started with; calls are checked against today's"
        )
        return stored.record

    def ready(self) -> tuple[Sequence[str], Sequence[str]]:
        """Name the runs to resume here, the oldest first; and, apart from them, those that are left to workers.

        A run that a call started follows its outer run. A run of workers may wait in a queue that this process does
        not know, or for a model that is away.
        """
        runs = result_now(RUNS.of(self.store, self.place).list_runs(most=EVERY))
        inside = _list_inner_runs(runs)
        driven_by_outer = {
            inner
            for record in runs
            if record.status in ("queued", "running", "waiting")
            for inner in inside.get(record.run_id, ())
        }
        ready = [
            record.run_id
            for record in reversed(runs)
            if self._can_go_on(record, inside.get(record.run_id, ()))
        ]
        found = [run_id for run_id in ready if run_id not in driven_by_outer]
        of_workers = (
            result_now(self.store.list_submitted(found))
            if isinstance(self.store, SubmittedRunStore)
            else {}
        )
        return (
            [run_id for run_id in found if run_id not in of_workers],
            [run_id for run_id in found if run_id in of_workers],
        )

    def _can_go_on(self, record: RunRecord, inside: Sequence[str]) -> bool:
        if record.status == "waiting" and isinstance(self.store, ApprovalStore):
            names = (record.run_id, *inside)
            requests = [
                each
                for name in names
                for each in result_now(self.store.list_approvals(state="", run_id=name))
            ]
            return bool(requests) and all(
                question.state != "open" for question in requests
            )
        return record.status == "queued" or (
            record.status == "running" and is_gone(record.owner)
        )

    def drive(self, verb: str, run: str, **how: Any) -> Run:
        """Drive a run by one of the runtime's verbs."""
        with redirect_stdout(sys.stderr):  # what tools print is no result
            return asyncio.run(self._drive(verb, run, **how))

    async def _drive(self, verb: str, run: str, **how: Any) -> Run:
        setup = self.setup
        watch = self.watch
        here: dict[str, Any] = {
            "printer": watch.printer,
            "terminal": setup.consent.terminal,
            "inject": setup.inject,
        }
        # commands name runs as they are stored, a runtime those of its scope
        scope = parse_scope(run)
        async with setup.runtime(
            *watch.observers, store=self.store, scope=scope
        ) as runtime:
            run_after = await interrupts.drive(
                runtime,
                getattr(runtime, verb),
                strip_scope(run),
                **here,
                **how,
            )
        return replace(run_after, id=qualify_name(scope, run_after.id))

    def conclude(self, run: Run) -> Exit:
        """Print the result of a run and the next steps; return the exit code."""
        code = self.watch.conclude(run, debugging=self.debugging)
        self.watch.tell(describe_next_steps(self.store, run, self.setup, self.place))
        return code


def _list_inner_runs(runs: Sequence[RunRecord]) -> Mapping[str, Sequence[str]]:
    """Return the runs inside of each outer run, however deep."""
    inside: dict[str, list[str]] = {}
    for record in runs:
        outer = outer_run(record.run_id)
        while outer:
            inside.setdefault(outer, []).append(record.run_id)
            outer = outer_run(outer)
    return inside


def _tools_missing(run: str, reason: str) -> ConfigError:
    return ConfigError(
        f"the run {run!r} needs its tools: {reason}; name them with --tools PLACE"
    )


def _pending_tools(history: RunHistory) -> Sequence[str]:
    """Name the tools whose calls have no result yet. Calls that only give an answer its form never have one."""
    calls = [
        call.name
        for each in history.turns
        for call, result in zip(each.turn.calls, each.results, strict=True)
        if result is None and history.asked.output is None
    ]
    return list(dict.fromkeys(calls))


def _run_settings(
    record: RunRecord, model: str | None, limits: Mapping[str, Any]
) -> dict[str, Any]:
    how: dict[str, Any] = {"model": model} if model else {}
    if limits:
        how["budget"] = replace(
            budget_from_json(input_from_json(record.input).budget), **limits
        )
    return how


def _replay_settings(record: RunRecord) -> dict[str, Any]:
    """Return the settings of a replay without a key; structured output needs its own model, which is not asked."""
    if input_from_json(record.input).output:
        return {}
    return {"model": UnaskedModel()}


def _compare_with_record(run: Run, record: RunRecord, code: Exit, watch: Watch) -> Exit:
    """Print whether a replay ended as recorded."""
    ending = record.result
    if isinstance(ending, Mapping):
        recorded = (ending["status"], ending["text"])
    else:
        recorded = ("", "")
    if recorded == (run.status, run.text):
        watch.tell("the replay ended as recorded; nothing was asked, run or recorded")
        return code
    click.echo(
        f"the replay ended differently: {run.status}, where {recorded[0] or 'no end'} is recorded",
        err=True,
    )
    return Exit.ERROR


@command.command("cancel")
@_run
@options.decider
@options.store
@options.as_json
@options.debug
def cancel(run: str, by: str, store: str, as_json: bool) -> None:
    """Cancel a run, in whatever process it is.

    A waiting run ends at once. A run under way ends at its next step: a write that has started is finished and recorded
    first.

    \b
    Example:
      handrail runs cancel r_1f2e3d4c
    """
    with RUNS.open(store) as run_store:
        run = resolve_run_id(run_store, run)
        record = require_run(result_now(run_store.load_run(run)), run).record
        status = record.status
        if status != "cancelled":
            status = admin.cancel(run_store, run, by=by).status
    if as_json:
        print_json({"run_id": run, "was": record.status, "status": status})
    elif record.status == "cancelled":
        say(f"{run} was cancelled already")
    elif status == "cancelled":
        say(
            f"{run} is cancelled; it was {record.status}, and no process was driving it"
        )
    elif is_gone(record.owner):
        say(
            f"{run} is asked to end; its process is gone, so it ends when another process resumes it"
        )
    else:
        say(f"{run} is asked to end; its process ends it at its next step")


@command.command("wake")
@click.argument(
    "runs", metavar="[RUN]...", nargs=-1, shell_complete=completion_names.runs
)
@click.option(
    "--all",
    "every",
    is_flag=True,
    help="Wake every run that waits for its model.",
)
@options.store
@options.as_json
@options.debug
def wake(runs: Sequence[str], every: bool, store: str, as_json: bool) -> Exit:
    """Let runs of workers whose model was away ask it now, before their wait is over.

    A worker carries them on. A run that waits for anything else is named and left: for a person, or for what an earlier
    process may still do. If the model is away still, the run waits again, for seconds at first.

    \b
    Examples:
      handrail runs wake r_1f2e3d4c
      handrail runs wake --all        # the provider is back
    """
    if bool(runs) is every:
        raise click.UsageError("name at least one RUN, or pass --all.")
    woken: list[str] = []
    left: dict[str, str] = {}
    with RUNS.open(store) as run_store:
        if every:
            names = _list_postponed(run_store)
        else:
            names = [resolve_run_id(run_store, run) for run in runs]
        for name in dict.fromkeys(names):
            try:
                admin.wake(run_store, name)
                woken.append(name)
            except ConfigError as error:
                left[name] = str(error)
    if as_json:
        print_json({"woken": woken, "left": left})
    else:
        for name in woken:
            say(f"{name} is queued: its model is asked again now")
        for reason in left.values():
            click.echo(printable(reason), err=True)
        if not (woken or left):
            say("nothing to wake: no run waits for its model")
    return Exit.USAGE if left and not every else Exit.OK


def _list_postponed(store: RunStore) -> list[str]:
    """Name the queued runs that wait for a time, the oldest first."""
    queued = result_now(store.list_runs(status="queued", most=EVERY))
    submitted = _list_submitted(store, queued)
    return [
        each.run_id
        for each in reversed(queued)
        if each.run_id in submitted and submitted[each.run_id].wake_at
    ]
