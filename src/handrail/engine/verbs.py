"""The methods of a runtime (its verbs) as generators, each written once for both runtimes.

A verb yields requests (`engine.Request`) and returns its value. `Runtime` answers them on asyncio, `SyncRuntime` in the
calling thread; a verb neither waits nor starts a thread itself. The verb `workflow` is in `workflows`.

Rule 1: if anything raises while a run is under way, the run is finished: its name is free, and observers see its end.
        Unless the process itself ends, the run is also released in the store, so that any process may resume it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, TypedDict, cast

from msgspec.structs import replace
from typing_extensions import Unpack

from handrail import _lazy
from handrail.calls import ToolCall, ToolResult, arguments_text
from handrail.core.budgets import Budget
from handrail.core.conversation import Ending
from handrail.core.flow import Rules
from handrail.core.policy import Policy
from handrail.core.preview import Preview, make_preview
from handrail.core.trust import Trust
from handrail.dialects import message_fields, wire_dialect
from handrail.effects import Approval, Returned
from handrail.engine.active_run import ActiveRun
from handrail.engine.approvals import load_edits
from handrail.engine.engine import (
    Engine,
    PerformBatch,
    Verb,
    current_call,
    current_engine,
    make_run_input,
)
from handrail.engine.resume import (
    check_answered,
    check_left,
    check_name_free,
    follow_run,
    load_ended_rounds,
    open_stored_run,
    poisoning,
    policy_of,
    read_earlier,
    require_run,
    take_over,
)
from handrail.engine.user_code import parse_approval
from handrail.errors import ConfigError, Fenced, Json, RunPostponed, RunUnderWay
from handrail.invisible import check_name
from handrail.journal.rounds import next_turn, question_step
from handrail.messages import Finish, Message, Options, Turn, conversation_of
from handrail.ports import Approver, Model, Observer, Selector
from handrail.process_identity import owner
from handrail.records import (
    JournalStep,
    ModelWait,
    RunRecord,
    StoredRun,
    new_run_id,
)
from handrail.runs import Run
from handrail.tools.tool import BaseTool
from handrail.tools.toolset import Toolset

if TYPE_CHECKING:
    from handrail.engine import undo as undoing
    from handrail.journal import fork as forking
else:
    forking = _lazy.module("handrail.journal.fork")
    undoing = _lazy.module("handrail.engine.undo")


class Whose(TypedDict, total=False):
    """Whose call or run it is, and whose rules hold for it, in place of the runtime's."""

    principal: str | None
    """On whose behalf: the audit log has it, and this person's own approval does not count.

    A stored run keeps the principal that it was started with: of `resume` and `fork`, this is who calls them.
    """
    scope: str | None
    """The tenant, with records, keys, resources and rates of its own."""
    policy: Policy | None
    approver: Approver | None


class CallOptions(Whose, total=False):
    """What `call`, `handle` and `calls` take beside the calls; see `Runtime.call`."""

    deps: Any
    inject: Mapping[str, Any] | None
    budget: Budget | None
    observers: Sequence[Observer]
    said: str | Sequence[str]


class RoundOptions(Whose, total=False):
    """What every question of a conversation may take beside the model and the output; see `Runtime.run`."""

    budget: Budget | None
    deps: Any
    inject: Mapping[str, Any] | None
    options: Options | None
    observers: Sequence[Observer]
    selector: str | Selector | None
    flow: Rules


class RunOptions(RoundOptions, total=False):
    """What `run` and `stream` take beside the question, the model and the output; see `Runtime.run`."""

    system: str
    run_id: str | None
    after: str | Run[Any] | None


class ResumeOptions(Whose, total=False):
    """What `resume`, `replay` and `fork` take beside the run and the output; see `Runtime.resume`."""

    model: str | Model | None
    budget: Budget | None
    deps: Any
    inject: Mapping[str, Any] | None
    observers: Sequence[Observer]
    selector: str | Selector | None
    flow: Rules | None


def serve(engine: Engine, options: Whose) -> Engine:
    """Take `scope` and `policy` out of the options; return the engine that they, or the call of this tool, ask for."""
    if not options and current_engine.get() is None:
        return engine
    return engine.serve(options.pop("scope", None), options.pop("policy", None))


