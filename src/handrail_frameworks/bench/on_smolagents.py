"""The scenarios on smolagents' `ToolCallingAgent`, which keeps nothing of a run that ended."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from smolagents import ToolCallingAgent, tool
from smolagents.memory import ActionStep
from smolagents.models import (
    ChatMessage,
    ChatMessageToolCall,
    ChatMessageToolCallFunction,
    MessageRole,
    Model,
)

from handrail_frameworks.bench.asking import answer_question
from handrail_frameworks.bench.play import Case
from handrail_frameworks.bench.scenarios import ScriptedTurn, Talk

MOST_STEPS = 30


class ScriptedSmolModel(Model):
    """Answers with the turns of a script."""

    def __init__(self, script: Sequence[ScriptedTurn]) -> None:
        super().__init__(model_id="scripted")
        self.script = script
        self.turns = 0

    def generate(self, *_: Any, **__: Any) -> ChatMessage:
        """Return the next turn."""
        turn = self.script[min(self.turns, len(self.script) - 1)]
        self.turns += 1
        end = [("end", "final_answer", json.dumps({"answer": turn.text}))]
        calls = [
            ChatMessageToolCall(
                id=id,
                type="function",
                function=ChatMessageToolCallFunction(name=name, arguments=text),
            )
            for id, name, text in turn.calls or end
        ]
        return ChatMessage(role=MessageRole.ASSISTANT, content="", tool_calls=calls)


def play(case: Case) -> Talk:
    """Carry out a step. For a person's decision the task starts again, since no agent waits."""
    model = ScriptedSmolModel(case.scenario.script)
    agent: ToolCallingAgent
    error = ""
    if case.how == "handrail":
        from handrail_frameworks.smolagents import HandrailAgent

        runtime = case.make_runtime()
        answer_question(case, runtime)
        settings: dict[str, Any] = {"model": model, "max_steps": MOST_STEPS}
        agent = HandrailAgent(runtime, run=case.run, verbosity_level=0, **settings)
    else:
        runtime = None
        tools = [tool(fn) for fn, _ in case.functions()]
        agent = ToolCallingAgent(tools, model, max_steps=MOST_STEPS, verbosity_level=0)
    try:
        agent.run("Do it.")
    except Exception as failure:
        error = type(failure).__name__
    finally:
        if runtime is not None:
            runtime.blocking.close()
    steps = [each for each in agent.memory.steps if isinstance(each, ActionStep)]
    texts = [f"{each.observations or ''} {each.error or ''}" for each in steps]
    return Talk(texts=texts, turns=model.turns, error=error)
