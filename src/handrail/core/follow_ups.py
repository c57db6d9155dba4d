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

from msgspec import Struct
from msgspec.structs import replace

from handrail import logs
from handrail.calls import ToolCall, ToolResult
from handrail.core import results
from handrail.core.admission import Tell, refuse_call
from handrail.core.batch import Batch, CallPosition, CallState
from handrail.core.retries import internal
from handrail.effects import Raised
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


def make_follow_ups(batch: Batch, stem: str, tell: Tell | None) -> list[FollowUp]:
    """Return the steps that follow the calls of a batch that is done.

    Args:
        stem: What names the turn, for the keys of steps that follow a read.
        tell: Learns of a function that raised when it was asked for a step's arguments.
    """
    found = []
    for state, result in zip(batch.states, batch.collect_results(), strict=True):
        if (
            state.admitted is not None
            and result.ok
            and (then := state.admitted.tool.then) is not None
        ):
            step = _step(state, result, then, stem, len(batch.states), tell)
            found += [step] if step else []
    return found


def _step(
    state: CallState,
    result: ToolResult,
    then: Then,
    stem: str,
    width: int,
    tell: Tell | None,
) -> FollowUp | None:
    admitted = state.admitted
    assert admitted is not None
    # The write's key names the step, so a write that an earlier call made is not followed a second time.
    act = result.done_under or admitted.key or f"{stem}/{state.place}"
    key = f"{admitted.tool.name}/{act}/then"
    call = ToolCall(f"{state.call.id}.then", then.tool.name)
    position = CallPosition(state.place + width, key)
    try:
        given = then.fill_arguments(
            admitted.tool.with_defaults(admitted.arguments), results.plain(result.value)
        )
        if given is None:
            return None
        if not isinstance(given, dict):
            given = dict(given)
        return FollowUp(
            state,
            then.tool,
            replace(call, arguments=keys.canonical(results.plain(given))),
            position,
        )
    except Exception as error:
        # a template that looks at what is not there, or the author's own function
        raised = Raised(error)
        logs.log_exception(
            f"the step {call.name} after {state.call.name} was not made (reference {raised.reference})",
            error,
        )
        if tell is not None:
            tell(AttemptFailed(call, 0, f"not called: {raised.words}", None))
        return FollowUp(
            state,
            then.tool,
            call,
            position,
            refuse_call(call, internal(call.name, raised.reference)),
        )


def note_follow_up(
    batch: Batch, step: FollowUp, became: ToolResult, further: ToolResult | None = None
) -> None:
    """Put beside a call's result what became of the step that followed it, and of what `further` followed that."""
    at = step.state.index
    result = batch.results[at]
    assert result is not None
    batch.followed[at] = became if further is None or further.ok else further
    how = "returned" if became.ok else "failed"
    note = f"`{step.tool.name}` was called next, by rule, so do not call it for this; it {how}: {became.text}"
    told = results.with_note(result.text, note, None if result.note else result.value)
    batch.results[at] = replace(
        result, note="; ".join(filter(None, (result.note, note))), text=told
    )


def with_steps(tools: Iterable[BaseTool]) -> Iterator[BaseTool]:
    """Yield these tools, and those that follow them and are not among them."""
    given = list(tools)
    seen = {id(tool) for tool in given}
    yield from given
    for tool in given:
        while tool.then is not None:
            tool = tool.then.tool
            if id(tool) in seen:
                break
            seen.add(id(tool))
            yield tool
