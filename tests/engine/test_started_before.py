"""A write that was started, then its process died, and the next deploy declares its tool otherwise.

What is known of a call comes before what is allowed now: whoever was told that nothing ran would do it twice.
"""

import asyncio
import time
from datetime import datetime
from decimal import Decimal
from pathlib import Path
from typing import Literal
from uuid import uuid4

import pytest

import handrail as hr
from handrail import admin
from handrail.errors import StoreUnavailable
from handrail.stores.memory_runs import FullMemoryStore
from handrail.stores.sqlite import SqliteStore
from handrail.testing import ScriptedModel, call
from tests.support.drivers import BOUND_S, KINDS, chat_message


class Died(BaseException):
    """What a killed process does not have time to handle."""


class MortalMemory(FullMemoryStore):
    """A store in memory whose process dies when a write has ended."""

    dies = True

    def __init__(self):
        self.later_s = 0.0  # how much later it is by its clock
        super().__init__(now=lambda: time.monotonic() + self.later_s)

    def settle(self, settle):
        if self.dies:
            raise Died
        return super().settle(settle)


@pytest.fixture
def store():
    return MortalMemory()


@pytest.fixture(params=[FullMemoryStore, SqliteStore])
def any_store(request, tmp_path):
    """A store of either kind, in which nobody dies."""
    if request.param is FullMemoryStore:
        yield FullMemoryStore()
    else:
        with SqliteStore(tmp_path / "h.db") as made:
            yield made


@pytest.fixture(params=KINDS)
def on(request):
    """A function that opens a runtime on a store, performs a verb, and closes it."""

    def drive(store, tools, verb, *args, made=None, **how):
        if request.param == "sync":
            with hr.SyncRuntime(tools, store=store, **(made or {})) as runtime:
                return getattr(runtime, verb)(*args, **how)

        async def main():
            async with hr.Runtime(tools, store=store, **(made or {})) as runtime:
                return await asyncio.wait_for(
                    getattr(runtime, verb)(*args, **how), BOUND_S
                )

        return asyncio.run(main())

    return drive


class Deploys:
    """The tool `pay` as one deploy after the other declares it; `paid` has its effects."""

    def __init__(self):
        self.paid = []

    def tool(self, name="pay", **how):
        def pay(x: str) -> str:
            """Pay."""
            self.paid.append(x)
            return f"paid {x}"

        settings = {
            "effect": "write",
            "blocking": False,
            "name": name,
            "timeout_s": 0.2,
        }
        settings |= how
        return hr.FunctionTool(pay, **settings)

    def with_parameter(self, **how):
        def pay(x: str, note: str) -> str:
            """Pay."""
            self.paid.append(x)
            return f"paid {x}"

        return hr.FunctionTool(
            pay, effect="write", blocking=False, timeout_s=0.2, **how
        )

    def with_default(self, **how):
        def pay(x: str, note: str = "none") -> str:
            """Pay."""
            self.paid.append(x)
            return f"paid {x}"

        return hr.FunctionTool(
            pay, effect="write", blocking=False, timeout_s=0.2, **how
        )

    def of_type(self, kind, more=False, effect="write", **how):
        def pay(x: kind) -> str:
            """Pay."""
            self.paid.append(x)
            return "paid"

        def pay_with_note(x: kind, note: str = "none") -> str:
            """Pay."""
            self.paid.append(x)
            return "paid"

        return hr.FunctionTool(
            pay_with_note if more else pay,
            effect=effect,
            blocking=False,
            name="pay",
            timeout_s=0.2,
            **how,
        )

    def with_enum(self, **how):
        def pay(x: Literal["a", "b"]) -> str:
            """Pay."""
            self.paid.append(x)
            return f"paid {x}"

        return hr.FunctionTool(
            pay, effect="write", blocking=False, timeout_s=0.2, **how
        )


def refuse(x):
    return "the number must begin with ORD-"


