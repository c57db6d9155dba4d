"""Watches a run while it is under way and prints its result, for every command that drives one."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from functools import wraps
from typing import Any

import click

from handrail.approvers.terminal import printable
from handrail.cli import exits, options
from handrail.cli.exits import Exit
from handrail.cli.jsonl import Recorder
from handrail.cli.printer import Printer, console
from handrail.cli.timeline import Detail, Timeline
from handrail.core.redaction import Redactor
from handrail.ports import Observer
from handrail.runs import Run, as_line

_jsonl = click.option(
    "--jsonl",
    "as_jsonl",
    is_flag=True,
    help="Print every event as a line of JSON, then the run.",
)


class Watch:
    """Watches one run. The answer goes to stdout, progress to stderr."""

    def __init__(
        self,
        *,
        as_json: bool,
        as_jsonl: bool,
        wire: bool,
        quiet: bool,
        verbose: bool,
        raw: bool,
    ) -> None:
        if as_json and as_jsonl:
            raise click.UsageError(
                "--json prints one document and --jsonl one line per event; choose one."
            )
        self.detail: Detail = "all" if verbose else "short"
        if quiet or as_json or as_jsonl:
            self.detail = "ends"
        self.printer = Printer(
            Timeline(detail=self.detail, wire=wire and not as_jsonl, raw=raw),
            console(sys.stderr),
        )
        self._recorder = Recorder(sys.stdout, wire=wire, raw=raw) if as_jsonl else None
        self._redactor = None if raw else Redactor()
        self._as_json = as_json

    @property
    def observers(self) -> Sequence[Observer]:
        """The observers of the run."""
        if self._recorder:
            return [self.printer, self._recorder]
        return [self.printer]

    def conclude(self, run: Run, *, debugging: bool) -> Exit:
        """Print the result of the run; return the exit code."""
        if debugging:
            transcript = run.transcript(debug=True)
            click.echo(
                printable(
                    self._redactor.text(transcript) if self._redactor else transcript,
                    keep="\n",
                ),
                err=True,
            )
        if self._recorder:
            self._recorder.write({"v": 1, "event": "run", "run": run.as_json()})
        elif self._as_json:
            click.echo(as_line(run.as_json()))
        elif run.text:
            click.echo(
                printable(run.text, keep="\n\t") if sys.stdout.isatty() else run.text
            )
        return exits.of_run(run.status, options.call_failures(run))

    def tell(self, text: str) -> None:
        """Print a line for people on stderr, unless only results and errors are wanted."""
        if text and self.detail != "ends":
            click.echo(printable(text, keep="\n"), err=True)


def watch_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options of watching a run to a command, which gets them as one `watch`."""

    @wraps(command)
    def with_watch(
        as_json: bool,
        as_jsonl: bool,
        wire: bool,
        quiet: bool,
        verbose: bool,
        raw: bool,
        **others: Any,
    ) -> Any:
        watch = Watch(
            as_json=as_json,
            as_jsonl=as_jsonl,
            wire=wire,
            quiet=quiet,
            verbose=verbose,
            raw=raw,
        )
        return command(watch=watch, **others)

    decorated: Callable[..., Any] = with_watch
    for option in (
        options.debug,
        options.verbose,
        options.quiet,
        options.raw,
        options.wire,
        _jsonl,
        options.as_json,
    ):
        decorated = option(decorated)
    return decorated
