"""Definitions of tools as JSON: a list for OpenAI, Anthropic or Gemini, MCP's `tools/list`, an OpenAPI document.

A definition is never refused here: lint reports what cannot be used.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from handrail.errors import ConfigError, Json, ToolDefinitionError
from handrail.linting.findings import Place
from handrail.linting.subjects import Declared, Subject
from handrail.schemas import importing, openapi
from handrail.schemas.walk import Schema
from handrail.tools import destinations, keys

SCHEMA_KEYS = ("parameters", "inputSchema", "input_schema", "parametersJsonSchema")
"""Where a definition keeps its schema: OpenAI, MCP, Anthropic, Gemini."""
_OUTPUT_KEYS = (
    "outputSchema",
    "output_schema",
    "returns",
    "response",
    "responseJsonSchema",
)
_OURS = ("effect", "key", "verify", "replay", "approve", "risk", "limits")


def read(document: Json, *, file: str = "", text: str = "") -> list[Subject]:
    """Return the tools that a document describes.

    Args:
        file: Where it was read from, for the report.
        text: The file's text, to find lines in.

    Raises:
        ConfigError: It describes no tools.
    """
    found = entries(document)
    lines = _find_lines(text, [_read_name(entry) for entry in found])
    return [
        _read_subject(entry, Place(file, line))
        for entry, line in zip(found, lines, strict=True)
    ]


def entries(document: Json) -> list[dict[str, Json]]:
    """Return the definitions in a document. They are parts of it, not copies, except for OpenAPI.

    Raises:
        ConfigError: The document has none.
    """
    if isinstance(document, dict) and openapi.is_one(document):
        return list(openapi.definitions(document))
    found = list(_walk_entries(document))
    if not found:
        raise ConfigError(
            "there are no tools in it: a list of definitions, each with `name`, `description` and a schema, "
            "MCP's answer to tools/list, or an OpenAPI document is read"
        )
    return found


_HOLDERS = (
    "tools",
    "functions",
    "functionDeclarations",
    "function_declarations",
    "result",
)


def _walk_entries(document: Json) -> Iterator[dict[str, Json]]:
    if isinstance(document, list):
        for each in document:
            yield from _walk_entries(each)
    elif isinstance(document, dict):
        if isinstance(function := document.get("function"), dict):
            yield function
        elif isinstance(document.get("name"), str):
            yield document
        else:
            for holder in _HOLDERS:
                if isinstance(document.get(holder), dict | list):
                    yield from _walk_entries(document[holder])


def _read_name(entry: Mapping[str, Json]) -> str:
    name = entry.get("name")
    return name if isinstance(name, str) else ""


def schema_key(entry: Mapping[str, Json]) -> str:
    """Return the key of a definition's schema."""
    return next((key for key in SCHEMA_KEYS if key in entry), SCHEMA_KEYS[0])


def _read_subject(entry: Mapping[str, Json], place: Place) -> Subject:
    schema, fault = _read_schema(entry.get(schema_key(entry)))
    description = entry.get("description")
    return Subject(
        name=_read_name(entry),
        description=description if isinstance(description, str) else "",
        schema=schema,
        declared=_read_declaration(entry),
        has_output=any(entry.get(key) for key in _OUTPUT_KEYS),
        place=place,
        fault=fault,
        written=entry,
    )


def _read_schema(written: Any) -> tuple[Schema, str]:
    if written is not None and not isinstance(written, Mapping):
        return {}, "its schema is no object"
    try:
        return importing.import_schema(written), ""
    except ToolDefinitionError as error:
        return {}, str(error)


def _read_declaration(entry: Mapping[str, Json]) -> Declared | None:
    if any(key in entry for key in _OURS):
        sends, limits = _read_object(entry, "sends"), _read_object(entry, "limits")
        asks = entry.get("approve") or entry.get("risk", "high") == "high"
        return Declared(
            "handrail",
            entry.get("effect"),
            recognizes_repeats=bool({"key", "verify", "replay"} & entry.keys()),
            asks=bool(asks),
            injected=_read_texts(entry.get("injected")),
            key=_read_text(entry.get("key")),
            resource=_read_text(entry.get("resource")),
            looks_at={
                setting: _read_template_names(entry[setting])
                for setting in ("key", "resource")
                if isinstance(entry.get(setting), str)
            },
            egress=sends.get("egress"),
            destinations=_find_destinations(entry),
            callers=_read_texts(limits.get("callers")) or ("direct",),
            has_foreign_answer=entry.get("effect") in ("write", "destructive")
            and not {"trust", "directory"} & sends.keys(),
        )
    if "method" in entry:
        return Declared("openapi", openapi.EFFECTS.get(str(entry["method"])))
    if "inputSchema" in entry or "annotations" in entry:
        return _read_hints(entry.get("annotations"))
    return None


def _find_destinations(entry: Mapping[str, Json]) -> Sequence[str] | None:
    """Return which arguments say where it sends things; None where that is declared, or nobody can tell."""
    schema = entry.get("parameters")
    declared = _read_object(entry, "sends").get("destination")
    if declared is not None or not isinstance(schema, Mapping):
        return None
    return destinations.find_destinations(schema)


def _read_object(entry: Mapping[str, Json], key: str) -> Mapping[str, Json]:
    value = entry.get(key)
    return value if isinstance(value, Mapping) else {}


def _read_text(value: Json) -> str:
    return value if isinstance(value, str) else ""


def _read_texts(value: Json) -> list[str]:
    return (
        [each for each in value if isinstance(each, str)]
        if isinstance(value, list)
        else []
    )


def _read_template_names(text: str) -> set[str]:
    """Return what a template looks at; nothing where it is none, which others report."""
    try:
        return keys.names_in(text)
    except ToolDefinitionError:
        return set()


def _read_hints(annotations: Json) -> Declared:
    """Read MCP's hints. A missing hint means "destructive" by the specification; its author may not have meant that."""
    hints = annotations if isinstance(annotations, Mapping) else {}
    if hints.get("readOnlyHint") is True:
        return Declared("mcp", "read")
    destroys = hints.get("destructiveHint")
    if isinstance(destroys, bool):
        return Declared("mcp", "destructive" if destroys else "write")
    if hints.get("readOnlyHint") is False:
        return Declared(
            "mcp",
            note="without `destructiveHint`, every client takes this write for a destructive one",
        )
    return Declared("mcp")


def _find_lines(text: str, names: Sequence[str]) -> list[int]:
    """Return the line of each name, in order, 0 for one that is not there; a name that occurs twice has two lines."""
    lines = []
    at = 0
    for name in names:
        spelled = re.escape(json.dumps(name, ensure_ascii=False))
        key_and_name = re.compile(rf'"(?:name|operationId)"\s*:\s*{spelled}')
        if match := key_and_name.search(text, at):
            at = match.end()
            lines.append(text.count("\n", 0, match.start()) + 1)
        else:
            lines.append(0)
    return lines
