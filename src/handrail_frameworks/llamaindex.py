"""handrail under LlamaIndex: tools whose every call goes through a runtime.

    agent = HandrailFunctionAgent(tools=as_tools(runtime, run="thread-1"), llm=llm)

The application names the run. `HandrailFunctionAgent` is a `FunctionAgent` that gives the calls the model's ids, and
ends its run where a call closes a circle or the budget is used up; under other agents each call gets an id of its own.
A call that needs a person is answered with APPROVAL_PENDING: answer its question by `runtime.approvals`, and run it
again.
"""

from __future__ import annotations

import json
from contextvars import ContextVar
from typing import Any
from uuid import uuid4

from llama_index.core.agent.workflow import (
    FunctionAgent,
    ToolCall,
    ToolCallResult,
)
from llama_index.core.tools import AsyncBaseTool, ToolMetadata, ToolOutput
from llama_index.core.workflow import Context, step

from handrail.calls import ToolCall as Call
from handrail.calls import ToolResult
from handrail.errors import HandrailError
from handrail.runtime import Runtime
from handrail.tools.tool import BaseTool
from handrail_frameworks.shared import (
    Options,
    Steps,
    hand_over,
    make_unique,
    perform,
    perform_async,
)

CALL_ID: ContextVar[str] = ContextVar("handrail_call_id", default="")


class LoopEnded(HandrailError):
    """The agent's loop must end: the model turns in a circle, or the budget is used up."""


def as_tools(
    runtime: Runtime, *, run: str, options: Options | None = None
) -> list[AsyncBaseTool]:
    """Return the tools of a runtime as tools of an agent.

    Args:
        run: Names the conversation.
        options: Returns options of `Runtime.calls` from the name of the tool, such as `scope` and `turn`; it may also
            return `run`, where agents are shared.
    """
    return [
        HandrailAsyncTool(runtime, tool, run=run, options=options)
        for tool in runtime.offered()
    ]


class Metadata(ToolMetadata):
    """What a model sees of a tool."""

    def __init__(self, tool: BaseTool) -> None:
        super().__init__(description=tool.description, name=tool.name, fn_schema=None)
        self._parameters = {"type": "object", "properties": {}, **tool.parameters}

    def get_parameters_dict(self) -> dict[str, Any]:
        """Return the schema of the arguments."""
        return self._parameters

    @property
    def fn_schema_str(self) -> str:
        """The schema of the arguments, as text."""
        return json.dumps(self._parameters, ensure_ascii=False)


class HandrailAsyncTool(AsyncBaseTool):
    """A tool of a runtime, as one of LlamaIndex."""

    def __init__(
        self, runtime: Runtime, tool: BaseTool, *, run: str, options: Options | None
    ) -> None:
        self._runtime = runtime
        self._run = run
        self._options = options
        self._metadata = Metadata(tool)
        self._name = tool.name

    @property
    def metadata(self) -> ToolMetadata:
        """What a model sees of it."""
        return self._metadata

    # Without positional arguments: `calling.call_tool` tries them first, and then calls again by name.
    def call(self, **arguments: Any) -> ToolOutput:
        """Carry out one call, in the calling thread."""
        result = perform(self._carry_out(arguments), self._runtime.blocking)
        return self._reply(result, arguments)

    async def acall(self, **arguments: Any) -> ToolOutput:
        """Carry out one call, on the event loop."""
        result = await perform_async(self._carry_out(arguments), self._runtime)
        return self._reply(result, arguments)

    def _carry_out(self, arguments: dict[str, Any]) -> Steps[ToolResult]:
        """Carry out one call; its result may be a question.

        Without an id of the model's the call gets a new one, so its run and arguments, or the key that its tool
        declares, identify a repeated write.
        """
        call_id = CALL_ID.get() or f"call_{uuid4().hex}"
        call = Call(call_id, self._name, json.dumps(arguments))
        options = self._options(self._name) if self._options else {}
        how = {"run": self._run, **options}
        (result,) = yield lambda runtime: hand_over(runtime, [call], how)
        return result  # type: ignore[no-any-return]

    def _reply(self, result: ToolResult, arguments: dict[str, Any]) -> ToolOutput:
        return ToolOutput(
            content=result.text,
            tool_name=self._name,
            raw_input=arguments,
            raw_output=result,
            is_error=not result.ok,
        )


class HandrailFunctionAgent(FunctionAgent):
    """A `FunctionAgent` whose calls keep the model's ids."""

    @step
    async def call_tool(self, ctx: Context, ev: ToolCall) -> ToolCallResult:
        """Carry out one call.

        Raises:
            LoopEnded: The model turns in a circle, or the budget is used up.
        """
        earlier = await ctx.store.get("current_tool_calls", default=[])
        unique = make_unique(ev.tool_id, (each.tool_id for each in earlier))
        token = CALL_ID.set(unique)
        try:
            event = await super().call_tool(ctx, ev)
        finally:
            CALL_ID.reset(token)
        result = event.tool_output.raw_output
        if isinstance(result, ToolResult):
            if result.ends_run:
                raise LoopEnded(result.ends_run)
            # What travels in events can be saved with the context.
            event.tool_output.raw_output = result.text
        return event
