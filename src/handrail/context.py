"""What a tool may know about the call that started it, and what the caller fills in instead of the model."""

from __future__ import annotations

from collections.abc import Callable
from threading import Event
from time import monotonic
from typing import Any, Generic, TypeVar

from msgspec import Struct

D = TypeVar("D")


class Injected:
    """Marks a parameter that the caller fills and the model never sees: `tenant: Annotated[str, Injected]`.

    The value comes from `inject={"tenant": "acme"}` of `call`, `handle` and `run`. A model that sends the name anyway
    is refused.
    """


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

    def __reduce__(self) -> tuple[Any, ...]:
        """Go into a process of the tool's own: that is killed rather than told, and cannot read what was kept."""
        names = ("deps", "run_id", "call_id", "tool", "attempt", "deadline", "idempotency_key", "fence")
        return _in_process, tuple(getattr(self, name) for name in names)

    def progress(self, done: float, total: float | None = None, note: str = "") -> None:
        """Say how far the call has come, to whoever watches the run. It never waits."""
        if self.report is not None:
            self.report(done, total, note)

    def remaining_s(self) -> float:
        """Seconds until this attempt is ended, never below 0."""
        return max(0.0, self.deadline - monotonic())


def _in_process(
    deps: Any, run_id: str, call_id: str, tool: str, attempt: int, deadline: float, key: str, fence: int
) -> Context[Any]:
    return Context(deps, run_id, call_id, tool, attempt, deadline, Event(), key, fence)
