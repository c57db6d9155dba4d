"""Opens a stored run again: who may resume it or ask it another question, what comes from the store, and what the
caller must give again.

`Runtime.resume` says what resuming means; `journal.cursor` drives a run along its journal, `journal.rounds` reads the
rounds before the last one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import takewhile
from typing import Any

from msgspec.structs import replace

from handrail.calls import ToolCall, ToolResult
from handrail.core.batch import refuse_cancelled
from handrail.core.budgets import Budget
from handrail.core.flow import Rules, rules_from_json
from handrail.core.history import lost_read, lost_write
from handrail.core.policy import Policy
from handrail.core.results import failure_text
from handrail.core.trust import Trust, list_trusted_texts
from handrail.engine.active_run import ActiveRun, Earlier, is_driven_here
from handrail.engine.engine import Engine, Verb
from handrail.errors import ConfigError, RunUnderWay
from handrail.journal.codec import (
    RunInput,
    budget_from_json,
    input_from_json,
    result_from_json,
)
from handrail.journal.cursor import check_version
from handrail.journal.rounds import (
    Round,
    lost_calls,
    read_messages,
    read_rounds,
    with_results,
)
from handrail.messages import AssistantMessage, ToolMessage, UserMessage
from handrail.ports import Approver, LedgerStore, Model, Observer, Selector
from handrail.process_identity import has_left, owner
from handrail.records import JournalEntry, RunRecord, StoredRun
from handrail.runs import Run
from handrail.surroundings.clock import unix_time


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
    return not has_left(record.owner, unix_time() - record.updated)


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


def check_answered(stored: StoredRun, after: str | Run[Any]) -> None:
    """Raise unless a run can be asked another question: it has ended, and `after` is how it ended.

    Raises:
        RunUnderWay: Somebody carries it out, or has asked another question since `after`.
        ConfigError: It waits, was left unfinished, is a workflow or poisoned.
        JournalMismatch: It was recorded by a newer version.
    """
    record = stored.record
    name = f"the run {record.run_id!r}"
    check_version(record)
    if input_from_json(record.input).workflow:
        raise ConfigError(f"{name} is a workflow, and cannot be asked another question")
    if is_driven_here(record):
        raise RunUnderWay(f"{name} is under way already; wait for its end")
    check_left(record)
    if poisoned := poisoning(record):
        raise poisoned[1]
    if record.status == "waiting":
        reason = ""
        if isinstance(record.result, Mapping):
            reason = f", {record.result.get('reason', '')}"
        raise ConfigError(
            f"{name} has not answered yet{reason}: decide, then resume it; or cancel it"
        )
    if record.status in ("running", "queued"):
        raise ConfigError(
            f"{name} was left by its process before it had answered: resume it, then ask the next question"
        )
    rounds = 1 + sum(step.kind == "question" for step in stored.steps)
    if isinstance(after, Run) and after.round != rounds:
        raise RunUnderWay(
            f"{name} has been asked another question since: it has {rounds} rounds, and `after` is its round "
            f"{after.round}"
        )


def is_left_unfinished(record: RunRecord) -> bool:
    """Whether a run was left before its end, by a process that is gone or has released it."""
    return (
        record.status in ("running", "queued")
        and not record.is_poisoned
        and not is_driven_here(record)
        and not is_under_way(record)
    )


def load_ended_rounds(engine: Engine, stored: StoredRun) -> Verb[list[Round]]:
    """Return the rounds of a run that has ended, with a result for each call."""
    rounds = read_rounds(stored)
    if lost := lost_calls(rounds[-1]):
        results = yield from _find_lost_results(engine, stored.record.run_id, lost)
        rounds[-1] = with_results(rounds[-1], results)
    return rounds


def _find_lost_results(
    engine: Engine, run_id: str, calls: Mapping[str, ToolCall]
) -> Verb[dict[str, ToolResult]]:
    """Return results for the calls of a cancelled run that have none, as far as the ledger knows what became of them.

    Args:
        calls: By the key of the call's step.
    """
    started: set[str] = set()
    has_ledger = isinstance(engine.store, LedgerStore)
    if isinstance(engine.store, LedgerStore):
        # a claim does not name its call, so every call of a tool that has written is in doubt
        for write in (yield engine.store.list_writes(run_id=run_id, most=_EVERY)):
            started.add(write.tool)
    results: dict[str, ToolResult] = {}
    for key, call in calls.items():
        failure = lost_write(call.name)
        if engine.reads(call.name):
            failure = lost_read(call.name)
        elif has_ledger and call.name not in started:
            failure = refuse_cancelled(call)
        results[key] = ToolResult(
            call.id, call.name, failure=failure, text=failure_text(failure)
        )
    return results


_EVERY = 1_000_000_000


def read_earlier(engine: Engine, rounds: Sequence[Round], turns: int) -> Earlier:
    """Return rounds that have ended as the next one goes on from them; `turns` answers were asked for in them."""
    messages = read_messages(rounds, engine.sanitize)
    return Earlier(
        messages,
        rounds=len(rounds),
        turns=turns,
        trust=_read_trust(engine, rounds),
    )


def _read_trust(engine: Engine, rounds: Sequence[Round]) -> Trust:
    """Return what was read in rounds that have ended, and from whom. Their steps have what folded messages lack."""
    trust = Trust()
    for each in rounds:
        if each.asked.trust is not None:
            trust.inherit(each.asked.trust)
        trust.note_handed_over(each.asked.messages, engine.label_result)
        for step in each.steps:
            if step.kind == "call":
                trust.note(engine.label_result(result_from_json(step.body)))
    return trust


def follow_run(engine: Engine, run: Run[Any]) -> Earlier:
    """Return a run that no store keeps as its next round goes on from it: without a question that got no answer."""
    messages = list(engine.sanitize(run.messages))
    if not any(isinstance(each, AssistantMessage) for each in run.new_messages):
        while messages and isinstance(messages[-1], UserMessage):
            messages.pop()
    trust = Trust()
    first = takewhile(lambda each: not isinstance(each, AssistantMessage), run.messages)
    asked = run.messages[run.earlier : run.earlier + 1]
    trust.trust_words(list_trusted_texts([*first, *asked], trust))
    for message in messages:
        if isinstance(message, ToolMessage):
            trust.note(engine.label_result(message.result))
    trust.note_unseen(run.label)
    return Earlier(messages, rounds=run.round, is_stored=False, trust=trust)


def policy_of(engine: Engine, stored: StoredRun) -> Policy | None:
    """Return the policy of a stored run where it is not the engine's: a fork asks before it repeats a write."""
    if not stored.record.forked_from:
        return None
    done_before = input_from_json(stored.record.input).done_before
    return replace(engine.policy, done_before=frozenset(done_before))


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

    Args:
        principal: Who resumes it. The run goes on acting for the person it was started for.

    Raises:
        ConfigError: It is a workflow, or its model was an object, which cannot be stored.
        JournalMismatch: Its input cannot be read by this version.
    """
    run_id = stored.record.run_id
    *ended, last = read_rounds(stored)
    asked = last.asked
    if asked.workflow:
        raise ConfigError(
            f"run {run_id!r} is a workflow; resume it by workflow({asked.workflow[0]}, run_id={run_id!r})"
        )
    if model is None and not asked.model:
        raise ConfigError(
            f"run {run_id!r} records no model: it was submitted for that of its worker, or its model was an object; "
            "name one with model=, on the command line --model"
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
        principal=asked.principal,
        approver=approver,
        policy=policy_of(engine, stored),
        is_audited=is_audited,
    )
    active.note_resumed_by(engine.principal if principal is None else principal)
    active.keep_boundaries(asked.boundary_secret)
    resolved = engine.resolve_model(model if model is not None else asked.model)
    messages = asked.messages
    if ended:
        earlier = read_earlier(engine, ended, last.first_turn - 1)
        active.follow(earlier)
        messages = [*earlier.messages, *messages]
    if asked.trust is not None:
        active.progress.trust.inherit(asked.trust)
    return (
        active,
        replace(
            asked,
            messages=messages,
            output=output if output is not None else asked.output,
        ),
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
