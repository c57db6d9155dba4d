"""Sessions: conversations of many questions, stored under a name.

    session = hr.Session(runtime, id="ticket-881", model="openai:NAME")
    run = await session.run("Where is my parcel?")
    run = await session.run("And the other one?")     # tomorrow, in any process

A session is one run with a round for each question: approvals, the guard against repeated writes, and handles of long
results hold for all of it; budgets and the search for loops start again with each question. The store gets what is new
with each round.

Rule 1: a session keeps nothing in memory between two questions, so that any process makes the same next request. With a
        store that keeps no runs, such as `memory:`, it is the `Session` itself that keeps the conversation.
Rule 2: of several that ask the next question at one moment, exactly one succeeds.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Generic, TypeAlias, TypeVar, cast, overload

from typing_extensions import Unpack

from handrail import _lazy
from handrail.core.budgets import Budget, Spent
from handrail.engine import verbs
from handrail.engine.approvals import load_edits
from handrail.engine.engine import Engine, Verb
from handrail.engine.resume import (
    check_answered,
    is_left_unfinished,
    load_ended_rounds,
    require_run,
)
from handrail.engine.verbs import ResumeOptions, RoundOptions, Whose
from handrail.errors import ConfigError, Json, RunNameTaken, RunUnderWay
from handrail.invisible import check_name
from handrail.journal.rounds import read_messages, read_rounds
from handrail.messages import Message, SystemMessage, conversation_of
from handrail.ports import Model, Observer
from handrail.records import StoredRun, new_run_id
from handrail.runs import Run
from handrail.runtime import RunStream, Runtime
from handrail.sync import SyncRunStream, SyncRuntime, stream_events

if TYPE_CHECKING:
    from handrail.journal import fork as forking
else:
    forking = _lazy.module("handrail.journal.fork")

R = TypeVar("R", Runtime, SyncRuntime)
T = TypeVar("T")

Question: TypeAlias = str | Message | Sequence[Message | Mapping[str, Json]]
"""What `Runtime.run` takes as a question."""


class SessionOptions(RoundOptions, total=False):
    """What a session takes for all of its questions; see `Runtime.run`."""

    system: str


class _Conversation(Generic[R]):
    """What both kinds of session share: the name, the defaults, and the verbs."""

    __slots__ = ("__weakref__", "_defaults", "_last", "_model", "_runtime", "id")

    _runtime: R
    _last: Run[Any] | None
    """The last round, where the store keeps no runs."""

    def __init__(
        self,
        runtime: R,
        *,
        id: str = "",
        model: str | Model | None = None,
        **options: Unpack[SessionOptions],
    ) -> None:
        for name in options:
            if name not in _OPTIONS:
                raise TypeError(
                    f"{type(self).__name__}() got an unexpected keyword argument {name!r}"
                )
        if not isinstance(id, str):
            raise ConfigError(
                f"the name of a session is a text, not {type(id).__name__}"
            )
        self.id = id or new_run_id()
        """The session's name: that of its run."""
        self._runtime = runtime
        self._model = model
        self._defaults = options or _NO_OPTIONS
        self._last = None

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.id}>"

    # ------------------------------------------------------------------ the verbs

    def _serve(self, options: Mapping[str, Any] | None = None) -> tuple[Engine, Any]:
        """Return the engine of the session's tenant and policy, and its other options with these over them."""
        merged: dict[str, Any] = {**self._defaults, **(options or {})}
        return verbs.serve(self._runtime._engine, cast(Whose, merged)), merged

    def _ask(
        self,
        question: Question,
        model: str | Model | None,
        output: Any,
        options: Mapping[str, Any],
    ) -> Verb[Run[Any]]:
        """See `Session.run`."""
        for name in options:
            if name not in RoundOptions.__optional_keys__:
                raise TypeError(f"run() got an unexpected keyword argument {name!r}")
        engine, how = self._serve(options)
        how.update(model=self._require_model(model), output=output)
        system = how.pop("system", "")
        if not engine.keeps_runs:
            check_name("id", self.id)
            last = self._last or _before_first_question(self.id, system)
            self._last = yield from verbs.run(engine, question, after=last, **how)
            return self._last
        engine.unsaved.offer(self.id)
        stored = yield engine.load_run(self.id)
        if stored is None:
            return (yield from self._begin(engine, question, system, how))
        if is_left_unfinished(stored.record):
            yield from verbs.resume(engine, self.id, **_for_resume(stored, how))
            stored = require_run((yield engine.load_run(self.id)), self.id)
        return (
            yield from verbs.ask_next(
                engine, self.id, conversation_of(question), stored=stored, **how
            )
        )

    def _begin(
        self, engine: Engine, question: Question, system: str, how: Mapping[str, Any]
    ) -> Verb[Run[Any]]:
        try:
            return (
                yield from verbs.run(
                    engine, question, run_id=self.id, system=system, **how
                )
            )
        except RunNameTaken as error:
            raise RunUnderWay(
                f"somebody else started the session {self.id!r} at the same moment; this question was not asked"
            ) from error

    def _require_model(self, model: str | Model | None) -> str | Model:
        model = self._model if model is None else model
        if model is None:
            raise ConfigError(
                f"the session {self.id!r} has no model: give `model=` to it, or with the question"
            )
        return model

    def _resume(self, output: Any, options: Mapping[str, Any]) -> Verb[Run[Any]]:
        """See `Session.resume`."""
        return self._repeat(verbs.resume, output, options)

    def _replay(self, output: Any, options: Mapping[str, Any]) -> Verb[Run[Any]]:
        """See `Session.replay`."""
        return self._repeat(verbs.replay, output, options)

    def _repeat(
        self,
        verb: Callable[..., Verb[Run[Any]]],
        output: Any,
        options: Mapping[str, Any],
    ) -> Verb[Run[Any]]:
        engine, how = self._serve({"model": self._model, **options})
        stored = require_run((yield engine.load_run(self.id)), self.id)
        how = {**_for_resume(stored, how), **options, "output": output}
        for name in ("scope", "policy"):  # the engine's by now
            how.pop(name, None)
        return (yield from verb(engine, self.id, **how))

    def _read(self) -> Verb[list[Message]]:
        engine, how = self._serve()
        if not engine.keeps_runs:
            last = self._last or _before_first_question(self.id, how.get("system", ""))
            return list(last.messages)
        stored = yield engine.load_run(self.id)
        if stored is None:
            return []
        return read_messages(read_rounds(stored), lambda messages: messages)

    def _fork(self, id: str, after_round: int | None) -> Verb[str]:
        engine, how = self._serve()
        if id:
            check_name("id", id)
        stored = require_run((yield engine.load_run(self.id)), self.id)
        check_answered(stored, self.id)
        rounds = yield from load_ended_rounds(engine, stored)
        if after_round is None:
            after_round = len(rounds)
        if not 1 <= after_round <= len(rounds):
            raise ConfigError(
                f"the session {self.id!r} has {len(rounds)} rounds; it can be forked after one of them, not after "
                f"{after_round}"
            )
        edits = yield from load_edits(engine.store, self.id)
        # In a thread: functions of its tools' authors are called there.
        record, steps, ended = yield engine.services.deciding_threads.call(
            partial(
                forking.make_branch,
                stored,
                rounds[:after_round],
                id or new_run_id(),
                tools=engine.callable_tools(),
                edits=edits,
                injected=how.get("inject") or {},
            )
        )
        yield engine.runs.begin_run(record, new=True, steps=steps)
        yield engine.runs.append_entry(ended)
        return str(record.run_id)


