"""handrail under pydantic-ai: a toolset through which every call of its tools goes.

    agent = Agent(model, toolsets=[HandrailToolset(runtime)], output_type=[str, DeferredToolRequests])

The conversation is the run; a run of the agent is the turn, within which budget and circles count.
"""

from __future__ import annotations

import json
from typing import Any

from pydantic_ai import RunContext
from pydantic_ai.exceptions import AgentRunError, ApprovalRequired, ToolFailed
from pydantic_ai.messages import ModelRequest, ModelResponse, ToolReturnPart
from pydantic_ai.tools import ToolDefinition
from pydantic_ai.toolsets import AbstractToolset
from pydantic_ai.toolsets.abstract import ToolsetTool

from handrail.adapters.shared import Options, describe_question
from handrail.calls import ToolCall, ToolResult
from handrail.effects import Approval
from handrail.messages import Finish
from handrail.runtime import Runtime
from handrail.tools.tool import BaseTool

TEXT = "\0text"


class AsWritten:
    """Passes arguments on as the model wrote them: handrail validates them, once."""

    def validate_json(self, input: str | bytes | bytearray, **_: Any) -> dict[str, str]:
        """Return the text."""
        return {TEXT: input if isinstance(input, str) else input.decode()}

    def validate_python(self, input: Any, **_: Any) -> dict[str, str]:
        """Return the arguments as text."""
        return {TEXT: json.dumps(input)}


class HandrailToolset(AbstractToolset[Any]):
    """Gives an agent the tools of a runtime, and carries out their calls through it.

    Args:
        options: Returns options of `Runtime.calls` from the context of a run.
        id: The toolset's id, which durable execution asks for.
    """

    def __init__(
        self, runtime: Runtime, *, options: Options | None = None, id: str = "handrail"
    ) -> None:
        self.runtime = runtime
        self._options = options
        self._id = id

    @property
    def id(self) -> str:
        """Its name within the agent."""
        return self._id

    async def get_tools(self, ctx: RunContext[Any]) -> dict[str, ToolsetTool[Any]]:
        """Return the tools that the model may be shown now."""
        how = self._how(ctx)
        await self._close_denied(ctx, how)
        shown = self.runtime.offered(
            how["run"], scope=how.get("scope"), policy=how.get("policy")
        )
        return {tool.name: self._as_tool(tool) for tool in shown}

    async def call_tool(
        self,
        name: str,
        tool_args: dict[str, Any],
        ctx: RunContext[Any],
        tool: ToolsetTool[Any],
    ) -> Any:
        """Carry out one call.

        Raises:
            ApprovalRequired: A person must agree; the question is in the metadata.
            ToolFailed: The call failed, with what the model reads.
            AgentRunError: The run must end: the model turns in a circle, or the budget is used up.
        """
        text = tool_args.get(TEXT) or json.dumps(tool_args)
        call = ToolCall(ctx.tool_call_id or "", name, text)
        how = self._how(ctx)
        if ctx.tool_call_approved:
            call, word = _approve(call, ctx)
            how["words"] = {call.id: word}
        (result,) = await self.runtime.calls([call], finish=_finish(ctx), **how)
        return _answer(result)

    def _how(self, ctx: RunContext[Any]) -> dict[str, Any]:
        return {
            "run": ctx.conversation_id or ctx.run_id or "",
            "turn": ctx.run_id or "",
            "deps": ctx.deps,
            **(self._options(ctx) if self._options else {}),
        }

    def _as_tool(self, tool: BaseTool) -> ToolsetTool[Any]:
        return ToolsetTool(
            toolset=self,
            max_retries=0,
            args_validator=AsWritten(),
            tool_def=ToolDefinition(
                name=tool.name,
                description=tool.description,
                parameters_json_schema=dict(tool.parameters),
            ),
        )

    async def _close_denied(self, ctx: RunContext[Any], how: dict[str, Any]) -> None:
        """Deny here what a person has denied there: such calls do not come to `call_tool`."""
        last = ctx.messages[-1] if ctx.messages else None
        denied = {
            part.tool_call_id: part.model_response_str()
            for part in (last.parts if isinstance(last, ModelRequest) else ())
            if isinstance(part, ToolReturnPart) and part.outcome == "denied"
        }
        if not denied:
            return
        queue = self.runtime.approvals.for_scope(how.get("scope") or "")
        for question in await queue.list(run=how["run"]):
            if reason := denied.get(question.call_id):
                await queue.deny(question.id, by="pydantic-ai", reason=reason)


def _approve(call: ToolCall, ctx: RunContext[Any]) -> tuple[ToolCall, Approval]:
    """Return the call as the model made it, and the word on it: other arguments than the model's are an edit."""
    asked = next(
        (
            part
            for message in reversed(ctx.messages)
            if isinstance(message, ModelResponse)
            for part in message.tool_calls
            if part.tool_call_id == call.id
        ),
        None,
    )
    told = ctx.tool_call_metadata or {}
    word = Approval(True, by=told.get("by", ""), question=told.get("question", ""))
    if asked is None or json.loads(call.arguments) == asked.args_as_dict():
        return call, word
    edited = json.loads(call.arguments)
    original = ToolCall(call.id, call.name, asked.args_as_json_str())
    return original, Approval(
        True, by=word.by, question=word.question, arguments=edited
    )


def _finish(ctx: RunContext[Any]) -> Finish:
    answers = (
        each for each in reversed(ctx.messages) if isinstance(each, ModelResponse)
    )
    last = next(answers, None)
    return "length" if last is not None and last.finish_reason == "length" else "calls"


def _answer(result: ToolResult) -> str:
    if result.question is not None:
        raise ApprovalRequired(metadata=describe_question(result.question))
    if result.ends_run:
        raise AgentRunError(result.ends_run)
    if not result.ok:
        raise ToolFailed(result.text)
    return result.text
