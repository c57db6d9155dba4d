"""A gateway over many MCP servers: its settings, its connections, what it passes on, and the rules it lives by."""
