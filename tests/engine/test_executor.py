"""Calls carried to their one result, on asyncio and in the calling thread alike."""

import asyncio
import gc
import json
import logging
import socket
import threading
import weakref
from base64 import b64encode
from collections import Counter, deque
from collections.abc import Iterable
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, NamedTuple

import pytest
from msgspec import Struct
from pydantic import BaseModel, SecretStr, computed_field

import handrail as hr
from handrail.effects import Claimed, ClaimState
from handrail.engine import executor
from handrail.errors import Code
from handrail.events import (
    ApprovalAsked,
    CallFinished,
    FinishedLate,
    Progressed,
)
from handrail.futures import result_now
from handrail.stores.memory import MemoryStore
from handrail.testing import (
    ManualClock,
    Overlap,
    ScriptedApprover,
    ScriptedModel,
    call,
)
from handrail.workers.threads import ThreadPool
from tests.support.drivers import BOUND_S, Gate, chat_message, until

SHORT_S = 0.03
"""The time of a tool that is meant to run out of it."""


def tool_at(gate, *, how, effect="read", name="work", **declared):
    """A tool that stands at a gate: in a thread, in a task, or in a task that will not be cancelled."""
    declared = {
        "timeout_s": SHORT_S,
        "limits": hr.Limits(max_attempts=1),
        "effect": effect,
        **declared,
    }

    def in_thread(n: int = 0) -> str:
        gate.pass_through()
        return "went through"

    async def in_task(n: int = 0) -> str:
        await gate.pass_through_async()
        return "went through"

    async def stubborn(n: int = 0) -> str:
        await gate.pass_through_stubbornly()
        return "went through"

    fn = {"thread": in_thread, "task": in_task, "stubborn": stubborn}[how]
    return hr.FunctionTool(fn, name=name, description="Stand at a gate.", **declared)


@pytest.fixture
def gate():
    made = Gate()
    yield made
    made.open()


# -- a deadline tells the truth ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(("how", "effect", "code", "words"), [
    ("task", "read", Code.TIMEOUT, "was stopped"),
    ("thread", "read", Code.TIMEOUT, "could not be stopped and may still be running"),
    ("stubborn", "read", Code.TIMEOUT, "could not be stopped and may still be running"),
    # it was cut off, perhaps after its effect
    ("task", "write", Code.IN_DOUBT, "may have taken effect"),
    ("thread", "write", Code.IN_DOUBT, "may have taken effect"),
    ("stubborn", "write", Code.IN_DOUBT, "may have taken effect"),
    # undeclared counts as a write
    ("task", None, Code.IN_DOUBT, "may have taken effect"),
])  # fmt: skip
def test_a_call_beyond_its_time_says_what_became_of_it(
    drive, gate, how, effect, code, words
):
    result = drive([tool_at(gate, how=how, effect=effect)]).call("work")
    assert (result.failure.code, words in result.failure.message) == (code, True)
    assert result.failure.retryable == (code == Code.TIMEOUT)


def test_a_stopped_task_has_ended_when_the_call_returns(drive, gate):
    drive([tool_at(gate, how="task")]).call("work")
    assert (gate.cancelled, gate.left) == (1, 0)


@pytest.mark.parametrize("how", ["thread", "stubborn"])
def test_a_tool_that_finishes_late_is_recorded(drive, gate, how):
    driver = drive([tool_at(gate, how=how)])
    driver.call("work")
    gate.open()
    (late,) = until(lambda: driver.told(FinishedLate))
    assert late.value == "went through"
    assert until(lambda: not driver.runtime._engine.services.given_up)


@pytest.mark.parametrize("how", ["thread", "stubborn"])
def test_a_late_write_is_in_doubt_until_it_reports_and_done_from_then_on(
    drive, gate, how
):
    driver = drive([tool_at(gate, how=how, effect="write")])
    assert driver.call("work", run="r").failure.code == Code.IN_DOUBT
    assert driver.call("work", run="r").failure.code == Code.IN_DOUBT
    gate.open()
    until(lambda: driver.told(FinishedLate))
    again = driver.call("work", run="r")
    assert (again.value, again.replayed, gate.entered) == ("went through", True, 1)


def test_a_late_report_that_nothing_happened_lets_the_write_be_made_again(drive):
    gate, tries = Gate(), []

    @hr.tool(effect="write", timeout_s=SHORT_S, key="the-act")
    def pay() -> str:
        """Pay."""
        tries.append(1)
        if len(tries) == 1:
            gate.pass_through()
            raise hr.NoEffect("the account is closed")
        return "paid"

    driver = drive([pay])
    assert driver.call("pay").failure.code == Code.IN_DOUBT
    gate.open()
    until(lambda: driver.told(FinishedLate))
    assert driver.call("pay").value == "paid"


def test_a_late_report_that_nothing_happened_says_nothing_about_an_earlier_attempt(
    drive,
):
    gate, tries = Gate(), []

    @hr.tool(effect="write", timeout_s=0.5, key="the-act", replay="key")
    def pay() -> str:
        """Pay."""
        tries.append(1)
        if len(tries) == 1:
            raise ConnectionResetError  # it may have been heard
        gate.pass_through()
        raise hr.NoEffect("the account is closed")

    driver = drive([pay], backoff=hr.Backoff(first_s=0))
    assert driver.call("pay").failure.code == Code.IN_DOUBT
    gate.open()
    until(lambda: driver.told(FinishedLate))
    store = driver.runtime.store
    (write,) = store.list_writes()
    assert (write.state, len(tries)) == ("in_doubt", 2)


@pytest.mark.parametrize("effect", ["read", "write"])
def test_a_call_that_finds_no_free_thread_in_its_time_is_not_started(
    drive, gate, effect
):
    ran = []

    @hr.tool(effect=effect, timeout_s=SHORT_S, limits=hr.Limits(max_attempts=1))
    def quick() -> None:
        """Be quick."""
        ran.append(1)

    driver = drive([tool_at(gate, how="thread", name="hog", timeout_s=BOUND_S), quick])
    driver.runtime._engine.services.threads = ThreadPool(most=1)
    hog = driver.start("call", "hog")
    gate.wait_for()
    result = driver.call("quick")
    gate.open()
    assert hog.result(BOUND_S).ok
    assert (result.failure.code, "was not started" in result.failure.message) == (
        Code.TIMEOUT,
        True,
    )
    assert driver.call("hog").ok  # the one thread has passed the withdrawn job by now
    assert (ran, driver.runtime._engine.services.given_up) == ([], set())


def test_a_tool_that_returns_when_it_is_told_to_end_is_believed_and_said_to_be_late(
    drive,
):
    @hr.tool(effect="write", timeout_s=SHORT_S)
    async def tidy() -> str:
        """Finish what was begun."""
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            return "done all the same"

    result = drive([tidy]).call("tidy")
    assert (result.value, result.note) == (
        "done all the same",
        "it finished after its deadline",
    )


