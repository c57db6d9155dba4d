"""handrail under DSPy: tools whose every call goes through a runtime.

    react = dspy.ReAct("question -> answer", tools=as_tools(runtime, run="thread-1"))

DSPy tells a tool neither its conversation nor its call, so the application names the run. A call that needs a person is
answered with APPROVAL_PENDING: answer its question by `runtime.approvals`, and call the module again.

DSPy repairs the model's text before a tool sees it: arguments that were cut off look whole.
"""

from __future__ import annotations

from typing import Any

import dspy

from handrail.runtime import Runtime
from handrail.tools.tool import BaseTool
from handrail_frameworks.shared import Options, perform, perform_async
from handrail_frameworks.unnamed import Calls


def as_tools(
    runtime: Runtime,
    *,
    run: str,
    is_async: bool = False,
    options: Options | None = None,
) -> list[dspy.Tool]:
    """Return the tools of a runtime as tools of a module.

    Args:
        run: Names the conversation.
        is_async: For `acall`. A module that is called plainly takes no async tool.
        options: Returns options of `Runtime.calls` from the name of the tool, such as `scope` and `turn`; it may also
            return `run`, where modules are shared.
    """
    calls = Calls(run, options)
    return [_as_tool(runtime, calls, tool, is_async) for tool in runtime.offered()]


def _as_tool(
    runtime: Runtime, calls: Calls, tool: BaseTool, is_async: bool
) -> dspy.Tool:
    def call(**arguments: Any) -> str:
        steps = calls.carry_out(tool.name, arguments)
        return perform(steps, runtime.blocking).text

    async def call_async(**arguments: Any) -> str:
        steps = calls.carry_out(tool.name, arguments)
        return (await perform_async(steps, runtime)).text

    return dspy.Tool(
        call_async if is_async else call,
        name=tool.name,
        desc=tool.description,
        args=_describe_arguments(tool),
        arg_types={},
    )


def _describe_arguments(tool: BaseTool) -> dict[str, Any]:
    """Return the schemas of the arguments, as choices of one: DSPy would check those that have a plain type."""
    required = tool.parameters.get("required", ())
    return {
        name: {
            "anyOf": [schema],
            **({} if name in required else {"default": None}),
        }
        for name, schema in tool.parameters.get("properties", {}).items()
    }
