"""Lint: what is wrong with tools, as a model that must choose and fill them would meet it.

    report = hr.lint(tools)                                      # Python tools
    report = hr.lint(json.loads(text))                           # definitions: OpenAI, Anthropic, MCP, OpenAPI

Rule 1: every rule is a row of a table, with an example on which it speaks and one on which it is silent.
Rule 2: a rule looks at values only; it imports nothing, runs nothing, asks nobody.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from handrail.errors import Json
from handrail.linting import (
    declarations,
    definitions,
    parameters,
    sets,
    subjects,
    wording,
)
from handrail.linting.findings import SEVERITIES, Cost, Finding, Place, Report, Settings
from handrail.linting.rules import Noticed, Rule, define
from handrail.linting.subjects import Subject
from handrail.tools.toolset import Tools, Toolset

__all__ = [
    "RULES",
    "Cost",
    "Finding",
    "Place",
    "Report",
    "Rule",
    "Settings",
    "Subject",
    "lint",
    "look_at",
    "subjects_of",
]

_LOOK_UP = define("get_order", "Look an order up by its number.")
_IGNORED_BADLY = Rule(
    "ignore-unexplained", "warning", "a rule is ignored without a reason, or does not exist",
    bad=[{**_LOOK_UP, "lint_ignore": {"when-to-use-missing": ""}},
         {**_LOOK_UP, "lint_ignore": {"when-to-use": "It is the only tool."}}],
    good=[{**_LOOK_UP, "lint_ignore": {"when-to-use-missing": "It is the only tool."}}],
)  # fmt: skip

RULES: Mapping[str, Rule] = {
    rule.id: rule
    for rule in (
        *wording.RULES,
        *parameters.RULES,
        *declarations.RULES,
        *sets.RULES,
        _IGNORED_BADLY,
    )
}


def lint(tools: Tools | Json, settings: Settings | None = None) -> Report:
    """Look at tools, or at definitions as JSON, and say what is wrong with them.

    Raises:
        ConfigError: The JSON describes no tools.
    """
    return check_subjects(read_subjects(tools), settings or Settings())


def read_subjects(tools: Any) -> list[Subject]:
    """Return tools as lint sees them."""
    if isinstance(tools, Mapping):
        return definitions.read(dict(tools))
    tools = tools if isinstance(tools, Toolset) else list(tools)
    if (
        tools
        and not isinstance(tools, Toolset)
        and all(isinstance(each, Mapping) for each in tools)
    ):
        return definitions.read(tools)
    return [
        subjects.read_tool(tool)
        for tool in (tools if isinstance(tools, Toolset) else Toolset(tools))
    ]


def check_subjects(found: Sequence[Subject], settings: Settings) -> Report:
    """Apply every rule to these tools."""
    told = [*_all_findings(found, settings), *_bad_ignores(found, settings)]
    order = {subject.name: number for number, subject in enumerate(found)}
    told.sort(
        key=lambda each: (order.get(each.tool, -1), SEVERITIES.index(each.severity))
    )
    reasons = {subject.name: subject.ignore for subject in found}
    kept: list[Finding] = []
    ignored: list[Finding] = []
    for finding in told:
        own = reasons.get(finding.tool, {}).get(finding.rule, "").strip()
        reason = own or settings.reason_for(finding.tool, finding.rule)
        (ignored if reason else kept).append(
            _because(finding, reason) if reason else finding
        )
    return Report(
        len(found), kept, ignored, [sets.measure_cost(subject) for subject in found]
    )


def _all_findings(found: Sequence[Subject], settings: Settings) -> Iterator[Finding]:
    for rule in RULES.values():
        if rule.look:
            for subject in found:
                for noticed in rule.look(subject, settings):
                    yield _finding(rule, subject, noticed)
        if rule.look_at_all:
            for about, noticed in rule.look_at_all(found, settings):
                yield _finding(rule, about, noticed)


def _finding(rule: Rule, subject: Subject | None, noticed: Noticed) -> Finding:
    name, place = (subject.name, subject.place) if subject else ("", Place())
    return Finding(
        rule.id,
        noticed.severity or rule.severity,
        name,
        noticed.message,
        noticed.rewrite,
        place,
    )


def _because(finding: Finding, reason: str) -> Finding:
    return Finding(
        finding.rule,
        finding.severity,
        finding.tool,
        finding.message,
        finding.rewrite,
        finding.place,
        reason,
    )


def _bad_ignores(found: Sequence[Subject], settings: Settings) -> Iterator[Finding]:
    """Say which rules are ignored without a reason, or do not exist: a misspelt one hides nothing."""
    declared: Iterable[tuple[str, Subject | None, Mapping[str, str]]] = [
        *((subject.name, subject, subject.ignore) for subject in found),
        *((pattern, None, rules) for pattern, rules in settings.ignore.items()),
    ]
    for name, subject, rules in declared:
        for rule, reason in rules.items():
            if rule in RULES and str(reason).strip():
                continue
            message = (
                f"ignores `{rule}` without a reason"
                if rule in RULES
                else f"ignores `{rule}`, which is no rule"
            )
            place = subject.place if subject else Place()
            yield Finding(
                _IGNORED_BADLY.id,
                "warning",
                name,
                message,
                f'{rule} = "why it does not hold here"',
                place,
            )
