"""478 real MCP tools of 30 servers: every one is read, lint is quick, and what it warns of was read by eye.

`python -m tests.corpus.test_mcp_tools` prints the sample that `docs/decisions/0010-lint-precision.md` judges.
"""

import random
import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from time import process_time

import handrail as hr
from handrail.linting import Finding, Report
from tests.support.corpus import rows

PAGE = Path(__file__).parents[2] / "docs" / "decisions" / "0010-lint-precision.md"
JUDGED = re.compile(
    r"^\| \d+ \| `(?P<tool>[^`]+)` \| `(?P<rule>[^`]+)` \| (?P<verdict>right|wrong)\b",
    re.M,
)

SEED, SAMPLED, MOST_OF_ONE_RULE = 5, 40, 5
FACTS = {"effect-undeclared"}
"""Rules whose finding is a fact to be looked up: no judgement to be sampled, and more than half of all warnings."""

TOOLS = rows("mcp_tools/tools.jsonl")


def by_server() -> list[list[dict]]:
    """The tools of each server, as a model would be shown them together."""
    servers: dict[str, list[dict]] = {}
    for tool in TOOLS:
        source = tool["source"]
        server = servers.setdefault(
            f"{source['repo']} {source['path'].split('/')[1]}", []
        )
        # kept once for each of the server's configurations
        if tool["name"] not in {each["name"] for each in server}:
            server.append(tool)
    return list(servers.values())


def reports() -> Iterator[tuple[list[dict], Report]]:
    for tools in by_server():
        yield tools, hr.lint(tools)


def warnings() -> list[Finding]:
    found = [
        each
        for _, report in reports()
        for each in report.findings
        if each.severity != "note"
    ]
    return [each for each in found if each.rule not in FACTS]


def sample() -> list[Finding]:
    """Return warnings in an order of chance, few of each rule: one rule makes nearly half of them."""
    mixed, drawn = warnings(), Counter()
    random.Random(SEED).shuffle(mixed)
    chosen = []
    for each in mixed:
        drawn[each.rule] += 1
        if drawn[each.rule] <= MOST_OF_ONE_RULE:
            chosen.append(each)
    return chosen[:SAMPLED]


def test_every_tool_is_read():
    report = hr.lint(TOOLS)
    assert report.tools == len(TOOLS) == 478
    assert not [each for each in report.findings if each.rule == "definition-broken"]


def test_lint_of_all_takes_less_than_two_seconds():
    hr.lint(TOOLS[:1])  # what is imported and compiled once
    began = process_time()
    hr.lint(TOOLS)
    assert process_time() - began < 2.0


def test_every_parameter_without_a_text_is_found():
    silent = {
        tool["id"]
        for tool in TOOLS
        for said in tool["input_schema"].get("properties", {}).values()
        if not (said.get("description") or "").strip()
    }
    found = set()
    for tool in TOOLS:
        if any(
            each.rule == "parameter-undocumented" for each in hr.lint([tool]).findings
        ):
            found.add(tool["id"])
    assert silent <= found


def test_every_tool_without_hints_is_asked_to_declare_its_effect():
    for tool in TOOLS:
        hints = tool["annotations"] or {}
        asked = any(
            each.rule == "effect-undeclared" for each in hr.lint([tool]).findings
        )
        assert asked == (
            hints.get("readOnlyHint") is not True and "destructiveHint" not in hints
        ), tool["id"]


def test_what_was_judged_by_eye_is_what_lint_says():
    judged = [
        (each["tool"], each["rule"])
        for each in JUDGED.finditer(PAGE.read_text(encoding="utf-8"))
    ]
    assert judged == [(each.tool or "all tools", each.rule) for each in sample()]


def test_nine_of_ten_warnings_are_right():
    verdicts = [
        each["verdict"] for each in JUDGED.finditer(PAGE.read_text(encoding="utf-8"))
    ]
    assert len(verdicts) == SAMPLED
    assert verdicts.count("right") >= 0.9 * SAMPLED


if __name__ == "__main__":
    for number, each in enumerate(sample(), start=1):
        print(f"| {number} | `{each.tool}` | `{each.rule}` | {each.message}")
