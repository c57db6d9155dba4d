"""Tools whose result comes from outside."""

from __future__ import annotations

import asyncio
import time

import pytest

import handrail as hr
from handrail.calls import arguments_text
from handrail.futures import result_now
from handrail.stores.memory import MemoryStore
from handrail.testing import ManualClock, ScriptedModel, call
from tests.support.drivers import BOUND_S


@hr.tool(effect="read", blocking=False, deferred=True, write=hr.Write(repeatable=True))
def ask_user(question: str, options: list[str] | None = None) -> str:
    """Ask the user a question."""


class Desk:
    """A runtime of either kind, with a job that somebody else does."""

    def __init__(self, kind, store, **settings):
        self.started: list[str] = []

        def render(scene: str) -> str:
            """Render a scene."""
            self.started.append(scene)
            return "begun"

        job = hr.FunctionTool(render, effect="write", deferred=True)
        self.runtime = kind([job, ask_user], store=store, **settings)

    def do(self, verb, *args, **options):
        value = verb(*args, **options)
        if asyncio.iscoroutine(value):
            return asyncio.run(asyncio.wait_for(value, BOUND_S))
        return value

    def hand_over(self, number=1, name="render", run="t", **arguments):
        text = arguments_text(arguments or {"scene": "a"})
        asked = [hr.ToolCall(f"c{number}", name, text)]
        [result] = self.do(self.runtime.calls, asked, run=run)
        return result

    def deliver(self, *args, **options):
        return self.do(self.runtime.deliver, *args, **options)


@pytest.fixture(params=["memory", "sqlite"])
def store(request, tmp_path):
    return "memory:" if request.param == "memory" else f"sqlite:///{tmp_path}/h.db"


@pytest.fixture(params=[hr.Runtime, hr.SyncRuntime])
def desk(request, store):
    made = Desk(request.param, store)
    yield made
    made.do(made.runtime.close)


def test_a_call_waits_until_its_result_is_delivered(desk):
    waiting = desk.hand_over()
    assert waiting.failure.code == hr.Code.RESULT_PENDING
    assert waiting.question.awaits_result
    assert desk.hand_over().failure.code == hr.Code.RESULT_PENDING
    desk.deliver(waiting.question.id, {"frames": 24}, by="farm")
    for _ in range(2):
        result = desk.hand_over()
        assert result.value == {"frames": 24}
    assert desk.started == ["a"]


def test_a_result_is_delivered_by_the_id_of_the_call(desk):
    desk.hand_over(1)
    desk.hand_over(2, scene="b")
    desk.deliver("c2", "the second", run="t")
    assert desk.hand_over(2, scene="b").value == "the second"
    assert desk.hand_over(1).failure.code == hr.Code.RESULT_PENDING


def test_a_message_that_comes_twice_changes_nothing_and_another_one_is_refused(desk):
    question = desk.hand_over().question
    first = desk.deliver(question.id, "done", by="farm")
    assert desk.deliver(question.id, "done", by="again") == first
    with pytest.raises(hr.ConfigError, match="was answered by farm already"):
        desk.deliver(question.id, "otherwise")
    assert desk.hand_over().value == "done"


@pytest.mark.parametrize(
    "value", [None, False, 0, "", [], {"a": [1, {"b": None}]}, "x" * 100_000]
)
def test_any_json_value_is_delivered_as_it_is(desk, value):
    question = desk.hand_over().question
    desk.deliver(question.id, value)
    result = desk.hand_over()
    assert result.ok
    assert result.value == value


@pytest.mark.parametrize("kind", [hr.Runtime, hr.SyncRuntime])
def test_a_known_secret_in_what_was_delivered_is_kept_nowhere(kind, tmp_path):
    secret = "hunter2-and-more"
    desk = Desk(kind, f"sqlite:///{tmp_path}/h.db", secrets=[secret])
    question = desk.hand_over().question
    for _ in range(2):
        desk.deliver(
            question.id, {"link": f"https://render.example/?key={secret}", "frames": 24}
        )
    delivered = desk.hand_over().value
    desk.do(desk.runtime.close)
    assert delivered == {"link": "https://render.example/?key=***", "frames": 24}
    for file in tmp_path.iterdir():
        assert secret.encode() not in file.read_bytes()


def test_a_write_whose_result_was_delivered_can_be_taken_back(tmp_path):
    def render(scene: str) -> str:
        """Render a scene."""
        return "begun"

    def remove(scene: str, result: str) -> str:
        return f"{result} of {scene} removed"

    job = hr.FunctionTool(
        render, effect="write", deferred=True, write=hr.Write(compensate=remove)
    )
    model = ScriptedModel([call("render", scene="a"), "Done."])
    with hr.SyncRuntime([job], store=f"sqlite:///{tmp_path}/h.db") as runtime:
        runtime.run("q", model=model, run_id="r")
        [question] = runtime.approvals.list(run="r")
        runtime.deliver(question.id, "frames", by="farm")
        runtime.resume("r", model=model)
        [undone] = runtime.undo("r")
    assert undone.value == "frames of a removed"


