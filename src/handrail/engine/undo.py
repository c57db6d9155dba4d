"""The writes of a run that its tools can take back, offered to a person.

A write declares `hr.Write(compensate=...)`, a function that gets its arguments and its `result`. Undoing is a write
like any other, with a key of its own, so that it happens at most once too; whether it restores the world is up to the
tool.
Undoing a write frees its key, so that the same write can be made again.

Rule 1: the ledger says what has happened, not the journal: a process may have died between the two. Only `done` writes
        of this run are offered; one in doubt is first to be resolved there.
Rule 2: the newest first, as one takes steps back.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Generator, Mapping, Sequence
from functools import partial
from typing import Any

from msgspec import Struct

from handrail.calls import ToolResult
from handrail.core.admission import Admitted, ParsedCall, admit, parse_call
from handrail.core.follow_ups import with_steps
from handrail.core.policy import Policy
from handrail.credentials.secret import reveal_all
from handrail.effects import AGAIN
from handrail.engine.approvals import load_edits
from handrail.errors import ConfigError, Failure, Json
from handrail.futures import StoreAnswer
from handrail.journal import codec
from handrail.ports import LedgerStore
from handrail.records import StoredRun, WriteRecord
from handrail.tools import keys
from handrail.tools.function_tool import FunctionTool
from handrail.tools.settings import Write
from handrail.tools.tool import BaseTool, missing_injection
from handrail.tools.toolset import Toolset
from handrail.workers.threads import ThreadPool

_MOST_WRITES = 10_000
"""Of one run. What was written before these is not offered."""

_NOTHING: Mapping[str, Json] = {"type": "object", "properties": {}}


class Undoable(Struct, frozen=True):
    """A write that can be taken back.

    Attributes:
        step: Its place in the run, which names it for `undo`.
        value: Its result.
        write: The ledger's record of the write.
    """

    step: str
    tool: str
    arguments: Mapping[str, Json]
    value: Json
    write: WriteRecord


def undoable(
    store: object,
    stored: StoredRun,
    tools: Toolset,
    *,
    injected: Mapping[str, Any],
    threads: ThreadPool,
) -> Generator[StoreAnswer[Any], Any, list[Undoable]]:
    """Yield the store's answers; return the writes of a run that its tools can take back, the newest first.

    Args:
        injected: What the caller injects, which rules of its tools may look at.
        threads: Where its calls are admitted again, which calls functions of its tools' authors.

    Raises:
        ConfigError: The store has no ledger that can be read.
        MissingInjection: A rule of a tool looks at a value that `injected` does not have.
    """
    run_id = stored.record.run_id
    if not isinstance(store, LedgerStore):
        raise ConfigError(
            "this store has no ledger that can be read, so nothing that a run wrote can be taken back"
        )
    done = yield store.list_writes(state="done", run_id=run_id, most=_MOST_WRITES)
    edits = yield from load_edits(store, run_id)
    writes = _Writes(done)
    all_tools = Toolset(with_steps(tools))
    matches: list[Undoable] = yield threads.call(
        partial(
            _match_writes, stored, all_tools, writes, edits=edits, injected=injected
        )
    )
    return matches


def release_key(
    store: object, undone: Undoable, result: ToolResult
) -> Generator[StoreAnswer[Any], Any, None]:
    """Yield the store's answers; free the key of a write if it was taken back."""
    if result.ok and isinstance(store, LedgerStore):
        write = undone.write
        yield store.release(
            write.scope, write.key, fence=write.fence, by=f"{UNDO_OF}{undone.step}"
        )


UNDO_OF = "undo of "
"""What the ledger's `resolved_by` begins with for a write that was taken back; the step follows."""


