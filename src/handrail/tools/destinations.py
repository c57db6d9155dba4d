"""Which arguments of a tool say where a call of it sends things, by type or name, and whether it sends at all.

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


SENDS = frozenset(
    (
        "send", "post", "mail", "email", "notify", "publish", "share", "forward", "invite", "transfer", "message",
        "tweet", "upload", "submit", "reply",
    )
)  # fmt: skip
SENDS_IN_CHINESE = frozenset(
    ("发送", "发布", "分享", "转发", "转账", "通知", "邀请", "上传", "提交", "回复")
)
"""Words in the name of a tool that say that it sends something."""


def names_sending(name: str) -> bool:
    """Whether the name of a tool says that it sends something."""
    spelled = _as_snake_case(name)
    if not SENDS.isdisjoint(spelled.split("_")):
        return True
    return not name.isascii() and any(word in name for word in SENDS_IN_CHINESE)


def find_destinations(parameters: Mapping[str, Json]) -> tuple[str, ...]:
    """Return the names of the arguments that are destinations, in order."""
    properties: Any = parameters.get("properties") or {}
    return tuple(
        name
        for name, schema in properties.items()
        if _is_destination_by_name(name) or _is_destination_by_type(schema)
    )


def _is_destination_by_name(name: str) -> bool:
    words = _as_snake_case(name)
    return words in _NAMES or words.rpartition("_")[2] in _LAST_WORDS


def _as_snake_case(name: str) -> str:
    """Return a name as Python would spell it: `userEmail` and `user-email` as `user_email`."""
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])|[-.\s]+", "_", name).lower()


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
