"""Calls that were started before: by a process that died, or by one that was handed the same calls.

What is known of a call comes before what is allowed now. Between two processes a tool may have got another parameter,
rule or name, or a policy that denies it; a model that is told so, as if nothing had run, does the same thing twice.

Rule 1: a write whose call still reaches its row in the ledger goes on there, by its class. Any other is told as the
        ledger has it, and nothing of it is started again.
"""

from __future__ import annotations

from collections.abc import Sequence

from msgspec.structs import replace

from handrail.calls import ToolCall, ToolResult
from handrail.core import results, retries
from handrail.core.admission import Admitted, refuse_call
from handrail.core.policy import Decision
from handrail.core.run_settings import RunSettings
from handrail.core.trust import UNKNOWN
from handrail.core.writes import claim_for
from handrail.effects import AGAIN
from handrail.parsing import strictjson
from handrail.records import WriteRecord
from handrail.tools import keys
from handrail.tools.tool import BaseTool


class StartedWrites:
    """The writes of one run that were started and may have had an effect, as the ledger had them.

    Args:
        writes: The newest first.
        by_act: Whether they are found by what was asked for, too: where places are counted anew in each process.
    """

    def __init__(self, writes: Sequence[WriteRecord], *, by_act: bool = False) -> None:
        self._by_place: dict[str, WriteRecord] = {}
        self._by_act: dict[str, WriteRecord] = {}
        for write in writes:
            if write.state != "failed":
                self._by_place.setdefault(write.place or write.key, write)
                if by_act:
                    self._by_act.setdefault(write.fingerprint, write)

    def __bool__(self) -> bool:
        return bool(self._by_place)

    def find(self, call: ToolCall, place: str, *, by_code: bool) -> WriteRecord | None:
        """Return the write that a call started.

        Args:
            by_code: Code makes the call, and may make another one at this place than it did before.
        """
        write = self._by_place.get(place)
        if write is None and self._by_act:
            write = self._by_act.get(_act_of(call))
        if write is not None and by_code and write.tool != call.name:
            return None
        return write


def _act_of(call: ToolCall, version: str = "") -> str:
    """Return the fingerprint of a call as it is written, without what its tool may make of it."""
    arguments = strictjson.load_plain_object(call.arguments)
    if arguments is None:
        return ""
    return keys.fingerprint(call.name, version, arguments).hex()


def take_up(
    call: Admitted, write: WriteRecord, place: str, settings: RunSettings
) -> Admitted | None:
    """Return an admitted call as it reaches the row of the write that it started; None where it does not.

    The same arguments with another default are the same act: the ledger then compares what the call was before.

    Args:
        place: Of the call. A write that was found by its act has another one, and the ledger finds it by its act too.
    """
    if not call.traits.writes:
        return None
    claim = claim_for(call, settings)
    is_here = (write.place or write.key) == place
    row = (write.tool, write.key.partition(AGAIN)[0])
    if is_here and (claim.tool, claim.key) != row:
        return None
    fingerprint = bytes.fromhex(write.fingerprint)
    if claim.fingerprint == fingerprint:
        return call
    if _act_of(call.call, call.traits.version) == write.fingerprint:
        return replace(call, fingerprint=fingerprint)
    # the arguments that a person wrote are put in once the ledger has been looked at
    return call if is_here and call.verdict.decision is Decision.ASK else None


def tell_started(
    call: ToolCall, write: WriteRecord, tool: BaseTool | None, settings: RunSettings
) -> ToolResult:
    """Return the result of a call that was started before and does not go on: what the ledger knows of it."""
    # of a deferred tool the ledger has what its start returned, and the result comes from elsewhere
    if write.state != "done" or (tool is not None and tool.deferred):
        return refuse_call(call, retries.in_doubt(write.tool))
    failure = retries.too_large_again(write.value)
    if failure is not None:
        return refuse_call(call, failure)
    value = settings.redact(write.value)
    shaped = results.shape(value, settings.result_bytes)
    note = (
        "this was already done; the earlier result is repeated, nothing was done again"
    )
    if shaped.cut:
        note = f"{note}; {shaped.cut}; the rest was not stored"
    return ToolResult(
        call.id,
        call.name,
        value,
        text=results.with_note(shaped.text, note, value),
        replayed=True,
        note=note,
        label=UNKNOWN if tool is None else tool.label,
    )
