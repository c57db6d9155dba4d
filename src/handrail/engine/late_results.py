"""Handles a report that comes after its call was answered: settles the write in the ledger and emits an event.

When the tool of a write in doubt ends after all, its claim is settled with that result, if the claim is still ours. If
the store is unreachable at that moment, the claim is settled as soon as the store answers.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import CancelledError, Future
from functools import partial

from msgspec import Struct

from handrail import logs
from handrail.calls import TRUSTED, ToolCall
from handrail.core.batch import CallState
from handrail.core.redaction import KnownSecrets
from handrail.core.results import plain
from handrail.core.retries import done_but_too_large
from handrail.effects import Claim, Outcome, Raised, Returned, Settle
from handrail.engine.active_run import ActiveRun
from handrail.engine.leases import Lease
from handrail.engine.scheduler import Scheduler
from handrail.engine.unsaved_records import UnsavedRecords
from handrail.errors import Fenced, NoEffect, StoreUnavailable, TooLarge
from handrail.events import FinishedLate, LateResult
from handrail.ports import Store


def settle(
    store: Store,
    unsaved: UnsavedRecords,
    active: ActiveRun,
    state: CallState,
    *,
    lease: Lease | None,
    outcome: Outcome,
    within: Callable[..., None],
    alone: bool,
) -> None:
    """Settle the claim of a write that ended late, now or as soon as the store answers.

    Args:
        lease: None of a read.
        within: Calls a function with the context variables of the caller.
        alone: Whether no other attempt can have taken effect. A late "nothing happened" speaks for its own attempt
            only: an earlier or a newer one may have done it.
    """
    if lease is None:
        return
    label = TRUSTED if state.admitted is None else state.admitted.traits.label
    secrets = active.settings.secrets_for(label)
    settlement = _settlement(state, lease, outcome, secrets)
    if settlement is None or not (alone or settlement.state == "done"):
        return
    refused = partial(within, tell_refused, active, state.call, settlement)
    keep = partial(unsaved.settle, settlement, lease.claim, refused)
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
    if not active.has_observers:
        return
    match outcome:
        case Returned(value=value):
            active.tell(FinishedLate(state.call, plain(value)))
        case Raised():
            active.tell(FinishedLate(state.call, error=outcome.words))
        case _:
            active.tell(FinishedLate(state.call, error="it was stopped at last"))


def tell_refused(active: ActiveRun, call: ToolCall, settle: Settle) -> None:
    """Tell observers that the ledger refused how a write ended: another owner has it, or has settled it."""
    if active.has_observers:
        active.tell(
            LateResult(
                call,
                settle.scope,
                settle.key,
                settle.fence,
                settle.state,
                settle.value,
            )
        )


class SentSettlement(Struct, eq=False, gc=False):
    """The end of a write that was sent to the store while its run goes on, and what the store calls with its answer.

    It holds what the store's answer needs, and nothing of the batch that the call belongs to: that is over by then.
    """

    active: ActiveRun
    call: ToolCall
    claim: Claim
    settle: Settle
    unsaved: UnsavedRecords
    scheduler: Scheduler
    within: Callable[..., None]

    def __call__(self, done: Future[bool]) -> None:
        """Keep an end that the store did not take, or report one that it refused; in the store's thread."""
        error = CancelledError() if done.cancelled() else done.exception()
        if error is not None:
            store_unavailable(error)
            self.unsaved.settle(self.settle, self.claim, self._tell_refused)
        elif done.result() is False:
            try:
                self.scheduler.call_soon_threadsafe(self._tell_refused)
            except RuntimeError:  # the event loop is closed
                self._tell_refused()

    def _tell_refused(self) -> None:
        self.within(tell_refused, self.active, self.call, self.settle)


def store_unavailable(error: BaseException) -> StoreUnavailable:
    """Return what an execution gets when its store did not answer. Why it did not is for the log."""
    if isinstance(error, StoreUnavailable):
        return error
    if isinstance(error, Fenced):
        return StoreUnavailable(str(error))
    logs.log_exception("the store raised instead of answering", error)
    return StoreUnavailable(type(error).__name__)


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
