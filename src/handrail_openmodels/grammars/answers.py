"""A whole answer of one family: perhaps reasoning, then text or calls, as far as `tool_choice` allows either.

Rule 1: text holds no mark that the family's reader would take for a call, or for the end of the answer.
Rule 2: what the grammar writes, the family's reader reads as the same calls.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from handrail.calls import ToolCall
from handrail.errors import ConfigError
from handrail_openmodels.grammars.expressions import (
    EMPTY,
    NOTHING,
    Expression,
    FreeText,
    Literal,
    Rules,
    TextUntil,
    choice,
    optional,
    repeat,
    sequence,
)
from handrail_openmodels.grammars.expressions import Sequence as Row
from handrail_openmodels.grammars.schemas import Losses
from handrail_openmodels.grammars.shapes import Section, Shaper, Tag, ToolSchema
from handrail_openmodels.prompts.channels import Channels
from handrail_openmodels.prompts.dialect import PromptDialect
from handrail_openmodels.prompts.named_calls import NamedCalls
from handrail_openmodels.prompts.react import ReAct
from handrail_openmodels.prompts.reader import Reasoning, Syntax

START: Final = "start"


class Choices(Struct, frozen=True):
    """What an answer may hold.

    Attributes:
        may_answer: Whether text without any call is an answer.
        may_call: Whether calls are.
        parallel: Whether several calls may come in one answer.
        opened: What the prompt already holds of the answer.
    """

    may_answer: bool = True
    may_call: bool = True
    parallel: bool = True
    opened: str = ""


class Answer(Struct):
    """The grammar of one family's answers.

    Attributes:
        rules: All of it; the rule `start` is the whole answer.
        section: How the calls follow each other, or None where there are none.
        losses: What no grammar can say, by tool and place.
        choices: What the answer may hold.
        reasoning: The mark that opens the reasoning, which the answer may begin with, and that which closes it.
        text_without: The marks that text leaves out.
    """

    rules: Rules
    section: Section | None
    losses: dict[str, Losses]
    choices: Choices
    reasoning: tuple[str, str] | None = None
    is_thinking: bool = False
    text_without: tuple[str, ...] = ()


def make_answer(
    dialect: PromptDialect, tools: Sequence[ToolSchema], choices: Choices
) -> Answer:
    """Return the grammar of a family's answers with calls to these tools.

    Raises:
        ConfigError: The family has no form for calls, or nothing is left that may be written.
    """
    rules = Rules({})
    losses: dict[str, Losses] = {}
    syntax = dialect.syntax
    writes_ids = dialect.template.ids is None or bool(
        dialect.template.ids([ToolCall("call_1", "f")])["call_1"]
    )
    shaper = Shaper(rules, losses, has_ids=writes_ids)
    section: Section | None = None
    if choices.may_call and tools:
        section = _section(dialect, shaper, tools)
        for tool in tools:
            if all(tag.name != tool.name for tag in section.tags):
                losses.setdefault(tool.name, {})[""] = "left out: it cannot be written"
        if not section.tags:
            section = None
    if section is None and not choices.may_answer:
        raise ConfigError(
            "an answer must have a call, and no tool is left that may be called"
        )
    answer = Answer(rules, section, losses, choices)
    if syntax.channels:
        rules.by_name[START] = _channels(syntax.channels, answer)
    elif isinstance(dialect, ReAct):
        rules.by_name[START] = _react(syntax, answer)
    else:
        rules.by_name[START] = _with_marked_calls(syntax, answer)
    return answer


def _section(
    dialect: PromptDialect, shaper: Shaper, tools: Sequence[ToolSchema]
) -> Section:
    syntax = dialect.syntax
    if syntax.channels:
        return _channel_section(syntax.channels, shaper, tools)
    if not syntax.formats:
        raise ConfigError("this family of models has no form for calls")
    call_format = syntax.formats[0]
    if isinstance(dialect, ReAct) and isinstance(call_format, NamedCalls):
        # read leniently, and written with the spaces that the prompt shows
        call_format = replace(call_format, lead=" ", name_ends=("\nAction Input: ",))
    return shaper.section(call_format, tools)


def _calls(
    section: Section, answer: Answer, *, parallel: bool | None = None
) -> tuple[str, Expression]:
    """Return the calls of an answer, at least one: the mark that begins them all, and what follows it."""
    begins = "" if section.opens else section.trigger
    one = answer.rules.name_once(
        "call", choice(_strip(tag.expression, begins) for tag in section.tags)
    )
    several = answer.choices.parallel if parallel is None else parallel
    calls = sequence(
        Literal(section.opens), _repeat_calls(section, begins, one, several=several)
    )
    if section.opens:
        begins = section.trigger
        calls = _strip(calls, begins)
    return begins, calls


def _repeat_calls(
    section: Section, begins: str, one: Expression, *, several: bool
) -> Expression:
    """Return one call or several, and the mark that closes the section."""
    between = section.separator + begins
    if not several:
        return sequence(one, Literal(section.closes))
    if between and section.closes.startswith(between):
        # Engines match a literal as one token, and the longest one that fits. Where the closing mark begins with the
        # separator, the separator would be taken for that mark, and no second call could follow.
        rest = section.closes.removeprefix(between)
        more = repeat(sequence(one, Literal(between)))
        return sequence(one, Literal(between), more, Literal(rest))
    return sequence(
        one, repeat(sequence(Literal(between), one)), Literal(section.closes)
    )


def _strip(expression: Expression, text: str) -> Expression:
    """Return what is left of an expression after the text that it begins with."""
    first, *rest = expression.parts if isinstance(expression, Row) else (expression,)
    if not text:
        return expression
    if not isinstance(first, Literal) or not first.text.startswith(text):
        raise ConfigError(f"a call does not begin with {text!r}")
    return sequence(Literal(first.text[len(text) :]), *rest)


# ---------------------------------------------------------------------- marks around calls and reasoning


def _with_marked_calls(syntax: Syntax, answer: Answer) -> Expression:
    """Return the answers of a family that puts marks around its calls."""
    marks = _text_marks(syntax)
    answer.text_without = marks
    bare = "".join(each.bare for each in syntax.formats)
    body: list[Expression] = []
    if answer.choices.may_answer:
        body.append(FreeText(marks, bare))
    if answer.section is not None:
        begins, calls = _calls(answer.section, answer)
        if answer.choices.may_answer and begins:
            # The mark that begins the calls ends the text.
            without = tuple(each for each in marks if each != begins)
            body.append(sequence(TextUntil(begins, without), calls))
        else:
            body.append(sequence(Literal(begins), calls))
    before = _reasoning(syntax.reasoning, marks, answer)
    return sequence(before, choice(body))


def _text_marks(syntax: Syntax) -> tuple[str, ...]:
    """Return the marks that mean something within a text, and so cannot be in it."""
    marks = {
        mark for each in syntax.formats for mark in (*each.starts, *each.loose) if mark
    }
    silent = (each if isinstance(each, str) else each[0] for each in syntax.silent)
    marks.update(silent, syntax.ends)
    if syntax.reasoning:
        marks.update((syntax.reasoning.opens, syntax.reasoning.closes))
    # a mark that holds another one is left out with it
    return tuple(
        sorted(
            mark
            for mark in marks
            if mark and not any(other in mark for other in marks - {mark, ""})
        )
    )


def _reasoning(
    reasoning: Reasoning | None, marks: Sequence[str], answer: Answer
) -> Expression:
    """Return what may come before text and calls: reasoning, with its marks but for those that the prompt holds."""
    if reasoning is None:
        return EMPTY
    opened = answer.choices.opened
    if reasoning.closes in opened:
        return EMPTY
    answer.reasoning = (reasoning.opens, reasoning.closes)
    without = tuple(each for each in marks if each not in reasoning.closes)
    spaces = {"", "\n", "\n\n", reasoning.after}
    thought = sequence(
        TextUntil(reasoning.closes, without), choice(map(Literal, sorted(spaces)))
    )
    if opened.strip() and opened.strip() in reasoning.opens:
        answer.is_thinking = True
        return thought
    return optional(sequence(Literal(reasoning.opens), thought))


# ---------------------------------------------------------------------- ReAct


def _react(syntax: Syntax, answer: Answer) -> Expression:
    """Return the answers in ReAct's form: a thought that ends in an action, or in the final answer."""
    reasoning = syntax.reasoning
    if reasoning is None:
        raise ConfigError("ReAct has no thoughts")
    section = answer.section
    ends = (*syntax.ends, reasoning.opens)
    answer.text_without = (*ends, "Action:", reasoning.closes)
    options: list[Expression] = []
    if answer.choices.may_answer:
        text = FreeText(answer.text_without)
        options.append(sequence(TextUntil(reasoning.closes, (*ends, "Action:")), text))
    if section is not None:
        begins, calls = _calls(section, answer, parallel=False)
        options.append(sequence(TextUntil(begins, (*ends, reasoning.closes)), calls))
    answer.is_thinking = bool(answer.choices.opened.strip())
    before = EMPTY if answer.is_thinking else Literal(reasoning.opens)
    return sequence(before, choice(options))


