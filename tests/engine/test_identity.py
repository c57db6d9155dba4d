"""Whose call it is, and which: tenants of one runtime, settings of one call, calls known by their ids."""

import asyncio
import json
import threading

import pytest

import handrail as hr
from handrail.engine.scoped_store import ScopedStore
from handrail.errors import Code
from handrail.events import CallFinished
from handrail.futures import result_now
from handrail.stores.sqlite import SqliteStore
from handrail.testing import ScriptedModel


class Door:
    """Either runtime behind one face: `door(verb, ...)` performs a verb and returns its value."""

    def __init__(self, kind, tools, **settings):
        self.runtime = (hr.Runtime if kind == "asyncio" else hr.SyncRuntime)(
            tools, **settings
        )
        self.is_async = kind == "asyncio"

    def __call__(self, verb, *args, **options):
        answer = getattr(self.runtime, verb)(*args, **options)
        if not self.is_async or not asyncio.iscoroutine(answer):
            return answer

        async def wait():
            return await answer

        return asyncio.run(wait())


@pytest.fixture(params=["asyncio", "blocking"])
def open_door(request):
    return lambda tools, **settings: Door(request.param, tools, **settings)


@pytest.fixture(params=["memory", "sqlite"])
def store(request, tmp_path):
    return "memory:" if request.param == "memory" else f"sqlite:///{tmp_path}/h.db"


def make_tools():
    done = []

    @hr.tool(effect="write", key="ticket:{number}", limits=hr.Limits(rate="2/h"))
    async def create(number: int) -> str:
        """Create a ticket."""
        done.append(number)
        return f"ticket {number}, {len(done)}"

    @hr.tool(effect="write", approve=True)
    async def pay(amount: int) -> str:
        """Pay."""
        done.append(amount)
        return f"paid {amount}"

    @hr.tool(effect="write")
    async def note(text: str) -> str:
        """Write a note."""
        done.append(text)
        return f"noted {text}, {len(done)}"

    @hr.tool(effect="read", limits=hr.Limits(result_bytes=600))
    async def read(name: str) -> str:
        """Read."""
        return f"{name} " * 1000

    return [create, pay, note, read], done


# ---------------------------------------------------------------------- tenants


def test_tenants_of_one_runtime_share_no_key_and_no_rate(open_door, store):
    tools, done = make_tools()
    call = open_door(tools, store=store)
    texts = [
        call("call", "create", {"number": 1}, scope=scope).text for scope in "aab"
    ] + [call("call", "create", {"number": 1}).text]
    assert done == [1, 1, 1]
    assert [text.partition("\n")[0] for text in texts] == [
        "ticket 1, 1",
        "ticket 1, 1",
        "ticket 1, 2",
        "ticket 1, 3",
    ]
    assert call("call", "create", {"number": 2}, scope="a").failure.code == (
        Code.RATE_LIMITED
    )


def test_tenants_have_runs_and_long_results_of_their_own(open_door, store):
    tools, _ = make_tools()
    door = open_door(tools, store=store)
    cut = door("call", "read", {"name": "secret"}, run="r", scope="a")
    assert cut.handle
    reading = {"handle": cut.handle}
    own = door("call", "read_result", reading, run="r", scope="a")
    assert "secret" in own.text
    for other in ("b", ""):
        strange = door("call", "read_result", reading, run="r", scope=other)
        assert not strange.ok
        assert "secret" not in strange.text
    model = ScriptedModel(["Hello."])
    assert door("run", "Hi.", model=model, run_id="mine", scope="a").text == "Hello."
    if store != "memory:":
        again = door("resume", "mine", model=model, scope="a")
        assert again.text == "Hello."
    with pytest.raises(hr.ConfigError):
        door("resume", "mine", model=model, scope="b")


