"""Without `async`, and with a loop of one's own: messages in, replies out."""

import handrail as hr


@hr.tool(effect="read", timeout_s=5)
def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


# What a provider's client gave: a message of OpenAI Chat Completions, as a dictionary or an SDK's object.
MESSAGE = {
    "role": "assistant",
    "content": None,
    "tool_calls": [
        {"id": "c1", "type": "function", "function": {"name": "add", "arguments": '{"a": 1, "b": 2}'}},
        {"id": "c2", "type": "function", "function": {"name": "sum", "arguments": "{}"}},
    ],
}

with hr.SyncRuntime([add]) as runtime:
    definitions = runtime.tools.definitions()  # for the `tools` of the request
    print(definitions[0]["function"]["name"], "is offered")
    for reply in runtime.handle(MESSAGE, run="conversation-1"):  # one for each call, in order
        print(reply)
