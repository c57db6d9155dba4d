"""Open models behind raw completion endpoints, against a server that goes on with any prompt."""

import asyncio
import json
import re
from datetime import date

import pytest

import handrail as hr
from handrail.core.retries import Backoff
from handrail.dialects import dialect
from handrail.events import Streamed
from handrail.messages import ArgumentsDelta, Options, Output, Turn, Usage, UserMessage
from handrail.models.providers import PROVIDERS
from handrail.ports import Request
from handrail.testing import Fault, ScriptedServer, call
from handrail_openmodels import parts
from handrail_openmodels.completion import COMPLETIONS, CompletionModel
from tests.support.drivers import BOUND_S
from tests.support.effort import volume

FAMILIES = ("hermes", "llama3", "mistral")


def one_that_writes_alike(names):
    """Return the families; those whose calls have the form of an earlier one's are volume."""
    seen, cases = set(), []
    for name in names:
        syntax = dialect(name).syntax
        form = (*map(type, syntax.formats), type(syntax.channels))
        cases.append(pytest.param(name, marks=volume if form in seen else []))
        seen.add(form)
    return cases


@hr.tool(effect="read")
def get_weather(city: str) -> str:
    """Get the weather of a city."""
    return f"21 °C in {city}"


def run_with(
    server,
    *,
    tools=(get_weather,),
    model=None,
    streamed=False,
    question="How warm is it?",
    **how,
):
    """One run on a scripted server; with `streamed` somebody listens."""
    events = []

    async def main():
        async with hr.Runtime(
            list(tools), observers=[events.append] if streamed else ()
        ) as runtime:
            try:
                return await asyncio.wait_for(
                    runtime.run(question, model=model or server.model, **how), BOUND_S
                )
            finally:
                if model is not None:
                    await model.aclose()

    return asyncio.run(main()), events


def raw(server, family="hermes", *, ollama=False, **how):
    """A model of the family at the server, which retries at once and lives on a fixed day."""
    address = server.base_url.removesuffix("/v1") + ("/api" if ollama else "/v1")
    how = {"backoff": Backoff(0.001, 0.001), "today": lambda: date(2026, 11, 20), **how}
    return CompletionModel("scripted", hr.dialect(family), address, {}, **how)


@pytest.mark.parametrize("streamed", [False, True])
@pytest.mark.parametrize("ollama", [False, True])
@pytest.mark.parametrize("family", FAMILIES)
def test_a_conversation_of_ten_turns_with_tools_runs_on_prompts_alone(
    family, ollama, streamed
):
    cities = [f"City {number} 北京" for number in range(10)]
    script = [*(call("get_weather", city=city) for city in cities), "All warm."]
    with ScriptedServer(script, wire=family) as server:
        run, _ = run_with(
            server, model=raw(server, family, ollama=ollama), streamed=streamed
        )
    assert (run.status, run.text, len(server.requests)) == ("done", "All warm.", 11), (
        run
    )
    last = server.requests[-1]["prompt"]
    assert all(last.count(f"21 °C in {city}") == 1 for city in cities)
    assert {path.rpartition("/")[2] for path in server.paths} == {
        "generate" if ollama else "completions"
    }


# ---------------------------------------------------------------------- what is sent


def asked(server):
    return server.requests[-1]


def test_a_model_is_named_by_its_family_and_its_server():
    with ScriptedServer(
        [call("get_weather", city="Paris"), "It is warm."], wire="hermes"
    ) as server:
        run, _ = run_with(server)
        assert server.model == f"hermes:scripted@{server.base_url}"
    assert run.text == "It is warm."
    assert server.paths == ["/v1/completions"] * 2
    assert asked(server)["prompt"].endswith(
        "</tool_response><|im_end|>\n<|im_start|>assistant\n"
    )


@pytest.mark.parametrize(
    "address",
    ["http://localhost:8000", "http://localhost:8000/v1", "http://localhost:8000/v1/"],
)
def test_the_address_is_taken_with_or_without_its_version(address):
    model = COMPLETIONS["hermes"](f"qwen3@{address}", environment={})
    assert model.url(False) == "http://localhost:8000/v1/completions"