class _Writes:
    """The writes of a run that the ledger records as `done`, each matched with at most one call."""

    def __init__(self, writes: Sequence[WriteRecord]) -> None:
        self._left = list(reversed(writes))

    def take(
        self, call: Admitted, result: ToolResult | None, *, by_code: bool
    ) -> WriteRecord | None:
        """Return the write of a call, once; None where this run did not perform it.

        The key of a step after a call (`then=`) is not in the journal, so its write is found by its fingerprint.
        """
        of_tool = [write for write in self._left if write.tool == call.tool.name]
        repeated = f"{call.key}{AGAIN}"
        matching = [
            write
            for write in of_tool
            if write.key == call.key or write.key.startswith(repeated)
        ]
        if not matching and by_code:
            fingerprint = keys.fingerprint(
                call.tool.name, call.tool.write.version, call.arguments, call.identity
            ).hex()
            matching = [write for write in of_tool if write.fingerprint == fingerprint]
            equal = [
                write
                for write in matching
                if result is not None and write.value == result.value
            ]
            matching = equal or matching
        if not matching:
            return None
        self._left.remove(matching[0])
        return matching[0]


def _match_writes(
    stored: StoredRun,
    tools: Toolset,
    writes: _Writes,
    *,
    edits: Mapping[str, Mapping[str, Json]],
    injected: Mapping[str, Any],
) -> list[Undoable]:
    run_id = stored.record.run_id
    undoables = []
    results = {
        step.key: codec.result_from_json(step.body)
        for step in stored.steps
        if step.kind == "call"
    }
    for step, position, call, finish in codec.calls_in(stored.steps):
        parsed = parse_call(call, tools, finish)
        if (
            isinstance(parsed, Failure)
            or parsed.tool.write.compensate is None
            or step.turn < stored.record.forked_at
        ):
            continue  # what comes before a fork is its parent's
        if position in edits:
            parsed = ParsedCall(call, parsed.tool, dict(edits[position]))
        turn, _, index = position.partition(".")
        admitted = admit(
            parsed,
            Policy(max_permission="admin"),
            keys.default_key(run_id, int(turn), int(index)),
            injected=injected,
        )
        if isinstance(admitted, Failure):
            continue
        write = writes.take(
            admitted, results.get(position), by_code=step.kind == "call"
        )
        if write is not None:
            undoables.append(
                Undoable(
                    position, admitted.tool.name, admitted.arguments, write.value, write
                )
            )
    return undoables[::-1]


def choose_writes(
    offered: Sequence[Undoable], run_id: str, steps: Sequence[str] | None
) -> list[Undoable]:
    """Return the writes of these steps of a run, in the order offered; all that is offered without steps.

    Raises:
        ConfigError: A step is none of the offered.
    """
    by_step = {each.step: each for each in offered}
    if strange := [step for step in steps or () if step not in by_step]:
        what = ", ".join(f"{each.step} ({each.tool})" for each in offered) or "nothing"
        raise ConfigError(
            f"step {strange[0]!r} of run {run_id!r} cannot be taken back; what can is {what}"
        )
    return [each for each in offered if steps is None or each.step in steps]


def make_undo_tool(
    undo: Undoable, tools: Toolset, run_id: str, *, injected: Mapping[str, Any]
) -> FunctionTool:
    """Return the write that takes this one back.

    Raises:
        MissingInjection: `compensate` takes a value that `injected` does not have.
    """
    tool: BaseTool = Toolset(with_steps(tools))[undo.tool]
    compensate: Callable[..., Any] = tool.write.compensate or _nothing_to_do
    bound = tool.bind(dict(undo.arguments))
    arguments = {} if isinstance(bound, Failure) else dict(bound)
    for name in tool.injected_into(compensate):
        if name not in injected:
            raise missing_injection(tool, name)
        arguments |= reveal_all({name: injected[name]})

    def take_back() -> Any:
        return compensate(**arguments, result=undo.value)

    async def take_back_later() -> Any:
        return await compensate(**arguments, result=undo.value)

    key = f"undo/{run_id}/{undo.step}/{undo.write.fence}"
    return FunctionTool(
        take_back_later if inspect.iscoroutinefunction(compensate) else take_back,
        name=f"undo_{tool.name}",
        description=f"Take back {tool.name}, step {undo.step} of run {run_id}.",
        parameters=_NOTHING,
        effect="write",
        # another for each time that the act was performed; a template, in which braces are doubled
        key=key.replace("{", "{{").replace("}", "}}"),
        timeout_s=tool.timeout_s,
        # two writes of one tool are two things to take back, however alike they are
        write=Write(version=key),
    )


def _nothing_to_do(**_: Any) -> None:
    """Stand in where a tool has lost its compensation meanwhile; `undoable` offers no such one."""
