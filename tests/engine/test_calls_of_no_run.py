"""Calls that belong to no run, and need a person's approval."""

import asyncio
import json
import os

import pytest

import handrail as hr
from handrail.errors import Code
from handrail.futures import result_now
from handrail.stores.memory import MemoryStore
from handrail.stores.sqlite import SqliteStore
from tests.support.drivers import BOUND_S, KINDS


class Shop:
    """Tools that need an approval, and what they did."""

    def __init__(self, store, kind):
        self.store = store
        self.kind = kind
        self.done = []
        note = self.done.append

        @hr.tool(effect="write", key="pay:{order}", approve=True, timeout_s=5)
        async def pay(order: str, amount: int = 1) -> str:
            """Pay."""
            note(("pay", order, amount))
            return "paid"

        @hr.tool(effect="write", approve=True, timeout_s=5)
        async def mail(to: str) -> str:
            """Mail."""
            note(("mail", to))

        @hr.tool(effect="read", approve=True, timeout_s=5)
        async def look(order: str) -> str:
            """Look."""
            note(("look", order))

        @hr.tool(effect="write", key="s:{order}", approve=True, deferred=True)
        async def ship(order: str) -> None:
            """Ship; the result comes later."""
            note(("ship", order))

        self.tools = [pay, mail, look, ship]

    def do(self, verb, *args, **how):
        """Perform a verb in a runtime of its own, as another process would."""
        made = {"approver": how.pop("approver", None)}
        if self.kind == "sync":
            with hr.SyncRuntime(self.tools, store=self.store, **made) as runtime:
                return getattr(runtime, verb)(*args, **how)

        async def main():
            async with hr.Runtime(self.tools, store=self.store, **made) as runtime:
                doing = getattr(runtime, verb)(*args, **how)
                return await asyncio.wait_for(doing, BOUND_S)

        return asyncio.run(main())

    def pay(self, **how):
        return self.do("call", "pay", {"order": "1"}, **how)

    def decide(self, granted=True, by="ann"):
        (question,) = result_now(self.store.list_approvals())
        result_now(self.store.decide(question.id, granted=granted, by=by))
        return question


@pytest.fixture(params=["memory", "sqlite"])
def store(request, tmp_path):
    if request.param == "memory":
        yield MemoryStore()
        return
    with SqliteStore(tmp_path / "h.db") as opened:
        yield opened


@pytest.fixture(params=KINDS)
def shop(request, store):
    return Shop(store, request.param)


def test_the_question_of_a_call_of_no_run_is_found_by_its_key_and_used_once(shop):
    first = shop.pay()
    assert (first.failure.code, first.question.run_id) == (
        Code.APPROVAL_PENDING,
        "key:pay:1",
    )
    assert shop.pay().question.id == first.question.id
    shop.decide()
    assert shop.pay().value == "paid"
    assert shop.pay().replayed
    assert shop.done == [("pay", "1", 1)]
    assert result_now(shop.store.list_approvals(state="used"))[0].by == "ann"


def test_the_approval_of_a_key_is_for_what_was_shown_and_for_that_tenant(shop):
    shop.pay()
    shop.decide()
    other = shop.do("call", "pay", {"order": "1", "amount": 9})
    assert other.failure.code == Code.APPROVAL_PENDING
    assert shop.pay(scope="acme").failure.code == Code.APPROVAL_PENDING
    assert shop.done == []


def test_a_message_of_no_run_that_is_handed_over_again_uses_the_approval(shop):
    asked = {"name": "pay", "arguments": json.dumps({"order": "1"})}
    message = {
        "role": "assistant",
        "tool_calls": [{"id": "c1", "type": "function", "function": asked}],
    }
    (waits,) = shop.do("handle", message)
    assert "APPROVAL_PENDING" in waits["content"]
    shop.decide()
    (paid,) = shop.do("handle", message)
    assert (paid["content"], shop.done) == ("paid", [("pay", "1", 1)])


def test_a_denial_is_told_to_the_same_call_and_the_next_one_asks_again(shop):
    shop.pay()
    shop.decide(granted=False)
    assert shop.pay().failure.code == Code.NOT_APPROVED
    assert shop.done == []


@pytest.mark.parametrize(("tool", "given"), [("mail", "to"), ("look", "order")])
def test_a_call_of_no_run_and_no_key_says_that_nobody_can_approve_it(shop, tool, given):
    result = shop.do("call", tool, {given: "x"})
    assert (result.failure.code, result.question) == (Code.NOT_APPROVED, None)
    assert "its tool declares no key" in result.failure.message
    assert result_now(shop.store.list_approvals()) == []
    approved = shop.do("call", tool, {given: "x"}, approver=lambda _: True)
    assert (approved.ok, len(shop.done)) == (True, 1)


def test_nobody_is_asked_about_a_deferred_call_that_could_wait_in_no_run(shop):
    asked = []
    result = shop.do("call", "ship", {"order": "1"}, approver=asked.append)
    assert result.failure.code == Code.NOT_PERMITTED
    assert (asked, shop.done) == ([], [])
    assert result_now(shop.store.list_approvals()) == []


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs os.fork")
def test_the_question_outlives_the_process_that_asked(tmp_path):
    place = tmp_path / "h.db"
    child = os.fork()
    if child == 0:
        with SqliteStore(place) as opened:
            Shop(opened, "sync").pay()
        os._exit(9)
    os.waitpid(child, 0)
    with SqliteStore(place) as opened:
        shop = Shop(opened, "sync")
        shop.decide()
        assert shop.pay().value == "paid"