_NO_OPTIONS: SessionOptions = {}
"""Shared by all sessions without options, so that an idle one takes little memory."""
_OPTIONS = SessionOptions.__optional_keys__


def _for_resume(stored: StoredRun, how: Mapping[str, Any]) -> dict[str, Any]:
    """Return what a round that was left is resumed with: what its store does not have."""
    names = ["deps", "inject", "observers", "selector", "principal", "approver"]
    if not read_rounds(stored)[-1].asked.model:
        names.append("model")
    return {name: how[name] for name in names if name in how}


def _before_first_question(id: str, system: str) -> Run[Any]:
    """Return what the first question of a session goes on from, where no store keeps it."""
    messages = [SystemMessage(system)] if system else []
    return Run(id, "done", "", "", messages, Spent(), Budget(), 0.0, round=0)


class Session(_Conversation[Runtime]):
    """A conversation in the store of its runtime; see `sessions.session`.

    It may be made again for each question, in any process: `Session(runtime, id="ticket-881")`.

    Args:
        runtime: A `Runtime`; for a `SyncRuntime` there is `SyncSession`.
        id: The session's name, which is that of its run; made up where it is empty.
        model: Asked where a question names no other.
        options: For all questions, as `Runtime.run` takes them. `system` are the instructions that the model reads
            before the first one; a session that has started keeps those that it got then.

    Raises:
        ConfigError: The runtime is of the other kind.
    """

    __slots__ = ()

    def __init__(
        self,
        runtime: Runtime,
        *,
        id: str = "",
        model: str | Model | None = None,
        **options: Unpack[SessionOptions],
    ) -> None:
        if not isinstance(runtime, Runtime):
            raise ConfigError(
                f"a Session takes a Runtime, not {type(runtime).__name__}; for a SyncRuntime there is SyncSession"
            )
        super().__init__(runtime, id=id, model=model, **options)

    @overload
    async def run(
        self,
        question: Question,
        *,
        model: str | Model | None = None,
        output: None = None,
        **options: Unpack[RoundOptions],
    ) -> Run[None]: ...
    @overload
    async def run(
        self,
        question: Question,
        *,
        model: str | Model | None = None,
        output: type[T],
        **options: Unpack[RoundOptions],
    ) -> Run[T]: ...
    @overload
    async def run(
        self,
        question: Question,
        *,
        model: str | Model | None = None,
        output: object,
        **options: Unpack[RoundOptions],
    ) -> Run[Any]: ...
    async def run(
        self,
        question: Question,
        *,
        model: str | Model | None = None,
        output: object = None,
        **options: Unpack[RoundOptions],
    ) -> Run[Any]:
        """Ask the next question, after all earlier messages of the session; return its round as a `Run`.

        A round that its process has left unfinished is resumed first: its answer precedes the question.

        Args:
            options: As for `Runtime.run`, in place of the session's.

        Raises:
            RunUnderWay: Somebody else asks the next question, or is being answered; this one was not asked.
            ConfigError: The last question waits for a person: decide and `resume`, or `cancel`.
        """
        return await self._runtime._perform(self._ask(question, model, output, options))

    def stream(
        self,
        question: Question,
        *,
        model: str | Model | None = None,
        output: object = None,
        **options: Unpack[RoundOptions],
    ) -> RunStream[Any]:
        """Do what `run` does, and yield its events as they happen: `async for event in session.stream(...)`."""

        def start(observer: Observer) -> Awaitable[Run[Any]]:
            return self.run(
                question,
                model=model,
                output=output,
                **_observed(self, options, observer),
            )

        return RunStream(start)

    async def resume(
        self,
        *,
        output: object = None,
        anyway: bool = False,
        **options: Unpack[ResumeOptions],
    ) -> Run[Any]:
        """Resume the last round, or return its end again; see `Runtime.resume`."""
        return await self._runtime._perform(
            self._resume(output, {**options, "anyway": anyway})
        )

    async def replay(
        self, *, output: object = None, **options: Unpack[ResumeOptions]
    ) -> Run[Any]:
        """Repeat the last round from the journal alone; see `Runtime.replay`."""
        return await self._runtime._perform(self._replay(output, options))

    async def messages(self) -> list[Message]:
        """Return the conversation so far, without a question that got no answer at all."""
        return await self._runtime._perform(self._read())

    async def fork(self, *, id: str = "", after_round: int | None = None) -> Session:
        """Return a new session that begins with the first rounds of this one, counted from 1; None is all.

        What this session has written is written again there only if a person approves it.

        Args:
            id: The new session's name.

        Raises:
            ConfigError: There is no such round, or the last question has not been answered.
            RunNameTaken: There is a run with the new session's name.
        """
        name = await self._runtime._perform(self._fork(id, after_round))
        return Session(self._runtime, id=name, model=self._model, **self._defaults)

    def cancel(self, *, by: str = "") -> bool:
        """Cancel the question that is under way or waits; see `Runtime.cancel`."""
        return self._runtime.cancel(self.id, by=by, scope=self._defaults.get("scope"))


