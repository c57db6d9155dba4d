import datetime as dt
import decimal
import enum
import functools
import typing
import uuid
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal, Optional, Union

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from msgspec import Struct
from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, field_validator

from handrail.errors import Failure, ToolDefinitionError
from handrail.schemas.docstrings import Docs, read_docstring
from handrail.schemas.hints import check_parameters, describe_function, import_schema
from handrail.schemas.validation import Checked, Checker
from handrail.schemas.walk import MOST_BYTES, MOST_DEPTH, MOST_SUBSCHEMAS

NO_DOCS = Docs()


class Colour(enum.Enum):
    RED = "red"
    BLUE = "blue"


class Node(BaseModel):
    """A node of a tree."""

    title: str
    children: list["Node"] = []


class Range(BaseModel):
    first: int = Field(description="Where it begins.")
    last: int = 10


class Circle(BaseModel):
    kind: Literal["circle"]
    radius: float


class Square(BaseModel):
    kind: Literal["square"]
    side: float


class Stock(BaseModel):
    model_config = ConfigDict(strict=True)

    amount: int
    day: dt.date

    @field_validator("amount")
    @classmethod
    def in_stock(cls, amount: int) -> int:
        if amount > 5:
            raise ValueError("there are only 5 in stock")
        return amount


class Options(typing.TypedDict, total=False):
    depth: typing.Required[int]
    title: str


@dataclass
class Point:
    x: float
    y: float = 0.0


def schema_of(fn, docs=NO_DOCS):
    return describe_function(fn, docs).schema


def property_of(hint, default=...):
    """Return the schema of one parameter with this hint, beside another one."""

    def fn(value, other): ...

    fn.__annotations__ = {"value": hint, "other": int}
    if default is not ...:
        fn.__defaults__ = (default, 0)
    return schema_of(fn)["properties"]["value"]


def test_the_schema_is_what_a_person_would_write():
    def get_weather(
        city: str,
        unit: Literal["celsius", "fahrenheit"] = "celsius",
        days: Annotated[int, Field(ge=1, le=14)] = 3,
        since: dt.datetime | None = None,
    ) -> dict:
        """Get the weather.

        Args:
            city: City name such as "Paris".
            days: How many days.
        """

    assert schema_of(get_weather, read_docstring(get_weather.__doc__)) == {
        "type": "object",
        "properties": {
            "city": {"type": "string", "description": 'City name such as "Paris".'},
            "unit": {
                "type": "string",
                "enum": ["celsius", "fahrenheit"],
                "default": "celsius",
            },
            "days": {
                "type": "integer",
                "description": "How many days.",
                "maximum": 14,
                "minimum": 1,
                "default": 3,
            },
            "since": {
                "type": ["string", "null"],
                "format": "date-time",
                "default": None,
            },
        },
        "required": ["city"],
        "additionalProperties": False,
    }


@pytest.mark.parametrize(
    ("hint", "schema"),
    [
        (str, {"type": "string"}),
        (bool, {"type": "boolean"}),
        (Any, {}),
        (Literal["a"], {"type": "string", "const": "a"}),
        (Colour, {"type": "string", "enum": ["red", "blue"]}),
        (Optional[int], {"type": ["integer", "null"]}),  # noqa: UP045 - the older spelling is in use
        (
            Literal["a", "b"] | None,
            {"type": ["string", "null"], "enum": ["a", "b", None]},
        ),
        (Union[int, str], {"type": ["integer", "string"]}),  # noqa: UP007
        # two types of one value stay apart
        (int | float, {"anyOf": [{"type": "integer"}, {"type": "number"}]}),
        (list[int], {"type": "array", "items": {"type": "integer"}}),
        (set[str], {"type": "array", "uniqueItems": True, "items": {"type": "string"}}),
        (
            dict[str, int],
            {"type": "object", "additionalProperties": {"type": "integer"}},
        ),
        (
            tuple[int, str],
            {
                "type": "array",
                "prefixItems": [{"type": "integer"}, {"type": "string"}],
                "minItems": 2,
                "maxItems": 2,
            },
        ),
        (dt.datetime, {"type": "string", "format": "date-time"}),
        (dt.date, {"type": "string", "format": "date"}),
        (dt.timedelta, {"type": "string", "format": "duration"}),
        (uuid.UUID, {"type": "string", "format": "uuid"}),
        # as text it keeps its digits
        (decimal.Decimal, {"type": ["number", "string"]}),
        (bytes, {"type": "string", "format": "binary"}),
        (Path, {"type": "string", "format": "path"}),
        (
            Range,
            {
                "type": "object",
                "properties": {
                    "first": {"type": "integer", "description": "Where it begins."},
                    "last": {"type": "integer", "default": 10},
                },
                "required": ["first"],
                "additionalProperties": False,
            },
        ),
        (
            Point,
            {
                "type": "object",
                "properties": {
                    "x": {"type": "number"},
                    "y": {"type": "number", "default": 0.0},
                },
                "required": ["x"],
                "additionalProperties": False,
            },
        ),
        (
            Options,
            {
                "type": "object",
                "properties": {
                    "depth": {"type": "integer"},
                    "title": {"type": "string"},
                },
                "required": ["depth"],
                "additionalProperties": False,
            },
        ),
    ],
)
def test_a_type_hint_has_its_schema(hint, schema):
    assert property_of(hint) == schema


