"""Calls as a name and parameters with marks around each value: `<function=name><parameter=key>value</parameter>`.

Values are bare: only the tool's schema gives their type, and only the closing mark their end.
So a call is reported when it is whole, with JSON that we write.

Rule 1: without a schema every value is text.
Rule 2: a value is exactly what is between its marks, but for the one line break on each side that some families put
        there.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence

from msgspec import Struct

from handrail.calls import ToolCall
from handrail.errors import Json
from handrail.parsing import strictjson
from handrail.schemas.validation import coerce_text
from handrail_openmodels.prompts.buffer import Marks, Step, TextBuffer, marks
from handrail_openmodels.prompts.call_format import (
    MOST_NAME_CHARS,
    AnswerSink,
    Schemas,
    is_name,
)

_TYPE = re.compile(r'(?P<key>type|string)="(?P<value>[a-z]{1,10})"')
_ATTRIBUTES = re.compile(
    r'\s*(?:(?:type|string|index)\s*=\s*"?(?:[a-z]{1,10}|\d{1,4})"?\s*)*'
)
_CDATA = ("<![CDATA[", "]]>")


class Element(Struct, frozen=True):
    """The marks around a call or a parameter.

    Attributes:
        opens: Stands before the name.
        named: Stands after the name.
        begins: Stands before what is inside, after attributes if any; empty if that is `named` already.
        closes: Ends the element. `{name}` in it is replaced by the name.
        attributes: What is written between `named` and `begins`; `{position}` is the call's, from 1, `{type}` and
            `{is_text}` are the value's.
    """

    opens: str
    named: str
    begins: str = ""
    closes: str = ""
    attributes: str = ""

    def has_room(self, text: str) -> bool:
        """Whether a text may stand between `named` and `begins`: attributes, where the format has some, and no word."""
        if self.attributes.strip():
            return bool(_ATTRIBUTES.fullmatch(text))
        return not text.strip()

    @property
    def tokens(self) -> tuple[str, ...]:
        """The marks that are marks by themselves."""
        return tuple(
            mark for mark in (self.opens, self.begins, self.closes) if len(mark) > 1
        )


class ParameterCalls(Struct, frozen=True):
    """Calls as a name and parameters with marks around each value.

    Attributes:
        sections: Pairs of marks that open and close the calls of an answer; the first is the one that is written.
            Both may be missing, and a section may hold several calls.
        leads_in: What may come between the section's mark and a call.
        leads_out: What may follow a call.
        padding: Stands around each value, and does not belong to it.
        layout: What is written between the marks of a section, a call and its parameters.
        inside: The same between the marks of a call and its parameters, where it is another.
        gathered: Whether several calls are written in one section.
        between: What is written between calls.
        cdata: Whether values that hold marks are wrapped in `<![CDATA[...]]>`.
        nested: Whether objects and lists are written as elements within the value.
    """

    call: Element
    parameter: Element
    sections: tuple[tuple[str, str], ...] = ()
    leads_in: tuple[str, ...] = ()
    leads_out: tuple[str, ...] = ()
    padding: str = ""
    layout: str = "\n"
    inside: str | None = None
    gathered: bool = True
    between: str = "\n"
    cdata: bool = False
    nested: bool = False
    bare: str = ""
    loose: tuple[str, ...] = ()
    leads: str = ""

    @property
    def starts(self) -> tuple[str, ...]:
        """The marks that open a section of calls."""
        sections = (opens for opens, _ in self.sections)
        return (*sections, *self.leads_in, self.call.opens)

    @property
    def tokens(self) -> tuple[str, ...]:
        """All marks of this format."""
        sections = (mark for pair in self.sections for mark in pair)
        return (
            *sections,
            *self.leads_in,
            *self.leads_out,
            *self.call.tokens,
            *self.parameter.tokens,
        )

    def read(self, source: TextBuffer, sink: AnswerSink, start: str) -> Step[None]:
        """Read calls until something else follows; see `CallFormat.read`."""
        if start in self.leads_in:
            source.back(start)
        if start != self.call.opens and not (yield from self._read_opening(source)):
            return
        closes = marks(*(closes for _, closes in self.sections))
        while True:
            has_call = yield from self._one(source, sink)
            if not has_call:
                return
            source.mark()
            yield from source.space()
            while (yield from source.read_mark(marks(*self.leads_out))):
                yield from source.space()
            if (yield from source.read_mark(closes)):
                source.mark()
                return
            if not (yield from self._read_opening(source)):
                return

    def _read_opening(self, source: TextBuffer) -> Step[bool]:
        """Read what precedes a call's name. Return whether all of it was there."""
        yield from source.space()
        while (yield from source.read_mark(marks(*self.leads_in))):
            yield from source.space()
        return (yield from source.read_literal(self.call.opens))

    def _one(self, source: TextBuffer, sink: AnswerSink) -> Step[bool]:
        """Read one call after the mark that opens it. Return whether it was reported."""
        name = yield from self._name(source)
        if not is_name(name):
            return False
        members: list[tuple[str, Json]] = []
        properties = _properties(sink.parameters(name))
        after = marks(self.call.closes, self.parameter.opens)
        yield from source.space()
        mark = yield from source.read_mark(after)
        while mark == self.parameter.opens:
            key, named = yield from self._head(source, self.parameter.named)
            attributes = ""
            if named and self.parameter.begins:
                attributes, named = yield from self._head(source, self.parameter.begins)
                if not self.parameter.has_room(attributes):
                    return False
            # that closes an element which was not open
            if not named or key.startswith("/"):
                return False
            value, mark = yield from self._value(source, key, after)
            if mark:
                members.append(
                    (key, self._parse_value(value, attributes, properties.get(key)))
                )
        if not mark:
            return False
        source.unmark()
        sink.begin(name)
        sink.more(_object(members))
        sink.end()
        return True

    def _name(self, source: TextBuffer) -> Step[str]:
        """Read the name and what separates it from the first parameter."""
        ends = (self.call.named, self.parameter.opens, self.call.closes)
        name, mark = yield from self._head(source, *ends)
        if mark != self.call.named:
            source.back(mark)
        elif self.call.begins:
            attributes, mark = yield from self._head(source, self.call.begins)
            if not self.call.has_room(attributes):
                return ""
        if mark:
            return name.strip()
        return ""

    def _head(self, source: TextBuffer, *ends: str) -> Step[tuple[str, str]]:
        """Read a part of the head of an element, and the mark that ends it; empty if another mark comes first."""
        both = (self.call.closes, self.parameter.opens, self.parameter.closes)
        text, mark = yield from source.upto(
            marks(*ends, *self.starts, *both), most=MOST_NAME_CHARS
        )
        if mark not in ends:
            source.back(mark)
            return text, ""
        return text, mark

    def _value(
        self, source: TextBuffer, key: str, after: Marks
    ) -> Step[tuple[str, str]]:
        """Read a value. Return it with the mark that follows its own; an end without that is a part of the value."""
        if self.nested:
            return (yield from self._read_nested_value(source, key, after))
        text = yield from self._flat_value(source, after)
        if text is None:
            return "", ""
        follows = yield from source.read_mark(after)
        return self._without_padding(text), follows

    def _without_padding(self, text: str) -> str:
        pad = self.padding
        if pad == "\n" and text.startswith("\r\n") and text.endswith("\r\n"):
            pad = "\r\n"
        return text.removeprefix(pad).removesuffix(pad)

    def _flat_value(self, source: TextBuffer, after: Marks) -> Step[str | None]:
        """Read up to the mark that closes a value, and the white space after it. Return the value.

        None if the call or the text ends without that mark. A call that is quoted within a value is a part of it.
        """
        pieces: list[str] = []
        if self.cdata and (yield from source.read_literal(_CDATA[0])):
            text, _ = yield from source.upto(marks(_CDATA[1]))
            pieces.append(text)
        inner = _InnerCalls(self)
        tries = MOST_JSON_TRIES
        while True:
            text, mark = yield from source.upto(inner.marks)
            pieces.append(text)
            if not mark:
                return None
            space = ""
            is_inner = inner.take(text, mark)
            may_end = mark == self.parameter.closes and text.rstrip().endswith(_ENDS)
            if is_inner and may_end and tries:
                # marks in the strings of a JSON value are no marks
                tries -= 1
                is_inner = not _is_json("".join(pieces))
            if not is_inner:
                space = yield from source.space()
                if mark == self.parameter.closes:
                    if (yield from source.next_is(after)):
                        return "".join(pieces)
                elif (yield from source.next_is(self._outside)):
                    return None
            pieces += (mark, space)

    def _read_nested_value(
        self, source: TextBuffer, key: str, after: Marks
    ) -> Step[tuple[str, str]]:
        """Read a value up to the mark that closes it; elements of its own name may stand in it."""
        opens = f"{self.parameter.opens}{key}{self.parameter.named}"
        closes = self.parameter.closes.replace("{name}", key)
        either = Marks([opens, closes])
        pieces: list[str] = []
        depth = 1
        while True:
            text, mark = yield from source.upto(either)
            pieces.append(text)
            if mark == opens:
                depth += 1
            elif mark:
                depth -= 1
            if mark and depth:
                pieces.append(mark)
                continue
            space = yield from source.space()
            follows = yield from source.read_mark(after)
            if follows or not mark:
                return "".join(pieces), follows
            pieces += (mark, space)
            depth = 1

    @property
    def _outside(self) -> Marks:
        """The marks that can only follow a whole call."""
        sections = (mark for pair in self.sections for mark in pair)
        return marks(*sections, *self.leads_in, *self.leads_out, self.call.opens)

    def _parse_value(self, value: str, attributes: str, schema: Json) -> Json:
        """Return the value as what the text or the schema says that it is; what is neither stays text."""
        declared = _TYPE.search(attributes)
        if declared and declared[0] in ('type="string"', 'string="true"'):
            return value
        if declared:
            try:
                return strictjson.loads(value)
            except strictjson.NotJson:
                return value
        if not isinstance(schema, Mapping):
            return value
        if self.nested:
            return _parse_nested(value, self.parameter, schema)
        return coerce_text(value, dict(schema))

    def encode(self, calls: Sequence[ToolCall], schemas: Schemas) -> str:
        """Return the section for these calls; see `CallFormat.encode`."""
        if self.sections:
            opens, closes = self.sections[0]
        else:
            opens = ""
            closes = ""
        lead_in = "".join(self.leads_in)
        lead_out = "".join(self.leads_out)
        each = [
            f"{lead_in}{self._call(call, position, schemas)}{lead_out}"
            for position, call in enumerate(calls, 1)
        ]
        if self.gathered:
            sections = [self.between.join(each)]
        else:
            sections = each
        if opens:
            sections = [
                self.layout.join((opens, section, closes)) for section in sections
            ]
        return self.between.join(sections)

    def _call(self, call: ToolCall, position: int, schemas: Schemas) -> str:
        members = json.loads(call.arguments)
        properties = _properties(schemas.get(call.name))
        element = self.call
        layout = self.layout if self.inside is None else self.inside
        parts = [
            f"{element.opens}{call.name}{element.named}{element.attributes.format(position=position)}{element.begins}"
        ]
        parts += [
            self._parameter(key, value, properties.get(key))
            for key, value in members.items()
        ]
        return layout.join([*parts, element.closes])

    def _parameter(self, key: str, value: Json, schema: Json) -> str:
        element = self.parameter
        pad = self.padding
        if isinstance(value, str):
            is_text = "true"
        else:
            is_text = "false"
        attributes = element.attributes.format(type=_type_name(value), is_text=is_text)
        if isinstance(value, str):
            text = value
        else:
            text = json.dumps(value, ensure_ascii=False)
        if self.cdata and isinstance(value, str) and ("<" in value or "&" in value):
            text = f"{_CDATA[0]}{value}{_CDATA[1]}"
        if self.nested and isinstance(schema, Mapping):
            elements = _elements(value, element)
            # else the schema says too little
            if _parse_nested(elements, element, schema) == value:
                text = elements
        closes = element.closes.replace("{name}", key)
        return f"{element.opens}{key}{element.named}{attributes}{element.begins}{pad}{text}{pad}{closes}"


