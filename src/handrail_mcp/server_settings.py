"""Servers as a file names them, in the tables `[mcp.servers.NAME]`.

    [mcp.servers.files]
    command = "npx"
    args = ["-y", "@modelcontextprotocol/server-filesystem", "/data"]
    env = { TOKEN = "${FILES_TOKEN}" }       # from our environment; `${NAME:-default}` has a default

    [mcp.servers.files.tools.read_file]      # by the tool's name at the server; counts before its hints
    effect = "read"

Rule 1: an unknown key is an error, and so is a variable that is not set in the environment.
Rule 2: a server gets the environment in its table, and nothing else of ours.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, get_args, get_origin

from msgspec import Struct, ValidationError, convert
from msgspec.structs import asdict, fields

from handrail import _lazy
from handrail.calls import Confidentiality, Integrity
from handrail.core.redaction import is_secret_name
from handrail.errors import ConfigError
from handrail.parsing.names import advise
from handrail.sandboxes.enclosing import enclose

if TYPE_CHECKING:
    from handrail_mcp import targets
else:
    # the package `mcp` takes a second to import
    targets = _lazy.module("handrail_mcp.targets")

_VARIABLE = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)(?::-([^}]*))?\}")

DEFAULT_TIMEOUT_S = 60.0
DEFAULT_CONNECT_S = 30.0
"""How long a server may take to start and to answer first. `npx` fetches a package on the way."""


Trust: TypeAlias = Literal["none", "hints"]
"""Whether the hints of a server count."""


class Walls(Struct, frozen=True, forbid_unknown_fields=True):
    """Walls around a server that is started; see `sandboxes.enclosing`."""

    read: Sequence[str] = ()
    write: Sequence[str] = ()
    network: bool = False


class ServerSettings(Struct, frozen=True, kw_only=True):
    """One server.

    Attributes:
        name: What it is called here.
        command: The program that is started, with `args`, `env` and `cwd`; empty for a server at an address.
        url: Its address, with `headers`.
        sandbox: Walls around a server that is started. Without them it may do what you may.
        trust: `hints` believes what it says of its tools' effects; `none` takes each for a write of high risk.
        results: `trusted` where no stranger can have written what its tools return; `untrusted` otherwise.
        confidentiality: `private` where numbers in what its tools return must not leave unasked.
        tools: Declarations by the names of its tools, which count before its hints.
        prefix: In front of its tools' names, in place of `NAME_`.
        timeout_s: Seconds that a call may take.
        connect_s: Seconds until it must have answered first.
        idle_s: Seconds that a call may take without a sign of progress.
    """

    name: str
    command: str = ""
    args: Sequence[str] = ()
    env: Mapping[str, str] = {}
    cwd: str = ""
    url: str = ""
    headers: Mapping[str, str] = {}
    sandbox: Walls | None = None
    trust: Trust = "none"
    results: Integrity = "untrusted"
    confidentiality: Confidentiality = "public"
    tools: Mapping[str, Mapping[str, Any]] = {}
    prefix: str | None = None
    timeout_s: float = DEFAULT_TIMEOUT_S
    connect_s: float = DEFAULT_CONNECT_S
    idle_s: float | None = None

    def __post_init__(self) -> None:
        if bool(self.command) == bool(self.url):
            raise ConfigError(
                f"the server {self.name!r} has neither `command` nor `url`, or both"
            )

    def target(self) -> targets.Target:
        """Return where the server is.

        Raises:
            ConfigError: A variable of the environment is not set, or the address or the command line is malformed.
        """
        if self.url:
            headers = {key: self._expand(each) for key, each in self.headers.items()}
            return targets.make_target(self._expand(self.url), headers=headers)
        words = [self._expand(word) for word in (self.command, *self.args)]
        if self.sandbox is not None:
            words = enclose(words, **asdict(self.sandbox))
        env = {key: self._expand(each) for key, each in self.env.items()}
        return targets.make_target(words, env=env, cwd=self._expand(self.cwd))

    def tool_options(self) -> dict[str, Any]:
        """Return what it says of its tools, as keywords of `McpToolset`."""
        return {
            "trust": self.trust,
            "results": self.results,
            "confidentiality": self.confidentiality,
            "overrides": self.tools,
            "prefix": self.prefix,
            "timeout_s": self.timeout_s,
        }

    def find_secrets(self) -> Iterator[str]:
        """Yield values that are hidden from models and logs.

        They are what is taken from our environment, and headers and variables whose name says so.
        """
        texts = (self.url, *self.args, *self.env.values(), *self.headers.values())
        for text in texts:
            for match in _VARIABLE.finditer(text):
                yield os.environ.get(match[1], "")
        for name, value in {**self.env, **self.headers}.items():
            if is_secret_name(name):
                expanded = self._expand(value)
                yield expanded
                # of a header such as `Bearer x`, the key alone
                yield expanded.rpartition(" ")[2]

    def _expand(self, text: str) -> str:
        def look_up(match: re.Match[str]) -> str:
            value = os.environ.get(match[1], match[2])
            if value is None:
                raise ConfigError(
                    f"the server {self.name!r} needs the environment variable {match[1]}, which is not set"
                )
            return value

        return _VARIABLE.sub(look_up, text)


_TYPES = {
    field.name: field.type for field in fields(ServerSettings) if field.name != "name"
}
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,31}")


def read_servers(document: Mapping[str, Any]) -> dict[str, ServerSettings]:
    """Return the servers in the settings of a file, in order.

    Raises:
        ConfigError: There are none, or one of them is not as servers are written.
    """
    tables: Any = document.get("mcp", {})
    servers: Any = tables.get("servers", {}) if isinstance(tables, dict) else None
    if not isinstance(servers, dict) or not servers:
        raise ConfigError("there is no table [mcp.servers.NAME] in it")
    return {name: read_server(name, table) for name, table in servers.items()}


def read_server(name: str, table: Any) -> ServerSettings:
    """Return one server.

    Raises:
        ConfigError: It is not as servers are written.
    """
    if not _NAME.fullmatch(name):
        raise ConfigError(
            f"{name!r} is no name of a server: it has up to 32 letters, digits, `_`, `.` and `-`"
        )
    if not isinstance(table, dict):
        raise ConfigError(f"the server {name!r} is {table!r}; write a table")
    settings = {key: _convert(name, key, value) for key, value in table.items()}
    return ServerSettings(name=name, **settings)


def _convert(name: str, key: str, value: Any) -> Any:
    if key not in _TYPES:
        hint = advise(key, _TYPES, f"the keys are {', '.join(_TYPES)}")
        raise ConfigError(f"the server {name!r} has no key {key!r}; {hint}")
    kind = _TYPES[key]
    try:
        return convert(value, kind)
    except ValidationError:
        words = get_args(kind) if get_origin(kind) is Literal else ()
        hint = f"; it is {' or '.join(map(repr, words))}" if words else ""
        raise ConfigError(
            f"`{key}` of the server {name!r} cannot be {value!r}{hint}"
        ) from None
