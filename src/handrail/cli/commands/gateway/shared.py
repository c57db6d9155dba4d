"""What the commands of the gateway share."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import click

from handrail import _lazy
from handrail.mcp.gateways.settings import GatewaySettings, read_gateway

if TYPE_CHECKING:
    from handrail.mcp.gateways import gateway as gateways
    from handrail.mcp.gateways.gateway import Gateway
else:
    # the package `mcp` takes a second to import
    gateways = _lazy.module("handrail.mcp.gateways.gateway")


MOST_NAME_CHARS = 60
"""A server may give a tool a name of any length, and no table is to be as wide."""


def shorten_name(name: str) -> str:
    """Return a tool's name at its server as a table shows it; `--json` and a diff have the whole."""
    return name if len(name) <= MOST_NAME_CHARS else f"{name[:MOST_NAME_CHARS]}…"


def settings_of(context: click.Context) -> GatewaySettings:
    """Return the settings in the file that the command line names."""
    return read_gateway(context.obj)


def start_gateway(context: click.Context) -> Gateway:
    """Return a gateway whose servers were asked for their tools, and are closed again."""
    gateway = gateways.gateway(settings_of(context))

    async def look() -> None:
        try:
            await gateway.start()
        finally:
            await gateway.aclose()

    asyncio.run(look())
    return gateway
