"""The settings of a run: what is the same for all of its calls."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Protocol

from msgspec import Struct, field

from handrail.calls import Label, ToolCall, ToolResult
from handrail.core import results, retries
from handrail.core.admission import Admitted, Tell
from handrail.core.policy import Policy
from handrail.core.redaction import KnownSecrets
from handrail.core.trust import Trust
from handrail.errors import Failure
from handrail.events import Event


class Deadline(Struct):
    """When a run ends, on its clock; infinite without a time limit."""

    at: float = float("inf")

    @classmethod
    def within(cls, time_s: float | None, since: float) -> Deadline:
        """Return the deadline of a run that may take so long; infinite for None."""
        if time_s is None:
            return cls()
        return cls(since + time_s)

    def postpone(self, seconds: float) -> None:
        """Move the end by the time that people took to answer."""
        self.at += seconds


class CallTrail(Protocol):
    """What writes the calls of a run into the audit log. Nothing here raises."""

    def note_admission(self, admitted: Admitted, taint: Label | None) -> None:
        """Record that a call may run."""
        ...

    def note_end(
        self, call: ToolCall, result: ToolResult, seconds: float, recalled: bool
    ) -> None:
        """Record how a call has ended."""
        ...

    def note_event(self, event: Event) -> None:
        """Record an event, if it is of a kind that the log has."""
        ...


class RunSettings(Struct, frozen=True):
    """How the calls of a run are carried out.

    Attributes:
        now: Monotonic seconds.
        jitter: A number from [0, 1], for the wait before a retry.
        deadline: When the run ends, on `now`. The active run alone moves it.
        keeps: Whether a later turn may belong to this run; false for calls of no run.
        tell: Where events go; None when nobody listens.
        trail: What writes the run into the audit log, where the store has one. It takes admissions and ends without
            events; all other events go there too.
        key_prefix: What the keys of writes start with that declare none; the run's name by default.
        epoch: How often the run was started or taken over, where it is stored.
        looks_up: Whether the store can report the state of a write without claiming it.
        secrets: What no result may contain; None without secrets.
        foreign_secrets: What no result of others' words may contain, in place of `secrets`.
        injected: What the caller injects into tools, and their rules may look at.
        passes_on: Whether what tools do with a runtime belongs to the tenant, and is under the policy, of their call.
        refusal: Why a model may not call a tool at this step of the run; None without rules.
        trust: What the run has read, and from whom; None where nobody looks at it.
    """

    policy: Policy
    now: Callable[[], float]
    jitter: Callable[[], float]
    run_id: str = ""
    scope: str = ""
    deadline: Deadline = field(default_factory=Deadline)
    result_bytes: int = results.DEFAULT_RESULT_BYTES
    backoff: retries.Backoff = field(default_factory=retries.Backoff)
    repair: bool = True
    keeps: bool = True
    tell: Tell | None = None
    trail: CallTrail | None = None
    key_prefix: str = ""
    epoch: int = 0
    renews: bool = False
    looks_up: bool = False
    secrets: KnownSecrets | None = None
    foreign_secrets: KnownSecrets | None = None
    injected: Mapping[str, Any] = field(default_factory=dict)
    passes_on: bool = False
    refusal: Callable[[str], Failure | None] | None = None
    trust: Trust | None = None

    @property
    def tell_all(self) -> Tell | None:
        """Where events go that the audit log may record too; None when there is neither log nor listener."""
        if self.trail is None:
            return self.tell
        return self._tell_both

    def _tell_both(self, event: Event) -> None:
        if self.tell is not None:
            self.tell(event)
        if self.trail is not None:
            self.trail.note_event(event)

    def secrets_for(self, label: Label) -> KnownSecrets | None:
        """Return what a result of this label must not contain; None where that is nothing."""
        return self.secrets if label.integrity == "trusted" else self.foreign_secrets

    def redact(self, value: Any, label: Label) -> Any:
        """Return a tool's value without what a result of this label must not contain."""
        secrets = self.secrets_for(label)
        return value if secrets is None else secrets.value(value)
