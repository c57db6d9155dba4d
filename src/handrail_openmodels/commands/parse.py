"""`handrail parse`: what a model wrote, taken apart."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, cast

import click
from msgspec.structs import replace

from handrail.cli import cases, completion, options
from handrail.cli.answer_review import TurnReview, print_review, review_turn
from handrail.dialects import Dialect, WireDialect, dialect
from handrail.errors import ConfigError, Json, ModelError
from handrail.messages import Turn
from handrail.tools.toolset import Toolset
from handrail_openmodels import parts


@click.command("parse")
@click.argument("file", default="-", shell_complete=completion.files)
@options.dialect
@options.definitions
@click.option(
    "--opened",
    metavar="TEXT",
    default="",
    help="What the prompt had already opened for the model, such as `<think>`.",
)
@options.as_json
@options.as_jsonl
@options.debug
def command(
    file: str,
    name: str,
    places: Sequence[str],
    opened: str,
    as_json: bool,
    as_jsonl: bool,
) -> int:
    """Parse what a model wrote: its text, its reasoning and its calls.

    FILE holds the model's text for a prompt dialect, and a message or a whole body for a wire; `-`, the default, is
    stdin. With tools every call is checked as it would be before it runs. A line of --jsonl has `text` or `body`, and
    perhaps `tools` and `opened`. The exit code is 1 when a call would be refused, or nothing can be read.

    \b
    Examples:
      handrail parse --dialect openai-chat message.json
      handrail parse --dialect openai-chat --tools examples/weather.py --json message.json
    """
    options.one_form(as_json, as_jsonl)
    chosen = dialect(name)
    tools = cases.tools_at(places)
    text = options.read_text(file)

    def read(case: Json) -> TurnReview:
        fields = case if isinstance(case, Mapping) else {}
        case_tools = cases.tools_in(fields, tools)
        opening = fields.get("opened", opened)
        output = cases.model_output(case)
        turn = _turn(chosen, output, case_tools, opening)
        review = review_turn(chosen.name, turn, case_tools)
        if turn.calls or isinstance(chosen, WireDialect):
            return review
        return replace(review, looks_like=_find_dialect(output))

    return print_review(
        read,
        text,
        as_json=as_json,
        as_jsonl=as_jsonl,
    )


def _find_dialect(text: Json) -> str:
    """Return the first of the prompts' dialects in which a text has a call; empty if there is none."""
    for name in parts.PROMPTS:
        try:
            turn = dialect(name).decode(cast(Any, text))
        except ModelError:
            continue
        if turn.calls:
            return name
    return ""


def _turn(spoken: Dialect, output: Json, tools: Toolset | None, opened: Json) -> Turn:
    if isinstance(spoken, WireDialect):
        if opened:
            raise ConfigError(
                f"{spoken.name} is a wire, whose prompts nobody sees; leave out --opened"
            )
        if isinstance(output, str):
            message = cases.parse_json(output, f"a message of {spoken.name}")
        else:
            message = output
        if not isinstance(message, Mapping):
            raise ConfigError(f"a message of {spoken.name} is a JSON object")
        return spoken.decode_message(message, tools)
    if not (isinstance(output, str) and isinstance(opened, str)):
        raise ConfigError(
            f"{spoken.name} is the prompt of a model; give its text as `text`, and `opened` as text"
        )
    # Only a prompt can have opened something, so the protocol of all dialects does not know of it.
    return cast(Turn, cast(Any, spoken).decode(output, tools, opened=opened))
