"""What all dialects write alike, and what every wire shares."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

import handrail as hr
from handrail.core.history import as_history
from handrail.dialects.received import MOST_LEVELS
from handrail.dialects.wires import base
from handrail.dialects.writing import as_object
from handrail.errors import ConfigError
from handrail.ports import Described

VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3)
    ),
)


@given(value=st.dictionaries(st.text(), VALUES, max_size=4), is_ascii=st.booleans())
def test_the_object_of_a_history_is_what_the_standard_library_reads(value, is_ascii):
    text = json.dumps(value, ensure_ascii=is_ascii)
    assert repr(as_object(text)) == repr(json.loads(as_history(text)))


@pytest.mark.parametrize(("lists", "goes_back"), [
    (MOST_LEVELS - 1, True),  # and the object around them
    (MOST_LEVELS, False),
])  # fmt: skip
def test_arguments_nested_too_deep_for_a_request_go_back_as_text(lists, goes_back):
    text = f'{{"a": {"[" * lists}{"]" * lists}}}'
    assert as_object(text) == (
        json.loads(text) if goes_back else {"INVALID_JSON": text}
    )


def test_brackets_within_a_string_are_no_nesting():
    assert as_object(json.dumps({"a": "[" * 1_000})) == {"a": "[" * 1_000}


ONE = [Described("look", "", {})]
SEARCH = [{"type": "search", "name": "web"}]


@pytest.mark.parametrize(("choice", "tools", "provided", "by_name", "why"), [
    ("auto", [], [], False, ""),
    ("none", [], [], False, ""),
    ("required", ONE, [], False, ""),
    ("required", [], SEARCH, False, ""),
    ("required", [], [], False, "the request has no tools"),
    ("look", ONE, [], False, ""),
    ("look", [], [], False, "the request has no tools"),
    ("web", ONE, SEARCH, False, "not among the 1 tools"),
    ("web", ONE, SEARCH, True, ""),
])  # fmt: skip
def test_a_demand_that_no_model_could_meet_never_leaves(
    choice, tools, provided, by_name, why
):
    if not why:
        base.check_choice(choice, tools, provided, by_name=by_name)
        return
    with pytest.raises(ConfigError, match=why):
        base.check_choice(choice, tools, provided, by_name=by_name)


@pytest.mark.parametrize(
    "name",
    [
        "openai-chat",
        "openai-responses",
        "anthropic",
        "gemini",
        "gemini-interactions",
        "cohere",
        "bedrock",
    ],
)
def test_a_set_of_tools_is_described_once(name):
    tools, wire = (
        hr.Toolset([hr.FunctionTool(len, name="size", parameters={}, effect="read")]),
        hr.dialect(name),
    )
    assert wire.definitions(tools) is wire.definitions(tools)
    assert wire.definitions(tools, strict=True) is wire.definitions(tools, strict=True)
