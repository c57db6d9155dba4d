"""The server that the official conformance suite is run against: its tools are handrail's.

The names, texts and schemas are those that the suite asks for.

    python -m tests.handrail_mcp.conformance.server PORT
"""

import asyncio
import base64
import json
import sys
from typing import Any

from mcp import types
from mcp.server.mcpserver import Context, RequestStateSecurity
from mcp.server.mcpserver.prompts.base import Prompt, UserMessage
from mcp.server.streamable_http import EventCallback, EventMessage, EventStore
from mcp.shared.exceptions import MCPError

import handrail as hr
from handrail_mcp import Leave, McpRequest, server

PNG = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mP8z8DwHwAFBQIAX8jx0gAAAABJRU5ErkJggg=="
)
WAV = base64.b64decode("UklGRiYAAABXQVZFZm10IBAAAAABAAEAQB8AAAB9AAACABAAZGF0YQIAAAA=")

read = hr.tool(effect="read", limits=hr.Limits(poll=True))

# ---------------------------------------------------------------------- content


@read
async def test_simple_text() -> str:
    """Tests simple text content response"""
    return "This is a simple text response for testing."


@read
async def test_image_content() -> object:
    """Tests image content response"""
    return hr.Media("image/png", PNG)


@read
async def test_audio_content() -> object:
    """Tests audio content response"""
    return hr.Media("audio/wav", WAV)


@read
async def test_embedded_resource() -> object:
    """Tests embedded resource content response"""
    text = b"This is an embedded resource content."
    return hr.Media("text/plain", text, url="test://embedded-resource")


@read
async def test_multiple_content_types() -> object:
    """Tests response with multiple content types (text, image, resource)"""
    document = b'{"test": "data", "value": 123}'
    return [
        "Multiple content types test:",
        hr.Media("image/png", PNG),
        hr.Media("application/json", document, url="test://mixed-content-resource"),
    ]


@read
async def test_error_handling() -> str:
    """Tests error response handling"""
    raise RuntimeError("This tool intentionally returns an error for testing")


# ---------------------------------------------------------------------- while the call runs


@read
async def test_tool_with_logging(context: hr.Context[McpRequest]) -> str:
    """Tests tool that emits log messages during execution"""
    for text in (
        "Tool execution started",
        "Tool processing data",
        "Tool execution completed",
    ):
        context.log("info", text)
        await asyncio.sleep(0.05)
    return "Tool with logging executed successfully"


@read
async def test_tool_with_progress(context: hr.Context[McpRequest]) -> str:
    """Tests tool that reports progress notifications"""
    for percent in (0, 50, 100):
        context.progress(percent, 100, f"Completed step {percent} of 100")
        await asyncio.sleep(0.05)
    meta = context.deps.context.request_context.meta
    return str(meta.get("progress_token") if meta else 0)


@read
async def test_sampling(prompt: str, context: hr.Context[McpRequest]) -> str:
    """Tests server-initiated sampling (LLM completion request)"""
    asked = types.SamplingMessage(
        role="user", content=types.TextContent(type="text", text=prompt)
    )
    request = context.deps.context
    try:
        answer = await request.session.create_message(
            messages=[asked], max_tokens=100, related_request_id=request.request_id
        )
    except MCPError as error:
        return f"Sampling not supported or error: {error}"
    return f"LLM response: {answer.content.text if answer.content.type == 'text' else 'No response'}"


async def elicit(
    context: hr.Context[McpRequest], message: str, schema: dict[str, Any]
) -> str:
    request = context.deps.context
    try:
        answer = await request.session.elicit_form(
            message, schema, related_request_id=request.request_id
        )
    except MCPError as error:
        return f"Elicitation not supported or error: {error}"
    return f"action={answer.action}, content={json.dumps(answer.content or {})}"


def an_object(required: list[str], **properties: Any) -> dict[str, Any]:
    return {"type": "object", "properties": properties, "required": required}


@read
async def test_elicitation(message: str, context: hr.Context[McpRequest]) -> str:
    """Tests server-initiated elicitation (user input request)"""
    schema = an_object(
        ["response"], response={"type": "string", "description": "User's response"}
    )
    return "User response: " + await elicit(context, message, schema)


@read
async def test_elicitation_sep1034_defaults(context: hr.Context[McpRequest]) -> str:
    """Tests elicitation with default values for all primitive types (SEP-1034)"""
    statuses = ["active", "inactive", "pending"]
    schema = an_object(
        [],
        name={"type": "string", "default": "John Doe"},
        age={"type": "integer", "default": 30},
        score={"type": "number", "default": 95.5},
        status={"type": "string", "default": "active", "enum": statuses},
        verified={"type": "boolean", "default": True},
    )
    answer = await elicit(context, "Please provide user information", schema)
    return "Elicitation result: " + answer