MOST_JSON_TRIES = 8
"""How often a value is tried as JSON: reading stays linear however often it holds the mark that ends a value."""

_ENDS = ("]", "}")


def _is_json(text: str) -> bool:
    """Whether a value is a whole list or object as JSON."""
    if not text.lstrip().startswith(("[", "{")):
        return False
    try:
        strictjson.loads(text)
    except strictjson.NotJson:
        return False
    return True


class _InnerCalls:
    """Follows the calls that a value quotes, so that their marks do not end the value.

    What follows an unclosed parameter looks like a quoted call too. Then the outer call has no end: it is not whole.
    """

    def __init__(self, call_format: ParameterCalls) -> None:
        self._call = call_format.call
        self._parameter = call_format.parameter
        # how many parameters are open: in the value itself, and in each call within it
        self._depths = [0]
        # an opening mark whose name is not read yet
        self._unnamed = ""
        self.marks = marks(
            self._call.opens,
            self._call.closes,
            self._parameter.opens,
            self._parameter.closes,
        )

    def take(self, text: str, mark: str) -> bool:
        """Take the text up to the next mark, and the mark. Return whether it belongs to something within the value."""
        self._open(text, mark)
        if mark in (self._call.opens, self._parameter.opens):
            self._unnamed = mark
        elif mark == self._call.closes:
            if len(self._depths) == 1:
                return False
            self._depths.pop()
        elif self._depths[-1]:
            self._depths[-1] -= 1
        else:
            return len(self._depths) > 1
        return True

    def _open(self, text: str, mark: str) -> None:
        """Open the call or parameter of the last mark if a name follows it; otherwise the mark is only text."""
        opening = self._unnamed
        self._unnamed = ""
        if opening == self._call.opens:
            named = self._call.named
            name = (text.partition(named)[0] if named else text).strip()
            if is_name(name) and mark in (self._parameter.opens, self._call.closes):
                self._depths.append(0)
        elif opening:
            name, named, _ = text.partition(self._parameter.named)
            if named and 0 < len(name) <= MOST_NAME_CHARS:
                self._depths[-1] += 1


