"""`handrail store`: the contents of a durable store, copies of it, and what can be deleted."""

from __future__ import annotations

import signal
from collections.abc import Callable, Mapping
from contextlib import closing
from datetime import UTC, datetime
from threading import Event
from typing import Any, TypeVar

import click
from msgspec.structs import asdict

from handrail import plugins
from handrail.audit import log_key
from handrail.cli import options, settings
from handrail.cli.exits import Exit
from handrail.cli.options import STORE_HERE
from handrail.cli.printer import console, print_columns
from handrail.errors import ConfigError
from handrail.invisible import json_text
from handrail.records import describe_time
from handrail.stores import maintenance, retention
from handrail.stores.durable import DurableStore
from handrail.stores.sqlite import path_from_url

F = TypeVar("F", bound=Callable[..., Any])

_NOUNS = {
    "effects": "writes",
    "acts": "acts to know again",
    "submitted": "runs for workers",
    "grants": "standing approvals",
    "audit": "audit records",
    "kept": "long results",
}
"""What people call the rows of a table, as `info` and the other commands do; `--json` has the tables' names."""

_ONE = {"acts": "act to know again"}
"""The same of a single row, where it is not the word without its last letter."""


def _age(text: str, where: str) -> float:
    """Return an age in seconds, as an option says it."""
    try:
        return retention.parse_age(text)
    except ConfigError as error:
        raise click.UsageError(f"{where} has {error}.") from error


def _period(name: str, help: str) -> Callable[[F], F]:
    """Return an option that takes an age."""

    def parse(
        _context: click.Context, _option: click.Parameter, text: str | None
    ) -> float | None:
        return None if text is None else _age(text, name)

    return click.option(name, metavar="AGE", default=None, callback=parse, help=help)


def _tool_period(text: str) -> tuple[str, float]:
    name, sign, age = text.partition("=")
    if not (name and sign):
        raise click.UsageError(
            f"--tool has {text!r}; write a name and an age: refund=90d."
        )
    return name, _age(age, "--tool")


@click.group("store", cls=options.Commands)
def command() -> None:
    """Inspect and copy a store, a SQLite file or a Postgres database, and delete what is old.

    \b
    Examples:
      handrail store info sqlite:///handrail.db
      handrail store copy sqlite:///handrail.db postgresql://user@host/database
      handrail store keep sqlite:///handrail.db --runs 30d --audit 400d
      handrail store restored sqlite:///handrail.db --since 2026-11-27T03:00:00
    """


@command.command("info")
@options.store_argument
@options.as_json
@options.debug
def info(store: str, as_json: bool) -> int:
    """Count what is in STORE: writes and runs by state, long results, and their size.

    Without STORE it is the one that every command uses: HANDRAIL_STORE, the settings, or handrail.db where it is there.
    """
    with closing(open_durable(store)) as durable:
        contents = maintenance.count_contents(durable)
    if as_json:
        lost = contents.restored and asdict(contents.restored)
        click.echo(json_text({"v": 1, **asdict(contents), "restored": lost}))
        return Exit.OK
    if contents.abandoned:
        abandoned = f"; {contents.abandoned} claimed by an owner whose time is over"
    else:
        abandoned = ""
    restored = contents.restored
    rows = [
        ("store", f"{contents.place}, version {contents.version}"),
        ("restored", _describe_lost(restored.since, restored.at) if restored else ""),
        ("writes", f"{_format_counts(contents.writes)}{abandoned}"),
        ("runs", _format_counts(contents.runs)),
        ("approvals", _format_counts(contents.approvals)),
        ("long results", f"{contents.kept}, {contents.kept_bytes:,} bytes"),
        ("size", f"{contents.size_bytes:,} bytes"),
    ]
    print_columns(console(), [row for row in rows if row[1]])
    return Exit.OK


def _describe_lost(since: float, at: float) -> str:
    return (
        f"what was recorded from {describe_time(since)} to {describe_time(at)} is lost"
    )


