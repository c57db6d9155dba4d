"""The commands of this package, one module each; see `handrail.plugins`."""

COMMANDS = {
    "gateway": "Put many MCP servers behind one, which checks, asks, records and limits every call.",
    "mcp": "Look at an MCP server: what it lists, what a tool answers, and what goes over the wire.",
    "serve mcp": "Serve tools over the Model Context Protocol.",
}