@read
async def test_elicitation_sep1330_enums(context: hr.Context[McpRequest]) -> str:
    """Tests elicitation with enum schema variations per SEP-1330"""
    priorities = [
        {"const": "low", "title": "Low Priority"},
        {"const": "high", "title": "High Priority"},
    ]
    kinds = [
        {"const": "feature", "title": "New Feature"},
        {"const": "bug", "title": "Bug Fix"},
    ]
    rights = ["read", "write", "execute"]
    schema = an_object(
        [],
        untitledSingle={"type": "string", "enum": ["active", "inactive", "pending"]},
        titledSingle={"type": "string", "oneOf": priorities},
        untitledMulti={"type": "array", "items": {"type": "string", "enum": rights}},
        titledMulti={"type": "array", "items": {"anyOf": kinds}},
        legacyEnum={
            "type": "string",
            "enum": ["small", "medium", "large"],
            "enumNames": ["Small Size", "Medium Size", "Large Size"],
        },
    )
    answer = await elicit(
        context, "Please select values using different enum schema types", schema
    )
    return "Elicitation completed: " + answer


@read
async def test_reconnection(context: hr.Context[McpRequest]) -> str:
    """Tests SSE polling by closing stream mid-call (SEP-1699)"""
    request = context.deps.context
    context.log("info", "Before disconnect")
    await asyncio.sleep(0.05)
    await request.close_sse_stream()
    await asyncio.sleep(0.2)
    context.log("info", "After reconnect")
    return "Reconnection test completed"


# ---------------------------------------------------------------------- headers, schemas, capabilities


async def echo_region(region: str = "<none>") -> str:
    return f"region={region}"


test_x_mcp_header = hr.FunctionTool(
    echo_region,
    name="test_x_mcp_header",
    description="Tests SEP-2243 Mcp-Param-* server-side validation.",
    effect="read",
    limits=hr.Limits(poll=True),
    parameters=an_object(
        [],
        region={"type": "string", "default": "<none>", "x-mcp-header": "Region"},
    ),
)


@read
async def test_missing_capability(context: hr.Context[McpRequest]) -> str:
    """Tests that MISSING_REQUIRED_CLIENT_CAPABILITY surfaces as a top-level JSON-RPC error."""
    declared = context.deps.context.client_capabilities
    if declared is None or declared.sampling is None:
        raise Leave(
            MCPError(
                types.MISSING_REQUIRED_CLIENT_CAPABILITY,
                "This tool requires the client 'sampling' capability",
                {"requiredCapabilities": {"sampling": {}}},
            )
        )
    return "Client declared sampling capability; proceeding."


CONTACT = {
    "$schema": "https://json-schema.org/draft/2020-12/schema",
    "type": "object",
    "$defs": {
        "address": {
            "$anchor": "addressDef",
            "type": "object",
            "properties": {"street": {"type": "string"}, "city": {"type": "string"}},
        }
    },
    "properties": {
        "name": {"type": "string"},
        "address": {"$ref": "#/$defs/address"},
        "contactMethod": {"type": "string", "enum": ["phone", "email"]},
        "phone": {"type": "string"},
        "email": {"type": "string"},
    },
    "allOf": [{"anyOf": [{"required": ["phone"]}, {"required": ["email"]}]}],
    "if": {
        "properties": {"contactMethod": {"const": "phone"}},
        "required": ["contactMethod"],
    },
    "then": {"required": ["phone"]},
    "else": {"required": ["email"]},
    "additionalProperties": False,
}


async def name_itself(**_: Any) -> str:
    return "json_schema_2020_12_tool"


json_schema_2020_12_tool = hr.FunctionTool(
    name_itself,
    name="json_schema_2020_12_tool",
    description="Tests JSON Schema 2020-12 keyword preservation in tools/list.",
    effect="read",
    limits=hr.Limits(poll=True),
    parameters=CONTACT,
)

# ---------------------------------------------------------------------- what is asked of the client first

A_NAME = an_object(["name"], name={"type": "string"})
AN_OK = an_object(["ok"], ok={"type": "boolean"})


def a_form(
    message: str = "What is your name?", schema: dict[str, Any] = A_NAME
) -> types.ElicitRequest:
    return types.ElicitRequest(
        params=types.ElicitRequestFormParams(message=message, requested_schema=schema)
    )


def a_sample(text: str) -> types.CreateMessageRequest:
    message = types.SamplingMessage(
        role="user", content=types.TextContent(type="text", text=text)
    )
    return types.CreateMessageRequest(
        params=types.CreateMessageRequestParams(messages=[message], max_tokens=100)
    )


