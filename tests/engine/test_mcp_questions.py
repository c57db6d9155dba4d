"""What a provider asks about its own calls on MCP servers: whoever answers for our tools answers it."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from dataclasses import replace

import pytest

import handrail as hr
from handrail.dialects.wires.request_bytes import RequestEncoder
from handrail.errors import DuplicateToolError
from handrail.messages import ALLOW_MCP_CALL, AssistantMessage, ToolMessage, UserMessage
from handrail.models.http_model import HttpModel
from handrail.testing.contracts.dialects import in_pieces, read
from handrail.testing.loopback import Answer, Loopback
from handrail.tools.mcp_approval import QUESTION
from tests.support.corpus import rows

WIRE = "openai-responses"
SERVER = {
    "type": "mcp",
    "server_label": "links",
    "server_url": "https://mcp.example.com/mcp",
    "require_approval": "always",
}
ARGUMENTS = '{"url":"https://example.com/"}'
ASKS = {
    "type": "mcp_approval_request",
    "id": "mcpr_1",
    "server_label": "links",
    "name": "create_link",
    "arguments": ARGUMENTS,
}
LISTED = {"type": "mcp_list_tools", "id": "mcpl_1", "server_label": "links", "tools": []}  # fmt: skip


def size(text: str) -> int:
    """Measure a text."""
    return len(text)


SIZE = hr.FunctionTool(size, effect="read")


def says(text: str) -> dict:
    content = [{"type": "output_text", "text": text}]
    return {"type": "message", "role": "assistant", "content": content}


def body(*items: dict) -> dict:
    return {"id": "resp_1", "status": "completed", "output": [*items]}


class Provider:
    """A server that asks first, and then says what it was answered."""

    def __init__(self, *first: dict) -> None:
        self.answers = [body(*(first or (LISTED, ASKS)))]

    def __call__(self, asked) -> Answer:
        if self.answers:
            return Answer(json=self.answers.pop(0))
        return Answer(json=body(says("Over.")))


def model_at(url: str) -> HttpModel:
    wire = replace(hr.dialect(WIRE), server="own")
    return HttpModel("gpt-5.6", wire, url, {}, stream=False)


def converse(url, *, store=None, run_id=None, resumed="", tools=(), **how):
    options = hr.Options(provider_tools=[SERVER])

    async def go():
        model = model_at(url)
        stored = {"store": store} if store else {}
        settings = {
            key: how[key] for key in ("policy", "approver", "selector") if key in how
        }
        async with hr.Runtime(tools, **stored, **settings) as runtime:
            try:
                if resumed:
                    return await runtime.resume(resumed, model=model)
                return await runtime.run(
                    "Shorten it.", model=model, options=options, run_id=run_id
                )
            finally:
                await model.aclose()

    return asyncio.run(go())


def last_items(server, count: int = 1) -> list[dict]:
    return server.asked[-1].json()["input"][-count:]


def test_a_person_says_yes_and_the_provider_is_told():
    seen = []

    def anna(question, context=None):
        seen.append(question)
        return True

    with Loopback(Provider()) as server:
        run = converse(server.url, approver=anna)
    assert (run.status, run.text) == ("done", "Over.")
    [question] = seen
    assert question.call.name == ALLOW_MCP_CALL
    assert json.loads(question.call.arguments) == {
        "server": "links",
        "name": "create_link",
        "arguments": ARGUMENTS,
    }
    assert last_items(server, 3) == [
        LISTED,
        ASKS,
        {"type": "mcp_approval_response", "approval_request_id": "mcpr_1", "approve": True},
    ]  # fmt: skip


def test_a_no_is_told_with_its_reason():
    with Loopback(Provider()) as server:
        run = converse(server.url, approver=lambda question: False)
    assert run.status == "done"
    [answer] = last_items(server)
    assert answer["approve"] is False
    assert answer["reason"]


@pytest.mark.parametrize("tools", [(), [SIZE]])
def test_the_tool_that_answers_is_never_described_to_a_model(tools):
    with Loopback(Provider()) as server:
        converse(server.url, approver=lambda question: True, tools=tools)
    for asked in server.asked:
        assert ALLOW_MCP_CALL not in json.dumps(asked.json()["tools"])


GO_ON = """
import asyncio, sys
import handrail as hr
from tests.engine.test_mcp_questions import model_at, SERVER

