"""The production checklist: what it misses, what it passes, and what it runs."""

import asyncio
import subprocess
import time
from typing import Annotated, Any, TypedDict

import httpx2
import pytest

import handrail as hr
from handrail.cli.demo.cluster import TOOLS as DEMO
from handrail.linting import source_checks
from handrail.testing import checklist
from handrail.testing.checklist import (
    ITEMS,
    WRONG_TOOL,
    check,
    difference_from_schema,
    run_examples,
)
from tests.support import bad_tools

SIX_TROUBLES = [
    ("a retry creates the ticket twice", "create_ticket", 'key="create_ticket:{data}"'),
    ("a query hangs the service", "query_orders", "`asyncio.sleep`"),
    ("two calls race", "create_ticket", 'resource="data:{data}"'),
    ("a result blows the context", "query_orders", "result_bytes=65536"),
    ("the wrong tool is picked", "query_orders", "Name the act and the thing"),
    ("the model does not know how to go on", "query_orders", "hr.ToolError"),
]
BAD = hr.Toolset(
    [bad_tools.create_ticket, bad_tools.query_orders, bad_tools.drop_orders]
)


def missing(*tools: Any, item: str) -> list[str]:
    return [line.says for line in check(tools).missing if line.item == item]


def test_a_tool_in_a_thread_that_looks_whether_it_is_given_up_ends_at_its_deadline():
    @hr.tool(effect="read")
    def count(context: hr.Context[None]) -> int:
        """Count."""
        return 0 if context.cancelled.is_set() else 1

    assert missing(count, item="timeout") == []


def test_a_tool_that_declares_one_request_and_makes_two_is_told_their_lines():
    @hr.tool(
        effect="write",
        key="pay:{order}",
        write=hr.Write(one_request=True),
        isolation="process",
    )
    def pay(order: str) -> None:
        """Pay an order, then tell somebody."""
        httpx2.post("https://pay.example", json={"order": order})
        httpx2.post("https://notify.example", json={"order": order})

    (told,) = missing(pay, item="idempotency")
    assert "makes 2 (lines 9, 10 of it)" in told
    assert (
        missing(pay.replace(write=hr.Write(one_request=False)), item="idempotency")
        == []
    )


@pytest.mark.parametrize(
    ("trouble", "tool", "fix"), SIX_TROUBLES, ids=[row[0] for row in SIX_TROUBLES]
)
def test_a_bad_toolset_is_told_each_of_the_six_troubles_and_what_ends_it(
    trouble, tool, fix
):
    told = [
        line
        for line in check(BAD).missing
        if line.trouble == trouble and line.tool == tool
    ]
    assert any(fix in line.fix for line in told), told


def test_the_troubles_are_those_of_the_items():
    assert {item.trouble for item in ITEMS} | {WRONG_TOOL} >= {
        row[0] for row in SIX_TROUBLES
    }


def test_the_tools_of_the_demo_miss_only_a_key():
    """A restart is an act without a name of its own: two of one service, an hour apart, are two."""
    assert [(line.tool, line.item) for line in check(DEMO).missing] == [
        ("restart_service", "idempotency")
    ]


# ---------------------------------------------------------------------- items, one at a time


def declared(**attributes: Any) -> hr.FunctionTool:
    async def set_address(user_id: str) -> str:
        """Set the postal address of a user; returns the new one.

        Args:
            user_id: Such as "u-17".
        """
        return user_id

    return hr.FunctionTool(set_address, **attributes)


@pytest.mark.parametrize(("attributes", "item", "passes"), [
    ({"effect": "write"}, "idempotency", False),
    # undeclared counts as a write
    ({}, "idempotency", False),
    ({"effect": "write", "key": "address:{user_id}"}, "idempotency", True),
    ({"effect": "write", "verify": print}, "idempotency", True),
    ({"effect": "read"}, "idempotency", True),
    ({"effect": "read", "timeout_s": 121}, "timeout", False),
    ({"effect": "read", "timeout_s": 120}, "timeout", True),
    ({"effect": "write"}, "concurrency", False),
    ({"effect": "write", "resource": "user:{user_id}"}, "concurrency", True),
    ({"effect": "write", "limits": hr.Limits(max_concurrency=1)}, "concurrency", True),
    ({"effect": "read"}, "concurrency", True),
    ({"effect": "read", "limits": hr.Limits(result_bytes=65_537)}, "result size", False),
    ({"effect": "read", "limits": hr.Limits(result_bytes=65_536)}, "result size", True),
    ({"effect": "destructive", "risk": "low"}, "approvals", False),
    ({"effect": "destructive", "risk": "low", "approve": True}, "approvals", True),
    ({"effect": "destructive"}, "approvals", True),
])  # fmt: skip
def test_one_parameter_ends_a_trouble(attributes, item, passes):
    assert (missing(declared(**attributes), item=item) == []) == passes


