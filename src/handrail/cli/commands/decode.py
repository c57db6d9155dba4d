"""`handrail decode`: what a provider sent, read as a model's answer."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

import click

from handrail.cli import cases, completion, completion_names, options
from handrail.cli.answer_review import JudgedTurn, judged, told
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
@options.described
@options.as_json
@options.as_jsonl
@options.debug
def command(file: str, name: str, places: Sequence[str], as_json: bool, as_jsonl: bool) -> int:
    """Read what a provider sent, a body or a stream of events, as a model's answer.

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
    text = options.text_of(file)

    def read(case: Json) -> JudgedTurn:
        known = cases.tools_in(case if isinstance(case, Mapping) else {}, tools)
        return judged(wire.name, _turn(wire, cases.said_in(case), known), known)

    return told(
        read,
        text,
        as_json=as_json,
        as_jsonl=as_jsonl,
    )


def _wire(name: str) -> WireDialect:
    found = dialect(name)
    if not isinstance(found, WireDialect):
        wires = ", ".join(options.wires())
        raise ConfigError(f"{name} is no wire but a prompt; use `handrail parse`. Wires are {wires}")
    return found


def _turn(wire: WireDialect, sent: Json, tools: Toolset | None) -> Turn:
    if not (isinstance(sent, str) and _STREAM.match(sent)):
        return wire.decode(sent, tools)
    stream = wire.stream(tools)
    stream.feed(sent)
    return stream.close()
