"""What a shell completes for a file, a name or an id.

Rule 1: a completion never fails and prints nothing: what cannot be read has no names.
Rule 2: names of tools are completed after `--tools`, so that file is imported when Tab is pressed.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

import click
from click.shell_completion import CompletionItem

from handrail import _lazy, plugins
from handrail.errors import HandrailError
from handrail.ports import now_of

if TYPE_CHECKING:
    from handrail.cli import loading, options, store_access
    from handrail.cli.commands import examples as apps
else:
    apps = _lazy.module("handrail.cli.commands.examples")
    store_access = _lazy.module("handrail.cli.store_access")
    loading = _lazy.module("handrail.cli.loading")
    options = _lazy.module("handrail.cli.options")

Completer: TypeAlias = Callable[[click.Context, click.Parameter, str], list[CompletionItem[str]]]


def files(_: click.Context, __: click.Parameter, incomplete: str) -> list[CompletionItem[str]]:
    """Leave the completion of files to the shell."""
    return [CompletionItem(incomplete, type="file")]


def names(known: Callable[[click.Context], Iterable[str]]) -> Completer:
    """Return a completer for these names, without those already on the command line."""

    def complete(context: click.Context, parameter: click.Parameter, incomplete: str) -> list[CompletionItem[str]]:
        with Path(os.devnull).open("w") as nowhere, redirect_stdout(nowhere), redirect_stderr(nowhere):
            try:
                found = list(known(context))
            except (HandrailError, OSError):
                return []
        typed = context.params.get(str(parameter.name))
        before = set(typed) if isinstance(typed, list | tuple) else set()
        return [CompletionItem(name) for name in found if name.startswith(incomplete) and name not in before]

    return complete


def _tools(context: click.Context) -> Iterable[str]:
    return [tool.name for tool in loading.tools_from(context.params.get("places") or ())]


def _store(context: click.Context) -> str:
    return context.params.get("store") or options.default_store()


def _runs(context: click.Context) -> Iterable[str]:
    with store_access.RUNS.opened(_store(context)) as kept:
        return [record.run_id for record in now_of(kept.records(most=_MOST_RUNS))]


def _questions(context: click.Context) -> Iterable[str]:
    with store_access.QUESTIONS.opened(_store(context)) as kept:
        return [question.id for question in now_of(kept.questions())]


def _grants(context: click.Context) -> Iterable[str]:
    with store_access.GRANTS.opened(_store(context)) as kept:
        return [grant.id for grant in now_of(kept.grants())]


_MOST_RUNS = 100
"""The newest ones; nobody looks through more."""

tools = names(_tools)
dialects = names(lambda _: plugins.known("dialects"))
wires = names(lambda _: options.wires())
forms = names(lambda _: ["json", *options.wires(), "mcp"])
examples = names(lambda _: apps.app_files())
runs = names(_runs)
questions = names(_questions)
grants = names(_grants)
