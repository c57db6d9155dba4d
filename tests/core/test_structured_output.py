"""Answers of a given form: the same model class on every wire, in every way, with every kind of type."""

import asyncio
import dataclasses
import json
from datetime import date
from enum import Enum
from typing import Literal, TypedDict

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel, Field, RootModel, field_validator

import handrail as hr
from handrail.core import structured_output
from handrail.errors import Code, Failure
from handrail.events import AnswerRefused, AnswerTaken, AskedOtherwise
from handrail.messages import (
    AssistantMessage,
    Output,
    SystemMessage,
    ToolMessage,
    Turn,
    UserMessage,
)
from handrail.testing import WIRES, Fault, ScriptedModel, ScriptedServer, call

WAYS = ("native", "tool", "prompt")


class Report(BaseModel):
    """The weather of one place."""

    city: str
    celsius: float = Field(ge=-90, le=60)
    note: str | None = None


GOOD = {"city": "北京", "celsius": 21.5}
COLD = {"city": "北京", "celsius": -300}


@hr.tool(effect="read")
async def get_weather(city: str) -> dict:
    """Get the weather of a city."""
    return {"city": city, "celsius": 21.5}


def said(way, answer, tool="answer"):
    """What a model says that answers in a way."""
    return (
        call(tool, **answer)
        if way == "tool"
        else json.dumps(answer, ensure_ascii=False)
    )


def refusals(driver):
    return [event.failure.message for event in driver.told(AnswerRefused)]


# ---------------------------------------------------------------------- one class, every wire, every way


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("wire", WIRES)
def test_one_class_is_answered_on_every_wire_in_every_way(drive, wire, way):
    with ScriptedServer(
        [call("get_weather", city="北京"), said(way, COLD), said(way, GOOD)], wire=wire
    ) as server:
        driver = drive([get_weather])
        run = driver.run(
            "How warm is it?", model=server.model, output=hr.Form(Report, by=way)
        )
    assert (run.status, run.output) == ("done", Report(city="北京", celsius=21.5))
    assert json.loads(run.text) == GOOD
    assert [event.way for event in driver.told(AnswerTaken)] == [way]
    assert refusals(driver) == ["`celsius` must be at least -90; it was -300."]
    assert "`celsius` must be at least -90" in json.dumps(server.requests[-1])


@pytest.mark.parametrize("wire", WIRES)
def test_the_way_is_chosen_by_what_the_wire_can_do(drive, wire):
    with ScriptedServer([said("native", GOOD)], wire=wire) as server:
        run = drive([]).run("?", model=server.model, output=Report)
    assert run.output == Report(**GOOD)


@pytest.mark.parametrize(("model", "way"), [
    (hr.dialect("openai-chat"), "native"),
    # some ignore `response_format` in silence
    (hr.dialect("openai-compatible"), "prompt"),
    (ScriptedModel([]), "prompt"),
])  # fmt: skip
def test_a_dialect_says_which_way_suits_it_and_others_are_told_in_the_prompt(
    model, way
):
    assert structured_output.find_way(model) == way


def test_a_model_s_way_is_that_of_its_wire():
    class Behind:
        wire = hr.dialect("openai-chat")

    assert structured_output.find_way(Behind()) == "native"


def test_a_stream_ends_with_the_value_too(drive):
    driver = drive([])
    with ScriptedServer([said("native", GOOD)]) as server:
        if driver.kind == "sync":
            stream = driver.runtime.stream("?", model=server.model, output=Report)
            while True:
                try:
                    next(stream)
                except StopIteration as over:
                    run = over.value
                    break
        else:

            async def streamed():
                stream = driver.runtime.stream("?", model=server.model, output=Report)
                async for _ in stream:
                    pass
                return stream.run

            run = asyncio.run_coroutine_threadsafe(streamed(), driver._loop).result(20)
    assert run.output == Report(**GOOD)


# ---------------------------------------------------------------------- every kind of form


class Colour(Enum):
    RED = "red"
    BLUE = "blue"


@dataclasses.dataclass
class Point:
    x: int
    when: date


class Entry(TypedDict):
    name: str


class Names(RootModel[list[str]]):
    pass


class Node(BaseModel):
    name: str
    inner: list["Node"] = []


class Opaque:
    """Nothing that JSON could hold."""


SCHEMA = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}


