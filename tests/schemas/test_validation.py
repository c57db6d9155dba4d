import json
import os
from random import Random

import jsonschema
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from referencing import Registry

from handrail.errors import Code, Failure, ToolDefinitionError
from handrail.schemas.argument_errors import MOST_FAULTS, format_path, format_value
from handrail.schemas.validation import Checked, Checker, close_schema, coerce_text
from handrail.schemas.violations import (
    MOST_ERRORS,
    EvaluationBudget,
    TooManyErrors,
    find_violations,
)
from handrail.schemas.walk import compile_schema
from handrail.testing.contracts.dialects import check_growth
from tests.support.random_schemas import random_call, random_schema


def tool(required=(), /, **properties):
    return {"type": "object", "properties": properties, "required": list(required)}


LOGS = tool(
    ["namespace"],
    namespace={"type": "string", "description": "Kubernetes namespace."},
    tail_lines={"type": "integer", "minimum": 1, "maximum": 1000},
    order={"type": "string", "enum": ["newest", "oldest"]},
    filters=tool(date={"type": "string"}, level={"type": "integer"}),
    items={"type": "array", "items": tool(["id"], id={"type": "integer"})},
)


def message(schema, arguments, **options):
    failure = Checker(schema, **options).check(arguments)
    assert isinstance(failure, Failure)
    assert failure.code == Code.INVALID_ARGUMENTS
    assert not failure.retryable
    return failure.message


# ---------------------------------------------------------------------- what is accepted


def test_arguments_that_fit_are_returned_as_they_are():
    arguments = {"namespace": "staging", "items": [{"id": 1}]}
    checked = Checker(LOGS).check(arguments)
    assert checked == Checked(arguments)
    assert checked.arguments is arguments


def test_a_whole_float_becomes_an_integer_where_one_is_wanted():
    schema = tool(
        a={"type": "integer"},
        b={"type": "number"},
        c={"type": ["integer", "null"]},
        d=tool(e={"type": "integer"}),
    )
    checked = Checker(schema).check({"a": 3.0, "b": 3.0, "c": 3.0, "d": {"e": 3.0}})
    assert json.dumps(checked.arguments) == '{"a": 3, "b": 3.0, "c": 3, "d": {"e": 3}}'
    assert checked.repairs == ()


@pytest.mark.parametrize(
    ("schema", "text", "value", "kind"),
    [
        ({"type": "integer"}, "6", 6, "integer"),
        ({"type": "number"}, "83.0", 83.0, "number"),
        ({"type": "boolean"}, "true", True, "boolean"),
        ({"type": ["integer", "null"]}, "null", None, "null"),
        ({"anyOf": [{"type": "integer"}, {"type": "null"}]}, "6", 6, "integer"),
        (
            {"type": "array", "items": {"type": "string"}},
            '["id1", "id2"]',
            ["id1", "id2"],
            "array",
        ),
        ({"type": "object"}, '{"a": 1}', {"a": 1}, "object"),
        ({"enum": [1, 2]}, "2", 2, "integer"),
        ({"$ref": "#/properties/other"}, "6", 6, "integer"),
    ],
)
def test_text_is_read_as_a_value_of_the_wanted_type(schema, text, value, kind):
    whole = tool(b=schema, other={"type": "integer"})
    assert Checker(whole).check({"b": text}) == Checked(
        {"b": value}, (f"text_to_{kind}:b",)
    )
    assert isinstance(Checker(whole, coerce=False).check({"b": text}), Failure)


def test_text_within_text_and_deep_inside_is_read():
    schema = tool(
        a={"type": "array", "items": {"type": "integer"}},
        b=tool(c={"type": "array", "items": {"type": "boolean"}}),
    )
    checked = Checker(schema).check({"a": '["1", 2]', "b": {"c": ["true", False]}})
    assert checked.arguments == {"a": [1, 2], "b": {"c": [True, False]}}
    assert checked.repairs == (
        "text_to_array:a",
        "text_to_boolean:b.c[0]",
        "text_to_integer:a[0]",
    )


