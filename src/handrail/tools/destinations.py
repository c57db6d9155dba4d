"""Which arguments of a tool say where a call of it sends things: by their type, else by their name.

Rule 1: pure, and looked at once for each tool; a tool that knows better declares `destination`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from handrail import _lazy
from handrail.errors import Json

if TYPE_CHECKING:
    from handrail import guards
else:
    # only arguments with a pattern need it, and it loads much of pydantic
    guards = _lazy.module("handrail.guards")

_NAMES = frozenset(
    (
        "to", "cc", "bcc", "recipient", "recipients", "receiver", "receivers", "participant", "participants",
        "attendee", "attendees", "invitee", "invitees", "email", "emails", "mail", "url", "urls", "uri", "link",
        "endpoint", "host", "hostname", "domain", "user", "username", "channel", "channels", "iban", "account",
        "beneficiary", "payee", "phone", "phone_number", "mailbox", "webhook",
    )
)  # fmt: skip
_LAST_WORDS = frozenset(
    ("recipient", "recipients", "email", "emails", "url", "uri", "iban", "webhook")
)
"""Words that make a destination of a longer name: `user_email`, `callback_url`."""
_FORMATS = frozenset(("email", "idn-email", "uri", "iri", "url"))


def find_destinations(parameters: Mapping[str, Json]) -> tuple[str, ...]:
    """Return the names of the arguments that are destinations, in order."""
    properties: Any = parameters.get("properties") or {}
    return tuple(
        name
        for name, schema in properties.items()
        if _is_destination_by_name(name) or _is_destination_by_type(schema)
    )


def _is_destination_by_name(name: str) -> bool:
    # `userEmail` and `user-email` are `user_email`
    words = re.sub(r"(?<=[a-z0-9])(?=[A-Z])|[-.\s]+", "_", name).lower()
    return words in _NAMES or words.rpartition("_")[2] in _LAST_WORDS


def _is_destination_by_type(schema: Json) -> bool:
    return any(
        each.get("format") in _FORMATS
        or ("pattern" in each and guards.is_address(str(each["pattern"])))
        for each in _list_schemas(schema)
    )


def _list_schemas(schema: Json) -> Iterator[Mapping[str, Any]]:
    """Yield the schema of an argument, and those of its items and alternatives."""
    if not isinstance(schema, Mapping):
        return
    yield schema
    yield from _list_schemas(schema.get("items"))
    for word in ("anyOf", "oneOf"):
        alternatives = schema.get(word)
        if isinstance(alternatives, list):
            for each in alternatives:
                yield from _list_schemas(each)
