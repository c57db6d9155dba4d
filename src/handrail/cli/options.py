"""Options that several commands share, each defined once, and what they mean."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, TypeVar

import click

from handrail.errors import Failure
from handrail.messages import ToolMessage
from handrail.runs import Run

F = TypeVar("F", bound=Callable[..., Any])


def model(*, required: bool) -> Callable[[F], F]:
    """`--model provider:name`."""
    return click.option(
        "--model", metavar="PROVIDER:NAME", envvar="HANDRAIL_MODEL" if required else None, required=required, show_envvar=True,
        help="Model to ask, such as openai:NAME, or openai:NAME@http://localhost:8000/v1 for a compatible server.",
    )  # fmt: skip


def _note_debug(context: click.Context, _: click.Parameter, value: bool) -> None:
    context.meta["debug"] = context.meta.get("debug") or value


debug = click.option(
    "--debug", is_flag=True, expose_value=False, callback=_note_debug, help="Show tracebacks. Also HANDRAIL_DEBUG=1."
)
wire = click.option("--wire", is_flag=True, help="Show the HTTP requests and answers, keys masked, and as curl.")
as_json = click.option("--json", "as_json", is_flag=True, help="Print one JSON document on stdout.")


def failures_of(run: Run) -> Iterator[Failure | None]:
    """Return how each call of a run failed, None where it did not."""
    return (message.result.failure for message in run.messages if isinstance(message, ToolMessage))
