"""How a call that was admitted is carried out, up to the result that the model reads. Start reading here.

    admission   the model's text -> a call that may run                                    pure
    execute     look up -> approval -> resources -> claim -> invoke, retry -> settle -> shape
                                                                                           a generator of effects

The order is a security property: nobody is asked about a call that may not run, and nothing is claimed while somebody
sleeps over an approval. It is written once, here, and is not for users to arrange. `writes` has the part from the claim
to its settlement, `attempts` the steps that reads and writes share.

Rule 1: nothing here performs anything, reads a clock of its own, or draws a random number of its own.
Rule 2: whatever happens, `execute` returns one `ToolResult`.
Rule 3: a call never changes. An edit by a person gives another one, and each effect carries the call that it is for.
"""

from __future__ import annotations

from collections.abc import Generator
from functools import partial
from typing import Any, TypeAlias

from msgspec import Struct
from msgspec.structs import replace

from handrail.calls import TRUSTED, ToolResult
from handrail.core import results, retries
from handrail.core.admission import (
    Admitted,
    apply_approval,
    make_question,
    refuse_call,
)
from handrail.core.attempts import (
    CallOutcome,
    compute,
    make_outcome,
    report_failed_attempt,
    reserve,
    start_attempt,
    time_limit_s,
    wait,
    wait_before,
)
from handrail.core.deferred import ask_for_result, read_delivery
from handrail.core.policy import Decision
from handrail.core.results import join_notes
from handrail.core.run_settings import RunSettings
from handrail.core.writes import look_up, perform_write
from handrail.effects import (
    Approval,
    CallCancelled,
    Claimed,
    ClaimState,
    Effect,
    Keep,
    Returned,
)
from handrail.errors import Code, Failure, StoreUnavailable
from handrail.invisible import is_clean
from handrail.schemas.validation import NULLS_LEFT_OUT
from handrail.tools import materialize


class ExecutedCall(Struct, frozen=True):
    """A call as it was carried out, perhaps edited by a person, and its result."""

    call: Admitted
    result: ToolResult


Execution: TypeAlias = Generator[Effect[Admitted], Any, ExecutedCall]


def execute(call: Admitted, settings: RunSettings) -> Execution:
    """Yield what must happen for this call, in order; return its result."""
    try:
        claimed: Claimed | None = None
        if call.traits.deferred and not settings.keeps:
            # before anybody is asked about it: it cannot start, but somebody may have started it
            claimed = yield from look_up(call, settings)
            if claimed is None:
                return _refuse(call, _refuse_to_wait(call))
        if claimed is None and call.verdict.decision is Decision.ASK:
            # A read has used its approval to start; nobody agrees once more to read its result.
            if call.tool.deferred and not call.tool.writes:
                question = replace(ask_for_result(call), is_recall=True)
                answer: Approval | None = yield question
                if answer is not None and answer.arguments is not None:
                    delivered = read_delivery(call, answer)
                    result = _shape_at_once(delivered, settings)
                    if result is None:
                        result = yield from shape_at_length(delivered, settings)
                    return ExecutedCall(call, result)
            approved, claimed = yield from _approve(call, settings)
            if isinstance(approved, Failure):
                return _refuse(call, approved)
            call = approved
        if claimed is None and (call.resources or call.traits.is_rated):
            # After the approval, so that nothing is held while somebody sleeps.
            failure = yield from reserve(call)
            if failure is not None:
                return _refuse(call, _leave(call, failure, settings))
        if call.traits.deferred:
            outcome = yield from _defer(call, settings, claimed)
        else:
            outcome = yield from _run(call, settings, claimed)
    except CallCancelled:
        failure = _leave(call, make_cancellation(call), settings)
        outcome = CallOutcome(call, failure=failure)
    except StoreUnavailable:
        failure = _leave(call, make_store_failure(call.tool.name), settings)
        outcome = CallOutcome(call, failure=failure)
    result = _shape_at_once(outcome, settings)
    if result is None:
        result = yield from shape_at_length(outcome, settings)
    return ExecutedCall(outcome.call, result)