def test_tenants_have_questions_of_their_own(open_door, store):
    tools, done = make_tools()
    door = open_door(tools, store=store)
    asked = {}

    def approve_for(scope):
        def approver(question):
            asked.setdefault(scope, []).append(question.arguments)
            return hr.Approval(True, by="anna", scope="rule")

        return approver

    for scope in "ab":
        for _ in range(2):
            door("call", "pay", {"amount": 1}, scope=scope, approver=approve_for(scope))
    assert set(asked) == {"a", "b"}
    assert done == [1, 1, 1, 1]


def test_tenants_do_not_wait_for_each_others_resources():
    inside = threading.Barrier(2, timeout=5)

    @hr.tool(effect="write", resource="user:{number}", timeout_s=4)
    def change(number: int) -> str:
        """Change a user."""
        inside.wait()
        return "changed"

    async def main():
        async with hr.Runtime([change]) as runtime:
            return await asyncio.gather(
                *(runtime.call("change", {"number": 7}, scope=scope) for scope in "ab")
            )

    assert [result.ok for result in asyncio.run(main())] == [True, True]


def test_a_run_that_a_tool_starts_belongs_to_the_tenant_of_its_call(tmp_path):
    tools, done = make_tools()

    @hr.tool(effect="read")
    async def delegate(context: hr.Context) -> str:
        """Delegate."""
        script = [[hr.ToolCall("c1", "create", '{"number": 5}')], "Done."]
        return (await context.run("Create.", model=ScriptedModel(script))).text

    async def main():
        store = f"sqlite:///{tmp_path}/h.db"
        async with hr.Runtime([*tools, delegate], store=store) as runtime:
            for scope in "ab":
                assert (await runtime.call("delegate", {}, run="r", scope=scope)).ok
            again = await runtime.call("create", {"number": 5}, scope="a")
            return again.text

    assert asyncio.run(main()).startswith("ticket 5, 1")
    assert done == [5, 5]


def test_an_agent_of_another_runtime_acts_for_the_tenant_of_its_call(tmp_path):
    tools, done = make_tools()
    store = f"sqlite:///{tmp_path}/h.db"
    script = [[hr.ToolCall("c1", "create", '{"number": 5}')], "Done."] * 2

    async def main():
        async with hr.Runtime(tools, store=store) as other:
            agent = hr.agent_tool(
                other, "delegate", "Delegate.", model=ScriptedModel(script)
            )
            async with hr.Runtime([agent], store=store) as runtime:
                for scope in "ab":
                    task = {"task": "Create."}
                    assert (
                        await runtime.call("delegate", task, run="r", scope=scope)
                    ).ok
            again = await other.call("create", {"number": 5}, scope="b")
            return again.text

    assert asyncio.run(main()).startswith("ticket 5, 2")
    assert done == [5, 5]


@pytest.mark.parametrize("form", ["async", "thread", "in place"])
def test_what_a_tool_does_with_a_runtime_belongs_to_the_tenant_of_its_call(
    open_door, store, form
):
    tools, done = make_tools()
    doors = []

    def create_in(scope):
        options = {} if scope is None else {"scope": scope}
        return doors[0].runtime.call("create", {"number": 5}, **options)

    async def delegate(scope: str | None = None) -> str:
        """Delegate."""
        answer = create_in(scope)
        return (await answer if asyncio.iscoroutine(answer) else answer).text

    def delegate_blocking(scope: str | None = None) -> str:
        """Delegate."""
        answer = create_in(scope)
        return (asyncio.run(answer) if asyncio.iscoroutine(answer) else answer).text

    tool = hr.FunctionTool(
        delegate if form == "async" else delegate_blocking,
        name="delegate",
        effect="read",
        blocking=form != "in place",
    )
    doors.append(open_door([*tools, tool], store=store))
    if form == "in place" and doors[0].is_async:
        pytest.skip("a blocking tool waits for no asyncio runtime on its own loop")
    if form == "async" and not doors[0].is_async:
        pytest.skip("an async tool does not block its loop with a blocking runtime")
    for scope in ("a", "b", None):
        options = {} if scope is None else {"scope": scope}
        assert doors[0]("call", "delegate", {}, **options).ok
    assert done == [5, 5, 5]
    assert doors[0]("call", "create", {"number": 5}, scope="b").replayed
    own = doors[0]("call", "delegate", {"scope": ""}, scope="a")
    assert own.text.startswith("ticket 5, 3")
    assert done == [5, 5, 5]


