"""Tools as an MCP server lists them: the official types take them, and the hints say what the tool declares."""

from typing import Annotated

import mcp_types
import pytest
from pydantic import BaseModel, Field

import handrail as hr
from handrail.dialects.wires.mcp import NAMES
from tests.support import corpus


class Weather(BaseModel):
    """How it is."""

    celsius: float


def get_weather(city: Annotated[str, Field(min_length=1)], days: int = 1) -> Weather:
    """Get the weather of a city."""
    return Weather(celsius=21.5 * days)


def listed(tool: hr.FunctionTool) -> dict:
    [told] = hr.Toolset([tool]).definitions("mcp")
    return told


def hints(tool: hr.FunctionTool) -> mcp_types.ToolAnnotations:
    return mcp_types.Tool.model_validate(listed(tool)).annotations


def test_a_tool_is_told_whole():
    tool = hr.FunctionTool(get_weather, effect="read")
    told = mcp_types.Tool.model_validate(listed(tool))
    assert (told.name, told.title, told.description) == (
        "get_weather",
        "Get weather",
        "Get the weather of a city.",
    )
    assert told.input_schema == tool.parameters
    assert told.output_schema["properties"] == {
        "celsius": {"title": "Celsius", "type": "number"}
    }


@pytest.mark.parametrize(("declared", "is_read", "destroys", "repeats"), [
    ({"effect": "read"}, True, False, True),
    ({"effect": "write"}, False, False, False),
    ({"effect": "write", "key": "w:{city}"}, False, False, True),
    ({"effect": "destructive", "key": "w:{city}"}, False, True, False),
    ({}, False, True, False),
])  # fmt: skip
def test_the_hints_say_what_is_declared_and_else_the_worst(
    declared, is_read, destroys, repeats
):
    told = hints(hr.FunctionTool(get_weather, **declared))
    assert (told.read_only_hint, told.destructive_hint, told.idempotent_hint) == (
        is_read,
        destroys,
        repeats,
    )
    assert told.open_world_hint is True


@pytest.mark.parametrize("returns", [str, list[int], None])
def test_what_is_no_object_has_no_output_schema(returns):
    def tell():
        """Tell."""

    tell.__annotations__["return"] = returns
    assert "outputSchema" not in listed(hr.FunctionTool(tell, effect="read"))


@pytest.mark.parametrize(("name", "title"), [
    ("user_info.get", "User info get"),
    ("getWeather", "Get weather"),
    ("GET", "GET"),
    ("user_ID", "User ID"),
    ("createPR", "Create PR"),
    ("HTTPGet", "HTTP get"),
    ("S3Upload", "S3 upload"),
    ("查询天气", "查询天气"),
])  # fmt: skip
def test_a_title_is_the_name_as_people_read_it(name, title):
    told = listed(hr.FunctionTool(get_weather, name=name))
    assert told["title"] == title
    assert NAMES.accepts(told["name"])


def test_the_list_is_made_once_for_each_state_of_the_set():
    tools = hr.Toolset([get_weather])
    assert tools.definitions("mcp") is tools.definitions("mcp")


def test_no_model_is_asked_in_it():
    with pytest.raises(hr.ConfigError, match="there is no dialect 'mcp'"):
        hr.dialect("mcp")


def test_what_real_servers_list_is_listed_again():
    rows = corpus.rows("mcp_tools/tools.jsonl")
    for row in rows:
        tool = hr.FunctionTool(
            lambda **given: given, name=row["name"], description=row["description"] or "", effect="read",
            parameters=row["input_schema"],
        )  # fmt: skip
        told = mcp_types.Tool.model_validate(listed(tool))
        assert told.input_schema["type"] == "object"
        assert (told.name, told.description) == (row["name"], tool.description)
    assert len(rows) > 400
