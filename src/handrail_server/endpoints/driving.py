"""Starts, continues or answers one run for each request, and gives its steps to whoever sent the request.

The name of a run says whose it is: it holds a digest of itself, the principal and the tenant. So its owner finds it by
the name alone, and nobody else can. With an idempotency key the rest of the name is made of the key, so the same
request sent twice is one run, in every process.

Rule 1: each run is driven by a task of its own. A request that ends early cannot stop a call in the middle.
Rule 2: hanging up cancels the run, unless the request can be sent again: it has a key, or answers a question. Then the
        run goes on, and sending the request again returns its answer.
Rule 3: a run of somebody else is answered like one that does not exist.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from hashlib import sha256
from secrets import token_hex
from typing import Any, cast

from msgspec import Struct, field

from handrail.core.redaction import KnownSecrets
from handrail.core.structured_output import plan
from handrail.engine.read_result import READ_RESULT
from handrail.engine.scoped_store import ScopedStore, qualify_name
from handrail.errors import ConfigError, Json, RunNameTaken, RunUnderWay
from handrail.futures import wait_for
from handrail.invisible import json_text
from handrail.journal.codec import message_as_json
from handrail.journal.rounds import Round, read_rounds
from handrail.messages import Message, Options, SystemMessage
from handrail.ports import ApprovalStore, Model, Observer, RunStore, Selector
from handrail.records import ApprovalRequest, StoredRun, not_counted
from handrail.runs import Run
from handrail.runtime import Runtime
from handrail.tools.tool import BaseTool
from handrail.tools.toolset import Toolset
from handrail_server.endpoints.caller_tools import (
    CallerTool,
    WithCallerTools,
    make_caller_tools,
    recall_caller_tools,
)
from handrail_server.endpoints.refusals import Refusal
from handrail_server.endpoints.steps import (
    BrokenOff,
    Ended,
    Narrator,
    Step,
    after_answers,
    after_opening,
    make_ticket,
)

_PATIENCE_S = 2.0
_SILENCE_S = 15.0
_MOST_REMEMBERED = 10_000
_LOOK_S = 0.2
_MOST_LOOKS = 1500
"""How often a run is looked at that somebody else in this process drives: for five minutes."""

_LONGEST_KEY = 255
_LONGEST_REASON = 500


class Requester(Struct, frozen=True):
    """Who sends a request.

    Attributes:
        principal: Who proved to be, by a token; empty for nobody.
        scope: The tenant; None for the runtime's own.
        may_start: Whether it may start runs.
        may_approve: Whether its word on a call counts.
    """

    principal: str = ""
    scope: str | None = None
    may_start: bool = True
    may_approve: bool = True

    @property
    def answers_as(self) -> str:
        """The name of whoever answers a question, in the records."""
        return self.principal or "http client"


class Asked(Struct, frozen=True):
    """What a request asks of a model.

    Attributes:
        messages: What is new: a conversation, or the next question of one.
        model: By its name here; empty for the first.
        system: Instructions beside the server's own.
        output: The JSON Schema of the answer; None for text.
        tools: The caller's.
        digest: Of the request, to tell the same one sent twice from another.
    """

    messages: Sequence[Message]
    model: str = ""
    system: str = ""
    options: Options = field(default_factory=Options)
    output: Json = None
    tools: Sequence[CallerTool] = ()
    digest: str = ""


class Word(Struct, frozen=True):
    """An answer to what a run waits for: a person's word on a call, or the result of a call of the caller's.

    Attributes:
        question: Its id.
        granted: None for a result.
        arguments: In place of those that were asked about.
    """

    question: str
    granted: bool | None = None
    reason: str = ""
    arguments: Mapping[str, Json] | None = None
    value: Json = None


class RunAnswer:
    """The answer to one request while its run is under way, and after. Read `steps` once."""

    def __init__(self, run_id: str, digest: str) -> None:
        self.run_id = run_id
        self.digest = digest
        self.task: asyncio.Task[Run] | None = None
        self.narrator = Narrator(run_id, self.tell)
        self.leave: Callable[[], None] = lambda: None
        """Called when the client hangs up."""
        self._steps: asyncio.Queue[Step] = asyncio.Queue()
        self._first: Step | None = None

    def tell(self, step: Step) -> None:
        """Add a step."""
        self._steps.put_nowait(step)

    async def begin(self) -> None:
        """Wait for the first step, for two seconds at most: then the sender should get the head of an answer.

        Raises:
            Exception: Why the run could not be started.
        """
        with suppress(TimeoutError):
            self._first = await asyncio.wait_for(self._steps.get(), _PATIENCE_S)
        if isinstance(self._first, BrokenOff):
            raise self._first.error

    async def steps(self) -> AsyncIterator[Step | None]:
        """Yield the steps as they come; None now and then while nothing happens."""
        step = self._first
        while True:
            if step is not None:
                yield step
            if isinstance(step, Ended | BrokenOff):
                return
            try:
                step = await asyncio.wait_for(self._steps.get(), _SILENCE_S)
            except TimeoutError:
                step = None
                yield None


class Door:
    """Starts and continues runs for requests.

    Args:
        models: What a request may name, the default first: a name such as `openai:NAME`, or a `Model`.
        system: The instructions of every run, before a caller's own.
        options: Returns options of `Runtime.run` for a caller, such as `inject` and `deps`.
        selector: What a model is shown of many tools where the caller has tools too; else the runtime's.
        adopt: Called with each run, as the store names it, and the task that drives it.

    Raises:
        ConfigError: There is no model, or the store keeps no runs and questions.
    """

    def __init__(
        self,
        runtime: Runtime,
        models: Mapping[str, str | Model],
        *,
        system: str = "",
        options: Callable[[Requester], Mapping[str, Any]] | None = None,
        selector: str | Selector = "auto",
        adopt: Callable[[str, asyncio.Task[Run]], None] | None = None,
    ) -> None:
        if not models:
            raise ConfigError("an endpoint needs a model to ask; name one")
        store = runtime.store
        if not isinstance(store, RunStore) or not isinstance(store, ApprovalStore):
            raise ConfigError(
                "endpoints need a store that keeps runs and questions, such as sqlite:///handrail.db"
            )
        self.runtime = runtime
        self.models = models
        self._system = system
        self._options = options
        self._selector = selector
        self._adopt = adopt
        self._live: dict[tuple[str, str], RunAnswer] = {}
        """What is under way, by tenant and run."""
        self._recent: OrderedDict[tuple[str, str, str], str] = OrderedDict()
        """The runs of requests without a key, by principal, tenant and digest: clients retry by themselves."""
        self._tools: OrderedDict[str, Sequence[BaseTool]] = OrderedDict()
        """The tools of callers, by the run as the store names it."""
        self._left: OrderedDict[str, None] = OrderedDict()
        """The runs that were cancelled because the client hung up; the same request sent again continues them."""

    async def aclose(self) -> None:
        """End what is under way, so that any process may resume it."""
        tasks = [each.task for each in self._live.values() if each.task]
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)

    # ------------------------------------------------------------------ what a request may ask for

    def begin(
        self,
        caller: Requester,
        asked: Asked,
        *,
        key: str = "",
        door: str = "",
        is_retry: bool = False,
        is_detached: bool | None = None,
    ) -> RunAnswer:
        """Begin a run, or return to the one that the same request began.

        Args:
            key: The client's idempotency key; empty without one.
            door: The protocol; the same key at two protocols names two runs.
            is_retry: Whether the client marks the request as a retry, without a key.
            is_detached: Whether the run goes on when the client hangs up; by default if there is a key.
        """
        _check_key(key)
        self._check(caller, asked)
        given = (caller.principal, caller.scope or "", f"{door}:{asked.digest}")
        earlier = self._recent.get(given) if is_retry and not key else None
        run_id = earlier or name_run(caller, f"{door}:{key}" if key else "")
        if not key:
            self._remember(given, run_id)
        opening = self._opening_of(asked)

        async def perform(answer: RunAnswer) -> Run:
            tools = self._tools_of(asked)
            answer.narrator = self._narrator(caller, answer, asked, tools)
            stored = None
            if key or earlier:
                stored = await self._load(caller, run_id)
            if stored is None:
                try:
                    return await self._run(
                        caller, asked, opening, tools, answer, run_id=run_id
                    )
                except RunNameTaken:
                    # another process was quicker with the same key
                    stored = await self._require(caller, run_id)
            _check_same(stored, opening)
            _check_uncancelled(stored, run_id in self._left)
            run = await self._resume(caller, run_id, asked, tools)
            if run.round != 1:
                raise _already_continued()
            answer.narrator.retell(after_opening(run.messages, opening))
            return run

        if is_detached is None:
            is_detached = bool(key)
        return self._launch(
            caller, run_id, asked.digest, perform, is_detached=is_detached
        )

    def ask_next(
        self,
        caller: Requester,
        run_id: str,
        rounds: int,
        asked: Asked,
        *,
        key: str = "",
    ) -> RunAnswer:
        """Ask the next question of a conversation.

        Args:
            rounds: How many questions it has had so far.
        """
        _check_key(key)
        self._check(caller, asked)
        _check_owner(caller, run_id)

        async def perform(answer: RunAnswer) -> Run:
            tools = self._tools_of(asked)
            answer.narrator = self._narrator(caller, answer, asked, tools)
            stored = await self._require(caller, run_id)
            _check_uncancelled(stored, run_id in self._left)
            earlier = read_rounds(stored)
            is_next = len(earlier) == rounds + 1
            if key and is_next and _is_same(earlier[-1], asked.messages):
                run = await self._resume(caller, run_id, asked, tools)
                answer.narrator.retell(after_opening(run.new_messages, asked.messages))
                return run
            if len(earlier) != rounds:
                raise _already_continued()
            self._check_system(earlier[0], asked)
            if stored.record.status in ("running", "queued"):
                # its process has left it before it had answered
                await self._resume(caller, run_id, asked, tools)
                stored = await self._require(caller, run_id)
            if stored.record.status == "waiting":
                raise Refusal(
                    409,
                    "the run waits for an answer: send that first, by the id that it was asked under",
                    code="run_waits",
                )
            return await self._run(
                caller, asked, asked.messages, tools, answer, after=run_id
            )

        return self._launch(
            caller, run_id, asked.digest, perform, is_detached=bool(key)
        )

    def answer(
        self, caller: Requester, run_id: str, words: Sequence[Word], asked: Asked
    ) -> RunAnswer:
        """Answer what a run waits for, and go on with it; then ask `asked.messages`, if there are any.

        The same words sent twice count once, and the second request is answered by the same run.

        Args:
            words: May be empty: somebody else may have answered meanwhile.
        """
        self._check(caller, asked)
        _check_owner(caller, run_id)
        if not caller.may_approve and any(word.granted is not None for word in words):
            raise Refusal(403, "this token may not approve or deny calls")

        async def perform(answer: RunAnswer) -> Run:
            stored = await self._require(caller, run_id)
            _check_uncancelled(stored, run_id in self._left)
            questions = _of_last_turn(await self._questions(caller, run_id))
            ids = {word.question for word in words}
            tickets = {
                (each.tool, each.call_id): make_ticket(run_id, each.id)
                for each in questions
            }
            answered = {
                (each.tool, each.call_id)
                for each in questions
                if each.id in ids or (not ids and each.state != "open")
            }
            tools = self._tools_of(asked, questions)
            answer.narrator = self._narrator(caller, answer, asked, tools, tickets)
            for word in words:
                await self._apply(caller, word, questions)
            hears = [answer.narrator] if stored.record.status == "waiting" else []
            run = await self._resume(caller, run_id, asked, tools, *hears)
            if not answer.narrator.has_output:
                # it had gone on before, or somebody else was quicker to take it on
                since = after_answers(run.new_messages, answered)
                if since is None:
                    raise _already_continued()
                answer.narrator.retell(since)
            if run.ok and asked.messages:
                return await self._run(
                    caller, asked, asked.messages, tools, answer, after=run_id
                )
            return run

        return self._launch(caller, run_id, asked.digest, perform, is_detached=True)

    def recall(self, run_id: str) -> Mapping[str, Any]:
        """Return the settings that resume a run elsewhere in this process: a selector with its caller's tools.

        Args:
            run_id: As the store names it.
        """
        tools = self._tools.get(run_id)
        return {"selector": WithCallerTools(self._selector, tools)} if tools else {}

    async def can_go_on(self, caller: Requester, run_id: str) -> bool:
        """Whether a run is there, the caller's, and not cancelled."""
        if not owns(caller, run_id):
            return False
        stored = await self._load(caller, run_id)
        return stored is not None and stored.record.status != "cancelled"

    async def count_rounds(self, caller: Requester, run_id: str) -> int:
        """Return how many questions a run of the caller's has been asked.

        Raises:
            Refusal: There is no such run of theirs.
        """
        _check_owner(caller, run_id)
        return len(read_rounds(await self._require(caller, run_id)))

    # ------------------------------------------------------------------ driving

    def _launch(
        self,
        caller: Requester,
        run_id: str,
        digest: str,
        perform: Callable[[RunAnswer], Awaitable[Run]],
        *,
        is_detached: bool,
    ) -> RunAnswer:
        """Start the task that drives a run; it waits for an earlier task of the same request, if one is under way.

        Raises:
            Refusal: Another request drives it.
        """
        if not caller.may_start:
            raise Refusal(403, "this token may look at runs, and not start them")
        place = (caller.scope or "", run_id)
        before = self._live.get(place)
        if before is not None and before.digest != digest:
            raise Refusal(
                409,
                "the run is under way for another request; wait for its end",
                code="run_under_way",
            )
        answer = RunAnswer(run_id, digest)
        drive = self._drive(answer, perform, before)
        answer.task = asyncio.create_task(drive)
        self._live[place] = answer

        def end(task: asyncio.Task[Run]) -> None:
            if self._live.get(place) is answer:
                del self._live[place]
            if not task.cancelled():
                task.exception()  # retrieved, or asyncio reports it as unread; its step was sent

        def leave() -> None:
            if is_detached or before is not None or answer.task is None:
                return
            if not answer.task.done():
                self._left[run_id] = None
                if len(self._left) > _MOST_REMEMBERED:
                    self._left.popitem(last=False)
                by = f"{caller.answers_as}, who hung up"
                self.runtime.cancel(run_id, by=by, scope=caller.scope)

        answer.task.add_done_callback(end)
        answer.leave = leave
        if before is None and self._adopt is not None:
            self._adopt(qualify_name(caller.scope or "", run_id), answer.task)
        return answer

    async def _drive(
        self,
        answer: RunAnswer,
        perform: Callable[[RunAnswer], Awaitable[Run]],
        before: RunAnswer | None,
    ) -> Run:
        try:
            if before is not None and before.task is not None:
                await asyncio.wait([before.task])
            run = await perform(answer)
        except Exception as error:
            answer.tell(BrokenOff(error))
            raise
        except asyncio.CancelledError:
            answer.tell(
                BrokenOff(Refusal(503, "the server ends; send the request again"))
            )
            raise
        answer.narrator.end(run)
        return run

    async def _run(
        self,
        caller: Requester,
        asked: Asked,
        messages: Sequence[Message],
        tools: Sequence[BaseTool],
        answer: RunAnswer,
        **which: Any,
    ) -> Run:
        run: Run = await self.runtime.run(
            list(messages),
            output=asked.output,
            options=asked.options,
            **self._how(caller, asked, tools, answer.narrator),
            **which,
        )
        return run

    async def _resume(
        self,
        caller: Requester,
        run_id: str,
        asked: Asked,
        tools: Sequence[BaseTool],
        *observers: Observer,
    ) -> Run:
        """Resume a run, once nobody else drives it."""
        how = self._how(caller, asked, tools, *observers)
        for _ in range(_MOST_LOOKS):
            try:
                return await self.runtime.resume(run_id, **how)
            except RunUnderWay:
                await asyncio.sleep(_LOOK_S)
        return await self.runtime.resume(run_id, **how)

    def _how(
        self,
        caller: Requester,
        asked: Asked,
        tools: Sequence[BaseTool],
        *observers: Observer,
    ) -> dict[str, Any]:
        """Return what `run` and `resume` take for this caller."""
        how: dict[str, Any] = {
            "model": self._model_of(asked),
            "principal": caller.principal or None,
            "scope": caller.scope,
        }
        if tools:
            how["selector"] = WithCallerTools(self._selector, tools)
        if self._options is not None:
            how.update(self._options(caller))
        how["observers"] = (*observers, *how.get("observers", ()))
        return how

    # ------------------------------------------------------------------ what a request brings

    def _check(self, caller: Requester, asked: Asked) -> None:
        """Refuse a request whose model or tools cannot be used here, before anything starts."""
        if not caller.may_start:
            raise Refusal(403, "this token may look at runs, and not start them")
        self._model_of(asked)
        self._tools_of(asked)
        _check_form(asked.output)

    def _model_of(self, asked: Asked) -> str | Model:
        if not asked.model:
            return next(iter(self.models.values()))
        model = self.models.get(asked.model)
        if model is None:
            raise Refusal(
                404,
                f"there is no model {asked.model[:100]!r} here; GET /v1/models lists those that there are",
                param="model",
                code="model_not_found",
            )
        return model

    def _tools_of(
        self, asked: Asked, questions: Sequence[ApprovalRequest] = ()
    ) -> list[BaseTool]:
        own = self.runtime.tools.snapshot()
        offered = Toolset([*own, *(() if READ_RESULT.name in own else (READ_RESULT,))])
        recalled = recall_caller_tools(questions, own)
        names = {tool.name for tool in recalled}
        given = make_caller_tools(asked.tools, offered, self._selector)
        return [*recalled, *(tool for tool in given if tool.name not in names)]

    def _narrator(
        self,
        caller: Requester,
        answer: RunAnswer,
        asked: Asked,
        tools: Sequence[BaseTool],
        tickets: Mapping[tuple[str, str], str] | None = None,
    ) -> Narrator:
        if tools:
            name = qualify_name(caller.scope or "", answer.run_id)
            self._tools[name] = tools
            self._tools.move_to_end(name)
            if len(self._tools) > _MOST_REMEMBERED:
                self._tools.popitem(last=False)
        return Narrator(
            answer.run_id,
            answer.tell,
            callers={tool.name for tool in tools},
            tickets=tickets,
            is_form=asked.output is not None,
            secrets=self._secrets_of(caller),
        )

    def _secrets_of(self, caller: Requester) -> KnownSecrets:
        """Return the secrets that are hidden from this caller's answers."""
        options = {} if self._options is None else self._options(caller)
        return self.runtime._engine.known_secrets(options.get("inject") or {})

    def _opening_of(self, asked: Asked) -> list[Message]:
        texts = [text for text in (self._system, asked.system) if text]
        return [*(SystemMessage(text) for text in texts), *asked.messages]

    def _check_system(self, first: Round, asked: Asked) -> None:
        """Refuse instructions that are not those of the conversation."""
        instructions = [
            each.text
            for each in first.asked.messages
            if isinstance(each, SystemMessage)
        ]
        if asked.system and asked.system not in instructions:
            raise Refusal(
                400,
                "a conversation keeps the instructions with which it began; leave them out, or begin another",
                param="instructions",
            )

    def _remember(self, given: tuple[str, str, str], run_id: str) -> None:
        self._recent[given] = run_id
        self._recent.move_to_end(given)
        if len(self._recent) > _MOST_REMEMBERED:
            self._recent.popitem(last=False)

    # ------------------------------------------------------------------ what is stored

    def _store(self, caller: Requester) -> Any:
        store: Any = self.runtime.store
        return ScopedStore(store, caller.scope) if caller.scope else store

    async def _load(self, caller: Requester, run_id: str) -> StoredRun | None:
        return cast(
            StoredRun | None, await wait_for(self._store(caller).load_run(run_id))
        )

    async def _require(self, caller: Requester, run_id: str) -> StoredRun:
        stored = await self._load(caller, run_id)
        if stored is None:
            raise _not_there()
        return stored

    async def _questions(self, caller: Requester, run_id: str) -> list[ApprovalRequest]:
        queue = self.runtime.approvals.for_scope(caller.scope)
        return await queue.list("", run=run_id)

    async def _apply(
        self, caller: Requester, word: Word, questions: Sequence[ApprovalRequest]
    ) -> None:
        """Store an answer, unless it is stored already.

        Raises:
            Refusal: There is no such question, or it was answered otherwise.
        """
        question = next((each for each in questions if each.id == word.question), None)
        if question is None:
            raise Refusal(404, "the run has asked no such question")
        if question.awaits_result != (word.granted is None):
            wanted = "a result" if question.awaits_result else "a word of approval"
            raise Refusal(400, f"what was asked about {question.tool} takes {wanted}")
        if _is_answered_so(question, word, caller):
            return
        is_yes = word.granted and question.state == "open"
        if is_yes and (why := not_counted(caller.answers_as, question)):
            raise Refusal(
                409,
                f"`{question.tool}` must be approved by somebody else: {why}",
                code="approval_not_counted",
            )
        try:
            await self._store_word(caller, word)
        except ConfigError as error:
            raise Refusal(409, str(error), code="question_closed") from error

    async def _store_word(self, caller: Requester, word: Word) -> None:
        queue = self.runtime.approvals.for_scope(caller.scope)
        by = caller.answers_as
        if word.granted is None:
            await queue.answer(word.question, word.value, by=by)
        elif not word.granted:
            await queue.deny(word.question, by=by, reason=word.reason)
        elif word.arguments is not None:
            await queue.edit(word.question, word.arguments, by=by)
        else:
            await queue.approve(word.question, by=by)