def test_a_parameter_called_title_survives_and_no_title_is_added():
    def fn(title: str, range_: Range) -> None: ...

    schema = schema_of(fn)
    assert schema["properties"]["title"] == {"type": "string"}
    assert "title" not in schema
    assert "title" not in schema["properties"]["range_"]


def test_a_definition_stays_where_it_is_used_twice_or_by_itself():
    def twice(a: Range, b: Range) -> None: ...
    def tree(root: Node, name: str) -> None: ...
    def once(a: Range, name: str) -> None: ...

    assert schema_of(twice)["properties"]["a"] == {"$ref": "#/$defs/Range"}
    assert list(schema_of(tree)["$defs"]) == ["Node"]
    assert "$defs" not in schema_of(once)


def test_a_text_of_field_comes_before_the_docstring():
    def fn(a: Annotated[int, Field(description="By Field.")], b: int) -> None:
        """Do.

        Args:
            a: By docstring.
            b: By docstring.
        """

    properties = schema_of(fn, read_docstring(fn.__doc__))["properties"]
    assert [properties[name]["description"] for name in "ab"] == [
        "By Field.",
        "By docstring.",
    ]


def test_a_null_default_is_not_told_where_null_is_not_allowed():
    assert property_of(int, None) == {"type": "integer"}
    assert property_of(int | None, None) == {
        "type": ["integer", "null"],
        "default": None,
    }


def test_hidden_parameters_are_in_no_schema():
    def fn(tenant: Annotated[str, "hidden"], city: str) -> None: ...

    signature = describe_function(
        fn, NO_DOCS, lambda hint: "hidden" in getattr(hint, "__metadata__", ())
    )
    assert list(signature.schema["properties"]) == ["city"]
    assert (signature.names, list(signature.hidden)) == (("city",), ["tenant"])


def test_a_function_without_parameters_takes_an_empty_object():
    def fn() -> None: ...

    assert schema_of(fn) == {
        "type": "object",
        "properties": {},
        "additionalProperties": False,
    }
    assert describe_function(fn, NO_DOCS).bind({}) == {}


# ---------------------------------------------------------------------- one model as the whole input


def test_one_model_is_the_whole_input_and_the_function_gets_an_instance():
    def fn(range_: Range) -> None: ...

    signature = describe_function(fn, NO_DOCS)
    assert signature.model is Range
    assert list(signature.schema["properties"]) == ["first", "last"]
    assert signature.bind({"first": 1}) == {"range_": Range(first=1)}


def test_a_model_that_names_itself_is_an_object_at_the_top():
    def fn(root: Node) -> None: ...

    signature = describe_function(fn, NO_DOCS)
    assert signature.schema["type"] == "object"
    assert (
        signature.bind({"title": "a", "children": [{"title": "b"}]})["root"]
        .children[0]
        .title
        == "b"
    )


def test_an_error_within_a_model_names_its_path():
    def fn(root: Node) -> None: ...

    failure = describe_function(fn, NO_DOCS).bind(
        {"title": "a", "children": [{"title": "b"}, {}]}
    )
    assert isinstance(failure, Failure)
    assert failure.message == "`children[1].title` is required."


# ---------------------------------------------------------------------- binding


def test_json_becomes_the_types_of_the_hints():
    def fn(
        day: dt.date,
        colour: Colour,
        point: Point,
        where: Path,
        price: decimal.Decimal,
        data: bytes,
    ) -> None: ...

    bound = describe_function(fn, NO_DOCS).bind(
        {
            "day": "2026-11-21",
            "colour": "red",
            "point": {"x": 1},
            "where": "/tmp/x",
            "price": "1.10",
            "data": "hé",
        }
    )
    assert bound == {
        "day": dt.date(2026, 11, 21),
        "colour": Colour.RED,
        "point": Point(1.0),
        "where": Path("/tmp/x"),
        "price": decimal.Decimal("1.10"),
        "data": "hé".encode(),
    }


