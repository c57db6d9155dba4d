"""The four forms of a call, and messages in channels, as tags: what opens a call, its arguments, and what closes it.

A `Tag` is one call of one tool; a `Section` says how the calls of an answer follow each other. Both are what the
`CallFormat` of a family says already.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import TypeAlias

from msgspec import Struct

from handrail.errors import ConfigError, Json
from handrail.schemas.walk import Schema
from handrail_openmodels.grammars.expressions import (
    NOTHING,
    Expression,
    Literal,
    Pattern,
    Rules,
    choice,
    repeat,
    sequence,
)
from handrail_openmodels.grammars.schemas import Losses, find_branches, prepare
from handrail_openmodels.grammars.values import (
    Notation,
    TextForm,
    Values,
    bare_text,
    is_word,
    json_value,
    notation_of,
)
from handrail_openmodels.prompts.call_format import CallFormat
from handrail_openmodels.prompts.json_calls import JsonCalls
from handrail_openmodels.prompts.literal_calls import LiteralCalls
from handrail_openmodels.prompts.named_calls import NamedCalls
from handrail_openmodels.prompts.parameter_calls import Element, ParameterCalls


class Arguments(Struct, frozen=True):
    """The arguments of a call.

    Attributes:
        style: The style in which they are written, by the name that engines have for it.
        expression: What is written.
        lead: The text before each argument; engines that support the style omit the first one's.
    """

    schema: Schema
    style: str
    expression: Expression
    lead: str = ""


Part: TypeAlias = str | Arguments | Pattern
"""A text, the arguments, or what the model chooses, such as an id."""


class Tag(Struct, frozen=True):
    """One call of one tool."""

    name: str
    parts: tuple[Part, ...]

    @property
    def expression(self) -> Expression:
        """The text of the call."""
        return sequence(*map(_as_expression, self.parts))


class Section(Struct, frozen=True):
    """How the calls of an answer follow each other.

    Attributes:
        opens, closes: Around all of them.
        separator: Between two.
        trigger: What every section begins with; empty where calls have no mark.
    """

    tags: tuple[Tag, ...]
    opens: str = ""
    separator: str = ""
    closes: str = ""
    trigger: str = ""


def _as_expression(part: Part) -> Expression:
    if isinstance(part, str):
        return Literal(part)
    return part.expression if isinstance(part, Arguments) else part


class ToolSchema(Struct, frozen=True):
    """A tool as a grammar needs it, under the model's name for it."""

    name: str
    parameters: Schema


_COUNT = Pattern("[0-9]{1,4}")
_NINE = Pattern("[a-zA-Z0-9]{9}")
"""Mistral's templates take ids of nine characters, and of no other length."""


