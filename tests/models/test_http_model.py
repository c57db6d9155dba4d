"""A model behind HTTP, against servers that answer, refuse, lie and break off."""

import asyncio
import json
import socket
import threading
from base64 import b64encode
from contextlib import contextmanager, suppress

import pytest

import handrail as hr
from handrail.core.retries import Backoff
from handrail.engine.engine import Engine
from handrail.errors import ConfigError, ModelError
from handrail.events import HttpExchange, Streamed
from handrail.messages import Options, TextDelta, UserMessage
from handrail.models import http_model
from handrail.models.http_model import HttpModel
from handrail.models.providers import PROVIDERS
from handrail.ports import Request
from handrail.testing import Fault, ScriptedServer, call
from tests.support.drivers import BOUND_S, Gate

openai = PROVIDERS["openai"]

QUICK = Backoff(0.001, 0.001)


def model_at(base_url, **how):
    how = {"backoff": QUICK, **how}
    return HttpModel(
        "scripted",
        hr.dialect("openai-compatible"),
        base_url,
        how.pop("headers", {}),
        **how,
    )


def run_once(model, *, streamed=False, **how):
    """One question to a model; with `streamed` somebody listens, so that the answer is asked for as a stream."""
    events = []

    async def main():
        async with hr.Runtime(
            [], observers=[events.append] if streamed else ()
        ) as runtime:
            try:
                return await asyncio.wait_for(
                    runtime.run("How warm?", model=model, **how), BOUND_S
                )
            finally:
                await model.aclose()

    return asyncio.run(main()), events


def error(message="no", **more):
    return json.dumps({"error": {"message": message, **more}})


STREAM = {"content-type": "text/event-stream"}
PIECE = 'data: {"choices":[{"index":0,"delta":{"content":"Hel"}}]}\n\n'
OVERLOADED = f"data: {error('too many', type='overloaded_error')}\n\n"


@pytest.mark.parametrize("streamed", [False, True])
@pytest.mark.parametrize(("faults", "status", "words", "requests"), [
    ([Fault(401, error("bad key", type="authentication_error"))], "failed", "401", 1),
    ([Fault(400, error("too long", code="context_length_exceeded"))], "failed", "too long", 1),
    ([Fault(429, error(), headers={"retry-after": "0"})], "done", "", 2),
    ([Fault(429, error("pay", code="insufficient_quota"))], "failed", "insufficient_quota", 1),
    ([Fault(500, "oops")], "done", "", 2),
    ([Fault(503, error())] * 3, "failed", "503", 3),
    ([Fault(302, "", headers={"location": "/elsewhere"})], "failed", "302", 1),
    ([Fault(200, "<html>proxy</html>")], "failed", "cannot be read", 1),
    ([Fault(200, "[]")], "failed", "cannot be read", 1),
    ([Fault(200, "{}")], "failed", "cannot be read", 1),
    ([Fault(200, '{"choices":[]}')], "failed", "empty", 1),
    # an error under a 200
    ([Fault(200, error("busy", type="overloaded_error"))], "done", "", 2),
    ([Fault(200, "no gzip at all", headers={"content-encoding": "gzip"})] * 3, "failed", "cannot be unpacked", 3),
    # the connection is dropped
    ([Fault(body=None)], "done", "", 2),
    ([Fault(body=None)] * 3, "failed", "cannot be reached", 3),
    # a stream that begins with an error
    ([Fault(200, OVERLOADED, headers=STREAM)], "done", "", 2),
    # a stream of nothing
    ([Fault(200, "", headers=STREAM)], "done", "", 2),
    # a stream without an end
    ([Fault(200, PIECE, headers=STREAM)], "failed", "broke off", 1),
])  # fmt: skip
def test_what_a_server_may_do_ends_in_an_answer_or_in_one_reason(
    faults, status, words, requests, streamed
):
    with ScriptedServer(["21 °C"], faults=faults) as server:
        run, _ = run_once(model_at(server.base_url), streamed=streamed)
    assert (run.status, words in run.reason, len(server.requests)) == (
        status,
        True,
        requests,
    ), run
    assert run.reason.count("scripted at http://") == (
        status == "failed" and words != "broke off"
    ), run.reason
    assert "\n" not in run.reason