@pytest.mark.parametrize(
    ("attributes", "passes"),
    [({}, False), ({"isolation": "process"}, True), ({"blocking": False}, True)],
)
def test_a_plain_function_can_be_ended_or_is_quick(attributes, passes):
    def get_order(order_id: str) -> str:
        """Look an order up by its number."""
        return subprocess.check_output(["orders", order_id], text=True)

    assert (
        missing(hr.FunctionTool(get_order, effect="read", **attributes), item="timeout")
        == []
    ) == passes


ORDERS = {"A-1": 49}


def returns_at_once(order: str) -> int:
    if order not in ORDERS:
        raise hr.ToolError(
            "ORDER_NOT_FOUND",
            f"There is no order {order!r}.",
            suggestion="Ask for the number.",
        )
    return max(ORDERS[order], len(order))


def loops(order: str) -> int:
    while order not in ORDERS:
        pass
    return ORDERS[order]


def reads_a_file(order: str) -> str:
    return open(order).read()  # noqa: PTH123


def calls_something(order: str) -> object:
    return asyncio.run(order)


@pytest.mark.parametrize(
    ("function", "passes"),
    [
        (returns_at_once, True),
        (loops, False),
        (reads_a_file, False),
        (calls_something, False),
    ],
)
def test_a_plain_function_that_certainly_ends_needs_no_end(function, passes):
    assert (
        missing(hr.FunctionTool(function, effect="read"), item="timeout") == []
    ) == passes


# ---------------------------------------------------------------------- sources


async def sleeps() -> None:
    time.sleep(1)


async def starts_a_program() -> None:
    subprocess.run(["true"], check=True)


async def waits() -> None:
    await asyncio.sleep(1)


def sleeps_in_a_thread() -> None:
    time.sleep(1)


async def hands_over() -> None:
    await asyncio.to_thread(lambda: time.sleep(1))


@pytest.mark.parametrize(("function", "count"), [
    (sleeps, 1), (starts_a_program, 1), (waits, 0), (sleeps_in_a_thread, 0), (hands_over, 0),
])  # fmt: skip
def test_a_call_that_blocks_is_seen_in_a_coroutine_function_only(function, count):
    assert len(list(source_checks.blocking_calls(function))) == count


def raises_its_own() -> None:
    raise ValueError("no")


def raises_without_a_way_on() -> None:
    raise hr.ToolError("NO", "no")


def swallows() -> Any:
    try:
        return 1
    except Exception as error:
        return str(error)


def returns_an_error() -> Any:
    return {"error": "no"}


def returns_an_error_at_times(text: str = "") -> Any:
    return text if text else {"error": "no"}


def speaks_to_the_model() -> None:
    raise hr.ToolError("NO", "no", suggestion="Ask the user.")


def is_tried_again() -> None:
    raise ConnectionRefusedError


def tells_the_cause() -> Any:
    try:
        return 1
    except Exception as error:
        raise hr.ToolError("NO", "no", suggestion="Ask the user.") from error


@pytest.mark.parametrize(("function", "says"), [
    (raises_its_own, "raises ValueError"),
    (raises_without_a_way_on, "does not say what to do next"),
    (swallows, "takes every exception for a result"),
    (returns_an_error, "returns an error as if it were a result"),
    (returns_an_error_at_times, "returns an error as if it were a result"),
    (speaks_to_the_model, ""),
    (is_tried_again, ""),
    (tells_the_cause, ""),
    (print, ""),  # no source to read
])  # fmt: skip
def test_an_error_that_the_model_would_not_understand_is_seen(function, says):
    assert bool(found := list(source_checks.unclear_errors(function))) == bool(says)
    assert not found or says in found[0].what