def test_a_plain_function_that_returns_a_coroutine_keeps_the_deadline(drive, gate):
    declared = {
        "effect": "read",
        "timeout_s": SHORT_S,
        "limits": hr.Limits(max_attempts=1),
    }
    in_thread = hr.FunctionTool(
        lambda: gate.pass_through_async(), name="in_thread", **declared
    )
    in_place = hr.FunctionTool(
        lambda: gate.pass_through_async(), name="in_place", blocking=False, **declared
    )
    driver = drive([in_thread, in_place])
    for name in ("in_thread", "in_place"):
        assert driver.call(name).failure.code == Code.TIMEOUT
    assert gate.cancelled == 2


def test_a_coroutine_that_comes_too_late_is_not_run_and_settles_nothing(drive, gate):
    ran = []

    async def work():
        ran.append(1)

    def late() -> object:
        gate.pass_through()
        return work()

    driver = drive([hr.FunctionTool(late, effect="write", timeout_s=SHORT_S)])
    assert driver.call("late", run="r").failure.code == Code.IN_DOUBT
    gate.open()
    until(lambda: driver.told(FinishedLate))
    assert driver.call("late", run="r").failure.code == Code.IN_DOUBT
    assert ran == []


def test_a_tool_in_a_thread_sees_that_it_was_given_up(drive):
    seen = Future()

    @hr.tool(effect="read", timeout_s=SHORT_S, limits=hr.Limits(max_attempts=1))
    def polite(context: hr.Context[None]) -> None:
        """Look whether anybody still wants it."""
        seen.set_result(context.cancelled.wait(BOUND_S))

    drive([polite]).call("polite")
    assert seen.result(BOUND_S) is True


def test_a_blocking_tool_holds_up_no_other_call(drive, gate):
    @hr.tool(effect="read")
    async def quick() -> str:
        """Be quick."""
        return "quick"

    driver = drive([tool_at(gate, how="thread", timeout_s=BOUND_S), quick])
    slow = driver.start("call", "work")
    gate.wait_for()
    assert driver.call("quick").value == "quick"
    assert not slow.done()


# -- tools of every temper ---------------------------------------------------------------------------------------------


class Odd(BaseException):
    """No Exception."""


class Unspeakable(Exception):
    """Cannot be turned into text."""

    def __str__(self):
        raise RuntimeError("no words")


def raising(error):
    def plain() -> None:
        raise error

    async def in_task() -> None:
        raise error

    return [
        hr.FunctionTool(plain, effect="read", name="plain"),
        hr.FunctionTool(in_task, effect="read", name="in_task"),
    ]


def recurse() -> None:
    recurse()


async def cancel_myself() -> None:
    asyncio.current_task().cancel()
    await asyncio.sleep(0)


async def have_my_work_cancelled() -> None:
    work = asyncio.ensure_future(asyncio.sleep(BOUND_S))
    asyncio.get_running_loop().call_soon(work.cancel)
    await work


@pytest.mark.parametrize("tools", [
    pytest.param(raising(SystemExit(3)), id="leaves the program"),
    pytest.param(raising(GeneratorExit()), id="GeneratorExit"),
    pytest.param(raising(KeyboardInterrupt()), id="KeyboardInterrupt that nobody typed"),
    pytest.param(raising(asyncio.CancelledError()), id="CancelledError that nobody asked for"),
    pytest.param(raising(StopIteration(1)), id="StopIteration"),
    pytest.param(raising(StopAsyncIteration()), id="StopAsyncIteration"),
    pytest.param(raising(Odd()), id="a BaseException"),
    pytest.param(raising(Unspeakable()), id="an error without words"),
    pytest.param(raising(TypeError("unexpected keyword")), id="TypeError"),
    pytest.param([hr.FunctionTool(recurse, effect="read")], id="recursion without end"),
    pytest.param([hr.FunctionTool(cancel_myself, effect="read")], id="cancels its task"),
    pytest.param([hr.FunctionTool(have_my_work_cancelled, effect="read")], id="awaits what is cancelled"),
])  # fmt: skip
def test_a_tool_that_fails_in_any_way_is_an_internal_error_of_this_call_alone(
    drive, tools
):
    driver = drive(
        [*tools, hr.FunctionTool(lambda: "fine", name="fine", effect="read")]
    )
    results = driver.calls_at_once(*((tool.name, {}) for tool in tools), ("fine", {}))
    assert [result.failure and result.failure.code for result in results] == [
        Code.INTERNAL_ERROR
    ] * len(tools) + [None]
    assert driver.call("fine").value == "fine"


class Comparing(type):
    """Makes classes that are compared in their own way, and so have no hash."""

    def __eq__(cls, other):
        return cls is other

    __hash__ = None


class Unhashable(metaclass=Comparing):
    def __repr__(self):
        return "<Unhashable>"


def test_a_value_of_any_class_is_a_result(drive):
    def plain() -> Unhashable:
        return Unhashable()

    async def in_task() -> Unhashable:
        return Unhashable()

    driver = drive(
        [hr.FunctionTool(plain, effect="read"), hr.FunctionTool(in_task, effect="read")]
    )
    assert [driver.call(name).text for name in ("plain", "in_task")] == [
        '"<Unhashable>"'
    ] * 2


def test_the_text_of_an_exception_reaches_no_model(drive):
    secret = "db password=hunter2"

    def leak() -> None:
        raise RuntimeError(secret) from ValueError(secret)

    driver = drive(
        [
            hr.FunctionTool(leak, effect=effect, name=str(effect))
            for effect in ("read", "write", None)
        ]
    )
    for name in ("read", "write", "None"):
        told = driver.handle(chat_message(call(name)))
        assert "hunter2" not in repr(told)
    results = [event.result for event in driver.told(CallFinished)]
    assert "hunter2" not in repr(results) + "".join(result.text for result in results)


def test_a_value_that_cannot_be_written_as_json_is_named_by_its_class(drive):
    class Opaque:
        def __repr__(self):
            return "holds a secret"

    assert (
        drive([hr.FunctionTool(Opaque, name="see", effect="read")]).call("see").text
        == '"<Opaque>"'
    )


@pytest.mark.parametrize(("name", "arguments", "code"), [
    ("lok_up", {"city": "x"}, Code.UNKNOWN_TOOL),
    # whatever the caller says of its end
    ("look_up", '{"city": "Par', Code.TRUNCATED_CALL),
    ("look_up", {"cty": "x"}, Code.INVALID_ARGUMENTS),
    ("look_up", {}, Code.INVALID_ARGUMENTS),
])  # fmt: skip
def test_a_call_that_cannot_be_right_runs_nothing(drive, name, arguments, code):
    ran = []

    def look_up(city: str) -> None:
        ran.append(city)

    result = drive([hr.FunctionTool(look_up, effect="read")]).call(name, arguments)
    assert (result.failure.code, result.attempts, ran) == (code, 0, [])


