"""What the tools of a server are called here: unique, stable, at most 64 characters long, and reversible.

A name is made of the server's prefix and the tool's own name, and of nothing else: neither the order of connecting nor
what other tools there are changes it. A name that a provider would refuse, or that is too long, carries a digest of
what it was made from, so that two tools never become one by being spelled acceptably.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from hashlib import sha256

MOST_CHARS = 64
"""The longest name that every provider accepts."""

_DIGEST_CHARS = 8
_UNACCEPTABLE = re.compile(r"[^a-zA-Z0-9_-]")


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


def name_tools(prefix: str, names: Sequence[str]) -> dict[str, str | None]:
    """Return what a server's tools are called here, by their names there; None where two would have one name."""
    made = [make_name(prefix, name) for name in names]
    times = Counter(made)
    return {
        name: here if times[here] == 1 else None
        for name, here in zip(names, made, strict=True)
    }


def make_prefix(server: str) -> str:
    """Return the prefix of a server's tools: `shop_` for `shop`.

    >>> make_prefix("@acme/shop-server")
    'acme_shop-server_'
    """
    return f"{_UNACCEPTABLE.sub('_', server).strip('_') or 'mcp'}_"
