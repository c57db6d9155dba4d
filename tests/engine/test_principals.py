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
            write=hr.Write(required_approvals=people),
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


# -- whose approval counts ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("by", ["alice", "ALICE", "ａlice"])
@pytest.mark.parametrize("kind", KINDS)
def test_nobody_approves_their_own_call_though_one_person_is_enough(store, kind, by):
    shop = Shop(store, kind, people=1)
    shop.do("run", "go", run_id="r", principal="alice")
    with pytest.raises(ConfigError, match=r"somebody else must agree; `own_approval`"):
        shop.agree(by)
    assert shop.question().state == "open"
    assert shop.agree("bob") == "approved"
    shop.do("resume", "r")
    assert shop.paid == [1]


def test_whom_a_call_is_for_may_deny_it(store):
    shop = Shop(store, people=1)
    shop.do("run", "go", run_id="r", principal="alice")
    queue = hr.SyncRuntime(shop.tools, store=store).approvals
    assert queue.deny(shop.question().id, by="alice").state == "denied"


OWN = {"policy": hr.Policy(own_approval=True)}


@pytest.mark.parametrize("asked_before", [False, True])
@pytest.mark.parametrize("kind", KINDS)
def test_a_policy_may_let_people_approve_their_own_calls_where_one_is_enough(
    store, kind, asked_before
):
    shop = Shop(store, kind, people=1)
    if asked_before:
        shop.do("run", "go", run_id="r", principal="alice")
        shop.do("resume", "r", made=OWN)
    else:
        shop.do("run", "go", run_id="r", principal="alice", made=OWN)
    assert shop.agree("alice") == "approved"
    shop.do("resume", "r")
    assert shop.paid == [1]


def test_no_policy_lets_the_person_a_call_is_for_be_one_of_two(store):
    shop = Shop(store, people=2)
    shop.do("run", "go", run_id="r", principal="alice", made=OWN)
    with pytest.raises(ConfigError, match="others must agree"):
        shop.agree("alice")


@pytest.mark.parametrize("run", ["desk", None])
@pytest.mark.parametrize("kind", KINDS)
def test_an_approver_s_yes_in_the_name_of_whom_the_call_is_for_decides_nothing(
    store, kind, run, caplog
):
    shop = Shop(store, kind, people=1)

    def pay(by):
        how = {"run": run, "principal": "alice", "model": None}
        how.pop("model")
        approver = lambda _: hr.Approval(True, by=by)  # noqa: E731
        made = {"store": store, "approver": approver}
        with hr.SyncRuntime(shop.tools, **made) as runtime:
            return runtime.call("pay", {"n": 1}, **how)

    assert not pay("alice").ok
    assert "alice is whom the run acts for" in caplog.text
    assert (pay("bob").ok, shop.paid) == (True, [1])


def test_a_decision_that_comes_with_the_call_does_not_count_from_whom_it_is_for(store):
    shop = Shop(store, people=1)
    asked = [hr.ToolCall("c1", "pay", '{"n": 1}')]
    with hr.SyncRuntime(shop.tools, store=store, principal="alice") as runtime:
        runtime.calls(asked, run="desk")
        for by, paid in (("alice", []), ("bob", [1])):
            runtime.calls(asked, run="desk", words={"c1": hr.Approval(True, by=by)})
            assert shop.paid == paid


def test_a_standing_approval_does_not_cover_the_calls_of_who_gave_it(store):
    shop = Shop(store, people=1)
    with hr.SyncRuntime(shop.tools, store=store) as runtime:
        runtime.call("pay", {"n": 1}, run="of-bob", principal="bob")
        (question,) = runtime.approvals.list()
        runtime.approvals.approve(question.id, by="alice", scope="rule")
        runtime.call("pay", {"n": 2}, run="of-cleo", principal="cleo")
        runtime.call("pay", {"n": 3}, run="of-alice", principal="alice")
    assert shop.paid == [2]
    assert shop.question().principal == "alice"


def test_a_question_of_one_person_does_not_decide_the_same_call_of_another(store):
    shop = Shop(store, people=1)
    with hr.SyncRuntime(shop.tools, store=store) as runtime:
        runtime.call("pay", {"n": 1}, run="desk", principal="alice")
        (question,) = runtime.approvals.list()
        runtime.approvals.approve(question.id, by="bob")
        assert not runtime.call("pay", {"n": 1}, run="desk", principal="bob").ok
        assert runtime.call("pay", {"n": 1}, run="desk", principal="alice").ok


def test_the_answer_of_the_person_a_call_is_for_is_the_result_of_a_deferred_call(store):
    @hr.tool(effect="read", deferred=True)
    def ask_user(question: str) -> str:
        """Ask the user."""

    script = ScriptedModel([call("ask_user", question="Which?"), "done"])
    with hr.SyncRuntime([ask_user], store=store, principal="alice") as runtime:
        runtime.run("go", model=script, run_id="r")
        (question,) = runtime.approvals.list()
        runtime.deliver(question.id, "this one", by="alice")
        assert runtime.resume("r", model=script).ok
