"""What an open model writes, read as a turn, and written again: one reader for all families, each a `Syntax`.

A model without a tool API writes its calls into its text, in the form it was trained on. A `Syntax` is the table of
one such form: marks around reasoning and calls, and the formats of calls. The reader goes through the text
once, as it arrives, and gives what is certain: text at once, but for what may still become a mark.

Rule 1: nothing is invented, and nothing is lost. Text that is no call stays text, with its marks.
Rule 2: what was given is never taken back: the deltas, joined, are the turn, but for what only the end can show.
Rule 3: a call that breaks off never runs: the turn then ends with `length` or `error`.
Rule 4: any text gives a turn, never an exception, in linear time, however it is cut.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from functools import cache

from msgspec import Struct
from msgspec.structs import replace

from handrail.calls import ToolCall
from handrail.dialects import ToolLike, call_assembly, compute_once, writing
from handrail.errors import ConfigError, Json
from handrail.messages import (
    ArgumentsDelta,
    Delta,
    Finish,
    ReasoningDelta,
    TextDelta,
    Turn,
)
from handrail_openmodels.prompts.buffer import Marks, Step, TextBuffer, marks
from handrail_openmodels.prompts.call_format import MOST_NAME_CHARS, CallFormat, Schemas
from handrail_openmodels.prompts.channels import Channels
from handrail_openmodels.prompts.quoted import FencedCalls, Fences

_SPACE = " \t\r\n"
_BYTE_ORDER_MARK = "\ufeff"
_MOST_SILENT_CHARS = 64
_PREFIXED = re.compile(r"functions\.([^:]+)(?::\d+)?")
"""A name in harmony's namespace, perhaps with the number of the call, as Kimi writes it."""

_LEAKED = re.compile(r"\s*([^<]*[^<\s])\s*(?:<\|[^<>|]{0,32}(?:\|>[a-z]{0,16})?)+\s*")
"""A name followed by leaked tokens of the template, whole or cut, each perhaps with the word after it."""


class Reasoning(Struct, frozen=True):
    """How a family marks its reasoning.

    Attributes:
        opens, closes: The marks around it.
        ended_by: Marks that end it without closing it: some models go straight from reasoning to their calls.
        after: What is written between the reasoning and the text.
        layout: What is written around the reasoning within its marks.
    """

    opens: str = "<think>"
    closes: str = "</think>"
    ended_by: tuple[str, ...] = ()
    after: str = "\n\n"
    layout: tuple[str, str] = ("\n", "\n")


class Syntax(Struct, frozen=True):
    """How one family of models writes its answers.

    Attributes:
        formats: How it writes calls. The first is the one that is written; all are read.
        reasoning: How it writes reasoning, if it marks it.
        channels: Set where an answer is a row of messages with headers.
        silent: Marks that carry nothing and are dropped; a pair is dropped with what is in between.
        ends: Marks that end an answer. What a model writes after one is not its answer, and is not read.
        others: The template's further control tokens.
    """

    formats: tuple[CallFormat, ...] = ()
    reasoning: Reasoning | None = None
    channels: Channels | None = None
    silent: tuple[str | tuple[str, str], ...] = ()
    ends: tuple[str, ...] = ()
    others: tuple[str, ...] = ()

    @property
    def tokens(self) -> tuple[str, ...]:
        """Every control token, longest first: none of them may be in text that others put into a prompt."""
        thinking: tuple[str, ...] = ()
        if self.reasoning:
            thinking = (self.reasoning.opens, self.reasoning.closes)
        silent = (each if isinstance(each, str) else each[0] for each in self.silent)
        formats = (
            token for call_format in self.formats for token in call_format.tokens
        )
        if self.channels:
            channels = self.channels.tokens
        else:
            channels = ()
        every = {
            token.strip()
            for token in (
                *formats,
                *thinking,
                *channels,
                *silent,
                *self.ends,
                *self.others,
            )
        }
        return tuple(
            sorted(
                (each for each in every if _is_control(each)),
                key=lambda each: (-len(each), each),
            )
        )


def _is_control(token: str) -> bool:
    """Whether a mark is a token that a template reserves; others, such as `Action:`, are words that anybody writes."""
    return (
        len(token) > 2
        and token[0] in "<[]"
        and token[-1] in ">]|["
        and not set(token) & set("\n{")
    )


