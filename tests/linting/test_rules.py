"""Lint: every rule speaks on its bad example and is silent on its good one; how it reads, ignores, mends and tells."""

import json
import re
from typing import Annotated

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

import handrail as hr
from handrail import linting
from handrail.dialects import dialect
from handrail.errors import ConfigError
from handrail.linting import RULES, Settings, fixes, sarif, texts
from handrail.linting.sets import count_tokens
from handrail.linting.subjects import WIRES
from tests.support import lint_page


def shown_together(rule, examples):
    """The examples of a rule as sets of tools: one at a time, or all of them where the rule looks at all."""
    return [examples] if rule.look_at_all else [[each] for each in examples]


def told_of(tools, **settings):
    return {
        finding.rule: finding
        for finding in hr.lint(tools, Settings(**settings)).findings
    }


# ---------------------------------------------------------------------- the table of rules


@pytest.mark.parametrize("rule", RULES.values(), ids=RULES)
def test_a_rule_speaks_on_its_bad_example_and_not_on_its_good_one(rule):
    for tools in shown_together(rule, rule.bad):
        assert rule.id in told_of(tools, **rule.needs), tools
    for tools in shown_together(rule, rule.good):
        assert rule.id not in told_of(tools, **rule.needs), tools


@pytest.mark.parametrize("rule", RULES.values(), ids=RULES)
def test_a_good_example_breaks_no_other_rule_either(rule):
    for tools in shown_together(rule, rule.good):
        told = hr.lint(tools, Settings(**rule.needs)).findings
        assert [finding for finding in told if finding.severity != "note"] == []


@pytest.mark.parametrize("rule", RULES.values(), ids=RULES)
def test_a_finding_says_what_to_write_instead(rule):
    for tools in shown_together(rule, rule.bad):
        finding = told_of(tools, **rule.needs)[rule.id]
        assert finding.message and finding.rewrite
        assert not finding.message.endswith(".") or rule.id in (
            "schema-not-portable",
            "definition-broken",
        )


def test_the_page_on_lint_shows_every_rule_with_its_examples():
    assert lint_page.shown() == lint_page.wanted(), (
        "run: python -m tests.support.lint_page --write"
    )


# ---------------------------------------------------------------------- tools of Python


def test_a_tool_that_only_a_program_may_call_is_told():
    @hr.tool(effect="read", limits=hr.Limits(callers=["program"]))
    def list_prices() -> list[int]:
        """List the prices of all items, in cents."""
        return [1]

    assert "direct-call-refused" in told_of([list_prices])


@hr.tool(effect="write")
def pay(amount: Annotated[float, hr.Injected], q: str) -> str:
    """Pay an invoice."""
    return q


@pytest.mark.parametrize(
    ("settings", "rewrite"),
    [
        ({"key": "t:{q}"}, 'key="t:{org_id}:{q}"'),
        ({"key": "ticket"}, 'key="ticket:{org_id}"'),
        ({"key": lambda q: q}, "Let the function of `key` take `org_id`, too"),
        ({"resource": ["q:{q}", "all"]}, 'resource="q:{org_id}:{q}"'),
        ({"write": hr.Write(repeat_window_s=60.0)}, 'key="ticket:{org_id}:…"'),
        ({"key": "t:{org_id}:{q}"}, None),
        ({"key": lambda q, org_id: q + org_id}, None),
        ({"resource": "q:{org_id}", "write": hr.Write(repeat_window_s=60.0)}, None),
    ],
)
def test_a_key_of_an_injected_tenants_tool_names_the_tenant(settings, rewrite):
    def ticket(q: str, org_id: Annotated[str, hr.Injected]) -> str:
        """Create a ticket."""
        return q + org_id

    told = told_of([hr.FunctionTool(ticket, effect="write", **settings)])
    finding = told.get("tenant-not-named")
    assert (finding and finding.rewrite.partition(";")[0]) == rewrite


