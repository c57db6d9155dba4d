"""Handles a report that comes after its call was answered: settles the write in the ledger and emits an event.

When the tool of a write in doubt ends after all, its claim is settled with that result, if the claim is still ours. If
the store is unreachable at that moment, the claim is settled as soon as the store answers.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future
from functools import partial

from handrail import logs
from handrail.core.batch import CallState
from handrail.core.redaction import KnownSecrets
from handrail.core.results import plain
from handrail.core.retries import done_but_too_large
from handrail.effects import Outcome, Raised, Returned, Settle
from handrail.engine.active_run import ActiveRun
from handrail.engine.leases import Lease
from handrail.engine.unsaved_records import Unrecorded
from handrail.errors import NoEffect, TooLarge
from handrail.events import FinishedLate, LateResult
from handrail.ports import Store


def settle(
    store: Store,
    unrecorded: Unrecorded,
    active: ActiveRun,
    state: CallState,
    *,
    lease: Lease | None,
    outcome: Outcome,
    newest: bool,
) -> None:
    """Settle the claim of a write that ended late, now or as soon as the store answers.

    Args:
        lease: None of a read.
        newest: Whether no attempt was begun after this one. A late "nothing happened" speaks for its own attempt only:
            a newer one may have done it.
    """
    if lease is None:
        return
    settlement = _settlement(state, lease, outcome, active.settings.secrets)
    if settlement is None or not (newest or settlement.state == "done"):
        return
    refused = partial(tell_refused, active, state, settlement)
    keep = partial(unrecorded.settle, settlement, lease.claim, refused)
    try:
        answer = store.settle(settlement)
    except Exception as error:
        # a driver's own errors too: whatever it raises, the store did not answer
        _log(active, state, error)
        keep()
        return
    if isinstance(answer, Future):
        answer.add_done_callback(
            partial(_take_store_answer, active, state, keep, refused)
        )
    elif answer is False:
        refused()


def tell(active: ActiveRun, state: CallState, outcome: Outcome) -> None:
    """Tell observers how a tool ended whose call was answered without it."""
    if not active.is_heard:
        return
    match outcome:
        case Returned(value=value):
            active.tell(FinishedLate(state.call, plain(value)))
        case Raised():
            active.tell(FinishedLate(state.call, error=outcome.words))
        case _:
            active.tell(FinishedLate(state.call, error="it was stopped at last"))


def tell_refused(active: ActiveRun, state: CallState, settle: Settle) -> None:
    """Tell observers that the ledger refused how a write ended: another owner has it, or has settled it."""
    if active.is_heard:
        active.tell(
            LateResult(
                state.call,
                settle.scope,
                settle.key,
                settle.fence,
                settle.state,
                settle.value,
            )
        )


def _settlement(
    state: CallState, lease: Lease, outcome: Outcome, secrets: KnownSecrets | None
) -> Settle | None:
    """Return what to record; None when the report tells nothing new."""
    claim = lease.claim
    settlement = partial(
        Settle, claim.scope, claim.key, lease.claimed.fence, locks=claim.locks
    )
    match outcome:
        case Returned(value=value):
            if secrets is not None:
                value = secrets.value(value)
            return settlement(state="done", value=plain(value))
        case Raised(error=TooLarge() as error):
            return settlement(
                state="done", value=done_but_too_large(state.call.name, error).as_json()
            )
        case Raised(error=NoEffect()):
            return settlement(state="failed")
        case _:
            return None


def _take_store_answer(
    active: ActiveRun,
    state: CallState,
    keep: Callable[[], None],
    refused: Callable[[], None],
    done: Future[bool],
) -> None:
    """Take what the store has answered, in its own thread."""
    if (error := done.exception()) is not None:
        _log(active, state, error)
        keep()
    elif done.result() is False:
        refused()


def _log(active: ActiveRun, state: CallState, error: BaseException) -> None:
    logs.log_exception(
        f"the late end of {state.call.name!r} in run {active.id} could not be recorded",
        error,
    )
