"""What lint can set right in a file of definitions without changing what any of them means.

Rule 1: only spelling is changed: blanks in texts, and a schema written in another dialect, by the same translation that
        handrail reads it with. What a tool takes, and every word of its texts, stays.
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
    """What was set right in one tool, by the ids of the rules."""

    tool: str
    rules: Sequence[str]


def fix_document(document: Json) -> tuple[Json, Sequence[Fixed]]:
    """Return the document with what can safely be set right, and what that was.

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
            # what it means is unknown, so it is not for us to write down
            pass
    before = (entry.get("description"), schema)
    if isinstance(entry.get("description"), str):
        entry["description"] = tidy(str(entry["description"]))
    if isinstance(schema, dict):
        entry[key] = schema = _tidy_schema(schema)
    return (
        [*rules, "text-untidy"]
        if (entry.get("description"), schema) != before
        else rules
    )


def _tidy_schema(schema: Json) -> Json:
    if not isinstance(schema, dict):
        return schema
    said = map_subschemas(schema, _tidy_schema)
    if isinstance(said.get("description"), str):
        said["description"] = tidy(str(said["description"]))
    return said
