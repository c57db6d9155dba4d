"""What `explain_tool` says of a declaration is what a request of that wire holds."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from typing import Annotated

import pydantic
import pytest

import handrail as hr
from handrail import plugins
from handrail.dialects.explaining import explain_request, explain_tool
from handrail.dialects.wires.base import BaseWire
from handrail.messages import Options, UserMessage
from handrail.tools.function_tool import FunctionTool
from tests.support.corpus import rows
from tests.support.effort import examples

WIRES = [
    name
    for name in plugins.list_names("dialects")
    if isinstance(hr.dialect(name), BaseWire)
]
SERVERS = ["own", "copy"]


@hr.tool(
    effect="write",
    key="order:{item}",
    approve=True,
    callers=("direct", "program"),
    examples=[{"item": "tea"}],
)
def order(
    item: Annotated[str, pydantic.Field(min_length=2, pattern="^[a-z]+$")],
    count: Annotated[int, pydantic.Field(ge=1, le=9)] = 3,
) -> dict[str, int]:
    """Order an item.

    Args:
        item: What.
        count: How many.
    """
    return {item: count}


def wire(name, server="own"):
    return replace(hr.dialect(name), server=server)


def told(name, server="own", *, strict=False, tool=order):
    parts = explain_tool(wire(name, server), tool, strict=strict)
    return {part.name: part for part in parts}


@pytest.mark.parametrize("name", WIRES)
@pytest.mark.parametrize(("setting", "field"), [
    ("examples", {("anthropic", "own"): "tools[0].input_examples"}),
    ("returns", {("gemini", "own"): "tools[0].functionDeclarations[0].responseJsonSchema"}),
    (
        "callers",
        {
            ("anthropic", "own"): "tools[0].allowed_callers",
            ("anthropic", "copy"): "tools[0].allowed_callers",
            ("openai-responses", "own"): "tools[0].allowed_callers, tools[0].output_schema",
            ("openai-responses", "copy"): "tools[0].allowed_callers, tools[0].output_schema",
        },
    ),
])  # fmt: skip
@pytest.mark.parametrize("server", SERVERS)
def test_who_has_a_field_for_what(name, server, setting, field):
    part = told(name, server)[setting]
    if (name, server) in field:
        assert (part.reach, part.field) == ("sent", field[name, server])
    else:
        assert part.reach != "sent"


@pytest.mark.parametrize("name", WIRES)
def test_examples_are_told_in_words_where_there_is_no_field(name):
    part = told(name, "copy")["examples"]
    assert part.reach == "in words" and part.field.endswith(".description")


@pytest.mark.parametrize("name", WIRES)
def test_rules_are_kept_here_on_every_wire(name):
    parts = told(name)
    assert {parts[each].reach for each in ("effect", "key", "approve")} == {"kept here"}
    assert "resource" not in parts, "it is not declared"


def test_bounds_that_a_strict_form_has_no_keyword_for_are_words():
    words = {
        name for name, part in told("anthropic", strict=True).items() if part.reach == "in words"
    }  # fmt: skip
    assert words == {
        "item.minLength", "item.pattern", "count.minimum", "count.maximum", "examples",
    }  # fmt: skip
    words = {
        name for name, part in told("openai-chat", strict=True).items() if part.reach == "in words"
    }  # fmt: skip
    assert words == {"item.minLength", "count.default", "examples"}


def test_a_name_that_a_provider_refuses_is_shown_as_it_is_sent():
    renamed = order.replace(name="shop.order")
    assert "'shop_order'" in told("anthropic", tool=renamed)["name"].note
    assert told("gemini", tool=renamed)["name"].note == ""


def test_examples_that_do_not_fit_are_said_to():
    wrong = order.replace(examples=[{"item": 5}])
    part = told("anthropic", tool=wrong)["examples"]
    assert (part.reach, part.note) == ("not sent", "none of them fits the parameters")


def value_at(document, field):
    """Return what stands in a document at such a path as `tools[0].name`."""
    for step in re.findall(r"[^.\[\]]+", field):
        document = document[int(step)] if isinstance(document, list) else document[step]
    return document


@pytest.mark.parametrize("name", WIRES)
@pytest.mark.parametrize("server", SERVERS)
@pytest.mark.parametrize("strict", [False, True])
def test_every_field_that_is_named_stands_in_the_request(name, server, strict):
    dialect = wire(name, server)
    sent = dialect.encode_request([UserMessage("?")], [order], Options(strict=strict))
    seen = 0
    for part in told(name, server, strict=strict).values():
        if part.reach not in ("sent", "in words") or part.name == "callers":
            continue
        if part.field:
            seen += 1
            assert value_at(sent, part.field) not in (None, "", [], {})
    assert seen >= 3


def bounded_tools():
    """Return tools of real servers that bound their parameters, and can be sent by any wire."""
    bounds = {
        "minimum",
        "maximum",
        "pattern",
        "maxLength",
        "minLength",
        "default",
        "enum",
    }
    for row in rows("mcp_tools/tools.jsonl"):
        if bounds & set(re.findall(r'"(\w+)":', json.dumps(row["input_schema"]))):
            yield FunctionTool(
                lambda **_: None,
                name=row["name"],
                description=row["description"] or "",
                parameters=row["input_schema"],
            )  # fmt: skip


@pytest.mark.parametrize("name", WIRES)
@pytest.mark.parametrize("strict", [False, True])
def test_of_real_tools_no_bound_is_lost_on_the_way(name, strict):
    """Of an annotation nobody needs to be told; whatever says which values are right reaches the model."""
    annotations = {"examples", "deprecated", "readOnly", "writeOnly", "$comment"}
    for tool, _ in zip(bounded_tools(), range(examples(12, 150)), strict=False):
        for part in explain_tool(wire(name), tool, strict=strict):
            keyword = part.name.rpartition(".")[2]
            if part.reach == "not sent" and "." in part.name:
                assert keyword in annotations, (tool.name, part)


def test_what_a_run_wishes_is_explained_too():
    parts = {
        part.name: part
        for part in explain_request(wire("openai-responses"), order, "gpt-5.6")
    }
    assert parts["what `Require` and `Forbid` allow"].field == "tool_choice"
    assert parts["the prompt cache"].field == "prompt_cache_key"
    assert "loads them" in parts["tools that a search found"].note
    copied = explain_request(wire("openai-compatible", "copy"), order, "qwen")
    parts = {part.name: part.reach for part in copied}
    assert parts["the prompt cache"] == "kept here"
    refused = explain_request(wire("cohere"), order, "command-a")
    assert (
        "no field for the effort"
        in {part.name: part.note for part in refused}["an effort"]
    )


@pytest.mark.parametrize("name", ["hermes", "harmony", "mistral-v11", "react"])
def test_a_prompt_is_explained_as_well(name):
    parts = {
        part.name: part for part in explain_tool(hr.dialect(name), order, strict=False)
    }
    assert (parts["description"].reach, parts["description"].field) == (
        "sent",
        "prompt",
    )
    assert parts["examples"].reach == "in words"
    assert parts["key"].reach == "kept here"
