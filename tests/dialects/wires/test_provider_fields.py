"""What of a tool, a rule or a wish reaches each provider in a field of its own, and what never leaves."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

import handrail as hr
from handrail import plugins
from handrail.dialects.wires.base import BaseWire
from handrail.messages import Deferral, Options, Output
from handrail.testing import ScriptedModel

WIRES = [
    name
    for name in plugins.list_names("dialects")
    if isinstance(hr.dialect(name), BaseWire)
]


@hr.tool(effect="read", examples=[{"city": "北京"}, {"city": 5}, {"town": "Rome"}])
def get_weather(city: str) -> str:
    """Get the weather of a city."""
    return city


@hr.tool(effect="read")
def get_order(order_id: str) -> str:
    """Get an order."""
    return order_id


@hr.tool(effect="write")
def refund(order_id: str) -> str:
    """Refund an order."""
    return order_id


TOOLS = hr.Toolset([get_weather, get_order, refund])


def own(name):
    return replace(hr.dialect(name), server="own")


def body(name, server="own", **options):
    wire = replace(hr.dialect(name), server=server)
    return wire.encode_request("Hello", TOOLS, Options("m", **options))


def test_anthropic_gets_the_examples_that_fit_and_copies_get_none():
    (weather, *others) = body("anthropic")["tools"]
    assert weather["input_examples"] == [{"city": "北京"}]
    assert not any("input_examples" in each for each in others)
    for name, server in [
        ("anthropic", "copy"),
        ("anthropic", ""),
        ("openai-chat", "own"),
    ]:
        assert "input_examples" not in json.dumps(body(name, server))
    assert "input_examples" not in json.dumps(
        body("anthropic", strict=True)["tools"][0]
    )


@pytest.mark.parametrize("name", WIRES)
@pytest.mark.parametrize("server", ["own", "copy"])
@pytest.mark.parametrize("strict", [False, True])
def test_examples_without_a_field_are_the_last_lines_of_a_description(
    name, server, strict
):
    sent = json.dumps(body(name, server, strict=strict), ensure_ascii=False)
    told = (
        'Get the weather of a city.\\nExample of arguments:\\n{\\"city\\":\\"北京\\"}'
    )
    assert (told in sent) != ("input_examples" in sent)
    assert "Rome" not in sent
    assert sent.count("Example of arguments") <= 1


def test_few_and_short_examples_are_told_in_words():
    long = {"city": "x" * 400}
    tool = get_weather.replace(examples=[long, *({"city": f"c{n}"} for n in range(9))])
    sent = hr.dialect("openai-chat").encode_request("Hello", hr.Toolset([tool]))
    _, told = sent["tools"][0]["function"]["description"].split(
        "Examples of arguments:\n"
    )
    assert told.splitlines() == ['{"city":"c0"}', '{"city":"c1"}', '{"city":"c2"}']


@hr.tool(effect="read")
def count_orders(customer: str) -> dict[str, int]:
    """Count a customer's orders."""
    return {customer: 1}


@pytest.mark.parametrize("name", WIRES)
@pytest.mark.parametrize("server", ["own", "copy", ""])
def test_gemini_alone_is_told_what_a_tool_returns_where_that_is_an_object(name, server):
    wire = replace(hr.dialect(name), server=server)
    tools = hr.Toolset([count_orders, get_order])
    sent = json.dumps(wire.encode_request("Hello", tools))
    if (name, server) == ("gemini", "own"):
        declared = wire.encode_request("Hello", tools)["tools"][0]
        first, second = declared["functionDeclarations"]
        assert first["responseJsonSchema"] == count_orders.result_schema
        assert "responseJsonSchema" not in second
    else:
        assert "responseJsonSchema" not in sent and "output_schema" not in sent


EFFORTS = {
    "anthropic": {"output_config": {"effort": "low"}},
    "openai-responses": {"reasoning": {"effort": "low"}},
    "openai-chat": {"reasoning_effort": "low"},
    "openai-compatible": {"reasoning_effort": "low"},
    "gemini": {"generationConfig": {"thinkingConfig": {"thinkingLevel": "low"}}},
    "gemini-interactions": {"generation_config": {"thinking_level": "low"}},
}


@pytest.mark.parametrize("name", plugins.list_names("dialects"))
def test_an_effort_goes_into_each_provider_s_field_and_is_refused_where_there_is_none(
    name,
):
    dialect, low = hr.dialect(name), Options("m", effort="low")
    if name in EFFORTS:
        sent = dialect.encode_request("Hello", TOOLS, low)
        assert sent | EFFORTS[name] == sent
        assert (
            sent.keys() - EFFORTS[name]
            == dialect.encode_request("Hello", TOOLS, Options("m")).keys()
            - EFFORTS[name]
        )
    elif isinstance(dialect, BaseWire) or hasattr(dialect, "template"):
        with pytest.raises(hr.ConfigError, match="has no field for the effort"):
            dialect.encode_request("Hello", TOOLS, low)


