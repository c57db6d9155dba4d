"""A tool as lint sees it: its texts, its parameters down to the innermost, and what it declares.

Tools written in Python and definitions in JSON look alike here. What a form has no place for (an effect, in OpenAI's
definitions) does not count as missing.
"""

from __future__ import annotations

import inspect
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

from msgspec import Struct, field
from msgspec.structs import replace

from handrail._lazy import cached_property
from handrail.effects import EffectClass
from handrail.errors import Json, ToolDefinitionError
from handrail.linting.findings import Place
from handrail.linting.texts import words
from handrail.schemas.walk import Schema, resolve_reference, schema_types
from handrail.tools.function_tool import FunctionTool
from handrail.tools.tool import BaseTool
from handrail.tools.toolset import Toolset

WIRES: Mapping[str, str] = {
    "OpenAI": "openai-chat",
    "OpenAI Responses": "openai-responses",
    "Anthropic": "anthropic",
    "Gemini": "gemini",
}
"""The providers that portability and cost are measured for, and the wire of each."""

MOST_DEPTH = 8
"""Levels of a schema that are looked into; a definition may refer to itself."""


class Parameter(Struct, frozen=True, dict=True):
    """A value that the model fills, at any depth; `path` is such as `address.street` or `items[].id`."""

    path: str
    schema: Schema
    required: bool
    level: int
    """0 for a parameter of the tool itself, 1 for what is inside of one."""

    @cached_property
    def name(self) -> str:
        """The last step of the path."""
        return self.path.removesuffix("[]").rpartition(".")[2]

    @cached_property
    def words(self) -> Sequence[str]:
        """The words of its name."""
        return words(self.name)

    @property
    def text(self) -> str:
        """Its description."""
        text = self.schema.get("description")
        return text.strip() if isinstance(text, str) else ""

    @cached_property
    def types(self) -> frozenset[str]:
        """The types that it may have, those of its alternatives included, null left out."""
        return frozenset(
            name
            for part in (self.schema, *_list_branches(self.schema))
            for name in schema_types(part)
            if name != "null"
        )

    @cached_property
    def is_closed(self) -> bool:
        """Whether the schema says which texts are taken: by an enum, a pattern, a format."""
        restrictions = {"enum", "const", "pattern", "format"}
        parts = (self.schema, *_list_branches(self.schema))
        return any(restrictions & part.keys() for part in parts)

    @property
    def has_sample(self) -> bool:
        """Whether the schema gives an example or a default."""
        return (
            bool(self.schema.get("examples") or self.schema.get("example"))
            or self.schema.get("default") is not None
        )


def _list_branches(schema: Schema) -> list[Schema]:
    """Return the alternatives that a schema offers, and the parts that it joins."""
    return [
        branch
        for word in ("anyOf", "oneOf", "allOf")
        for branch in schema.get(word, ())
        if isinstance(branch, dict)
    ]


class Declared(Struct, frozen=True):
    """What is declared about what a tool does.

    Attributes:
        form: Whose declarations they are; MCP's are hints.
        recognizes_repeats: A second call for the same act is found to be one: by a key, or by asking.
        asks: A person must agree to some or all calls.
        injected: Names of the parameters that the caller fills.
        key: Its template, where it is one.
        resource: The first of its templates.
        looks_at: Which of the injected parameters `key` and `resource` look at; without those that are not declared.
        finds_repeats: An equal call in another run counts as a repeat.
        egress: Whether its arguments leave to somebody, as declared; None where that follows from the effect.
        destinations: Its arguments that say where; None if that is unknown.
        callers: Who of a model's side may call it; see `Limits.callers`.
        has_foreign_answer: It is a write, and nobody has declared whether its answer is a stranger's words.
    """

    form: str
    effect: EffectClass | None = None
    recognizes_repeats: bool = False
    asks: bool = True
    note: str = ""
    injected: Sequence[str] = ()
    key: str = ""
    resource: str = ""
    looks_at: Mapping[str, Collection[str]] = field(default_factory=dict)
    finds_repeats: bool = False
    egress: bool | None = None
    destinations: Sequence[str] | None = None
    callers: Sequence[str] = ("direct",)
    has_foreign_answer: bool = False


