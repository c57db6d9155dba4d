"""Prompts for open models: a conversation as the text that a model family was trained on, and its answer read back.

A raw completion endpoint knows no roles and no tools: what the model sees is one text. A `Template` says how a family
lays out a conversation in it, a `Syntax` how the model writes its answers; a `PromptDialect` is the two together.

Rule 1: nobody forges a turn. Whatever a person, a tool, a description or the model itself said is put into the prompt
        with its control tokens broken: a space after the first character (`<|im_end|>` becomes `< |im_end|>`). That is
        visible, harmless and the same every time, so that the server's prefix cache still fits; and no text that was
        broken so can become a token again.
Rule 2: a prompt depends on its arguments alone. Dates are told by the caller (`today`), never read from a clock.
Rule 3: text with no token in it stands in the prompt to the last character as the family's own template would put it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import date
from functools import cached_property, lru_cache
from typing import TypeAlias

from handrail.calls import ToolCall, ToolResult
from handrail.dialects import Conversation, ToolLike, parts, remembered, texts, writing
from handrail.dialects.names import NameMap, NameRule
from handrail.dialects.texts import Syntax, TextReader
from handrail.errors import ConfigError, Json
from handrail.messages import (
    ArgumentsDelta,
    AssistantMessage,
    Delta,
    Finish,
    Message,
    Options,
    SystemMessage,
    ToolMessage,
    Turn,
    UserMessage,
    conversation_of,
)
from handrail.ports import Described

Wrap: TypeAlias = tuple[str, str]
"""What a template writes before and after a text."""

NAMES = NameRule(r"\w.\-", 128)
"""No template has a rule of its own; these are the characters that no family's form of a call uses for itself."""

PYTHON_NAMES = NameRule(r"\w.", 128, first=r"^\W\d")
"""Names as Python takes them, for families that write calls in its form."""

_TOKEN = re.compile(r"<[^<>\s]{2,}>|\[/?[A-Za-z_]{3,}\]")
"""What looks like a token in the marks that a template writes."""

_FORM = (
    "Answer with one JSON value that fits this JSON Schema, and with nothing else: no words around it and no code "
    "fence.\n{schema}"
)


@dataclass(frozen=True, slots=True)
class Opening:
    """What a template is given for the beginning of a prompt; every text in it is safe to write.

    Attributes:
        system: The system message, or None where there is none.
        tools: The tools, under the names that the model sees.
        today: The date to tell, or None.
    """

    system: str | None
    tools: Sequence[Described]
    today: date | None = None


@dataclass(frozen=True, slots=True)
class Head:
    """What stands before the turns, and what of it a family puts among them.

    Attributes:
        text: At the beginning of the prompt.
        in_first: At the beginning of the first user turn's text.
        before_last: Before the last user turn.
        in_last: At the beginning of the last user turn's text.
        in_question: There too, but only until the model has said something to it.
    """

    text: str = ""
    in_first: str = ""
    before_last: str = ""
    in_last: str = ""
    in_question: str = ""


