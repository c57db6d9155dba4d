"""handrail over the Model Context Protocol: a server of a runtime's tools, a client of others', and a gateway.

The wire is the package `mcp` (`pip install 'handrail[mcp]'`), which is imported when it is asked for.
"""