def test_an_error_in_mid_stream_ends_the_run_because_what_was_told_cannot_be_taken_back():
    with ScriptedServer(
        ["21"], faults=[Fault(200, PIECE + OVERLOADED, headers=STREAM)]
    ) as server:
        run, events = run_once(model_at(server.base_url), streamed=True)
    assert (run.status, "too many" in run.reason, len(server.requests)) == (
        "failed",
        True,
        1,
    )
    assert Streamed(TextDelta("Hel"), run_id=run.id) in events


def test_a_wait_beyond_the_run_s_time_is_not_begun_and_the_provider_s_reason_told():
    with ScriptedServer(
        ["21"], faults=[Fault(429, error("slow down"), headers={"retry-after": "30"})]
    ) as server:
        run, _ = run_once(model_at(server.base_url), budget=hr.Budget(time_s=20))
    assert (run.status, "slow down" in run.reason) == ("failed", True)


def test_a_wait_that_is_not_begun_is_told_with_its_length():
    with ScriptedServer(
        ["21"], faults=[Fault(429, error("slow down"), headers={"retry-after": "120"})]
    ) as server:
        run, _ = run_once(model_at(server.base_url))
    assert (run.status, "it asks to wait 120 s" in run.reason) == ("failed", True)


@pytest.mark.parametrize(("provider", "known", "advice"), [
    ("openai", {"OPENAI_API_KEY": "sk-secret"}, "the key is that of OPENAI_API_KEY"),
    ("openai", {"OPENAI_API_KEY": " "}, "no key was sent: set OPENAI_API_KEY"),
    ("gemini", {"GEMINI_API_KEY": "", "GOOGLE_API_KEY": "sk-secret"}, "the key is that of GOOGLE_API_KEY"),
    ("anthropic", {}, "no key was sent: set ANTHROPIC_API_KEY"),
])  # fmt: skip
def test_a_refused_key_is_named_by_the_variable_that_it_came_from(
    provider, known, advice
):
    with ScriptedServer(["21"], faults=[Fault(401, error("bad key"))]) as server:
        run, _ = run_once(
            PROVIDERS[provider](f"scripted@{server.base_url}", environment=known)
        )
    assert run.reason.endswith(f"; {advice}")


def test_a_server_that_is_down_is_named():
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{free.getsockname()[1]}/v1"
    run, _ = run_once(model_at(url))
    assert run.status == "failed"
    assert run.reason.startswith(
        f"scripted at {url}/chat/completions: it cannot be reached"
    )
    assert run.reason.endswith("; is the server running?")


# -- servers below HTTP ------------------------------------------------------------------------------------------------


@contextmanager
def raw_server(*answers):
    """A server that reads each request and then does as it is told, connection by connection, the last one again."""
    seen = []
    with socket.create_server(("127.0.0.1", 0)) as listening:

        def serve():
            while True:
                try:
                    connection, _ = listening.accept()
                except OSError:
                    return
                with connection:
                    seen.append(read_request(connection))
                    answers[min(len(seen), len(answers)) - 1](connection)

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        try:
            yield f"http://127.0.0.1:{listening.getsockname()[1]}/v1", seen
        finally:
            listening.shutdown(socket.SHUT_RDWR)
    thread.join(BOUND_S)


def read_request(connection):
    """Read all of it and return its head: a connection closed with something unread is reset, its answer lost."""
    received = b""
    while b"\r\n\r\n" not in received:
        received += connection.recv(65536)
    head, _, body = received.partition(b"\r\n\r\n")
    length = next(
        int(line.split(b":")[1])
        for line in head.lower().split(b"\r\n")
        if line.startswith(b"content-length")
    )
    while len(body) < length:
        body += connection.recv(65536)
    return head


def chunked(*pieces):
    head = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
    return head + b"".join(b"%x\r\n%s\r\n" % (len(piece), piece) for piece in pieces)


def saying(data):
    return lambda connection: connection.sendall(data)


WHOLE = (
    PIECE.encode(),
    b'data: {"choices":[{"index":0,"delta":{"content":"lo"},"finish_reason":"stop"}]}\n\n',
    b"data: [DONE]\n\n",
    b"",
)


def test_a_connection_lost_after_a_piece_was_told_ends_the_run():
    with raw_server(saying(chunked(PIECE.encode()))) as (url, seen):
        run, events = run_once(model_at(url), streamed=True)
    assert (run.status, len(seen)) == ("failed", 1)
    assert "cannot be reached" in run.reason
    assert Streamed(TextDelta("Hel"), run_id=run.id) in events