DENIED = {"policy": hr.Policy(rules=[hr.Rule("pay", "deny")])}
REDEPLOYED = {
    "a parameter": (lambda deploys, **how: [deploys.with_parameter(**how)], {}),
    "a default": (lambda deploys, **how: [deploys.with_default(**how)], {}),
    "an enum": (lambda deploys, **how: [deploys.with_enum(**how)], {}),
    "a rule": (lambda deploys, **how: [deploys.tool(check=refuse, **how)], {}),
    "a policy": (lambda deploys, **how: [deploys.tool(**how)], DENIED),
    "a name": (lambda deploys, **how: [deploys.tool("pay_order", **how)], {}),
    "a read": (lambda deploys, key=None: [deploys.tool(effect="read")], {}),
    "another key": (lambda deploys, **how: [deploys.tool(key="pay/{x}")], {}),
    "nothing": (lambda deploys, **how: [], {}),
}
KEYED = [{}, {"key": "pay:{x}"}]


def follow(messages):
    """Call again as a refusal advises; stop where it is not known that nothing ran."""
    said = [each.result for each in messages if isinstance(each, hr.ToolMessage)][-1]
    if said.ok or said.failure.code == "IN_DOUBT":
        return "Done."
    return [call("pay", x="a"), call("pay_order", x="a")]


@pytest.mark.parametrize("redeployed", REDEPLOYED)
@pytest.mark.parametrize("keyed", KEYED, ids=str)
def test_a_run_is_told_what_is_known_of_a_write_whatever_its_tool_is_declared_as_now(
    on, store, redeployed, keyed
):
    deploys = Deploys()
    model = ScriptedModel([call("pay", x="A"), follow, "Done."])
    with pytest.raises(Died):
        on(store, [deploys.tool(**keyed)], "run", "q", model=model, run_id="r")
    store.dies = False
    make, made = REDEPLOYED[redeployed]
    tools = make(deploys, **keyed)
    run = on(store, tools, "resume", "r", model=model, made=made)
    (told,) = [each.result for each in run.messages if isinstance(each, hr.ToolMessage)]
    assert told.failure.code == "IN_DOUBT"
    assert "`pay`" in told.failure.message
    assert (run.status, deploys.paid) == ("done", ["A"])


@pytest.mark.parametrize("redeployed", REDEPLOYED)
@pytest.mark.parametrize("keyed", KEYED, ids=str)
def test_a_call_that_is_handed_over_again_is_told_the_value_of_the_write_that_it_did(
    on, any_store, redeployed, keyed
):
    deploys = Deploys()
    asked = [hr.ToolCall("call_7", "pay", '{"x": "A"}')]
    (first,) = on(any_store, [deploys.tool(**keyed)], "calls", asked, run="ticket")
    make, made = REDEPLOYED[redeployed]
    tools = make(deploys, **keyed)
    (told,) = on(any_store, tools, "calls", asked, run="ticket", made=made)
    assert (told.value, told.replayed) == (first.value, True)
    assert deploys.paid == ["A"]


@pytest.mark.parametrize("redeployed", sorted({*REDEPLOYED} - {"another key"}))
def test_a_message_that_is_handed_over_again_is_told_what_is_known_of_its_write(
    on, store, redeployed
):
    deploys = Deploys()
    message = chat_message(call("pay", x="A"))
    with pytest.raises(Died):
        on(store, [deploys.tool()], "handle", message, run="ticket")
    store.dies = False
    make, made = REDEPLOYED[redeployed]
    (told,) = on(store, make(deploys), "handle", message, run="ticket", made=made)
    assert "IN_DOUBT" in told["content"] or "IN_PROGRESS" in told["content"]
    assert deploys.paid == ["A"]


@pytest.mark.parametrize("redeployed", ["a read", "a default"])
@pytest.mark.parametrize("verb", ["handle", "call"])
@pytest.mark.parametrize(
    ("kind", "value", "how"),
    [
        (Decimal, "5.00", {}),
        (datetime, "2026-01-01T01:00:00+01:00", {}),
        (Path, "/a//b", {}),
        (float, 5.0, {}),
        (int, "5", {}),
        (str, "A", {"write": hr.Write(version="2")}),
    ],
    ids=["a decimal", "an instant", "a path", "a number", "a repair", "a version"],
)
def test_a_call_whose_values_its_tool_converts_is_told_what_is_known_of_its_write(
    on, store, verb, kind, value, how, redeployed
):
    deploys = Deploys()
    asked = ("pay", {"x": value})
    if verb == "handle":
        asked = (chat_message(call("pay", x=value)),)
    with pytest.raises(Died):
        on(store, [deploys.of_type(kind, **how)], verb, *asked, run="ticket")
    store.dies = False
    how = dict(how, effect="read") if redeployed == "a read" else dict(how, more=True)
    told = on(store, [deploys.of_type(kind, **how)], verb, *asked, run="ticket")
    text = told.text if verb == "call" else told[0]["content"]
    assert "IN_DOUBT" in text or "IN_PROGRESS" in text
    assert len(deploys.paid) == 1


