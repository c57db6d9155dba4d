"""What a tool may know about the call that started it, and what the caller fills in instead of the model."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Mapping
from contextvars import ContextVar
from threading import Event
from typing import Any, Generic, Literal, Protocol, TypeAlias, TypeVar

from msgspec import Struct

from handrail.errors import Json, SetupError, ToolError
from handrail.logs import log
from handrail.surroundings.clock import monotonic

D = TypeVar("D")

LogLevel: TypeAlias = Literal[
    "debug", "info", "notice", "warning", "error", "critical", "alert", "emergency"
]
"""How grave a line of a log is, as syslog has it (RFC 5424)."""

_LEVELS = {"notice": "INFO", "alert": "CRITICAL", "emergency": "CRITICAL"}
"""The levels that Python's log does not have, as it has them."""


class CannotAsk(ToolError):
    """A tool asked the person at its caller, and there is no way to. The model reads it as `CANNOT_ASK`."""

    def __init__(self, why: str) -> None:
        super().__init__(
            "CANNOT_ASK",
            f"The tool needs an answer of a person, and {why}.",
            suggestion="Ask the user yourself, and call again with what they say if a parameter takes it.",
        )


class Peer(Protocol):
    """Whoever made a call, as far as its tool can speak to it."""

    def log(self, level: LogLevel, text: str) -> None:
        """Take a line of the tool's log; never waits."""
        ...

    def ask(
        self, message: str, schema: Mapping[str, Any]
    ) -> Awaitable[Mapping[str, Json] | None]:
        """Return what a person answered, or None where they did not want to."""
        ...


peers: dict[tuple[str, str], Peer] = {}
"""Who made a call that is under way, by run and id of the call; only callers that can be spoken to are here."""


class CallTrace(Protocol):
    """The trace that a call belongs to, as far as its tool continues it."""

    def fields(self) -> Mapping[str, str]:
        """Return what tells another service of the trace: `traceparent`, and what else its propagators send."""
        ...

    def note_request(self, attributes: Mapping[str, str], seconds: float) -> None:
        """Add a request over MCP to the call's span, and count it."""
        ...


current_trace: ContextVar[CallTrace | None] = ContextVar("handrail_trace", default=None)
"""The trace of the call whose tool runs this code; None where nobody traces it."""

_TRACE_HEADERS = ("traceparent", "tracestate")


def trace_headers() -> dict[str, str]:
    """Return the headers by which an HTTP service continues the trace of the call that runs here; none without one.

    `baggage` is not among them: it may hold a customer's name, and a service may be a stranger's.
    """
    trace = current_trace.get()
    if trace is None:
        return {}
    fields = trace.fields()
    return {name: fields[name] for name in _TRACE_HEADERS if name in fields}


class Injected:
    """Marks a parameter that the caller fills and the model never sees: `tenant: Annotated[str, Injected]`.

    The value comes from `inject={"tenant": "acme"}` of `call`, `handle` and `run`. A model that sends the name anyway
    is refused.

    Args:
        secret: Whether its text, if 6 characters or longer, is hidden from the model, the audit log and the log. Use
            `Annotated[str, Injected(secret=False)]` for what anybody may read, such as a tenant's name.
    """

    __slots__ = ("secret",)

    def __init__(self, *, secret: bool = True) -> None:
        self.secret = secret


class InjectedOpenly(Injected):
    """Marks `Injected(secret=False)` among a tool's hidden parameters."""

    __slots__ = ()


