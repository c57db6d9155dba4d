"""The JSON Schema of a tool's arguments: from a function's type hints, or from a schema that others wrote.

`of_function` gives what a person would write by hand: no titles, a definition only where it is used twice, descriptions
from `Field` or the docstring. Its `Signature` also turns validated JSON into the function's keyword arguments.
`imported` gives a foreign schema in the words of JSON Schema 2020-12.

Rule 1: what the model may send and what the function gets are made from the same hints, by pydantic.
Rule 2: a mistake in a signature names the parameter.
Rule 3: a foreign schema is translated only where there is one meaning; an unknown type is refused.
"""

from __future__ import annotations

import inspect
import sys
import typing
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property, reduce
from operator import or_
from types import SimpleNamespace, UnionType
from typing import Annotated, Any, NoReturn, Union, cast, get_args, get_origin

import typing_extensions
from pydantic import BaseModel, ConfigDict, Field, RootModel, TypeAdapter, ValidationError
from pydantic.errors import PydanticUndefinedAnnotation, PydanticUserError
from pydantic.fields import FieldInfo
from pydantic.json_schema import GenerateJsonSchema, JsonSchemaValue
from pydantic_core import PydanticSerializationError, to_json

from handrail import faults
from handrail.docstrings import Docs
from handrail.errors import Failure, Json, ToolDefinitionError
from handrail.faults import Fault
from handrail.subschemas import Schema, compiled, mapped, measure, refuse, target, types_of, walk

# ---------------------------------------------------------------------- from a function


@dataclass(frozen=True)
class Signature:
    """What a function takes from the model.

    Attributes:
        tool: The name for errors.
        visible: Parameter name -> type hint with its default, for what the model sends.
        hidden: Parameter name -> type hint, for what the caller fills in.
        docs: The docstring, for descriptions.
        model: The pydantic model that is the whole input, when it is the type of the one visible parameter.
    """

    tool: str
    visible: Mapping[str, Any]
    hidden: Mapping[str, Any]
    docs: Docs
    model: type[BaseModel] | None = None

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the parameters that the model fills."""
        return tuple(self.visible)

    @cached_property
    def schema(self) -> Schema:
        """The JSON Schema of the arguments."""
        try:
            raw = self._adapter.json_schema(schema_generator=_Plain)
        except _UNDESCRIBABLE as error:
            self._blame(error)
        schema = _tidied(raw)
        schema.setdefault("additionalProperties", False)
        if self.model is None:
            self._describe(schema)
        return schema

    def bind(self, arguments: dict[str, Json]) -> dict[str, Any] | Failure:
        """Turn validated JSON into keyword arguments, defaults included; a Failure says what does not fit.

        What the schema cannot say is found here: a date that does not exist, a model's own validator.
        """
        try:
            bound = self._validate(arguments)
        except ValidationError as error:
            return self._bind_as_json(arguments, error)
        return bound if self.model is None else {self.names[0]: bound}

    @cached_property
    def _adapter(self) -> TypeAdapter[Any]:
        try:
            return TypeAdapter(self.model or _arguments_type(self.visible))
        except _UNDESCRIBABLE as error:
            self._blame(error)

    @cached_property
    def _validate(self) -> Callable[[Json], Any]:
        return self._adapter.validator.validate_python

    def _bind_as_json(self, arguments: dict[str, Json], refusal: ValidationError) -> dict[str, Any] | Failure:
        """Bind by way of JSON text, which models in strict mode insist on: only from JSON do they read dates as text."""
        try:
            bound = self._adapter.validator.validate_json(to_json(arguments))
        except (ValidationError, PydanticSerializationError) as error:
            return faults.failure(_faults_of(error if isinstance(error, ValidationError) else refusal, arguments))
        return bound if self.model is None else {self.names[0]: bound}

    def _describe(self, schema: Schema) -> None:
        """Add the docstring's texts where `Field` gave none. Properties stand in the order of parameters, perhaps renamed."""
        properties = schema["properties"]
        for parameter, (name, property_) in zip(self.visible, properties.items(), strict=True):
            text = self.docs.parameters.get(parameter) or self.docs.parameters.get(name)
            if text and "description" not in property_:
                properties[name] = _ordered({**property_, "description": text})

    def _blame(self, error: Exception) -> NoReturn:
        """Find the parameter that cannot be described, and raise the definition error that names it."""
        for name, hint in self.visible.items():
            try:
                TypeAdapter(_arguments_type({name: hint})).json_schema(schema_generator=_Plain)
            except _UNDESCRIBABLE as reason:
                raise ToolDefinitionError(
                    f"Tool {self.tool!r} cannot be described to a model: the type of parameter `{name}` has no JSON form "
                    f"({str(reason).splitlines()[0]}). Use a type that JSON can hold, or mark it as injected with `Injected`."
                ) from reason
        raise ToolDefinitionError(f"Tool {self.tool!r} cannot be described to a model: {error}") from error