def test_what_a_tool_does_with_its_runtime_is_under_the_policy_of_its_call(open_door):
    tools, done = make_tools()
    doors = []

    @hr.tool(effect="read")
    def delegate() -> str:
        """Delegate."""
        answer = doors[0].runtime.call("note", {"text": "x"})
        return (asyncio.run(answer) if asyncio.iscoroutine(answer) else answer).text

    doors.append(open_door([*tools, delegate]))
    reads = hr.Policy(max_permission="read")
    refused = doors[0]("call", "delegate", {}, policy=reads)
    assert "NOT_PERMITTED" in refused.text
    assert "noted x" in doors[0]("call", "delegate", {}).text
    assert done == ["x"]


def test_a_tool_with_a_slash_in_its_name_is_no_tenants(open_door, tmp_path):
    def create(number: int) -> str:
        """Create a ticket."""
        done.append(number)
        return f"{len(done)}"

    done = []
    tools = [
        hr.FunctionTool(
            create, name=name, effect="write", key=lambda number: f"{number}"
        )
        for name in ("create", "acme/create")
    ]
    store = SqliteStore(tmp_path / "h.db")
    door = open_door(tools, store=store)
    assert door("call", "create", {"number": 1}, scope="acme").text == "1"
    assert door("call", "acme/create", {"number": 1}).text == "2"
    writes = result_now(store.list_writes())
    assert {(row.scope, row.tool) for row in writes} == {
        ("acme", "create"),
        ("", "acme/create"),
    }
    (own,) = result_now(ScopedStore(store, "acme").list_writes())
    assert (own.scope, own.tool) == ("acme", "create")
    store.close()


def test_a_tool_under_a_new_name_does_not_do_again_what_its_key_names(
    open_door, tmp_path
):
    def charge(order: str) -> str:
        """Charge for an order."""
        done.append(order)
        return "charged"

    done = []

    def open_with(name):
        tool = hr.FunctionTool(charge, name=name, effect="write", key="order:{order}")
        return open_door([tool], store=f"sqlite:///{tmp_path}/h.db")

    assert open_with("charge")("call", "charge", {"order": "1"}).ok
    renamed = open_with("charge_card")
    failure = renamed("call", "charge_card", {"order": "1"}).failure
    assert failure.code == "IDEMPOTENCY_KEY_REUSED"
    assert "`charge`" in failure.message
    assert done == ["1"]
    # the old key is that of another tenant's act here
    assert renamed("call", "charge_card", {"order": "1"}, scope="acme").ok


def test_a_scope_that_is_no_name_is_refused_in_one_sentence(open_door):
    tools, done = make_tools()
    door = open_door(tools)
    with pytest.raises(hr.ConfigError, match="scope"):
        door("call", "create", {"number": 1}, scope="a/b")
    with pytest.raises(hr.ConfigError, match="policy is 'strict'"):
        door("call", "create", {"number": 1}, policy="strict")
    assert done == []


def test_one_thousand_tenants_and_more_are_served(open_door, monkeypatch):
    monkeypatch.setattr("handrail.engine.engine.MOST_TENANTS_REMEMBERED", 3)
    tools, done = make_tools()
    door = open_door(tools)
    for _ in range(2):
        for number in range(7):
            assert door("call", "create", {"number": 1}, scope=f"t{number}").ok
    assert len(done) == 7


# ---------------------------------------------------------------------- settings of one call


