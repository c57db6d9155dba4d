"""What the core asks of its driver, and what the driver may answer.

The core decides and never performs: its generators *yield* one of these effects and are *sent* the answer named beside
it. A driver that performs them runs a call; one that looks the answers up in a journal resumes or replays it; one that
raises between two of them is a crash test.

    Admit      -> the admitted call, or the Failure that refuses it; for a tool whose own functions may block
    LookUp     -> Claimed, the ledger's answer for a write that may not start now; None when it may
    AskHuman   -> Approval, or None when nobody is there to ask
    Reserve    -> True, once the call holds its resources and its tool's rate permits it; False when the run's time is
                  over; a Failure when the rate will not permit it in time
    Claim      -> Claimed
    Invoke     -> Returned | Raised | Unfinished
    Verify     -> Found | NotFound | Unknown
    Wait       -> None, when the time has passed
    Settle     -> None, once it is durable
    Compute    -> what its function returns; it is called in a thread
    Keep       -> str, the handle of a text that is too long for the model

A driver that ends a call from outside (a cancelled run) throws `CallCancelled` into the generator where it waits before
anything has started: `Admit`, `LookUp`, `AskHuman`, `Reserve`, `Claim`, `Wait`. What has started is not dropped:
`Invoke` is answered with `Unfinished`, `Verify` with `Unknown`; `Settle`, `Compute` and `Keep` are performed to their
end.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from enum import Enum
from typing import Any, Generic, Literal, TypeAlias, TypeVar

from msgspec import Struct, field

from handrail.calls import Label, ToolCall
from handrail.errors import Json
from handrail.surroundings.chance import token_hex

EffectClass: TypeAlias = Literal["read", "write", "destructive"]
Permission: TypeAlias = Literal["read", "write", "admin"]
Risk: TypeAlias = Literal["low", "medium", "high"]
ReplayClass: TypeAlias = Literal["key", "verify", "none"]
Caller: TypeAlias = Literal["direct", "program"]
ApprovalScope: TypeAlias = Literal["once", "run", "rule"]


class Resource(Struct, frozen=True):
    """Something that calls touch, such as `user:7`. Readers share it; a writer has it alone.

    Attributes:
        seats: How many calls may share it at once; 0 sets no limit.
    """

    key: str
    exclusive: bool = True
    seats: int = 0

    @property
    def room(self) -> float:
        """How many calls like this one may have it at once."""
        if self.exclusive:
            return 1
        return self.seats or float("inf")


class Admit(Struct, frozen=True):
    """Decide whether a call may run, off the event loop and within a time limit: its author's functions take part.

    Attributes:
        call: The parsed call, as `core.admission.admit` takes it.
        default_key: The key of a write whose tool declares none.
    """

    call: Any
    default_key: str


class Provenance(Struct, frozen=True):
    """What untrusted text has to do with a call that is to send something.

    Attributes:
        tainted_by: The label, with its call, of the first result from outside in the run; None without one.
        unnamed: Values that occur in no trusted words, by the argument that holds them.
        private: The arguments that hold private values, each with the tool that these came from.
    """

    tainted_by: Label | None
    unnamed: Mapping[str, Sequence[str]] = field(default_factory=dict)
    private: Mapping[str, str] = field(default_factory=dict)


class AskHuman(Struct, frozen=True):
    """Ask whoever must agree before this call may run.

    `arguments` are the exact, validated arguments; `description` is what the tool says of itself.

    Attributes:
        place: The place of the call: run, turn and number; a suffix `#...` marks another question about it.
        digest: Digest of the tool as it is described and of the arguments; the answer is bound to it.
        pin: Digest of the tool as it is described.
        parameters: The JSON Schema of the arguments; an edit must fit it.
        required_approvals: How many different people must agree; see `records.not_counted`.
        agreed: Who has agreed so far, where several must.
        principal: On whose behalf the call is made; this person's own approval does not count.
        own_approval: It counts where one person is enough; see `Policy.own_approval`.
        writes: Whether the call is a write, whose claim uses the approval.
        key: The key of a write whose tool declares one: where the call is of no run, its question belongs to the key.
        refused: The id of the stored approval that a claim has just refused; another one is needed.
        awaits_result: The answer is the result of the call, as `{"value": ...}` in place of arguments; no call uses it
            up.
        write: Of a write that awaits its result: the name of its claim, see `records.name_write`. Whoever asks for that
            write's result asks the same question.
        is_preview: The call is not made now: the question is stored, nobody here is asked, and no approval is used.
        is_recall: Only what was decided about this very call counts: nothing is stored, nobody is asked, and no
            approval is used. None where nothing was.
        provenance: What untrusted text has to do with the call, where it is asked about for that.
    """

    call: ToolCall
    arguments: Mapping[str, Json]
    risk: Risk
    reason: str
    description: str = ""
    place: str = ""
    digest: str = ""
    pin: str = ""
    parameters: Mapping[str, Json] = field(default_factory=dict)
    required_approvals: int = 1
    agreed: Sequence[str] = ()
    principal: str = ""
    own_approval: bool = False
    writes: bool = False
    key: str = ""
    refused: str = ""
    awaits_result: bool = False
    write: str = ""
    is_preview: bool = False
    is_recall: bool = False
    provenance: Provenance | None = None


class Approval(Struct, frozen=True):
    """A person's decision about one call. `arguments` holds an edited version, which is validated again before it runs.

    `expired` is no decision: nobody answered while the question was open. Nor is `unasked`: nobody who could approve is
    here, and the question cannot be kept for later, for this `reason`. `scope` says which calls it covers: this one,
    or all of the tool that are asked about for the same reason, in this run or in any. Without a store for standing
    approvals it counts once. `question` is the id of the stored question that it answers, if the write's claim has yet
    to use it.
    """

    granted: bool
    by: str = ""
    reason: str = ""
    arguments: Mapping[str, Json] | None = None
    expired: bool = False
    scope: ApprovalScope = "once"
    question: str = ""
    unasked: bool = False


CallT = TypeVar("CallT")
"""An admitted call, which the core defines: what an effect is for."""


class Reserve(Struct, Generic[CallT], frozen=True, gc=False):
    """Wait until the call's resources are free, in the order of asking, then hold them until the call has ended.

    Then wait until the tool may be started by its rate.
    """

    call: CallT


AGAIN = "/again-"
"""What follows the key of a write in the key of its repetition by a person; see `Claim`."""


class Claim(Struct, frozen=True, gc=False):
    """Take the right to perform the write named by (`scope`, `key`), or learn what became of it.

    Attributes:
        scope: The tenant; empty without one.
        fingerprint: Digest of tool, declared version and canonical arguments; the same key with another is a conflict.
        lease_s: Seconds after which an unsettled claim counts as abandoned; longer than the tool's timeout.
        epoch: The epoch of a stored run: its new owner need not wait for the leases of earlier owners.
        locks: Resources held with the claim, against all processes that use the store; `Reserve` holds those of one.
        guard: Also answer DONE when this run has already performed a write with this fingerprint under another key.
        repeat_window_s: How far back the guard looks for such a write in other runs, too; 0 looks into this run only.
        key_ttl_s: For how long the far side recognises a key; a write that started before that is in doubt.
        approval: The id of the stored question whose approval the claim uses. Empty for a write that needs none, or
            whose approval was used before.
        tool: The name of the tool, which the ledger shows.
        place: The place of the call in its run, where the key does not give it.
    """

    scope: str
    key: str
    fingerprint: bytes
    run_id: str
    replay: ReplayClass
    lease_s: float
    guard: bool = True
    epoch: int = 0
    locks: Sequence[str] = ()
    repeat_window_s: float = 0.0
    key_ttl_s: float = float("inf")
    approval: str = ""
    tool: str = ""
    place: str = ""


class LookUp(Struct, frozen=True):
    """Ask what the ledger would answer to a claim, without claiming. The answer is None where the write may start."""

    claim: Claim


class ClaimState(Enum):
    """What a store answers to a claim; docs/decisions/0004-claims.md has the table."""

    FRESH = "fresh"
    """Run it: nobody has."""
    AGAIN = "again"
    """Run it again with the same key: the far side recognises duplicates."""
    CHECK = "check"
    """Somebody started it; ask the tool's `verify` first."""
    DONE = "done"
    """It has happened; here is its result."""
    STARTED = "started"
    """It was started, and its result comes from outside."""
    BUSY = "busy"
    """Somebody is doing it now."""
    LOCKED = "locked"
    """Somebody else is changing something that it touches."""
    IN_DOUBT = "in_doubt"
    """Somebody started it and nobody knows how it ended."""
    CONFLICT = "conflict"
    """The key was used with other arguments, or by another tool."""
    UNAPPROVED = "unapproved"
    """The write may start, but not under this approval: another call has used it, or it has expired."""

    @property
    def is_taken(self) -> bool:
        """Whether the write is the caller's own."""
        return self in _TAKEN