_UNDESCRIBABLE = (PydanticUserError, PydanticUndefinedAnnotation, TypeError, ValueError)


def of_function(
    fn: Callable[..., Any], docs: Docs, injected: Callable[[Any], bool] = lambda hint: False, *, name: str = ""
) -> Signature:
    """Describe a function from its type hints.

    Args:
        injected: Says of a type hint whether the caller fills the parameter; the model never sees it.
        name: What errors call the tool; the function's name by default.

    Raises:
        ToolDefinitionError: Names the parameter that cannot be described. The hints are resolved here; the types are
            looked at when `schema` or `bind` is first used.
    """
    tool = name or getattr(fn, "__name__", type(fn).__name__)
    parameters = parameters_of(fn, name=tool)
    hints = _resolved({p.name: p.annotation for p in parameters}, _globals_of(fn), tool)
    hidden = {name: hint for name, hint in hints.items() if injected(hint)}
    visible = {p.name: _with_default(hints[p.name], p.default) for p in parameters if p.name not in hidden}
    return Signature(tool, visible, hidden, docs, _only_model(visible))


def parameters_of(fn: Callable[..., Any], *, name: str = "") -> list[inspect.Parameter]:
    """Return a function's parameters; cheap enough for the moment a tool is declared.

    Raises:
        ToolDefinitionError: One has no type hint, or cannot be given by name.
    """
    tool = name or getattr(fn, "__name__", type(fn).__name__)
    parameters = list(inspect.signature(fn).parameters.values())
    for parameter in parameters:
        if complaint := _KINDS.get(parameter.kind):
            _undescribable(tool, complaint.format(name=parameter.name))
        if parameter.annotation is parameter.empty:
            _undescribable(
                tool,
                f"parameter `{parameter.name}` has no type hint. Add one (`{parameter.name}: str`), "
                "or mark it as injected with `Injected`.",
            )
    return parameters


_KINDS = {
    inspect.Parameter.VAR_POSITIONAL: "parameter `*{name}` takes any number of values. Name a list (`{name}: list[str]`).",
    inspect.Parameter.VAR_KEYWORD: "parameter `**{name}` takes any names. Name each parameter, or a dict "
    "(`{name}: dict[str, str]`).",
    inspect.Parameter.POSITIONAL_ONLY: "parameter `{name}` is positional-only, and a model gives values by name. "
    "Take the `/` out of the signature.",
}


def _undescribable(tool: str, complaint: str) -> NoReturn:
    raise ToolDefinitionError(f"Tool {tool!r} cannot be described to a model: {complaint}")


def _globals_of(fn: Callable[..., Any]) -> dict[str, Any]:
    """Return the names that a function's hints are written in, under wrappers, partials, methods and instances."""
    inner: Any = fn
    for _ in range(20):  # deeper than any decorated partial of a method
        inner = inspect.unwrap(inner)
        if hasattr(inner, "__globals__"):
            return cast(dict[str, Any], inner.__globals__)
        inner = getattr(inner, "func", None) or getattr(inner, "__func__", None) or type(inner).__call__
    return {}