def test_nobody_delivers_what_no_call_waits_for(desk):
    for unknown in ({"call": "a_nothing"}, {"call": "c1", "run": "other"}):
        with pytest.raises(hr.ConfigError, match=r"there is no question|no call 'c1'"):
            desk.deliver(unknown.pop("call"), "x", **unknown)


def test_a_result_is_no_approval_and_an_approval_is_no_result(desk):
    waiting = desk.hand_over().question
    with pytest.raises(hr.ConfigError, match="waits for the result of render"):
        desk.do(desk.runtime.approvals.approve, waiting.id, by="anna")
    desk.runtime.tools.redeclare("render", approve=True, deferred=False)
    asked = desk.hand_over(3, scene="c").question
    with pytest.raises(hr.ConfigError, match="waits for an approval"):
        desk.deliver(asked.id, "x")
    assert desk.started == ["a"]


def test_a_result_that_will_not_come_is_told(desk):
    question = desk.hand_over().question
    desk.do(desk.runtime.approvals.deny, question.id, by="farm", reason="no power")
    assert "no power" in desk.hand_over().text


def test_the_same_question_of_another_call_is_another_question(desk):
    first = desk.hand_over(1, "ask_user", question="Which?").question
    second = desk.hand_over(2, "ask_user", question="Which?").question
    assert first.id != second.id
    desk.deliver(first.id, "the blue one")
    assert desk.hand_over(1, "ask_user", question="Which?").value == "the blue one"
    assert not desk.hand_over(2, "ask_user", question="Which?").ok


def test_a_call_of_no_run_cannot_wait_and_starts_nothing(desk):
    result = desk.do(desk.runtime.call, "render", {"scene": "a"})
    assert result.failure.code == hr.Code.NOT_PERMITTED
    assert desk.started == []


def test_a_tenant_delivers_its_own(desk):
    asked = [hr.ToolCall("c1", "render", '{"scene": "a"}')]
    [waiting] = desk.do(desk.runtime.calls, asked, run="t", scope="acme")
    for wrong in (None, "other"):
        with pytest.raises(hr.ConfigError):
            desk.deliver("c1", "x", run="t", scope=wrong)
    desk.deliver(waiting.question.id, "x", scope="acme")
    [result] = desk.do(desk.runtime.calls, asked, run="t", scope="acme")
    assert result.value == "x"


def test_no_approver_is_asked_for_a_result(store):
    asked = []
    desk = Desk(hr.SyncRuntime, store, approver=lambda each: asked.append(each))
    assert desk.hand_over().failure.code == hr.Code.RESULT_PENDING
    assert asked == []
    desk.runtime.close()


@pytest.mark.parametrize("collected_before", [False, True])
def test_a_result_stays_after_the_time_for_an_answer_is_over(collected_before):
    clock = ManualClock()
    policy = hr.Policy(approval_s=60)
    desk = Desk(hr.SyncRuntime, MemoryStore(clock=clock), policy=policy)
    waiting = desk.hand_over()
    desk.deliver(waiting.question.id, "done")
    if collected_before:
        assert desk.hand_over().value == "done"
    clock.advance(61)
    assert desk.hand_over().value == "done"
    late = desk.hand_over(number=2, scene="b")
    clock.advance(61)
    with pytest.raises(hr.ConfigError, match="expired"):
        desk.deliver(late.question.id, "too late")
    assert desk.hand_over(number=2, scene="b").failure.code == hr.Code.IN_DOUBT
    desk.runtime.close()


def test_the_result_of_a_call_that_two_people_approved_comes_from_one(store):
    @hr.tool(
        effect="write",
        approve=True,
        write=hr.Write(required_approvals=2),
        deferred=True,
    )
    def order(item: str) -> None:
        """Order an item."""

    asked = [hr.ToolCall("c1", "order", '{"item": "paint"}')]
    with hr.SyncRuntime([order], store=store) as runtime:
        [waiting] = runtime.calls(asked, run="t")
        for person in ("anna", "ben"):
            runtime.approvals.approve(waiting.question.id, by=person)
        [started] = runtime.calls(asked, run="t")
        assert started.failure.code == hr.Code.RESULT_PENDING
        runtime.deliver(started.question.id, "Monday")
        assert runtime.calls(asked, run="t")[0].value == "Monday"


