"""Grammars as GBNF texts, the form of llama.cpp.

https://github.com/ggml-org/llama.cpp/blob/master/grammars/README.md
"""

from __future__ import annotations

from handrail_openmodels.grammars.automata import State, find_marks
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
    characters,
    merge_ranges,
)

_SPACE = " \t\r\n"


def write_gbnf(rules: Rules) -> str:
    """Return the rules as one text, with `root` for the whole."""
    return _Writer().write(rules)


class _Writer:
    """Writes one grammar; the states of texts with marks in them are further rules."""

    def __init__(self) -> None:
        self._texts: dict[TextUntil | FreeText, str] = {}
        self._more: list[str] = []
        self._spells = False

    def write(self, rules: Rules) -> str:
        names = sorted(rules.by_name, key=lambda name: name != "start")
        start = self._write_start(rules.by_name["start"])
        lines = [
            f"{_name(name)} ::= {self._write(rules.by_name[name])}"
            for name in names[1:]
        ]
        return "\n".join([f"root ::= {start}", *lines, *self._more]) + "\n"

    def _write_start(self, expression: Expression) -> str:
        """Return the whole answer.

        Some engines read a literal as one word, and do not come back when a text begins as it does. Reasoning that may
        be left out before a text is such a place: its mark is spelled.
        """
        match expression:
            case Sequence(parts=(Repeat() as first, *rest)) if _may_be_text(rest[0]):
                self._spells = True
                before = self._write(first)
                self._spells = False
                return " ".join([before, *map(self._group, rest)])
            case _:
                return self._write(expression)

    def _write(self, expression: Expression) -> str:
        match expression:
            case Literal(text=text) if self._spells and text:
                return " ".join(map(_one, text))
            case Literal(text=text):
                return f'"{"".join(map(_escape_in_text, text))}"'
            case Characters():
                return _write_class(expression)
            case Token(inner=inner):
                return self._group(inner)
            case Sequence(parts=parts):
                return " ".join(map(self._group, parts))
            case Choice(options=options):
                return " | ".join(map(self._write, options))
            case Repeat(inner=inner, least=least, most=most):
                return f"{self._group(inner, Sequence, Literal, Repeat)}{_times(least, most)}"
            case Rule(name=name):
                return _name(name)
            case TextUntil() | FreeText():
                return self._name_text(expression)

    def _group(self, expression: Expression, *also: type) -> str:
        while isinstance(expression, Token):
            expression = expression.inner
        written = self._write(expression)
        return f"({written})" if isinstance(expression, (Choice, *also)) else written

    def _name_text(self, text: TextUntil | FreeText) -> str:
        name = self._texts.get(text)
        if name is None:
            name = self._texts[text] = f"text-{len(self._texts)}"
            if isinstance(text, TextUntil):
                self._write_until(name, text)
            else:
                self._write_free(name, text)
        return name

    def _write_until(self, name: str, text: TextUntil) -> None:
        states = find_marks(sorted({text.mark, *text.without}))
        for number, state in enumerate(states):
            if state.found:
                continue
            options = [
                f"{_one(character)} {_state(name, there)}".strip()
                for character, there in state.after.items()
                if not states[there].found
            ]
            options += [
                _one(character)
                for character, there in state.after.items()
                if states[there].found == text.mark
            ]
            options.append(f"{_others(state)} {name}")
            self._more.append(f"{_state(name, number)} ::= {' | '.join(options)}")

    def _write_free(self, name: str, text: FreeText) -> None:
        states = find_marks(sorted(text.without))
        inside = f"{name}-in" if text.not_first else name
        for number, state in enumerate(states):
            if state.found:
                continue
            options = ['""', *self._steps(states, state, inside)]
            self._more.append(f"{_state(inside, number)} ::= {' | '.join(options)}")
        if text.not_first:
            # Space of any length first; a mark that begins with a space is then looked for from there on.
            first = states[0]
            banned = text.not_first + _SPACE
            options = [
                '""',
                f"{_write_class(characters(_SPACE))} {name}",
                *self._steps(states, first, inside, banned=banned),
            ]
            self._more.append(f"{name} ::= {' | '.join(options)}")

    def _steps(
        self, states: list[State], state: State, name: str, *, banned: str = ""
    ) -> list[str]:
        steps = [
            f"{_one(character)} {_state(name, there)}"
            for character, there in state.after.items()
            if not states[there].found and character not in banned
        ]
        return [*steps, f"{_others(state, banned)} {name}"]


def _may_be_text(expression: Expression) -> bool:
    options = expression.options if isinstance(expression, Choice) else (expression,)
    return any(isinstance(each, FreeText) for each in options)


def _state(name: str, number: int) -> str:
    return f"{name}-{number}" if number else name


def _name(name: str) -> str:
    return "root" if name == "start" else name.replace("_", "-")


def _one(character: str) -> str:
    return f'"{_escape_in_text(character)}"'


def _others(state: State, banned: str = "") -> str:
    """Return any character that leads back to the first state."""
    taken = {*state.after, *banned}
    return _write_class(
        Characters(merge_ranges((ord(each), ord(each)) for each in taken), negated=True)
    )


def _write_class(expression: Characters) -> str:
    if not expression.ranges:
        return f"[\\x00-{chr(0x10FFFF)}]"  # everything, line ends too
    inside = "".join(
        _escape(chr(first)) + (f"-{_escape(chr(last))}" if last > first else "")
        for first, last in expression.ranges
    )
    return f"[{'^' if expression.negated else ''}{inside}]"


def _times(least: int, most: int | None) -> str:
    signs = {(0, None): "*", (1, None): "+", (0, 1): "?"}
    if (least, most) in signs:
        return signs[least, most]
    if least == most:
        return f"{{{least}}}"
    return f"{{{least},{'' if most is None else most}}}"


def _escape_in_text(character: str) -> str:
    if character in '"\\':
        return f"\\{character}"
    return _escape_control(character)


def _escape(character: str) -> str:
    """Return a character as a class holds it."""
    if character.isascii() and not character.isalnum() and character not in " \n\r\t":
        return f"\\x{ord(character):02X}"
    return _escape_control(character)


def _escape_control(character: str) -> str:
    if character in "\n\r\t":
        return {"\n": r"\n", "\r": r"\r", "\t": r"\t"}[character]
    if ord(character) < 0x20 or ord(character) == 0x7F:
        return f"\\x{ord(character):02X}"
    return character
