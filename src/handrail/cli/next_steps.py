"""What a person can do next with a run, and the present state of the writes that it left in doubt.

The journal names these writes, and the ledger has their present state. The row may be another run's: two runs that ask
for the same write share its key. If the journal does not name the write, or the ledger no longer has it, a person must
look.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from shlex import quote

from handrail.cli.options import STORE_HERE, Setup, call_failures
from handrail.cli.run_pages import WORKER_RESUMES
from handrail.cli.store_access import EVERY, command_line, name_write
from handrail.engine.nested_runs import is_within
from handrail.engine.undo import UNDO_OF
from handrail.errors import Code
from handrail.futures import result_now
from handrail.journal.codec import Doubt, doubt_in
from handrail.messages import ToolMessage
from handrail.ports import ApprovalStore, LedgerStore, RunStore, SubmittedRunStore
from handrail.records import ApprovalRequest, JournalStep, WriteRecord
from handrail.runs import Run
from handrail.surroundings.clock import unix_time
from handrail.tools.tool import BaseTool


def describe_next_steps(store: object, run: Run, setup: Setup, place: str) -> str:
    """Return the next steps for a run that has just ended; empty if there are none."""
    lines: list[str] = []
    requests: list[ApprovalRequest] = []
    if run.status == "waiting":
        requests = _requests_within(store, run.id)
        # `--yes-to` does not speak for an agent's own runtime.
        if all(request.run_id == run.id for request in requests):
            lines += _risk_hints(run, setup)
    if isinstance(store, RunStore):
        lines += _list_steps(store, run, requests, setup=setup, place=place)
    elif run.status == "waiting":
        lines.append(
            f"this run is not stored, so nobody can approve it later; store it: --store {STORE_HERE}"
        )
    return "\n".join(lines)


def describe_awaited(store: RunStore, run: Run, run_id: str, place: str) -> str:
    """Return what a person has to do about a run that somebody has waited for; empty where there is nothing.

    Args:
        run_id: Its whole name: that of `run` is without the tenant.
    """
    lines = _doubts_of(store, run, run_id, place)
    if run.status == "waiting":
        lines += _decide_lines(_requests_within(store, run_id), place)
        if isinstance(store, SubmittedRunStore) and result_now(
            store.list_submitted([run_id])
        ):
            lines.append(f"then {WORKER_RESUMES}")
        else:
            resume = command_line(f"runs resume {run_id} --tools ...", place)
            lines.append(f"go on:   {resume}")
    return "\n".join(lines)


def _requests_within(store: object, run_id: str) -> list[ApprovalRequest]:
    if not isinstance(store, ApprovalStore):
        return []
    return [
        request
        for request in result_now(store.list_approvals())
        if is_within(request.run_id, run_id)
    ]


def _list_steps(
    store: RunStore,
    run: Run,
    requests: Sequence[ApprovalRequest],
    *,
    setup: Setup,
    place: str,
) -> Iterator[str]:
    yield from _doubts_of(store, run, run.id, place)
    yield from _decide_lines(requests, place)
    if run.status in ("waiting", "failed", "cancelled", "budget"):
        tools = "".join(f" --tools {quote(each)}" for each in setup.places)
        yield f"go on:   {command_line(f'runs resume {run.id}{tools}', place)}"


def _doubts_of(store: RunStore, run: Run, run_id: str, place: str) -> list[str]:
    """Return where to look for each write that a run has left in doubt; `run_id` is its whole name."""
    if all(
        failure is None or failure.code != Code.IN_DOUBT
        for failure in call_failures(run)
    ):
        return []
    stored = result_now(store.load_run(run_id))
    return doubt_lines(stored.steps if stored else (), run_id, store, place)


def _decide_lines(requests: Sequence[ApprovalRequest], place: str) -> list[str]:
    return [
        f"decide:  {command_line(f'approvals show {request.id}', place)}"
        for request in requests
    ]


def _risk_hints(run: Run, setup: Setup) -> Iterator[str]:
    """Name the `--yes-to` risk that each waiting tool needs; no option replaces several people."""
    results = [
        message.result
        for message in run.new_messages
        if isinstance(message, ToolMessage)
    ]
    waiting = [
        each.name
        for each in results
        if each.failure and each.failure.code == Code.APPROVAL_PENDING
    ]
    for name in dict.fromkeys(waiting):
        tool = setup.tools.resolve(name)
        if isinstance(tool, BaseTool) and not setup.consent.covers(tool.effective_risk):
            yield f"`{tool.name}` has {tool.effective_risk} risk: --yes-to {tool.effective_risk} approves it unasked"


def doubt_lines(
    steps: Sequence[JournalStep], run_id: str, store: object, place: str
) -> list[str]:
    """Return the present state of each write that a run left in doubt, and where to look while it is unknown."""
    doubts = list(dict.fromkeys(filter(None, map(doubt_in, steps))))
    lines: list[str] = []
    for doubt in doubts:
        if doubt.key and isinstance(store, LedgerStore):
            row = _row(store, run_id, doubt)
        else:
            row = None
        lines += _write_lines(doubt.tool, row, run_id, place)
    return list(dict.fromkeys(lines))


def undone_writes(run_id: str, store: object) -> list[tuple[str, str]]:
    """Return tool and step of each write of a run that was taken back since, in the order of the steps."""
    if not isinstance(store, LedgerStore):
        return []
    rows = result_now(store.list_writes(state="failed", run_id=run_id, most=EVERY))
    undone = [row for row in reversed(rows) if row.resolved_by.startswith(UNDO_OF)]
    return [(row.tool, row.resolved_by.removeprefix(UNDO_OF)) for row in undone]


def _row(store: LedgerStore, run_id: str, doubt: Doubt) -> WriteRecord | None:
    """Return the write; where it was refused as a repetition in its run, the first one."""
    if row := result_now(store.load_write(doubt.scope, doubt.key)):
        return row
    writes = result_now(store.list_writes(run_id=run_id, most=EVERY))
    same = (each for each in writes if each.fingerprint == doubt.fingerprint)
    return next(same, None)


def _write_lines(
    tool: str, row: WriteRecord | None, run_id: str, place: str
) -> Iterator[str]:
    if row is None:
        yield "a write may or may not have happened; a person must look, and record what became of it"
        yield f"look:    {command_line(f'ledger list --state in_doubt --run {run_id}', place)}"
    elif row.state in ("in_doubt", "claimed", "waiting"):
        why = row.why(unix_time())
        yield (
            f"{tool} may or may not have happened{f' ({why})' if why else ''}; a person must look, and record what "
            "became of it"
        )
        yield f"look:    {command_line(f'ledger show {name_write(row)}', place)}"
    else:
        happened = "happened" if row.state == "done" else "did not happen"
        source = "the store has since recorded that it"
        if row.resolved_by:
            source = f"{row.resolved_by} has since recorded that it"
        yield f"{tool} was in doubt when the model read its result; {source} {happened}"
