"""What can be replaced: stores, models, approvers, observers. Each is a protocol of one to four methods, or a function.

A store may have to wait for a disk. It then answers with a `concurrent.futures.Future`; one that keeps things in memory
answers at once. One port serves both drivers, and a store that needs no waiting costs none.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeAlias, TypeVar, runtime_checkable

from handrail.effects import Approval, AskHuman, Claim, Claimed, Settle, SettledState
from handrail.errors import Json
from handrail.events import Event, HttpExchange
from handrail.messages import Delta, Message, Options, Turn
from handrail.records import AuditRecord, Begun, Entry, Notice, Question, RunRecord, WriteRecord

T = TypeVar("T")
Answer: TypeAlias = "T | Future[T]"
"""A value now, or a future of it."""


@runtime_checkable
class Store(Protocol):
    """Where things are kept: which writes were begun and how they ended, and results too large for a model.

    `tests/stores/contract.py` is the suite that every store inherits.
    """

    def claim(self, claim: Claim) -> Answer[Claimed]:
        """Take the right to perform a write, or learn what became of it.

        Exactly one caller gets FRESH for a key. The claim is as durable as the store before this returns: after a crash
        the next caller gets CHECK, AGAIN or IN_DOUBT by the write's replay class, never FRESH.

        Raises:
            StoreUnavailable: Nothing was claimed; the write must not run.
        """
        ...

    def settle(self, settle: Settle) -> Answer[bool]:
        """Record how a claimed write ended. False when the claim has a newer owner; nothing is changed then."""
        ...

    def keep(self, run_id: str, text: str) -> Answer[str]:
        """Keep a long result of a run and return a handle to it."""
        ...

    def kept(self, run_id: str, handle: str) -> Answer[str | None]:
        """Return what was kept under a handle for this run, or None. Another run's handle is unknown."""
        ...


@runtime_checkable
class RunStore(Protocol):
    """A store that keeps runs too, so that another process can go on with them, and people's words on their calls.

    `tests/stores/contract.py` is the suite that every one inherits.
    """

    def begin_run(self, record: RunRecord) -> Answer[Begun]:
        """Begin a run, or take over the one of that name, which keeps its own input: its epoch grows by one.

        Raises:
            StoreUnavailable: Nothing was begun.
        """
        ...

    def enter(self, entry: Entry) -> Answer[bool]:
        """Add to a run, all or nothing; return whether somebody has asked for its end.

        A step that is there already stays as it is: it says the same, told by an owner who was not heard of again.

        Raises:
            Fenced: The epoch is not the newest one: somebody else has taken the run over. Nothing was added.
            StoreUnavailable: Nothing was added.
        """
        ...

    def recorded(self, run_id: str) -> Answer[Begun | None]:
        """Return a run and its steps, in the order in which they came, without taking it over."""
        ...

    def records(self, *, status: str = "", most: int = 100) -> Answer[Sequence[RunRecord]]:
        """Return runs without their steps, the newest first."""
        ...

    def request_cancel(self, run_id: str) -> Answer[bool]:
        """Ask for a run's end; whoever drives it learns of it with the next entry. False when there is no such run."""
        ...


@runtime_checkable
class ApprovalStore(Protocol):
    """A store that keeps questions to people, so that one may be answered tomorrow, in another process, by anybody."""

    def ask(self, question: Question, *, within_s: float) -> Answer[Question]:
        """Keep a question, or return the one of that id as it stands, an expired one as `expired`."""
        ...

    def decide(
        self, id: str, *, granted: bool, by: str, because: str = "", edited: Mapping[str, Json] | None = None
    ) -> Answer[Question | None]:
        """Record a person's word on an open question; return it as it stands now, None when there is none."""
        ...

    def use(self, id: str) -> Answer[bool]:
        """Consume an approval. True for exactly one caller."""
        ...

    def questions(self, *, state: str = "open", run_id: str = "") -> Answer[Sequence[Question]]:
        """Return questions, the oldest first."""
        ...


