"""Which parts of handrail the worlds must have met: a search that meets too little proves too little."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from handrail.core.batch import CallState
from handrail.effects import ClaimState
from handrail.engine.executor import BatchExecutor
from tests.prove import world

EFFECTS = (
    "AskHuman",
    "Claim",
    "Invoke",
    "Keep",
    "LookUp",
    "Reserve",
    "Settle",
    "Verify",
    "Wait",
)
"""All of `effects` but `Admit` and `Compute`, which are carried out in threads."""
ROWS = ("claimed", "waiting", "done", "failed", "in_doubt")
"""The states of a write in the ledger."""
CODES = (
    "APPROVAL_EXPIRED", "CANCELLED", "IDEMPOTENCY_KEY_REUSED", "INVALID_ARGUMENTS", "IN_DOUBT", "IN_PROGRESS",
    "NOT_APPROVED", "NOT_PERMITTED", "TIMEOUT", "TOOL_ERROR", "UNAVAILABLE", "UNKNOWN_TOOL",
)  # fmt: skip
"""Those that come of how a call is carried out, and not of what a model wrote."""


def wanted() -> set[str]:
    """Return what must be met."""
    return {
        *(f"ClaimState.{each.name}" for each in ClaimState),
        *(f"Effect.{each}" for each in EFFECTS),
        *(f"Row.{each}" for each in ROWS),
        *(f"Code.{each}" for each in CODES),
    }


@contextmanager
def noted() -> Iterator[None]:
    """Note the effects that worlds ask for."""
    perform = BatchExecutor.perform

    def note(self: BatchExecutor, state: CallState, effect: Any) -> None:
        world.current().reached.add(f"Effect.{type(effect).__name__}")
        perform(self, state, effect)

    BatchExecutor.perform = note  # type: ignore[method-assign]
    try:
        yield
    finally:
        BatchExecutor.perform = perform  # type: ignore[method-assign]
