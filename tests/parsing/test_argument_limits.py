"""How much a call's arguments may hold, and that copying and following them takes time by their size and no more."""

import json

import pytest

import handrail as hr
from handrail.core import planning
from handrail.core.admission import ParsedCall, parse_call
from handrail.errors import ConfigError, ToolDefinitionError
from handrail.parsing import strictjson
from handrail.testing.contracts.dialects import check_growth
from handrail.tools.toolset import Toolset

ANYTHING = {"type": "object", "properties": {"values": {}}}


def keeping(**declared):
    return hr.FunctionTool(
        lambda **given: "kept",
        name="keep",
        description="Keep.",
        parameters=ANYTHING,
        **{"effect": "read", **declared},
    )


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ("x" * 1024 * 1024, "take 1,048,590 bytes; at most 1,048,576 are taken"),
        ("界" * 400_000, "take 1,200,014 bytes; at most 1,048,576 are taken"),
        ([1] * 10_000, "hold more than 10,000 keys and items"),
        (
            {str(number): 1 for number in range(10_000)},
            "hold more than 10,000 keys and items",
        ),
        ([[1, 2]] * 4000, "hold more than 10,000 keys and items"),
    ],
    ids=["bytes", "wide", "items", "keys", "inside"],
)
def test_arguments_beyond_the_limits_of_their_tool_are_refused_in_one_sentence(
    drive, values, said
):
    result = drive([keeping()]).call("keep", {"values": values})
    assert (result.failure.code, result.attempts) == ("INVALID_ARGUMENTS", 0)
    assert said in result.failure.message
    assert len(result.text) < 400


@pytest.mark.parametrize(
    "values", ["x" * 1_048_560, "界" * 300_000, [1] * 9_999, [[1]] * 4_999]
)
def test_arguments_up_to_the_limits_are_taken(drive, values):
    assert drive([keeping()]).call("keep", {"values": values}).text == "kept"


def test_a_tool_may_take_more_or_less(drive):
    driver = drive([keeping(limits=hr.Limits(argument_bytes=2_000_000))])
    assert driver.call("keep", {"values": "x" * 1_900_000}).ok
    driver = drive([keeping(limits=hr.Limits(argument_bytes=1024))])
    assert not driver.call("keep", {"values": "x" * 1024}).ok


@pytest.mark.parametrize("argument_bytes", [100, None])
def test_a_limit_that_no_call_would_keep_to_is_refused(argument_bytes):
    with pytest.raises(ToolDefinitionError, match="argument_bytes"):
        keeping(limits=hr.Limits(argument_bytes=argument_bytes))


def test_a_list_written_as_text_counts_as_what_it_is_read_as(drive):
    tool = hr.FunctionTool(
        lambda **given: "kept",
        name="keep",
        description="Keep.",
        parameters={"type": "object", "properties": {"values": {"type": "array"}}},
        effect="read",
    )
    failure = drive([tool]).call("keep", {"values": json.dumps([1] * 10_000)}).failure
    assert "hold more than 10,000 keys and items" in failure.message


@pytest.mark.parametrize("text", ["null", "", "{}"])
def test_null_stands_for_no_arguments_where_none_are_required(text):
    found = parse_call(
        hr.ToolCall("c", "keep", text), Toolset([keeping(effect="write")]), "calls"
    )
    assert isinstance(found, ParsedCall) and found.arguments == {}


def test_null_is_refused_where_an_argument_is_required():
    def find(city: str) -> str:
        """Find a city."""
        return city

    found = parse_call(
        hr.ToolCall("c", "find", "null"),
        Toolset([hr.FunctionTool(find, effect="read")]),
        "calls",
    )
    assert found.code == "BAD_JSON"


def test_a_dict_that_is_nested_too_deep_is_one_clear_error(drive):
    deep: dict = {}
    for _ in range(200_000):  # Python 3.14 encodes 5,000
        deep = {"values": deep}
    with pytest.raises(ConfigError, match="nested too deep"):
        drive([keeping()]).call("keep", deep)


def test_a_copy_of_json_shares_nothing_that_can_be_changed():
    value = {"a": [{"b": [1]}], "c": "x"}
    copy = strictjson.copy(value)
    copy["a"][0]["b"].append(2)
    assert value == {"a": [{"b": [1]}], "c": "x"}


@pytest.mark.slow
def test_following_references_grows_with_the_number_of_calls_and_no_faster():
    def following(size):
        ids = [f"c{number}" for number in range(size)]
        values = [{number - 1: "x"} for number in range(size)]

        def follow():
            places = planning.positions(ids)
            for number in range(1, size):
                planning.fill_references(
                    {"text": f"$var{number}$"}, places, values[number], number
                )

        return follow

    check_growth(following, 20_000)


def test_a_reference_names_the_nearest_earlier_call_of_an_id_that_is_there_twice():
    places = planning.positions(["a", "b", "a", "a"])
    values = {0: "first", 2: "second", 3: "third"}
    assert planning.fill_references({"x": {"$call": "a"}}, places, values, 3) == {
        "x": "second"
    }
    assert planning.fill_references({"x": {"$call": "a"}}, places, values, 1) == {
        "x": "first"
    }
