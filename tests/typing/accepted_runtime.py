"""Uses of the runtimes that type checkers accept, and the types that they see."""

from typing import Any, assert_type

from pydantic import BaseModel

import handrail as hr
from handrail.events import Event


class Weather(BaseModel):
    city: str
    celsius: float


async def asyncio_runtime(model: str) -> None:
    runtime = hr.Runtime([], store="sqlite:///handrail.db", policy=hr.Policy(max_permission="read"), repair=False)
    assert_type(runtime.tools, hr.Toolset)
    assert_type(runtime.policy, hr.Policy)
    assert_type(runtime.budget, hr.Budget)
    assert_type(runtime.result_bytes, int)
    assert_type(await runtime.call("get_weather", {"city": "Oslo"}), hr.ToolResult)
    assert_type(
        await runtime.call("get_weather", '{"city": "Oslo"}', run="r_1", inject={"tenant": "acme"}), hr.ToolResult
    )
    assert_type(await runtime.handle({"role": "assistant"}, dialect="anthropic"), Any)
    assert_type(await runtime.run("How warm is it?", model=model), hr.Run[None])
    assert_type((await runtime.run("How warm is it?", model=model)).output, None)
    assert_type((await runtime.run("How warm is it?", model=model)).text, str)
    assert_type(await runtime.run("How warm is it?", model=model, output=Weather, system="Be brief."), hr.Run[Weather])
    assert_type((await runtime.run("How warm is it?", model=model, output=Weather)).output.celsius, float)
    assert_type((await runtime.run("Where?", model=model, output=list[str])).output, list[str])
    assert_type((await runtime.run("Where?", model=model, output={"type": "object"})).output, Any)
    assert_type((await runtime.run("Where?", model=model, output=hr.Form(Weather, by="tool"))).output, Any)
    assert_type(await runtime.run([hr.UserMessage("Hello.")], model=model, budget=hr.Budget(calls=3)), hr.Run[None])
    assert_type(await runtime.run([{"role": "user", "content": "Hello."}], model=model, run_id="r_2"), hr.Run[None])
    assert_type(await runtime.resume("r_1"), hr.Run[Any])
    assert_type(await runtime.resume("r_1", model=model, anyway=True, output=Weather), hr.Run[Weather])
    assert_type(await runtime.replay("r_1", output=Weather), hr.Run[Weather])
    assert_type(await runtime.fork("r_1", at_turn=2, budget=hr.Budget(turns=4)), hr.Run[Any])
    assert_type(await runtime.undo("r_1", ["1.0"]), list[hr.ToolResult])
    assert_type((await runtime.undoable("r_1"))[0].step, str)
    assert_type(await runtime.undo("r_1", inject={"tenant": "acme"}, scope="a"), list[hr.ToolResult])
    assert_type(runtime.cancel("r_1", by="maria"), bool)
    stream = runtime.stream("How warm is it?", model=model, output=Weather)
    async for event in stream:
        assert_type(event, Event)
    assert_type(stream.run, hr.Run[Weather])
    async with runtime as entered:
        assert_type(entered, hr.Runtime)


def blocking_runtime(model: str) -> None:
    with hr.SyncRuntime([], observers=[print], budget=hr.Budget(time_s=60)) as runtime:
        assert_type(runtime, hr.SyncRuntime)
        assert_type(runtime.call("get_weather"), hr.ToolResult)
        assert_type(runtime.run("How warm is it?", model=model, output=Weather), hr.Run[Weather])
        assert_type(runtime.run("How warm is it?", model=model), hr.Run[None])
        assert_type(runtime.resume("r_1", output=int).output, int)
        assert_type(runtime.stream("How warm is it?", model=model).run, hr.Run[None])


async def triage(flow: hr.Workflow, ticket: str) -> int:
    assert_type(await flow.call("get_ticket", {"id": ticket}), hr.ToolResult)
    kind = await flow.run("Which kind is this?", output=Weather, system="Be brief.")
    assert_type(kind, hr.Run[Weather])
    return len(kind.text)


def triage_blocking(flow: hr.SyncWorkflow) -> str:
    return flow.run("Which kind is this?").text


async def workflows(runtime: hr.Runtime, blocking: hr.SyncRuntime) -> None:
    assert_type(await runtime.workflow(triage, {"ticket": "T-1"}, model="openai:NAME", run_id="t"), hr.Run[int])
    assert_type(blocking.workflow(triage_blocking), hr.Run[str])


def agents(runtime: hr.Runtime, blocking: hr.SyncRuntime) -> None:
    assert_type(hr.agent_tool(runtime, "research", "Look things up.", model="openai:NAME"), hr.FunctionTool)
    assert_type(hr.agent_tool(blocking, "research", "Look things up.", model="openai:NAME"), hr.FunctionTool)