class Shaper:
    """Makes the tags of one family.

    Args:
        rules: Where rules are defined that the expressions name.
        losses: Where to note what no grammar can say.
        has_ids: Whether calls have ids, where the format has a place for them.
    """

    def __init__(
        self, rules: Rules, losses: dict[str, Losses], *, has_ids: bool = True
    ) -> None:
        self._rules = rules
        self._losses = losses
        self._has_ids = has_ids

    def section(self, call_format: CallFormat, tools: Sequence[ToolSchema]) -> Section:
        """Return the section of calls to these tools.

        Raises:
            ConfigError: The format is none of those that a grammar knows.
        """
        match call_format:
            case JsonCalls():
                return self._json_section(call_format, tools)
            case NamedCalls():
                return self._named_section(call_format, tools)
            case ParameterCalls():
                return self._parameter_section(call_format, tools)
            case LiteralCalls():
                return self._literal_section(call_format, tools)
            case _:
                raise ConfigError(
                    f"no grammar is known for calls of the form {type(call_format).__name__}"
                )

    def json_arguments(self, tool: ToolSchema) -> Arguments:
        """Return a tool's arguments as a JSON object."""
        prepared = self._prepare(tool)
        value = NOTHING if prepared is None else json_value(prepared, prepared)
        return Arguments(tool.parameters, "json", value)

    def _prepare(self, tool: ToolSchema) -> Schema | None:
        losses = self._losses.setdefault(tool.name, {})
        closed = {"additionalProperties": False, **tool.parameters, "type": "object"}
        return prepare(closed, losses)

    def _values(
        self, number: int, tool: ToolSchema, notation: Notation | None = None
    ) -> Values | None:
        """Return the values of a tool's arguments; None if nothing fits them."""
        prepared = self._prepare(tool)
        if prepared is None:
            return None
        losses = self._losses[tool.name]
        return Values(prepared, notation, self._rules, f"tool_{number}", losses)

    # ------------------------------------------------------------------ JSON objects

    def _json_section(
        self, call_format: JsonCalls, tools: Sequence[ToolSchema]
    ) -> Section:
        before, after = call_format.layout
        start = (call_format.starts or ("",))[0]
        opens = start + before
        closes = after + (call_format.ends or ("",))[0]
        objects = [self._json_object(call_format, tool) for tool in tools]
        if call_format.listed:
            list_opens, comma, list_closes = call_format.listed
            return Section(
                _tags(tools, objects),
                opens + list_opens,
                comma,
                list_closes + closes,
                start,
            )
        if call_format.gathered:
            return Section(
                _tags(tools, objects), opens, call_format.between, closes, start
            )
        each = [_join(opens, *parts, closes) for parts in objects]
        return Section(_tags(tools, each), "", call_format.between, "", start)

    def _json_object(
        self, call_format: JsonCalls, tool: ToolSchema
    ) -> tuple[Part, ...]:
        arguments = self.json_arguments(tool)
        name = json.dumps(tool.name, ensure_ascii=False)
        if call_format.by_name:
            return (f"{{{name}: ", arguments, "}")
        named = f'"{call_format.name[0]}": {name}, "{call_format.arguments[0]}": '
        id = f'"{call_format.id[0]}": "'
        if call_format.ids == "first" and self._has_ids:
            return (f"{{{id}", _COUNT, f'", {named}', arguments, "}")
        if call_format.ids == "last" and self._has_ids:
            return (f"{{{named}", arguments, f", {id}", _NINE, '"}')
        return (f"{{{named}", arguments, "}")

    # ------------------------------------------------------------------ names with marks

    def _named_section(
        self, call_format: NamedCalls, tools: Sequence[ToolSchema]
    ) -> Section:
        opens = f"{call_format.call}{call_format.lead}"
        closes = "".join(call_format.closes)
        calls = [
            _join(
                opens,
                *self._name(call_format, tool),
                call_format.name_ends[0],
                self.json_arguments(tool),
                closes,
            )
            for tool in tools
        ]
        section_opens, section_closes = call_format.section
        return Section(
            _tags(tools, calls),
            section_opens,
            call_format.between,
            section_closes,
            section_opens or call_format.call,
        )

    def _name(self, call_format: NamedCalls, tool: ToolSchema) -> tuple[Part, ...]:
        if call_format.counted:
            return (f"functions.{tool.name}:", _COUNT)
        if call_format.id_mark and self._has_ids:
            return (f"{tool.name}{call_format.id_mark}", _NINE)
        return (tool.name,)

    # ------------------------------------------------------------------ names with parameters

    def _parameter_section(
        self, call_format: ParameterCalls, tools: Sequence[ToolSchema]
    ) -> Section:
        layout = call_format.layout
        opens = closes = ""
        if call_format.sections:
            section_opens, section_closes = call_format.sections[0]
            opens = section_opens + layout
            closes = layout + section_closes
        calls = [
            self._parameter_call(call_format, number, tool)
            for number, tool in enumerate(tools)
        ]
        trigger = call_format.starts[0]
        if call_format.gathered:
            return Section(
                _tags(tools, calls), opens, call_format.between, closes, trigger
            )
        each = [_join(opens, *parts, closes) for parts in calls]
        return Section(_tags(tools, each), "", call_format.between, "", trigger)

    def _parameter_call(
        self, call_format: ParameterCalls, number: int, tool: ToolSchema
    ) -> tuple[Part, ...]:
        element = call_format.call
        before, _, after = element.attributes.partition("{position}")
        values = self._values(number, tool)
        if call_format.inside is None:
            inside = call_format.layout
        else:
            inside = call_format.inside
        head = f"{''.join(call_format.leads_in)}{element.opens}{tool.name}{element.named}{before}"
        position: tuple[Part, ...] = ()
        if element.attributes:
            position = (_COUNT, after)
        return _join(
            head,
            *position,
            element.begins,
            Arguments(
                tool.parameters,
                _style(call_format),
                _parameters(values, call_format, inside) if values else NOTHING,
                inside,
            ),
            f"{inside}{element.closes}{''.join(call_format.leads_out)}",
        )

    # ------------------------------------------------------------------ literals in brackets

    def _literal_section(
        self, call_format: LiteralCalls, tools: Sequence[ToolSchema]
    ) -> Section:
        start = (call_format.starts or ("",))[0]
        end = (call_format.ends or ("",))[0]
        calls = [
            self._literal_call(call_format, number, tool)
            for number, tool in enumerate(tools)
        ]
        if call_format.listed:
            return Section(_tags(tools, calls), f"{start}[", ", ", f"]{end}", start)
        if call_format.lead:
            each = [_join(start, *parts, end) for parts in calls]
            return Section(_tags(tools, each), trigger=start)
        return Section(_tags(tools, calls), start, "\n", end, start)

    def _literal_call(
        self, call_format: LiteralCalls, number: int, tool: ToolSchema
    ) -> tuple[Part, ...]:
        notation = notation_of(call_format)
        values = self._values(number, tool, notation)
        expression: Expression = NOTHING
        if values is not None:
            expression = _literal_arguments(values, call_format, notation.comma)
        return _join(
            f"{call_format.lead}{tool.name}{call_format.method}{call_format.bracket}",
            Arguments(tool.parameters, notation.style, expression),
            _CLOSES[call_format.bracket],
        )


