"""Values as a family writes them where it does not write JSON: as Python's literals, as Gemma's, or as bare text.

Rule 1: the members of an object come in the order of its schema, each once.
Rule 2: a number is JSON in every notation, so that an engine holds it to its bounds.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Final

from msgspec import Struct

from handrail.errors import Json
from handrail.schemas.walk import Schema
from handrail_openmodels.grammars.expressions import (
    EMPTY,
    NOTHING,
    Expression,
    Literal,
    Pattern,
    Rules,
    TextUntil,
    Value,
    choice,
    optional,
    repeat,
    sequence,
)
from handrail_openmodels.grammars.schemas import (
    DEFINITIONS,
    Losses,
    find_branches,
    match_whole,
)
from handrail_openmodels.prompts.literal_calls import PYTHON_QUOTES, LiteralCalls

_WORD = re.compile(r"[^\W\d][\w\-]*")


def is_word(name: str) -> bool:
    """Whether a name can stand for an argument in Python's form of a call."""
    return _WORD.fullmatch(name) is not None


def json_value(root: Schema, schema: Schema) -> Value:
    """Return the JSON values of a part of a prepared schema."""
    text = json.dumps(schema, ensure_ascii=False)
    if schema is not root and '"$ref"' in text:
        definitions = {name: root[name] for name in DEFINITIONS if name in root}
        text = json.dumps({**schema, **definitions}, ensure_ascii=False)
    return Value(text)


class TextForm(Struct, frozen=True):
    """How a string is written.

    Attributes:
        opens, closes: Around it.
        character: One character as it is written, escaped or not, as a regular expression.
        banned: The characters that cannot stand in it as they are.
        until: Any text with its end, where no escape is needed for it.
        quote: Returns a string between `opens` and `closes`, or None where it cannot be written.
    """

    opens: str
    closes: str
    character: str
    banned: str
    until: TextUntil | None
    quote: Callable[[str], str | None]

    def literal(self, text: str) -> Expression:
        """Return that string; nothing where it cannot be written."""
        quoted = self.quote(text)
        if quoted is None:
            return NOTHING
        return Literal(f"{self.opens}{quoted}{self.closes}")

    def string(self, schema: Schema, path: str, losses: Losses) -> Expression:
        """Return the strings of a schema."""
        pattern = schema.get("pattern")
        least = int(schema.get("minLength", 0))
        most = schema.get("maxLength")
        is_counted = bool(least) or most is not None
        if pattern:
            if is_counted:
                losses[path] = "a length beside a pattern"
            regex = match_whole(str(pattern)) or ""
            return Pattern(regex, self.opens, self.closes, self.banned)
        if not is_counted and self.until:
            return sequence(Literal(self.opens), self.until)
        times = f"{{{least},{'' if most is None else int(most)}}}"
        return Pattern(f"{self.character}{times}", self.opens, self.closes)


def bare_text(
    opens: str, closes: str, mark: str, *, without: tuple[str, ...] = ()
) -> TextForm:
    """Return the form of strings that are written as they are, up to a mark.

    Args:
        closes: What ends the string, with the mark at its end.
        mark: Is in no string.
    """

    def quote(text: str) -> str | None:
        is_safe = not any(each in text for each in (mark, *without))
        # the text must not end as the mark begins
        ends_at_mark = (text + mark).find(mark) == len(text)
        return text if is_safe and ends_at_mark else None

    # Where characters are counted, the first one of the mark is left out: nothing can then begin it.
    first = mark.lstrip("\n")[0]
    inside = () if closes == mark else (mark,)
    return TextForm(
        opens,
        closes,
        f"[^{re.escape(first)}]",
        first,
        TextUntil(closes, (*inside, *without)),
        quote,
    )


class Notation(Struct, frozen=True):
    """How values are written.

    Attributes:
        style: Its name among engines, or one of ours.
        text: How a string is written.
        comma, colon: Between the members of an object.
        words: The true, the false and the empty value.
        key: Returns how an object's key is written, or None where it cannot be.
    """

    style: str
    text: TextForm
    comma: str
    colon: str
    words: Mapping[Json, str]
    key: Callable[[str], str | None]

    def literal(self, value: Json) -> Expression:
        """Return that value; nothing where it cannot be written."""
        if isinstance(value, str):
            return self.text.literal(value)
        if value is None or isinstance(value, bool):
            return Literal(self.words[value])
        if isinstance(value, Mapping):
            members = [
                NOTHING if self.key(key) is None
                else sequence(Literal(f"{self.key(key)}{self.colon}"), self.literal(each))
                for key, each in value.items()
            ]  # fmt: skip
            return sequence(Literal("{"), *self._join(members), Literal("}"))
        if isinstance(value, list | tuple):
            items = self._join([self.literal(each) for each in value])
            return sequence(Literal("["), *items, Literal("]"))
        return Literal(json.dumps(value))

    def _join(self, parts: Sequence[Expression]) -> list[Expression]:
        return [
            each
            for number, part in enumerate(parts)
            for each in ((Literal(self.comma), part) if number else (part,))
        ]


_PYTHON_TEXT: Final = TextForm(
    "'",
    "'",
    r"(?:[^'\\\x00-\x1f]|\\['\\nrt])",
    "'\\\n\r\t",
    None,
    lambda text: _escape_for_python(text),
)


def _escape_for_python(text: str) -> str:
    written = repr(text)
    if written[0] == "'":
        return written[1:-1]
    return written[1:-1].replace("'", "\\'").replace('\\"', '"')


