"""handrail under Strands Agents: tools whose every call goes through a runtime.

    agent = Agent(model=model, tools=as_tools(runtime), session_manager=FileSessionManager(session_id="thread-1"))

The agent's session is the run. Where a person must agree, the tool interrupts the agent; the reason of the interrupt
shows handrail's question. The response is True, or `{"approved": ..., "by": ..., "reason": ..., "arguments": {...}}`.
"""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, Mapping
from typing import Any

from strands.interrupt import InterruptException
from strands.types._events import ToolInterruptEvent, ToolResultEvent
from strands.types.tools import AgentTool, ToolContext, ToolSpec, ToolUse

from handrail.calls import ToolCall, ToolResult
from handrail.effects import Approval
from handrail.records import ApprovalRequest
from handrail.runtime import Runtime
from handrail.tools.tool import BaseTool
from handrail_frameworks.shared import Options, describe_question


def as_tools(runtime: Runtime, *, options: Options | None = None) -> list[AgentTool]:
    """Return the tools of a runtime as tools of an agent.

    Args:
        options: Returns options of `Runtime.calls` from the `invocation_state`, which has the agent as `agent`.
    """
    return [_AgentTool(runtime, tool, options) for tool in runtime.offered()]


class _AgentTool(AgentTool):
    def __init__(
        self, runtime: Runtime, tool: BaseTool, options: Options | None
    ) -> None:
        super().__init__()
        self._runtime = runtime
        self._tool = tool
        self._options = options

    @property
    def tool_name(self) -> str:
        return self._tool.name

    @property
    def tool_type(self) -> str:
        return "handrail"

    @property
    def tool_spec(self) -> ToolSpec:
        return {
            "name": self._tool.name,
            "description": self._tool.description,
            "inputSchema": {"json": dict(self._tool.parameters)},
        }

    async def stream(
        self, tool_use: ToolUse, invocation_state: dict[str, Any], **_: Any
    ) -> AsyncGenerator[Any, None]:
        agent = invocation_state["agent"]
        context = ToolContext(tool_use, agent, invocation_state)
        how = {
            "run": agent.session_id,
            **(self._options(invocation_state) if self._options else {}),
        }
        try:
            result = await self._call(context, how)
        except InterruptException as interrupted:
            yield ToolInterruptEvent(tool_use, [interrupted.interrupt])
            return
        if result.ends_run:
            invocation_state["request_state"]["stop_event_loop"] = True
        yield ToolResultEvent(
            {
                "toolUseId": tool_use["toolUseId"],
                "status": "success" if result.ok else "error",
                "content": [{"text": result.text}],
            }
        )

    async def _call(self, context: ToolContext, how: dict[str, Any]) -> ToolResult:
        """Carry out a call; raise `InterruptException` until somebody has answered its question."""
        id = context.tool_use["toolUseId"]
        call = ToolCall(id, self._tool.name, json.dumps(context.tool_use["input"]))
        (result,) = await self._runtime.calls([call], **how)
        while (question := result.question) is not None:
            # Whoever agrees first is not asked again for the next person.
            name = f"{question.id}:{len(question.agreed)}"
            answer = context.interrupt(name, reason=describe_question(question))
            words = {id: _as_word(answer, question)}
            (result,) = await self._runtime.calls([call], words=words, **how)
        return result


def _as_word(answer: Any, question: ApprovalRequest) -> Approval:
    given = answer if isinstance(answer, Mapping) else {"approved": answer}
    return Approval(
        given.get("approved") is True,
        by=given.get("by") or "strands",
        reason=given.get("reason") or "",
        question=question.id,
        arguments=given.get("arguments"),
    )
