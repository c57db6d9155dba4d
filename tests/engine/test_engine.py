"""Whole runs, from question to ending, on asyncio and in the calling thread alike."""

import asyncio
import threading
from functools import partial

import pytest

import handrail as hr
from handrail.errors import Code
from handrail.events import ApprovalGiven, AttemptFailed, RunEnded, RunStarted
from handrail.messages import ToolMessage
from handrail.ports import Request
from handrail.stores.memory import MemoryStore
from handrail.stores.sqlite import SqliteStore
from handrail.testing import ManualClock, ScriptedModel, call
from tests.engine.test_executor import SlowStore, tool_at
from tests.support.drivers import BOUND_S, Gate, until


@pytest.fixture
def gate():
    made = Gate()
    yield made
    made.open()


class WaitingModel(ScriptedModel):
    """A model that thinks until its gate opens."""

    def __init__(self, script, gate):
        super().__init__(script)
        self.gate = gate

    async def ask(self, request, listener=None):
        await self.gate.pass_through_async()
        return await super().ask(request, listener)


def results_of(run):
    return [
        message.result for message in run.messages if isinstance(message, ToolMessage)
    ]


def codes_of(run):
    return [result.failure and result.failure.code for result in results_of(run)]


@hr.tool(effect="read")
async def get_weather(city: str) -> dict:
    """Get the weather of a city."""
    return {"city": city, "celsius": 21}


# -- from question to answer -------------------------------------------------------------------------------------------


def test_a_run_asks_calls_feeds_back_and_answers(drive):
    model = ScriptedModel(
        [
            [call("get_weather", city="北京"), call("get_weather", city="Paris")],
            "21 in both.",
        ]
    )
    run = drive([get_weather]).run("How warm?", model=model, system="Be brief.")
    assert (run.status, run.text, run.reason) == ("done", "21 in both.", "")
    assert [result.value["city"] for result in results_of(run)] == ["北京", "Paris"]
    assert [len(request.messages) for request in model.requests] == [2, 5]
    assert (run.spent.turns, run.spent.calls, run.spent.usage.input_tokens) == (
        2,
        2,
        200,
    )


@pytest.mark.parametrize("code", ["APPROVAL_PENDING", "BUDGET_EXHAUSTED"])
def test_a_tool_that_says_what_only_handrail_can_say_does_not_end_its_run(drive, code):
    @hr.tool(effect="write")
    async def pay() -> str:
        """Pay."""
        raise hr.NoEffect(code, "The bank wants a signature.")

    run = drive([pay]).run(
        "Pay.",
        model=ScriptedModel([call("pay"), "It wants a signature."]),
        budget=hr.Budget(calls=1),
    )
    assert (run.status, run.text, codes_of(run)) == (
        "done",
        "It wants a signature.",
        [Code.TOOL_ERROR],
    )


def test_two_runs_of_one_id_are_not_under_way_at_once(drive, gate):
    driver = drive([])
    first = driver.start("run", "?", model=WaitingModel(["yes"], gate), run_id="r")
    gate.wait_for()
    with pytest.raises(hr.SetupError, match="under way"):
        driver.run("?", model=ScriptedModel(["no"]), run_id="r")
    gate.open()
    assert first.result(BOUND_S).text == "yes"


def test_a_run_sees_only_what_its_policy_allows_and_may_call_no_more(drive):
    write = hr.FunctionTool(lambda: 1, name="write", effect="write")
    model = ScriptedModel([call("write"), "ok"])
    run = drive([get_weather, write], policy=hr.Policy(max_permission="read")).run(
        "?", model=model
    )
    assert [tool.name for tool in model.requests[0].tools] == ["get_weather"]
    assert codes_of(run) == [Code.NOT_PERMITTED]