def test_two_calls_of_one_id_both_run_and_get_their_results_in_order(drive):
    echo = hr.FunctionTool(lambda n: n, name="echo", parameters=NUMBER, effect="read")
    calls = [hr.ToolCall("same", "echo", f'{{"n": {n}}}') for n in (1, 2)]
    told = drive([echo]).handle(chat_message(*calls))
    assert [(each["tool_call_id"], each["content"]) for each in told] == [
        ("same", "1"),
        ("same", "2"),
    ]


NUMBER = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}


# -- resources ---------------------------------------------------------------------------------------------------------


def updates(seen, effect="write", how="thread"):
    """A tool that notes who is inside, by user and all together."""

    def inside(user):
        return seen.setdefault(user, Overlap())

    def in_thread(user: int, step: int) -> int:
        with seen["all"], inside(user):
            order.setdefault(user, []).append(step)
        return step

    async def in_task(user: int, step: int) -> int:
        async with seen["all"], inside(user):
            order.setdefault(user, []).append(step)
            await asyncio.sleep(0)
        return step

    seen["all"], order = Overlap(), seen.setdefault("order", {})
    fn = {"thread": in_thread, "task": in_task}[how]
    return hr.FunctionTool(fn, name="update", effect=effect, resource="user:{user}")


@pytest.mark.parametrize("how", ["thread", "task"])
def test_two_hundred_calls_of_one_turn_on_one_resource_run_one_by_one_in_order(
    drive, how
):
    seen = {}
    calls = [call("update", user=1, step=n) for n in range(200)]
    told = drive([updates(seen, how=how)], budget=hr.Budget(calls=None)).handle(
        chat_message(*calls)
    )
    assert [each["content"] for each in told] == [str(n) for n in range(200)]
    assert (seen[1].most_inside, seen["order"][1]) == (1, list(range(200)))


@pytest.mark.parametrize("how", ["thread", "task"])
def test_calls_made_apart_on_one_resource_never_overlap(drive, how):
    seen = {}
    driver = drive([updates(seen, how=how)])
    results = driver.calls_at_once(
        *(("update", {"user": n % 2, "step": n}) for n in range(60))
    )
    assert all(result.ok for result in results)
    assert (seen[0].most_inside, seen[1].most_inside) == (1, 1)
    assert (seen[0].entered, seen[1].entered) == (30, 30)


@pytest.mark.parametrize(("effect", "resource", "meet"), [
    ("write", "user:{user}", False),  # a writer is alone
    ("read", "user:{user}", True),    # readers share
    ("write", "", True),              # nothing shared, nothing to wait for
])  # fmt: skip
def test_who_may_be_inside_together(drive, effect, resource, meet):
    barrier = threading.Barrier(2)

    def work(user: int, n: int) -> bool:
        try:
            barrier.wait(BOUND_S if meet else 0.1)
        except threading.BrokenBarrierError:
            return False
        return True

    driver = drive([hr.FunctionTool(work, effect=effect, resource=resource or None)])
    results = driver.calls_at_once(
        ("work", {"user": 1, "n": 1}), ("work", {"user": 1, "n": 2})
    )
    assert [result.value for result in results] == [meet, meet]


def test_calls_on_two_resources_are_inside_together(drive):
    barrier = threading.Barrier(2)
    tool = hr.FunctionTool(
        lambda user: barrier.wait(BOUND_S) >= 0,
        name="work",
        effect="write",
        parameters=USER,
        resource="user:{user}",
    )
    told = drive([tool]).handle(
        chat_message(call("work", user=1), call("work", user=2))
    )
    assert [each["content"] for each in told] == ["true", "true"]


USER = {
    "type": "object",
    "properties": {"user": {"type": "integer"}},
    "required": ["user"],
}


def test_calls_made_apart_get_their_resource_in_the_order_in_which_they_came(drive):
    gate, order = Gate(), []

    def update(n: int) -> None:
        order.append(n)
        gate.pass_through()

    driver = drive([hr.FunctionTool(update, effect="write", resource="the-one")])
    begun = []
    for n in range(8):
        begun.append(driver.start("call", "update", {"n": n}))
        until(
            lambda: (
                f"{len(begun)} holding or waiting"
                in repr(driver.runtime._engine.services._locks)
            )
        )
    gate.open()
    assert all(each.result(BOUND_S).ok for each in begun)
    assert order == list(range(8))


@pytest.mark.slow
def test_a_long_row_of_calls_that_wait_for_each_other_is_carried_to_its_end(drive):
    """Each ends at once and lets the next one go: nothing may grow with their number but the list of results."""
    tools = [
        hr.FunctionTool(
            lambda n: n,
            name="in_place",
            effect="write",
            parameters=NUMBER,
            resource="a",
            blocking=False,
        ),
        hr.FunctionTool(
            _itself, name="in_task", effect="write", parameters=NUMBER, resource="b"
        ),
    ]
    calls = [call(tool.name, n=n) for n in range(1500) for tool in tools]
    told = drive(tools, budget=hr.Budget(calls=None)).handle(chat_message(*calls))
    assert [each["content"] for each in told[::2]] == [str(n) for n in range(1500)]
    assert [each["content"] for each in told[1::2]] == [str(n) for n in range(1500)]


async def _itself(n):
    return n


def test_a_write_that_runs_on_beyond_its_time_keeps_its_resource_until_it_reports(
    drive,
):
    gate, seen = Gate(), Overlap()

    def update(user: int, n: int) -> int:
        with seen:
            if n == 1:
                gate.pass_through()
        return n

    driver = drive(
        [
            hr.FunctionTool(
                update, effect="write", resource="user:{user}", timeout_s=SHORT_S
            )
        ]
    )
    assert driver.call("update", {"user": 1, "n": 1}).failure.code == Code.IN_DOUBT
    second = driver.start("call", "update", {"user": 1, "n": 2})
    assert driver.call("update", {"user": 2, "n": 3}).value == 3
    assert not second.done()
    gate.open()
    assert second.result(BOUND_S).value == 2
    assert seen.most_inside == 2  # users 1 and 2


