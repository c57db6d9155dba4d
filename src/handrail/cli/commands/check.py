"""`handrail check`: the production checklist."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from itertools import groupby
from pathlib import Path

import click

from handrail.approvers.terminal import TerminalApprover, printable
from handrail.cli import completion, options, settings
from handrail.cli.exits import Exit
from handrail.cli.loading import file_at, tools_from
from handrail.cli.printer import console, print_columns
from handrail.core.policy import Policy
from handrail.invisible import json_text
from handrail.linting import Settings
from handrail.runtime import Runtime
from handrail.testing import checklist
from handrail.testing.checklist import Checklist, Line
from handrail.tools.toolset import Toolset


@click.command("check")
@click.argument(
    "modules", nargs=-1, metavar="[PLACES]...", shell_complete=completion.files
)
@options.tools
@click.option(
    "--run",
    "runs",
    is_flag=True,
    help="Call the reads that have `examples`, and hold them to what they return.",
)
@options.store
@click.option(
    "--policy",
    "rules",
    metavar="FILE",
    type=click.Path(path_type=Path),
    help="Its policy, in TOML.",
)
@click.option(
    "--inject",
    "injections",
    metavar="NAME=VALUE",
    multiple=True,
    help="With --run: fill a parameter that is injected.",
)
@click.option(
    "--missing", "only_missing", is_flag=True, help="Show only what is missing."
)
@options.as_json
@options.debug
def command(
    modules: Sequence[str],
    places: Sequence[str],
    runs: bool,
    store: str,
    rules: Path | None,
    injections: Sequence[str],
    only_missing: bool,
    as_json: bool,
) -> int:
    """Check tools against the checklist for production.

    Every line says pass, or what is missing and the one parameter that supplies it. Writes are never run. The exit code
    is 1 when something is missing.

    \b
    Examples:
      handrail check examples/orders.py
      handrail check company.tools --store sqlite:///handrail.db --missing
      handrail check examples/weather.py --run
    """
    where = [*modules, *places]
    if not where:
        raise click.UsageError(
            "Name where the tools are: FILE.py, MODULE or MODULE:ATTRIBUTE."
        )
    tools = tools_from(where)
    lines = asyncio.run(
        _lines(tools, store, rules, options.injections_from(injections), runs)
    )
    checklist_result = Checklist(lines)
    if as_json:
        click.echo(json_text({"v": 1, **checklist_result.as_json()}))
    else:
        _print(checklist_result.missing if only_missing else checklist_result.lines)
        click.echo(
            f"{len(checklist_result.lines) - len(checklist_result.missing)} of {len(checklist_result.lines)} lines pass"
        )
    return Exit.OK if checklist_result.passes else Exit.ERROR


async def _lines(
    tools: Toolset,
    store: str,
    rules: Path | None,
    inject: Mapping[str, str],
    runs: bool,
) -> Sequence[Line]:
    if rules:
        policy = Policy.from_toml(file_at(rules))
    else:
        policy = Policy()
    chosen = Settings.from_table(settings.table("lint"))
    async with Runtime(
        tools,
        store=store,
        policy=policy,
        approver=TerminalApprover(),
    ) as runtime:
        lines = checklist.check(tools, runtime, chosen).lines
    if runs:
        ran = (await checklist.run_examples(tools, inject=inject)).lines
    else:
        ran = ()
    names = {tool.name: number for number, tool in enumerate(tools)}
    return sorted([*lines, *ran], key=lambda line: names.get(line.tool, len(names)))


def _print(lines: Sequence[Line]) -> None:
    for tool, those in groupby(lines, key=lambda line: line.tool):
        click.secho(printable(tool) or "the runtime", bold=True)
        print_columns(
            console(),
            [
                (
                    "",
                    "pass" if line.passes else "MISSING",
                    line.item,
                    _explanation(line),
                )
                for line in those
            ],
        )
        click.echo()


def _explanation(line: Line) -> str:
    if line.passes:
        return line.says
    return f"{f'{line.trouble}: ' if line.trouble else ''}{line.says}\n-> {line.fix}"
