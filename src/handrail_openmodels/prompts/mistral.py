"""Mistral's instruct format, by the version of its tokenizer.

    [AVAILABLE_TOOLS] [...][/AVAILABLE_TOOLS][INST] What is the weather in Paris?[/INST]
    [TOOL_CALLS] [{"name": ..., "arguments": {...}, "id": "abc123456"}]</s>
    [TOOL_RESULTS] {"content": ..., "call_id": "abc123456"}[/TOOL_RESULTS]

The tools come before the last question, except in v13, where they are at the head; up to version 3 the system message
is there too. SentencePiece versions have a space after each control token; Tekken versions have none. From v11 on a
call is a name and its arguments. v2 takes one result at a time, so several calls are written one by one, and it omits
the calls of earlier questions. Up to v3 the tokenizer refuses text next to a call, and most templates omit it; so do
we.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Iterable, Mapping
from typing import Final

from msgspec.structs import replace

from handrail.calls import ToolCall
from handrail_openmodels.prompts.chat_template import (
    Opening,
    PromptHead,
    Template,
    as_json,
    function_schema,
)
from handrail_openmodels.prompts.dialect import PromptDialect
from handrail_openmodels.prompts.json_calls import JsonCalls
from handrail_openmodels.prompts.reader import Syntax
from handrail_openmodels.prompts.syntaxes import SYNTAXES

_ID = re.compile(r"[a-zA-Z0-9]{9}")
_DIGITS = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"


def nine_characters(ids: Iterable[str]) -> Mapping[str, str]:
    """Return ids as Mistral takes them, nine letters and digits, by the ids of a conversation.

    An id that fits stays; the others get one from their hash, none twice: read backwards, the map gives the id again.
    """
    every = list(dict.fromkeys(ids))
    wire = {id: id for id in every if _ID.fullmatch(id)}
    taken = set(wire)
    for id in every:
        attempt = 0
        while id not in wire:
            made = _short_hash(f"{id}{attempt or ''}")
            attempt += 1
            if made not in taken:
                taken.add(made)
                wire[id] = made
    return wire


def _short_hash(id: str) -> str:
    number = int.from_bytes(hashlib.sha256(id.encode("utf-8", "replace")).digest()[:8])
    return "".join(
        _DIGITS[number // len(_DIGITS) ** place % len(_DIGITS)] for place in range(9)
    )


def _nine_characters(calls: Iterable[ToolCall]) -> Mapping[str, str]:
    return nine_characters(call.id for call in calls)


def _without(calls: Iterable[ToolCall]) -> Mapping[str, str]:
    return dict.fromkeys((call.id for call in calls), "")


def _as_content(text: str) -> str:
    """Return a result as mistral-common writes it: JSON as JSON, other text as a JSON string."""
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        value = text
    return as_json(value)


def _tools(opening: Opening, space: str) -> str:
    listed = as_json([function_schema(tool) for tool in opening.tools])
    if opening.tools:
        return f"[AVAILABLE_TOOLS]{space}{listed}[/AVAILABLE_TOOLS]"
    return ""


def _system(opening: Opening) -> str:
    if opening.system is None:
        return ""
    return f"{opening.system}\n\n"


# ---------------------------------------------------------------------- how the versions begin

_Begin = Callable[[Opening], PromptHead]


def _v1(opening: Opening) -> PromptHead:
    return PromptHead(in_first=_system(opening))


def _before_the_last(space: str) -> _Begin:
    return lambda opening: PromptHead(
        before_last=_tools(opening, space), in_last=_system(opening)
    )


def _as_in_templates(space: str) -> _Begin:
    """Begin as the templates of models and of vLLM do: the system message comes with a new question only."""
    return lambda opening: PromptHead(
        before_last=_tools(opening, space), in_question=_system(opening)
    )


def _v7(space: str) -> _Begin:
    def begin(opening: Opening) -> PromptHead:
        if opening.system is None:
            system = ""
        else:
            system = f"[SYSTEM_PROMPT]{space}{opening.system}[/SYSTEM_PROMPT]"
        return PromptHead(system, before_last=_tools(opening, space))

    return begin


_PARALLEL = (
    "You are a helpful assistant that can call tools. If you call one or more tools, format them in a single JSON "
    "array or objects, where each object is a tool call, not as separate objects outside of an array or multiple "
    'arrays. Use the format [{"name": tool call name, "arguments": tool call arguments}, additional tool calls] if you '
    "call more than one tool. If you call tools, do not attempt to interpret them or otherwise provide a response "
    "until you receive a tool call result that you can interpret for the user."
)


def _parallel(opening: Opening) -> PromptHead:
    """Begin as vLLM's template for parallel calls does: with tools, the system message first says how to call."""
    texts = [
        text
        for text in (_PARALLEL if opening.tools else None, opening.system)
        if text is not None
    ]
    return _as_in_templates(" ")(
        replace(opening, system="\n\n".join(texts) if texts else None)
    )


