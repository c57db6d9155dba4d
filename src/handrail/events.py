"""What happens in a run, as it happens: one stream of events, from which console, command line and audit are made.

Rule 1: an event is plain data. It holds the model's text and the tool's values; redaction is the observer's duty, once.
Rule 2: events come in the order in which things happened. The last one of a call is its `CallFinished`, but for a
        `FinishedLate` or `LateResult`. It holds the call's own result; a model that repeats itself reads
        `REPEATED_CALL` instead.
Rule 3: every event names its run, so one observer may listen to many. A run signs its events as it tells them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal, TypeAlias

from msgspec import Struct

from handrail.calls import Label, ToolCall, ToolResult
from handrail.effects import Approval, Risk
from handrail.errors import Failure, Json
from handrail.messages import Delta, Turn


class RunEvent(Struct, frozen=True, kw_only=True):
    """What every event has.

    Attributes:
        run_id: The run that it belongs to. Observers see it; whoever makes an event leaves it empty.
    """

    run_id: str = ""


class RunStarted(Struct, frozen=True):
    """A run of a model begins, or goes on. Calls from elsewhere (`handle`, `call`) come without it.

    Attributes:
        by: Who resumed it, where that is somebody else than the person it acts for.
    """

    run_id: str
    model: str = ""
    by: str = ""


class ModelAsked(RunEvent, frozen=True):
    """The model is asked for the turn `turn` (from 1), with this many messages and tools."""

    turn: int
    messages: int
    tools: int


class ToolsSelected(RunEvent, frozen=True):
    """A selector shows the model these tools, by the strategy of that name, of as many that the policy permits."""

    turn: int
    strategy: str
    tools: Sequence[str]
    of: int


class HistoryMended(RunEvent, frozen=True):
    """The conversation that a run began with was not fit to send; each note says what was changed."""

    notes: Sequence[str]


class ContextFolded(RunEvent, frozen=True):
    """The window was filling: `results` old ones became handles, and the conversation has about `tokens` now."""

    results: int
    tokens: int


class Streamed(RunEvent, frozen=True):
    """A piece of the model's answer arrived."""

    delta: Delta


class ModelAnswered(RunEvent, frozen=True):
    """The model's answer is complete."""

    turn: int
    answer: Turn


class AnswerTaken(RunEvent, frozen=True):
    """The answer has the form that was asked for. `way` is how it was asked for; `repairs` names its repairs."""

    turn: int
    way: str
    repairs: Sequence[str] = ()


class AnswerRefused(RunEvent, frozen=True):
    """The answer has not the form that was asked for; the model reads why, while it may try again."""

    turn: int
    way: str
    failure: Failure


class AskedOtherwise(RunEvent, frozen=True):
    """The server refused a request that asked for the answer's form in the way `way`; it is asked in the way `now`."""

    way: str
    now: str
    reason: str


class CallAdmitted(RunEvent, frozen=True):
    """A call passed every check.

    Attributes:
        arguments: What the tool will get.
        repairs: Names of their repairs.
        key: Of a write; names its act.
        risk: The risk by which the policy judged it; `why` is the rule or the default that decided.
        pin: Digest of the tool as it describes itself.
        isolation: The isolation that the tool declares.
        tainted_by: The label of the first result from outside that the run had read by then; None without one.
    """

    call: ToolCall
    arguments: Mapping[str, Json]
    repairs: Sequence[str] = ()
    key: str = ""
    risk: Risk | Literal[""] = ""
    why: str = ""
    pin: str = ""
    isolation: str = ""
    tainted_by: Label | None = None


class ApprovalAsked(RunEvent, frozen=True):
    """A person is asked about a call."""

    call: ToolCall
    arguments: Mapping[str, Json]
    risk: Risk
    reason: str


class ApprovalGiven(RunEvent, frozen=True):
    """A person answered; `approval` is None when nobody was there."""

    call: ToolCall
    approval: Approval | None


class AttemptStarted(RunEvent, frozen=True):
    """The tool is started; `attempt` counts from 1."""

    call: ToolCall
    attempt: int


class Progressed(RunEvent, frozen=True):
    """A tool reports its progress: `done` of `total`, which is None where it does not know."""

    call: ToolCall
    done: float
    total: float | None = None
    note: str = ""


class AttemptFailed(RunEvent, frozen=True):
    """An attempt ended without a result. `retry_in_s` is None when it was the last one."""

    call: ToolCall
    attempt: int
    reason: str
    retry_in_s: float | None


class CallFinished(RunEvent, frozen=True):
    """A call has its one result; `seconds` counts from its admission, without what people took to answer.

    In a resumed run `recalled` marks the calls that had ended before: their results come from the journal, and nothing
    was done for them now.
    """

    call: ToolCall
    result: ToolResult
    seconds: float
    recalled: bool = False


class FinishedLate(RunEvent, frozen=True):
    """A tool that had been given up returned or raised after all; the model has read otherwise by now."""

    call: ToolCall
    value: Json = None
    error: str = ""


class LateResult(RunEvent, frozen=True):
    """The ledger refused how a write ended: a newer owner has it, or a person has resolved it meanwhile."""

    call: ToolCall
    scope: str
    key: str
    fence: int
    state: str
    value: Json = None


class HttpExchange(RunEvent, frozen=True):
    """One request and its answer as they were on the wire, secrets masked."""

    method: str
    url: str
    headers: Mapping[str, str]
    body: str
    status: int
    answer: str


class RunEnded(Struct, frozen=True):
    """A run is over. `status` and `reason` are those of `Run`."""

    run_id: str
    status: str
    reason: str


Event: TypeAlias = (
    RunStarted
    | ModelAsked
    | ToolsSelected
    | Streamed
    | HistoryMended
    | ContextFolded
    | ModelAnswered
    | AnswerTaken
    | AnswerRefused
    | AskedOtherwise
    | CallAdmitted
    | ApprovalAsked
    | ApprovalGiven
    | AttemptStarted
    | Progressed
    | AttemptFailed
    | CallFinished
    | FinishedLate
    | LateResult
    | HttpExchange
    | RunEnded
)
