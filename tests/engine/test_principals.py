"""For whom a run acts, whoever goes on with it; and whose approval counts."""

import asyncio

import pytest

import handrail as hr
from handrail.errors import ConfigError
from handrail.futures import result_now
from handrail.stores.sqlite import SqliteStore
from handrail.testing import ScriptedModel, call
from tests.support.drivers import BOUND_S, KINDS

SCRIPT = [call("pay", n=1), "done"]


class Died(BaseException):
    """What a killed process does not have time to handle."""


class Deadly(ScriptedModel):
    """Asking it is the end of the process."""

    async def ask(self, request, listener=None):
        raise Died


@pytest.fixture
def store(tmp_path):
    with SqliteStore(tmp_path / "h.db") as opened:
        yield opened


class Shop:
    """A write that people must agree to, and who goes on with what."""

    def __init__(self, store, kind="sync", people=2):
        self.store = store
        self.kind = kind
        self.paid = []

        @hr.tool(
            effect="write",
            key="pay:{n}",
            approve=True,
            required_approvals=people,
            timeout_s=5,
        )
        async def pay(n: int) -> str:
            """Pay."""
            self.paid.append(n)
            return "paid"

        @hr.tool(effect="write", key="ask:{n}", timeout_s=5)
        async def delegate(n: int, context: hr.Context[None]) -> str:
            """Let another agent pay."""
            ended = await context.run("pay", model=ScriptedModel(SCRIPT))
            return ended.text

        self.tools = [pay, delegate]

    def do(self, verb, *args, made=None, **how):
        """Perform a verb in a runtime of its own, as another process would."""
        how = {"model": ScriptedModel(SCRIPT), **how}
        made = {"store": self.store, **(made or {})}
        if self.kind == "sync":
            with hr.SyncRuntime(self.tools, **made) as runtime:
                return getattr(runtime, verb)(*args, **how)

        async def main():
            async with hr.Runtime(self.tools, **made) as runtime:
                doing = getattr(runtime, verb)(*args, **how)
                return await asyncio.wait_for(doing, BOUND_S)

        return asyncio.run(main())

    def question(self):
        (question,) = result_now(self.store.list_approvals())
        return question

    def agree(self, by):
        queue = hr.SyncRuntime(self.tools, store=self.store).approvals
        return queue.approve(self.question().id, by=by).state

    def records(self, event):
        """Who each record of this event names: for whom the run acts, and who did it."""
        found = result_now(self.store.log())
        return [
            (each.body.get("principal"), each.body.get("by"))
            for each in found
            if each.event == event
        ]


BY = [
    ({}, {}, None),
    ({"principal": "alice"}, {}, None),
    ({"principal": "bob"}, {}, "bob"),
    ({}, {"principal": "bob"}, "bob"),
]
"""Who resumes, by the verb or by the runtime, and whom the log then names."""


@pytest.mark.parametrize(("how", "made", "by"), BY)
@pytest.mark.parametrize("kind", KINDS)
def test_a_run_acts_for_whom_it_was_started_whoever_resumes_it(
    store, kind, how, made, by
):
    shop = Shop(store, kind)
    with pytest.raises(Died):
        shop.do("run", "go", model=Deadly([]), run_id="r", principal="alice")
    assert shop.do("resume", "r", made=made, **how).status == "waiting"
    assert shop.question().principal == "alice"
    with pytest.raises(ConfigError, match="alice is whom the run acts for"):
        shop.agree("alice")
    assert [shop.agree(name) for name in ("bob", "cleo")] == ["open", "approved"]
    assert shop.do("resume", "r").ok
    assert shop.paid == [1]
    assert shop.records("RunStarted")[:2] == [("alice", None), ("alice", by)]
    assert {principal for principal, _ in shop.records("CallFinished")} == {"alice"}


@pytest.mark.parametrize("kind", KINDS)
def test_a_run_for_nobody_acts_for_nobody_when_somebody_resumes_it(store, kind):
    shop = Shop(store, kind)
    with pytest.raises(Died):
        shop.do("run", "go", model=Deadly([]), run_id="r")
    shop.do("resume", "r", principal="bob")
    assert shop.question().principal == ""
    assert shop.records("RunStarted") == [(None, None), (None, "bob")]


@pytest.mark.parametrize("kind", KINDS)
def test_a_fork_acts_for_whom_the_run_acts(store, kind):
    shop = Shop(store, kind)
    shop.do("run", "go", run_id="r", principal="alice")
    result_now(store.request_cancel("r"))
    shop.do("fork", "r", at_turn=1, principal="bob")
    assert shop.question().principal == "alice"


def test_a_run_that_a_call_starts_acts_for_whom_the_outer_run_acts(store):
    shop = Shop(store, "async")
    script = [call("delegate", n=1), "done"]
    with pytest.raises(Died):
        shop.do("run", "go", model=Deadly([]), run_id="r", principal="alice")
    for name in ("bob", "cleo"):
        shop.do("resume", "r", model=ScriptedModel(script), principal=name)
        question = shop.question()
        assert (question.principal, question.run_id != "r") == ("alice", True)


@pytest.mark.parametrize("kind", KINDS)
def test_a_workflow_acts_for_whom_it_was_started_whoever_goes_on_with_it(store, kind):
    shop = Shop(store, kind)
    dies = [True]

    def fails(flow):
        if dies:
            raise Died
        return flow.call("pay", {"n": 1})

    async def fails_async(flow):
        return await fails(flow)

    def pay_all(**how):
        fn = fails if kind == "sync" else fails_async
        fn.__name__ = "pay_all"
        made = {"store": store}
        if kind == "sync":
            with hr.SyncRuntime(shop.tools, **made) as runtime:
                return runtime.workflow(fn, run_id="w", **how)

        async def main():
            async with hr.Runtime(shop.tools, **made) as runtime:
                return await runtime.workflow(fn, run_id="w", **how)

        return asyncio.run(main())

    with pytest.raises(Died):
        pay_all(principal="alice")
    dies.clear()
    pay_all(principal="bob")
    assert shop.question().principal == "alice"


@pytest.mark.parametrize("kind", KINDS)
def test_the_next_question_acts_for_who_asks_it_and_for_the_last_one_if_nobody_says(
    store, kind
):
    shop = Shop(store, kind)
    script = ["hello", call("pay", n=1), call("pay", n=2)]
    shop.do("run", "hi", model=ScriptedModel(script), run_id="r", principal="alice")
    shop.do("run", "go", model=ScriptedModel(script), after="r")
    assert shop.question().principal == "alice"
    result_now(store.request_cancel("r"))
    shop.do("run", "on", model=ScriptedModel(script), after="r", principal="bob")
    assert shop.question().principal == "bob"