class SyncSession(_Conversation[SyncRuntime]):
    """A conversation in the store of its blocking runtime. Takes the arguments of `Session`.

    Raises:
        ConfigError: The runtime is of the other kind.
    """

    __slots__ = ()

    def __init__(
        self,
        runtime: SyncRuntime,
        *,
        id: str = "",
        model: str | Model | None = None,
        **options: Unpack[SessionOptions],
    ) -> None:
        if not isinstance(runtime, SyncRuntime):
            raise ConfigError(
                f"a SyncSession takes a SyncRuntime, not {type(runtime).__name__}; for a Runtime there is Session"
            )
        super().__init__(runtime, id=id, model=model, **options)

    @overload
    def run(
        self,
        question: Question,
        *,
        model: str | Model | None = None,
        output: None = None,
        **options: Unpack[RoundOptions],
    ) -> Run[None]: ...
    @overload
    def run(
        self,
        question: Question,
        *,
        model: str | Model | None = None,
        output: type[T],
        **options: Unpack[RoundOptions],
    ) -> Run[T]: ...
    @overload
    def run(
        self,
        question: Question,
        *,
        model: str | Model | None = None,
        output: object,
        **options: Unpack[RoundOptions],
    ) -> Run[Any]: ...
    def run(
        self,
        question: Question,
        *,
        model: str | Model | None = None,
        output: object = None,
        **options: Unpack[RoundOptions],
    ) -> Run[Any]:
        """See `Session.run`."""
        return self._runtime._perform(self._ask(question, model, output, options))

    def stream(
        self,
        question: Question,
        *,
        model: str | Model | None = None,
        output: object = None,
        **options: Unpack[RoundOptions],
    ) -> SyncRunStream[Any]:
        """Do what `run` does, and yield its events as they happen: `for event in session.stream(...)`."""

        def start(observer: Observer) -> Run[Any]:
            return self.run(
                question,
                model=model,
                output=output,
                **_observed(self, options, observer),
            )

        return SyncRunStream(stream_events(start, cancel=self.cancel))

    def resume(
        self,
        *,
        output: object = None,
        anyway: bool = False,
        **options: Unpack[ResumeOptions],
    ) -> Run[Any]:
        """See `Session.resume`."""
        return self._runtime._perform(
            self._resume(output, {**options, "anyway": anyway})
        )

    def replay(
        self, *, output: object = None, **options: Unpack[ResumeOptions]
    ) -> Run[Any]:
        """See `Session.replay`."""
        return self._runtime._perform(self._replay(output, options))

    def messages(self) -> list[Message]:
        """See `Session.messages`."""
        return self._runtime._perform(self._read())

    def fork(self, *, id: str = "", after_round: int | None = None) -> SyncSession:
        """See `Session.fork`."""
        name = self._runtime._perform(self._fork(id, after_round))
        return SyncSession(self._runtime, id=name, model=self._model, **self._defaults)

    def cancel(self, *, by: str = "") -> bool:
        """See `Session.cancel`."""
        return self._runtime.cancel(self.id, by=by, scope=self._defaults.get("scope"))


def _observed(
    session: _Conversation[Any], options: RoundOptions, observer: Observer
) -> RoundOptions:
    """Return the options of a question with one more observer."""
    given = options.get("observers", session._defaults.get("observers", ()))
    return {**options, "observers": (*given, observer)}
