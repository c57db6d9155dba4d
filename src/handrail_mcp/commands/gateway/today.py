"""`handrail gateway today`: what was done in the last 24 hours."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import click

from handrail.cli import options
from handrail.cli.printer import console, print_columns
from handrail.cli.store_access import (
    LOG,
    QUESTIONS,
    print_json,
    print_table,
    say,
)
from handrail.errors import Code
from handrail.futures import result_now
from handrail.ports import AuditStore
from handrail.records import AuditRecord, describe_time
from handrail.surroundings.clock import unix_time
from handrail_mcp.commands.gateway.shared import settings_of

_DAY_S = 24 * 3600
_PAGE = 1000

_MOST_NOTABLE = 200
"""Lines about calls that were not done; `--json` counts all of them."""


@click.command("today")
@options.as_json
@options.debug
@click.pass_context
def today(context: click.Context, as_json: bool) -> None:
    """Say what was done in the last 24 hours: by tool, each call that did not end well, and what waits for a person.

    \b
    Example:
      handrail gateway today
    """
    place = settings_of(context).store
    with LOG.open(place) as store:
        ends = leave_out_answered(
            record
            for record in read_since(store, unix_time() - _DAY_S)
            if record.event == "CallFinished"
        )
    with QUESTIONS.open(place) as questions:
        waiting = result_now(questions.list_approvals(state="open", run_id=""))
    counts = Counter(
        (str(record.body.get("tool")), _end_of(record.body)) for record in ends
    )
    if as_json:
        rows: Any = [
            {"tool": tool, "end": end, "calls": count}
            for (tool, end), count in sorted(counts.items())
        ]
        print_json({"calls": rows, "waiting": [each.id for each in waiting]})
        return
    table = [(tool, end, str(count)) for (tool, end), count in sorted(counts.items())]
    print_table(table, ("tool", "end", "calls"), "no call ended in the last 24 hours")
    notable = [record for record in ends if _end_of(record.body) != "done"]
    if notable:
        click.echo()
        if len(notable) > _MOST_NOTABLE:
            click.echo(
                f"the last {_MOST_NOTABLE} of {len(notable)} that were not done:"
            )
        lines = [
            (describe_time(each.at), str(each.body.get("tool")), _end_of(each.body))
            for each in notable[-_MOST_NOTABLE:]
        ]
        print_columns(console(), lines, ("when", "tool", "end"))
    for question in waiting:
        say(
            f"waits for you: {question.id} {question.tool} (handrail approvals show {question.id} --store {place})"
        )


def leave_out_answered(ends: Iterable[AuditRecord]) -> list[AuditRecord]:
    """Leave out the calls that waited for a person and were done afterwards, when the client made them again.

    Run and tool identify the repeated call. Each call that was done replaces one that waited.
    """
    remaining: dict[int, AuditRecord] = {}
    waited: dict[tuple[str, str], list[int]] = {}
    for record in ends:
        end = _end_of(record.body)
        same = waited.setdefault((record.run_id, str(record.body.get("tool"))), [])
        if end == Code.APPROVAL_PENDING:
            same.append(record.seq)
        elif end == "done" and same:
            del remaining[same.pop()]
        remaining[record.seq] = record
    return list(remaining.values())


def read_since(store: AuditStore, since: float) -> Iterator[AuditRecord]:
    """Yield the records from a moment on, without reading those before it: a log may have years."""
    after = _find_last_before(store, since)
    while page := result_now(store.log(after=after, most=_PAGE)):
        yield from (record for record in page if record.at >= since)
        after = page[-1].seq


def _find_last_before(store: AuditStore, since: float) -> int:
    """Return the number of a record, or 0, before which all are older than a moment."""
    older = 0
    step = 1
    while _is_older(store, older + step, since):
        older += step
        step *= 2
    while step:
        if _is_older(store, older + step, since):
            older += step
        step //= 2
    return older


def _is_older(store: AuditStore, number: int, since: float) -> bool:
    """Whether the first record from a number on is older than a moment."""
    page = result_now(store.log(after=number - 1, most=1))
    return bool(page) and page[0].at < since


def _end_of(body: Mapping[str, Any]) -> str:
    code = body.get("code") or body.get("error_code")
    return str(code) if code else "done"