def test_a_policy_holds_for_one_call_and_for_what_its_model_is_shown(open_door):
    tools, done = make_tools()
    door = open_door(tools)
    reads = hr.Policy(max_permission="read")
    refused = door("call", "note", {"text": "x"}, policy=reads)
    assert (refused.failure.code, done) == (Code.NOT_PERMITTED, [])
    model = ScriptedModel(["Hello."])
    door("run", "Hi.", model=model, policy=reads)
    assert [tool.name for tool in model.requests[0].tools] == ["read"]
    assert door("call", "note", {"text": "x"}).ok


def test_an_approver_a_budget_and_observers_hold_for_one_call(open_door):
    tools, done = make_tools()
    door = open_door(tools, approver=lambda question: hr.Approval(False, by="ben"))
    seen = []
    yes = door(
        "call",
        "pay",
        {"amount": 1},
        approver=lambda question: hr.Approval(True, by="anna"),
        observers=[seen.append],
    )
    assert yes.ok
    assert [type(each) for each in seen][-1] is CallFinished
    no = door("call", "pay", {"amount": 2})
    assert (no.failure.code, done) == (Code.NOT_APPROVED, [1])
    spent = door("call", "note", {"text": "x"}, budget=hr.Budget(calls=0))
    assert (spent.failure.code, done) == (Code.BUDGET_EXHAUSTED, [1])


def test_the_principal_of_a_call_is_recorded_and_does_not_agree_with_itself(
    open_door, tmp_path
):
    tools, done = make_tools()

    @hr.tool(effect="write", write=hr.Write(required_approvals=2))
    async def publish() -> str:
        """Publish."""
        done.append("published")
        return "published"

    store = SqliteStore(tmp_path / "h.db")
    names = iter(["anna", "ben"])
    door = open_door([*tools, publish], store=store, principal="service")
    result = door(
        "call",
        "publish",
        {},
        run="r",
        principal="anna",
        approver=lambda question: hr.Approval(True, by=next(names, "")),
    )
    assert (result.failure.code, done) == (Code.APPROVAL_PENDING, [])
    door("call", "note", {"text": "x"}, run="r")
    principals = {
        each.body.get("principal")
        for each in store.log().result(5)
        if each.event == "CallAdmitted"
    }
    assert principals == {"anna", "service"}
    store.close()


# ---------------------------------------------------------------------- calls known by their ids


def named(number, name, /, **arguments):
    return hr.ToolCall(f"call_{number}", name, json.dumps(arguments))


def test_calls_that_are_handed_over_again_are_not_done_again(open_door, tmp_path):
    tools, done = make_tools()
    turn = [named(1, "note", text="a"), named(2, "read", name="x")]
    for _ in range(2):  # as after a crash: another runtime, which counts from 1
        door = open_door(tools, store=f"sqlite:///{tmp_path}/h.db")
        results = door("calls", turn, run="thread-1")
        assert [result.call_id for result in results] == ["call_1", "call_2"]
        assert all(result.ok for result in results)
        door("close")
    assert done == ["a"]
    door = open_door(tools, store=f"sqlite:///{tmp_path}/h.db")
    assert door("calls", turn, run="thread-2")[0].ok
    assert done == ["a", "a"]
    door("close")


def test_a_write_of_another_id_is_another_write_where_its_tool_is_repeatable(
    open_door, store
):
    sent = []

    @hr.tool(effect="write", write=hr.Write(repeatable=True))
    async def send(text: str) -> str:
        """Send."""
        sent.append(text)
        return "sent"

    door = open_door([send], store=store)
    for number in (1, 2, 1, 2):
        assert door("calls", [named(number, "send", text="hi")], run="r")[0].ok
    assert sent == ["hi", "hi"]


def test_an_id_that_a_model_gives_twice_names_two_calls(open_door):
    tools, done = make_tools()
    door = open_door(tools)
    twins = [named(1, "note", text="a"), named(1, "note", text="b")]
    results = door("calls", twins, run="r")
    assert [result.ok for result in results] == [True, True]
    assert door("calls", twins, run="r")[1].replayed
    assert done == ["a", "b"]


