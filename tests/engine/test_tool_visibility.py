"""What models are shown of many tools, and what they may call all the same: whole runs, in both drivers."""

import json

import pytest

import handrail as hr
from handrail.errors import Code
from handrail.events import ToolsSelected
from handrail.messages import ToolMessage
from handrail.ports import Selection
from handrail.selectors.bm25 import Bm25
from handrail.selectors.strategies import (
    Automatic,
    Ranked,
    Searching,
    TwoStage,
    tokens,
)
from handrail.testing import ScriptedModel, ScriptedServer, call
from tests.selectors.tools import FEW, WEATHER, described, two_hundred

QUESTION = "Approve the lease of the Hanoi office."
WANTED = "approve_lease_hanoi"
DONE = "It is approved."


def shown(model):
    """Return the names that each request told."""
    return [[tool.name for tool in request.tools] for request in model.requests]


def results_of(run):
    return [
        message.result for message in run.messages if isinstance(message, ToolMessage)
    ]


def told(body):
    """Return the names in a request body of the chat wire."""
    return [tool["function"]["name"] for tool in body.get("tools", [])]


def tokens_of(body):
    return len(json.dumps(body["tools"], ensure_ascii=False)) // 4


# -- the choice that is made without being asked for -------------------------------------------------------------------


def test_few_tools_are_all_shown_and_nothing_is_said_of_it(drive):
    model, driver = ScriptedModel(["Hello."]), drive(FEW)
    driver.run(QUESTION, model=model)
    assert shown(model) == [[tool.name for tool in FEW]]
    assert driver.told(ToolsSelected) == []


def test_of_many_tools_those_that_the_question_is_about_are_shown(drive):
    model, driver = (
        ScriptedModel([call(WANTED, record_id="LEA-1"), DONE]),
        drive(two_hundred()),
    )
    run = driver.run(QUESTION, model=model)
    assert (run.text, results_of(run)[0].value["record_id"]) == (DONE, "LEA-1")
    assert all(WANTED in names and len(names) == 9 for names in shown(model))
    assert shown(model)[0] == shown(model)[1]
    (first, second) = driver.told(ToolsSelected)
    assert (first.turn, first.strategy, first.of, first.tools) == (
        1,
        "search",
        200,
        shown(model)[0],
    )
    assert second.turn == 2


def test_a_question_is_ranked_in_the_first_turn_only(drive):
    ranked = []

    class Noting(Bm25):
        def top(self, query, k=5):
            ranked.append(query)
            return super().top(query, k)

    model = ScriptedModel([call(WANTED, record_id="LEA-1"), DONE])
    driver = drive(two_hundred(), selector=Ranked(Noting))
    for question in (QUESTION, QUESTION, "Lists the offices."):
        driver.run(question, model=model)
    assert ranked == [QUESTION, "Lists the offices."]
    assert all(WANTED in names for names in shown(model)[:4])


def test_few_tools_with_long_definitions_are_too_many(drive):
    long = [
        described(
            f"read_{n}", "Read a shelf. " + "It holds papers of many kinds. " * 150
        )
        for n in range(12)
    ]
    assert tokens(long) > 10_000
    model = ScriptedModel(["Hello."])
    drive(long).run("What is on the shelf?", model=model)
    assert "search_tools" in shown(model)[0]


def test_a_tool_that_has_the_name_of_ours_is_left_alone(drive):
    model = ScriptedModel(["Hello."])
    drive([*two_hundred(), described("search_tools", "Find drills and hammers.")]).run(
        QUESTION, model=model
    )
    assert len(shown(model)[0]) == 201


def test_a_tool_that_has_the_name_of_ours_is_told_where_ours_was_asked_for(drive):
    tools = [described("search_tools", "Find drills and hammers."), *FEW]
    with pytest.raises(
        hr.DuplicateToolError,
        match=r"'search_tools', which the selector 'search' offers",
    ):
        drive(tools, selector="search").run(QUESTION, model=ScriptedModel(["Hello."]))


# -- the choice by hand ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("selector", "count"), [("all", 200), ("bm25", 10), ("search", 9), ("two-stage", 1)]
)
def test_a_runtime_and_a_run_can_say_how_tools_are_chosen(drive, selector, count):
    by_runtime, by_run = ScriptedModel(["Hello."]), ScriptedModel(["Hello."])
    drive(two_hundred(), selector=selector).run(QUESTION, model=by_runtime)
    drive(two_hundred()).run(QUESTION, model=by_run, selector=selector)
    assert [len(names) for names in shown(by_runtime) + shown(by_run)] == [count, count]


