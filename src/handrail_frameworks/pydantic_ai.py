"""handrail under pydantic-ai: a toolset through which every call of its tools goes.

    agent = Agent(model, toolsets=[HandrailToolset(runtime)], output_type=[str, DeferredToolRequests])

The conversation is the run; a run of the agent is the turn, within which budget and circles count.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

from pydantic_ai import RunContext
from pydantic_ai.exceptions import (
    AgentRunError,
    ApprovalRequired,
    CallDeferred,
    ModelRetry,
    ToolFailed,
)
from pydantic_ai.messages import (
    ModelRequest,
    ModelResponse,
    ToolCallPart,
    ToolReturn,
    ToolReturnPart,
)
from pydantic_ai.tools import ToolDefinition
from pydantic_ai.toolsets import AbstractToolset, WrapperToolset
from pydantic_ai.toolsets.abstract import ToolsetTool

from handrail.calls import ToolCall, ToolResult
from handrail.effects import Approval
from handrail.runtime import Runtime
from handrail_frameworks.adopting import give_bodies
from handrail_frameworks.pydantic_ai_events import ProgressStream
from handrail_frameworks.shared import (
    Declarations,
    Options,
    ToolForm,
    adopt_tools,
    describe_question,
    is_adopted,
    make_unique,
)

TEXT = "\0text"
"""The one argument by which the model's text reaches `call_tool`."""

ENDS = "handrail_ends_run"
"""The key under which a result says in its metadata why the run must end."""


class AsWritten:
    """Passes arguments on as the model wrote them: handrail validates them."""

    def validate_json(self, input: str | bytes | bytearray, **_: Any) -> dict[str, str]:
        """Return the text."""
        return {TEXT: input if isinstance(input, str) else input.decode()}

    def validate_python(self, input: Any, **_: Any) -> dict[str, str]:
        """Return the arguments as text."""
        return {TEXT: json.dumps(input)}


class NoTools(AbstractToolset[Any]):
    """A toolset without tools: an empty `FunctionToolset` would cost a fifth of each step."""

    @property
    def id(self) -> None:
        """Has no name."""
        return

    async def get_tools(self, ctx: RunContext[Any]) -> dict[str, ToolsetTool[Any]]:
        """Return nothing."""
        return {}

    async def call_tool(self, name: str, *_: Any) -> Any:
        """Refuse: there is nothing to call.

        Raises:
            KeyError: Always.
        """
        raise KeyError(name)


@dataclass(kw_only=True)
class GuardedTool(ToolsetTool[Any]):
    """A tool whose calls handrail carries out; `inner` is the tool of the wrapped toolset, if it is adopted."""

    inner: ToolsetTool[Any] | None = None


