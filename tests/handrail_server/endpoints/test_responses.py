"""OpenAI's Responses, by the official client."""

import json

import openai
import pytest

from handrail.testing import call
from tests.handrail_server.endpoints.serving import (
    ANSWER,
    LOOKING,
    QUESTION,
    both,
    serve_demo,
    serve_world,
)

ASK_USER = {
    "type": "function",
    "name": "ask_user",
    "description": "Ask the user something.",
    "parameters": {
        "type": "object",
        "properties": {"question": {"type": "string"}},
        "required": ["question"],
    },
    "strict": False,
}


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    with serve_world(tmp_path_factory.mktemp("world")) as place:
        yield place


def ask(served, asked, principal="anna", **more):
    return served.client(principal).responses.create(model="told", input=asked, **more)


def approve(request, answer=True, **more):
    return {
        "type": "mcp_approval_response",
        "approval_request_id": request.id,
        "approve": answer,
        **more,
    }


def test_the_demos_question_is_answered_once_the_client_agrees(tmp_path):
    with serve_demo(tmp_path) as (served, cluster):
        client = served.client()
        with client.responses.stream(model="operator", input=QUESTION) as stream:
            kinds = [event.type for event in stream]
            first = stream.get_final_response()
        assert kinds[:2] == ["response.created", "response.in_progress"]
        assert kinds.count("response.output_text.delta") > 3
        assert kinds.count("response.mcp_call.completed") == 4
        assert kinds.count("response.mcp_call.failed") == 1
        assert kinds[-1] == "response.completed"
        said, *calls, request = first.output
        assert said.content[0].text == LOOKING
        assert {each.type for each in calls} == {"mcp_call"}
        assert [each.status for each in calls].count("failed") == 1
        assert json.loads(calls[2].arguments)["tail_lines"] == 20  # repaired
        assert request.type == "mcp_approval_request"
        assert json.loads(request.arguments)["service"] == "api-gateway"
        assert cluster.restarts == {}
        for _ in range(2):  # sent twice, approved and carried out once
            second = client.responses.create(
                model="operator",
                previous_response_id=first.id,
                input=[approve(request)],
            )
            restart, look, answer = second.output
            assert restart.approval_request_id == request.id
            assert restart.output == "api-gateway restarted, 1 of 1 pods ready"
            assert look.name == "get_pod_metrics"
            assert answer.content[0].text == second.output_text == ANSWER
        assert cluster.restarts == {"api-gateway": 1}


@pytest.mark.parametrize("streams", [False, True])
def test_a_callers_function_goes_back_and_ours_runs_here(place, streams):
    served, world = place
    word = world.says(
        f"mixed-{streams}",
        both(call("look", city="Oslo"), call("ask_user", question="Which day?")),
        lambda messages: f"It was {messages[-1].result.text}.",
    )
    first = _whole(ask(served, word, tools=[ASK_USER], stream=streams))
    ours, theirs = sorted(first.output, key=lambda item: item.type, reverse=True)
    assert (ours.type, ours.output) == ("mcp_call", "Oslo: 12 degrees")
    assert (theirs.type, theirs.name) == ("function_call", "ask_user")
    output = {
        "type": "function_call_output",
        "call_id": theirs.call_id,
        "output": "Tuesday",
    }
    second = _whole(
        ask(
            served,
            [output],
            tools=[ASK_USER],
            previous_response_id=first.id,
            stream=streams,
        )
    )
    assert second.output_text == "It was Tuesday."
    # a client that keeps the conversation itself sends all of it
    items = [each.model_dump(exclude_none=True) for each in first.output]
    history = [{"role": "user", "content": word}, *items, output]
    third = ask(served, history, tools=[ASK_USER])
    assert third.output_text == "It was Tuesday."
    assert third.id.split("_")[1] == first.id.split("_")[1]


def _whole(reply):
    if isinstance(reply, openai.Stream):
        *_, last = reply
        return last.response
    return reply


def test_a_denied_call_does_not_run_and_the_model_reads_why(place):
    served, world = place
    world.notes.append("keep")
    word = world.says(
        "deny",
        call("erase", text="keep"),
        lambda messages: messages[-1].result.failure.message,
    )
    first = ask(served, word)
    no = approve(first.output[0], False, reason="I need it.")
    second = ask(served, [no], previous_response_id=first.id)
    assert "I need it." in second.output_text
    assert second.output[0].status == "failed"
    assert "keep" in world.notes
    yes = approve(first.output[0])
    with pytest.raises(openai.ConflictError, match="cannot be answered again"):
        ask(served, [yes], previous_response_id=first.id)
    assert "keep" in world.notes


def test_a_token_that_may_not_approve_does_not(place):
    served, world = place
    world.notes.append("theirs")
    word = world.says("clerk", call("erase", text="theirs"), "Erased.")
    first = ask(served, word, principal="clerk")
    with pytest.raises(openai.PermissionDeniedError, match="may not approve"):
        ask(served, [approve(first.output[0])], principal="clerk")
    with pytest.raises(openai.PermissionDeniedError, match="not start them"):
        ask(served, word, principal="visitor")
    assert "theirs" in world.notes


