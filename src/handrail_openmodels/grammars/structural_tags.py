"""Grammars as structural tags, the JSON form that xgrammar reads, and with it vLLM and SGLang.

https://xgrammar.mlc.ai/docs/tutorials/structural_tag.html
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator

from handrail.errors import Json
from handrail_openmodels.grammars.answers import Answer
from handrail_openmodels.grammars.expressions import (
    Choice,
    Expression,
    FreeText,
    Literal,
    Pattern,
    Repeat,
    Rule,
    Rules,
    Sequence,
    TextUntil,
    Value,
)
from handrail_openmodels.grammars.shapes import Arguments, Part, Section, Tag

Format = dict[str, Json]


def write_tags(answer: Answer) -> Format:
    """Return the answers as one structural tag."""
    return {"type": "structural_tag", "format": _in_a_row(_parts(answer))}


def write_schema_tag(schema: Json) -> Format:
    """Return the values of a schema as a structural tag."""
    return {"type": "structural_tag", "format": _json_schema(schema, "json")}


def _json_schema(schema: Json, style: str) -> Format:
    return {"type": "json_schema", "json_schema": schema, "style": style}


def _parts(answer: Answer) -> Iterator[Format]:
    """Yield what an answer is made of: reasoning, then text or calls."""
    if answer.reasoning:
        opens, closes = answer.reasoning
        thought = _tag(
            "" if answer.is_thinking else opens, {"type": "any_text"}, closes
        )
        if answer.is_thinking:
            yield thought
        else:
            yield {"type": "optional", "content": thought}
    section = answer.section
    text: Format = {"type": "any_text", "excludes": list(answer.text_without)}
    if section is None:
        yield text
        return
    if answer.reasoning:
        yield {"type": "regex", "pattern": r"\n{0,2}"}
    if not answer.choices.may_answer:
        yield _calls(section, answer)
    elif not section.trigger:
        yield {"type": "or", "elements": [_calls(section, answer), text]}
    else:
        yield _write_triggered(section, answer)


def _write_triggered(section: Section, answer: Answer) -> Format:
    """Return text in which calls may come; the mark that opens them leaves no way back."""
    excludes = [each for each in answer.text_without if each != section.trigger]
    if section.opens:
        tags = [_calls(section, answer)]
    else:
        tags = [_write_tag(answer, tag) for tag in section.tags]
    return {
        "type": "triggered_tags",
        "triggers": [section.trigger],
        "tags": tags,
        "at_least_one": False,
        "stop_after_first": bool(section.opens) or not answer.choices.parallel,
        "excludes": excludes,
    }


def _calls(section: Section, answer: Answer) -> Format:
    """Return at least one call, with the marks around all of them."""
    calls: Format = {
        "type": "tags_with_separator",
        "tags": [_write_tag(answer, tag) for tag in section.tags],
        "separator": section.separator,
        "at_least_one": True,
        "stop_after_first": not answer.choices.parallel,
    }
    if section.opens or section.closes:
        return _tag(section.opens, calls, section.closes)
    return calls


def _write_tag(answer: Answer, tag: Tag) -> Format:
    parts = list(tag.parts)
    begin = ""
    end = ""
    if isinstance(parts[0], str):
        begin = parts[0]
        del parts[0]
    if parts and isinstance(parts[-1], str):
        end = parts[-1]
        del parts[-1]
    first = parts[0] if parts else ""
    if isinstance(first, Arguments) and first.style in _STYLES:
        begin += first.lead
    content = _in_a_row(_write_part(answer, part) for part in parts)
    return _tag(begin, content, end)


def _write_part(answer: Answer, part: Part) -> Format:
    if isinstance(part, str):
        return {"type": "const_string", "value": part}
    if isinstance(part, Arguments):
        if part.style in _STYLES:
            return _json_schema(part.schema, part.style)
        return _write_expression(part.expression, answer.rules)
    return _write_pattern(part)


def _write_pattern(pattern: Pattern) -> Format:
    marks = re.escape(pattern.opens), re.escape(pattern.closes)
    return {"type": "regex", "pattern": pattern.regex.join(marks)}


def _write_expression(expression: Expression, rules: Rules) -> Format:
    """Return arguments of a form that engines have no name for."""
    match expression:
        case Literal(text=text):
            return {"type": "const_string", "value": text}
        case Value(schema=schema):
            return _json_schema(json.loads(schema), "json")
        case Pattern():
            return _write_pattern(expression)
        case Rule(name=name):
            return _write_expression(rules.by_name[name], rules)
        case Sequence(parts=parts):
            return _in_a_row(_write_expression(each, rules) for each in parts)
        case Choice(options=options):
            elements = [_write_expression(each, rules) for each in options]
            return {"type": "or", "elements": elements}
        case Repeat(inner=inner, least=0, most=1):
            return {"type": "optional", "content": _write_expression(inner, rules)}
        case Repeat(inner=inner, least=least, most=most):
            content = _write_expression(inner, rules)
            most_or_any = -1 if most is None else most
            return {"type": "repeat", "min": least, "max": most_or_any, "content": content}  # fmt: skip
        case TextUntil(mark=mark):
            return _tag("", {"type": "any_text"}, mark)
        case FreeText(without=without):
            return {"type": "any_text", "excludes": list(without)}


_STYLES = {
    "json",
    "qwen_xml",
    "minimax_xml",
    "deepseek_xml",
    "glm_xml",
    "kimi_k3_xml",
}
"""The styles that engines know by name; other arguments are written out."""


def _tag(begin: Json, content: Format, end: Json) -> Format:
    return {"type": "tag", "begin": begin, "content": content, "end": end}


def _in_a_row(parts: Iterable[Format]) -> Format:
    every = list(parts)
    if len(every) == 1:
        return every[0]
    return {"type": "sequence", "elements": every}
