"""`handrail eval`: how well tools are found and called, on questions of your own."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, TypeAlias

import click

from handrail import selectors
from handrail.cli import completion, options
from handrail.cli.cases import parse_json, tools_at
from handrail.cli.exits import Exit
from handrail.cli.printer import console, print_columns
from handrail.cli.svg_chart import line_chart
from handrail.core.budgets import Budget
from handrail.errors import ConfigError, Json
from handrail.invisible import json_text
from handrail.runtime import Runtime
from handrail.selectors import evaluation
from handrail.selectors.endpoint import Endpoint
from handrail.selectors.evaluation import KS, Point, Question, QuestionResult, Rank
from handrail.tools.toolset import Toolset

DRAWN = 5
"""The k that the plot shows."""

DEEPEST = 50
"""How deep a question's tools are looked for in the report of single questions."""

MOST_TURNS = 4
"""Of a conversation with stand-ins: search, load, call, answer."""


@click.group("eval", cls=options.Commands)
def command() -> None:
    """Measure on questions of your own.

    \b
    Examples:
      handrail eval select --tools tools.json --questions questions.jsonl
      handrail eval select --tools tools.py --sizes 10,50,200 --plot recall.svg
      handrail eval select --compare before.json after.json
    """


@command.command("select")
@options.definitions
@click.option(
    "--questions",
    metavar="FILE",
    shell_complete=completion.files,
    help='JSON, one a line: {"query": "...", "tools": ["name", ...]}. '
    'With "calls": [{"name", "arguments"}] a model\'s calls are judged too. '
    "Without this option questions are made of the tools' examples.",
)
@click.option(
    "--strategy",
    "strategies",
    multiple=True,
    type=click.Choice(["bm25", "embeddings", "hybrid"]),
    help="How tools are ranked; may be given several times. bm25 by default.",
)
@click.option(
    "--embed",
    metavar="MODEL@URL",
    help="An OpenAI-compatible server of embeddings: NAME@http://host/v1.",
)
@click.option(
    "--sizes",
    metavar="N,N,...",
    help="Numbers of tools to choose from; steps up to all by default.",
)
@click.option(
    "--seed",
    type=int,
    default=0,
    show_default=True,
    help="Of the draw of smaller sets of tools.",
)
@options.model(required=False)
@click.option(
    "--selector",
    "shown_by",
    default="auto",
    show_default=True,
    help="With --model: what chooses the tools that the model is shown.",
)
@click.option(
    "--most",
    type=click.IntRange(min=1),
    help="With --model: ask only as many of the questions.",
)
@click.option(
    "--plot",
    metavar="FILE.svg",
    type=click.Path(path_type=Path),
    help="Draw recall against size.",
)
@click.option(
    "--compare",
    nargs=2,
    shell_complete=completion.files,
    metavar="OLD.json NEW.json",
    help="Compare two reports that --json printed.",
)
@options.as_json
@options.debug
def select(
    places: Sequence[str],
    questions: str | None,
    strategies: Sequence[str],
    embed: str | None,
    sizes: str | None,
    seed: int,
    model: str | None,
    shown_by: str,
    most: int | None,
    plot: Path | None,
    compare: tuple[str, str] | None,
    as_json: bool,
) -> Exit:
    """Measure how well the tools that a question wants are found, against the number of tools.

    With a model, each question is also asked: the model gets stand-ins of your tools, so nothing runs, and its calls
    are compared with the wanted ones.

    \b
    Examples:
      handrail eval select --tools tools.json --questions questions.jsonl --json > before.json
      handrail eval select --tools tools.json --questions questions.jsonl --model openai:NAME
      handrail eval select --compare before.json after.json
    """
    if compare:
        print_columns(console(), *_compare_reports(*map(_read_report, compare)))
        return Exit.OK
    tools = tools_at(places)
    if tools is None:
        raise click.UsageError(
            "Name where the tools are: --tools PLACE, or two reports to --compare."
        )
    cases = _questions(questions, tools)
    rankings = {name: _rank(name, embed) for name in strategies or ("bm25",)}
    points = evaluation.curve(
        tools,
        cases,
        rankings,
        sizes=_sizes(sizes, len(tools)),
        seed=seed,
    )
    answers: list[QuestionResult] = []
    if model:
        answers = asyncio.run(_answers(tools, cases[:most], model, shown_by))
    if plot:
        plot.write_text(_draw_chart(points), encoding="utf-8")
    if as_json:
        ranking = next(iter(rankings.values()))(list(tools))
        report = _report(
            tools,
            cases,
            points,
            answers=answers,
            ranking=ranking,
            seed=seed,
        )
        click.echo(json_text(report))
        return Exit.OK
    _print_points(points)
    click.echo(
        f"\n{len(cases)} questions; the share of the wanted tools among the first k, seed {seed}"
    )
    if answers:
        click.echo(_summary(answers, shown_by))
    return Exit.OK


def _print_points(points: Sequence[Point]) -> None:
    heads = ("strategy", "tools", *(f"@{k}" for k in KS))
    rows = [
        (each.strategy, f"{each.size:,}", *(f"{each.recall[k]:.3f}" for k in KS))
        for each in points
    ]
    print_columns(console(), rows, heads)


def _questions(file: str | None, tools: Toolset) -> list[Question]:
    if file is None:
        questions = evaluation.make_questions(tools)
        hint = "give --questions, or declare examples: @tool(examples=[{...}])"
    else:
        lines = [line for line in options.read_text(file).split("\n") if line.strip()]
        questions = [
            evaluation.parse_question(parse_json(line, f"line {n}"), n)
            for n, line in enumerate(lines, start=1)
        ]
        hint = f"{file} is empty"
    if not questions:
        raise ConfigError(f"no questions: {hint}")
    return questions


