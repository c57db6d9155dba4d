"""`handrail ledger`: the writes, their state, and how a person resolves one in doubt."""

from __future__ import annotations

from shlex import quote

import click

from handrail import admin
from handrail.cli import cases, completion_names, options
from handrail.cli.printer import console, print_columns
from handrail.cli.store_access import (
    EVERY,
    WRITES,
    brief,
    command_line,
    indent_json,
    name_write,
    print_json,
    print_table,
    resolve_run_id,
    say,
    span,
)
from handrail.errors import ConfigError, Json
from handrail.futures import result_now
from handrail.records import WriteRecord, describe_time
from handrail.surroundings.clock import unix_time

ABANDONED = "abandoned"
"""The state of a write whose owner's lease has expired and that nobody has resolved: it is claimed in the store."""

_STATES = ("claimed", ABANDONED, "waiting", "done", "failed", "in_doubt")


@click.group("ledger", cls=options.Commands)
def command() -> None:
    """List writes, and resolve one that is in doubt.

    A write is in doubt when its process died, or its deadline passed, before its end was recorded, and its tool cannot
    find out what happened. It is not repeated until a person has looked and resolved it.

    \b
    Examples:
      handrail ledger list --state in_doubt
      handrail ledger show refund:881
      handrail ledger resolve refund:881 --happened
      handrail ledger resolve refund:881 --did-not-happen
    """


