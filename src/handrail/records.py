"""A run as it is stored: its input, its steps, its status; and a person's decision about one of its calls.

Plain values between drivers and stores. `journal` says what the JSON in them means. Those of which a crowd of runs has
thousands hold JSON and each other, nothing that could refer back: the garbage collector leaves them out (`gc=False`),
see `docs/decisions/0012-the-short-way.md`.
"""

from __future__ import annotations

import json
import re
import unicodedata
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Literal, Protocol, TypeAlias

from msgspec import Struct, field
from msgspec.structs import replace

from handrail.errors import Json, RunNameTaken
from handrail.invisible import is_unseen
from handrail.process_identity import has_died_here, has_left, is_gone
from handrail.surroundings.chance import token_hex
from handrail.surroundings.clock import unix_time

JOURNAL_V = 2
"""The version of the JSON in runs and steps. A run of a newer one is refused."""

RecordStatus: TypeAlias = Literal[
    "queued", "running", "waiting", "done", "failed", "cancelled", "poisoned"
]
"""The status of a stored run. `done` is every end that a resume would not change; `Run.status` says which. `queued` is
a run that its process left unfinished: any process may resume it."""

StepKind: TypeAlias = Literal["model", "call", "person", "question", "fold"]


_RUN_NAME = r"r_([0-9a-f]{11})[0-9a-f]{16}"


def new_run_id() -> str:
    """Return the name of a run that nobody named: by time and 64 random bits, since a store may keep millions."""
    return f"r_{int(unix_time() * 1000):011x}{token_hex(8)}"


def run_name_time(run_id: str) -> float:
    """Return the Unix time at which `new_run_id` made a part of this name, the last one; 0.0 if it made none."""
    times = re.findall(_RUN_NAME, run_id)
    return int(times[-1], 16) / 1000 if times else 0.0


class JournalStep(Struct, frozen=True, gc=False):
    """One thing that happened in a run.

    Attributes:
        key: Its place in the run: `3.m` the model's third answer, `3.0` the result of its first call.
        elapsed_s: How long the run had worked by then, without the time that people took to answer.
        text: The body as ASCII JSON, where `body` is left None; for a store with `takes_texts`. Empty otherwise.
    """

    key: str
    kind: StepKind
    body: Json
    elapsed_s: float = 0.0
    text: str = ""

    @property
    def turn(self) -> int:
        """The turn that it belongs to."""
        return int(self.key.partition(".")[0])


class RunRecord(Struct, frozen=True, gc=False):
    """A run in a store.

    Attributes:
        epoch: How many times it was started or taken over; only its newest owner can add steps.
        toolset: Digest of the tools it was started with.
        input: Its input, see `journal.codec.input_as_json`.
        result: How it ended, as `Run.as_json` writes it; None while it has not.
        created: Unix time in seconds, by the store's clock; so is `updated`.
        owner: The process that drives it, or did so last; see `process_identity`.
        takeovers: How many times in a row it was taken over from a process that had neither ended nor paused it.
    """

    run_id: str
    input: Json
    status: RecordStatus = "running"
    toolset: str = ""
    epoch: int = 0
    result: Json = None
    cancel_requested: bool = False
    forked_from: str = ""
    forked_at: int = 0
    created: float = 0.0
    updated: float = 0.0
    journal_v: int = JOURNAL_V
    owner: str = ""
    takeovers: int = 0

    @property
    def is_poisoned(self) -> bool:
        """Whether the run itself seems to kill its processes: too many of them in a row have died in it."""
        return self.status == "poisoned" or (
            self.status == "running" and self.takeovers >= MOST_TAKEOVERS
        )

    def takeovers_at(self, now: float) -> int:
        """Return how many takeovers there are if somebody takes it now; one from a living owner does not count."""
        if self.status != "running" or not (self.epoch and self.owner):
            return 0
        return self.takeovers + has_left(self.owner, now - self.updated)

    def name_taken(self) -> RunNameTaken:
        """Return the error for a new run with this run's name."""
        driver = ""
        advice = f"after={self.run_id!r} asks it another question, resume({self.run_id!r}) returns its end again"
        if self.status == "running" and self.owner and not is_gone(self.owner):
            process = self.owner.rpartition(":")[0] or self.owner
            driver = f", and is being carried out by the process {process}"
            advice = "wait for its end"
        return RunNameTaken(
            f"a run {self.run_id!r} is stored already{driver}: {advice}, or give the new one another name"
        )