# ---------------------------------------------------------------------- calls


def call(
    engine: Engine,
    name: str,
    arguments: Mapping[str, Json] | str | None,
    run: str | None,
    options: CallOptions,
) -> Verb[ToolResult]:
    """See `Runtime.call`."""
    turn = Turn(
        calls=[ToolCall("call_1", name, arguments_text(arguments))], finish="calls"
    )
    results = yield from _perform_calls(engine, turn, run, options, from_model=False)
    return results[0]


def calls(
    engine: Engine,
    asked: Sequence[ToolCall],
    run: str,
    options: CallOptions,
    *,
    turn: str,
    finish: Finish,
    words: Mapping[str, Approval | bool] | None,
    passes: tuple[type[Exception], ...],
) -> Verb[list[ToolResult]]:
    """See `Runtime.calls`."""
    _check_calls(asked)
    return (
        yield from _perform_calls(
            engine,
            Turn(calls=list(asked), finish=finish),
            run,
            options,
            round_name=turn,
            names=_name_calls(run, asked),
            words=read_words(words) if words else None,
            passes=passes,
        )
    )


def read_words(given: Mapping[str, Approval | bool]) -> dict[str, Approval]:
    """Return what people have said of calls, by the id of the call.

    Raises:
        ConfigError: One is neither an `Approval` nor True or False.
    """
    words: dict[str, Approval] = {}
    for call_id, word in given.items():
        if not isinstance(word, Approval | bool):
            raise ConfigError(
                f"the word on the call {call_id!r} is {word!r}; it is an `hr.Approval`, True or False"
            )
        read = parse_approval(Returned(word))
        assert read is not None
        question = word.question if isinstance(word, Approval) else ""
        words[call_id] = replace(read, question=question)
    return words


def preview(
    engine: Engine,
    name: str,
    arguments: Mapping[str, Json] | str | None,
    run: str | None,
    options: CallOptions,
    *,
    call_id: str,
) -> Verb[Preview]:
    """See `Runtime.preview`."""
    engine = serve(engine, options)
    call = ToolCall(call_id or "call_1", name, arguments_text(arguments))
    names = _name_calls(run, [call]) if run and call_id else ()
    active, batch = yield from engine.open_preview(
        call, run=run, names=names, options=options
    )
    yield PerformBatch(engine, active, batch)
    return make_preview(batch.collect_results()[0])


def _check_calls(asked: object) -> None:
    if not isinstance(asked, list | tuple) or not all(
        isinstance(each, ToolCall) for each in asked
    ):
        raise ConfigError(
            "calls are a list of `hr.ToolCall(id, name, text)`; for a provider's message there is `handle`"
        )


def _name_calls(run: str, asked: Sequence[ToolCall]) -> list[str]:
    """Return the name of each call, which is the same in every process; empty for one without an id.

    An id is a model's or a provider's text. Escaped, it cannot spell the name of another call.
    """
    names: list[str] = []
    times: dict[str, int] = {}
    for each in asked:
        name = ""
        if each.id:
            name = f"{run}/id:{each.id.translate(_ESCAPES)}"
            times[each.id] = nth = times.get(each.id, 0) + 1
            # Some models give one id to several calls of an answer.
            if nth > 1:
                name = f"{name}#{nth}"
        names.append(name)
    return names


_ESCAPES = {ord(sign): f"%{ord(sign):02X}" for sign in "%/#"}


def handle(
    engine: Engine,
    message: Any,
    run: str | None,
    options: CallOptions,
    *,
    dialect: str,
) -> Verb[Any]:
    """See `Runtime.handle`."""
    wire = wire_dialect(dialect)
    turn = wire.decode_message(message_fields(message), engine.tools)
    if not turn.calls and turn.text and run is not None:
        # An answer: what follows is another question.
        serve(engine, options).begin_round(run)
        return wire.encode_results((), ())
    results = yield from _perform_calls(engine, turn, run, options)
    return wire.encode_results(turn.calls, results)


