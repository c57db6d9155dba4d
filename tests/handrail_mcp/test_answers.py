"""What a client reads of a result."""

from dataclasses import dataclass
from typing import Annotated, Literal

import pydantic
import pytest
from mcp import Client, types

import handrail as hr
from handrail.calls import Media, ToolResult
from handrail_mcp.answers import is_never_cut, write_answer
from tests.handrail_mcp.reaching import NEW, text_of

LIMIT = 16 * 1024


class Order(pydantic.BaseModel):
    order_id: Annotated[str, pydantic.Field(max_length=20)]
    state: Literal["open", "sent"]
    lines: Annotated[list[int], pydantic.Field(max_length=10)]
    model_config = pydantic.ConfigDict(extra="forbid")


class Letter(pydantic.BaseModel):
    text: str
    model_config = pydantic.ConfigDict(extra="forbid")


@dataclass
class Tree:
    name: str


@pytest.mark.parametrize(
    ("schema", "is_bounded"),
    [
        (Order.model_json_schema(), True),
        (Letter.model_json_schema(), False),
        ({"type": "object"}, False),
        ({"type": "object", "additionalProperties": False}, True),
        ({**Order.model_json_schema(), "additionalProperties": True}, False),
        (
            {
                "type": "object",
                "additionalProperties": False,
                "properties": {"each": {"$ref": "#/$defs/Each"}},
                "$defs": {"Each": {"anyOf": [{"type": "null"}, {"type": "number"}]}},
            },
            True,
        ),
        (
            {
                "type": "object",
                "additionalProperties": False,
                "properties": {"each": {"$ref": "#"}},
            },
            False,
        ),
        (
            {
                "type": "object",
                "additionalProperties": False,
                "properties": {"each": {"type": "string", "maxLength": LIMIT}},
            },
            False,
        ),
    ],
)
def test_only_a_schema_that_bounds_its_values_is_one_of_results_that_are_never_cut(
    schema, is_bounded
):
    assert is_never_cut(schema, LIMIT) is is_bounded


@pytest.mark.anyio
async def test_a_schema_is_listed_for_results_that_are_never_cut_and_they_fit_it():
    @hr.tool(effect="read")
    def get_order(order_id: str) -> Order:
        """Get an order."""
        return Order(order_id=order_id, state="open", lines=[1, 2])

    @hr.tool(effect="read")
    def get_letter() -> Letter:
        """Get a letter."""
        return Letter(text="x" * 100_000)

    server = hr.mcp.server(hr.Runtime([get_order, get_letter]), "shop")
    async with Client(server, mode=NEW) as client:
        listed = {each.name: each for each in (await client.list_tools()).tools}
        order = await client.call_tool("get_order", {"order_id": "A-1"})
        letter = await client.call_tool("get_letter", {})
    assert listed["get_order"].output_schema["properties"].keys() == {
        "order_id",
        "state",
        "lines",
    }
    assert listed["get_letter"].output_schema is None
    assert order.structured_content == {
        "order_id": "A-1",
        "state": "open",
        "lines": [1, 2],
    }
    assert letter.structured_content is None
    assert len(text_of(letter)) < 20_000


@pytest.mark.anyio
async def test_a_name_that_the_protocol_does_not_take_is_spelled_and_called():
    @hr.tool(effect="read")
    def weather(city: str) -> str:
        """查询天气。"""
        return f"{city}: 晴"

    server = hr.mcp.server(hr.Runtime([weather.replace(name="查询天气")]), "shop")
    async with Client(server, mode=NEW) as client:
        tool = (await client.list_tools()).tools[0]
        result = await client.call_tool(tool.name, {"city": "北京"})
    assert tool.name.isascii()
    assert tool.description == "查询天气。"
    assert text_of(result) == "北京: 晴"


@pytest.mark.parametrize(
    ("value", "text", "structured"),
    [
        ({"a": 1}, '{"a":1}', {"a": 1}),
        ('{"a": 1}', '{"a": 1}', None),
        ([{"a": 1}], '[{"a":1}]', None),
        (Tree("oak"), '{"name":"oak"}', {"name": "oak"}),
    ],
)
def test_an_object_is_structured_content_and_nothing_else_is(value, text, structured):
    answer = write_answer(ToolResult("c1", "tool", value, text=text))
    assert answer.structured_content == structured
    assert text_of(answer) == text


def test_a_noted_object_is_structured_and_one_that_was_cut_is_not():
    noted = ToolResult("c1", "tool", {"a": 1}, text='{"a":1,"note":"b"}', note="b")
    assert write_answer(noted).structured_content == {"a": 1}
    long = {"a": "x" * 1000}
    cut = ToolResult("c1", "tool", long, text='{"a":"xx"}', note="cut", handle="r_1")
    assert write_answer(cut).structured_content is None
    lost = ToolResult("c1", "tool", long, text='{"a":"xx"}', note="not stored")
    assert write_answer(lost).structured_content is None


def test_pictures_and_texts_stay_in_their_order():
    parts = ["before", Media("image/png", b"\x89PNG"), "after"]
    result = ToolResult("c1", "tool", parts, text="...", media=[parts[1]])
    kinds = [type(each) for each in write_answer(result).content]
    assert kinds == [types.TextContent, types.ImageContent, types.TextContent]
