"""`handrail repair`: how a model's argument text is read."""

from __future__ import annotations

import sys
from typing import cast, get_args

import click

from handrail.approvers.terminal import printable
from handrail.cli import completion, options
from handrail.cli.answer_review import explain_repair
from handrail.cli.exits import Exit
from handrail.errors import Failure
from handrail.invisible import json_text
from handrail.messages import Finish
from handrail.parsing import jsontext


@click.command("repair")
@click.argument("file", default="-", shell_complete=completion.files)
@click.option(
    "--finish",
    type=click.Choice(get_args(Finish)),
    default="calls",
    show_default=True,
    help="How the model's answer ended; a cut one is never repaired.",
)
@click.option(
    "--write",
    "for_write",
    is_flag=True,
    help="Read it as for a tool that writes: no guesses.",
)
@options.as_json
@options.debug
def command(file: str, finish: str, for_write: bool, as_json: bool) -> int:
    """Parse a model's argument text and name each repair.

    FILE holds the text; `-`, the default, is stdin. The value goes to stdout, the repairs to stderr. The exit code is 1
    when the text is refused, with what a model would read.

    \b
    Examples:
      echo "{'city': 'Paris',}" | handrail repair
      handrail repair arguments.txt --finish length
    """
    outcome = jsontext.parse(
        options.read_text(file),
        cast(Finish, finish),
        lossy=not for_write,
    )
    if as_json:
        click.echo(json_text({"v": 1, **_document(outcome)}))
    elif isinstance(outcome, Failure):
        click.echo(
            f"{outcome.code}: {printable(outcome.message)}\n{outcome.suggestion}",
            err=True,
        )
    else:
        text = json_text(outcome.value, indent=2)
        click.echo(printable(text, keep="\n") if sys.stdout.isatty() else text)
        for name in outcome.repairs:
            click.echo(f"repaired: {name}{explain_repair(name)}", err=True)
    if isinstance(outcome, Failure):
        return Exit.ERROR
    return Exit.OK


def _document(outcome: jsontext.Parsed | Failure) -> dict[str, object]:
    if isinstance(outcome, Failure):
        return {"ok": False, **outcome.as_json()}
    return {
        "ok": True,
        "value": outcome.value,
        "repairs": list(outcome.repairs),
        "lossy": outcome.lossy,
    }