@pytest.mark.slow
def test_many_repairs_are_counted_and_not_listed():
    checked = Checker(tool(a={"type": "array", "items": {"type": "integer"}})).check(
        {"a": ["1"] * 2500}
    )
    assert checked.arguments == {"a": [1] * 2500}
    assert (len(checked.repairs), checked.repairs[-1]) == (21, "and 2,480 more")


def test_the_nearest_name_is_meant_also_when_another_is_missing():
    schema = tool(["town"], town={"type": "string"}, tone={"type": "string"})
    assert "did you mean `tone`" in message(schema, {"tones": "x"})


def test_text_is_left_alone_where_text_is_allowed():
    schema = tool(
        ["n"],
        a={"type": ["integer", "string"]},
        b={"anyOf": [{"type": "string"}, {"type": "number"}]},
        n={"type": "integer"},
    )
    assert Checker(schema).check({"a": "1", "b": "2", "n": "3"}).arguments == {
        "a": "1",
        "b": "2",
        "n": 3,
    }


@pytest.mark.parametrize("value", [5, [5], None, {"a": 5}])
def test_nothing_is_wrapped_and_nothing_made_text(value):
    assert isinstance(
        Checker(tool(["a"], a={"type": "string"})).check({"a": value}), Failure
    )
    assert isinstance(
        Checker(tool(a={"type": "array", "items": {"type": "string"}})).check(
            {"a": "x"}
        ),
        Failure,
    )


def test_the_callers_arguments_are_not_changed():
    arguments = {"a": "1", "b": {"c": 3.0}}
    Checker(tool(a={"type": "integer"}, b=tool(c={"type": "integer"}))).check(arguments)
    assert arguments == {"a": "1", "b": {"c": 3.0}}


@pytest.mark.parametrize(
    ("text", "types", "value"),
    [
        ("hello", "string", "hello"),
        ("-7", "integer", -7),
        (" 12 ", "integer", 12),
        ("5.0", "integer", 5),
        ("5.5", "integer", "5.5"),
        # 2^53 + 1: as a float it is another integer
        ("9007199254740993.0", "integer", "9007199254740993.0"),
        ("3.14", "number", 3.14),
        ("1e3", "number", 1000.0),
        ("9223372036854775807", "number", 9223372036854775807),
        ("abc", "number", "abc"),
        ("inf", "number", "inf"),
        ("nan", "number", "nan"),
        ("1e999", "number", "1e999"),
        ("007", "integer", "007"),  # a code and not a number
        ("1_000", "integer", "1_000"),
        ("٣", "integer", "٣"),  # a digit to Python, none to JSON
        ("9" * 5000, "integer", "9" * 5000),
        ("true", "boolean", True),
        ("False", "boolean", False),
        ("0", "boolean", False),
        ("1", "boolean", True),
        ("yes", "boolean", "yes"),
        ("NULL", "null", None),
        ("none", "null", "none"),
        ('{"a": 1}', "object", {"a": 1}),
        ("[1]", "object", "[1]"),
        ("not json", "object", "not json"),
        ('{"a": 1, "a": 2}', "object", '{"a": 1, "a": 2}'),
        ('{"x": Infinity}', "object", '{"x": Infinity}'),
        ("[1e999]", "array", "[1e999]"),
        ("[" * 10_000, "array", "[" * 10_000),
        ("42", ["integer", "string"], 42),
        ("x", ["integer", "string"], "x"),
        ("1", ["boolean", "integer"], 1),
        ("null", ["string", "null"], None),
    ],
)
def test_text_is_read_when_it_is_exactly_a_value(text, types, value):
    read = coerce_text(text, {"type": types})
    assert (read, type(read)) == (value, type(value))


@given(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.lists(st.integers())
)
def test_what_json_writes_is_read_back(value):
    types = ["null", "boolean", "integer", "number", "array"]
    read = coerce_text(
        json.dumps(value),
        {"type": [types[[type(None), bool, int, float, list].index(type(value))]]},
    )
    assert (read, type(read)) == (value, type(value))


