"""Copies of arguments: what `deepcopy` makes, for all that pydantic makes of JSON."""

from copy import deepcopy
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel, ConfigDict, PrivateAttr

import handrail as hr
from handrail.tools.argument_copies import copy_arguments


class Line(BaseModel):
    """One line of an order."""

    name: str
    tags: list[str] = []
    more: dict[str, Any] = {}


class Order(BaseModel):
    """An order, and lines that may be one and the same."""

    lines: list[Line]
    first: Line | None = None


class Open(BaseModel):
    """A model with what nobody described, and something of its own."""

    model_config = ConfigDict(extra="allow")
    _seen: list[str] = PrivateAttr(default_factory=lambda: ["once"])


class Counting(BaseModel):
    """A model that says how it is copied."""

    copies: int = 0

    def __deepcopy__(self, memo: Any = None) -> "Counting":
        return Counting(copies=self.copies + 1)


LINES = st.builds(
    Line,
    name=st.text(max_size=3),
    tags=st.lists(st.text(max_size=2), max_size=2),
    more=st.dictionaries(
        st.text(max_size=2), st.integers() | st.lists(st.floats(), max_size=2)
    ),
)


@given(
    bound=st.dictionaries(
        st.sampled_from(["a", "b", "c"]),
        st.none() | st.text() | LINES | st.lists(LINES | st.integers(), max_size=3),
    )
)
def test_a_copy_equals_the_arguments_and_shares_nothing_that_changes(bound):
    copied = copy_arguments(bound)
    assert repr(copied) == repr(bound)
    assert not list_parts(copied) & list_parts(bound)


def list_parts(value: Any) -> set[int]:
    """Return the identities of the lists, dicts and models in a value."""
    if isinstance(value, BaseModel):
        return {id(value)} | list_parts(vars(value))
    if isinstance(value, dict):
        return {id(value)}.union(*map(list_parts, value.values()))
    if isinstance(value, list):
        return {id(value)}.union(*map(list_parts, value))
    return set()


def test_one_object_in_two_places_is_one_object_in_the_copy():
    line = Line(name="tea")
    copied = copy_arguments({"order": Order.model_construct(lines=[line], first=line)})
    assert copied["order"].first is copied["order"].lines[0] is not line


def test_arguments_that_contain_themselves_are_copied_once():
    line = Line(name="tea")
    line.more["of"] = line
    copied = copy_arguments({"line": line})["line"]
    assert copied.more["of"] is copied is not line


@pytest.mark.parametrize(
    "value",
    [
        Open(a=[1], _seen=["twice"]),
        Counting(),
        {1: ["a"]},
        {"of": (["a"],)},
        Order.model_construct(_fields_set={"lines"}, lines=[]),
    ],
    ids=["extra and private", "its own way", "keys", "tuple", "fields set"],
)
def test_what_is_copied_in_another_way_is_copied_as_deepcopy_does(value):
    copied = copy_arguments({"value": value})["value"]
    assert copied is not value
    assert copied == deepcopy(value)
    if isinstance(value, BaseModel):
        assert copied.model_fields_set == deepcopy(value).model_fields_set


def test_a_tool_that_changes_a_list_finds_it_as_it_was_at_the_next_attempt(drive):
    found = []

    def take(words: list[str]) -> str:
        """Take words."""
        found.append(list(words))
        words.clear()
        if len(found) == 1:
            raise ConnectionError("not now")
        return "taken"

    driver = drive([hr.FunctionTool(take, effect="read")])
    assert driver.call("take", {"words": ["a", "b"]}).value == "taken"
    assert found == [["a", "b"], ["a", "b"]]