def test_the_result_of_an_approved_read_needs_no_second_approval(store):
    begun = []

    @hr.tool(effect="read", approve=True, deferred=True)
    def survey(topic: str) -> None:
        """Ask around."""
        begun.append(topic)

    asked = [hr.ToolCall("c1", "survey", '{"topic": "paint"}')]
    other = [hr.ToolCall("c2", "survey", '{"topic": "paint"}')]
    with hr.SyncRuntime([survey], store=store) as runtime:
        [waiting] = runtime.calls(asked, run="t")
        runtime.approvals.approve(waiting.question.id, by="anna")
        [started] = runtime.calls(asked, run="t")
        assert started.failure.code == hr.Code.RESULT_PENDING
        runtime.deliver(started.question.id, "blue")
        for _ in range(2):
            assert runtime.calls(asked, run="t")[0].value == "blue"
        [of_another] = runtime.calls(other, run="t")
        assert of_another.failure.code == hr.Code.APPROVAL_PENDING
        for elsewhere in ({"run": "u"}, {"run": "t", "scope": "acme"}):
            [unanswered] = runtime.calls(asked, **elsewhere)
            assert unanswered.failure.code == hr.Code.APPROVAL_PENDING
    assert begun == ["paint"]


def test_what_the_tool_starts_may_answer_before_the_tool_returns(store):
    runtime: hr.SyncRuntime

    def render(context: hr.Context, scene: str) -> str:
        """Render a scene."""
        runtime.deliver(context.call_id, f"{scene} at once", run=context.run_id)
        return "begun"

    tool = hr.FunctionTool(render, effect="write", deferred=True)
    with hr.SyncRuntime([tool], store=store) as runtime:
        asked = [hr.ToolCall("c1", "render", '{"scene": "a"}')]
        [result] = runtime.calls(asked, run="t")
    assert result.value == "a at once"


class Shop:
    """A runtime with a deferred write that names its act, and how its tool ends."""

    def __init__(self, kind, store, ends=None, **settings):
        self.started: list[str] = []

        def ship(order: str) -> None:
            """Ship an order."""
            self.started.append(order)
            end = ends.pop(0) if isinstance(ends, list) else ends
            if end is not None:
                raise end

        declared = {"effect": "write", "deferred": True, "key": "ship:{order}"}
        self.runtime = kind(
            [hr.FunctionTool(ship, **declared)], store=store, **settings
        )

    def do(self, verb, *args, **options):
        value = verb(*args, **options)
        if asyncio.iscoroutine(value):
            return asyncio.run(asyncio.wait_for(value, BOUND_S))
        return value

    def ask(self, run):
        return self.do(self.runtime.call, "ship", {"order": "7"}, run=run)

    def states(self):
        store = self.runtime.store
        writes = store.list_writes()
        found = writes.result(BOUND_S) if hasattr(writes, "result") else writes
        return [each.state for each in found]


@pytest.fixture(params=[hr.Runtime, hr.SyncRuntime])
def make_shop(request, store):
    made = []

    def make(*args, **settings):
        made.append(Shop(request.param, store, *args, **settings))
        return made[-1]

    yield make
    for shop in made:
        shop.do(shop.runtime.close)


def test_whoever_asks_for_a_started_write_waits_for_the_same_result_or_gets_it(
    make_shop,
):
    shop = make_shop()
    first = shop.ask("one")
    second = shop.ask("two")
    assert first.failure.code == second.failure.code == hr.Code.RESULT_PENDING
    assert first.question.id == second.question.id
    assert shop.states() == ["waiting"]
    shop.do(shop.runtime.deliver, second.question.id, "Monday")
    assert [shop.ask(run).value for run in ("one", "two", "three", None)] == [
        "Monday"
    ] * 4
    assert (shop.started, shop.states()) == (["7"], ["done"])


def test_a_write_that_raised_is_in_no_doubt_while_its_result_may_come(make_shop):
    shop = make_shop(ConnectionResetError())
    waiting = shop.ask("one")
    assert waiting.failure.code == hr.Code.RESULT_PENDING
    assert shop.states() == ["waiting"]
    shop.do(shop.runtime.deliver, waiting.question.id, "Monday")
    assert (shop.ask("two").value, shop.states()) == ("Monday", ["done"])


@pytest.mark.parametrize("how", ["deny", "withdraw"])
def test_a_result_that_will_not_come_leaves_a_started_write_in_doubt(make_shop, how):
    shop = make_shop()
    question = shop.ask("one").question
    word = getattr(shop.runtime.approvals, how)
    shop.do(word, question.id, by="farm", reason="no power")
    assert shop.states() == ["in_doubt"]
    [write] = result_now(shop.runtime.store.list_writes())
    assert write.why(0.0) == "there will be no result: no power"
    for run in ("one", "two"):
        failure = shop.ask(run).failure
        assert failure.code == hr.Code.IN_DOUBT
        assert "may have taken effect" in failure.message
        assert "no power" in failure.message
    with pytest.raises(hr.ConfigError, match=r"denied|withdrawn"):
        shop.do(shop.runtime.deliver, question.id, "Monday")