def test_a_name_that_no_selector_has_is_refused_at_once():
    with pytest.raises(hr.ConfigError, match=r"no selector 'bm52'.*bm25"):
        hr.Runtime(FEW, selector="bm52")


def test_what_is_no_selector_is_refused_at_once():
    with pytest.raises(hr.ConfigError, match="needs `name`"):
        hr.Runtime(FEW, selector=lambda tools, messages: tools)


class Broken:
    name, waits = "broken", True

    def select(self, tools, messages):
        raise RuntimeError("a secret")

    def own_tools(self, tools):
        return ()


def test_a_selector_that_raises_ends_the_run_with_a_reason_that_tells_nothing_of_it(
    drive,
):
    run = drive(FEW).run("?", model=ScriptedModel(["Hello."]), selector=Broken())
    assert (run.status, run.reason) == (
        "failed",
        "the selector broken raised RuntimeError",
    )


class Widening(Broken):
    name, waits = "widening", False

    def select(self, tools, messages):
        return Selection("widening", ["wipe", "get_weather", "no_such_tool"])


def test_a_selector_cannot_show_what_the_policy_hides(drive):
    wipe = hr.FunctionTool(lambda: 1, name="wipe", permission="admin")
    model = ScriptedModel([call("wipe"), "ok"])
    run = drive([wipe, *FEW], selector=Widening()).run("?", model=model)
    assert shown(model)[0] == ["get_weather"]
    assert results_of(run)[0].failure.code == Code.NOT_PERMITTED


def test_the_tool_that_must_be_called_is_shown(drive):
    model = ScriptedModel(["Hello."])
    options = hr.Options(tool_choice="merge_survey_quito")
    drive(two_hundred()).run(QUESTION, model=model, options=options)
    assert "merge_survey_quito" in shown(model)[0]


# -- what was not shown ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("selector", ["auto", "bm25", "search", "two-stage"])
def test_a_tool_that_was_not_shown_can_be_called_and_is_shown_from_then_on(
    drive, selector
):
    model = ScriptedModel([call("merge_survey_quito", record_id="SUR-1"), DONE])
    run = drive(two_hundred(), selector=selector).run(QUESTION, model=model)
    assert results_of(run)[0].ok
    assert [("merge_survey_quito" in names) for names in shown(model)] == [False, True]


def test_a_name_near_one_that_was_not_shown_is_refused_with_that_one(drive):
    model = ScriptedModel([call("merge_surveys_quito", record_id="SUR-1"), DONE])
    run = drive(two_hundred()).run(QUESTION, model=model)
    failure = results_of(run)[0].failure
    assert failure.code == Code.UNKNOWN_TOOL
    assert "`merge_survey_quito`" in failure.suggestion


def test_a_long_result_can_be_read_on_though_few_tools_are_shown(drive):
    long = hr.FunctionTool(
        lambda: "x" * 50_000,
        name="read_archive",
        description="Read the archive.",
        effect="read",
    )
    model = ScriptedModel([call("read_archive"), DONE])
    drive([long, *two_hundred()]).run("Read the archive.", model=model)
    assert ["read_result" in names for names in shown(model)] == [False, True]


# -- searching and loading ---------------------------------------------------------------------------------------------


def test_a_model_finds_a_tool_by_searching_and_calls_it(drive):
    script = [
        call("search_tools", query="approve lease hanoi"),
        call(WANTED, record_id="LEA-1"),
        DONE,
    ]
    model = ScriptedModel(script)
    run = drive(two_hundred(), selector=Searching(most=0)).run(
        "Please do as agreed.", model=model
    )
    found, done = results_of(run)
    assert WANTED in found.value["tools"] and len(found.value["tools"]) == 5
    assert (done.value["done"], run.text) == (WANTED, DONE)
    assert [len(names) for names in shown(model)] == [1, 6, 6]


def test_a_search_that_finds_nothing_says_what_to_do(drive):
    model = ScriptedModel([call("search_tools", query="zebra"), "No."])
    run = drive(two_hundred(), selector="search").run(QUESTION, model=model)
    assert results_of(run)[0].value["tools"] == []
    assert "other words" in results_of(run)[0].value["note"]


def test_a_search_finds_nothing_that_the_policy_hides(drive):
    wipe = hr.FunctionTool(
        lambda: 1, name="wipe_disk", description="Wipe a disk.", permission="admin"
    )
    model = ScriptedModel([call("search_tools", query="wipe disk"), "No."])
    run = drive([wipe, *two_hundred()], selector="search").run("?", model=model)
    assert results_of(run)[0].value["tools"] == []