def test_a_missing_injected_value_is_raised_before_the_model_is_asked(drive):
    @hr.tool(effect="read")
    def orders(tenant: hr.Injected) -> list:
        """List the orders."""

    model = ScriptedModel(["?"])
    with pytest.raises(hr.MissingInjection):
        drive([orders]).run("?", model=model)
    assert model.requests == []


# -- what a run may spend ----------------------------------------------------------------------------------------------


NUMBER = {"type": "object", "properties": {"n": {"type": "integer"}}}


def test_a_run_s_time_ends_a_tool_and_then_the_run(drive, gate):
    model = ScriptedModel([call("work"), "never asked"])
    run = drive([tool_at(gate, how="task", timeout_s=BOUND_S)]).run(
        "?", model=model, budget=hr.Budget(time_s=0.1)
    )
    assert (run.status, codes_of(run)) == ("budget", [Code.TIMEOUT])
    (result,) = run.as_json()["results"]
    # the run's time, not the tool's
    assert "did not finish within 0." in result["error_message"]


def test_a_run_s_time_ends_a_model_that_does_not_answer(drive, gate):
    run = drive([]).run(
        "?", model=WaitingModel(["never"], gate), budget=hr.Budget(time_s=0.1)
    )
    assert (run.status, run.reason) == (
        "budget",
        "the model did not answer within the run's time",
    )
    assert gate.cancelled == 1


def test_a_call_that_waits_for_a_person_ends_the_run_and_keeps_its_siblings_results(
    drive,
):
    tool = hr.FunctionTool(lambda: "done", name="work", effect="read", approve=True)
    model = ScriptedModel(
        [[call("work"), call("get_weather", city="Oslo")], "never asked"]
    )
    run = drive([tool, get_weather]).run("?", model=model)
    assert (run.status, run.reason) == ("waiting", "waiting for approval of work")
    assert codes_of(run) == [Code.APPROVAL_PENDING, None]


# -- turning in a circle -----------------------------------------------------------------------------------------------


def test_the_same_call_with_the_same_result_is_told_and_then_stops_the_run_with_a_reason(
    drive,
):
    run = drive([get_weather]).run(
        "?", model=ScriptedModel([call("get_weather", city="Oslo")])
    )
    # the third one was not made
    assert (run.status, run.spent.calls) == ("stopped", 2)
    assert "get_weather was called 3 times" in run.reason
    assert [result.note[:9] for result in results_of(run)] == ["", "This call", ""]
    assert codes_of(run) == [None, None, Code.REPEATED_CALL]


# -- long results ------------------------------------------------------------------------------------------------------


def test_a_model_reads_a_cut_result_to_its_end(drive):
    log = "\n".join(f"line {n}: {'x' * 40}" for n in range(2000))
    offset = [0]

    def read_on(messages):
        last = messages[-1].result
        if last.name == "read_result":
            assert last.value["text"] == log[offset[0] : offset[0] + 8000]
            offset[0] = last.value["next"]
        if offset[0] is None:
            return "read it all"
        return call("read_result", handle=handle_in(messages), offset=offset[0])

    def handle_in(messages):
        return next(
            message.result.handle
            for message in messages
            if isinstance(message, ToolMessage)
        )

    model = ScriptedModel([call("get_log"), *[read_on] * 30])
    run = drive([hr.FunctionTool(lambda: log, name="get_log", effect="read")]).run(
        "?", model=model
    )
    assert (run.status, run.text) == ("done", "read it all")
    first = results_of(run)[0]
    assert len(first.text.encode()) < 17 * 1024
    assert f"read_result(handle='{first.handle}')" in first.text
    assert [sorted(tool.name for tool in request.tools) for request in model.requests[:2]] == [
        ["get_log"], ["get_log", "read_result"]
    ]  # fmt: skip


