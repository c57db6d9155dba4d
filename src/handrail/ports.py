"""What can be replaced: stores, models, approvers, observers. Each is a protocol of one to four methods, or a function.

A store may have to wait for a disk. It then answers with a `concurrent.futures.Future`; one in memory answers at once.
So one port serves both runtimes, and a store in memory adds no wait.
"""

from __future__ import annotations

import threading
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from functools import partial
from typing import Any, Literal, Protocol, TypeAlias, runtime_checkable

from msgspec import Struct, field

from handrail.calls import ToolCall
from handrail.effects import (
    Approval,
    AskHuman,
    Claim,
    Claimed,
    Renew,
    Settle,
    SettledState,
)
from handrail.errors import Json
from handrail.events import Event, HttpExchange
from handrail.futures import StoreAnswer
from handrail.messages import Delta, Message, Options, Turn
from handrail.records import (
    ApprovalRequest,
    AuditEntry,
    AuditRecord,
    BreakerState,
    JournalEntry,
    JournalStep,
    RunRecord,
    StandingApproval,
    Starts,
    StoredRun,
    Submission,
    SubmittedRun,
    WriteRecord,
)


@runtime_checkable
class Store(Protocol):
    """Stores which writes were started and how they ended, and results too large for a model.

    Test yours with `handrail.testing.contracts.stores.StoreContract`, as ours are tested.
    """

    def claim(self, claim: Claim) -> StoreAnswer[Claimed]:
        """Take the right to perform a write, or learn what became of it.

        Exactly one caller gets FRESH for a key. The claim is as durable as the store before this returns: after a crash
        the next caller gets CHECK, AGAIN or IN_DOUBT by the write's replay class, never FRESH.

        Raises:
            StoreUnavailable: Nothing was claimed; the write must not run.
        """
        ...

    def settle(self, settle: Settle) -> StoreAnswer[bool]:
        """Record how a claimed write ended. False when the claim has a newer owner; nothing is changed then."""
        ...

    def save_result(self, run_id: str, text: str) -> StoreAnswer[str]:
        """Store a long result of a run and return a handle to it."""
        ...

    def load_result(self, run_id: str, handle: str) -> StoreAnswer[str | None]:
        """Return the result of this run with a handle, or None. Another run's handle is unknown."""
        ...


@runtime_checkable
class LookUpStore(Protocol):
    """A store that can report the state of a write without claiming it."""

    def look_up(self, claim: Claim) -> StoreAnswer[Claimed | None]:
        """Return what `claim` would answer, None where the caller could start the write. Nothing is claimed."""
        ...


@runtime_checkable
class LeaseStore(Protocol):
    """A store whose leases a living owner can renew: claims of long calls then need no long leases."""

    def renew(self, renew: Renew) -> StoreAnswer[bool]:
        """Restart the lease of a claim. False when it has ended, or somebody else has it."""
        ...


@runtime_checkable
class GatheringStore(Protocol):
    """A store that delays requests with `may_wait`, to commit them together."""

    def hurry(self) -> None:
        """Commit the delayed requests at once: somebody waits for one of them."""
        ...


@runtime_checkable
class ConnectedStore(Protocol):
    """A store with a connection, of which a fork cannot use its copy."""

    def reopen(self) -> None:
        """Open the connection in a fork; without effect where it is open.

        Raises:
            StoreUnavailable: It cannot be opened now.
            SetupError: It cannot be opened in this process.
        """
        ...