_SMALL_SYSTEM = """\
You are Mistral Small 3, a Large Language Model (LLM) created by Mistral AI, a French startup headquartered in Paris.
Your knowledge base was last updated on 2023-10-01.{today}

When you're not sure about some information or when the user's request requires up-to-date or specific data, you must \
use the available tools to fetch the information. Do not hesitate to use tools whenever they can provide a more \
accurate or complete response. If no relevant tools are available, then clearly state that you don't have the \
information and avoid making up anything.

If the user's question is not clear, ambiguous, or does not provide enough context for you to accurately answer the \
question, you do not try to answer it right away and you rather ask the user to clarify their request (e.g. "What are \
some good restaurants around me?" => "Where are you?" or "When is the next flight to Tokyo" => "Where do you travel \
from?").
You are always very attentive to dates, and when asked about information at specific dates, you discard information \
that is at another date.
You follow these instructions in all languages, and always respond to the user in the language they use or request.
Next sections describe the capabilities that you have.

# WEB BROWSING INSTRUCTIONS

You cannot perform any web search or access internet to open URLs, links etc. If it seems like the user is expecting \
you to do so, you clarify the situation and ask the user to copy paste the text directly in the chat.

# MULTI-MODAL INSTRUCTIONS

You have the ability to read images, but you cannot generate images. You also cannot transcribe audio files or videos.
You cannot read nor transcribe audio files or videos.

# TOOL CALLING INSTRUCTIONS

You may have access to tools that you can use to fetch information or perform actions. You must use these tools in the \
following situations:

1. When the request requires up-to-date information.
2. When the request requires specific data that you do not have in your knowledge base.
3. When the request involves actions that you cannot perform without tools.

Always prioritize using tools to provide the most accurate and helpful response. If tools are not available, inform \
the user that you cannot perform the requested action at the moment."""


def _v11(opening: Opening) -> PromptHead:
    """Begin as Mistral Small 3.2 does, with a system message of its own."""
    if opening.today:
        today = f" The current date is {opening.today:%Y-%m-%d}."
    else:
        today = ""
    if opening.system is None:
        system = _SMALL_SYSTEM.replace("{today}", today)
    else:
        system = opening.system
    return PromptHead(
        f"[SYSTEM_PROMPT]{system}[/SYSTEM_PROMPT]", before_last=_tools(opening, "")
    )


_MINISTRAL_SYSTEM = """\
# HOW YOU SHOULD THINK AND ANSWER

First draft your thinking process (inner monologue) until you arrive at a response. Format your response using \
Markdown, and use LaTeX for any mathematical equations. Write both your thoughts and the response in the same language \
as the input.

Your thinking process must follow the template below:[THINK]Your thoughts or/and draft, like working through an \
exercise on scratch paper. Be as casual and as long as you want until you are confident to generate the response to \
the user.[/THINK]Here, provide a self-contained response."""


def _v13(opening: Opening) -> PromptHead:
    """Begin as Ministral 3 with reasoning does."""
    if opening.system is None:
        system = _MINISTRAL_SYSTEM
    else:
        system = opening.system
    return PromptHead(f"[SYSTEM_PROMPT]{system}[/SYSTEM_PROMPT]{_tools(opening, '')}")


def _devstral(opening: Opening) -> PromptHead:
    """Begin as Devstral does, without the system message of its own, which is about one program that it works in."""
    if opening.system is None:
        system = ""
    else:
        system = f"[SYSTEM_PROMPT]{opening.system}[/SYSTEM_PROMPT]"
    return PromptHead(system + _tools(opening, ""))


# ---------------------------------------------------------------------- the versions


def _list_syntax(space: str, *, ids: bool = True) -> Syntax:
    """Return the syntax of calls as a JSON list, with that space after the mark."""
    syntax = SYNTAXES["mistral"]
    first, *others = syntax.formats
    if not isinstance(first, JsonCalls):  # the table of families says otherwise
        raise TypeError(f"mistral's first form of a call is {first!r}")
    call_format = replace(first, layout=(space, ""), ids="last" if ids else "")
    return replace(syntax, formats=(call_format, *others))


