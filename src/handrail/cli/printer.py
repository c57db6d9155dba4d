"""Paints a timeline: marks, colours, widths. The only module that knows rich.

Rule 1: whatever a model or a tool wrote is shown with control characters escaped, in every output.
Rule 2: colour is never the only carrier of a meaning: every line has a mark or words of its own.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TextIO

from msgspec.structs import replace
from rich.cells import cell_len, set_cell_size
from rich.console import Console
from rich.text import Text

from handrail.approvers.terminal import printable
from handrail.cli.timeline import Kind, Line, Piece, Timeline, TimelineItem
from handrail.events import (
    ApprovalAsked,
    ApprovalGiven,
    CallFinished,
    Event,
    ModelAsked,
    RunStarted,
)
from handrail.surroundings.clock import monotonic

_LOOKS: Mapping[Kind, tuple[str, str]] = {
    "turn": ("", "italic dim"),
    "text": ("“", ""),
    "call": ("→", "cyan"),
    "repaired": ("~", "yellow"),
    "refused": ("✗", "red"),
    "retry": ("↻", "yellow"),
    "result": ("✓", "green"),
    "failed": ("✗", "red"),
    "ask": ("?", "bold magenta"),
    "granted": ("✓", "magenta"),
    "denied": ("✗", "magenta"),
    "waiting": ("…", "magenta"),
    "late": ("!", "yellow"),
    "advice": ("", "dim"),
    "ended": ("■", "bold red"),
    "wire": ("", "dim"),
    "note": ("·", "dim"),
    "progress": ("▸", "cyan"),
}
"""Mark and style of every kind of line."""

# The width of a file or a pipe: wide enough that no line or path is ever broken.
NO_EDGE = 1_000_000
_USUAL_COLUMNS = 120

# The answer begins where the words of the timeline do.
_INDENT = "         "


@dataclass(slots=True, repr=False)
class Printer:
    """Prints runs as they happen; an observer.

    While a question is open in the terminal, lines are held back, so that nothing is printed into the answer. When its
    reader has gone it falls silent: a run is not ended in the middle of a write because somebody piped it into `head`.

    Args:
        console: Where the timeline goes.
        answers: Where the model's streamed text goes; the same console by default.
        captions: Shown beside the number of a turn.
    """

    timeline: Timeline
    console: Console
    answers: Console | None = None
    now: Callable[[], float] = monotonic
    captions: Mapping[int, str] = field(default_factory=dict)
    _started: float = field(init=False)
    _held: list[Event] = field(default_factory=list)
    _questions: set[str] = field(default_factory=set)
    _text: Flow | None = None

    def __post_init__(self) -> None:
        self._started = self.now()

    def __call__(self, event: Event) -> None:
        """Print what an event adds, once nobody is being asked."""
        match event:
            case RunStarted():
                self._started = self.now()
            case ApprovalGiven(call=call) | CallFinished(call=call):
                # a cancelled call ends without an answer
                self._questions.discard(call.id)
        self._held.append(event)
        if not self._questions:
            held = self._held
            self._held = []
            try:
                for each in held:
                    self._print(each)
            except BrokenPipeError:
                for target in (self.console, self.answers or self.console):
                    target.quiet = True
        if isinstance(event, ApprovalAsked):
            self._questions.add(event.call.id)

    def _print(self, event: Event) -> None:
        for item in self.timeline.tell(event):
            if isinstance(event, ModelAsked) and isinstance(item, Line):
                item = replace(item, text=self.captions.get(event.turn, ""))
            self.show(item)

    def show(self, item: TimelineItem) -> None:
        """Print one line, or the next piece of the model's text."""
        if isinstance(item, Piece):
            self._piece(item.text)
            return
        self.close()
        if item.kind == "turn":
            self.console.print()
        for row in self._rows(item):
            self.console.print(row, soft_wrap=True)

    def _piece(self, text: str) -> None:
        target = self.answers or self.console
        if self._text is None:
            if target.is_terminal:
                self._text = Flow(target.width, _INDENT)
            else:
                self._text = Flow(None)
            target.print()
        target.print(
            Text(printable(self._text.feed(text), keep="\n\t")),
            end="",
            soft_wrap=True,
        )

    def close(self) -> None:
        """End the streamed text that is still open, if any."""
        if self._text is not None:
            rest = self._text.close()
            self._text = None
            (self.answers or self.console).print(
                Text(printable(rest, keep="\n\t")), soft_wrap=True
            )

    def _rows(self, line: Line) -> Sequence[Text]:
        """Lay a line out: seconds, mark, and the words beside them, wrapped or cut at the edge."""
        mark, style = _LOOKS[line.kind]
        if line.kind == "turn":
            return _beside(
                Text(f"{line.about:>8} ", style="bold"),
                Text(line.text, style=style),
                self.console,
            )
        if line.kind == "wire":  # as it is, so that it can be copied
            return [
                Text(printable(each), style=style) for each in line.text.split("\n")
            ]
        words = Text()
        if line.about:
            words.append(printable(line.about), style="bold").append("  ")
        words.append(
            printable(line.text, keep="\n"),
            style="" if line.kind == "result" else style,
        )
        if not line.whole:
            words.truncate(self.console.width - len(_INDENT), overflow="ellipsis")
        clock = f"{self.now() - self._started:6.1f} "
        if mark:
            head = Text.assemble((clock, "dim"), (f"{mark} ", style))
        else:
            head = Text(_INDENT)
        return _beside(head, words, self.console)

    # ------------------------------------------------------------------ words of ours around a run

    def say(self, text: str) -> None:
        """Print a paragraph, set apart."""
        self.close()
        self.console.print()
        self.console.print(Text(printable(text, keep="\n")))

    def show_interrupt(self) -> None:
        """Print what Ctrl-C does, on a line of its own: the terminal has written `^C` into the present one."""
        self.close()
        self.console.print()
        self.show(Line("ended", "stopping; Ctrl-C again leaves at once"))

    def question(self, text: str) -> None:
        """Print what the model is asked."""
        self.console.print()
        self.console.print(Text(f"> {printable(text)}", style="bold"))

    def rows(self, title: str, rows: Iterable[Sequence[str]]) -> None:
        """Print rows in columns below a title."""
        self.say(title)
        print_columns(self.console, rows)