# ---------------------------------------------------------------------- channels


def _channel_section(
    channels: Channels, shaper: Shaper, tools: Sequence[ToolSchema]
) -> Section:
    """Return calls as messages of their own."""
    tags: list[Tag] = []
    for tool in tools:
        if channels.inside:
            inner = shaper.section(channels.inside, [tool])
            if not inner.tags:
                continue
            parts = (inner.opens, *inner.tags[0].parts, inner.closes)
        else:
            parts = (shaper.json_arguments(tool),)
        header = f"{channels.recipient}{channels.prefix}{tool.name}{channels.call}{channels.body}"
        tag = Tag(tool.name, (header, *(part for part in parts if part != "")))
        if tag.expression != NOTHING:
            tags.append(tag)
    between = (channels.ends or ("",))[0] + channels.starts
    return Section(tuple(tags), separator=between)


def _channels(channels: Channels, answer: Answer) -> Expression:
    """Return the answers of a family whose answers are messages with headers."""
    end = (channels.ends or ("",))[0]
    between = end + channels.starts
    marks = tuple(
        sorted(
            {
                mark
                for mark in (
                    channels.starts,
                    channels.body,
                    *channels.ends,
                    channels.channel,
                )
                if mark.strip()
            }
        )
    )
    answer.text_without = marks

    def message(header: str) -> Expression:
        """Return a message that another one follows."""
        without = tuple(each for each in marks if each not in between)
        body = TextUntil(between, without)
        return sequence(Literal(header + channels.body), body)

    parts: list[Expression] = []
    if channels.reasoning:
        answer.reasoning = (channels.reasoning + channels.body, end)
        parts.append(repeat(message(channels.reasoning), 0, 4))
    ends: list[Expression] = []
    if answer.section is not None:
        _, calls = _calls(answer.section, answer)
        before = channels.preamble or ""
        lead = (
            optional(message(before)) if before and answer.choices.may_answer else EMPTY
        )
        ends.append(sequence(lead, calls))
    if answer.choices.may_answer:
        final = sequence(Literal(channels.text + channels.body), FreeText(marks))
        ends.append(final)
    return sequence(Literal(channels.first), *parts, choice(ends))