_SPACED: Final = Template(
    _before_the_last(" "),
    ("[INST] ", "[/INST]"),
    ("", "</s>"),
    result=('[TOOL_RESULTS] {"content": ', ', "call_id": "{id}"}[/TOOL_RESULTS]'),
    format_result=_as_content,
    answer="",
    bos="<s>",
    lead=" ",
    merges=True,
    thinks="never",
    ids=_nine_characters,
)
_TIGHT: Final = replace(
    _SPACED,
    head=_before_the_last(""),
    user=("[INST]", "[/INST]"),
    result=('[TOOL_RESULTS]{"content": ', ', "call_id": "{id}"}[/TOOL_RESULTS]'),
    lead="",
)
_V7_RESULT = "[TOOL_RESULTS]{id}[TOOL_CONTENT]", "[/TOOL_RESULTS]"
_TEMPLATES: Final[Mapping[str, tuple[Syntax, Template]]] = {
    "mistral-v1": (
        SYNTAXES["plain"],
        replace(
            _SPACED,
            head=_v1,
            user=(" [INST] ", " [/INST]"),
            tokens=("[INST]", "[/INST]", "<s>", "</s>"),
            ids=None,
            refuses="its tokenizer, v1, has no tools",
        ),
    ),
    "mistral-v2": (
        _list_syntax(" ", ids=False),
        replace(
            _SPACED,
            result=(
                '[TOOL_RESULTS] [{"name": "{name}", "content": ',
                "}][/TOOL_RESULTS]",
            ),
            ids=_without,
            single=True,
            calls_alone=True,
            forgets_calls=True,
        ),
    ),
    "mistral-v3": (_list_syntax(" "), replace(_SPACED, calls_alone=True)),
    "mistral-v3-tekken": (_list_syntax(""), replace(_TIGHT, calls_alone=True)),
    "mistral-nemo": (
        _list_syntax(""),
        replace(_TIGHT, head=_as_in_templates(""), format_result=str, calls_alone=True),
    ),
    "mistral-vllm": (
        _list_syntax(" "),
        replace(
            _SPACED, head=_as_in_templates(" "), format_result=str, calls_alone=True
        ),
    ),
    "mistral-vllm-parallel": (
        _list_syntax(" "),
        replace(_SPACED, head=_parallel, format_result=str, calls_alone=True),
    ),
    "mistral-v7": (
        _list_syntax(" "),
        replace(
            _SPACED,
            head=_v7(" "),
            system=("[SYSTEM_PROMPT] ", "[/SYSTEM_PROMPT]"),
            result=("[TOOL_RESULTS] {id}[TOOL_CONTENT] ", "[/TOOL_RESULTS]"),
            format_result=str,
        ),
    ),
    "mistral-v7-tekken": (
        _list_syntax(""),
        replace(
            _TIGHT,
            head=_v7(""),
            system=("[SYSTEM_PROMPT]", "[/SYSTEM_PROMPT]"),
            result=_V7_RESULT,
            format_result=str,
        ),
    ),
    "mistral-v11": (
        SYNTAXES["mistral-v11"],
        replace(
            _TIGHT,
            head=_v11,
            system=("[SYSTEM_PROMPT]", "[/SYSTEM_PROMPT]"),
            result=_V7_RESULT,
            format_result=str,
            calls_alone=True,
        ),
    ),
    "mistral-v13": (
        SYNTAXES["mistral-v11"],
        replace(
            _TIGHT,
            head=_v13,
            system=("[SYSTEM_PROMPT]", "[/SYSTEM_PROMPT]"),
            result=("[TOOL_RESULTS]", "[/TOOL_RESULTS]"),
            format_result=str,
            thinks="always",
            ids=_without,
        ),
    ),
    "devstral": (
        SYNTAXES["mistral-v11"],
        replace(
            _TIGHT,
            head=_devstral,
            system=("[SYSTEM_PROMPT]", "[/SYSTEM_PROMPT]"),
            result=("[TOOL_RESULTS]", "[/TOOL_RESULTS]"),
            format_result=str,
            merges=False,
            ids=_without,
        ),
    ),
}

DIALECTS: Final[Mapping[str, PromptDialect]] = {
    name: PromptDialect(name, syntax, template)
    for name, (syntax, template) in {
        "mistral": _TEMPLATES["mistral-v3-tekken"],
        **_TEMPLATES,
    }.items()
}
"""By tokenizer, as mistral-common writes them; `mistral` is v3 with Tekken. `mistral-nemo` is the template that Nemo
brings along: it does not quote a result that is text, and writes the system message only while a question is new. v1 is
for its history alone: it has no tools, and is no dialect to be found by its name."""