@runtime_checkable
class RunStore(Protocol):
    """A store that also keeps runs, so that another process can resume them.

    Test yours with `handrail.testing.contracts.runs.RunContract`, as ours are tested.
    """

    def begin_run(
        self,
        record: RunRecord,
        *,
        new: bool = False,
        unchanged: bool = False,
        steps: Sequence[JournalStep] = (),
    ) -> StoreAnswer[StoredRun]:
        """Begin a run, or take over the one of that name with its own input: its epoch grows by one.

        `RunRecord.takeovers` grows by one if the owner of a run under way counts as gone (`process_identity.has_left`),
        and is 0 again if the run had ended or paused.

        A request to cancel it stays valid if its owner died before it ended the run, and if the run was cancelled after
        `record` was loaded. Any other run that has ended starts again without that request.

        Args:
            new: Take no run over: of several callers that begin a run of one name, exactly one succeeds.
            unchanged: Take the run over only if its epoch is still that of `record`, and it has not been cancelled,
                failed or poisoned since: of several callers that have loaded it in one epoch, exactly one succeeds.
                With `steps`, those before them are not returned again.
            steps: Append these at the same moment: after a crash the run has all of them, or nothing was changed.

        Raises:
            RunNameTaken: `new` was given and there is a run of that name. Nothing was changed.
            Fenced: `unchanged` was given, and somebody else has taken the run over, or ended it. Nothing was changed.
            StoreUnavailable: Nothing was changed.
        """
        ...

    def append_entry(self, entry: JournalEntry) -> StoreAnswer[bool]:
        """Append to a run, all or nothing; return whether somebody has asked to cancel it.

        The status `waiting` is stored as `cancelled` if somebody has asked to cancel the run.

        A step that is there already stays as it is: an earlier owner recorded the same one. A store with
        `takes_texts = True` is also given steps whose body is JSON text; see `records.JournalStep.text`.

        Raises:
            Fenced: The epoch is not the newest one: somebody else has taken the run over. Nothing was added.
            StoreUnavailable: Nothing was added.
        """
        ...

    def load_run(self, run_id: str) -> StoreAnswer[StoredRun | None]:
        """Return a run and its steps, in the order in which they came, without taking it over."""
        ...

    def list_runs(
        self, *, status: str = "", most: int = 100
    ) -> StoreAnswer[Sequence[RunRecord]]:
        """Return runs without their steps, the newest first."""
        ...

    def request_cancel(self, run_id: str) -> StoreAnswer[bool]:
        """Request that a run be cancelled; its driver learns of it with the next entry. False if there is no such run.

        A run that nobody drives is cancelled at once. Its epoch grows by one, so that `begin_run(unchanged=True)`
        refuses whoever has read it before. Its open questions and unused approvals become `cancelled` at once; so they
        do when an entry ends the run as `cancelled`.
        """
        ...


class BrowsedRun(Struct, frozen=True):
    """A run with its steps, and its place among all runs of the store: numbers rise, in the order of beginning."""

    number: int
    stored: StoredRun


@runtime_checkable
class BrowsableRunStore(RunStore, Protocol):
    """A store whose runs can be read through, for lists and searches."""

    def browse_runs(
        self, *, before: int | None = None, since: float = 0.0, most: int = 100
    ) -> StoreAnswer[Sequence[BrowsedRun]]:
        """Return runs with their steps, the newest first.

        A damaged run does not fail the list: a step that cannot be read is left out, such an input is an empty text.

        Args:
            before: Only those with a smaller number.
            since: Only those that were changed at that time or later, by the store's clock.
        """
        ...

    def step_times(self, run_id: str) -> StoreAnswer[Mapping[str, float]]:
        """Return when each step of a run was recorded, as Unix time by the store's clock, by its key."""
        ...