def test_a_handle_of_another_run_is_unknown(drive):
    driver = drive(
        [hr.FunctionTool(lambda: "x" * 99_999, name="get_log", effect="read")]
    )
    handle = driver.call("get_log", run="mine").handle
    assert driver.call("read_result", {"handle": handle}, run="mine").ok
    assert (
        driver.call("read_result", {"handle": handle}, run="yours").failure.code
        == "UNKNOWN_HANDLE"
    )


# -- models that fail --------------------------------------------------------------------------------------------------


class BrokenModel(ScriptedModel):
    def __init__(self, error, script=()):
        super().__init__(script)
        self.error = error

    async def ask(self, request: Request, listener=None):
        if len(self.requests) >= len(self.script):
            raise self.error
        return await super().ask(request, listener)


@pytest.mark.parametrize(("error", "reason"), [
    (hr.ModelError("the provider is down", status=503), "the provider is down"),
    # not its text: it may hold a key
    (RuntimeError("key sk-123"), "the model scripted raised RuntimeError"),
    # its own, not the run's
    (TimeoutError(), "the model scripted raised TimeoutError"),
    # that nobody asked for
    (asyncio.CancelledError(), "the model scripted raised CancelledError"),
    # it would end the loop that it runs on
    (SystemExit(1), "the model scripted raised SystemExit"),
    # not in the thread where one comes
    (KeyboardInterrupt(), "the model scripted raised KeyboardInterrupt"),
])  # fmt: skip
def test_a_model_that_fails_ends_the_run_with_one_reason_and_keeps_what_was_said(
    drive, error, reason
):
    model = BrokenModel(
        error,
        [
            hr.Turn(
                "Let me look.", calls=[call("get_weather", city="Oslo")], finish="calls"
            )
        ],
    )
    run = drive([get_weather]).run("?", model=model)
    assert (run.status, run.reason, run.text, codes_of(run)) == (
        "failed",
        reason,
        "Let me look.",
        [None],
    )


def test_a_model_that_answers_with_something_else_ends_the_run(drive):
    class Speechless(ScriptedModel):
        async def ask(self, request, listener=None):
            return "Hi"

    run = drive([get_weather]).run("?", model=Speechless([]))
    assert (run.status, run.reason) == (
        "failed",
        "the model scripted answered with a str, which is no Turn",
    )


@pytest.mark.parametrize(("turn", "status", "reason"), [
    (hr.Turn("half", finish="length"), "cut", "the model's answer was cut by its length limit"),
    (hr.Turn("half", finish="error"), "failed", "the model's answer broke off"),
    (hr.Turn(refusal="I will not."), "refused", "I will not."),
    (hr.Turn(finish="refused"), "refused", "the model declined to answer"),
])  # fmt: skip
def test_an_answer_that_is_none_says_so(drive, turn, status, reason):
    run = drive([]).run("?", model=ScriptedModel([turn]))
    assert (run.status, run.reason) == (status, reason)


def test_no_exception_s_text_is_in_a_transcript(drive):
    def leak() -> None:
        raise RuntimeError("db password=hunter2")

    tools = [
        hr.FunctionTool(leak, effect="read"),
        hr.FunctionTool(leak, effect="write", name="write"),
    ]
    run = drive(tools).run(
        "?", model=ScriptedModel([[call("leak"), call("write")], "hm"])
    )
    assert "hunter2" not in run.transcript(debug=True) + repr(run.messages) + repr(
        run.as_json()
    )


# -- cancelling --------------------------------------------------------------------------------------------------------


def cancelled(driver, wait, **how):
    """Begin a run, wait until it is there, cancel it from this thread, and return how it ended."""
    begun = driver.start("run", "?", run_id="r", **how)
    wait()
    assert driver.runtime.cancel("r") is True
    ended = begun.result(BOUND_S)
    until(lambda: not driver.tasks(), f"tasks are left: {driver.tasks()}")
    assert ended.status == "cancelled"
    assert driver.runtime.cancel("r") is False
    assert [event.status for event in driver.told(RunEnded)] == ["cancelled"]
    return ended


