"""The identity of a call: templates, keys, fingerprints."""

import json
import math

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from handrail.errors import ToolDefinitionError
from handrail.tools.keys import canonical, default_key, fingerprint, names_in, template


@pytest.mark.parametrize(("text", "arguments", "key"), [
    ("refund:{order_id}", {"order_id": "881"}, "refund:881"),
    ("refund:{order_id}", {"order_id": 881}, "refund:881"),
    ("{user.id}/{day}", {"user": {"id": 7}, "day": "2026-03-01"}, "7/2026-03-01"),
    ("all", {}, "all"),                                       # one thing for every call
    ("{{literal}}:{a}", {"a": "x"}, "{literal}:x"),
    ("{a}", {"a": True}, "true"),                             # as JSON, not as Python
    ("{a}", {"a": None}, "null"),
    # JSON Schema takes 3.0 for the integer 3
    ("{a}", {"a": 3.0}, "3"),
    ("{a}", {"a": ["x", 1]}, '["x",1]'),
    ("{a}", {"a": "北京"}, "北京"),
    ("a:{x}", {"x": "1:2/3%"}, "a:1%3A2%2F3%25"),
    # whatever stands between the fields is a separator
    ("{a}-{b}", {"a": "1-2", "b": "3"}, "1%2D2-3"),
])  # fmt: skip
def test_a_template_is_filled_from_arguments(text, arguments, key):
    assert template(text)(arguments) == key


TEXTS = st.text(max_size=5) | st.text("01235AC %:\u2010-_", max_size=5)


@given(
    first=st.tuples(TEXTS, TEXTS),
    second=st.tuples(TEXTS, TEXTS),
    separator=st.sampled_from(
        [":", "/", "-", "_", ".", " ", "%:", "::", "-x-", " \u2010"]
    ),
)
def test_two_acts_never_share_a_key(first, second, separator):
    assume(first != second)
    fill = template("{a}" + separator + "{b}")
    assert fill({"a": first[0], "b": first[1]}) != fill(
        {"a": second[0], "b": second[1]}
    )


@pytest.mark.parametrize("text", [
    "order:{",
    "order:}",
    "order:{}",
    "order:{0}",
    "order:{order id}",
    "order:{order_id!r}",
    "order:{order_id:>10}",
    "order:{order[id]}",
    "order:{order.}",
    "order:{order_id.__class__.}",
])  # fmt: skip
def test_what_is_no_template_is_refused_when_it_is_declared(text):
    with pytest.raises(ToolDefinitionError, match="is not a template"):
        template(text)


@pytest.mark.parametrize(
    "text", ["{a}{b}", "order{a}item{b}", "{a}1{b}", "{a}%{b}", "{a}:{b}{c}"]
)
def test_two_fields_without_a_separator_are_refused_when_they_are_declared(text):
    with pytest.raises(ToolDefinitionError, match="needs a separator"):
        template(text)


@pytest.mark.parametrize(("one", "other"), [
    (None, "null"), (True, "true"), ([1], "[1]"), ({}, "{}"), ("null", '"null"'), ('"null"', '"\\"null\\""'),
])  # fmt: skip
def test_text_that_looks_like_another_kind_of_value_has_a_key_of_its_own(one, other):
    fill = template("order:{id}")
    assert fill({"id": one}) != fill({"id": other})


def test_a_number_and_its_text_are_one_key():
    assert (
        template("order:{id}")({"id": 881})
        == template("order:{id}")({"id": "881"})
        == "order:881"
    )


@pytest.mark.parametrize(
    "arguments", [{}, {"user": {}}, {"user": None}, {"user": "Ada"}, {"user": [1]}]
)
def test_a_field_that_is_not_there_is_an_error_and_no_key(arguments):
    with pytest.raises((LookupError, TypeError)):
        template("{user.id}")(arguments)


def test_a_template_never_reaches_into_python_objects():
    with pytest.raises((LookupError, TypeError)):
        template("{user.__class__.__name__}")({"user": "Ada"})


def test_a_template_names_the_arguments_that_it_looks_at():
    assert names_in("{a}:{b.c}/{b.d}{{e}}") == {"a", "b"}


JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: (
        st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4)
    ),
    max_leaves=10,
)


@given(JSON)
def test_canonical_json_reads_back_as_the_same_value(value):
    assert json.loads(canonical(value)) == value


@given(st.dictionaries(st.text(), JSON))
def test_the_order_of_names_does_not_matter(value):
    assert canonical(dict(reversed(value.items()))) == canonical(value)


@pytest.mark.parametrize(("one", "other"), [
    ({"amount": 20}, {"amount": 20.0}),          # one number in JSON
    ({"a": [1, 2]}, {"a": (1, 2)}),
    ({"zero": 0}, {"zero": -0.0}),
    ({"a": 10**16}, {"a": 1e16}),
])  # fmt: skip
def test_equal_values_have_one_text(one, other):
    assert canonical(one) == canonical(other)


@pytest.mark.parametrize(("one", "other"), [
    ({"a": 1}, {"a": True}),
    ({"a": 1}, {"a": "1"}),
    ({"a": None}, {}),
    ({"a": [1, 2]}, {"a": [2, 1]}),
    ({"a": 2**53 + 1}, {"a": float(2**53)}),     # the float is the integer below
])  # fmt: skip
def test_unequal_values_have_two_texts(one, other):
    assert canonical(one) != canonical(other)


@given(st.floats(allow_nan=False, allow_infinity=False))
def test_every_number_keeps_its_value(number):
    assert math.isclose(json.loads(canonical(number)), number, rel_tol=0, abs_tol=0)


def test_a_fingerprint_tells_tool_version_and_arguments_apart():
    prints = {fingerprint(*act) for act in [
        ("refund", "", {"order": "1"}),
        ("refund", "", {"order": "2"}),
        ("refund", "2", {"order": "1"}),
        ("pay", "", {"order": "1"}),
    ]}  # fmt: skip
    assert len(prints) == 4


def test_a_fingerprint_is_the_same_in_every_process():
    # sha256 of "refund\0\0{}", computed with another program (`printf 'refund\0\0{}' | sha256sum`).
    assert (
        fingerprint("refund", "", {}).hex()
        == "1646335d0ef77dfb83a15d2de7b367cf2b2fe9502c334d5d8e1222c978e4d8bd"
    )


def test_a_fingerprint_is_made_of_any_text():
    assert fingerprint("refund", "", {"order": "\ud800"})


def test_a_write_without_a_key_is_named_by_its_place():
    assert default_key("r1", 3, 0) == "r1/3/0"


@given(
    value=st.dictionaries(
        st.text() | st.sampled_from(["\x00", "\x7f", "\u2028", "é", "\ud800"]),
        st.text(st.characters(exclude_categories=[])) | st.integers() | st.booleans()
        | st.none() | st.sampled_from([2**64, -(2**63), 10**40, "\x1f\"\\/"]),
    )
)  # fmt: skip
def test_the_text_of_plain_arguments_is_that_of_pythons_encoder(value):
    expected = json.dumps(
        value, sort_keys=True, separators=(",", ":"), ensure_ascii=False
    )
    assert canonical(value) == expected