def test_defaults_are_filled_in_and_not_shared():
    def fn(
        names: list[str] = [],
        limit: Annotated[int, Field(ge=1)] = Field(5, description="Most."),
    ) -> None: ...

    signature = describe_function(fn, NO_DOCS)
    first = signature.bind({})
    first["names"].append("x")
    assert signature.bind({}) == {"names": [], "limit": 5}


def test_an_alias_is_what_the_model_sees_and_the_name_what_the_function_gets():
    def fn(from_: Annotated[str, Field(alias="from")], to: str) -> None:
        """Send.

        Args:
            from_: The sender.
        """

    signature = describe_function(fn, read_docstring(fn.__doc__))
    assert signature.schema["properties"]["from"] == {
        "type": "string",
        "description": "The sender.",
    }
    assert signature.bind({"from": "a", "to": "b"}) == {"from_": "a", "to": "b"}


def test_a_model_in_strict_mode_reads_dates_from_text():
    def fn(stock: Stock, note: str = "") -> None: ...

    bound = describe_function(fn, NO_DOCS).bind(
        {"stock": {"amount": 1, "day": "2026-11-21"}}
    )
    assert bound["stock"].day == dt.date(2026, 11, 21)


def test_what_only_python_knows_is_told_with_its_path():
    def fn(
        stock: Stock,
        when: dt.datetime,
        shape: Annotated[Circle | Square, Field(discriminator="kind")],
    ) -> None: ...

    failure = describe_function(fn, NO_DOCS).bind(
        {
            "stock": {"amount": 9, "day": "2026-11-21"},
            "when": "2026-13-01",
            "shape": {"kind": "circle", "radius": "x"},
        }
    )
    assert isinstance(failure, Failure)
    assert "`stock.amount` was refused: there are only 5 in stock." in failure.message
    assert "`when` must be a valid datetime" in failure.message
    assert [fault["field"] for fault in failure.details] == [
        "stock.amount",
        "when",
        "shape.radius",
    ]


def test_an_explicit_null_is_taken_only_where_it_is_allowed():
    def fn(a: int = None, b: int | None = 1) -> None: ...  # noqa: RUF013 - people write it

    signature = describe_function(fn, NO_DOCS)
    assert signature.bind({"b": None}) == {"a": None, "b": None}
    assert isinstance(signature.bind({"a": None}), Failure)


HINTS = st.recursive(
    st.sampled_from([type(None), Literal["a", 1], Circle | Square])
    | st.sampled_from(
        [
            int,
            str,
            bool,
            float,
            dt.date,
            dt.timedelta,
            uuid.UUID,
            decimal.Decimal,
            Colour,
            Point,
            Range,
            Node,
        ]
    ),
    lambda inner: st.one_of(
        inner.map(lambda hint: list[hint]),
        inner.map(lambda hint: dict[str, hint]),
        inner.map(lambda hint: Optional[hint]),  # noqa: UP045
        st.tuples(inner, inner).map(lambda hints: tuple[hints]),
    ),
    max_leaves=3,
)
TEXTS = st.text(max_size=5)
NUMBERS = st.floats(allow_nan=False, allow_infinity=False, width=32)
st.register_type_strategy(str, TEXTS)
st.register_type_strategy(float, NUMBERS)
st.register_type_strategy(Point, st.builds(Point, NUMBERS, NUMBERS))
st.register_type_strategy(decimal.Decimal, st.decimals(-1000, 1000, places=2))
st.register_type_strategy(
    Node,
    st.builds(
        Node, title=TEXTS, children=st.lists(st.builds(Node, title=TEXTS), max_size=2)
    ),
)


@settings(suppress_health_check=[HealthCheck.too_slow], max_examples=60, deadline=None)
@given(data=st.data(), hint=HINTS)
def test_a_value_written_as_json_fits_the_schema_and_binds_back_equal(data, hint):
    def fn(value, other): ...

    fn.__annotations__ = {"value": hint, "other": int}
    value = data.draw(st.from_type(hint))
    signature = describe_function(fn, NO_DOCS)
    arguments = {"value": TypeAdapter(hint).dump_python(value, mode="json"), "other": 1}
    checked = Checker(signature.schema, coerce=False).check(arguments)
    assert isinstance(checked, Checked)
    assert signature.bind(checked.arguments) == {"value": value, "other": 1}


# ---------------------------------------------------------------------- mistakes in a signature


class Item(Struct):
    sku: str