def test_what_the_caller_says_beside_an_effort_stays_and_so_does_the_answer_s_form():
    wire = hr.dialect("openai-responses")
    extra = {"reasoning": {"summary": "auto"}}
    sent = wire.encode_request("Hello", None, Options(effort="high", extra=extra))
    assert sent["reasoning"] == {"effort": "high", "summary": "auto"}
    form = Output({"type": "object", "properties": {"a": {"type": "string"}}})
    sent = hr.dialect("anthropic").encode_request(
        "Hello", None, Options(effort="high", output=form)
    )
    assert sent["output_config"]["effort"] == "high"
    assert sent["output_config"]["format"]["type"] == "json_schema"


ALLOWED = frozenset({"get_weather", "get_order"})
CHOICES = {
    "openai-responses": lambda sent: [
        (sent["tool_choice"]["type"], sent["tool_choice"]["mode"]),
        [tool["name"] for tool in sent["tool_choice"]["tools"]],
    ],
    "openai-chat": lambda sent: [
        (sent["tool_choice"]["type"], sent["tool_choice"]["allowed_tools"]["mode"]),
        [
            tool["function"]["name"]
            for tool in sent["tool_choice"]["allowed_tools"]["tools"]
        ],
    ],
    "gemini": lambda sent: [
        sent["toolConfig"]["functionCallingConfig"]["mode"],
        sent["toolConfig"]["functionCallingConfig"]["allowedFunctionNames"],
    ],
    "gemini-interactions": lambda sent: [
        sent["generation_config"]["tool_choice"]["allowed_tools"]["mode"].upper(),
        sent["generation_config"]["tool_choice"]["allowed_tools"]["tools"],
    ],
}


@pytest.mark.parametrize("choice", ["auto", "required"])
@pytest.mark.parametrize("name", CHOICES)
def test_tools_that_may_be_called_now_are_named_and_all_stay_described(name, choice):
    sent = body(name, allowed=ALLOWED, tool_choice=choice)
    mode, names = CHOICES[name](sent)
    assert names == ["get_weather", "get_order"]
    gemini = {"auto": "VALIDATED", "required": "ANY"}[choice]
    assert mode == (gemini if "gemini" in name else ("allowed_tools", choice))
    assert sent["tools"] == body(name)["tools"]


@pytest.mark.parametrize("name", WIRES)
def test_nobody_else_is_told_what_may_be_called_now(name):
    for server in ("", "copy"):
        assert body(name, server, allowed=ALLOWED) == body(name, server)
    if name not in CHOICES:
        assert body(name, allowed=ALLOWED) == body(name)
    for options in (
        {"provider_tools": [{"type": "web_search"}]},
        {"tool_choice": "none"},
    ):
        if name in CHOICES:
            assert body(name, allowed=ALLOWED, **options) == body(name, **options)


def test_a_rule_of_a_run_names_the_tools_that_may_be_called():
    model = ScriptedModel(["No."])
    with hr.SyncRuntime(TOOLS) as runtime:
        runtime.run(
            "Refund order 7.",
            model=model,
            flow=[hr.Forbid("refund", until="get_order")],
        )
        runtime.run("Refund order 7.", model=model)
    first, second = (each.options.allowed for each in model.requests)
    assert first is not None and "refund" not in first and "get_order" in first
    assert second is None


def test_a_search_whose_results_may_not_be_called_is_told_as_text():
    found = {
        "tools": {"refund": "Refund an order."},
        "note": "These can be called now.",
    }
    asked = hr.ToolCall("c1", "search_tools", '{"query": "refund"}')
    messages = [
        hr.UserMessage("?"),
        hr.AssistantMessage(hr.Turn(calls=[asked], finish="calls")),
        hr.ToolMessage(
            hr.ToolResult("c1", "search_tools", value=found, text=json.dumps(found))
        ),
    ]
    deferral = Deferral("search_tools", frozenset({"refund"}))

    def sent(**options):
        return own("anthropic").encode_request(
            messages, TOOLS, Options("m", deferral=deferral, **options)
        )

    references = [{"type": "tool_reference", "tool_name": "refund"}]
    (block,) = sent()["messages"][-1]["content"]
    assert block["content"] == references
    assert [tool.get("defer_loading", False) for tool in sent()["tools"]] == [
        False,
        False,
        True,
    ]
    assert (
        "cache_control" in sent()["tools"][1]
        and "cache_control" not in sent()["tools"][2]
    )
    plain = json.dumps(sent(tool_choice="none"))
    assert "tool_reference" not in plain and "defer_loading" not in plain


def test_a_search_on_another_wire_is_a_function_whose_tools_are_described():
    """A conversation that began elsewhere has no search of OpenAI's own, so nothing was loaded there."""
    found = {"tools": {"refund": "Refund an order."}}
    asked = hr.ToolCall("c1", "search_tools", '{"query": "refund"}')
    messages = [
        hr.UserMessage("?"),
        hr.AssistantMessage(hr.Turn(calls=[asked], finish="calls")),
        hr.ToolMessage(
            hr.ToolResult("c1", "search_tools", value=found, text=json.dumps(found))
        ),
    ]
    options = Options("m", deferral=Deferral("search_tools", frozenset({"refund"})))
    sent = own("openai-responses").encode_request(messages, TOOLS, options)
    assert [each["type"] for each in sent["input"]][1:] == [
        "function_call",
        "function_call_output",
    ]
    assert [tool["name"] for tool in sent["tools"]] == [
        "get_weather",
        "get_order",
        "refund",
    ]