class TextReader:
    """One answer on its way; see `reader`."""

    def __init__(
        self, syntax: Syntax, tools: Iterable[ToolLike] | None, *, reasoning: bool
    ) -> None:
        self._syntax = syntax
        if tools is None:
            self._tools = None
        else:
            self._tools = _schemas(writing.as_collection(tools))
        self._separate = reasoning
        self._source = TextBuffer()
        self._deltas: list[Delta] = []
        self._text: list[str] = []
        self._reasoning: list[str] = []
        self._calls: list[_PartialCall] = []
        self._space: list[str] = []  # white space that is given once more text follows
        self._fresh = True  # reasoning, or a call without a mark, may come next
        self._lead = True  # white space here may turn out to be between calls only
        self._reasoned = False  # white space here separates reasoning from text
        self._thinking = False
        # a reasoning that stays in the text, with the mark that opened it, until it is clear whether it is closed
        self._tagged: list[str] = []
        # marks of calls that hold none, until it is clear whether a call follows them
        self._idle: list[str] = []
        # nothing but white space and marks of calls came since the last call
        self._behind_call = False
        self._over = False
        self._fences = Fences()
        # calls in a code fence, until it is clear whether text follows
        self._fenced: FencedCalls | None = None
        # the text ended within a call of which nothing was certain yet
        self._cut = False
        self._marks = _compile_marks(syntax)
        self._answer: Step[None] | None = self._read()
        self._go()

    def feed(self, text: str) -> list[Delta]:
        """Take the next piece and return what is new, in order."""
        self.open_with(text)
        new = self._deltas
        self._deltas = []
        return _merge_deltas(new)

    def open_with(self, text: str) -> None:
        """Take the beginning of the answer that the prompt already holds."""
        if self._answer and text:
            self._source.feed(text)
            self._go()

    def close(self, finish: Finish | None = None) -> Turn:
        """Return the whole turn.

        Args:
            finish: How the server says that the model ended; None where it does not say. A call that breaks off is
                no clean end, whatever the server says.
        """
        self._source.ended = True
        self._go()
        if self._tagged:
            self.end_reasoning("")
        if not self._behind_call:
            self._release_idle()
        if not (self._calls or self._reasoning or self._reasoned):
            self._text += self._space
            self._space = []
        calls = call_assembly.with_ids(
            [ToolCall(call.id, call.name, "".join(call.pieces)) for call in self._calls]
        )
        return Turn(
            "".join(self._text),
            "".join(self._reasoning),
            tuple(calls),
            self._finish(finish),
        )

    def _finish(self, stated: Finish | None) -> Finish:
        if stated not in (None, "stop", "calls"):
            return stated
        if self._cut or not all(call.whole for call in self._calls):
            return "error"
        return "calls" if self._calls else "stop"

    def _go(self) -> None:
        try:
            if self._answer:
                next(self._answer)
        except StopIteration:
            self._answer = None

    # ------------------------------------------------------------------ reading

    def _read(self) -> Step[None]:
        yield from self._source.read_literal(_BYTE_ORDER_MARK)
        if self._syntax.channels:
            yield from self._syntax.channels.read(self._source, self)
            return
        if self._syntax.reasoning:
            yield from self._before_all(self._syntax.reasoning)
        while not self._over:
            if self._fresh:
                yield from self._begin_text()
            if not self._over:
                yield from self._follow_mark(
                    (yield from self._source.flow(self._marks.text, self.text))
                )
        if self._fenced:
            quoted = self._fenced
            self._fenced = None
            quoted.release()

    def _before_all(self, reasoning: Reasoning) -> Step[None]:
        """Drop the end of a reasoning without a beginning, which is in the prompt or was left out."""
        self._hold((yield from self._source.space()))
        if (yield from self._source.read_literal(reasoning.closes)):
            self._space = []
            self._reasoned = self._separate

    def _begin_text(self) -> Step[None]:
        """Read what may come only where no text precedes it: reasoning, and calls without a mark."""
        source = self._source
        self._hold((yield from source.space()))
        if self._syntax.reasoning and (
            yield from source.read_literal(self._syntax.reasoning.opens)
        ):
            self.begin_reasoning(self._syntax.reasoning.opens)
            yield from self._think(self._syntax.reasoning)
            return
        if self._marks.bare:
            first = yield from source.peek()
            if first and first in self._marks.bare:
                yield from self._section("", first)
                return
        self._fresh = False

    def _think(self, reasoning: Reasoning) -> Step[None]:
        while self._thinking and not self._over:
            mark = yield from self._source.flow(
                self._marks.reasoning, self.add_reasoning
            )
            if mark == reasoning.closes:
                self.end_reasoning(mark)
            elif mark in reasoning.ended_by and mark in self._marks.silent:
                self.end_reasoning("")
            else:
                yield from self._follow_mark(mark)

    def _follow_mark(self, mark: str) -> Step[None]:
        """Read what follows a mark in the text, or in the reasoning."""
        if not mark or mark in self._syntax.ends:
            self._over = True
        elif mark in self._marks.silent:
            closes = self._marks.silent[mark]
            self._lead = True
            if closes:
                yield from self._source.upto(marks(closes), most=_MOST_SILENT_CHARS)
        elif mark in self._marks.closes:
            self._take_closing(mark)
        elif mark in self._marks.loose:
            self._source.back(mark)
            yield from self._section("", mark)
        else:
            yield from self._section(mark, mark)

    def _section(self, start: str, first: str) -> Step[None]:
        """Read a section of calls. `start` is its mark, already read, or empty where `first` begins a bare call."""
        self._prepare_fence()
        source = self._source
        source.back(start)
        source.mark()
        source.record()
        source.at += len(start)
        formats = self._marks.formats[start or first]
        if formats[0].leads and start:
            yield from source.space()
            lead = yield from source.peek()
            is_written_twice = yield from source.next_is(marks(start))
            formats = [
                each
                for each in formats
                if not (is_written_twice or (each.leads and lead not in each.leads))
            ]
        if formats:
            yield from formats[0].read(source, self._fenced or self, start)
        left = source.unmark()
        raw = source.stop_recording()
        if start and source.is_exhausted():
            self._cut = left.strip(_SPACE) not in ("", start.strip(_SPACE))
        self._finish_section(raw, left)

    def _prepare_fence(self) -> None:
        """Hold back the section that follows if it is in a code fence."""
        if self._fenced and self._fenced.is_over:
            self._release()
        if self._fenced:
            self._fenced.go_on()
        elif not self._thinking and self._fences.open_in(self._text):
            self._fenced = FencedCalls(self)

    def _finish_section(self, raw: str, left: str) -> None:
        """Report the text of a section that is no call, `left`; `raw` is all of the section."""
        if self._fenced:
            self._fenced.text(left)
            self._fenced.section(raw)
            if left.strip(_SPACE) or not self._fenced.has_calls:
                self._release()
        elif self._thinking:
            self.add_reasoning(left)
        elif left.strip(_SPACE) and not self._marks.calls.sub("", left).strip(_SPACE):
            self._idle.append(left)
        else:
            self.text(left)

    def _take_closing(self, mark: str) -> None:
        """Take a mark that closes calls where none is open. Behind a call it says nothing; elsewhere it is a word."""
        if self._fenced or not (self._behind_call or self._idle):
            self.text(mark)
        elif self._idle:
            self._idle.append(mark)
        else:
            self._fresh = True

    def _release_idle(self) -> None:
        """Report marks of calls that hold none, and that no call follows."""
        idle = self._idle
        self._idle = []
        self.text("".join(idle))

    def _release(self) -> None:
        """Report the contents of a code fence as text."""
        if self._fenced:
            text = self._fenced.as_text()
            self._fenced = None
            self.text(text)

    # ------------------------------------------------------------------ taking

    def begin(self, name: str, id: str = "") -> None:
        """Begin a call; see `AnswerSink`."""
        if self._thinking:
            self.end_reasoning("")
        self._reasoned = False
        self._idle = []
        self._calls.append(_PartialCall(self._own_name(name), id))
        self._deltas.append(
            ArgumentsDelta(len(self._calls) - 1, self._calls[-1].name, "")
        )

    def identify(self, id: str) -> None:
        """Set the id of the last call; see `AnswerSink`."""
        self._calls[-1].id = id

    def more(self, text: str) -> None:
        """Add text to the arguments; see `AnswerSink`."""
        call = self._calls[-1]
        call.pieces.append(text)
        self._deltas.append(ArgumentsDelta(len(self._calls) - 1, call.name, text))

    def end(self, *, whole: bool = True) -> None:
        """End the call; see `AnswerSink`."""
        self._calls[-1].whole = whole
        self._fresh = self._lead = self._behind_call = True

    def text(self, text: str) -> None:
        """Add text; see `AnswerSink`. White space that may turn out to be between calls only is held back."""
        if self._fenced:
            if not self._fenced.stays(text):
                self._release()
            return
        if self._idle:
            self._idle.append(text)
            if text.strip(_SPACE):
                self._release_idle()
            return
        if self._lead or self._space:
            visible = text.lstrip(_SPACE)
            self._hold(text[: len(text) - len(visible)])
            if not visible:
                return
            text = "".join(self._space) + visible
            self._space = []
        if text:
            self._fresh = self._lead = self._reasoned = self._behind_call = False
            self._text.append(text)
            self._deltas.append(TextDelta(text))

    def begin_reasoning(self, mark: str) -> None:
        """Begin reasoning; see `AnswerSink`."""
        self._thinking = True
        self._reasoned = False
        if self._separate:
            self._space = []
        else:
            self._tagged = [mark]

    def add_reasoning(self, text: str) -> None:
        """Add reasoning; see `AnswerSink`. White space around it does not belong to it."""
        if not self._separate:
            self._tagged.append(text)
            return
        visible = text.strip(_SPACE)
        if not visible:
            self._hold(text)
            return
        if self._reasoning:
            before = [*self._space, text[: text.index(visible[0])]]
        else:
            before = []
        after = text[len(text.rstrip(_SPACE)) :]
        if after:
            self._space = [after]
        else:
            self._space = []
        visible = "".join([*before, visible])
        self._reasoning.append(visible)
        self._deltas.append(ReasoningDelta(visible))

    def end_reasoning(self, mark: str) -> None:
        """End reasoning; see `AnswerSink`. Reasoning that stays in the text keeps both of its marks, or neither."""
        self._thinking = False
        if self._separate:
            self._space = []
            self._fresh = self._lead = self._reasoned = True
            return
        opens, *pieces = self._tagged
        self._tagged = []
        thought = "".join(pieces)
        if thought.strip(_SPACE):
            self.text(f"{opens}{thought}{mark}" if mark else thought)

    def think(self, text: str) -> None:
        """Add a thought that was written within a call; see `AnswerSink`."""
        thought = text.strip(_SPACE)
        if not thought:
            return
        if not self._separate:
            self.text(thought)
            return
        if self._reasoning:
            thought = f"\n{thought}"
        self._reasoning.append(thought)
        self._deltas.append(ReasoningDelta(thought))

    def parameters(self, name: str) -> Mapping[str, Json] | None:
        """Return the schema of a tool's parameters; see `AnswerSink`."""
        return (self._tools or {}).get(self._own_name(name))

    def _hold(self, space: str) -> None:
        if space and not self._reasoned:
            self._space.append(space)

    def _own_name(self, name: str) -> str:
        """Return the name without what leaked into it: tokens of the template, and the prefix of harmony's tools.

        A name that a tool has is never touched, and a near one never made fit.
        """
        tools = self._tools
        if tools and name in tools:
            return name
        leaked = None
        if "<|" in name and len(name) <= MOST_NAME_CHARS:
            leaked = _LEAKED.fullmatch(name)
        name = leaked[1] if leaked else name.strip() or name
        prefixed = _PREFIXED.fullmatch(name)
        short = prefixed[1] if prefixed else name
        if short and (tools is None or short in tools):
            return short
        return name


