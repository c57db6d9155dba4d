"""`handrail audit`: the log of what was decided and done, each record chained to the one before it."""

from __future__ import annotations

import json
import time
from collections import deque
from collections.abc import Iterable, Iterator
from pathlib import Path

import click

from handrail import chain
from handrail.cli import cases, options
from handrail.cli.exits import Exit
from handrail.cli.keeping import LOG, brief, moment, print_json, say
from handrail.cli.loading import file_at
from handrail.errors import ConfigError
from handrail.ports import AuditStore, now_of
from handrail.records import AuditRecord

PAGE = 1000
"""Records that are read at once."""

LOOK_S = 0.5
"""How often `--follow` looks for new ones."""


@click.group("audit", cls=options.Commands)
def command() -> None:
    """Follow, check and export the log of what was decided and done.

    Every record holds the hash of the one before it. `verify` finds what was changed, taken out or put in between; what
    was cut off at the end it finds against a checkpoint that you keep elsewhere. Without a key, somebody who may write
    to the store can write the whole log anew.

    \b
    Examples:
      handrail audit tail -n 20 --follow
      handrail audit tail -n 1 --json > checkpoint.json      # keep it where nobody else can write
      handrail audit verify --checkpoint checkpoint.json
    """


@command.command("tail")
@click.option("-n", "most", metavar="N", type=click.IntRange(min=0), default=10, show_default=True, help="The last N.")
@click.option("--follow", is_flag=True, help="Go on with what is added, until Ctrl-C.")
@click.option("--run", "run_id", metavar="RUN", default="", help="Only records of one run.")
@options.kept
@click.option("--json", "as_json", is_flag=True, help="Print each record as a line of JSON; the last is a checkpoint.")
@options.debug
def tail(most: int, follow: bool, run_id: str, store: str, as_json: bool) -> None:
    """Print the last records, and those that are added.

    \b
    Example:
      handrail audit tail -n 20 --follow
    """
    with LOG.opened(store) as kept:
        last: deque[AuditRecord] = deque(_records(kept, run_id), maxlen=max(1, most))
        seen = last[-1].seq if last else 0
        if not (last or follow):
            click.echo("the log is empty", err=True)
        for record in list(last)[-most:] if most else ():
            _print(record, as_json)
        while follow:
            for record in _records(kept, run_id, after=seen):
                _print(record, as_json)
                seen = record.seq
            time.sleep(LOOK_S)


@command.command("verify")
@click.option("--key-file", metavar="FILE", help="The key with which the log is written, if there is one.")
@click.option("--checkpoint", metavar="FILE", help="A record as it was once: a line of `audit tail --json`.")
@options.kept
@options.as_json
@options.debug
def verify(key_file: str | None, checkpoint: str | None, store: str, as_json: bool) -> int:
    """Check the chain from its beginning. The exit code is 1 when it breaks.

    \b
    Examples:
      handrail audit verify
      handrail audit verify --key-file audit.key --checkpoint checkpoint.json
    """
    key = _key(key_file) if key_file else b""
    known = _checkpoint(checkpoint) if checkpoint else None
    newest: deque[AuditRecord] = deque(maxlen=1)
    with LOG.opened(store) as kept:
        count, broken = chain.verify(_noting(_records(kept), newest), key=key, checkpoint=known)
    last = newest[-1] if newest and broken is None else None
    if as_json:
        print_json({
            "ok": broken is None,
            "records": count,
            "broken": None if broken is None else {"seq": broken.seq, "why": broken.why},
            "last": None if last is None else {"seq": last.seq, "hash": last.hash},
        })  # fmt: skip
    elif broken is not None:
        say(f"the log is broken: {broken.why}; {count} records before it stand in good order")
    else:
        say(f"{count} records stand in good order{_proved(key, known)}")
        say(f"the last is {last.seq}, {last.hash}" if last else "")
    return Exit.OK if broken is None else Exit.ERROR


@command.command("export")
@click.option("--run", "run_id", metavar="RUN", default="", help="Only records of one run; these do not verify alone.")
@options.kept
@options.debug
def export(run_id: str, store: str) -> None:
    """Print the whole log, each record as a line of JSON.

    \b
    Example:
      handrail audit export > audit.jsonl
    """
    with LOG.opened(store) as kept:
        for record in _records(kept, run_id):
            _print(record, as_json=True)


def _records(kept: AuditStore, run_id: str = "", after: int = 0) -> Iterator[AuditRecord]:
    """Yield records in order, read page by page."""
    while page := now_of(kept.log(after=after, run_id=run_id, most=PAGE)):
        yield from page
        after = page[-1].seq


def _noting(records: Iterable[AuditRecord], newest: deque[AuditRecord]) -> Iterator[AuditRecord]:
    for record in records:
        newest.append(record)
        yield record


def _print(record: AuditRecord, as_json: bool) -> None:
    if as_json:
        click.echo(json.dumps(record.as_json(), ensure_ascii=False))
    else:
        say(f"{record.seq:>6}  {moment(record.at)}  {record.run_id or '-'}  {record.event}  {brief(dict(record.body))}")


def _key(file: str) -> bytes:
    """Return a key; the line end at the end of its file is an editor's."""
    try:
        key = Path(file_at(file)).read_bytes().strip()
    except OSError as error:
        raise ConfigError(f"{file} cannot be read: {error.strerror}") from error
    if not key:
        raise ConfigError(f"{file} holds no key: it is empty")
    return key


def _checkpoint(file: str) -> tuple[int, str]:
    """Return number and hash of the last record in a file, which may be a whole export."""
    lines = [line for line in options.text_of(file).splitlines() if line.strip()]
    told = cases.json_of(lines[-1], file) if lines else None
    seq, hash = (told.get("seq"), told.get("hash")) if isinstance(told, dict) else (None, None)
    if not (type(seq) is int and seq > 0 and isinstance(hash, str)):  # one before the first record proves nothing
        raise ConfigError(f"{file} holds no checkpoint; write one with: handrail audit tail -n 1 --json > {file}")
    return seq, hash


def _proved(key: bytes, checkpoint: tuple[int, str] | None) -> str:
    """Say how much that proves."""
    said = [] if key else ["without a key"]
    said += [f"and with the checkpoint at {checkpoint[0]}"] if checkpoint else ["and no checkpoint for its end"]
    return f" ({' '.join(said).removeprefix('and ')})"
