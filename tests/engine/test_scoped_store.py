"""Two tenants on one store: a runtime with a `scope` neither sees nor waits for anything of another scope."""

from __future__ import annotations

import threading

import pytest

import handrail as hr
from handrail.engine.scoped_store import LONGEST_SCOPE
from handrail.errors import Code, ConfigError
from handrail.futures import result_now
from handrail.stores.memory_runs import FullMemoryStore
from handrail.stores.sqlite import SqliteStore
from handrail.testing import ScriptedModel, call
from tests.support.drivers import BOUND_S, KINDS, Driver

ASKING = [call("wipe", account="1"), "Done."]


class Tenants:
    """Runtimes of several scopes on one store, whose tools write into one world."""

    def __init__(self, kind, store):
        self.kind, self.store, self.world, self.opened = kind, store, [], []
        self.begun, self.go_on = threading.Event(), threading.Event()

    def of(self, scope, **how):
        wipe = hr.FunctionTool(
            self.wipe,
            effect="destructive",
            write=hr.Write(compensate=lambda account, result: account),
            sends=hr.Sends(trust="trusted"),
        )
        hold = hr.FunctionTool(
            self.hold,
            effect="write",
            resource="order:{order}",
            limits=hr.Limits(rate="1/h"),
        )
        driver = Driver(
            self.kind,
            [wipe, hold, self.long],
            {"store": self.store, "scope": scope, **how},
        )
        self.opened.append(driver)
        return driver

    def wipe(self, account: str) -> str:
        """Wipe an account."""
        self.world.append(account)
        return f"wiped {account}"

    def hold(self, order: str, wait: bool = True) -> str:
        """Hold an order."""
        if wait:
            self.begun.set()
            assert self.go_on.wait(BOUND_S)
        return "held"

    @staticmethod
    @hr.tool(effect="read")
    def long() -> str:
        """Something long."""
        return "secret " * 10_000

    def question(self, scope):
        [found] = [
            each
            for each in result_now(self.store.list_approvals())
            if each.run_id.startswith(f"@{scope}/")
        ]
        return found

    def approve(self, scope):
        result_now(self.store.decide(self.question(scope).id, granted=True, by="anna"))


@pytest.fixture(
    params=[
        (kind, store) for kind in KINDS for store in (FullMemoryStore, SqliteStore)
    ],
    ids=str,
)
def tenants(request, tmp_path):
    kind, store = request.param
    made = Tenants(
        kind, store(tmp_path / "shared.db") if store is SqliteStore else store()
    )
    yield made
    for each in made.opened:
        each.close()
    getattr(made.store, "close", lambda: None)()


@pytest.mark.parametrize("extent", ["run", "rule"])
def test_a_standing_word_of_one_tenant_lets_no_call_of_the_other_run(tenants, extent):
    a = tenants.of("a", approver=lambda _: hr.Approval(True, by="anna", scope=extent))
    assert a.call("wipe", {"account": "a-1"}, run="chat").ok
    assert (
        tenants.of("b").call("wipe", {"account": "b-1"}, run="chat").failure.code
        == Code.APPROVAL_PENDING
    )
    assert tenants.of("a").call("wipe", {"account": "a-2"}, run="chat").ok
    assert tenants.world == ["a-1", "a-2"]


@pytest.mark.parametrize("other", ["b", ""])
def test_an_approval_is_for_the_run_of_its_own_tenant(tenants, other):
    a, b = tenants.of("a"), tenants.of(other)
    for each in (a, b):
        assert (
            each.call("wipe", {"account": "1"}, run="chat").failure.code
            == Code.APPROVAL_PENDING
        )
    tenants.approve("a")
    assert (
        b.call("wipe", {"account": "1"}, run="chat").failure.code
        == Code.APPROVAL_PENDING
    )
    assert a.call("wipe", {"account": "1"}, run="chat").ok
    assert tenants.world == ["1"]


@pytest.mark.parametrize(
    ("other", "name"),
    [("b", "ticket"), ("", "ticket"), ("", "@a/ticket"), ("b", "@a/ticket")],
)
def test_a_run_of_one_tenant_cannot_be_gone_on_with_read_or_ended_by_the_other(
    tenants, other, name
):
    a, b = tenants.of("a"), tenants.of(other)
    assert (
        a.run("My card is 4111.", model=ScriptedModel(ASKING), run_id="ticket").status
        == "waiting"
    )
    tenants.approve("a")
    how = {"model": ScriptedModel(ASKING)}
    for verb, words in [
        ("resume", how),
        ("replay", how),
        ("fork", {"at_turn": 1, **how}),
        ("undoable", {}),
        ("undo", {}),
    ]:
        with pytest.raises(ConfigError):
            b.start(verb, name, **words).result(BOUND_S)
    if name == "ticket":
        assert b.runtime.cancel(name) is False
        assert (
            b.run("Mine.", model=ScriptedModel(["Yours."]), run_id=name).text
            == "Yours."
        )
    assert a.start("resume", "ticket", model=ScriptedModel(ASKING)).result(BOUND_S).ok
    assert tenants.world == ["1"]


def test_a_long_result_of_one_tenant_is_read_on_by_nobody_of_the_other(tenants):
    handle = tenants.of("a").call("long", run="chat").handle
    assert handle
    assert not tenants.of("b").call("read_result", {"handle": handle}, run="chat").ok
    assert tenants.of("a").call("read_result", {"handle": handle}, run="chat").ok


def test_nobody_waits_for_a_resource_or_a_rate_of_another_tenant(tenants):
    a, b = tenants.of("a"), tenants.of("b")
    holding = a.start("call", "hold", {"order": "9"}, run="chat")
    assert tenants.begun.wait(BOUND_S)
    result = b.call("hold", {"order": "9", "wait": False}, run="chat")
    still_held = not holding.done()
    tenants.go_on.set()
    assert (result.value, still_held, holding.result(BOUND_S).value) == (
        "held",
        True,
        "held",
    )


@pytest.mark.parametrize(
    "scope", ["a/b", "a\n", "\ud800", "x" * (LONGEST_SCOPE + 1), 7]
)
def test_what_can_be_no_part_of_a_name_is_no_scope(scope):
    with pytest.raises(ConfigError, match="scope"):
        hr.Runtime(scope=scope)


def test_a_runtime_without_a_scope_names_no_run_of_one(tenants):
    with pytest.raises(ConfigError, match="those of a scope"):
        tenants.of("").call("long", run="@a/chat")
