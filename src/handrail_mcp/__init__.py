"""handrail over the Model Context Protocol: a server of a runtime's tools, a client of others', and a gateway.

    hr.mcp.server(runtime, "shop").run("stdio")
    tools = await hr.mcp.connect("npx -y @modelcontextprotocol/server-everything")

The SDK is the extra `mcp`, which is imported when one of these names is first used.
"""

from collections.abc import Mapping
from importlib import import_module
from typing import TYPE_CHECKING, Any

from handrail.errors import ConfigError, describe_install

if TYPE_CHECKING:
    from handrail_mcp.connection import McpConnection as McpConnection
    from handrail_mcp.gateways.gateway import Gateway as Gateway
    from handrail_mcp.gateways.gateway import gateway as gateway
    from handrail_mcp.link import Callbacks as Callbacks
    from handrail_mcp.notices import Leave as Leave
    from handrail_mcp.pins import Pin as Pin
    from handrail_mcp.pins import Pins as Pins
    from handrail_mcp.serving import McpRequest as McpRequest
    from handrail_mcp.serving import ToolServer as ToolServer
    from handrail_mcp.serving import server as server
    from handrail_mcp.tokens import Tokens as Tokens
    from handrail_mcp.toolset import McpToolset as McpToolset
    from handrail_mcp.toolset import connect as connect
    from handrail_mcp.toolset import tools as tools

PARTS: Mapping[str, Mapping[str, str]] = {
    "names": {"mcp": "handrail_mcp"},
    "places": {"mcp": "handrail_mcp.commands.places:tools_at"},
    "pins": {"mcp": "handrail_mcp.pins:Pins"},
    "stories": {"mcp": "handrail_mcp.demo.mcp_story:play"},
}
"""What this package adds to `handrail`; see `handrail.plugins`."""

_HOME_OF = {
    name: home
    for home, names in {
        "connection": "McpConnection",
        "gateways.gateway": "Gateway gateway",
        "link": "Callbacks",
        "pins": "Pin Pins",
        "notices": "Leave",
        "serving": "McpRequest ToolServer server",
        "tokens": "Tokens",
        "toolset": "McpToolset connect tools",
    }.items()
    for name in names.split()
}

_WIRE = ("mcp", "mcp_types", "tomli_w")
"""The packages of the extra. A folder `mcp` beside a user's file can be found in place of the first."""

__all__ = [*_HOME_OF]  # every entry is a string


def __getattr__(name: str) -> Any:
    if home := _HOME_OF.get(name):
        try:
            module = import_module(f"handrail_mcp.{home}")
        except ImportError as error:
            if (error.name or "").partition(".")[0] not in _WIRE:
                raise
            raise ConfigError(
                f"the Model Context Protocol needs the extra `mcp`: {describe_install('mcp')}"
            ) from error
        # from now on without a search; a module of that name may be here already
        globals()[name] = getattr(module, name)
        return globals()[name]
    raise AttributeError(f"module 'handrail_mcp' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