def test_a_call_that_does_not_get_its_resource_in_the_run_s_time_is_not_started(
    drive, gate
):
    tool = tool_at(
        gate, how="thread", effect="write", timeout_s=BOUND_S, resource="the-one"
    )
    driver = drive([tool], budget=hr.Budget(time_s=0.2))
    told = driver.handle(chat_message(call("work", n=1), call("work", n=2)))
    assert gate.entered == 1
    assert (
        "IN_DOUBT" in told[0]["content"]
        and "may have taken effect" in told[0]["content"]
    )
    assert "was not started" in told[1]["content"]


# -- the same write twice ----------------------------------------------------------------------------------------------


def tickets(made, **declared):
    def create_ticket(title: str) -> dict:
        made.append(title)
        return {"id": len(made)}

    return hr.FunctionTool(create_ticket, **{"effect": "write", **declared})


def test_one_write_asked_for_three_times_in_a_turn_happens_once_and_all_get_its_result(
    drive,
):
    made = []
    told = drive([tickets(made)]).handle(
        chat_message(*[call("create_ticket", title="printer")] * 3)
    )
    assert made == ["printer"]
    assert ['"id":1' in each["content"] for each in told] == [True] * 3
    assert ["already done" in each["content"] for each in told] == [False, True, True]


def test_sixty_four_callers_of_one_key_make_one_effect(drive):
    made = []
    driver = drive([tickets(made, key="ticket:{title}")])
    results = driver.calls_at_once(*[("create_ticket", {"title": "printer"})] * 64)
    assert made == ["printer"]
    assert Counter(str(result.value) for result in results) == {"{'id': 1}": 64}
    assert sum(result.replayed for result in results) == 63


def test_an_identical_write_later_in_a_run_gets_the_first_result_with_a_note(drive):
    made = []
    driver = drive([tickets(made)])
    first, again = (
        driver.call("create_ticket", {"title": "x"}, run="r") for _ in range(2)
    )
    assert (first.value, first.note) == ({"id": 1}, "")
    assert (again.value, again.replayed) == ({"id": 1}, True)
    assert "already done" in again.note and again.text.count("already done") == 1
    assert json.loads(again.text.partition("\n")[0]) == {
        "id": 1,
        "note": again.note.partition("; This")[0],
    }
    assert driver.call("create_ticket", {"title": "x"}, run="another").value == {
        "id": 2
    }


def test_a_repeatable_write_is_made_each_time_it_is_asked_for(drive):
    made = []
    driver = drive([tickets(made, write=hr.Write(repeatable=True))])
    assert [
        driver.call("create_ticket", {"title": "x"}, run="r").value["id"]
        for _ in range(2)
    ] == [1, 2]


def test_a_key_used_with_other_arguments_is_refused(drive):
    made = []
    driver = drive([tickets(made, key="the-one-ticket")])
    driver.call("create_ticket", {"title": "x"})
    assert (
        driver.call("create_ticket", {"title": "y"}).failure.code
        == Code.IDEMPOTENCY_KEY_REUSED
    )
    assert made == ["x"]


def test_turns_begun_at_once_in_one_run_have_keys_of_their_own(drive):
    made = []
    driver = drive([tickets(made)])
    results = driver.calls_at_once(
        *(("create_ticket", {"title": str(n)}) for n in range(8))
    )
    assert all(result.ok for result in results)
    begun = [
        driver.start("call", "create_ticket", {"title": f"r{n}"}, run="r")
        for n in range(16)
    ]
    assert all(each.result(BOUND_S).ok for each in begun)
    assert len(made) == 24


def test_a_write_s_key_reaches_the_tool(drive):
    keys = []

    @hr.tool(effect="write", key="refund:{order}")
    def refund(context: hr.Context[None], order: str) -> None:
        """Refund."""
        keys.append((context.idempotency_key, context.fence))

    drive([refund]).call("refund", {"order": "8"})
    assert keys == [("refund:8", 1)]


# -- trying again ------------------------------------------------------------------------------------------------------


class Answered(Exception):
    """An HTTP answer as HTTP libraries raise it."""

    def __init__(self, status, **headers):
        self.response = self
        self.status_code = status
        self.headers = {
            name.replace("_", "-"): value for name, value in headers.items()
        }


def flaky(errors, tries, **declared):
    """A tool that raises these, one after another, and then returns."""
    left = list(errors)

    def fetch() -> str:
        tries.append(1)
        if left:
            raise left.pop(0)
        return "there"

    return hr.FunctionTool(fetch, **{"effect": "read", **declared})


QUICK = hr.Backoff(first_s=0.001, most_s=0.002)


@pytest.mark.parametrize(("errors", "effect", "code", "tries"), [
    ([Answered(503), Answered(503)], "read", None, 2 + 1),
    ([Answered(503)] * 3, "read", Code.UNAVAILABLE, 3),
    ([Answered(404)], "read", Code.INTERNAL_ERROR, 1),                 # permanent
    ([ValueError()], "read", Code.INTERNAL_ERROR, 1),
    ([Answered(429)], "read", None, 2),
    ([ConnectionResetError()], "read", None, 2),
    ([hr.ToolError("X", "no", retryable=True)], "read", None, 2),
    ([hr.ToolError("X", "no")], "read", "X", 1),
    # it may have happened
    ([Answered(503)], "write", Code.IN_DOUBT, 1),
    ([ConnectionResetError()], "write", Code.IN_DOUBT, 1),
    ([TimeoutError()], "write", Code.IN_DOUBT, 1),
    ([ValueError()], "write", Code.IN_DOUBT, 1),
    # perhaps by its second request
    ([ConnectionRefusedError()], "write", Code.IN_DOUBT, 1),
    ([hr.NoEffect("X", "no", retryable=True)], "write", None, 2),
    ([hr.NoEffect("X", "no")], "write", "X", 1),
    ([Answered(503)], None, Code.IN_DOUBT, 1),                         # undeclared
])  # fmt: skip
def test_what_is_tried_again(drive, errors, effect, code, tries):
    tried = []
    result = drive([flaky(errors, tried, effect=effect)], backoff=QUICK).call("fetch")
    assert (result.failure and result.failure.code, len(tried)) == (code, tries)
    assert result.attempts == tries


@pytest.mark.parametrize(
    "error", [ConnectionRefusedError(), socket.gaierror(), Answered(404)]
)
def test_a_write_that_paid_and_could_not_reach_its_notifier_pays_once_however_often_it_is_asked_for(
    drive, error
):
    paid = []

    def pay(order: str) -> str:
        """Pay an order, then tell somebody, who cannot be reached."""
        paid.append(order)
        raise error

    driver = drive(
        [hr.FunctionTool(pay, effect="write", key="pay:{order}")], backoff=QUICK
    )
    told = [driver.call("pay", {"order": "A-1"}).failure.code for _ in range(2)]
    assert (told, paid) == ([Code.IN_DOUBT] * 2, ["A-1"])


