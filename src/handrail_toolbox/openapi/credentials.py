"""The credentials of an OpenAPI service: which kinds can be sent, how each goes along, and how none comes back.

Rule 1: no credential is an argument, and none reaches the model, also when the service sends it back.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias
from urllib.parse import quote

from handrail.errors import Code, NoEffect
from handrail.schemas.openapi import follow_reference
from handrail_toolbox.openapi.requests import RequestBuilder, quote_value

Secret: TypeAlias = "str | Callable[[], str]"
"""A credential, or a function that gives the present one; `user:password` for basic authentication."""

FETCHED = ("oauth2", "openIdConnect")
SENT = ("apiKey", "http basic", "http bearer", *FETCHED)
"""Kinds of credentials that can be sent: of the last two the token, for no flow is driven here."""
_LEAST_SECRET_CHARS = 6
"""A shorter word is no key, and taking it out would blacken half of a text."""


def security_schemes(document: Mapping[str, Any]) -> Mapping[str, Mapping[str, Any]]:
    """Return the security schemes that a document describes, by name."""
    if isinstance(document, Mapping):
        components = document.get("components")
    else:
        components = None
    if isinstance(components, Mapping):
        schemes = components.get("securitySchemes")
    else:
        schemes = None
    declared = schemes if isinstance(schemes, Mapping) else {}
    resolved = {
        name: follow_reference(each, document) for name, each in declared.items()
    }
    return {name: each for name, each in resolved.items() if isinstance(each, Mapping)}


def authorize(request: RequestBuilder, scheme: Mapping[str, Any], secret: str) -> None:
    """Add a credential as its scheme says; OAuth 2 and OpenID Connect send a bearer token."""
    name = str(scheme.get("name", ""))
    where = scheme.get("in")
    if scheme.get("type") == "apiKey" and where == "query":
        request.keys.append(f"{quote_value(name)}={quote_value(secret)}")
    elif scheme.get("type") == "apiKey" and where == "cookie":
        request.cookies.append(f"{name}={quote(secret, safe='')}")
    elif scheme.get("type") == "apiKey":
        request.headers.append((name, secret))
    elif str(scheme.get("scheme", "")).lower() == "basic":
        request.headers.append(
            ("Authorization", f"Basic {base64.b64encode(secret.encode()).decode()}")
        )
    else:
        request.headers.append(("Authorization", f"Bearer {secret}"))


def mask_secrets(value: Any, secrets: Sequence[str]) -> Any:
    """Return a service's answer without the credentials that it was sent, however they were written.

    A tree is changed in place, and without recursion: how deep it is, the service says.
    """

    def mask(each: Any) -> Any:
        if isinstance(each, str):
            for secret in secrets:
                each = each.replace(secret, "***")
        elif isinstance(each, list | dict):
            open_ends.append(each)
        return each

    open_ends: list[list[Any] | dict[Any, Any]] = []
    top = mask(value)
    while open_ends:
        match open_ends.pop():
            case list() as items:
                items[:] = [mask(each) for each in items]
            case dict() as mapping:
                pairs = [(mask(name), mask(each)) for name, each in mapping.items()]
                mapping.clear()
                mapping.update(pairs)
    return top


def secret_forms(secret: str) -> list[str]:
    """Return the forms in which a credential went over the wire and may come back, the longest first."""
    parts = {secret, secret.partition(":")[2]}  # of a user and a password, the password
    parts |= {quote(each, safe="") for each in parts} | {
        base64.b64encode(secret.encode()).decode()
    }
    return sorted(
        (each for each in parts if len(each) >= _LEAST_SECRET_CHARS),
        key=len,
        reverse=True,
    )


def scheme_kind(scheme: Mapping[str, Any]) -> str:
    """Say what kind of credential a scheme wants, such as `apiKey`, `http basic`, `http digest`, `oauth2`."""
    kind = str(scheme.get("type", "unknown"))
    how = str(scheme.get("scheme", "")).lower()
    return f"http {how}" if kind == "http" else kind


def reason_unsendable(secret: Any, scheme: Mapping[str, Any]) -> str:
    """Say why a credential cannot be sent as its scheme says; empty when it can. It is not in the reason."""
    if not isinstance(secret, str) or not secret:
        if secret == "":
            return "is empty"
        return f"is no text but a {type(secret).__name__}"
    if re.search(r"[\x00-\x1f\x7f]", secret):
        return "holds a line break or another control character; strip what was read from a file"
    in_header = scheme.get("in") == "header" or scheme_kind(scheme) not in (
        "apiKey",
        "http basic",
    )
    if in_header and not secret.isascii():
        return "holds a character that no header can: only ASCII is sent"
    return ""


def current_secret(secret: Secret, scheme: Mapping[str, Any], tool: str) -> str:
    """Return a credential as it is now.

    Args:
        tool: The tool that needs it.

    Raises:
        NoEffect: The function that should give it raised, or gave what cannot be sent.
    """
    if not callable(secret):
        return secret
    try:
        value = secret()
        if fault := reason_unsendable(value, scheme):
            raise ValueError(f"what it gave {fault}")
        return value
    except Exception as error:
        # whatever fetches a token: nothing was sent, so nothing happened
        raise NoEffect(
            Code.UNAVAILABLE,
            f"The credentials for `{tool}` cannot be had just now.",
            suggestion="Try again later, or tell the user.",
            retryable=True,
        ) from error