# ---------------------------------------------------------------------- what is refused, and how it is told


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ({}, "`namespace` is required."),
        ({"namespace": 1}, "`namespace` must be text; it was 1."),
        (
            {"namespace": "x", "tail_lines": 50000},
            "`tail_lines` must be at most 1000; it was 50000.",
        ),
        (
            {"namespace": "x", "tail_lines": "many"},
            '`tail_lines` must be an integer; it was the text "many".',
        ),
        (
            {"namespace": "x", "tail_lines": [1]},
            "`tail_lines` must be an integer; it was a list of 1 item.",
        ),
        (
            {"namespace": "x", "order": "new"},
            '`order` must be one of "newest", "oldest"; it was "new". Did you mean "newest"?',
        ),
        (
            {"namespace": "x", "tail_line": 5},
            "`tail_line` is not a parameter: did you mean `tail_lines`?",
        ),
        # near in its letters alone: what was given is text, and a parameter that takes text is missing
        (
            {"tail_of": "shop"},
            "`tail_of` is not a parameter; the tool takes `namespace`, `tail_lines`, `order`, `filters`, `items`. "
            "`namespace` is required.",
        ),
        (
            {"namspace": "x"},
            "`namspace` is not a parameter, and `namespace` is required but missing: did you mean `namespace`?",
        ),
        (
            {"namespace": "x", "colour": 1},
            "`colour` is not a parameter; the tool takes `namespace`, `tail_lines`, `order`, `filters`, `items`.",
        ),
        (
            {"namespace": "x", "filters": {"dates": "x"}},
            "`filters.dates` is not a parameter: did you mean `filters.date`?",
        ),
        (
            {"namespace": "x", "items": [{"id": 1}, {"id": []}]},
            "`items[1].id` must be an integer; it was an empty list.",
        ),
        ({"namespace": "x", "items": [{}]}, "`items[0].id` is required."),
        ([], "The arguments must be an object; it was an empty list."),
    ],
)
def test_a_fault_is_told_with_its_field_what_it_was_and_what_it_must_be(
    arguments, said
):
    assert message(LOGS, arguments) == said


@pytest.mark.parametrize(
    ("schema", "value", "said"),
    [
        (
            {"type": "string", "minLength": 3},
            "ab",
            "`a` must have at least 3 characters; it has 2 characters.",
        ),
        (
            {"type": "array", "maxItems": 1},
            [1, 2],
            "`a` must have at most 1 items; it has 2 items.",
        ),
        (
            {"type": "array", "uniqueItems": True},
            [1, 1],
            "`a` must hold each item only once; it holds one twice.",
        ),
        (
            {"type": "string", "pattern": "^U[0-9]+$"},
            "U1; DROP",
            '`a` must match the pattern "^U[0-9]+$"; it was "U1; DROP".',
        ),
        (
            {"type": "number", "multipleOf": 5},
            7,
            "`a` must be a multiple of 5; it was 7.",
        ),
        ({"const": "x"}, "y", '`a` must be "x"; it was "y".'),
        (False, 1, "`a` is not allowed."),
        (
            {"anyOf": [{"type": "integer"}, {"type": "null"}]},
            [],
            "`a` must be an integer or null; it was an empty list.",
        ),
        (
            {"oneOf": [{"type": "integer"}, {"minimum": 1}]},
            2,
            "`a` must fit only one of its alternatives; it fits several.",
        ),
        (
            {"not": {"type": "null"}},
            None,
            "`a` must be something that its schema does not exclude; it was null.",
        ),
        (
            {"type": "object", "propertyNames": {"pattern": "^x"}},
            {"y": 1},
            "`a` must have keys of the form that its schema asks for; it has another.",
        ),
    ],
)
def test_each_keyword_has_its_words(schema, value, said):
    assert message(tool(["a"], a=schema), {"a": value}) == said


SHAPES = tool(
    shape={
        "oneOf": [
            tool(
                ["kind", "radius"], kind={"const": "circle"}, radius={"type": "number"}
            ),
            tool(["kind", "side"], kind={"const": "square"}, side={"type": "number"}),
        ]
    }
)


