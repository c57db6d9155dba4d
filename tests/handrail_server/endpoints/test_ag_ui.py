"""AG-UI, by the official client."""

import json
import time

import httpx2
import pytest

from handrail.testing import call
from tests.handrail_server.endpoints.node import AG_UI, run_program
from tests.handrail_server.endpoints.serving import (
    ANSWER,
    LOOKING,
    QUESTION,
    both,
    serve_demo,
    serve_world,
    wait_until,
)


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    with serve_world(tmp_path_factory.mktemp("world")) as place:
        yield place


_DEMO = f"""
import {{ HttpAgent }} from "@ag-ui/client";
const agent = new HttpAgent({{ url: url + "/agui" }});
const types = [];
agent.subscribe({{ onEvent: ({{ event }}) => void types.push(event.type) }});
agent.messages = [{{ id: "u1", role: "user", content: {json.dumps(QUESTION)} }}];
await agent.runAgent();
tell({{ types: [...types], interrupts: agent.pendingInterrupts }});
types.length = 0;
const [asked] = agent.pendingInterrupts;
await agent.runAgent({{
  resume: [{{ interruptId: asked.id, status: "resolved", payload: {{ approved: true }} }}],
}});
tell({{ types, interrupts: agent.pendingInterrupts, messages: agent.messages }});
"""


def test_the_demos_question_is_answered_once_the_interrupt_is_resolved(tmp_path):
    with serve_demo(tmp_path) as (served, cluster):
        first, second = run_program(AG_UI, _DEMO, served.url)
    assert first["types"].count("TEXT_MESSAGE_CONTENT") > 3
    assert first["types"].count("TOOL_CALL_RESULT") == 5
    assert first["types"][-1] == "RUN_FINISHED"
    (interrupt,) = first["interrupts"]
    assert interrupt["toolCallId"] == interrupt["id"]
    assert "restart_service wants to run" in interrupt["message"]
    assert second["interrupts"] == []
    said = [each for each in second["messages"] if each["role"] == "assistant"]
    assert said[0]["content"] == LOOKING
    assert len(said[0]["toolCalls"]) == 2
    assert said[-1]["content"] == ANSWER
    names = [
        each["function"]["name"] for m in said for each in m.get("toolCalls") or ()
    ]
    assert names.count("restart_service") == 1
    assert cluster.restarts == {"api-gateway": 1}


_FRONT_END_TOOL = """
import { HttpAgent } from "@ag-ui/client";
const agent = new HttpAgent({ url: url + "/agui" });
agent.messages = [{ id: "u1", role: "user", content: "pick" }];
const tools = [{
  name: "ask_user",
  description: "Ask the user something.",
  parameters: { type: "object", properties: { question: { type: "string" } } },
}];
await agent.runAgent({ tools });
const calls = agent.messages.flatMap((message) => message.toolCalls ?? []);
const answered = new Set(agent.messages.map((message) => message.toolCallId));
const open = calls.filter((call) => !answered.has(call.id));
tell(calls);
tell(open);
agent.messages.push({ id: "t1", role: "tool", toolCallId: open[0].id, content: "Tuesday" });
await agent.runAgent({ tools });
tell(agent.messages.at(-1).content);
"""


def test_a_tool_of_the_front_end_runs_there_and_ours_here(place):
    served, world = place
    world.says(
        "pick",
        both(call("look", city="Oslo"), call("ask_user", question="Which day?")),
        lambda messages: f"It was {messages[-1].result.text}.",
    )
    calls, waiting, answer = run_program(AG_UI, _FRONT_END_TOOL, served.url)
    assert {each["function"]["name"] for each in calls} == {"look", "ask_user"}
    assert [each["function"]["name"] for each in waiting] == ["ask_user"]
    assert answer == "It was Tuesday."


