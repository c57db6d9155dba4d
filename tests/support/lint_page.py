"""The part of `docs/reference/lint.md` that lists the rules with their examples, made from the rules themselves."""

import re
import sys
from pathlib import Path

from handrail import linting
from handrail.linting import Settings
from tests.support.dialect_page import fenced, laid_out

PAGE = Path(__file__).parents[2] / "docs/reference/lint.md"
REGION = re.compile(r"(?<=<!-- rules -->\n).*?(?=<!-- end of rules -->)", re.S)
FEW = 2


def shown() -> str:
    """What the page shows now."""
    return REGION.search(PAGE.read_text(encoding="utf-8"))[0]


def wanted() -> str:
    """What it should show."""
    rows = "".join(
        f"| [`{rule.id}`](#{rule.id}) | {rule.severity} | {rule.says} |\n"
        for rule in linting.RULES.values()
    )
    table = f"\n| rule | severity | says |\n|---|---|---|\n{rows}"
    return table + "".join(map(section, linting.RULES.values()))


def section(rule: linting.Rule) -> str:
    """One rule: what it says of its first bad example, and both."""
    tools = rule.bad if rule.look_at_all else rule.bad[:1]
    findings = linting.lint(list(tools), Settings(**rule.needs)).findings
    said = next(finding for finding in findings if finding.rule == rule.id)
    mended = " `--fix` sets it right." if rule.is_fixable else ""
    needs = (
        f" With {', '.join(f'`{key} = {value!r}`' for key, value in rule.needs.items())}."
        if rule.needs
        else ""
    )
    kind = {"error": "An error"}.get(rule.severity, f"A {rule.severity}")
    return (
        f"\n### {rule.id}\n\n{kind}: {rule.says}.{needs}{mended}\n\n"
        f"Bad:\n\n{examples(rule.bad)}\n"
        f"> {said.message}\n>\n> -> {said.rewrite}\n\n"
        f"Good:\n\n{examples(rule.good)}"
    )


def examples(definitions: list) -> str:
    """Definitions as JSON, a few of many, long texts cut."""
    text = "\n".join(laid_out(shortened(each)) for each in definitions[:FEW])
    more = f"\n... and {len(definitions) - FEW} more" if len(definitions) > 3 else ""
    return fenced(text + more, "json" if len(definitions) == 1 else "text")


def shortened(value: object) -> object:
    """Cut what is long for the sake of being long."""
    if isinstance(value, str):
        return value if len(value) <= 200 else value[:80] + " ..."
    if isinstance(value, dict):
        return {key: shortened(each) for key, each in value.items()}
    return value


def write() -> None:
    """Put the rules into the page."""
    text, new = PAGE.read_text(encoding="utf-8"), wanted()
    PAGE.write_text(REGION.sub(lambda _: new, text), encoding="utf-8")


if __name__ == "__main__" and "--write" in sys.argv:
    write()