@pytest.mark.parametrize(
    ("shape", "said"),
    [
        (
            {"kind": "square", "side": "wide"},
            '`shape.side` must be a number; it was the text "wide".',
        ),
        ({"kind": "circle"}, "`shape.radius` is required."),
        (
            {"kind": "cube", "side": 1},
            '`shape.kind` must be one of "circle", "square"; it was "cube".',
        ),
        (5, "`shape` must be an object; it was 5."),
    ],
)
def test_a_union_is_told_by_the_branch_that_was_meant(shape, said):
    assert message(SHAPES, {"shape": shape}) == said


def test_several_faults_are_told_at_once_and_each_in_the_details():
    failure = Checker(LOGS).check({"tail_lines": 0, "order": 5})
    assert failure.message.startswith("`namespace` is required. ")
    assert {fault["field"]: fault for fault in failure.details} == {
        "namespace": {
            "field": "namespace",
            "kind": "missing",
            "message": "`namespace` is required.",
            "expected": "text: Kubernetes namespace",
        },
        "tail_lines": {
            "field": "tail_lines",
            "kind": "minimum",
            "message": "`tail_lines` must be at least 1; it was 0.",
            "expected": "at least 1",
        },
        "order": {
            "field": "order",
            "kind": "enum",
            "message": '`order` must be one of "newest", "oldest"; it was 5.',
            "expected": 'one of "newest", "oldest"',
        },
    }


def test_the_suggestion_says_what_to_change():
    failure = Checker(LOGS).check({"tail_line": 1, "order": "oldes"})
    assert failure.suggestion == (
        "Call again with this changed: rename `tail_line` to `tail_lines`; "
        "add `namespace` (text: Kubernetes namespace); "
        'set `order` to "oldest".'
    )


@pytest.mark.parametrize(
    "arguments",
    [
        {"namespace": "x", "order": "y" * 1_000_000},
        {"namespace": "x", "tail_lines": 10**4000},
        {"namespace": "x", **{f"unknown_{i}": i for i in range(10_000)}},
        {"namespace": "x", "k" * 1_000_000: 1},
        {"namespace": "x", "items": [{"id": "x"}] * 10_000},
        {"namespace": "x", "filters": {"level": {"a": "x" * 1_000_000}}},
    ],
)
def test_the_failure_is_short_whatever_the_arguments(arguments):
    failure = Checker(LOGS).check(arguments)
    assert len(json.dumps(failure.as_json())) < 12_000
    assert len(failure.details) <= MOST_FAULTS


@pytest.mark.parametrize(
    "value",
    [
        float("nan"),
        object(),
        {1: 2},
        b"x",
        "\ud800",
        {"\ud800": 1},
        (1,),
        {"a": {"b": {1, 2}}},
    ],
)
def test_what_is_no_json_is_a_failure_too(value):
    verdict = Checker(tool(a={"type": "integer"})).check({"a": value})
    assert isinstance(verdict, Failure)
    json.dumps(verdict.as_json()).encode()


def test_a_value_that_is_nested_without_end_is_a_failure():
    deep = []
    for _ in range(100_000):
        deep = [deep]
    assert isinstance(Checker(tool(a={"type": "integer"})).check({"a": deep}), Failure)


def test_a_pattern_with_look_around_is_kept_and_stops_backtracking():
    assert "must match the pattern" in message(
        tool(a={"pattern": "^(?=(a+)+$)b"}), {"a": "a" * 40 + "c"}
    )


@pytest.mark.parametrize(
    "reference", ["https://example.org/a.json", "a.json", "#/$defs/none"]
)
def test_nothing_is_fetched(reference):
    with pytest.raises(ToolDefinitionError, match="nothing is fetched"):
        Checker(tool(a={"$ref": reference})).compile()


# ---------------------------------------------------------------------- closing