def _perform_calls(
    engine: Engine,
    turn: Turn,
    run: str | None,
    options: CallOptions,
    *,
    round_name: str = "",
    names: Sequence[str] = (),
    words: Mapping[str, Approval] | None = None,
    passes: tuple[type[Exception], ...] = (),
    from_model: bool = True,
) -> Verb[list[ToolResult]]:
    """Perform calls that come from elsewhere, as one turn of the run that they name."""
    if options or current_engine.get() is not None:
        engine = serve(engine, options)
    active, number, tools = engine.open_turn(
        turn, run=run, round_name=round_name, options=options
    )
    if active.progress.trust.must_recall and _may_send(turn, tools):
        yield from engine.recall_trust(active)
    if words is not None:
        active.take_words(words)
    if passes:
        active.let_pass(passes)
    batch = yield from engine.open_batch(
        active, turn, number, tools, names=names, from_model=from_model
    )
    yield from engine.perform_turn(active, batch, number)
    if active.passed is not None:
        raise active.passed
    return engine.finish_turn(active, batch, run, names)


def _may_send(turn: Turn, tools: Toolset) -> bool:
    """Whether a call of a turn may send something, so that it matters what its run has read."""
    called = [tools.resolve(call.name) for call in turn.calls]
    return any(isinstance(tool, BaseTool) and tool.sends_out for tool in called)


# ---------------------------------------------------------------------- runs of a model


def run(
    engine: Engine,
    question: str | Message | Sequence[Message | Mapping[str, Json]],
    *,
    model: str | Model,
    output: Any = None,
    system: str = "",
    budget: Budget | None = None,
    deps: Any = None,
    inject: Mapping[str, Any] | None = None,
    options: Options | None = None,
    run_id: str | None = None,
    after: str | Run[Any] | None = None,
    observers: Sequence[Observer] = (),
    selector: str | Selector | None = None,
    flow: Rules = (),
    parent: Trust | None = None,
    **whose: Unpack[Whose],
) -> Verb[Run[Any]]:
    """See `Runtime.run`.

    Args:
        parent: What the run has read that starts this one.
    """
    if run_id and parent is None:  # else it is named after the run that starts it
        check_name("run_id", run_id)
    engine = serve(engine, whose)
    caller = current_call.get()
    if parent is None and caller is not None:
        parent = caller.trust
    resolved = engine.resolve_model(model)
    messages = conversation_of(question, system=system)
    given: dict[str, Any] = {
        "deps": deps,
        "inject": inject,
        "budget": budget,
        "observers": observers,
        "options": options,
        "selector": selector,
        "flow": flow,
        "principal": whose.get("principal"),
        "approver": whose.get("approver"),
    }
    if after is not None:
        _check_follows(after, system=system, run_id=run_id)
        return (
            yield from ask_next(
                engine, after, messages, model=model, output=output, **given
            )
        )
    is_named_by_call = False
    if engine.keeps_runs and run_id is not None:
        check_name_free((yield engine.load_run(run_id)))
    elif engine.keeps_runs and caller is not None:
        run_id = caller.named_by_question(messages)
        is_named_by_call = True
        if (yield engine.load_run(run_id)) is not None:
            return caller.note_run(
                (
                    yield from resume(
                        engine,
                        run_id,
                        model=model,
                        budget=budget,
                        deps=deps,
                        inject=inject,
                        output=output,
                        observers=observers,
                        selector=selector,
                        flow=flow or None,
                        **whose,
                    )
                )
            )
    active = engine.open_run(run=run_id, **given)
    if parent is not None and (inherited := parent.as_json()) is not None:
        active.progress.trust.inherit(inherited)
    engine.open_conversation(active, messages, output, resolved)
    record = engine.make_record(active, messages, model)
    ended = yield from _drive_to_end(engine, active, resolved, record, new=True)
    return caller.note_run(ended) if is_named_by_call and caller else ended


def _check_follows(after: object, *, system: str, run_id: str | None) -> None:
    if not isinstance(after, str | Run):
        raise ConfigError(
            f"`after` is a `Run` or the name of one, not {type(after).__name__}"
        )
    if system:
        raise ConfigError(
            "a run keeps the instructions with which it began: leave out `system`, or begin another run"
        )
    if run_id is not None:
        raise ConfigError(
            "a run that is gone on with keeps its name: leave out `run_id`"
        )


