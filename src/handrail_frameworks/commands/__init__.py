"""The commands of this package, one module each; see `handrail.plugins`."""

COMMANDS = {
    "bench": "Play the same scenarios on the agent frameworks that are installed, plain and with handrail.",
}
