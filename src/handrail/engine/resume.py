"""Opens a stored run again: who may resume it, what comes from the store, and what the caller must give again.

`Runtime.resume` says what resuming means; `journal.cursor` drives a run along its journal.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from time import time
from typing import Any

from msgspec.structs import replace

from handrail.core.budgets import Budget
from handrail.core.flow import Rules, rules_from_json
from handrail.engine.active_run import ActiveRun
from handrail.engine.engine import Engine
from handrail.errors import ConfigError, RunUnderWay
from handrail.journal.codec import RunInput, budget_from_json, input_from_json
from handrail.ports import Approver, Model, Observer, Selector
from handrail.process_identity import has_left, owner
from handrail.records import JournalEntry, RunRecord, StoredRun


def require_run(stored: StoredRun | None, run_id: str) -> StoredRun:
    """Return the stored run.

    Raises:
        ConfigError: There is none.
    """
    if stored is None:
        raise ConfigError(f"there is no run {run_id!r} in this store")
    return stored


def poisoning(record: RunRecord) -> tuple[JournalEntry, ConfigError] | None:
    """Return the journal entry and the error of a run that must not be resumed without `anyway`; None for others."""
    if not record.is_poisoned:
        return None
    taken = f"it was taken over {record.takeovers} times in a row, each time from a process that had left it"
    error = ConfigError(
        f"the run {record.run_id!r} is poisoned: {taken}; look at it, then resume it "
        "with `anyway=True` (`--anyway` on the command line)"
    )
    return JournalEntry(record.run_id, record.epoch, status="poisoned"), error


def is_under_way(record: RunRecord) -> bool:
    """Return whether another process drives a run, so that it can be taken over only with `anyway`.

    A process of this machine can be looked up; on another machine the run's last step is the last sign of life.
    """
    if record.status != "running" or record.owner in ("", owner()):
        return False
    return not has_left(record.owner, time() - record.updated)


def check_left(record: RunRecord) -> None:
    """Raise when another process drives a run.

    Raises:
        RunUnderWay: One does.
    """
    if is_under_way(record):
        host, _, number = record.owner.rpartition(":")[0].rpartition(":")
        raise RunUnderWay(
            f"the run {record.run_id!r} is under way in process {number} of {host}, which lives; wait for its end, or "
            "take it over with `anyway=True` (`--anyway` on the command line)"
        )


def check_name_free(stored: StoredRun | None) -> None:
    """Raise when a new run takes the name of a stored one, before anything is made ready for it.

    `RunStore.begin_run` finds a run that another process begins under that name at the same moment.

    Raises:
        RunNameTaken: There is one.
    """
    if stored is not None:
        raise stored.record.name_taken()


def open_stored_run(
    engine: Engine,
    stored: StoredRun,
    *,
    model: str | Model | None = None,
    deps: Any = None,
    inject: Mapping[str, Any] | None = None,
    budget: Budget | None = None,
    output: Any = None,
    observers: Sequence[Observer] = (),
    selector: str | Selector | None = None,
    flow: Rules | None = None,
    principal: str | None = None,
    approver: Approver | None = None,
    is_audited: bool = True,
) -> tuple[ActiveRun, RunInput, Model]:
    """Return a stored run as an active one, its input and its model.

    Raises:
        ConfigError: It is a workflow, or its model was an object, which cannot be stored.
        JournalMismatch: Its input cannot be read by this version.
    """
    run_id = stored.record.run_id
    asked = input_from_json(stored.record.input)
    if asked.workflow:
        raise ConfigError(
            f"run {run_id!r} is a workflow; resume it by workflow({asked.workflow[0]}, run_id={run_id!r})"
        )
    if model is None and not asked.model:
        raise ConfigError(
            f"the model of run {run_id!r} was an object; give it again with model="
        )
    policy = (
        replace(engine.policy, done_before=frozenset(asked.done_before))
        if stored.record.forked_from
        else None
    )
    active = engine.open_run(
        run=run_id,
        deps=deps,
        inject=inject,
        budget=budget or budget_from_json(asked.budget),
        observers=observers,
        options=asked.options,
        selector=selector,
        flow=rules_from_json(asked.flow) if flow is None else flow,
        principal=principal,
        approver=approver,
        policy=policy,
        is_audited=is_audited,
    )
    resolved = engine.resolve_model(model if model is not None else asked.model)
    return (
        active,
        replace(asked, output=output if output is not None else asked.output),
        resolved,
    )


def take_over(
    engine: Engine, active: ActiveRun, stored: StoredRun, *, new_output: bool
) -> RunRecord | None:
    """Return the record with which this process takes a run over; None where its journal has the answer already.

    Args:
        new_output: The answer is wanted in another form, which may need the model.
    """
    result = stored.record.result
    has_answer = isinstance(result, Mapping) and result.get("status") == "done"
    if new_output or stored.record.status != "done" or not has_answer:
        return replace(stored.record, owner=owner())
    engine.attach_journal(active, stored, replaying=True)
    return None
