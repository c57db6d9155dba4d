"""What LangChain writes in its own forms: tools, calls, messages, and the review of calls by a person."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from langchain_core.messages import AIMessage, AnyMessage, ToolMessage
from langchain_core.tools import BaseTool as LangChainTool
from langchain_core.tools import StructuredTool
from langchain_core.utils.function_calling import convert_to_openai_tool
from langgraph.types import Command
from msgspec.structs import replace

from handrail.calls import ToolCall, ToolResult
from handrail.effects import Approval
from handrail.errors import ToolError
from handrail.messages import Finish
from handrail.records import ApprovalRequest
from handrail.tools.tool import BaseTool
from handrail_frameworks.shared import ToolForm, describe_question, make_unique

CUT = {"length", "max_tokens", "MAX_TOKENS", "model_length"}
"""How providers say that an answer was cut."""


def as_shell(tool: BaseTool) -> StructuredTool:
    """Return what an agent shows its model of a tool; it runs only through the middleware."""

    def refuse(**_: Any) -> None:
        raise RuntimeError(f"{tool.name} runs only through HandrailMiddleware")

    return StructuredTool(
        name=tool.name,
        description=tool.description,
        args_schema=dict(tool.parameters),
        func=refuse,
    )


def describe_tool(tool: LangChainTool) -> ToolForm:
    """Return name, description and schema of a tool, as LangChain shows them to a model."""
    function = convert_to_openai_tool(tool)["function"]
    return ToolForm(
        function["name"], function.get("description", ""), function["parameters"]
    )


# ---------------------------------------------------------------------- messages


def messages_of(state: Any) -> Sequence[AnyMessage]:
    """Return the messages of a graph's state, which may be a list of them."""
    messages: Sequence[AnyMessage] = (
        state["messages"] if isinstance(state, Mapping) else state
    )
    return messages


def as_call(asked: Mapping[str, Any], messages: Sequence[AnyMessage]) -> ToolCall:
    """Return a call of the last answer; one whose JSON LangChain could not read holds its text."""
    arguments = asked["args"]
    text = arguments if isinstance(arguments, str) else json.dumps(arguments)
    answers = [each for each in messages if isinstance(each, AIMessage)]
    earlier = (str(call["id"]) for each in answers[:-1] for call in each.tool_calls)
    call_id = make_unique(str(asked["id"] or ""), earlier)
    return ToolCall(call_id, asked["name"] or "", text or "")


def finish_of(answer: AIMessage) -> Finish:
    """Return how an answer ended, as far as calls are concerned."""
    metadata = answer.response_metadata
    reason = metadata.get("finish_reason") or metadata.get("stop_reason")
    return "length" if reason in CUT else "calls"


def as_message(result: ToolResult, call_id: str) -> ToolMessage:
    """Return what the model reads."""
    return ToolMessage(
        result.text,
        name=result.name,
        tool_call_id=call_id,
        status="success" if result.ok else "error",
        additional_kwargs={"ends_run": result.ends_run} if result.ends_run else {},
    )


def ending_of(messages: Sequence[AnyMessage]) -> str:
    """Return why the run must end, as the last results say; empty if it goes on."""
    for message in reversed(messages):
        if not isinstance(message, ToolMessage):
            break
        if reason := message.additional_kwargs.get("ends_run"):
            return str(reason)
    return ""


class ToolBody:
    """The body of an adopted tool's call: what LangChain would have done with it."""

    reply: Any = None

    def __init__(self, request: Any, handler: Callable[[Any], Any]) -> None:
        self.request = request
        self.handler = handler

    def __call__(self, arguments: dict[str, Any]) -> Any:
        """Call the tool; return its content."""
        return self.take(self.handler(self.request_with(arguments)))

    def request_with(self, arguments: dict[str, Any]) -> Any:
        """Return the request with the arguments that were admitted."""
        return self.request.override(
            tool_call={**self.request.tool_call, "args": arguments}
        )

    def take(self, reply: Any) -> Any:
        """Keep what the tool returned; return its content."""
        self.reply = reply
        if not isinstance(reply, ToolMessage):
            return "done"
        if reply.status == "error":
            raise ToolError("TOOL_ERROR", str(reply.content))
        return reply.content

    def as_reply(self, result: ToolResult) -> ToolMessage | Command[Any]:
        """Return what goes back into the graph: the tool's own command, or a message."""
        if isinstance(self.reply, Command) and result.ok:
            return self.reply
        message = as_message(result, self.request.tool_call["id"])
        if isinstance(self.reply, ToolMessage):
            message.artifact = self.reply.artifact
        return message


class AsyncBody(ToolBody):
    """A body that is awaited."""

    async def __call__(self, arguments: dict[str, Any]) -> Any:
        """Call the tool; return its content."""
        return self.take(await self.handler(self.request_with(arguments)))


# ---------------------------------------------------------------------- reviews


DECISIONS = ("approve", "edit", "reject")
"""What a person is offered."""


def describe_review(questions: Sequence[ApprovalRequest]) -> dict[str, Any]:
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
            {"action_name": each.tool, "allowed_decisions": list(DECISIONS)}
            for each in questions
        ],
        "handrail": [describe_question(each) for each in questions],
    }


def read_review(
    answer: object,
    questions: Sequence[ApprovalRequest],
    stood: Sequence[ApprovalRequest],
) -> dict[str, Approval]:
    """Return the decisions of an answer that are meant for these questions, by call.

    A decision that names no question counts only if one question was ever asked about its call, and was open before
    the answer. So a decision on a tool that has changed since, or for another node, is not applied. The graph is
    interrupted again for a question without a decision.
    """
    decisions = None
    if isinstance(answer, Mapping):
        decisions = answer.get("decisions", [answer])
    if not isinstance(decisions, list) or len(decisions) != len(questions):
        return {}
    words = {}
    for question, decision in zip(questions, decisions, strict=True):
        word = _read_decision(decision, question)
        if word is None:
            continue
        asked = [each.id for each in stood if each.call_id == question.call_id]
        named = word.question or (asked[0] if len(asked) == 1 else "")
        if named == question.id and named in asked:
            words[question.call_id] = replace(word, question=named)
    return words


def _read_decision(decision: object, question: ApprovalRequest) -> Approval | None:
    """Return a decision as a word; None of anything but those that were offered, for nobody has agreed to it."""
    if not isinstance(decision, Mapping):
        return None
    kind = decision.get("type")
    edited = decision.get("edited_action")
    if kind not in DECISIONS or (kind == "edit") != isinstance(edited, Mapping):
        return None
    arguments = None
    if isinstance(edited, Mapping):
        arguments = edited.get("args")
        is_of_tool = edited.get("name", question.tool) == question.tool
        if not (is_of_tool and isinstance(arguments, Mapping)):
            return None
    return Approval(
        kind != "reject",
        by=decision.get("by", ""),
        reason=decision.get("message", ""),
        arguments=arguments,
        question=decision.get("question", ""),
    )