@pytest.mark.parametrize(
    ("schema", "arguments", "accepted"),
    [
        (tool(a={}), {"b": 1}, False),
        (tool(a={}) | {"additionalProperties": True}, {"b": 1}, True),
        (tool(a={}) | {"patternProperties": {"^b": {}}}, {"b": 1}, True),
        # nothing is listed, so nothing is unknown
        ({"type": "object"}, {"b": 1}, True),
        (tool(a={}) | {"anyOf": [{"required": ["a"]}]}, {"a": 1, "b": 1}, False),
        (tool(a={}) | {"allOf": [tool(b={})]}, {"a": 1, "b": 1}, True),
        (tool(a={}) | {"allOf": [tool(b={})]}, {"a": 1, "c": 1}, False),
        (
            tool(a={}) | {"$ref": "#/$defs/B", "$defs": {"B": tool(b={})}},
            {"a": 1, "b": 1},
            True,
        ),
        ({"$ref": "#/$defs/B", "$defs": {"B": tool(b={})}}, {"c": 1}, False),
        ({"anyOf": [tool(a={}), tool(b={})]}, {"b": 1}, True),
        ({"anyOf": [tool(a={}), tool(b={})]}, {"c": 1}, False),
        (
            tool(a={}, b={}) | {"not": tool(b={}) | {"required": ["b"]}},
            {"a": 1, "b": 1},
            False,
        ),  # `not` stays as it was
        (
            tool(a={}) | {"if": {"required": ["a"]}, "then": tool(b={})},
            {"a": 1, "b": 1},
            True,
        ),
        # a near miss further inside
        (tool(o=tool(date={})), {"o": {"dates": 1}}, False),
        # a name that resembles none: the schema is open there
        (tool(o=tool(date={})), {"o": {"MEM001": 1}}, True),
        (
            tool(o=tool(date={}) | {"additionalProperties": False}),
            {"o": {"MEM001": 1}},
            False,
        ),
    ],
)
def test_an_unknown_name_is_refused_where_the_schema_lists_the_names(
    schema, arguments, accepted
):
    assert isinstance(Checker(schema).check(arguments), Checked) == accepted


def test_a_required_name_is_taken_where_nothing_describes_it():
    checker = Checker(tool(a={}) | {"required": ["a", "b"]})
    assert checker.check({"a": 1, "b": 2}) == Checked({"a": 1, "b": 2})
    assert [fault["field"] for fault in checker.check({"a": 1}).details] == ["b"]


def test_closing_accepts_nothing_that_the_schema_refuses():
    both_fit = {"oneOf": [tool(a={}), tool(a={}, b={})]}
    assert isinstance(Checker(both_fit, closed=False).check({"b": 1}), Failure)
    assert isinstance(Checker(both_fit).check({"b": 1}), Failure)


FORCED = {
    **tool(["id"], id={"type": "string"}),
    "additionalProperties": False,
    "anyOf": [
        {"properties": {"force": {"const": True}}, "required": ["force"]},
        {"required": ["id"]},
    ],
}


def shut_by(keyword, branches):
    return {
        **tool(["id"], id={"type": "string"}),
        "additionalProperties": False,
        keyword: branches,
    }


@pytest.mark.parametrize(
    "schema",
    [
        FORCED,
        shut_by(
            "oneOf",
            [
                {"properties": {"force": {"const": True}}, "required": ["force"]},
                {"required": ["id"]},
            ],
        ),
        {**shut_by("if", {"required": ["id"]}), "then": {"properties": {"force": {}}}},
        shut_by("dependentSchemas", {"id": {"properties": {"force": {}}}}),
        {
            **tool(["id"], id={}),
            "unevaluatedProperties": {"type": "boolean"},
            "anyOf": [
                {"properties": {"force": {"const": True}}, "required": ["force"]},
                {"required": ["id"]},
            ],
        },
    ],
    ids=["anyOf", "oneOf", "then", "dependentSchemas", "unevaluatedProperties"],
)
def test_a_name_that_only_a_branch_describes_is_refused_where_the_whole_schema_refuses_it(
    schema,
):
    arguments = {"id": "7", "force": ["anything"]}
    assert not jsonschema.Draft202012Validator(schema).is_valid(arguments)
    assert "`force`" in message(schema, arguments) or "'force'" in message(
        schema, arguments
    )
    assert isinstance(Checker(schema).check({"id": "7"}), Checked)


