"""Calls whose result comes from outside: how each is started, and what is known of its result.

A deferred write is named by its ledger row: scope, key and fence. So is the question that waits for its result, and
whoever asks for the write again, in whatever run or process, finds that question. The row is `waiting` from the
question on: a claim whose process ended before it asked is in doubt like any other. Whoever delivers the result settles
the row in the same commit: the delivery is the proof of how the write ended.

    claim -> question -> start -> ... -> delivery settles the row: done      -> everybody reads the value
                                         "it will not come", or withdrawn    -> in doubt
                                         nobody answers in time              -> in doubt

Rule 1: while the question is open nothing is in doubt: not after a crash of the process that started the write, nor
        when its tool raised without saying that nothing happened.
Rule 2: once a write was started, a result that will not come leaves it in doubt. It is never refused or timed out.
Rule 3: a result is delivered to a write that still waits for it, or to nobody; see `stores.ledger.Ledger.deliver`.

A deferred read has no row: its question belongs to its place in the run.
"""

from __future__ import annotations

from msgspec.structs import replace

from handrail.core import retries
from handrail.core.admission import Admitted, make_question
from handrail.core.attempts import CallOutcome
from handrail.effects import Approval, AskHuman, Claim
from handrail.errors import Code, Failure
from handrail.records import AWAITS_RESULT, name_write


def ask_for_result(
    call: Admitted, claim: Claim | None = None, fence: int = 0
) -> AskHuman:
    """Return the question for a call's result. It comes from one, whoever had to agree to the call.

    Args:
        claim: Of a write; None of a read.
    """
    question = make_question(call, AWAITS_RESULT, f"{call.place}#result")
    write = "" if claim is None else name_write(claim.scope, claim.key, fence)
    return replace(question, awaits_result=True, required_approvals=1, write=write)


def read_delivery(call: Admitted, answer: Approval | None) -> CallOutcome:
    """Return what was delivered as the result of a call that was started, or why there is nothing.

    Args:
        answer: None while the question is open.
    """
    name = call.tool.name
    if answer is not None and answer.granted and answer.arguments is not None:
        return CallOutcome(call, answer.arguments.get("value"), attempts=1)
    if answer is None:
        return CallOutcome(call, failure=result_pending(name), attempts=1)
    reason = f": {answer.reason}" if answer.reason else ""
    why = f"There will be no result of `{name}`{reason}."
    if answer.expired:
        why = f"The result of `{name}` did not come in time."
    if call.traits.writes:
        doubt = retries.in_doubt(name)
        failure = replace(doubt, message=f"{doubt.message} {why}")
    elif answer.expired:
        failure = Failure(Code.TIMEOUT, why, "Go on without it, or tell the user.")
    else:
        advice = "Go on without it, or ask the user how to go on."
        failure = Failure(Code.NOT_APPROVED, why, advice)
    return CallOutcome(call, failure=failure, attempts=1)


def result_pending(tool: str) -> Failure:
    """Return the failure of a call that was started and whose result has not been delivered."""
    return Failure(
        Code.RESULT_PENDING,
        f"The result of `{tool}` is not there yet.",
        "Do not call it again meanwhile; tell the user what it waits for.",
    )
