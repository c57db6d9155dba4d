"""What a person reads of a run while it happens: a fold from events to lines.

    turn 1
       → get_pod_logs  pod="api-gateway-7c9d"
      ✗ get_pod_logs  attempt 1: deadline, stopped; again in 0.1 s
      ✓ get_pod_logs  0.93 s, 2 attempts  ["14:02 ...", ...]

Rule 1: pure: what comes in is an event, what comes out are lines. Colours, widths and files are the printer's.
Rule 2: a line stays short by leaving things out visibly (`…`); what went wrong is told whole.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias

from handrail.calls import ToolCall, ToolResult
from handrail.cli.wire import exchange_text
from handrail.events import (
    ApprovalAsked,
    ApprovalGiven,
    AttemptFailed,
    CallAdmitted,
    CallFinished,
    Event,
    FinishedLate,
    HttpExchange,
    ModelAnswered,
    ModelAsked,
    RunEnded,
    Streamed,
)
from handrail.messages import TextDelta, Turn

Kind: TypeAlias = Literal[
    "turn", "said", "call", "repaired", "refused", "retry", "result", "failed", "ask", "granted", "denied", "waiting",
    "late", "advice", "ended", "wire",
]  # fmt: skip

Detail: TypeAlias = Literal["ends", "short", "all"]
"""How much is told: only ends that are no answer, everything shortened, or everything whole."""

MOST_SHOWN_CHARS = 400
"""Of arguments and results. A terminal's width cuts them first; a file keeps this much."""


_TOLD_BY_THEIR_REASON = frozenset({"cancelled", "waiting", "budget", "cut"})
"""Statuses whose reason says the same in a sentence."""


@dataclass(frozen=True, slots=True)
class Line:
    """One line of the timeline. `about` names the call; `whole` lines are wrapped, others may be cut at the edge."""

    kind: Kind
    text: str = ""
    about: str = ""
    whole: bool = False


@dataclass(frozen=True, slots=True)
class Piece:
    """A piece of the model's text as it arrives; it follows the piece before without a break."""

    text: str


Told: TypeAlias = Line | Piece


class Timeline:
    """Folds the events of one run, or of several one after the other.

    Args:
        streams: Tell the model's text as it arrives. Otherwise only what it says beside calls: the answer itself is the
            result of the run, and whoever prints results prints it.
        detail: How much is told.
        wire: Tell requests and answers as they were on the wire.
    """

    def __init__(self, *, streams: bool = False, detail: Detail = "short", wire: bool = False) -> None:
        self._streams, self._detail, self._wire = streams, detail, wire
        self._names: dict[str, str] = {}
        self._streamed = False

    def tell(self, event: Event) -> list[Told]:
        """Return what this event adds."""
        if self._detail == "ends" and not isinstance(event, RunEnded | HttpExchange):
            return []
        return list(self._told(event))

    def _told(self, event: Event) -> Iterator[Told]:
        match event:
            case ModelAsked(turn=turn):
                self._streamed = False
                yield Line("turn", about=f"turn {turn}", whole=True)
            case Streamed(delta=TextDelta(text=text)) if self._streams:
                self._streamed = True
                yield Piece(text)
            case ModelAnswered(answer=answer):
                yield from self._answered(answer)
            case CallAdmitted(call=call, repairs=repairs) if repairs:
                yield Line("repaired", f"repaired: {', '.join(repairs)}", self._name(call), whole=True)
            case AttemptFailed(call=call, attempt=attempt, reason=reason, retry_in_s=wait_s):
                yield Line("retry", f"attempt {attempt}: {reason}; {_then(wait_s)}", self._name(call), whole=True)
            case ApprovalAsked(call=call, reason=reason):
                yield Line("ask", f"a person must agree: {reason}", self._name(call), whole=True)
            case ApprovalGiven(call=call):
                yield _given(event, self._name(call))
            case CallFinished(call=call, result=result, seconds=seconds):
                yield from self._finished(result, seconds, self._name(call))
            case FinishedLate(call=call, error=error):
                how = f"failed late: {error}" if error else "finished late, after the model had been told otherwise"
                yield Line("late", how, self._name(call), whole=True)
            case HttpExchange() if self._wire:
                yield Line("wire", exchange_text(event), whole=True)
            case RunEnded(status=status) if status != "done":
                yield Line("ended", _ending(event), whole=True)
            case _:
                return

    def _answered(self, answer: Turn) -> Iterator[Told]:
        if answer.text and not self._streamed:
            if self._streams:
                yield Piece(answer.text)  # it came in one go, from a server that does not stream
            elif answer.calls:
                yield Line("said", answer.text, whole=True)
        self._names = _names_of(answer.calls)
        for call in answer.calls:
            yield self._shown("call", "", call.arguments, self._name(call))

    def _finished(self, result: ToolResult, seconds: float, name: str) -> Iterator[Line]:
        if result.failure is not None:
            kind: Kind = "failed" if result.attempts else "refused"
            yield Line(kind, f"{result.failure.code}: {result.failure.message}", name, whole=True)
            if result.failure.suggestion:
                yield Line("advice", result.failure.suggestion, whole=True)
            return
        tries = f", {result.attempts} attempts" if result.attempts > 1 else ""
        again = ", repeated from before" if result.replayed else ""
        yield self._shown("result", f"{seconds:.2f} s{tries}{again}  ", result.text, name)

    def _shown(self, kind: Kind, head: str, text: str, name: str) -> Line:
        """Show arguments or a result, short or whole."""
        if self._detail == "all":
            return Line(kind, head + text, name, whole=True)
        return Line(kind, head + shortened(text), name)

    def _name(self, call: ToolCall) -> str:
        return self._names.get(call.id, call.name)


def _names_of(calls: Sequence[ToolCall]) -> dict[str, str]:
    """Return what each call is called in this turn: several of one tool numbered, all of one width."""
    several = Counter(call.name for call in calls)
    seen: Counter[str] = Counter()
    names = {}
    for call in calls:
        seen[call.name] += 1
        names[call.id] = f"{call.name}#{seen[call.name]}" if several[call.name] > 1 else call.name
    width = max(map(len, names.values()), default=0)
    return {id: name.ljust(width) for id, name in names.items()}


def _ending(event: RunEnded) -> str:
    """Say how a run ended; one that waits is named, so that it can be found again."""
    said = event.reason if event.status in _TOLD_BY_THEIR_REASON else f"{event.status}: {event.reason}"
    return f"{said} (run {event.run_id})" if event.status == "waiting" else said


def _then(wait_s: float | None) -> str:
    if wait_s is None:
        return "no further attempt"
    return f"again in {wait_s:.1f} s" if wait_s >= 0.05 else "again at once"


def _given(event: ApprovalGiven, name: str) -> Line:
    answer = event.approval
    if answer is None:
        return Line("waiting", "nobody is there to approve it", name, whole=True)
    by = f" by {answer.by}" if answer.by else ""
    if not answer.granted:
        return Line("denied", f"denied{by}{f': {answer.reason}' if answer.reason else ''}", name, whole=True)
    edited = "" if answer.arguments is None else ", with edited arguments"
    return Line("granted", f"approved{by}{edited}", name, whole=True)


def shortened(text: str) -> str:
    """Return text as one line of bounded length."""
    flat = " ".join(text.split())
    return flat if len(flat) <= MOST_SHOWN_CHARS else f"{flat[:MOST_SHOWN_CHARS]}…"
