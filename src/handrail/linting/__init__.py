"""Lint: what is wrong with tools, as a model that must choose and fill them would meet it.

    report = hr.lint(tools)                                      # Python tools
    report = hr.lint(json.loads(text))                           # definitions: OpenAI, Anthropic, MCP, OpenAPI

Rule 1: every rule is a row of a table, with an example on which it speaks and one on which it is silent.
Rule 2: a rule looks at values only; it imports nothing, runs nothing, asks nobody.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from msgspec.structs import replace

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
from handrail.linting.rule import Noticed, Rule, define
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
    "check_subjects",
    "lint",
    "read_subjects",
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
    if not isinstance(tools, Toolset):
        tools = list(tools)
        if tools and all(isinstance(each, Mapping) for each in tools):
            return definitions.read(tools)
        tools = Toolset(tools)
    return [subjects.read_tool(tool) for tool in tools]


def check_subjects(tools: Sequence[Subject], settings: Settings) -> Report:
    """Apply every rule to these tools."""
    reasons = {subject.name: subject.ignore for subject in tools}
    findings: list[Finding] = []
    ignored: list[Finding] = []
    for finding in _list_findings(tools, settings):
        own = reasons.get(finding.tool, {}).get(finding.rule, "").strip()
        reason = own or settings.reason_for(finding.tool, finding.rule)
        if reason:
            ignored.append(replace(finding, reason=reason))
        else:
            findings.append(finding)
    costs = [sets.measure_cost(subject) for subject in tools]
    return Report(len(tools), findings, ignored, costs)


def _list_findings(tools: Sequence[Subject], settings: Settings) -> list[Finding]:
    """Return the findings of all rules: by tool in their order, the worst of each tool first."""
    order = {subject.name: number for number, subject in enumerate(tools)}
    return sorted(
        [*_apply_rules(tools, settings), *_check_ignores(tools, settings)],
        key=lambda each: (order.get(each.tool, -1), SEVERITIES.index(each.severity)),
    )


def _apply_rules(tools: Sequence[Subject], settings: Settings) -> Iterator[Finding]:
    for rule in RULES.values():
        if rule.look:
            for subject in tools:
                for noticed in rule.look(subject, settings):
                    yield _make_finding(rule, subject, noticed)
        if rule.look_at_all:
            for about, noticed in rule.look_at_all(tools, settings):
                yield _make_finding(rule, about, noticed)


def _make_finding(rule: Rule, subject: Subject | None, noticed: Noticed) -> Finding:
    return Finding(
        rule=rule.id,
        severity=noticed.severity or rule.severity,
        tool=subject.name if subject else "",
        message=noticed.message,
        rewrite=noticed.rewrite,
        place=subject.place if subject else Place(),
    )


def _check_ignores(tools: Sequence[Subject], settings: Settings) -> Iterator[Finding]:
    """Yield the rules that are ignored without a reason, or do not exist: a misspelt one hides nothing."""
    declared: Iterable[tuple[str, Place, Mapping[str, str]]] = [
        *((subject.name, subject.place, subject.ignore) for subject in tools),
        *((pattern, Place(), rules) for pattern, rules in settings.ignore.items()),
    ]
    for name, place, rules in declared:
        for rule, reason in rules.items():
            if rule not in RULES:
                message = f"ignores `{rule}`, which is no rule"
            elif not str(reason).strip():
                message = f"ignores `{rule}` without a reason"
            else:
                continue
            yield Finding(
                rule=_IGNORED_BADLY.id,
                severity="warning",
                tool=name,
                message=message,
                rewrite=f'{rule} = "why it does not hold here"',
                place=place,
            )