def _properties(parameters: Mapping[str, Json] | None) -> Mapping[str, Json]:
    """Return the schemas of a tool's parameters, by name; empty if it has none or there is no such tool."""
    properties = (parameters or {}).get("properties")
    if isinstance(properties, Mapping):
        return properties
    return {}


def _object(members: Sequence[tuple[str, Json]]) -> str:
    """Return the members as JSON text. A name that comes twice stays there twice: two readings are for `jsontext`."""
    return (
        "{" + ", ".join(f"{_json(key)}: {_json(value)}" for key, value in members) + "}"
    )


def _json(value: Json) -> str:
    return json.dumps(value, ensure_ascii=False)


def _type_name(value: Json) -> str:
    names = {
        str: "string",
        bool: "boolean",
        int: "number",
        float: "number",
        list: "array",
        dict: "object",
    }
    return names.get(type(value), "null")


# ---------------------------------------------------------------------- values within values


def _elements(value: Json, element: Element) -> str:
    """Return a value as elements within elements; list items are called `item`."""
    if not value and isinstance(value, dict | list):
        return _json(value)
    if isinstance(value, dict):
        members: Iterator[tuple[str, Json]] = iter(value.items())
    elif isinstance(value, list):
        members = (("item", item) for item in value)
    else:
        if isinstance(value, str):
            return value
        return _json(value)
    return "".join(
        f"{element.opens}{key}{element.named}{_elements(each, element)}{element.closes.replace('{name}', key)}"
        for key, each in members
    )