@pytest.mark.parametrize(
    "address", ["http://localhost:11434/api", "http://localhost:11434/api/generate"]
)
def test_an_address_that_ends_in_api_is_ollama_s(address):
    model = COMPLETIONS["llama3"](f"llama3.2@{address}", environment={})
    assert model.url(True) == "http://localhost:11434/api/generate"


def test_without_an_address_the_server_is_the_one_on_this_machine():
    assert (
        COMPLETIONS["hermes"]("qwen3", environment={}).url(False)
        == "http://localhost:8000/v1/completions"
    )


def test_a_key_goes_to_the_server_if_there_is_one():
    model = COMPLETIONS["hermes"]("qwen3", environment={"COMPLETION_API_KEY": "k"})
    assert model._headers["authorization"] == "Bearer k"


@pytest.mark.parametrize(
    ("family", "first"), [("llama3", "<|begin_of_text|>"), ("mistral", "<s>")]
)
def test_the_first_token_is_left_to_the_server(family, first):
    with ScriptedServer(["Warm."], wire=family) as server:
        run_with(server, model=raw(server, family))
    assert hr.dialect(family).encode_request("Hi").startswith(first)
    assert not asked(server)["prompt"].startswith(first)


def test_a_server_is_told_where_to_stop_and_to_show_the_tokens_that_open_a_call():
    with ScriptedServer(["Warm."], wire="mistral") as server:
        run_with(server, model=raw(server, "mistral"))
    assert asked(server)["stop"] == ["</s>"]
    assert asked(server)["skip_special_tokens"] is False
    assert "[TOOL_CALLS]" in asked(server)["preserved_tokens"]
    assert asked(server)["max_tokens"] >= 1024  # not the endpoint's own 16


def test_ollama_gets_the_prompt_raw_and_what_else_it_knows_by_its_own_words():
    with ScriptedServer(["Warm."], wire="hermes") as server:
        run_with(server, model=raw(server, ollama=True))
    body = asked(server)
    assert (body["raw"], body["stream"], body["options"]["stop"]) == (
        True,
        False,
        ["<|im_end|>", "<|endoftext|>"],
    )
    assert "max_tokens" not in body


def test_a_prompt_tells_today_s_date():
    days = iter([date(2026, 11, 20), date(2026, 11, 21)])
    with ScriptedServer(["Warm."], wire="llama3") as server:
        model = raw(server, "llama3", today=lambda: next(days))
        ask(model, Request([UserMessage("Hi")], []))
        ask(model, Request([UserMessage("Hi")], []))
    assert [
        re.findall(r"Today Date: (.*)", body["prompt"]) for body in server.requests
    ] == [
        ["20 Nov 2026"],
        ["21 Nov 2026"],
    ]


def ask(model, request, listener=None):
    """One question, without a runtime."""

    async def main():
        try:
            return await asyncio.wait_for(model.ask(request, listener), BOUND_S)
        finally:
            await model.aclose()

    return asyncio.run(main())


SCHEMA = {"type": "object", "properties": {"degrees": {"type": "number"}}}


@pytest.mark.parametrize("ollama", [False, True])
def test_a_server_holds_the_answer_to_its_form_where_no_call_may_come(ollama):
    with ScriptedServer(['{"degrees": 21}'], wire="hermes") as server:
        model = raw(server, ollama=ollama)
        ask(model, Request([UserMessage("Hi")], [], Options(output=Output(SCHEMA))))
        ask(
            model,
            Request([UserMessage("Hi")], [get_weather], Options(output=Output(SCHEMA))),
        )
    held, free = (
        {*body} & {"format", "response_format", "json_schema"}
        for body in server.requests
    )
    assert held == ({"format"} if ollama else {"response_format", "json_schema"})
    assert free == set()  # the grammar of the answer would forbid every call
    assert all(json.dumps(SCHEMA) in body["prompt"] for body in server.requests)


