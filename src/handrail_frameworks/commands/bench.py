"""`handrail bench`: what goes wrong on agent frameworks, plain and with handrail, in processes of their own."""

from __future__ import annotations

import json
import platform
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import click
import msgspec
from msgspec import Struct

from handrail import _version
from handrail.cli import options
from handrail.cli.exits import Exit
from handrail.cli.printer import console, print_columns
from handrail.errors import ConfigError, describe_install
from handrail.invisible import json_text
from handrail_frameworks.bench.play import TARGETS
from handrail_frameworks.bench.scenarios import LIMITS, SCENARIOS, Cell

PROGRAM = "handrail_frameworks.bench.play"
PROCESS_TIMEOUT_S = 300


class Line(Struct, frozen=True):
    """One scenario on one framework."""

    target: str
    scenario: str
    plain: Cell
    handrail: Cell
    limit: str = ""

    @property
    def is_good(self) -> bool:
        """Whether it is as wanted with handrail, or the framework's own limit."""
        return self.handrail.is_wanted or bool(self.limit)

    @property
    def mark(self) -> str:
        """A word on the cell with handrail."""
        if self.handrail.is_wanted:
            return "ok"
        return f"limit: {self.limit}" if self.limit else "NOT AS WANTED"


class Bench(Struct, frozen=True):
    """Every line, with the versions of the frameworks; None where one is not installed."""

    versions: Mapping[str, Mapping[str, str] | None]
    lines: Sequence[Line]

    def as_json(self) -> dict[str, Any]:
        """Return it as `--json` prints it."""
        return {
            "v": 1,
            "handrail": _version.__version__,
            "python": platform.python_version(),
            "frameworks": dict(self.versions),
            "scenarios": {name: each.title for name, each in SCENARIOS.items()},
            "lines": msgspec.to_builtins(self.lines),
        }


@click.group("bench", cls=options.Commands)
def command() -> None:
    """Play the same scenarios on the agent frameworks that are installed, plain and with handrail.

    \b
    Examples:
      handrail bench frameworks
      handrail bench frameworks --only langgraph --only killed
    """


@command.command("frameworks")
@click.option(
    "--only",
    "wanted",
    metavar="NAME",
    multiple=True,
    help="A framework or a scenario; may be given several times.",
)
@click.option(
    "--python",
    "pythons",
    metavar="FILE",
    multiple=True,
    help="The interpreter of an environment that has handrail and a framework; may be given several times.",
)
@click.option("--markdown", is_flag=True, help="Print the table in Markdown.")
@options.as_json
@options.debug
def frameworks(
    wanted: Sequence[str], pythons: Sequence[str], markdown: bool, as_json: bool
) -> int:
    """Show what becomes of double payments, hung tools, lost updates, kill -9 and approvals on each framework.

    Scripted models and tools on this machine: no key, no network. It takes some minutes. The exit code is 1 if
    something with handrail is not as it should be.
    """
    targets, scenarios = _choose(wanted)
    homes = _find_homes(pythons or [sys.executable], targets)
    lines: list[Line] = []
    for line in _play_all(homes, scenarios):
        lines.append(line)
        if not as_json and not markdown:
            _print_line(
                line, is_first=line.target not in [e.target for e in lines[:-1]]
            )
    bench = Bench({name: home and home[1] for name, home in homes.items()}, lines)
    if as_json:
        click.echo(json_text(bench.as_json()))
    elif markdown:
        click.echo("\n".join(_markdown(bench)))
    else:
        _print_end(bench)
    return Exit.OK if all(each.is_good for each in lines) else Exit.ERROR


