"""The commands of this package, one module each; see `handrail.plugins`."""

COMMANDS = {
    "tools from-openapi": "Show the operations of an OpenAPI 3 document as tools, and which of them cannot be used.",
}
