"""handrail under the OpenAI Agents SDK: tools whose every call goes through a runtime.

    agent = Agent(name="shop", tools=as_function_tools(runtime, run=lambda ctx: ctx.context.session_id))

The SDK tells a tool neither its session nor its run, so the application says which conversation a call belongs to.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from agents import FunctionTool, RunContextWrapper
from agents.exceptions import AgentsException
from agents.tool_context import ToolContext

from handrail.adapters.shared import Options, may_ask
from handrail.calls import ToolCall
from handrail.effects import Approval
from handrail.runtime import Runtime
from handrail.tools.tool import BaseTool

RunOf = Callable[[RunContextWrapper[Any]], str]


def as_function_tools(
    runtime: Runtime, *, run: str | RunOf, options: Options | None = None
) -> list[FunctionTool]:
    """Return the tools of a runtime as tools of an agent.

    Args:
        run: Names the conversation: a text, or a function of the run's context.
        options: Returns options of `Runtime.calls` from the run's context.
    """
    tools = _Tools(runtime, run, options)
    return [tools.as_tool(tool) for tool in runtime.offered()]


class _Tools:
    def __init__(
        self, runtime: Runtime, run: str | RunOf, options: Options | None
    ) -> None:
        self.runtime = runtime
        self._run = run
        self._options = options

    def as_tool(self, tool: BaseTool) -> FunctionTool:
        async def invoke(ctx: ToolContext[Any], arguments: str) -> str:
            return await self._invoke(tool.name, ctx, arguments)

        async def asks(
            ctx: RunContextWrapper[Any], arguments: dict[str, Any], call_id: str
        ) -> bool:
            how = self._how(ctx)
            preview = await self.runtime.preview(
                tool.name, arguments, call_id=call_id, **how
            )
            return preview.decision == "ask"

        return FunctionTool(
            name=tool.name,
            description=tool.description,
            params_json_schema=dict(tool.parameters),
            on_invoke_tool=invoke,
            strict_json_schema=False,
            needs_approval=asks if may_ask(self.runtime, tool.name) else False,
        )

    async def _invoke(self, name: str, ctx: ToolContext[Any], arguments: str) -> str:
        how = self._how(ctx)
        call = ToolCall(ctx.tool_call_id, name, arguments)
        if ctx.is_tool_approved(name, call.id):
            how["words"] = {call.id: Approval(True, by="openai-agents")}
        is_cut = ctx.tool_call is not None and ctx.tool_call.status == "incomplete"
        (result,) = await self.runtime.calls(
            [call], finish="length" if is_cut else "calls", **how
        )
        if result.ends_run:
            raise AgentsException(result.ends_run)
        return result.text

    def _how(self, ctx: RunContextWrapper[Any]) -> dict[str, Any]:
        run = self._run if isinstance(self._run, str) else self._run(ctx)
        return {
            "run": run,
            "deps": ctx.context,
            **(self._options(ctx) if self._options else {}),
        }
