"""ReAct for models that were never trained on tools: a form that the prompt explains, read leniently.

    Thought: I must look that up.
    Action: get_weather
    Action Input: {"city": "Paris"}
    Observation: 21 °C
    Thought: I know it now.
    Final Answer: It is 21 °C in Paris.

The conversation is written in ChatML, which most small models were trained on; for others, replace the wraps of the
template. The server stops the model at `Observation:`, which is ours to write.

Rule 1: the words of the form are no control tokens, yet a model takes them for its own. A result that holds
        `Final Answer:` can still mislead it; what it cannot do is to forge a turn, or a call, which are read from the
        answer alone.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from msgspec.structs import replace

from handrail.dialects import ToolLike, writing
from handrail.messages import Finish, Turn
from handrail.ports import Described
from handrail_openmodels.prompts import hermes, reader
from handrail_openmodels.prompts.chat_template import (
    Opening,
    PromptHead,
    Template,
    as_json,
)
from handrail_openmodels.prompts.dialect import PromptDialect, PromptStream
from handrail_openmodels.prompts.named_calls import NamedCalls
from handrail_openmodels.prompts.reader import Reasoning, Syntax

_REQUEST = (
    "Answer as well as you can. You have these tools, each with the JSON Schema of its input:\n\n"
    "{tools}\n\n"
    "Use this form, and stop after an action's input:\n\n"
    "Thought: think about what to do\n"
    "Action: the name of one tool, one of {names}\n"
    "Action Input: the tool's input as a JSON object\n"
    "Observation: the tool's result\n"
    "... (Thought, Action, Action Input and Observation may be repeated)\n"
    "Thought: I know the final answer\n"
    "Final Answer: the answer to the question"
)


def _head(opening: Opening) -> PromptHead:
    tools = "\n".join(
        f"{tool.name}: {tool.description} {as_json(tool.parameters)}"
        for tool in opening.tools
    )
    names = ", ".join(tool.name for tool in opening.tools)
    if tools:
        request = _REQUEST.replace("{names}", names).replace("{tools}", tools)
    else:
        request = None
    texts = [part for part in (opening.system, request) if part is not None]
    return PromptHead("\n\n".join(texts).join(hermes.SYSTEM) if texts else "")


SYNTAX: Final = Syntax(
    formats=(NamedCalls("Action:", ("\nAction Input:",)),),
    reasoning=Reasoning(
        "Thought:",
        "Final Answer:",
        ended_by=("Action:",),
        after=" ",
        layout=(" ", "\n"),
    ),
    ends=("Observation:", "<|im_end|>", "<|endoftext|>"),
    others=("<|im_start|>",),
)
TEMPLATE: Final = Template(
    _head,
    hermes.USER,
    hermes.ASSISTANT,
    result=("Observation: ", ""),
    results=hermes.USER,
    between="\n",
    system=hermes.SYSTEM,
    single=True,
    opens="Thought:",
)


class ReAct(PromptDialect, frozen=True):
    """ReAct's form: beyond a syntax and a template it knows that an answer is a thought and one thing after it."""

    def encode_answer(self, turn: Turn, tools: Sequence[Described] = ()) -> str:
        """Return an answer; text beside a call is the thought before it. See `PromptDialect.encode_answer`."""
        if not turn.calls:
            if turn.reasoning:
                thought = f"Thought: {turn.reasoning}\n"
            else:
                thought = ""
            return f"{thought}Final Answer: {turn.text}"
        thought = " ".join(each for each in (turn.reasoning, turn.text) if each)
        steps = [
            f"Action: {call.name}\nAction Input: {call.arguments}"
            for call in turn.calls
        ]
        return "\n".join([f"Thought: {thought}", *steps] if thought else steps)

    def stream(
        self, tools: Iterable[ToolLike] | None = None, *, opened: str = ""
    ) -> PromptStream:
        """Return a reader for one answer; see `PromptDialect.stream`."""
        names = writing.name_map(tools, self.names)
        return _ReActStream(
            reader.make_reader(
                self.syntax, writing.as_collection(tools), opened=opened
            ),
            names,
        )


class _ReActStream(PromptStream):
    def close(self, finish: Finish | None = None) -> Turn:
        # A weak model forgets `Final Answer:`. Its thought is then all that it says, and better than an empty answer.
        turn = super().close(finish)
        if turn.text or turn.calls:
            return turn
        return replace(turn, text=turn.reasoning)


DIALECTS: Final[Mapping[str, PromptDialect]] = {
    "react": ReAct("react", SYNTAX, TEMPLATE)
}
