"""A model without any sense: random scores over a small vocabulary, held to a grammar by its mask."""

from __future__ import annotations

import random
from dataclasses import dataclass
from functools import cache

import numpy

from handrail.parsing import jsontext
from handrail.tools.function_tool import FunctionTool
from handrail_openmodels.grammars import grammar
from tests.support.corpus import rows

MERGES = [
    "the ",
    "\n\n",
    "北京",
    "天气",
    "```",
    "```json\n",
    "Action:",
    "Final Answer:",
    "true",
    "null",
    "123",
]
CLOSERS = [
    "]<]minimax[>[<",
    "]<]minimax[>[</",
    '",',
    '", ',
    '"}',
    '"}}',
    '"}\n',
    "',",
    "', ",
    "')",
    "')]",
    "'}",
    '"]',
    "']",
]
MOST_TOKENS = 3_000


class Vocabulary:
    """256 bytes, a few merges, the marks of a family, and an end."""

    def __init__(self, family) -> None:
        channels = family.syntax.channels
        marks = {*family.tokens, *MERGES, *CLOSERS, "</parameter>", "\n</parameter>"}
        if channels:
            marks.add(channels.ends[0] + channels.starts)
        self.tokens = [bytes([byte]) for byte in range(256)]
        self.tokens += sorted(mark.encode() for mark in marks if len(mark) > 1)
        self.tokens.append(b"<end>")
        self.eos_token_id = len(self.tokens) - 1
        self.special_token_ids = [self.eos_token_id]


def write_answer(mask, vocabulary, seed: int) -> str | None:
    """Return what the random model writes, or None where it does not come to an end."""
    chance = numpy.random.default_rng(seed)
    prompt = [65, 66]
    ids = list(prompt)
    mask.reset()
    while len(ids) < MOST_TOKENS:
        scores = chance.random(len(vocabulary.tokens), dtype=numpy.float32)
        scores = mask(numpy.array(ids), scores)
        chosen = int(scores.argmax())
        if chosen == vocabulary.eos_token_id:
            written = b"".join(vocabulary.tokens[id] for id in ids[len(prompt) :])
            return written.decode()
        ids.append(chosen)
    return None


def take(**arguments: object) -> str:
    return "done"


@cache
def corpus_tools(many: int = 200) -> list[FunctionTool]:
    tools: dict[str, FunctionTool] = {}
    for row in rows("mcp_tools/tools.jsonl"):
        if row["name"] in tools:
            continue
        tools[row["name"]] = FunctionTool(
            take,
            name=row["name"],
            description=row["description"] or "",
            parameters=row["input_schema"],
        )
        if len(tools) == many:
            break
    return list(tools.values())


def problem_of(call, tools) -> str:
    """Return what is wrong with a call: nothing, where its tool takes it as it is."""
    tool = next((each for each in tools if each.name == call.name), None)
    if tool is None:
        return "no such tool"
    parsed = jsontext.parse(call.arguments)
    if not hasattr(parsed, "value"):
        return f"no JSON: {parsed.message}"
    checked = tool.checker.check(parsed.value)
    if not hasattr(checked, "arguments"):
        return checked.message
    return ", ".join([*parsed.repairs, *checked.repairs])


def pick_tools(family, seed: int) -> list[FunctionTool]:
    """Return a few tools that a grammar can say in full."""
    some = random.Random(seed).sample(corpus_tools(), 8)
    lossy = {sentence.partition(":")[0] for sentence in grammar(some, family).lossy}
    places = {place.partition(".")[0] for place in lossy}
    return [tool for tool in some if tool.name not in places and tool.name not in lossy]


@dataclass(frozen=True)
class Trial:
    """What a random model wrote under one choice of tools: how many calls, and what is wrong with them."""

    choice: str
    parallel: bool
    calls: int
    problems: tuple[str, ...]


CHOICES = ("auto", "required", "named", "none")


def try_answer(family, vocabulary: Vocabulary, seed: int) -> Trial | None:
    """Let a random model write one answer; None where it does not come to an end.

    Eight seeds in a row are every choice of tools, with several calls an answer and with one.
    """
    kind = CHOICES[seed % 4]
    parallel = seed // 4 % 2 == 0
    tools = pick_tools(family, seed)
    choice = tools[0].name if kind == "named" else kind
    made = grammar(tools, family, tool_choice=choice, parallel=parallel)
    text = write_answer(made.mask(vocabulary), vocabulary, seed)
    if text is None:
        return None
    calls = family.decode(text, tools, opened=made.opened).calls
    problems = [each for each in (problem_of(call, tools) for call in calls) if each]
    if not calls and kind in ("required", "named"):
        problems.append("no call")
    if calls and kind == "none":
        problems.append("a call where none may be")
    if kind == "named" and {call.name for call in calls} - {choice}:
        problems.append("a call of another tool")
    if len(calls) > 1 and not parallel:
        problems.append("several calls")
    return Trial(kind, parallel, len(calls), tuple(problems))