@pytest.mark.parametrize(
    ("schema", "arguments"),
    [
        (
            {**tool(a={}), "not": {"$ref": "#/$defs/x"}, "$defs": {"x": tool(a={})}},
            {"a": {}},
        ),
        (
            {
                **tool(a={}, b={}),
                "if": {"$ref": "#/$defs/x"},
                "then": False,
                "$defs": {"x": tool(a={})},
            },
            {"a": 1, "b": 1},
        ),
        (
            tool(
                a={
                    "type": "array",
                    "contains": tool(["id"], id={"type": "integer"}),
                    "maxContains": 1,
                }
            ),
            {"a": [{"id": 1}, {"id": 2, "x": 1}]},
        ),
        (
            {
                "type": "object",
                "anyOf": [{"properties": {"a": {}}, "required": ["b"]}],
                "unevaluatedProperties": {"type": "string"},
            },
            {"b": 3},
        ),
    ],
    ids=["not", "if", "contains", "unevaluatedProperties"],
)
def test_closing_a_part_that_turns_the_verdict_accepts_nothing_more(schema, arguments):
    assert not jsonschema.Draft202012Validator(schema).is_valid(arguments)
    assert message(schema, arguments)


def test_closing_leaves_the_schema_as_it_was():
    schema = tool(a=tool(b={}))
    assert close_schema(schema)["properties"]["a"]["additionalProperties"] is False
    assert "additionalProperties" not in schema
    assert (
        "additionalProperties"
        not in close_schema(schema, inside=False)["properties"]["a"]
    )


# ---------------------------------------------------------------------- keys that a path spells ambiguously


def a_map(values):
    return tool(m={"type": "object", "additionalProperties": values})


INTEGER = {"type": "integer"}


@pytest.mark.parametrize(
    ("schema", "arguments", "read"),
    [
        (a_map(INTEGER), {"m": {"1001": 2.0}}, {"m": {"1001": 2}}),
        (a_map(INTEGER), {"m": {"1001": "2"}}, {"m": {"1001": 2}}),
        (
            a_map(INTEGER),
            {"m": {"01": "2", "1": "3", "+1": "4"}},
            {"m": {"01": 2, "1": 3, "+1": 4}},
        ),
        (
            a_map(tool(qty=INTEGER)),
            {"m": {"1001": {"qty": "2"}}},
            {"m": {"1001": {"qty": 2}}},
        ),
        (
            a_map({"anyOf": [INTEGER, {"type": "null"}]}),
            {"m": {"7": "2"}},
            {"m": {"7": 2}},
        ),
        (a_map(INTEGER), {"m": {"": "5", "b": 1}}, {"m": {"": 5, "b": 1}}),
        (
            a_map(a_map(INTEGER)),
            {"m": {"": {"m": {"": "5"}}}},
            {"m": {"": {"m": {"": 5}}}},
        ),
        (tool(**{"1": INTEGER}), {"1": "2"}, {"1": 2}),
        (tool(**{"1": INTEGER, "": INTEGER}), {"1": 2.0, "": "3"}, {"1": 2, "": 3}),
    ],
)
def test_a_value_under_a_key_of_digits_or_an_empty_one_is_read_in_its_place(
    schema, arguments, read
):
    assert json.dumps(Checker(schema).check(arguments).arguments) == json.dumps(read)


def test_a_value_under_an_empty_key_is_not_read_in_place_of_the_object_that_holds_it():
    schema = tool(
        m={"anyOf": [{"type": "object", "additionalProperties": INTEGER}, INTEGER]}
    )
    assert Checker(schema).check({"m": {"": "5", "b": 1}}).arguments == {
        "m": {"": 5, "b": 1}
    }


def test_a_value_that_may_stand_in_either_of_two_places_is_refused_and_not_read():
    assert "must be an integer" in message(a_map(INTEGER), {"m": {"01": "2", "1": "2"}})


def test_a_fault_under_a_key_of_digits_is_told_by_that_key():
    assert "`m.01` must be an integer" in message(a_map(INTEGER), {"m": {"01": "x"}})


def test_a_misspelt_name_within_a_parameter_of_digits_is_told():
    assert "did you mean `1.name`" in message(
        tool(**{"1": tool(["name"], name={})}), {"1": {"nmae": 1}}
    )


# ---------------------------------------------------------------------- very many errors


NUMBERS = tool(a={"type": "array", "items": INTEGER})