def find(arguments, context):
    return hr.Found("found")


@pytest.mark.parametrize("now", ["tool", "with_default"])
@pytest.mark.parametrize(
    ("how", "paid"), [({"replay": "key"}, ["A", "A"]), ({"verify": find}, ["A"])]
)
def test_a_write_goes_on_by_its_class_where_its_tool_still_fits(
    on, store, how, paid, now
):
    deploys = Deploys()
    how = {"key": "pay:{x}", **how}
    model = ScriptedModel([call("pay", x="A"), "Done."])
    with pytest.raises(Died):
        on(store, [deploys.tool(**how)], "run", "q", model=model, run_id="r")
    store.dies = False
    store.later_s = 100.0  # no request of the dead process can arrive any more
    run = on(store, [getattr(deploys, now)(**how)], "resume", "r", model=model)
    (told,) = [each.result for each in run.messages if isinstance(each, hr.ToolMessage)]
    assert told.ok
    assert deploys.paid == paid


# ---------------------------------------------------------------------- the model calls once more


class Mortal:
    """What makes a store one whose process dies when a write has ended."""

    dies = True

    def settle(self, settle):
        if self.dies:
            raise Died
        return super().settle(settle)


@pytest.fixture(scope="module")
def dsn():
    """A database of our own."""
    pytest.importorskip("psycopg", reason="no psycopg: install handrail[postgres]")
    from tests.stores.servers import started

    server = started()
    yield server.dsn
    server.remove()


@pytest.fixture(params=["memory", "sqlite", "postgres"])
def each_store(request, tmp_path):
    """A store of each kind whose process dies when a write has ended."""
    if request.param == "memory":
        yield MortalMemory()
        return
    if request.param == "sqlite":
        made = type("MortalSqlite", (Mortal, SqliteStore), {})(tmp_path / "h.db")
    else:
        server = request.getfixturevalue("dsn")
        # only here: without its extra it cannot be imported
        from handrail.stores.postgres import PostgresStore

        made = type("MortalPostgres", (Mortal, PostgresStore), {})(server)
    yield made
    made.close()


def start_and_die(store, tools, model, run_id):
    with (
        pytest.raises(Died),
        hr.SyncRuntime(tools, store=store) as runtime,
    ):
        runtime.run("q", model=model, run_id=run_id)
    store.dies = False


def told(run):
    return [each.result for each in run.messages if isinstance(each, hr.ToolMessage)]


ONCE_MORE = {
    "a parameter": call("pay", x="A", note="n"),
    "an enum": call("pay", x="a"),
    "a rule": call("pay", x="ORD-A"),
    "a name": call("pay_order", x="A"),
}


def begins_with_ord(x):
    return None if x.startswith("ORD-") else "the number must begin with ORD-"


def redeploy(deploys, redeployed):
    if redeployed == "a rule":
        return [deploys.tool(check=begins_with_ord)]
    make, _ = REDEPLOYED[redeployed]
    return make(deploys)


@pytest.mark.parametrize("redeployed", ONCE_MORE)
def test_a_write_is_not_called_once_more_where_an_earlier_call_of_the_run_may_have_done_it(
    on, each_store, redeployed
):
    deploys, run_id = Deploys(), f"r{uuid4().hex}"
    again = ONCE_MORE[redeployed]
    model = ScriptedModel([call("pay", x="A"), again, "Done."])
    start_and_die(each_store, [deploys.tool()], model, run_id)
    tools = redeploy(deploys, redeployed)
    run = on(each_store, tools, "resume", run_id, model=model)
    first, second = told(run)
    assert (first.failure.code, second.failure.code) == ("IN_DOUBT", "IN_DOUBT")
    assert "an earlier call of `pay` in this run" in second.failure.message
    assert f"handrail ledger resolve {run_id}/1/0" in second.failure.suggestion
    assert (run.status, deploys.paid) == ("done", ["A"])


