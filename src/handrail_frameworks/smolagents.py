"""handrail under smolagents: an agent whose turns of calls go through a runtime, whole.

    agent = HandrailAgent(runtime, run="thread-1", model=model)

smolagents names neither its run nor a conversation, so the application does. It has no pause for a person: a call that
needs one tells the model so, and runs when the model asks again after somebody approved it in `runtime.approvals`.
"""

from __future__ import annotations

import json
from collections.abc import Generator, Mapping
from typing import Any
from uuid import uuid4

from smolagents import Tool, ToolCallingAgent
from smolagents.agents import ToolOutput
from smolagents.memory import ActionStep, ToolCall
from smolagents.models import ChatMessage

from handrail.calls import ToolCall as Call
from handrail.calls import ToolResult
from handrail.runtime import Runtime
from handrail.tools.tool import BaseTool

FINAL = "final_answer"


class HandrailAgent(ToolCallingAgent):
    """A `ToolCallingAgent` with the tools of a runtime, beside `final_answer`.

    Args:
        run: Names the conversation.
        options: Options of `Runtime.calls`, such as `scope` and `principal`.
        settings: As for `ToolCallingAgent`; its own tools and agents cannot stand beside those of a runtime.
    """

    def __init__(
        self,
        runtime: Runtime,
        *,
        run: str,
        options: Mapping[str, Any] | None = None,
        **settings: Any,
    ) -> None:
        self.runtime = runtime
        self._run = run
        self._options = dict(options or {})
        self._turn = ""
        super().__init__([_as_shell(tool) for tool in runtime.offered()], **settings)

    def run(self, *task: Any, **settings: Any) -> Any:
        """Do a task, as `ToolCallingAgent.run` does; budget and circles count within it."""
        self._turn = uuid4().hex
        return super().run(*task, **settings)

    def process_tool_calls(
        self, chat_message: ChatMessage, memory_step: ActionStep
    ) -> Generator[ToolCall | ToolOutput, None, None]:
        """Carry out the calls of an answer together, in the model's order on each resource.

        Raises:
            RuntimeError: The run must end: the model turns in a circle, or the budget is used up.
        """
        asked = [
            ToolCall(each.function.name, each.function.arguments, each.id)
            for each in chat_message.tool_calls or ()
        ]
        yield from asked
        ours = [each for each in asked if each.name != FINAL]
        results = self._perform(ours)
        memory_step.tool_calls = asked
        memory_step.observations = "\n".join(each.text for each in results)
        for each, result in zip(ours, results, strict=True):
            yield ToolOutput(each.id, result.text, False, result.text, each)
        for result in results:
            if result.ends_run:
                raise RuntimeError(result.ends_run)
        for each in asked:
            if each.name == FINAL:
                answer = self.execute_tool_call(each.name, each.arguments)
                yield ToolOutput(each.id, answer, True, str(answer), each)

    def _perform(self, asked: list[ToolCall]) -> list[ToolResult]:
        calls = [Call(each.id, each.name, _text(each.arguments)) for each in asked]
        how = {"turn": self._turn, **self._options}
        return self.runtime.blocking.calls(calls, run=self._run, **how)


def _text(arguments: Any) -> str:
    return arguments if isinstance(arguments, str) else json.dumps(arguments)


def _as_shell(tool: BaseTool) -> Tool:
    """Return what an agent shows its model of a tool; it runs only through the agent's turns."""
    parameters = tool.parameters
    required = parameters.get("required", [])

    def forward(self: Tool, **_: Any) -> None:
        raise RuntimeError(f"{self.name} runs only through HandrailAgent")

    attributes = {
        "name": tool.name,
        "description": tool.description,
        "output_type": "string",
        "skip_forward_signature_validation": True,
        "inputs": {
            name: _as_input(name, form, name in required)
            for name, form in parameters.get("properties", {}).items()
        },
        "forward": forward,
    }
    shell: Tool = type("Shell", (Tool,), attributes)()
    return shell


def _as_input(name: str, form: Any, is_required: bool) -> dict[str, Any]:
    described = {"description": name, "type": "any", **form}
    return {**described, "nullable": not is_required}
