"""What `handrail demo --mcp` shows."""
