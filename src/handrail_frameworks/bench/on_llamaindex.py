"""The scenarios on LlamaIndex's `FunctionAgent`; an agent is run again where others resume."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Iterator, Sequence
from typing import Any

from llama_index.core.agent.workflow import FunctionAgent
from llama_index.core.base.llms.types import (
    ChatMessage,
    ChatResponse,
    LLMMetadata,
    MessageRole,
)
from llama_index.core.llms.function_calling import FunctionCallingLLM
from llama_index.core.llms.llm import ToolSelection
from llama_index.core.tools import FunctionTool

from handrail.errors import ConfigError
from handrail.runtime import Runtime
from handrail_frameworks.bench.asking import answer_question
from handrail_frameworks.bench.play import Case
from handrail_frameworks.bench.scenarios import ScriptedTurn, Talk, turn_after

MOST_TURNS = 30


class ScriptedFunctionLLM(FunctionCallingLLM):
    """Answers with the turns of a script, and stores the tools' results."""

    script: Sequence[ScriptedTurn] = ()
    turns: int = 0
    texts: list[str] = []  # noqa: RUF012  # pydantic copies it

    @property
    def metadata(self) -> LLMMetadata:
        """What the model can do."""
        return LLMMetadata(is_function_calling_model=True, model_name="scripted")

    def _prepare_chat_with_tools(
        self,
        *_: Any,
        chat_history: list[ChatMessage] | None = None,
        **__: Any,
    ) -> dict[str, Any]:
        return {"messages": chat_history or []}

    def chat(self, messages: Sequence[ChatMessage], *_: Any, **__: Any) -> ChatResponse:
        """Return the turn after those in the messages."""
        ids = [
            call[0]
            for each in messages
            for call in each.additional_kwargs.get("calls", ())
        ]
        self.texts = [
            str(each.content) for each in messages if each.role == MessageRole.TOOL
        ]
        self.turns += 1
        turn = turn_after(self.script, ids)
        message = ChatMessage(
            role=MessageRole.ASSISTANT,
            content=turn.text,
            additional_kwargs={"calls": list(turn.calls)},
        )
        return ChatResponse(message=message)

    def get_tool_calls_from_response(
        self, response: ChatResponse, *_: Any, **__: Any
    ) -> list[ToolSelection]:
        """Return the calls of an answer, as the integrations do: what is no JSON becomes no arguments."""
        return [
            ToolSelection(tool_id=id, tool_name=name, tool_kwargs=_arguments(text))
            for id, name, text in response.message.additional_kwargs["calls"]
        ]

    async def achat(
        self, messages: Sequence[ChatMessage], *_: Any, **__: Any
    ) -> ChatResponse:
        """Return the next turn."""
        return self.chat(messages)

    def stream_chat(
        self, messages: Sequence[ChatMessage], *_: Any, **__: Any
    ) -> Iterator[ChatResponse]:
        """Yield the next turn in one piece."""
        yield self.chat(messages)

    async def astream_chat(
        self, messages: Sequence[ChatMessage], *_: Any, **__: Any
    ) -> AsyncIterator[ChatResponse]:
        """Return a stream of the next turn, which is one piece."""

        async def stream() -> AsyncIterator[ChatResponse]:
            yield self.chat(messages)

        return stream()

    def complete(self, *_: Any, **__: Any) -> Any:
        """Refuse: a script has turns of a conversation."""
        raise ConfigError("a scripted model answers messages, not a prompt")

    stream_complete = complete

    async def acomplete(self, *_: Any, **__: Any) -> Any:
        """Refuse: a script has turns of a conversation."""
        self.complete()

    astream_complete = acomplete


def _arguments(text: str) -> dict[str, Any]:
    try:
        value = json.loads(text)
    except ValueError:
        return {}
    return value if isinstance(value, dict) else {}


def play(case: Case) -> Talk:
    """Carry out a step."""
    runtime = None
    if case.how == "handrail":
        runtime = case.make_runtime()
        answer_question(case, runtime)
    return asyncio.run(_play(case, runtime))


async def _play(case: Case, runtime: Runtime | None) -> Talk:
    model = ScriptedFunctionLLM(script=case.scenario.script)
    agent: FunctionAgent
    if runtime is not None:
        from handrail_frameworks.llamaindex import HandrailFunctionAgent, as_tools

        tools: list[Any] = list(as_tools(runtime, run=case.run))
        agent = HandrailFunctionAgent(tools=tools, llm=model, streaming=False)
    else:
        tools = [
            FunctionTool.from_defaults(fn, description=text)
            for fn, text in case.functions()
        ]
        agent = FunctionAgent(tools=tools, llm=model, streaming=False)
    error = ""
    try:
        await agent.run(user_msg="Do it.", max_iterations=MOST_TURNS)
    except Exception as failure:
        error = type(failure).__name__
    if runtime is not None:
        await runtime.close()
    return Talk(texts=model.texts, error=error, turns=model.turns)
