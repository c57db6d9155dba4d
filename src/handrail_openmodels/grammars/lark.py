"""Grammars as Lark texts, in the form that llguidance reads.

https://github.com/guidance-ai/llguidance/blob/main/docs/syntax.md
"""

from __future__ import annotations

import json
import re

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

_SPECIAL = re.compile(r"[\\^$.|?*+()\[\]{}/#&~\-]")
_ANYTHING = "/(?s:.*)/"


def write_lark(rules: Rules) -> str:
    """Return the rules as one text, `start` first."""
    return _Writer().write(rules)


class _Writer:
    """Writes one grammar; texts with marks in them become terminals below the rules."""

    def __init__(self) -> None:
        self._texts: dict[TextUntil | FreeText | Pattern, str] = {}
        self._terminals: list[str] = []

    def write(self, rules: Rules) -> str:
        names = sorted(rules.by_name, key=lambda name: name != "start")
        lines = [f"{name}: {self._write(rules.by_name[name])}" for name in names]
        return "\n".join([*lines, *self._terminals]) + "\n"

    def _write(self, expression: Expression) -> str:
        match expression:
            case Literal(text=text):
                return _quote(text)
            case Value(schema=schema):
                return f"%json {_with_options(schema)}"
            case Sequence(parts=parts):
                return " ".join(self._group(part) for part in parts)
            case Choice(options=options):
                return " | ".join(map(self._write, options))
            case Repeat(inner=inner, least=least, most=most):
                return f"({self._write(inner)}){_times(least, most)}"
            case Rule(name=name):
                return name
            case TextUntil() | FreeText() | Pattern():
                return self._name_text(expression)

    def _group(self, expression: Expression) -> str:
        written = self._write(expression)
        return f"({written})" if isinstance(expression, Choice) else written

    def _name_text(self, text: TextUntil | FreeText | Pattern) -> str:
        name = self._texts.get(text)
        if name is None:
            name = self._texts[text] = f"text_{len(self._texts)}"
            terminal = name.upper()
            # lazy: the first mark ends the text
            lazy = "[lazy]" if isinstance(text, TextUntil) else ""
            self._terminals += [
                f"{name}{lazy}: {terminal}",
                f"{terminal}: {_write_terminal(text)}",
            ]
        return name


def _write_terminal(text: TextUntil | FreeText | Pattern) -> str:
    match text:
        case TextUntil(mark=mark, without=without):
            return f"({_without(without)}) {_quote(mark)}"
        case FreeText(without=without, not_first=""):
            return _without(without)
        case FreeText(without=without, not_first=not_first):
            first = "".join(map(_escape, not_first))
            return rf"{_without(without)} & ~/[ \t\r\n]*[{first}](?s:.*)/"
        case Pattern(regex=regex, opens=opens, closes=closes, without=banned):
            body = f"/{regex}/"
            if banned:
                body = f"({body} & ~/(?s:.*)[{''.join(map(_escape, banned))}](?s:.*)/)"
            marks = [_quote(mark) if mark else "" for mark in (opens, closes)]
            return f"{marks[0]} {body} {marks[1]}".strip()


def _quote(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)


def _with_options(schema: str) -> str:
    """Return a schema with what llguidance is to make of it: JSON as models write it, without needless space."""
    return json.dumps(
        {**json.loads(schema), "x-guidance": _OPTIONS}, ensure_ascii=False
    )


_OPTIONS = {
    "whitespace_flexible": False,
    "item_separator": ", ",
    "key_separator": ": ",
    "lenient": True,
}


def _without(marks: tuple[str, ...]) -> str:
    """Return any text that holds none of the marks, as a terminal says it."""
    if not marks:
        return _ANYTHING
    either = "|".join("".join(map(_escape, mark)) for mark in marks)
    return f"{_ANYTHING} & ~/(?s:.*)(?:{either})(?s:.*)/"


def _times(least: int, most: int | None) -> str:
    if (least, most) in _SIGNS:
        return _SIGNS[least, most]
    if least == most:
        return f"{{{least}}}"
    return f"{{{least},{'' if most is None else most}}}"


_SIGNS = {(0, None): "*", (1, None): "+", (0, 1): "?"}


def _escape(character: str) -> str:
    if character in "\n\r\t":
        return {"\n": r"\n", "\r": r"\r", "\t": r"\t"}[character]
    if _SPECIAL.match(character):
        return f"\\{character}"
    if not character.isprintable() and character != " ":
        return f"\\x{{{ord(character):x}}}"
    return character
