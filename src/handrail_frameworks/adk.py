"""handrail under Google's Agent Development Kit: a toolset through which every call of its tools goes.

    agent = LlmAgent(name="shop", model=model, tools=[HandrailBaseToolset(runtime)])

The session is the run, with its application and user, because its id is theirs alone. The invocation is the turn,
within which budget and circles count.
"""

from __future__ import annotations

import json
from typing import Any
from urllib.parse import quote

from google.adk.agents.readonly_context import ReadonlyContext
from google.adk.tools.base_tool import BaseTool
from google.adk.tools.base_toolset import BaseToolset
from google.adk.tools.tool_confirmation import ToolConfirmation
from google.adk.tools.tool_context import ToolContext
from google.genai import types

from handrail.calls import ToolCall
from handrail.effects import Approval
from handrail.messages import Finish
from handrail.records import ApprovalRequest
from handrail.runtime import Runtime
from handrail.tools.tool import BaseTool as HandrailTool
from handrail_frameworks.shared import Options, describe_question


class HandrailBaseToolset(BaseToolset):
    """Gives an agent the tools of a runtime, and carries out their calls through it.

    Where a person must agree, it requests ADK's confirmation; the payload shows handrail's question. The payload of the
    answer may hold `question`, `by`, `reason`, and in `arguments` those to use in place of the model's.

    Args:
        options: Returns options of `Runtime.calls` from the context of a tool.
    """

    def __init__(self, runtime: Runtime, *, options: Options | None = None) -> None:
        super().__init__()
        self.runtime = runtime
        self._options = options

    async def get_tools(
        self, readonly_context: ReadonlyContext | None = None
    ) -> list[BaseTool]:
        """Return the tools that the model may be shown now."""
        how = self.describe_call(readonly_context) if readonly_context else {}
        scope, policy = how.get("scope"), how.get("policy")
        shown = self.runtime.offered(how.get("run"), scope=scope, policy=policy)
        return [_Tool(self, tool) for tool in shown]

    def describe_call(self, context: ReadonlyContext) -> dict[str, Any]:
        """Return the options of the calls of an invocation."""
        session = context.session
        names = (session.app_name, session.user_id, session.id)
        return {
            "run": "/".join(quote(name, safe="@") for name in names),
            "turn": context.invocation_id,
            **(self._options(context) if self._options else {}),
        }


class _Tool(BaseTool):
    def __init__(self, toolset: HandrailBaseToolset, tool: HandrailTool) -> None:
        super().__init__(name=tool.name, description=tool.description)
        self._toolset = toolset
        self._parameters = dict(tool.parameters)

    def _get_declaration(self) -> types.FunctionDeclaration:
        return types.FunctionDeclaration(
            name=self.name,
            description=self.description,
            parameters_json_schema=self._parameters,
        )

    async def run_async(
        self, *, args: dict[str, Any], tool_context: ToolContext
    ) -> Any:
        id = tool_context.function_call_id or ""
        how = self._toolset.describe_call(tool_context)
        if (answer := tool_context.tool_confirmation) is not None:
            how["words"] = {id: _as_word(answer, args)}
        call = ToolCall(id, self.name, json.dumps(args))
        finish = _finish(tool_context, id)
        (result,) = await self._toolset.runtime.calls([call], finish=finish, **how)
        if result.question is not None:
            _request(tool_context, result.question)
        if result.ends_run:
            tool_context.actions.skip_summarization = True  # ends the invocation
        return {"result": result.text} if result.ok else json.loads(result.text)


def _request(context: ToolContext, question: ApprovalRequest) -> None:
    shown = describe_question(question)
    context.request_confirmation(hint=question.reason, payload=shown)
    context.actions.skip_summarization = True


def _as_word(answer: ToolConfirmation, arguments: dict[str, Any]) -> Approval:
    given = answer.payload if isinstance(answer.payload, dict) else {}
    edited = given.get("arguments")
    return Approval(
        answer.confirmed,
        by=given.get("by") or "adk",
        reason=given.get("reason") or "",
        question=given.get("question") or "",
        arguments=None if edited == arguments else edited,
    )


def _finish(context: ToolContext, call_id: str) -> Finish:
    """Return how the answer of the model ended that made a call."""
    for event in reversed(context.session.events):
        if any(call.id == call_id for call in event.get_function_calls()):
            is_cut = event.finish_reason == types.FinishReason.MAX_TOKENS
            return "length" if is_cut else "calls"
    return "calls"
