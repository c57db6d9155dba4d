"""Servers that a settings file describes: the tables `[mcp.servers.NAME]` of handrail.toml.

    [mcp.servers.shop]
    command = "npx"
    args = ["-y", "shop-server"]
    env = { SHOP_KEY = "${SHOP_KEY}" }
    trust = "hints"
    pins = "mcp-pins.json"

    [mcp.servers.shop.overrides.find_order]
    effect = "read"

Rule 1: a key that is not known is refused: a misspelt `trust` or `pins` would be a rule that never holds.
Rule 2: a secret stands in the environment, and the file says which (`${NAME}`); one that is not set is refused.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from handrail.errors import ConfigError
from handrail.mcp.hints import Trust
from handrail.mcp.pins import Pins
from handrail.mcp.toolset import McpToolset, connect, tools
from handrail.parsing.names import nearest

_VARIABLE = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)\}")


def _is_texts(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(each, str) for each in value)


def _is_text_by_name(value: Any) -> bool:
    return isinstance(value, dict) and all(isinstance(v, str) for v in value.values())


def _is_text(value: Any) -> bool:
    return isinstance(value, str) and bool(value)


def _is_seconds(value: Any) -> bool:
    return isinstance(value, int | float) and value is not True and value > 0


def _is_tables(value: Any) -> bool:
    return isinstance(value, dict) and all(isinstance(v, dict) for v in value.values())


_KEYS: Mapping[str, tuple[str, Callable[[Any], bool]]] = {
    "command": ("the program, as text", _is_text),
    "args": ("a list of texts", _is_texts),
    "env": ("a table of texts", _is_text_by_name),
    "cwd": ("a folder, as text", _is_text),
    "url": ("an address, as text", _is_text),
    "headers": ("a table of texts", _is_text_by_name),
    "trust": ('"none" or "hints"', lambda value: value in ("none", "hints")),
    "pins": ("a file, as text", _is_text),
    "prefix": ("text", lambda value: isinstance(value, str)),
    "timeout_s": ("a number of seconds above 0", _is_seconds),
    "connect_s": ("a number of seconds above 0", _is_seconds),
    "idle_s": ("a number of seconds above 0", _is_seconds),
    "overrides": ("a table for each tool", _is_tables),
}

_PASSED_ON = ("cwd", "prefix", "timeout_s", "connect_s", "idle_s", "overrides")


class ServerSettings:
    """A server as a settings file describes it.

    Args:
        name: The name of its table.
        table: What is in the table.
        environment: Where `${NAME}` in `env` and `headers` is looked up.

    Raises:
        ConfigError: A key is unknown or of the wrong kind, or it is said of no server where it is.
    """

    def __init__(
        self, name: str, table: Mapping[str, Any], environment: Mapping[str, str]
    ) -> None:
        _check(name, table)
        self.name = name
        self.where: str | Sequence[str] = table.get("url") or (
            table["command"],
            *table.get("args", ()),
        )
        self.trust: Trust = table.get("trust", "none")
        self.options: dict[str, Any] = {
            key: table[key] for key in _PASSED_ON if key in table
        }
        self.options["name"] = name
        self.options["trust"] = self.trust
        for key in ("env", "headers"):
            if key in table:
                self.options[key] = {
                    each: _expand(value, f"{key}.{each} of {name!r}", environment)
                    for each, value in table[key].items()
                }
        if "pins" in table:
            self.options["pins"] = Pins(table["pins"])

    async def connect(self, **options: Any) -> McpToolset:
        """Return its tools, with options that hold over those of the file; see `handrail.mcp.connect`."""
        return await connect(self.where, **{**self.options, **options})

    def tools(self, **options: Any) -> McpToolset:
        """Do what `connect` does, for code that is not async."""
        return tools(self.where, **{**self.options, **options})


def _check(name: str, table: Any) -> None:
    place = f"mcp.servers.{name}"
    if not isinstance(table, Mapping):
        raise ConfigError(f"{place} is {table!r}; write a table")
    for key, value in table.items():
        if key not in _KEYS:
            near = nearest(key, _KEYS)
            advice = (
                f"did you mean {near[0]!r}?"
                if near
                else f"the keys are {', '.join(_KEYS)}"
            )
            raise ConfigError(f"{place} has {key!r}, which no server has; {advice}")
        what, is_one = _KEYS[key]
        if not is_one(value):
            raise ConfigError(f"`{key}` of {place} is {value!r}; write {what}")
    if ("command" in table) == ("url" in table):
        raise ConfigError(
            f"{place} needs either `command`, for a program, or `url`, for an address"
        )
    if "url" in table and not table["url"].startswith(("http://", "https://")):
        raise ConfigError(
            f"`url` of {place} is {table['url']!r}; it begins with http:// or https://"
        )
    if "args" in table and "command" not in table:
        raise ConfigError(f"`args` of {place} are for a `command`")


def _expand(text: str, place: str, environment: Mapping[str, str]) -> str:
    """Put variables of the environment in their places."""

    def look_up(match: re.Match[str]) -> str:
        if match[1] not in environment:
            raise ConfigError(
                f"{place} names the environment variable {match[1]}, which is not set"
            )
        return environment[match[1]]

    return _VARIABLE.sub(look_up, text)


def read_servers(
    table: Mapping[str, Any], environment: Mapping[str, str]
) -> dict[str, ServerSettings]:
    """Return the servers of a settings file by name.

    Args:
        table: The table `mcp`.

    Raises:
        ConfigError: See `ServerSettings`.
    """
    for key in table:
        if key != "servers":
            raise ConfigError(
                f"the table `mcp` has {key!r}; its tables are `mcp.servers.NAME`"
            )
    servers = table.get("servers", {})
    if not isinstance(servers, Mapping):
        raise ConfigError(f"mcp.servers is {servers!r}; write a table for each server")
    return {
        name: ServerSettings(name, described, environment)
        for name, described in servers.items()
    }


def find_server(
    place: str, table: Mapping[str, Any], environment: Mapping[str, str]
) -> ServerSettings | str:
    """Return the server that a command line names: one of the settings by its name, else the text as a target."""
    servers = table.get("servers", {})
    if isinstance(servers, Mapping) and place in servers:
        # only this one: another, whose secret is not set, is not needed
        return ServerSettings(place, servers[place], environment)
    read_servers({key: {} for key in table if key != "servers"}, environment)
    return place


def tools_at(
    place: str, table: Mapping[str, Any], environment: Mapping[str, str]
) -> McpToolset:
    """Return the tools of the server that a command line names.

    Raises:
        ConfigError: The server cannot be used.
    """
    server = find_server(place, table, environment)
    if isinstance(server, str):
        return tools(server)
    return server.tools()
