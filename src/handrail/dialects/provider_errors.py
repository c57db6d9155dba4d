"""What a provider's error means: retry, wait as asked, or give up.

Providers agree on HTTP statuses more than on words, so a status decides, except where a word overrules it: a
429 with `insufficient_quota` is an empty account, which no waiting fills.

Rule 1: types, codes and statuses decide, never the text of a message.
Rule 2: what nobody knows is not retryable.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime

from msgspec import Struct

from handrail.core.retries import retry_after_s
from handrail.dialects import received
from handrail.errors import Json, ModelError

_HOPELESS = frozenset(
    {
        # An empty account or a closed one, reported with 429 (OpenAI), 402 or 403.
        "insufficient_quota",
        "billing_not_active",
        "billing_hard_limit_reached",
        "access_terminated",
        "billing_error",
        # The request itself is too long: the same one always will be.
        "context_length_exceeded",
        "request_too_large",
        "string_above_max_length",
        "max_tokens_exceeded",
        # Told with a status that some gateways get wrong.
        "invalid_request_error",
        "invalid_api_key",
        "authentication_error",
        "permission_error",
        "not_found_error",
        "model_not_found",
        "content_policy_violation",
        "content_filter",
        "invalid_argument",
        "failed_precondition",
        "permission_denied",
        "unauthenticated",
        "not_found",
    }
)

_PASSING = frozenset(
    {
        "rate_limit_error",
        "rate_limit_exceeded",
        "rate_limit_reached",
        "resource_exhausted",
        "requests",
        "tokens",
        "overloaded_error",
        "overloaded",
        "engine_overloaded",
        "service_unavailable",
        "unavailable",
        "api_error",
        "server_error",
        "internal_server_error",
        "internal_error",
        "internal",
        "timeout",
        "timeout_error",
        "deadline_exceeded",
    }
)
"""Asked where there is no status: in the middle of a stream, or under a 200."""

_PASSING_STATUSES = frozenset({408, 409, 425, 429})
"""Beside all from 500 on: the request took too long, met another one, came too early, or was one too many."""

_SHOULD_RETRY: Mapping[str, bool] = {"true": True, "false": False}
"""The header `x-should-retry`, in which OpenAI and Anthropic say it outright."""

_MOST_MESSAGE_CHARS = 500
_LONGEST_WAIT_S = 1e9
"""Longer than anybody waits, and still a number that can be written."""


class ProviderError(Struct, frozen=True):
    """An error body in our terms.

    Attributes:
        words: The codes, types and statuses in it, lower-cased, the most telling first.
        status: The HTTP status that the body itself claims; gateways put the real one there under a 200.
    """

    code: str = ""
    message: str = ""
    words: tuple[str, ...] = ()
    status: int | None = None
    retry_after_s: float | None = None


def error_in(body: Json | bytes) -> ProviderError | None:
    """Return the error that a body holds, or None.

    Knows `{"error": {...}}` and `{"error": "..."}`, the flat `{"object": "error", ...}` of vLLM,
    `{"type": "error", ...}`, `{"detail": ...}` of FastAPI servers, and Google's list of one.
    """
    if isinstance(body, (str, bytes)):
        body = _parse_json(body)
    body = _unwrap(body)
    if not isinstance(body, received.OBJECT):
        return None
    error = _unwrap(body.get("error") or body.get("errors"))
    if error is not None and isinstance(error, received.OBJECT):
        return _parse_error(error)
    if error:
        return ProviderError(message=_as_text(error))
    if body.get("object") == "error" or body.get("type") == "error":
        return _parse_error(body)
    if body.get("detail") and "choices" not in body:
        return ProviderError(message=_as_text(body["detail"]))
    return None


def _unwrap(value: Json) -> Json:
    """Return the first item of a list, or the value itself."""
    if isinstance(value, list) and value:
        return value[0]
    return value


def classify(
    status: int | None,
    headers: Mapping[str, str],
    body: Json | bytes,
    *,
    now: datetime | None = None,
) -> ModelError:
    """Return the exception that an error answer amounts to.

    Args:
        status: None or 2xx when the error came under a success, at the head of a stream or in its middle.
        body: As received; an unreadable one leaves the status to decide.
        now: Lets `Retry-After` be a date. Without it the answer's own `Date` header is taken.
    """
    error = error_in(body) or _flat(body)
    lowered = {name.lower(): value for name, value in headers.items()}
    failed = error.status
    if status is not None and status >= 300:
        failed = status
    wait_s = _wait_s(lowered, now)
    return ModelError(
        _sentence(failed, error),
        status=failed,
        code=error.code,
        retryable=_retryable(failed, lowered, error),
        retry_after_s=error.retry_after_s if wait_s is None else wait_s,
    )


def _flat(body: Json | bytes) -> ProviderError:
    """Return the error in a body that only its status or its event calls one."""
    if isinstance(body, (str, bytes)):
        fields = _parse_json(body)
    else:
        fields = body
    if isinstance(fields, Mapping) and fields.get("message"):
        return _parse_error(fields)
    return ProviderError(message=_as_text(body))


def _retryable(
    status: int | None, headers: Mapping[str, str], error: ProviderError
) -> bool:
    if not _HOPELESS.isdisjoint(error.words):
        return False
    advice = _SHOULD_RETRY.get(headers.get("x-should-retry", "").lower())
    if advice is not None:
        return advice
    if status is None:
        return not _PASSING.isdisjoint(error.words)
    return status >= 500 or status in _PASSING_STATUSES


def _sentence(status: int | None, error: ProviderError) -> str:
    what = " ".join(
        str(part) for part in (status, error.code) if part and str(part) != "None"
    )
    message = error.message.strip()[:_MOST_MESSAGE_CHARS] or "no reason was given"
    return f"the model's provider answered with an error{f' ({what})' if what else ''}: {message}"


def _parse_error(error: Mapping[str, Json]) -> ProviderError:
    values = [error.get(key) for key in ("code", "type", "status")]
    words = [
        value
        for value in values
        if isinstance(value, str) and value and not value.isdigit()
    ]
    status = next(filter(None, map(_status, (*values, error.get("status_code")))), None)
    # OpenRouter's code is a number and Google's a number beside a word; a word says more.
    code = ""
    if words:
        code = words[0]
    elif status:
        code = str(status)
    return ProviderError(
        code=received.legible(code),
        message=_as_text(error.get("message") or error.get("detail") or ""),
        words=tuple(word.lower() for word in words),
        status=status,
        retry_after_s=next(_delays_s(error.get("details")), None),
    )


def _status(word: Json) -> int | None:
    if isinstance(word, str) and re.fullmatch("[0-9]{3}", word):
        number = int(word)
    else:
        number = word
    if isinstance(number, int) and 300 <= number <= 599:
        return number
    return None


def _delays_s(details: Json) -> Iterator[float]:
    """Google asks to wait in the body: `{"@type": ".../google.rpc.RetryInfo", "retryDelay": "17s"}`."""
    for detail in details if isinstance(details, list) else ():
        if isinstance(detail, Mapping):
            delay = detail.get("retryDelay")
        else:
            delay = None
        if isinstance(delay, str) and (
            match := re.fullmatch(r"(\d+(?:\.\d+)?)s", delay)
        ):
            yield min(float(match[1]), _LONGEST_WAIT_S)


def _wait_s(headers: Mapping[str, str], now: datetime | None) -> float | None:
    """Return how long the answer asks to wait.

    `x-ratelimit-reset-*` is ignored: it says when a window is full again, which is later than one request needs.
    """
    since = now or _date(headers.get("date", ""))
    # without a clock a date says nothing
    if since:
        now_s = since.timestamp()
    else:
        now_s = math.inf
    finer_ms = retry_after_s(headers.get("retry-after-ms"), math.inf)
    if finer_ms is None:
        return retry_after_s(headers.get("retry-after"), now_s)
    return finer_ms / 1000


def _date(text: str) -> datetime | None:
    try:
        date = parsedate_to_datetime(text)
    except (
        ValueError,
        TypeError,
    ):  # TypeError: what older Pythons raise for text that is no date
        return None
    if date.tzinfo:
        return date
    return date.replace(tzinfo=UTC)


def _parse_json(text: str | bytes) -> Json:
    try:
        return received.encodable(json.loads(text))
    except (ValueError, RecursionError):
        return None


def _as_text(reason: Json | bytes) -> str:
    if isinstance(reason, bytes):
        return reason.decode("utf-8", "replace")
    try:
        if isinstance(reason, str):
            text = reason
        else:
            text = json.dumps(reason, ensure_ascii=False, default=str)
    except (ValueError, RecursionError):
        return "its reason cannot be read"
    return text.encode("utf-8", "replace").decode()