_TAKEN = (ClaimState.FRESH, ClaimState.AGAIN, ClaimState.CHECK)


class Claimed(Struct, frozen=True, gc=False):
    """A store's answer to a claim. `fence` grows with every new owner; `value` is the earlier result when DONE;
    when IN_DOUBT it is why, as `Settle.value`.

    `repeated` marks an answer of the repeat guard (another key, the same act). `key` is then the key of the earlier
    write if that is DONE, or IN_DOUBT and can be claimed by this key to find out. `left_s` is the rest of a dead
    owner's lease: until then its requests may still be under way. With BUSY it is the rest of the lease of an
    earlier owner of the same run; 0 if the write belongs to another run. With LOCKED it is for how long a write in
    doubt still holds what this one touches; 0 if the other write is under way. `tool` is whose the key is, with
    CONFLICT.
    """

    state: ClaimState
    fence: int = 0
    value: Json = None
    repeated: bool = False
    left_s: float = 0.0
    key: str = ""
    tool: str = ""


class Invoke(Struct, Generic[CallT], frozen=True, gc=False):
    """Start the tool of a call once.

    Attributes:
        attempt: Counts from 1.
        timeout_s: The time for this attempt.
        doubtful: An earlier attempt of this write may have taken effect.
    """

    call: CallT
    attempt: int
    timeout_s: float
    doubtful: bool = False


