"""Calls of tools by HTTP in the revision without sessions, answered by a server that is written by hand."""

import json
from contextlib import asynccontextmanager

import anyio
import httpx2
import pytest
from mcp import types
from mcp.shared.exceptions import MCPError
from mcp.shared.inbound import MCP_PROTOCOL_VERSION_HEADER

from handrail_mcp.wire.posts import PostDispatcher

pytestmark = pytest.mark.anyio

MODERN = {
    "headers": {MCP_PROTOCOL_VERSION_HEADER: "2026-07-28", "mcp-name": "pay"},
}
ANSWER = {"jsonrpc": "2.0", "id": "call-1", "result": {"content": []}}
REFUSAL = {
    "jsonrpc": "2.0",
    "id": "call-1",
    "error": {"code": types.INVALID_PARAMS, "message": "no such tool"},
}
PROGRESS = {
    "jsonrpc": "2.0",
    "method": "notifications/progress",
    "params": {"progressToken": "call-1", "progress": 1, "message": "half"},
}
LOG = {
    "jsonrpc": "2.0",
    "method": "notifications/message",
    "params": {"level": "info", "data": "x"},
}


def as_json(message, status=200):
    return httpx2.Response(
        status, text=json.dumps(message), headers={"content-type": "application/json"}
    )


def as_events(*messages):
    text = "".join(f"event: message\ndata: {json.dumps(each)}\n\n" for each in messages)
    return httpx2.Response(
        200, text=": ping\n\n" + text, headers={"content-type": "text/event-stream"}
    )


class Far:
    """A server that gives one answer, and remembers what it was asked and what was looked at."""

    def __init__(self, answer):
        self.answer = answer
        self.requests = []
        self.looked_at = []

    def take(self, request):
        self.requests.append(request)
        return self.answer

    @asynccontextmanager
    async def reached(self):
        """Yield a dispatcher that sends to it."""
        out, reading = anyio.create_memory_object_stream(1)
        writing, sent = anyio.create_memory_object_stream(1)
        transport = httpx2.MockTransport(self.take)
        async with (
            out, reading, writing, sent, httpx2.AsyncClient(transport=transport) as client,
        ):  # fmt: skip
            yield PostDispatcher(
                reading,
                writing,
                client=client,
                url="http://127.0.0.1/mcp",
                most_bytes=1000,
                look_at_sent=self.looked_at.append,
                look_at_received=self.looked_at.append,
            )

    async def call(self, **opts):
        async with self.reached() as dispatcher:
            return await dispatcher.send_raw_request(
                "tools/call", {"name": "pay"}, {**MODERN, **opts}
            )


async def test_a_call_is_one_request_with_the_headers_of_its_revision():
    far = Far(as_json(ANSWER))
    assert await far.call() == {"content": []}
    (request,) = far.requests
    assert json.loads(request.content) == {
        "jsonrpc": "2.0",
        "id": "call-1",
        "method": "tools/call",
        "params": {"name": "pay"},
    }
    assert request.headers["mcp-protocol-version"] == "2026-07-28"
    assert request.headers["mcp-name"] == "pay"
    assert request.headers["accept"] == "application/json, text/event-stream"
    assert len(far.looked_at) == 2


async def test_progress_is_told_before_the_answer_of_a_stream():
    heard = []

    async def hear(*progress):
        heard.append(progress)

    far = Far(as_events(PROGRESS, LOG, ANSWER))
    assert await far.call(on_progress=hear) == {"content": []}
    assert heard == [(1.0, None, "half")]
    sent = json.loads(far.requests[0].content)
    assert sent["params"]["_meta"] == {"progressToken": "call-1"}
    assert len(far.looked_at) == 4


@pytest.mark.parametrize("answer", [as_json(REFUSAL, 400), as_json(REFUSAL), as_events(REFUSAL)])  # fmt: skip
async def test_an_error_of_the_server_is_its_own(answer):
    with pytest.raises(MCPError, match="no such tool") as refused:
        await Far(answer).call()
    assert refused.value.error.code == types.INVALID_PARAMS


@pytest.mark.parametrize(
    "answer",
    [
        as_json({**ANSWER, "id": "call-7"}),
        as_json({"jsonrpc": "2.0", "id": "call-1"}),
        as_json(PROGRESS),
        as_events(PROGRESS),
        as_events({**ANSWER, "id": 1}),
        as_events({**ANSWER, "result": {"content": [], "x": "y" * 2000}}),
    ],
    ids=["another id", "no answer", "a notice", "ends", "another id streamed", "long"],
)
async def test_an_answer_that_cannot_be_used_says_nothing_of_what_was_done(answer):
    with pytest.raises(MCPError) as broken:
        await Far(answer).call()
    assert broken.value.error.code == types.CONNECTION_CLOSED


@pytest.mark.parametrize(
    ("answer", "code"),
    [
        (httpx2.Response(202), types.INVALID_REQUEST),
        (
            httpx2.Response(302, headers={"location": "http://far.example"}),
            types.INVALID_REQUEST,
        ),
        (httpx2.Response(404), types.METHOD_NOT_FOUND),
        (httpx2.Response(500), types.INTERNAL_ERROR),
        (httpx2.Response(200, text="hello"), types.INVALID_REQUEST),
    ],
)
async def test_a_status_without_an_answer_is_an_error(answer, code):
    with pytest.raises(MCPError) as refused:
        await Far(answer).call()
    assert refused.value.error.code == code