MOST_TAKEOVERS = 5
"""How many times in a row a run is taken over from processes that died in it. After that it is `poisoned`."""


class StoredRun(Struct, frozen=True, gc=False):
    """A run as the store has it, and its steps so far."""

    record: RunRecord
    steps: Sequence[JournalStep] = ()


class JournalEntry(Struct, frozen=True, gc=False):
    """An addition to a run in one transaction: steps, and the new status if it changes.

    Attributes:
        may_wait: The store may delay it by some milliseconds, to commit it together with others.
    """

    run_id: str
    epoch: int
    steps: Sequence[JournalStep] = ()
    status: RecordStatus | None = None
    result: Json = None
    may_wait: bool = False


class ModelWait(Struct, frozen=True):
    """How a worker's run waits for its model while that is away.

    Attributes:
        turn: The turn for which the model has given no answer yet; 0 where it never was away.
        tries: How many times in a row the run was put back while it waited for this turn. In some of these segments
            another run tried the model instead.
        waited_s: How long the run has waited in the store between them. No clock is read for this, so no clock that is
            set ends the wait.
        most_s: How long the run may wait for one turn; the worker knows it, the store does not.
    """

    turn: int = 0
    tries: int = 0
    waited_s: float = 0.0
    most_s: float = 0.0

    def at_turn(self, turn: int) -> ModelWait:
        """Return how the run waits for this turn: another one is asked for only after the model has answered."""
        return self if self.turn == turn else ModelWait(turn, most_s=self.most_s)


class Submission(Struct, frozen=True):
    """How a run that was submitted is carried out by workers.

    Attributes:
        queue: Workers take segments from the queues that they name.
        priority: Above 0 for a run that does not wait behind the others of its scope: scopes take turns all the same.
        tools: The tools that a worker must have, by name.
        segment: The number of the segment that is enqueued, under way, or was the last one.
        deaths: How many workers in a row died in the segment.
        note: Why a worker handed the segment back, or what the run waits for; empty if none did.
        wake_at: When the run goes on by itself, as Unix time in seconds: when its question expires, or its wait for a
            lease or a model is over. 0 if it waits for no time.
        model_wait: How the run waits for its model, or has waited last.
    """

    queue: str = "default"
    priority: int = 0
    tools: Sequence[str] = ()
    segment: int = 1
    deaths: int = 0
    note: str = ""
    wake_at: float = 0.0
    model_wait: ModelWait = ModelWait()


class SubmittedRun(Struct, frozen=True):
    """A submitted run as a worker takes it: the run, its steps, and how it is carried out."""

    stored: StoredRun
    submission: Submission


def name_write(scope: str, key: str, fence: int) -> str:
    """Return the name of one claim of a write, which `ApprovalRequest.used_by` holds."""
    name: str = json.dumps([scope, key, fence])
    return name


AWAITS_RESULT = "its result comes from outside"
"""The reason of a question whose answer is the result of its call; see `BaseTool.deferred`."""

WRITE_ENDED = "the call does not wait for its result any more"
"""The reason of a question whose write has failed, or was settled by a person."""

OVERDUE = "its result did not come in time"
"""Why a write is in doubt for whose result nobody waits any more."""

RUN_CANCELLED = "the run was cancelled"
"""The reason of a question that was closed without an answer."""

MOST_WAITERS = 100
"""How many calls that wait for the result of one write are noted with its question; each also asks by itself."""

ApprovalState: TypeAlias = Literal[
    "open", "approved", "denied", "expired", "used", "cancelled"
]


