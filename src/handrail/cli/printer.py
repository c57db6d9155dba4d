"""Paints a timeline: marks, colours, widths. The only module that knows rich.

Rule 1: whatever a model or a tool wrote is shown with control characters escaped, in every output.
Rule 2: colour is never the only carrier of a meaning: every line has a mark.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from time import monotonic
from typing import TextIO

from rich.console import Console
from rich.table import Table
from rich.text import Text

from handrail.approvers.terminal import printable
from handrail.cli.timeline import Kind, Line, Piece, Timeline, Told
from handrail.cli.wire import exchange_text
from handrail.events import ApprovalAsked, ApprovalGiven, Event, HttpExchange, ModelAsked

_LOOKS: Mapping[Kind, tuple[str, str]] = {
    "turn": ("", "bold"),
    "said": ("“", ""),
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
    "note": ("", "dim italic"),
    "wire": ("", "dim"),
}
"""Mark and style of every kind of line."""


@dataclass(slots=True)
class Printer:
    """Prints a run as it happens; an observer.

    While a question stands in the terminal, lines are held back, so that nothing is printed into the answer.
    """

    timeline: Timeline
    console: Console
    now: Callable[[], float] = monotonic
    captions: Mapping[int, str] = field(default_factory=dict)
    _started: float = field(init=False)
    _held: list[Event] = field(default_factory=list)
    _questions: int = 0
    _in_text: bool = False

    def __post_init__(self) -> None:
        self._started = self.now()

    def __call__(self, event: Event) -> None:
        """Print what an event adds."""
        if isinstance(event, ApprovalGiven):
            self._questions -= 1
        self._held.append(event)
        if not self._questions:
            held, self._held = self._held, []
            for each in held:
                self._print(each)
        if isinstance(event, ApprovalAsked):
            self._questions += 1

    def _print(self, event: Event) -> None:
        for told in self.timeline.tell(event):
            self.show(told)
            if isinstance(event, ModelAsked) and (caption := self.captions.get(event.turn)):
                self.show(Line("note", caption, whole=True))
            if isinstance(told, Line) and told.kind == "wire" and isinstance(event, HttpExchange):
                self.console.print(Text(printable(exchange_text(event), keep="\n"), style="dim"))

    def show(self, told: Told) -> None:
        """Print one line, or the next piece of the model's text."""
        if isinstance(told, Piece):
            self._piece(told.text)
            return
        self._end_text()
        if told.kind == "turn":
            self.console.print()
        self.console.print(self._row(told))

    def _piece(self, text: str) -> None:
        if not self._in_text:
            self.console.print()
            self._in_text = True
        self.console.print(Text(printable(text, keep="\n\t")), end="", soft_wrap=True)

    def _end_text(self) -> None:
        if self._in_text:
            self.console.print()
            self._in_text = False

    def say(self, text: str) -> None:
        """Print a paragraph of ours, set apart."""
        self._end_text()
        self.console.print()
        self.console.print(Text(printable(text, keep="\n")))

    def question(self, text: str) -> None:
        """Print what the model is asked."""
        self.console.print()
        self.console.print(Text.assemble(("> ", "bold"), (printable(text), "bold")))

    def pairs(self, title: str, pairs: Mapping[str, str]) -> None:
        """Print names with what they are."""
        self.console.print()
        self.console.print(Text(title))
        rows = Table.grid(padding=(0, 2))
        rows.add_column(no_wrap=True)
        for name, what in pairs.items():
            rows.add_row(Text(f"  {name}"), Text(what, style="dim"))
        self.console.print(rows)

    def close(self) -> None:
        """End the line that a streamed text may have left open."""
        self._end_text()

    def _row(self, line: Line) -> Table:
        mark, style = _LOOKS[line.kind]
        text = Text(no_wrap=not line.whole, overflow="fold" if line.whole else "ellipsis")
        if line.about:
            text.append(printable(line.about), style="bold").append("  ")
        text.append(printable(line.text), style=style if line.kind != "result" else "")
        row = Table.grid(padding=(0, 1))
        row.add_column(width=6, justify="right", style="dim")
        row.add_column(width=1, style=style)
        row.add_column(overflow="fold")
        row.add_row(f"{self.now() - self._started:.2f}", mark, text)
        return row


def console(file: TextIO | None = None) -> Console:
    """Return where to print: colours only on a terminal, and as NO_COLOR, FORCE_COLOR, TERM and COLUMNS say."""
    return Console(file=file or sys.stdout, highlight=False, markup=False, emoji=False)
