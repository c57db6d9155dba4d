"""Questions, words, previews and results from outside, with their types."""

from typing import Any, assert_type

import handrail as hr
from handrail.core.preview import Preview


@hr.tool(effect="write", deferred=True, write=hr.Write(interrupts="before"))
def order(item: str) -> str:
    """Order."""
    return item


def tell(question: hr.ApprovalRequest) -> None:
    assert_type(question.id, str)


async def ask(runtime: hr.Runtime) -> None:
    call = hr.ToolCall("c1", "order", '{"item": "lamp"}')
    [result] = await runtime.calls([call], run="t", turn="1", words={"c1": True})
    assert_type(result, hr.ToolResult)
    assert_type(result.question, hr.ApprovalRequest | None)
    assert_type(result.ends_run, str)
    await runtime.calls([call], run="t", words={"c1": hr.Approval(True, by="anna")}, passes=(ValueError, KeyError))
    assert_type(await runtime.preview("order", {"item": "lamp"}, run="t", scope="acme"), Preview)
    assert_type(await runtime.approvals.list(), list[hr.ApprovalRequest])
    assert_type(await runtime.approvals.for_scope("acme").deny("a_1", by="anna"), hr.ApprovalRequest)
    assert_type(await runtime.deliver("c1", {"day": "Monday"}, run="t"), hr.ApprovalRequest)
    assert_type(runtime.offered("t"), hr.Toolset)
    assert_type(runtime.blocking, hr.SyncRuntime)


def ask_blocking(runtime: hr.SyncRuntime) -> None:
    [result] = runtime.calls([hr.ToolCall("c1", "order")], run="t", words={})
    assert_type(result, hr.ToolResult)
    assert_type(runtime.preview("order", '{"item": "lamp"}').decision in ("allow", "ask"), bool)
    assert_type(runtime.approvals.approve("a_1", by="anna", scope="run"), hr.ApprovalRequest)
    assert_type(runtime.approvals.edit("a_1", {"item": "sofa"}, by="anna"), hr.ApprovalRequest)
    assert_type(runtime.deliver("a_1", None), hr.ApprovalRequest)


runtimes: list[Any] = [
    hr.Runtime([order], notify=tell),
    hr.SyncRuntime([order], notify="webhook:https://example.com/hook"),
    hr.Runtime([hr.adopt("pay", "Pay.", {"type": "object"}, effect="write", key="pay:{order}")]),
]
