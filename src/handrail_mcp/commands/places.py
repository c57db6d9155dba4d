"""The tools of an MCP server as a command names it: `--tools mcp:SERVER`."""

from __future__ import annotations

import sys

from handrail.cli import settings
from handrail.invisible import printable
from handrail.tools.toolset import Toolset
from handrail_mcp.servers import choose_server


def tools_at(server: str) -> Toolset:
    """Return the tools of a server, and say which of them cannot be used."""
    tools = choose_server(server, settings.table("mcp")).tools()
    for problem in tools.problems:
        print(f"warning: {printable(problem)}", file=sys.stderr)
    return tools