@pytest.mark.parametrize("streamed", [False, True])
def test_a_call_that_is_demanded_is_opened_in_the_prompt_and_read_with_the_server_s_words(
    streamed,
):
    rest = ' {"city": "Paris"}}\n</tool_call>'
    body = (
        text_completion(rest)
        if not streamed
        else f"data: {text_completion(rest)}\n\ndata: [DONE]\n\n"
    )
    kind = {"content-type": "text/event-stream" if streamed else "application/json"}
    with ScriptedServer(
        [""], wire="hermes", faults=[Fault(200, body, headers=kind)]
    ) as server:
        heard = Heard()
        turn = ask(
            raw(server),
            Request(
                [UserMessage("Hi")], [get_weather], Options(tool_choice="get_weather")
            ),
            heard if streamed else None,
        )
    assert asked(server)["prompt"].endswith(
        '<tool_call>\n{"name": "get_weather", "arguments":'
    )
    assert [(each.name, json.loads(each.arguments)) for each in turn.calls] == [
        ("get_weather", {"city": "Paris"})
    ]


@pytest.mark.parametrize("family", one_that_writes_alike(parts.PROMPTS))
def test_a_scripted_server_goes_on_with_a_call_that_the_prompt_has_opened(family):
    with ScriptedServer([call("get_weather", city="Paris")], wire=family) as server:
        request = Request(
            [UserMessage("Hi")], [get_weather], Options(tool_choice="get_weather")
        )
        turn = ask(raw(server, family), request)
    assert [(each.name, json.loads(each.arguments)) for each in turn.calls] == [
        ("get_weather", {"city": "Paris"})
    ]


@pytest.mark.parametrize("family", ["llama3", "harmony", "react", "hermes"])
def test_calls_side_by_side_run_on_a_family_that_knows_one_call_an_answer(family):
    calls = [call("get_weather", city="Paris"), call("get_weather", city="Lyon")]
    with ScriptedServer([calls, calls, "Both warm."], wire=family) as server:
        run, _ = run_with(server, model=raw(server, family))
    assert (run.status, run.text, len(server.requests)) == ("done", "Both warm.", 3), (
        run
    )


class Heard:
    """Listens, and keeps what it heard."""

    def __init__(self):
        self.deltas = []

    def delta(self, delta):
        self.deltas.append(delta)

    def exchange(self, exchange):
        pass


def text_completion(text, finish="stop"):
    return json.dumps(
        {"choices": [{"index": 0, "text": text, "finish_reason": finish}]}
    )


# ---------------------------------------------------------------------- what comes back


def test_text_and_arguments_are_heard_while_they_arrive():
    script = [
        call("get_weather", city="a city with a long name"),
        "It is warm in there.",
    ]
    with ScriptedServer(script, wire="hermes") as server:
        run, events = run_with(server, streamed=True)
    pieces = [event.delta.text for event in events if isinstance(event, Streamed)]
    arguments = [
        event
        for event in events
        if isinstance(event, Streamed) and isinstance(event.delta, ArgumentsDelta)
    ]
    assert run.status == "done"
    assert len(arguments) > 2
    assert "".join(pieces).endswith("It is warm in there.")


@pytest.mark.parametrize("streamed", [False, True])
@pytest.mark.parametrize("ollama", [False, True])
@pytest.mark.parametrize(("fault", "status", "words", "requests"), [
    (Fault(503, '{"error": "loading model"}'), "done", "", 2),
    (Fault(404, '{"error": "model not found"}'), "failed", "not found", 1),
    (Fault(400, '{"error": {"message": "too long", "type": "exceed_context_size_error"}}'), "failed", "too long", 1),
    (Fault(200, "<html>proxy</html>"), "failed", "cannot be read", 1),
    (Fault(200, "{}"), "failed", "cannot be read", 1),
    (Fault(200, '{"error": {"message": "busy", "type": "overloaded_error"}}'), "done", "", 2),
    (Fault(body=None), "done", "", 2),
])  # fmt: skip
def test_what_a_server_may_do_ends_in_an_answer_or_in_one_reason(
    fault, status, words, requests, ollama, streamed
):
    with ScriptedServer(["Warm."], wire="hermes", faults=[fault]) as server:
        run, _ = run_with(server, model=raw(server, ollama=ollama), streamed=streamed)
    assert (run.status, words in run.reason, len(server.requests)) == (
        status,
        True,
        requests,
    ), run