def _resolved(annotations: Mapping[str, Any], known: dict[str, Any], tool: str) -> dict[str, Any]:
    """Evaluate the hints that are written as text, one parameter at a time so that an error can name it."""
    hints = {}
    for name, annotation in annotations.items():
        try:
            holder = SimpleNamespace(__annotations__={name: annotation})
            hints[name] = _modern(typing.get_type_hints(holder, known, include_extras=True)[name])
        except Exception as error:  # evaluating a hint runs its author's text; NameError is the likely one
            _undescribable(
                tool,
                f"the type hint of parameter `{name}`, {annotation!r}, cannot be resolved ({error}). "
                "Import or define what it names at the top of its module.",
            )
    return hints


def _modern(hint: Any) -> Any:
    """Replace `typing.TypedDict` by the form that pydantic asks for before Python 3.12, within containers and unions."""
    if sys.version_info >= (3, 12):
        return hint
    if typing.is_typeddict(hint) and type(hint).__module__ == "typing":
        fields = typing.get_type_hints(hint, include_extras=True)
        needed = hint.__required_keys__
        return _typed_dict(
            hint.__name__,
            {name: _modern(kind) if name in needed else typing_extensions.NotRequired[_modern(kind)] for name, kind in fields.items()},
        )
    origin, parts = get_origin(hint), get_args(hint)
    if not parts or origin in (typing.Literal, None) or isinstance(parts[0], list):
        return hint
    modern = tuple(_modern(part) for part in (parts[:1] if origin is Annotated else parts))
    if modern == parts[: len(modern)]:
        return hint
    if origin is Annotated:
        return Annotated[(*modern, *hint.__metadata__)]
    return reduce(or_, modern) if origin in (Union, UnionType) else origin[modern]


def _with_default(hint: Any, default: Any) -> Any:
    if default is inspect.Parameter.empty:
        return hint
    return Annotated[hint, default if isinstance(default, FieldInfo) else Field(default=default)]


def _only_model(visible: Mapping[str, Any]) -> type[BaseModel] | None:
    """Return the model when it is the type of the only parameter, which has no default."""
    hints = list(visible.values())
    if len(hints) != 1 or not isinstance(hints[0], type) or get_origin(hints[0]):
        return None
    return hints[0] if issubclass(hints[0], BaseModel) and not issubclass(hints[0], RootModel) else None


def _arguments_type(hints: Mapping[str, Any]) -> Any:
    arguments = _typed_dict("Arguments", dict(hints))
    arguments.__pydantic_config__ = ConfigDict(extra="forbid")
    return arguments


_typed_dict: Any = typing_extensions.TypedDict  # made from values, which no type checker follows


def _faults_of(error: ValidationError, arguments: Json) -> list[Fault]:
    return [_fault_of(cast(dict[str, Any], details), arguments) for details in error.errors(include_url=False)]


def _fault_of(details: dict[str, Any], arguments: Json) -> Fault:
    """Word one error of pydantic. Its own texts name types and bounds; a validator's text is its author's."""
    kind = str(details["type"])
    path = _path_in(arguments, details["loc"], missing=kind == "missing")
    place, said = faults.named(path), str(details["msg"])
    if kind == "missing":
        return Fault(faults.field_of(path), "missing", f"{place} is required.", f"add {place}")
    for opening in ("Value error, ", "Assertion failed, ", "Input should be "):
        if said.startswith(opening):
            said = said.removeprefix(opening)
            break
    text = faults.writable(said[:200]).rstrip(".")
    if opening == "Input should be ":
        message = f"{place} must be {text}; it was {faults.shown(details['input'])}."
        return Fault(faults.field_of(path), "type", message, f"make {place} {text}", text)
    return Fault(faults.field_of(path), "rule", f"{place} was refused: {text}.", f"correct {place}")