class ApprovalRequest(Struct, frozen=True):
    """A call that waits for a person, bound to exactly what was shown.

    Attributes:
        id: Made from run and digest: the same question asked again is the same row.
        digest: Of tool, its description and schema, and the arguments; a decision is about this digest only.
        state: `open` until a person decides or it expires; an approval is `used` by the one call that it allows. Both
            are `cancelled` with their run, or when they are withdrawn; what a started write waits for stays open.
        expires: Unix time in seconds, by the store's clock.
        pin: Digest of the tool as it describes itself; a standing approval is bound to it.
        parameters: The JSON Schema of the arguments; an edit must fit it.
        place: The place of the call. `effects.AskHuman` explains it, `required_approvals`, `agreed`, `principal` and
            `own_approval`.
        used_by: The claim that used the approval, or whose result the question waits for; see `name_write`. Empty if
            there is none.
        waiters: Other calls that wait for the same result, by run and id: the newest of them.
    """

    id: str
    run_id: str
    call_id: str
    tool: str
    digest: str
    arguments: Mapping[str, Json]
    risk: str
    reason: str
    description: str = ""
    state: ApprovalState = "open"
    by: str = ""
    decision_reason: str = ""
    edited: Mapping[str, Json] | None = None
    asked: float = 0.0
    expires: float = 0.0
    pin: str = ""
    parameters: Mapping[str, Json] = field(default_factory=dict)
    place: str = ""
    required_approvals: int = 1
    agreed: Sequence[str] = ()
    principal: str = ""
    own_approval: bool = False
    used_by: str = ""
    waiters: Sequence[tuple[str, str]] = ()

    @property
    def waiting_runs(self) -> list[str]:
        """The runs that wait for its answer, the one that has asked it first."""
        return list(
            dict.fromkeys([self.run_id, *(run_id for run_id, _ in self.waiters)])
        )

    @property
    def step(self) -> str:
        """The key of the call's step in its run: `2.0` is the first call of the second turn."""
        return ".".join(self.place.partition("#")[0].rsplit("/", 2)[1:])

    @property
    def awaits_result(self) -> bool:
        """Whether it waits for the result of its call, and not for an approval."""
        return self.reason == AWAITS_RESULT

    @property
    def barred(self) -> str:
        """The person whose approval does not count because the call is made for them; empty where there is none."""
        is_barred = self.principal and not_counted(self.principal, self)
        return self.principal if is_barred else ""

    def with_decision(
        self,
        *,
        granted: bool,
        by: str,
        reason: str = "",
        edited: Mapping[str, Json] | None = None,
    ) -> ApprovalRequest:
        """Return the question after a person's decision: decided; or open until more agree, where several must.

        One denial is enough, whosever it is. A yes that does not count changes nothing, see `not_counted`. Where
        several must agree, an edit does not count: the others have agreed to something else.
        """
        if self.state != "open" or (granted and not_counted(by, self)):
            return self
        if not granted or self.required_approvals == 1:
            return replace(
                self,
                state="approved" if granted else "denied",
                by=by,
                decision_reason=reason,
                edited=edited,
            )
        if edited is not None:
            return self
        agreed = (*self.agreed, by.strip())
        if len(agreed) < self.required_approvals:
            return replace(self, agreed=agreed)
        return replace(
            self,
            state="approved",
            by=" and ".join(agreed),
            decision_reason=reason,
            agreed=agreed,
        )

    @property
    def awaits_write(self) -> bool:
        """Whether its answer is the result of a write in the ledger, which `used_by` names."""
        return self.awaits_result and bool(self.used_by)

    def settles_write(self, before: ApprovalRequest) -> bool:
        """Whether this answer to the question `before` says how the write ended that waits for it."""
        return self.awaits_write and before.state == "open" and self.state != "open"

    @property
    def settled_value(self) -> Json:
        """What the ledger keeps of a write that this answer settles: its result, or why it is in doubt."""
        if self.edited is not None:
            return self.edited.get("value")
        if self.state == "expired":
            return OVERDUE
        because = f": {self.decision_reason}" if self.decision_reason else ""
        return f"there will be no result{because}"

    def as_undeliverable(self) -> ApprovalRequest:
        """Return the question after its write has ended without the result that it waits for."""
        return replace(self, state="cancelled", decision_reason=WRITE_ENDED)

    def at(self, now: float) -> ApprovalRequest:
        """Return the request with its state at this time: one that is open, or approved and unused, may expire.

        A delivered result does not: what it is the result of has happened.
        """
        may_expire = self.state == "open" or (
            self.state == "approved" and not self.awaits_result
        )
        if may_expire and self.expires < now:
            return replace(self, state="expired")
        return self

    def as_cancelled(
        self, by: str = "", reason: str = RUN_CANCELLED
    ) -> ApprovalRequest:
        """Return the request after its run was cancelled, or a person took it back: it allows nothing."""
        if self.state not in ("open", "approved"):
            return self
        return replace(self, state="cancelled", by=by, decision_reason=reason)

    def asked_again(self, now: ApprovalRequest, expires: float) -> ApprovalRequest:
        """Return the question as it stands once it is asked again, as `now`.

        With more required approvals it is open again, until `expires`, and the earlier ones do not count. While it is
        open, today's policy says whether the principal's own approval counts; and whoever else waits for the result of
        the same write is noted.
        """
        if self.state not in ("open", "approved"):
            return self
        if now.required_approvals > self.required_approvals:
            return replace(
                self,
                required_approvals=now.required_approvals,
                own_approval=now.own_approval,
                state="open",
                by="",
                decision_reason="",
                edited=None,
                agreed=(),
                expires=expires,
            )
        if self.state != "open":
            return self
        if now.own_approval is not self.own_approval:
            return replace(self, own_approval=now.own_approval, expires=expires)
        waiter = (now.run_id, now.call_id)
        noted = ((self.run_id, self.call_id), *self.waiters)
        if self.used_by and waiter not in noted:
            return replace(self, waiters=(*self.waiters, waiter)[-MOST_WAITERS:])
        return self