@dataclass(frozen=True, slots=True)
class Template:
    """How a family lays out a conversation.

    Attributes:
        head: Makes the beginning from the system message and the tools.
        user, assistant: Around a turn.
        result: Around one result; `{name}` and `{id}` stand for those of its call.
        results: Around all results of one answer.
        between: Between two of those results.
        system: Around a system message that comes later; None where the family has none, and it is told as a user's.
        answer: Opens the model's answer; the opening of an assistant's turn unless told otherwise.
        after_results: Opens an answer that follows results; as any other unless told otherwise.
        ends_calls: Ends an answer with calls, where that is another mark than at the end of a text.
        told: What is written of a result's text.
        bos: The token at the very beginning, which servers add on their own.
        single: The family makes one call an answer: several are told one after the other, each with its result.
        merges: Turns of one person in a row are told as one.
        thoughtless: Stands before an answer without reasoning.
        thinks: Whether reasoning since the last user turn is told; older reasoning never is.
        opens: What a prompt opens of every answer after `answer`, such as the mark of reasoning.
        lead: Stands before an answer's text.
        before_calls: Stands between an answer's text and its calls.
        calls_lead: Stands before the calls of an answer without text.
        stops: The marks at which a server stops; those that end an answer unless told otherwise.
        ids: Makes the ids that the template takes from those of the calls.
        tokens: Control tokens beside those of the syntax and those in the marks above.
        refuses: Why the family can have no calls in its history.
    """

    head: Callable[[Opening], Head]
    user: Wrap
    assistant: Wrap
    result: Wrap = ("", "")
    results: Wrap = ("", "")
    between: str = ""
    system: Wrap | None = None
    answer: str | None = None
    after_results: str | None = None
    ends_calls: str | None = None
    told: Callable[[str], str] = str
    bos: str = ""
    single: bool = False
    merges: bool = False
    thoughtless: str = ""
    thinks: bool = True
    opens: str = ""
    lead: str = ""
    before_calls: str = ""
    calls_lead: str = ""
    stops: tuple[str, ...] = ()
    ids: Callable[[Iterable[str]], Mapping[str, str]] | None = None
    tokens: tuple[str, ...] = ()
    refuses: str = ""

    @property
    def marks(self) -> tuple[str, ...]:
        """Every token that stands in what the template writes around a turn."""
        wraps = (self.user, self.assistant, self.result, self.results, self.system or ())
        written = "".join(mark for wrap in wraps for mark in wrap) + self.bos + (self.answer or "")
        return (*self.tokens, *_TOKEN.findall(written))