def without_hint(when, city: str): ...
def any_number(*names: str): ...
def any_names(**names: str): ...
def by_position(city: str, /): ...
def unresolved(city: str, when: "Tomorrow"): ...  # noqa: F821
def no_json(city: str, then: Callable[[int], int]): ...
def no_model(city: str, item: Item): ...


@pytest.mark.parametrize(
    ("fn", "said"),
    [
        (
            without_hint,
            "parameter `when` has no type hint. Add one (`when: str`), or mark it as injected",
        ),
        (any_number, "`*names`"),
        (any_names, "`**names`"),
        (by_position, "`city` is positional-only"),
        (unresolved, "`when`, 'Tomorrow', cannot be resolved"),
        (no_json, "`then` has no JSON form"),
        (
            no_model,
            "Item'>). Use a dataclass, a pydantic model or another type that JSON can hold",
        ),
    ],
)
def test_a_parameter_that_cannot_be_described_is_named(fn, said):
    with pytest.raises(ToolDefinitionError) as caught:
        _ = describe_function(fn, NO_DOCS, name="my_tool").schema
    assert "Tool 'my_tool' cannot be described to a model" in str(caught.value)
    assert said in str(caught.value)


def test_a_missing_hint_is_found_without_resolving_any():
    with pytest.raises(ToolDefinitionError, match="`when` has no type hint"):
        check_parameters(without_hint)
    assert [parameter.name for parameter in check_parameters(unresolved)] == [
        "city",
        "when",
    ]


def test_methods_instances_partials_and_wrappers_are_functions():
    class Search:
        def run(self, query: "str") -> None: ...
        def __call__(self, query: "str") -> None: ...

    def plain(query: "str", limit: int) -> None: ...

    @functools.wraps(plain)
    def wrapper(*args: Any, **kwargs: Any) -> None: ...

    for fn in (Search().run, Search(), functools.partial(plain, limit=1), wrapper):
        assert schema_of(fn)["properties"]["query"] == {"type": "string"}


# ---------------------------------------------------------------------- from outside


@pytest.mark.parametrize(
    ("foreign", "own"),
    [
        ("dict", "object"),
        ("HashMap", "object"),
        ("float", "number"),
        ("double", "number"),
        ("tuple", "array"),
        ("ArrayList", "array"),
        ("Array", "array"),
        ("String", "string"),
        ("Boolean", "boolean"),
        ("long", "integer"),
        ("Bigint", "integer"),
        (["string", "None"], ["string", "null"]),
    ],
)
def test_a_type_of_another_language_is_translated(foreign, own):
    schema = import_schema({"type": "dict", "properties": {"a": {"type": foreign}}})
    assert schema == {"type": "object", "properties": {"a": {"type": own}}}


@pytest.mark.parametrize("name", ["any", "", "unknown"])
def test_any_type_is_none(name):
    assert import_schema({"properties": {"a": {"type": name}}}) == {
        "type": "object",
        "properties": {"a": {}},
    }


def test_a_property_called_like_a_keyword_survives():
    properties = {
        "type": {"type": "string"},
        "properties": {"type": "number"},
        "$ref": {"type": "string"},
    }
    assert (
        import_schema({"type": "object", "properties": properties})["properties"]
        == properties
    )


def test_data_is_not_looked_into():
    schema = {
        "type": "object",
        "properties": {
            "a": {"default": {"type": "dict"}, "enum": [{"type": "float"}, None]}
        },
    }
    assert import_schema(schema) == schema


@pytest.mark.parametrize(
    ("older", "newer"),
    [
        (
            {"type": "string", "enum": None, "examples": None, "items": None},
            {"type": "string"},
        ),
        ({"type": "string", "nullable": True}, {"type": ["string", "null"]}),
        (
            {"type": "string", "enum": ["a"], "nullable": True},
            {"type": ["string", "null"], "enum": ["a", None]},
        ),
        (
            {"type": "integer", "minimum": 0, "exclusiveMinimum": True},
            {"type": "integer", "exclusiveMinimum": 0},
        ),
        (
            {"type": "integer", "minimum": 0, "exclusiveMinimum": False},
            {"type": "integer", "minimum": 0},
        ),
        (
            {"type": "array", "items": [{"type": "int"}], "additionalItems": False},
            {"type": "array", "prefixItems": [{"type": "integer"}], "items": False},
        ),
        (
            {"type": "object", "dependencies": {"a": ["b"], "c": {"required": ["d"]}}},
            {
                "type": "object",
                "dependentRequired": {"a": ["b"]},
                "dependentSchemas": {"c": {"required": ["d"]}},
            },
        ),
        (
            {
                "type": "object",
                "properties": {"x": {"type": "string", "required": True}},
            },
            {
                "type": "object",
                "properties": {"x": {"type": "string"}},
                "required": ["x"],
            },
        ),
        ({"type": "string", "description": None, "items": None}, {"type": "string"}),
    ],
)
def test_an_older_form_is_written_in_the_newer(older, newer):
    assert (
        import_schema({"type": "object", "properties": {"p": older}})["properties"]["p"]
        == newer
    )


