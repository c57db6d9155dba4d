"""Goes on with a run that was kept: who may, with what it was begun, and with whatever could not be kept given again.

`Runtime.resume` tells what that means; how a run is driven along its journal stands in `recording`.
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
from handrail.engine.tool_visibility import selector_of
from handrail.errors import ConfigError, RunUnderWay
from handrail.journal.codec import RunInput, budget_from_json, input_from_json
from handrail.ports import Model, Observer, Selector
from handrail.process_identity import has_left, owner
from handrail.records import JournalEntry, RunRecord, StoredRun


def known(begun: StoredRun | None, run_id: str) -> StoredRun:
    """Return a kept run, or raise where there is none."""
    if begun is None:
        raise ConfigError(f"there is no run {run_id!r} in this store")
    return begun


def poisoning(record: RunRecord) -> tuple[JournalEntry, ConfigError] | None:
    """Return what is recorded of a run that nobody should go on with unasked, and the error to raise; else None."""
    if not record.is_poisoned:
        return None
    taken = f"it was taken over {record.takeovers} times in a row, each time from a process that had left it"
    error = ConfigError(
        f"the run {record.run_id!r} is poisoned: {taken}; look at it, and insist with `anyway` to go on"
    )
    return JournalEntry(record.run_id, record.epoch, status="poisoned"), error


def is_under_way(record: RunRecord) -> bool:
    """Whether another process drives a run, so that it may be taken over only if somebody insists.

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
            "insist with `anyway` to take it from there"
        )


def check_free(kept: StoredRun | None) -> None:
    """Raise when a new run takes the name of one that is kept, before anything is made ready for it.

    Whoever begins one of that name at the same moment is found by `RunStore.begin_run`.

    Raises:
        RunNameTaken: There is one.
    """
    if kept is not None:
        raise kept.record.name_taken()


def again(
    host: Engine,
    begun: StoredRun | None,
    run_id: str,
    *,
    model: str | Model | None = None,
    deps: Any = None,
    inject: Mapping[str, Any] | None = None,
    budget: Budget | None = None,
    output: Any = None,
    observers: Sequence[Observer] = (),
    selector: str | Selector | None = None,
    flow: Rules | None = None,
) -> tuple[ActiveRun, RunInput, Model]:
    """Open a run that was kept.

    Raises:
        ConfigError: There is no such run, or its model was an object, which cannot be kept.
        JournalMismatch: What was kept cannot be read.
    """
    begun = known(begun, run_id)
    asked = input_from_json(begun.record.input)
    if asked.workflow:
        raise ConfigError(
            f"run {run_id!r} is a workflow; go on with it by workflow({asked.workflow[0]}, run_id={run_id!r})"
        )
    if model is None and not asked.model:
        raise ConfigError(f"the model of run {run_id!r} was an object; give it again with model=")
    budget = budget or budget_from_json(asked.budget)
    session = host.session(run=run_id, deps=deps, inject=inject, budget=budget, observers=observers)
    session.options = asked.options
    session.selector = None if selector is None else selector_of(selector)
    session.course = host.course(rules_from_json(asked.flow) if flow is None else flow)
    found = host.model(model if model is not None else asked.model)
    if begun.record.forked_from:
        session.conduct.policy = replace(host.policy, done_before=frozenset(asked.done_before))
    return session, replace(asked, output=output if output is not None else asked.output), found


def taken_over(host: Engine, session: ActiveRun, begun: StoredRun, *, anew: bool) -> RunRecord | None:
    """Return what a resume takes over; None where the run has its answer, and its journal tells it again.

    Args:
        anew: The answer is wanted in another form, which may need the model.
    """
    ended = begun.record.result
    if anew or begun.record.status != "done" or not (isinstance(ended, Mapping) and ended.get("status") == "done"):
        return replace(begun.record, owner=owner())
    host.record(session, begun, replaying=True)
    return None