@dataclass(frozen=True)  # without slots: it keeps what it has worked out
class PromptDialect:
    """How one family of models is asked with a text, and answers with one; see `Dialect`.

    Attributes:
        syntax: How the family writes its answers.
        template: How it lays out a conversation.
        today: The date that a template tells, where it tells one.
        names: Which names of tools it can write.
    """

    name: str
    syntax: Syntax
    template: Template
    today: date | None = None
    names: NameRule = field(default=NAMES, repr=False)

    @property
    def stops(self) -> tuple[str, ...]:
        """The marks that end an answer; a server stops at them."""
        return self.template.stops or self.syntax.ends

    @cached_property
    def tokens(self) -> tuple[str, ...]:
        """Every control token of the family, longest first."""
        every = {*self.syntax.tokens, *self.template.marks}
        return tuple(sorted(every, key=lambda token: (-len(token), token)))

    def on(self, today: date) -> PromptDialect:
        """Return this dialect, telling that date."""
        return replace(self, today=today)

    # ------------------------------------------------------------------ writing

    def encode_request(
        self, messages: Conversation, tools: Iterable[ToolLike] | None = None, options: Options | None = None
    ) -> str:
        """Return the prompt, to the last character, with the beginning of the answer.

        `tool_choice="none"` leaves the tools out. `required` and the name of a tool open the call in the prompt, as far
        as its beginning is certain (`opening`), so that the model can only go on with it. A form for the answer
        (`output`) is told at the end of the system message.

        Raises:
            ConfigError: The family has no form for what the conversation holds.
        """
        options = options or Options()
        tools = () if options.tool_choice == "none" else writing.kept(tools)
        names = writing.names_of(tools, self.names)
        told = _Telling(self, names, tools)
        opening = told.opening(conversation_of(messages), options)
        return "".join((self.template.bos, *opening))

    def encode_results(self, calls: Sequence[ToolCall], results: Sequence[ToolResult]) -> str:
        """Return the text that carries the results back to the model, in the order of the calls."""
        told = _Telling(self, writing.names_of((), self.names), ())
        return told.results(calls, writing.in_call_order(calls, results), self._ids(calls))

    def opening(self, tools: Iterable[ToolLike] | None = None, options: Options | None = None) -> str:
        """Return the beginning of the call that the options demand, which a prompt with these options ends with."""
        choice = (options or Options()).tool_choice
        tools = writing.kept(tools)
        if choice in ("auto", "none") or not tools:
            return ""
        wanted = {tool.name for tool in tools if choice in ("required", tool.name)}
        if not wanted:
            raise ConfigError(f"tool_choice names {choice!r}, which is none of the tools")
        names = writing.names_of(tools, self.names)
        # What all calls that are welcome begin with. The two of each differ where an id or the arguments begin.
        begun = _shared(
            [
                self.written(Turn(calls=[ToolCall(id, names.to_wire(name), arguments)]))
                for name in sorted(wanted)
                for id, arguments in (("0", "{}"), ("1", '{"a": 1}'))
            ]
        )
        # A model goes on best at the end of a word: its tokens hold the space and the bracket before the next one.
        return begun.rstrip(' \n{<"') if len(wanted) == 1 else begun.rstrip(" \n")

    def opened(self, tools: Iterable[ToolLike] | None = None, options: Options | None = None) -> str:
        """Return what a prompt with these options already holds of the answer; see `opened_by`.

        A call that is opened comes without any thought before it.
        """
        opening = self.opening(tools, options)
        return self.template.thoughtless + opening if opening else self.template.opens

    def opened_by(self, prompt: str) -> str:
        """Return what a prompt already holds of the answer: the mark of its reasoning, or of a call."""
        template = self.template
        ends = (template.answer or template.assistant[0], template.user[1], template.result[1] + template.results[1])
        start = max(
            (prompt.rfind(each) + len(each) for each in ends if each.strip() and each in prompt), default=len(prompt)
        )
        return prompt[start:]

    def answers_in(self, prompt: str) -> int:
        """Return how many answers of the model a prompt holds, the one to come not counted."""
        opens, closes = self.template.assistant
        return prompt.count(closes) if closes not in ("", self.template.user[1]) else prompt.count(opens) - 1

    def answer(self, turn: Turn, tools: Iterable[ToolLike] | None = None) -> str:
        """Return the text with which a model of this family goes on after a prompt, with the mark that ends it.

        What every prompt of the family opens is not written again, and reasoning that it opened is closed.
        """
        names = writing.names_of(tools, self.names)
        ids = self._ids(turn.calls)
        calls = [replace(call, id=ids.get(call.id, call.id), name=names.to_wire(call.name)) for call in turn.calls]
        written = self.written(replace(turn, calls=calls), self._described(tools, names) or ())
        opens, reasoning = self.template.opens, self.syntax.reasoning
        if opens and written.startswith(opens):
            written = written.removeprefix(opens)
        elif reasoning and opens.strip() == reasoning.opens:
            is_over = written.startswith((reasoning.closes, *reasoning.ended_by))
            written = written if is_over else reasoning.closes + reasoning.after + written
        return written + next(iter(self.stops), "")

    def written(self, turn: Turn, tools: Sequence[Described] = ()) -> str:
        """Return the text of an answer whose calls are named as the model names them."""
        return texts.written(self.syntax, turn, tools)

    def _ids(self, calls: Iterable[ToolCall]) -> Mapping[str, str]:
        every = [call.id for call in calls]
        return self.template.ids(every) if self.template.ids else dict(zip(every, every, strict=True))

    def _described(self, tools: Iterable[ToolLike] | None, names: NameMap) -> Sequence[Described] | None:
        """Return the tools as the prompt tells of them: under the model's names for them, without any token."""
        if tools is None:
            return None
        tools = writing.kept(tools)
        described: Sequence[Described] = remembered(
            tools, (self.names, self.tokens), lambda: [_described(tool, names, self.tokens) for tool in tools]
        )
        return described

    # ------------------------------------------------------------------ reading

    def decode(
        self,
        body: Json | bytes,
        tools: Iterable[ToolLike] | None = None,
        *,
        opened: str = "",
        finish: Finish | None = None,
    ) -> Turn:
        """Return the turn of a whole answer.

        Args:
            opened: What the prompt already held of the answer; see `opened_by`.
            finish: How the server says that the model ended, if it says so.
        """
        stream = self.stream(tools, opened=opened)
        stream.feed(body if isinstance(body, (str, bytes)) else json.dumps(body, ensure_ascii=False))
        return stream.close(finish)

    def stream(self, tools: Iterable[ToolLike] | None = None, *, opened: str = "") -> PromptStream:
        """Return a reader for one answer on its way."""
        kept = None if tools is None else writing.kept(tools)
        names = writing.names_of(kept, self.names)
        return PromptStream(texts.reader(self.syntax, self._described(kept, names), opened=opened), names)


