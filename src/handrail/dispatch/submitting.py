"""Submitting a run to workers, and waiting for its end; see `Runtime.submit` and `Runtime.result`.

What is submitted is stored, and carried out by another process. So nothing can be given here that only this process
has: a function, an object, a value that must not be written down.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import partial
from math import isnan
from typing import Any, TypedDict, cast
from weakref import WeakSet

from msgspec.structs import replace

from handrail import plugins
from handrail.core.budgets import Budget
from handrail.core.flow import Rules
from handrail.core.history import sanitize
from handrail.core.structured_output import track_output
from handrail.dialects.boundaries import Boundaries
from handrail.dispatch.choice import prepare_queue
from handrail.engine.engine import Engine, Pause, Verb
from handrail.engine.resume import require_run
from handrail.engine.scoped_store import qualify_name
from handrail.errors import ConfigError, Json, RunNameTaken, RunUnderWay
from handrail.history.run_history import read_history
from handrail.invisible import check_name
from handrail.messages import Message, Options, conversation_of
from handrail.parsing.names import nearest
from handrail.ports import SubmittedRunStore
from handrail.records import StoredRun, Submission, new_run_id
from handrail.runs import Run
from handrail.stores.durable import DurableStore
from handrail.surroundings.clock import monotonic

_FIRST_LOOK_S = 0.05
_LONGEST_LOOK_S = 1.0
_LARGEST_PRIORITY = 2**31 - 1

_UNSTORED = {
    "deps": "give it to the worker",
    "inject": "give it to the worker, with --inject",
    "observers": "give them to the worker's runtime",
    "selector": "give it to the worker's runtime",
    "policy": "give it to the worker, with --policy",
    "approver": "a question waits for `handrail approvals`, the console or `Runtime.approvals`",
    "after": "a submitted question begins a run of its own",
}
"""Options of `Runtime.run` that cannot be stored, and what to do instead."""


class SubmitOptions(TypedDict, total=False):
    """What `submit` takes beside the question, the model and the output; see `Runtime.submit`."""

    system: str
    budget: Budget | None
    options: Options | None
    flow: Rules
    principal: str | None
    scope: str | None
    run_id: str | None
    idempotent: bool
    queue: str
    priority: int


def submit(
    engine: Engine,
    question: str | Message | Sequence[Message | Mapping[str, Json]],
    *,
    model: str,
    output: Any = None,
    options: Mapping[str, Any],
) -> Verb[str]:
    """See `Runtime.submit`."""
    given = dict(options)
    check_model(model)
    _check_storable(given)
    queue = given.pop("queue", "default")
    priority = given.pop("priority", 0)
    check_place(queue, priority)
    run_id = given.pop("run_id", None)
    if run_id is None:
        run_id = new_run_id()
    # also "", which an unset variable gives: the run would get a new name each time it is submitted
    run_id = check_name("run_id", run_id)
    is_idempotent = given.pop("idempotent", False)
    engine = engine.serve(given.pop("scope", None))
    store = _require_store(engine)
    messages = conversation_of(question, system=given.pop("system", ""))
    active = engine.open_run(run=run_id, is_audited=False, **given)
    sound = sanitize(messages, reads=engine.reads)
    wanted = None if output is None else track_output(output, "prompt")
    active.open_conversation(sound.messages, wanted)
    if active.options.boundaries:
        active.boundaries = Boundaries()
    record = engine.make_record(active, sound.messages, model)
    assert record is not None
    tools = [tool.name for tool in engine.tools if engine.policy.sees(tool)]
    # in a thread: the first time, tables may have to be made
    yield engine.services.deciding_threads.call(partial(_prepare, engine.store_of_all))
    submission = Submission(queue=queue, priority=priority, tools=tools)
    try:
        yield store.submit_run(replace(record, owner=""), submission)
    except RunNameTaken:
        if not is_idempotent:
            raise
        stored = require_run((yield engine.load_run(run_id)), run_id)
        _check_same(stored, record.input)
    return run_id


_prepared: WeakSet[Any] = WeakSet()
"""The stores that have the tables of their queue, as far as this process can make them."""


def _prepare(store: object) -> None:
    """Have the tables made in which the segments of a store wait."""
    if isinstance(store, DurableStore) and store not in _prepared:
        # a process without procrastinate leaves them to the workers
        with suppress(ConfigError):
            prepare_queue(store)
        _prepared.add(store)


def check_model(model: object) -> None:
    """Raise ConfigError unless a worker can find a model by this name; empty is its own."""
    if not isinstance(model, str):
        raise ConfigError(
            "a submitted run is carried out by another process, which finds its model by name: give `model` as "
            "`provider:name`, or leave it out for the worker's"
        )
    if model and not all(model.partition(":")):
        raise ConfigError(
            f"the model {model!r} is no name; write `provider:name`, such as `openai:NAME`"
        )


def describe_missing_provider(model: str) -> str:
    """Say that this process knows no provider of a model, and which one is near; empty if it does, or none is named.

    That is no error where a run is submitted: a provider may be a plug-in of the workers alone.

    >>> describe_missing_provider("opnai:gpt")
    "no provider 'opnai' (did you mean openai:gpt?)"
    """
    provider, _, name = model.partition(":")
    known = plugins.list_names("models")
    if not model or provider in known:
        return ""
    near = nearest(provider, known, most=1)
    meant = f" (did you mean {near[0]}:{name}?)" if near else ""
    return f"no provider {provider!r}{meant}"


def _check_storable(given: Mapping[str, Any]) -> None:
    for name in given:
        if name in _UNSTORED:
            raise ConfigError(
                f"`{name}` cannot be stored with a submitted run: {_UNSTORED[name]}"
            )
        if name not in SubmitOptions.__optional_keys__:
            raise TypeError(f"submit() got an unexpected keyword argument {name!r}")


def check_place(queue: object, priority: object = 0) -> None:
    """Raise ConfigError unless a run can wait in this queue, with this priority."""
    check_name("queue", queue)
    if (
        not isinstance(priority, int)
        or isinstance(priority, bool)
        or abs(priority) > _LARGEST_PRIORITY
    ):
        raise ConfigError(
            f"priority is {priority!r}; it takes a whole number between {-_LARGEST_PRIORITY:,} and "
            f"{_LARGEST_PRIORITY:,}"
        )


def _require_store(engine: Engine) -> SubmittedRunStore:
    # a tenant's view of a store has only the first method, which is what is needed here
    if not hasattr(engine.store, "submit_run"):
        raise ConfigError(
            "this store cannot hand runs to workers; open the runtime with "
            'store="sqlite:///handrail.db", or postgresql://HOST/DATABASE'
        )
    return cast(SubmittedRunStore, engine.store)


def _check_same(stored: StoredRun, asked: Json) -> None:
    """Refuse a name that another question was submitted with."""
    recorded = stored.record.input
    same = isinstance(recorded, Mapping) and isinstance(asked, Mapping)
    if not same or any(
        recorded.get(part) != asked.get(part)
        for part in ("messages", "model", "output")
    ):
        raise stored.record.name_taken()


def await_end(engine: Engine, run_id: str, *, within_s: float | None) -> Verb[Run[Any]]:
    """See `Runtime.result`."""
    until = None
    if within_s is not None:
        until = monotonic() + check_seconds("within_s", within_s)
    look_s = _FIRST_LOOK_S
    while True:
        stored = require_run((yield engine.load_run(run_id)), run_id)
        if stored.record.status not in ("queued", "running"):
            return as_run(stored)
        left_s = look_s if until is None else until - monotonic()
        if left_s <= 0:
            name = qualify_name(engine.scope, run_id)
            note = yield from _load_note(engine, name)
            raise RunUnderWay(
                f"the run {name!r} has not ended within {within_s:g} s: it is {stored.record.status}{note}"
            )
        yield Pause(min(look_s, left_s))
        look_s = min(look_s * 1.5, _LONGEST_LOOK_S)


def _load_note(engine: Engine, name: str) -> Verb[str]:
    """Return what a run waits for in the store, in brackets; empty where nothing is noted."""
    store = engine.store_of_all
    if not isinstance(store, SubmittedRunStore):
        return ""
    submission = (yield store.list_submitted([name])).get(name)
    return f" ({submission.note})" if submission and submission.note else ""


def check_seconds(setting: str, seconds: object) -> float:
    """Return a time to wait. With a NaN nothing would ever be over.

    Raises:
        ConfigError: It is no number of seconds.
    """
    if not isinstance(seconds, int | float) or isnan(seconds):
        raise ConfigError(f"`{setting}` is {seconds!r}; it takes a number of seconds")
    return seconds


def as_run(stored: StoredRun) -> Run[Any]:
    """Return a stored run that has ended, or waits, as whoever carried it out got it."""
    run = read_history(stored).as_run()
    record = stored.record
    if record.status == "poisoned":
        reason = (
            "it is poisoned: several workers in a row died in it; look at it, then "
            "resume it with `anyway=True`"
        )
        run = replace(run, status="failed", reason=reason)
    if isinstance(record.result, Mapping) and "output" in record.result:
        run = replace(run, output=record.result["output"])
    return run
