"""What the commands of the gateway share."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import click

import handrail_mcp as protocol
from handrail import _lazy

if TYPE_CHECKING:
    from handrail_mcp.gateways import settings
    from handrail_mcp.gateways.gateway import Gateway
else:
    # it takes the extra `mcp`, and `--help` does not
    settings = _lazy.module("handrail_mcp.gateways.settings")

MOST_NAME_CHARS = 60
"""A server may give a tool a name of any length, and no table is to be as wide."""

MOST_SENTENCE_CHARS = 180


def shorten(text: str, most_chars: int = MOST_NAME_CHARS) -> str:
    """Return a text as a terminal shows it: `--json` and a diff have the whole."""
    return text if len(text) <= most_chars else f"{text[:most_chars]}…"


def settings_of(context: click.Context) -> settings.GatewaySettings:
    """Return the settings in the file that the command line names."""
    return settings.read_gateway(context.obj)


def start_gateway(context: click.Context) -> Gateway:
    """Return a gateway whose servers were asked for their tools, and are closed again."""
    gateway = protocol.gateway(settings_of(context))

    async def look() -> None:
        try:
            await gateway.start()
        finally:
            await gateway.aclose()

    asyncio.run(look())
    return gateway