class PromptStream:
    """One answer of an open model on its way; see `DialectStream`."""

    def __init__(self, reader: TextReader, names: NameMap) -> None:
        self._reader = reader
        self._names = names
        self._bytes = b""

    def feed(self, chunk: str | bytes) -> list[Delta]:
        """Take the next piece of text; of bytes, perhaps with a character cut in two."""
        return [self._named(delta) for delta in self._reader.feed(self._decoded(chunk))]

    def close(self, finish: Finish | None = None) -> Turn:
        """Return the whole turn. A call that breaks off is no clean end, whatever the server says."""
        if self._bytes:
            self._reader.feed(self._bytes.decode("utf-8", "replace"))
            self._bytes = b""
        turn = self._reader.close(finish)
        calls = [replace(call, name=self._names.from_wire(call.name)) for call in turn.calls]
        return replace(turn, calls=calls) if calls != turn.calls else turn

    def _named(self, delta: Delta) -> Delta:
        if isinstance(delta, ArgumentsDelta):
            return replace(delta, name=self._names.from_wire(delta.name))
        return delta

    def _decoded(self, chunk: str | bytes) -> str:
        if isinstance(chunk, str):
            return chunk.encode("utf-8", "replace").decode()  # lone surrogates have no form in UTF-8
        whole = self._bytes + chunk
        for cut in range(min(4, len(whole) + 1)):
            try:
                text = whole[: len(whole) - cut].decode()
            except UnicodeDecodeError:
                continue
            self._bytes = whole[len(whole) - cut :]
            return text
        self._bytes = b""
        return whole.decode("utf-8", "replace")


# ---------------------------------------------------------------------- text that others wrote


@lru_cache(maxsize=128)
def _pattern(tokens: tuple[str, ...]) -> re.Pattern[str]:
    # Only the first character is taken, so that tokens that overlap are all found.
    rests: dict[str, list[str]] = {}
    for token in tokens:
        rests.setdefault(token[0], []).append(re.escape(token[1:]))
    return re.compile("|".join(f"{re.escape(first)}(?={'|'.join(rest)})" for first, rest in rests.items()) or "(?!)")


def broken(text: str, tokens: tuple[str, ...]) -> str:
    """Return the text with each of these tokens broken by a space after its first character.

    >>> broken("a<|im_end|>b", ("<|im_end|>",))
    'a< |im_end|>b'
    """
    return _pattern(tokens).sub(r"\g<0> ", text)


def _broken(value: Json, tokens: tuple[str, ...]) -> Json:
    if isinstance(value, str):
        return broken(value, tokens)
    if isinstance(value, Mapping):
        return {broken(str(key), tokens): _broken(each, tokens) for key, each in value.items()}
    return [_broken(each, tokens) for each in value] if isinstance(value, (list, tuple)) else value


def _described(tool: ToolLike, names: NameMap, tokens: tuple[str, ...]) -> Described:
    return Described(names.to_wire(tool.name), broken(tool.description, tokens), _broken(dict(tool.parameters), tokens))


def as_json(value: Json, indent: int | None = None) -> str:
    """Return JSON as chat templates write it: with a space after each comma and colon, and every character as it is."""
    return json.dumps(value, ensure_ascii=False, indent=indent)


def function_of(tool: Described) -> dict[str, Json]:
    """Return a tool as nearly every template describes it."""
    return {
        "type": "function",
        "function": {"name": tool.name, "description": tool.description, "parameters": tool.parameters},
    }


