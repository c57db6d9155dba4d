"""The calls of one turn, carried on together: which may go on next, until each has its one result.

A batch is a table of calls with the state of each. It performs nothing: `todo` holds what a driver is to do next, and
`answer` takes the outcome. So one batch serves every driver, and a test can answer in any order it likes.

Rule 1: `results` has one entry per call, in the order of the calls, whatever the driver answers.
Rule 2: a call starts when every call that it waits for has ended, however it ended.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Iterable, Mapping, Sequence
from itertools import islice
from typing import Any, TypeAlias

from msgspec import Struct
from msgspec.structs import replace

from handrail._lazy import cached_property
from handrail.calls import TRUSTED, Label, ToolCall, ToolResult
from handrail.core import budgets, placeholders, planning, results
from handrail.core.admission import (
    Admitted,
    ParsedCall,
    admit,
    parse_call,
    refuse_call,
    refuse_caller,
)
from handrail.core.budgets import Budget, Spent
from handrail.core.execution import Execution, execute, make_store_failure
from handrail.core.policy import Decision, Verdict
from handrail.core.run_settings import RunSettings
from handrail.core.trust import (
    Trust,
    describe_objection,
    find_objection,
    join_labels,
    label_recorded,
)
from handrail.core.writes import (
    StartedWrites,
    claim_for,
    refuse_second,
    take_up,
    tell_started,
)
from handrail.effects import Admit, Effect
from handrail.errors import PENDING, Code, Failure, Json
from handrail.events import CallAdmitted, CallFinished
from handrail.messages import Finish
from handrail.parsing import strictjson
from handrail.records import ApprovalRequest, WriteRecord
from handrail.sandboxes import levels
from handrail.tools import keys
from handrail.tools.tool import BaseTool
from handrail.tools.toolset import Toolset


class CallState(Struct, eq=False):
    """How far one call of a batch has come.

    Attributes:
        index: Its place among the calls of the batch.
        place: Its place in the turn, for journal and keys; a step that follows a call comes after all calls.
        key: Of a write that declares none, where its place does not give it.
        name: Its name in every process, where that is not its place.
        admitted: None until the call has passed every check. Once it has ended, the call as it was carried out,
            perhaps edited by a person.
        execution: None until the call is admitted.
        pending: The call as it was parsed, while it waits for others.
        undecided: The call as it was parsed, while functions of its tool's author decide whether it may run.
        refused: The tool of a call that was carried out before, and would be refused now.
        question: What a person is asked about it, while nobody has answered.
        since: When it started, on the run's clock.
    """

    index: int
    call: ToolCall
    place: int
    key: str = ""
    name: str = ""
    admitted: Admitted | None = None
    execution: Execution | None = None
    pending: ParsedCall | None = None
    undecided: ParsedCall | None = None
    refused: BaseTool | None = None
    question: ApprovalRequest | None = None
    since: float = 0.0


NextEffect: TypeAlias = tuple[CallState, Effect[Admitted]]


class CallPosition(Struct, frozen=True):
    """The place in the turn of a call that code makes, and its key if it is a write that declares none."""

    place: int
    key: str


class Batch:
    """The calls of one turn.

    Args:
        calls: As the model wrote them.
        finish: How the model's answer ended; no call of a cut answer runs.
        turn: Number of the turn in its run, for the keys of writes that declare none.
        recorded: Recorded results, by the place of the call: those calls are not carried out again.
        started: Writes that these calls may have started before; see `writes.StartedWrites`.
        doubts: Writes of the run in doubt that today's declarations do not reach; see `writes.refuse_second`.
        names: The names of the calls in every process, one for each; empty for one that is named by its place.
        follows: The batch whose calls these follow by rule, where they are made of the arguments of those alone.
        closing: Tool and arguments of the calls that would close a circle; they are refused. See `loop_detection`.
        positions: Of calls that code makes, one for each. Code means what it writes: nothing in these calls refers to
            another call, and the same write again is done again.
        from_model: A model asked for these calls, or its program, so that `callers` of their tools holds.

    Attributes:
        prescribes: One of its tools declares what follows, or that the run ends.
        refused_circles: The index of each call that was refused because it would close a circle.
        followed: Result of the step that followed a call, by the place of the call; see `follow_ups`.
        out_of_reach: The writes without an end that these calls started before and do not reach now.
    """

    def __init__(
        self,
        calls: Sequence[ToolCall],
        finish: Finish,
        tools: Toolset,
        settings: RunSettings,
        *,
        budget: Budget,
        spent: Spent,
        turn: int = 1,
        recorded: Mapping[int, ToolResult] | None = None,
        started: StartedWrites | None = None,
        doubts: Sequence[WriteRecord] = (),
        positions: Sequence[CallPosition] = (),
        names: Sequence[str] = (),
        closing: Sequence[tuple[str, Any]] = (),
        follows: Batch | None = None,
        from_model: bool = True,
    ) -> None:
        began = settings.now()
        self.states = [
            CallState(index, call, index, since=began)
            for index, call in enumerate(calls)
        ]
        self.by_code = bool(positions)
        self._from_model = from_model and not self.by_code
        if positions:
            for state, position in zip(self.states, positions, strict=True):
                state.place = position.place
                state.key = position.key
        if names:
            for state, name in zip(self.states, names, strict=True):
                state.name = name
        self.prescribes = False
        self.followed: dict[int, ToolResult] = {}
        self.results: list[ToolResult | None] = [None] * len(calls)
        self.todo: deque[NextEffect] = deque()
        self.left = len(calls)
        self._settings = settings
        self._budget = budget
        self._spent = spent
        self._turn = turn
        self._recorded = recorded or {}
        self._started = started
        self._doubts = doubts
        self.out_of_reach: list[WriteRecord] = []
        self._uses: Sequence[frozenset[int]] = ()
        self._waits: dict[int, set[int]] = {}
        self._followers: dict[int, list[int]] = {}
        # those whose followers are still to be started; made with the first of them
        self._ended: list[int] | None = None
        self.refused_circles: Collection[int] = ()
        self._closing = closing
        self._trust = settings.trust
        # What these calls were written after: a result of this turn tells only those that refer to it.
        self._taint: Label | None = None
        if follows is not None:
            self._taint = follows._taint
        elif settings.trust is not None:
            self._taint = settings.trust.taint
        self._open(finish, tools)

    # ------------------------------------------------------------------ opening

    def _open(self, finish: Finish, tools: Toolset) -> None:
        """Start every call that waits for nobody."""
        must_plan = False
        for state in self.states:
            must_plan = self._parse(state, finish, tools) or must_plan
        if must_plan:
            self._plan()

    def _parse(self, state: CallState, finish: Finish, tools: Toolset) -> bool:
        """Parse a call and start it, unless other calls may have to come first; return whether it must be planned."""
        parsed = parse_call(
            state.call,
            tools,
            finish,
            repair=self._settings.repair,
            sees=self._settings.policy.sees,
        )
        if type(parsed) is ParsedCall and self._from_model:
            parsed = refuse_caller(parsed) or parsed
        if type(parsed) is Failure:
            self._end_unparsed(state, parsed)
            return False
        if self._may_wait(parsed):
            state.pending = parsed
            return True
        self._begin(state, parsed)
        return False

    def _may_wait(self, parsed: ParsedCall) -> bool:
        """Whether a call may touch what others touch or refer to another one, so that it must be planned."""
        if self.by_code:
            return False
        return bool(
            parsed.tool.resource
            or parsed.tool.limits.after
            or "$" in parsed.call.arguments
        )

    def _plan(self) -> None:
        """Work out which call waits for which, and start those that wait for nobody."""
        waiting = [state for state in self.states if state.pending is not None]
        only = waiting[0].pending
        if len(waiting) == 1 and only is not None and _waits_for_nobody(only):
            self._begin(waiting[0], only)
            return
        injected = self._settings.injected
        plan = planning.find_waits(
            [_step_to_plan(state, injected) for state in self.states]
        )
        self._uses = plan.uses
        for index, others in enumerate(plan.waits_for):
            waits = {other for other in others if self.results[other] is None}
            self._waits[index] = waits
            for other in waits:
                self._followers.setdefault(other, []).append(index)
        for state in self.states:
            if state.pending is not None and not self._waits[state.index]:
                self._begin(state, state.pending)

    @cached_property
    def _positions(self) -> Mapping[str, Sequence[int]]:
        """The positions of this turn's calls by id, computed once for all references."""
        return planning.positions(state.call.id for state in self.states)

    # ------------------------------------------------------------------ looking

    @property
    def is_done(self) -> bool:
        """Whether every call has its result."""
        return self.left == 0

    @property
    def writes(self) -> bool:
        """Whether a call that has no result yet may be a write."""
        return any(
            _may_write(state)
            for state in self.states
            if self.results[state.index] is None
        )

    def collect_results(self) -> list[ToolResult]:
        """Return the results of a batch that is done, one per call, in order."""
        assert self.left == 0
        results: Any = self.results.copy()  # `cast` would cost a call
        return results  # type: ignore[no-any-return]

    def identify_write(self, state: CallState) -> tuple[str, str, str]:
        """Return scope, key and fingerprint of a write in the ledger; empty ones for a call that was never admitted."""
        if state.admitted is None:
            write = self._find_started(state)
            if write is None:
                return "", "", ""
            return write.scope, write.key, write.fingerprint
        claim = claim_for(state.admitted, self._settings)
        return claim.scope, claim.key, claim.fingerprint.hex()

    def locate(self, state: CallState) -> str:
        """Return the place of a call in its run, such as `r_7/2/0`, or the name by which every process knows it."""
        if state.name:
            return state.name
        return keys.default_key(
            self._settings.key_prefix or self._settings.run_id, self._turn, state.place
        )

    def _locate_in_run(self, state: CallState) -> str:
        """Return the place of a call as its questions and its claim name it."""
        return state.name or keys.default_key(
            self._settings.run_id, self._turn, state.place
        )

    # ------------------------------------------------------------------ answers

    def answer(self, state: CallState, answer: Any) -> None:
        """Take the answer to a call's last effect."""
        if state.undecided is not None:
            if type(answer) is not Failure:
                # its time counts from here, as that of a call which had to wait
                state.since = self._settings.now()
            self._take_decision(state, state.undecided, answer)
            return
        assert state.execution is not None
        try:
            effect = state.execution.send(answer)
        except StopIteration as stop:
            self._finish(state, stop)
        else:
            self.todo.append((state, effect))

    def throw(self, state: CallState, error: Exception) -> None:
        """Answer a call's last effect with an exception that its execution expects.

        Args:
            error: `CallCancelled` or `StoreUnavailable`.
        """
        if state.undecided is not None:
            self._take_decision(state, state.undecided, refuse_cancelled(state.call))
            return
        assert state.execution is not None
        try:
            effect = state.execution.throw(error)
        except StopIteration as stop:
            self._finish(state, stop)
        else:
            self.todo.append((state, effect))

    def _finish(self, state: CallState, stop: StopIteration) -> None:
        """End a call whose execution has returned."""
        executed = stop.value
        result = executed.result
        failure = result.failure
        if failure is not None and failure.code == Code.IDEMPOTENCY_KEY_REUSED:
            write = self._find_started(state)
            if write is not None:
                # the row is its own: what a person wrote into it cannot be found for the tool as it is now
                state.admitted = None
                state.refused = executed.call.tool
                self._end_out_of_reach(state, write, state.refused)
                return
        state.admitted = executed.call
        if state.question is not None and _is_pending(result):
            result = replace(result, question=state.question)
        self._end(state, result)

    def cancel_unstarted(self) -> None:
        """End every call that has not started its execution. Those under way are for the driver to end."""
        for state in self.states:
            pending = state.pending
            if pending is not None:
                state.pending = None
                failure = refuse_cancelled(state.call)
                self._end(state, refuse_call(state.call, failure, pending.repairs))

    # ------------------------------------------------------------------ starting

    def _begin(self, state: CallState, parsed: ParsedCall) -> None:
        """Admit a call whose turn it is, and start its execution."""
        if state.pending is not None:  # it had to wait
            state.pending = None
            state.since = self._settings.now()
        if parsed.tool.then is not None or parsed.tool.limits.ends_run:
            self.prescribes = True
        prepared = self._prepare(state, parsed)
        if isinstance(prepared, Failure):
            self._take_decision(state, parsed, prepared)
        elif parsed.tool.admission_may_block:
            state.undecided = parsed
            default_key = self._make_default_key(state, parsed)
            self.todo.append((state, Admit(prepared, default_key)))
        else:
            self._take_decision(state, parsed, self._admit(state, prepared))

    def _take_decision(
        self, state: CallState, parsed: ParsedCall, admitted: Admitted | Failure
    ) -> None:
        """Count a call that may run and start its execution, or end it."""
        state.undecided = None
        refused = type(admitted) is Failure
        if type(admitted) is not Failure:
            if self.by_code:
                admitted = replace(admitted, guarded=False)
            if admitted.traits.writes:
                place = self._locate_in_run(state)
                if place != admitted.key:
                    admitted = replace(admitted, place=place)
            admitted = self._spend_call(state, admitted)
        recorded = self._recorded.get(state.place)
        if recorded is not None:
            if recorded.attempts and refused:
                # it was counted when it ran, whatever is decided about it now
                budgets.spend_call(self._budget, self._spent, parsed.tool.name)
            if type(admitted) is Failure:
                state.refused = parsed.tool
            else:
                state.admitted = admitted
            self._end(state, recorded, recalled=True)
            return
        known = admitted if type(admitted) is not Failure else None
        write = self._find_started(state, known)
        if write is not None:
            taken_up = None
            if type(admitted) is not Failure:
                place = self._lasting_place(state)
                taken_up = take_up(admitted, write, place, self._settings)
            if taken_up is None:
                state.refused = parsed.tool
                self._end_out_of_reach(state, write, parsed.tool)
                return
            admitted = taken_up
        elif self._is_unknown and parsed.tool.writes:
            admitted = make_store_failure(parsed.tool.name)
        elif type(admitted) is not Failure:
            admitted = refuse_second(admitted, self._doubts) or admitted
        if type(admitted) is Failure:
            self._end(state, refuse_call(state.call, admitted, parsed.repairs))
            return
        if admitted.traits.sends_out and self._trust is not None:
            admitted = self._check_provenance(state, admitted, self._trust)
        self._start(state, admitted)

    @property
    def _is_unknown(self) -> bool:
        """Whether the store did not say what these calls have started."""
        return self._started is not None and self._started.is_unknown

    def is_under_way(self, write: WriteRecord) -> bool:
        """Whether a living process carries a write out."""
        return self._started is not None and self._started.is_under_way(write)

    def _end_out_of_reach(
        self, state: CallState, write: WriteRecord, tool: BaseTool | None
    ) -> None:
        """End a call with what is known of the write that it started, which it does not reach any more."""
        if write.is_open:
            self.out_of_reach.append(write)
        told = tell_started(
            state.call,
            write,
            tool,
            self._settings,
            is_under_way=self.is_under_way(write),
        )
        self._end(state, told)

    def _find_started(
        self, state: CallState, admitted: Admitted | None = None
    ) -> WriteRecord | None:
        """Return the write that a call started before, in this process or another one."""
        if self._started is None:
            return None
        place = self._lasting_place(state)
        return self._started.find(
            state.call, place, by_code=self.by_code, admitted=admitted
        )

    def _lasting_place(self, state: CallState) -> str:
        """Return the place of a call; empty where each process counts turns anew, so that it names another call."""
        if self._settings.key_prefix and not state.name:
            return ""
        return self._locate_in_run(state)

    def _check_provenance(
        self, state: CallState, admitted: Admitted, trust: Trust
    ) -> Admitted:
        """Return a call that sends something; with a question where nobody trusted has named what it reaches."""
        settings = self._settings
        if settings.policy.provenance == "off":
            return admitted
        taint = self._taint
        for index in self._uses[state.index] if self._uses else ():
            used = self.results[index]
            if used is not None and used.label.integrity == "untrusted":
                by = used.label.call or used.call_id
                taint = taint or replace(used.label, call=by)
        if taint is None and not trust.private and not trust.lost_private:
            return admitted
        provenance = find_objection(
            admitted.tool,
            admitted.arguments,
            trust,
            taint,
            configured=settings.injected.values(),
            is_asked=admitted.verdict.decision is Decision.ASK,
        )
        if provenance is None:
            return admitted
        verdict = admitted.verdict
        reason = describe_objection(provenance)
        if verdict.decision is Decision.ASK:
            reason = f"{verdict.reason}; {reason}"
        asked = Verdict(
            Decision.ASK,
            verdict.risk,
            reason,
            max(verdict.required_approvals, admitted.tool.write.required_approvals),
        )
        return replace(admitted, verdict=asked, provenance=provenance)

    def _spend_call(self, state: CallState, admitted: Admitted) -> Admitted | Failure:
        """Count a call that may run; return why it may not, if it would close a circle or the budget is used up."""
        name = admitted.tool.name
        if self._closing and self._closes_circle(state, admitted):
            recorded = self._recorded.get(state.place)
            if recorded is None or not recorded.attempts:
                self.refused_circles = {*self.refused_circles, state.index}
                return refuse_circle(name)
        return budgets.spend_call(self._budget, self._spent, name) or admitted

    def _closes_circle(self, state: CallState, admitted: Admitted) -> bool:
        step = (admitted.call.name, admitted.arguments)
        if step not in self._closing or admitted.tool.limits.poll:
            return False
        if admitted.call.program:
            return False  # a program repeats calls on purpose, and ends
        # Another call before it in the turn may change its result.
        return all(index in self.refused_circles for index in range(state.index))

    def _start(self, state: CallState, admitted: Admitted) -> None:
        """Start the execution of a call that was admitted."""
        traits = admitted.traits
        if admitted.verdict.decision is Decision.ASK or traits.may_ask_later:
            admitted = replace(admitted, place=self._locate_in_run(state))
        state.admitted = admitted
        if self._settings.tell is not None or self._settings.trail is not None:
            self._note_admission(admitted)
        state.execution = self._execute(admitted)
        try:
            self.todo.append((state, next(state.execution)))
        except StopIteration as stop:
            self._finish(state, stop)

    def _note_admission(self, admitted: Admitted) -> None:
        """Tell observers and the audit log that a call may run."""
        settings = self._settings
        if settings.tell is not None:
            settings.tell(_admission_event(admitted, self._taint))
        if settings.trail is not None:
            settings.trail.note_admission(admitted, self._taint)

    def _execute(self, admitted: Admitted) -> Execution:
        return execute(admitted, self._settings)

    def _admit(self, state: CallState, parsed: ParsedCall) -> Admitted | Failure:
        return admit(
            parsed,
            self._settings.policy,
            self._make_default_key(state, parsed),
            self._settings.tell_all,
            injected=self._settings.injected,
            isolation=levels.SEARCH.found,
        )

    def _make_default_key(self, state: CallState, parsed: ParsedCall) -> str:
        """Return the key of a write whose tool declares none: its place in the run."""
        if parsed.tool.writes and not state.key:
            return self.locate(state)
        return state.key

    def _prepare(self, state: CallState, parsed: ParsedCall) -> ParsedCall | Failure:
        """Return a call with its references filled, or why the model may not make it now."""
        if self.by_code:
            return parsed
        filled = self._fill(state, parsed)
        if isinstance(filled, Failure):
            return filled
        return self._refuse_by_flow(filled) or filled

    def _refuse_by_flow(self, parsed: ParsedCall) -> Failure | None:
        """Return why the model may not call a tool at this step of the run; None where it may."""
        if self._settings.refusal is None:
            return None
        return self._settings.refusal(parsed.tool.name)

    def _fill(self, state: CallState, parsed: ParsedCall) -> ParsedCall | Failure:
        """Return the call with references to earlier results replaced, or why one of its arguments is no value."""
        text = state.call.arguments
        if parsed.repairs or not placeholders.none_in(text):
            failure = placeholders.refusal(parsed.arguments, self._calls_before(state))
            if failure is not None:
                return failure
        if (self._uses and self._uses[state.index]) or "$" in text:
            return self._fill_references(state, parsed)
        return parsed

    def _calls_before(self, state: CallState) -> Iterable[ToolCall]:
        return (earlier.call for earlier in islice(self.states, state.index))

    def _fill_references(
        self, state: CallState, parsed: ParsedCall
    ) -> ParsedCall | Failure:
        """Return the call with references to earlier results replaced by what they name."""
        values: dict[int, Json] = {}
        uses: Iterable[int] = ()
        if self._uses:
            uses = self._uses[state.index]
        for index in uses:
            result = self.results[index]
            if result is not None and result.ok:
                values[index] = results.plain(result.value)
        inline = parsed.tool.sends.inline_references
        try:
            arguments = planning.fill_references(
                parsed.arguments, self._positions, values, state.index, inline=inline
            )
        except planning.NoSuchResult as error:
            return Failure(
                Code.INVALID_ARGUMENTS,
                f"A reference to another call's result cannot be followed: {error}.",
                "Call the tool that gives this value first, then use the value itself.",
            )
        return replace(parsed, arguments=arguments)

    # ------------------------------------------------------------------ ending

    def _end_unparsed(self, state: CallState, failure: Failure) -> None:
        """End a call that cannot be parsed, with what is recorded or known of it if anything is."""
        recorded = self._recorded.get(state.place)
        if recorded is not None:
            self._end(state, recorded, recalled=True)
        elif write := self._find_started(state):
            self._end_out_of_reach(state, write, None)
        elif self._is_unknown:
            failure = make_store_failure(state.call.name)
            self._end(state, refuse_call(state.call, failure))
        else:
            self._end(state, refuse_call(state.call, failure))

    def _end(
        self, state: CallState, result: ToolResult, *, recalled: bool = False
    ) -> None:
        """Record a result and start the calls that waited for it."""
        trust = self._trust
        if trust is not None:
            if trust.joined or recalled:
                result = self._complete_label(state, result, trust, recalled=recalled)
            label = result.label
            # in a run that is tainted already, one more result of a stranger changes nothing
            if label is not TRUSTED and (
                trust.taint is None
                or label.is_directory
                or label.confidentiality == "private"
            ):
                trust.note(result)
        self.results[state.index] = result
        self.left -= 1
        settings = self._settings
        if settings.tell is not None:
            settings.tell(
                CallFinished(state.call, result, settings.now() - state.since, recalled)
            )
        if settings.trail is not None:
            settings.trail.note_end(
                state.call, result, settings.now() - state.since, recalled
            )
        if state.index in self._followers:
            if self._ended:
                # the loop that brought us here goes on with it
                self._ended.append(state.index)
            else:
                self._ended = [state.index]
                self._start_followers(self._ended)

    def _complete_label(
        self, state: CallState, result: ToolResult, trust: Trust, *, recalled: bool
    ) -> ToolResult:
        """Return a result with its whole label: that of what its arguments refer to, or of its record, too."""
        label = result.label
        if trust.joined:
            label = join_labels(label, trust.take_joined(self.locate(state)))
        if recalled:
            admitted = state.admitted
            label = label_recorded(
                result, state.refused if admitted is None else admitted.tool
            )
        if label is not result.label:
            result = replace(result, label=label)
        return result

    def _start_followers(self, ended: list[int]) -> None:
        """Start the calls that waited for one that has ended. A loop: one end may cause the next at once."""
        while ended:
            first = ended[0]
            for index in self._followers.pop(first):
                self._waits[index].discard(first)
                follower = self.states[index]
                if not self._waits[index] and follower.pending is not None:
                    self._begin(follower, follower.pending)
            ended.pop(0)


