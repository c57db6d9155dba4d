"""The loop between a model and its tools: ask, carry out the calls, feed back, until there is an answer.

Like the execution of a call it is a generator that yields what must happen and performs nothing:

    AskModel  -> Turn
    RunCalls  -> Batch, done: one result per call, in order

Rule 1: nothing that a model does ends a run with an exception; every end has a status and a reason.
Rule 2: the history is valid JSON always: malformed arguments never go back, because strict servers refuse every later
        turn that holds them.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Generator, Iterable, Sequence
from typing import Any, Literal, TypeAlias

from msgspec import Struct, field
from msgspec.structs import replace

from handrail.calls import ToolCall, ToolResult
from handrail.core import budgets
from handrail.core.batch import Batch
from handrail.core.budgets import Budget, Spent
from handrail.core.flow import FlowState
from handrail.core.history import as_history
from handrail.core.loop_detection import LoopDetector, detect_loops
from handrail.core.results import as_text
from handrail.core.run_settings import RunSettings
from handrail.core.structured_output import Answer, OutputTracker, to_the_model
from handrail.core.trust import Trust
from handrail.core.writes import StartedWrites
from handrail.errors import PENDING, Code, Failure
from handrail.events import AnswerRefused, AnswerTaken
from handrail.messages import AssistantMessage, Message, ToolMessage, Turn, UserMessage
from handrail.parsing import jsontext
from handrail.tools import keys
from handrail.tools.tool import BaseTool
from handrail.tools.toolset import Toolset

Status: TypeAlias = Literal[
    "done",
    "stopped",
    "budget",
    "waiting",
    "refused",
    "cut",
    "invalid",
    "failed",
    "cancelled",
    "moved",
]
"""The status of a run.

`done` answered; `stopped` repeated itself; `budget` spent what it may; `waiting` for a person; `refused` the model
declined; `cut` its answer was cut by length; `invalid` no answer had the form that was asked for; `failed` the model
could not be asked; `cancelled` by a person; `moved` somebody else has taken it over.
"""


_MOST_NAMES = 32
"""Of how many calls of a run the names are remembered, so that an idle run takes little memory."""


class Progress(Struct):
    """How far a run has come: everything that its next turn depends on."""

    messages: list[Message] = field(default_factory=list)
    spent: Spent = field(default_factory=Spent)
    repeats: LoopDetector = field(default_factory=LoopDetector)
    turn: int = 0
    reads_on: bool = False
    """Some result was cut, so the model is shown `read_result`."""
    nonce: str = ""
    """Part of the default keys of writes if a process counts the turns, and not a journal."""
    round_name: str = ""
    """What the last turn belonged to, as the caller calls it; see `Runtime.calls`."""
    last_names: Sequence[str] = ()
    """The names of the last turns' calls in every process, as far as a turn may be handed over again."""
    trust: Trust = field(default_factory=Trust)
    """What the run has read, and from whom. Of all its rounds: a new question does not make it forget."""
    started: StartedWrites | None = None
    """What calls that are made again may have written before, once the ledger was asked for that."""
    out_of_reach: set[str] = field(default_factory=set)
    """The keys of writes of the run without an end that today's declarations do not reach."""

    def begin_round(self, name: str) -> None:
        """Begin a new round: a budget and the search for loops count within one round of a conversation."""
        self.round_name = name
        self.last_names = ()
        self.spent = Spent()
        self.repeats = LoopDetector()

    def note_names(self, names: Sequence[str]) -> bool:
        """Note the names of calls; return whether the same ones were handed over lately."""
        if not names or not all(names):
            return False
        if self.knows_names(names):
            return True
        self.last_names = (*self.last_names, *names)[-_MOST_NAMES:]
        return False

    def knows_names(self, names: Sequence[str]) -> bool:
        """Whether calls of these names were handed over lately."""
        return bool(names) and set(names).issubset(self.last_names)


class AskModel(Struct):
    """Ask the model for its next turn, showing it these tools."""

    messages: Sequence[Message]
    tools: Toolset
    number: int
    choice: str = ""
    """Which call it must make, or `none`, as `Options.tool_choice` says it; empty leaves it to the run's options."""


class RunCalls(Struct):
    """Carry out the calls of a turn, with the tools that the model was shown."""

    turn: Turn
    tools: Toolset
    number: int


class Ending(Struct, frozen=True):
    """How a run ended, and why, as a sentence for people; `output` is the value of an answer of a given form."""

    status: Status
    reason: str = ""
    text: str = ""
    output: Any = None


Conversation: TypeAlias = Generator[AskModel | RunCalls, Any, Ending]