def _rank(name: str, embed: str | None) -> Rank:
    if name == "bm25":
        return selectors.bm25
    model, at, address = (embed or "").partition("@")
    if not at:
        raise click.UsageError(f"--strategy {name} needs --embed MODEL@URL.")
    # One cache for all sizes: every tool's text is embedded once.
    memory = selectors.VectorMemory()
    make: Any = getattr(selectors, name)
    return partial(make, embed=Endpoint(model, address), cache=memory)


def _sizes(text: str | None, count: int) -> list[int]:
    if not text:
        return evaluation.default_sizes(count)
    try:
        sizes = sorted({min(int(each), count) for each in text.split(",")})
    except ValueError as error:
        raise click.UsageError(
            f"--sizes takes numbers, such as 10,50,200, not {text!r}."
        ) from error
    if sizes[0] < 1:
        raise click.UsageError("--sizes are at least 1.")
    return sizes


async def _answers(
    tools: Toolset, questions: Sequence[Question], model: str, shown_by: str
) -> list[QuestionResult]:
    """Ask the model every question, one after the other: a provider's limits are met soon enough."""
    stand_ins = evaluation.stand_ins(tools)
    answers = []
    async with Runtime(
        stand_ins, selector=shown_by, budget=Budget(turns=MOST_TURNS)
    ) as runtime:
        for question in questions:
            run = await runtime.run(question.query, model=model)
            if run.status == "failed":
                raise ConfigError(f"the model did not answer: {run.reason}")
            answers.append(evaluation.judge(run, question, stand_ins))
    return answers


def _summary(answers: Sequence[QuestionResult], shown_by: str) -> str:
    right = sum(answer.right_tools for answer in answers)
    text = f"with the model and selector {shown_by}: right tools in {right} of {len(answers)}"
    judged = [
        answer.right_calls for answer in answers if answer.right_calls is not None
    ]
    if judged:
        text += f", right calls in {sum(judged)} of {len(judged)}"
    return f"{text}; {sum(answer.input_tokens for answer in answers) // len(answers):,} input tokens a question"


def _report(
    tools: Toolset,
    questions: Sequence[Question],
    points: Sequence[Point],
    *,
    answers: Sequence[QuestionResult],
    ranking: Any,
    seed: int,
) -> dict[str, Json]:
    ranks = evaluation.ranks(ranking, questions, DEEPEST)
    return {
        "v": 1,
        "tools": len(tools),
        "seed": seed,
        "points": [point.as_json() for point in points],
        "questions": [
            {"query": each.query, "tools": sorted(each.tools), "rank": rank}
            for each, rank in ranks
        ],
        "answers": [
            {
                "query": each.query,
                "called": list(each.called),
                "right_tools": each.right_tools,
                "right_calls": each.right_calls,
                "input_tokens": each.input_tokens,
            }
            for each in answers
        ],
    }


# ---------------------------------------------------------------------- comparing


def _read_report(file: str) -> Mapping[str, Any]:
    report = parse_json(options.read_text(file), file)
    if not (isinstance(report, Mapping) and isinstance(report.get("points"), list)):
        raise ConfigError(f"{file} is no report of `handrail eval select --json`")
    return report


def _compare_reports(
    old: Mapping[str, Any], new: Mapping[str, Any]
) -> tuple[list[tuple[str, ...]], tuple[str, ...]]:
    """Return rows of what has changed: recall, a model's answers, and the questions that are found or lost."""
    rows = [
        *_compare_recall(old["points"], new["points"]),
        *_compare_answers(old.get("answers", []), new.get("answers", [])),
        *_compare_ranks(old.get("questions", []), new.get("questions", [])),
    ]
    return rows, ("what", "old", "new", "change")


Entries: TypeAlias = Sequence[Mapping[str, Any]]
"""A list in a report."""


def _compare_recall(old: Entries, new: Entries) -> Iterator[tuple[str, ...]]:
    before = {(each["strategy"], each["size"]): each["recall"] for each in old}
    for point in new:
        recall = before.get((point["strategy"], point["size"]), {})
        for k in sorted(recall.keys() & point["recall"].keys(), key=int):
            what = f"{point['strategy']}, {point['size']:,} tools, @{k}"
            yield _row(what, recall[k], point["recall"][k])


def _compare_answers(old: Entries, new: Entries) -> Iterator[tuple[str, ...]]:
    for what in ("right_tools", "right_calls"):
        before = _share(old, what)
        after = _share(new, what)
        if before is not None and after is not None:
            yield _row(f"model, {what.replace('_', ' ')}", before, after)


def _compare_ranks(old: Entries, new: Entries) -> Iterator[tuple[str, ...]]:
    before = {each["query"]: each["rank"] for each in old}
    for each in new:
        rank = each["rank"]
        old_rank = before.get(each["query"], rank)
        if old_rank != rank:
            what = f"rank: {each['query'][:60]}"
            yield what, str(old_rank or "-"), str(rank or "-"), ""


def _row(what: str, old: float, new: float) -> tuple[str, ...]:
    change = f"{new - old:+.3f}" if new != old else ""
    return what, f"{old:.3f}", f"{new:.3f}", change


def _share(answers: Entries, what: str) -> float | None:
    values = [each[what] for each in answers if each.get(what) is not None]
    return sum(values) / len(values) if values else None


def _draw_chart(points: Sequence[Point]) -> str:
    lines: dict[str, list[tuple[int, float]]] = {}
    for point in points:
        lines.setdefault(point.strategy, []).append((point.size, point.recall[DRAWN]))
    return line_chart(
        lines,
        title="Tools found",
        across="tools to choose from",
        up=f"recall@{DRAWN}",
    )
