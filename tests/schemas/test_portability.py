import copy
import json

import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from handrail.schemas.portability import (
    NotPortable,
    for_anthropic_strict,
    for_gemini,
    for_openai_strict,
    from_gemini,
    from_openai_strict,
)
from handrail.schemas.walk import compile_schema, walk

ALL = [for_openai_strict, for_anthropic_strict, for_gemini]


def tool(**properties):
    return {"type": "object", "properties": properties, "required": list(properties)}


def optional(**properties):
    return {"type": "object", "properties": properties}


def parameter(convert, schema, *, required=True):
    """Return what becomes of one parameter."""
    whole = convert((tool if required else optional)(a=schema))
    return whole if isinstance(whole, NotPortable) else whole["properties"]["a"]


# ---------------------------------------------------------------------- OpenAI


def test_openai_wants_every_property_and_null_for_the_optional_ones():
    assert for_openai_strict(
        {
            "type": "object",
            "properties": {
                "city": {"type": "string", "title": "City"},
                "unit": {"type": "string", "enum": ["c", "f"], "default": "c"},
                "at": {"type": "object", "properties": {"x": {"type": "number"}}},
            },
            "required": ["city"],
        }
    ) == {
        "type": "object",
        "properties": {
            "city": {"type": "string"},
            "unit": {
                "type": ["string", "null"],
                "enum": ["c", "f", None],
                "description": 'Default "c".',
            },
            "at": {
                "type": ["object", "null"],
                "properties": {"x": {"type": ["number", "null"]}},
                "required": ["x"],
                "additionalProperties": False,
            },
        },
        "required": ["city", "unit", "at"],
        "additionalProperties": False,
    }


def test_the_nulls_of_openai_mean_absent():
    schema = optional(
        a={"type": "integer"},
        b={"type": ["integer", "null"], "default": None},
        c=optional(d={"type": "string"}),
    )
    assert from_openai_strict(schema, {"a": None, "b": None, "c": {"d": None}}) == {
        "b": None,
        "c": {},
    }


def test_the_nulls_of_openai_are_taken_out_of_the_branch_that_was_meant():
    branches = [
        {
            **tool(kind={"const": kind}),
            "properties": {"kind": {"const": kind}, name: {"type": "integer"}},
        }
        for kind, name in ("ax", "by")
    ]
    schema = tool(a={"oneOf": branches})
    assert from_openai_strict(schema, {"a": {"kind": "b", "y": None}}) == {
        "a": {"kind": "b"}
    }


def test_absent_and_null_that_differ_are_not_portable_to_openai():
    cleared = parameter(for_openai_strict, {"type": ["string", "null"]}, required=False)
    assert cleared == NotPortable(
        "OpenAI's strict mode cannot hold `a`: it may be absent or null, and strict mode has only null."
    )
    assert parameter(
        for_openai_strict, {"type": ["string", "null"], "default": None}, required=False
    ) == {"type": ["string", "null"]}


def test_a_description_beside_a_reference_goes_around_it():
    schema = {
        **tool(a={"$ref": "#/definitions/P", "description": "Where."}),
        "definitions": {"P": tool(x={"type": "number"})},
    }
    strict = for_openai_strict(schema)
    assert strict["properties"]["a"] == {
        "anyOf": [{"$ref": "#/$defs/P"}],
        "description": "Where.",
    }
    assert list(strict["$defs"]) == ["P"]


def test_recursion_is_portable_to_openai_only():
    tree = {
        **tool(root={"$ref": "#/$defs/N"}),
        "$defs": {"N": optional(left={"$ref": "#/$defs/N"})},
    }
    assert for_openai_strict(tree)["$defs"]["N"]["properties"]["left"] == {
        "anyOf": [{"$ref": "#/$defs/N"}, {"type": "null"}]
    }
    for convert in (for_anthropic_strict, for_gemini):
        assert "defined by itself" in convert(tree).reason


