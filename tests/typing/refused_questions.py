"""Slips around questions, which a type checker refuses."""

import handrail as hr


async def slip(runtime: hr.Runtime) -> None:
    call = hr.ToolCall("c1", "order")
    await runtime.calls([call], run="t", words={"c1": "yes"})  # error: dict-item | reportArgumentType
    await runtime.calls([call], run="t", passes=[ValueError])  # error: arg-type | reportArgumentType
    await runtime.calls([call])  # error: call-arg | reportCallIssue
    await runtime.calls([call], run="t", word={"c1": True})  # error: call-arg | reportCallIssue
    await runtime.preview("order", {}, id="c1")  # error: call-arg | reportCallIssue
    await runtime.approvals.approve("a_1")  # error: call-arg | reportCallIssue
    await runtime.approvals.approve("a_1", by="anna", scope="all")  # error: arg-type | reportArgumentType
    await runtime.approvals.list("waiting")  # error: arg-type | reportArgumentType
    await runtime.deliver("c1")  # error: call-arg | reportCallIssue
    runtime.offered(scop="acme")  # error: call-arg | reportCallIssue


def slip_blocking(runtime: hr.SyncRuntime) -> None:
    runtime.approvals.edit("a_1", by="anna")  # error: call-arg | reportCallIssue
    runtime.approvals.deny("a_1", because="no")  # error: call-arg | reportCallIssue
    runtime.approvals = None  # error: read-only | "approvals"


hr.Runtime([], notify=7)  # error: arg-type | reportArgumentType
hr.adopt("pay", "Pay.")  # error: call-arg | reportCallIssue
hr.adopt("pay", "Pay.", {}, efect="write")  # error: call-arg | reportCallIssue
hr.tool(deferred="yes")  # error: call-overload | reportCallIssue | reportArgumentType
