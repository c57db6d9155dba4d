"""A request and its answer as they were on the wire, for a person: headers, JSON laid out, and a curl command."""

from __future__ import annotations

import json
import re
import shlex

from handrail.errors import Json
from handrail.events import HttpExchange


def exchange_text(exchange: HttpExchange) -> str:
    """Return the exchange as text: request line, headers, body; status, answer; and the request as curl."""
    headers = "\n".join(f"{name}: {value}" for name, value in exchange.headers.items())
    return (
        f"> {exchange.method} {exchange.url}\n"
        f"{_prefix_lines(headers, '> ')}\n>\n"
        f"{_prefix_lines(indent_json(exchange.body), '> ')}\n"
        f"< {exchange.status}\n{_prefix_lines(indent_json(exchange.answer.strip()), '< ')}\n"
        f"$ {as_curl(exchange)}\n"
    )


def as_curl(exchange: HttpExchange) -> str:
    """Return the request as a command; a masked key becomes `$KEY`, which the shell fills in."""
    parts = ["curl", "-sS", shlex.quote(exchange.url)]
    for name, value in exchange.headers.items():
        parts += ["-H", _header(name, value)]
    return " ".join([*parts, "-d", shlex.quote(exchange.body)])


def indent_json(text: str) -> str:
    """Return JSON over several lines; other text, such as a stream of events, as it is."""
    try:
        value: Json = json.loads(text)
    except ValueError:
        return text
    return json.dumps(value, ensure_ascii=False, indent=2)


def _header(name: str, value: str) -> str:
    if "***" in value:
        # in double quotes, so that the shell fills the key in and reads nothing else
        text = re.sub(r'([\\"$`])', r"\\\1", f"{name}: {value}")
        return f'"{text.replace("***", "$KEY")}"'
    return shlex.quote(f"{name}: {value}")


def _prefix_lines(text: str, mark: str) -> str:
    return "\n".join((mark + line).rstrip() for line in text.split("\n"))