@pytest.mark.parametrize("redeployed", ONCE_MORE)
def test_a_write_is_not_called_once_more_after_a_further_crash(
    on, each_store, redeployed
):
    deploys, run_id = Deploys(), f"r{uuid4().hex}"
    again = ONCE_MORE[redeployed]

    def die(messages):
        raise Died

    model = ScriptedModel([call("pay", x="A"), die])
    start_and_die(each_store, [deploys.tool()], model, run_id)
    tools = redeploy(deploys, redeployed)
    with (
        pytest.raises(Died),
        hr.SyncRuntime(tools, store=each_store) as runtime,
    ):
        runtime.resume(run_id, model=model)
    model = ScriptedModel([call("pay", x="A"), again, "Done."])
    run = on(each_store, tools, "resume", run_id, model=model)
    assert [each.failure.code for each in told(run)] == ["IN_DOUBT", "IN_DOUBT"]
    assert (run.status, deploys.paid) == ("done", ["A"])


def test_a_write_is_not_called_once_more_in_the_next_round(on, each_store):
    deploys, run_id = Deploys(), f"r{uuid4().hex}"
    model = ScriptedModel([call("pay", x="A"), "Unknown."])
    start_and_die(each_store, [deploys.tool()], model, run_id)
    tools = [deploys.with_parameter()]
    on(each_store, tools, "resume", run_id, model=model)
    again = call("pay", x="A", note="n")
    model = ScriptedModel([call("pay", x="A"), "Unknown.", again, "Done."])
    run = on(each_store, tools, "run", "Again!", model=model, after=run_id)
    assert [each.failure.code for each in told(run)] == ["IN_DOUBT", "IN_DOUBT"]
    assert deploys.paid == ["A"]


def test_a_write_is_called_once_more_when_a_person_has_said_how_the_first_ended(
    on, each_store
):
    deploys, run_id = Deploys(), f"r{uuid4().hex}"

    def resolve(messages):
        admin.resolve(each_store, "", f"{run_id}/1/0", happened=False, by="anna")
        return again

    again = call("pay", x="A", note="n")
    model = ScriptedModel([call("pay", x="A"), again, resolve, "Done."])
    start_and_die(each_store, [deploys.tool()], model, run_id)
    run = on(each_store, [deploys.with_parameter()], "resume", run_id, model=model)
    codes = [each.failure and each.failure.code for each in told(run)]
    assert codes == ["IN_DOUBT", "IN_DOUBT", None]
    assert deploys.paid == ["A", "A"]


def test_a_write_with_a_key_of_its_own_is_started_beside_one_that_is_out_of_reach(
    on, each_store
):
    deploys, run_id = Deploys(), f"r{uuid4().hex}"
    model = ScriptedModel([call("pay", x="A"), call("pay", x="B", note="n"), "Done."])
    start_and_die(each_store, [deploys.tool()], model, run_id)
    tools = [deploys.with_parameter(key=f"{run_id}:{{x}}")]
    run = on(each_store, tools, "resume", run_id, model=model)
    assert [each.ok for each in told(run)] == [False, True]
    assert deploys.paid == ["A", "B"]


def test_other_writes_are_started_beside_a_doubt_that_the_declaration_reaches(
    on, each_store
):
    deploys, run_id = Deploys(), f"r{uuid4().hex}"
    model = ScriptedModel([call("pay", x="A"), call("pay", x="B"), "Done."])
    start_and_die(each_store, [deploys.tool()], model, run_id)
    run = on(each_store, [deploys.tool()], "resume", run_id, model=model)
    assert [each.ok for each in told(run)] == [False, True]
    assert deploys.paid == ["A", "B"]


