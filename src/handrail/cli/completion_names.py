"""The names of tools, runs, approvals and apps that a shell completes.

Rule 1: names of tools are completed after `--tools`, so that file is imported when Tab is pressed.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

import click

from handrail import _lazy
from handrail.cli.completion import names
from handrail.futures import result_now

if TYPE_CHECKING:
    from handrail.cli import example_apps as apps
    from handrail.cli import loading, options, store_access
else:
    apps = _lazy.module("handrail.cli.example_apps")
    store_access = _lazy.module("handrail.cli.store_access")
    loading = _lazy.module("handrail.cli.loading")
    options = _lazy.module("handrail.cli.options")


def _tools(context: click.Context) -> Iterable[str]:
    return [
        tool.name for tool in loading.tools_from(context.params.get("places") or ())
    ]


def _store(context: click.Context) -> str:
    return context.params.get("store") or options.default_store()


def _runs(context: click.Context) -> Iterable[str]:
    with store_access.RUNS.open(_store(context)) as store:
        return [
            record.run_id for record in result_now(store.list_runs(most=_MOST_RUNS))
        ]


def _questions(context: click.Context) -> Iterable[str]:
    with store_access.QUESTIONS.open(_store(context)) as store:
        return [question.id for question in result_now(store.list_approvals())]


def _standing_approvals(context: click.Context) -> Iterable[str]:
    with store_access.STANDING_APPROVALS.open(_store(context)) as store:
        return [approval.id for approval in result_now(store.list_standing_approvals())]


_MOST_RUNS = 100
"""The newest ones; more would not fit on a screen."""

tools = names(_tools)
wires = names(lambda _: options.wires())
forms = names(lambda _: ["json", *options.wires(), "mcp"])
examples = names(lambda _: apps.app_files())
runs = names(_runs)
questions = names(_questions)
standing_approvals = names(_standing_approvals)