class Returned(Struct):
    """The tool returned.

    Attributes:
        size: About how many bytes the value takes as JSON; 0 if it was not measured.
        has_iterators: Whether the value may hold iterators, which can be read only once.
        late: It returned after its deadline, but before the call had a result.
        pending: Its value is still to be awaited: a plain function returned a coroutine.
        plain: Its value is a scalar, or lists and dicts of scalars, and not long; see `materialize.is_plain`.
    """

    value: Any
    size: int = 0
    has_iterators: bool = True
    late: bool = False
    pending: bool = False
    plain: bool = False


class Raised(Struct, frozen=True):
    """The tool raised. `reference` is shown where the error's text must not be, and finds that text in the log."""

    error: Exception
    reference: str = field(default_factory=lambda: token_hex(4))

    @property
    def words(self) -> str:
        """The error as people read it. Never for a model: it may hold anything."""
        try:
            return f"{type(self.error).__name__}: {self.error}"
        except Exception:  # the text is made by the author's code
            return type(self.error).__name__


class End(Enum):
    """How an invocation ended without a result: the truth about a deadline or a cancellation."""

    NOT_STARTED = "not started"
    STOPPED = "stopped"
    """It was interrupted, and has ended. What it did until then may have taken effect."""
    RUNNING_ON = "running on"
    """It cannot be interrupted (a thread), or did not stop; it may still finish later."""


class Unfinished(Struct, frozen=True):
    """The tool was ended by its deadline, or because the run was cancelled.

    `holders` says which tools held all threads, if this one was not started for want of a thread.
    """

    end: End
    cancelled: bool = False
    holders: str = ""


Outcome: TypeAlias = Returned | Raised | Unfinished


class Verify(Struct, Generic[CallT], frozen=True, gc=False):
    """Ask the tool's own `verify` whether the write of this call has happened."""

    call: CallT


class Found(Struct, frozen=True):
    """The write has happened, with this result."""

    value: Any = None


class NotFound(Struct, frozen=True):
    """The write has certainly not happened."""


class Unknown(Struct, frozen=True):
    """Nobody can tell whether the write has happened."""


Verification: TypeAlias = Found | NotFound | Unknown


class Wait(Struct, frozen=True):
    """Let this much time pass before the next attempt.

    Attributes:
        until: When the lease ends that the call waits for, on the run's clock; 0 for any other wait. A worker may
            leave the run in the store until then.
    """

    seconds: float
    until: float = 0.0


SettledState: TypeAlias = Literal["done", "failed", "in_doubt", "waiting"]


class Settle(Struct, frozen=True, gc=False):
    """Record how a claimed write ended. `failed` means: certainly without effect, the key may be claimed again.

    `waiting` is the end of the tool of a deferred write, whose result comes later: only its locks are released.

    Attributes:
        value: The result; of a write in doubt, a line that says why it is, see `records.WriteRecord.why`.
        locks: What the write touches. It lets go of them, unless it is in doubt and its tool may run on.
        has_ended: The tool of a write in doubt has ended in this process.
        may_wait: The store may delay it by some milliseconds, to commit it together with later requests. Nothing that
            depends on it starts before the store has answered.
    """

    scope: str
    key: str
    fence: int
    state: SettledState
    value: Json = None
    locks: Sequence[str] = ()
    may_wait: bool = False
    has_ended: bool = False


class Renew(Struct, frozen=True):
    """Renew the lease of a write under way, and of its locks, for `lease_s` from now.

    A lease is never shortened, except that `lease_s` of 0 ends it: the write is then as if its owner had died.
    No call yields this effect: a driver renews for as long as it lives.
    """

    scope: str
    key: str
    fence: int
    lease_s: float
    locks: Sequence[str] = ()


class Compute(Struct, frozen=True):
    """Call a slow function of ours that changes nothing, such as one that encodes a long result."""

    function: Callable[[], Any]


class Keep(Struct, frozen=True):
    """Store a result that is too long for the model, so that it can be read on."""

    text: str


class CallCancelled(Exception):  # not an error: the run's end, thrown in
    """The run was cancelled while a call was waiting."""


Effect: TypeAlias = (
    Admit
    | LookUp
    | AskHuman
    | Reserve[CallT]
    | Claim
    | Invoke[CallT]
    | Verify[CallT]
    | Wait
    | Settle
    | Compute
    | Keep
)