def test_a_model_loads_tools_and_groups_from_the_list(drive):
    load = call("load_tools", names=["get_weather", "hanoi office", "get_wether"])
    model = ScriptedModel([load, call(WANTED, record_id="LEA-1"), DONE])
    run = drive([WEATHER, *two_hundred()], selector="two-stage").run(
        QUESTION, model=model
    )
    loaded, done = results_of(run)
    assert (len(loaded.value["loaded"]), loaded.value["unknown"]) == (
        51,
        {"get_wether": ["get_weather"]},
    )
    assert done.ok
    assert [len(names) for names in shown(model)] == [1, 52, 52]
    (listing,) = model.requests[0].tools
    assert "[hanoi office] 50 tools\n" in listing.description
    assert f"{WANTED}: Approve one lease of the Hanoi office." in listing.description


def test_a_list_too_long_tells_groups_only(drive):
    (tool,) = TwoStage(most_lines=100).own_tools(hr.Toolset([WEATHER, *two_hundred()]))
    lines = tool.description.splitlines()
    assert "[quito office] 50 tools" in lines
    assert "get_weather: Get the current weather of a city." in lines
    assert len(lines) == 6


def test_tools_that_come_later_are_found_by_the_next_search(drive):
    tools = hr.Toolset(two_hundred())

    def learn(messages):
        tools.add(WEATHER)
        return call("search_tools", query="weather")

    model = ScriptedModel([call("search_tools", query="weather"), learn, DONE])
    run = drive(tools).run(QUESTION, model=model)
    assert [list(result.value["tools"]) for result in results_of(run)] == [
        [],
        ["get_weather"],
    ]


def test_what_was_found_stays_shown_after_its_result_was_folded_away():
    """What is shown follows from the calls, which are never folded, and from nothing that a process remembers."""
    tools = hr.Toolset(two_hundred())
    search = hr.Turn(
        calls=[call("search_tools", query="approve lease hanoi")], finish="calls"
    )
    for selector in (Searching(most=0), Searching(most=0)):
        selection = selector.select(
            tools, [hr.UserMessage("Go on."), hr.AssistantMessage(search)]
        )
        assert WANTED in selection.names


@pytest.mark.parametrize("arguments", ["{", "[]", '{"query": 3}', "{}"])
def test_a_search_that_cannot_be_read_shows_nothing_more(arguments):
    search = hr.Turn(
        calls=[hr.ToolCall("c", "search_tools", arguments)], finish="calls"
    )
    selection = Searching(most=0).select(
        hr.Toolset(FEW), [hr.UserMessage("?"), hr.AssistantMessage(search)]
    )
    assert selection.names == ("search_tools",)


def test_a_loop_of_ones_own_can_let_the_model_search(drive):
    message = {"role": "assistant", "tool_calls": [{
        "id": "c1", "type": "function",
        "function": {"name": "search_tools", "arguments": '{"query": "approve lease hanoi"}'},
    }]}  # fmt: skip
    (reply,) = drive(two_hundred()).handle(message)
    assert WANTED in reply["content"]


def test_the_tools_of_a_selector_are_unknown_where_all_are_shown(drive):
    assert (
        drive(FEW).call("search_tools", {"query": "weather"}).failure.code
        == Code.UNKNOWN_TOOL
    )


# -- what it saves -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("selector", "script", "most"), [
    ("auto", [call(WANTED, record_id="LEA-1"), DONE], 0.06),
    (Searching(most=0), [call("search_tools", query=QUESTION), call(WANTED, record_id="LEA-1"), DONE], 0.04),
    ("two-stage", [call("load_tools", names=[WANTED]), call(WANTED, record_id="LEA-1"), DONE], 0.25),
])  # fmt: skip
def test_a_turn_over_200_tools_costs_a_fraction_of_their_definitions(
    selector, script, most
):
    """Measured on the wire: 200 definitions are about 26,000 tokens in every turn."""
    sent = {}
    for each, lines in (
        ("all", [call(WANTED, record_id="LEA-1"), DONE]),
        (selector, script),
    ):
        with (
            ScriptedServer(lines) as server,
            hr.SyncRuntime(two_hundred(), selector=each) as runtime,
        ):
            run = runtime.run(QUESTION, model=server.model)
            assert (run.text, results_of(run)[-1].value["done"]) == (DONE, WANTED)
            sent[each] = [tokens_of(body) for body in server.requests]
            assert WANTED in told(server.requests[-1])
    assert min(sent["all"]) > 20_000
    assert max(sent[selector]) < most * min(sent["all"]), sent


def test_all_or_some_is_decided_by_number_and_by_cost():
    tools = hr.Toolset(FEW)
    assert not Automatic().chooses(tools)
    assert Automatic(most_tools=4).chooses(tools)
    assert Automatic(most_tokens=100).chooses(tools)