@runtime_checkable
class SubmittedRunStore(RunStore, Protocol):
    """A store whose runs can be submitted to workers; see `dispatch`.

    Whoever answers the last question of a submitted run, in whatever process, enqueues its next segment in the same
    transaction.
    """

    def submit_run(
        self, record: RunRecord, submission: Submission
    ) -> StoreAnswer[RunRecord]:
        """Store a run as `queued` and enqueue its first segment, both or neither.

        Raises:
            RunNameTaken: There is a run of that name. Nothing was changed.
            StoreUnavailable: Nothing was changed.
        """
        ...

    def take_segment(
        self, run_id: str, number: int, *, after_death: bool
    ) -> StoreAnswer[SubmittedRun | None]:
        """Return the run of a segment; None where there is nothing to do in it: it is over, or a later one is there.

        Args:
            after_death: The worker that had the segment was found dead; `deaths` grows if it had started the run.
        """
        ...

    def finish_segment(
        self,
        run_id: str,
        number: int,
        *,
        wait_s: float = 0.0,
        why: str = "",
        model_turn: int = 0,
    ) -> StoreAnswer[RunRecord | None]:
        """Note that a worker is done with a segment; return the run's state.

        The next segment is enqueued if the run's questions were answered meanwhile, or if it was left unfinished. A run
        that is over is forgotten here; so is one that is gone.

        Args:
            wait_s: Seconds after which the segment of an unfinished run is enqueued again; 0 enqueues the next one now,
                and so does a request to end the run.
            why: What the run waits for; shown to people.
            model_turn: The turn for which the model was asked in vain, if the run waits for that: the next segment is
                enqueued then, and `Submission.model_wait` counts it.
        """
        ...

    def note_segment(self, run_id: str, note: str) -> StoreAnswer[None]:
        """Note why a worker handed a segment back, for people."""
        ...

    def sweep_submitted(self) -> StoreAnswer[int]:
        """Enqueue what must go on and has no segment: runs with a question that has expired, and lost segments.

        Any number of workers may call it at once.

        Returns:
            How many runs were enqueued. A sweep may leave some for the next one.
        """
        ...

    def wake_run(self, run_id: str) -> StoreAnswer[bool]:
        """Enqueue the segment of a run that waits for its model, before its wait is over.

        Returns:
            Whether the run was waiting for that. Of several callers at once one gets True; any other run is left.
        """
        ...

    def list_submitted(
        self, run_ids: Sequence[str]
    ) -> StoreAnswer[Mapping[str, Submission]]:
        """Return how these runs are carried out, those that were submitted and are not over."""
        ...

    def list_cancelled(self, run_ids: Sequence[str]) -> StoreAnswer[Sequence[str]]:
        """Return which of these runs somebody has asked to end."""
        ...


@runtime_checkable
class LimitStore(Protocol):
    """A store that counts the rates and breakers of tools for all processes that use it, by its own clock."""

    def take_starts(
        self, bucket: str, *, starts: int, seconds: float, most: int, longest_s: float
    ) -> StoreAnswer[Starts]:
        """Take starts from a bucket that lets `starts` go in `seconds`; see `rate_limits`.

        Args:
            most: How many are wanted at once. One is given where the bucket would be less than half full otherwise.
            longest_s: How long the caller would wait; nothing is taken where it is longer.
        """
        ...

    def note_unreached(
        self, tool: str, *, most: int, rest_s: float
    ) -> StoreAnswer[BreakerState]:
        """Count an attempt that could not reach what its tool needs; after `most` in a row the tool rests."""
        ...

    def note_reached(self, tool: str) -> StoreAnswer[None]:
        """Close a tool's breaker: an attempt has reached what the tool needs."""
        ...

    def try_tool(self, tool: str, *, within_s: float) -> StoreAnswer[float]:
        """Return how long a tool is left alone: 0 where the caller may start it.

        Of several callers that ask once the rest is over, one may start it. If it has not reported after `within_s`,
        another one may. A rest that has more than `within_s` and a few seconds left was noted before the store's clock
        was set back, and is over: no tool rests for longer than a call may try it.
        """
        ...

    def list_breakers(self) -> StoreAnswer[Sequence[BreakerState]]:
        """Return the tools whose last attempt failed."""
        ...


@runtime_checkable
class ApprovalStore(Protocol):
    """A store of questions to people, so that one may be answered tomorrow, in another process, by anybody."""

    def ask(
        self, question: ApprovalRequest, *, within_s: float
    ) -> StoreAnswer[ApprovalRequest]:
        """Store a question, or return the stored one of that id, an expired one as `expired`.

        If more people must agree than when it was first asked, the stored question is open again for `within_s`; see
        `ApprovalRequest.requiring`.
        """
        ...

    def decide(
        self,
        id: str,
        *,
        granted: bool,
        by: str,
        reason: str = "",
        edited: Mapping[str, Json] | None = None,
    ) -> StoreAnswer[ApprovalRequest | None]:
        """Record a person's decision on an open question; return the question after it, None when there is none.

        `ApprovalRequest.with_decision` says what a decision changes. Of two decisions at once neither is lost.
        An answer to a question that waits for the result of a write settles that write in the same commit. Where the
        write does not wait any more, the question is closed instead; see `ApprovalRequest.as_undeliverable`.
        """
        ...

    def use(self, id: str) -> StoreAnswer[bool]:
        """Consume an approval. True for exactly one caller."""
        ...

    def withdraw(
        self, id: str, *, by: str, reason: str = ""
    ) -> StoreAnswer[ApprovalRequest | None]:
        """Close a question that is open, or whose approval no call has used.

        Returns the question after that, None when there is none.

        `ApprovalRequest.as_cancelled` says what it becomes.
        """
        ...

    def list_approvals(
        self, *, state: str = "open", run_id: str = "", id: str = "", digest: str = ""
    ) -> StoreAnswer[Sequence[ApprovalRequest]]:
        """Return questions, the oldest first.

        Args:
            state: The questions in this state; empty is any.
            run_id: The questions of this run; empty is any.
            id: The question of this id, which is found without reading the others; empty is any.
            digest: The questions about these arguments; those of a run are found without reading its others. Empty is
                any.
        """
        ...