@pytest.mark.parametrize(("form", "spoken", "value"), [
    (Report, GOOD, Report(**GOOD)),
    (Point, {"x": 1, "when": "2026-11-21"}, Point(1, date(2026, 11, 21))),
    (Entry, {"name": "a"}, {"name": "a"}),
    (Node, {"name": "a", "inner": [{"name": "b"}]}, Node(name="a", inner=[Node(name="b")])),
    # no object: it stands under one name
    (list[int], {"value": [1, 2]}, [1, 2]),
    (Colour, {"value": "red"}, Colour.RED),
    (Literal["yes", "no"], {"value": "no"}, "no"),
    (int | None, {"value": None}, None),
    (Names, {"value": ["a"]}, Names(["a"])),
    (dict[str, int], {"value": {"a": 1}}, {"a": 1}),
    (Report | Entry, {"value": {"name": "a"}}, {"name": "a"}),
    (SCHEMA, {"n": 3}, {"n": 3}),
    ({"type": "array", "items": {"$ref": "#/$defs/n"}, "$defs": {"n": {"type": "integer"}}}, {"value": [1]}, [1]),
    ({"enum": ["a", 1]}, {"value": 1}, 1),
])  # fmt: skip
@pytest.mark.parametrize("way", WAYS)
def test_a_form_is_any_type_that_json_can_hold(drive, way, form, spoken, value):
    run = drive([]).run(
        "?", model=ScriptedModel([said(way, spoken)]), output=hr.Form(form, by=way)
    )
    assert (run.status, run.output) == ("done", value)
    assert type(run.output) is type(value)


@pytest.mark.parametrize(
    "form", [Report, list[int], Point, SCHEMA, {"type": "string"}, Node, Report | Entry]
)
def test_what_the_model_is_told_is_one_closed_object(form):
    schema = structured_output.plan(form).schema
    assert (schema["type"], "properties" in schema) == ("object", True)


@pytest.mark.parametrize(
    "form",
    [object(), Opaque, {"type": "nonsense"}, {"type": "object", "properties": 3}],
)
def test_a_form_that_cannot_be_described_is_refused_before_the_model_is_asked(
    drive, form
):
    model = ScriptedModel(["?"])
    with pytest.raises(hr.ConfigError, match="cannot be described to a model"):
        drive([]).run("?", model=model, output=form)
    assert model.requests == []


def test_no_attempt_at_all_is_a_mistake_in_the_set_up():
    with pytest.raises(hr.ConfigError, match="at least one"):
        structured_output.track_output(hr.Form(Report, max_attempts=0), "prompt")


# ---------------------------------------------------------------------- answers that do not fit


class Even(BaseModel):
    n: int

    @field_validator("n")
    @classmethod
    def _is_even(cls, n):
        if n % 2:
            raise ValueError("an odd number")
        return n


@pytest.mark.parametrize(("form", "text", "told"), [
    (Report, '{"city": "Oslo"}', "`celsius` is required"),
    # both fields are named
    (Report, '{"city": 1, "celsius": "warm"}', "`city`"),
    (Report, '{"city": 1, "celsius": "warm"}', "`celsius`"),
    # never dropped in silence
    (Report, '{"city": "Oslo", "celsius": 1, "kelvin": 2}', "`kelvin`"),
    (Even, '{"n": 3}', "an odd number"),
    (Report, "It is warm.", "The answer cannot be read"),
    (Report, "", "It was empty"),
    (Report, '["Oslo", 1]', "The answer cannot be read"),
    (Report, '{"city": "Oslo", "celsius": 1', "The answer ends too early"),
])  # fmt: skip
def test_an_answer_that_does_not_fit_goes_back_with_the_reason(drive, form, text, told):
    model = ScriptedModel([text, "?"])
    run = drive([]).run(
        "?", model=model, output=hr.Form(form, by="native", max_attempts=2)
    )
    spoken = model.requests[1].messages[-1]
    assert isinstance(spoken, UserMessage)
    assert told in spoken.text
    assert "rgument" not in spoken.text
    assert run.status == "invalid"