# ---------------------------------------------------------------------- whose run it is


def name_run(caller: Requester, key: str = "") -> str:
    """Return the name of a run of this caller's: made of the key, or new."""
    own = token_hex(8)
    if key:
        own = _digest(caller, key)[:16]
    return f"r_{own}{_digest(caller, own)[:16]}"


def owns(caller: Requester, run_id: str) -> bool:
    """Whether a run was started by this caller, at one of these endpoints."""
    name = run_id.removeprefix("r_")
    return len(name) == 32 and name[16:] == _digest(caller, name[:16])[:16]


def _digest(caller: Requester, text: str) -> str:
    parts = [caller.principal, caller.scope or "", text]
    return sha256(json_text(parts).encode("utf-8", "surrogatepass")).hexdigest()


def _check_owner(caller: Requester, run_id: str) -> None:
    if not owns(caller, run_id):
        raise _not_there()


def _not_there() -> Refusal:
    return Refusal(404, "there is no such response or call of yours", code="not_found")


def _already_continued() -> Refusal:
    return Refusal(
        409,
        "this response was continued already; go on from the newest one",
        code="already_continued",
    )


def _check_key(key: str) -> None:
    if len(key) > _LONGEST_KEY or not key.isprintable():
        raise Refusal(
            400,
            f"the header `Idempotency-Key` has 1 to {_LONGEST_KEY} printable characters",
        )