def _choose(wanted: Sequence[str]) -> tuple[list[str], list[str]]:
    """Return the targets and the scenarios that were asked for, all of a kind if none of it was."""
    unknown = [name for name in wanted if name not in TARGETS and name not in SCENARIOS]
    if unknown:
        raise ConfigError(
            f"there is no framework or scenario {unknown[0]!r}; "
            f"there are {', '.join(TARGETS)}, and {', '.join(SCENARIOS)}"
        )
    targets = [name for name in TARGETS if name in wanted]
    scenarios = [name for name in SCENARIOS if name in wanted]
    return targets or list(TARGETS), scenarios or list(SCENARIOS)


Homes = Mapping[str, tuple[str, Mapping[str, str]] | None]
"""For each target the interpreter that has it, and its versions; None where none has."""


def _find_homes(pythons: Sequence[str], targets: Sequence[str]) -> Homes:
    homes: dict[str, tuple[str, Mapping[str, str]] | None] = dict.fromkeys(targets)
    for python in pythons:
        for target, versions in _run(python).items():
            if target in homes and homes[target] is None and versions is not None:
                homes[target] = (python, versions)
    return homes


def _run(python: str, *arguments: str) -> Any:
    """Run the program of the scenarios; return what it prints."""
    try:
        ended = subprocess.run(
            [python, "-m", PROGRAM, *arguments],
            capture_output=True,
            text=True,
            timeout=PROCESS_TIMEOUT_S,
            check=False,
        )
    except OSError as error:
        raise ConfigError(f"{python} cannot be started: {error}") from error
    if ended.returncode or not ended.stdout.strip():
        last = (ended.stderr.strip().splitlines() or ["it printed nothing"])[-1]
        raise ConfigError(
            f"{python} cannot play {' '.join(arguments) or 'scenarios'}: {last[:300]}. "
            f"It needs handrail and the framework: {describe_install('frameworks')}"
        )
    return json.loads(ended.stdout.splitlines()[-1])


def _play_all(homes: Homes, scenarios: Sequence[str]) -> Iterator[Line]:
    for target, home in homes.items():
        if home is None:
            continue
        for scenario in scenarios:
            cells = _run(home[0], target, scenario)
            plain, handrail = (Cell(**cells[how]) for how in ("plain", "handrail"))
            limit = LIMITS.get((target, scenario), "")
            yield Line(target, scenario, plain, handrail, limit)


# ---------------------------------------------------------------------- printing


def _print_line(line: Line, *, is_first: bool) -> None:
    screen = console()
    if is_first:
        screen.print(f"\n{line.target}", style="bold")
    rows = [
        (f"  {SCENARIOS[line.scenario].title}", ""),
        ("    plain", line.plain.text),
        (
            "    with handrail",
            f"{line.handrail.text} [{line.mark}]",
        ),
    ]
    print_columns(screen, rows)


def _print_end(bench: Bench) -> None:
    screen = console()
    screen.print()
    for target, versions in bench.versions.items():
        mine = [each for each in bench.lines if each.target == target]
        plain = sum(each.plain.is_wanted for each in mine)
        handrail = sum(each.handrail.is_wanted for each in mine)
        words = "not installed"
        if versions is not None:
            counts = f"{plain} of {len(mine)} plain, {handrail} with handrail"
            words = f"as wanted: {counts} ({_name(versions)})"
        print_columns(screen, [(target, words)])


def _name(versions: Mapping[str, str]) -> str:
    return ", ".join(f"{name} {version}" for name, version in versions.items())


def _markdown(bench: Bench) -> Iterator[str]:
    """Yield the table of each framework."""
    for target, versions in bench.versions.items():
        yield f"### {target}"
        yield ""
        if versions is None:
            yield "Not installed."
            yield ""
            continue
        yield f"{_name(versions)}."
        yield ""
        yield "| scenario | plain | with handrail |"
        yield "|---|---|---|"
        for line in bench.lines:
            if line.target == target:
                title = SCENARIOS[line.scenario].title
                yield f"| {title} | {_mark(line.plain)} | {_mark(line.handrail)} |"
        yield ""


def _mark(cell: Cell) -> str:
    return cell.text if cell.is_wanted else f"**{cell.text}**"
