"""The scenarios on DSPy's `ReAct`, which makes one call in a turn; a module is called again where others resume."""

from __future__ import annotations

import re
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import dspy

from handrail_frameworks.bench.asking import answer_question
from handrail_frameworks.bench.play import Case
from handrail_frameworks.bench.scenarios import ScriptedTurn, Talk

MOST_TURNS = 30


class ScriptedLM(dspy.LM):
    """Answers with the calls of a script, one in a turn."""

    def __init__(self, script: Sequence[ScriptedTurn]) -> None:
        super().__init__("openai/scripted", api_key="none", cache=False, num_retries=0)
        self.script = [call for turn in script for call in turn.calls]
        self.turns = 0

    def forward(
        self, prompt: Any = None, messages: Any = None, **_: Any
    ) -> SimpleNamespace:
        """Return the call after those that were made."""
        asked = str(messages[-1]["content"])
        if "next_tool_name" not in asked:
            return _answer(reasoning="Done.", answer="Done.")
        done = len(re.findall(r"\[\[ ## observation_\d+ ## \]\]", asked))
        self.turns += 1
        if done >= len(self.script):
            return _answer(
                next_thought="Done.", next_tool_name="finish", next_tool_args="{}"
            )
        name, text = self.script[done][1:]
        return _answer(next_thought="Go.", next_tool_name=name, next_tool_args=text)


def _answer(**fields: str) -> SimpleNamespace:
    parts = [f"[[ ## {name} ## ]]\n{text}" for name, text in fields.items()]
    message = SimpleNamespace(
        content="\n\n".join([*parts, "[[ ## completed ## ]]"]), tool_calls=None
    )
    choice = SimpleNamespace(message=message, finish_reason="stop")
    return SimpleNamespace(choices=[choice], usage={}, model="scripted")


def play(case: Case) -> Talk:
    """Carry out a step."""
    runtime = None
    if case.how == "handrail":
        from handrail_frameworks.dspy import as_tools

        runtime = case.make_runtime()
        answer_question(case, runtime)
        tools = list(as_tools(runtime, run=case.run))
    else:
        tools = [dspy.Tool(fn, desc=text) for fn, text in case.functions()]
    model = ScriptedLM(case.scenario.script)
    talk = Talk()
    try:
        with dspy.context(lm=model):
            react = dspy.ReAct("question -> answer", tools, max_iters=MOST_TURNS)
            steps = react(question="Do it.").trajectory
        talk.texts = [str(steps[name]) for name in steps if "observation" in name]
    except Exception as failure:
        talk.error = type(failure).__name__
    if runtime is not None:
        runtime.blocking.close()
    talk.turns = model.turns
    return talk
