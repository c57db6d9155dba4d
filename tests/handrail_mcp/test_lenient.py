"""Results and messages of servers that do not keep to the protocol: what can be read of them is read."""

import json

import pytest
from mcp import types
from mcp.shared.message import SessionMessage
from mcp.types import methods

from handrail_mcp.transports.lenient import mend_result
from handrail_mcp.transports.messages import mend_answer, read_from_server

REVISIONS = ["2025-11-25", "2026-07-28"]
SCHEMA = {"type": "object"}
TOOL = {"name": "act", "inputSchema": SCHEMA}


def texts(*texts):
    return [{"type": "text", "text": text} for text in texts]


@pytest.mark.parametrize("version", REVISIONS)
@pytest.mark.parametrize(
    ("result", "content"),
    [
        ({"structuredContent": {"id": 7}}, []),
        ({"content": "did 7"}, texts("did 7")),
        ({"content": ["did 7"]}, texts("did 7")),
        ({"content": {"type": "text", "text": "did 7"}}, texts("did 7")),
        ({"content": [{"type": "text", "text": "7", "annotations": {"audience": ["x"]}}]}, texts("7")),
        ({"content": [*texts("7"), {"type": "text", "text": None}]}, texts("7", "[unreadable content: text]")),
        ({"content": [{"type": "hologram"}]}, texts("[unsupported content: hologram]")),
        ({"content": [5]}, texts("[unsupported content: of no type]")),
        ({"content": texts("7"), "_meta": None}, texts("7")),
        (
            {"content": [{"type": "image", "data": "iVBORw0KGgo="}]},
            [{"type": "image", "data": "iVBORw0KGgo=", "mimeType": "application/octet-stream"}],
        ),
    ],
)  # fmt: skip
def test_of_an_odd_result_of_a_call_the_content_is_read(version, result, content):
    result = demanded(version, **copied(result))
    assert mend_result("s", "tools/call", version, result) == []
    assert result["content"] == content
    methods.parse_server_result("tools/call", version, result)


def demanded(version, **result):
    if version == "2025-11-25":
        return result
    return {"resultType": "complete", "ttlMs": 0, "cacheScope": "private", **result}


@pytest.mark.parametrize(
    "result", [{}, {"contents": "?"}, {"content": None}, {"content": [], "isError": "?"}]
)  # fmt: skip
def test_a_result_that_does_not_say_how_a_call_ended_is_not_made_to(result):
    mended = dict(result)
    mend_result("s", "tools/call", "2025-11-25", mended)
    assert mended == result


def test_structured_content_that_is_no_object_is_a_text_before_2026():
    result = {"content": [], "structuredContent": [7]}
    mend_result("s", "tools/call", "2025-11-25", result)
    assert result == {"content": texts("[7]")}


@pytest.mark.parametrize("version", REVISIONS)
@pytest.mark.parametrize(
    ("odd", "kept", "sentence"),
    [
        ({**TOOL, "title": 5}, TOOL, "is used without its `title`, which cannot be read"),
        ({"name": "act", "inputSchema": None}, None, "is left out: its `inputSchema` is missing, or cannot be read"),
        ({"name": "act"}, None, "is left out: its `inputSchema` is missing, or cannot be read"),
        ({**TOOL, "name": 5}, None, "is left out: its `name` is missing, or cannot be read"),
        ("act", None, "is left out: it is no object"),
        ({"name": "act", "inputSchema": {}}, TOOL, None),
    ],
)  # fmt: skip
def test_an_odd_tool_costs_itself_or_a_member_and_no_other_tool(
    version, odd, kept, sentence
):
    result = copied(demanded(version, tools=[TOOL, odd], nextCursor="more"))
    faults = mend_result("s", "tools/list", version, result)
    assert result["tools"] == ([TOOL, kept] if kept else [TOOL])
    assert result["nextCursor"] == "more"
    assert [fault.partition(" of 's' ")[2] for fault in faults] == (
        [sentence] if sentence else []
    )


def copied(value):
    return json.loads(json.dumps(value))