@runtime_checkable
class ApprovedClaimStore(ApprovalStore, Protocol):
    """A store whose `claim` uses the approval that it names, in the same moment.

    If the write may start but the approval was used by another claim, or has expired, it claims nothing and answers
    UNAPPROVED.
    """

    claims_use_approvals: bool


@runtime_checkable
class StandingApprovalStore(Protocol):
    """A store of people's standing approvals, which answer questions before they are asked."""

    def grant(self, grant: StandingApproval) -> StoreAnswer[StandingApproval]:
        """Store a standing approval; one that was revoked is in force again."""
        ...

    def list_standing_approvals(
        self, *, tool: str = ""
    ) -> StoreAnswer[Sequence[StandingApproval]]:
        """Return those that are in force, the oldest first."""
        ...

    def revoke(self, id: str, *, by: str) -> StoreAnswer[bool]:
        """Take a standing approval back. False when none of that id is in force."""
        ...


@runtime_checkable
class LedgerStore(Protocol):
    """A store whose ledger people can read, and in which they can resolve writes in doubt."""

    def list_writes(
        self, *, state: str = "", run_id: str = "", most: int = 100
    ) -> StoreAnswer[Sequence[WriteRecord]]:
        """Return writes, the newest first.

        Args:
            state: Only writes in this state. A claimed write whose process is gone, or whose lease is over, is in
                doubt: it is returned for `in_doubt` and not for `claimed`, although its row still says `claimed`.
        """
        ...

    def load_write(self, scope: str, key: str) -> StoreAnswer[WriteRecord | None]:
        """Return the write of this name, None when there is none."""
        ...

    def resolve(
        self, scope: str, key: str, *, state: SettledState, by: str, value: Json = None
    ) -> StoreAnswer[WriteRecord | None]:
        """Record how a write ended: `done` with its value, or `failed`, so that its key is free again.

        Only a write in doubt, or one whose lease is over, is changed; any other is returned unchanged. None when there
        is no such write.
        """
        ...

    def release(
        self, scope: str, key: str, *, fence: int, by: str
    ) -> StoreAnswer[bool]:
        """Free the key of a write that was done and has been taken back, so that the act can be performed again.

        False when the write of this fence is not `done`: the key was freed already, or the write was made again.
        """
        ...


@runtime_checkable
class AuditStore(Protocol):
    """A store with an audit log: append only, each record chained to the one before it; see `audit`."""

    def append_audit(self, entries: Sequence[AuditEntry]) -> StoreAnswer[None]:
        """Add to the log, in this order, all or nothing.

        A store with `takes_unwritten = True` is also given `records.UnwrittenEntry`.
        """
        ...

    def log(
        self, *, after: int = 0, run_id: str = "", most: int = 1000
    ) -> StoreAnswer[Sequence[AuditRecord]]:
        """Return records in order, those after a number."""
        ...


@runtime_checkable
class KeyedAuditStore(AuditStore, Protocol):
    """A store whose audit log can be hashed with a key; see `chain`."""

    audit_key: bytes
    """The key; empty for none."""

    def log_refuses(self) -> StoreAnswer[str]:
        """Return why the log takes no records with this key, as a sentence; empty when it takes them.

        A log goes on with the key that its last record was hashed with. With another key `append_audit` raises
        StoreUnavailable and adds nothing.
        """
        ...