# -- a lost answer -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("verdict", "value", "code", "again", "logged"), [
    (lambda: hr.Found("it is there"), "it is there", None, "replayed", ""),
    (hr.NotFound, None, Code.UNAVAILABLE, "made", ""),
    (hr.Unknown, None, Code.IN_DOUBT, "asked", ""),
    (lambda: True, None, Code.IN_DOUBT, "asked", "returned a bool"),         # no clear word
    (lambda: 1 / 0, None, Code.IN_DOUBT, "asked", "raised: ZeroDivisionError in"),  # nor is an error
])  # fmt: skip
@pytest.mark.parametrize("kind", ["plain", "async"])
def test_after_a_lost_answer_the_tool_itself_is_asked_what_became_of_it(
    drive, caplog, kind, verdict, value, code, again, logged
):
    tried = []

    async def verify_async(arguments, context):
        return verdict()

    verify = verify_async if kind == "async" else lambda arguments, context: verdict()
    tool = flaky(
        [ConnectionResetError()],
        tried,
        effect="write",
        verify=verify,
        key="act",
        limits=hr.Limits(max_attempts=1),
        timeout_s=1,  # so long a request may still arrive, after which it is looked for again
    )
    driver = drive([tool], backoff=QUICK)
    first = driver.call("fetch")
    assert (first.value, first.failure and first.failure.code) == (value, code)
    told = [each.message for each in caplog.records if "`verify`" in each.message]
    assert bool(told) == bool(logged) and all(logged in each for each in told)
    second = driver.call("fetch")
    expected = {
        "replayed": ("it is there", 1),
        "made": ("there", 2),
        "asked": (None, 1),
    }[again]
    assert (second.value, len(tried)) == expected


def test_not_found_says_nothing_while_the_write_still_runs(drive, gate):
    tool = tool_at(
        gate,
        how="thread",
        effect="write",
        verify=lambda arguments, context: hr.NotFound(),
    )
    driver = drive([tool])
    assert driver.call("work", run="r").failure.code == Code.IN_DOUBT
    gate.open()
    until(lambda: driver.told(FinishedLate))
    assert driver.call("work", run="r").value == "went through"


# -- tools with state --------------------------------------------------------------------------------------------------


class Documents(hr.BaseTool):
    """Search the handbook."""

    name, effect = "search", "read"

    def __init__(self, fails=0, asynchronous=False):
        super().__init__()
        self.log, self.fails = [], fails
        if asynchronous:
            self.open, self.close = self._open, self._close

    def open(self):
        self.log.append("open")
        if self.fails:
            self.fails -= 1
            raise ConnectionRefusedError("no index")

    def close(self):
        self.log.append("close")

    async def _open(self):
        await asyncio.sleep(0)
        type(self).open(self)

    async def _close(self):
        await asyncio.sleep(0)
        type(self).close(self)

    def run(self, query: str) -> str:
        self.log.append("run")
        if query == "bad":
            raise RuntimeError
        return query


@pytest.mark.parametrize("asynchronous", [False, True])
def test_a_tool_is_opened_once_for_all_who_come_and_closed_at_the_end(
    drive, asynchronous
):
    documents = Documents(asynchronous=asynchronous)
    driver = drive([documents])
    driver.calls_at_once(*(("search", {"query": str(n)}) for n in range(20)))
    driver.call("search", {"query": "bad"})
    driver.close()
    assert Counter(documents.log) == {"open": 1, "run": 21, "close": 1}
    assert (documents.log[0], documents.log[-1]) == ("open", "close")


def test_a_tool_that_was_never_called_is_neither_opened_nor_closed(drive):
    documents = Documents()
    drive([documents]).close()
    assert documents.log == []


def test_an_opening_that_may_succeed_later_is_tried_again(drive):
    documents = Documents(fails=1)
    assert drive([documents], backoff=QUICK).call("search", {"query": "x"}).value == "x"
    assert documents.log == ["open", "open", "run"]


def test_a_write_whose_tool_cannot_be_opened_has_certainly_not_happened(drive):
    class Broken(Documents):
        """Write to the handbook."""

        name, effect = "write_page", "write"

        def open(self):
            raise ValueError("db password=hunter2")

    result = drive([Broken()]).call("write_page", {"query": "x"})
    assert result.failure.code == Code.UNAVAILABLE
    assert "hunter2" not in result.text


@pytest.mark.parametrize("error", [RuntimeError, SystemExit, asyncio.CancelledError])
@pytest.mark.parametrize("asynchronous", [False, True])
def test_one_tool_that_cannot_be_closed_does_not_keep_the_others_open(
    drive, caplog, asynchronous, error
):
    class Sticky(Documents):
        """Stick."""

        name = "sticky"

        def close(self):
            raise error("stuck")

    documents, sticky = Documents(), Sticky(asynchronous=asynchronous)
    driver = drive([documents, sticky])
    driver.call("search", {"query": "x"})
    driver.call("sticky", {"query": "x"})
    driver.close()
    assert documents.log[-1] == "close"
    assert "'sticky' could not be closed" in caplog.text


# -- what the caller fills in ------------------------------------------------------------------------------------------


@hr.tool(effect="read")
def whoami(context: hr.Context[dict], tenant: Annotated[str, hr.Injected]) -> str:
    """Say who asks."""
    return f"{tenant} {context.deps['user']} {context.run_id} {context.attempt}"


# -- approvals ---------------------------------------------------------------------------------------------------------


def asked_tool(ran):
    def delete_pod(name: str) -> str:
        ran.append(name)
        return f"{name} is gone"

    return hr.FunctionTool(delete_pod, effect="destructive")


@pytest.mark.parametrize(("answer", "ran", "code", "words"), [
    (True, ["a"], None, "a is gone"),
    (hr.Approval(True, by="ana"), ["a"], None, "a is gone"),
    (hr.Approval(True, arguments={"name": "b"}), ["b"], None, "b is gone"),
    # a person mistypes too
    (hr.Approval(True, arguments={"nme": "b"}), [], Code.INVALID_ARGUMENTS, "nme"),
    (False, [], Code.NOT_APPROVED, "did not approve"),
    (hr.Approval(False, reason="it serves customers"), [], Code.NOT_APPROVED, "it serves customers"),
    # nothing keeps the question, so nobody could answer it later
    (None, [], Code.NOT_APPROVED, "is of no run"),
])  # fmt: skip
def test_a_person_s_word_is_heeded(drive, answer, ran, code, words):
    done, approver = [], ScriptedApprover([answer])
    result = drive([asked_tool(done)], approver=approver).call(
        "delete_pod", {"name": "a"}
    )
    assert (done, result.failure and result.failure.code) == (ran, code)
    assert words in result.text
    assert [asked.arguments for asked in approver.asked] == [{"name": "a"}]


