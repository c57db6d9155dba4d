"""The fixed steps that follow the calls of a turn: what `then=` declares, as calls of their own.

They are made once all calls of the turn have ended and are recorded, so a crash between a call and its step costs
neither: who goes on with the run finds the call's result and makes the step from it.

Rule 1: a step follows a call that succeeded, and no other.
Rule 2: a step depends on the recorded call alone: its arguments, its plain result, its place, and the key under which
        the ledger has the write (for a repeated write, the key of the first call).
Rule 3: the model made one call and reads one result; what became of the step is a note beside it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import cast

from msgspec import Struct
from msgspec.structs import replace

from handrail import logs
from handrail.calls import ToolCall, ToolResult
from handrail.core import results
from handrail.core.admission import Admitted, Tell, refuse_call
from handrail.core.batch import Batch, CallPosition, CallState
from handrail.core.retries import internal
from handrail.effects import Raised
from handrail.errors import Code, Failure
from handrail.events import AttemptFailed
from handrail.tools import keys
from handrail.tools.tool import BaseTool, Then


class FollowUp(Struct, frozen=True):
    """A step that follows a call; with a `refusal` it cannot be called, and nothing runs."""

    state: CallState
    tool: BaseTool
    call: ToolCall
    position: CallPosition
    refusal: ToolResult | None = None

    @property
    def then(self) -> Then | None:
        """Its declaration; None where the call that it follows was refused."""
        return None if self.state.admitted is None else self.state.admitted.tool.then

    @property
    def is_made_of_result(self) -> bool:
        """Whether its arguments are made of the result of the call that it follows."""
        then = self.then
        return then is None or callable(then.arguments) or "result" in then.names

    @property
    def configured(self) -> list[str]:
        """What the declaration of the step says itself, such as a destination."""
        then = self.then
        if then is None or callable(then.arguments):
            return []
        return [text for text in then.arguments.values() if isinstance(text, str)]


def make_follow_ups(batch: Batch, stem: str, tell: Tell | None) -> list[FollowUp]:
    """Return the steps that follow the calls of a batch that is done.

    Args:
        stem: What names the turn, for the keys of steps that follow a read.
        tell: Learns of a function that raised when it was asked for a step's arguments.
    """
    follow_ups: list[FollowUp] = []
    width = len(batch.states)
    for state, result in zip(batch.states, batch.collect_results(), strict=True):
        admitted = state.admitted
        if state.refused is not None and state.refused.then is not None and result.ok:
            follow_ups.append(_refuse_follow_up(state, state.refused.then, width))
        if admitted is None or admitted.tool.then is None or not result.ok:
            continue
        # The write's key names the step, so a write that an earlier call made is not followed a second time.
        act = result.done_under or admitted.key or f"{stem}/{state.place}"
        position = CallPosition(state.place + width, f"{admitted.tool.name}/{act}/then")
        step = _make_follow_up(state, admitted, result, position=position, tell=tell)
        if step is not None:
            follow_ups.append(step)
    return follow_ups


def _refuse_follow_up(state: CallState, then: Then, width: int) -> FollowUp:
    """Return the step after a call that was carried out before and would be refused now: it cannot be made out."""
    call = ToolCall(f"{state.call.id}.then", then.tool.name)
    message = f"`{state.call.name}` was done before the run was interrupted, and would be refused now, so `{call.name}`"
    if then.tool.writes:
        failure = Failure(
            Code.IN_DOUBT,
            f"{message} was not called now; whether it was called before is not known.",
            "Check with a reading tool whether it happened; if there is none, tell the user.",
        )
    else:
        failure = Failure(
            Code.NOT_PERMITTED,
            f"{message} was not called.",
            "Go on without it, or tell the user.",
        )
    position = CallPosition(state.place + width, "")
    return FollowUp(state, then.tool, call, position, refuse_call(call, failure))


def _make_follow_up(
    state: CallState,
    admitted: Admitted,
    result: ToolResult,
    *,
    position: CallPosition,
    tell: Tell | None,
) -> FollowUp | None:
    """Return the step that follows a call; None if its declaration wants none for these values."""
    then = cast(Then, admitted.tool.then)
    call = ToolCall(f"{state.call.id}.then", then.tool.name)
    try:
        arguments = _fill_arguments(then, admitted, result)
    except Exception as error:
        # a template that looks at what is not there, or the author's own function
        raised = Raised(error)
        logs.log_exception(
            f"the step {call.name} after {state.call.name} was not made (reference {raised.reference})",
            error,
        )
        if tell is not None:
            tell(AttemptFailed(call, 0, f"not called: {raised.words}", None))
        refusal = refuse_call(call, internal(call.name, raised.reference))
        return FollowUp(state, then.tool, call, position, refusal)
    if arguments is None:
        return None
    return FollowUp(state, then.tool, replace(call, arguments=arguments), position)


def _fill_arguments(then: Then, admitted: Admitted, result: ToolResult) -> str | None:
    """Return a step's arguments as JSON; None if it is not to be made."""
    arguments = then.fill_arguments(
        admitted.tool.with_defaults(admitted.arguments), results.plain(result.value)
    )
    if arguments is None:
        return None
    return keys.canonical(results.plain(dict(arguments)))


def note_follow_up(
    batch: Batch, step: FollowUp, result: ToolResult, further: ToolResult | None = None
) -> None:
    """Put beside a call's result that of the step that followed it, and of the one that followed that step.

    Args:
        further: The result of the step after the step, if there was one.
    """
    index = step.state.index
    first = batch.results[index]
    assert first is not None
    batch.followed[index] = result if further is None or further.ok else further
    how = "returned" if result.ok else "failed"
    note = f"`{step.tool.name}` was called next, by rule, so do not call it for this; it {how}: {result.text}"
    text = results.with_note(first.text, note, None if first.note else first.value)
    notes = "; ".join(filter(None, (first.note, note)))
    batch.results[index] = replace(first, note=notes, text=text)


def with_steps(tools: Iterable[BaseTool]) -> Iterator[BaseTool]:
    """Yield these tools, and those that follow them and are not among them."""
    declared = list(tools)
    seen = {id(tool) for tool in declared}
    yield from declared
    for tool in declared:
        while tool.then is not None:
            tool = tool.then.tool
            if id(tool) in seen:
                break
            seen.add(id(tool))
            yield tool
