"""Plain calls: the first and the last step of a read that asks nobody, without a generator between them.

The first effect of such a call is always `Invoke`, and mostly the first answer is its result. So `batch` takes these
two steps here, and begins the generator of `execution` only when a call turns out to need a third. When both ways were
measured, a run of ten turns with four calls each cost 1.73 times the loop that anybody writes first with a generator
for each call, and 1.13 times without (`python -m benchmarks loop`).

Rule 1: both steps are those that `execution.execute` would take, and a result is shaped as it would be there. A
        property test in `tests/core/test_plain_calls.py` compares both ways.
"""

from __future__ import annotations

from typing import TypeGuard

from pydantic_core import from_json

from handrail.calls import ToolResult
from handrail.core import results
from handrail.core.admission import Admitted
from handrail.core.attempts import CallOutcome
from handrail.core.policy import Decision
from handrail.core.run_settings import RunSettings
from handrail.effects import Returned
from handrail.invisible import is_clean
from handrail.tools import materialize


def is_plain(call: Admitted) -> bool:
    """Whether a call is a read that asks nobody and touches nothing shared: its execution begins with `Invoke`."""
    traits = call.traits
    return not (
        traits.writes
        or call.resources
        or traits.is_rated
        or traits.deferred
        or call.verdict.decision is Decision.ASK
    )


def take_last_step(
    call: Admitted, outcome: Returned, settings: RunSettings
) -> ToolResult | None:
    """Return the result of a plain call whose first attempt returned, or None when its execution has more to do."""
    if call.repairs or call.note or outcome.size > materialize.LONG_BYTES:
        return None
    traits = call.traits
    value = outcome.value
    most_bytes = traits.result_bytes or settings.result_bytes
    text = results.encode_if_it_fits(value, most_bytes)
    # `_may_be_shown`, for the calls that there are most of
    if (
        type(text) is str
        and is_clean(text)
        and (settings.secrets is None or settings.secrets.text(text) == text)
    ):
        return ToolResult(
            call.call.id, traits.name, value, text=text, attempts=1, label=traits.label
        )
    # iterators are at their end by now: the text has what they gave
    if text is not None and outcome.has_iterators and materialize.has_iterators(value):
        outcome.value = from_json(text)
    return None


def shape_plainly(outcome: CallOutcome, settings: RunSettings) -> ToolResult | None:
    """Return the result of any call that succeeded, where its value is plain and all of it is shown; else None."""
    call = outcome.call
    value = outcome.value
    if call.repairs or call.note or outcome.note:
        return None
    if not (outcome.plain or materialize.is_plain(value, type(value))):
        return None
    traits = call.traits
    most_bytes = traits.result_bytes or settings.result_bytes
    body = outcome.body
    text: str | bytes | None
    if body is None:
        text = results.encode_if_it_fits(value, most_bytes)
    else:
        text = body.decode() if len(body) <= most_bytes else body
    if not _may_be_shown(text, settings):
        return None
    return ToolResult(
        call.call.id,
        traits.name,
        value,
        text=text,
        attempts=outcome.attempts,
        replayed=outcome.replayed,
        done_under=outcome.done_under,
        label=traits.label,
    )


def _may_be_shown(text: str | bytes | None, settings: RunSettings) -> TypeGuard[str]:
    """Whether a text is what the model may read: all of a value, with nothing to remove."""
    return (
        type(text) is str
        and is_clean(text)
        and (settings.secrets is None or settings.secrets.text(text) == text)
    )