@pytest.mark.parametrize(("body", "kind", "ollama"), [
    ('data: {"choices": [{"text": "Hel"}]}\n\n', "text/event-stream", False),
    ('{"response": "Hel", "done": false}\n', "application/x-ndjson", True),
])  # fmt: skip
def test_a_stream_that_ends_without_a_reason_broke_off(body, kind, ollama):
    with ScriptedServer(
        [""], wire="hermes", faults=[Fault(200, body, headers={"content-type": kind})]
    ) as server:
        run, _ = run_with(server, model=raw(server, ollama=ollama), streamed=True)
    assert (run.status, "broke off" in run.reason) == ("failed", True), run


@pytest.mark.parametrize("ollama", [False, True])
def test_an_error_in_mid_stream_is_told(ollama):
    lines = ['{"response": "Hel", "done": false}\n', '{"error": "out of memory"}\n']
    events = [
        'data: {"choices": [{"text": "Hel"}]}\n\n',
        'data: {"error": {"message": "out of memory"}}\n\n',
    ]
    kind = {"content-type": "application/x-ndjson" if ollama else "text/event-stream"}
    fault = Fault(200, "".join(lines if ollama else events), headers=kind)
    with ScriptedServer([""], wire="hermes", faults=[fault]) as server:
        run, _ = run_with(server, model=raw(server, ollama=ollama), streamed=True)
    assert (run.status, "out of memory" in run.reason) == ("failed", True), run


CUT = '<tool_call>\n{"name": "get_weather", "arguments": {"city": "Par'


def test_a_call_that_was_cut_never_runs_and_the_model_is_told():
    fault = Fault(200, text_completion(CUT, "length"))
    with ScriptedServer(["I was cut."] * 2, wire="hermes", faults=[fault]) as server:
        run, _ = run_with(server, model=raw(server))
    assert "TRUNCATED_CALL" in asked(server)["prompt"]
    assert "°C" not in asked(server)["prompt"]
    assert run.text == "I was cut."


def test_a_mark_that_a_server_leaves_at_the_end_is_no_text():
    with ScriptedServer(
        [""], wire="hermes", faults=[Fault(200, text_completion("Warm.<|im_end|>"))]
    ) as server:
        assert ask(raw(server), Request([UserMessage("Hi")], [])).text == "Warm."


@pytest.mark.parametrize("ollama", [False, True])
@pytest.mark.parametrize("streamed", [False, True])
def test_tokens_are_counted_as_the_server_tells_them(streamed, ollama):
    with ScriptedServer([Turn("Warm.", usage=Usage(120, 7))], wire="hermes") as server:
        turn = ask(
            raw(server, ollama=ollama),
            Request([UserMessage("Hi")], []),
            Heard() if streamed else None,
        )
    assert (turn.usage.input_tokens, turn.usage.output_tokens) == (120, 7)


@pytest.mark.parametrize(
    "family",
    one_that_writes_alike(name for name in parts.PROMPTS if name not in FAMILIES),
)
def test_every_other_family_calls_a_tool_and_answers(family):
    with ScriptedServer(
        [call("get_weather", city="北京"), "Warm."], wire=family
    ) as server:
        run, _ = run_with(server, streamed=True)
    assert (run.status, run.text) == ("done", "Warm."), run
    assert "21 °C in 北京" in asked(server)["prompt"]


# ---------------------------------------------------------------------- held to a grammar

FIELDS = ("structured_outputs", "response_format", "grammar", "json_schema")


@hr.tool(effect="read")
def list_cities() -> list[str]:
    """List the cities that are known."""
    return ["Paris"]


@pytest.mark.parametrize(
    ("engine", "field"),
    [
        ("vllm", "structured_outputs"),
        ("sglang", "response_format"),
        ("llama.cpp", "grammar"),
    ],
)
def test_a_server_gets_the_grammar_of_the_tools_as_its_one_constraint(engine, field):
    with ScriptedServer(
        [call("get_weather", city="Paris"), "Warm."], wire="hermes"
    ) as server:
        run, _ = run_with(server, model=raw(server, engine=engine))
    assert (run.status, run.text) == ("done", "Warm.")
    for body in server.requests:
        assert [each for each in FIELDS if each in body] == [field]
        assert "get_weather" in json.dumps(body[field])