def test_a_tool_of_python_is_looked_at_with_what_it_declares():
    told = told_of([pay])
    assert told["write-without-key"].rewrite.startswith('key="pay:{q}"')
    assert told["parameter-undocumented"].message == "`q` has no description"
    assert "caller-id" not in told


def test_a_finding_says_where_a_tool_of_python_stands():
    place = told_of([pay])["write-without-key"].place
    assert place.file.endswith("test_rules.py")
    assert place.line > 1


def test_what_the_docstring_says_of_the_result_is_known():
    @hr.tool(effect="read")
    def open_ticket(title: str) -> str:
        """Open a ticket.

        Args:
            title: One line.

        Returns:
            The number of the ticket.
        """
        return title

    assert "result-unknown" not in told_of([open_ticket])


def test_a_write_that_is_meant_to_be_repeated_needs_no_key():
    assert "write-without-key" not in told_of(
        [pay.replace(write=hr.Write(repeatable=True))]
    )


@pytest.mark.parametrize(("users", "aliases", "differs"), [
    ("zh", [], True),
    ("zh", ["付款", "支付"], False),
    ("en", [], False),
    (None, [], False),
])  # fmt: skip
def test_aliases_in_the_users_language_are_enough(users, aliases, differs):
    tool = hr.FunctionTool(pay.fn, name="pay", effect="write", aliases=aliases)
    assert ("language-differs" in told_of([tool], users=users)) == differs


# ---------------------------------------------------------------------- definitions as JSON

KEYWORDS = [
    "type", "properties", "required", "items", "anyOf", "oneOf", "allOf", "$ref", "$defs", "enum", "const",
    "description", "default", "examples", "additionalProperties", "object", "string", "array", "integer", "name",
    "schema", "content", "readOnlyHint", "nullable", "parameters", "requestBody", "operationId", "#/components",
]  # fmt: skip
SCHEMA = {"type": "object", "properties": {"q": {"type": "string"}}, "required": ["q"]}


@pytest.mark.parametrize("document", [
    # OpenAI, chat
    [{"type": "function", "function": {"name": "find", "description": "", "parameters": SCHEMA}}],
    # OpenAI, Responses
    [{"type": "function", "name": "find", "description": "", "parameters": SCHEMA}],
    # Anthropic
    {"model": "m", "tools": [{"name": "find", "description": "", "input_schema": SCHEMA}]},
    # Gemini
    [{"functionDeclarations": [{"name": "find", "description": "", "parametersJsonSchema": SCHEMA}]}],
    # MCP
    {"tools": [{"name": "find", "inputSchema": SCHEMA}]},
    # MCP, on the wire
    {"jsonrpc": "2.0", "id": 1, "result": {"tools": [{"name": "find", "inputSchema": SCHEMA}]}},
    # one alone
    {"name": "find", "description": None, "parameters": SCHEMA},
], ids=["chat", "responses", "anthropic", "gemini", "mcp", "json-rpc", "one"])  # fmt: skip
def test_every_form_of_definition_is_read(document):
    told = told_of(document)
    assert {
        "description-missing",
        "parameter-undocumented",
        "parameter-name-empty",
    } <= told.keys()
    assert told["description-missing"].tool == "find"


OPENAPI = {
    "openapi": "3.0.3",
    "paths": {
        "/orders/{order_id}": {
            "parameters": [{"$ref": "#/components/parameters/OrderId"}],
            "delete": {
                "operationId": "readOrder",
                "summary": "Delete an order for good.",
            },
            "put": {
                "summary": "Change an order.",
                "requestBody": {
                    "content": {
                        "application/json": {
                            "schema": {"$ref": "#/components/schemas/Order"}
                        }
                    }
                },
            },
        }
    },
    "components": {
        "parameters": {
            "OrderId": {
                "name": "order_id",
                "in": "path",
                "required": True,
                "schema": {"type": "string"},
            }
        },
        "schemas": {
            "Order": {
                "type": "object",
                "required": ["due_date"],
                "properties": {
                    "due_date": {"type": "string", "description": "When it is due."}
                },
            }
        },
    },
}


