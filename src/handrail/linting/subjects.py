"""A tool as lint sees it: its texts, its parameters down to the innermost, and what it declares.

Tools of Python, and definitions that others wrote, are looked at alike. What a form has no place for (an effect, in
OpenAI's definitions) is not missing there.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from msgspec import Struct, field

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
"""The providers that portability and cost are told for, and the wire on which each is asked."""

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
        said = self.schema.get("description")
        return said.strip() if isinstance(said, str) else ""

    @cached_property
    def types(self) -> frozenset[str]:
        """The types that it may have, those of its alternatives included, null left out."""
        branches = [
            each
            for word in ("anyOf", "oneOf", "allOf")
            for each in self.schema.get(word, ())
        ]
        told = [
            *schema_types(self.schema),
            *(
                name
                for each in branches
                if isinstance(each, dict)
                for name in schema_types(each)
            ),
        ]
        return frozenset(told) - {"null"}

    @cached_property
    def is_closed(self) -> bool:
        """Whether the schema says which texts are taken: by an enum, a pattern, a format."""
        parts = [
            self.schema,
            *(
                part
                for word in ("anyOf", "oneOf", "allOf")
                for part in self.schema.get(word, ())
            ),
        ]
        told = {"enum", "const", "pattern", "format"}
        return any(isinstance(part, dict) and told & part.keys() for part in parts)

    @property
    def has_sample(self) -> bool:
        """Whether the schema gives an example or a default."""
        return (
            bool(self.schema.get("examples") or self.schema.get("example"))
            or self.schema.get("default") is not None
        )


class Declared(Struct, frozen=True):
    """What is declared about what a tool does.

    Attributes:
        form: Whose declarations they are; MCP's are hints.
        is_told_apart: A second call for the same act is known as such: by a key, or by asking.
        asks: A person must agree to some or all calls.
    """

    form: str
    effect: EffectClass | None = None
    is_told_apart: bool = False
    asks: bool = True
    note: str = ""


class Subject(Struct, frozen=True, dict=True):
    """One tool, looked at.

    Attributes:
        declared: None where its form has no place for it.
        has_output: It declares a schema or a text of what it returns.
        fault: Why it cannot be described to a model.
        written: The definition as it stands in a file.
        ignore: Rule -> reason, by the tool itself.
    """

    name: str
    description: str = ""
    schema: Schema = field(default_factory=dict)
    declared: Declared | None = None
    has_output: bool = False
    place: Place = field(default_factory=Place)
    fault: str = ""
    written: Mapping[str, Json] = field(default_factory=dict)
    ignore: Mapping[str, str] = field(default_factory=dict)
    aliases: Sequence[str] = ()
    tool: BaseTool | None = None

    @cached_property
    def parameters(self) -> Sequence[Parameter]:
        """Every parameter, each before what is inside of it."""
        return list(_parameters(self.schema, self.schema, "", 0))

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
        """The definition as it goes to each provider; empty where there is none to be made."""
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
    """Look at a tool of Python."""
    fault = ""
    parameters = {}
    try:
        parameters = tool.parameters
    except ToolDefinitionError as error:
        fault = str(error)
    asks = tool.effective_risk == "high" or tool.approve is not False
    declared = Declared(
        "handrail", tool.effect, bool(tool.key or tool.verify or tool.replay), asks
    )
    has_output = bool(tool.docs.returns) or tool.returns is not None
    return Subject(
        tool.name, tool.description, parameters, declared, has_output, _find_location(tool), fault,
        ignore=tool.lint_ignore, aliases=tool.aliases, tool=tool,
    )  # fmt: skip


def _find_location(tool: BaseTool) -> Place:
    function: Any = inspect.unwrap(tool.run)
    code = getattr(function, "__code__", None)
    return Place(code.co_filename, code.co_firstlineno) if code else Place()


def _parameters(
    schema: Json, root: Schema, path: str, level: int
) -> Iterator[Parameter]:
    """Yield what the properties of an object are, and what they hold; a reference is followed a few levels."""
    if not isinstance(schema, dict) or level > MOST_DEPTH:
        return
    schema = _follow_reference(schema, root)
    properties = schema.get("properties")
    required = schema.get("required")
    needed = required if isinstance(required, list) else []
    for name, said in properties.items() if isinstance(properties, dict) else ():
        if isinstance(said, dict):
            here = f"{path}{name}"
            said = _follow_reference(said, root)
            yield Parameter(here, said, name in needed, level)
            yield from _within(said, root, here, level)
    # alternatives of the arguments as a whole are rules about them, not further parameters
    if path:
        for branch in (
            *schema.get("anyOf", ()),
            *schema.get("oneOf", ()),
            *schema.get("allOf", ()),
        ):
            yield from _parameters(branch, root, path, level)


def _within(said: Schema, root: Schema, path: str, level: int) -> Iterator[Parameter]:
    items = said.get("items")
    if isinstance(items, dict):
        yield from _parameters(items, root, f"{path}[].", level + 1)
    yield from _parameters(said, root, f"{path}.", level + 1)


def _follow_reference(schema: Schema, root: Schema) -> Schema:
    reference = schema.get("$ref")
    body = resolve_reference(root, reference) if isinstance(reference, str) else None
    return (
        {**body, **{key: value for key, value in schema.items() if key != "$ref"}}
        if isinstance(body, dict)
        else schema
    )
