"""`handrail render`: what a model sees, before it is asked."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence

import click
from msgspec import Struct, ValidationError, convert

from handrail.approvers.terminal import printable
from handrail.cli import cases, completion, options
from handrail.cli.cases import Document
from handrail.cli.exits import Exit
from handrail.dialects import Dialect, WireDialect, dialect, received
from handrail.errors import ConfigError, Json
from handrail.invisible import json_text
from handrail.messages import Message, Options, conversation_of
from handrail.parsing.names import nearest
from handrail.tools.toolset import Toolset

_MOST_LEVELS = 100
"""Python lays out about 300 levels of JSON, and schemas are the deepest that people write."""


@click.command("render")
@click.argument("file", default="-", shell_complete=completion.files)
@options.dialect
@options.definitions
@options.as_json
@options.as_jsonl
@options.debug
def command(
    file: str, name: str, places: Sequence[str], as_json: bool, as_jsonl: bool
) -> int:
    """Render a conversation as a model gets it: the request body of a wire, or the text of a prompt.

    FILE holds a question, or JSON: a list of messages in the chat form, or an object with `messages` and perhaps
    `tools` and `options`. `-`, the default, is stdin. A prompt is printed to the last character, without a line end.

    \b
    Examples:
      echo "How warm is it in Paris?" | handrail render --dialect openai-chat --tools examples/weather.py
      handrail render --dialect openai-chat --tools tools.json conversation.json
      handrail render --dialect openai-chat --jsonl cases.jsonl | jq .body
    """
    options.one_form(as_json, as_jsonl)
    spoken = dialect(name)
    tools = cases.tools_at(places)
    text = options.read_text(file)
    if as_jsonl:
        return cases.print_lines(
            text, lambda case: _render(spoken, case, tools).as_json()
        )
    output = _render(spoken, _read_case(text), tools)
    if as_json:
        cases.print_document(output.as_json())
    else:
        output.print()
    return Exit.OK


class Rendered(Struct, frozen=True):
    """What a model gets; a `path` only where it goes over a wire."""

    dialect: str
    content: Json
    path: str | None = None

    def as_json(self) -> Document:
        """Return it with its place: the `body` for a `path`, or the `prompt`."""
        if self.path is None:
            content = {"prompt": self.content}
        else:
            content = {"path": self.path, "body": self.content}
        return {"ok": True, "dialect": self.dialect, **content}

    def print(self) -> None:
        """Print it as it is: a prompt ends where it ends, and on a terminal at the end of a line."""
        here = sys.stdout.isatty()
        is_prompt = self.path is None
        if is_prompt:
            text = self.content
        else:
            text = json_text(self.content, indent=2)
        click.echo(
            printable(text, keep="\n\t") if here else text, nl=here or not is_prompt
        )


def _read_case(text: str) -> Json:
    """Return what a file says: JSON where it begins like JSON, else a question."""
    if text.lstrip()[:1] in ("[", "{"):
        return cases.parse_json(text, "the conversation")
    return text.rstrip("\n")


def _render(spoken: Dialect, case: Json, tools: Toolset | None) -> Rendered:
    if not received.is_sendable(case, _MOST_LEVELS):
        raise ConfigError(
            f"the conversation holds NaN or more than {_MOST_LEVELS} levels, which no request can carry"
        )
    fields = case if isinstance(case, Mapping) else {}
    how = _options(fields.get("options"))
    content = spoken.encode_request(_messages(case), cases.tools_in(fields, tools), how)
    if isinstance(spoken, WireDialect):
        path = spoken.path(how.model, stream=how.stream)
    else:
        path = None
    return Rendered(spoken.name, content, path)


# ---------------------------------------------------------------------- reading a conversation


def _messages(case: Json) -> list[Message]:
    if isinstance(case, str):
        return conversation_of(case)
    if isinstance(case, Mapping):
        case = [case] if "role" in case else case.get("messages")
        if isinstance(case, str):
            return conversation_of(case)
    if not (isinstance(case, list) and case):
        raise ConfigError(
            "a conversation is a list of messages, or an object with such a list as `messages`"
        )
    return conversation_of(
        [_message(each, number) for number, each in enumerate(case, start=1)]
    )


def _message(spoken: Json, number: int) -> Mapping[str, Json]:
    """Return a message of the chat form; arguments written as objects, as templates take them, become text."""
    if not isinstance(spoken, Mapping):
        raise ConfigError(f"message {number} is no object with `role` and `content`")
    content = spoken.get("content")
    calls = spoken.get("tool_calls")
    if not (content is None or isinstance(content, str) or _parts(content)):
        raise ConfigError(
            f"the content of message {number} is neither text nor a list of parts"
        )
    if not calls:
        return spoken
    if not (
        _objects(calls)
        and all(isinstance(call.get("function", {}), Mapping) for call in calls)
    ):
        raise ConfigError(f"`tool_calls` of message {number} is no list of calls")
    return {**spoken, "tool_calls": [_call(call) for call in calls]}


def _objects(value: Json) -> bool:
    return isinstance(value, list) and all(isinstance(each, Mapping) for each in value)


def _parts(content: Json) -> bool:
    return _objects(content) and all(
        isinstance(part.get("text", ""), str) for part in content
    )


def _call(call: Mapping[str, Json]) -> Mapping[str, Json]:
    function = call.get("function") or call
    arguments = function.get("arguments")
    if not isinstance(arguments, Mapping):
        return call
    return {
        **call,
        "function": {
            **function,
            "arguments": json.dumps(arguments, ensure_ascii=False),
        },
    }


def _options(values: Json) -> Options:
    """Return the options of a case, each by the name that `Options` gives it."""
    if values is None:
        return Options()
    if not isinstance(values, Mapping):
        raise ConfigError("`options` is no object")
    names = Options.__struct_fields__
    for name in values:
        if name not in names:
            near = nearest(str(name), names)
            if near:
                hint = f"did you mean `{near[0]}`?"
            else:
                hint = f"they are {', '.join(names)}"
            raise ConfigError(f"there is no option `{name}`; {hint}")
    try:
        return convert(dict(values), Options, strict=False)
    except ValidationError as error:
        wrong, _, place = str(error).partition(" - at `$.")
        raise ConfigError(f"option `{place.rstrip('`')}`: {wrong}") from error