class Flow:
    """Breaks a text that arrives in pieces into lines, at spaces and between wide characters.

    Args:
        width: Columns of a line, indent included; None leaves lines as they are.
        indent: Before every line.
    """

    def __init__(self, width: int | None, indent: str = "") -> None:
        self._width = width
        self._indent = indent
        self._column = 0
        self._word = ""

    def feed(self, text: str) -> str:
        """Return what can be shown already: all but the last word, which may go on."""
        if self._width is None:
            return text
        return "".join(map(self._char, text))

    def close(self) -> str:
        """Return the rest."""
        return self._flush_word()

    def _char(self, char: str) -> str:
        if char == "\n":
            shown = self._flush_word() + "\n"
            self._column = 0
            return shown
        self._word += char
        if char == " " or cell_len(char) > 1:
            return self._flush_word()
        return ""

    def _flush_word(self) -> str:
        """Place the word that has come to its end, on this line or the next."""
        word = self._word
        self._word = ""
        if not word:
            return ""
        assert self._width is not None
        cells = cell_len(word)
        begins = "" if self._column else self._indent
        if self._column and self._column + cell_len(word.rstrip()) > self._width:
            begins = f"\n{self._indent}"
            self._column = 0
        self._column = (self._column or len(self._indent)) + cells
        return begins + word


def console(file: TextIO | None = None) -> Console:
    """Return where to print: colours only on a terminal, and as NO_COLOR, FORCE_COLOR, TERM and COLUMNS say.

    Lines are wrapped and cut only on a terminal, or if COLUMNS is set.
    """
    created = _Console(
        file=file or sys.stdout,
        highlight=False,
        markup=False,
        emoji=False,
    )
    if not created.is_terminal and "COLUMNS" not in os.environ:
        created.width = NO_EDGE
    return created


class _Console(Console):
    def print(self, *objects: Any, **how: Any) -> None:
        """Print; what fills the width of a screen, such as a table, gets that of a usual one where there is no edge."""
        if self.width == NO_EDGE and not all(
            isinstance(each, str | Text) for each in objects
        ):
            how.setdefault("width", _USUAL_COLUMNS)
        super().print(*objects, **how)

    def on_broken_pipe(self) -> None:
        """Let the program decide what it means that nobody reads; rich would end it here."""
        raise  # rich calls this while it handles a BrokenPipeError


def print_columns(
    target: Console, rows: Iterable[Sequence[str]], heads: Sequence[str] = ()
) -> None:
    """Print rows in columns without a frame, so that they can be copied and cut; the last column is wrapped.

    A line feed is one in the last column only: elsewhere, as in a name, it would look like the next row.
    """
    every_row = [heads, *rows] if heads else list(rows)
    cells = [
        [*map(printable, row[:-1]), printable(row[-1], keep="\n")] for row in every_row
    ]
    widths = [max(map(cell_len, column)) for column in zip(*cells, strict=True)]
    for number, row in enumerate(cells):
        style = "bold" if heads and not number else ""
        head = Text(
            "".join(
                f"{set_cell_size(cell, width)}  "
                for cell, width in zip(row[:-1], widths, strict=False)
            )
        )
        for line in _beside(head, Text(row[-1]), target):
            line.stylize(style)
            target.print(line, soft_wrap=True)


def print_entry(target: Console, head: str, words: str) -> None:
    """Print an entry of a log: the words behind its head where they fit on that line, else below, wrapped and set in.

    A file or a pipe has no edge, so there it is one line.
    """
    line = f"{printable(head)}  "
    text = Text(printable(words))
    if cell_len(line) + text.cell_len <= target.width:
        rows = [Text(line) + text]
    else:
        room = max(_LEAST_ROOM, target.width - len(_INDENT))
        rows = [
            Text(line),
            *(
                Text(_INDENT) + each
                for each in text.wrap(target, room, overflow="fold")
            ),
        ]
    for row in rows:
        row.rstrip()
        target.print(row, soft_wrap=True)


_LEAST_ROOM = 20
_BELOW = "    "
"""Columns: in fewer, words are hard to read, so they go below, indented."""


def _beside(head: Text, words: Text, target: Console) -> Sequence[Text]:
    """Wrap words beside a head; on a terminal too narrow for that, below it."""
    room = target.width - head.cell_len
    above = []
    if room < min(_LEAST_ROOM, words.cell_len):
        above = [head]
        head = Text(_BELOW)
        room = max(_LEAST_ROOM, target.width - len(_BELOW))
    lines = words.wrap(target, room, overflow="fold") or [Text()]
    rows = above + [
        Text.assemble(" " * head.cell_len if number else head, line)
        for number, line in enumerate(lines)
    ]
    for row in rows:
        row.rstrip()
    return rows