class _Parts(Struct):
    """What the steps of one conversation have in common; see `conversation`."""

    progress: Progress
    budget: Budget
    settings: RunSettings
    output: OutputTracker | None
    flow: FlowState | None


def conversation(
    progress: Progress,
    tools: Callable[[], Toolset],
    budget: Budget,
    settings: RunSettings,
    started: float,
    output: OutputTracker | None = None,
    flow: FlowState | None = None,
) -> Conversation:
    """Yield what must happen until the run is over; return how it ended.

    Args:
        tools: Gives the tools of the next turn; asked once a turn, so that a set may change from step to step.
        started: When the run began, on `settings.now`.
        output: The form that the answer must have, if any.
        flow: Which calls must be made or must not, if there are rules for it.
    """
    parts = _Parts(progress, budget, settings, output, flow)
    spent = progress.spent
    while True:
        reason = budgets.find_stop_reason(budget, spent, settings.now() - started)
        if reason:
            return Ending("budget", reason, last_text(progress.messages))
        progress.turn += 1
        shown = tools()
        choice = ""
        if flow is not None:
            flow.start_turn(progress.turn)
            choice = flow.tool_choice(shown)
        turn: Turn = yield AskModel(progress.messages, shown, progress.turn, choice)
        if not _is_wait_of_program(turn, progress.messages):
            spent.turns += 1
        spent.usage += turn.usage
        if not turn.calls:
            ending = _take_answer(parts, turn)
        else:
            outcome = _TurnOutcome(split_glued_calls(turn, shown), [])
            calls = outcome.turn
            if output is not None:
                calls = output.without_answers(calls)
            batch: Batch | None = None
            if calls.calls:
                batch = yield RunCalls(calls, shown, progress.turn)
            ending = _take_calls(parts, outcome, calls, batch)
            # nothing of a turn is held while the model is asked for the next one
            del batch
        if ending is not None:
            return ending


def _is_wait_of_program(turn: Turn, messages: Sequence[Message]) -> bool:
    """Whether all calls of the turn come from a program that the turn before had started."""
    if not (turn.calls and turn.calls[0].program):
        return False
    programs = {call.program for call in turn.calls}
    if "" in programs:
        return False
    for message in reversed(messages):
        if isinstance(message, AssistantMessage):
            return programs <= {call.program for call in message.turn.calls}
    return False


def _take_answer(parts: _Parts, turn: Turn) -> Ending | None:
    """Take a turn without calls; None when the run goes on."""
    progress = parts.progress
    progress.messages.append(AssistantMessage(turn))
    ending = _ending_by_finish(turn)
    if ending.status != "done":
        return ending
    if parts.flow is not None:
        complaint, omitted = parts.flow.observe_turn(None, answers=True)
        if omitted:
            return Ending("stopped", omitted, turn.text)
        if complaint:
            progress.messages.append(UserMessage(complaint))
            return None
    if parts.output is None:
        return ending
    answer = parts.output.read_text(turn)
    if isinstance(answer, Failure) and not parts.output.is_exhausted:
        progress.messages.append(UserMessage(to_the_model(answer)))
    return _ending_by_answer(
        answer, turn.text, parts.output, progress.turn, parts.settings
    )


class _TurnOutcome(Struct):
    """What came of a turn with calls, as the steps of `_take_calls` find it out.

    Attributes:
        turn: As it goes into the history.
    """

    turn: Turn
    results: list[ToolResult]
    ending: Ending | None = None
    stop_reason: str = ""
    """Why the run must stop unless it ends anyway."""
    complaint: str = ""
    """Why the model's answer is not taken yet, if a rule says so."""


def _take_calls(
    parts: _Parts, outcome: _TurnOutcome, calls: Turn, batch: Batch | None
) -> Ending | None:
    """Add the calls of a turn with their results to the history; None when the run goes on.

    Args:
        calls: The turn without the calls that stand for its answer.
        batch: Its calls as they were carried out, if there were any.
    """
    progress = parts.progress
    output = parts.output
    answers = calls is not outcome.turn
    if batch is not None:
        outcome.results, outcome.stop_reason = detect_loops(progress.repeats, batch)
        if batch.prescribes:
            outcome.ending = _ending_by_tools(batch, output)
    ends_early = False
    if parts.flow is not None:
        ends_early = _apply_flow(parts.flow, batch, outcome, answers=answers)
    if output is not None and answers:
        _take_answer_calls(parts, output, outcome)
    _take_unusual_results(parts, outcome)
    progress.messages.append(AssistantMessage(outcome.turn))
    progress.messages.extend(map(ToolMessage, outcome.results))
    if ends_early:
        progress.messages.append(UserMessage(outcome.complaint))
    if outcome.ending is None and outcome.stop_reason:
        return Ending("stopped", outcome.stop_reason, outcome.turn.text)
    return outcome.ending