def _schemas(tools: Collection[ToolLike]) -> Schemas:
    schemas: Schemas = compute_once(
        tools, "texts.schemas", lambda: {tool.name: tool.parameters for tool in tools}
    )
    return schemas


class _PartialCall(Struct):
    """A call on its way."""

    name: str
    id: str
    pieces: list[str] = []
    whole: bool = False


class _Marks:
    """What a reader of one family looks for, by where it is."""

    def __init__(self, syntax: Syntax) -> None:
        self.silent = dict(
            (each, "") if isinstance(each, str) else each for each in syntax.silent
        )
        self.formats: dict[str, list[CallFormat]] = {}
        for call_format in syntax.formats:
            for start in (*call_format.starts, *call_format.bare, *call_format.loose):
                self.formats.setdefault(start, []).append(call_format)
        for formats in self.formats.values():
            # A format that requires certain characters next is tried before one that accepts any.
            formats.sort(key=lambda each: not each.leads)
        self.bare = frozenset(
            "".join(call_format.bare for call_format in syntax.formats)
        )
        self.loose = frozenset(
            each for call_format in syntax.formats for each in call_format.loose
        )
        starts = (
            start for call_format in syntax.formats for start in call_format.starts
        )
        marks = {
            mark.strip()
            for call_format in syntax.formats
            for mark in (*call_format.starts, *call_format.tokens)
        }
        no_words = [
            each
            for each in marks
            if len(each) > 2 and (each[0] in "<[]" or each[-1] == ">")
        ]
        longest_first = sorted(no_words, key=len, reverse=True)
        self.calls = re.compile("|".join(map(re.escape, longest_first)) or r"(?!)")
        self.closes = {each for each in marks if _is_control(each)}.difference(
            self.formats, self.silent, syntax.ends
        )
        self.text = Marks(
            [*starts, *self.loose, *self.silent, *self.closes, *syntax.ends]
        )
        reasoning = syntax.reasoning or Reasoning()
        self.reasoning = Marks(
            [reasoning.closes, *reasoning.ended_by, *syntax.ends, *self.silent]
        )