def test_cancelled_while_the_model_is_asked(drive, gate):
    driver = drive([])
    run = cancelled(driver, gate.wait_for, model=WaitingModel(["never"], gate))
    assert (run.reason, gate.cancelled) == ("the run was cancelled", 1)


@pytest.mark.parametrize("how", ["task", "thread", "stubborn"])
def test_cancelled_while_a_read_runs(drive, gate, how):
    driver = drive([tool_at(gate, how=how, timeout_s=BOUND_S)])
    begun = driver.start(
        "run", "?", run_id="r", model=ScriptedModel([call("work"), "never asked"])
    )
    gate.wait_for()
    driver.runtime.cancel("r")
    run = begun.result(BOUND_S)
    assert (run.status, codes_of(run)) == ("cancelled", [Code.CANCELLED])
    gate.open()
    assert until(
        lambda: not driver.tasks() and not driver.runtime._engine.services.given_up
    )


@pytest.mark.parametrize("how", ["task", "thread"])
def test_cancelled_while_a_write_runs_its_result_is_waited_for_and_kept(
    drive, gate, how
):
    driver = drive([tool_at(gate, how=how, effect="write", timeout_s=BOUND_S)])
    begun = driver.start(
        "run",
        "?",
        run_id="r",
        model=ScriptedModel([[call("work"), call("work", n=2)], "never asked"]),
    )
    gate.wait_for(2)
    driver.runtime.cancel("r")
    assert not begun.done()
    gate.open()
    run = begun.result(BOUND_S)
    assert (run.status, codes_of(run)) == ("cancelled", [None, None])


def test_cancelled_while_a_write_runs_it_is_not_tried_again(drive):
    gate, tries = Gate(), []

    def pay() -> None:
        tries.append(1)
        gate.pass_through()
        raise hr.NoEffect("X", "not now", retryable=True)

    driver = drive([hr.FunctionTool(pay, effect="write")])
    begun = driver.start(
        "run", "?", run_id="r", model=ScriptedModel([call("pay"), "never asked"])
    )
    gate.wait_for()
    driver.runtime.cancel("r")
    until(
        lambda: (
            driver.kind == "asyncio"
            or driver.runtime._engine._deployment.live["r"].cancelled
        )
    )
    gate.open()
    run = begun.result(BOUND_S)
    assert (run.status, codes_of(run), len(tries)) == ("cancelled", [Code.CANCELLED], 1)


def test_cancelled_while_a_person_is_asked(drive, gate):
    async def approver(asked):
        await gate.pass_through_async()

    ran = []
    tool = hr.FunctionTool(
        lambda: ran.append(1), name="work", effect="write", approve=True
    )
    model = ScriptedModel([call("work"), "never asked"])
    run = cancelled(drive([tool], approver=approver), gate.wait_for, model=model)
    assert (codes_of(run), ran) == ([Code.CANCELLED], [])


def test_cancelled_while_a_person_is_asked_beyond_the_run_s_time(drive, gate):
    clock = ManualClock()

    async def approver(asked):
        clock.advance(3600)
        await gate.pass_through_async()

    driver = drive(
        [hr.FunctionTool(lambda: 1, name="work", effect="read", approve=True)],
        approver=approver,
        now=clock,
    )
    model = ScriptedModel([call("work"), "never asked"])
    run = cancelled(driver, gate.wait_for, model=model, budget=hr.Budget(time_s=60))
    assert codes_of(run) == [Code.CANCELLED]


