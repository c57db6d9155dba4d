"""Answers in messages with a header that says for whom each is: OpenAI's harmony, Muse, Functionary 3.2.

<|channel|>analysis<|message|>Think.<|end|><|start|>assistant to=functions.get<|channel|>commentary<|message|>{}
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from msgspec import Struct

from handrail.calls import ToolCall
from handrail_openmodels.prompts.buffer import Marks, Step, TextBuffer, marks
from handrail_openmodels.prompts.call_format import (
    AnswerSink,
    CallFormat,
    Schemas,
    is_name,
)

_MOST_HEADER_CHARS = 512

_HEADER = re.compile(r"[\w\s.:=/<|>-]*")
"""What headers are made of; a body has other characters soon."""


class Channels(Struct, frozen=True):
    """How the messages of one answer follow each other.

    Attributes:
        starts: Begins every message but the first.
        first: Begins the first, where the prompt does not.
        body: Stands between header and body.
        ends: What may close a body; the first is written between two messages of an answer.
        recipient: Stands in the header before the one it is for.
        channel: Stands in the header before the channel's name.
        text, reasoning: The headers that are written for text and for reasoning.
        preamble: The header of a text before calls, if the usual header of a text would end the turn.
        thinks: The channels or recipients whose messages are reasoning.
        speaks: The recipients whose messages are text.
        prefix: Stands before a tool's name.
        call: The rest of the header that is written for a call.
        inside: How the body of a call is written, where it is not a JSON object.
    """

    starts: str
    body: str
    ends: tuple[str, ...] = ()
    recipient: str = ""
    channel: str = ""
    text: str = ""
    reasoning: str = ""
    thinks: tuple[str, ...] = ()
    speaks: tuple[str, ...] = ()
    prefix: str = ""
    call: str = ""
    inside: CallFormat | None = None
    first: str = ""
    preamble: str = ""

    @property
    def tokens(self) -> tuple[str, ...]:
        """All marks of this form."""
        return (
            self.starts,
            self.body,
            self.channel,
            *self.ends,
            *(self.inside.tokens if self.inside else ()),
        )

    def read(self, source: TextBuffer, sink: AnswerSink) -> Step[None]:
        """Read messages until the text ends."""
        while True:
            source.mark()
            has_opening, header = yield from self._header(source)
            if header is None:
                rest = source.unmark()
                is_cut_header = (
                    self.channel
                    and has_opening
                    and source.is_exhausted()
                    and _HEADER.fullmatch(rest)
                    and not self._has_prose(rest)
                )
                # only a control token: people do write marks such as functionary's `>>>`
                is_bare_start = rest.strip() == self.starts and rest.startswith("<")
                # neither an unfinished header nor a bare start is part of the answer's text
                if not (is_cut_header or is_bare_start):
                    sink.text(rest)
                closed = yield from source.flow(self._follows, sink.text)
            else:
                closed = yield from self._message(source, sink, header)
            if not closed:
                return
            if closed in (self.starts, self.channel):
                source.back(closed)

    def _header(self, source: TextBuffer) -> Step[tuple[bool, str | None]]:
        """Read a header. Return whether one begins here, and its text; None if it is not whole."""
        opening = yield from source.read_mark(
            marks(self.starts, self.channel, self.recipient, self.body.strip())
        )
        if not opening:
            return False, None
        if opening == self.body:
            return True, ""
        if opening != self.starts:
            source.back(opening)
        # One without a body is no header: it must not take that of the next message.
        stops = marks(self.body, self.starts, *self.ends)
        header, mark = yield from source.upto(stops, most=_MOST_HEADER_CHARS)
        if mark == self.body and not self._has_prose(header):
            return True, header
        if mark != self.body:
            source.back(mark)
        return True, None

    def _has_prose(self, header: str) -> bool:
        """Whether a header has more words than one has: behind its names only the type of the body, such as `json`."""
        if not self.recipient:
            return False
        names = rf"{re.escape(self.recipient.strip())}[^\s<]*"
        if self.channel:
            names += rf"|{re.escape(self.channel)}[a-z]*"
        rest = re.sub(rf"{re.escape(self.starts)}|{names}|<\|\w*(?:\|>?)?", " ", header)
        return not re.fullmatch(r"\s*[a-z]*\s*", rest)

    @property
    def _follows(self) -> Marks:
        """The marks that end a body."""
        return marks(self.starts, self.channel, *self.ends)

    def _message(self, source: TextBuffer, sink: AnswerSink, header: str) -> Step[str]:
        """Read one body, and return the mark that closed it."""
        follows = self._follows
        recipient, channel = self._parse_header(header)
        if recipient and recipient not in (*self.speaks, *self.thinks):
            yield from self._call(source, sink, recipient)
        elif {recipient, channel} & set(self.thinks):
            sink.begin_reasoning(source.unmark())
            closed = yield from source.flow(follows, sink.add_reasoning)
            sink.end_reasoning("" if closed in (self.starts, self.channel) else closed)
            return closed
        else:
            source.unmark()
        return (yield from source.flow(follows, sink.text))

    def _call(self, source: TextBuffer, sink: AnswerSink, recipient: str) -> Step[None]:
        """Read the body of a call. A body that is no call becomes text, with its header."""
        name = recipient.removeprefix(self.prefix)
        yield from source.space()
        if self.inside:
            start = yield from source.read_mark(marks(*self.inside.starts))
            if start:
                yield from self.inside.read(source, sink, start)
                left = source.unmark()
                sink.text(left)
                if not left.strip():
                    yield from self._read_closing(source, self.inside)
        elif is_name(name) and (yield from source.peek()) == "{":
            source.unmark()
            sink.begin(name)
            sink.end(whole=(yield from source.json_value(sink.more)))
        elif is_name(name) and self.channel:
            # not an object, such as code for a built-in tool of the provider
            source.unmark()
            sink.begin(name)
            closed = yield from source.flow(marks(self.starts, *self.ends), sink.more)
            source.back(closed)
            sink.end(whole=bool(closed))
        sink.text(source.unmark())

    def _read_closing(self, source: TextBuffer, inside: CallFormat) -> Step[None]:
        """Read marks behind a call that close what is closed already."""
        closing = marks(*(each for each in inside.tokens if each.startswith("</")))
        yield from source.space()
        while (yield from source.read_mark(closing)):
            yield from source.space()

    def _parse_header(self, header: str) -> tuple[str, str]:
        """Return the recipient and the channel that a header names."""
        if not self.recipient:
            return header.strip(), ""
        recipient = re.search(rf"{re.escape(self.recipient)}([^\s<]+)", header)
        if self.channel:
            channels = re.findall(rf"{re.escape(self.channel)}(\w+)", header)
        else:
            channels = []
        return recipient[1] if recipient else "", channels[-1] if channels else ""

    def encode(
        self, text: str, reasoning: str, calls: Sequence[ToolCall], schemas: Schemas
    ) -> str:
        """Return the messages of an answer."""
        sections = [
            (self.reasoning, reasoning),
            ((calls and self.preamble) or self.text, text),
        ]
        messages = [
            f"{header}{self.body}{body}" for header, body in sections if body and header
        ]
        for call in calls:
            if self.inside:
                body = self.inside.encode([call], schemas)
            else:
                body = call.arguments
            messages.append(
                f"{self.recipient}{self.prefix}{call.name}{self.call}{self.body}{body}"
            )
        between = (self.ends or ("",))[0] + self.starts
        if messages:
            return self.first + between.join(messages)
        return ""
