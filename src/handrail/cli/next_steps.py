"""What a person may do next with a run; above all, what became of the writes that it left in doubt.

The journal names these, and the ledger knows how they stand now. The row may be another run's: two runs that ask for
one act share its key. Where the journal does not name the write, or the ledger has forgotten it, a person must look.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from shlex import quote

from handrail.cli.options import STORE_HERE, Setup, failures_of
from handrail.cli.store_access import EVERY, command_line
from handrail.engine.nested_runs import is_within
from handrail.engine.scoped_store import strip_scope
from handrail.errors import Code
from handrail.futures import result_now
from handrail.journal.codec import Doubt, doubt_in
from handrail.messages import ToolMessage
from handrail.ports import ApprovalStore, LedgerStore, RunStore
from handrail.records import ApprovalRequest, JournalStep, WriteRecord
from handrail.runs import Run
from handrail.tools.tool import BaseTool


def way_on(store: object, run: Run, setup: Setup, place: str) -> str:
    """Return what a person may do next with a run that has just ended; empty when there is nothing."""
    asked: list[ApprovalRequest] = []
    if run.status == "waiting" and isinstance(store, ApprovalStore):
        asked = [question for question in result_now(store.list_approvals()) if is_within(question.run_id, run.id)]
    within = {question.run_id for question in asked} - {run.id}  # `--yes-to` does not speak for an agent's own runtime
    if run.status == "waiting" and not within:
        lines = list(_consents(run, setup))
    else:
        lines = []
    if not isinstance(store, RunStore):
        lost = f"this run is kept nowhere, so nobody can approve it later; keep it: --store {STORE_HERE}"
        return "\n".join([*lines, lost] if run.status == "waiting" else lines)
    if any(failure is not None and failure.code == Code.IN_DOUBT for failure in failures_of(run)):
        begun = result_now(store.load_run(run.id))
        lines += lines_on(begun.steps if begun else (), run.id, store, place)
    lines += [f"decide:  {command_line(f'approvals show {question.id}', place)}" for question in asked]
    if run.status in ("waiting", "failed", "cancelled", "budget"):
        words = "".join(f" --tools {quote(each)}" for each in setup.places)
        lines.append(f"go on:   {command_line(f'runs resume {run.id}{words}', place)}")
    return "\n".join(lines)


def _consents(run: Run, setup: Setup) -> Iterator[str]:
    """Name the `--yes-to` risk that each waiting tool needs; none helps where several people must agree."""
    results = [message.result for message in run.messages if isinstance(message, ToolMessage)]
    waiting = [each.name for each in results if each.failure and each.failure.code == Code.APPROVAL_PENDING]
    for name in dict.fromkeys(waiting):
        tool = setup.tools.resolve(name)
        if isinstance(tool, BaseTool) and not setup.consent.covers(tool.effective_risk):
            yield f"`{tool.name}` has {tool.effective_risk} risk: --yes-to {tool.effective_risk} approves it unasked"


def lines_on(steps: Sequence[JournalStep], run_id: str, kept: object, place: str) -> list[str]:
    """Say of each write that a run left in doubt how it stands now, and where a person looks while nobody knows."""
    doubts = list(dict.fromkeys(filter(None, map(doubt_in, steps))))
    lines: list[str] = []
    for doubt in doubts:
        if doubt.scope and isinstance(kept, LedgerStore):
            row = _row(kept, run_id, doubt)
        else:
            row = None
        lines += _line(doubt.tool, row, run_id, place)
    return list(dict.fromkeys(lines))


def _row(kept: LedgerStore, run_id: str, doubt: Doubt) -> WriteRecord | None:
    """Return the write; where it was held back as the same act again in its run, that act."""
    if row := result_now(kept.load_write(doubt.scope, doubt.key)):
        return row
    same = (
        each
        for each in result_now(kept.list_writes(run_id=strip_scope(run_id), most=EVERY))
        if each.scope == doubt.scope
    )
    return next((each for each in same if each.fingerprint == doubt.fingerprint), None)


def _line(tool: str, row: WriteRecord | None, run_id: str, place: str) -> Iterator[str]:
    if row is None:
        yield "a write may or may not have happened; a person must look, and say what became of it"
        yield f"look:    {command_line(f'ledger list --state in_doubt --run {strip_scope(run_id)}', place)}"
    elif row.state in ("in_doubt", "claimed"):
        yield f"{tool} may or may not have happened; a person must look, and say what became of it"
        yield f"look:    {command_line(f'ledger show {quote(row.scope)} {quote(row.key)}', place)}"
    else:
        if row.state == "done":
            happened = "happened"
        else:
            happened = "did not happen"
        if row.resolved_by:
            said = f"{row.resolved_by} has said since that it"
        else:
            said = "it is known since that it"
        yield f"{tool} was in doubt when the model was told of it; {said} {happened}"
