"""What a person reads of a run while it happens: a fold from events to lines.

    turn 1
       → get_pod_logs  pod="api-gateway-7c9d"
      ✗ get_pod_logs  attempt 1: deadline, stopped; again in 0.1 s
      ✓ get_pod_logs  0.93 s, 2 attempts  ["14:02 ...", ...]

Rule 1: pure: what comes in is an event, what comes out are lines. Colours, widths and files are the printer's.
Rule 2: a line stays short by leaving things out visibly (`…`); what went wrong is printed whole.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Literal, TypeAlias

from msgspec import Struct

from handrail.calls import ToolCall
from handrail.core.redaction import Redactor
from handrail.events import (
    AnswerRefused,
    AnswerTaken,
    ApprovalAsked,
    ApprovalGiven,
    AskedOtherwise,
    AttemptFailed,
    CallAdmitted,
    CallFinished,
    ContextFolded,
    Event,
    FinishedLate,
    HistoryMended,
    HttpExchange,
    LateResult,
    ModelAnswered,
    ModelAsked,
    Progressed,
    RunEnded,
    Streamed,
    ToolsSelected,
)
from handrail.history.wire import exchange_text
from handrail.messages import TextDelta, Turn

Kind: TypeAlias = Literal[
    "turn",
    "text",
    "call",
    "repaired",
    "refused",
    "retry",
    "result",
    "failed",
    "ask",
    "granted",
    "denied",
    "waiting",
    "late",
    "advice",
    "ended",
    "wire",
    "note",
    "progress",
]

Detail: TypeAlias = Literal["ends", "short", "all"]
"""How much is shown: only ends that are no answer, everything shortened, or everything whole."""

MOST_SHOWN_CHARS = 400
"""Of arguments and results. A terminal's width cuts them first; a file keeps this much."""


_REASON_SAYS_ALL = frozenset({"cancelled", "waiting", "budget", "cut"})
"""Statuses whose reason says the same in a sentence."""


class Line(Struct, frozen=True):
    """One line of the timeline. `about` names the call; `whole` lines are wrapped, others may be cut at the edge."""

    kind: Kind
    text: str = ""
    about: str = ""
    whole: bool = False


class Piece(Struct, frozen=True):
    """A piece of the model's text as it arrives; it follows the piece before without a break."""

    text: str


TimelineItem: TypeAlias = Line | Piece


class Timeline:
    """Folds the events of one run, or of several one after the other.

    Args:
        streams: Show the model's text as it arrives. Otherwise only what it says beside calls: the answer itself is the
            result of the run, and whoever prints results prints it.
        detail: How much is shown.
        raw: Show also what looks like a secret.
        wire: Show requests and answers as they were on the wire.
    """

    def __init__(
        self,
        *,
        streams: bool = False,
        detail: Detail = "short",
        wire: bool = False,
        raw: bool = False,
    ) -> None:
        self._redactor = None if raw else Redactor()
        self._streams = streams
        self._detail = detail
        self._wire = wire
        self._names: dict[str, str] = {}
        self._streamed = False
        self._selected: Sequence[str] = ()
        self._progress: dict[str, tuple[int, str]] = {}

    def tell(self, event: Event) -> list[TimelineItem]:
        """Return what this event adds."""
        if self._detail == "ends" and not isinstance(event, RunEnded | HttpExchange):
            return []
        items = list(self._lines(event))
        if self._redactor is None:
            return items
        return [self._redact(each, self._redactor) for each in items]

    @staticmethod
    def _redact(item: TimelineItem, redactor: Redactor) -> TimelineItem:
        """Return a line without secrets; pieces of the model's answer are the program's result and stay unchanged."""
        if isinstance(item, Piece):
            return item
        return Line(
            item.kind, redactor.text(item.text), redactor.text(item.about), item.whole
        )

    def _lines(self, event: Event) -> Iterator[TimelineItem]:
        match event:
            case ModelAsked(turn=turn):
                self._streamed = False
                yield Line("turn", about=f"turn {turn}", whole=True)
            case Streamed(delta=TextDelta(text=text)) if self._streams:
                self._streamed = True
                yield Piece(text)
            case ModelAnswered(answer=answer):
                yield from self._answer_lines(answer)
            case CallAdmitted(call=call, repairs=repairs) if repairs:
                text = f"repaired: {', '.join(repairs)}"
                yield Line("repaired", text, self._name(call), whole=True)
            case AttemptFailed(
                call=call, attempt=attempt, reason=reason, retry_in_s=wait_s
            ):
                text = f"attempt {attempt}: {reason}; {_next_attempt(wait_s)}"
                yield Line("retry", text, self._name(call), whole=True)
            case ApprovalAsked(call=call, reason=reason):
                text = f"a person must agree: {reason}"
                yield Line("ask", text, self._name(call), whole=True)
            case ApprovalGiven(call=call):
                yield _decision_line(event, self._name(call))
            case CallFinished(call=call):
                yield from self._result_lines(event, self._name(call))
            case FinishedLate(call=call) | LateResult(call=call):
                yield Line("late", _late_text(event), self._name(call), whole=True)
            case HttpExchange() if self._wire:
                yield Line("wire", exchange_text(event), whole=True)
            case RunEnded(status=status) if status != "done":
                yield Line("ended", _ending(event), whole=True)
            case _:
                yield from self._side_lines(event)

    def _side_lines(self, event: Event) -> Iterator[Line]:
        """Yield what happens beside turns and calls: to the conversation, the choice of tools, the answer's form."""
        match event:
            case Progressed(call=call) if self._record_progress(event):
                yield Line(
                    "progress", _progress_text(event), self._name(call), whole=True
                )
            case ToolsSelected(strategy=strategy, tools=tools, of=of) if (
                len(tools) < of and tools != self._selected
            ):
                self._selected = tools
                yield Line(
                    "note",
                    f"{len(tools)} of {of} tools are shown ({strategy})",
                    whole=True,
                )
            case HistoryMended(notes=notes):
                yield from (
                    Line("note", f"the conversation was repaired: {note}", whole=True)
                    for note in notes
                )
            case ContextFolded(results=results, tokens=tokens):
                folded = "1 old result" if results == 1 else f"{results} old results"
                text = (
                    f"{folded} can now be read by a handle; about {tokens} tokens stay"
                )
                yield Line("note", text, whole=True)
            case AskedOtherwise(way=way, now=now, reason=reason):
                text = f"the server does not accept the answer's form as {way}; asking for it as {now}: {reason}"
                yield Line("note", text, whole=True)
            case AnswerTaken(repairs=repairs) if repairs:
                yield Line(
                    "repaired",
                    f"the answer was repaired: {', '.join(repairs)}",
                    whole=True,
                )
            case AnswerRefused(failure=failure):
                yield Line(
                    "refused",
                    f"the answer does not have its form: {failure.message}",
                    whole=True,
                )

    def _record_progress(self, event: Progressed) -> bool:
        """Whether a tool has come a tenth further, or says something else than before."""
        if event.total:
            tenth = int(10 * event.done / event.total)
        else:
            tenth = int(event.done)
        state = (tenth, event.note)
        is_news = self._progress.get(event.call.id) != state
        self._progress[event.call.id] = state
        return is_news

    def _answer_lines(self, answer: Turn) -> Iterator[TimelineItem]:
        if answer.text and not self._streamed:
            if self._streams:
                # it came in one go, from a server that does not stream
                yield Piece(answer.text)
            elif answer.calls:
                yield Line("text", answer.text, whole=True)
        self._names = _display_names(answer.calls)
        for call in answer.calls:
            yield self._content_line("call", "", call.arguments, self._name(call))

    def _result_lines(self, event: CallFinished, name: str) -> Iterator[Line]:
        result = event.result
        if result.failure is not None:
            kind: Kind = "failed" if result.attempts else "refused"
            yield Line(
                kind,
                f"{result.failure.code}: {result.failure.message}",
                name,
                whole=True,
            )
            if result.failure.suggestion:
                yield Line("advice", result.failure.suggestion, whole=True)
            return
        if result.attempts > 1:
            tries = f", {result.attempts} attempts"
        else:
            tries = ""
        again = ", repeated from before" if result.replayed else ""
        if event.recalled:
            took = "recorded before"
        else:
            took = f"{event.seconds:.2f} s{tries}{again}"
        yield self._content_line("result", f"{took}  ", result.text, name)

    def _content_line(self, kind: Kind, head: str, text: str, name: str) -> Line:
        """Show arguments or a result, short or whole."""
        if self._detail == "all":
            return Line(kind, head + text, name, whole=True)
        return Line(kind, head + shorten(text), name)

    def _name(self, call: ToolCall) -> str:
        return self._names.get(call.id, call.name)