class Subject(Struct, frozen=True, dict=True):
    """One tool, as the rules look at it.

    Attributes:
        declared: None where its form has no place for it.
        has_output: It declares a schema or a text of what it returns.
        fault: Why it cannot be described to a model.
        written: The definition as it is in a file.
    """

    name: str
    description: str = ""
    schema: Schema = field(default_factory=dict)
    declared: Declared | None = None
    has_output: bool = False
    place: Place = field(default_factory=Place)
    fault: str = ""
    written: Mapping[str, Json] = field(default_factory=dict)
    aliases: Sequence[str] = ()
    tool: BaseTool | None = None

    @cached_property
    def parameters(self) -> Sequence[Parameter]:
        """Every parameter, each before what is inside of it."""
        return list(_walk_parameters(self.schema, self.schema, "", 0))

    @property
    def own_parameters(self) -> Sequence[Parameter]:
        """The parameters of the tool itself."""
        return [
            parameter
            for parameter in self.parameters
            if parameter.level == 0 and not parameter.path.endswith("[]")
        ]

    @cached_property
    def words(self) -> frozenset[str]:
        """The words of its name and description."""
        return frozenset(words(self.name)) | frozenset(words(self.description))

    @cached_property
    def on_wires(self) -> Mapping[str, Json]:
        """The definition as it goes to each provider; empty where none can be made."""
        if self.fault or not self.name:
            return {}
        alone = Toolset([self.tool or _make_stand_in(self)])
        return {
            provider: list(alone.definitions(wire)) for provider, wire in WIRES.items()
        }


def _make_stand_in(subject: Subject) -> BaseTool:
    return FunctionTool(
        _never,
        name=subject.name,
        description=subject.description,
        parameters=subject.schema,
        effect="read",
    )


def _never(**_: Json) -> None:
    raise AssertionError("a tool that was only described does not run")


def read_tool(tool: BaseTool) -> Subject:
    """Return a tool of Python as lint sees it."""
    fault = ""
    parameters = {}
    try:
        parameters = tool.parameters
    except ToolDefinitionError as error:
        fault = str(error)
    asks = tool.effective_risk == "high" or tool.approve is not False
    declared = Declared(
        "handrail",
        tool.effect,
        recognizes_repeats=bool(
            tool.key or tool.verify or tool.replay or tool.write.repeatable
        ),
        asks=asks,
        callers=tool.limits.callers,
        has_foreign_answer=tool.writes
        and tool.sends.trust is None
        and not _is_wordless(tool),
    )
    if not fault:
        declared = _add_injected(declared, tool)
    return Subject(
        name=tool.name,
        description=tool.description,
        schema=parameters,
        declared=declared,
        has_output=bool(tool.docs.returns) or tool.returns is not None,
        place=_find_location(tool),
        fault=fault,
        aliases=tool.aliases,
        tool=tool,
    )


def _is_wordless(tool: BaseTool) -> bool:
    """Whether the results of a tool are trusted: those of a directory, and nothing, true and false."""
    hints = getattr(inspect.unwrap(tool.run), "__annotations__", {})
    returned = hints.get("return", "")
    return tool.sends.directory or returned in (None, bool, "None", "bool")


def _add_injected(declared: Declared, tool: BaseTool) -> Declared:
    """Return what is declared, with what is injected and which rules look at it."""
    resources = [tool.resource] if isinstance(tool.resource, str) else tool.resource
    looks_at = tool.injected_in_rules
    return replace(
        declared,
        injected=tool.list_injected(),
        key=tool.key if isinstance(tool.key, str) else "",
        resource=next(iter(resources or ()), ""),
        looks_at={
            setting: looks_at.get(setting, ())
            for setting in ("key", "resource")
            if getattr(tool, setting)
        },
        finds_repeats=tool.writes and tool.write.repeat_window_s > 0,
        egress=tool.sends.egress,
        # declared as none, it is meant so
        destinations=None if tool.sends.destination is not None else tool.destinations,
    )


def _find_location(tool: BaseTool) -> Place:
    function: Any = inspect.unwrap(tool.run)
    code = getattr(function, "__code__", None)
    return Place(code.co_filename, code.co_firstlineno) if code else Place()


def _walk_parameters(
    schema: Json, root: Schema, path: str, level: int
) -> Iterator[Parameter]:
    """Yield the properties of an object, and what is inside of each; follow references a few levels."""
    if not isinstance(schema, dict) or level > MOST_DEPTH:
        return
    schema = _follow_reference(schema, root)
    properties = schema.get("properties")
    required = schema.get("required")
    needed = required if isinstance(required, list) else []
    for name, part in properties.items() if isinstance(properties, dict) else ():
        if isinstance(part, dict):
            here = f"{path}{name}"
            value = _follow_reference(part, root)
            yield Parameter(here, value, name in needed, level)
            yield from _walk_value(value, root, here, level)
    # alternatives of the arguments as a whole are rules about them, not further parameters
    if path:
        for branch in _list_branches(schema):
            yield from _walk_parameters(branch, root, path, level)


def _walk_value(
    value: Schema, root: Schema, path: str, level: int
) -> Iterator[Parameter]:
    items = value.get("items")
    if isinstance(items, dict):
        yield from _walk_parameters(items, root, f"{path}[].", level + 1)
    yield from _walk_parameters(value, root, f"{path}.", level + 1)


def _follow_reference(schema: Schema, root: Schema) -> Schema:
    reference = schema.get("$ref")
    body = resolve_reference(root, reference) if isinstance(reference, str) else None
    if not isinstance(body, dict):
        return schema
    return {**body, **{key: value for key, value in schema.items() if key != "$ref"}}
