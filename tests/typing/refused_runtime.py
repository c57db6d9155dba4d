"""Misuses of the runtimes that type checkers refuse."""

import handrail as hr

hr.Runtime([], polcy=1, store=42)  # error: polcy
hr.Runtime([], store=42)  # error: "store"
hr.Runtime([], policy="read")  # error: "policy"
hr.Runtime([], "memory:")  # error: positional argument
hr.Runtime([], budget=60)  # error: "budget"
hr.SyncRuntime([], observer=[print])  # error: observer
hr.SyncRuntime([], result_bytes="64 KiB")  # error: "result_bytes"


async def settings(runtime: hr.Runtime, blocking: hr.SyncRuntime) -> None:
    runtime.policy = hr.Policy(max_permission="read")  # error: policy
    runtime.approver = None  # error: approver
    blocking.budget = hr.Budget()  # error: budget
    runtime.polcy = hr.Policy()  # error: polcy
    runtime.session  # error: session
    blocking.steps  # error: steps


async def verbs(runtime: hr.Runtime, blocking: hr.SyncRuntime) -> None:
    await runtime.call(3)  # error: "name" | "call"
    await runtime.call("get_weather", {"city": "Oslo"}, injected={})  # error: injected
    await runtime.call("get_weather", city="Oslo")  # error: city
    await runtime.handle({}, dialect=None)  # error: "dialect"
    await runtime.run("How warm is it?")  # error: overload
    await runtime.run("How warm is it?", model="openai:NAME", buget=None)  # error: overload
    await runtime.run(7, model="openai:NAME")  # error: overload | "question"
    await runtime.run("How warm is it?", model="openai:NAME", budget=60)  # error: overload | "budget"
    await runtime.resume("x", modle="y", budget="lots")  # error: overload
    await runtime.replay("x", system="Be brief.")  # error: overload
    await runtime.fork("x")  # error: overload
    await runtime.undo("x", 3)  # error: "steps" | "undo"
    await runtime.undoable("x", inject="acme")  # error: "inject" | "undoable"
    runtime.stream(3, nonsense=1)  # error: overload
    runtime.cancel("x", "maria")  # error: positional argument
    blocking.run("How warm is it?", model="openai:NAME").txt  # error: txt
    blocking.run("How warm is it?", model="openai:NAME", output=int).output.upper()  # error: upper
    (await runtime.resume("x", output=int)).output.upper()  # error: upper
    blocking.run("How warm is it?", model="openai:NAME").status = "done"  # error: status


async def no_flow() -> None: ...


def blocking_flow(flow: hr.SyncWorkflow) -> None: ...


async def workflows(runtime: hr.Runtime, blocking: hr.SyncRuntime, flow: hr.Workflow) -> None:
    await runtime.workflow(no_flow)  # error: "fn" | "workflow"
    await runtime.workflow(blocking_flow)  # error: "fn" | "workflow"
    blocking.workflow(blocking_flow, modle="openai:NAME")  # error: modle
    await flow.run("Which kind is this?", run_id="r_1")  # error: overload
    hr.agent_tool("runtime", "research", "Look things up.", model="openai:NAME")  # error: "runtime" | "agent_tool"