class AsksPeople(Protocol):
    """What an `ApprovalRequest` and an `effects.AskHuman` say of whose approval counts."""

    @property
    def required_approvals(self) -> int: ...
    @property
    def agreed(self) -> Sequence[str]: ...
    @property
    def principal(self) -> str: ...
    @property
    def own_approval(self) -> bool: ...
    @property
    def awaits_result(self) -> bool: ...


def not_counted(by: str, asked: AsksPeople) -> str:
    """Return why a person's yes to a question does not count, as a clause; empty when it counts.

    Names are compared as they look: case, width, the spelling of accents and invisible characters do not count.
    """
    several = asked.required_approvals > 1
    name = _looks(by)
    if several and not name:
        return "it does not say whose it is"
    if name and name == _looks(asked.principal) and not asked.awaits_result:
        if several:
            return f"{by.strip()} is whom the run acts for, and others must agree"
        if not asked.own_approval:
            return (
                f"{by.strip()} is whom the run acts for, and somebody else must agree; "
                "`own_approval` of the policy lets them approve their own calls"
            )
    if several and name in map(_looks, asked.agreed):
        return f"{by.strip()} has agreed already"
    return ""


def _looks(name: str) -> str:
    # Without what nobody sees before it is composed, for that may stand between a letter and its accent.
    shown = "".join(char for char in name if char.isspace() or not is_unseen(char))
    return " ".join(
        unicodedata.normalize(
            "NFKC", unicodedata.normalize("NFKC", shown).casefold()
        ).split()
    )


class StandingApproval(Struct, frozen=True):
    """A person's standing approval: calls of a tool that are asked about for this reason are approved from now on.

    Attributes:
        id: Made from the rest: the same approval twice is one.
        run_id: The run that it is for; empty for every run.
        pin: Digest of the tool as it describes itself; one that describes itself otherwise is asked about again.
        reason: Why a person was asked: the rule, or the risk. Another reason is another question.
        at: Unix time in seconds, by the store's clock.
    """

    id: str
    run_id: str
    tool: str
    pin: str
    reason: str
    by: str
    at: float = 0.0


class Starts(Struct, frozen=True):
    """What a store gives of a tool's rate.

    Attributes:
        count: How many calls may start; 0 where the first would be due too late.
        wait_s: When it may, in seconds from now, where it is one; where it is none, when one could.
    """

    count: int
    wait_s: float = 0.0


class BreakerState(Struct, frozen=True):
    """A tool whose last attempt could not reach what it needs.

    Attributes:
        failures: Such attempts in a row, of all processes.
        rest_s: How much longer the tool is left alone; below 0 where one call may try, None where each may.
    """

    tool: str
    failures: int
    rest_s: float | None = None


