"""The scenarios on CrewAI; a crew is started again where others resume."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

from handrail_frameworks.bench.asking import answer_question
from handrail_frameworks.bench.play import Case
from handrail_frameworks.bench.scenarios import FOLDER, ScriptedTurn, Talk, turn_after

os.environ["CREWAI_DISABLE_TELEMETRY"] = "true"
os.environ["CREWAI_TRACING_ENABLED"] = "false"
os.environ.setdefault("CREWAI_STORAGE_DIR", os.environ.get(FOLDER, ""))

from crewai import Agent, BaseLLM
from crewai.tools import tool as as_crew_tool

MOST_TURNS = 30


class ScriptedLLM(BaseLLM):
    """Answers with the turns of a script, and stores the tools' results."""

    script: Sequence[ScriptedTurn] = ()
    turns: int = 0
    texts: list[str] = []  # noqa: RUF012  # pydantic copies it

    def supports_function_calling(self) -> bool:
        """Return that calls come as calls."""
        return True

    def call(self, messages: Any, *_: Any, **__: Any) -> Any:
        """Return the turn after those in the messages."""
        history = [] if isinstance(messages, str) else messages
        calls = [call for each in history for call in each.get("tool_calls") or ()]
        results = [each["content"] for each in history if each["role"] == "tool"]
        self.texts = [str(each) for each in results]
        self.turns += 1
        turn = turn_after(self.script, [str(call["id"]) for call in calls])
        if not turn.calls:
            return turn.text
        return [
            {
                "id": id,
                "type": "function",
                "function": {"name": name, "arguments": text},
            }
            for id, name, text in turn.calls
        ]


def play(case: Case) -> Talk:
    """Carry out a step."""
    model = ScriptedLLM(model="scripted", script=case.scenario.script)
    runtime = None
    tools: list[Any] = []
    if case.how == "handrail":
        from handrail_frameworks.crewai import as_tools

        runtime = case.make_runtime()
        answer_question(case, runtime)
        tools = list(as_tools(runtime, run=case.run))
    else:
        tools = [as_crew_tool(fn) for fn, _ in case.functions()]
    agent = Agent(
        role="clerk",
        goal="Serve.",
        backstory="A shop.",
        llm=model,
        tools=tools,
        max_iter=MOST_TURNS,
    )
    error = ""
    try:
        agent.kickoff("Do it.")
    except Exception as failure:
        error = type(failure).__name__
    if runtime is not None:
        runtime.blocking.close()
    return Talk(texts=model.texts, error=error, turns=model.turns)