@runtime_checkable
class RotatableAuditStore(KeyedAuditStore, Protocol):
    """A store whose audit log can go on with another key; see `chain`."""

    audit_key_file: str
    """Where the key is read again once the log has another one; empty for nowhere."""

    def replace_audit_key(self, key: bytes, *, by: str) -> StoreAnswer[None]:
        """Add the record that ends the chain under the present key, and that which begins it under another one.

        Both or none are added. Other writers are refused from then on until they have the new key.

        Raises:
            ConfigError: The log does not go on with the present key. Nothing was added.
            StoreUnavailable: Nothing was added.
        """
        ...


class Described(Struct, frozen=True):
    """A tool as it is described to a model, without anything that could be run."""

    name: str
    description: str
    parameters: dict[str, Json]
    strict_parameters: dict[str, Json] | None = None


class Request(Struct, frozen=True):
    """A request to a model, in our own terms; `timeout_s` bounds the whole exchange."""

    messages: Sequence[Message]
    tools: Iterable[Any]
    options: Options = field(default_factory=Options)
    timeout_s: float = 300.0


class Listener(Protocol):
    """Receives a model's answer while it arrives."""

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
        """Return the model's answer; a listener receives every piece on the way.

        Raises:
            ModelError: No usable answer, after the retries that its kind permits.
        """
        ...


@runtime_checkable
class Ranking(Protocol):
    """Orders its tools by how well they fit a text. May be called from any thread."""

    def top(self, query: str, k: int = 5) -> Sequence[Any]:
        """Return up to `k` tools, best first, no two of one name. `top(k)` is the beginning of `top(k + 1)`."""
        ...


class Selection(Struct, frozen=True):
    """Which tools a turn shows, by name, and by which strategy they were chosen; None shows all.

    Attributes:
        search: The name of the tool by which the model finds the others; empty where there is none.
        deferrable: What to show instead of `names` where the provider itself loads what a search found.
        deferred: What the searches have found beside it.
    """

    strategy: str
    names: Sequence[str] | None
    search: str = ""
    deferrable: Sequence[str] = ()
    deferred: Sequence[str] = ()


@runtime_checkable
class Selector(Protocol):
    """Says which of many tools a model is shown. It narrows what the policy permits, and permits nothing itself.

    Attributes:
        name: For events.
        waits: Whether `select` waits for a server, and so is called in a thread.
    """

    @property
    def name(self) -> str: ...

    @property
    def waits(self) -> bool: ...

    def select(self, tools: Any, messages: Sequence[Message]) -> Selection:
        """Return which tools of a `Toolset` the next turn shows.

        The answer depends on the arguments alone, since a resumed run asks again."""
        ...

    def own_tools(self, tools: Any) -> Sequence[Any]:
        """Return the tools that the selector itself offers, such as one to search the others by."""
        ...


class SandboxJob(Struct, frozen=True):
    """A program to run in a sandbox.

    Attributes:
        argv: The program and its arguments; no shell reads them.
        files: Files to put into its folder before it starts, by relative path.
        mounts: Absolute paths of files and folders that it can read at the same paths, and cannot change.
        timeout_s: When it is killed, with everything that it started.
        memory_bytes: The address space of each of its processes, and the memory of all of them together.
        output_bytes: How much of its output to each of stdout and stderr is returned; the rest is dropped.
        returned_bytes: The total size of the files returned, among those that it made or changed.
        returned_files: How many of these files are returned.
    """

    argv: Sequence[str]
    files: Mapping[str, bytes] = field(default_factory=dict)
    mounts: Sequence[str] = ()
    timeout_s: float = 30.0
    memory_bytes: int = 512 * 1024 * 1024
    output_bytes: int = 64 * 1024
    returned_bytes: int = 8 * 1024 * 1024
    returned_files: int = 20