@pytest.mark.parametrize(
    ("schema", "what"),
    [
        (
            tool(**{f"p{i}": {"type": "string"} for i in range(5001)}),
            "5,001 properties",
        ),
        (
            tool(a={"type": "string", "enum": [str(i) for i in range(1001)]}),
            "1,001 values in enums",
        ),
        (
            tool(
                a={"type": "string", "enum": ["x" * 100 + str(i) for i in range(251)]}
            ),
            "characters in one enum",
        ),
    ],
)
def test_the_limits_of_openai_are_told(schema, what):
    assert what in for_openai_strict(schema).reason


# ---------------------------------------------------------------------- Anthropic


def test_anthropic_keeps_optional_properties_and_tells_bounds():
    schema = {
        "type": "object",
        "properties": {
            "n": {
                "type": "integer",
                "minimum": 1,
                "maximum": 9,
                "description": "How many.",
            },
            "tags": {
                "type": "array",
                "items": {"type": "string"},
                "minItems": 1,
                "maxItems": 3,
            },
            "note": {"type": ["string", "null"], "default": None},
        },
        "required": ["n"],
    }
    assert for_anthropic_strict(schema) == {
        "type": "object",
        "properties": {
            "n": {
                "type": "integer",
                "description": "How many. (at least 1; at most 9)",
            },
            "tags": {
                "type": "array",
                "minItems": 1,
                "items": {"type": "string"},
                "description": "At most 3 items.",
            },
            "note": {"anyOf": [{"type": "string"}, {"type": "null"}], "default": None},
        },
        "required": ["n"],
        "additionalProperties": False,
    }


# ---------------------------------------------------------------------- Gemini


@pytest.mark.parametrize(
    ("schema", "said"),
    [
        ({"type": ["string", "null"]}, {"type": "string", "nullable": True}),
        ({"const": "x"}, {"type": "string", "enum": ["x"]}),
        ({"type": "integer", "enum": [1, 2]}, {"type": "string", "enum": ["1", "2"]}),
        ({"enum": ["a", None]}, {"type": "string", "enum": ["a"], "nullable": True}),
        (
            {"type": ["integer", "string"]},
            {"anyOf": [{"type": "integer"}, {"type": "string"}]},
        ),
        ({"type": "integer", "exclusiveMinimum": 0}, {"type": "integer", "minimum": 1}),
        (
            {"type": "number", "exclusiveMinimum": 0},
            {"type": "number", "description": "More than 0."},
        ),
        (
            {"type": "string", "format": "uuid"},
            {"type": "string", "description": 'Format "uuid".'},
        ),
        (
            {
                "anyOf": [optional(x={"type": "string"}), {"type": "null"}],
                "description": "D.",
            },
            {
                "type": "object",
                "properties": {"x": {"type": "string"}},
                "nullable": True,
                "description": "D.",
            },
        ),
    ],
)
def test_a_schema_is_written_as_gemini_has_it(schema, said):
    assert parameter(for_gemini, schema) == said


def test_references_are_put_in_place_for_gemini():
    schema = {
        **tool(a={"anyOf": [{"$ref": "#/$defs/P"}, {"type": "null"}]}),
        "$defs": {"P": tool(x={"type": "number"})},
    }
    assert for_gemini(schema)["properties"]["a"] == {
        **tool(x={"type": "number"}),
        "nullable": True,
    }
    assert "$defs" not in for_gemini(schema)


def test_values_of_enums_come_back_from_gemini_with_their_types():
    schema = tool(
        a={"enum": [1, 2]},
        b={"type": "array", "items": {"enum": [True, "x"]}},
        c={"type": "string"},
    )
    assert from_gemini(schema, {"a": "2", "b": ["true", "x"], "c": "1"}) == {
        "a": 2,
        "b": [True, "x"],
        "c": "1",
    }