def test_the_operations_of_an_openapi_document_are_tools():
    report = hr.lint(OPENAPI)
    said = {
        (finding.tool, finding.rule): finding.message for finding in report.findings
    }
    assert report.tools == 2
    assert (
        said["readOrder", "parameter-undocumented"] == "`order_id` has no description"
    )
    # from the body, by a reference
    assert said["put_orders_order_id", "format-missing"].startswith("`due_date`")


def test_an_operation_that_becomes_no_tool_is_not_looked_at():
    picture = {
        "post": {
            "operationId": "addPicture",
            "requestBody": {"content": {"multipart/form-data": {}}},
        }
    }
    report = hr.lint({**OPENAPI, "paths": {**OPENAPI["paths"], "/pictures": picture}})
    assert (report.tools, report.of("error")) == (2, hr.lint(OPENAPI).of("error"))


def test_a_tool_by_schema_without_an_effect_is_told_that_a_person_is_asked():
    by_schema = hr.FunctionTool(
        str, name="sync", description="Sync.", parameters={"type": "object"}
    )
    (told,) = [
        each.message
        for each in hr.lint([by_schema]).findings
        if each.rule == "effect-undeclared"
    ]
    assert "of high risk" in told


def test_what_holds_no_tools_is_refused():
    with pytest.raises(ConfigError, match="there are no tools in it"):
        hr.lint({"hello": "world"})


def test_a_form_without_a_place_for_effects_is_not_asked_for_them():
    assert "effect-undeclared" not in told_of(
        [{"name": "find", "description": "", "input_schema": SCHEMA}]
    )
    assert "effect-undeclared" in told_of(
        [{"name": "find", "description": "", "inputSchema": SCHEMA}]
    )


def test_a_definition_that_nobody_can_use_hides_none_of_the_others():
    broken = {
        "name": "broken",
        "description": "Look an order up.",
        "parameters": {"type": "wish"},
    }
    report = hr.lint(
        [broken, {"name": "find", "description": "", "parameters": SCHEMA}]
    )
    assert {finding.tool for finding in report.of("error")} == {"broken", "find"}


def test_lines_are_found_in_the_text_also_for_a_name_that_stands_there_twice():
    text = '[\n {"name": "find", "description": ""},\n {"name": "find", "description": ""}\n]'
    found = linting.definitions.read(json.loads(text), file="tools.json", text=text)
    assert [str(each.place) for each in found] == ["tools.json:2", "tools.json:3"]


junk = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=8),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(KEYWORDS) | st.text(max_size=4), inner, max_size=4
        )
    ),
    max_leaves=12,
)


@given(name=junk, description=junk, schema=junk, annotations=junk, sends=junk)
def test_whatever_a_definition_holds_lint_only_speaks(
    name, description, schema, annotations, sends
):
    definition = {
        "function": {
            "name": name, "description": description, "inputSchema": schema, "annotations": annotations,
            "effect": "write", "sends": sends,
        }
    }  # fmt: skip
    assert hr.lint([definition]).tools == 1


@given(path=junk, components=junk)
def test_whatever_an_openapi_document_holds_lint_only_speaks(path, components):
    document = {
        "paths": {
            "/orders": {
                "post": path,
                "get": {
                    "parameters": path,
                    "requestBody": components,
                    "responses": path,
                },
            }
        }
    }
    assert hr.lint({**document, "components": components}).tools >= 0


# ---------------------------------------------------------------------- reasons and settings


