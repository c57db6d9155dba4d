"""handrail under LangChain agents and LangGraph: a middleware through which every call of its tools goes.

    agent = create_agent(model, middleware=[HandrailMiddleware(runtime)], checkpointer=saver)

The thread is the run. The last question is the turn, within which budget and circles count.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any

from langchain.agents.middleware import AgentMiddleware, hook_config
from langchain_core.messages import AIMessage, AnyMessage, HumanMessage
from langchain_core.tools import BaseTool as LangChainTool
from langchain_core.tools import tool as as_langchain_tool
from langgraph.config import get_config, get_stream_writer
from langgraph.errors import GraphBubbleUp
from langgraph.runtime import get_runtime
from langgraph.types import interrupt

from handrail.calls import ToolCall, ToolResult
from handrail.runtime import Runtime
from handrail_frameworks.adopting import give_bodies
from handrail_frameworks.langchain_forms import (
    AsyncBody,
    ToolBody,
    as_call,
    as_message,
    as_shell,
    describe_review,
    describe_tool,
    ending_of,
    finish_of,
    messages_of,
    read_review,
)
from handrail_frameworks.shared import (
    Declarations,
    Options,
    Steps,
    adopt_tools,
    hand_over,
    is_adopted,
    list_questions,
    perform,
    perform_async,
    report_progress,
)


class HandrailMiddleware(AgentMiddleware[Any, Any, Any]):
    """Gives an agent the tools of a runtime, and carries out their calls through it.

    Args:
        tools: Tools of the agent that stay LangChain's and that handrail adopts.
        declare: Declarations for them, by name.
        options: Returns options of `Runtime.calls` from the `RunnableConfig` of the graph's run.
        whole_turns: Carry out the calls of an answer together, in `after_model`: those on one resource then run in the
            model's order, in whatever order LangGraph starts them, and a person reviews them together. The node `tools`
            and the `wrap_tool_call` of other middlewares do not see them. Adopted tools are called one by one anyway.

    Raises:
        ConfigError: A declaration is for none of `tools`.
    """

    def __init__(
        self,
        runtime: Runtime,
        *,
        tools: Iterable[LangChainTool | Callable[..., Any]] = (),
        declare: Declarations | None = None,
        options: Options | None = None,
        whole_turns: bool = False,
    ) -> None:
        super().__init__()
        self.runtime = runtime
        exported = [
            as_shell(tool) for tool in runtime.offered() if not is_adopted(tool)
        ]
        adopted = [
            each if isinstance(each, LangChainTool) else as_langchain_tool(each)
            for each in tools
        ]
        adopt_tools(runtime, map(describe_tool, adopted), declare or {})
        self.tools = [*exported, *adopted]
        self._names = {tool.name for tool in self.tools}
        self._adopted = {tool.name for tool in adopted}
        self._in_turn = {tool.name for tool in exported} if whole_turns else set()
        self._options = options

    # ------------------------------------------------------------------ what LangChain calls

    def wrap_model_call(self, request: Any, handler: Callable[[Any], Any]) -> Any:
        """Show the model those of the tools that it may use now, or end the run in its place."""
        if reason := ending_of(request.messages):
            return AIMessage(reason)
        return handler(request.override(tools=self._visible(request)))

    async def awrap_model_call(
        self, request: Any, handler: Callable[[Any], Any]
    ) -> Any:
        """See `wrap_model_call`."""
        if reason := ending_of(request.messages):
            return AIMessage(reason)
        return await handler(request.override(tools=self._visible(request)))

    def wrap_tool_call(self, request: Any, handler: Callable[[Any], Any]) -> Any:
        """Carry out one call, in the calling thread."""
        if not self._is_ours(request):
            return handler(request)
        return perform(
            self._call(request, ToolBody(request, handler)), self.runtime.blocking
        )

    async def awrap_tool_call(self, request: Any, handler: Callable[[Any], Any]) -> Any:
        """Carry out one call, on the event loop."""
        if not self._is_ours(request):
            return await handler(request)
        body = AsyncBody(request, handler)
        return await perform_async(self._call(request, body), self.runtime)

    @hook_config(can_jump_to=["model"])
    def after_model(self, state: Any, runtime: Any) -> dict[str, Any] | None:
        """Carry out what must not reach the node `tools`: broken and cut calls, and whole turns."""
        return perform(self._answer(state["messages"]), self.runtime.blocking)

    @hook_config(can_jump_to=["model"])
    async def aafter_model(self, state: Any, runtime: Any) -> dict[str, Any] | None:
        """See `after_model`."""
        return await perform_async(self._answer(state["messages"]), self.runtime)

    # ------------------------------------------------------------------ calls

    def _visible(self, request: Any) -> list[Any]:
        how = self._how(request.messages)
        offered = self.runtime.offered(
            how["run"], scope=how.get("scope"), policy=how.get("policy")
        ).by_name
        return [
            tool
            for tool in request.tools
            if isinstance(tool, dict)
            or tool.name in offered
            or tool.name not in self._names
        ]

    def _is_ours(self, request: Any) -> bool:
        # a name that no tool has is refused with the nearest one
        return request.tool is None or request.tool_call["name"] in self._names

    def _call(self, request: Any, body: ToolBody) -> Steps[Any]:
        messages = messages_of(request.state)
        call = as_call(request.tool_call, messages)
        how = self._how(messages)
        if call.name in self._adopted:
            how["inject"] = give_bodies({call.id: body}, how.get("inject"))
        (result,) = yield from self._perform([call], how)
        return body.as_reply(result)

    def _answer(self, messages: Sequence[AnyMessage]) -> Steps[dict[str, Any] | None]:
        last = messages[-1]
        if not isinstance(last, AIMessage):
            return None
        finish = finish_of(last)
        broken = [
            each for each in last.invalid_tool_calls if each["name"] in self._names
        ]
        takes = self._names if finish != "calls" else self._in_turn
        asked = [each for each in last.tool_calls if each["name"] in takes]
        everything: list[Any] = [*asked, *broken]
        if not everything:
            return None
        calls = [as_call(each, messages) for each in everything]
        how = {**self._how(messages), "finish": finish}
        results = yield from self._perform(calls, how)
        pairs = zip(results, everything, strict=True)
        update: dict[str, Any] = {
            "messages": [as_message(result, each["id"]) for result, each in pairs]
        }
        if len(asked) == len(last.tool_calls):
            update["jump_to"] = "model"
        return update

    def _perform(
        self, calls: Sequence[ToolCall], how: dict[str, Any]
    ) -> Steps[list[ToolResult]]:
        """Carry out calls; where a person must agree, interrupt the graph until somebody has answered."""
        stood = yield from list_questions(self.runtime, calls, how)
        results: list[ToolResult] = yield partial(hand_over, calls=calls, how=how)
        while waiting := [each.question for each in results if each.question]:
            words = read_review(interrupt(describe_review(waiting)), waiting, stood)
            again = [call for call in calls if call.id in words]
            answered = yield partial(
                hand_over, calls=again, how={**how, "words": words}
            )
            by_id = {each.call_id: each for each in answered}
            results = [by_id.get(each.call_id, each) for each in results]
        return results

    def _how(self, messages: Sequence[AnyMessage]) -> dict[str, Any]:
        config = get_config()
        asked = [each.id for each in messages if isinstance(each, HumanMessage)]
        turn = str(asked[-1]) if asked else ""
        return {
            "run": config.get("configurable", {}).get("thread_id") or turn,
            "turn": turn,
            "deps": get_runtime().context,
            "observers": [report_progress(get_stream_writer())],
            "passes": (GraphBubbleUp,),
            **(self._options(config) if self._options else {}),
        }