class JobEnded(Struct, frozen=True):
    """How a program in a sandbox ended, and what it left.

    Attributes:
        end: `exited`: it ended by itself, or by a limit of its own. Any other was killed: by its `timeout`, because it
            was `cancelled`, because its processes held too much `memory` together, or by something unknown (`lost`).
        exit_code: Negative for a signal; None when nobody saw it end.
        dropped_bytes: The size of the output that was dropped.
        files: What it made or changed, by relative path.
        left: Files that were not returned: too large, too many, or links.
    """

    end: Literal["exited", "timeout", "cancelled", "memory", "lost"]
    exit_code: int | None
    stdout: bytes
    stderr: bytes
    dropped_bytes: int = 0
    files: Mapping[str, bytes] = field(default_factory=dict)
    left: Sequence[str] = ()


@runtime_checkable
class Sandbox(Protocol):
    """A place where a program runs isolated from the rest of the machine.

    Attributes:
        level: `process`, `isolated` or `container`; `sandboxes.levels` says what each is.
    """

    @property
    def level(self) -> str: ...

    @property
    def lacks(self) -> str:
        """Why this machine cannot provide it, as a clause; empty when it can."""
        ...

    @property
    def python(self) -> str:
        """The Python interpreter that is in there, with its standard library."""
        ...

    def run(self, job: SandboxJob, cancelled: threading.Event) -> JobEnded:
        """Run a program to its end, in a thread. When this returns, all of its processes have ended.

        Raises:
            OSError: It could not be started.
        """
        ...


Approver: TypeAlias = Callable[
    [AskHuman], "Awaitable[Approval | bool | None] | Approval | bool | None"
]
"""Whoever is asked, sync or async. True and False are short for an `Approval`; None means nobody is there."""


@runtime_checkable
class Withdrawing(Protocol):
    """An approver that takes a question back. One that cannot is left alone, and its late answer is ignored."""

    def __call__(self, asked: AskHuman) -> Any:
        """Ask, as every `Approver` does."""
        ...

    def withdraw(self, asked: AskHuman, question: ApprovalRequest) -> None:
        """Stop asking: somebody else has answered, or the question is still open and nobody waits any longer.

        Called once, from any thread, with the very object that was asked.
        """
        ...


Observer: TypeAlias = Callable[[Event], None]
"""Sees every event and changes nothing. It is called in the driver's thread and must not block."""


class TracedRun(Struct, frozen=True):
    """A run as whoever traces it sees it.

    Attributes:
        messages: Returns its conversation so far.
        tools: Returns the tools of its runtime.
        find_tool: Returns the tool that a name means, None for a name of none.
        redact_text, redact: Return a text, or JSON, without secrets.
    """

    run_id: str
    scope: str
    principal: str
    options: Options
    messages: Callable[[], Sequence[Message]]
    tools: Callable[[], Sequence[Any]]
    find_tool: Callable[[str], Any]
    redact_text: Callable[[str], str]
    redact: Callable[[Json], Json]


class RunTrace(Protocol):
    """Observes one run, and gives its calls a trace that their tools continue."""

    def __call__(self, event: Event) -> None:
        """See an event of the run, as every `Observer` does."""
        ...

    def note_provider(self, name: str) -> None:
        """Note who provides the run's model, as its name has it; empty where nobody knows."""
        ...

    def around(
        self, call: ToolCall, start: Callable[[], Any], *, is_async: bool
    ) -> partial[Any]:
        """Wrap the start of a tool so that the tool runs within the trace of its call."""
        ...

    def environment(self, call: ToolCall) -> Mapping[str, str]:
        """Return the environment variables by which another process continues the trace of a call."""
        ...

    def within(self, call: ToolCall) -> AbstractContextManager[None]:
        """Return what makes the trace of a call the present one: for what the log says of the call."""
        ...


class Tracer(Protocol):
    """An observer that observes each run by an object of its own."""

    def __call__(self, event: Event) -> None:
        """See an event, as every `Observer` does; the object of the run has seen it, too."""
        ...

    def trace_run(self, run: TracedRun) -> RunTrace:
        """Return what observes this run."""
        ...

    def record_served(self, attributes: Mapping[str, str], seconds: float) -> None:
        """Count a request of an MCP client that was answered."""
        ...


Notifier: TypeAlias = Callable[[ApprovalRequest], Any]
"""Told of each question that is stored and that nobody here has answered; a plain function or an async one. What it
raises is logged."""