def need(requests: dict[str, Any], state: str | None = None) -> Leave:
    return Leave(
        types.InputRequiredResult(input_requests=requests, request_state=state)
    )


def answers_of(context: hr.Context[McpRequest]) -> dict[str, Any]:
    return dict(context.deps.context.input_responses or {})


def name_in(answer: Any) -> str:
    content = answer.content if isinstance(answer, types.ElicitResult) else None
    return str(content.get("name", "stranger")) if content else "?"


@read
async def test_input_required_result_elicitation(
    context: hr.Context[McpRequest],
) -> str:
    """Tests InputRequiredResult with a single elicitation request"""
    answers = answers_of(context)
    if "user_name" in answers:
        return f"Hello, {name_in(answers['user_name'])}!"
    raise need({"user_name": a_form()})


@read
async def test_input_required_result_sampling(context: hr.Context[McpRequest]) -> str:
    """Tests InputRequiredResult with a single sampling request"""
    answer = answers_of(context).get("capital_question")
    if isinstance(answer, types.CreateMessageResult) and answer.content.type == "text":
        return f"Model said: {answer.content.text}"
    raise need({"capital_question": a_sample("What is the capital of France?")})


@read
async def test_input_required_result_list_roots(context: hr.Context[McpRequest]) -> str:
    """Tests InputRequiredResult with a single roots/list request"""
    answer = answers_of(context).get("client_roots")
    if isinstance(answer, types.ListRootsResult):
        return f"Client exposed {len(answer.roots)} root(s)."
    raise need({"client_roots": types.ListRootsRequest()})


@read
async def test_input_required_result_request_state(
    context: hr.Context[McpRequest],
) -> str:
    """Tests requestState round-tripping in the InputRequiredResult flow"""
    state = context.deps.context.request_state
    if "confirm" in answers_of(context) and state == "request-state-nonce":
        return "state-ok: confirmation received"
    raise need({"confirm": a_form("Please confirm", AN_OK)}, "request-state-nonce")


@read
async def test_input_required_result_multiple_inputs(
    context: hr.Context[McpRequest],
) -> str:
    """Tests InputRequiredResult carrying elicitation, sampling and roots requests together"""
    requests = {
        "user_name": a_form(),
        "greeting": a_sample("Generate a greeting"),
        "client_roots": types.ListRootsRequest(),
    }
    if requests.keys() <= answers_of(context).keys():
        return "All inputs received."
    raise need(requests, "multiple-inputs")


@read
async def test_input_required_result_multi_round(
    context: hr.Context[McpRequest],
) -> str:
    """Tests a three-round InputRequiredResult flow with evolving requestState"""
    before = json.loads(context.deps.context.request_state or '{"round": 0}')
    answers = answers_of(context)
    if before["round"] == 1 and "step1" in answers:
        color = an_object(["color"], color={"type": "string"})
        state = {"round": 2, "name": name_in(answers["step1"])}
        form = a_form("Step 2: What is your favorite color?", color)
        raise need({"step2": form}, json.dumps(state))
    if before["round"] == 2 and "step2" in answers:
        return f"{before.get('name')} likes {(answers['step2'].content or {}).get('color')}."
    form = a_form("Step 1: What is your name?")
    raise need({"step1": form}, json.dumps({"round": 1}))


@read
async def test_input_required_result_tampered_state(
    context: hr.Context[McpRequest],
) -> str:
    """Tests that the server rejects a tampered requestState echo."""
    state = context.deps.context.request_state
    if state is None:
        raise need({"confirm": a_form("Please confirm", AN_OK)}, "round-1")
    return f"state-ok: {state}"


@read
async def test_input_required_result_capabilities(
    context: hr.Context[McpRequest],
) -> str:
    """Tests that inputRequests only include methods the client declared support for"""
    declared = context.deps.context.client_capabilities
    requests: dict[str, Any] = {}
    if declared is None or declared.sampling is not None:
        requests["sample"] = a_sample("Say hello")
    if declared is None or declared.elicitation is not None:
        requests["ask"] = a_form()
    raise need(requests, "capability-gated")


# ---------------------------------------------------------------------- what changes


async def say_dynamic() -> str:
    return "dynamic"


test_dynamic_tool = hr.FunctionTool(
    say_dynamic, name="test_dynamic_tool", description="Dynamic.", effect="read"
)


@read
async def test_trigger_tool_change(context: hr.Context[McpRequest]) -> str:
    """Mutates the tool list and announces it to subscriptions/listen streams (SEP-2575)"""
    SERVER.runtime.tools.add(test_dynamic_tool)
    SERVER.runtime.tools.remove("test_dynamic_tool")
    await context.deps.context.notify_tools_changed()
    return "tool list changed"