def test_a_connection_lost_before_the_first_piece_is_tried_again():
    with raw_server(saying(chunked()), saying(chunked(*WHOLE))) as (url, seen):
        run, _ = run_once(model_at(url), streamed=True)
    assert (run.text, len(seen)) == ("Hello", 2)


def test_no_http_at_all_is_told():
    with raw_server(saying(b"SSH-2.0-OpenSSH_9.6\r\n")) as (url, _):
        run, _ = run_once(model_at(url))
    assert (run.status, "cannot be reached" in run.reason) == ("failed", True)


def test_an_answer_that_drips_is_read_to_its_end():
    def drip(connection):
        for byte in chunked(*WHOLE):
            connection.sendall(bytes([byte]))

    with raw_server(drip) as (url, _):
        run, events = run_once(model_at(url), streamed=True)
    assert run.text == "Hello"
    assert [event.delta.text for event in events if isinstance(event, Streamed)] == [
        "Hel",
        "lo",
    ]


@pytest.mark.parametrize("said", [b"", chunked(PIECE.encode())])
def test_a_server_that_falls_silent_is_left_when_the_run_s_time_is_over(said):
    closed = threading.Event()

    def fall_silent(connection):
        connection.sendall(said)
        connection.settimeout(BOUND_S)
        if connection.recv(1) == b"":
            closed.set()

    with raw_server(fall_silent) as (url, _):
        run, _ = run_once(model_at(url), streamed=True, budget=hr.Budget(time_s=1.0))
        assert (run.status, run.reason) == (
            "budget",
            "the model did not answer within the run's time",
        )
        assert closed.wait(BOUND_S)


def test_a_stream_that_never_ends_and_never_says_anything_is_left_when_the_run_s_time_is_over():
    def babble(connection):
        connection.sendall(chunked())
        while True:
            connection.sendall(b"4\r\n: x\n\r\n" * 1000)

    def until_it_is_left(connection):
        with suppress(OSError):
            babble(connection)

    with raw_server(until_it_is_left) as (url, _):
        run, _ = run_once(model_at(url), streamed=True, budget=hr.Budget(time_s=1.0))
    assert (run.status, run.reason) == (
        "budget",
        "the model did not answer within the run's time",
    )


def test_a_stream_may_be_no_longer_than_any_answer_and_is_shown_in_part(monkeypatch):
    monkeypatch.setattr(http_model, "_MOST_ANSWER_BYTES", 3 << 20)
    monkeypatch.setattr(http_model, "_MOST_SHOWN_BYTES", 10)
    with ScriptedServer(
        ["21"], faults=[Fault(200, ": x\n" * (1 << 20), headers=STREAM)]
    ) as server:
        run, events = run_once(model_at(server.base_url), streamed=True)
    (exchange,) = [event for event in events if isinstance(event, HttpExchange)]
    assert (run.status, "longer than 3 MB" in run.reason) == ("failed", True)
    assert exchange.answer.startswith(": x\n: x\n: \n[... 3")


def test_the_type_of_an_answer_is_read_in_any_case():
    done = (
        PIECE + 'data: {"choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}\n\n'
    )
    with ScriptedServer(
        [], faults=[Fault(200, done, headers={"content-type": "Text/Event-Stream"})]
    ) as server:
        run, _ = run_once(model_at(server.base_url), streamed=True)
    assert run.text == "Hel"


ODD = {
    "content": "\ud800",
    "reasoning": "\udfff",
    "reasoning_details": [{"type": "\ud800", "x": float("nan")}],
}
ODD_CALL = {
    "id": "\ud800", "function": {"name": "f\udc00", "arguments": '{"a": "\ud800"}'},
    "extra_content": {"deep": json.loads("[" * 400 + "]" * 400)},
}  # fmt: skip
ODD_USAGE = {"prompt_tokens": 10**400, "completion_tokens": -1}


@pytest.mark.parametrize("form", ["whole", "streamed"])
def test_no_answer_of_a_model_makes_a_run_raise(form):
    message = {"role": "assistant", **ODD, "tool_calls": [ODD_CALL]}
    key = "delta" if form == "streamed" else "message"
    body = json.dumps(
        {
            "choices": [{"index": 0, key: message, "finish_reason": "tool_calls"}],
            "usage": ODD_USAGE,
        }
    )
    fault = (
        Fault(200, f"data: {body}\n\n", headers=STREAM)
        if form == "streamed"
        else Fault(200, body)
    )
    with ScriptedServer(["done"], faults=[fault]) as server:
        budget = hr.Budget(cost=1e30, price_per_million=(1, 1))
        run, _ = run_once(
            model_at(server.base_url), streamed=form == "streamed", budget=budget
        )
    assert (run.status, run.text) == ("done", "done")


