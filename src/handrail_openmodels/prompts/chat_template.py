"""How chat templates lay out a conversation: what varies from family to family, and the text that may be in it.

A `Template` is a row of marks and a function for the beginning. It never sees text that can forge a turn: whatever
somebody else wrote goes through `break_tokens` first.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import date
from functools import lru_cache
from typing import Literal, TypeAlias

from msgspec import Struct

from handrail.calls import ToolCall
from handrail.dialects import ToolLike
from handrail.dialects.names import NameMap
from handrail.dialects.writing import describe_with_examples
from handrail.errors import Json
from handrail.ports import Described

Wrap: TypeAlias = tuple[str, str]
"""What a template writes before and after a text."""

_TOKEN = re.compile(r"<[^<>\s]{2,}>|\[/?[A-Za-z_]{3,}\]")
"""What looks like a token in the marks that a template writes."""


class Opening(Struct, frozen=True):
    """What a template is given for the beginning of a prompt; every text in it is safe to write.

    Attributes:
        system: The system message, or None where there is none.
        tools: The tools, under the names that the model sees.
        today: The date to mention, or None.
    """

    system: str | None
    tools: Sequence[Described]
    today: date | None = None


class PromptHead(Struct, frozen=True):
    """What comes before the turns, and what of it a family puts among them.

    Attributes:
        text: At the beginning of the prompt.
        in_first: At the beginning of the first user turn's text.
        before_last: Before the last user turn.
        in_last: At the beginning of the last user turn's text.
        in_question: There too, but only until the model has answered it.
    """

    text: str = ""
    in_first: str = ""
    before_last: str = ""
    in_last: str = ""
    in_question: str = ""


class Template(Struct, frozen=True):
    """How a family lays out a conversation.

    Attributes:
        head: Makes the beginning from the system message and the tools.
        user, assistant: Around a turn.
        result: Around one result; `{name}` and `{id}` are replaced by those of its call.
        results: Around all results of one answer.
        results_last: Closes results at the end of the conversation; None for the same as elsewhere.
        between: Between two of those results.
        system: Around a system message that comes later; None where the family has none, and it becomes a user's.
        answer: Opens the model's answer; the opening of an assistant's turn if None.
        after_results: Opens an answer that follows results; as any other if None.
        continues_bare: An answer that follows results goes on with its text: nothing there says that it has no
            reasoning, and a prompt opens nothing of it.
        user_after_results: Opens a user's turn that follows results; as any other if None.
        ends_calls: Ends an answer with calls, where that is another mark than at the end of a text.
        format_result: Returns what is written of a result's text.
        bos: The token at the very beginning, which servers add on their own.
        single: The family makes one call an answer: several are written one after the other, each with its result.
        merges: Turns of one person in a row become one.
        thoughtless: Stands before an answer without reasoning.
        thoughtless_now: The same where reasoning would be written; as elsewhere if None.
        thoughtless_calls: Stands between that and calls.
        thinks: Which reasoning is written: none, that since the last user turn, that of answers with calls, all where
            there are tools, or all.
        opens: What a prompt opens of every answer after `answer`, such as the mark of reasoning.
        reasoning_lead: Stands before an answer's reasoning.
        lead: Stands before an answer's text.
        before_calls: Stands between an answer's text and its calls.
        calls_alone: The family has no place for text beside calls, and its template leaves it out.
        calls_bare: Calls after a text are written like calls without one, though the reader does not find them there.
        forgets_calls: Calls and results before the last user turn are left out.
        calls_lead: Stands before the calls of an answer without text.
        stops: The marks at which a server stops; those that end an answer if empty.
        ids: Makes the ids that the template takes, by the ids of the conversation's calls.
        tokens: Control tokens beside those of the syntax and those in the marks above.
        refuses: Why the family can have no calls in its history.
    """

    head: Callable[[Opening], PromptHead]
    user: Wrap
    assistant: Wrap
    result: Wrap = ("", "")
    results: Wrap = ("", "")
    results_last: str | None = None
    between: str = ""
    system: Wrap | None = None
    answer: str | None = None
    after_results: str | None = None
    continues_bare: bool = False
    user_after_results: str | None = None
    ends_calls: str | None = None
    format_result: Callable[[str], str] = str
    bos: str = ""
    single: bool = False
    merges: bool = False
    thoughtless: str = ""
    thoughtless_now: str | None = None
    thoughtless_calls: str = ""
    thinks: Literal["never", "recent", "with calls", "with tools", "always"] = "recent"
    opens: str = ""
    reasoning_lead: str = ""
    lead: str = ""
    before_calls: str = ""
    calls_alone: bool = False
    calls_bare: bool = False
    forgets_calls: bool = False
    calls_lead: str = ""
    stops: tuple[str, ...] = ()
    ids: Callable[[Iterable[ToolCall]], Mapping[str, str]] | None = None
    tokens: tuple[str, ...] = ()
    refuses: str = ""

    @property
    def marks(self) -> tuple[str, ...]:
        """Every token in what the template writes around a turn."""
        wraps = (
            self.user,
            self.assistant,
            self.result,
            self.results,
            self.system or (),
        )
        written = (
            "".join(mark for wrap in wraps for mark in wrap)
            + self.bos
            + (self.answer or "")
        )
        return (*self.tokens, *_TOKEN.findall(written))


# ---------------------------------------------------------------------- text that others wrote


@lru_cache(maxsize=128)
def _pattern(tokens: tuple[str, ...]) -> re.Pattern[str]:
    # Only the first character is taken, so that tokens that overlap are all found.
    rests: dict[str, list[str]] = {}
    for token in tokens:
        rests.setdefault(token[0], []).append(re.escape(token[1:]))
    return re.compile(
        "|".join(
            f"{re.escape(first)}(?={'|'.join(rest)})" for first, rest in rests.items()
        )
        or "(?!)"
    )


def break_tokens(text: str, tokens: tuple[str, ...]) -> str:
    """Return the text with each of these tokens broken by a space after its first character.

    >>> break_tokens("a<|im_end|>b", ("<|im_end|>",))
    'a< |im_end|>b'
    """
    return _pattern(tokens).sub(r"\g<0> ", text)


def break_tokens_in(
    value: Json, tokens: tuple[str, ...], *, in_brackets: bool = False
) -> Json:
    """Return the value with each of these tokens broken in every text of it, the keys too.

    Families that write a key as `<parameter=KEY>` give it the last character of a token; it is broken as if it had it.

    Args:
        in_brackets: The family writes a key as `<KEY>`, and gives it the first character too.
    """
    opens = "<" if in_brackets else ""
    if isinstance(value, str):
        return break_tokens(value, tokens)
    if isinstance(value, Mapping):
        return {
            break_tokens(f"{opens}{key}>", tokens)[len(opens) : -1]: break_tokens_in(
                each, tokens, in_brackets=in_brackets
            )
            for key, each in value.items()
        }
    if isinstance(value, (list, tuple)):
        return [
            break_tokens_in(each, tokens, in_brackets=in_brackets) for each in value
        ]
    return value


def describe_tool(tool: ToolLike, names: NameMap, tokens: tuple[str, ...]) -> Described:
    """Return a tool as a prompt describes it: under the model's name for it, without any of these tokens."""
    return Described(
        names.to_wire(tool.name),
        break_tokens(describe_with_examples(tool), tokens),
        break_tokens_in(dict(tool.parameters), tokens),
    )


def as_json(value: Json, indent: int | None = None) -> str:
    """Return JSON as chat templates write it: with a space after each comma and colon, and every character as it is."""
    return json.dumps(value, ensure_ascii=False, indent=indent)


def function_schema(tool: Described) -> dict[str, Json]:
    """Return a tool as nearly every template describes it."""
    return {
        "type": "function",
        "function": {
            "name": tool.name,
            "description": tool.description,
            "parameters": tool.parameters,
        },
    }
