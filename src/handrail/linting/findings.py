"""Findings about tools, the report that holds them, and the settings that it was made with.

Rule 1: a finding names its rule, its tool, what is wrong, and what to write instead.
Rule 2: an ignored finding has a written reason; it stays in the report, in a list of its own.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from fnmatch import fnmatchcase
from typing import Any, Literal, TypeAlias, get_args

from msgspec import Struct, field
from msgspec.structs import fields

from handrail.errors import ConfigError, Json

Severity: TypeAlias = Literal["error", "warning", "note"]
Language: TypeAlias = Literal["en", "zh"]

SEVERITIES: Sequence[Severity] = get_args(Severity)


class Place(Struct, frozen=True):
    """Where a tool is written; line 0 where the line is unknown."""

    file: str = ""
    line: int = 0

    def __str__(self) -> str:
        if not self.file:
            return f"line {self.line}" if self.line else ""
        return f"{self.file}:{self.line}" if self.line else self.file


class Finding(Struct, frozen=True):
    """One thing that is wrong with a tool, or with all of them (then `tool` is empty).

    Attributes:
        rule: Id of the rule, such as `parameter-undocumented`.
        rewrite: What to write instead.
        reason: Why it is ignored; empty where it is not.
    """

    rule: str
    severity: Severity
    tool: str
    message: str
    rewrite: str = ""
    place: Place = field(default_factory=Place)
    reason: str = ""

    def as_json(self) -> dict[str, Json]:
        """Return the finding as JSON."""
        body: dict[str, Json] = {
            "rule": self.rule,
            "severity": self.severity,
            "tool": self.tool,
            "message": self.message,
            "rewrite": self.rewrite,
        }
        if self.place.file:
            body["file"] = self.place.file
            body["line"] = self.place.line
        if self.reason:
            body["reason"] = self.reason
        return body


class Cost(Struct, frozen=True):
    """About how many tokens the definition of a tool takes in every request, by provider."""

    tool: str
    tokens: Mapping[str, int]

    @property
    def most(self) -> int:
        """The tokens at the provider where it takes the most."""
        return max(self.tokens.values(), default=0)


class Report(Struct, frozen=True):
    """What lint found; `findings` by tool in their order, the worst of each tool first."""

    tools: int
    findings: Sequence[Finding] = ()
    ignored: Sequence[Finding] = ()
    costs: Sequence[Cost] = ()

    def of(self, severity: Severity) -> list[Finding]:
        """Return the findings of a severity."""
        return [finding for finding in self.findings if finding.severity == severity]

    def fails(self, *, strict: bool = False) -> bool:
        """Whether a build should stop here: there are errors, or with `strict` also warnings."""
        return bool(self.of("error") or (strict and self.of("warning")))

    @property
    def counts(self) -> dict[str, int]:
        """How many findings there are of each severity."""
        return {severity: len(self.of(severity)) for severity in SEVERITIES}

    @property
    def tokens(self) -> dict[str, int]:
        """About how many tokens all definitions together take in every request, by provider."""
        total: Counter[str] = Counter()
        for cost in self.costs:
            total.update(cost.tokens)
        return dict(total)

    def as_json(self) -> dict[str, Json]:
        """Return the report as one JSON document."""
        return {
            "tools": self.tools,
            "counts": dict(self.counts),
            "findings": [finding.as_json() for finding in self.findings],
            "ignored": [finding.as_json() for finding in self.ignored],
            "tokens": {
                "all": dict(self.tokens),
                "each": {cost.tool: dict(cost.tokens) for cost in self.costs},
            },
        }

    def __repr__(self) -> str:
        counts = ", ".join(
            count_noun(number, severity) for severity, number in self.counts.items()
        )
        return f"<Report on {count_noun(self.tools, 'tool')}: {counts}>"


def count_noun(number: int, noun: str) -> str:
    """Return a number with its noun, such as `1 tool` or `3 tools`."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


class Settings(Struct, frozen=True):
    """The settings of lint.

    Attributes:
        users: The language that users write in; None does not compare it with the tools' texts.
        most_tools: How many tools a model is shown at once.
        most_parameters: Of one tool.
        most_tokens: Of one definition.
        ignore: Tool, or a pattern as in file names -> rule -> reason.
    """

    users: Language | None = None
    most_tools: int = 20
    most_parameters: int = 7
    most_tokens: int = 1_000
    ignore: Mapping[str, Mapping[str, str]] = field(default_factory=dict)

    def reason_for(self, tool: str, rule: str) -> str:
        """Return why a rule is ignored for a tool; empty when it is not."""
        reasons = (
            rules[rule]
            for pattern, rules in self.ignore.items()
            if rule in rules and fnmatchcase(tool, pattern)
        )
        return next((reason.strip() for reason in reasons if reason.strip()), "")

    @classmethod
    def from_table(cls, table: Mapping[str, Any]) -> Settings:
        """Read the settings from a table of a configuration file, `[tool.handrail.lint]`.

        Raises:
            ConfigError: A key is no setting, or its value has the wrong type.
        """
        names = {each.name for each in fields(cls)}
        for key, value in table.items():
            if key not in names:
                raise ConfigError(
                    f"{key!r} is no setting of lint; the settings are {', '.join(sorted(names))}"
                )
            if key.startswith("most_") and (type(value) is not int or value < 1):
                raise ConfigError(
                    f"`{key}` of lint is {value!r}; it is a number from 1 on"
                )
        if (users := table.get("users")) not in (None, *get_args(Language)):
            raise ConfigError(
                f"`users` of lint is {users!r}; it is one of {', '.join(get_args(Language))}"
            )
        return cls(**{**table, "ignore": _check_reasons(table.get("ignore", {}))})


def _check_reasons(table: Any) -> Mapping[str, Mapping[str, str]]:
    rules_of = table.values() if isinstance(table, Mapping) else [None]
    for rules in rules_of:
        if not (
            isinstance(rules, Mapping)
            and all(isinstance(reason, str) for reason in rules.values())
        ):
            raise ConfigError(
                "`ignore` of lint has a table for each tool, with a reason for each rule: "
                '[tool.handrail.lint.ignore.refund] with write-without-key = "the ledger of the bank finds duplicates"'
            )
    return {**table}