@cache
def _compile_marks(syntax: Syntax) -> _Marks:
    return _Marks(syntax)


def _merge_deltas(deltas: Sequence[Delta]) -> list[Delta]:
    """Return the deltas with neighbours of one kind made one."""
    joined: list[Delta] = []
    run: list[str] = []
    for position, delta in enumerate(deltas):
        run.append(delta.text)
        if position + 1 < len(deltas):
            after = deltas[position + 1]
        else:
            after = None
        if type(after) is not type(delta) or getattr(after, "index", 0) != getattr(
            delta, "index", 0
        ):
            joined.append(replace(delta, text="".join(run)))
            run = []
    return joined


def make_reader(
    syntax: Syntax,
    tools: Iterable[ToolLike] | None = None,
    *,
    opened: str = "",
    reasoning: bool = True,
) -> TextReader:
    """Return a reader for one answer.

    Args:
        tools: The tools of the request; they give the types of values that a family writes as bare text. Without
            them all of those are text.
        opened: The beginning of the answer, where the prompt already holds it: `<think>`, or the mark of a call that
            was asked for. It is read as if the model had written it, and is a part of the turn.
        reasoning: Whether reasoning is separated; else it stays in the text, with its marks if both were written,
            and is given once it has ended.
    """
    text_reader = TextReader(syntax, tools, reasoning=reasoning)
    text_reader.open_with(opened)
    return text_reader