@command.command("copy")
@click.argument("source")
@click.argument("target")
@options.as_json
@options.debug
def copy(source: str, target: str, as_json: bool) -> int:
    """Copy the contents of SOURCE to TARGET, which is created if it does not exist.

    Newer rows in TARGET stay. Repeat the same command to continue an interrupted copy. What SOURCE records
    meanwhile may be missed, so a run may have ended in TARGET without its last steps: stop the processes of SOURCE
    first, or copy once more after they have stopped. The audit log of TARGET gets the records after its own end; if
    both logs have grown since the last copy, it stays as it is.
    """
    _check_other_file(source, target)
    with (
        closing(open_durable(source)) as old,
        closing(open_durable(target, create=True)) as new,
    ):
        numbers = maintenance.copy_store(old, new)
        if "audit" not in numbers:
            click.echo(
                f"warning: no record of the audit log was copied: both stores have records of their own since the last "
                f"copy. {new.place} goes on with its own; keep {old.place} for the other ones.",
                err=True,
            )
        return _print_counts(numbers, as_json)


@command.command("restored")
@options.store_argument
@click.option(
    "--since",
    type=click.DateTime(["%Y-%m-%d", "%Y-%m-%dT%H:%M:%S", "%Y-%m-%dT%H:%M:%S%z"]),
    help="When the copy was taken; UTC where no offset is given. If unsure, an earlier time.",
)
@click.option(
    "--clear",
    is_flag=True,
    help="Let unknown keys be new again: nobody repeats old calls.",
)
@options.as_json
@options.debug
def restored(store: str, since: datetime | None, clear: bool, as_json: bool) -> int:
    """Say that STORE was set back to an older copy of it, before anything uses it again.

    Writes that were recorded since the copy are unknown to it, and would be performed again without a word. From now on
    a write whose key it does not know is in doubt: `verify=` and `replay="key"` settle it, or a person does with
    `handrail ledger resolve`. Runs that begin from now on, and that nobody named, are not concerned, except for writes
    whose tool has a `key=`. This holds until `--clear`: choose a time when nobody repeats calls from before any more.

    \b
    Examples:
      handrail store restored --since 2026-11-27T03:00:00
      handrail store restored --clear
    """
    if (since is None) is not clear:
        raise click.UsageError("Give one of --since TIME and --clear.")
    with closing(open_durable(store)) as durable:
        if since is None:
            was_marked = maintenance.unmark_restored(durable)
            if as_json:
                click.echo(json_text({"v": 1, "was_marked": was_marked}))
            elif was_marked:
                click.echo("unknown keys are new again; writes in doubt stay in doubt")
            else:
                click.echo("it was not marked as restored")
            return Exit.OK
        if since.tzinfo is None:
            since = since.replace(tzinfo=UTC)
        lost = maintenance.mark_restored(durable, since.timestamp())
    if as_json:
        click.echo(json_text({"v": 1, **asdict(lost)}))
        return Exit.OK
    click.echo(
        f"{_describe_lost(lost.since, lost.at)}; a write whose key the store does not know is now in doubt"
    )
    if lost.failed_writes:
        are = "write is" if lost.failed_writes == 1 else "writes are"
        click.echo(
            f"{lost.failed_writes:,} failed {are} forgotten: they may have been tried again, and done"
        )
    return Exit.OK


@command.command("keep")
@options.store_argument
@_period("--runs", "Runs that have ended, with all that belongs to them.")
@_period("--results", "Long results, where they are to go before their run.")
@_period("--audit", "Records of the audit log.")
@_period("--writes", "Writes whose key a tool has made (`key=`).")
@click.option(
    "--tool",
    "tools",
    metavar="NAME=AGE",
    multiple=True,
    callback=lambda _context, _option, values: dict(map(_tool_period, values)),
    help="Writes with a key of one tool.",
)
@click.option("--dry-run", is_flag=True, help="Only count what would be deleted.")
@click.option(
    "--watch", is_flag=True, help="Go on, again and again, until Ctrl-C or SIGTERM."
)
@click.option(
    "--rewrite",
    is_flag=True,
    help="Return the whole room to the disk at once: nobody can write meanwhile.",
)
@options.decider
@options.as_json
@options.debug
def keep(
    store: str,
    tools: Mapping[str, float],
    dry_run: bool,
    watch: bool,
    rewrite: bool,
    by: str,
    as_json: bool,
    **periods: float | None,
) -> int:
    """Delete what ended in STORE longer ago than its period, while the store is in use.

    Without periods those of the table [retention] in handrail.toml apply. An AGE is a number and d, h, m or s. Rows
    without a period are never deleted.

    Whatever is under way, waits or is in doubt stays, and so does a run that another one was forked from. A deleted
    write with a key is forgotten: the same act can be performed again.

    \b
    Examples:
      handrail store keep --runs 30d --results 7d --audit 400d --dry-run
      handrail store keep --runs 30d --tool refund=90d --watch
    """
    periods_s = {f"{name}_s": age for name, age in periods.items() if age is not None}
    if periods_s or tools:
        rules = retention.Retention(tools_s=tools, **periods_s)
    else:
        rules = retention.retention_from(settings.table("retention"))
    if not (rules.periods() or rewrite):
        raise click.UsageError(
            "Nothing says how long to keep what: name a period, such as --runs 30d, "
            "or write [retention] in handrail.toml."
        )
    if watch and (dry_run or rewrite):
        raise click.UsageError("--watch takes neither --dry-run nor --rewrite.")
    with closing(open_durable(store)) as durable:
        log_key.give(durable, options.key_file())
        if rules.audit_s is not None:
            log_key.check(durable)
        if watch:
            return _watch(durable, rules, by, as_json)
        deleted = retention.keep(
            durable, rules, by=by, dry_run=dry_run, rewrite=rewrite
        )
        return _print_counts(deleted.as_counts(), as_json)


