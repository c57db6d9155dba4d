"""The document that describes the API to programs: OpenAPI 3.1, made from the table of operations."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from handrail._version import __version__
from handrail.errors import Json
from handrail_server.operations import PREFIX, ApiOperation

_ERROR: dict[str, Json] = {
    "type": "object",
    "properties": {
        "error": {
            "type": "object",
            "properties": {
                "code": {"type": "string"},
                "message": {"type": "string"},
            },
            "required": ["code", "message"],
        }
    },
    "required": ["error"],
}

_REFUSALS = {
    "400": "The request is not as HTTP or JSON have it, or names another host.",
    "401": "Without a valid token.",
    "403": "From a page of another site, or with a role too small.",
    "404": "There is no such thing that this caller may know of.",
    "409": "Somebody was quicker, or what was shown has changed.",
    "413": "The body is too large.",
    "415": "The body is not declared as JSON.",
    "422": "It is not possible like this; the message says why.",
    "429": "Too many requests.",
    "500": "The server could not do it; its log says why.",
    "503": "The store cannot be reached now.",
}


def describe_api(operations: Sequence[ApiOperation]) -> dict[str, Json]:
    """Return the document."""
    paths: dict[str, dict[str, Json]] = {}
    for each in operations:
        path = paths.setdefault(PREFIX + each.path, {})
        path[each.method.lower()] = _describe(each)
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "handrail",
            "version": __version__,
            "description": "Runs of models with tools: what happened, what waits for a person, what to do about it.",
        },
        "paths": paths,
        "components": {
            "schemas": {"Error": _ERROR},
            "securitySchemes": {
                "token": {"type": "http", "scheme": "bearer"},
                "session": {
                    "type": "apiKey",
                    "in": "cookie",
                    "name": "handrail_session",
                },
            },
        },
    }


def _describe(operation: ApiOperation) -> dict[str, Json]:
    name = operation.handler.__name__.strip("_")
    body: dict[str, Any] = {
        "operationId": name,
        "summary": operation.summary,
        "parameters": [
            *(
                {
                    "name": each,
                    "in": "path",
                    "required": True,
                    "schema": {"type": "string"},
                }
                for each in re.findall(r"{(\w+)}", operation.path)
            ),
            *(
                {
                    "name": each,
                    "in": "query",
                    "description": says,
                    "schema": {"type": "string"},
                }
                for each, says in operation.query.items()
            ),
        ],
        "responses": {
            str(operation.status): {
                "description": "Done.",
                "content": {operation.gives: {"schema": {}}},
            },
            **{
                status: {
                    "description": says,
                    "content": {
                        "application/json": {
                            "schema": {"$ref": "#/components/schemas/Error"}
                        }
                    },
                }
                for status, says in _REFUSALS.items()
            },
        },
    }
    if operation.role is not None:
        body["security"] = [{"token": []}, {"session": []}]
        body["x-role"] = operation.role
    if operation.method == "POST":
        body["requestBody"] = {
            "required": bool(operation.required),
            "content": {"application/json": {"schema": operation.body_schema}},
        }
    return body
