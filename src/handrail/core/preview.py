"""Whether a call would run: every check of a batch, and nothing carried out.

A user interface, or a framework that asks before a call is made, wants to know this without making the call.
"""

from __future__ import annotations

from collections.abc import Generator
from typing import Any, Literal

from msgspec import Struct
from msgspec.structs import replace

from handrail.calls import ToolResult
from handrail.core.admission import (
    Admitted,
    apply_approval,
    make_question,
    refuse_call,
)
from handrail.core.batch import Batch
from handrail.core.execution import (
    ExecutedCall,
    Execution,
    make_cancellation,
    make_store_failure,
)
from handrail.core.policy import Decision
from handrail.core.run_settings import RunSettings
from handrail.core.writes import look_up
from handrail.effects import Approval, CallCancelled, Effect
from handrail.errors import PENDING, Failure, StoreUnavailable
from handrail.records import ApprovalRequest


class Preview(Struct, frozen=True):
    """What would become of a call, as far as can be decided before the call is made.

    Attributes:
        decision: `allow`: it would run. `ask`: a person would be asked. `deny`: it would be refused.
        failure: What the model would read, where it would not run at once.
        question: What a person is asked, where the question is stored: it can be answered before the call is made.
    """

    decision: Literal["allow", "ask", "deny"]
    failure: Failure | None = None
    question: ApprovalRequest | None = None


class PreviewBatch(Batch):
    """A batch that checks its calls and carries none of them out. Observers hear nothing of it."""

    def _execute(self, admitted: Admitted) -> Execution:
        return _preview_call(admitted, self._settings)


def _preview_call(call: Admitted, settings: RunSettings) -> Execution:
    failure: Failure | None
    try:
        failure = yield from _find_objection(call, settings)
    except CallCancelled:
        failure = make_cancellation(call)
    except StoreUnavailable:
        failure = make_store_failure(call.tool.name)
    if failure is not None:
        return ExecutedCall(call, refuse_call(call.call, failure, call.repairs))
    return ExecutedCall(call, ToolResult(call.call.id, call.tool.name))


def _find_objection(
    call: Admitted, settings: RunSettings
) -> Generator[Effect[Admitted], Any, Failure | None]:
    """Return why a call that passed its checks would not run at once; None where it would."""
    if call.verdict.decision is not Decision.ASK:
        return None
    # A write that is done or under way is answered by the ledger, and nobody is asked.
    if (yield from look_up(call, settings)) is not None:
        return None
    question = make_question(call, call.verdict.reason, call.place)
    approval: Approval | None = yield replace(question, is_preview=True)
    approved = yield from apply_approval(
        call,
        approval,
        settings.policy,
        injected=settings.injected,
        tell=settings.tell_all,
    )
    if isinstance(approved, Failure):
        return approved
    return None


def make_preview(result: ToolResult) -> Preview:
    """Return what the result of a previewed call says."""
    if result.failure is None:
        return Preview("allow")
    if result.failure.code in PENDING:
        return Preview("ask", result.failure, result.question)
    return Preview("deny", result.failure)