@pytest.mark.parametrize("way", WAYS)
def test_a_model_that_never_fits_the_form_ends_the_run_with_a_reason_and_keeps_its_text(
    drive, way
):
    driver = drive([])
    model = ScriptedModel([said(way, COLD)])
    run = driver.run("?", model=model, output=hr.Form(Report, by=way))
    assert (run.status, run.output, run.ok) == ("invalid", None, False)
    assert run.reason == (
        "no answer had the form that was asked for in 3 attempts: `celsius` must be at least -90; it was -300."
    )
    assert json.loads(run.text) == COLD
    assert (len(model.requests), len(refusals(driver))) == (3, 3)


@pytest.mark.parametrize(("turn", "status"), [
    (Turn('{"city": "Oslo"', finish="length"), "cut"),
    (Turn(refusal="I cannot help."), "refused"),
    (Turn('{"city": "Oslo"', finish="error"), "failed"),
])  # fmt: skip
def test_an_answer_that_is_none_ends_the_run_as_without_a_form(drive, turn, status):
    run = drive([]).run(
        "?", model=ScriptedModel([turn]), output=hr.Form(Report, by="native")
    )
    assert (run.status, run.output, run.text) == (status, None, turn.text)


def test_the_budget_ends_a_run_before_its_attempts_do(drive):
    run = drive([]).run(
        "?", model=ScriptedModel(["no"]), output=Report, budget=hr.Budget(turns=2)
    )
    assert (run.status, run.text) == ("budget", "no")


# ---------------------------------------------------------------------- what is read, and what is not


@pytest.mark.parametrize(("text", "native", "prompt"), [
    ('{"n": 1}', (), ()),
    ("{'n': 1,}", ("single_quotes", "trailing_comma"), ("single_quotes", "trailing_comma")),
    ('{"n": "1"}', ("text_to_integer:n",), ("text_to_integer:n",)),
    ('```json\n{"n": 1}\n```', ("code_fence",), ("code_fence",)),
    ('Here you are:\n{"n": 1}', None, ("text_before",)),
    ('Here you are:\n```json\n{"n": 1}\n```\nAnything else?', None, ("text_before", "text_after", "code_fence")),
    ('<think>\nn is {1}\n</think>\n\n{"n": 1}', None, ("text_before",)),
    ('Answer: {"n": 1}', None, ("text_before",)),
    ('[{"n": 1}]', None, None),                   # a list of one is no object
    ('{"n": 1}\nAnything else?', None, ("text_after",)),
    ('{"n" 1}', None, None),                      # a guess is a guess in every way
    ('{"n": 1} or {"n": 2}', None, None),
])  # fmt: skip
def test_words_around_an_answer_are_passed_over_only_where_the_form_was_told_in_the_prompt(
    text, native, prompt
):
    plan = structured_output.plan(SCHEMA)
    for words_around, repairs in ((False, native), (True, prompt)):
        read = plan.read(text, words_around=words_around)
        assert (None if isinstance(read, Failure) else tuple(read.repairs)) == repairs


PIECES = st.sampled_from(
    [
        "{",
        "}",
        "[",
        '"n"',
        ":",
        " 1",
        "```",
        "json",
        "<think>",
        "</think>",
        "Sure",
        ",",
        "\n",
        "'",
        "\\",
    ]
)


@given(st.lists(PIECES, max_size=14).map("".join))
def test_whatever_a_model_says_is_a_value_of_the_form_or_a_reason(text):
    plan = structured_output.plan(SCHEMA)
    for words_around in (False, True):
        match plan.read(text, words_around=words_around):
            case structured_output.Answer(value=value):
                assert value == {"n": value["n"]}
                assert isinstance(value["n"], int)
            case Failure(message=message, suggestion=suggestion):
                assert message and suggestion


def test_a_validator_that_breaks_on_an_answer_does_not_break_the_run(drive, caplog):
    class Brittle(BaseModel):
        n: int

        @field_validator("n")
        @classmethod
        def _looks_up(cls, n):
            return {1: "one"}[n]

    run = drive([]).run("?", model=ScriptedModel(['{"n": 2}']), output=Brittle)
    assert (run.status, "could not be checked" in run.reason) == ("invalid", True)
    assert "KeyError" in caplog.text


def test_what_was_mended_in_an_answer_is_told(drive):
    driver = drive([])
    driver.run("?", model=ScriptedModel(["Sure: {'n': 1}"]), output=SCHEMA)
    assert [event.repairs for event in driver.told(AnswerTaken)] == [
        ("text_before", "single_quotes")
    ]


# ---------------------------------------------------------------------- beside tools