class WriteRecord(Struct, frozen=True):
    """One write in the ledger.

    Attributes:
        scope: Its tenant; empty without one. Scope and key name a write.
        tool: The tool that was started.
        place: The place of its call in the run, or the name by which every process knows the call; empty if the key is
            that place.
        state: `claimed` while it is under way, or since its process died and nobody has looked; `waiting` while its
            result comes from outside.
        begun: Unix time in seconds, by the store's clock; so are `lease_until` and `updated`.
        resolved_by: The person who decided how it ended, if one did.
        fingerprint: Of tool, version and arguments, in hexadecimal digits; see `keys.fingerprint`.
        owner: The process that started it; see `process_identity`.
        deliver_until: Until when its result may be delivered, while it waits for it; 0 otherwise.
        doubt: Why it was recorded as in doubt; see `why`.
    """

    scope: str
    key: str
    tool: str
    place: str
    run_id: str
    state: Literal["claimed", "waiting", "done", "failed", "in_doubt"]
    replay: str
    fence: int
    lease_until: float
    begun: float
    updated: float = 0.0
    value: Json = None
    resolved_by: str = ""
    fingerprint: str = ""
    owner: str = ""
    deliver_until: float = 0.0
    doubt: str = ""

    def is_overdue(self, now: float) -> bool:
        """Whether its result was to come from outside, and did not come in time."""
        return self.state == "waiting" and 0 < self.deliver_until < now

    def why(self, now: float) -> str:
        """Return why it is in doubt, in a line for people; empty where it is not.

        The line names the attempt and the class of its exception, never the exception's text.
        """
        if self.state_at(now) != "in_doubt":
            return ""
        if self.is_overdue(now):
            return OVERDUE
        if self.state == "in_doubt" and self.doubt:
            return self.doubt
        lost = "" if has_died_here(self.owner) else " or lost its lease"
        return f"its process died{lost}; it was started {describe_time(self.begun)}"

    @property
    def is_open(self) -> bool:
        """Whether nobody has recorded how it ended: it may have had its effect."""
        return self.state not in ("done", "failed")

    def is_abandoned(self, now: float) -> bool:
        """Whether it has no end and nobody performs it any more: its process has died, or its lease is over."""
        return self.state == "claimed" and (
            self.lease_until < now or has_died_here(self.owner)
        )

    def state_at(self, now: float) -> str:
        """Return the state as people see it: a write that is abandoned or overdue is in doubt."""
        if self.is_abandoned(now) or self.is_overdue(now):
            return "in_doubt"
        return self.state


class AuditEntry(Struct, frozen=True, gc=False):
    """An entry for the audit log, before it has a place in the chain.

    Attributes:
        text: The body as canonical JSON, where there is one already.
        count: How many records it holds; see `chain.group_records`.
        may_wait: The store may delay it by some milliseconds, to commit it together with others: nothing depends on it.
    """

    run_id: str
    event: str
    body: Mapping[str, Json]
    text: str = ""
    count: int = 1
    may_wait: bool = False


class UnwrittenEntry(Struct, frozen=True, eq=False, gc=False):
    """An entry for the audit log that the store writes when it commits; for a store with `takes_unwritten`.

    Attributes:
        write: Returns the entry. It may be called in any thread, and returns the same each time.
    """

    run_id: str
    write: Callable[[], AuditEntry]
    may_wait: bool = False

    def written(self) -> AuditEntry:
        """Return the entry in written form, under this entry's run."""
        entry = self.write()
        if entry.run_id == self.run_id:
            return entry
        return replace(entry, run_id=self.run_id)


class AuditRecord(Struct, frozen=True):
    """One record of the audit chain; see `audit`. `at` is Unix time in seconds, by the store's clock.

    Attributes:
        group: The first and the last number of the records that were hashed together, which have `at`, `prev` and
            `hash` in common; None of a record that has a hash for itself.
    """

    seq: int
    at: float
    run_id: str
    event: str
    body: Mapping[str, Json]
    prev: str
    hash: str
    group: tuple[int, int] | None = None

    def as_json(self) -> dict[str, Json]:
        """Return the record as one line of an export holds it."""
        members = {
            name: getattr(self, name)
            for name in ("seq", "at", "run_id", "event", "body", "prev", "hash")
        }
        if self.group is not None:
            members["group"] = list(self.group)
        return members


_LAST_TIME = 253_402_300_799.0
"""The end of the last year that `datetime` has: a tool may declare more time."""


def describe_time(at: float) -> str:
    """Return a time of a store's clock for people, with its zone: they may sit in another one than the store.

    >>> describe_time(1795820400.0)
    '2026-11-27 23:00:00 UTC'
    >>> describe_time(1e15)
    '9999-12-31 23:59:59 UTC'
    """
    return f"{datetime.fromtimestamp(min(at, _LAST_TIME), UTC):%Y-%m-%d %H:%M:%S} UTC"