PYTHON: Final = Notation(
    "python",
    _PYTHON_TEXT,
    ", ",
    ": ",
    {True: "True", False: "False", None: "None"},
    repr,
)


def notation_of(call_format: LiteralCalls) -> Notation:
    """Return how a format with literals writes values."""
    if call_format.quotes == PYTHON_QUOTES:
        return PYTHON
    quote = call_format.quotes[-1]
    # The marks of a section end a string that holds them, and the call.
    section = (*call_format.starts, *call_format.ends)
    text = bare_text(quote, quote, quote, without=section)

    def key(name: str) -> str | None:
        if is_word(name):
            return name
        return None if quote in name else f"{quote}{name}{quote}"

    words: Mapping[Json, str] = {True: "true", False: "false", None: "null"}
    return Notation("quoted", text, ",", ":", words, key)


class Values:
    """Makes the values of one schema.

    Args:
        root: The schema, prepared for engines.
        notation: How its values are written; None for JSON.
        rules: Where rules are defined that expressions name; their names begin with `prefix`.
        losses: Gets what cannot be said.
    """

    def __init__(
        self,
        root: Schema,
        notation: Notation | None,
        rules: Rules,
        prefix: str,
        losses: Losses,
    ) -> None:
        self.root = root
        self.losses = losses
        self._notation = notation
        self._rules = rules
        self._prefix = prefix
        self._parts = 0

    def value(
        self, schema: Json, path: str, within: frozenset[str] = frozenset()
    ) -> Expression:
        """Return the values that fit a schema."""
        return choice(
            self._branch(branch, path, seen)
            for branch, seen in find_branches(self.root, schema, within)
        )

    def _branch(self, branch: Schema, path: str, within: frozenset[str]) -> Expression:
        notation = self._notation
        if notation is None:
            return json_value(self.root, branch)
        if "enum" in branch:
            return choice(map(notation.literal, branch["enum"]))
        match branch.get("type"):
            case "string":
                return notation.text.string(branch, path, self.losses)
            case "integer" | "number":
                return json_value(self.root, branch)
            case "boolean":
                words = notation.words
                return choice([Literal(words[True]), Literal(words[False])])
            case "null":
                return Literal(notation.words[None])
            case "array":
                return self._array(branch, path, within, notation)
            case "object" if branch.get("properties"):
                return self._object(branch, path, within, notation)
            case _:
                self.losses[path] = "an open value, of which only a text is written"
                return notation.text.string({}, path, self.losses)

    def _array(
        self,
        branch: Schema,
        path: str,
        within: frozenset[str],
        notation: Notation,
    ) -> Expression:
        comma = Literal(notation.comma)
        first = branch.get("prefixItems") or ()
        if first:
            items = [
                self.value(each, f"{path}[{at}]", within)
                for at, each in enumerate(first)
            ]
            more = [part for item in items[1:] for part in (comma, item)]
            return sequence(Literal("["), items[0], *more, Literal("]"))
        least = int(branch.get("minItems", 0))
        most = branch.get("maxItems")
        item = self.value(branch.get("items", True), f"{path}[]", within)
        rest = None if most is None else max(int(most) - 1, 0)
        several = sequence(item, repeat(sequence(comma, item), max(least - 1, 0), rest))
        inside = NOTHING if most == 0 else several
        if not least:
            inside = EMPTY if inside == NOTHING else optional(inside)
        return sequence(Literal("["), inside, Literal("]"))

    def _object(
        self,
        branch: Schema,
        path: str,
        within: frozenset[str],
        notation: Notation,
    ) -> Expression:
        def write(name: str, schema: Json, where: str) -> Expression:
            key = notation.key(name)
            if key is None:
                return NOTHING
            value = self.value(schema, where, within)
            return sequence(Literal(f"{key}{notation.colon}"), value)

        inside = self.members(branch, path, write, comma=notation.comma)
        return sequence(Literal("{"), inside, Literal("}"))

    def members(
        self,
        schema: Schema,
        path: str,
        write: Callable[[str, Json, str], Expression],
        *,
        comma: str,
    ) -> Expression:
        """Return the members of an object in order, those that are not required perhaps left out.

        Args:
            write: Returns a member from its name, its schema and its place; nothing where it cannot be written.
            comma: Stands between two members.
        """
        required = set(schema.get("required") or ())
        written: list[tuple[Expression, bool]] = []
        for name, each in (schema.get("properties") or {}).items():
            where = f"{path}.{name}" if path else name
            member = write(name, each, where)
            is_required = name in required
            if member == NOTHING and is_required:
                self.losses[where] = "a required value that this form cannot write"
            if member != NOTHING or is_required:
                written.append((member, is_required))
        if comma:
            return self._join_members(written, comma)
        return sequence(
            *(each if is_required else optional(each) for each, is_required in written)
        )

    def _join_members(
        self, written: Sequence[tuple[Expression, bool]], comma: str
    ) -> Expression:
        """Return members in order, a comma between any two; each is required or may be left out."""
        rest: Expression = EMPTY
        first: Expression = EMPTY  # from here on, where no member came before
        for member, is_required in reversed(written):
            with_comma = sequence(Literal(comma), member)
            begin = sequence(member, rest)
            first = begin if is_required else choice([begin, first])
            rest = sequence(with_comma if is_required else optional(with_comma), rest)
            if rest not in (EMPTY, NOTHING):
                # several places go on with it
                self._parts += 1
                name = f"{self._prefix}_rest_{self._parts}"
                rest = self._rules.name_once(name, rest)
        return first