# ---------------------------------------------------------------------- the runtime


@pytest.mark.parametrize(("how", "item", "passes"), [
    ({}, "audit", False),
    ({"store": "sqlite"}, "audit", True),
    ({}, "limits", True),
    ({"budget": hr.Budget(calls=None)}, "limits", False),
    ({}, "approvals", False),  # a destructive tool, and nobody to ask
    ({"approver": lambda asked: None}, "approvals", True),
    # nobody else looks at a call
    ({"approver": lambda asked: None, "policy": hr.Policy(own_approval=True)}, "approvals", False),
    ({"result_bytes": 1_000_000}, "result size", False),
])  # fmt: skip
def test_a_runtime_is_judged_by_what_it_keeps_limits_and_asks(
    how, item, passes, tmp_path
):
    if how.get("store") == "sqlite":
        how = {"store": f"sqlite:///{tmp_path}/kept.db"}
    runtime = hr.Runtime([declared(effect="destructive")], **how)
    lines = [
        line
        for line in check(runtime.tools, runtime).lines
        if line.item == item and not line.tool
    ]
    assert [line.passes for line in lines] == [passes]
    asyncio.run(runtime.close())


# ---------------------------------------------------------------------- examples


class Weather(TypedDict):
    celsius: float


async def get_weather(city: str) -> Weather:
    """Get the weather."""
    return {"celsius": "warm"} if city == "Paris" else {"celsius": 21.0}  # type: ignore[typeddict-item]


def lines_of(*tools: Any, **how: Any) -> list[checklist.Line]:
    return list(asyncio.run(run_examples(tools, **how)).lines)


def test_an_example_that_returns_what_was_not_promised_is_told():
    tool = hr.FunctionTool(
        get_weather, effect="read", examples=[{"city": "北京"}, {"city": "Paris"}]
    )
    kept, broken = lines_of(tool)
    assert kept.passes
    assert "it returned what it did not promise: at celsius" in broken.says


def test_what_a_tool_declares_to_return_outweighs_its_hint():
    schema = {"type": "object", "properties": {"celsius": {"type": "string"}}}
    tool = hr.FunctionTool(get_weather, effect="read", returns=schema)
    assert difference_from_schema(tool, {"celsius": "warm"}) == ""
    assert difference_from_schema(tool, {"celsius": 21.0}) != ""


@pytest.mark.parametrize(("returns", "value", "kept"), [
    (list[int], [1, 2], True),
    (list[int], ["one"], False),
    (int, 3, True),
    ({"type": "array", "items": {"type": "integer"}}, [1], True),
    ({"type": "array", "items": {"type": "integer"}}, ["one"], False),
    (Weather, {}, False),
    (Any, object(), True),
])  # fmt: skip
def test_a_type_or_a_schema_is_a_promise(returns, value, kept):
    assert (
        difference_from_schema(declared(effect="read", returns=returns), value) == ""
    ) == kept


def test_an_example_that_fails_is_told_with_its_code():
    (line,) = lines_of(
        hr.FunctionTool(get_weather, effect="read", examples=[{"town": "Paris"}])
    )
    assert not line.passes
    assert "INVALID_ARGUMENTS" in line.says


def test_no_write_is_run_even_with_examples():
    ran = []

    async def pay(amount: int) -> str:
        ran.append(amount)
        return "paid"

    tools = [
        hr.FunctionTool(
            pay, effect=effect, name=f"pay_{effect}", examples=[{"amount": 1}]
        )
        for effect in ("write", "destructive")
    ]
    lines = lines_of(*tools, hr.FunctionTool(pay, name="pay", examples=[{"amount": 1}]))
    assert ran == []
    assert [line.passes for line in lines] == [True, True, True]


def test_a_value_that_nobody_fills_is_told():
    async def orders_of(tenant: Annotated[str, hr.Injected]) -> str:
        return tenant

    tool = hr.FunctionTool(orders_of, effect="read", examples=[{}])
    assert "cannot be run here" in lines_of(tool)[0].says
    assert lines_of(tool, inject={"tenant": "acme"})[0].passes
