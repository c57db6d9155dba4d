"""handrail under Inspect: tools of an evaluation whose every call goes through a runtime.

    Task(dataset=..., solver=[use_tools(as_tools(runtime)), generate()])

The sample is the run, unless the application names one; the calls have the model's ids. A call that needs a person is
answered with APPROVAL_PENDING: answer its question by `runtime.approvals`, and run the sample again. Inspect's own
approvers decide before handrail sees a call.

Inspect parses the arguments and checks them before a tool sees them.
"""

from __future__ import annotations

from typing import Any

from inspect_ai.event import ToolEvent
from inspect_ai.log import transcript
from inspect_ai.solver._task_state import sample_state  # which no public name gives
from inspect_ai.tool import Tool, ToolDef, ToolError, ToolParam, ToolParams

from handrail.errors import ConfigError
from handrail.runtime import Runtime
from handrail.tools.tool import BaseTool
from handrail_frameworks.shared import LoopEnded, Options, perform_async
from handrail_frameworks.unnamed import Calls


def as_tools(
    runtime: Runtime, *, run: str = "", options: Options | None = None
) -> list[Tool]:
    """Return the tools of a runtime as tools of a task.

    Writes are called one after the other, in the model's order; reads that stand together, side by side.

    Args:
        run: Names the conversation; by default it is the sample by its uuid, which is new when an evaluation is
            retried.
        options: Returns options of `Runtime.calls` from the name of the tool, such as `scope` and `turn`; it may also
            return `run`.
    """
    return [_as_tool(runtime, tool, run, options) for tool in runtime.offered()]


def _as_tool(
    runtime: Runtime, tool: BaseTool, run: str, options: Options | None
) -> Tool:
    async def call(**kwargs: Any) -> str:
        # Read before anything is awaited: the last event is that of this call.
        call_id = _find_call_id(tool.name)
        calls = Calls(run or _find_sample(tool.name), options)
        steps = calls.carry_out(tool.name, kwargs, call_id=call_id)
        result = await perform_async(steps, runtime)
        if result.ends_run:
            raise LoopEnded(result.ends_run)
        if not result.ok:
            raise ToolError(result.text)
        return result.text

    call.__annotations__ = {"kwargs": Any, "return": str}  # Inspect reads types
    definition = ToolDef(
        call,
        name=tool.name,
        description=tool.description,
        parameters=_describe_parameters(tool),
        parallel=not tool.writes,
        max_output=0,  # handrail has cut what is too long, and keeps the rest
    )
    return definition.as_tool()


def _describe_parameters(tool: BaseTool) -> ToolParams:
    properties = tool.parameters.get("properties", {})
    return ToolParams(
        properties={
            # Inspect refuses a parameter without a description
            name: ToolParam.model_validate({"description": name, **schema})
            for name, schema in properties.items()
        },
        required=list(tool.parameters.get("required", ())),
    )


def _find_call_id(tool: str) -> str:
    """Return the id of the call that begins now; empty where the transcript does not have it."""
    event = transcript().history.last_event
    is_ours = isinstance(event, ToolEvent) and event.pending and event.function == tool
    return event.id if is_ours else ""


def _find_sample(tool: str) -> str:
    state = sample_state()
    if state is None:
        raise ConfigError(
            f"{tool!r} was called outside of a sample: name the conversation, `as_tools(runtime, run=...)`"
        )
    return str(state.uuid)