def failing_approver(asked):
    raise RuntimeError("db password=hunter2")


async def cancelled_approver(asked):
    raise asyncio.CancelledError


async def self_cancelling_approver(asked):
    asyncio.current_task().cancel()
    await asyncio.sleep(0)


@pytest.mark.parametrize(
    "approver", [failing_approver, cancelled_approver, self_cancelling_approver]
)
def test_an_approver_that_fails_has_not_agreed(drive, approver):
    ran = []
    result = drive([asked_tool(ran)], approver=approver).call(
        "delete_pod", {"name": "a"}
    )
    assert (ran, result.ok, "hunter2" in result.text) == ([], False, False)


def test_what_people_take_does_not_count_against_the_run_and_two_at_once_count_once(
    drive,
):
    clock = ManualClock()
    both = threading.Barrier(2)

    def approver(asked):
        if both.wait(BOUND_S) == 0:
            clock.advance(1000)
        both.wait(BOUND_S)
        return True

    def later(n: int) -> int:
        return n

    driver = drive(
        [hr.FunctionTool(later, approve=True, effect="read")],
        approver=approver,
        now=clock,
        budget=hr.Budget(time_s=10),
    )
    told = driver.handle(chat_message(call("later", n=1), call("later", n=2)), run="r")
    assert [each["content"] for each in told] == ["1", "2"]
    assert driver.runtime._engine._recall("r").spent.waited_s == 1000


# -- injection ---------------------------------------------------------------------------------------------------------


def test_a_missing_injected_value_is_told_to_the_engineer(drive):
    driver = drive([whoami])
    for name in ("whoami", "functions.whoami"):
        with pytest.raises(hr.MissingInjection, match="`tenant`"):
            driver.call(name, {}, deps={"user": "ana"})


def test_injected_values_and_deps_reach_the_tool_and_no_schema(drive):
    result = drive([whoami]).call(
        "whoami", {}, deps={"user": "ana"}, inject={"tenant": "acme"}, run="r"
    )
    assert result.value == "acme ana r 1"
    assert whoami.parameters.get("properties", {}) == {}


INJECTED = "correct-horse-battery"


@hr.tool(effect="read", limits=hr.Limits(max_attempts=1))
def ask_service(how: str, api_key: Annotated[str, hr.Injected]) -> object:
    """Ask the service."""
    if how == "raises":
        raise ValueError(f"the service refused {api_key}")
    if how == "says":
        raise hr.ToolError(
            "REFUSED",
            f"{api_key} is refused",
            suggestion=f"not {api_key}",
            details=[{"key": api_key}],
        )
    if how == "media":
        return {"sent": api_key, "chart": hr.Media("image/png", b"png")}
    if how == "nested":
        return {"sent": [f"Basic {b64encode(f'user:{api_key}'.encode()).decode()}"]}
    return api_key


@pytest.mark.parametrize("how", ["text", "nested", "media", "says", "raises"])
def test_no_model_reads_an_injected_value_that_its_tool_repeats(drive, how):
    result = drive([ask_service]).call(
        "ask_service", {"how": how}, inject={"api_key": INJECTED}
    )
    told = f"{result.text} {result.value} {result.failure}"
    assert INJECTED not in told
    assert b64encode(INJECTED.encode()).decode()[:-4] not in told
    assert ("***" in result.text) == (how != "raises")
    assert [each.data for each in result.media] == ([b"png"] if how == "media" else [])


def test_the_ledger_and_whoever_is_told_again_get_no_injected_value(drive):
    @hr.tool(effect="write", key="pay:{order}")
    def pay(order: str, api_key: Annotated[str, hr.Injected]) -> dict:
        """Pay for an order."""
        return {"paid": order, "with": api_key}

    driver = drive([pay])
    for key in (INJECTED, "another-key"):
        result = driver.call("pay", {"order": "7"}, inject={"api_key": key})
        assert result.value == {"paid": "7", "with": "***"}


def test_no_log_holds_an_injected_value(drive, caplog, tmp_path):
    caplog.set_level(logging.DEBUG)
    store = f"sqlite:///{tmp_path / 's.db'}"
    with hr.SyncRuntime([ask_service], store=store) as runtime:
        for how in ("text", "says", "raises"):
            runtime.call("ask_service", {"how": how}, inject={"api_key": INJECTED})
        records = [
            json.dumps(record.as_json()) for record in result_now(runtime.store.log())
        ]
    assert "refused ***" in caplog.text
    assert "the service refused ***" in "".join(records)
    assert INJECTED not in caplog.text + "".join(records)


def test_a_value_that_is_injected_openly_is_read_by_the_model(drive):
    @hr.tool(effect="read")
    def name_of(
        tenant: Annotated[str, hr.Injected(secret=False)], api_key: hr.Injected
    ) -> str:
        """Say whose this is."""
        return f"{tenant} {api_key}"

    result = drive([name_of]).call(
        "name_of", {}, inject={"tenant": "Contoso", "api_key": SecretStr(INJECTED)}
    )
    assert result.value == "Contoso **********"
    result = drive([name_of]).call(
        "name_of", {}, inject={"tenant": "Contoso", "api_key": {"value": INJECTED}}
    )
    assert result.value == "Contoso {'value': '***'}"


def test_a_model_that_sends_an_injected_name_is_refused(drive):
    result = drive([whoami]).call(
        "whoami", {"tenant": "evil"}, deps={"user": "a"}, inject={"tenant": "acme"}
    )
    assert result.failure.code == Code.INVALID_ARGUMENTS


# -- references between calls ------------------------------------------------------------------------------------------


def test_a_call_gets_the_real_value_of_an_earlier_one_of_its_turn(drive):
    got = []

    def find() -> dict:
        return {"user": {"id": 7}}

    mail = hr.FunctionTool(
        lambda user_id: got.append(user_id),
        name="mail",
        effect="write",
        parameters=USER_ID,
    )
    second = hr.ToolCall(
        "c2", "mail", '{"user_id": {"$call": "c1", "path": "/user/id"}}'
    )
    drive([hr.FunctionTool(find, effect="read"), mail]).handle(
        chat_message(hr.ToolCall("c1", "find"), second)
    )
    assert got == [7]


USER_ID = {
    "type": "object",
    "properties": {"user_id": {"type": "integer"}},
    "required": ["user_id"],
}


# -- who looks on, and what breaks -------------------------------------------------------------------------------------


def test_the_log_says_with_which_status_a_service_answered_and_no_word_of_it(
    drive, caplog
):
    @hr.tool(effect="read", timeout_s=5, limits=hr.Limits(max_attempts=1))
    def look() -> None:
        """Look."""
        raise type("HTTPError", (Exception,), {"status_code": 500})("canary")

    drive([look]).call("look", {})
    assert "(HTTP 500): HTTPError in look (" in caplog.text
    assert "canary" not in "".join(record.message for record in caplog.records)