class Context(Struct, Generic[D]):
    """Handed to a tool that asks for it (`context: hr.Context[Deps]`); hidden from the model.

    Attributes:
        deps: Whatever the engineer passed as `deps=`.
        idempotency_key: Names the act, not the attempt. Send it on as the header `Idempotency-Key`. Empty for reads.
        fence: Grows with every new owner of the key; pass it on where the far side can refuse an older one.
        attempt: Counts from 1.
        deadline: When this attempt is ended, on `time.monotonic`.
        cancelled: Set when the call is given up. A tool in a thread cannot be interrupted; a polite one looks here.
    """

    deps: D
    run_id: str
    call_id: str
    tool: str
    attempt: int
    deadline: float
    cancelled: Event
    idempotency_key: str = ""
    fence: int = 0
    read_kept: Callable[[str], str | None] | None = None
    report: Callable[[float, float | None, str], None] | None = None
    nested: Any = None
    """What starts runs for the tool; see `nested`. None in a process of the tool's own."""

    def run(
        self, question: Any, *, model: Any, runtime: Any = None, **how: Any
    ) -> Awaitable[Any]:
        """Start a run as part of this call, and await its `Run`: an agent as a tool.

        The run is named after this call. When the call is repeated, after a failure or in a resumed run, the run is
        resumed: in a store that keeps runs, no question and no write is repeated. It ends at the call's deadline.

        A tool that changes nothing else declares `effect="write", replay="key"`, or `effect="read"` if the run writes
        nothing; then a crashed call is repeated. `hr.agent_tool` makes such a tool.

        Args:
            question, model, how: As for `Runtime.run`; `deps` and `inject` are those of this call unless given.
            runtime: Whose tools the run has; by default the runtime that carries out this call.

        Raises:
            RunWaits: The run waits for a person. Do not catch it: the outer run must wait, too.
            JournalMismatch: The run of this name was given another question.
        """
        run: Awaitable[Any] = self._starter().run(
            question, model=model, runtime=runtime, **how
        )
        return run

    def run_blocking(
        self, question: Any, *, model: Any, runtime: Any = None, **how: Any
    ) -> Any:
        """Do what `run` does, from a tool that is no coroutine function."""
        return self._starter().run_blocking(
            question, model=model, runtime=runtime, **how
        )

    def _starter(self) -> Any:
        if self.nested is None:
            raise SetupError(
                f"{self.tool} runs in a process of its own, from which no run can be started"
            )
        return self.nested

    def __repr__(self) -> str:
        return f"<Context of {self.tool} in run {self.run_id}: call {self.call_id}, attempt {self.attempt}>"

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle what a process of the tool's own can use: it is killed, not cancelled, and reads no long result."""
        names = (
            "deps",
            "run_id",
            "call_id",
            "tool",
            "attempt",
            "deadline",
            "idempotency_key",
            "fence",
        )
        return _in_process, tuple(getattr(self, name) for name in names)

    def progress(self, done: float, total: float | None = None, note: str = "") -> None:
        """Report how far the call has come to the observers of the run; never waits."""
        if self.report is not None:
            self.report(done, total, note)

    def log(self, level: LogLevel, text: str) -> None:
        """Send a line to whoever made the call, if they take any, else to the log `handrail`; never waits.

        No secrets in it: the caller reads it as it is.
        """
        peer = peers.get((self.run_id, self.call_id))
        if peer is not None:
            peer.log(level, text)
            return
        name = _LEVELS.get(level, level.upper())
        log.log(logging.getLevelNamesMapping()[name], "%s: %s", self.tool, text)

    def ask(
        self, message: str, schema: Mapping[str, Any]
    ) -> Awaitable[Mapping[str, Json] | None]:
        """Ask the person at whoever made the call; return the answers by name, or None if they declined.

        The time that a person takes is the call's own, so give the tool a long `timeout_s`. Ask before anything is
        changed: a client of the Model Context Protocol may make the call again with the answer, and the tool then
        starts again. A write that asks declares `hr.Write(interrupts="before")`.

        Args:
            schema: A JSON Schema: an object whose properties are texts, numbers, booleans or enums.

        Raises:
            CannotAsk: Nobody can be asked: the caller is a program, or its client cannot.
        """
        peer = peers.get((self.run_id, self.call_id))
        if peer is None:
            raise CannotAsk("whoever called it is no client that can be asked")
        return peer.ask(message, schema)

    def remaining_s(self) -> float:
        """Seconds until this attempt is ended, never below 0."""
        return max(0.0, self.deadline - monotonic())


def _in_process(
    deps: Any,
    run_id: str,
    call_id: str,
    tool: str,
    attempt: int,
    deadline: float,
    key: str,
    fence: int,
) -> Context[Any]:
    return Context(
        deps=deps,
        run_id=run_id,
        call_id=call_id,
        tool=tool,
        attempt=attempt,
        deadline=deadline,
        cancelled=Event(),
        idempotency_key=key,
        fence=fence,
    )