def _path_in(arguments: Json, steps: tuple[int | str, ...], *, missing: bool) -> list[int | str]:
    """Keep the steps that lead through the arguments; pydantic's also name branches of unions and validators."""
    path: list[int | str] = []
    here = arguments
    for i, step in enumerate(steps):
        inside = (isinstance(here, dict) and step in here) or (
            isinstance(here, list) and isinstance(step, int) and step < len(here)
        )
        if inside:
            here = here[step]
            path.append(step)
        elif missing and i == len(steps) - 1:
            path.append(step)
    return path


# ---------------------------------------------------------------------- what a person would write


class _Plain(GenerateJsonSchema):
    """Pydantic's generator, in its own order, silent about defaults that JSON cannot hold."""

    ignored_warning_kinds = {"skipped-choice", "non-serializable-default"}

    def sort(self, value: JsonSchemaValue, parent_key: str | None = None) -> JsonSchemaValue:
        """Keep the order of declaration."""
        return value


_RANKS = {"$ref": 0, "type": 1, "description": 2, "enum": 3, "const": 3, "default": 9, "$defs": 10}

_CROSSING = frozenset("$ref enum const not allOf anyOf oneOf if description default".split())
"""Keywords that look at values of every type, or say something about their own branch of a union only."""


def _tidied(raw: Schema) -> Schema:
    """Drop titles, join unions of plain types, and put each definition that is used once where it is used."""
    root: Schema = _plain(raw)
    if "$ref" in root:  # a model that names itself: its definition is the schema
        root = {**target(root, root["$ref"]), **{key: value for key, value in root.items() if key != "$ref"}}
    definitions = root.pop("$defs", {})
    uses: dict[str, int] = {}
    for part in (root, *definitions.values()):
        for here in walk(part):
            if "$ref" in here:
                uses[here["$ref"]] = uses.get(here["$ref"], 0) + 1
    once = {f"#/$defs/{name}": body for name, body in definitions.items() if uses.get(f"#/$defs/{name}") == 1}
    once = {ref: body for ref, body in once.items() if not _leads_to(ref, body, once)}
    root = _inlined(root, once)
    kept = {name: _inlined(body, once) for name, body in definitions.items() if uses.get(f"#/$defs/{name}", 0) > 1 or _kept(name, once, uses)}
    return _ordered({**root, "$defs": kept} if kept else root)


def _kept(name: str, once: Mapping[str, Json], uses: Mapping[str, int]) -> bool:
    return f"#/$defs/{name}" in uses and f"#/$defs/{name}" not in once


def _leads_to(reference: str, body: Json, definitions: Mapping[str, Json]) -> bool:
    """Whether a definition used once names itself, directly or through others used once."""
    seen: set[str] = set()
    waiting = [body]
    while waiting:
        for here in walk(waiting.pop()):
            found = here.get("$ref")
            if found == reference:
                return True
            if found in definitions and found not in seen:
                seen.add(found)
                waiting.append(definitions[found])
    return False


def _inlined(schema: Json, definitions: Mapping[str, Json]) -> Any:
    if not isinstance(schema, dict):
        return schema
    if schema.get("$ref") in definitions:
        besides = {key: value for key, value in schema.items() if key != "$ref"}
        return _inlined(_ordered({**definitions[schema["$ref"]], **besides}), definitions)
    return _with_joined_union(mapped(schema, lambda part: _inlined(part, definitions)))


def _plain(schema: Json) -> Any:
    """Drop titles and `discriminator` (OpenAPI's word), and a null default where null is not allowed."""
    if not isinstance(schema, dict):
        return schema
    kept = {key: value for key, value in schema.items() if key not in ("title", "discriminator")}
    joined = _with_joined_union(mapped(kept, _plain))
    if joined.get("default", 0) is None and not _allows_null(joined):
        del joined["default"]
    return _ordered(joined)


