"""`handrail store`: the contents of a durable store, copies of it, and what can be deleted."""

from __future__ import annotations

import re
from collections.abc import Mapping
from contextlib import closing

import click
from msgspec.structs import asdict

from handrail import plugins
from handrail.cli import options
from handrail.cli.exits import Exit
from handrail.cli.options import STORE_HERE
from handrail.cli.printer import console, print_columns
from handrail.errors import ConfigError
from handrail.invisible import json_text
from handrail.stores import maintenance
from handrail.stores.durable import DurableStore

_NOUNS = {
    "effects": "writes",
    "acts": "acts to know again",
    "submitted": "runs for workers",
    "grants": "standing approvals",
    "audit": "audit records",
    "kept": "long results",
}
"""What people call the rows of a table, as `info` and the other commands do; `--json` has the tables' names."""

_UNITS_S = {
    "d": 86_400,
    "h": 3_600,
    "m": 60,
    "s": 1,
}


@click.group("store", cls=options.Commands)
def command() -> None:
    """Inspect, copy and vacuum a store: a SQLite file or a Postgres database.

    \b
    Examples:
      handrail store info sqlite:///handrail.db
      handrail store copy sqlite:///handrail.db postgresql://user@host/database
      handrail store vacuum sqlite:///handrail.db --older-than 30d
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
        click.echo(json_text({"v": 1, **asdict(contents)}))
        return Exit.OK
    if contents.abandoned:
        abandoned = f"; {contents.abandoned} claimed by an owner whose time is over"
    else:
        abandoned = ""
    rows = [
        ("store", f"{contents.place}, version {contents.version}"),
        ("writes", f"{_format_counts(contents.writes)}{abandoned}"),
        ("runs", _format_counts(contents.runs)),
        ("approvals", _format_counts(contents.approvals)),
        ("long results", f"{contents.kept}, {contents.kept_bytes:,} bytes"),
        ("size", f"{contents.size_bytes:,} bytes"),
    ]
    print_columns(console(), rows)
    return Exit.OK


@command.command("copy")
@click.argument("source")
@click.argument("target")
@options.as_json
@options.debug
def copy(source: str, target: str, as_json: bool) -> int:
    """Copy the contents of SOURCE to TARGET, which is created if it does not exist.

    Newer rows in TARGET stay. Repeat the same command to continue an interrupted copy. Writes that start in SOURCE
    meanwhile may be missed: stop its processes first, or copy once more after they have stopped. The audit log of
    TARGET gets the records after its own end; if both logs have grown since the last copy, it stays as it is.
    """
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


@command.command("vacuum")
@options.store_argument
@click.option(
    "--older-than", metavar="AGE", required=True, help="Such as 30d, 12h or 45m."
)
@click.option(
    "--rewrite",
    is_flag=True,
    help="Give the room back to the disk too: nobody can write meanwhile.",
)
@options.as_json
@options.debug
def vacuum(store: str, older_than: str, rewrite: bool, as_json: bool) -> int:
    """Delete what ended in STORE longer ago than AGE: writes, runs with their steps, long results.

    Whatever is under way or in doubt stays, and so does the audit log. A deleted write is forgotten: a call with the
    same key can be performed again.

    The store stays usable meanwhile. Its file does not shrink, because the space is reused; `--rewrite` shrinks it, at
    a time when nobody writes.
    """
    older_than_s = seconds(older_than)
    with closing(open_durable(store)) as durable:
        return _print_counts(
            maintenance.delete_old(durable, older_than_s=older_than_s, rewrite=rewrite),
            as_json,
        )


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


def seconds(age: str) -> int:
    """Return an age such as `30d` in seconds."""
    found = re.fullmatch(r"(\d+)([dhms])", age)
    if not found:
        raise click.UsageError(
            f"--older-than has {age!r}; write a number and d, h, m or s, such as 30d."
        )
    return int(found[1]) * _UNITS_S[found[2]]


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
