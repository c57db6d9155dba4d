"""Ready-made types for parameters into which a model could write more than it should.

    def get_user(user_id: guards.Identifier) -> dict: ...     # `U1; DROP TABLE users` is refused
    def fetch(page: Annotated[str, guards.url_at("docs.example.com")]) -> str: ...

Each is a type for a hint. The model reads its pattern in the schema; a value that does not fit is refused before the
tool, its key, its rule or a person sees it. What lies behind still does its own part: SQL parameters are bound, and a
path is opened relative to a folder (`toolbox.files` does).

Rule 1: a pattern says what may stand there, whole and bounded; none lists what may not.
Rule 2: patterns use what JSON Schema, pydantic and providers read alike: no look-around, no `\\d`, which is wider in
        some engines.
"""

from __future__ import annotations

import re
from typing import Annotated, Any, TypeAlias
from urllib.parse import urlsplit

from pydantic import AfterValidator, Field

from handrail.errors import ToolDefinitionError

_NAME = "[A-Za-z0-9]([A-Za-z0-9-]{0,61}[A-Za-z0-9])?"
_HOST = rf"{_NAME}(\.{_NAME})*"
_LABEL = "[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?"

_MUST: dict[str, str] = {}


def must(pattern: str) -> str | None:
    """Say what a pattern of this module asks for, to go on after "must": a model reads that rather than the pattern."""
    return _MUST.get(pattern)


def is_address(pattern: str) -> bool:
    """Whether a pattern of this module is that of an address to which something can be sent."""
    return pattern in _ADDRESSES


def _text(pattern: str, example: str, most: int, asked: str) -> Any:
    _MUST[f"^{pattern}$"] = asked
    # An example and no description: what the author says of the parameter, in the docstring, is to be read.
    return Field(pattern=f"^{pattern}$", max_length=most, examples=[example])


Identifier: TypeAlias = Annotated[
    str,
    _text(
        "[A-Za-z0-9][A-Za-z0-9_.-]*",
        "A-1042",
        64,
        "be an identifier of letters, digits, `_`, `.` and `-`, such as `A-1042`",
    ),
]
"""The name of one thing: a number of a user, an order, a ticket. Letters, digits, `_`, `.` and `-`."""

Slug: TypeAlias = Annotated[
    str,
    _text(
        "[a-z0-9]+(-[a-z0-9]+)*",
        "monthly-report",
        64,
        "be lower-case words joined by `-`, such as `monthly-report`",
    ),
]
"""Lower-case words joined by `-`."""

SqlIdentifier: TypeAlias = Annotated[
    str,
    _text(
        "[A-Za-z_][A-Za-z0-9_]*",
        "order_items",
        63,
        "be a name of letters, digits and `_`, such as `order_items`",
    ),
]
"""A table or a column, where SQL takes no bound parameter. Still write it in quotes: `order` is a word of SQL.

63 characters is what Postgres keeps of a name (NAMEDATALEN - 1).
"""

KubernetesName: TypeAlias = Annotated[
    str,
    _text(
        _LABEL,
        "api-gateway",
        63,
        "be a name of lower-case letters, digits and `-`, such as `api-gateway`",
    ),
]
"""A namespace, a service, a container: a label of RFC 1123. It never begins with `-`, so it is no option either."""

KubernetesObject: TypeAlias = Annotated[
    str,
    _text(
        rf"{_LABEL}(\.{_LABEL})*",
        "api-gateway-7d9f",
        253,
        "be a name of lower-case letters, digits, `-` and `.`, such as `api-gateway-7d9f`",
    ),
]
"""A pod, a deployment, a node: labels of RFC 1123 joined by dots (a DNS subdomain)."""

HostName: TypeAlias = Annotated[
    str,
    _text(
        _HOST,
        "db1.example.com",
        253,
        "be the name of a host without a port, such as `db1.example.com`",
    ),
]
"""A name of DNS (RFC 1123), or an IPv4 address, without a port. What it resolves to is not looked at."""

EmailAddress: TypeAlias = Annotated[
    str,
    _text(
        rf"[A-Za-z0-9!#$%&'*+/=?^_`{{|}}~-]+(\.[A-Za-z0-9!#$%&'*+/=?^_`{{|}}~-]+)*@{_NAME}(\.{_NAME})+",
        "wang.li@example.com",
        254,
        "be one e-mail address and nothing else, such as `wang.li@example.com`",
    ),
]
"""One address: a dot-atom of RFC 5322 at a domain. No display name, no list, no quotes, no line break."""

OneLine: TypeAlias = Annotated[
    str,
    _text(
        r"[^\x00-\x1F\x7F-\x9F\u2028\u2029]+",
        "Order A-1 has shipped",
        998,
        "be one line, without line breaks and other control characters",
    ),
]
"""A subject, a title, the value of a header: no control character, so no second line. 998 is RFC 5322, 2.1.1."""


def _relative(path: str) -> str:
    parts = [part for part in path.split("/") if part not in ("", ".")]
    if path.startswith("/") or ".." in parts:
        raise ValueError(
            "must stay below its folder: neither `..` nor a `/` at the start"
        )
    return "/".join(parts) or "."


RelativePath: TypeAlias = Annotated[
    str,
    _text(
        r"[^\x00-\x1F\x7F\\:/~][^\x00-\x1F\x7F\\:]*",
        "reports/may.md",
        1024,
        "be a path below its folder such as `reports/may.md`: neither a `/` or `~` at the start, nor a `\\` or `:`",
    ),
    AfterValidator(_relative),
]
"""A path below a folder, written in one way: `a//./b` becomes `a/b`. Neither `..`, absolute, `~`, nor of Windows.

It says nothing of links: whoever opens it must not follow them.
"""

# what can be seen of ASCII but `\\`, which some parsers take for a `/`
_REST = r"([/?#][!-\[\]-~]*)?"


def _with_a_port(url: str) -> str:
    _ = urlsplit(url).port  # raises ValueError above 65535
    return url


HttpUrl: TypeAlias = Annotated[
    str,
    _text(
        rf"https?://{_HOST}(:[0-9]{{1,5}})?{_REST}",
        "https://example.com/a",
        2048,
        "be an address of the web without user and password, such as `https://example.com/a`",
    ),
    AfterValidator(_with_a_port),
]
"""An address of the web: http or https, a host, no user and password. What the host resolves to is not looked at."""


def url_at(*hosts: str) -> Any:
    """Return what limits a text to https addresses at these hosts, each exactly, at the usual port.

        def fetch(page: Annotated[str, guards.url_at("docs.example.com")]) -> str: ...

    Raises:
        ToolDefinitionError: A host is none.
    """
    if not hosts or not all(re.fullmatch(_HOST, host) for host in hosts):
        raise ToolDefinitionError(
            f"url_at takes the hosts that may be named, such as 'example.com'; got {hosts!r}"
        )
    named = "|".join(host.lower().replace(".", r"\.") for host in hosts)
    example = f"https://{hosts[0]}/a"
    return _text(
        rf"https://({named}){_REST}",
        example,
        2048,
        f"be an https address at {' or '.join(hosts)}",
    )


_ADDRESSES = frozenset(
    each.__metadata__[0].metadata[-1].pattern  # type: ignore[attr-defined]
    for each in (EmailAddress, HttpUrl)
)
"""The patterns of those types that are addresses."""