@pytest.mark.parametrize(
    "schema",
    [{"enum": [1, "1"]}, {"enum": [""]}, {"anyOf": [{"const": 1}, {"type": "string"}]}],
)
def test_values_that_would_be_confused_as_text_are_not_portable_to_gemini(schema):
    assert "distinguished" in parameter(for_gemini, schema).reason


# ---------------------------------------------------------------------- all


@pytest.mark.parametrize("convert", ALL)
@pytest.mark.parametrize(
    ("schema", "reason"),
    [
        ({}, "any value is allowed"),
        (True, "any value is allowed"),
        ({"type": "object"}, "names of any kind"),
        (
            {"type": "object", "additionalProperties": {"type": "string"}},
            "names of any kind",
        ),
        (
            {
                "type": "object",
                "properties": {"x": {"type": "string"}},
                "additionalProperties": True,
            },
            "names of any kind",
        ),
        ({"type": "array"}, "any value is allowed"),
        (
            {
                "type": "array",
                "prefixItems": [{"type": "string"}],
                "items": {"type": "string"},
            },
            "it uses `prefixItems`",
        ),
        ({"type": "string", "not": {"const": "a"}}, "it uses `not`"),
        ({"oneOf": [{"type": "integer"}, {"type": "number"}]}, "not clearly apart"),
        (
            {
                "type": "object",
                "properties": {"x": {"type": "string"}},
                "anyOf": [{"required": ["x"]}],
            },
            "conditions beside",
        ),
        (
            {
                "type": "object",
                "properties": {"x": {"type": "string"}},
                "required": ["y"],
            },
            "not described",
        ),
    ],
)
def test_what_would_be_lost_is_named(convert, schema, reason):
    lost = parameter(convert, schema)
    assert isinstance(lost, NotPortable)
    assert "`a`" in lost.reason or "`a[0]`" in lost.reason
    assert reason in lost.reason


@pytest.mark.parametrize("convert", ALL)
def test_alternatives_that_are_apart_are_any_of(convert):
    branches = [
        tool(kind={"type": "string", "const": kind}) for kind in ("circle", "square")
    ]
    assert len(parameter(convert, {"oneOf": branches})["anyOf"]) == 2


@pytest.mark.parametrize("convert", ALL)
def test_a_reference_wrapped_in_all_of_is_a_reference(convert):
    schema = {
        **tool(a={"allOf": [{"$ref": "#/$defs/P"}], "description": "D."}),
        "$defs": {"P": tool(x={"type": "string"})},
    }
    assert "allOf" not in json.dumps(convert(schema))


@pytest.mark.parametrize("convert", ALL)
def test_a_property_called_like_a_keyword_survives(convert):
    schema = tool(
        title={"type": "string"}, default={"type": "string"}, oneOf={"type": "string"}
    )
    assert list(convert(schema)["properties"]) == ["title", "default", "oneOf"]


SCALARS = st.sampled_from(
    [
        {"type": "string"},
        {"type": "string", "maxLength": 2},
        {"type": "integer"},
        {"type": "integer", "exclusiveMinimum": 0, "maximum": 5},
        {"type": "number"},
        {"type": "boolean"},
        {"type": ["integer", "null"], "default": None},
        {"type": ["string", "boolean"]},
        {"enum": [1, 2]},
        {"enum": ["a", "b", None], "default": None},
        {"const": "k"},
    ]
)
SCHEMAS = st.recursive(
    SCALARS,
    lambda inner: st.one_of(
        inner.map(lambda items: {"type": "array", "items": items}),
        st.dictionaries(st.sampled_from("xyz"), inner, min_size=1).map(
            lambda p: optional(**p)
        ),
        st.dictionaries(st.sampled_from("xyz"), inner, min_size=1).map(
            lambda p: tool(**p)
        ),
        inner.map(lambda one: {"anyOf": [one, {"type": "null"}], "default": None}),
    ),
    max_leaves=4,
)
VALUES = st.recursive(
    st.sampled_from(
        [None, True, 0, 1, 2, 9, 1.5, "", "a", "b", "k", "1", "true", "long"]
    ),
    lambda inner: (
        st.lists(inner, max_size=2)
        | st.dictionaries(st.sampled_from("xyz"), inner, max_size=3)
    ),
    max_leaves=4,
)


