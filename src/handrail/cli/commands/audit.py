"""`handrail audit`: the audit log of decisions and calls, each record chained to the one before it."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence

import click

from handrail.audit import chain, log_key
from handrail.audit.log_key import key_in
from handrail.cli import cases, completion, completion_names, options
from handrail.cli.exits import Exit
from handrail.cli.printer import console, print_entry
from handrail.cli.store_access import (
    EVERY,
    LOG,
    brief,
    is_of_tenant,
    print_json,
    resolve_run_id,
    say,
)
from handrail.errors import ConfigError
from handrail.futures import result_now
from handrail.invisible import json_text
from handrail.ports import AuditStore, RotatableAuditStore
from handrail.records import AuditRecord, describe_time
from handrail.surroundings.clock import sleep

PAGE = 1000
"""Records that are read at once."""

LOOK_S = 0.5
"""How often `--follow` looks for new ones."""


@click.group("audit", cls=options.Commands)
def command() -> None:
    """Follow, verify and export the audit log.

    Every record holds the hash of the one before it. `verify` finds records that were changed, removed or inserted; to
    find records cut off at the end it needs a checkpoint that you keep elsewhere. Without a key, anybody who can write
    to the store can rewrite the whole log.

    \b
    Examples:
      handrail audit tail -n 20 --follow
      handrail audit tail -n 1 --json > checkpoint.json      # keep it where nobody else can write
      handrail audit verify --checkpoint checkpoint.json
    """


@command.command("tail")
@click.option(
    "-n",
    "most",
    metavar="N",
    type=click.IntRange(min=0),
    default=10,
    show_default=True,
    help="The last N.",
)
@click.option("--follow", is_flag=True, help="Go on with what is added, until Ctrl-C.")
@click.option(
    "--run",
    "run_id",
    metavar="RUN",
    shell_complete=completion_names.runs,
    default="",
    help="Only records of one run.",
)
@options.tenant
@options.store
@click.option(
    "--json",
    "as_json",
    is_flag=True,
    help="Print each record as a line of JSON; the last is a checkpoint.",
)
@options.debug
def tail(
    most: int,
    follow: bool,
    run_id: str,
    tenant: str | None,
    store: str,
    as_json: bool,
) -> None:
    """Print the last records, and those that are added.

    \b
    Example:
      handrail audit tail -n 20 --follow --scope acme
    """
    with LOG.open(store) as audit_store:
        run_id = resolve_run_id(audit_store, run_id)
        last: deque[AuditRecord] = deque(
            _records(audit_store, run_id, tenant), maxlen=max(1, min(most, EVERY))
        )
        seen = last[-1].seq if last else 0
        if not (last or follow):
            click.echo("the log is empty", err=True)
        for record in list(last)[-most:] if most else ():
            _print(record, as_json)
        while follow:
            for record in _records(audit_store, run_id, tenant, after=seen):
                _print(record, as_json)
                seen = record.seq
            sleep(LOOK_S)


@command.command("verify")
@click.option(
    "--key-file",
    "key_files",
    metavar="FILE",
    multiple=True,
    shell_complete=completion.files,
    help="A key of the log; once for each that it has had. Else HANDRAIL_AUDIT_KEY_FILE.",
)
@click.option(
    "--checkpoint",
    metavar="FILE",
    shell_complete=completion.files,
    help="A record as it was once: a line of `audit tail --json`.",
)
@options.store
@options.as_json
@options.debug
def verify(
    key_files: tuple[str, ...], checkpoint: str | None, store: str, as_json: bool
) -> int:
    """Check the chain from its beginning. The exit code is 1 when it breaks.

    \b
    Examples:
      handrail audit verify
      handrail audit verify --key-file audit.key --checkpoint checkpoint.json
      handrail audit verify --key-file audit.key.1 --key-file audit.key    # the key was replaced
    """
    expected = _checkpoint(checkpoint) if checkpoint else None
    keys = _keys_in(key_files)
    with LOG.open(store) as audit_store:
        pending = _count_pending(audit_store)
        count, broken, newest = chain.verify_during_retention(
            lambda: _records(audit_store), keys=keys, checkpoint=expected
        )
    last = newest if broken is None else None
    if as_json:
        print_json(
            {
                "ok": broken is None,
                "records": count,
                "pending": pending,
                "broken": broken and {"seq": broken.seq, "why": broken.why},
                "last": last and {"seq": last.seq, "hash": last.hash},
            }
        )
    elif broken is not None:
        say(_describe_break(broken, count))
    else:
        for line in (_describe_success(count), *_limits(bool(keys), expected)):
            say(line)
        if pending:
            say(_describe_pending(pending))
        if last:
            say(f"the last is {last.seq}, {last.hash}")
    return Exit.OK if broken is None else Exit.ERROR


def _keys_in(files: Sequence[str]) -> list[bytes]:
    """Return the keys in these files, and that of the environment or the settings where it is not among them."""
    keys = [key_in(file) for file in files]
    # one that is named here may be all that is left of the log's keys
    if not keys and (here := options.key_file()):
        keys.append(key_in(here))
    return keys


@command.command("rotate-key")
@click.option(
    "--old-key-file",
    "old_file",
    metavar="FILE",
    default="",
    shell_complete=completion.files,
    help="The key that the log has; none where it has none yet.",
)
@options.decider
@options.store
@options.debug
def rotate_key(old_file: str, by: str, store: str) -> None:
    """Replace the key of the log by that of HANDRAIL_AUDIT_KEY_FILE or the settings.

    One record ends the chain under the old key, the next begins it under the new one. Put the new key in its place
    before: programs that write the log go on with the old one in memory, and read the file again after this.

    \b
    Example:
      mv audit.key audit.key.1 && openssl rand -hex 32 > audit.key
      handrail audit rotate-key --old-key-file audit.key.1
      handrail audit verify --key-file audit.key.1 --key-file audit.key
    """
    new_file = options.key_file()
    if not new_file:
        raise ConfigError(
            "name the file of the new key in HANDRAIL_AUDIT_KEY_FILE, where the programs that write the log find it too"
        )
    with LOG.open(store) as audit_store:
        if not isinstance(audit_store, RotatableAuditStore):
            raise ConfigError(f"the key of {audit_store!r} cannot be replaced")
        old = key_in(old_file) if old_file else b""
        key = log_key.new_key_in(new_file, old)
        audit_store.audit_key = old
        audit_store.audit_key_file = ""
        result_now(audit_store.replace_audit_key(key, by=by))
    say(f"from now on the log has the key in {new_file}")
    if old_file:
        say(f"keep {old_file}: the records so far are verified with it")


def _describe_success(count: int) -> str:
    records = "1 record" if count == 1 else f"{count} records"
    return f"{records} verified: none was changed, removed or inserted"


def _count_pending(audit_store: AuditStore) -> int:
    """Return how many records have no place in the chain yet, in a store to which many processes write at once."""
    complete = getattr(audit_store, "complete_log", None)
    return 0 if complete is None else int(result_now(complete()))


def _describe_pending(count: int) -> str:
    records = "1 record has" if count == 1 else f"{count} records have"
    return (
        f"{records} no place in the chain yet, and the next program that has the log's key gives it to them: "
        "name the file of the key in HANDRAIL_AUDIT_KEY_FILE and look again"
    )


def _describe_break(broken: chain.Broken, intact: int) -> str:
    """Say where the chain breaks, after how many intact records."""
    if intact == 1:
        before = "the record before it is"
    else:
        before = f"the {intact} records before it are"
    return f"the log is broken: {broken.why}; {before} intact"


@command.command("export")
@click.option(
    "--run",
    "run_id",
    metavar="RUN",
    shell_complete=completion_names.runs,
    default="",
    help="Only records of one run; these do not verify alone.",
)
@options.tenant
@options.store
@options.debug
def export(run_id: str, tenant: str | None, store: str) -> None:
    """Print the log, each record as a line of JSON. That of one run or tenant does not verify alone.

    \b
    Examples:
      handrail audit export > audit.jsonl
      handrail audit export --scope acme > acme.jsonl
    """
    with LOG.open(store) as audit_store:
        run_id = resolve_run_id(audit_store, run_id)
        for record in _records(audit_store, run_id, tenant):
            _print(record, as_json=True)


def _records(
    audit_store: AuditStore,
    run_id: str = "",
    tenant: str | None = None,
    *,
    after: int = 0,
) -> Iterator[AuditRecord]:
    """Yield records in order, read page by page; of one run, or of one tenant, if that is asked for."""
    while page := result_now(audit_store.log(after=after, run_id=run_id, most=PAGE)):
        for record in page:
            if is_of_tenant(record.run_id, tenant):
                yield record
        after = page[-1].seq


def _print(record: AuditRecord, as_json: bool) -> None:
    if as_json:
        click.echo(json_text(record.as_json()))
    else:
        head = f"{record.seq:>6}  {describe_time(record.at)}  {record.run_id or '-'}  {record.event}"
        print_entry(console(), head, brief(dict(record.body)))


def _checkpoint(file: str) -> tuple[int, str]:
    """Return number and hash of the last record in a file, which may be a whole export."""
    lines = [line for line in options.read_text(file).splitlines() if line.strip()]
    record = cases.parse_json(lines[-1], file) if lines else None
    if isinstance(record, dict):
        seq = record.get("seq")
        hash = record.get("hash")
        # one before the first record proves nothing
        if type(seq) is int and seq > 0 and isinstance(hash, str):
            return seq, hash
    raise ConfigError(
        f"{file} holds no checkpoint; write one with: handrail audit tail -n 1 --json > {file}"
    )


def _limits(has_key: bool, checkpoint: tuple[int, str] | None) -> Iterator[str]:
    """Say what a checkpoint proves, and what stays unknown without one, and without a key."""
    if checkpoint:
        yield f"with the checkpoint at {checkpoint[0]}: up to there none is missing, and none was rewritten"
    else:
        yield "unknown without a checkpoint (--checkpoint): whether records were cut off at the end"
    if not has_key:
        if checkpoint:
            behind = f" behind record {checkpoint[0]}"
        else:
            behind = ""
        yield (
            "unknown without a key (--key-file): whether somebody who may write to the store has rewritten the log"
            f"{behind}"
        )
