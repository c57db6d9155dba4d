"""`handrail lint`: faults in the texts and schemas of tools."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from itertools import groupby
from operator import itemgetter
from pathlib import Path

import click
from msgspec.structs import replace

from handrail import linting
from handrail.approvers.terminal import printable
from handrail.cli import completion, options, settings
from handrail.cli.cases import parse_json
from handrail.cli.exits import Exit
from handrail.cli.loading import OPENAPI, tools_from
from handrail.cli.printer import console, print_columns
from handrail.errors import ConfigError, Json
from handrail.invisible import json_text
from handrail.linting import (
    Finding,
    Report,
    Settings,
    Subject,
    definitions,
    fixes,
    sarif,
)
from handrail.linting.findings import count_noun
from handrail.schemas import openapi, yamltext


@click.command("lint")
@click.argument(
    "files", nargs=-1, metavar="[PLACES]...", shell_complete=completion.files
)
@options.tools
@click.option("--strict", is_flag=True, help="Warnings fail too.")
@click.option("--notes", is_flag=True, help="Show notes as well.")
@click.option(
    "--costs",
    is_flag=True,
    help="Show about how many tokens each definition takes, by provider.",
)
@click.option(
    "--users", type=click.Choice(["en", "zh"]), help="The language that users write in."
)
@click.option(
    "--fix",
    is_flag=True,
    help="Fix what can be fixed in files of definitions: blanks, foreign schemas.",
)
@click.option(
    "--dry-run",
    is_flag=True,
    help="With --fix: print what would be fixed, and write nothing.",
)
@click.option(
    "--config",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Settings; by default handrail.toml, or [tool.handrail.lint] of pyproject.toml.",
)
@options.as_json
@click.option(
    "--sarif",
    "as_sarif",
    is_flag=True,
    help="Print a SARIF log on stdout, for code hosts.",
)
@options.debug
def command(
    files: Sequence[str],
    places: Sequence[str],
    strict: bool,
    notes: bool,
    costs: bool,
    users: str | None,
    fix: bool,
    dry_run: bool,
    config: Path | None,
    as_json: bool,
    as_sarif: bool,
) -> int:
    """Find faults in tools that lead a model to choose or fill them wrongly.

    PLACES are FILE.py, MODULE, MODULE:ATTRIBUTE, or FILE.json with definitions for OpenAI, Anthropic or Gemini, with
    the answer of an MCP server to tools/list, or with an OpenAPI document, which may be YAML (FILE.yaml); `-` reads
    JSON from stdin. The exit code is 1 when there are errors.

    \b
    Examples:
      handrail lint examples/orders.py
      handrail lint tools.json --users zh --strict
      handrail lint tools.json --fix --dry-run
    """
    if as_json and as_sarif:
        raise click.UsageError(
            "--json and --sarif both print one document; choose one."
        )
    where = [_document_file(each) for each in [*files, *places]]
    if not where:
        raise click.UsageError(
            "Name where the tools are: FILE.py, MODULE, FILE.json, or `-` for JSON on stdin."
        )
    chosen = Settings.from_table(settings.table("lint", config))
    if users:
        chosen = replace(chosen, users=users)
    if fix or dry_run:
        _fix(where, dry_run)
    report = linting.check_subjects(_subjects(where), chosen)
    if as_sarif:
        click.echo(json_text(sarif.encode_log(report, linting.RULES)))
    elif as_json:
        click.echo(json_text({"v": 1, **report.as_json()}))
    else:
        _print(report, notes, costs)
    return Exit.ERROR if report.fails(strict=strict) else Exit.OK


def _is_json(place: str) -> bool:
    return place == "-" or place.endswith(".json")


def _is_document(place: str) -> bool:
    return _is_json(place) or place.lower().endswith((".yaml", ".yml"))


def _document_file(place: str) -> str:
    """Return the file of `openapi:FILE@ADDRESS`: faults are fixed there, not in tools made of it."""
    if place.startswith(OPENAPI):
        return place.removeprefix(OPENAPI).partition("@")[0]
    return place


def _subjects(places: Sequence[str]) -> list[Subject]:
    python = [place for place in places if not _is_document(place)]
    if python:
        subjects = linting.read_subjects(tools_from(python))
    else:
        subjects = []
    for place in filter(_is_document, places):
        text = options.read_text(place)
        try:
            file = "" if place == "-" else place
            if _is_json(place):
                document = parse_json(text, place)
            else:
                document = yamltext.loads(text)
            subjects += definitions.read(document, file=file, text=text)
        except ConfigError as error:
            raise ConfigError(f"{place}: {error}") from error
        _report_left_out(place, document)
    return [replace(subject, place=_from_here(subject)) for subject in subjects]


def _report_left_out(place: str, document: Json) -> None:
    """Name the operations of an OpenAPI document that become no tools, and are not looked at."""
    if openapi.is_one(document):
        left = [
            each
            for each in openapi.operations(document)
            if isinstance(each, openapi.LeftOut)
        ]
        names = "; ".join(f"{each.name}: {each.reason}" for each in left)
        if left:
            click.echo(
                printable(
                    f"{place}: not checked, because they become no tools: {names}"
                ),
                err=True,
            )


def _from_here(subject: Subject) -> linting.Place:
    """Return the place as it is read from the present folder: what a code host and a terminal can follow."""
    path = Path(subject.place.file)
    is_below = path.is_absolute() and path.is_relative_to(Path.cwd())
    if is_below:
        return replace(subject.place, file=str(path.relative_to(Path.cwd())))
    return subject.place


# ---------------------------------------------------------------------- --fix


def _fix(places: Sequence[str], dry_run: bool) -> None:
    files = [place for place in places if _is_json(place) and place != "-"]
    if not files:
        raise click.UsageError("--fix changes files of definitions; name a FILE.json.")
    for place in files:
        text = options.read_text(place)
        document, repairs = fixes.fix_document(parse_json(text, place))
        for each in repairs:
            verb = "would fix" if dry_run else "fixed"
            click.echo(
                f"{place}: {verb} {each.tool}: {', '.join(each.rules)}", err=True
            )
        if repairs and not dry_run:
            Path(place).write_text(_format_like(text, document), encoding="utf-8")


def _format_like(text: str, document: object) -> str:
    """Write JSON with the indentation that the file has; what was on one line is spread over several."""
    indented_line = re.search(r"\n([ \t]+)\S", text)
    indent = indented_line[1] if indented_line else None
    end = "\n" if text.endswith("\n") else ""
    return json.dumps(document, ensure_ascii=False, indent=indent) + end


# ---------------------------------------------------------------------- for people


def _print(report: Report, notes: bool, costs: bool) -> None:
    shown = [
        finding for finding in report.findings if notes or finding.severity != "note"
    ]
    for (tool, place), findings in groupby(
        shown, key=lambda each: (each.tool, str(each.place))
    ):
        head = printable(tool) or "all tools"
        click.secho(f"{head}  {place}" if place else head, bold=True)
        print_columns(console(), [("", *_row(finding)) for finding in findings])
        click.echo()
    if costs:
        _print_costs(report)
    _conclude(report, notes)


def _print_costs(report: Report) -> None:
    providers = list(report.tokens)
    rows = [
        (cost.tool, *(f"{cost.tokens.get(each, 0):,}" for each in providers))
        for cost in report.costs
    ]
    print_columns(console(), sorted(rows, key=itemgetter(0)), ("tool", *providers))
    click.echo()


def _row(finding: Finding) -> tuple[str, str, str]:
    return finding.severity, finding.rule, f"{finding.message}\n-> {finding.rewrite}"


def _conclude(report: Report, notes: bool) -> None:
    counts = ", ".join(
        count_noun(count, severity) for severity, count in report.counts.items()
    )
    summary = f"{count_noun(report.tools, 'tool')}: {counts}"
    if report.of("note") and not notes:
        summary += " (see --notes)"
    if report.ignored:
        summary += f", {len(report.ignored)} ignored"
    click.echo(summary)
    if report.tokens:
        counts_by_provider = ", ".join(
            f"{provider} {count:,}" for provider, count in report.tokens.items()
        )
        click.echo(f"tokens in every request, about: {counts_by_provider}")
