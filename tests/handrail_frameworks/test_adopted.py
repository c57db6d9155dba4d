"""Tools whose body comes with each call, and control flow that leaves to whoever called."""

from __future__ import annotations

import asyncio
import threading
import time
from contextvars import ContextVar
from typing import Annotated

import pytest

import handrail as hr
from handrail_frameworks.adopting import give_bodies
from tests.support.drivers import BOUND_S

SCHEMA = {
    "type": "object",
    "properties": {"order": {"type": "string"}},
    "required": ["order"],
    "additionalProperties": False,
}
WHO: ContextVar[str] = ContextVar("WHO", default="nobody")


class Pause(Exception):
    """Control flow of a framework."""


def named(number, name="pay", order="7"):
    return hr.ToolCall(f"c{number}", name, f'{{"order": "{order}"}}')


class Caller:
    """A runtime of either kind."""

    def __init__(self, kind, tools, **settings):
        self.runtime = kind(tools, **settings)

    def calls(self, calls, run="t", **options):
        value = self.runtime.calls(calls, run=run, **options)
        if asyncio.iscoroutine(value):
            return asyncio.run(asyncio.wait_for(value, BOUND_S))
        return value


@pytest.fixture(params=[hr.Runtime, hr.SyncRuntime])
def kind(request):
    return request.param


@pytest.fixture(params=["sync", "async"])
def handler_of(request):
    """Make a function a handler of either kind."""

    def make(function):
        if request.param == "sync":
            return function

        async def handler(arguments):
            await asyncio.sleep(0)
            return function(arguments)

        return handler

    return make


# -- adopted tools -----------------------------------------------------------------------------------------------------


def test_the_body_of_an_adopted_tool_comes_with_the_call(kind, handler_of):
    tool = hr.adopt("pay", "Pay an order.", SCHEMA, effect="write")
    caller = Caller(kind, [tool])
    paid = []

    def pay(arguments):
        paid.append((arguments, WHO.get()))
        return {"paid": arguments["order"]}

    token = WHO.set("anna")
    bodies = give_bodies({"c1": handler_of(pay)})
    WHO.reset(token)
    [result] = caller.calls([named(1)], inject=bodies)
    assert result.value == {"paid": "7"}
    assert paid == [({"order": "7"}, "anna")]
    # handed over again, it is answered by the ledger
    [again] = caller.calls([named(1)], inject=bodies)
    assert again.replayed
    assert len(paid) == 1


def test_a_model_sees_the_schema_and_nothing_of_the_body():
    tool = hr.adopt("pay", "Pay an order.", SCHEMA, effect="write")
    assert tool.parameters == SCHEMA
    assert tool.description == "Pay an order."


def test_each_of_two_calls_at_once_gets_its_own_body_and_variables(kind):
    tool = hr.adopt("pay", "Pay.", SCHEMA, effect="write", resource="till")
    caller = Caller(kind, [tool])

    def pay(arguments):
        time.sleep(0.01)
        return f"{arguments['order']} by {WHO.get()}"

    handlers = {f"c{number}": pay for number in range(8)}
    token = WHO.set("ben")
    bodies = give_bodies(handlers)
    WHO.reset(token)
    turn = [named(number, order=str(number)) for number in range(8)]
    results = caller.calls(turn, inject=bodies)
    assert [each.value for each in results] == [f"{n} by ben" for n in range(8)]


def test_an_adopted_tool_without_its_body_is_refused_before_anything_runs(kind):
    caller = Caller(kind, [hr.adopt("pay", "Pay.", SCHEMA, effect="write")])
    with pytest.raises(hr.MissingInjection):
        caller.calls([named(1)])


def test_arguments_of_an_adopted_tool_are_checked(kind):
    caller = Caller(kind, [hr.adopt("pay", "Pay.", SCHEMA, effect="write")])
    bodies = give_bodies({"c1": lambda arguments: pytest.fail("it ran")})
    [result] = caller.calls([hr.ToolCall("c1", "pay", "{}")], inject=bodies)
    assert result.failure.code == hr.Code.INVALID_ARGUMENTS


def test_an_adopted_body_that_hangs_is_in_doubt_at_its_deadline(kind):
    tool = hr.adopt("pay", "Pay.", SCHEMA, effect="write", timeout_s=0.2)
    caller = Caller(kind, [tool])
    end = threading.Event()
    bodies = give_bodies({"c1": lambda arguments: end.wait(BOUND_S)})
    [result] = caller.calls([named(1)], inject=bodies)
    end.set()
    assert result.failure.code == hr.Code.IN_DOUBT


# -- control flow that passes ------------------------------------------------------------------------------------------


