"""A write that was started, then its process died, and the next deploy declares its tool otherwise.

What is known of a call comes before what is allowed now: whoever was told that nothing ran would do it twice.
"""

import asyncio
import time
from datetime import datetime
from decimal import Decimal
from pathlib import Path
from typing import Literal

import pytest

import handrail as hr
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
        (str, "A", {"version": "2"}),
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