def test_an_id_cannot_spell_the_name_of_another_call(open_door):
    sent = []

    @hr.tool(effect="write", write=hr.Write(repeatable=True))
    async def send(text: str) -> str:
        """Send."""
        sent.append(text)
        return "sent"

    def calls(*ids):
        return [
            hr.ToolCall(each, "send", json.dumps({"text": f"{number}"}))
            for number, each in enumerate(ids)
        ]

    door = open_door([send])
    results = door("calls", calls("a#b", "a", "a", "a#2", "a%232"), run="r")
    assert [result.ok for result in results] == [True] * 5
    assert sent == ["0", "1", "2", "3", "4"]
    for run, id in (("r/id:x", "y"), ("r", "x/id:y"), ("r/id:x", "1/0")):
        (result,) = door("calls", [hr.ToolCall(id, "send", '{"text": "z"}')], run=run)
        assert (result.ok, result.replayed) == (True, False)
    assert sent[5:] == ["z"] * 3


def test_a_budget_and_loops_count_within_one_invocation(open_door):
    tools, _ = make_tools()
    door = open_door(tools, budget=hr.Budget(calls=3))

    def read(number, turn):
        return door("calls", [named(number, "read", name="x")], run="r", turn=turn)[0]

    for turn in range(20):
        assert [read(10 * turn + each, f"t{turn}").ok for each in range(2)] == [
            True
        ] * 2
    assert [read(900 + each, "last").ok for each in range(4)][3] is False


def test_an_answer_begins_a_new_round_of_a_handled_conversation(open_door):
    tools, _ = make_tools()
    door = open_door(tools, budget=hr.Budget(calls=2))
    asks = {
        "role": "assistant",
        "tool_calls": [
            {
                "id": "c1",
                "type": "function",
                "function": {"name": "read", "arguments": '{"name": "x"}'},
            }
        ],
    }
    answers = {"role": "assistant", "content": "Here you are."}
    for _ in range(30):
        (reply,) = door("handle", asks, run="user-1")
        assert "x x x" in reply["content"]
        assert door("handle", answers, run="user-1") == []
    for _ in range(2):
        door("handle", asks, run="user-1")
    asks["tool_calls"][0]["function"]["arguments"] = '{"name": "y"}'
    (reply,) = door("handle", asks, run="user-1")
    assert "BUDGET_EXHAUSTED" in reply["content"]


@pytest.mark.parametrize("wrong", ["note", [{"id": "1"}], None, [("1", "note")]])
def test_what_is_no_list_of_calls_is_refused_in_one_sentence(open_door, wrong):
    tools, done = make_tools()
    with pytest.raises(hr.ConfigError, match=r"calls are a list of `hr\.ToolCall"):
        open_door(tools)("calls", wrong, run="r")
    assert done == []


# -- loops of somebody else --------------------------------------------------------------------------------------------


def test_the_call_that_closes_a_circle_is_refused_before_it_runs(open_door):
    runs = []

    @hr.tool(effect="read")
    async def look(text: str) -> str:
        """Look."""
        runs.append(text)
        return "the same"

    door = open_door([look])
    results = [
        door("calls", [named(number, "look", text="a")], run="r")[0]
        for number in range(4)
    ]
    codes = [result.failure and result.failure.code for result in results]
    assert codes == [None, None, hr.Code.REPEATED_CALL, hr.Code.REPEATED_CALL]
    assert runs == ["a", "a"]
    assert [bool(result.ends_run) for result in results] == [False, False, True, True]
    assert "3 times" in results[2].ends_run
    assert door("calls", [named(9, "look", text="b")], run="r")[0].ok


def test_a_refusal_is_returned_once_under_a_policy_of_the_call_too(open_door, store):
    tools, _ = make_tools()
    door = open_door(tools, store=store)
    codes = []
    for number in range(4):
        asked = [named(number, "pay", amount=7)]
        [result] = door("calls", asked, run="r", policy=hr.Policy())
        codes.append(result.failure.code)
        if result.question:
            door.runtime.blocking.approvals.deny(result.question.id, by="anna")
    assert codes == [Code.APPROVAL_PENDING, Code.NOT_APPROVED] * 2