@pytest.mark.parametrize(
    ("schema", "value"),
    [
        (NUMBERS, ["1"] * 30_000),
        (NUMBERS, ["x"] * 30_000),
        (NUMBERS, "[" + '"1",' * 30_000 + '"1"]'),
        (
            tool(a={"anyOf": [{"type": "array", "items": INTEGER}, {"type": "null"}]}),
            ["1"] * 30_000,
        ),
        (a_map(INTEGER), {str(number): "1" for number in range(30_000)}),
    ],
    ids=["coerced", "wrong", "as text", "union", "map"],
)
def test_of_very_many_errors_the_first_is_told_and_the_others_are_not_made(
    schema, value
):
    name = next(iter(schema["properties"]))
    arguments = {name: json.loads(value) if isinstance(value, str) else value}
    with pytest.raises(TooManyErrors):
        find_violations(compile_schema(schema), arguments, EvaluationBudget())
    failure = Checker(schema).check({name: value})
    assert "only the first fault is reported" in failure.message
    assert f"`{name}" in failure.message
    assert len(failure.details) == 1


def test_the_budget_of_errors_is_one_for_all_rounds():
    schema = tool(
        a={"type": "array", "items": INTEGER}, b={"type": "array", "items": INTEGER}
    )
    half = ["1"] * (MOST_ERRORS * 2 // 3)
    assert isinstance(Checker(schema).check({"a": half}), Checked)
    # The second list turns up in a second round, when the text of it has been read.
    assert isinstance(
        Checker(schema).check({"a": half, "b": json.dumps(half)}), Failure
    )


def test_unknown_names_inside_stay_allowed_where_there_are_too_many_to_look_for_misspelt_ones():
    arguments = {"items": [{"id": 1, "anything": 2}] * 3000, "namespace": "x"}
    assert Checker(LOGS).check(arguments) == Checked(arguments)


@pytest.mark.slow
@pytest.mark.parametrize("item", ["1", "x", 1.0, {}, {"id": "1", "x": 1}])
def test_the_work_grows_with_the_arguments_and_no_faster(item):
    checker = Checker(
        tool(
            a={"type": "array", "items": INTEGER},
            b={"type": "array", "items": tool(["id"], id={})},
        )
    )
    name = "b" if isinstance(item, dict) else "a"
    check_growth(lambda size: lambda: checker.check({name: [item] * size}), 100_000)


# ---------------------------------------------------------------------- the standard


KEYWORDS = {
    "type": st.sampled_from(
        [
            "integer",
            "number",
            "string",
            "object",
            "array",
            "null",
            "boolean",
            ["integer", "null"],
        ]
    ),
    "enum": st.lists(
        st.sampled_from([0, 1, 1.0, True, "a", None, [], {}]), min_size=1, max_size=2
    ),
    "const": st.sampled_from([0, 1, 1.5, False, "a", None]),
    "minimum": st.integers(-1, 2),
    "exclusiveMaximum": st.integers(-1, 2),
    "multipleOf": st.sampled_from([1, 2, 0.5]),
    "maxLength": st.integers(0, 2),
    "pattern": st.sampled_from(["^a", "b$", "[0-9]"]),
    "required": st.lists(st.sampled_from("ab"), max_size=2, unique=True),
    "minItems": st.integers(0, 2),
    "uniqueItems": st.booleans(),
    "maxProperties": st.integers(0, 2),
    "dependentRequired": st.just({"a": ["b"]}),
}


def schemas():
    def larger(inner):
        lists = st.lists(inner, min_size=1, max_size=2)
        named = st.dictionaries(st.sampled_from("ab"), inner, max_size=2)
        return st.fixed_dictionaries(
            {},
            optional={
                **KEYWORDS,
                **dict.fromkeys(
                    (
                        "items",
                        "additionalProperties",
                        "not",
                        "contains",
                        "if",
                        "then",
                        "unevaluatedProperties",
                    ),
                    inner,
                ),
                **dict.fromkeys(("anyOf", "oneOf", "allOf", "prefixItems"), lists),
                **dict.fromkeys(("properties", "patternProperties"), named),
            },
        )

    return st.recursive(
        st.booleans() | st.fixed_dictionaries({}, optional=KEYWORDS),
        larger,
        max_leaves=4,
    )


INSTANCES = st.recursive(
    st.sampled_from(
        [None, True, False, -1, 0, 1, 1.0, 1.5, 2, "", "a", "ab", "1", "true"]
    ),
    lambda inner: (
        st.lists(inner, max_size=2)
        | st.dictionaries(st.sampled_from(["a", "b", "c", "aa"]), inner, max_size=3)
    ),
    max_leaves=5,
)


@settings(suppress_health_check=list(HealthCheck), deadline=None, max_examples=300)
@given(
    schema=schemas().filter(lambda schema: isinstance(schema, dict)), instance=INSTANCES
)
def test_the_verdict_is_that_of_the_standard(schema, instance):
    oracle = jsonschema.Draft202012Validator(schema, registry=Registry()).is_valid(
        instance
    )
    plain = Checker(schema, coerce=False, closed=False).check(instance)
    assert isinstance(plain, Checked) == oracle
    for options in ({}, {"coerce": False}):
        verdict = Checker(schema, **options).check(instance)
        if isinstance(verdict, Checked):
            assert jsonschema.Draft202012Validator(
                schema, registry=Registry()
            ).is_valid(verdict.arguments)
            assert verdict.arguments == instance or verdict.repairs
        else:
            assert verdict.message
            assert verdict.details


# ---------------------------------------------------------------------- small things


@pytest.mark.parametrize(
    ("value", "said"),
    [
        ("x" * 100, '"' + "x" * 59 + '…"'),
        ("北京", '"北京"'),
        ("\ud800", '"?"'),
        ({"a": 1, "b": 2}, "an object of 2 keys"),
        ([], "an empty list"),
        (True, "true"),
        (None, "null"),
        (10**4000, "an integer of about 4,000 digits"),
        (1.5, "1.5"),
    ],
)
def test_a_value_is_shown_short(value, said):
    assert format_value(value) == said


def test_a_path_is_spelled_as_a_model_would_write_it():
    assert format_path(["items", 2, "id"]) == "items[2].id"
    assert format_path(["a.b", "", "城市"]) == '["a.b"][""].城市'
    assert format_path(["a"] * 30).endswith("...")


def test_a_null_for_an_optional_parameter_means_that_it_is_left_out():
    schema = {
        "type": "object",
        "properties": {
            "city": {"type": "string"},
            "days": {"type": "integer"},
            "zone": {"type": ["string", "null"]},
        },
        "required": ["city"],
    }
    checked = Checker(schema).check({"city": "北京", "days": None, "zone": None})
    assert checked == Checked({"city": "北京", "zone": None}, ("nulls_left_out",))


def test_a_null_for_a_required_parameter_is_refused():
    schema = {
        "type": "object",
        "properties": {"city": {"type": "string"}},
        "required": ["city"],
    }
    refused = Checker(schema).check({"city": None})
    assert isinstance(refused, Failure)
    assert "`city`" in refused.message


RANDOM_SCHEMAS = int(os.environ.get("HANDRAIL_RANDOM_SCHEMAS", "300"))
"""How many are drawn; 10,000 take a minute."""


@pytest.mark.slow
@pytest.mark.parametrize("coerce", [True, False])
def test_no_call_is_accepted_that_the_standard_refuses(coerce):
    accepted = 0
    for seed in range(RANDOM_SCHEMAS):
        chance = Random(seed)
        schema = random_schema(chance)
        checker, oracle = (
            Checker(schema, coerce=coerce),
            jsonschema.Draft202012Validator(schema, registry=Registry()),
        )
        for call in [random_call(chance, schema) for _ in range(5)]:
            verdict = checker.check(call)
            if isinstance(verdict, Checked):
                assert oracle.is_valid(verdict.arguments), (seed, call)
                assert coerce or oracle.is_valid(call), (seed, call)
                accepted += 1
            else:
                assert verdict.message, (seed, call)
                assert verdict.code == Code.INVALID_ARGUMENTS, (seed, call)
    assert accepted > RANDOM_SCHEMAS // 4
