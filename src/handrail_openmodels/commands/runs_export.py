"""`handrail runs export`: runs as training data, or their journals."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, get_args

import click

from handrail.cli import completion_names, options
from handrail.cli.commands.runs import require_run
from handrail.cli.loading import tools_from
from handrail.cli.store_access import RUNS, resolve_run_id
from handrail.core.conversation import Status
from handrail.errors import Json
from handrail.futures import result_now
from handrail.history import exporting
from handrail.history.run_history import read_history
from handrail.invisible import json_text, printable
from handrail.ports import RunStore
from handrail.records import RecordStatus, StoredRun
from handrail.tools.toolset import Toolset
from handrail_openmodels.training import Mistakes, Selection, TrainingExport, forms
from handrail_openmodels.training.exporting import load_runs
from handrail_openmodels.training.selection import LeftOut

JOURNAL = "jsonl"
"""The form of an export that is the journal itself."""

_STATUSES = [*dict.fromkeys((*get_args(Status), *get_args(RecordStatus))), "any"]
_DATE = click.DateTime(["%Y-%m-%d", "%Y-%m-%dT%H:%M:%S"])


@click.command("export")
@click.argument("runs", nargs=-1, shell_complete=completion_names.runs)
@click.option(
    "--format",
    "form",
    type=click.Choice([JOURNAL, *forms.NAMES]),
    default=JOURNAL,
    show_default=True,
    help="The journal itself, or rows to train a model with.",
)
@options.tools
@click.option(
    "--status",
    "statuses",
    metavar="STATUS",
    type=click.Choice(_STATUSES),
    multiple=True,
    help="Only runs that ended so; `any` for all.  [default: done, unless runs are named]",
)
@click.option(
    "--tool",
    "called",
    metavar="NAME",
    multiple=True,
    help="Only runs that called one of these tools.",
)
@click.option(
    "--tag",
    "tags",
    metavar="TAG",
    multiple=True,
    help="Only runs that called a tool with this tag; needs --tools.",
)
@click.option("--since", type=_DATE, help="Only runs that began then or later (UTC).")
@click.option("--until", type=_DATE, help="Only runs that began before (UTC).")
@click.option(
    "--min-calls",
    type=click.IntRange(min=0),
    default=0,
    help="Only runs with at least so many calls.",
)
@click.option(
    "--max-calls",
    type=click.IntRange(min=0),
    default=None,
    help="Only runs with at most so many calls.",
)
@click.option(
    "--mistakes",
    type=click.Choice(get_args(Mistakes)),
    default=None,
    help="Refused calls: mark them as not to be learnt, leave them out, or teach them.  "
    "[default: mask where the form can, else drop]",
)
@click.option(
    "--redact/--no-redact",
    default=None,
    help="Take secrets out of training data.  [default: redact]",
)
@options.tenant
@options.store
@options.debug
def command(
    runs: Sequence[str],
    form: str,
    places: Sequence[str],
    mistakes: Mistakes | None,
    redact: bool | None,
    store: str,
    **chosen: Any,
) -> None:
    """Print runs as lines of JSON: as training data, or their journals.

    Without names, all runs that the options select are exported. Training data describes the tools if you name them,
    since a journal has only their names. For training data, stderr says what was left out, and why.

    `jsonl` is the journal: the run, then its steps. It is complete: secrets in the conversation are in it too.

    \b
    Examples:
      handrail runs export r_1f2e3d4c > run.jsonl
      handrail runs export --format openai --tools shop.tools --since 2026-11-01 > training.jsonl
      handrail runs export --format preference --tools shop.tools --status any > pairs.jsonl
    """
    if form == JOURNAL:
        _refuse_options_of_rows(mistakes, redact)
    elif form == forms.PREFERENCE and mistakes is not None:
        raise click.UsageError(
            f"--mistakes is for the other forms; {form} makes a pair of each mistake that was corrected."
        )
    selection = _selection(named=bool(runs), **chosen)
    if selection.tags and not places:
        raise click.UsageError(
            "--tag needs --tools, since a journal has only the names of tools."
        )
    tools = tools_from(places) if places else None
    work: TrainingExport | None = None
    if form != JOURNAL:
        work = TrainingExport(
            form,
            tools=tools,
            selection=selection,
            redact=redact is not False,
            mistakes=mistakes,
        )
    with RUNS.open(store) as run_store:
        stored = _load_named(run_store, runs) if runs else load_runs(run_store)
        if work is None:
            for line in _read_journals(stored, selection, tools):
                click.echo(json_text(line))
            return
        for row in work.rows(stored, run_store):
            click.echo(json_text(row))
    for sentence in work.summary.lines():
        click.echo(printable(sentence), err=True)


def _load_named(run_store: RunStore, runs: Sequence[str]) -> list[StoredRun]:
    """Return runs by name; all must exist and be readable before any is printed."""
    found = []
    for run in runs:
        name = resolve_run_id(run_store, run)
        stored = require_run(result_now(run_store.load_run(name)), name)
        read_history(stored)
        found.append(stored)
    return found


def _read_journals(
    runs: Iterable[StoredRun], selection: Selection, tools: Toolset | None
) -> Iterator[Mapping[str, Json]]:
    for stored in runs:
        try:
            selection.read(stored, tools)
        except LeftOut:
            continue
        yield from exporting.journal_lines(stored)


def _refuse_options_of_rows(mistakes: Mistakes | None, redact: bool | None) -> None:
    """Refuse options of training data for a journal, which is printed as it was recorded."""
    given = {"--redact": redact is True, "--mistakes": mistakes is not None}
    for option, is_given in given.items():
        if is_given:
            raise click.UsageError(
                f"{option} is for training data (--format {forms.NAMES[0]} and others); "
                f"{JOURNAL} prints the journal as it was recorded, secrets and all."
            )


def _selection(
    *,
    named: bool,
    statuses: Sequence[str],
    called: Sequence[str],
    tags: Sequence[str],
    since: datetime | None,
    until: datetime | None,
    min_calls: int,
    max_calls: int | None,
    tenant: str | None,
) -> Selection:
    if not statuses:
        statuses = () if named else ("done",)
    return Selection(
        statuses=() if "any" in statuses else statuses,
        tools=called,
        tags=tags,
        since=since.replace(tzinfo=UTC).timestamp() if since else 0.0,
        until=until.replace(tzinfo=UTC).timestamp() if until else float("inf"),
        min_calls=min_calls,
        max_calls=max_calls,
        scope=tenant,
    )
