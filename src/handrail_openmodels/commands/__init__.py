"""The commands of this package, one module each; see `handrail.plugins`."""

COMMANDS = {
    "render": "Render a conversation as a model gets it: the request body of a wire, or the text of a prompt.",
    "parse": "Parse what a model wrote: its text, its reasoning and its calls.",
    "runs export": "Print runs as lines of JSON: as training data, or their journals.",
}
