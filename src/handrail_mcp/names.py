"""What the tools of a server are called here: unique, stable, at most 64 characters long, and reversible.

A name is made of the server's prefix and the tool's own name, and of nothing else: neither the order of connecting nor
what other tools there are changes it. A name that a provider would refuse, or that is too long, carries a digest of
what it was made from, so that two tools never become one by being spelled acceptably.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable
from hashlib import sha256

from msgspec import Struct

MOST_CHARS = 64
"""The longest name that every provider accepts."""

_DIGEST_CHARS = 8
_UNACCEPTABLE = re.compile(r"[^a-zA-Z0-9_-]")


class Named(Struct, frozen=True):
    """The names of a server's tools, both ways.

    Attributes:
        here: A tool's name here, by its name at the server.
        there: The other way round.
        collisions: Names at the server that have no distinct name here, such as one that it lists twice.
    """

    here: dict[str, str]
    there: dict[str, str]
    collisions: list[str]


def make_name(prefix: str, name: str) -> str:
    """Return what a tool is called here.

    >>> make_name("shop_", "refund")
    'shop_refund'
    >>> make_name("shop_", "orders/find")
    'shop_orders_find_278a313c'
    """
    whole = prefix + name
    acceptable = _UNACCEPTABLE.sub("_", whole)
    if acceptable == whole and len(whole) <= MOST_CHARS:
        return whole
    digest = sha256(whole.encode("utf-8", "surrogatepass")).hexdigest()[:_DIGEST_CHARS]
    room = MOST_CHARS - _DIGEST_CHARS - 1
    if len(acceptable) > room:
        # the beginning names the server, and its tools differ mostly at the end
        start = acceptable[: room // 2]
        acceptable = start + acceptable[-(room - len(start)) :]
    return f"{acceptable}_{digest}"


def name_tools(prefix: str, names: Iterable[str]) -> Named:
    """Return the names of a server's tools, without any that collide."""
    listed = list(names)
    times = Counter(make_name(prefix, name) for name in listed)
    here: dict[str, str] = {}
    collisions: list[str] = []
    for name in listed:
        made = make_name(prefix, name)
        if times[made] == 1:
            here[name] = made
        elif name not in collisions:
            collisions.append(name)
    return Named(here, {made: name for name, made in here.items()}, collisions)


def make_prefix(server: str) -> str:
    """Return the prefix of a server's tools: `shop_` for `shop`.

    >>> make_prefix("@acme/shop-server")
    'acme_shop-server_'
    """
    return f"{_UNACCEPTABLE.sub('_', server).strip('_') or 'mcp'}_"