def test_a_conversation_that_cannot_be_written_ends_the_run_and_an_option_is_a_mistake():
    with ScriptedServer(["21"]) as server:
        model = model_at(server.base_url)
        for question, extra, raised in (
            ("\ud800", {}, ModelError),
            ("?", {"x": "\ud800"}, ConfigError),
        ):
            with pytest.raises(raised, match="cannot be written as JSON"):
                model.body(
                    Request([UserMessage(question)], (), Options(extra=extra), 1.0),
                    False,
                )


def test_a_cancelled_run_closes_its_connection():
    gate, closed = Gate(), threading.Event()

    def hold(connection):
        gate.entered += 1
        connection.settimeout(BOUND_S)
        if connection.recv(1) == b"":
            closed.set()

    with raw_server(hold) as (url, _), hr.SyncRuntime([]) as runtime:
        threading.Thread(
            target=lambda: (gate.wait_for(), runtime.cancel("r")), daemon=True
        ).start()
        run = runtime.run("?", model=model_at(url), run_id="r")
        assert run.status == "cancelled"
        assert closed.wait(BOUND_S)


# -- what is sent ------------------------------------------------------------------------------------------------------


@hr.tool(effect="read")
async def get_weather(city: str) -> dict:
    """Get the weather."""
    return {"city": city, "celsius": 21}


def test_keys_are_masked_wherever_an_exchange_is_shown():
    with ScriptedServer(["21"]) as server:
        model = openai(
            "scripted", base_url=server.base_url, api_key="sk-secret\n", environment={}
        )
        run, events = run_once(model, streamed=True)
    (exchange,) = [event for event in events if isinstance(event, HttpExchange)]
    assert run.text == "21"
    assert exchange.headers["authorization"] == "Bearer ***"
    assert "sk-secret" not in repr(events)


def test_an_exchange_shows_no_secret_of_the_address_and_no_header_of_unknown_meaning():
    with ScriptedServer(["21"]) as server:
        url = server.base_url.replace("://", "://me:sk-a@") + "?key=sk-b"
        headers = {"x-gateway": "sk-c", "cookie": "k=sk-d; x", "Accept": "*/*"}
        model = HttpModel("scripted", hr.dialect("openai-compatible"), url, headers)
        run, events = run_once(model, streamed=True)
    (exchange,) = [event for event in events if isinstance(event, HttpExchange)]
    assert run.text == "21"
    assert "sk-" not in repr(events) + repr(model)
    assert exchange.headers == {
        "content-type": "application/json", "user-agent": "handrail", "x-gateway": "***", "cookie": "***",
        "Accept": "*/*",
    }  # fmt: skip


QUOTING = error("the key sk-secret-1 of sk-secret-2 at sk-secret-3 is bad")


@pytest.mark.parametrize("fault", [
    Fault(401, QUOTING),
    Fault(200, QUOTING),
    Fault(200, f"data: {QUOTING}\n\n", headers=STREAM),
    Fault(500, "sk-secret-1 sk-secret-2 sk-secret-3"),
])  # fmt: skip
@pytest.mark.parametrize("streamed", [False, True])
def test_a_key_that_the_server_quotes_is_masked_in_the_reason_and_in_what_is_shown(
    fault, streamed
):
    with ScriptedServer(["21"], faults=[fault] * 3) as server:
        url = (
            server.base_url.replace("://", "://me:sk-secret-2@")
            + "?key=sk-secret-3&api-version=2024-06-01"
        )
        run, events = run_once(
            model_at(url, headers={"authorization": "Bearer sk-secret-1"}),
            streamed=streamed,
        )
    assert (run.status, "sk-secret" in repr(events) + repr(run) + run.reason) == (
        "failed",
        False,
    )
    assert "***" in run.reason


def test_an_address_with_a_key_is_asked_whole_and_logged_without_it(caplog):
    refused = b"HTTP/1.1 400 No\r\ncontent-length: 0\r\nconnection: close\r\n\r\n"
    with raw_server(saying(refused)) as (url, heads), caplog.at_level("INFO"):
        run_once(
            model_at(
                url.replace("://", "://me:sk-secret-2@") + "/a%2Fb?key=sk-secret-3"
            )
        )
    assert "/v1/a%2Fb/chat/completions" in caplog.text
    assert "sk-secret" not in caplog.text
    assert heads[0].startswith(
        b"POST /v1/a%2Fb/chat/completions?key=sk-secret-3 HTTP/1.1"
    )
    assert b64encode(b"me:sk-secret-2") in heads[0]


