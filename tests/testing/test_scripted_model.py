"""The scripted server under the official client, and that client's objects under the runtime."""

import json
import threading

import httpx2
import openai
import pytest

import handrail as hr
from handrail.testing import (
    Fault,
    ManualClock,
    Overlap,
    ScriptedModel,
    ScriptedServer,
    call,
)
from tests.engine.test_engine import get_weather
from tests.support.drivers import BOUND_S

TOOLS = hr.Toolset([
    get_weather,
    hr.FunctionTool(
        lambda **given: given, name="user_info.get", description="Get.", effect="read", parameters={"type": "object"}
    ),
])  # fmt: skip
ASKED = [{"role": "user", "content": "How warm is it in 北京?"}]


@pytest.fixture
def client_of():
    clients = []

    def client(server, **how):
        clients.append(
            openai.OpenAI(
                base_url=server.base_url, api_key="none", **{"max_retries": 0, **how}
            )
        )
        return clients[-1]

    yield client
    for each in clients:
        each.close()


def test_the_official_client_reads_a_text(client_of):
    with ScriptedServer(["21 °C in 北京."]) as server:
        answer = client_of(server).chat.completions.create(model="any", messages=ASKED)
    assert answer.choices[0].message.content == "21 °C in 北京."
    assert (answer.choices[0].finish_reason, answer.usage.total_tokens) == ("stop", 120)
    assert server.requests[0]["messages"] == ASKED


def test_the_official_client_reads_parallel_calls_under_the_names_that_it_may_send(
    client_of,
):
    with ScriptedServer(
        [[call("get_weather", city="北京"), call("user_info.get", id=7)]]
    ) as server:
        answer = client_of(server).chat.completions.create(
            model="any",
            messages=ASKED,
            tools=TOOLS.definitions("openai-chat"),
            parallel_tool_calls=True,
        )
    calls = answer.choices[0].message.tool_calls
    sent = [tool["function"]["name"] for tool in server.requests[0]["tools"]]
    assert (
        [each.function.name for each in calls]
        == sent
        == ["get_weather", "user_info_get"]
    )
    assert json.loads(calls[0].function.arguments) == {"city": "北京"}


@pytest.mark.parametrize("line", [
    "It is 21 °C in 北京, as it was yesterday.",
    [call("get_weather", city="北京"), call("get_weather", city="Paris")],
    hr.Turn("Let me look.", calls=[call("get_weather", city="x" * 100)], finish="calls"),
])  # fmt: skip
def test_the_official_client_hears_the_same_streamed_as_whole(client_of, line):
    with ScriptedServer([line]) as server:
        chat = client_of(server).chat.completions
        whole = chat.create(
            model="any", messages=ASKED, tools=TOOLS.definitions("openai-chat")
        ).choices[0]
        with chat.stream(
            model="any", messages=ASKED, tools=TOOLS.definitions("openai-chat")
        ) as stream:
            for _ in stream:
                pass
            streamed = stream.get_final_completion().choices[0]
    assert streamed.finish_reason == whole.finish_reason
    assert streamed.message.content == whole.message.content
    assert [
        (each.id, each.function.name, each.function.arguments)
        for each in streamed.message.tool_calls or ()
    ] == [
        (each.id, each.function.name, each.function.arguments)
        for each in whole.message.tool_calls or ()
    ]


@pytest.mark.parametrize(("fault", "error"), [
    (Fault(401, '{"error": {"message": "bad key"}}'), openai.AuthenticationError),
    (Fault(429, '{"error": {"message": "slow down"}}'), openai.RateLimitError),
    (Fault(500, "oops"), openai.InternalServerError),
    (Fault(body=None), openai.APIConnectionError),
])  # fmt: skip
def test_the_official_client_meets_the_faults_as_it_would_elsewhere(
    client_of, fault, error
):
    with ScriptedServer(["never"], faults=[fault]) as server, pytest.raises(error):
        client_of(server).chat.completions.create(model="any", messages=ASKED)


def test_the_official_client_s_own_retries_find_the_answer_behind_a_fault(client_of):
    with ScriptedServer(
        ["here"], faults=[Fault(503, "{}", headers={"retry-after": "0"}), None]
    ) as server:
        answer = client_of(server, max_retries=2).chat.completions.create(
            model="any", messages=ASKED
        )
    assert (answer.choices[0].message.content, len(server.requests)) == ("here", 2)