@pytest.mark.parametrize(("ignore", "reason"), [
    ({"find": {"parameter-name-empty": "Everybody says q."}}, "Everybody says q."),
    ({"f*": {"parameter-name-empty": "Everybody says q."}}, "Everybody says q."),
    ({"other": {"parameter-name-empty": "Everybody says q."}}, None),
])  # fmt: skip
def test_a_rule_is_ignored_by_name_or_pattern(ignore, reason):
    report = hr.lint(
        [{"name": "find", "description": "", "parameters": SCHEMA}],
        Settings(ignore=ignore),
    )
    assert [each.reason for each in report.ignored] == ([reason] if reason else [])


@pytest.mark.parametrize(("rules", "why"), [
    ({"parameter-name-empty": "  "}, "without a reason"),
    ({"parameter-name-emty": "Everybody says q."}, "Did you mean `parameter-name-empty`?"),
])  # fmt: skip
def test_a_rule_is_ignored_with_a_reason_and_by_its_right_name(rules, why):
    with pytest.raises(ConfigError, match=re.escape(why)):
        hr.lint([pay], Settings(ignore={"find": rules}))


@pytest.mark.parametrize(("table", "says"), [
    ({"user": "zh"}, "'user' is no setting of lint; the settings are ignore, most_parameters"),
    ({"users": "fr"}, "it is one of en, zh"),
    ({"most_tools": "20"}, "it is a number from 1 on"),
    ({"most_tools": True}, "it is a number from 1 on"),
    ({"ignore": {"find": ["q"]}}, "with a reason for each rule"),
    ({"ignore": "all"}, "with a reason for each rule"),
])  # fmt: skip
def test_a_setting_that_there_is_not_is_refused(table, says):
    with pytest.raises(ConfigError, match=says):
        Settings.from_table(table)


# ---------------------------------------------------------------------- what is safe to set right

UNTIDY = {
    "name": "find",
    "description": "Find an order.\n\n        Use it for orders.  ",
    "inputSchema": {
        "type": "dict",
        "properties": {
            "n": {"type": "int", "description": " How many.", "required": True}
        },
    },
}


def test_what_is_set_right_takes_the_same_arguments_and_says_the_same_words():
    changed, done = fixes.fix_document({"tools": [UNTIDY]})
    tool = changed["tools"][0]
    assert [(each.tool, each.rules) for each in done] == [
        ("find", ["schema-foreign", "text-untidy"])
    ]
    assert tool["inputSchema"] == {
        "type": "object",
        "properties": {"n": {"type": "integer", "description": "How many."}},
        "required": ["n"],
    }
    assert tool["description"].split() == UNTIDY["description"].split()
    assert {"schema-foreign", "text-untidy"} & told_of(changed).keys() == set()


def test_a_second_time_nothing_is_left_to_set_right():
    changed, _ = fixes.fix_document([UNTIDY])
    assert fixes.fix_document(changed) == (changed, [])


def test_what_has_no_single_meaning_is_left_as_it_is():
    odd = {
        "name": "find",
        "description": "Find an order.",
        "parameters": {"type": "object", "properties": {"n": {"type": "wish"}}},
    }
    assert fixes.fix_document([odd]) == ([odd], [])


def test_an_openapi_document_is_not_set_right():
    with pytest.raises(ConfigError, match="change it there"):
        fixes.fix_document(OPENAPI)


# ---------------------------------------------------------------------- telling


def test_a_report_fails_for_errors_and_strictly_for_warnings():
    errors, warnings, clean = (
        hr.lint([{"name": "find_order", "description": text, "parameters": {}}])
        for text in ("", "Orders.", "Look an order up by the customer's name.")
    )
    assert (errors.fails(), warnings.fails(), clean.fails()) == (True, False, False)
    assert (warnings.fails(strict=True), clean.fails(strict=True)) == (True, False)