class SlowStore(MemoryStore):
    """A store that answers later, in another thread, when the test says so."""

    def __init__(self, lost=()):
        super().__init__()
        self.lost, self.let = lost, threading.Event()
        self.asked = []

    def _later(self, what, answer, *args):
        future = Future()
        self.asked.append(what)

        def work():
            self.let.wait(BOUND_S)
            if what in self.lost:
                future.set_exception(OSError("db password=hunter2"))
            else:
                future.set_result(answer(*args))

        threading.Thread(target=work, daemon=True).start()
        return future

    def claim(self, claim):
        return self._later("claim", super().claim, claim)

    def settle(self, settle):
        return self._later("settle", super().settle, settle)


def test_a_store_that_answers_later_is_waited_for(drive):
    made, store = [], SlowStore()
    driver = drive([tickets(made)], store=store)
    begun = driver.start("call", "create_ticket", {"title": "x"})
    until(lambda: store.asked == ["claim"])
    assert made == []
    store.let.set()
    assert begun.result(BOUND_S).value == {"id": 1}


@pytest.mark.parametrize(("lost", "made", "code"), [
    ("claim", [], Code.UNAVAILABLE),  # nothing claimed, nothing done
    ("settle", ["x"], None),          # what happened is told; the claim stays open
])  # fmt: skip
@pytest.mark.parametrize("how", ["later", "at once"])
def test_a_store_that_does_not_answer(drive, how, lost, made, code):
    class Refusing(MemoryStore):
        def claim(self, claim):
            if lost == "claim":
                raise OSError("db password=hunter2")
            return super().claim(claim)

        def settle(self, settle):
            raise OSError("db password=hunter2")

    store = SlowStore({lost}) if how == "later" else Refusing()
    if how == "later":
        store.let.set()
    done = []
    result = drive([tickets(done)], store=store).call("create_ticket", {"title": "x"})
    assert (done, result.failure and result.failure.code) == (made, code)
    assert "hunter2" not in result.text


def test_a_store_that_never_answers_is_given_up_by_every_call_that_asked_it(
    drive, monkeypatch
):
    monkeypatch.setattr(executor, "STORE_S", SHORT_S)
    made, store = [], SlowStore()
    driver = drive([tickets(made)], store=store)
    message = chat_message(
        call("create_ticket", title="x"), call("create_ticket", title="y")
    )
    told = [
        json.loads(each["content"])["error_code"] for each in driver.handle(message)
    ]
    store.let.set()
    assert (told, made) == ([Code.UNAVAILABLE] * 2, [])


def test_a_store_that_falls_silent_after_it_has_answered_is_given_up_too(
    drive, monkeypatch
):
    monkeypatch.setattr(executor, "STORE_S", SHORT_S)
    made, store = [], SlowStore()
    store.claim = lambda claim: MemoryStore.claim(store, claim)
    result = drive([tickets(made)], store=store).call("create_ticket", {"title": "x"})
    store.let.set()
    # what happened is told; the claim stays open
    assert (result.ok, made) == (True, ["x"])


def test_a_fault_of_a_plug_in_is_raised_and_holds_no_resource(drive):
    tool = flaky(
        [hr.NoEffect("X", "no", retryable=True)] * 9,
        [],
        effect="write",
        resource="the-one",
    )
    driver = drive([tool], jitter=lambda: "no number")
    for _ in range(2):
        with pytest.raises(TypeError):
            driver.call("fetch")


def test_a_claim_says_busy_while_somebody_else_holds_it(drive):
    class Held(MemoryStore):
        def claim(self, claim):
            return Claimed(ClaimState.BUSY)

    made = []
    result = drive([tickets(made, timeout_s=0.1)], store=Held()).call(
        "create_ticket", {"title": "x"}
    )
    assert (result.failure.code, result.failure.retryable, made) == (
        Code.IN_PROGRESS,
        True,
        [],
    )


def test_nothing_is_left_of_finished_calls(drive, gate):
    driver = drive(
        [tool_at(gate, how="task"), tool_at(gate, how="thread", name="other")]
    )
    driver.calls_at_once(("work", {}), ("other", {}))
    gate.open()
    assert until(
        lambda: not driver.tasks() and not driver.runtime._engine.services.given_up
    )
    assert "0 resources" in repr(driver.runtime._engine.services._locks)


def test_asked_events_come_before_the_answer(drive):
    driver = drive([asked_tool([])], approver=lambda asked: True)
    driver.call("delete_pod", {"name": "a"})
    names = [type(event).__name__ for event in driver.events]
    assert names == [
        "CallAdmitted",
        "ApprovalAsked",
        "ApprovalGiven",
        "AttemptStarted",
        "CallFinished",
    ]
    assert driver.told(ApprovalAsked)[0].arguments == {"name": "a"}


def test_a_tool_says_how_far_it_has_come(drive):
    def copy(context: hr.Context[None]) -> str:
        """Copy a file."""
        for done in range(3):
            context.progress(done, 3, f"part {done}")
        return "copied"

    driver = drive([hr.FunctionTool(copy, effect="read")])
    assert driver.call("copy").text == "copied"
    told = driver.told(Progressed)
    assert [(each.done, each.total, each.note) for each in told] == [
        (n, 3, f"part {n}") for n in range(3)
    ]


@pytest.mark.parametrize("how", ["at once", "after a while", "in a thread"])
def test_no_step_is_lost_of_a_tool_that_ends_right_after_it_and_the_last_comes_before_the_result(
    drive, how
):
    async def copy(context: hr.Context[None]) -> str:
        """Copy a file."""
        if how == "after a while":
            await asyncio.sleep(0)
        for done in range(1, 4):
            context.progress(done, 3)
        return "copied"

    def copy_here(context: hr.Context[None]) -> str:
        """Copy a file."""
        for done in range(1, 4):
            context.progress(done, 3)
        return "copied"

    driver = drive(
        [
            hr.FunctionTool(
                copy_here if how == "in a thread" else copy, name="copy", effect="read"
            )
        ]
    )
    assert driver.call("copy").text == "copied"
    assert [each.done for each in driver.told(Progressed)] == [1, 2, 3]
    assert type(driver.events[-1]).__name__ == "CallFinished"


def test_the_seconds_of_a_call_do_not_count_what_a_person_took(drive):
    clock = ManualClock()

    def slowly(asked):
        clock.advance(3600)
        return True

    driver = drive([asked_tool([])], approver=slowly, now=clock)
    driver.call("delete_pod", {"name": "a"})
    assert driver.events[-1].seconds < 60


