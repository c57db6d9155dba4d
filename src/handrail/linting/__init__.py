"""Lint: what is wrong with tools, as a model that must choose and fill them would meet it.

    report = hr.lint(tools)                                      # Python tools
    report = hr.lint(json.loads(text))                           # definitions: OpenAI, Anthropic, MCP, OpenAPI

Rule 1: every rule is a row of a table, with an example on which it speaks and one on which it is silent.
Rule 2: a rule looks at values only; it imports nothing, runs nothing, asks nobody.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from msgspec.structs import replace

from handrail.errors import ConfigError, Json
from handrail.linting import (
    declarations,
    definitions,
    parameters,
    sets,
    subjects,
    wording,
)
from handrail.linting.findings import SEVERITIES, Cost, Finding, Place, Report, Settings
from handrail.linting.rule import Noticed, Rule
from handrail.linting.subjects import Subject
from handrail.parsing import names
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

RULES: Mapping[str, Rule] = {
    rule.id: rule
    for rule in (
        *wording.RULES,
        *parameters.RULES,
        *declarations.RULES,
        *sets.RULES,
    )
}


def lint(tools: Tools | Json, settings: Settings | None = None) -> Report:
    """Look at tools, or at definitions as JSON, and say what is wrong with them.

    Raises:
        ConfigError: The JSON describes no tools; or the settings ignore what is no rule, or give no reason.
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
    """Apply every rule to these tools.

    Raises:
        ConfigError: The settings ignore what is no rule, or give no reason.
    """
    _check_ignores(settings)
    findings: list[Finding] = []
    ignored: list[Finding] = []
    for finding in _list_findings(tools, settings):
        if reason := settings.reason_for(finding.tool, finding.rule):
            ignored.append(replace(finding, reason=reason))
        else:
            findings.append(finding)
    costs = [sets.measure_cost(subject) for subject in tools]
    return Report(len(tools), findings, ignored, costs)


def _list_findings(tools: Sequence[Subject], settings: Settings) -> list[Finding]:
    """Return the findings of all rules: by tool in their order, the worst of each tool first."""
    order = {subject.name: number for number, subject in enumerate(tools)}
    return sorted(
        _apply_rules(tools, settings),
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


def _check_ignores(settings: Settings) -> None:
    """Refuse rules that are ignored without a reason, or do not exist: a misspelt one hides nothing."""
    for pattern, rules in settings.ignore.items():
        for rule, reason in rules.items():
            if rule not in RULES:
                near = names.nearest(rule, RULES)
                hint = f" Did you mean `{near[0]}`?" if near else ""
                raise ConfigError(
                    f"lint ignores `{rule}` of {pattern!r}, which is no rule.{hint}"
                )
            if not reason.strip():
                raise ConfigError(
                    f"lint ignores `{rule}` of {pattern!r} without a reason; say why it does not hold there"
                )