def test_a_provider_whose_server_writes_the_calls_refuses_a_grammar():
    with pytest.raises(hr.ConfigError, match="openai:qwen3 takes no grammar"):
        PROVIDERS["openai"](
            "qwen3@http://localhost:8000/v1?grammar=vllm", environment={}
        )


def test_a_tool_that_may_not_be_called_now_is_not_in_the_grammar():
    flow = [hr.Forbid("get_weather", until="list_cities")]
    script = [call("list_cities"), call("get_weather", city="Paris"), "Warm."]
    with ScriptedServer(script, wire="hermes") as server:
        run, _ = run_with(
            server,
            model=raw(server, engine="llama.cpp"),
            tools=(get_weather, list_cities),
            flow=flow,
        )
    assert run.text == "Warm."
    grammars = [body["grammar"] for body in server.requests]
    assert ["get_weather" in each for each in grammars] == [False, True, True]
    assert all("get_weather" in body["prompt"] for body in server.requests)


def test_a_required_call_is_demanded_by_the_grammar_and_not_opened_by_the_prompt():
    script = [call("get_weather", city="Paris"), "Warm."]
    with ScriptedServer(script, wire="hermes") as server:
        run, _ = run_with(
            server,
            model=raw(server, engine="llama.cpp"),
            tools=(get_weather, list_cities),
            flow=[hr.Require("get_weather", turn=1)],
        )
    assert run.text == "Warm."
    first, second = server.requests
    assert first["prompt"].endswith("<|im_start|>assistant\n")
    assert "list_cities" not in first["grammar"]
    assert "list_cities" in second["grammar"]


def test_the_form_of_an_answer_is_the_one_constraint_where_nothing_may_be_called():
    form = Output({"type": "object", "properties": {"n": {"type": "integer"}}})
    for engine, field in (
        ("vllm", "structured_outputs"),
        ("sglang", "response_format"),
        ("llama.cpp", "json_schema"),
    ):
        with ScriptedServer(['{"n": 1}'], wire="hermes") as server:
            model = raw(server, engine=engine)
            run_with(server, model=model, tools=(), options=Options(output=form))
        body = server.requests[0]
        assert [each for each in FIELDS if each in body] == [field]


def test_a_server_that_refuses_a_grammar_is_named_to_the_engineer():
    with ScriptedServer(["Warm."], wire="hermes", faults=[Fault(400, "{}")]) as server:
        run, _ = run_with(server, model=raw(server, engine="vllm"))
    assert run.status == "failed"
    assert "grammar=vllm,optional" in run.reason


def test_a_run_goes_on_without_a_grammar_where_the_engineer_said_so():
    with ScriptedServer(["Warm."], wire="hermes", faults=[Fault(400, "{}")]) as server:
        model = raw(server, engine="vllm", optional=True)
        run, _ = run_with(server, model=model)
    assert run.text == "Warm."
    held = ["structured_outputs" in body for body in server.requests]
    assert held == [True, False]


def test_the_word_in_the_address_is_ours_and_is_not_sent():
    make = COMPLETIONS["hermes"]
    model = make("m@http://localhost:1/v1?a=b&grammar=vllm", environment={})
    assert model.url(False) == "http://localhost:1/v1/completions?a=b"
    assert model.wire.engine == "vllm"


@pytest.mark.parametrize(
    ("address", "words"),
    [
        ("http://localhost:1/v1?grammar=wllm", "names no server"),
        ("http://localhost:1/v1?grammar=vllm,maybe", "is not understood"),
        ("http://localhost:1/api?grammar=vllm", "Ollama takes no grammar"),
    ],
)
def test_an_address_with_a_grammar_that_nobody_takes_is_refused(address, words):
    with pytest.raises(hr.ConfigError, match=words):
        COMPLETIONS["hermes"](f"m@{address}", environment={})