def _apply_flow(
    flow: FlowState, batch: Batch | None, outcome: _TurnOutcome, *, answers: bool
) -> bool:
    """Hold a turn to the rules; return whether a tool that ends the run was called before its time."""
    ends = outcome.ending is not None and outcome.ending.status == "done"
    outcome.complaint, omitted = flow.observe_turn(batch, answers=ends or answers)
    outcome.stop_reason = omitted or outcome.stop_reason
    if not (outcome.complaint and ends):
        return False
    outcome.ending = None
    return True


def _take_answer_calls(
    parts: _Parts, output: OutputTracker, outcome: _TurnOutcome
) -> None:
    """Read the calls of a turn that stand for the answer, and add their results to those of the tools."""
    turn = outcome.turn
    if outcome.complaint:
        refusal = Failure(Code.NOT_PERMITTED, outcome.complaint)
        outcome.results = output.results(turn, outcome.results, refusal)
        return
    answer = output.read_call(turn)
    outcome.results = output.results(turn, outcome.results, answer)
    if outcome.ending is None:
        text = turn.text or turn.calls[0].arguments
        outcome.ending = _ending_by_answer(
            answer, text, output, parts.progress.turn, parts.settings
        )


def _take_unusual_results(parts: _Parts, outcome: _TurnOutcome) -> None:
    """Take results that failed, were cut, or whose arguments were repaired."""
    # A list and no generator: nearly every turn has none of them, and this is quicker.
    if not [
        each for each in outcome.results if each.failure or each.repairs or each.handle
    ]:
        return
    progress = parts.progress
    if any(result.handle for result in outcome.results):
        progress.reads_on = True
    outcome.turn = normalize_turn(outcome.turn, outcome.results)
    used_up = budgets.calls_used_up(parts.budget, progress.spent)
    outcome.ending = (
        _ending_by_results(outcome.turn, outcome.results, used_up) or outcome.ending
    )


# ---------------------------------------------------------------------- how a run ends


def _ending_by_finish(turn: Turn) -> Ending:
    """Return how a run ends with a turn without calls."""
    match turn.finish:
        case "length":
            return Ending(
                "cut", "the model's answer was cut by its length limit", turn.text
            )
        case "refused":
            return Ending(
                "refused", turn.refusal or "the model declined to answer", turn.text
            )
        case "error":
            return Ending("failed", "the model's answer broke off", turn.text)
    if turn.waits_for:
        return Ending(
            "failed", f"the model's provider waits for {turn.waits_for}", turn.text
        )
    if turn.refusal:
        return Ending("refused", turn.refusal, turn.text)
    return Ending("done", text=turn.text)


def _ending_by_answer(
    answer: Answer | Failure,
    text: str,
    output: OutputTracker,
    turn: int,
    settings: RunSettings,
) -> Ending | None:
    """Return how the run ends with this answer; None when the model may try again."""
    if isinstance(answer, Answer):
        if settings.tell is not None:
            settings.tell(AnswerTaken(turn, output.way, answer.repairs))
        return Ending("done", "", answer.text, answer.value)
    if settings.tell is not None:
        settings.tell(AnswerRefused(turn, output.way, answer))
    if not output.is_exhausted:
        return None
    attempts = "its one attempt"
    if output.tried > 1:
        attempts = f"{output.tried} attempts"
    return Ending(
        "invalid",
        f"no answer had the form that was asked for in {attempts}: {answer.message}",
        text,
    )


def _ending_by_results(
    turn: Turn, results: Sequence[ToolResult], used_up: str
) -> Ending | None:
    """Return how the run ends by its results: nothing is left to spend, or a call waits for a person."""
    if used_up and all(
        result.failure and result.failure.code == Code.BUDGET_EXHAUSTED
        for result in results
    ):
        # every result says so, and the model had its chance to answer
        return Ending("budget", used_up, turn.text)
    if waiting := describe_pending(results):
        return Ending("waiting", waiting, turn.text)
    return None


def describe_pending(results: Iterable[ToolResult]) -> str:
    """Return what a run waits for, as a clause for people; empty when it waits for nothing."""
    names: dict[str, list[str]] = {}
    for result in results:
        if result.failure is not None and result.failure.code in PENDING:
            names.setdefault(result.failure.code, []).append(result.name)
    parts = []
    if approvals := names.get(Code.APPROVAL_PENDING):
        parts.append(f"waiting for approval of {', '.join(approvals)}")
    if deferred := names.get(Code.RESULT_PENDING):
        parts.append(f"waiting for the result of {', '.join(deferred)}")
    return " and ".join(parts)


