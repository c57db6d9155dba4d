"""handrail under AutoGen: a workbench through which every call of its tools goes.

    agent = AssistantAgent("clerk", model_client=client, workbench=HandrailWorkbench(runtime, run="thread-1"))

The application names the run, and a saved state keeps its name; the calls have the model's ids. A call that needs a
person is answered with APPROVAL_PENDING: answer its question by `runtime.approvals`, and run the agent again.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from typing import Any

from autogen_core import CancellationToken
from autogen_core.tools import (
    ParametersSchema,
    TextResultContent,
    ToolResult,
    ToolSchema,
    Workbench,
)
from pydantic import BaseModel

from handrail.runtime import Runtime
from handrail_frameworks.shared import Options, perform_async
from handrail_frameworks.unnamed import Calls

LOGGER = logging.getLogger("handrail")


class HandrailWorkbench(Workbench):
    """The tools of a runtime.

    Args:
        run: Names the conversation.
        options: Returns options of `Runtime.calls` from the name of the tool, such as `scope` and `turn`.
    """

    component_config_schema = BaseModel

    def __init__(
        self, runtime: Runtime, *, run: str, options: Options | None = None
    ) -> None:
        self.runtime = runtime
        self.run = run
        self._options = options

    async def list_tools(self) -> list[ToolSchema]:
        """Return the tools that the model may be shown now."""
        how = Calls(self.run, self._options).settings("")
        offered = self.runtime.offered(
            how["run"], scope=how.get("scope"), policy=how.get("policy")
        )
        return [
            ToolSchema(
                name=tool.name,
                description=tool.description,
                parameters=ParametersSchema(
                    type="object",
                    properties=dict(tool.parameters.get("properties", {})),
                    required=list(tool.parameters.get("required", ())),
                ),
            )
            for tool in offered
        ]

    async def call_tool(
        self,
        name: str,
        arguments: Mapping[str, Any] | None = None,
        cancellation_token: CancellationToken | None = None,
        call_id: str | None = None,
    ) -> ToolResult:
        """Carry out one call. Never raises: `AssistantAgent` would wait for ever."""
        calls = Calls(self.run, self._options)
        steps = calls.carry_out(name, arguments or {}, call_id=call_id or "")
        task = asyncio.ensure_future(perform_async(steps, self.runtime))
        if cancellation_token is not None:
            cancellation_token.link_future(task)
        try:
            result = await task
        except Exception as error:
            LOGGER.exception("cannot carry out a call of %r", name)
            text = f"The call could not be made: {type(error).__name__}."
            return _reply(name, text, is_error=True)
        return _reply(name, result.text, is_error=not result.ok)

    async def start(self) -> None:
        """Do nothing: the runtime is the application's."""

    async def stop(self) -> None:
        """Do nothing: the runtime is the application's."""

    async def reset(self) -> None:
        """Do nothing: what was done stays done."""

    async def save_state(self) -> Mapping[str, Any]:
        """Return the name of the run."""
        return {"run": self.run}

    async def load_state(self, state: Mapping[str, Any]) -> None:
        """Go on with the run of a saved state."""
        self.run = str(state["run"])


def _reply(name: str, text: str, *, is_error: bool) -> ToolResult:
    return ToolResult(
        name=name, result=[TextResultContent(content=text)], is_error=is_error
    )
