"""A run as it is kept: what it was asked, its steps, how it stands; and a person's word on one of its calls.

Plain values between drivers and stores. `journal` says what the JSON in them means.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import field
from typing import Literal, TypeAlias

from handrail.errors import Json
from handrail.values import dataclass

JOURNAL_V = 1
"""The version of what runs and steps hold. A run of a newer one is refused."""

RecordStatus: TypeAlias = Literal["queued", "running", "waiting", "done", "failed", "cancelled", "poisoned"]
"""How a kept run stands. `done` is every end that a resume would not change; `Run.status` says which."""

StepKind: TypeAlias = Literal["model", "call", "person"]


@dataclass(frozen=True, slots=True)
class Step:
    """One thing that happened in a run.

    Attributes:
        key: Its place in the run: `3.m` the model's third answer, `3.0` the result of its first call.
        elapsed_s: How long the run had worked by then, without what people took.
    """

    key: str
    kind: StepKind
    body: Json
    elapsed_s: float = 0.0

    @property
    def turn(self) -> int:
        """The turn that it belongs to."""
        return int(self.key.partition(".")[0])


@dataclass(frozen=True, slots=True)
class RunRecord:
    """A run as a store keeps it.

    Attributes:
        epoch: How often somebody began it or took it over; steps are taken from the newest owner only.
        toolset: Digest of the tools it was begun with.
        input: What it was asked, see `journal.input_as_json`.
        result: How it ended, as `Run.as_json` tells it; None while it has not.
        created: Unix time in seconds, by the store's clock; so is `updated`.
        owner: The process that drives it, or did so last; see `owners`.
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


@dataclass(frozen=True, slots=True)
class Begun:
    """A run that is ours now, and what has happened in it so far."""

    record: RunRecord
    steps: Sequence[Step] = ()


@dataclass(frozen=True, slots=True)
class Entry:
    """What is to be added to a run in one transaction: steps, and how it stands now where that changes."""

    run_id: str
    epoch: int
    steps: Sequence[Step] = ()
    status: RecordStatus | None = None
    result: Json = None


ApprovalState: TypeAlias = Literal["open", "approved", "denied", "expired", "used"]


@dataclass(frozen=True, slots=True)
class Question:
    """A call that waits for a person, bound to exactly what was shown.

    Attributes:
        id: Made from run and digest: the same question asked again is the same row.
        digest: Of tool, its description and schema, and the arguments; a word on another digest is no word on this one.
        state: `open` until a person decides or it expires; an approval is `used` by the one call that it allows.
        expires: Unix time in seconds, by the store's clock.
        pin: Digest of the tool as it describes itself, which a standing word on it is bound to.
        parameters: The JSON Schema of the arguments, which an edit is held to.
        place: Where the call stands, see `effects.AskHuman`.
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
    because: str = ""
    edited: Mapping[str, Json] | None = None
    asked: float = 0.0
    expires: float = 0.0
    pin: str = ""
    parameters: Mapping[str, Json] = field(default_factory=dict)
    place: str = ""

    @property
    def step(self) -> str:
        """The key of the call's step in its run: `2.0` is the first call of the second turn."""
        return ".".join(self.place.partition("#")[0].rsplit("/", 2)[1:])


@dataclass(frozen=True, slots=True)
class Grant:
    """A person's standing word: calls of a tool that are asked about for this reason are approved from now on.

    Attributes:
        id: Made from the rest: the same word twice is one.
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


@dataclass(frozen=True, slots=True)
class WriteRecord:
    """One write as the ledger keeps it.

    Attributes:
        scope: Tenant and tool.
        state: `claimed` while it is under way, or since its process died and nobody has looked.
        begun: Unix time in seconds, by the store's clock; so are `lease_until` and `updated`.
        resolved_by: Who said how it ended, where a person did.
        fingerprint: Of tool, version and arguments, in hexadecimal digits; see `keys.fingerprint`.
    """

    scope: str
    key: str
    run_id: str
    state: Literal["claimed", "done", "failed", "in_doubt"]
    replay: str
    fence: int
    lease_until: float
    begun: float
    updated: float = 0.0
    value: Json = None
    resolved_by: str = ""
    fingerprint: str = ""


@dataclass(frozen=True, slots=True)
class Notice:
    """What is to be recorded in the audit log, before it has a place in the chain."""

    run_id: str
    event: str
    body: Mapping[str, Json]


@dataclass(frozen=True, slots=True)
class AuditRecord:
    """One link of the audit chain; see `audit`. `at` is Unix time in seconds, by the store's clock."""

    seq: int
    at: float
    run_id: str
    event: str
    body: Mapping[str, Json]
    prev: str
    hash: str

    def as_json(self) -> dict[str, Json]:
        """Return the record as one line of an export holds it."""
        return {name: getattr(self, name) for name in ("seq", "at", "run_id", "event", "body", "prev", "hash")}
