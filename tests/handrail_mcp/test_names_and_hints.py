"""What a server's tools are called here, and what its hints about them mean."""

import string

import pytest
from hypothesis import given
from hypothesis import strategies as st
from mcp.types import ToolAnnotations

from handrail.tools.function_tool import FunctionTool
from handrail_mcp.hints import declare
from handrail_mcp.names import MOST_CHARS, make_name, make_prefix, name_tools

ACCEPTABLE = set(string.ascii_letters + string.digits + "_-")
names = st.text(min_size=1, max_size=200)


@given(prefix=st.sampled_from(["", "shop_", "a" * 60 + "_"]), name=names)
def test_a_name_is_one_that_every_provider_takes(prefix, name):
    made = make_name(prefix, name)
    assert set(made) <= ACCEPTABLE
    assert len(made) <= MOST_CHARS


@given(st.lists(names, unique=True, max_size=30))
def test_names_are_told_apart_in_any_order(listed):
    named = name_tools("shop_", listed)
    assert len({named[name] for name in listed} - {None}) == len(listed)
    assert name_tools("shop_", listed[::-1]) == named


def test_a_long_name_keeps_its_beginning_and_its_end():
    one = make_name("shop_", "x" * 100 + "_create")
    other = make_name("shop_", "x" * 100 + "_delete")
    assert one != other
    assert one.startswith("shop_xxx")
    assert "_create_" in one


@pytest.mark.parametrize("name", ["refund\u200b", "refund ", "rеfund", "ref.und"])
def test_no_spelling_becomes_the_name_of_another_tool(name):
    assert make_name("shop_", name) != "shop_refund"
    assert make_name("shop_", name) not in ("shop_ref_und", "shop_refund_")


def test_of_names_that_collide_none_is_kept():
    assert name_tools("", ["a", "b", "a"]) == {"a": None, "b": "b"}


@pytest.mark.parametrize(
    ("server", "prefix"),
    [("shop", "shop_"), ("@acme/shop", "acme_shop_"), ("商店", "mcp_")],
)
def test_a_prefix_is_made_of_what_a_server_is_called(server, prefix):
    assert make_prefix(server) == prefix


# The table of the specification's hints; `None` is a hint that is missing.
@pytest.mark.parametrize(
    ("hints", "effect", "permission", "risk", "replay"),
    [
        ({"read_only_hint": True}, "read", "read", "low", None),
        (
            {"destructive_hint": False, "idempotent_hint": True},
            "write",
            "write",
            "medium",
            "key",
        ),
        ({"destructive_hint": False}, "write", "write", "medium", None),
        ({"destructive_hint": True}, "destructive", "admin", "high", None),
        (
            {"destructive_hint": True, "idempotent_hint": True},
            "destructive",
            "admin",
            "high",
            None,
        ),
        ({"idempotent_hint": True}, "write", "write", "high", None),
        (None, "write", "write", "high", None),
    ],
)
def test_hints_that_somebody_trusts_say_what_a_tool_does(
    hints, effect, permission, risk, replay
):
    given_hints = ToolAnnotations(**hints) if hints is not None else None
    tool = make_tool(declare(given_hints, "hints", {}))
    assert (tool.effect, tool.required_permission) == (effect, permission)
    assert (tool.effective_risk, tool.replay) == (risk, replay)


def test_hints_that_nobody_trusts_say_nothing():
    tool = make_tool(declare(ToolAnnotations(read_only_hint=True), "none", {}))
    assert (tool.effect, tool.effective_risk, tool.replay) == ("write", "high", None)


def test_what_is_read_from_the_open_world_is_marked():
    tool = make_tool(declare(ToolAnnotations(read_only_hint=True), "hints", {}))
    closed = ToolAnnotations(read_only_hint=True, open_world_hint=False)
    assert "untrusted" in tool.tags
    assert "untrusted" not in make_tool(declare(closed, "hints", {})).tags


@pytest.mark.parametrize(
    "hints", [None, ToolAnnotations(destructive_hint=False, idempotent_hint=True)]
)
def test_an_override_of_the_effect_counts_instead_of_all_that_follows_from_hints(hints):
    tool = make_tool(declare(hints, "hints", {"effect": "read"}))
    assert (tool.effect, tool.effective_risk) == ("read", "low")
    assert tool.required_permission == "read"


def test_an_override_of_something_else_leaves_the_effect_as_it_is():
    tool = make_tool(declare(None, "none", {"timeout_s": 3.0}))
    assert (tool.effect, tool.effective_risk, tool.timeout_s) == ("write", "high", 3.0)


def make_tool(settings):
    return FunctionTool(lambda: None, name="t", parameters={}, **settings)