@command.command("list")
@click.option("--state", type=click.Choice(_STATES), help="Only writes that stand so.")
@click.option(
    "--run",
    "run_id",
    metavar="RUN",
    shell_complete=completion_names.runs,
    default="",
    help="Only those of one run.",
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
def list_writes(
    state: str | None,
    run_id: str,
    most: int,
    tenant: str | None,
    store: str,
    as_json: bool,
) -> None:
    """List writes, the newest first.

    \b
    Example:
      handrail ledger list --state in_doubt --scope acme
    """
    is_abandoned = state == ABANDONED
    with WRITES.open(store) as write_store:
        found = result_now(
            write_store.list_writes(
                state="in_doubt" if is_abandoned else state or "",
                run_id=resolve_run_id(write_store, run_id),
                most=EVERY if is_abandoned or tenant is not None else min(most, EVERY),
            )
        )
    now = unix_time()
    writes = [
        each
        for each in found
        if (tenant is None or each.scope == tenant)
        and (not is_abandoned or each.is_abandoned(now))
    ][:most]
    if as_json:
        print_json({"writes": [_facts(write) for write in writes]})
        return
    rows = [
        (
            write.tool,
            write.key,
            _state_text(write),
            write.run_id,
            _start_text(write),
            brief(write.value) if write.state == "done" else write.why(now),
        )
        for write in writes
    ]
    print_table(
        rows,
        ("tool", "key", "state", "run", "started", "value"),
        f"no write is {state or 'there'}",
    )


@command.command("show")
@click.argument("key")
@options.tenant
@options.store
@options.as_json
@options.debug
def show(key: str, tenant: str | None, store: str, as_json: bool) -> None:
    """Show one write. KEY is what `handrail ledger list` calls it.

    \b
    Example:
      handrail ledger show refund:881
    """
    with WRITES.open(store) as write_store:
        write = admin.write(write_store, tenant or "", key)
    if as_json:
        print_json(_facts(write))
        return
    rows = [
        (write.key, _state_text(write)),
        ("why", write.why(unix_time())),
        ("tool", write.tool),
        ("scope", write.scope),
        ("run", write.run_id),
        ("replay", _REPLAYS.get(write.replay, write.replay)),
        ("started", _start_text(write)),
        ("changed", describe_time(write.updated) if write.updated else ""),
        (
            "owner's time",
            f"until {describe_time(write.lease_until)}"
            if write.state == "claimed"
            else "",
        ),
        (
            "result",
            f"may be delivered until {describe_time(write.deliver_until)}"
            if write.state == "waiting"
            else "",
        ),
        ("value", indent_json(write.value) if write.state == "done" else ""),
        ("resolved by", write.resolved_by),
    ]
    print_columns(console(), [row for row in rows if row[1]])
    if _can_be_resolved(write):
        say(command_line(f"audit tail --run {quote(write.run_id)}", store))
        for option in ("--happened", "--did-not-happen"):
            say(command_line(f"ledger resolve {name_write(write)} {option}", store))


_REPLAYS = {
    "key": "key: the far side knows its key again, so it may be sent twice",
    "verify": "verify: its tool can find out whether it has happened",
    "none": "none: nobody but a person can find out whether it has happened",
}


@command.command("resolve")
@click.argument("key")
@click.option(
    "--happened/--did-not-happen",
    "happened",
    default=None,
    help="What you found where it would show.",
)
@click.option(
    "--value",
    metavar="JSON",
    help="With --happened: the result that its tool would give. `-` is stdin.",
)
@options.decider
@options.tenant
@options.store
@options.as_json
@options.debug
def resolve(
    key: str,
    happened: bool | None,
    value: str | None,
    by: str,
    tenant: str | None,
    store: str,
    as_json: bool,
) -> None:
    """Resolve a write that is in doubt, or whose process died.

    Look first: the ledger believes what you record here. A write that happened is never repeated, and later calls get
    its value. If it did not happen, its key is free: the next call with that key runs.

    \b
    Examples:
      handrail ledger resolve refund:881 --happened --value '{"refund_id": 12}'
      handrail ledger resolve refund:881 --did-not-happen
    """
    if happened is None:
        raise click.UsageError("say what you found: --happened or --did-not-happen.")
    if value is not None and not happened:
        raise click.UsageError(
            "--value is the result of a write that happened; leave it out."
        )
    if value is None:
        result = None
    else:
        result = cases.parse_json(options.text_or_stdin(value), "--value")
    with WRITES.open(store) as write_store:
        before = admin.write(write_store, tenant or "", key)
        if not _can_be_resolved(before):
            raise ConfigError(f"the write {key} cannot be resolved: {_why_not(before)}")
        after = admin.resolve(
            write_store,
            tenant or "",
            key,
            happened=happened,
            by=by,
            value=result,
        )
    if as_json:
        print_json(_facts(after))
    elif happened:
        say(
            f"recorded by {by}: {key} happened; it is not repeated, and later calls get {brief(after.value)}"
        )
    else:
        say(
            f"recorded by {by}: {key} did not happen; its key is free, and the next call with it runs"
        )


def _can_be_resolved(write: WriteRecord) -> bool:
    return write.state_at(unix_time()) == "in_doubt"


def _why_not(write: WriteRecord) -> str:
    if write.state == "claimed":
        return f"it is under way, for {span(write.lease_until - unix_time())} at most"
    if write.state == "waiting":
        return "its result comes from outside: `handrail approvals answer` delivers it; `deny` if there will be none"
    if write.resolved_by:
        by = f", resolved by {write.resolved_by}"
    else:
        by = ""
    if write.state == "done":
        return f"it happened{by}"
    return f"it did not happen{by}"


def _start_text(write: WriteRecord) -> str:
    """Return when a write started, or the time before which a new owner may not start it."""
    if write.state == "claimed" and write.begun > unix_time():
        return f"not before {describe_time(write.begun)}"
    return describe_time(write.begun)


def _state_text(write: WriteRecord) -> str:
    if write.resolved_by:
        by = f", resolved by {write.resolved_by}"
    else:
        by = ""
    if write.is_abandoned(unix_time()):
        return ABANDONED
    if write.is_overdue(unix_time()):
        return "in doubt"
    return f"{write.state.replace('_', ' ')}{by}"


def _facts(write: WriteRecord) -> dict[str, Json]:
    names = (
        "scope",
        "key",
        "tool",
        "run_id",
        "replay",
        "fence",
        "lease_until",
        "begun",
        "updated",
        "value",
        "resolved_by",
    )
    now = unix_time()
    state = "in_doubt" if write.is_overdue(now) else write.state
    return {name: getattr(write, name) for name in names} | {
        "state": state,
        "abandoned": write.is_abandoned(now),
        "why": write.why(now) or None,
    }
