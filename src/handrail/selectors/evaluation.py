"""How well tools are found, on questions of one's own: by strategy, and against the number of tools.

A small catalogue is drawn from the tools for a few questions at a time: what these want, filled up with others by a
seeded draw. Every question is asked once at every size, so that sizes compare.

Rule 1: the same tools, questions and seed give the same report, whatever the machine.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from random import Random
from typing import Any, TypeAlias

from msgspec import Struct

from handrail.errors import ConfigError, Json
from handrail.messages import AssistantMessage
from handrail.ports import Ranking
from handrail.runs import Run
from handrail.tools import keys
from handrail.tools.function_tool import FunctionTool
from handrail.tools.tool import BaseTool
from handrail.tools.toolset import Toolset

KS = (1, 3, 5, 10)
"""How many hits are looked at."""

Rank: TypeAlias = Callable[[Sequence[BaseTool]], Ranking]


class Question(Struct, frozen=True):
    """What somebody asks, the tools that it wants, and the exact calls, if given: (name, arguments)."""

    query: str
    tools: frozenset[str]
    calls: Sequence[tuple[str, Mapping[str, Json]]] = ()


class Point(Struct, frozen=True):
    """How one strategy does among `size` tools: the share of the wanted ones that are among the first k."""

    strategy: str
    size: int
    recall: Mapping[int, float]

    def as_json(self) -> dict[str, Json]:
        """Return the point for `--json`."""
        return {
            "strategy": self.strategy,
            "size": self.size,
            "recall": {str(k): round(share, 4) for k, share in self.recall.items()},
        }


class QuestionResult(Struct, frozen=True):
    """What a model called for one question: whether these were the wanted tools, and the wanted calls exactly."""

    query: str
    called: Sequence[str]
    right_tools: bool
    right_calls: bool | None
    input_tokens: int


def parse_question(row: Json, number: int) -> Question:
    """Read one line of a file of questions: `{"query": ..., "tools": [names]}`, or `calls` in place of `tools`.

    Raises:
        ConfigError: It is no question.
    """
    try:
        calls = [
            (str(call["name"]), dict(call.get("arguments") or {}))
            for call in row.get("calls") or ()
        ]
        wanted = frozenset(map(str, row.get("tools") or [name for name, _ in calls]))
        query = row["query"]
    except (TypeError, ValueError, LookupError, AttributeError) as error:
        raise ConfigError(
            f'question {number} is not of the form {{"query": "...", "tools": ["name"]}}'
        ) from error
    if not (isinstance(query, str) and query.strip() and wanted):
        raise ConfigError(
            f"question {number} has no `query`, or names no `tools` that it wants"
        )
    return Question(query, wanted, calls)


def make_questions(tools: Toolset) -> list[Question]:
    """Return questions made of the tools' own examples: a tool's first sentence with the values of the example.

    They are easier than any question of a person, and show only which tools have texts that do not distinguish them.
    """
    return [
        Question(
            " ".join((tool.summary, *_texts(example))),
            frozenset([tool.name]),
            [(tool.name, example)],
        )
        for tool in tools
        for example in tool.examples
    ]


def curve(
    tools: Toolset,
    questions: Sequence[Question],
    strategies: Mapping[str, Rank],
    *,
    sizes: Sequence[int],
    seed: int = 0,
) -> list[Point]:
    """Measure every strategy at every size.

    Raises:
        ConfigError: A question wants a tool that is not there.
    """
    for question in questions:
        if missing := sorted(question.tools - {tool.name for tool in tools}):
            raise ConfigError(
                f"the question {question.query[:60]!r} wants {missing[0]!r}, which is none of the tools"
            )
    points = []
    for size in sizes:
        drawn = list(catalogues(tools, questions, size, Random(seed)))
        for strategy, rank in strategies.items():
            totals = dict.fromkeys(KS, 0.0)
            for catalogue, batch in drawn:
                _add_shares(totals, rank(catalogue), batch)
            recall = {k: total / len(questions) for k, total in totals.items()}
            points.append(Point(strategy, size, recall))
    return points


def _add_shares(
    totals: dict[int, float], ranking: Ranking, questions: Sequence[Question]
) -> None:
    """Add to the total of each `k` the share that each question finds among its first `k` hits."""
    for question in questions:
        hits = [tool.name for tool in ranking.top(question.query, max(KS))]
        for k in totals:
            totals[k] += share(hits[:k], question)


def catalogues(
    tools: Toolset, questions: Sequence[Question], size: int, random: Random
) -> Iterator[tuple[list[BaseTool], list[Question]]]:
    """Yield catalogues of a size, each with questions whose tools it holds; half of it at most is wanted by any.

    One that holds all tools is asked everything at once. A question that wants more tools than `size` gets its own.
    """
    if size >= len(tools):
        yield list(tools), list(questions)
        return
    names = [tool.name for tool in tools]
    waiting = list(questions)
    random.shuffle(waiting)
    while waiting:
        batch = [waiting.pop()]
        wanted = set(batch[0].tools)
        while waiting and len(wanted | waiting[-1].tools) <= size // 2:
            wanted |= waiting[-1].tools
            batch.append(waiting.pop())
        others = [name for name in names if name not in wanted]
        drawn = wanted | set(random.sample(others, max(0, size - len(wanted))))
        yield [tool for tool in tools if tool.name in drawn], batch


def share(hits: Sequence[str], question: Question) -> float:
    """Return the share of the wanted tools that are among the hits."""
    return len(question.tools.intersection(hits)) / len(question.tools)


def ranks(
    ranking: Ranking, questions: Sequence[Question], most: int
) -> Iterator[tuple[Question, int | None]]:
    """Yield for each question how deep one must look to find all that it wants; None where that is beyond `most`."""
    for question in questions:
        hits = [tool.name for tool in ranking.top(question.query, most)]
        if question.tools.issubset(hits):
            yield question, max(hits.index(name) + 1 for name in question.tools)
        else:
            yield question, None


def default_sizes(count: int) -> list[int]:
    """Return 10, 20, 50, 100, ... up to the number of tools, and that."""
    sizes = [step * 10**power for power in range(1, 5) for step in (1, 2, 5)]
    return [*(size for size in sizes if size < count), count]


# ---------------------------------------------------------------------- with a model


def stand_ins(tools: Toolset) -> Toolset:
    """Return tools that are described alike and do nothing, so that a model can be tried on them without effect."""
    return Toolset(
        FunctionTool(
            _do_nothing,
            name=tool.name,
            description=tool.description,
            parameters=tool.parameters,
            effect="read",
            tags=tool.tags,
        )
        for tool in tools
    )


def _do_nothing(**_: Any) -> str:
    return "Done."


def judge(run: Run, question: Question, tools: Toolset) -> QuestionResult:
    """Return what a model called in a run with stand-ins; searching and loading is not counted."""
    calls = [
        (call.name, call.arguments)
        for message in run.messages
        if isinstance(message, AssistantMessage)
        for call in message.turn.calls
        if call.name in tools
    ]
    named = [name for name, _ in calls]
    right_calls = None
    if question.calls:
        actual = {(name, _plain(text)) for name, text in calls}
        wanted = {
            (name, keys.canonical(dict(arguments)))
            for name, arguments in question.calls
        }
        right_calls = actual == wanted
    return QuestionResult(
        query=question.query,
        called=named,
        right_tools=set(named) == question.tools,
        right_calls=right_calls,
        input_tokens=run.spent.usage.input_tokens,
    )


def _plain(text: str) -> str:
    try:
        return keys.canonical(json.loads(text))
    except ValueError:
        return text


def _texts(value: Json) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping):
        for each in value.values():
            yield from _texts(each)
    elif isinstance(value, list | tuple):
        for each in value:
            yield from _texts(each)