def _leave(call: Admitted, failure: Failure, settings: RunSettings) -> Failure:
    """Return the failure of a call that was not started here, and of which the ledger has said nothing.

    An earlier process of the run may have started it, so a write is in doubt then.
    """
    if call.traits.writes and settings.epoch > 1:
        return retries.in_doubt(call.tool.name)
    return failure


def _run(
    call: Admitted, settings: RunSettings, claimed: Claimed | None
) -> Generator[Effect[Admitted], Any, CallOutcome]:
    """Return what runs the tool of a call."""
    if call.traits.writes:
        return perform_write(call, settings, claimed)
    return _read(call, settings)


def _defer(
    call: Admitted, settings: RunSettings, claimed: Claimed | None
) -> Generator[Effect[Admitted], Any, CallOutcome]:
    """Run a tool whose result comes from outside; return the result if it is there, else that the call waits for it."""
    if call.traits.writes:
        return (yield from perform_write(call, settings, claimed))
    question = ask_for_result(call)
    # Stored before the tool runs: what it starts may answer at once.
    answer: Approval | None = yield replace(question, is_preview=True)
    if answer is None:
        outcome = yield from _read(call, settings)
        if outcome.failure is not None:
            return outcome
        try:
            answer = yield question
        except (StoreUnavailable, CallCancelled):
            pass  # it was carried out, and its question is stored
    return read_delivery(call, answer)


def _refuse_to_wait(call: Admitted) -> Failure:
    return Failure(
        Code.NOT_PERMITTED,
        f"`{call.tool.name}` was not started: its result comes later, and this call is of no run that could wait for "
        "it.",
        "Go on without it.",
    )


def _approve(
    call: Admitted, settings: RunSettings
) -> Generator[Effect[Admitted], Any, tuple[Admitted | Failure, Claimed | None]]:
    """Ask a person about a call; return it as approved, and the ledger's answer if that made the question needless."""
    # Look first: nobody needs to approve a write that is done or under way.
    claimed = yield from look_up(call, settings)
    question = make_question(call, call.verdict.reason, call.place)
    approval: Approval | None
    if claimed is None:
        approval = yield question
    elif claimed.state is ClaimState.CONFLICT:
        # The same call, handed over again, after a person has edited its arguments?
        approval = yield replace(question, is_recall=True)
        if approval is None or approval.arguments is None:
            return call, claimed
    else:
        return call, claimed
    approved = yield from apply_approval(
        call,
        approval,
        settings.policy,
        injected=settings.injected,
        tell=settings.tell_all,
    )
    return approved, None


def _refuse(call: Admitted, failure: Failure) -> ExecutedCall:
    return ExecutedCall(call, refuse_call(call.call, failure, call.repairs))


def make_cancellation(call: Admitted) -> Failure:
    """Return that a call was not started because its run was cancelled."""
    return Failure(
        Code.CANCELLED, f"The run was cancelled before `{call.tool.name}` was started."
    )


def make_store_failure(tool: str) -> Failure:
    """Return that a call was not started because the store did not answer."""
    return Failure(
        Code.UNAVAILABLE,
        f"`{tool}` was not started: the record of writes cannot be reached.",
        "Try again later.",
        retryable=True,
    )


# ---------------------------------------------------------------------- reads


def _read(
    call: Admitted, settings: RunSettings
) -> Generator[Effect[Admitted], Any, CallOutcome]:
    """Attempt a read until it succeeds, or no further attempt is allowed."""
    began = settings.now()
    deadline = min(began + call.tool.timeout_s, settings.deadline.at)
    attempt = 0
    while True:
        attempt += 1
        outcome = yield start_attempt(call, attempt, began, settings)
        if isinstance(outcome, Returned):
            return make_outcome(call, outcome, attempt)
        diagnosis = retries.diagnose(
            outcome, call.tool.name, time_limit_s(call.tool, began, settings)
        )
        wait_s = wait_before(
            attempt + 1, diagnosis, call.tool, deadline=deadline, settings=settings
        )
        report_failed_attempt(
            call, attempt, outcome, diagnosis, wait_s=wait_s, settings=settings
        )
        failure: Failure | None = diagnosis.failure
        if wait_s is not None:
            failure = yield from wait(wait_s, call)
        if failure is not None:
            return CallOutcome(call, failure=failure, attempts=attempt)


