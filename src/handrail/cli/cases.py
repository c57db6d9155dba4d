"""The input cases of `render`, `parse` and `decode`, and the documents that they print: one, or one for each line.

A line of JSON is a case of its own: a faulty one becomes a document with its error, and the others are processed.

Rule 1: a document has `ok`, and `error` if its case failed.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import click

from handrail.cli import options
from handrail.cli.exits import Exit
from handrail.cli.loading import tools_from
from handrail.errors import ConfigError, HandrailError, Json, ModelError
from handrail.invisible import json_text
from handrail.tools.function_tool import FunctionTool
from handrail.tools.tool import BaseTool
from handrail.tools.toolset import Toolset

_SCHEMA_KEYS = ("parameters", "inputSchema", "input_schema", "parametersJsonSchema")
"""Where a definition keeps its schema: the chat form, MCP, Anthropic, Gemini."""

Document = dict[str, Json]


# ---------------------------------------------------------------------- what is printed


def print_lines(text: str, view: Callable[[Json], Document]) -> Exit:
    """Print a document for every line of JSON that is not empty, numbered from 1 and with the case's own `id`."""
    failed = False
    for number, line in enumerate(text.split("\n"), start=1):
        if not line.strip():
            continue
        head: Document = {"line": number}
        try:
            case = parse_json(line, f"line {number}")
            if isinstance(case, Mapping) and isinstance(case.get("id"), str | int):
                head["id"] = case["id"]
            document = view(case)
        except HandrailError as error:
            document = error_document(error)
        failed |= not document["ok"]
        print_document({**head, **document})
    return Exit.ERROR if failed else Exit.OK


def print_document(document: Document) -> None:
    """Print one document on a line of its own."""
    click.echo(json_text({"v": 1, **document}))


def error_document(error: HandrailError) -> Document:
    """Return the document of a case that failed."""
    document: Document = {"ok": False, "error": str(error)}
    if isinstance(error, ModelError):
        document |= {
            "code": error.code,
            "status": error.status,
            "retryable": error.retryable,
        }
    return document


# ---------------------------------------------------------------------- what is given


def parse_json(text: str, what: str) -> Json:
    """Parse a text as JSON.

    Raises:
        ConfigError: It is not JSON.
    """
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"{what} is not JSON: {error}") from error


def model_output(case: Json) -> Json:
    """Return the model's output: the `text` or `body` of a case, or the case itself if it has neither."""
    if isinstance(case, Mapping):
        # OpenAI's Responses have an object of this name
        if isinstance(case.get("text"), str):
            return case["text"]
        if "body" in case:
            return case["body"]
    return case


def tools_at(places: Iterable[str]) -> Toolset | None:
    """Return the tools of all these places, or None if no place is named.

    A place is as for every other command, or a file of definitions whose name ends in `.json`.

    Raises:
        SetupError: A place has no tools, or tools that cannot be described.
    """
    places = list(places)
    if not places:
        return None
    definition_files = [place for place in places if place.endswith(".json")]
    tools = tools_from(place for place in places if place not in definition_files)
    for place in definition_files:
        tools.add(*tools_from_definitions(parse_json(options.read_text(place), place)))
    return tools


def tools_in(case: Mapping[str, Json], otherwise: Toolset | None) -> Toolset | None:
    """Return the tools that a case defines, else those of the command line."""
    definitions = case.get("tools")
    if definitions is None:
        return otherwise
    return Toolset(tools_from_definitions(definitions))


def tools_from_definitions(definitions: Json) -> list[BaseTool]:
    """Return tools from their definitions: in the chat form, as MCP lists them, or bare.

    These tools cannot run. They count as reads, so that every repair of arguments is shown.

    Raises:
        ConfigError: They are not definitions.
    """
    if isinstance(definitions, Mapping) and isinstance(definitions.get("tools"), list):
        definitions = definitions["tools"]  # a request, or MCP's answer to `tools/list`
    if not isinstance(definitions, list):
        raise ConfigError(
            "tools are a list of definitions, each with `name`, `description` and `parameters`"
        )
    return [
        _tool_from_definition(each, number)
        for number, each in enumerate(definitions, start=1)
    ]


def _tool_from_definition(definition: Json, number: int) -> BaseTool:
    if isinstance(definition, Mapping):
        function = definition.get("function", definition)
    else:
        function = None
    if not (
        isinstance(function, Mapping)
        and isinstance(function.get("name"), str)
        and function["name"]
    ):
        raise ConfigError(
            f"tool {number} has no `name`; a definition has `name`, `description` and `parameters`"
        )
    parameters: Json = next(
        (function[key] for key in _SCHEMA_KEYS if function.get(key)), {}
    )
    if not isinstance(parameters, Mapping):
        raise ConfigError(
            f"the parameters of tool {function['name']!r} are not a JSON Schema"
        )
    description = str(function.get("description") or "")
    return FunctionTool(
        _never,
        name=function["name"],
        description=description,
        parameters=parameters,
        effect="read",
    )


def _never(**_: Any) -> None:
    raise AssertionError("a tool that was only described does not run")