def test_a_header_that_cannot_be_written_is_told_without_its_text():
    with ScriptedServer(["21"]) as server:
        run, _ = run_once(
            model_at(server.base_url, headers={"authorization": "Bearer sk-secret\nx"})
        )
    assert (
        run.status,
        "cannot be written" in run.reason,
        "sk-secret" in run.reason,
    ) == ("failed", True, False)


@pytest.mark.parametrize(("name", "environment", "words"), [
    ("gpt-5", {}, "set OPENAI_API_KEY"),
    ("gpt-5", {"OPENAI_API_KEY": "sk-schlüssel"}, "no header can carry"),
    ("gpt-5@localhost:8000/v1", {}, "does not begin with http"),
])  # fmt: skip
def test_a_model_that_cannot_be_set_up_says_what_to_do(name, environment, words):
    with pytest.raises(ConfigError, match=words) as raised:
        openai(name, environment=environment)
    assert "schlüssel" not in str(raised.value)


def test_tools_that_change_between_two_turns_are_sent_as_they_are():
    tools = hr.Toolset([get_weather])

    def forget(messages):
        tools.remove("get_weather")
        return call("get_weather", city="Oslo")

    with ScriptedServer([call("get_weather", city="Oslo"), forget, "done"]) as server:

        async def main():
            async with hr.Runtime(tools) as runtime:
                return await runtime.run("?", model=server.model)

        run = asyncio.run(main())
    assert run.ok
    assert [len(request.get("tools", [])) for request in server.requests] == [1, 1, 0]


def test_many_questions_at_once_over_one_model():
    with ScriptedServer([lambda messages: messages[0].text]) as server:

        async def main():
            async with hr.Runtime([]) as runtime:
                return await asyncio.gather(
                    *(runtime.run(str(n), model=server.model) for n in range(12))
                )

        runs = asyncio.run(main())
    assert [run.text for run in runs] == [str(n) for n in range(12)]


def test_two_event_loops_share_a_model():
    with ScriptedServer([lambda messages: messages[0].text]) as server:
        model, both, answers = model_at(server.base_url), threading.Barrier(2), {}

        def ask(who):
            async def main():
                async with hr.Runtime([]) as runtime:
                    for n in range(5):
                        both.wait(BOUND_S)
                        answers[who, n] = (
                            await runtime.run(f"{who}{n}", model=model)
                        ).text
                    both.wait(BOUND_S)
                    await model.aclose()

            asyncio.run(main())

        threads = [threading.Thread(target=ask, args=(who,)) for who in "ab"]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(BOUND_S)
    assert answers == {(who, n): f"{who}{n}" for who in "ab" for n in range(5)}


@pytest.mark.parametrize("address", [
    "http://host:port/v1", "http://[::1/v1", "http://", "https:///v1", "http://:8000/v1", "http://host:65536/v1",
])  # fmt: skip
def test_an_address_that_is_none_is_a_mistake_in_the_set_up(address):
    with pytest.raises(hr.ConfigError, match="is no address"):
        Engine().resolve_model(f"openai:x@{address}")


@pytest.mark.parametrize(("model", "lacks"), [
    ("gpt", "provider"), (":gpt", "provider"), ("", "provider"), ("openai:", "name behind its provider"),
])  # fmt: skip
def test_a_model_that_is_half_named_is_told_which_half_is_missing(model, lacks):
    with pytest.raises(hr.ConfigError, match=f"has no {lacks}; write `provider:name`"):
        Engine().resolve_model(model)


@pytest.mark.parametrize("address", [
    "http://me:sk-secret@host:port/v1", "http://me:sk-sec#ret@host/v1", "me:sk-secret@host/v1",
    "ftp://host/v1?key=sk-secret", "http://me:sk-secret@[::1/v1?key=sk-secret",
])  # fmt: skip
def test_an_address_that_is_none_is_told_without_its_secrets(address):
    with pytest.raises(hr.ConfigError, match="the address '") as caught:
        Engine().resolve_model(f"openai:x@{address}")
    assert "sk-sec" not in str(caught.value)
