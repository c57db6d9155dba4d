"""handrail under LangChain agents and LangGraph: a middleware through which every call of its tools goes.

    agent = create_agent(model, middleware=[HandrailMiddleware(runtime)], checkpointer=saver)

The thread is the run. The question is the turn, within which budget and circles count.
"""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from typing import Any

from langchain.agents.middleware import AgentMiddleware, hook_config
from langchain_core.messages import AIMessage, AnyMessage, HumanMessage, ToolMessage
from langchain_core.tools import StructuredTool
from langgraph.config import get_config, get_stream_writer
from langgraph.types import interrupt

from handrail.adapters.shared import (
    Options,
    Steps,
    describe_question,
    may_ask,
    perform,
    perform_async,
    report_progress,
)
from handrail.calls import ToolCall, ToolResult
from handrail.effects import Approval
from handrail.engine.read_result import READ_RESULT
from handrail.messages import Finish
from handrail.records import ApprovalRequest
from handrail.runtime import Runtime
from handrail.tools.tool import BaseTool

CUT = {"length", "max_tokens", "MAX_TOKENS", "model_length"}


class HandrailMiddleware(AgentMiddleware[Any, Any, Any]):
    """Gives an agent the tools of a runtime, and carries out their calls through it.

    Args:
        options: Returns options of `Runtime.calls` from the configuration of the graph's run.
        whole_turns: Carry out the calls of an answer together, before the node `tools`: in the model's order on each
            resource with `invoke` too. The node's own events and other middlewares' `wrap_tool_call` do not see them.
    """

    def __init__(
        self,
        runtime: Runtime,
        *,
        options: Options | None = None,
        whole_turns: bool = False,
    ) -> None:
        super().__init__()
        self.runtime = runtime
        self.tools = [_as_shell(tool) for tool in (*runtime.tools, READ_RESULT)]
        self._ours = {tool.name for tool in self.tools}
        self._options = options
        self._whole_turns = whole_turns

    # ------------------------------------------------------------------ the hooks of LangChain

    def wrap_tool_call(self, request: Any, handler: Callable[[Any], Any]) -> Any:
        """Carry out one call, in the calling thread."""
        if not self._is_ours(request):
            return handler(request)
        steps = self._call(request)
        return perform(steps, self.runtime.blocking)

    async def awrap_tool_call(
        self, request: Any, handler: Callable[[Any], Awaitable[Any]]
    ) -> Any:
        """Carry out one call, on the event loop."""
        if not self._is_ours(request):
            return await handler(request)
        return await perform_async(self._call(request), self.runtime)

    @hook_config(can_jump_to=["model", "end"])
    def after_model(self, state: Any, runtime: Any) -> dict[str, Any] | None:
        """Carry out what does not reach `wrap_tool_call`: broken and cut calls, or the whole turn."""
        return perform(self._answer(state), self.runtime.blocking)

    @hook_config(can_jump_to=["model", "end"])
    async def aafter_model(self, state: Any, runtime: Any) -> dict[str, Any] | None:
        """See `after_model`."""
        return await perform_async(self._answer(state), self.runtime)

    @hook_config(can_jump_to=["end"])
    def before_model(self, state: Any, runtime: Any) -> dict[str, Any] | None:
        """End the agent's run where a call has turned in a circle, or has used the budget up."""
        for message in reversed(state["messages"]):
            if not isinstance(message, ToolMessage):
                return None
            if reason := (message.artifact or {}).get("ends_run"):
                return {"messages": [AIMessage(reason)], "jump_to": "end"}
        return None

    # ------------------------------------------------------------------ calls

    def _is_ours(self, request: Any) -> bool:
        # a name that no tool has is refused with the nearest one
        return request.tool is None or request.tool_call["name"] in self._ours

    def _call(self, request: Any) -> Steps[ToolMessage]:
        messages = _messages(request.state)
        call = _as_call(request.tool_call)
        (result,) = yield from self._perform([call], messages, "calls")
        return _as_message(result, request.tool_call["id"])

    def _answer(self, state: Any) -> Steps[dict[str, Any] | None]:
        last = state["messages"][-1]
        if not isinstance(last, AIMessage):
            return None
        finish = _finish(last)
        asked: list[Any] = [*last.invalid_tool_calls]
        if self._whole_turns or finish != "calls":
            asked = [*last.tool_calls, *asked]
        asked = [each for each in asked if each["name"] in self._ours]
        if not asked:
            return None
        calls = [_as_call(each) for each in asked]
        results = yield from self._perform(calls, state["messages"], finish)
        replies = [
            _as_message(result, each["id"])
            for result, each in zip(results, asked, strict=True)
        ]
        update: dict[str, Any] = {"messages": replies}
        if len(asked) == len(last.tool_calls) + len(last.invalid_tool_calls):
            update["jump_to"] = "model"
        return update

    def _perform(
        self, calls: Sequence[ToolCall], messages: Sequence[AnyMessage], finish: Finish
    ) -> Steps[list[ToolResult]]:
        """Carry out calls; where a person must agree, interrupt the graph until somebody has answered."""
        how = self._how(messages, finish)
        run, scope = how["run"], how.get("scope") or ""
        stood: Sequence[ApprovalRequest] = ()
        if self._options or any(may_ask(self.runtime, call.name) for call in calls):
            stood = yield lambda runtime: runtime.approvals.for_scope(scope).list(
                "", run=run
            )
        results = yield lambda runtime: runtime.calls(calls, **how)
        while waiting := [each.question for each in results if each.question]:
            words = _read_words(interrupt(_as_request(waiting)), waiting, stood)
            again = [call for call in calls if call.id in words]
            answered = yield partial(_hand_over, calls=again, words=words, **how)
            by_id = {each.call_id: each for each in answered}
            results = [by_id.get(each.call_id, each) for each in results]
        return list(results)

    def _how(self, messages: Sequence[AnyMessage], finish: Finish) -> dict[str, Any]:
        config = get_config()
        asked = [each.id for each in messages if isinstance(each, HumanMessage)]
        turn = str(asked[-1]) if asked else ""
        return {
            "run": config.get("configurable", {}).get("thread_id") or turn,
            "turn": turn,
            "finish": finish,
            "observers": [report_progress(get_stream_writer())],
            # "passes": (GraphBubbleUp,),
            **(self._options(config) if self._options else {}),
        }


