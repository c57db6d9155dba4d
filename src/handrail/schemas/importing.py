"""A JSON Schema that others wrote (MCP, OpenAPI, by hand, by a generator), in the words of JSON Schema 2020-12.

Rule 1: a schema is translated only where there is one meaning; an unknown type is refused, since dropping it would let
        everything pass.
Rule 2: annotations, `$defs` and `$anchor` stay; data (`default`, `enum`, `const`, examples) is never looked into.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, cast

from handrail.errors import Json, ToolDefinitionError
from handrail.schemas import argument_errors
from handrail.schemas.walk import (
    Schema,
    check_size,
    compile_schema,
    map_subschemas,
    refuse,
    schema_types,
)

_FOREIGN_TYPES: dict[str, str | None] = {
    spelling: name
    for name, spellings in {
        "object": "dict object map hashmap hashtable linkedhashmap treemap mapping record struct json",
        "array": "array list tuple arraylist linkedlist vector set hashset queue stack sequence iterable collection",
        "string": "string str text char character varchar date datetime time timestamp uuid uri url email file path "
        "bytes",
        "integer": "integer int long short byte bigint biginteger int8 int16 int32 int64 uint uint8 uint16 uint32 "
        "uint64",
        "number": "number float double decimal bigdecimal float32 float64 numeric real",
        "boolean": "boolean bool",
        "null": "null none nonetype undefined void",
        None: "any unknown mixed",
    }.items()
    for spelling in spellings.split()
}
_FOREIGN_TYPES[""] = None

_JSON_VALUED = frozenset({"default", "const", "example"})
"""Keywords that hold a value of the instance, where null means null; elsewhere it counts as absent."""


def import_schema(parameters: Mapping[str, Json] | None, *, name: str = "") -> Schema:
    """Return a schema from outside as JSON Schema 2020-12 of an object; None means a tool without parameters.

    Type names of Python, Java and JavaScript are translated, OpenAPI's `nullable`, and the older forms of `items`,
    `dependencies`, `required` and the exclusive bounds.

    >>> import_schema({"type": "dict", "properties": {"type": {"type": "float"}}})
    {'type': 'object', 'properties': {'type': {'type': 'number'}}}

    Args:
        name: What errors call the tool.

    Raises:
        ToolDefinitionError: It passes a limit, names an unknown type, is not about an object, refers to something
            outside of it, or is no valid JSON Schema.
    """
    if parameters is None or parameters == {}:
        return {"type": "object", "properties": {}}
    try:
        if not isinstance(parameters, Mapping):
            refuse(
                f"it is {argument_errors.format_value(parameters)}, and parameters are described by an object"
            )
        return _import(cast(Schema, parameters))
    except ToolDefinitionError as error:
        if not name:
            raise
        raise ToolDefinitionError(
            f"Tool {name!r} cannot be described to a model. {error}"
        ) from error


def _import(parameters: Schema) -> Schema:
    check_size(parameters)
    schema: Schema = _translate(parameters)
    schema.pop("$schema", None)
    if "type" not in schema:
        schema = {"type": "object", **schema}
    types = schema_types(schema)
    if "object" not in types:
        refuse(
            f"a tool takes an object of named arguments, and this describes {' or '.join(types)}"
        )
    compile_schema(schema)
    return schema


def _translate(schema: Json) -> Any:
    """Translate one schema and those in it."""
    if not isinstance(schema, dict):
        if not isinstance(schema, bool):
            refuse(
                f"{argument_errors.format_value(schema)} was found where a schema is expected"
            )
        return schema
    result = {
        key: value
        for key, value in schema.items()
        if value is not None or key in _JSON_VALUED
    }
    for translate in _TRANSLATIONS:
        result = translate(result)
    return map_subschemas(result, _translate)


def _translate_types(schema: Schema) -> Schema:
    if "type" not in schema:
        return schema
    names = [_translate_type(name) for name in schema_types(schema)]
    if None in names or not names:
        return _drop(schema, "type")
    types = list(dict.fromkeys(names))
    return {**schema, "type": types if isinstance(schema["type"], list) else types[0]}


def _drop(schema: Schema, *keywords: str) -> Schema:
    return {key: value for key, value in schema.items() if key not in keywords}


def _translate_type(name: Json) -> str | None:
    spelling = name.strip().lower() if isinstance(name, str) else None
    if spelling not in _FOREIGN_TYPES:
        refuse(
            f"its type {argument_errors.format_value(name)} is unknown; "
            "write object, array, string, number, integer or boolean"
        )
    return _FOREIGN_TYPES[spelling]


def _translate_nullable(schema: Schema) -> Schema:
    """OpenAPI 3.0: `nullable: true` beside a type."""
    nullable = schema.get("nullable")
    if not isinstance(nullable, bool):
        return schema
    result = _drop(schema, "nullable")
    if nullable and "type" in result:
        result["type"] = list(dict.fromkeys([*schema_types(result), "null"]))
        if isinstance(result.get("enum"), list) and None not in result["enum"]:
            result["enum"] = [*result["enum"], None]
    return result


def _translate_exclusive_bounds(schema: Schema) -> Schema:
    """Draft 4 and OpenAPI 3.0: `exclusiveMinimum: true` beside `minimum`."""
    result = dict(schema)
    for exclusive, bound in (
        ("exclusiveMinimum", "minimum"),
        ("exclusiveMaximum", "maximum"),
    ):
        if isinstance(result.get(exclusive), bool):
            is_exclusive = result.pop(exclusive)
            if is_exclusive and bound in result:
                result[exclusive] = result.pop(bound)
    return result


def _translate_tuples(schema: Schema) -> Schema:
    """Before 2020-12: a list of `items`, and `additionalItems` for the rest."""
    if not isinstance(schema.get("items"), list):
        return schema
    result = _drop(schema, "items", "additionalItems")
    result["prefixItems"] = schema["items"]
    if "additionalItems" in schema:
        result["items"] = schema["additionalItems"]
    return result


def _translate_dependencies(schema: Schema) -> Schema:
    """Before 2019-09: `dependencies` held names and schemas alike."""
    dependencies = schema.get("dependencies")
    if not isinstance(dependencies, dict):
        return schema
    result = _drop(schema, "dependencies")
    for keyword, kind in (
        ("dependentRequired", list),
        ("dependentSchemas", dict | bool),
    ):
        chosen = {
            name: value
            for name, value in dependencies.items()
            if isinstance(value, kind)
        }
        if chosen:
            result[keyword] = {**_only_if(dict, result.get(keyword)), **chosen}
    return result


def _translate_required(schema: Schema) -> Schema:
    """Draft 3 and hand-written: `required: true` at the property instead of a list at the object."""
    result = schema
    if isinstance(schema.get("required"), bool):
        result = _drop(schema, "required")
    properties = result.get("properties")
    if not isinstance(properties, dict):
        return result
    marked = list(_find_marked_required(properties))
    if marked:
        listed = _only_if(list, result.get("required"))
        others = [name for name in marked if name not in listed]
        result = {**result, "required": [*listed, *others]}
    return result


def _only_if(kind: type, value: Json) -> Any:
    """Return the value if it has the shape it should have, else an empty one; compiling finds what is wrong with it."""
    return value if isinstance(value, kind) else kind()


def _find_marked_required(properties: Mapping[str, Json]) -> Iterator[str]:
    return (
        name
        for name, part in properties.items()
        if isinstance(part, dict) and part.get("required") is True
    )


_TRANSLATIONS: tuple[Callable[[Schema], Schema], ...] = (
    _translate_types,
    _translate_nullable,
    _translate_exclusive_bounds,
    _translate_tuples,
    _translate_dependencies,
    _translate_required,
)
