"""What a tool may know about the call that started it, and what the caller fills in instead of the model."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from threading import Event
from time import monotonic
from typing import Any, Generic, TypeVar

from msgspec import Struct

from handrail.errors import SetupError

D = TypeVar("D")


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
