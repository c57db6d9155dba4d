"""handrail under Microsoft's Agent Framework: a middleware through which every call of its tools goes.

    handrail = HandrailFunctionMiddleware(runtime)
    agent = Agent(client=client, tools=handrail.tools, middleware=[handrail])

The agent's session is the run. Give `Agent.run` a session: without one, a call cannot be distinguished from others.
"""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable
from typing import Any

from agent_framework import (
    Content,
    FunctionInvocationContext,
    FunctionMiddleware,
    FunctionTool,
    MiddlewareFailure,
    MiddlewareTermination,
)

from handrail.calls import ToolCall, ToolResult
from handrail.effects import Approval
from handrail.runtime import Runtime
from handrail.tools.tool import BaseTool
from handrail_frameworks.shared import Options, describe_question


class HandrailFunctionMiddleware(FunctionMiddleware):
    """Gives an agent the tools of a runtime, as `tools`, and carries out their calls through it.

    Where a person must agree, the agent's answer has a request for approval, with handrail's question in its
    `additional_properties`.

    Args:
        options: Returns options of `Runtime.calls` from the context of a call. Without a session it must give `run`.
    """

    def __init__(self, runtime: Runtime, *, options: Options | None = None) -> None:
        self.runtime = runtime
        self.tools = [_as_shell(tool) for tool in runtime.offered()]
        self._ours = {tool.name for tool in self.tools}
        self._options = options

    async def process(
        self,
        context: FunctionInvocationContext,
        call_next: Callable[[], Awaitable[None]],
    ) -> None:
        """Carry out one call.

        Raises:
            MiddlewareFailure: There is neither a session nor a run.
            MiddlewareTermination: The run must end: the model turns in a circle, or the budget is used up.
        """
        if context.function.name not in self._ours:
            await call_next()
            return
        id = str(context.metadata["call_id"])
        how = self._how(context)
        if (answer := context.metadata.get("approval_response")) is not None:
            how["words"] = {id: Approval(bool(answer.approved), by="agent-framework")}
        text = json.dumps(dict(context.arguments))
        call = ToolCall(id, context.function.name, text)
        (result,) = await self.runtime.calls([call], **how)
        occurrence = context.metadata.get("function_call_occurrence_id") or id
        context.result = _answer(result, call, occurrence)
        if result.ends_run:
            raise MiddlewareTermination(result.ends_run)

    def _how(self, context: FunctionInvocationContext) -> dict[str, Any]:
        session = context.session
        how = {
            "run": session.session_id if session is not None else "",
            **(self._options(context) if self._options else {}),
        }
        if not how["run"]:
            raise MiddlewareFailure(
                "a call under handrail needs a session: agent.run(..., session=agent.create_session())"
            )
        return how


def _as_shell(tool: BaseTool) -> FunctionTool:
    """Return what an agent shows its model of a tool; it runs only through the middleware."""

    def refuse(**_: Any) -> None:
        raise RuntimeError(f"{tool.name} runs only through HandrailFunctionMiddleware")

    return FunctionTool(
        name=tool.name,
        description=tool.description,
        input_model=dict(tool.parameters),
        func=refuse,
    )


def _answer(result: ToolResult, call: ToolCall, occurrence: str) -> Any:
    if result.question is None:
        return result.text
    asked = Content.from_function_call(
        call.id, call.name, arguments=call.arguments, id=occurrence
    )
    return Content.from_function_approval_request(
        id=occurrence,
        function_call=asked,
        additional_properties=describe_question(result.question),
    )