def instances(schema):
    """Draw values that are near a schema: by its structure, with scalars of all kinds."""
    for part in schema.get("anyOf", ()):
        if part != {"type": "null"}:
            return st.none() | instances(part)
    if schema.get("type") == "array":
        return st.lists(instances(schema["items"]), max_size=2)
    if schema.get("type") == "object":
        needed = {
            name: instances(part)
            for name, part in schema["properties"].items()
            if name in schema.get("required", ())
        }
        others = {
            name: instances(part)
            for name, part in schema["properties"].items()
            if name not in needed
        }
        return st.fixed_dictionaries(needed, optional=others)
    return VALUES.filter(lambda value: not isinstance(value, dict | list))


def meant(schema):
    """Return what a schema says apart from null."""
    for part in schema.get("anyOf", ()):
        if part != {"type": "null"}:
            return meant(part)
    return schema


def with_nulls(schema, value):
    """Write a value as strict mode has it: null for what is absent."""
    body = meant(schema)
    if isinstance(value, dict):
        parts = body["properties"].items()
        return {
            name: with_nulls(part, value[name]) if name in value else None
            for name, part in parts
        }
    return (
        [with_nulls(body["items"], part) for part in value]
        if isinstance(value, list)
        else value
    )


def with_absent_nulls(schema, value):
    """Put in the nulls that are the defaults of absent properties: strict mode sends them, and they mean the same."""
    body = meant(schema)
    if isinstance(value, dict):
        parts = body["properties"].items()
        nulls = {name: None for name, part in parts if part.get("default", 0) is None}
        return {
            **nulls,
            **{
                name: with_absent_nulls(part, value[name])
                for name, part in parts
                if name in value
            },
        }
    return (
        [with_absent_nulls(body["items"], part) for part in value]
        if isinstance(value, list)
        else value
    )


def spelled(schema, value):
    """Write a value as Gemini has it: the values of enums as text."""
    body = meant(schema)
    if isinstance(value, dict):
        return {
            name: spelled(body["properties"][name], part)
            for name, part in value.items()
        }
    if isinstance(value, list):
        return [spelled(body["items"], part) for part in value]
    return str(value) if "enum" in body and value is not None else value


def is_taken_by_gemini(schema, value):
    """Judge a value by Gemini's own words; `nullable` is the one that JSON Schema does not have."""
    plain = copy.deepcopy(schema)
    for part in list(walk(plain)):
        if part.pop("nullable", False):
            inner = dict(part)
            part.clear()
            part["anyOf"] = [inner, {"type": "null"}]
    return compile_schema(plain).is_valid(value)


@settings(suppress_health_check=list(HealthCheck), deadline=None)
@given(
    data=st.data(),
    schema=st.dictionaries(st.sampled_from("abc"), SCHEMAS, min_size=1).map(
        lambda p: optional(**p)
    ),
)
def test_what_a_model_may_send_it_can_still_say_and_it_comes_back(data, schema):
    value = data.draw(instances(schema))
    assume(compile_schema(schema).is_valid(value))
    before = copy.deepcopy(schema)
    openai, anthropic, gemini = (convert(schema) for convert in ALL)
    if not isinstance(openai, NotPortable):
        assert compile_schema(openai).is_valid(with_nulls(schema, value))
        assert from_openai_strict(
            schema, with_nulls(schema, value)
        ) == with_absent_nulls(schema, value)
    if not isinstance(anthropic, NotPortable):
        assert compile_schema(anthropic).is_valid(value)
    if not isinstance(gemini, NotPortable):
        assert is_taken_by_gemini(gemini, spelled(schema, value))
        assert from_gemini(schema, spelled(schema, value)) == value
    assert schema == before
