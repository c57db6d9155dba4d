"""Tool names as providers accept them, and back."""

from __future__ import annotations

from itertools import permutations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from handrail.dialects.names import NameRule, wire_names

OPENAI = NameRule("a-zA-Z0-9_-", most_chars=64)
GEMINI = NameRule("a-zA-Z0-9_.:-", most_chars=64, first="a-zA-Z_")


@pytest.mark.parametrize(("name", "wire"), [
    ("get_weather", "get_weather"),              # accepted names stay
    ("x" * 64, "x" * 64),
    ("user_info.get", "user_info_get"),          # one that says all without the dot
    ("files/read file", "files_read_file"),
    # nothing is left of it, so a hash tells it apart
    ("查询天气", "tool_22cf3c76"),
    ("get_天气", "get_4436b398"),
    ("", "tool_e3b0c442"),                       # SHA-256 of nothing begins so
    ("...", "tool_ab5df625"),
    ("x" * 65, "x" * 55 + "_9537c5fd"),
])  # fmt: skip
def test_a_refused_name_is_spelled_acceptably(name, wire):
    assert wire_names([name], OPENAI).to_wire(name) == wire


@pytest.mark.parametrize(("name", "wire"), [
    ("user_info.get", "user_info.get"),          # Gemini takes dots
    ("2fa_code", "tool_2fa_code"),               # but no digit in the first place
    ("-x", "tool_-x"),
])  # fmt: skip
def test_a_rule_may_forbid_characters_in_the_first_place(name, wire):
    assert wire_names([name], GEMINI).to_wire(name) == wire


def test_two_names_that_would_become_one_get_a_hash_each_whatever_their_order():
    for order in permutations(["a.b", "a/b", "c"]):
        names = wire_names(order, OPENAI)
        assert {name: names.to_wire(name) for name in order} == {
            "a.b": "a_b_2e7336dc",
            "a/b": "a_b_c14cddc0",
            "c": "c",
        }


def test_an_accepted_name_is_never_given_away():
    names = wire_names(["a.b", "a_b"], OPENAI)
    assert names.to_wire("a_b") == "a_b"
    assert names.from_wire("a_b") == "a_b"
    assert names.from_wire(names.to_wire("a.b")) == "a.b"


def test_a_name_made_to_collide_with_a_hash_does_not():
    forged = wire_names(["a.b", "a_b"], OPENAI).to_wire("a.b")
    names = wire_names(["a.b", "a_b", forged], OPENAI)
    assert len({names.to_wire(name) for name in ("a.b", "a_b", forged)}) == 3


def test_a_name_of_no_tool_comes_back_as_it_is_and_goes_out_acceptably():
    names = wire_names(["a.b"], OPENAI)
    assert names.from_wire("invented") == "invented"
    assert names.to_wire("gone.tool") == "gone_tool"


anything = st.text(st.sampled_from("ab._-/天é \ud800") | st.characters(), max_size=70)


@pytest.mark.parametrize("rule", [OPENAI, GEMINI], ids=["openai", "gemini"])
@given(names=st.sets(anything, max_size=12))
def test_every_name_is_accepted_told_apart_and_told_back(rule, names):
    told = wire_names(names, rule)
    wire = {name: told.to_wire(name) for name in names}
    assert all(rule.accepts(each) for each in wire.values())
    assert len(set(wire.values())) == len(names)
    assert {told.from_wire(each) for each in wire.values()} == names
    assert all(wire[name] == name for name in names if rule.accepts(name))