def _allows_null(schema: Schema) -> bool:
    branches = schema.get("anyOf", [schema])
    return any(not branch.keys() - {"default", "description"} or "null" in types_of(branch) for branch in branches)


def _with_joined_union(schema: Schema) -> Schema:
    """Write `anyOf` of plain types as one schema with a list of types, where that says the same.

    It does when each branch has one type of its own and only keywords that concern that type. `enum` concerns any type:
    next to null it takes null in.
    """
    branches = schema.get("anyOf")
    if not branches or any(not isinstance(branch, dict) or not isinstance(branch.get("type"), str) for branch in branches):
        return schema
    besides = {key: value for key, value in schema.items() if key != "anyOf"}
    types = [branch["type"] for branch in branches]
    others = [branch for branch in branches if branch != {"type": "null"}]
    if len(others) == 1 and len(branches) == 2 and not others[0].keys() & {"const", "not", "allOf", "oneOf", "if"}:
        joined = {**others[0], "type": types if types[1] == "null" else [types[1], "null"]}
        if "enum" in joined:
            joined["enum"] = [*joined["enum"], None]
        return _ordered({**joined, **besides})
    keys = [key for branch in branches for key in branch if key != "type"]
    alike = len(set(types)) < len(types) or {"integer", "number"} <= set(types) or len(set(keys)) < len(keys)
    if alike or set(keys) & (_CROSSING | besides.keys()):
        return schema
    return _ordered({"type": types, **{k: v for branch in branches for k, v in branch.items() if k != "type"}, **besides})


def _ordered(schema: Schema) -> Schema:
    return dict(sorted(schema.items(), key=lambda item: _RANKS.get(item[0], 5)))


# ---------------------------------------------------------------------- from outside

_FOREIGN_TYPES: dict[str, str | None] = {
    spelling: name
    for name, spellings in {
        "object": "dict object map hashmap hashtable linkedhashmap treemap mapping record struct json",
        "array": "array list tuple arraylist linkedlist vector set hashset queue stack sequence iterable collection",
        "string": "string str text char character varchar date datetime time timestamp uuid uri url email file path bytes",
        "integer": "integer int long short byte bigint biginteger int8 int16 int32 int64 uint uint8 uint16 uint32 uint64",
        "number": "number float double decimal bigdecimal float32 float64 numeric real",
        "boolean": "boolean bool",
        "null": "null none nonetype undefined void",
        None: "any unknown mixed",
    }.items()
    for spelling in spellings.split()
}
_FOREIGN_TYPES[""] = None

_JSON_VALUED = frozenset("default const enum example examples".split())
"""Keywords that hold a value of the instance, in which null means null; elsewhere a null says that nothing was said."""


def imported(parameters: Mapping[str, Json] | None) -> Schema:
    """Return a schema from outside (MCP, OpenAPI, hand-written, generated) as JSON Schema 2020-12 of an object.

    Type names of Python, Java and JavaScript, OpenAPI's `nullable`, and the older forms of `items`, `dependencies` and the
    exclusive bounds are translated. `$defs`, `$anchor` and annotations are kept. None means a tool without parameters.

    >>> imported({"type": "dict", "properties": {"type": {"type": "float"}}})
    {'type': 'object', 'properties': {'type': {'type': 'number'}}}

    Raises:
        ToolDefinitionError: It passes a limit, names an unknown type, is not about an object, refers to something outside
            of it, or is no valid JSON Schema.
    """
    if not parameters:
        return {"type": "object", "properties": {}}
    measure(cast(Schema, parameters))
    schema = _translated(cast(Schema, parameters))
    schema.pop("$schema", None)
    if "type" not in schema:
        schema = {"type": "object", **schema}
    if "object" not in types_of(schema):
        refuse(f"a tool takes an object of named arguments, and this describes {' or '.join(types_of(schema))}")
    compiled(schema)
    return schema