def ask_next(
    engine: Engine,
    after: str | Run[Any],
    question: Sequence[Message],
    *,
    model: str | Model,
    output: Any,
    stored: StoredRun | None = None,
    **options: Any,
) -> Verb[Run[Any]]:
    """Ask the next question of a conversation.

    Args:
        stored: The run, if it was loaded already.
        options: As `Engine.open_run` takes them.

    Raises:
        RunUnderWay: Somebody else asks, or has asked, the next question.
    """
    run_id = after if isinstance(after, str) else after.id
    resolved = engine.resolve_model(model)
    record: RunRecord | None = None
    boundary_secret = ""
    if engine.keeps_runs:
        if stored is None:
            engine.unsaved.offer(run_id)
            stored = require_run((yield engine.load_run(run_id)), run_id)
        check_answered(stored, after)
        rounds = yield from load_ended_rounds(engine, stored)
        earlier = read_earlier(engine, rounds, next_turn(stored.steps) - 1)
        if options.get("principal") is None and not engine.principal:
            options["principal"] = rounds[-1].asked.principal
        record = replace(stored.record, owner=owner(), result=rounds[-1].result)
        boundary_secret = rounds[-1].asked.boundary_secret
    elif isinstance(after, Run):
        earlier = follow_run(engine, after)
    else:
        raise ConfigError(
            "this store keeps no runs: pass the `Run` itself as `after`, or open the runtime with "
            'store="sqlite:///handrail.db"'
        )
    policy = None if stored is None else policy_of(engine, stored)
    active = engine.open_run(run=run_id, policy=policy, **options)
    active.keep_boundaries(boundary_secret)
    active.follow(earlier)
    engine.open_conversation(active, [*earlier.messages, *question], output, resolved)
    asked = None
    if record is not None:
        asked = question_step(
            earlier.turns + 1, make_run_input(active, question, model), record.result
        )
    try:
        return (
            yield from _drive_to_end(engine, active, resolved, record, question=asked)
        )
    except Fenced as error:
        raise RunUnderWay(
            f"somebody else has asked the run {run_id!r} its next question at the same moment; this one was not asked"
        ) from error


def resume(
    engine: Engine,
    run_id: str,
    *,
    anyway: bool = False,
    epoch: int | None = None,
    model_wait: ModelWait | None = None,
    output: Any = None,
    **options: Any,
) -> Verb[Run[Any]]:
    """See `Runtime.resume`."""
    _check_options("resume", options)
    engine = serve(engine, cast(Whose, options))
    engine.unsaved.offer(run_id)
    stored = require_run((yield engine.load_run(run_id)), run_id)
    if epoch is not None and stored.record.status in ("cancelled", "failed"):
        # by whoever had the run until now; a worker does not begin it again
        raise Fenced(f"the run {run_id!r} is over: it is {stored.record.status}")
    if not anyway:
        if poisoned := poisoning(stored.record):
            entry, error = poisoned
            yield engine.runs.append_entry(entry)
            raise error
        check_left(stored.record)
    active, asked, model = open_stored_run(engine, stored, output=output, **options)
    active.may_be_postponed = epoch is not None
    active.model_wait = model_wait
    engine.let_try(active, stored, model)
    engine.open_conversation(active, asked.messages, asked.output, model)
    record = take_over(engine, active, stored, new_output=output is not None)
    if record is not None and epoch is not None:
        record = replace(record, epoch=epoch)
    return (
        yield from _drive_to_end(
            engine, active, model, record, unchanged=epoch is not None
        )
    )


def replay(
    engine: Engine, run_id: str, *, output: Any = None, **options: Any
) -> Verb[Run[Any]]:
    """See `Runtime.replay`."""
    _check_options("replay", options)
    engine = serve(engine, cast(Whose, options))
    stored = require_run((yield engine.load_run(run_id)), run_id)
    active, asked, model = open_stored_run(
        engine, stored, output=output, is_audited=False, **options
    )
    engine.open_conversation(active, asked.messages, asked.output, model)
    engine.attach_journal(active, stored, replaying=True)
    return (yield from _drive_to_end(engine, active, model, None))


