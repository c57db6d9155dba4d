"""What happened in a run and when, in one form: from its events as they happen, or from the audit log later.

Rule 1: pure: events and records come in, moments come out; nothing is guessed.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from msgspec import Struct

from handrail.calls import ToolResult
from handrail.events import Event, HttpExchange, Streamed
from handrail.history.event_json import event_fields
from handrail.records import AuditRecord
from handrail.workers import fork_safety

MOST_RUNS = 500
MOST_MOMENTS = 20_000
"""How many moments of one run are remembered."""
MOST_EXCHANGES = 200
MOST_EXCHANGE_CHARS = 64 * 1024 * 1024
"""How much of the requests of all runs to models is remembered, the newest: each has its whole conversation."""


class RunMoment(Struct, frozen=True):
    """Something that happened.

    Attributes:
        at: Unix time in seconds.
        name: The name of the event, or of the audit log's record.
        body: Its fields; `call` is the id of the call, `tool` its name.
    """

    at: float
    name: str
    body: Mapping[str, Any]

    @property
    def call(self) -> str:
        """The id of the call that it is about; empty where it is about none."""
        return str(self.body.get("call") or "")


class RunMemory:
    """What this process has seen of a run."""

    def __init__(self) -> None:
        self.moments: list[RunMoment] = []
        self.exchanges: deque[tuple[float, HttpExchange]] = deque()


class RecentMoments:
    """Remembers the runs of this process, the newest ones. Safe for threads."""

    def __init__(self) -> None:
        self._lock = fork_safety.new_lock()
        self._runs: OrderedDict[str, RunMemory] = OrderedDict()
        self._exchange_chars = 0

    def add(self, run_id: str, at: float, event: Event) -> None:
        """Remember an event of a run."""
        if isinstance(event, Streamed):
            return
        with self._lock:
            memory = self._runs.get(run_id)
            if memory is None:
                memory = self._runs[run_id] = RunMemory()
                if len(self._runs) > MOST_RUNS:
                    _, oldest = self._runs.popitem(last=False)
                    self._exchange_chars -= sum(
                        _chars(each) for _, each in oldest.exchanges
                    )
            if isinstance(event, HttpExchange):
                self._add_exchange(memory, at, event)
            elif len(memory.moments) < MOST_MOMENTS:
                memory.moments.append(moment_of(event, at))

    def _add_exchange(self, memory: RunMemory, at: float, event: HttpExchange) -> None:
        if len(memory.exchanges) >= MOST_EXCHANGES:
            return
        memory.exchanges.append((at, event))
        self._exchange_chars += _chars(event)
        for each in self._runs.values():
            while each.exchanges and self._exchange_chars > MOST_EXCHANGE_CHARS:
                _, oldest = each.exchanges.popleft()
                self._exchange_chars -= _chars(oldest)
            if self._exchange_chars <= MOST_EXCHANGE_CHARS:
                return

    def add_moment(self, run_id: str, moment: RunMoment) -> None:
        """Remember what is no event, such as a person's word that was given here."""
        with self._lock:
            memory = self._runs.get(run_id)
            if memory is not None:
                memory.moments.append(moment)

    def of(self, run_id: str) -> Sequence[RunMoment]:
        """Return what is remembered of a run, in order."""
        with self._lock:
            memory = self._runs.get(run_id)
            return list(memory.moments) if memory else ()

    def all(self) -> Sequence[tuple[str, RunMoment]]:
        """Return what is remembered of all runs, each with its run."""
        with self._lock:
            return [
                (run_id, each)
                for run_id, memory in self._runs.items()
                for each in memory.moments
            ]

    def exchanges_of(self, run_id: str) -> Sequence[tuple[float, HttpExchange]]:
        """Return the requests to models that are remembered of a run."""
        with self._lock:
            memory = self._runs.get(run_id)
            return list(memory.exchanges) if memory else ()


def _chars(exchange: HttpExchange) -> int:
    return len(exchange.body) + len(exchange.answer)


_LEFT_OUT = ("call", "approval", "result", "answer", "value", "run_id")
"""What the journal has: the moments hold when and how."""


def moment_of(event: Event, at: float) -> RunMoment:
    """Return an event as a moment."""
    call = getattr(event, "call", None)
    fields = event_fields(event, _LEFT_OUT)
    if call is not None:
        fields |= {"call": call.id, "tool": call.name}
    result = getattr(event, "result", None)
    if isinstance(result, ToolResult):
        fields |= {
            "ok": result.ok,
            "code": "" if result.failure is None else str(result.failure.code),
            "attempts": result.attempts,
        }
    approval = getattr(event, "approval", None)
    if approval is not None:
        fields |= {
            "granted": approval.granted,
            "by": approval.by,
            "reason": approval.reason,
            "expired": approval.expired,
        }
        if approval.arguments is not None:
            fields["arguments"] = dict(approval.arguments)
    return RunMoment(at, type(event).__name__, fields)


def moments_in(records: Iterable[AuditRecord]) -> list[RunMoment]:
    """Return the records of a run in the audit log as moments."""
    return [RunMoment(each.at, each.event, each.body) for each in records]