@read
async def test_trigger_prompt_change(context: hr.Context[McpRequest]) -> str:
    """Mutates the prompt list and announces it to subscriptions/listen streams (SEP-2575)"""
    SERVER.add_prompt(
        Prompt.from_function(
            lambda: "dynamic", name="test_dynamic_prompt", description="dynamic"
        )
    )
    SERVER.remove_prompt("test_dynamic_prompt")
    await context.deps.context.notify_prompts_changed()
    return "prompt list changed"


# ---------------------------------------------------------------------- the server

TOOLS = [each for each in list(globals().values()) if isinstance(each, hr.BaseTool)]
TOOLS.remove(test_dynamic_tool)
SERVER = server(
    hr.Runtime(TOOLS),
    "handrail-conformance",
    request_state_security=RequestStateSecurity(keys=[b"of the suite alone" * 2]),
)


@SERVER.resource("test://static-text")
def static_text() -> str:
    return "This is the content of the static text resource."


@SERVER.resource("test://static-binary")
def static_binary() -> bytes:
    return PNG


@SERVER.resource("test://template/{id}/data")
def template(id: str) -> str:
    return json.dumps({"id": id, "templateTest": True, "data": f"Data for ID: {id}"})


@SERVER.resource("test://watched-resource")
def watched() -> str:
    return "Watched resource content"


def say(content: types.ContentBlock | str) -> UserMessage:
    if isinstance(content, str):
        content = types.TextContent(type="text", text=content)
    return UserMessage(role="user", content=content)


@SERVER.prompt()
def test_simple_prompt() -> list[UserMessage]:
    """A simple prompt without arguments"""
    return [say("This is a simple prompt for testing.")]


@SERVER.prompt()
def test_prompt_with_arguments(arg1: str, arg2: str) -> list[UserMessage]:
    """A prompt with required arguments"""
    return [say(f"Prompt with arguments: arg1='{arg1}', arg2='{arg2}'")]


@SERVER.prompt()
def test_prompt_with_embedded_resource(resourceUri: str) -> list[UserMessage]:
    """A prompt that includes an embedded resource"""
    resource = types.TextResourceContents(
        uri=resourceUri,
        mime_type="text/plain",
        text="Embedded resource content for testing.",
    )
    return [
        say(types.EmbeddedResource(type="resource", resource=resource)),
        say("Please process the embedded resource above."),
    ]


@SERVER.prompt()
def test_prompt_with_image() -> list[UserMessage]:
    """A prompt that includes image content"""
    data = base64.b64encode(PNG).decode()
    return [
        say(types.ImageContent(type="image", data=data, mime_type="image/png")),
        say("Please analyze the image above."),
    ]


@SERVER.prompt()
async def test_input_required_result_prompt(
    ctx: Context,
) -> list[UserMessage] | types.InputRequiredResult:
    """Tests InputRequiredResult from prompts/get (SEP-2322 non-tool request)"""
    answers = ctx.input_responses or {}
    if "user_context" in answers:
        said = (answers["user_context"].content or {}).get("context", "?")
        return [say(f"Use the following context: {said}")]
    form = a_form(
        "What context should the prompt use?",
        an_object(["context"], context={"type": "string"}),
    )
    return types.InputRequiredResult(input_requests={"user_context": form})


@SERVER.completion()
async def complete(_ref: Any, _argument: Any, _context: Any) -> types.Completion:
    return types.Completion(values=[], total=0, has_more=False)


async def agree(_ctx: Any, _params: Any) -> types.EmptyResult:
    return types.EmptyResult()


for method, params in (
    ("resources/subscribe", types.SubscribeRequestParams),
    ("resources/unsubscribe", types.UnsubscribeRequestParams),
):
    SERVER._lowlevel_server.add_request_handler(method, params, agree)


class Events(EventStore):
    """The events of streams that broke, in memory."""

    def __init__(self) -> None:
        self._events: list[tuple[str, str, Any]] = []

    async def store_event(self, stream_id: str, message: Any) -> str:
        event_id = str(len(self._events) + 1)
        self._events.append((stream_id, event_id, message))
        return event_id

    async def replay_events_after(
        self, last_event_id: str, send_callback: EventCallback
    ) -> str | None:
        stream = next((s for s, e, _ in self._events if e == last_event_id), None)
        for stream_id, event_id, message in self._events:
            is_later = stream_id == stream and int(event_id) > int(last_event_id)
            if is_later and message is not None:
                await send_callback(EventMessage(message, event_id))
        return stream


if __name__ == "__main__":
    SERVER.run(
        "streamable-http",
        port=int(sys.argv[1]),
        event_store=Events(),
        retry_interval=100,
    )