def test_a_conversation_goes_on_from_its_newest_response(place):
    served, world = place
    word = world.says("talk", "First.", "Second.", "Third.")
    first = ask(served, word, instructions="Be brief.")
    key = {"Idempotency-Key": "talk-2"}
    second = ask(
        served,
        "And then?",
        previous_response_id=first.id,
        instructions="Be brief.",
        extra_headers=key,
    )
    assert second.output_text == "Second."
    again = ask(
        served,
        "And then?",
        previous_response_id=first.id,
        instructions="Be brief.",
        extra_headers=key,
    )
    assert (again.id, again.output_text) == (second.id, "Second.")
    with pytest.raises(openai.ConflictError, match="continued already"):
        ask(served, "Or else?", previous_response_id=first.id)
    with pytest.raises(openai.BadRequestError, match="keeps the instructions"):
        ask(
            served,
            "More.",
            previous_response_id=second.id,
            instructions="Be long.",
        )
    third = ask(served, "At last?", previous_response_id=second.id)
    assert third.output_text == "Third."
    texts = [getattr(each, "text", "") for each in world.model.requests[-1]]
    assert texts.count("Be brief.") == 1


def test_what_waits_is_answered_before_the_next_question(place):
    served, world = place
    world.notes.append("old")
    word = world.says("wait", call("erase", text="old"), "Erased.")
    first = ask(served, word)
    with pytest.raises(openai.ConflictError, match="waits for an answer"):
        ask(served, "And?", previous_response_id=first.id)
    second = ask(served, [approve(first.output[0])], previous_response_id=first.id)
    assert second.output_text == "Erased."
    third = ask(served, "And?", previous_response_id=second.id)
    assert third.previous_response_id == second.id


def test_a_response_of_somebody_else_is_not_there(place):
    served, world = place
    world.notes.append("hers")
    word = world.says("hers", call("erase", text="hers"), "Erased.")
    first = ask(served, word)
    request = approve(first.output[0])
    for given in (
        {"input": "And?", "previous_response_id": first.id},
        {"input": [request], "previous_response_id": first.id},
        {"input": [request]},
        {"input": "And?", "previous_response_id": "resp_" + "0" * 32 + "_1_0"},
        {"input": "And?", "previous_response_id": "resp_../../etc"},
        {"input": [{**request, "approval_request_id": "r_x-a_y"}]},
    ):
        with pytest.raises(openai.NotFoundError) as refused:
            served.client("mallory").responses.create(model="told", **given)
        assert "of yours" in refused.value.body["message"]
    assert "hers" in world.notes


def test_a_call_in_doubt_is_told_as_incomplete(place):
    served, world = place
    word = world.says("doubt", call("stall", text="maybe"), "Nobody knows.")
    response = ask(served, word)
    item = response.output[0]
    assert item.status == "incomplete"
    assert '"error_code":"IN_DOUBT"' in item.error.content[0]["text"]
    assert response.output_text == "Nobody knows."


def test_an_answer_has_the_form_that_was_asked_for(place):
    served, world = place
    word = world.says("form", '{"degrees": "mild"}', '{"degrees": 12}')
    schema = {
        "type": "object",
        "properties": {"degrees": {"type": "integer"}},
        "required": ["degrees"],
    }
    form = {"format": {"type": "json_schema", "name": "weather", "schema": schema}}
    for streams in (False, True):
        response = _whole(ask(served, word, text=form, stream=streams))
        assert json.loads(response.output_text) == {"degrees": 12}


def test_a_model_that_fails_fails_the_response(place):
    served, _ = place
    response = served.client().responses.create(model="broken", input="x")
    assert response.status == "failed"
    assert "hunter2" not in response.model_dump_json()
    *_, last = served.client().responses.create(model="broken", input="x", stream=True)
    assert last.type == "response.failed"
    assert last.response.error.message.startswith("the run ended without an answer")


SHOE = {"type": "shoe"}


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"input": ""}, "`input` is empty"),
        ({"input": [{"type": "item_reference", "id": "x"}]}, "not served here"),
        ({"input": [{"role": "user", "content": 7}]}, "`input`"),
        ({"input": [{"role": "king", "content": "x"}]}, "`input`"),
        ({"background": True}, "not served here"),
        ({"conversation": "conv_1"}, "not served here"),
        ({"tools": [{"type": "web_search"}]}, "cannot be sent here"),
        ({"tools": [{**ASK_USER, "name": "note"}]}, "of its own"),
        ({"tool_choice": "required"}, "many turns"),
        ({"text": {"format": {"type": "xml"}}}, "json_schema"),
        (
            {"text": {"format": {"type": "json_schema", "name": "x", "schema": SHOE}}},
            "the form of the answer cannot be used",
        ),
    ],
)
def test_a_request_that_cannot_be_served_gets_one_sentence(place, change, sentence):
    served, _ = place
    with pytest.raises(openai.BadRequestError, match=sentence) as refused:
        served.client().responses.create(**{"model": "told", "input": "x", **change})
    assert "\n" not in refused.value.body["message"]


def test_half_of_a_surrogate_pair_does_not_cost_the_answer(place):
    served, world = place
    word = world.says("surrogate", call("look", city="Oslo"), "Noted \ud83d it.")
    assert ask(served, word).output_text.startswith("Noted ")