def _shared(written: Sequence[str]) -> str:
    """Return what all of these begin with."""
    first, last = min(written), max(written)  # the two that differ soonest
    same = next((place for place, (a, b) in enumerate(zip(first, last, strict=False)) if a != b), len(first))
    return first[:same]


# ---------------------------------------------------------------------- a conversation


@dataclass(frozen=True, slots=True)
class _Answer:
    """An answer of the model, and the results of its calls as far as they are there."""

    turn: Turn
    results: list[ToolResult] = field(default_factory=list)


_Entry: TypeAlias = "UserMessage | SystemMessage | _Answer"


class _Telling:
    """Writes one conversation."""

    def __init__(self, dialect: PromptDialect, names: NameMap, tools: Iterable[ToolLike]) -> None:
        self._dialect, self._template, self._names = dialect, dialect.template, names
        self._own_tools, self._tools = tools, dialect._described(tools, names) or ()

    def opening(self, messages: Sequence[Message], options: Options) -> list[str]:
        """Return the texts of a whole prompt but for its first token, with what opens the answer."""
        systems, rest = _apart(messages)
        if options.output:
            systems.append(_FORM.format(schema=as_json(dict(options.output.schema))))
        system = self._safe("\n\n".join(systems)) if systems else None
        head = self._template.head(Opening(system, self._tools, self._dialect.today))
        entries = _entries(rest, self._template)
        return [head.text, *self._turns(entries, head), self._answer_mark(entries, options)]

    def results(self, calls: Sequence[ToolCall], results: Sequence[ToolResult], ids: Mapping[str, str]) -> str:
        """Return the results of one answer."""
        if not results:
            return ""
        names = {call.id: call.name for call in calls}
        each = [self._result(result, names.get(result.call_id, result.name), ids) for result in results]
        return self._template.between.join(each).join(self._template.results)

    def _turns(self, entries: Sequence[_Entry], head: Head) -> Iterable[str]:
        template = self._template
        users = [place for place, entry in enumerate(entries) if isinstance(entry, UserMessage)]
        first, last = (users[0], users[-1]) if users else (-1, -1)  # of none, all answers are recent
        ids = self._dialect._ids(call for entry in entries if isinstance(entry, _Answer) for call in entry.turn.calls)
        in_last = head.in_last + (head.in_question if last == len(entries) - 1 else "")
        if not users:  # what would stand in a question still is to be told
            lead = (head.in_first + in_last).rstrip()
            yield head.before_last + (lead.join(template.user) if lead else "")
        for place, entry in enumerate(entries):
            match entry:
                case UserMessage():
                    lead = (head.in_first if place == first else "") + (in_last if place == last else "")
                    before = head.before_last if place == last else ""
                    yield before + (lead + self._safe(_said(entry))).join(template.user)
                case SystemMessage(text=text):
                    yield self._safe(text).join(template.system or template.user)
                case _Answer(turn=turn, results=results):
                    goes_on = _has_results(entries[:place])
                    yield self._answer(turn, ids, recent=place > last, goes_on=goes_on)
                    yield self.results(turn.calls, results, ids)

    def _answer(self, turn: Turn, ids: Mapping[str, str], *, recent: bool, goes_on: bool) -> str:
        template, dialect = self._template, self._dialect
        if turn.calls and template.refuses:
            raise ConfigError(f"{dialect.name} cannot tell a model of its calls: {template.refuses}")
        text = self._safe(turn.text or turn.refusal)
        calls = [
            ToolCall(ids[call.id], self._names.to_wire(call.name), self._safe_json(writing.as_history(call.arguments)))
            for call in turn.calls
        ]
        reasoning = self._safe(turn.reasoning) if recent and template.thinks and dialect.syntax.reasoning else ""
        said = Turn(text + (template.before_calls if text and calls else ""), reasoning, calls)
        lead = template.lead if text else template.calls_lead
        opens, closes = template.assistant
        if calls and template.ends_calls is not None:
            closes = template.ends_calls
        if goes_on and template.after_results is not None:
            opens = template.after_results
        elif not reasoning:
            lead = template.thoughtless + lead
        return opens + lead + dialect.written(said, self._tools) + closes

    def _result(self, result: ToolResult, name: str, ids: Mapping[str, str]) -> str:
        opens, closes = self._template.result
        id = self._safe(ids.get(result.call_id, result.call_id))
        opens = opens.replace("{name}", self._names.to_wire(name)).replace("{id}", id)
        closes = closes.replace("{id}", id)
        # Broken last: a template that reads JSON and writes it anew undoes escapes that hide a token.
        return opens + self._safe(self._template.told(writing.result_text(result))) + closes

    def _answer_mark(self, entries: Sequence[_Entry], options: Options) -> str:
        template = self._template
        answer = template.assistant[0] if template.answer is None else template.answer
        if template.after_results is not None and _has_results(entries):
            return template.after_results + self._dialect.opening(self._own_tools, options)
        return answer + self._dialect.opened(self._own_tools, options)

    def _safe(self, text: str) -> str:
        return broken(text, self._dialect.tokens)

    def _safe_json(self, text: str) -> str:
        """Return an object's text, as it is where nothing in it is a token, even behind an escape (`\\u003c/s>`)."""
        if "\\" in text:
            value = json.loads(text)
            safe = _broken(value, self._dialect.tokens)
            text = text if safe == value else as_json(safe)
        return self._safe(text)