def test_a_loop_of_one_s_own_around_the_official_client(client_of, drive):
    """The five lines that an engineer with an agent of their own adds."""
    driver = drive(TOOLS)
    with ScriptedServer(
        [
            [call("get_weather", city="北京"), call("get_weather", city="Paris")],
            "21 in both.",
        ]
    ) as server:
        messages, chat = list(ASKED), client_of(server).chat.completions
        while True:
            answer = chat.create(
                model="any", messages=messages, tools=TOOLS.definitions("openai-chat")
            )
            message = answer.choices[0].message
            if not message.tool_calls:
                break
            messages += [message, *driver.handle(message, run="ticket-881")]
    assert message.content == "21 in both."
    assert [each["role"] for each in server.requests[1]["messages"]] == [
        "user",
        "assistant",
        "tool",
        "tool",
    ]
    assert json.loads(messages[-1]["content"]) == {"city": "Paris", "celsius": 21}


def test_a_whole_answer_and_a_bare_message_are_handled_alike(client_of, drive):
    driver = drive(TOOLS)
    with ScriptedServer([call("user_info.get", id=7)]) as server:
        answer = client_of(server).chat.completions.create(
            model="any", messages=ASKED, tools=TOOLS.definitions("openai-chat")
        )
    told = [
        driver.handle(given)
        for given in (answer, answer.choices[0].message, answer.model_dump())
    ]
    assert told[0] == told[1] == told[2]
    assert [(each["role"], json.loads(each["content"])) for each in told[0]] == [
        ("tool", {"id": 7})
    ]


def test_a_message_without_calls_has_no_results(client_of, drive):
    with ScriptedServer(["21"]) as server:
        answer = client_of(server).chat.completions.create(model="any", messages=ASKED)
    assert drive(TOOLS).handle(answer) == []


def test_calls_of_an_answer_that_was_cut_run_nothing(client_of, drive):
    ran = []
    tool = hr.FunctionTool(lambda: ran.append(1), name="work", effect="write")
    with ScriptedServer([hr.Turn(calls=[call("work")], finish="length")]) as server:
        answer = client_of(server).chat.completions.create(model="any", messages=ASKED)
    assert "TRUNCATED_CALL" in drive([tool]).handle(answer)[0]["content"]
    assert ran == []


@pytest.mark.parametrize("message", [None, 7, "text", [1]])
def test_what_is_no_message_is_told_to_the_engineer(drive, message):
    with pytest.raises(hr.ConfigError, match="message"):
        drive([]).handle(message)


# -- the script --------------------------------------------------------------------------------------------------------


def test_a_repeated_request_gets_the_same_answer_and_conversations_do_not_disturb_each_other(
    client_of,
):
    with ScriptedServer(["first", "second"]) as server:
        chat = client_of(server).chat.completions

        def answer(messages):
            return (
                chat.create(model="any", messages=messages).choices[0].message.content
            )

        further = [
            *ASKED,
            {"role": "assistant", "content": "first"},
            {"role": "user", "content": "and?"},
        ]
        assert [answer(ASKED), answer(ASKED), answer(further), answer(ASKED)] == [
            "first",
            "first",
            "second",
            "first",
        ]


def test_a_request_that_is_none_is_refused_as_openai_refuses_it():
    with ScriptedServer(["never"]) as server:
        answers = [
            httpx2.post(f"{server.base_url}/chat/completions", content=body)
            for body in (b"no json", b"[]", b'{"messages": [{"role": "nobody"}]}')
        ]
    assert [
        (answer.status_code, answer.json()["error"]["type"]) for answer in answers
    ] == [(400, "invalid_request_error")] * 3


def test_a_client_that_goes_away_in_mid_stream_disturbs_nobody(capfd):
    with ScriptedServer(["x" * 5000, "never"], pause_s=0.001) as server:
        body = {"messages": ASKED, "stream": True}
        with httpx2.stream(
            "POST", f"{server.base_url}/chat/completions", json=body
        ) as answer:
            next(answer.iter_bytes())
        assert (
            httpx2.post(
                f"{server.base_url}/chat/completions", json={"messages": ASKED}
            ).status_code
            == 200
        )
    assert capfd.readouterr().err == ""


def test_a_scripted_model_keeps_what_it_was_asked(drive):
    model = ScriptedModel([call("get_weather", city="Oslo"), "21"])
    drive(TOOLS).run("How warm?", model=model)
    assert [len(request.messages) for request in model.requests] == [1, 3]


def test_an_overlap_counts_who_is_inside():
    overlap, barrier = Overlap(), threading.Barrier(3)

    def enter():
        with overlap:
            barrier.wait(BOUND_S)

    threads = [threading.Thread(target=enter) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(BOUND_S)
    assert (overlap.most_inside, overlap.inside, overlap.entered) == (3, 0, 3)


def test_a_manual_clock_stands_until_it_is_moved():
    clock = ManualClock()
    assert (clock(), clock.advance(1.5), clock()) == (0.0, None, 1.5)