@runtime_checkable
class LedgerStore(Protocol):
    """A store whose ledger people can look into, and say how a write ended that nobody knows of."""

    def writes(self, *, state: str = "", run_id: str = "", most: int = 100) -> Answer[Sequence[WriteRecord]]:
        """Return writes, the newest first. One whose lease is over without an end is told as it stands, `claimed`."""
        ...

    def resolve(
        self, scope: str, key: str, *, state: SettledState, by: str, value: Json = None
    ) -> Answer[WriteRecord | None]:
        """Say how a write ended: `done` with its value, or `failed`, so that its key is free again.

        Only a write in doubt, or one whose lease is over, takes a word; any other is returned as it stands. None when
        there is no such write.
        """
        ...


@runtime_checkable
class AuditStore(Protocol):
    """A store with an audit log: append only, each record chained to the one before it; see `audit`."""

    def append(self, notices: Sequence[Notice]) -> Answer[None]:
        """Add to the log, in this order, all or nothing."""
        ...

    def log(self, *, after: int = 0, run_id: str = "", most: int = 1000) -> Answer[Sequence[AuditRecord]]:
        """Return records in order, those after a number."""
        ...


@dataclass(frozen=True, slots=True)
class Described:
    """A tool as a model is told of it, without anything that could be run."""

    name: str
    description: str
    parameters: dict[str, Json]
    strict_parameters: dict[str, Json] | None = None


@dataclass(frozen=True, slots=True)
class Request:
    """What a model is asked, in our own terms; `timeout_s` bounds the whole exchange."""

    messages: Sequence[Message]
    tools: Iterable[Any]
    options: Options = field(default_factory=Options)
    timeout_s: float = 300.0


class Listener(Protocol):
    """Whoever wants to hear of a model's answer while it arrives."""

    def delta(self, delta: Delta) -> None:
        """A piece of the answer arrived."""
        ...

    def exchange(self, exchange: HttpExchange) -> None:
        """A request was answered; this is what was on the wire."""
        ...


@runtime_checkable
class Model(Protocol):
    """A dialect with a transport: asks, and gives the model's turn."""

    name: str

    async def ask(self, request: Request, listener: Listener | None = None) -> Turn:
        """Return the model's answer; with a listener, tell it every piece on the way.

        Raises:
            ModelError: No usable answer, after the retries that its kind permits.
        """
        ...


@runtime_checkable
class Ranking(Protocol):
    """Orders the tools that it was made of by a text. Called from any thread."""

    def top(self, query: str, k: int = 5) -> Sequence[Any]:
        """Return up to `k` tools, best first, no two of one name. `top(k)` is the beginning of `top(k + 1)`."""
        ...


@dataclass(frozen=True, slots=True)
class Selection:
    """Which tools a turn shows, by name, and by which strategy they were chosen; None shows all."""

    strategy: str
    names: Sequence[str] | None


@runtime_checkable
class Selector(Protocol):
    """Says which of many tools a model is shown. It narrows what the policy permits, and permits nothing itself.

    Attributes:
        name: For events.
        waits: It asks a server, so it is asked in a thread.
    """

    @property
    def name(self) -> str: ...

    @property
    def waits(self) -> bool: ...

    def select(self, tools: Any, messages: Sequence[Message]) -> Selection:
        """Return what the next turn shows of a `Toolset`. It follows from these two alone: a resumed run asks again."""
        ...

    def own_tools(self, tools: Any) -> Sequence[Any]:
        """Return the tools that the selector itself offers, such as one to search the others by."""
        ...


Approver: TypeAlias = Callable[[AskHuman], "Awaitable[Approval | bool | None] | Approval | bool | None"]
"""Whoever is asked, sync or async. True and False are short for an `Approval`; None means nobody is there."""

Observer: TypeAlias = Callable[[Event], None]
"""Sees every event and changes nothing. It is called in the driver's thread and must not block."""
