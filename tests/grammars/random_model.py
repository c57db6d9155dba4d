"""A model without any sense: random scores over a small vocabulary, held to a grammar by its mask."""

from __future__ import annotations

from functools import cache

import numpy

from handrail.parsing import jsontext
from handrail.tools.function_tool import FunctionTool
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
CLOSERS = ['",', '", ', '"}', '"}}', '"}\n', "',", "', ", "')", "')]", "'}", '"]', "']"]
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
    random = numpy.random.default_rng(seed)
    prompt = [65, 66]
    ids = list(prompt)
    mask.reset()
    while len(ids) < MOST_TOKENS:
        scores = random.random(len(vocabulary.tokens), dtype=numpy.float32)
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