@dataclass
class HandrailToolset(WrapperToolset[Any]):
    """Gives an agent the tools of a runtime, and carries out their calls through it.

    Args:
        wrapped: A toolset whose tools stay pydantic-ai's and that handrail adopts.
        declare: Declarations for them, by name.
        options: Returns options of `Runtime.calls` from the `RunContext`.
        name: The toolset's id, which durable execution asks for.
    """

    wrapped: AbstractToolset[Any] = field(default_factory=NoTools, kw_only=True)
    runtime: Runtime
    declare: Declarations = field(default_factory=dict, kw_only=True)
    options: Options | None = field(default=None, kw_only=True)
    name: str = field(default="handrail", kw_only=True)
    _adopted: dict[str, ToolDefinition] = field(
        default_factory=dict, kw_only=True, repr=False
    )

    @property
    def id(self) -> str:
        """Its name within the agent."""
        return self.name

    async def get_tools(self, ctx: RunContext[Any]) -> dict[str, ToolsetTool[Any]]:
        """Return the tools that the model may be shown now.

        Raises:
            AgentRunError: The run must end: the model turned in a circle, or the budget is used up.
        """
        _check_ending(ctx)
        how = self._how(ctx)
        await self._close_denied(ctx, how)
        theirs = await self.wrapped.get_tools(ctx)
        self._adopt({name: tool.tool_def for name, tool in theirs.items()})
        tools: dict[str, ToolsetTool[Any]] = {}
        for tool in self.runtime.offered(
            how["run"], scope=how.get("scope"), policy=how.get("policy")
        ):
            inner = theirs.get(tool.name)
            if is_adopted(tool) == (inner is not None):
                definition = ToolDefinition(
                    name=tool.name,
                    description=tool.description,
                    parameters_json_schema=dict(tool.parameters),
                )
                tools[tool.name] = GuardedTool(
                    toolset=self,
                    max_retries=inner.max_retries if inner else 0,
                    args_validator=AsWritten(),
                    tool_def=inner.tool_def if inner else definition,
                    inner=inner,
                )
        return tools

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
        """
        how = self._how(ctx)
        progress = ProgressStream(ctx)
        how["observers"] = [*how.get("observers", ()), progress.observe]
        text = tool_args[TEXT] if TEXT in tool_args else json.dumps(tool_args)
        call = ToolCall(_call_id(ctx, ctx.tool_call_id or ""), name, text)
        if ctx.tool_call_approved:
            call, word = _read_word(call, ctx)
            how["words"] = {call.id: word}
        replies: list[Any] = []
        if isinstance(tool, GuardedTool) and tool.inner is not None:
            body = partial(self._call_inner, name, ctx, tool.inner, replies)
            how["inject"] = give_bodies({call.id: body}, how.get("inject"))
        answer = _last_answer(ctx)
        is_cut = answer is not None and answer.finish_reason == "length"
        (result,) = await self.runtime.calls(
            [call], finish="length" if is_cut else "calls", **how
        )
        await progress.drain()
        return _reply(result, replies)

    async def _call_inner(
        self,
        name: str,
        ctx: RunContext[Any],
        inner: ToolsetTool[Any],
        replies: list[Any],
        arguments: dict[str, Any],
    ) -> Any:
        """Call a tool of the wrapped toolset, as pydantic-ai would have."""
        validated = inner.args_validator.validate_python(arguments)
        reply = await self.wrapped.call_tool(name, validated, ctx, inner)
        replies.append(reply)
        return reply.return_value if isinstance(reply, ToolReturn) else reply

    def _how(self, ctx: RunContext[Any]) -> dict[str, Any]:
        return {
            "run": ctx.conversation_id or ctx.run_id or "",
            "turn": ctx.run_id or "",
            "deps": ctx.deps,
            "passes": (ApprovalRequired, CallDeferred, ModelRetry),
            **(self.options(ctx) if self.options else {}),
        }

    def _adopt(self, definitions: Mapping[str, ToolDefinition]) -> None:
        new = {
            name: each
            for name, each in definitions.items()
            if self._adopted.get(name) != each
        }
        if not new and self._adopted:
            return
        forms = [
            ToolForm(each.name, each.description or "", each.parameters_json_schema)
            for each in new.values()
        ]
        declare = self.declare
        if self._adopted:
            declare = {name: each for name, each in declare.items() if name in new}
        adopt_tools(self.runtime, forms, declare)
        self._adopted.update(new)

    async def _close_denied(self, ctx: RunContext[Any], how: dict[str, Any]) -> None:
        """Deny here what a person has denied there: such a call does not come to `call_tool`."""
        last = ctx.messages[-1] if ctx.messages else None
        denied = {
            _call_id(ctx, part.tool_call_id): part.model_response_str()
            for part in (last.parts if isinstance(last, ModelRequest) else ())
            if isinstance(part, ToolReturnPart) and part.outcome == "denied"
        }
        if not denied:
            return
        queue = self.runtime.approvals.for_scope(how.get("scope"))
        for question in await queue.list(run=how["run"]):
            if question.call_id in denied:
                reason = denied[question.call_id]
                await queue.deny(question.id, by="pydantic-ai", reason=reason)


def _check_ending(ctx: RunContext[Any]) -> None:
    """End the run at its next step, once every call of the turn has its result."""
    last = ctx.messages[-1] if ctx.messages else None
    for part in last.parts if isinstance(last, ModelRequest) else ():
        metadata = part.metadata if isinstance(part, ToolReturnPart) else None
        if isinstance(metadata, Mapping) and ENDS in metadata:
            raise AgentRunError(metadata[ENDS])


def _last_answer(ctx: RunContext[Any]) -> ModelResponse | None:
    answers = (
        each for each in reversed(ctx.messages) if isinstance(each, ModelResponse)
    )
    return next(answers, None)


def _call_id(ctx: RunContext[Any], call_id: str) -> str:
    answers = [each for each in ctx.messages if isinstance(each, ModelResponse)]
    earlier = (part.tool_call_id for each in answers[:-1] for part in each.tool_calls)
    return make_unique(call_id, earlier)


def _read_word(call: ToolCall, ctx: RunContext[Any]) -> tuple[ToolCall, Approval]:
    """Return the call as the model made it, and the word on it: other arguments than the model's are an edit."""
    answer = _last_answer(ctx)
    parts = answer.tool_calls if answer else ()
    asked = next(
        (part for part in parts if part.tool_call_id == ctx.tool_call_id), None
    )
    metadata = ctx.tool_call_metadata or {}
    edited = None
    if asked is not None and _arguments(asked) != json.loads(call.arguments):
        edited = json.loads(call.arguments)
        call = ToolCall(call.id, call.name, asked.args_as_json_str())
    word = Approval(
        True,
        by=metadata.get("by", ""),
        question=metadata.get("question", ""),
        arguments=edited,
    )
    return call, word


def _arguments(asked: ToolCallPart) -> Any:
    try:
        return json.loads(asked.args_as_json_str())
    except ValueError:
        return None


def _reply(result: ToolResult, replies: list[Any]) -> Any:
    """Return what pydantic-ai goes on with, and raise what it hears by exceptions."""
    if result.question is not None:
        raise ApprovalRequired(metadata=describe_question(result.question))
    if result.ends_run:
        # Not an exception yet: it would cancel the other calls of the turn, in the middle of what they do.
        return ToolReturn(result.text, metadata={ENDS: result.ends_run})
    if not result.ok:
        raise ToolFailed(result.text)
    if replies and isinstance(replies[-1], ToolReturn):
        return replace(replies[-1], return_value=result.text)
    return result.text
