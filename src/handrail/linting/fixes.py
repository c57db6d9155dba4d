"""Fixes lint can make in a file of definitions without changing what any of them means.

Rule 1: a fix changes spelling only: blanks in texts, and a schema written in another dialect, by the same translation
        that handrail reads it with. It never changes what a tool takes, nor a word of its texts.
"""

from __future__ import annotations

from collections.abc import Sequence
from copy import deepcopy
from typing import Any

from msgspec import Struct

from handrail.errors import ConfigError, Json, ToolDefinitionError
from handrail.linting import definitions, parameters
from handrail.linting.wording import tidy
from handrail.schemas import importing, openapi
from handrail.schemas.walk import map_subschemas


class Fixed(Struct, frozen=True):
    """What was fixed in one tool, by the ids of the rules."""

    tool: str
    rules: Sequence[str]


def fix_document(document: Json) -> tuple[Json, Sequence[Fixed]]:
    """Return the document with every safe fix applied, and the list of fixes.

    Raises:
        ConfigError: It has no definitions of tools, or is an OpenAPI document, which describes more than tools.
    """
    if openapi.is_one(document):
        raise ConfigError(
            "an OpenAPI document describes a service; change it there, and `--fix` definitions of tools"
        )
    changed = deepcopy(document)
    done = [
        Fixed(str(entry.get("name")), rules)
        for entry in definitions.entries(changed)
        if (rules := _fix(entry))
    ]
    return changed, done


def _fix(entry: dict[str, Json]) -> Sequence[str]:
    rules = []
    key = definitions.schema_key(entry)
    schema: Any = entry.get(key)
    if isinstance(schema, dict) and parameters.foreign_words(schema):
        try:
            entry[key] = schema = importing.import_schema(schema)
            rules.append("schema-foreign")
        except ToolDefinitionError:
            # its meaning is unknown, so there is no translation to write
            pass
    before = (entry.get("description"), schema)
    if isinstance(entry.get("description"), str):
        entry["description"] = tidy(str(entry["description"]))
    if isinstance(schema, dict):
        entry[key] = schema = _tidy_schema(schema)
    if (entry.get("description"), schema) != before:
        rules.append("text-untidy")
    return rules


def _tidy_schema(schema: Json) -> Json:
    if not isinstance(schema, dict):
        return schema
    tidied = map_subschemas(schema, _tidy_schema)
    if isinstance(tidied.get("description"), str):
        tidied["description"] = tidy(str(tidied["description"]))
    return tidied