def test_cancelled_while_one_person_is_asked_and_another_call_waits_it_does_not_wait(
    drive, gate, tmp_path
):
    async def approver(asked):
        if asked.arguments["to"] == "b":
            await gate.pass_through_async()

    def pay(to: str) -> None:
        raise AssertionError

    tool = hr.FunctionTool(pay, effect="write", approve=True)
    driver = drive([tool], approver=approver, store=f"sqlite:///{tmp_path}/runs.db")
    model = ScriptedModel([[call("pay", to="a"), call("pay", to="b")], "never asked"])

    def one_waits_and_one_is_asked():
        gate.wait_for()
        # of the first: nobody said a word about it
        until(lambda: driver.told(ApprovalGiven))

    run = cancelled(driver, one_waits_and_one_is_asked, model=model)
    assert codes_of(run) == [Code.APPROVAL_PENDING, Code.CANCELLED]
    # what waits is gone on with once it is approved
    with SqliteStore(tmp_path / "runs.db") as store:
        assert store.load_run("r").result().record.status == "cancelled"


def test_cancelled_while_a_retry_waits(drive):
    def fetch() -> None:
        raise ConnectionResetError

    driver = drive(
        [hr.FunctionTool(fetch, effect="read")],
        backoff=hr.Backoff(10, 10),
        jitter=lambda: 1.0,
    )
    model = ScriptedModel([call("fetch"), "never asked"])
    run = cancelled(
        driver, lambda: until(lambda: driver.told(AttemptFailed)), model=model
    )
    assert codes_of(run) == [Code.CANCELLED]


def test_cancelled_while_a_call_waits_for_its_resource(drive, gate):
    ran = []

    def work(n: int) -> None:
        ran.append(n)
        gate.pass_through()

    driver = drive([hr.FunctionTool(work, effect="write", resource="the-one")])
    holder = driver.start("call", "work", {"n": 1})
    gate.wait_for()
    begun = driver.start(
        "run", "?", run_id="r", model=ScriptedModel([call("work", n=2), "never asked"])
    )
    until(
        lambda: (
            "1 resources, 2 holding or waiting"
            in repr(driver.runtime._engine.services._locks)
        )
    )
    driver.runtime.cancel("r")
    assert codes_of(begun.result(BOUND_S)) == [Code.CANCELLED]
    gate.open()
    assert holder.result(BOUND_S).ok
    assert driver.call("work", {"n": 3}).ok  # the place in line is free again
    assert ran == [1, 3]


def test_cancelled_while_a_tool_is_opened_its_write_has_certainly_not_happened(
    drive, gate
):
    class Slow(hr.BaseTool):
        """Write."""

        name, effect, key = "write", "write", "the-act"

        async def open(self):
            await gate.pass_through_async()

        def run(self) -> str:
            return "written"

    driver = drive([Slow()])
    begun = driver.start(
        "run", "?", run_id="r", model=ScriptedModel([call("write"), "never asked"])
    )
    gate.wait_for()
    driver.runtime.cancel("r")
    run = begun.result(BOUND_S)
    assert (run.status, codes_of(run)) == ("cancelled", [Code.CANCELLED])
    assert "not started" in results_of(run)[0].failure.message
    gate.open()
    assert driver.call("write").value == "written"


@pytest.mark.parametrize("stage", ["claim", "settle"])
def test_cancelled_while_the_store_is_asked_its_answer_is_waited_for(drive, stage):
    store, made = SlowStore(), []
    driver = drive(
        [
            hr.FunctionTool(
                lambda: made.append(1), name="work", effect="write", key="the-act"
            )
        ],
        store=store,
    )
    if stage == "settle":
        store.claim = partial(MemoryStore.claim, store)  # at once
    begun = driver.start(
        "run", "?", run_id="r", model=ScriptedModel([call("work"), "never asked"])
    )
    until(lambda: store.asked == [stage])
    driver.runtime.cancel("r")
    store.let.set()
    run = begun.result(BOUND_S)
    if stage == "settle":
        # it was done, and is told as done
        assert (codes_of(run), made) == ([None], [1])
    else:
        assert (codes_of(run), made) == ([Code.CANCELLED], [])
        assert driver.call("work").ok  # nothing is left in doubt
        assert made == [1]