async def main():
    url, store = sys.argv[1:]
    model = model_at(url)
    async with hr.Runtime([], store=store) as runtime:
        [question] = await runtime.approvals.list()
        await runtime.approvals.approve(question.id, by="anna")
        run = await runtime.resume("r1", model=model)
    await model.aclose()
    print(run.status, run.text)

asyncio.run(main())
"""


def test_a_run_waits_where_nobody_is_there_and_goes_on_in_another_process(tmp_path):
    store = f"sqlite:///{tmp_path}/runs.db"
    with Loopback(Provider()) as server:
        run = converse(server.url, store=store, run_id="r1")
        assert run.status == "waiting"
        assert len(server.asked) == 1
        ended = subprocess.run(
            [sys.executable, "-c", GO_ON, server.url, store],
            capture_output=True,
            text=True,
            check=True,
        )
    assert ended.stdout.split() == ["done", "Over."]
    first, second = (asked.json()["input"] for asked in server.asked)
    assert second[: len(first)] == first
    assert last_items(server)[0]["approve"] is True


def test_edited_arguments_are_a_no_since_the_provider_calls_with_its_own(tmp_path):
    store = f"sqlite:///{tmp_path}/runs.db"

    async def edit():
        async with hr.Runtime([], store=store) as runtime:
            [question] = await runtime.approvals.list()
            changed = {"server": "links", "name": "create_link", "arguments": "{}"}
            await runtime.approvals.edit(question.id, changed, by="anna")

    with Loopback(Provider()) as server:
        converse(server.url, store=store, run_id="r1")
        asyncio.run(edit())
        assert converse(server.url, store=store, resumed="r1").status == "done"
    [answer] = last_items(server)
    assert answer["approve"] is False
    assert "Another call" in answer["reason"]


def test_one_answer_is_for_one_question_also_of_the_same_call():
    asked = []

    def once(question, context=None):
        asked.append(question)
        return len(asked) == 1

    provider = Provider()
    provider.answers.append(body({**ASKS, "id": "mcpr_2"}))
    with Loopback(provider) as server:
        converse(server.url, approver=once)
    assert len(asked) == 2
    answers = [
        (each["approval_request_id"], each["approve"])
        for each in server.asked[-1].json()["input"]
        if each.get("type") == "mcp_approval_response"
    ]
    assert answers == [("mcpr_1", True), ("mcpr_2", False)]


@pytest.mark.parametrize(("server_label", "allowed"), [("links", True), ("mail", False)])  # fmt: skip
def test_a_rule_may_answer_for_a_server(server_label, allowed):
    rule = hr.Rule(ALLOW_MCP_CALL, "allow", arguments={"server": "links"})
    asks = {**ASKS, "server_label": server_label}
    with Loopback(Provider(asks)) as server:
        run = converse(server.url, policy=hr.Policy(rules=[rule]))
    assert run.status == ("done" if allowed else "waiting")
    assert len(server.asked) == (2 if allowed else 1)


def test_a_run_that_may_only_read_allows_nothing():
    with Loopback(Provider()) as server:
        run = converse(
            server.url, policy=hr.Policy(max_permission="read"), approver=lambda _: True
        )
    assert run.status == "done"
    assert last_items(server)[0]["approve"] is False


def test_a_model_cannot_call_the_tool_itself():
    call = {
        "type": "function_call",
        "call_id": "c1",
        "name": ALLOW_MCP_CALL,
        "arguments": json.dumps({"server": "s", "name": "n", "arguments": "{}"}),
    }
    asked = []
    with Loopback(Provider(call)) as server:
        converse(server.url, approver=lambda question: asked.append(question) or True)
    assert asked == []
    assert "NOT_PERMITTED" in last_items(server)[0]["output"]


def test_the_question_beside_a_call_of_ours_is_answered_in_its_place():
    call = {
        "type": "function_call",
        "call_id": "c1",
        "name": "size",
        "arguments": '{"text": "four"}',
    }
    with Loopback(Provider(ASKS, call)) as server:
        converse(server.url, tools=[SIZE], approver=lambda question: True)
    asks, called, answer, output = last_items(server, 4)
    assert (asks, called) == (ASKS, call)
    assert (answer["approve"], output["output"]) == (True, "4")


RECORDED = [
    interaction
    for row in rows("wire/features.jsonl.gz")
    if row["provider"] == "openai_responses"
    for interaction in row["interactions"]
    if any(
        each["kind"] == "mcp_approval"
        for each in interaction.get("expected", {}).get("waits", ())
    )
]


@pytest.mark.parametrize("interaction", RECORDED)
def test_recorded_questions_are_calls_where_our_tool_answers(interaction):
    wire, tools = hr.dialect(WIRE), hr.Toolset([QUESTION])
    recorded = interaction["response"]["body"]
    turn = wire.decode(recorded, tools)
    [waits] = interaction["expected"]["waits"]
    [call] = turn.calls
    arguments = json.loads(call.arguments)
    assert (turn.finish, turn.waits_for, call.id) == ("calls", "", waits["id"])
    assert arguments["server"] == waits["server_label"]
    assert arguments["name"] == waits["name"]
    assert json.loads(arguments["arguments"]) == waits["arguments"]
    [item] = [
        each for each in recorded["output"] if each["type"] == "mcp_approval_request"
    ]
    said = [
        UserMessage("?"),
        AssistantMessage(turn),
        ToolMessage(hr.ToolResult(call.id, call.name, failure=hr.Failure("DENIED", "not now"))),
    ]  # fmt: skip
    for sent in (
        wire.encode_request(said, tools)["input"],
        json.loads(RequestEncoder(wire).body(said, tools, hr.Options()))["input"],
        wire.encode_request(said)["input"],  # as another process may, without the tool
    ):
        assert item in sent
        assert sent[-1] == {
            "type": "mcp_approval_response",
            "approval_request_id": waits["id"],
            "approve": False,
            "reason": "not now",
        }


def test_a_stream_asks_the_same_cut_anywhere():
    events = [
        {"type": "response.created", "response": {"id": "resp_1"}},
        {"type": "response.output_item.added", "output_index": 0, "item": {**ASKS, "arguments": ""}},
        {"type": "response.output_item.done", "output_index": 0, "item": ASKS},
        {"type": "response.completed", "response": body(ASKS)},
    ]  # fmt: skip
    sent = "".join(f"data: {json.dumps(each)}\n\n" for each in events).encode()
    wire, tools = hr.dialect(WIRE), hr.Toolset([QUESTION])
    whole = wire.decode(body(ASKS), tools)
    deltas, turn = read(wire.stream(tools), [sent])
    assert (turn, turn.raw) == (whole, whole.raw)
    assert read(wire.stream(tools), in_pieces(sent, range(len(sent)))) == (deltas, turn)


def test_without_an_mcp_server_of_the_provider_nothing_is_added():
    wire = hr.dialect(WIRE)
    assert wire.asks_about_mcp(hr.Options(provider_tools=[SERVER]))
    assert not wire.asks_about_mcp(hr.Options(provider_tools=[{"type": "web_search"}]))
    turn = wire.decode(body(ASKS))
    assert turn.calls == () and "create_link" in turn.waits_for


def test_a_tool_of_that_name_is_refused():
    mine = hr.FunctionTool(size, name=ALLOW_MCP_CALL, effect="read")
    with Loopback(Provider()) as server, pytest.raises(DuplicateToolError):
        converse(server.url, tools=[mine])