@pytest.mark.parametrize("nothing", [None, {}])
def test_a_tool_without_parameters_takes_an_empty_object(nothing):
    assert import_schema(nothing) == {"type": "object", "properties": {}}


def test_definitions_and_anchors_are_kept():
    schema = {
        "type": "object",
        "properties": {"a": {"$ref": "#/$defs/A"}, "b": {"$ref": "#here"}},
        "$defs": {"A": {"type": "string"}, "B": {"$anchor": "here", "type": "integer"}},
    }
    assert import_schema(schema) == schema


def nested(depth):
    schema = {"type": "string"}
    for _ in range(depth):
        schema = {"type": "object", "properties": {"a": schema}}
    return schema


def laughing(times, by="#/$defs/{}", name="$anchor"):
    """Thirty definitions that each ask twice for the next: 2^30 schemas for one value."""
    definitions = {
        f"d{i}": {
            name: f"d{i}",
            "allOf": [{"$ref": by.format(f"d{i + 1}")}] * 2 if i < times else [{}],
        }
        for i in range(times + 1)
    }
    return {
        "type": "object",
        "allOf": [{"$ref": by.format("d0")}],
        "$defs": definitions,
    }


@pytest.mark.parametrize(
    ("schema", "reason"),
    [
        (nested(MOST_DEPTH), "nested deeper than 64 levels"),
        (nested(5000), "nested deeper than 64 levels"),
        (
            {"properties": {str(i): {} for i in range(MOST_SUBSCHEMAS)}},
            "more than 10,000 subschemas",
        ),
        ({"description": "x" * MOST_BYTES}, "bytes, and at most 262,144"),
        (laughing(30), "expand to more than 1,000"),
        (laughing(30, by="#/%24defs/{}"), "expand to more than 1,000"),
        (laughing(30, by="#{}"), "expand to more than 1,000"),
        (laughing(30, by="{}", name="$id"), "expand to more than 1,000"),
        (
            {"allOf": [{"$ref": "#/$defs/a"}], "$defs": {"a": {"$ref": "#/$defs/a"}}},
            "leads back to itself",
        ),
        (
            {"properties": {"a": {"$ref": "https://example.org/a.json"}}},
            "nothing is fetched",
        ),
        ({"properties": {"a": {"$ref": "file:///etc/passwd"}}}, "nothing is fetched"),
        ({"properties": {"a": {"$ref": "#/$defs/none"}}}, "leads out of it"),
        ({"properties": {"a": {"type": "wizard"}}}, 'its type "wizard" is unknown'),
        ({"properties": {"a": {"type": 3}}}, "its type 3 is unknown"),
        (
            {"properties": {"a": "string"}},
            '"string" was found where a schema is expected',
        ),
        ({"properties": {"a": {"pattern": "("}}}, "at properties/a/pattern"),
        ({"properties": {"a": {"maximum": "3"}}}, "at properties/a/maximum"),
        (
            {"type": "array"},
            "a tool takes an object of named arguments, and this describes array",
        ),
        ({"default": object()}, "it is no JSON"),
    ],
)
def test_a_schema_that_cannot_be_used_is_refused_with_its_reason(schema, reason):
    with pytest.raises(ToolDefinitionError) as caught:
        import_schema(schema, name="their_tool")
    assert reason in str(caught.value)
    assert "'their_tool'" in str(caught.value)
    assert len(str(caught.value)) < 1000


def test_recursion_into_the_value_is_no_endless_expansion():
    tree = {
        "type": "object",
        "properties": {"children": {"type": "array", "items": {"$ref": "#"}}},
    }
    assert import_schema(tree) == tree


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.text(max_size=5),
        lambda x: (
            st.lists(x, max_size=3)
            | st.dictionaries(
                st.sampled_from(
                    [
                        "type",
                        "properties",
                        "items",
                        "anyOf",
                        "required",
                        "enum",
                        "$ref",
                        "$defs",
                        "nullable",
                        "dependencies",
                    ]
                ),
                x,
                max_size=4,
            )
        ),
        max_leaves=12,
    )
)
def test_whatever_comes_from_outside_is_imported_or_refused(schema):
    try:
        import_schema(
            {"properties": schema} if not isinstance(schema, dict) else schema
        )
    except ToolDefinitionError as error:
        assert str(error)