def _ending_by_tools(batch: Batch, output: OutputTracker | None) -> Ending | None:
    """Return how the run ends by what its tools declare: a step waits for a person, or a result is the answer."""
    if waiting := describe_pending(batch.followed.values()):
        return Ending("waiting", waiting)
    for state, result in zip(batch.states, batch.collect_results(), strict=True):
        last_step = batch.followed.get(state.index, result)
        ends_run = state.admitted is not None and state.admitted.tool.limits.ends_run
        if ends_run and result.ok and last_step.ok:
            return _ending_by_result(result, output)
    return None


def _ending_by_result(result: ToolResult, output: OutputTracker | None) -> Ending:
    """Return how the run ends with the result of a tool that ends it, held to the form that is asked for."""
    if output is None:
        return Ending("done", "", result.text, result.value)
    answer = output.plan.read(as_text(result.value))
    if isinstance(answer, Failure):
        return Ending(
            "invalid", f"{result.name} ends the run, and {answer.message}", result.text
        )
    return Ending("done", "", result.text, answer.value)


def last_text(messages: Sequence[Message]) -> str:
    """Return the last text of the model."""
    texts = (
        message.turn.text
        for message in reversed(messages)
        if isinstance(message, AssistantMessage)
    )
    return next(filter(None, texts), "")


# ---------------------------------------------------------------------- the history stays valid


def split_glued_calls(turn: Turn, tools: Toolset) -> Turn:
    """Return the turn with glued calls (`{..}{..}` as one call's arguments) taken apart, for tools that only read.

    A write is left as it is, and refused: of glued arguments nobody knows which the model meant.
    """
    for call in turn.calls:
        if call.arguments.find("}", 0, -1) >= 0 and _GLUE.search(call.arguments):
            break
    else:
        return turn  # no object begins right after another one
    calls = [part for call in turn.calls for part in _split_call(call, turn, tools)]
    if len(calls) == len(turn.calls):
        return turn
    return replace(turn, calls=calls, raw=None)


_GLUE = re.compile(r"\}[ \t\r\n]*\{")
"""Between two objects in a row there is nothing but white space; between items of a list there is a comma."""


def _split_call(call: ToolCall, turn: Turn, tools: Toolset) -> Sequence[ToolCall]:
    texts = jsontext.split(call.arguments, turn.finish)
    if not texts:
        return (call,)
    tool = tools.resolve(call.name)
    if not isinstance(tool, BaseTool) or tool.writes:
        return (call,)
    ids = [call.id, *(f"{call.id}_{n}" for n in range(2, len(texts) + 1))]
    return [
        replace(call, id=call_id, arguments=text)
        for call_id, text in zip(ids, texts, strict=True)
    ]


def normalize_turn(turn: Turn, results: Sequence[ToolResult]) -> Turn:
    """Return the turn as it may go back to a provider: with the arguments as they were parsed, or as text."""
    if not any(result.repairs or result.failure for result in results):
        return turn
    calls = [
        _normalize_call(call, result)
        for call, result in zip(turn.calls, results, strict=True)
    ]
    # What the provider sent beside the calls, its signatures above all, still goes back; a dialect writes the calls.
    if all(map(operator.is_, calls, turn.calls)):
        return turn
    return replace(turn, calls=calls)


def _normalize_call(call: ToolCall, result: ToolResult) -> ToolCall:
    if _is_plain(call, result):
        return call
    return replace(call, arguments=_as_read(call.arguments, result))


_UNREAD = {Code.BAD_JSON, Code.TRUNCATED_CALL, Code.UNKNOWN_TOOL}


def _is_plain(call: ToolCall, result: ToolResult) -> bool:
    """Whether the arguments are an object in strict JSON, judged by the call's result first."""
    if result.repairs or (result.failure and result.failure.code in _UNREAD):
        try:
            return isinstance(jsontext.loads(call.arguments), dict)
        except ValueError:
            return False
    return True


def _as_read(arguments: str, result: ToolResult) -> str:
    """Return the arguments with which the call was carried out; those that nobody could read are shown as text."""
    parsed = jsontext.parse(arguments)
    was_read = result.failure is None or result.failure.code != Code.BAD_JSON
    if was_read and isinstance(parsed, jsontext.Parsed):
        return keys.canonical(parsed.value)
    return as_history(arguments)