def test_a_read_that_is_interrupted_leaves_nothing_behind(kind, handler_of):
    caller = Caller(kind, [hr.adopt("look", "Look.", SCHEMA, effect="read")])
    runs = []

    def look(arguments):
        runs.append(arguments)
        if len(runs) == 1:
            raise Pause("who are you?")
        return "seen"

    for_call = {"inject": give_bodies({"c1": handler_of(look)}), "passes": (Pause,)}
    with pytest.raises(Pause, match="who are you"):
        caller.calls([named(1, "look")], **for_call)
    [result] = caller.calls([named(1, "look")], **for_call)
    assert result.value == "seen"


def test_a_write_that_is_interrupted_is_in_doubt_and_is_not_entered_again(
    kind, handler_of
):
    caller = Caller(kind, [hr.adopt("pay", "Pay.", SCHEMA, effect="write")])
    paid = []

    def pay(arguments):
        paid.append(arguments)
        raise Pause

    for_call = {"inject": give_bodies({"c1": handler_of(pay)}), "passes": (Pause,)}
    with pytest.raises(Pause):
        caller.calls([named(1)], **for_call)
    [result] = caller.calls([named(1)], **for_call)
    assert result.failure.code == hr.Code.IN_DOUBT
    assert len(paid) == 1


def test_a_write_that_interrupts_before_its_effect_runs_again(kind, handler_of):
    tool = hr.adopt(
        "pay", "Pay.", SCHEMA, effect="write", write=hr.Write(interrupts="before")
    )
    caller = Caller(kind, [tool])
    entered = []
    paid = []

    def pay(arguments):
        entered.append(arguments)
        if len(entered) == 1:
            raise Pause
        paid.append(arguments)
        return "paid"

    for_call = {"inject": give_bodies({"c1": handler_of(pay)}), "passes": (Pause,)}
    with pytest.raises(Pause):
        caller.calls([named(1)], **for_call)
    for _ in range(2):
        [result] = caller.calls([named(1)], **for_call)
        assert result.value == "paid"
    assert len(paid) == 1


def test_the_other_calls_of_the_turn_keep_their_results(kind):
    tool = hr.adopt(
        "pay", "Pay.", SCHEMA, effect="write", write=hr.Write(repeatable=True)
    )
    caller = Caller(kind, [tool])
    paid = []

    def pay(arguments):
        time.sleep(0.02)
        paid.append(arguments["order"])
        return "paid"

    def pause(arguments):
        raise Pause

    turn = [named(1, order="1"), named(2, order="2"), named(3, order="3")]
    bodies = give_bodies({"c1": pay, "c2": pause, "c3": pay})
    with pytest.raises(Pause):
        caller.calls(turn, inject=bodies, passes=(Pause,))
    bodies = give_bodies({"c1": pay, "c2": pay, "c3": pay})
    results = caller.calls(turn, inject=bodies, passes=(Pause,))
    assert [each.replayed for each in results] == [True, False, True]
    assert results[1].failure.code == hr.Code.IN_DOUBT
    assert sorted(paid) == ["1", "3"]


def test_what_does_not_pass_is_a_failure_as_ever(kind):
    caller = Caller(kind, [hr.adopt("look", "Look.", SCHEMA, effect="read")])

    def look(arguments):
        raise ValueError("secret")

    bodies = give_bodies({"c1": look})
    [result] = caller.calls([named(1, "look")], inject=bodies, passes=(Pause,))
    assert result.failure.code == hr.Code.INTERNAL_ERROR


# -- a schema beside what the caller fills -----------------------------------------------------------------------------


def test_a_function_with_a_schema_gets_context_and_injected_values(kind):
    seen = []

    def pay(
        ctx: hr.Context, tenant: Annotated[str, hr.Injected], order: str = "none"
    ) -> str:
        seen.append((ctx.call_id, tenant, order))
        return "paid"

    tool = hr.FunctionTool(pay, parameters=SCHEMA, effect="write")
    assert set(tool.parameters["properties"]) == {"order"}
    caller = Caller(kind, [tool])
    with pytest.raises(hr.MissingInjection):
        caller.calls([named(1)])
    [result] = caller.calls([named(1)], inject={"tenant": "acme"})
    assert result.ok
    assert seen == [("c1", "acme", "7")]


def test_what_a_model_fills_is_not_injected():
    def pay(order: Annotated[str, hr.Injected]) -> str:
        return order

    tool = hr.FunctionTool(pay, parameters=SCHEMA, effect="write")
    with hr.SyncRuntime([tool]) as runtime:
        assert runtime.call("pay", {"order": "7"}).value == "7"
