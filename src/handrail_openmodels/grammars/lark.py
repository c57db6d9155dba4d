"""Grammars as Lark texts, in the form that llguidance reads.

https://github.com/guidance-ai/llguidance/blob/main/docs/syntax.md
"""

from __future__ import annotations

import json
import re

from handrail_openmodels.grammars.expressions import (
    Characters,
    Choice,
    Expression,
    FreeText,
    Literal,
    Repeat,
    Rule,
    Rules,
    Sequence,
    TextUntil,
    Token,
)

_SPECIAL = re.compile(r"[\\^$.|?*+()\[\]{}/#&~\-]")
_ANYTHING = "/(?s:.*)/"


def write_lark(rules: Rules) -> str:
    """Return the rules as one text, `start` first."""
    return _Writer().write(rules)


def write_regex(expression: Expression) -> str:
    """Return an expression without rules and free text as a regular expression."""
    match expression:
        case Literal(text=text):
            return "".join(map(_escape, text))
        case Characters(ranges=ranges, negated=negated):
            return _write_class(ranges, negated)
        case Sequence(parts=parts):
            return "".join(map(write_regex, parts))
        case Choice(options=options):
            return f"(?:{'|'.join(map(write_regex, options))})"
        case Repeat(inner=inner, least=least, most=most):
            return f"(?:{write_regex(inner)}){_times(least, most)}"
        case Token(inner=inner):
            return write_regex(inner)
        case _:
            raise TypeError(f"{expression!r} is no regular expression")


class _Writer:
    """Writes one grammar; texts with marks in them become terminals below the rules."""

    def __init__(self) -> None:
        self._texts: dict[TextUntil | FreeText, str] = {}
        self._terminals: list[str] = []

    def write(self, rules: Rules) -> str:
        names = sorted(rules.by_name, key=lambda name: name != "start")
        lines = [f"{name}: {self._write(rules.by_name[name])}" for name in names]
        return "\n".join([*lines, *self._terminals]) + "\n"

    def _write(self, expression: Expression) -> str:
        match expression:
            case Literal(text=text):
                return json.dumps(text, ensure_ascii=False)
            case Characters() | Token():
                return f"/{write_regex(expression)}/"
            case Sequence(parts=parts):
                return " ".join(self._group(part) for part in parts)
            case Choice(options=options):
                return " | ".join(map(self._write, options))
            case Repeat(inner=inner, least=least, most=most):
                return f"({self._write(inner)}){_times(least, most)}"
            case Rule(name=name):
                return name
            case TextUntil() | FreeText():
                return self._name_text(expression)

    def _group(self, expression: Expression) -> str:
        written = self._write(expression)
        return f"({written})" if isinstance(expression, Choice) else written

    def _name_text(self, text: TextUntil | FreeText) -> str:
        name = self._texts.get(text)
        if name is None:
            name = self._texts[text] = f"text_{len(self._texts)}"
            terminal = name.upper()
            body = _without(text.without)
            if isinstance(text, TextUntil):
                # lazy: the first mark ends the text
                self._terminals += [
                    f"{name}[lazy]: {terminal}",
                    f"{terminal}: ({body}) {json.dumps(text.mark, ensure_ascii=False)}",
                ]
            else:
                if text.not_first:
                    first = "".join(map(_escape, text.not_first))
                    body += rf" & ~/[ \t\r\n]*[{first}](?s:.*)/"
                self._terminals += [f"{name}: {terminal}", f"{terminal}: {body}"]
        return name


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


def _write_class(ranges: tuple[tuple[int, int], ...], negated: bool) -> str:
    inside = "".join(
        _escape(chr(first)) + (f"-{_escape(chr(last))}" if last > first else "")
        for first, last in ranges
    )
    if not inside:
        return "(?s:.)"
    return f"[{'^' if negated else ''}{inside}]"


def _escape(character: str) -> str:
    if character in "\n\r\t":
        return {"\n": r"\n", "\r": r"\r", "\t": r"\t"}[character]
    if _SPECIAL.match(character):
        return f"\\{character}"
    if not character.isprintable() and character != " ":
        return f"\\x{{{ord(character):x}}}"
    return character