@pytest.mark.parametrize("resource", ["", "value"])
def test_a_call_after_a_new_one_in_its_turn_closes_no_circle(open_door, resource):
    values = ["old"]

    @hr.tool(effect="read", resource=resource)
    async def look() -> str:
        """Look."""
        return values[-1]

    @hr.tool(effect="write", resource=resource)
    async def put(text: str) -> str:
        """Put."""
        values.append(text)
        return "ok"

    door = open_door([look, put])
    for number in range(2):
        assert door("calls", [named(number, "look")], run="r")[0].value == "old"
    turn = [named(2, "put", text="new"), named(3, "look")]
    results = door("calls", turn, run="r")
    assert [result.failure for result in results] == [None, None]
    if resource:
        assert results[1].value == "new"
    door("calls", [named(4, "look")], run="r")
    twice = door("calls", [named(5, "look"), named(6, "look")], run="r")
    assert {result.failure and result.failure.code for result in twice} == {
        hr.Code.REPEATED_CALL if resource else None
    }


@pytest.mark.parametrize("code", ["BANK_DOWN", "IN_DOUBT", "APPROVAL_PENDING"])
def test_what_may_succeed_later_is_tried_a_third_time(open_door, code):
    runs = []

    @hr.tool(
        effect="write",
        write=hr.Write(repeatable=True),
        approve=code == "APPROVAL_PENDING",
    )
    async def pay(text: str) -> str:
        """Pay."""
        runs.append(text)
        if code == "BANK_DOWN" and len(runs) <= 6:  # each call tries three times
            raise hr.NoEffect("BANK_DOWN", "The bank is down.", retryable=True)
        if code == "IN_DOUBT" and len(runs) < 3:
            raise RuntimeError("lost")
        return "paid"

    door = open_door([pay])
    for number in range(2):
        result = door("calls", [named(number, "pay", text="a")], run="r")[0]
        assert result.failure.code == code
    word = {"call_2": True}
    assert door("calls", [named(2, "pay", text="a")], run="r", words=word)[0].ok


def test_a_run_without_calls_left_says_that_it_ends(open_door):
    tools, _ = make_tools()
    door = open_door(tools, budget=hr.Budget(calls=1))
    assert not door("calls", [named(1, "read", name="a")], run="r")[0].ends_run
    result = door("calls", [named(2, "read", name="b")], run="r")[0]
    assert result.ends_run == "the budget is used up: 1 of 1 calls are used"


def test_a_failure_with_a_note_is_one_json_object(open_door):
    @hr.tool(effect="read")
    async def look(text: str) -> str:
        """Look."""
        raise hr.ToolError("NOT_THERE", "There is none.")

    door = open_door([look])
    texts = [
        door("calls", [named(number, "look", text="a")], run="r")[0].text
        for number in range(2)
    ]
    first, second = map(json.loads, texts)
    assert "same as before" in second.pop("note")
    assert first == second


def test_every_event_names_its_run(open_door):
    heard = []

    @hr.tool(effect="write", approve=True)
    async def pay(context: hr.Context, text: str) -> str:
        """Pay."""
        context.progress(1, 2)
        return "paid"

    door = open_door([pay], observers=[heard.append], approver=lambda asked: True)
    for run in ("a", "b"):
        door("calls", [named(1, "pay", text=run)], run=run)
    door("run", "?", model=ScriptedModel(["Hello."]), run_id="c")
    assert {event.run_id for event in heard} == {"a", "b", "c"}
    told = {type(event).__name__ for event in heard if event.run_id == "a"}
    assert told >= {
        "CallAdmitted",
        "ApprovalAsked",
        "ApprovalGiven",
        "AttemptStarted",
        "Progressed",
        "CallFinished",
    }
