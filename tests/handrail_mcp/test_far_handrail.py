"""Another handrail as the server: what it says arrives as what it is."""

import re
import sys

import pytest

import handrail as hr

pytestmark = pytest.mark.anyio


@pytest.fixture
def connect(tmp_path):
    def connect_shop(**options):
        command = [sys.executable, "-m", "tests.handrail_mcp.shop", str(tmp_path)]
        return hr.mcp.connect(command, name="shop", **{"trust": "hints", **options})

    return connect_shop


def lines(path):
    return path.read_text().split("\n")[:-1] if path.exists() else []


ADMIN = hr.Policy(max_permission="admin", ask_from=None)


@pytest.mark.parametrize("trust", ["hints", "none"])
async def test_a_write_in_doubt_there_is_in_doubt_here_and_not_sent_again(
    connect, tmp_path, trust
):
    async with await connect(trust=trust) as tools:
        runtime = hr.Runtime(
            tools, policy=ADMIN, store=f"sqlite:///{tmp_path / 'x.db'}"
        )
        first = await runtime.call("shop_hang", {"name": "n"}, run="r")
        second = await runtime.call("shop_hang", {"name": "n"}, run="r")
        await runtime.close()
    assert first.failure.code == second.failure.code == "IN_DOUBT"
    assert "`hang`" in first.failure.message


async def test_a_call_that_waits_for_a_person_there_waits_here_and_can_be_made_again(
    connect, tmp_path
):
    async with await connect() as tools:
        runtime = hr.Runtime(tools, policy=ADMIN)
        arguments = {"order_id": "A-1", "amount": 20}
        first = await runtime.call("shop_refund", arguments, run="r")
        second = await runtime.call("shop_refund", arguments, run="r")
        await runtime.close()
    assert first.failure.code == second.failure.code == "APPROVAL_PENDING"
    assert not first.failure.retryable
    assert lines(tmp_path / "refunds") == []


@pytest.mark.parametrize("mode", ["legacy", "2026-07-28"])
@pytest.mark.parametrize(
    ("word", "code", "refunds"),
    [
        (True, None, ["A-1 20"]),
        (False, "NOT_APPROVED", []),
        (None, "APPROVAL_PENDING", []),
    ],
)
async def test_its_question_to_a_person_is_put_to_our_approver(
    connect, tmp_path, mode, word, code, refunds
):
    asked = []

    def answer(question):
        asked.append(question.reason)
        return word

    async with await connect(approver=answer, mode=mode) as tools:
        runtime = hr.Runtime(tools, policy=ADMIN)
        result = await runtime.call("shop_refund", {"order_id": "A-1", "amount": 20})
        await runtime.close()
    assert asked[0].startswith("the MCP server 'shop' asks:")
    assert (result.failure and result.failure.code) == code
    assert lines(tmp_path / "refunds") == refunds


async def test_a_long_result_is_read_on_under_the_name_that_the_tool_has_here(connect):
    async with await connect() as tools:
        runtime = hr.Runtime(tools, policy=ADMIN, result_bytes=1_000_000)
        cut = await runtime.call("shop_list_rows", {"rows": 1000})
        handle = re.search(r"shop_read_result\(handle='([^']+)'\)", cut.text)[1]
        rest = await runtime.call(
            "shop_read_result", {"handle": handle, "offset": 40_000}
        )
        await runtime.close()
    assert "row 500 " not in cut.text
    assert rest.ok
    assert "row 4" in rest.text


@pytest.mark.parametrize(
    ("failure", "code", "kind"),
    [
        (hr.Failure("IN_DOUBT", "m"), "IN_DOUBT", hr.FarFailure),
        (hr.Failure("APPROVAL_PENDING", "m"), "APPROVAL_PENDING", hr.NoEffect),
        (hr.Failure("BUDGET_EXHAUSTED", "m"), "TOOL_ERROR", hr.NoEffect),
        (hr.Failure("NOT_PERMITTED", "m"), "NOT_PERMITTED", hr.NoEffect),
        (hr.Failure("OUT_OF_STOCK", "m"), "OUT_OF_STOCK", hr.FarFailure),
    ],
)
def test_a_failure_of_the_contract_is_read_as_one(failure, code, kind):
    from handrail_mcp.remote_tool import read_contract

    read = read_contract(failure.as_json())
    assert read == failure
    error = hr.FarRefusal(read) if kind is hr.NoEffect else kind(read)
    assert isinstance(error, kind)
    assert error.failure_for_model.code == code


@pytest.mark.parametrize(
    "document", [None, [], {"success": True}, {"success": False, "error_code": 7}]
)
def test_anything_else_is_none(document):
    from handrail_mcp.remote_tool import read_contract

    assert read_contract(document) is None