def _translated(schema: Json) -> Any:
    """Translate one schema and those in it."""
    if not isinstance(schema, dict):
        if not isinstance(schema, bool):
            refuse(f"{faults.shown(schema)} stands where a schema is expected")
        return schema
    said = {key: value for key, value in schema.items() if value is not None or key in _JSON_VALUED}
    for translate in _TRANSLATIONS:
        said = translate(said)
    return mapped(said, _translated)


def _types(schema: Schema) -> Schema:
    if "type" not in schema:
        return schema
    names = [_type_named(name) for name in types_of(schema)]
    if None in names or not names:
        return {key: value for key, value in schema.items() if key != "type"}
    known = list(dict.fromkeys(names))
    return {**schema, "type": known if isinstance(schema["type"], list) else known[0]}


def _type_named(name: Json) -> str | None:
    spelling = name.strip().lower() if isinstance(name, str) else ""
    if not isinstance(name, str) or spelling not in _FOREIGN_TYPES:
        refuse(f"its type {faults.shown(name)} is none that is known; JSON has object, array, string, number, integer, boolean, null")
    return _FOREIGN_TYPES[spelling]


def _nullable(schema: Schema) -> Schema:
    """OpenAPI 3.0: `nullable: true` beside a type."""
    nullable = schema.get("nullable")
    if not isinstance(nullable, bool):
        return schema
    said = {key: value for key, value in schema.items() if key != "nullable"}
    if nullable and "type" in said:
        said["type"] = list(dict.fromkeys([*types_of(said), "null"]))
        if isinstance(said.get("enum"), list) and None not in said["enum"]:
            said["enum"] = [*said["enum"], None]
    return said


def _exclusive_bounds(schema: Schema) -> Schema:
    """Draft 4 and OpenAPI 3.0: `exclusiveMinimum: true` beside `minimum`."""
    said = dict(schema)
    for exclusive, bound in (("exclusiveMinimum", "minimum"), ("exclusiveMaximum", "maximum")):
        if isinstance(said.get(exclusive), bool) and said.pop(exclusive) and bound in said:
            said[exclusive] = said.pop(bound)
    return said


def _tuples(schema: Schema) -> Schema:
    """Before 2020-12: a list of `items`, and `additionalItems` for the rest."""
    if not isinstance(schema.get("items"), list):
        return schema
    said = {key: value for key, value in schema.items() if key not in ("items", "additionalItems")}
    said["prefixItems"] = schema["items"]
    if "additionalItems" in schema:
        said["items"] = schema["additionalItems"]
    return said


def _dependencies(schema: Schema) -> Schema:
    """Before 2019-09: `dependencies` held names and schemas alike."""
    if not isinstance(schema.get("dependencies"), dict):
        return schema
    said = {key: value for key, value in schema.items() if key != "dependencies"}
    for keyword, kind in (("dependentRequired", list), ("dependentSchemas", dict)):
        if chosen := {name: value for name, value in schema["dependencies"].items() if isinstance(value, kind)}:
            said[keyword] = {**said.get(keyword, {}), **chosen}
    return said


def _required(schema: Schema) -> Schema:
    """Draft 3 and hand-written: `required: true` at the property instead of a list at the object."""
    said = schema
    if isinstance(schema.get("required"), bool):
        said = {key: value for key, value in schema.items() if key != "required"}
    properties = said.get("properties")
    needed = list(_marked_required(properties)) if isinstance(properties, dict) else []
    if needed:
        named = said.get("required", [])
        said = {**said, "required": list(dict.fromkeys([*named, *needed]))}
    return said


def _marked_required(properties: Mapping[str, Json]) -> Iterator[str]:
    return (name for name, part in properties.items() if isinstance(part, dict) and part.get("required") is True)


_TRANSLATIONS: tuple[Callable[[Schema], Schema], ...] = (
    _types,
    _nullable,
    _exclusive_bounds,
    _tuples,
    _dependencies,
    _required,
)