def _check_form(schema: Json) -> None:
    """Refuse a schema of the answer that cannot be used."""
    if schema is None:
        return
    try:
        plan(schema)
    except ConfigError as error:
        # its own text repeats the schema
        reason = " ".join(str(error.__cause__ or "").split())[:_LONGEST_REASON]
        raise Refusal(
            400, f"the form of the answer cannot be used: {reason}"
        ) from error


def _check_uncancelled(stored: StoredRun, was_left: bool) -> None:
    if stored.record.status == "cancelled" and not was_left:
        raise Refusal(
            409, "the run was cancelled, and does not go on", code="run_cancelled"
        )


def _check_same(stored: StoredRun, opening: Sequence[Message]) -> None:
    """Refuse a key that another request was sent with."""
    if not _is_same(read_rounds(stored)[0], opening):
        raise Refusal(
            422,
            "this idempotency key was sent with another request before; use a new one",
            code="idempotency_key_reused",
        )


def _is_same(asked: Round, messages: Sequence[Message]) -> bool:
    def as_json(each: Sequence[Message]) -> str:
        return json_text([message_as_json(message) for message in each])

    return as_json(asked.asked.messages) == as_json(messages)


def _of_last_turn(questions: Sequence[ApprovalRequest]) -> list[ApprovalRequest]:
    """Return the questions of the turn at which a run waits, or waited last; ids of earlier calls may repeat."""
    turns = [each.step.partition(".")[0] for each in questions]
    last = max((int(turn) for turn in turns if turn.isdecimal()), default=0)
    return [
        each for each, turn in zip(questions, turns, strict=True) if turn == str(last)
    ]


def _is_answered_so(question: ApprovalRequest, word: Word, caller: Requester) -> bool:
    """Whether a question has this very answer, by this caller; a yes may be somebody else's, who had to agree."""
    if word.granted is None:
        return question.state == "approved" and question.edited == {"value": word.value}
    if word.granted:
        is_granted = question.state in ("approved", "used")
        return is_granted and question.edited == word.arguments
    return question.state == "denied" and question.by == caller.answers_as