def test_cancelled_by_an_observer_in_the_middle_of_anything(drive):
    seen = []

    def stop_at(kind):
        def observer(event):
            seen.append(type(event).__name__)
            if type(event).__name__ == kind:
                driver.runtime.cancel(run_id[0])

        return observer

    run_id = [""]
    driver = drive([get_weather])
    for kind in (
        "RunStarted",
        "ModelAsked",
        "CallAdmitted",
        "AttemptStarted",
        "CallFinished",
        "ModelAnswered",
    ):
        run_id[0] = kind
        model = ScriptedModel(
            [
                [call("get_weather", city="a"), call("get_weather", city="b")],
                "never asked",
            ]
        )
        run = driver.run("?", model=model, run_id=kind, observers=[stop_at(kind)])
        assert (kind, run.status) == (kind, "cancelled")
        assert len(results_of(run)) in (0, 2)


def test_cancelled_calls_that_wait_for_others_are_not_started(drive, gate):
    driver = drive([tool_at(gate, how="task", timeout_s=BOUND_S), get_weather])
    calls = [
        hr.ToolCall("c1", "work"),
        hr.ToolCall("c2", "get_weather", '{"city": {"$call": "c1", "path": ""}}'),
    ]
    begun = driver.start(
        "run", "?", run_id="r", model=ScriptedModel([calls, "never asked"])
    )
    gate.wait_for()
    driver.runtime.cancel("r")
    assert codes_of(begun.result(BOUND_S)) == [Code.CANCELLED, Code.CANCELLED]


def test_cancelling_what_is_not_under_way_says_so(drive):
    assert drive([]).runtime.cancel("nobody") is False


# -- listeners ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("error", [RuntimeError, SystemExit, asyncio.CancelledError])
def test_an_observer_that_raises_breaks_no_run(drive, caplog, error):
    def broken(event):
        raise error("the disk is full")

    run = drive([get_weather], observers=[broken]).run(
        "?",
        model=ScriptedModel([call("get_weather", city="Oslo"), "21"]),
        observers=[broken],
    )
    assert (run.status, run.text) == ("done", "21")
    assert "an observer raised" in caplog.text
    assert "the disk is full" not in caplog.text  # an exception may hold anything


def test_every_run_is_told_begun_and_ended_once(drive):
    driver = drive([get_weather])
    driver.run("?", model=ScriptedModel(["yes"]), run_id="good")
    driver.run("?", model=BrokenModel(hr.ModelError("no")), run_id="bad")
    with pytest.raises(hr.MissingInjection):
        driver.runtime.tools.add(hr.FunctionTool(_needs_tenant, effect="read"))
        driver.run("?", model=ScriptedModel(["yes"]), run_id="raised")
    assert [event.run_id for event in driver.told(RunStarted)] == [
        "good",
        "bad",
        "raised",
    ]
    assert [(event.run_id, event.status) for event in driver.told(RunEnded)] == [
        ("good", "done"), ("bad", "failed"), ("raised", "failed")
    ]  # fmt: skip


def _needs_tenant(tenant: hr.Injected) -> None:
    """Need a tenant."""


def test_one_deployment_serves_many_runs_at_once(drive):
    driver = drive([get_weather])
    begun = [
        driver.start(
            "run",
            "?",
            model=ScriptedModel([call("get_weather", city=str(n)), f"answer {n}"]),
        )
        for n in range(20)
    ]
    assert [each.result(BOUND_S).text for each in begun] == [
        f"answer {n}" for n in range(20)
    ]


def test_approvals_of_one_turn_are_asked_together(drive):
    both = threading.Barrier(2)

    def approver(asked):
        both.wait(BOUND_S)
        return True

    tool = hr.FunctionTool(
        lambda n: n, name="work", parameters=NUMBER, effect="read", approve=True
    )
    run = drive([tool], approver=approver).run(
        "?", model=ScriptedModel([[call("work", n=1), call("work", n=2)], "ok"])
    )
    assert [result.value for result in results_of(run)] == [1, 2]