@pytest.mark.parametrize(
    ("method", "name", "good"),
    [
        ("prompts/list", "prompts", {"name": "a"}),
        ("resources/list", "resources", {"name": "a", "uri": "x://a"}),
        ("resources/templates/list", "resourceTemplates", {"name": "a", "uriTemplate": "x://{a}"}),
    ],
)  # fmt: skip
def test_an_odd_entry_of_any_list_costs_itself_alone(method, name, good):
    result = {name: [good, {"title": "b"}], "nextCursor": 5}
    assert mend_result("s", method, "2025-11-25", result)
    assert result == {name: [good]}


def test_a_server_that_says_little_of_itself_can_be_used():
    result = {"protocolVersion": "2025-11-25", "capabilities": None}
    mend_result("s", "initialize", "", result)
    types.InitializeResult.model_validate(result, by_name=False)


# ---------------------------------------------------------------------- messages

RESULT = {"jsonrpc": "2.0", "id": 1, "result": {"x": 7}}


@pytest.mark.parametrize(
    ("error", "code", "message"),
    [
        ("disk 7 is full", -32603, "disk 7 is full"),
        ({"code": "E1", "message": "disk 7"}, -32603, "E1: disk 7"),
        ({"code": 5, "data": "disk 7"}, 5, '{"code": 5, "data": "disk 7"}'),
        ({"code": -32000, "message": {"de": "voll"}}, -32000, '{"de": "voll"}'),
        (["full"], -32603, '["full"]'),
    ],
)
def test_an_error_of_any_form_is_the_error_of_its_request(error, code, message):
    line = json.dumps({"jsonrpc": "2.0", "id": 1, "error": error}).encode()
    read = read_from_server(line).message
    assert (read.id, read.error.code, read.error.message) == (1, code, message)
    posted = types.JSONRPCError.model_validate_json(mend_answer(line, 1))
    assert posted.error == read.error


@pytest.mark.parametrize("before", ["\ufeff", "50%...\r", "12 of 13\t\ufeff"])
def test_what_stands_before_an_answer_is_passed_over(before):
    line = (before + json.dumps(RESULT)).encode()
    assert read_from_server(line).message.result == {"x": 7}
    assert json.loads(mend_answer(line, 1)) == RESULT


@pytest.mark.parametrize("result", [None, "did 7", [7]])
def test_a_result_that_is_no_object_ends_the_wait_and_says_nothing(result):
    line = json.dumps({**RESULT, "result": result}).encode()
    assert read_from_server(line).message.result == {}


@pytest.mark.parametrize(
    "line",
    [
        '{"id": 1, "level": "info", "message": "starting"}',
        '{"jsonrpc": "2.0", "result": {}}',
        'sent {"jsonrpc": "2.0", "id": 1, "method": "tools/list"}',
        '{"jsonrpc": "2.0", "id": true, "result": {}}',
        "[1, 2]",
        "null",
        "[" * 100_000,
    ],
)
def test_a_line_of_a_log_is_no_answer(line):
    assert not isinstance(read_from_server(line.encode()), SessionMessage)


@pytest.mark.parametrize(
    "body",
    [
        {**RESULT, "id": 2},
        {"jsonrpc": "2.0", "method": "notifications/progress"},
        {"jsonrpc": "2.0", "id": 1, "method": "ping"},
        [RESULT],
        {"ok": True},
    ],
)
def test_a_body_that_does_not_answer_its_request_is_no_answer(body):
    assert mend_answer(json.dumps(body).encode(), 1) is None


@pytest.mark.parametrize(
    "body",
    [
        {"jsonrpc": "2.0", "id": None, "error": {"code": 5, "message": "no"}},
        {"jsonrpc": "2.0", "error": {"code": 5, "message": "no"}},
    ],
)
def test_an_error_that_names_no_request_is_of_the_one_that_was_posted(body):
    assert json.loads(mend_answer(json.dumps(body).encode(), 1))["id"] == 1


@pytest.mark.parametrize("id_", [1, "1", 1.0])
def test_an_id_may_come_back_as_another_kind_of_number(id_):
    line = json.dumps({**RESULT, "id": id_}).encode()
    assert str(read_from_server(line).message.id) == "1"
    assert json.loads(mend_answer(line, 1))["result"] == {"x": 7}
