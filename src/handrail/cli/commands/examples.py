"""`handrail examples`: the apps of `examples/apps`, from a checkout or from an installed package."""

from __future__ import annotations

import ast
import re
import runpy
import sys
from collections.abc import Sequence
from pathlib import Path

import click

from handrail.cli import completion_names, options
from handrail.cli.example_apps import app_files
from handrail.cli.store_access import print_json, print_table
from handrail.errors import ConfigError, describe_install
from handrail.parsing.names import advise


@click.group("examples", cls=options.Commands)
def command() -> None:
    """List and run small apps that show what handrail is for; they need no key and no network.

    One needs an extra of handrail; the list says which.

    \b
    Examples:
      handrail examples list
      handrail examples run ops
    """


@command.command("list")
@options.as_json
@options.debug
def list_examples(as_json: bool) -> None:
    """List the apps, each with one line.

    \b
    Example:
      handrail examples list --json
    """
    apps = [(name, *_summary(file), file) for name, file in app_files().items()]
    if as_json:
        print_json(
            {
                "examples": [
                    {
                        "name": name,
                        "says": says,
                        "needs": needs,
                        "file": str(file),
                    }
                    for name, says, needs, file in apps
                ]
            }
        )
    else:
        shown = [
            (name, f"{says} ({_describe_need(needs)})" if needs else says)
            for name, says, needs, _ in apps
        ]
        print_table(shown, ("app", "what it shows"), "there are no apps")


@command.command(
    "run",
    context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False},
)
@click.argument("name", shell_complete=completion_names.examples)
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
def run(name: str, arguments: Sequence[str]) -> None:
    """Run an app; the app itself reads what follows its name.

    \b
    Examples:
      handrail examples run ops
      handrail examples run ops --ask
      handrail examples run ops --help
    """
    apps = app_files()
    if name not in apps:
        advice = advise(name, apps, f"there are {', '.join(apps)}")
        raise ConfigError(f"there is no app {name!r}; {advice}")
    sys.argv = [f"handrail examples run {name}", *arguments]
    sys.path.insert(0, str(apps[name].parent))  # as Python does for a program
    # in this process: the terminal and Ctrl-C are the app's
    runpy.run_path(str(apps[name]), run_name="__main__")


def _summary(file: Path) -> tuple[str, str]:
    """Return the first line of an app's docstring and what it needs beside handrail, without running it."""
    docstring = ast.get_docstring(ast.parse(file.read_text(encoding="utf-8"))) or ""
    needs = re.search(r"^Needs: (.+)$", docstring, re.MULTILINE)
    return docstring.partition("\n")[0], needs[1] if needs else ""


def _describe_need(requirement: str) -> str:
    """Return how what an app needs is installed, such as `handrail[sql]`."""
    return describe_install(requirement.removeprefix("handrail[").removesuffix("]"))
