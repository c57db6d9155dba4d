"""Finds faults in the rules of a gateway: patterns that allow more than their author meant.

    for sentence in find_faults(policy, tools):
        print(sentence)

Only the rules and the tools' declarations are read; nothing is run, and no server is asked.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from fnmatch import fnmatchcase

from handrail.core.policy import Policy, Rule
from handrail.errors import Json
from handrail.tools import conditions
from handrail.tools.tool import BaseTool

_SPECIAL = re.compile(r"[\\^$.|?*+()\[\]{}]")
_ABOVE = "../../etc/passwd"


def find_faults(policy: Policy, tools: Sequence[BaseTool] = ()) -> Iterator[str]:
    """Yield a sentence about each rule that may allow more than its author meant, or that has no effect.

    Args:
        tools: All tools; without them, rules that match no tool are not reported.
    """
    if policy.ask_from is None:
        yield '`ask_from = "never"` lets a tool of high risk run unasked, unless a rule asks'
    for number, rule in enumerate(policy.rules):
        where = f"rule {number + 1} ({rule.tool!r}, {rule.then})"
        yield from (f"{where}: {fault}" for fault in _find_faults_of(rule, tools))
        earlier = _find_covering(policy.rules[:number], rule)
        if earlier is not None:
            yield f"{where} is never reached: rule {earlier + 1} matches every such call before it"


def _find_faults_of(rule: Rule, tools: Sequence[BaseTool]) -> Iterator[str]:
    matched = [tool for tool in tools if fnmatchcase(tool.name, rule.tool)]
    if tools and not matched:
        yield "no tool has such a name"
    if rule.then == "allow":
        yield from _find_faults_of_allowance(rule, matched)
    for name in sorted({*rule.arguments, *_names_in(rule)}):
        if matched and not any(_has_parameter(tool, name) for tool in matched):
            effect = "never allows" if rule.then == "allow" else "always matches"
            yield f"no such tool has the argument {name!r}, so it {effect}"


def _find_faults_of_allowance(rule: Rule, matched: Sequence[BaseTool]) -> Iterator[str]:
    if rule.when and not _names_in(rule):
        yield f"its condition {rule.when!r} looks at no argument"
    if rule.when or rule.arguments:
        for name, constraint in rule.arguments.items():
            if isinstance(constraint, str) and _lets_out(name, constraint):
                yield f"the pattern of {name!r} matches a path that leaves its folder by `..`"
        return
    if rule.tool == "*":
        yield "every tool runs unasked, with any arguments, those too that a server adds tomorrow"
        return
    for tool in matched:
        if tool.effective_risk == "high":
            yield f"{tool.name!r} has high risk and runs unasked with any arguments"


def _names_in(rule: Rule) -> set[str]:
    return conditions.names_in(rule.when) if rule.when else set()


def _has_parameter(tool: BaseTool, name: str) -> bool:
    properties = tool.parameters.get("properties")
    if not isinstance(properties, Mapping):
        return True
    return name in properties or tool.parameters.get("additionalProperties") is True


def _lets_out(name: str, pattern: str) -> bool:
    """Whether a pattern of paths matches one that goes above its folder."""
    if "/" not in pattern:
        return False
    constraints: Mapping[str, Json] = {name: pattern}
    fits = conditions.constrain(constraints, permits=True)
    folders = ["", *filter(None, _SPECIAL.split(pattern))]
    return any(
        fits({name: start + folder + _ABOVE})
        for folder in (*folders, *(f"{each}/" for each in folders))
        for start in ("", "/")
    )


def _find_covering(earlier: Sequence[Rule], rule: Rule) -> int | None:
    """Return the number of a rule without any condition that matches every tool that this one can match."""
    for number, each in enumerate(earlier):
        is_unconditional = not (each.when or each.arguments)
        if is_unconditional and fnmatchcase(rule.tool, each.tool):
            return number
    return None