def test_the_tool_that_stands_for_the_answer_takes_a_name_that_is_free(drive):
    mine = hr.FunctionTool(lambda: "mine", name="answer", effect="read")
    model = ScriptedModel([call("answer"), call("answer_2", **GOOD)])
    run = drive([mine]).run("?", model=model, output=hr.Form(Report, by="tool"))
    assert run.output == Report(**GOOD)
    assert [tool.name for tool in model.requests[0].tools] == ["answer", "answer_2"]
    assert [m.result.text for m in run.messages if isinstance(m, ToolMessage)] == [
        "mine",
        "The answer is taken.",
    ]


@pytest.mark.parametrize(
    ("tools", "choice"), [([], "answer"), ([get_weather], "required")]
)
def test_a_model_is_made_to_call_the_answer_or_another_tool(drive, tools, choice):
    model = ScriptedModel([call("answer", **GOOD)])
    drive(tools).run("?", model=model, output=hr.Form(Report, by="tool"))
    assert model.requests[0].options.tool_choice == choice


def test_an_answer_beside_calls_is_not_taken_and_the_calls_are_carried_out(drive):
    both = [call("answer", **GOOD), call("get_weather", city="北京")]
    model = ScriptedModel([both, call("answer", **GOOD)])
    run = drive([get_weather]).run("?", model=model, output=hr.Form(Report, by="tool"))
    results = [
        message.result for message in run.messages if isinstance(message, ToolMessage)
    ]
    assert [result.call_id for result in results[:2]] == [each.id for each in both]
    assert (results[0].failure.code, results[1].value["city"]) == (
        Code.RULE_VIOLATED,
        "北京",
    )
    assert (run.status, run.output, run.spent.calls) == ("done", Report(**GOOD), 1)


def test_a_call_that_waits_for_a_person_outweighs_an_answer_beside_it(drive):
    drop = hr.FunctionTool(lambda: 1, name="drop", effect="destructive")
    model = ScriptedModel([[call("answer", **GOOD), call("drop")]])
    run = drive([drop]).run(
        "?", model=model, output=hr.Form(Report, by="tool", max_attempts=1)
    )
    assert run.status == "waiting"


def test_an_answer_spends_none_of_the_run_s_calls(drive):
    model = ScriptedModel([call("get_weather", city="北京"), call("answer", **GOOD)])
    run = drive([get_weather]).run(
        "?", model=model, output=hr.Form(Report, by="tool"), budget=hr.Budget(calls=1)
    )
    assert (run.status, run.spent.calls) == ("done", 1)


def test_a_text_of_the_form_is_taken_where_a_call_was_asked_for(drive):
    run = drive([]).run(
        "?", model=ScriptedModel([json.dumps(GOOD)]), output=hr.Form(Report, by="tool")
    )
    assert run.output == Report(**GOOD)


def test_a_text_without_the_form_is_told_to_be_a_call(drive):
    model = ScriptedModel(["It is warm.", call("answer", **GOOD)])
    drive([]).run("?", model=model, output=hr.Form(Report, by="tool"))
    assert "Call `answer` with it" in model.requests[1].messages[-1].text


def test_a_conversation_goes_on_after_an_answer_by_a_tool(drive):
    driver, form = drive([]), hr.Form(Report, by="tool")
    first = driver.run("?", model=ScriptedModel([call("answer", **GOOD)]), output=form)
    model = ScriptedModel(["never", "You are welcome."])
    again = driver.run([*first.messages, UserMessage("Thanks.")], model=model)
    assert again.text == "You are welcome."
    assert [type(message) for message in model.requests[0].messages] == [
        UserMessage, AssistantMessage, ToolMessage, UserMessage,
    ]  # fmt: skip


def test_the_prompt_tells_the_form_in_the_one_system_message_and_the_run_keeps_its_own(
    drive,
):
    model = ScriptedModel([said("prompt", GOOD)])
    run = drive([]).run("?", model=model, system="Be brief.", output=Report)
    system = model.requests[0].messages[0]
    assert system.text.startswith("Be brief.\n\nAnswer with one JSON object")
    assert '"celsius"' in system.text
    assert run.messages[0] == SystemMessage("Be brief.")


# ---------------------------------------------------------------------- a server that refuses


REFUSED = Fault(
    400,
    json.dumps(
        {"error": {"message": "response_format is not supported", "type": "invalid"}}
    ),
)