def _has_results(entries: Sequence[_Entry]) -> bool:
    """Whether results stand at the end of these."""
    newest = entries[-1] if entries else None
    return isinstance(newest, _Answer) and bool(newest.results)


def _said(message: UserMessage) -> str:
    """Return what a person says. A prompt is text: of a picture it can only say that there is one."""
    pictures = [each for part in message.parts if (each := parts.shown(part))]
    return "\n".join([message.text, *(f"[{each.media_type or 'a file'}, which cannot be shown]" for each in pictures)])


def _apart(messages: Sequence[Message]) -> tuple[list[str], Sequence[Message]]:
    """Return the system messages that a conversation begins with, and the rest of it."""
    begins = next((place for place, each in enumerate(messages) if not isinstance(each, SystemMessage)), len(messages))
    return [each.text for each in messages[:begins] if isinstance(each, SystemMessage)], messages[begins:]


def _entries(messages: Sequence[Message], template: Template) -> list[_Entry]:
    """Return the turns in which a template tells the messages: results with their calls, and as few as it takes."""
    entries: list[_Entry] = []
    for message in messages:
        before = entries[-1] if entries else None
        match message:
            case ToolMessage(result=result) if isinstance(before, _Answer):
                before.results.append(result)
            case ToolMessage(result=result):  # of a call that nobody knows of
                entries.append(_Answer(Turn(), [result]))
            case AssistantMessage(turn=turn):
                entries.append(_Answer(turn))
            case UserMessage() if template.merges and isinstance(before, UserMessage):
                entries[-1] = UserMessage(f"{_said(before)}\n\n{_said(message)}")
            case SystemMessage(text=text) if template.system is None:
                entries.append(UserMessage(text))
            case _:
                entries.append(message)
    return [each for entry in entries for each in _in_call_order(entry, template)]


def _in_call_order(entry: _Entry, template: Template) -> list[_Entry]:
    """Return an answer with its results in the order of its calls, for some families as one answer for each call."""
    if not isinstance(entry, _Answer) or not entry.turn.calls:
        return [entry]
    places = {call.id: place for place, call in enumerate(entry.turn.calls)}
    results = sorted(entry.results, key=lambda result: places.get(result.call_id, len(places)))
    if not template.single or len(entry.turn.calls) == 1:
        return [_Answer(entry.turn, results)]
    first, *others = entry.turn.calls
    turns = [replace(entry.turn, calls=[first]), *(Turn(calls=[call]) for call in others)]
    return [_Answer(turn, [result for result in results if result.call_id == turn.calls[0].id]) for turn in turns]


__all__ = ["Head", "Opening", "PromptDialect", "PromptStream", "Template", "as_json", "broken"]
