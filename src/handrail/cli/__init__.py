"""The command line: `handrail COMMAND`, one file per command in `commands/`.

A command is imported when it is used, so that `--version`, `--help` and completion answer at once.

Rule 1: results go to stdout, everything else to stderr; a program may read stdout.
Rule 2: a mistake of the caller ends in one sentence and an exit code of `exits`; `--debug` adds the traceback.
Rule 3: nothing imports this package.
"""

from __future__ import annotations

import errno
import logging
import os
import sys
import traceback
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib import import_module
from io import TextIOWrapper
from pathlib import Path
from typing import Any, cast

import click

from handrail import plugins
from handrail._version import __version__
from handrail.cli import exits
from handrail.errors import HandrailError
from handrail.invisible import printable
from handrail.logs import log

COMMANDS = {
    "demo": "Watch a model and its tools at work; needs no key and no network.",
    "run": "Ask a model one question and let it use your tools.",
    "chat": "Chat with a model that can use your tools.",
    "call": "Call one tool by hand, with every check that a model's call gets.",
    "serve": "Serve the console and the HTTP API, or your tools to the clients of a protocol.",
    "worker": "Carry out the runs that were submitted to a store.",
    "tools": "Show tools as a model sees them.",
    "lint": "Find faults in tools that lead a model to choose or fill them wrongly.",
    "check": "Check tools against the checklist for production.",
    "eval": "Measure on questions of your own.",
    "decode": "Decode a provider's response, a body or a stream of events, into a model's answer.",
    "repair": "Parse a model's argument text and name each repair.",
    "runs": "List and show stored runs; resume, wake, cancel, fork, replay and export them.",
    "approvals": "List the calls that wait for a person; approve or deny them.",
    "ledger": "List writes, and resolve one that is in doubt.",
    "audit": "Follow, verify and export the audit log.",
    "store": "Inspect and copy a store, a SQLite file or a Postgres database, and delete what is old.",
    "examples": "List and run small apps that show what handrail is for; they need no key and no network.",
    "new": "Create a project: tools, a test that kills them, and settings, in a new folder.",
    "config": "Show the settings in force, and where each comes from; secrets are masked.",
    "doctor": "Show what this machine has, and what is missing.",
    "completion": "Print the completion script for a shell.",
}
"""Our commands with the first line of the help of each, so that the list of commands imports none of them."""

_ERROR = click.style("error:", fg="red", bold=True)
_OF_TEXT = "\n\t"


def list_commands() -> Mapping[str, str]:
    """Return every command with the first line of its help: ours, then those of other packages."""
    added = {
        name: line
        for name, line in plugins.list_added("help").items()
        if " " not in name
    }
    return {**COMMANDS, **added}