class Audited(MemoryStore):
    """A store whose audit log is a list."""

    def __init__(self):
        super().__init__()
        self.notices = []

    def append_audit(self, notices):
        self.notices += notices

    def log(self, *, after=0, run_id="", most=1000):
        return []


def test_the_audit_log_says_why_a_call_was_allowed_under_which_key_and_for_whom(drive):
    def pay(order: str) -> str:
        """Pay for an order."""
        return "paid"

    store, rules = Audited(), [hr.Rule("pay", "allow", reason="small orders are paid")]
    tool = hr.FunctionTool(pay, effect="write", key="pay:{order}")
    driver = drive([tool], store=store, policy=hr.Policy(rules=rules), principal="ana")
    driver.call("pay", {"order": "7"}, run="r_1")
    admitted, *others = [notice.body for notice in store.notices]
    assert {name: admitted[name] for name in ("key", "risk", "why", "pin", "isolation")} == {
        "key": "pay:7", "risk": "medium", "why": "small orders are paid", "pin": tool.pin, "isolation": "none"
    }  # fmt: skip
    assert {each["principal"] for each in (admitted, *others)} == {"ana"}


def test_who_cancels_a_run_is_in_the_audit_log(drive, gate):
    store = Audited()
    driver = drive(
        [hr.FunctionTool(gate.pass_through_async, name="wait", effect="read")],
        store=store,
    )
    begun = driver.start(
        "run", "?", run_id="r_1", model=ScriptedModel([call("wait"), "never asked"])
    )
    gate.wait_for()
    driver.runtime.cancel("r_1", by="maria")
    assert begun.result(BOUND_S).status == "cancelled"
    (word,) = [each for each in store.notices if each.event == "CancelRequested"]
    assert (word.run_id, word.body) == ("r_1", {"by": "maria"})


def test_the_record_of_a_write_stands_before_the_tool_starts_and_that_of_a_read_behind_its_end(
    drive,
):
    store, told = Audited(), {}

    def at_work(name: str) -> str:
        """Look at the log from within."""
        told[name] = [each.event for each in store.notices]
        return "done"

    tools = [
        hr.FunctionTool(at_work, name=effect, effect=effect)
        for effect in ("read", "write")
    ]
    driver = drive(tools, store=store)
    assert driver.call("read", {"name": "read"}).ok
    assert driver.call("write", {"name": "write"}).ok
    assert told == {"read": [], "write": ["CallFinished", "CallAdmitted"]}


def test_a_store_that_was_opened_by_name_is_closed_and_one_that_was_given_is_not(
    tmp_path,
):
    with hr.SyncRuntime([], store=f"sqlite:{tmp_path}/a.db") as runtime:
        store = runtime.store
    assert "closed" in repr(store)
    with hr.SyncRuntime([], store=(given := SqliteStore(tmp_path / "b.db"))):
        pass
    assert "closed" not in repr(given)
    given.close()


@pytest.mark.parametrize("driver", [hr.Runtime, hr.SyncRuntime])
@pytest.mark.parametrize(("how", "says"), [
    ({"policy": "read"}, "policy is 'read'; it takes a `Policy`"),
    ({"budget": 5}, "budget is 5; it takes a `Budget`"),
    ({"approver": "ops"}, "approver is 'ops'; it takes a function that is asked"),
    ({"observers": print}, "it takes a list of functions"),
    ({"observers": ["log"]}, r"observers is \['log'\]"),
    # which hears nothing once it was read
    ({"observers": (each for each in [print])}, "it takes a list of functions"),
    ({"result_bytes": 10}, "result_bytes is 10; at least 512"),
    ({"store": None}, "store is None; it takes a name, such as 'memory:', or a `Store`"),
    ({"store": 5}, "store is 5; it takes a name"),
    ({"store": MemoryStore}, "store is <class 'handrail.stores.memory.MemoryStore'>; it takes"),
])  # fmt: skip
def test_a_runtime_that_cannot_be_meant_is_refused_when_it_is_made(driver, how, says):
    with pytest.raises(hr.ConfigError, match=says):
        driver(**how)


