"""`handrail decode`: what a provider sent, read as a model's answer."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

import click

from handrail.cli import cases, completion, completion_names, options
from handrail.cli.answer_review import TurnReview, print_review, review_turn
from handrail.dialects import WireDialect, dialect
from handrail.errors import ConfigError, Json
from handrail.messages import Turn
from handrail.tools.toolset import Toolset

_STREAM = re.compile(r"\ufeff?\s*(data|event|id|retry)?:")
"""How a stream of server-sent events begins: with a field, or with a comment."""


@click.command("decode")
@click.argument("file", default="-", shell_complete=completion.files)
@click.option(
    "--wire",
    "name",
    metavar="NAME",
    required=True,
    shell_complete=completion_names.wires,
    help="What the provider speaks, such as openai-chat.",
)
@options.definitions
@options.as_json
@options.as_jsonl
@options.debug
def command(
    file: str, name: str, places: Sequence[str], as_json: bool, as_jsonl: bool
) -> int:
    """Decode a provider's response, a body or a stream of events, into a model's answer.

    FILE holds the answer as it came, for example from `curl`; `-`, the default, is stdin. With tools every call is
    checked as it would be before it runs. A line of --jsonl has `body`, an object or the text of a stream, and perhaps
    `tools`. The exit code is 1 when a call would be refused, or the answer is an error.

    \b
    Examples:
      handrail decode --wire openai-chat --tools examples/weather.py stream.txt
      curl -sS "$URL" -H "Authorization: Bearer $KEY" -d @body.json | handrail decode --wire openai-chat
    """
    options.one_form(as_json, as_jsonl)
    wire = _wire(name)
    tools = cases.tools_at(places)
    text = options.read_text(file)

    def read(case: Json) -> TurnReview:
        case_tools = cases.tools_in(case if isinstance(case, Mapping) else {}, tools)
        return review_turn(
            wire.name, _turn(wire, cases.model_output(case), case_tools), case_tools
        )

    return print_review(
        read,
        text,
        as_json=as_json,
        as_jsonl=as_jsonl,
    )


def _wire(name: str) -> WireDialect:
    wire = dialect(name)
    if not isinstance(wire, WireDialect):
        wires = ", ".join(options.wires())
        raise ConfigError(
            f"{name} is a prompt dialect, not a wire; use `handrail parse`. Wires are {wires}"
        )
    return wire


def _turn(wire: WireDialect, output: Json, tools: Toolset | None) -> Turn:
    if not (isinstance(output, str) and _STREAM.match(output)):
        return wire.decode(output, tools)
    stream = wire.stream(tools)
    stream.feed(output)
    return stream.close()
