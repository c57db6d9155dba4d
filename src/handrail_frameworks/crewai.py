"""handrail under CrewAI: tools whose every call goes through a runtime.

    agent = Agent(role="clerk", goal="...", backstory="...", tools=as_tools(runtime, run="thread-1"))

CrewAI tells a tool neither its crew nor its call, so the application names the run. A call that needs a person is
answered with APPROVAL_PENDING: answer its question by `runtime.approvals`, and start the crew again.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import Any

from crewai.tools import BaseTool as CrewTool
from crewai.tools.tool_failure import ToolFailure, ToolFailurePolicy
from pydantic import BaseModel, ConfigDict, PrivateAttr

from handrail.calls import ToolResult
from handrail.runtime import Runtime
from handrail.tools.tool import BaseTool
from handrail_frameworks.shared import Options, perform, perform_async
from handrail_frameworks.unnamed import Calls


def as_tools(
    runtime: Runtime, *, run: str, options: Options | None = None
) -> list[CrewTool]:
    """Return the tools of a runtime as tools of an agent.

    Args:
        run: Names the conversation.
        options: Returns options of `Runtime.calls` from the name of the tool, such as `scope` and `turn`; it may also
            return `run`, where agents are shared.
    """
    calls = Calls(run, options)
    return [_as_tool(runtime, calls, tool) for tool in runtime.offered()]


class HandrailTool(CrewTool):
    """A tool of a runtime, as one of CrewAI."""

    _runtime: Runtime = PrivateAttr()
    _calls: Calls = PrivateAttr()
    _required: frozenset[str] = PrivateAttr()

    def _run(self, **arguments: Any) -> Any:
        steps = self._calls.carry_out(self.name, self._drop_nulls(arguments))
        return _reply(perform(steps, self._runtime.blocking))

    async def _arun(self, **arguments: Any) -> Any:
        steps = self._calls.carry_out(self.name, self._drop_nulls(arguments))
        return _reply(await perform_async(steps, self._runtime))

    def _drop_nulls(self, arguments: Mapping[str, Any]) -> dict[str, Any]:
        # CrewAI tells the model that every parameter is required, so it writes null for those it leaves out.
        return {
            name: value
            for name, value in arguments.items()
            if value is not None or name in self._required
        }


def _as_tool(runtime: Runtime, calls: Calls, tool: BaseTool) -> CrewTool:
    made = HandrailTool(
        name=tool.name,
        description=tool.description,
        args_schema=_as_model(tool),
        # An earlier result may be out of date; the ledger answers repeated writes.
        cache_function=_never,
        # Only the end of the run is a failure to CrewAI, see `_reply`.
        tool_failure_policy=ToolFailurePolicy.RAISE,
        # A limit, even one that is never reached, has CrewAI call the tools of a turn in the model's order.
        max_usage_count=sys.maxsize if tool.resource else None,
    )
    made._runtime = runtime
    made._calls = calls
    made._required = frozenset(tool.parameters.get("required", ()))
    return made


def _never(*_: Any) -> bool:
    return False


def _as_model(tool: BaseTool) -> type[BaseModel]:
    """Return a model that describes the parameters and takes any: CrewAI's own would convert them unseen."""
    schema = {"properties": {}, **tool.parameters}

    class Arguments(BaseModel):
        model_config = ConfigDict(extra="allow", protected_namespaces=())

        @classmethod
        def model_json_schema(cls, *_: Any, **__: Any) -> dict[str, Any]:
            return schema

    Arguments.__name__ = tool.name
    return Arguments


def _reply(result: ToolResult) -> Any:
    """Return what the model reads; a failure ends the crew, because the run must end."""
    return ToolFailure(message=result.ends_run) if result.ends_run else result.text
