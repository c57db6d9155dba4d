"""The UI message stream of Vercel's AI SDK, by its own client."""

import json
import os

import httpx2
import pytest

from handrail.testing import call
from tests.handrail_server.endpoints.node import AI_SDK, run_program
from tests.handrail_server.endpoints.serving import (
    ANSWER,
    QUESTION,
    serve_demo,
    serve_world,
)

_DEMO = f"""
import {{ AbstractChat, DefaultChatTransport }} from "ai";

class Chat extends AbstractChat {{
  constructor() {{
    const state = {{
      messages: [], status: "ready", error: undefined,
      pushMessage(message) {{ this.messages = [...this.messages, message]; }},
      popMessage() {{ this.messages = this.messages.slice(0, -1); }},
      replaceMessage(at, message) {{ this.messages = this.messages.with(at, message); }},
      snapshot: (value) => structuredClone(value),
    }};
    super({{ state, transport: new DefaultChatTransport({{ api: url + "/v1/ui-messages" }}) }});
  }}
}}
const chat = new Chat();
await chat.sendMessage({{ text: {json.dumps(QUESTION)} }});
const asked = chat.lastMessage.parts.find((part) => part.state === "approval-requested");
tell({{ asked, parts: chat.lastMessage.parts }});
await chat.addToolApprovalResponse({{ id: asked.approval.id, approved: true }});
await chat.sendMessage();
tell({{ messages: chat.messages, error: chat.error?.message }});
"""


def test_the_demos_question_is_answered_once_the_call_is_approved(tmp_path):
    if not (AI_SDK.is_installed or os.environ.get("HANDRAIL_LONG_TESTS")):
        pytest.skip("the AI SDK is installed with HANDRAIL_LONG_TESTS=1 only")
    with serve_demo(tmp_path) as (served, cluster):
        first, second = run_program(AI_SDK, _DEMO, served.url)
    assert first["asked"]["toolName"] == "restart_service"
    states = [each.get("state") for each in first["parts"]]
    assert states.count("output-available") == 4
    assert states.count("output-error") == 1
    assert second.get("error") is None
    assert [each["role"] for each in second["messages"]] == ["user", "assistant"]
    parts = second["messages"][-1]["parts"]
    (restart,) = (each for each in parts if each.get("toolName") == "restart_service")
    assert restart["state"] == "output-available"
    assert parts[-1]["text"] == ANSWER
    assert cluster.restarts == {"api-gateway": 1}


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    with serve_world(tmp_path_factory.mktemp("world")) as place:
        yield place


def send(served, *messages):
    """Send messages as the client does; return the parts."""
    answer = httpx2.post(
        f"{served.url}/v1/ui-messages",
        json={"id": "chat", "trigger": "submit-message", "messages": messages},
        headers={"authorization": "Bearer anna"},
    )
    assert answer.status_code == 200, answer.text
    assert answer.headers["x-vercel-ai-ui-message-stream"] == "v1"
    *lines, last = filter(None, answer.text.splitlines())
    assert last == "data: [DONE]"
    return [json.loads(each.removeprefix("data: ")) for each in lines]


def test_a_denied_call_does_not_run(place):
    served, world = place
    world.notes.append("kept")
    word = world.says("deny", call("erase", text="kept"), "As you wish.")
    question = {
        "id": "m1",
        "role": "user",
        "parts": [{"type": "text", "text": word}],
    }
    parts = send(served, question)
    (asked,) = (each for each in parts if each["type"] == "tool-approval-request")
    part = {
        "type": "dynamic-tool",
        "toolCallId": asked["toolCallId"],
        "state": "approval-responded",
        "approval": {"id": asked["approvalId"], "approved": False},
    }
    for _ in range(2):
        parts = send(
            served, question, {"id": "m2", "role": "assistant", "parts": [part]}
        )
        kinds = [each["type"] for each in parts]
        assert parts[0] == {"type": "start", "messageId": "m2"}
        assert "tool-output-denied" in kinds
        said = [each["delta"] for each in parts if each["type"] == "text-delta"]
        assert "".join(said) == "As you wish."
    assert "kept" in world.notes


@pytest.mark.parametrize(
    "messages",
    [
        [],
        [{"role": "king", "parts": []}],
        [{"role": "user", "parts": [{"type": "sound"}]}],
    ],
)
def test_a_request_that_cannot_be_served_gets_one_sentence(place, messages):
    served, _ = place
    answer = httpx2.post(
        f"{served.url}/v1/ui-messages",
        json={"messages": messages},
        headers={"authorization": "Bearer anna"},
    )
    assert answer.status_code == 400
    assert "\n" not in answer.json()["error"]["message"]
