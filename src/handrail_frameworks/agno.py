"""handrail under agno: functions of an agent whose every call goes through a runtime.

    agent = Agent(model=model, tools=as_functions(runtime), db=db)
    output = await agent.arun("Pay for A-1.", session_id="thread-1")
    for question in await asyncio.to_thread(review, runtime, output):
        ...  # show it to a person; then confirm or reject its requirement

The session is the run; a run of the agent is the turn, within which budget and circles count. agno asks about a tool
whatever its arguments: `review` keeps handrail's question, and confirms what nobody needs to be asked about.
"""

from __future__ import annotations

import json
from typing import Any

from agno.exceptions import StopAgentRun
from agno.models.response import ToolExecution
from agno.run.agent import RunOutput
from agno.tools.function import Function

from handrail.calls import ToolCall
from handrail.effects import Approval
from handrail.errors import ConfigError
from handrail.records import ApprovalRequest
from handrail.runtime import Runtime
from handrail.tools.tool import BaseTool
from handrail_frameworks import shared
from handrail_frameworks.shared import Options, Steps


def as_functions(
    runtime: Runtime, *, is_async: bool = True, options: Options | None = None
) -> list[Function]:
    """Return the tools of a runtime as functions of an agent.

    Args:
        is_async: For `Agent.arun`. False for `Agent.run`, which takes no async function.
        options: Returns options of `Runtime.calls` from agno's `RunContext`.
    """
    shown = runtime.offered()
    return [_as_function(runtime, tool, is_async, options) for tool in shown]


def review(
    runtime: Runtime, output: RunOutput, *, options: Options | None = None
) -> list[ApprovalRequest]:
    """Return what a person must be asked about a run that agno holds; call it before anybody is asked.

    It confirms the requirements that need no person, and denies the questions whose requirements were rejected. It
    blocks while the store works. `options` is as for `as_functions`, but gets the `RunOutput`.
    """
    how = _how(output, options)
    del how["turn"]
    questions = []
    for requirement in output.requirements or ():
        held = requirement.tool_execution
        if held is None or runtime.tools.get(held.tool_name or "") is None:
            continue
        if held.confirmed is False:
            _deny(runtime, held, how)
        elif requirement.needs_confirmation:
            how["call_id"] = held.tool_call_id or ""
            preview = runtime.blocking.preview(held.tool_name, held.tool_args, **how)
            if preview.question is not None:
                questions.append(preview.question)
            elif preview.decision != "ask":
                requirement.confirm()  # it runs, or its result says why not
    return questions


def _deny(runtime: Runtime, held: ToolExecution, how: dict[str, Any]) -> None:
    queue = runtime.blocking.approvals.for_scope(how.get("scope"))
    for question in queue.list(run=how["run"]):
        if question.call_id == held.tool_call_id:
            queue.deny(question.id, by="agno", reason=held.confirmation_note or "")


def _as_function(
    runtime: Runtime, tool: BaseTool, is_async: bool, options: Options | None
) -> Function:
    if "fc" in tool.parameters.get("properties", {}):
        raise ConfigError(f"agno cannot call {tool.name!r}: rename its parameter `fc`")
    asks = shared.may_ask(runtime, tool.name)

    def call(fc: Any, context: Any, arguments: dict[str, Any]) -> Steps[str]:
        asked = ToolCall(fc.call_id or "", tool.name, json.dumps(arguments))
        how = _how(context, options)
        if asks:
            # Whoever confirmed decides a question that was open before, and no other.
            how["words"] = {asked.id: Approval(True, by="agno")}
        (result,) = yield lambda runtime: runtime.calls([asked], **how)
        if result.ends_run:
            raise StopAgentRun(result.ends_run)
        return str(result.text)

    async def run_async(fc: Any, _agno_run_context: Any, **arguments: Any) -> str:
        steps = call(fc, _agno_run_context, arguments)
        return await shared.perform_async(steps, runtime)

    def run(fc: Any, _agno_run_context: Any, **arguments: Any) -> str:
        return shared.perform(call(fc, _agno_run_context, arguments), runtime.blocking)

    return Function(
        name=tool.name,
        description=tool.description,
        parameters=dict(tool.parameters),
        entrypoint=run_async if is_async else run,
        skip_entrypoint_processing=True,
        requires_confirmation=asks,
    )


def _how(context: Any, options: Options | None) -> dict[str, Any]:
    return {
        "run": context.session_id or context.run_id,
        "turn": context.run_id or "",
        "deps": getattr(context, "dependencies", None),
        **(options(context) if options else {}),
    }