@pytest.mark.parametrize(("how", "says"), [
    ({"budget": 5}, "budget is 5; it takes a `Budget`"),
    ({"options": 5}, "options is 5; it takes an `Options`"),
    ({"run_id": 5}, "run_id is 5; it takes a name"),
    ({"run_id": "a\nb"}, "run_id is 'a.nb'; a name cannot contain"),
    ({"scope": "a\u202eb"}, "scope is 'a.u202eb'; a name cannot contain"),
    ({"scope": "a/b"}, "scope is 'a/b'; a scope cannot contain a slash"),
])  # fmt: skip
def test_a_run_that_cannot_be_meant_is_refused(drive, how, says):
    with pytest.raises(hr.ConfigError, match=says):
        drive([get_weather]).run("?", model=ScriptedModel(["Hi"]), **how)


def test_a_conversation_that_was_forgotten_and_comes_back_never_meets_its_own_earlier_keys(
    drive, monkeypatch
):
    monkeypatch.setattr("handrail.engine.engine.MOST_RUNS_REMEMBERED", 2)
    done = []

    @hr.tool(effect="write", write=hr.Write(repeatable=True))
    def note(text: str) -> str:
        """Add a note."""
        done.append(text)
        return f"noted {text}"

    driver = drive([note])
    said = [
        ("old", "first"),
        ("a", "x"),
        ("b", "x"),
        ("old", "second"),
        ("a", "x"),
        ("b", "x"),
        ("old", "second"),
    ]
    results = [driver.call("note", {"text": text}, run=run) for run, text in said]
    assert [(result.ok, result.replayed) for result in results] == [
        (True, False)
    ] * len(said)
    assert done == [text for _, text in said]


def test_conversations_between_two_rounds_are_forgotten_before_one_within_a_round(
    drive, monkeypatch
):
    monkeypatch.setattr("handrail.engine.engine.MOST_RUNS_REMEMBERED", 3)
    driver = drive([get_weather], budget=hr.Budget(calls=2))

    def ask(run, city):
        return driver.call("get_weather", {"city": city}, run=run)

    assert ask("busy", "Oslo").ok
    for number in range(20):
        assert ask(f"idle-{number}", "Oslo").ok
        driver.handle({"role": "assistant", "content": "21"}, run=f"idle-{number}")
    assert ask("busy", "Rome").ok
    assert ask("busy", "Bonn").failure.code == "BUDGET_EXHAUSTED"


@pytest.mark.parametrize("make", [hr.Runtime, hr.SyncRuntime])
def test_one_tool_in_the_place_of_a_list_is_told(make):
    @hr.tool(effect="read")
    def look() -> str:
        """Look."""
        return "seen"

    with pytest.raises(
        hr.ConfigError,
        match=r"it takes a list of tools, such as \[get_weather\], or a Toolset",
    ):
        make(look)


def test_a_runtime_that_was_closed_begins_nothing_and_opens_no_tool_anew():
    runtime = hr.SyncRuntime([])
    runtime.close()
    for begin in (
        lambda: runtime.call("look"),
        lambda: runtime.run("?", model=ScriptedModel(["hi"])),
    ):
        with pytest.raises(hr.SetupError, match="this runtime is closed"):
            begin()

    async def use_after_close():
        closed = hr.Runtime([])
        async with closed:
            pass
        with pytest.raises(hr.SetupError, match="this runtime is closed"):
            await closed.call("look")
        async with closed:
            # it takes calls again
            assert (await closed.call("look")).failure.code == Code.UNKNOWN_TOOL

    asyncio.run(use_after_close())