class Native:
    """A model that is asked natively though its server is any."""

    def __init__(self, asked):
        self.name, self._asked, self.output_by = "native", asked, "native"

    async def ask(self, request, listener=None):
        return await self._asked.ask(request, listener)

    async def aclose(self):
        await self._asked.aclose()


def natively(driver, server):
    return Native(driver.runtime._engine.resolve_model(server.model))


@pytest.mark.parametrize(("faults", "ways"), [
    ([REFUSED], [("native", "tool")]),
    ([REFUSED, REFUSED], [("native", "tool"), ("tool", "prompt")]),
])  # fmt: skip
def test_a_server_that_refuses_one_way_is_asked_in_the_next(drive, faults, ways):
    driver = drive([get_weather])
    way = ways[-1][1]
    with ScriptedServer([said(way, GOOD)], faults=faults) as server:
        run = driver.run("?", model=natively(driver, server), output=Report)
    assert (run.status, run.output) == ("done", Report(**GOOD))
    assert [(event.way, event.now) for event in driver.told(AskedOtherwise)] == ways
    assert ["response_format" in body for body in server.requests] == [True] + [
        False
    ] * len(faults)


def test_a_server_that_refuses_every_way_ends_the_run_with_its_reason(drive):
    driver = drive([])
    with ScriptedServer(["?"], faults=[REFUSED] * 9) as server:
        run = driver.run("?", model=natively(driver, server), output=Report)
    assert (run.status, "response_format is not supported" in run.reason) == (
        "failed",
        True,
    )
    assert len(server.requests) == 3


def test_a_way_that_the_engineer_chose_is_not_left(drive):
    with ScriptedServer(["?"], faults=[REFUSED]) as server:
        run = drive([]).run(
            "?", model=server.model, output=hr.Form(Report, by="native")
        )
    assert (run.status, len(server.requests)) == ("failed", 1)


def test_a_refusal_after_an_answer_in_that_way_is_about_something_else(drive):
    driver = drive([get_weather])
    with ScriptedServer(
        [call("get_weather", city="Oslo"), "?"], faults=[None, REFUSED]
    ) as server:
        run = driver.run("?", model=natively(driver, server), output=Report)
    assert (run.status, len(server.requests)) == ("failed", 2)


# ---------------------------------------------------------------------- how a run shows it


def test_a_run_s_document_holds_the_value_as_json(drive):
    run = drive([]).run(
        "?", model=ScriptedModel(['{"x": 1, "when": "2026-11-21"}']), output=Point
    )
    assert run.as_json()["output"] == {"x": 1, "when": "2026-11-21"}
    assert "output" not in drive([]).run("?", model=ScriptedModel(["hi"])).as_json()


def test_openai_s_strict_mode_is_asked_for_where_it_can_say_all_of_the_schema():
    wire = hr.dialect("openai-chat")

    def format_of(form):
        plan = structured_output.plan(form)
        options = hr.Options(output=Output(plan.schema, plan.name))
        return wire.encode_request("?", (), options)["response_format"]["json_schema"]

    strict = format_of(Report)
    assert (strict["name"], strict["strict"], strict["schema"]["required"]) == (
        "Report", True, ["city", "celsius", "note"],
    )  # fmt: skip
    asked = {
        "messages": [],
        "response_format": {"type": "json_schema", "json_schema": strict},
    }
    assert wire.decode_request(asked)[2].output == Output(strict["schema"], "Report")
    # an object with names of any kind cannot be said there
    loose = format_of(dict[str, int])
    assert ("strict" in loose, loose["name"]) == (False, "answer")


def test_a_null_that_strict_mode_demands_is_the_default_again(drive):
    class Paged(BaseModel):
        limit: int = 10

    run = drive([]).run(
        "?",
        model=ScriptedModel(['{"limit": null}']),
        output=hr.Form(Paged, by="native"),
    )
    assert run.output == Paged(limit=10)


@pytest.mark.parametrize(
    ("by", "advice"),
    [("tol", "did you mean 'tool'?"), ("xml", "it is one of native, tool")],
)
def test_a_way_to_an_answer_that_there_is_not_is_refused_when_the_form_is_made(
    by, advice
):
    with pytest.raises(hr.ConfigError) as refused:
        hr.Form(Report, by=by)
    assert advice in str(refused.value)
