"""Completes an argument in a shell; `completion_names` has the names.

Rule 1: a completion never fails and prints nothing else: an unreadable source has no names.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from typing import TypeAlias

import click
from click.shell_completion import CompletionItem

from handrail import plugins
from handrail.errors import HandrailError

Completer: TypeAlias = Callable[
    [click.Context, click.Parameter, str], list[CompletionItem[str]]
]


def files(
    _: click.Context, __: click.Parameter, incomplete: str
) -> list[CompletionItem[str]]:
    """Leave the completion of files to the shell."""
    return [CompletionItem(incomplete, type="file")]


def names(list_names: Callable[[click.Context], Iterable[str]]) -> Completer:
    """Return a completer for these names, without those already on the command line."""

    def complete(
        context: click.Context, parameter: click.Parameter, incomplete: str
    ) -> list[CompletionItem[str]]:
        with (
            Path(os.devnull).open("w") as nowhere,
            redirect_stdout(nowhere),
            redirect_stderr(nowhere),
        ):
            try:
                candidates = list(list_names(context))
            except (HandrailError, OSError):
                return []
        typed = context.params.get(str(parameter.name))
        if isinstance(typed, list | tuple):
            before = set(typed)
        else:
            before = set()
        return [
            CompletionItem(name)
            for name in candidates
            if name.startswith(incomplete) and name not in before
        ]

    return complete


dialects = names(lambda _: plugins.list_names("dialects"))
