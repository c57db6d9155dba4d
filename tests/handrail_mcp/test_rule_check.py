"""Shapes of rules that let more through than somebody meant."""

import pytest

import handrail as hr
from handrail.core.policy import Policy, Rule
from handrail_mcp.gateways.rule_check import find_faults


@hr.tool(effect="read", timeout_s=1)
def read_file(path: str) -> str:
    """Read a file."""
    return path


@hr.tool(effect="destructive", timeout_s=1)
def drop(table: str) -> str:
    """Drop a table."""
    return table


TOOLS = [read_file, drop]

FOLDER = {"path": "/data/[a-z]+"}


@pytest.mark.parametrize(("rules", "fault"), [
    ([Rule("*", "allow")], "every tool runs unasked"),
    ([Rule("drop", "allow")], "'drop' has high risk and runs unasked"),
    ([Rule("d*", "allow")], "'drop' has high risk and runs unasked"),
    ([Rule("dorp", "deny")], "no tool has such a name"),
    ([Rule("read_file", "allow", arguments={"path": "/data/.*"})], "leaves its folder by `..`"),
    ([Rule("read_file", "allow", arguments={"path": "/data[^x]+"})], "leaves its folder by `..`"),
    ([Rule("read_file", "allow", arguments={"path": "^/data/.*"})], "leaves its folder by `..`"),
    ([Rule("read_file", "allow", arguments={"path": "(/data|/tmp)/[a-z./]+"})], "leaves its folder by `..`"),
    ([Rule("read_file", "allow", arguments={"path": "[a-z./]*"})], "leaves its folder by `..`"),
    ([Rule("read_file", "allow", when="1 < 2")], "looks at no argument"),
    ([Rule("read_file", "allow", arguments={"file": "a"})], "no such tool has the argument 'file', so it never allows"),
    ([Rule("read_file", "deny", arguments={"file": "a"})], "so it always matches"),
    ([Rule("read_file", "ask", when="size > 3")], "no such tool has the argument 'size'"),
    ([Rule("read_*", "ask"), Rule("read_file", "deny")], "rule 2 ('read_file', deny) is never reached: rule 1"),
    ([Rule("*", "ask"), Rule("read_*", "deny")], "never reached"),
])  # fmt: skip
def test_a_shape_that_fails_open_is_told(rules, fault):
    (sentence,) = find_faults(Policy(rules=rules), TOOLS)
    assert fault in sentence


def test_asking_nobody_is_told():
    assert "unasked" in next(find_faults(Policy(ask_from=None), TOOLS))


@pytest.mark.parametrize("rules", [
    [],
    [Rule("read_file", "allow", arguments=FOLDER), Rule("*", "deny")],
    [Rule("read_file", "allow", when="path == 'a'"), Rule("read_file", "deny")],
    [Rule("read_*", "ask"), Rule("drop", "deny")],
    [Rule("drop", "allow", when="table == 'scratch'")],
    [Rule("read_file", "allow")],
])  # fmt: skip
def test_sound_rules_have_no_fault(rules):
    assert [*find_faults(Policy(rules=rules), TOOLS)] == []


def test_without_tools_nothing_is_said_about_their_names():
    assert [*find_faults(Policy(rules=[Rule("x", "deny")]))] == []