# ---------------------------------------------------------------------- LangChain's forms


def _as_shell(tool: BaseTool) -> StructuredTool:
    """Return what an agent shows its model of a tool; it runs only through the middleware."""

    def refuse(**_: Any) -> None:
        raise RuntimeError(f"{tool.name} runs only through HandrailMiddleware")

    return StructuredTool(
        name=tool.name,
        description=tool.description,
        args_schema=dict(tool.parameters),
        func=refuse,
    )


def _hand_over(runtime: Any, calls: Sequence[ToolCall], **how: Any) -> Any:
    return runtime.calls(calls, **how)


def _messages(state: Any) -> Sequence[AnyMessage]:
    messages: Sequence[AnyMessage] = (
        state["messages"] if isinstance(state, Mapping) else state
    )
    return messages


def _as_call(asked: Any) -> ToolCall:
    arguments = asked["args"]
    text = arguments if isinstance(arguments, str) else json.dumps(arguments)
    return ToolCall(str(asked["id"] or ""), asked["name"] or "", text)


def _finish(message: AIMessage) -> Finish:
    told = message.response_metadata
    reason = told.get("finish_reason") or told.get("stop_reason")
    return "length" if reason in CUT else "calls"


def _as_message(result: ToolResult, call_id: str) -> ToolMessage:
    return ToolMessage(
        result.text,
        name=result.name,
        tool_call_id=call_id,
        status="success" if result.ok else "error",
        artifact={"ends_run": result.ends_run} if result.ends_run else None,
    )


def _as_request(questions: Sequence[ApprovalRequest]) -> dict[str, Any]:
    """Return the request that LangChain's own HumanInTheLoopMiddleware makes, which its user interfaces show."""
    return {
        "action_requests": [
            {
                "name": each.tool,
                "args": dict(each.arguments),
                "description": each.reason,
            }
            for each in questions
        ],
        "review_configs": [
            {
                "action_name": each.tool,
                "allowed_decisions": ["approve", "edit", "reject"],
            }
            for each in questions
        ],
        "handrail": [describe_question(each) for each in questions],
    }


def _read_words(
    answer: Any,
    questions: Sequence[ApprovalRequest],
    stood: Sequence[ApprovalRequest],
) -> dict[str, Approval]:
    """Return the words of an answer that are meant for these questions, by call.

    A decision that names no question counts for the only one that has ever been asked about its call, and only if that
    one stood open before: what was said about a tool that has changed since, or to another node, is not taken for it.
    """
    decisions = answer.get("decisions", ()) if isinstance(answer, Mapping) else ()
    words = {}
    for question, decision in zip(questions, decisions, strict=False):
        named = decision.get("question")
        asked = [each.id for each in stood if each.call_id == question.call_id]
        if question.id in asked and (
            named == question.id or (named is None and len(asked) == 1)
        ):
            words[question.call_id] = _as_word(decision, question.id)
    return words


def _as_word(decision: Mapping[str, Any], question: str) -> Approval:
    return Approval(
        decision.get("type") in ("approve", "edit"),
        by=decision.get("by", ""),
        reason=decision.get("message", ""),
        arguments=decision.get("edited_action", {}).get("args"),
        question=question,
    )