def refuse_cancelled(call: ToolCall) -> Failure:
    """Return the failure of a call that was not started, because its run was cancelled."""
    return Failure(
        Code.CANCELLED, f"The run was cancelled before `{call.name}` was started."
    )


def refuse_circle(name: str) -> Failure:
    """Return that a call would close a circle for the third time, so that it is not made."""
    return Failure(
        Code.REPEATED_CALL,
        f"`{name}` was not called again: twice before, the same calls gave the same results.",
        "Its result is above. Use it, call differently, or answer.",
    )


def _is_pending(result: ToolResult) -> bool:
    return result.failure is not None and result.failure.code in PENDING


def _may_write(state: CallState) -> bool:
    """Whether a call without a result may be a write: its tool writes, or has not been found yet."""
    call = state.admitted or state.pending or state.undecided
    return call is None or call.tool.writes


def _waits_for_nobody(call: ParsedCall) -> bool:
    """Whether a call may start at once that is the only one of its turn which may wait."""
    text = call.call.arguments
    # an escape may spell the sign of a reference, and so may a text that had to be repaired
    return not (call.tool.limits.after or call.repairs or "$" in text or "\\u" in text)


def _step_to_plan(state: CallState, injected: Mapping[str, Any]) -> planning.Step:
    if state.pending is None:
        return planning.Step(state.call.id, state.call.name, {})
    tool = state.pending.tool.with_injected(injected)
    return planning.make_step(state.call.id, tool, state.pending.arguments)


def _admission_event(admitted: Admitted, taint: Label | None) -> CallAdmitted:
    return CallAdmitted(
        admitted.call,
        _copy_arguments(admitted.arguments),
        admitted.repairs,
        key=admitted.key,
        risk=admitted.verdict.risk,
        why=admitted.verdict.reason,
        pin=admitted.tool.pin,
        isolation=admitted.tool.isolation,
        tainted_by=taint,
    )


def _copy_arguments(arguments: Mapping[str, Json]) -> Mapping[str, Json]:
    """Return arguments that an observer may change."""
    if _UNCHANGING.issuperset(map(type, arguments.values())):
        return dict(arguments)
    copied: Mapping[str, Json] = strictjson.copy(arguments)
    return copied


_UNCHANGING = frozenset((str, int, float, bool, type(None)))
