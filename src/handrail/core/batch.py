"""The calls of one turn, carried on together: which may go on next, until each has its one result.

A batch is a table of lanes, one per call. It performs nothing: `todo` holds what a driver is to do next, and `answer`
takes what came of it. So one batch serves every driver, and a test can answer in any order it likes.

Rule 1: `results` has one entry per call, in the order of the calls, whatever the driver answers.
Rule 2: a lane starts when every lane that it waits for has ended, however it ended.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from itertools import islice
from typing import Any, TypeAlias, cast

from msgspec import Struct

from handrail._lazy import cached_property
from handrail.calls import ToolCall, ToolResult
from handrail.core import budgets, placeholders, planning, results
from handrail.core.budgets import Budget, Spent
from handrail.core.execution import (
    Admitted,
    Life,
    ParsedCall,
    RunSettings,
    admit,
    admitted_at_once,
    carry_out,
    claim_of,
    invoke,
    is_plain,
    read,
    refused,
    result_of,
)
from handrail.core.policy import Decision
from handrail.effects import Effect, Returned
from handrail.errors import Code, Failure, Json
from handrail.events import CallAdmitted, CallFinished
from handrail.messages import Finish
from handrail.parsing import strictjson
from handrail.parsing.jsontext import CLEAN_ENDS
from handrail.tools import keys
from handrail.tools.toolset import Toolset


class CallState(Struct, eq=False):
    """One call on its way. `admitted` is None until it has passed every check.

    Attributes:
        index: Its place among the calls of the batch.
        place: Its place in the turn, for journal and keys; a step that follows a call stands behind all calls.
        key: Of a write that declares none, where it is not to follow from its place.
    """

    index: int
    call: ToolCall
    place: int
    key: str = ""
    admitted: Admitted | None = None
    life: Life | None = None
    pending: ParsedCall | None = None
    since: float = 0.0


Todo: TypeAlias = tuple[CallState, Effect]


class CallPosition(Struct, frozen=True):
    """Where a call stands that code makes: its place in the turn, and its key if it is a write that declares none."""

    place: int
    key: str


class Batch:
    """The lanes of one turn.

    Args:
        calls: As the model wrote them.
        finish: How the model's answer ended; no call of a cut answer runs.
        turn: Number of the turn in its run, for the keys of writes that declare none.
        known: Results that are known already, by the place of the call: those calls are not carried out again.
        slots: Of calls that code makes, one for each. What they say is meant: nothing in them refers to another call,
            and the same write again is done again.

    Attributes:
        prescribes: One of its tools declares what follows, or that the run ends.
        followed: What became of the step that followed a call, by the place of the call; see `following`.
    """

    def __init__(
        self,
        calls: Sequence[ToolCall],
        finish: Finish,
        tools: Toolset,
        conduct: RunSettings,
        *,
        budget: Budget,
        spent: Spent,
        turn: int = 1,
        known: Mapping[int, ToolResult] | None = None,
        slots: Sequence[CallPosition] = (),
    ) -> None:
        began = conduct.now()
        self.lanes = [CallState(index, call, index, since=began) for index, call in enumerate(calls)]
        for lane, slot in zip(self.lanes, slots, strict=False):
            lane.place, lane.key = slot.place, slot.key
        self.prescribes, self.by_code = False, bool(slots)
        self.followed: dict[int, ToolResult] = {}
        self.results: list[ToolResult | None] = [None] * len(calls)
        self.todo: deque[Todo] = deque()
        self.left = len(calls)
        self._conduct, self._budget, self._spent, self._turn = conduct, budget, spent, turn
        self._known = known or {}
        self._uses: Sequence[frozenset[int]] = ()
        self._waits: dict[int, set[int]] = {}
        self._followers: dict[int, list[int]] = {}
        self._ended: deque[int] = deque()  # lanes whose followers are still to be told
        self._open(finish, tools)

    def _open(self, finish: Finish, tools: Toolset) -> None:
        conduct, policy, planned = self._conduct, self._conduct.policy, False
        at_once = finish in CLEAN_ENDS and not (self.by_code or self._known or conduct.refusal)
        by_name = tools.by_name
        for lane in self.lanes:
            call = lane.call
            if at_once and placeholders.none_in(call.arguments) and (tool := by_name.get(call.name)) is not None:
                admitted = admitted_at_once(call, tool, policy)
                if admitted is not None:
                    failure = budgets.spend_call(self._budget, self._spent, call.name)
                    self._start(lane, failure or admitted, plain=True)
                    continue
            known = read(lane.call, tools, finish, repair=conduct.repair, sees=policy.sees)
            if type(known) is Failure:
                recalled = self._known.get(lane.place)
                self._end(lane, recalled or refused(lane.call, known), recalled=recalled is not None)
            elif self.by_code:
                self._begin(lane, known)
            elif known.tool.resource or known.tool.after or "$" in lane.call.arguments:
                lane.pending, planned = known, True
            else:
                self._begin(lane, known)  # it touches nothing shared and refers to nothing, so it waits for nobody
        if planned:
            self._plan()

    def _plan(self) -> None:
        steps = [
            planning.step_of(lane.call.id, lane.pending.tool, lane.pending.arguments)
            if lane.pending
            else planning.Step(lane.call.id, lane.call.name, {})
            for lane in self.lanes
        ]
        plan = planning.plan_steps(steps)
        self._uses = plan.uses
        self._waits = {
            index: {other for other in wait if self.results[other] is None} for index, wait in enumerate(plan.waits_for)
        }
        for index, wait in self._waits.items():
            for other in wait:
                self._followers.setdefault(other, []).append(index)
        for lane in self.lanes:
            if lane.pending is not None and not self._waits[lane.index]:
                self._begin(lane, lane.pending)

    @cached_property
    def _positions(self) -> Mapping[str, Sequence[int]]:
        """The positions of this turn's calls by id, computed once for all references."""
        return planning.positions(lane.call.id for lane in self.lanes)

    @property
    def done(self) -> bool:
        """Whether every call has its result."""
        return self.left == 0

    @property
    def writes(self) -> bool:
        """Whether a call that has no result yet may be a write."""
        open_lanes = [lane for lane in self.lanes if self.results[lane.index] is None]
        return any(
            lane.admitted.tool.writes if lane.admitted else lane.pending is None or lane.pending.tool.writes
            for lane in open_lanes
        )

    def finished(self) -> list[ToolResult]:
        """Return the results once it is done, one per call, in order."""
        assert self.left == 0
        return cast("list[ToolResult]", self.results.copy())

    def write_of(self, lane: CallState) -> tuple[str, str, str]:
        """Return scope, key and fingerprint of a write as the ledger has it; empty ones where it was never one."""
        if lane.admitted is None:
            return "", "", ""
        claim = claim_of(lane.admitted, self._conduct)
        return claim.scope, claim.key, claim.fingerprint.hex()

    def place_of(self, lane: CallState) -> str:
        """Return the place of a call among all calls of its run, such as `r_7/2/0`."""
        return keys.default_key(self._conduct.stem or self._conduct.run_id, self._turn, lane.place)

    def answer(self, lane: CallState, answer: Any) -> None:
        """Take the answer to a lane's last effect."""
        life = lane.life
        if life is None:
            admitted = lane.admitted
            if type(answer) is Returned and not answer.late and admitted is not None:
                result = result_of(admitted, answer, self._conduct)
                if result is not None:
                    self._end(lane, result)
                    return
            life = self._alive(lane)
        try:
            self.todo.append((lane, life.send(answer)))
        except StopIteration as ended:
            self._end(lane, ended.value)

    def throw(self, lane: CallState, error: Exception) -> None:
        """Answer a lane's last effect with an exception that its life knows: `CallCancelled`, `StoreUnavailable`."""
        try:
            self.todo.append((lane, self._alive(lane).throw(error)))
        except StopIteration as ended:
            self._end(lane, ended.value)

    def _alive(self, lane: CallState) -> Life:
        """Return the life of a lane; that of a plain call is begun here, up to the step that it has taken already."""
        if lane.life is None:
            assert lane.admitted is not None
            lane.life = carry_out(lane.admitted, self._conduct, lane.since)
            next(lane.life)
        return lane.life

    def cancel_unstarted(self) -> None:
        """End every call that has not begun its life. Those under way are the driver's to end."""
        for lane in self.lanes:
            if (pending := lane.pending) is not None:
                lane.pending = None
                failure = Failure(Code.CANCELLED, f"The run was cancelled before `{lane.call.name}` was started.")
                self._end(lane, refused(lane.call, failure, pending.repairs))

    def _begin(self, lane: CallState, pending: ParsedCall) -> None:
        """Admit a call whose turn it is, and start its life."""
        if lane.pending is not None:  # it had to wait
            lane.pending, lane.since = None, self._conduct.now()
        admitted = self._admitted(lane, pending)
        if pending.tool.then is not None or pending.tool.ends_run:
            self.prescribes = True
        if self._known and (result := self._known.get(lane.place)) is not None:
            lane.admitted = None if type(admitted) is Failure else admitted
            self._end(lane, result, recalled=True)
        else:
            self._start(lane, admitted, pending.repairs)

    def _start(
        self, lane: CallState, admitted: Admitted | Failure, repairs: Sequence[str] = (), *, plain: bool = False
    ) -> None:
        """Start the life of a call that was admitted, or end one that was not."""
        if type(admitted) is Failure:
            self._end(lane, refused(lane.call, admitted, repairs))
            return
        lane.admitted = admitted
        if self._conduct.tell is not None:
            self._conduct.tell(_event(admitted))
        if plain or is_plain(admitted):
            # What it asks for first is known. Its life is begun when it turns out to be more than this one step.
            self.todo.append((lane, invoke(admitted.tool, 1, lane.since, self._conduct)))
        else:
            if admitted.verdict.decision is Decision.ASK or admitted.tool.may_ask_later:
                admitted.place = keys.default_key(self._conduct.run_id, self._turn, lane.place)
            lane.life = carry_out(admitted, self._conduct)
            self.todo.append((lane, next(lane.life)))

    def _admitted(self, lane: CallState, pending: ParsedCall) -> Admitted | Failure:
        if not self.by_code and (pending.repairs or not placeholders.none_in(lane.call.arguments)):
            earlier = (each.call for each in islice(self.lanes, lane.index))
            if left_open := placeholders.refusal(pending.arguments, earlier):
                return left_open
        if not self.by_code and ((self._uses and self._uses[lane.index]) or "$" in lane.call.arguments):
            filled = self._filled(lane, pending)
            if isinstance(filled, Failure):
                return filled
            pending = filled
        stem = self._conduct.stem or self._conduct.run_id
        refusal = self._conduct.refusal
        if refusal is not None and not self.by_code and (said := refusal(pending.tool.name)):
            return said
        place = lane.key or (keys.default_key(stem, self._turn, lane.place) if pending.tool.writes else "")
        admitted = admit(pending, self._conduct.policy, place, self._conduct.tell)
        if type(admitted) is Failure:
            return admitted
        admitted.guarded = not self.by_code
        return budgets.spend_call(self._budget, self._spent, pending.tool.name) or admitted

    def _filled(self, lane: CallState, pending: ParsedCall) -> ParsedCall | Failure:
        """Return the call with references to earlier results replaced by what they name."""
        values = {
            index: results.plain(result.value)
            for index in (self._uses[lane.index] if self._uses else ())
            if (result := self.results[index]) is not None and result.ok
        }
        try:
            arguments = planning.filled(
                pending.arguments, self._positions, values, lane.index, inline=pending.tool.inline_references
            )  # fmt: skip
            return ParsedCall(pending.call, pending.tool, arguments, pending.repairs)
        except planning.NoSuchResult as error:
            return Failure(
                Code.INVALID_ARGUMENTS,
                f"A reference to another call's result cannot be followed: {error}.",
                "Call the tool that gives this value first, then use the value itself.",
            )

    def _end(self, lane: CallState, result: ToolResult, *, recalled: bool = False) -> None:
        """Record a result and start the lanes that waited for it."""
        self.results[lane.index] = result
        self.left -= 1
        if self._conduct.tell is not None:
            self._conduct.tell(CallFinished(lane.call, result, self._conduct.now() - lane.since, recalled))
        if lane.index in self._followers:
            self._ended.append(lane.index)
            if len(self._ended) == 1:  # else the loop that brought us here goes on with it
                self._go_on()

    def _go_on(self) -> None:
        """Start the lanes that waited for one that has ended. A loop: one end may cause the next at once."""
        while self._ended:
            for index in self._followers.pop(self._ended[0]):
                self._waits[index].discard(self._ended[0])
                follower = self.lanes[index]
                if not self._waits[index] and follower.pending is not None:
                    self._begin(follower, follower.pending)
            self._ended.popleft()


def _event(admitted: Admitted) -> CallAdmitted:
    tool, verdict = admitted.tool, admitted.verdict
    return CallAdmitted(
        admitted.call, _copied(admitted.arguments), admitted.repairs, admitted.key, verdict.risk, verdict.reason,
        tool.pin, tool.isolation,
    )  # fmt: skip


def _copied(arguments: Mapping[str, Json]) -> Mapping[str, Json]:
    """Return arguments that an observer may do anything to."""
    flat = _UNCHANGING.issuperset(map(type, arguments.values()))
    return dict(arguments) if flat else strictjson.copied(arguments)


_UNCHANGING = frozenset((str, int, float, bool, type(None)))