def fork(
    engine: Engine, run_id: str, *, at_turn: int, output: Any = None, **options: Any
) -> Verb[Run[Any]]:
    """See `Runtime.fork`."""
    _check_options("fork", options)
    engine = serve(engine, cast(Whose, options))
    stored = require_run((yield engine.load_run(run_id)), run_id)
    open_stored_run(
        engine, stored, output=output, **options
    )  # what cannot be resumed is refused before there is a new run
    edits = yield from load_edits(engine.store, run_id)
    # In a thread: functions of its tools' authors are called there.
    record, steps = yield engine.services.deciding_threads.call(
        partial(
            forking.make_fork,
            stored,
            at_turn,
            new_run_id(),
            tools=engine.callable_tools(),
            edits=edits,
            injected=options.get("inject") or {},
        )
    )
    yield engine.runs.begin_run(record, new=True, steps=steps)
    return (yield from resume(engine, record.run_id, output=output, **options))


def _check_options(verb: str, options: Mapping[str, Any]) -> None:
    for name in options:
        if name not in ResumeOptions.__optional_keys__:
            raise TypeError(f"{verb}() got an unexpected keyword argument {name!r}")


def _drive_to_end(
    engine: Engine,
    active: ActiveRun,
    model: Model,
    record: RunRecord | None,
    *,
    new: bool = False,
    unchanged: bool = False,
    question: JournalStep | None = None,
) -> Verb[Run[Any]]:
    """Drive an opened run until it has ended.

    Args:
        record: What the store is to keep of it; None where its journal is attached already, or it has none.
        unchanged: Take it over only if its epoch is still that of the record.
        question: The step with which its next round begins.

    Raises:
        Fenced: Somebody else has asked the next question, or taken the run over.
    """
    try:
        if record is not None:
            active.begin_driving()
            if question is None:
                stored = yield engine.runs.begin_run(
                    record, new=new, unchanged=unchanged
                )
            else:
                stored = yield engine.runs.begin_run(
                    record, unchanged=True, steps=[question]
                )
            engine.attach_journal(active, stored)
        ending = yield from engine.drive_conversation(active, model)
    except BaseException as error:
        ends_process = not isinstance(
            error, Exception | asyncio.CancelledError | KeyboardInterrupt
        )
        if not ends_process:  # else the run is as after a crash
            engine.release_run(active)
        engine.finish_run(active, _ending_by_error(error))
        raise
    return engine.finish_run(active, ending)


def _ending_by_error(error: BaseException) -> Ending:
    if isinstance(error, asyncio.CancelledError):
        return Ending("cancelled", "the task that ran it was cancelled")
    if isinstance(error, KeyboardInterrupt):
        return Ending("cancelled", "interrupted")
    if isinstance(error, RunPostponed):
        return Ending("waiting", str(error))
    return Ending("failed", "an error in the set-up")


# ---------------------------------------------------------------------- taking writes back


def undoable(
    engine: Engine, run_id: str, inject: Mapping[str, Any] | None
) -> Verb[list[undoing.Undoable]]:
    """See `Runtime.undoable`."""
    stored = require_run((yield engine.load_run(run_id)), run_id)
    return (
        yield from undoing.undoable(
            engine.store,
            stored,
            engine.callable_tools(),
            injected=inject or {},
            threads=engine.services.deciding_threads,
        )
    )


def undo(
    engine: Engine,
    run_id: str,
    steps: Sequence[str] | None,
    inject: Mapping[str, Any] | None,
) -> Verb[list[ToolResult]]:
    """See `Runtime.undo`."""
    results: list[ToolResult] = []
    offered = yield from undoable(engine, run_id, inject)
    for write in undoing.choose_writes(offered, run_id, steps):
        active = engine.open_run(run=f"{run_id}.undo", inject=inject)
        undo_tool = undoing.make_undo_tool(
            write, engine.callable_tools(), run_id, injected=active.injected
        )
        batch = engine.open_single_call(undo_tool, active)
        yield PerformBatch(engine, active, batch)
        results += batch.collect_results()
        yield from undoing.release_key(engine.store, write, results[-1])
    return results
