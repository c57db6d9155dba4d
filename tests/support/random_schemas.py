"""Schemas and calls drawn at random: objects whose parts, branches and references speak of the same few names.

Few names and few values, so that a call is often nearly right; odd names (digits, none at all), since paths spell them.
"""

from __future__ import annotations

from random import Random
from typing import Any

NAMES = ["a", "b", "ab", "force", "1", "01", ""]
SCALARS = [
    None,
    True,
    False,
    0,
    1,
    2,
    2.0,
    1.5,
    "",
    "a",
    "1",
    "2.0",
    "true",
    "null",
    "[1]",
    '{"a": 1}',
]
TYPES = ["string", "integer", "number", "boolean", "null", "object", "array"]


def random_schema(chance: Random) -> dict[str, Any]:
    """Return the schema of a tool's arguments."""
    names = ["x", "y"]
    schema = {"type": "object", **_object(chance, 3)}
    return {
        **schema,
        "$defs": {name: _schema(chance, 1, references=False) for name in names},
    }


def random_call(chance: Random, schema: dict[str, Any]) -> dict[str, Any]:
    """Return arguments: what the schema requires, what it describes, or anything."""
    described = [*schema.get("properties", {}), *schema.get("required", ()), *NAMES]
    return {
        chance.choice(described): _value(chance, 2) for _ in range(chance.randint(0, 4))
    }


def _schema(chance: Random, depth: int, *, references: bool = True) -> Any:
    kind = chance.random()
    if kind < 0.04:
        return chance.random() < 0.5
    if references and kind < 0.14:
        return {
            "$ref": f"#/$defs/{chance.choice('xy')}",
            **(_scalar(chance) if chance.random() < 0.2 else {}),
        }
    if depth <= 0 or kind < 0.45:
        return _scalar(chance)
    if kind < 0.6:
        return _array(chance, depth - 1)
    return _object(chance, depth - 1, typed=chance.random() < 0.6)


def _scalar(chance: Random) -> dict[str, Any]:
    schema: dict[str, Any] = {}
    if chance.random() < 0.7:
        schema["type"] = (
            chance.choice(TYPES) if chance.random() < 0.8 else chance.sample(TYPES, 2)
        )
    if chance.random() < 0.2:
        schema |= chance.choice(
            [{"const": chance.choice(SCALARS)}, {"enum": chance.sample(SCALARS, 2)}]
        )
    if chance.random() < 0.2:
        schema |= chance.choice(
            [
                {"minimum": 1},
                {"maximum": 1},
                {"maxLength": 1},
                {"minLength": 1},
                {"pattern": "^a"},
            ]
        )
    return schema


def _array(chance: Random, depth: int) -> dict[str, Any]:
    schema: dict[str, Any] = {"type": "array"}
    for keyword in chance.sample(
        ["items", "contains", "unevaluatedItems"], chance.randint(0, 2)
    ):
        schema[keyword] = _schema(chance, depth)
    if chance.random() < 0.3:
        schema["prefixItems"] = [
            _schema(chance, depth) for _ in range(chance.randint(1, 2))
        ]
    if "contains" in schema and chance.random() < 0.3:
        schema["maxContains"] = 1
    return schema


def _object(chance: Random, depth: int, *, typed: bool = False) -> dict[str, Any]:
    schema: dict[str, Any] = {"type": "object"} if typed else {}
    if chance.random() < 0.85:
        schema["properties"] = {
            name: _schema(chance, depth - 1)
            for name in chance.sample(NAMES, chance.randint(0, 3))
        }
    if chance.random() < 0.4:
        schema["required"] = chance.sample(NAMES, chance.randint(1, 2))
    if chance.random() < 0.1:
        schema["dependentRequired"] = {chance.choice(NAMES): [chance.choice(NAMES)]}
    for keyword, odds in _ONE.items():
        if chance.random() < odds:
            schema[keyword] = (
                False
                if "Properties" in keyword and chance.random() < 0.5
                else _schema(chance, depth - 1)
            )
    for keyword in ("anyOf", "oneOf", "allOf"):
        if depth > 0 and chance.random() < 0.2:
            schema[keyword] = [
                _object(chance, depth - 1) for _ in range(chance.randint(1, 3))
            ]
    if depth > 0 and chance.random() < 0.12:
        schema |= {
            "if": _object(chance, 0),
            "then": _object(chance, depth - 1),
            "else": _object(chance, depth - 1),
        }
    if depth > 0 and chance.random() < 0.12:
        schema["dependentSchemas"] = {chance.choice(NAMES): _object(chance, depth - 1)}
    if depth > 0 and chance.random() < 0.1:
        schema["not"] = _schema(chance, depth - 1)
    return schema


_ONE = {
    "additionalProperties": 0.3,
    "unevaluatedProperties": 0.25,
    "propertyNames": 0.05,
}


def _value(chance: Random, depth: int) -> Any:
    kind = chance.random()
    if depth <= 0 or kind < 0.6:
        return chance.choice(SCALARS)
    if kind < 0.75:
        return [_value(chance, depth - 1) for _ in range(chance.randint(0, 3))]
    return {
        chance.choice(NAMES): _value(chance, depth - 1)
        for _ in range(chance.randint(0, 3))
    }
