"""What the API answers: JSON, lists with a cursor, times, and errors that a program can act on."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from starlette.responses import Response

from handrail.core.redaction import (
    HIDDEN,
    Redactor,
    is_secret_name,
    without_aws_secrets,
)
from handrail.errors import Json
from handrail.invisible import json_text


class ApiError(Exception):
    """A request that is refused.

    Attributes:
        status: The status of HTTP.
        code: What programs tell it by.
        details: More members of the error.
    """

    def __init__(self, status: int, code: str, message: str, **details: Json) -> None:
        super().__init__(message)
        self.status = status
        self.code = code
        self.details = details

    def as_json(self) -> dict[str, Json]:
        """Return the body of the answer."""
        error = {"code": self.code, "message": str(self), **self.details}
        return {"error": error}


def not_found(what: str) -> ApiError:
    """Return the error for something that is not there, or that this caller may not know of."""
    return ApiError(404, "not_found", f"there is no {what}")


_REDACTOR = Redactor()
_SCHEMAS = ("schema", "parameters", "inputSchema", "input_schema")


def redact(value: Json) -> Json:
    """Return JSON without what looks like a secret.

    It redacts as the audit log does, except counts of tokens and JSON Schemas, which only have names like secrets.
    """
    return _redact(without_aws_secrets(value))


def _redact(value: Json) -> Json:
    if isinstance(value, str):
        return _REDACTOR.text(value)
    if value is None or isinstance(value, (bool, int, float)):
        return value
    if isinstance(value, Mapping):
        return {
            _REDACTOR.name(name): _redact_under(name, value[name]) for name in value
        }
    if isinstance(value, (list, tuple)):
        return [_redact(each) for each in value]
    return value


def _redact_under(name: str, part: Json) -> Json:
    if name in _SCHEMAS and isinstance(part, Mapping):
        return _redact_texts(part)
    if (
        is_secret_name(name[-64:])
        and part not in (None, "")
        and not _is_count(name, part)
    ):
        return HIDDEN
    return _redact(part)


def _redact_texts(value: Json) -> Json:
    """Return JSON without secrets in its texts, whatever the names before them say."""
    if isinstance(value, Mapping):
        return {name: _redact_texts(part) for name, part in value.items()}
    if isinstance(value, (list, tuple)):
        return [_redact_texts(part) for part in value]
    return _redact(value)


def _is_count(name: str, part: Json) -> bool:
    if "token" not in name.lower():
        return False
    if isinstance(part, Mapping):
        return all(type(each) is int for each in part.values())
    return type(part) is int


def answer(body: Json, status: int = 200, **headers: str) -> Response:
    """Return a value as an answer in JSON, without what looks like a secret."""
    return Response(
        json_text(redact(body)),
        status,
        media_type="application/json",
        headers=headers,
    )


def refuse(error: ApiError) -> Response:
    """Return the answer to a request that is refused."""
    return answer(error.as_json(), error.status)


def page(items: Sequence[Any], next_cursor: str | None = None) -> dict[str, Json]:
    """Return a list as the API has it."""
    return {"items": list(items), "next": next_cursor}


def time_text(at: float | None) -> str | None:
    """Return a Unix time as ISO 8601 in UTC with milliseconds; None for None and for 0, which is no time.

    >>> time_text(1.5)
    '1970-01-01T00:00:01.500Z'
    """
    if not at:
        return None
    moment = datetime.fromtimestamp(at, UTC)
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")