def test_a_write_whose_lease_is_over_before_it_starts_is_left_to_whoever_has_it_now(
    drive, monkeypatch
):
    # A process that was frozen after its claim: its own clock has gone on meanwhile.
    times = iter([0.0, 10_000.0])
    monkeypatch.setattr(executor, "monotonic", lambda: next(times, 10_000.0))
    started = []

    def pay(order: str) -> str:
        """Pay for an order."""
        started.append(order)
        return "paid"

    result = drive([hr.FunctionTool(pay, effect="write")]).call("pay", {"order": "7"})
    assert started == []
    assert "not started" in result.failure.message


# -- what a tool returns -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("effect", ["read", "write"])
@pytest.mark.parametrize("is_async", [True, False])
@pytest.mark.parametrize("inside", [
    lambda rows: rows, lambda rows: {"rows": rows}, lambda rows: [rows], lambda rows: {"a": {"rows": rows}},
    lambda rows: [{"a": [rows]}],
])  # fmt: skip
def test_an_iterator_in_a_result_is_read_once_whatever_its_length_and_whoever_looks_at_it(
    drive, effect, is_async, inside
):
    async def task():
        return inside(map(int, range(5000)))

    def thread():
        return inside(map(int, range(5000)))

    tool = hr.FunctionTool(
        task if is_async else thread,
        name="numbers",
        effect=effect,
        key="all" if effect == "write" else None,
    )
    driver = drive([tool])
    first, again = driver.call("numbers"), driver.call("numbers")
    assert [first.value, again.value] == [inside([*range(5000)])] * 2
    assert f"[{','.join(map(str, range(20)))}," in first.text


class Rows(NamedTuple):
    rows: Any


@dataclass
class Shelf:
    rows: Any


class Drawer(Struct):
    rows: Any


class Answer(BaseModel):
    rows: Iterable[int]


@pytest.mark.parametrize("effect", ["read", "write"])
@pytest.mark.parametrize("most", [3, 5000])
@pytest.mark.parametrize(
    "holder",
    [Shelf, Drawer, Rows, lambda rows: Answer(rows=rows), lambda rows: deque([rows])],
)
def test_an_iterator_in_an_object_of_a_result_is_read_once_too(
    drive, effect, most, holder
):
    def thread():
        return [holder(map(int, range(most)))]

    tool = hr.FunctionTool(
        thread, name="numbers", effect=effect, key="all" if effect == "write" else None
    )
    driver = drive([tool])
    told = [driver.call("numbers").text for _ in range(2)]
    assert ["0,1,2" in each for each in told] == [True, True]


@pytest.mark.parametrize("is_async", [True, False])
def test_what_an_iterator_raises_its_tool_has_raised(drive, is_async):
    def rows():
        yield 1
        raise hr.ToolError("GONE", "The connection is gone.", suggestion="Try later.")

    async def task():
        return {"rows": rows()}

    def thread():
        return {"rows": rows()}

    tool = hr.FunctionTool(task if is_async else thread, name="numbers", effect="read")
    assert drive([tool]).call("numbers").failure.code == "GONE"


class Broken(BaseModel):
    """A value that raises when it is written down."""

    raises: ClassVar[BaseException]

    @computed_field
    def total(self) -> int:
        raise self.raises


@pytest.mark.parametrize("effect", ["read", "write"])
@pytest.mark.parametrize("raises", [KeyError("canary"), SystemExit("canary")])
def test_a_result_that_raises_when_it_is_written_down_is_a_result_all_the_same(
    drive, effect, raises
):
    Broken.raises = raises
    driver = drive(
        [
            hr.FunctionTool(
                Broken, name="total", parameters={"type": "object"}, effect=effect
            )
        ]
    )
    result = driver.call("total")
    assert (result.ok, result.text) == (True, '"<Broken>"')


# -- what stays behind -------------------------------------------------------------------------------------------------


class Held:
    """Something that a call holds."""


def in_thread(fails: bool) -> str:
    if fails:
        raise ValueError("no")
    return "done"


def cannot_tell(arguments, context):
    raise ValueError("no")


async def in_task(fails: bool) -> str:
    await asyncio.sleep(0)
    return in_thread(fails)


@pytest.mark.slow
@pytest.mark.parametrize("fails", [False, True])
@pytest.mark.parametrize("tool", [
    hr.FunctionTool(in_thread, name="work", effect="read"),
    hr.FunctionTool(in_thread, name="work", effect="read", blocking=False),
    hr.FunctionTool(in_task, name="work", effect="read"),
    hr.FunctionTool(lambda fails: in_task(fails), name="work", effect="read", parameters={"type": "object"}),
    hr.FunctionTool(in_task, name="work", effect="write", approve=True),
    hr.FunctionTool(in_thread, name="work", effect="read", limits=hr.Limits(rate="50/s")),
    hr.FunctionTool(in_thread, name="work", effect="read", isolation="process"),
    hr.FunctionTool(in_thread, name="work", effect="write", write=hr.Write(repeatable=True), verify=cannot_tell),
])  # fmt: skip
def test_a_call_that_has_ended_is_let_go_of_without_a_collector(drive, tool, fails):
    driver = drive([tool], approver=ScriptedApprover([True, True, True]))
    gc.disable()  # else it might come by just in time
    try:
        for _ in range(3):  # with a rate, one waits for a timer
            deps = Held()
            held = weakref.ref(deps)
            assert driver.call("work", {"fails": fails}, deps=deps).ok is not fails
            del deps
            until(lambda held=held: held() is None, "it is still held")
    finally:
        gc.enable()


class Leads:
    """A result that leads back to its call, as a lazy one or an error that was caught does."""

    def __init__(self, context):
        self.context = context


class Leave(Exception):
    """An exception for the caller."""


@pytest.mark.parametrize("effect", ["read", "write"])
@pytest.mark.parametrize("way", ["run", "call", "calls"])
def test_what_leads_back_to_its_run_is_collected_with_it(effect, way):
    async def work(context: hr.Context[Held]) -> object:
        """Work."""
        if way == "calls":
            raise Leave
        return Leads(context)

    async def use(deps):
        runtime = hr.Runtime([hr.FunctionTool(work, effect=effect)])
        if way == "run":
            model = ScriptedModel([call("work"), "Done."])
            assert (await runtime.run("Go.", model=model, deps=deps)).ok
        elif way == "call":
            assert (await runtime.call("work", {}, deps=deps)).ok
        else:
            with pytest.raises(Leave):
                await runtime.calls(
                    [hr.ToolCall("c", "work")], run="r", deps=deps, passes=(Leave,)
                )

    deps = Held()
    held = weakref.ref(deps)
    asyncio.run(use(deps))
    del deps
    gc.collect()
    assert held() is None