def read_answer(
    syntax: Syntax,
    text: str,
    tools: Iterable[ToolLike] | None = None,
    *,
    opened: str = "",
    reasoning: bool = True,
    finish: Finish | None = None,
) -> Turn:
    """Return the turn of a whole answer; see `reader`."""
    text_reader = make_reader(syntax, tools, opened=opened, reasoning=reasoning)
    text_reader.feed(text)
    return text_reader.close(finish)


def write_answer(
    syntax: Syntax, turn: Turn, tools: Iterable[ToolLike] | None = None
) -> str:
    """Return the text that a model of this family writes for the turn, without the mark that ends an answer.

    Reading it gives the turn again, as far as the family can write it: ids survive where it has a place for them.

    Raises:
        ConfigError: The turn has calls, and the family has no form for them.
    """
    schemas = _schemas(writing.as_collection(tools))
    calls = [
        replace(call, arguments=writing.as_history(call.arguments))
        for call in turn.calls
    ]
    if syntax.channels:
        return syntax.channels.encode(turn.text, turn.reasoning, calls, schemas)
    parts = [turn.text]
    if turn.reasoning and syntax.reasoning:
        form = syntax.reasoning
        parts.insert(
            0,
            turn.reasoning.join(form.layout).join((form.opens, form.closes))
            + form.after,
        )
    if calls:
        parts.append(_format_for(syntax, turn.text).encode(calls, schemas))
    return "".join(parts)


def _format_for(syntax: Syntax, text: str) -> CallFormat:
    """Return the format for calls after that text: without a mark they can only come first."""
    fitting = [
        call_format
        for call_format in syntax.formats
        if call_format.starts or call_format.loose or not text
    ]
    if not fitting:
        raise ConfigError("this family of models has no form for calls")
    return fitting[0]
