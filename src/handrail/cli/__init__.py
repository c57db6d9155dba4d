"""The command line: `handrail COMMAND`, one file per command in `commands/`.

A command is imported when it is used, so that `--version`, `--help` and completion answer at once and load none of the
machinery.

Rule 1: results go to stdout, everything else to stderr; a program may read stdout.
Rule 2: a mistake of the caller ends in one sentence and an exit code of `exits`; the traceback is for `--debug`.
Rule 3: nothing imports this package.
"""

from __future__ import annotations

import errno
import logging
import os
import sys
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from io import TextIOWrapper
from pathlib import Path
from typing import Any, cast

import click

from handrail._version import __version__
from handrail.cli import exits
from handrail.errors import HandrailError
from handrail.invisible import printable
from handrail.logs import log

COMMANDS = {
    "demo": "Watch a model and its tools at work; needs no key and no network.",
    "run": "Ask a model one question and let it use your tools.",
    "chat": "Talk with a model that can use your tools.",
    "call": "Call one tool by hand, with every check that a model's call gets.",
    "tools": "Look at tools as a model sees them.",
    "lint": "Say what is wrong with tools, as a model that must choose and fill them would meet it.",
    "check": "Say what tools still lack before a model is let at them in production.",
    "eval": "Measure on questions of your own.",
    "render": "Print a conversation as a model gets it: the request body of a wire, or the text of a prompt.",
    "parse": "Read what a model wrote: its text, its reasoning and its calls.",
    "decode": "Read what a provider sent, a body or a stream of events, as a model's answer.",
    "repair": "Read a model's argument text and name what had to be mended.",
    "runs": "Look at kept runs, go on with them, cancel, fork, replay and export them.",
    "approvals": "List the calls that wait for a person; approve or deny them.",
    "ledger": "Look at writes, and say how one ended that nobody knows of.",
    "audit": "Follow, check and export the log of what was decided and done.",
    "store": "Look after the store of a deployment: a SQLite file or a Postgres database.",
    "examples": "List and run small apps that show what handrail is for; they need no key and no network.",
    "new": "Begin a project: tools, a test that kills them, and settings, in a new folder.",
    "doctor": "Say what this machine has, and what is missing.",
    "completion": "Print the completion script for a shell.",
}
"""Every command with the first line of its help, which is thereby known without importing it."""

_ERROR = click.style("error:", fg="red", bold=True)
_OF_TEXT = "\n\t"


class Program(click.Group):
    """A group whose commands are imported when they are used, and whose errors are sentences."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002
        """Name the commands in the order in which a newcomer meets them."""
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002
        """Import a command."""
        if cmd_name not in COMMANDS:
            return None
        return cast(click.Command, import_module(f"handrail.cli.commands.{cmd_name}").command)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Find the command, or suggest one that is spelled alike."""
        self.commands = dict.fromkeys(COMMANDS, click.Command(None))  # click looks for similar names here
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002
        """List the commands without importing them."""
        with formatter.section("Commands"):
            formatter.write_dl(list(COMMANDS.items()))

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002
        """Tell the exit codes."""
        with formatter.section("Exit codes"):
            formatter.write_dl([(str(int(code)), code.meaning) for code in exits.Exit if code.told])
        with formatter.section("Start with"):
            formatter.write_text("handrail demo")

    def main(self, *args: Any, **how: Any) -> Any:
        """Do what the command line says; where the disk is full, that is one sentence too."""
        try:
            try:
                return super().main(*args, **how)
            finally:
                if sys.stdout is not None:
                    sys.stdout.flush()  # here, and not when the interpreter ends: help is printed before any command
        except OSError as error:
            if error.errno not in (errno.ENOSPC, errno.EDQUOT):
                raise
            _let_go_of_stdout()
            click.echo(f"{_ERROR} {error.filename or 'what came of it'} cannot be written: {error.strerror}", err=True)
            sys.exit(exits.Exit.ERROR)

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command; its return value is the exit code."""
        _open_streams()
        ctx.with_resource(_said_once())
        try:
            code = super().invoke(ctx)
            sys.stdout.flush()  # here, where a closed pipe can still be caught
        except (KeyboardInterrupt, click.Abort):
            click.echo("interrupted", err=True)
            code = exits.Exit.INTERRUPTED
        except BrokenPipeError:
            _let_go_of_stdout()
            code = exits.Exit.NOBODY_READS
        except HandrailError as error:
            if is_debugging(ctx):
                click.echo(printable(traceback.format_exc(), keep=_OF_TEXT), err=True)
            click.echo(f"{_ERROR} {printable(str(error), keep=_OF_TEXT)}", err=True)
            code = exits.of_error(error)
        ctx.exit(int(code or 0))


def is_debugging(ctx: click.Context) -> bool:
    """Whether tracebacks are wanted: `--debug` on the command, or HANDRAIL_DEBUG in the environment."""
    return bool(ctx.meta.get("debug") or os.environ.get("HANDRAIL_DEBUG", "0") not in ("", "0"))


@contextmanager
def _said_once() -> Iterator[None]:
    """Let each warning of the log be shown once, and not for every attempt of a call, unless all of it is wanted."""
    shown: set[str] = set()

    def is_new(record: logging.LogRecord) -> bool:
        told = record.getMessage()
        if log.isEnabledFor(logging.DEBUG) or told not in shown:
            shown.add(told)
            return True
        return False

    log.addFilter(is_new)
    try:
        yield
    finally:
        log.removeFilter(is_new)


def _open_streams() -> None:
    """Make sure that there is something to print to: the shell may have closed it, the locale be unable to spell."""
    sys.stdout = sys.stdout or Path(os.devnull).open("w")  # noqa: SIM115  # as long as the process
    sys.stderr = sys.stderr or Path(os.devnull).open("w")  # noqa: SIM115
    if isinstance(sys.stdout, TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")


def _let_go_of_stdout() -> None:
    """Point stdout at nothing: the interpreter flushes it once more when it ends, and would complain."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


@click.group(cls=Program, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110})
@click.version_option(__version__, message="handrail %(version)s")
def main() -> None:
    """The layer between a model's tool call and your production system.

    Every call that a model makes is checked, allowed, carried out at most once, limited in time, and answered.
    """
