"""Identifies the sender of a request: the principal, the tenant, the run of the call, and the client's idempotency key.

Each session has a run of its own. Without sessions, the owner of a token has one run, in which the calls of earlier
connections are found again. Without either, a run belongs to one client of one process.

A key names the act wherever it is sent again: it is taken from the request's `_meta`, or from the header of HTTP. The
principal and the key alone identify a call with a key, across sessions, connections and processes.

Rule 1: what a client says of itself, such as its name or a header, never makes it anybody's principal.
Rule 2: no part of a run's name can spell another part.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from secrets import token_hex
from typing import Any

from mcp import types
from mcp.server.auth.middleware.auth_context import get_access_token
from mcp.server.context import ServerRequestContext
from mcp.shared.exceptions import MCPError
from msgspec import Struct

from handrail.invisible import misleads

MODERN = "2026-07-28"
"""The first revision without sessions and without requests from servers to clients."""

KEY_META = "handrail/idempotency-key"
KEY_HEADER = "idempotency-key"

SCOPE_CLAIM = "handrail/scope"
"""The claim of a token that says for which tenant its calls are made."""

_LONGEST_KEY = 255
_LONGEST_NAME = 100
_PROCESS = token_hex(8)


class Caller(Struct, frozen=True):
    """Who makes a request, and what identifies its call.

    Attributes:
        run: The run of the call.
        call_id: Identifies the call within its run, in every process.
        home: The run of the caller's calls without a key, such as those that read on in a result.
        principal: The owner of the token; empty without one.
        scope: The tenant; None for the runtime's own.
        key: The client's idempotency key; empty without one.
        client: What the client calls itself, for people to read.
    """

    run: str
    call_id: str
    home: str
    principal: str = ""
    scope: str | None = None
    key: str = ""
    client: str = ""


def identify_caller(context: ServerRequestContext[Any, Any], server: str) -> Caller:
    """Return the caller of a request.

    Args:
        server: The name of the server: servers of one store have runs of their own.

    Raises:
        MCPError: The idempotency key cannot be used as given.
    """
    token = get_access_token()
    principal = ""
    scope: str | None = None
    if token is not None:
        principal = token.subject or token.client_id
        scope = (token.claims or {}).get(SCOPE_CLAIM)
    headers: Mapping[str, str] = getattr(context.request, "headers", None) or {}
    about = context.session.client_params
    client = about.client_info.name[:_LONGEST_NAME] if about is not None else ""
    owner = ""
    if principal:
        owner = f"@{_escape(principal)}/{_escape(scope or '')}"
    prefix = f"mcp:{_escape(server)}:"
    # A header of this name means nothing in revisions without sessions; in others the transport has checked it.
    session = ""
    if context.protocol_version != MODERN:
        session = headers.get("mcp-session-id", "")
    if session:
        home = f"{prefix}{owner}session:{_escape(session)}"
    else:
        home = prefix + (owner or f"process:{_PROCESS}:{_escape(client)}")
    run = home
    call_id = f"m_{token_hex(8)}"
    key = _read_key(context.params, headers)
    if key:
        run = prefix + (owner or f"key:{_escape(key)}")
        call_id = f"key:{key}"
    return Caller(run, call_id, home, principal, scope, key, client)


def _read_key(params: Mapping[str, Any] | None, headers: Mapping[str, str]) -> str:
    meta = (params or {}).get("_meta") or {}
    key: object = meta.get(KEY_META)
    where = f"`_meta` {KEY_META!r}"
    if key is None:
        key = headers.get(KEY_HEADER)
        where = "the header `Idempotency-Key`"
    if key is None:
        return ""
    if isinstance(key, str) and 0 < len(key) <= _LONGEST_KEY and key.isprintable():
        return key
    raise MCPError(
        types.INVALID_PARAMS,
        f"{where} is no idempotency key: it is a text of 1 to {_LONGEST_KEY} printable characters",
    )


@lru_cache(1024)
def _escape(text: str) -> str:
    """Escape what separates the parts of a run's name, and what no name of a run may hold."""
    return "".join(
        character if _may_stay(character) else _escape_character(ord(character))
        for character in text
    )


def _may_stay(character: str) -> bool:
    # Hangul fillers are letters that nobody sees
    return character in "-_." or (character.isalnum() and not misleads(character))


def _escape_character(code: int) -> str:
    # each form has a fixed length: "%20" and "19" would otherwise be "%2019"
    return f"%{code:02X}" if code <= 0xFF else f"%u{code:06X}"