# ---------------------------------------------------------------------- what the model reads


def _shape_at_once(outcome: CallOutcome, settings: RunSettings) -> ToolResult | None:
    """Return the result of a call that failed or whose value is plain; None for any other, see `shape_at_length`."""
    if outcome.failure is not None:
        return _shape_failure(outcome, outcome.failure, settings)
    return _shape_plainly(outcome, settings)


def _shape_plainly(outcome: CallOutcome, settings: RunSettings) -> ToolResult | None:
    """Return the result of a call that succeeded, where its value is plain and all of it is shown; else None."""
    call = outcome.call
    value = outcome.value
    if call.repairs or call.note or outcome.note:
        return None
    if not (outcome.plain or materialize.is_plain(value, type(value))):
        return None
    traits = call.traits
    most_bytes = traits.result_bytes or settings.result_bytes
    body = outcome.body
    text: str | bytes | None
    if body is None:
        text = results.encode_if_it_fits(value, most_bytes)
    else:
        text = body.decode() if len(body) <= most_bytes else body
    if type(text) is not str or not is_clean(text):
        return None
    secrets = settings.secrets_for(traits.label)
    if secrets is not None and secrets.text(text) != text:
        return None
    return ToolResult(
        call.call.id,
        traits.name,
        value,
        text=text,
        attempts=outcome.attempts,
        replayed=outcome.replayed,
        done_under=outcome.done_under,
        label=traits.label,
    )


def shape_at_length(
    outcome: CallOutcome, settings: RunSettings
) -> Generator[Effect[Admitted], Any, ToolResult]:
    """Shape the result of a call that succeeded: remove what the model must not read, cut it, note what was done.

    A result that does not fit is stored whole.
    """
    call = outcome.call
    value, shaped = yield from compute(outcome.size, partial(_cut, outcome, settings))
    note = join_notes(call.note, outcome.note)
    repairs = [name for name in call.repairs if name != NULLS_LEFT_OUT]
    if repairs:
        note = join_notes(
            note,
            f"your arguments were repaired ({', '.join(repairs)}); write them as plain JSON",
        )
    if shaped.hidden:
        note = join_notes(note, results.describe_hidden(shaped.hidden))
    handle = ""
    if shaped.cut:
        handle, rest = yield from _store_rest(shaped.whole)
        note = join_notes(note, f"{shaped.cut}; {rest}")
    text = shaped.text
    if note:
        text = results.with_note(text, note, value)
    return ToolResult(
        call.call.id,
        call.tool.name,
        value,
        text=text,
        attempts=outcome.attempts,
        replayed=outcome.replayed,
        note=note,
        repairs=call.repairs,
        handle=handle,
        media=results.media_in(value),
        done_under=outcome.done_under,
        label=call.tool.label,
    )


def _cut(outcome: CallOutcome, settings: RunSettings) -> tuple[Any, results.Shaped]:
    """Return the value without secrets, and what of it the model reads."""
    value = settings.redact(outcome.value, outcome.call.tool.label)
    most_bytes = outcome.call.tool.limits.result_bytes or settings.result_bytes
    return value, results.shape(value, most_bytes)


def _store_rest(
    whole: str,
) -> Generator[Effect[Admitted], Any, tuple[str, str]]:
    """Store the whole text of a result that was cut; return its handle, and how the model reads the rest."""
    try:
        handle: str = yield Keep(whole)
    except (StoreUnavailable, CallCancelled):
        return "", "the rest could not be stored"
    return handle, f"read the rest with read_result(handle={handle!r})"


def _shape_failure(
    outcome: CallOutcome, failure: Failure, settings: RunSettings
) -> ToolResult:
    call = outcome.call
    secrets = settings.secrets_for(call.tool.label)
    if secrets is not None:
        failure = secrets.failure(failure)
    text = results.failure_text(failure)
    return ToolResult(
        call.call.id,
        call.tool.name,
        failure=results.clean_failure(failure),
        text=text,
        attempts=outcome.attempts,
        replayed=outcome.replayed,
        repairs=call.repairs,
        # a failure has words of the far side too
        label=call.tool.label if outcome.attempts else TRUSTED,
    )
