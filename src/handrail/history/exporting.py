"""Stored runs in the forms that other programs read: the journal itself, and conversations to train a model with.

    jsonl    a line for the run, then one for each step: the complete record, see `journal`
    openai   a line for each run: `messages` in the chat form, and `tools` if they are given
    hermes   a line for each run: `conversations` of `from` and `value`, with calls in <tool_call> tags

Rule 1: a conversation is what a dialect would send, so that it decodes to the same calls. Repaired arguments are
        exported as repaired: a model should not learn the mistake.
Rule 2: a call without a result is exported as one whose end is unknown; no conversation is refused for it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping
from typing import TypeAlias

from msgspec.structs import asdict

from handrail.core.history import sanitize
from handrail.dialects.prompts.hermes import DIALECTS
from handrail.dialects.wires import openai_chat
from handrail.errors import Json
from handrail.history.run_history import RunHistory
from handrail.tools.toolset import Toolset

Lines: TypeAlias = Iterator[Mapping[str, Json]]


def _journal(run: RunHistory, _: Toolset | None) -> Lines:
    yield {"v": 1, "kind": "run", **asdict(run.stored.record)}
    for step in run.stored.steps:
        yield {"v": 1, "run_id": run.stored.record.run_id, **asdict(step)}


def _openai(run: RunHistory, tools: Toolset | None) -> Lines:
    body = openai_chat.DIALECT.encode_request(run.messages, tools)
    yield {name: body[name] for name in ("messages", "tools") if name in body}


_TURN = re.compile(r"<\|im_start\|>(\w+)\n(.*?)<\|im_end\|>", re.DOTALL)
"""One turn of a prompt in ChatML. No message contains these marks: the prompt dialect escapes them."""

_SPEAKERS: Mapping[str, str] = {
    "system": "system",
    "user": "human",
    "assistant": "gpt",
    "tool": "tool",
}


def _hermes(run: RunHistory, tools: Toolset | None) -> Lines:
    prompt = DIALECTS["hermes-2-pro"].encode_request(
        sanitize(run.messages).messages, tools
    )
    turns = [
        {"from": _SPEAKERS[role], "value": value.strip("\n")}
        for role, value in _TURN.findall(prompt)
    ]
    if tools is None:
        definitions = {}
    else:
        definitions = {"tools": json.dumps(openai_chat.DIALECT.definitions(tools))}
    yield {"id": run.stored.record.run_id, "conversations": turns, **definitions}


FORMS: Mapping[str, Callable[[RunHistory, Toolset | None], Lines]] = {
    "jsonl": _journal,
    "openai": _openai,
    "hermes": _hermes,
}
"""Every form by its name."""