def _watch(
    durable: DurableStore, rules: retention.Retention, by: str, as_json: bool
) -> int:
    """Delete what is old again and again, until Ctrl-C; print what was deleted."""
    stop = Event()

    def end(*_: object) -> None:
        stop.set()

    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, end)

    def tell(deleted: retention.Deleted) -> None:
        if as_json:
            click.echo(json_text({"v": 1, "rows": _without_zeros(deleted)}))
        else:
            click.echo(f"deleted {describe_deleted(deleted)}")

    retention.keep_regularly(durable, rules, stop, by=by, tell=tell)
    return Exit.OK


def describe_deleted(deleted: retention.Deleted) -> str:
    """Return what one pass has deleted, such as `12 runs, 400 steps`; empty for nothing."""
    rows = _without_zeros(deleted).items()
    return ", ".join(f"{count:,} {_name_rows(name, count)}" for name, count in rows)


def _name_rows(table: str, count: int) -> str:
    several = _NOUNS.get(table, table)
    return _ONE.get(table, several.removesuffix("s")) if count == 1 else several


def _without_zeros(deleted: retention.Deleted) -> dict[str, int]:
    return {name: count for name, count in deleted.as_counts().items() if count}


def open_durable(place: str, *, create: bool = False) -> DurableStore:
    """Open a store by what `Runtime(store=...)` takes.

    Raises:
        ConfigError: It is not there, or of a kind that keeps nothing.
    """
    kind, _, where = place.partition(":")
    make = plugins.load("stores", kind)
    if not (isinstance(make, type) and issubclass(make, DurableStore)):
        lasting = f"name one that lasts, such as {STORE_HERE}"
        raise ConfigError(f"a {kind!r} store ends with its process; {lasting}")
    store: DurableStore = make(where, create=create)  # type: ignore[call-arg, arg-type]  # a store of its own kind
    return store


def _check_other_file(source: str, target: str) -> None:
    """Refuse two names of one SQLite file, such as links: under each, SQLite would keep a log of its own beside it.

    Raises:
        ConfigError: Both names lead to one file.
    """
    kinds = {place.partition(":")[0] for place in (source, target)}
    if kinds != {"sqlite"}:
        return
    old, new = (path_from_url(place.partition(":")[2]) for place in (source, target))
    if old != new and old.exists() and new.exists() and old.samefile(new):
        raise ConfigError(
            f"{new} is a link to {old}, and a store cannot be copied into itself; name another target"
        )


def _format_counts(numbers: Mapping[str, int]) -> str:
    return (
        ", ".join(
            f"{count:,} {name.replace('_', ' ')}" for name, count in numbers.items()
        )
        or "none"
    )


def _print_counts(numbers: Mapping[str, int], as_json: bool) -> int:
    if as_json:
        click.echo(json_text({"v": 1, "rows": dict(numbers)}))
    else:
        print_columns(
            console(),
            [(_NOUNS.get(name, name), f"{count:,}") for name, count in numbers.items()],
        )
    return Exit.OK
