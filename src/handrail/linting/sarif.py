"""A report as SARIF 2.1.0, which code hosts show beside the lines: https://docs.oasis-open.org/sarif/sarif/v2.1.0/"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from handrail._version import __version__
from handrail.errors import Json
from handrail.linting.findings import Finding, Report
from handrail.linting.rule import Rule


def encode_log(report: Report, rules: Mapping[str, Rule]) -> dict[str, Json]:
    """Return the log of one run. An ignored finding is in it as suppressed, with its reason."""
    numbers = {rule: number for number, rule in enumerate(rules)}
    driver = {
        "name": "handrail lint",
        "version": __version__,
        "rules": [
            {
                "id": rule.id,
                "shortDescription": {"text": rule.says},
                "defaultConfiguration": {"level": rule.severity},
            }
            for rule in rules.values()
        ],
    }
    results = [
        _encode_result(finding, numbers[finding.rule])
        for finding in (*report.findings, *report.ignored)
    ]
    return {
        "$schema": "https://json.schemastore.org/sarif-2.1.0.json",
        "version": "2.1.0",
        "runs": [{"tool": {"driver": driver}, "results": results}],
    }


def _encode_result(finding: Finding, number: int) -> dict[str, Any]:
    about = f"{finding.tool}: " if finding.tool else ""
    result: dict[str, Any] = {
        "ruleId": finding.rule,
        "ruleIndex": number,
        "level": finding.severity,
        "message": {"text": f"{about}{finding.message}. {finding.rewrite}"},
    }
    if finding.place.file:
        where: dict[str, Any] = {"artifactLocation": {"uri": finding.place.file}}
        if finding.place.line:
            where["region"] = {"startLine": finding.place.line}
        result["locations"] = [{"physicalLocation": where}]
    if finding.reason:
        result["suppressions"] = [{"kind": "external", "justification": finding.reason}]
    return result
