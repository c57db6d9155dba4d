"""The MCP server that a command line names: one of handrail.toml by its name, a command line or an address.

[mcp]
pins = "mcp-pins.json"          # what somebody has agreed to, for all of them

[mcp.servers.shop]              # see `server_settings`
command = "npx"
args = ["-y", "shop-server"]
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from handrail.errors import ConfigError
from handrail.parsing.names import advise
from handrail_mcp.pins import Pins
from handrail_mcp.server_settings import ServerSettings, read_server
from handrail_mcp.targets import make_target
from handrail_mcp.toolset import McpToolset, connect
from handrail_mcp.toolset import tools as connect_blocking

_KEYS = ("pins", "servers")


class ChosenServer(Struct, frozen=True):
    """A server that was named, and what the settings say of it.

    Attributes:
        place: As it was named.
        settings: Its table; None for a command line or an address.
        pins: The file of pins of the settings; empty without one.
    """

    place: str
    settings: ServerSettings | None = None
    pins: str = ""

    async def connect(self, **options: Any) -> McpToolset:
        """Return its tools; options hold over the settings, see `handrail_mcp.connect`.

        Raises:
            ConfigError: The server cannot be used.
        """
        options = self._options(options)
        return await connect(options.pop("target"), **options)

    def tools(self) -> McpToolset:
        """Do what `connect` does, for code that is not async."""
        options = self._options({})
        return connect_blocking(options.pop("target"), **options)

    def _options(self, given: Mapping[str, Any]) -> dict[str, Any]:
        settings = self.settings
        if settings is None:
            return {"target": self.place, **given}
        env = {**settings.env, **given.get("env", {})}
        headers = {**settings.headers, **given.get("headers", {})}
        rest = {key: each for key, each in given.items() if key not in _OF_TARGET}
        options: dict[str, Any] = {
            "target": replace(settings, env=env, headers=headers).target(),
            "name": settings.name,
            **settings.tool_options(),
            "connect_s": settings.connect_s,
            "idle_s": settings.idle_s,
            **rest,
        }
        if self.pins:
            options["pins"] = Pins(self.pins)
        return options


_OF_TARGET = ("env", "headers")


def choose_server(place: str, table: Mapping[str, Any]) -> ChosenServer:
    """Return the server that a command line names.

    Args:
        place: A name in the settings, a command line or an address.
        table: The table `mcp` of the settings.

    Raises:
        ConfigError: Something in the table is not as it is written, or `place` is empty.
    """
    for key in table:
        if key not in _KEYS:
            hint = advise(key, _KEYS, "it has pins and servers")
            raise ConfigError(f"the table `mcp` has no key {key!r}; {hint}")
    pins = table.get("pins", "")
    servers = table.get("servers", {})
    if not isinstance(pins, str):
        raise ConfigError(f"`pins` of mcp is {pins!r}; write the name of a file")
    if not isinstance(servers, Mapping):
        raise ConfigError(f"mcp.servers is {servers!r}; write a table for each server")
    if place in servers:
        return ChosenServer(place, read_server(place, servers[place]), pins)
    make_target(place)
    return ChosenServer(place)