def run(served, word, number, **more):
    """Send a request as a client does; return the events."""
    body = {
        "threadId": "t1",
        "runId": f"run-{number}",
        "messages": [{"id": "m1", "role": "user", "content": word}],
        "tools": [],
        "context": [],
        "state": {},
        "forwardedProps": {},
        **more,
    }
    answer = httpx2.post(
        f"{served.url}/agui", json=body, headers={"authorization": "Bearer anna"}
    )
    assert answer.status_code == 200, answer.text
    return [
        json.loads(line.removeprefix("data: "))
        for line in answer.text.splitlines()
        if line.startswith("data: ")
    ]


def test_one_run_id_sent_twice_is_one_run(place):
    served, world = place
    word = world.says("twice", call("note", text="agui"), "Noted.")
    first = run(served, word, 1)
    again = run(served, word, 1)
    assert first[1] == again[1]
    assert first[1]["name"] == "handrail.run"
    kinds = [each["type"] for each in first]
    assert kinds[-1] == "RUN_FINISHED"
    assert kinds == [each["type"] for each in again]
    assert world.notes.count("agui") == 1


def test_an_edited_call_runs_with_the_arguments_of_the_person(place):
    served, world = place
    world.notes += ["this", "that"]
    word = world.says("edit", call("erase", text="this"), "Erased.")
    *_, finished = run(served, word, 2)
    (interrupt,) = finished["outcome"]["interrupts"]
    answer = {
        "interruptId": interrupt["id"],
        "status": "resolved",
        "payload": {"approved": True, "arguments": {"text": "that"}},
    }
    *_, finished = run(served, word, 3, resume=[answer])
    assert finished["outcome"] == {"type": "success"}
    assert "this" in world.notes
    assert "that" not in world.notes


def test_a_dismissed_question_is_a_no(place):
    served, world = place
    world.notes.append("stays")
    word = world.says("dismiss", call("erase", text="stays"), "As you wish.")
    *_, finished = run(served, word, 4)
    (interrupt,) = finished["outcome"]["interrupts"]
    answer = {"interruptId": interrupt["id"], "status": "cancelled"}
    events = run(served, word, 5, resume=[answer])
    said = [each["delta"] for each in events if "CONTENT" in each["type"]]
    assert "".join(said) == "As you wish."
    assert "stays" in world.notes


def test_a_client_that_stops_the_run_cancels_it(place):
    served, world = place
    word = world.says("stop", call("linger", text="stopped"), "Never said.")
    world.gate.clear()
    world.started.clear()
    with pytest.raises(httpx2.TimeoutException):
        httpx2.post(
            f"{served.url}/agui",
            json={
                "threadId": "t1",
                "runId": "run-stop",
                "messages": [{"id": "m1", "role": "user", "content": word}],
            },
            headers={"authorization": "Bearer anna"},
            timeout=httpx2.Timeout(0.7),
        )
    assert world.started.is_set()
    time.sleep(1.0)  # until the server has noticed
    world.gate.set()
    wait_until(
        lambda: [
            each
            for each in served.runtime.store.list_runs().result()
            if '"stop"' in json.dumps(each.input) and each.status == "cancelled"
        ]
    )


@pytest.mark.parametrize(
    "change",
    [
        {"messages": []},
        {"messages": [{"id": "1", "role": "king", "content": "x"}]},
        {"messages": [{"id": "1", "role": "user", "content": [{"type": "sound"}]}]},
        {"tools": [{"name": "note", "description": "", "parameters": {}}]},
        {"resume": [{"interruptId": "x", "status": "resolved"}]},
        {"threadId": 7},
    ],
)
def test_a_request_that_cannot_be_served_gets_one_sentence(place, change):
    served, _ = place
    body = {
        "threadId": "t",
        "runId": "r",
        "messages": [{"id": "1", "role": "user", "content": "x"}],
        **change,
    }
    answer = httpx2.post(
        f"{served.url}/agui", json=body, headers={"authorization": "Bearer anna"}
    )
    assert answer.status_code in (400, 404)
    assert "\n" not in answer.json()["error"]["message"]