def _literal_arguments(
    values: Values, call_format: LiteralCalls, comma: str
) -> Expression:
    def write(name: str, schema: Json, path: str) -> Expression:
        if not is_word(name):
            return NOTHING
        value = values.value(schema, path)
        return sequence(Literal(f"{name}{call_format.equals}"), value)

    return values.members(values.root, "", write, comma=comma)


_CLOSES = {"(": ")", "[": "]", "{": "}"}


def _tags(
    tools: Sequence[ToolSchema], calls: Sequence[tuple[Part, ...]]
) -> tuple[Tag, ...]:
    """Return the tags of those calls that can be written."""
    tags = (Tag(tool.name, parts) for tool, parts in zip(tools, calls, strict=True))
    return tuple(tag for tag in tags if tag.expression != NOTHING)


def _join(*parts: Part) -> tuple[Part, ...]:
    """Return the parts with texts that touch made one."""
    joined: list[Part] = []
    for part in parts:
        if isinstance(part, str) and joined and isinstance(joined[-1], str):
            joined[-1] += part
        elif part != "":
            joined.append(part)
    return tuple(joined)


# ---------------------------------------------------------------------- parameters


def _parameters(values: Values, call_format: ParameterCalls, inside: str) -> Expression:
    """Return a call's parameters, each with its marks; `inside` precedes each, unless they hold elements."""
    if call_format.nested:
        return _write_elements(values, call_format.parameter, values.root, "")

    def write(name: str, schema: Json, path: str) -> Expression:
        written = _parameter_values(values, call_format, schema, path)
        return _parameter(call_format, name, written, inside)

    return values.members(values.root, "", write, comma="")


def _parameter_values(
    values: Values, call_format: ParameterCalls, schema: Json, path: str
) -> Mapping[str, list[Expression]]:
    """Return what may stand for a parameter, its closing mark included, by the type that is named of it."""
    form = _text_form(call_format, path.rpartition(".")[2])
    written: dict[str, list[Expression]] = {}
    for branch, _ in find_branches(values.root, schema):
        for kind, expression in _kinds(values, branch, path, form):
            written.setdefault(kind, []).append(expression)
    return written


def _text_form(call_format: ParameterCalls, name: str) -> TextForm:
    """Return how a parameter's text is written; the mark that closes it may hold its name."""
    element = call_format.parameter
    closes = element.closes.replace("{name}", name)
    pad = call_format.padding
    # A value that holds these reads as a call within the value, and the call around it as one that has no end.
    call = call_format.call
    without = [call.opens, call.closes, element.opens]
    if call_format.cdata:
        without.append("<![CDATA[")
    return bare_text(pad, pad + closes, closes, without=tuple(without))


def _kinds(
    values: Values, branch: Schema, path: str, form: TextForm
) -> list[tuple[str, Expression]]:
    """Return what a schema of one type allows: strings as they are, and all else as JSON."""
    if "enum" in branch:
        return [
            (
                _type_name(each),
                form.literal(each)
                if isinstance(each, str)
                else _wrap(form, Literal(json.dumps(each, ensure_ascii=False))),
            )
            for each in branch["enum"]
        ]
    kind = branch.get("type", "")
    if kind == "string":
        return [("string", form.string(branch, path, values.losses))]
    named = _TYPE_NAMES.get(str(kind), "null")
    return [(named, _wrap(form, json_value(values.root, branch)))]


