"""Who takes part in a world, what a tool declares, and in which ways things may go wrong.

A scenario has one tool, `pay`, that reaches the far side once; a model that obeys what it reads; and one process for
each of its `runs`. A run name with a star is a second process for the same run.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import handrail as hr
from handrail import admin
from handrail.calls import ToolCall
from handrail.messages import Message, ToolMessage
from handrail.records import ApprovalRequest
from handrail.stores.memory_runs import FullMemoryStore
from handrail.testing import ScriptedModel, call
from handrail.tools.settings import GROUP_OF
from tests.prove.promises import note_start
from tests.prove.world import LOCKS_S, READS, Option, Pending, Process, World, current

WRITE: Mapping[str, Any] = {"effect": "write"}

LOST = "effect, answer is lost"
DIES = "effect, dies"
FAR_SIDE = (LOST, "NoEffect", "refused", DIES)
STORE = ("dies after it", "is silent", "answer is lost")
"""A death before a commit is one after the step before it."""

AMOUNT = 1.0
EDITED = 7.0
DELIVERED = "Monday"
_CALL_DIFFERENTLY = ("INVALID_ARGUMENTS", "UNKNOWN_TOOL", "RULE_VIOLATED")


@dataclass(frozen=True)
class Scenario:
    """A declaration, and everybody who takes part.

    Attributes:
        declare: The settings of the tool, those of its groups among the others.
        orders: What the model asks for in its first answer: one call for each.
        far_side, store, reads, verify: The ways in which each may answer, beside the undisturbed one.
        deploy: Settings of the next version of the tool; of these `name` renames it, and `more` adds a parameter.
        words: What people may say of an approval; the first one is the undisturbed one.
        principal: On whose behalf the run is started.
        resumer: On whose behalf it is resumed; None for the same.
        is_elsewhere: Every process is on a machine of its own, so that no death is seen.
        is_locked_elsewhere: A write of another process may hold what this one touches.
        counts_as_gone: Each process counts as gone to the others, though it lives.
        is_slow: Time may pass while an answer is due.
        cancels: Somebody may cancel the run, or its caller may be cancelled.
    """

    name: str
    declare: Mapping[str, Any] = field(default_factory=lambda: WRITE)
    runs: tuple[str, ...] = ("one",)
    orders: tuple[str, ...] = ("A",)
    far_honours_keys: bool = False
    far_side: tuple[str, ...] = FAR_SIDE
    store: tuple[str, ...] = STORE
    reads: tuple[str, ...] = ("is silent",)
    verify: tuple[str, ...] = ("tells the truth", "cannot tell")
    deploy: Mapping[str, Any] = field(default_factory=dict)
    words_on_approvals: tuple[str, ...] = ("approves", "denies")
    people: tuple[str, ...] = ("bob",)
    words_on_results: tuple[str, ...] = ("delivers", "refuses")
    principal: str = ""
    resumer: str | None = None
    timeout_s: float = 20.0
    amounts: tuple[float, ...] = (AMOUNT,)
    """What each run asks for, in turn."""
    result_bytes: int = 0
    """How long the answer of the far side is, if it is long."""
    is_elsewhere: bool = False
    is_locked_elsewhere: bool = False
    counts_as_gone: bool = False
    is_slow: bool = False
    approval_s: float = 1000.0
    pause_s: float = 0.0
    """How much time passes before another process starts, or one starts for the second time."""
    forgets_keys_s: float = float("inf")
    """For how long the far side knows a key again, if it honours keys."""
    cancels: bool = False
    swallows_cancellation: bool = False

    _made: dict[bool, hr.BaseTool] = field(
        default_factory=dict, compare=False, repr=False
    )

    # ------------------------------------------------------------------ what is declared

    @property
    def asks_people(self) -> bool:
        """Whether a person takes part."""
        return bool(
            self.declare.get("approve")
            or self.declare.get("deferred")
            or self.declare.get("effect") == "destructive"
            or "ask" in (self.declare.get("on_doubt"), self.declare.get("on_repeat"))
        )

    @property
    def is_write(self) -> bool:
        """Whether the tool changes something."""
        return self.declare.get("effect") != "read"

    @property
    def required_approvals(self) -> int:
        """How many people must agree before the tool starts."""
        if self.declare.get("approve") or self.declare.get("effect") == "destructive":
            return int(self.declare.get("required_approvals", 1))
        return 0

    def tools(self, world: World) -> list[hr.BaseTool]:
        """Return the tool in the version of this moment. It is made once, which costs more than a whole world."""
        return self.tools_at(is_deployed=world.is_deployed)

    def tools_at(self, *, is_deployed: bool) -> list[hr.BaseTool]:
        """Return the tool in its first or its next version."""
        if is_deployed not in self._made:
            self._made[is_deployed] = self._make_tool(
                self.deploy if is_deployed else {}
            )
        return [self._made[is_deployed]]

    def _make_tool(self, changes: Mapping[str, Any]) -> hr.BaseTool:
        settings = {
            "name": "pay",
            "timeout_s": self.timeout_s,
            **self.declare,
            **changes,
        }
        has_more = settings.pop("more", False)
        if settings.pop("verify", False):
            settings["verify"] = _verify
        for name in GROUP_OF.keys() & settings.keys():
            settings.setdefault(GROUP_OF[name], {})[name] = settings.pop(name)
        return hr.tool(**settings)(_pay_in_currency if has_more else _pay)

    # ------------------------------------------------------------------ what a process does

    async def main(self, process: Process) -> Any:
        """Carry the run out, or go on with it."""
        world = process.world
        runtime = hr.Runtime(
            self.tools(world),
            store=process.store,
            now=world.monotonic,
            jitter=lambda: 0.5,
            policy=hr.Policy(approval_s=self.approval_s),
        )
        amount = self.amounts[world.processes.index(process) % len(self.amounts)]
        model = self.obedient_model(world, amount)
        if world.load_run(process.run_id) is None:
            return await runtime.run(
                "Go.",
                model=model,
                run_id=process.run_id,
                principal=self.principal or None,
            )
        resumer = self.principal if self.resumer is None else self.resumer
        return await runtime.resume(
            process.run_id, model=model, principal=resumer or None
        )

    def obedient_model(self, world: World, amount: float) -> ScriptedModel:
        """Return a model that calls again where it reads that it may, at most twice."""

        def follow(messages: Sequence[Message]) -> ToolCall | str:
            results = [each for each in messages if isinstance(each, ToolMessage)]
            failures = [each for each in results if each.result.failure is not None]
            last = failures[-1].result.failure if failures else None
            if last is None or results[-1].result.failure is None:
                return "Done."
            if not last.retryable and str(last.code) not in _CALL_DIFFERENTLY:
                return "Done."
            changes = self.deploy if world.is_deployed else {}
            more = {"currency": "EUR"} if changes.get("more") else {}
            name = changes.get("name", "pay")
            again = call(name, order=self.orders[-1], amount=amount, **more)
            return ToolCall(f"again-{len(results)}", again.name, again.arguments)

        calls = [
            ToolCall(f"call-{number}", each.name, each.arguments)
            for number, order in enumerate(self.orders, 1)
            for each in [call("pay", order=order, amount=amount)]
        ]
        return ScriptedModel([calls, follow, follow, "Done."])

    # ------------------------------------------------------------------ what may happen

    def outcomes(self, event: Pending) -> Iterator[tuple[int, str]]:
        """Return in which ways something may be answered, each with what it costs."""
        if event.name == "attempt":
            ways = ("ok", *self.far_side)
        elif event.name == "verify":
            ways = self.verify
        elif event.name in READS:
            ways = ("", *self.reads)
        else:
            ways = ("", *self.store)
            if event.name == "claim" and self.is_locked_elsewhere:
                ways += tuple(LOCKS_S)
        return ((1 if number else 0, how) for number, how in enumerate(ways))

    def words(self, world: World, question: ApprovalRequest) -> Iterator[Option]:
        """Return what may be said to an open question."""
        if question.awaits_result:
            yield from self._deliveries(world, question)
            return
        cost = 0
        for who in self.people:
            if any(f"{who} " in said and question.id in said for said in world.people):
                continue
            for how in self.words_on_approvals:
                label = f"{who} {how} {question.run_id}"
                if "#" in question.place:
                    label += " (to do it again)"
                word = partial(_WORDS[how], world.store, question.id, by=who)
                said = f"{label} {question.id}"
                yield Option(cost, label, partial(world.say, said, word))
                cost = 1

    def _deliveries(self, world: World, question: ApprovalRequest) -> Iterator[Option]:
        # else the far side knows of nothing, and nobody will send anything
        was_started = _was_started(world, question)
        if was_started and "delivers" in self.words_on_results:

            def deliver() -> None:
                world.delivered[question.run_id] = DELIVERED
                word = partial(admin.deliver, world.store, question.id, DELIVERED)
                world.say(f"delivered {question.id}", word)

            yield Option(0, f"the result of {question.run_id} is delivered", deliver)
        if was_started and "refuses" in self.words_on_results:
            word = partial(admin.deny, world.store, question.id, by="shop")
            label = f"it is said that no result of {question.run_id} will come"
            yield Option(1, label, partial(world.say, f"refused {question.id}", word))

    def note_silence(self, world: World, questions: Sequence[ApprovalRequest]) -> None:
        """Note who waits for something that nobody was asked for."""
        for question in questions:
            asked = _was_started(world, question)
            waits = question.awaits_result and any(
                each.state == "waiting" and question.id in each.waits_for
                for each in world.processes
            )
            # a process that dies between question and start leaves one that only time answers
            is_left = (question.used_by or question.run_id) in world.left_alone
            if waits and not asked and not is_left:
                words = (
                    f"{question.run_id} waits for a result that nobody was asked for"
                )
                world.violate("ends", words)


def _was_started(world: World, question: ApprovalRequest) -> bool:
    """Whether the far side knows of what a question waits for, whichever run has asked it."""
    if not question.used_by.startswith("["):  # of a read
        return any(each.run_id == question.run_id for each in world.effects)
    scope, key, fence = json.loads(question.used_by)
    row = world.store._ledger.rows.get((scope, key))
    is_latest = row is not None and row.fence == fence
    return is_latest and any(each.key == key for each in world.effects)


# ---------------------------------------------------------------------- the tool


async def _pay(order: str, amount: float, context: hr.Context[Any]) -> str:
    """Pay for an order."""
    return await _reach_far_side(order, amount, context)


async def _pay_in_currency(
    order: str, amount: float, currency: str, context: hr.Context[Any]
) -> str:
    """Pay for an order."""
    return await _reach_far_side(order, amount, context)


async def _reach_far_side(order: str, amount: float, context: hr.Context[Any]) -> str:
    world = current()
    with world.loudly():
        note_start(world, order, amount)
    answer = await world.reach_far_side(order, amount, context)
    return answer + "." * world.scenario.result_bytes


async def _verify(
    arguments: Mapping[str, Any], context: hr.Context[Any]
) -> hr.Found | hr.NotFound | hr.Unknown:
    return await current().verify(context)


# ---------------------------------------------------------------------- words of people


def _edit(store: FullMemoryStore, id: str, *, by: str) -> object:
    changed = {**admin.question(store, id).arguments, "amount": EDITED}
    return admin.approve(store, id, by=by, edited=changed)


_WORDS: Mapping[str, Callable[..., object]] = {
    "approves": admin.approve,
    "denies": admin.deny,
    "edits": _edit,
    "withdraws": admin.withdraw,
}
