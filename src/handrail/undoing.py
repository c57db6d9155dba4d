"""What a run has written and could take back: offered to a person after it failed or was cancelled, never promised.

A write declares `compensate=`, a function that gets its arguments and its `result`. Undoing is a write like any other,
with a key of its own, so that it happens at most once too; whether the world is then as it was is the tool's affair.

Rule 1: only writes that have certainly happened are offered; one in doubt is first to be resolved in the ledger.
Rule 2: the newest first, as one takes steps back.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from msgspec import Struct

from handrail import journal
from handrail.calls import ToolResult
from handrail.errors import ConfigError, Failure, Json
from handrail.following import with_steps
from handrail.lifecycle import admit, read
from handrail.policy import Policy, act
from handrail.records import Begun
from handrail.tools import BaseTool, FunctionTool
from handrail.toolset import Toolset

_NOTHING: Mapping[str, Json] = {"type": "object", "properties": {}}


class Undoable(Struct, frozen=True):
    """A write that can be taken back. `step` is its place in the run, and names it for `undo`."""

    step: str
    tool: str
    arguments: Mapping[str, Json]
    value: Json


def undoable(begun: Begun, tools: Toolset) -> list[Undoable]:
    """Return what a run has done and its tools can take back, the newest first."""
    tools = Toolset(with_steps(tools))
    results = {step.key: journal.result_from_json(step.body) for step in begun.steps if step.kind == "call"}
    found: dict[str, Undoable] = {}
    for step, place, call, finish in journal.calls_in(begun.steps):
        asked, result = read(call, tools, finish), results.get(place)
        if isinstance(asked, Failure) or result is None or not _is_own(asked.tool, result):
            continue
        admitted = admit(asked, Policy(max_permission="admin"))
        if not isinstance(admitted, Failure):
            # The same act again in one run was answered by the first one's result, unless it is meant twice.
            is_meant = asked.tool.repeatable or step.kind == "call"
            name = place if is_meant else act(asked.tool.name, admitted.arguments)
            found.setdefault(name, Undoable(place, asked.tool.name, admitted.arguments, result.value))
    return [*found.values()][::-1]


def _is_own(tool: BaseTool, result: ToolResult) -> bool:
    """Whether a result tells of a write that can be taken back, and that was this run's.

    A result that was repeated under a declared key may be another run's. Under the place of the call, which is the key
    otherwise, it is this run's, found again after a crash.
    """
    return tool.compensate is not None and result.ok and not (result.replayed and tool.key)


def taking_back(
    offered: Sequence[Undoable], tools: Toolset, run_id: str, steps: Sequence[str] | None
) -> list[FunctionTool]:
    """Return the writes that take these steps of a run back, in the order offered; all that is offered without steps.

    Raises:
        ConfigError: A step is none of the offered.
    """
    by_step = {each.step: each for each in offered}
    if strange := [step for step in steps or () if step not in by_step]:
        told = ", ".join(f"{each.step} ({each.tool})" for each in offered) or "nothing"
        raise ConfigError(f"step {strange[0]!r} of run {run_id!r} cannot be taken back; what can is {told}")
    tools = Toolset(with_steps(tools))
    wanted = [each for each in offered if steps is None or each.step in steps]
    return [_write_back(each, tools[each.tool], run_id) for each in wanted]


def _write_back(undo: Undoable, tool: BaseTool, run_id: str) -> FunctionTool:
    """Return the write that takes this one back."""
    compensate: Callable[..., Any] = tool.compensate or _nothing_to_do
    bound = tool.bind(dict(undo.arguments))
    arguments = {} if isinstance(bound, Failure) else dict(bound)

    def take_back() -> Any:
        return compensate(**arguments, result=undo.value)

    async def take_back_later() -> Any:
        return await compensate(**arguments, result=undo.value)

    return FunctionTool(
        take_back_later if inspect.iscoroutinefunction(compensate) else take_back,
        name=f"undo_{tool.name}",
        description=f"Take back {tool.name}, step {undo.step} of run {run_id}.",
        parameters=_NOTHING,
        effect="write",
        key=lambda: f"undo/{run_id}/{undo.step}",
        timeout_s=tool.timeout_s,
        repeatable=True,  # two writes of one tool are two things to take back, however alike they are
    )


def _nothing_to_do(**_: Any) -> None:
    """Stand in where a tool has lost its compensation meanwhile; `undoable` offers no such one."""