def _write_element(
    values: Values,
    element: Element,
    name: str,
    schema: Json,
    path: str,
    within: frozenset[str],
) -> Expression:
    """Return an element with the values of a schema, such as `<items><item><sku>a-1</sku></item></items>`.

    Objects and lists are elements where the family's reader can tell their types: where the schema refers to no other,
    exactly one of its branches is an object or a list, and none is text. Elsewhere they are JSON.
    """
    if not _can_be_named(element, name):
        return NOTHING
    closes = element.closes.replace("{name}", name)
    # No text holds the beginning of a mark, so a text ends at the first mark of any kind.
    form = bare_text("", closes, element.opens)
    branches = list(find_branches(values.root, schema, within))
    kinds = [branch.get("type") for branch, _ in branches]
    is_plain = isinstance(schema, Mapping) and "$ref" not in schema
    nests = is_plain and "string" not in kinds and _count_nested(kinds) == 1
    options: list[Expression] = []
    for branch, seen in branches:
        if nests and branch.get("properties"):
            inside = _write_elements(values, element, branch, path, seen)
            options.append(_wrap(form, inside))
        elif nests and isinstance(branch.get("items"), Mapping):
            item = _write_element(
                values, element, "item", branch["items"], f"{path}[]", seen
            )
            most = branch.get("maxItems")
            items = repeat(item, int(branch.get("minItems", 0)), most)
            options.append(_wrap(form, items))
        else:
            options += [each for _, each in _kinds(values, branch, path, form)]
    lead = Literal(f"{element.opens}{name}{element.named}")
    return sequence(lead, choice(options))


def _write_elements(
    values: Values,
    element: Element,
    branch: Schema,
    path: str,
    within: frozenset[str] = frozenset(),
) -> Expression:
    """Return the members of an object, an element each."""

    def write(name: str, schema: Json, where: str) -> Expression:
        return _write_element(values, element, name, schema, where, within)

    return values.members(branch, path, write, comma="")


def _count_nested(kinds: Sequence[Json]) -> int:
    return sum(kind in ("object", "array") for kind in kinds)


def _can_be_named(element: Element, name: str) -> bool:
    """Whether a name does not end the mark around it early."""
    is_apart = element.named not in name and "\n" not in name
    return is_apart and bool(name) and not name.startswith("/")


def _wrap(form: TextForm, value: Expression) -> Expression:
    return sequence(Literal(form.opens), value, Literal(form.closes))


_TYPE_NAMES = {"integer": "number"} | {
    kind: kind for kind in ("string", "number", "boolean", "array", "object", "null")
}


def _type_name(value: Json) -> str:
    types = {
        str: "string",
        bool: "boolean",
        int: "number",
        float: "number",
        list: "array",
        dict: "object",
    }
    return types.get(type(value), "null")


def _parameter(
    call_format: ParameterCalls,
    name: str,
    written: Mapping[str, list[Expression]],
    inside: str,
) -> Expression:
    """Return a parameter with its value; nothing where its name would end the mark around it."""
    element = call_format.parameter
    if not _can_be_named(element, name):
        return NOTHING
    lead = f"{inside}{element.opens}{name}{element.named}"
    if not element.attributes:
        every = [each for values in written.values() for each in values]
        return sequence(Literal(f"{lead}{element.begins}"), choice(every))
    options = [
        sequence(Literal(lead + _attributes(element, kind)), choice(values))
        for kind, values in written.items()
    ]
    return choice(options)


def _attributes(element: Element, kind: str) -> str:
    is_text = "true" if kind == "string" else "false"
    return element.attributes.format(type=kind, is_text=is_text) + element.begins


def _style(call_format: ParameterCalls) -> str:
    """Return the name under which engines know a form of parameters; empty where they know none."""
    element = call_format.parameter
    if element.opens == "<parameter=":
        return "qwen_xml"
    if element.opens == "<arg_key>":
        return "glm_xml"
    if element.opens == '<parameter name="':
        return "minimax_xml"
    if element.opens == '<｜DSML｜parameter name="':
        return "deepseek_xml"
    if element.opens == '<|open|>argument key="':
        return "kimi_k3_xml"
    return ""