def _parse_nested(value: str, element: Element, schema: Mapping[str, Json]) -> Json:
    """Read elements within a value, as far as the schema has a place for them; other text is read as such."""
    if "string" in _kinds(schema) or element.opens not in value:
        return _read_leaf(value, schema)
    # JSON is tried first: a text in it may look like an element, while no element begins like JSON.
    whole = coerce_text(value, dict(schema))
    if isinstance(whole, dict | list):
        return whole
    tree = _tree(value, element)
    if tree is None:
        return value
    return _fit(tree, schema)


class _Node(Struct):
    """An element within a value: text, or further elements."""

    text: str
    children: list[tuple[str, _Node]]


def _tree(value: str, element: Element) -> _Node | None:
    """Return the elements of a value, or None if one of them is not closed as it was opened."""
    before, *rest = value.split(element.opens)
    root = _Node(before, [])
    open_now = [("", root)]
    for part in rest:
        name, named, text = part.partition(element.named)
        if not named or len(open_now) > strictjson.MAX_DEPTH:
            return None
        if not name.startswith("/"):
            node = _Node(text, [])
            open_now[-1][1].children.append((name, node))
            open_now.append((name, node))
        elif open_now.pop()[0] != name[1:] or not open_now:
            return None
    if len(open_now) == 1:
        return root
    return None


def _fit(node: _Node, schema: Mapping[str, Json]) -> Json:
    """Return the value of an element, in the types of the schema."""
    if not node.children:
        return _read_leaf(node.text, schema)
    if "array" in _kinds(schema) or (
        not _kinds(schema) and all(name == "item" for name, _ in node.children)
    ):
        items = _part(schema, "items")
        return [_fit(child, items) for _, child in node.children]
    members = _part(schema, "properties")
    return {name: _fit(child, _part(members, name)) for name, child in node.children}


def _read_leaf(text: str, schema: Mapping[str, Json]) -> Json:
    """Return the value of an element that holds no elements. An empty one is an empty list or object, by the schema."""
    kinds = _kinds(schema)
    if not text.strip() and "string" not in kinds:
        if "array" in kinds:
            return []
        if "object" in kinds:
            return {}
    return coerce_text(text, dict(schema))


def _kinds(schema: Mapping[str, Json]) -> set[str]:
    """Return the types that a schema names, in itself or in its branches."""
    kind = schema.get("type")
    if isinstance(kind, str):
        kinds = {kind}
    else:
        kinds = set(kind or ())
    return kinds.union(*(_kinds(branch) for branch in _branches(schema)))


def _part(schema: Mapping[str, Json], word: str) -> Mapping[str, Json]:
    """Return a schema within a schema, from itself or from its first branch that has one; empty if none has."""
    for each in (schema, *_branches(schema)):
        if isinstance(part := each.get(word), Mapping):
            return part
    return {}


def _branches(schema: Mapping[str, Json]) -> list[Mapping[str, Json]]:
    branches = (each for word in ("anyOf", "oneOf") for each in schema.get(word) or ())
    return [each for each in branches if isinstance(each, Mapping)]
