"""The store of a command, and what all commands that read stores print alike.

Rule 1: a command that only reads creates no store: a misspelled name is an error.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import pairwise
from shlex import quote
from typing import Any, Generic, TypeVar, cast

import click

from handrail import plugins
from handrail.approvers.arguments import exact
from handrail.approvers.terminal import printable
from handrail.audit import log_key
from handrail.cli.options import NO_STORE, STORE_HERE, default_store, key_file
from handrail.cli.printer import console, print_columns
from handrail.cli.timeline import shorten
from handrail.engine.nested_runs import outer_run
from handrail.engine.scoped_store import parse_scope
from handrail.errors import ConfigError, Json
from handrail.futures import result_now
from handrail.invisible import json_text
from handrail.ports import (
    ApprovalStore,
    AuditStore,
    LedgerStore,
    RunStore,
    StandingApprovalStore,
    Store,
)
from handrail.records import RunRecord, WriteRecord
from handrail.stores.durable import DurableStore

T = TypeVar("T")

WAYS_TO_NAME_A_STORE = f"--store {STORE_HERE}, HANDRAIL_STORE, or `place` in the table [store] of handrail.toml"

EVERY = 1_000_000_000
"""As many as there are, where a store asks how many are wanted."""


@contextmanager
def open_store(
    place: str, *, create: bool = False, writes: bool = False
) -> Iterator[Store]:
    """Open a store by what `Runtime(store=...)` takes, with the key of its log, and close it.

    Args:
        writes: The caller will record what it does, so the log must continue with that key.

    Raises:
        ConfigError: It does not exist and `create` is off, cannot be a store, or its log has another key.
        StoreUnavailable: It cannot be opened now.
    """
    kind, _, where = place.partition(":")
    make = plugins.load("stores", kind)
    store: Any
    if isinstance(make, type) and issubclass(make, DurableStore):
        store = make(where, create=create)  # type: ignore[call-arg, arg-type]  # each kind of its own
    else:
        store = make(where) if where else make()
    try:
        log_key.give(store, key_file())
        if writes:
            log_key.check(store)
        yield store
    finally:
        if close := getattr(store, "close", None):
            close()


@dataclass(frozen=True, slots=True)
class Port(Generic[T]):
    """What a store must be able to do for a command; `what` is what it keeps then."""

    port: Any
    what: str

    @contextmanager
    def open(self, place: str) -> Iterator[T]:
        """Open a store that has this port.

        Raises:
            ConfigError: As for `open_store`, or the store lacks the port.
        """
        if place == NO_STORE:
            raise self.missing(place)  # a store in memory would be new and empty
        with open_store(place) as store:
            yield self.of(store, place)

    def of(self, store: object, place: str) -> T:
        """Return a store as one that has this port.

        Raises:
            ConfigError: It lacks the port.
        """
        if not isinstance(store, self.port):
            raise self.missing(place)
        return cast(T, store)

    def missing(self, place: str) -> ConfigError:
        """Return the error for a store that lacks the port."""
        if place == STORE_HERE:
            one = ""
        else:
            one = f"; name one that does: {WAYS_TO_NAME_A_STORE}"
        return ConfigError(
            f"the store {mask_password(place)!r} keeps no {self.what}{one}"
        )


RUNS: Port[RunStore] = Port(RunStore, "runs")
QUESTIONS: Port[ApprovalStore] = Port(ApprovalStore, "questions to people")
STANDING_APPROVALS: Port[StandingApprovalStore] = Port(
    StandingApprovalStore, "standing approvals"
)
WRITES: Port[LedgerStore] = Port(LedgerStore, "writes that could be looked into")
LOG: Port[AuditStore] = Port(AuditStore, "audit log")


def expand_id(given: str, ids: Iterable[str]) -> str:
    """Return the only id that equals or begins with `given`; `given` itself if there is none.

    Raises:
        ConfigError: Several ids begin with it.
    """
    matches = [id for id in ids if id.startswith(given)]
    if not given or not matches or given in matches:
        return given
    if len(matches) > 1:
        if len(matches) > _MOST_NAMED:
            more = f" and {len(matches) - _MOST_NAMED} more"
        else:
            more = ""
        raise ConfigError(
            f"{given!r} matches several ids: {', '.join(matches[:_MOST_NAMED])}{more}; write more of it"
        )
    return matches[0]


_MOST_NAMED = 5


def resolve_run_id(store: object, given: str) -> str:
    """Return the id of the run with this id, or with an id that begins so.

    Raises:
        ConfigError: Several ids begin so.
    """
    if (
        not given
        or not isinstance(store, RunStore)
        or result_now(store.load_run(given)) is not None
    ):
        return given
    return expand_id(
        given, (record.run_id for record in result_now(store.list_runs(most=EVERY)))
    )


def find_session(store: object, place: str, *, latest: bool, name: str) -> str:
    """Return the name of the conversation that `--continue` or `--session` means; empty if neither is given.

    Raises:
        UsageError: Both are given, or `--continue` where there is no conversation.
        ConfigError: The store keeps no runs.
    """
    if not latest:
        if name:
            RUNS.of(store, place)
        return resolve_run_id(store, name) if name else ""
    if name:
        raise click.UsageError(
            "--continue and --session both name a conversation; choose one."
        )
    records = [
        record
        for record in result_now(RUNS.of(store, place).list_runs(most=EVERY))
        if _is_conversation(record)
    ]
    if not records:
        raise click.UsageError(
            "--continue: there is no conversation in this store yet."
        )
    return max(records, key=lambda record: record.updated).run_id


def _is_conversation(record: RunRecord) -> bool:
    """Whether a person can go on with a run: no tool or workflow has started it, and it is no workflow itself."""
    is_workflow = isinstance(record.input, Mapping) and record.input.get("workflow")
    return not (is_workflow or parse_scope(record.run_id) or outer_run(record.run_id))


def is_of_tenant(run_id: str, tenant: str | None) -> bool:
    """Return whether a run, by its name in the store, belongs to a tenant; any run does where none is asked for."""
    return tenant is None or parse_scope(run_id) == tenant


def command_line(words: str, place: str) -> str:
    """Return a command for a person to type, with the store unless it is the default one."""
    if place == default_store():
        store_option = ""
    else:
        store_option = f" --store {quote(mask_password(place))}"
    return f"handrail {words}{store_option}"


def name_write(write: WriteRecord) -> str:
    """Return how a command names a write: by its key, and its tenant if it has one."""
    tenant = f" --scope {quote(write.scope)}" if write.scope else ""
    return f"{quote(write.key)}{tenant}"


def mask_password(place: str) -> str:
    """Return where a store is without its password.

    >>> mask_password("postgresql://me:secret@host/database")
    'postgresql://me:***@host/database'
    """
    return re.sub(r"(?<=://)([^/@:]*):[^/]*@", r"\1:***@", place)


# ---------------------------------------------------------------------- what is printed


def print_json(document: Mapping[str, Json]) -> None:
    """Print one document on a line of its own."""
    click.echo(json_text({"v": 1, **document}))


def print_table(rows: Sequence[Sequence[str]], heads: Sequence[str], none: str) -> None:
    """Print rows in columns, or the sentence for none of them, which is no result."""
    if rows:
        print_columns(console(), rows, heads)
    else:
        click.echo(none, err=True)


def say(text: str) -> None:
    """Print a sentence on what was done: one line, whatever the names in it are."""
    click.echo(printable(text))


def brief(value: Json) -> str:
    """Return a value on one line of bounded length."""
    return shorten(json_text(value))


def indent_json(value: Json) -> str:
    """Return a whole value as indented JSON in which every character is distinguishable."""
    return exact(value)


_UNITS = ((86_400, "d"), (3_600, "h"), (60, "min"), (1, "s"))


def span(seconds: float) -> str:
    """Return how long something takes, in its two largest units.

    >>> span(40), span(3 * 3600 + 120), span(7 * 86400 - 1)
    ('40 s', '3 h 2 min', '7 d')
    """
    left = round(abs(seconds))
    for (size, unit), (finer, second) in pairwise(_UNITS):
        count = round(left / finer)
        if count * finer >= size:
            whole, rest = divmod(count * finer, size)
            return f"{whole} {unit}" + (f" {rest // finer} {second}" if rest else "")
    return f"{left} s"