class LazyGroup(click.Group):
    """A group whose commands are imported when they are used, and whose errors are sentences."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002  # click's signature
        """List the commands in the order in which a newcomer meets them."""
        return list(list_commands())

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002  # click's signature
        """Import a command."""
        if cmd_name in COMMANDS:
            module = import_module(f"handrail.cli.commands.{cmd_name}")
            return cast(click.Command, module.command)
        if cmd_name in list_commands():
            return cast(click.Command, plugins.load("commands", cmd_name))
        return None

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Find the command, or suggest one that is spelled alike."""
        # click looks for similar names here
        self.commands = dict.fromkeys(list_commands(), click.Command(None))
        return super().resolve_command(ctx, args)

    def format_commands(
        self,
        ctx: click.Context,  # noqa: ARG002  # click's signature
        formatter: click.HelpFormatter,
    ) -> None:
        """List the commands without importing them."""
        with formatter.section("Commands"):
            formatter.write_dl(list(list_commands().items()))

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002  # click's signature
        """List the exit codes."""
        with formatter.section("Exit codes"):
            formatter.write_dl(
                [
                    (str(int(code)), code.meaning)
                    for code in exits.Exit
                    if code.is_documented
                ]
            )
        with formatter.section("Start with"):
            formatter.write_text("handrail demo")

    def main(self, *args: Any, **how: Any) -> Any:
        """Run the command line; a full disk ends in one sentence too."""
        try:
            try:
                return super().main(*args, **how)
            finally:
                if sys.stdout is not None:
                    # here, and not when the interpreter ends: help is printed before any command
                    sys.stdout.flush()
        except OSError as error:
            if error.errno not in (errno.ENOSPC, errno.EDQUOT):
                raise
            _discard_stdout()
            click.echo(
                f"{_ERROR} cannot write {error.filename or 'the result'}: {error.strerror}",
                err=True,
            )
            sys.exit(exits.Exit.ERROR)

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command; its return value is the exit code."""
        _open_streams()
        ctx.with_resource(_deduplicate_warnings())
        try:
            code = super().invoke(ctx)
            sys.stdout.flush()  # here, where a closed pipe can still be caught
        except click.NoSuchOption as error:
            raise _suggest_by_meaning(error) from None
        except (KeyboardInterrupt, click.Abort):
            click.echo("interrupted", err=True)
            code = exits.Exit.INTERRUPTED
        except BrokenPipeError:
            _discard_stdout()
            code = exits.Exit.NOBODY_READS
        except HandrailError as error:
            if is_debugging(ctx):
                click.echo(printable(traceback.format_exc(), keep=_OF_TEXT), err=True)
            click.echo(f"{_ERROR} {printable(str(error), keep=_OF_TEXT)}", err=True)
            code = exits.of_error(error)
        ctx.exit(int(code or 0))


_SAME_MEANING: Mapping[str, Sequence[str]] = {
    "--http": ("--port", "--host", "--listen", "--bind", "--address", "--addr"),
    "--store": ("--db", "--database", "--sqlite", "--postgres", "--dsn"),
    "--json": ("--output", "--format"),
    "--by": ("--user", "--person"),
    "--system": ("--prompt", "--instructions"),
    "-n": ("--limit", "--max", "--most"),
    "--tenant": ("--scope",),
    "--scope": ("--tenant",),
}
"""Options of handrail, and what other programs call them."""


def _suggest_by_meaning(error: click.NoSuchOption) -> click.NoSuchOption:
    """Suggest the option that means what was written; one that is merely spelled alike may mean anything."""
    written = error.option_name
    parameters = error.ctx.command.params if error.ctx else ()
    for option in (option for each in parameters for option in each.opts):
        if written in _SAME_MEANING.get(option, ()):
            words = f"No such option {written!r}. Did you mean {option!r}?"
            return click.NoSuchOption(written, words, ctx=error.ctx)
    return error


def is_debugging(ctx: click.Context) -> bool:
    """Return whether tracebacks are wanted: `--debug` on the command, or HANDRAIL_DEBUG in the environment."""
    return bool(
        ctx.meta.get("debug") or os.environ.get("HANDRAIL_DEBUG", "0") not in ("", "0")
    )


@contextmanager
def _deduplicate_warnings() -> Iterator[None]:
    """Show each warning of the log once instead of at every attempt, unless the log is at level DEBUG."""
    shown: set[str] = set()

    def is_new(record: logging.LogRecord) -> bool:
        message = record.getMessage()
        if log.isEnabledFor(logging.DEBUG) or message not in shown:
            shown.add(message)
            return True
        return False

    log.addFilter(is_new)
    try:
        yield
    finally:
        log.removeFilter(is_new)


def _open_streams() -> None:
    """Replace streams that the shell has closed, and escape characters that the locale cannot encode."""
    sys.stdout = sys.stdout or Path(os.devnull).open("w")  # noqa: SIM115  # as long as the process
    sys.stderr = sys.stderr or Path(os.devnull).open("w")  # noqa: SIM115  # likewise
    if isinstance(sys.stdout, TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")


def _discard_stdout() -> None:
    """Point stdout at the null device: the interpreter flushes it once more at exit, which would fail."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


@click.group(
    cls=LazyGroup,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110},
)
@click.version_option(__version__, message="handrail %(version)s")
def main() -> None:
    """The layer between a model's tool call and your production system.

    Every call that a model makes is validated, authorised, time-limited and recorded; a write with a key starts at most
    once.
    """