def _display_names(calls: Sequence[ToolCall]) -> dict[str, str]:
    """Return what each call is called in this turn: several of one tool numbered, all of one width."""
    # calls of one id cannot be distinguished later
    apart = {call.id: call for call in calls}.values()
    several = Counter(call.name for call in apart)
    counts: Counter[str] = Counter()
    names = {}
    for call in apart:
        counts[call.name] += 1
        if several[call.name] > 1:
            names[call.id] = f"{call.name}#{counts[call.name]}"
        else:
            names[call.id] = call.name
    width = max(map(len, names.values()), default=0)
    return {id: name.ljust(width) for id, name in names.items()}


def _ending(event: RunEnded) -> str:
    """Say how a run ended; one that waits is named, so that it can be found again."""
    if event.status in _REASON_SAYS_ALL:
        text = event.reason
    else:
        text = f"{event.status}: {event.reason}"
    if event.status == "waiting":
        return f"{text} (run {event.run_id})"
    return text


def _late_text(event: FinishedLate | LateResult) -> str:
    if isinstance(event, LateResult):
        return "its late result is not recorded: another process has this write, or somebody has resolved it"
    if event.error:
        return f"failed late: {event.error}"
    return "finished late, after the model had read another result"


def _progress_text(event: Progressed) -> str:
    """Say how far a tool has come: in hundredths where it knows of how much."""
    if event.total:
        far = f"{event.done / event.total:.0%}"
    else:
        far = f"{event.done:g}"
    return f"{far}  {event.note}" if event.note else far


def _next_attempt(wait_s: float | None) -> str:
    if wait_s is None:
        return "no further attempt"
    if wait_s >= 0.05:
        return f"again in {wait_s:.1f} s"
    return "again at once"


def _decision_line(event: ApprovalGiven, name: str) -> Line:
    answer = event.approval
    if answer is None:
        return Line("waiting", "nobody is there to approve it", name, whole=True)
    by = f" by {answer.by}" if answer.by else ""
    if not answer.granted:
        reason = f": {answer.reason}" if answer.reason else ""
        return Line("denied", f"denied{by}{reason}", name, whole=True)
    edited = "" if answer.arguments is None else ", with edited arguments"
    return Line("granted", f"approved{by}{edited}", name, whole=True)


def shorten(text: str) -> str:
    """Return text as one line of bounded length."""
    flat = " ".join(text.split())
    if len(flat) <= MOST_SHOWN_CHARS:
        return flat
    return f"{flat[:MOST_SHOWN_CHARS]}…"