def test_a_write_that_certainly_did_not_happen_waits_for_no_result(make_shop):
    shop = make_shop(hr.NoEffect("NO_STOCK", "There is none."))
    for run in ("one", "two"):
        assert shop.ask(run).failure.code == "NO_STOCK"
        assert (shop.do(shop.runtime.approvals.list), shop.states()) == ([], ["failed"])
    assert shop.started == ["7", "7"]
    questions = shop.do(shop.runtime.approvals.list, "cancelled")
    assert len(questions) == 2  # one of each start
    for question in questions:
        with pytest.raises(
            hr.ConfigError, match="nothing waits for the result of ship"
        ):
            shop.do(shop.runtime.deliver, question.id, "Monday")
    assert shop.states() == ["failed"]


@pytest.mark.parametrize("scope", [None, "acme"])
def test_whoever_waits_for_the_result_of_another_run_s_write_can_be_named(
    make_shop, scope
):
    shop = make_shop()
    tenant = {} if scope is None else {"scope": scope}
    order = [hr.ToolCall("c7", "ship", '{"order": "7"}')]
    for run in ("one", "two", "two"):
        shop.do(shop.runtime.calls, order, run=run, **tenant)
    with pytest.raises(hr.ConfigError, match="no call 'c7' of the run 'three'"):
        shop.do(shop.runtime.deliver, "c7", "Monday", run="three", **tenant)
    answered = shop.do(shop.runtime.deliver, "c7", "Monday", run="two", **tenant)
    assert (answered.run_id, answered.waiters) == ("one", (("two", "c7"),))
    again = shop.do(shop.runtime.deliver, "c7", "Monday", run="two", **tenant)
    assert again == answered
    [result] = shop.do(shop.runtime.calls, order, run="two", **tenant)
    assert (result.value, shop.states()) == ("Monday", ["done"])


def test_a_result_that_did_not_come_in_time_leaves_its_write_in_doubt(store):
    # the store counts the time of questions itself, so it is short
    shop = Shop(hr.SyncRuntime, store, policy=hr.Policy(approval_s=0.01))
    with shop.runtime:
        shop.ask("one")
        ledger = shop.runtime.store
        until = time.monotonic() + BOUND_S
        while not (late := result_now(ledger.list_writes(state="in_doubt"))):
            assert time.monotonic() < until
        [write] = late
        assert write.why(write.deliver_until + 1) == "its result did not come in time"
        assert result_now(ledger.list_writes(state="waiting")) == []
        resolved = result_now(
            ledger.resolve("", "ship:7", state="done", by="anna", value="Monday")
        )
        assert (resolved.state, resolved.value) == ("done", "Monday")
        assert shop.ask("two").value == "Monday"


@pytest.mark.parametrize("kind", [hr.Runtime, hr.SyncRuntime])
def test_a_cancelled_run_leaves_open_what_its_started_write_waits_for(kind, tmp_path):
    shop = Shop(kind, f"sqlite:///{tmp_path}/h.db")
    model = ScriptedModel([call("ship", order="7"), "end"])
    run = shop.do(shop.runtime.run, "Ship 7.", model=model)
    assert run.status == "waiting"
    shop.runtime.cancel(run.id)
    waiting = shop.ask("two")
    assert (waiting.failure.code, shop.states()) == ("RESULT_PENDING", ["waiting"])
    shop.do(shop.runtime.deliver, waiting.question.id, "Monday")
    assert (shop.ask("two").value, shop.states()) == ("Monday", ["done"])
    shop.do(shop.runtime.close)


def test_a_run_waits_and_goes_on_with_the_answer(tmp_path):
    desk = Desk(hr.Runtime, f"sqlite:///{tmp_path}/h.db")

    async def main():
        async with desk.runtime as runtime:
            model = ScriptedModel(
                [
                    call("ask_user", question="Which one?", options=["red", "blue"]),
                    lambda messages: f"You chose {messages[-1].result.text}.",
                ]
            )
            run = await runtime.run("A lamp.", model=model)
            assert (run.status, run.reason) == (
                "waiting",
                "waiting for the result of ask_user",
            )
            question = run.messages[-1].result.question
            assert question.arguments["options"] == ["red", "blue"]
            await runtime.deliver(question.id, "blue", by="the user")
            return await runtime.resume(run.id, model=model)

    assert asyncio.run(main()).text == "You chose blue."