def test_sarif_names_rule_level_place_and_reason():
    settings = Settings(ignore={"find": {"parameter-name-empty": "Everybody says q."}})
    subject = replace(linting.read_subjects([{"name": "find", "description": "", "parameters": SCHEMA}])[0],
                      place=linting.Place("tools.json", 7))  # fmt: skip
    log = sarif.encode_log(linting.check_subjects([subject], settings), RULES)
    run = log["runs"][0]
    by_rule = {result["ruleId"]: result for result in run["results"]}
    assert log["version"] == "2.1.0"
    assert [rule["id"] for rule in run["tool"]["driver"]["rules"]] == list(RULES)
    assert by_rule["description-missing"]["level"] == "error"
    assert by_rule["description-missing"]["locations"][0]["physicalLocation"] == {
        "artifactLocation": {"uri": "tools.json"},
        "region": {"startLine": 7},
    }
    assert (
        by_rule["parameter-name-empty"]["suppressions"][0]["justification"]
        == "Everybody says q."
    )


# ---------------------------------------------------------------------- tokens and providers


def test_a_definition_costs_more_the_more_it_says():
    short, long = (
        hr.lint([{"name": "find", "description": text, "parameters": SCHEMA}]).tokens
        for text in ("Find.", "Find it. " * 50)
    )
    assert short.keys() == WIRES.keys()
    assert all(long[provider] > short[provider] + 100 for provider in WIRES)


@pytest.mark.parametrize(("text", "least", "most"), [
    ("Get the current weather of a city.", 8, 8),  # seven words and a full stop
    # 20 letters are three, five digits two
    ("internationalisation 12345", 5, 5),
    ("查询城市的当前天气", 6, 6),                  # nine characters at two thirds
    ("", 0, 0),
])  # fmt: skip
def test_tokens_are_estimated_by_the_classes_of_characters(text, least, most):
    assert least <= count_tokens(text) <= most


@pytest.mark.parametrize(
    "name", ["get_order", "orders.get", "查询", "a" * 65, "9lives"]
)
def test_a_name_is_refused_where_the_wire_spells_it_otherwise(name):
    tool = hr.FunctionTool(
        pay.fn, name=name, description="Look an order up by its number.", effect="read"
    )
    changed = [
        wire
        for wire in WIRES.values()
        if f'"{name}"'
        not in json.dumps(dialect(wire).definitions([tool]), ensure_ascii=False)
    ]
    assert ("name-refused" in told_of([tool])) == bool(changed)


# ---------------------------------------------------------------------- words


@pytest.mark.parametrize(("text", "values"), [
    ("State: one of open, closed or fixed.", ["open", "closed", "fixed"]),
    ("Can be either 'created' or 'updated'.", ["created", "updated"]),
    ("Kind of transport (docker, oci, dir).", ["docker", "oci", "dir"]),
    ("Valid values: `asc`, `desc`.", ["asc", "desc"]),
    ("排序方式，可选值：asc、desc", ["asc", "desc"]),
    ("A city such as Paris, London", []),          # instances, not all there are
    ("Formats (png, jpg, gif, ...)", []),          # open
    ("Sections (e.g. intro, body, end)", []),
    ("Name of the pod (Optional, current one if absent)", []),
    ("The owner (user or organization) of it", []),  # kinds, not values
    ("Must be a valid IPv4 or IPv6 address", []),
])  # fmt: skip
def test_values_are_read_from_a_text_only_where_it_lists_them_all(text, values):
    assert list(texts.list_values(text)) == values


@pytest.mark.parametrize(("text", "told"), [
    ("How long to wait, in seconds.", True),
    ("timeout_ms", True),
    ("等待的秒数", True),
    ("The user's timeout.", False),  # no `s`
    ("升序的长度", False),           # 升 is no litre
])  # fmt: skip
def test_a_unit_is_known_by_its_word(text, told):
    assert texts.names_unit(text) == told


@pytest.mark.parametrize("text", [
    "Use this when the user asks for news.", "Do not use it for orders.", "用于查找新闻。", "当用户询问天气时调用。",
    "Prefer search_docs.",
])  # fmt: skip
def test_when_to_use_a_tool_is_said_in_two_languages(text):
    assert texts.says("when", text)
