"""handrail under the OpenAI Agents SDK: tools whose every call goes through a runtime.

    agent = Agent(name="shop", tools=as_function_tools(runtime, run=lambda ctx: ctx.context.session_id))

The SDK tells a tool neither its session nor its run, so the application says which conversation a call belongs to.
"""

from __future__ import annotations

import inspect
import json
import weakref
from collections.abc import Callable, Iterable
from dataclasses import replace
from functools import partial
from typing import Any

from agents import FunctionTool, RunContextWrapper
from agents.exceptions import AgentsException
from agents.tool_context import ToolContext

from handrail.calls import ToolCall
from handrail.effects import Approval
from handrail.runtime import Runtime
from handrail.tools.tool import BaseTool
from handrail_frameworks.adopting import give_bodies
from handrail_frameworks.shared import (
    Declarations,
    Options,
    ToolForm,
    adopt_tools,
    is_adopted,
    may_ask,
)

RunOf = Callable[[RunContextWrapper[Any]], str]


def as_function_tools(
    runtime: Runtime,
    *,
    run: str | RunOf,
    tools: Iterable[FunctionTool] = (),
    declare: Declarations | None = None,
    options: Options | None = None,
) -> list[FunctionTool]:
    """Return the tools of a runtime as tools of an agent.

    Args:
        run: Names the conversation: a text, or a function of the run's context.
        tools: Tools of the agent that stay the SDK's and that handrail adopts.
        declare: Declarations for them, by name.
        options: Returns options of `Runtime.calls` from the run's context, such as `turn`.

    Raises:
        ConfigError: A declaration is for none of `tools`.
    """
    adopted = {tool.name: tool for tool in tools}
    forms = [
        ToolForm(each.name, each.description, each.params_json_schema)
        for each in adopted.values()
    ]
    adopt_tools(runtime, forms, declare or {})
    calls = _Calls(runtime, run, options)
    exported = [
        calls.export(tool) for tool in runtime.offered() if not is_adopted(tool)
    ]
    return [*exported, *map(calls.guard, adopted.values())]


class _Calls:
    """Carries out the calls of an agent's tools."""

    def __init__(
        self, runtime: Runtime, run: str | RunOf, options: Options | None
    ) -> None:
        self.runtime = runtime
        self._run = run
        self._options = options
        self._endings: list[tuple[weakref.ref[Any], str]] = []

    def export(self, tool: BaseTool) -> FunctionTool:
        """Return a tool of handrail as one of the SDK."""
        return FunctionTool(
            name=tool.name,
            description=tool.description,
            params_json_schema=dict(tool.parameters),
            on_invoke_tool=partial(self._invoke, tool.name, None),
            strict_json_schema=False,
            needs_approval=self._asking(tool.name),
            is_enabled=partial(self._is_enabled, tool.name, True),
        )

    def guard(self, tool: FunctionTool) -> FunctionTool:
        """Return a tool of the SDK whose calls handrail carries out."""
        return replace(
            tool,
            on_invoke_tool=partial(self._invoke, tool.name, tool),
            needs_approval=self._asking(tool.name),
            is_enabled=partial(self._is_enabled, tool.name, tool.is_enabled),
        )

    def _asking(self, name: str) -> Any:
        return partial(self._asks, name) if may_ask(self.runtime, name) else False

    async def _asks(
        self,
        name: str,
        ctx: RunContextWrapper[Any],
        arguments: dict[str, Any],
        call_id: str,
    ) -> bool:
        """Whether a person must agree; the question is stored, so that a word can answer it."""
        how = {key: each for key, each in self._how(ctx).items() if key != "turn"}
        how["inject"] = give_bodies({}, how.get("inject"))
        preview = await self.runtime.preview(name, arguments, call_id=call_id, **how)
        return preview.decision == "ask"

    async def _is_enabled(
        self, name: str, given: Any, ctx: RunContextWrapper[Any], agent: Any
    ) -> bool:
        """End the run if it must end, and deny here what a person has denied there; return what the tool says.

        The SDK asks this before each of the model's turns; a call that a person has denied is not invoked.

        Raises:
            AgentsException: The run must end: the model turned in a circle, or the budget is used up.
        """
        for of_run, reason in self._endings:
            if of_run() is ctx.usage:
                raise AgentsException(reason)
        if may_ask(self.runtime, name):
            how = self._how(ctx)
            queue = self.runtime.approvals.for_scope(how.get("scope"))
            for question in await queue.list(run=how["run"]):
                if ctx.is_tool_approved(name, question.call_id) is False:
                    reason = ctx.get_rejection_message(name, question.call_id) or ""
                    await queue.deny(question.id, by="openai-agents", reason=reason)
        enabled = given(ctx, agent) if callable(given) else given
        return bool(await enabled if inspect.isawaitable(enabled) else enabled)

    async def _invoke(
        self,
        name: str,
        inner: FunctionTool | None,
        ctx: ToolContext[Any],
        arguments: str,
    ) -> str:
        """Carry out one call; return what the model reads."""
        how = self._how(ctx)
        call = ToolCall(ctx.tool_call_id, name, arguments)
        if ctx.is_tool_approved(name, call.id):
            how["words"] = {call.id: Approval(True, by="openai-agents")}
        if inner is not None:
            body = partial(_call_inner, inner, ctx)
            how["inject"] = give_bodies({call.id: body}, how.get("inject"))
        is_cut = ctx.tool_call is not None and ctx.tool_call.status == "incomplete"
        (result,) = await self.runtime.calls(
            [call], finish="length" if is_cut else "calls", **how
        )
        if result.ends_run:
            self._note_ending(ctx, result.ends_run)
        return result.text

    def _note_ending(self, ctx: ToolContext[Any], reason: str) -> None:
        """Let a run end before the model's next turn: an exception now would cancel the other calls of this one."""
        alive = [each for each in self._endings if each[0]() is not None]
        # every context of a run shares the object that counts its tokens
        self._endings = [*alive, (weakref.ref(ctx.usage), reason)]

    def _how(self, ctx: RunContextWrapper[Any]) -> dict[str, Any]:
        run = self._run if isinstance(self._run, str) else self._run(ctx)
        return {
            "run": run,
            "deps": ctx.context,
            **(self._options(ctx) if self._options else {}),
        }


async def _call_inner(
    inner: FunctionTool, ctx: ToolContext[Any], arguments: dict[str, Any]
) -> Any:
    return await inner.on_invoke_tool(ctx, json.dumps(arguments))