def test_calls_that_are_handed_over_do_not_write_once_more_in_any_process(
    on, each_store
):
    deploys, run_id = Deploys(), f"r{uuid4().hex}"
    first = [hr.ToolCall("call_1", "pay", '{"x": "A"}')]
    with (
        pytest.raises(Died),
        hr.SyncRuntime([deploys.tool()], store=each_store) as runtime,
    ):
        runtime.calls(first, run=run_id)
    each_store.dies = False
    tools = [deploys.with_parameter()]
    further = [hr.ToolCall("call_2", "pay", '{"x": "A", "note": "n"}')]
    with hr.SyncRuntime(tools, store=each_store) as runtime:
        (known,) = runtime.calls(first, run=run_id)
        (again,) = runtime.calls(further, run=run_id)
    # this process lives, and may be carrying it out
    assert known.failure.code == "IN_PROGRESS"
    assert again.failure.code == "IN_DOUBT"
    assert deploys.paid == ["A"]


class SilentMemory(FullMemoryStore):
    """A store that does not list its writes."""

    def list_writes(self, **wanted):
        raise StoreUnavailable("away")


@pytest.mark.parametrize("redeployed", sorted({*REDEPLOYED} - {"a read"}))
def test_no_write_of_a_named_run_starts_while_the_store_cannot_say_what_was_started(
    on, redeployed
):
    deploys = Deploys()
    make, made = REDEPLOYED[redeployed]
    asked = [hr.ToolCall("call_7", "pay", '{"x": "A"}')]
    (told,) = on(SilentMemory(), make(deploys), "calls", asked, run="t", made=made)
    assert told.failure.code == "UNAVAILABLE"
    assert deploys.paid == []


def test_a_run_that_is_taken_up_ends_while_the_store_cannot_say_what_was_started(
    on, store
):
    deploys = Deploys()
    model = ScriptedModel([call("pay", x="A"), "Done."])
    start_and_die(store, [deploys.tool()], model, "r")
    listed = store.list_writes
    store.list_writes = SilentMemory.list_writes.__get__(store)
    run = on(store, [deploys.tool()], "resume", "r", model=model)
    assert (run.status, deploys.paid) == ("failed", ["A"])
    store.list_writes = listed
    run = on(store, [deploys.tool()], "resume", "r", model=model)
    assert (run.status, deploys.paid) == ("done", ["A"])


# ---------------------------------------------------------------------- arguments that a person wrote


@pytest.mark.parametrize("asks", [True, False], ids=["asks", "asks nobody"])
@pytest.mark.parametrize("redeployed", REDEPLOYED)
def test_a_write_with_the_arguments_of_a_person_is_in_doubt_whatever_its_tool_is_declared_as_now(
    store, redeployed, asks
):
    deploys = Deploys()
    # a read and a declared key pass: each is an identity of its own
    passes = redeployed in ("a read", "another key")
    again = [] if passes else [call("pay", x="A")]
    model = ScriptedModel([call("pay", x="A"), *again, "Done."])
    with hr.SyncRuntime([deploys.tool(approve=True)], store=store) as runtime:
        runtime.run("q", model=model, run_id="r")
        (question,) = store.list_approvals()
        store.decide(question.id, granted=True, by="maria", edited={"x": "B"})
        with pytest.raises(Died):
            runtime.resume("r", model=model)
    store.dies = False
    make, made = REDEPLOYED[redeployed]
    how = {"approve": True} if asks and not passes else {}
    tools = make(deploys, **how)
    with hr.SyncRuntime(tools, store=store, **made) as runtime:
        run = runtime.resume("r", model=model)
    assert told(run)[0].failure.code == "IN_DOUBT"
    assert deploys.paid == ["B"]


def test_a_step_that_follows_a_write_is_told_to_be_in_doubt_where_its_arguments_are_lost(
    on, store
):
    deploys, sent = Deploys(), []

    def send(x: str) -> str:
        """Send a receipt."""
        sent.append(x)
        return "sent"

    def step():
        receipt = hr.FunctionTool(send, effect="write", blocking=False)
        return {"then": hr.Then(receipt, {"x": "{x}"})}

    asked = [hr.ToolCall("call_7", "pay", '{"x": "A"}')]
    store.dies = False
    on(store, [deploys.tool()], "calls", asked, run="t")
    tools = [deploys.with_parameter(**step())]
    (known,) = on(store, tools, "calls", asked, run="t")
    assert known.value == "paid A"
    assert "`send` was not called now" in known.text
    assert (deploys.paid, sent) == (["A"], [])
