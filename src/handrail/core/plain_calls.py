"""Plain calls: the steps of a call that asks nobody and goes well, without a generator between them.

The first effect of such a read is always `Invoke`, and mostly the first answer is its result. A write reserves what it
needs, is claimed, invoked and settled. So `batch` takes these steps here, and begins the generator of `execution` only
when a call turns out to need others; what the call was answered before is then given to the generator. When both ways
were measured, a run of ten turns with four reads each cost 1.73 times the loop that anybody writes first with a
generator for each call, and 1.13 times without (`python -m benchmarks loop`).

Rule 1: the steps are those that `execution.execute` would take, and a result is shaped as it would be there. Property
        tests in `tests/core/test_plain_calls.py` compare both ways.
Rule 2: `admit_quickly` admits what `parse_call` and `admit` would admit, with an equal result. It refuses nothing: what
        it is not certain of is theirs. A property test in `tests/core/test_quick_admission.py` compares both.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, TypeGuard

from msgspec import Struct
from pydantic_core import from_json

from handrail.calls import ToolCall, ToolResult
from handrail.core import results
from handrail.core.admission import Admitted
from handrail.core.attempts import CallOutcome, make_outcome, start_attempt
from handrail.core.policy import Decision, Policy
from handrail.core.redaction import KnownSecrets
from handrail.core.run_settings import RunSettings
from handrail.core.writes import claim_for
from handrail.effects import (
    Claim,
    Claimed,
    ClaimState,
    Effect,
    Reserve,
    Returned,
    Settle,
)
from handrail.errors import Failure
from handrail.invisible import is_clean
from handrail.parsing import strictjson
from handrail.tools import materialize
from handrail.tools.normal_form import normalize_arguments
from handrail.tools.tool import BaseTool


def admit_quickly(
    call: ToolCall, tool: BaseTool, policy: Policy, default_key: str = ""
) -> Admitted | None:
    """Return what `parse_call` and `admit` would return for an ordinary call; None leaves the call to them.

    It is one of a plain tool, with an object of one reading that fits unchanged, which the policy allows. A
    policy class of one's own is not asked here, since it would be asked twice about what it refuses.

    Args:
        default_key: The key of a write whose tool declares none, which no write is admitted without.
    """
    traits = tool.call_traits
    fits = traits.plain_check
    if fits is None or policy.__class__ is not Policy or call.program:
        return None
    if traits.writes:
        if not default_key:
            return None
    else:
        default_key = ""
    arguments = strictjson.load_plain_object(call.arguments)
    try:
        if arguments is None or not fits(arguments):
            return None
        bound = (
            traits.defaults | arguments if traits.as_written else tool.bind(arguments)
        )
        if type(bound) is Failure:
            return None
        # what decides by arguments, the ledger and resources see what the tool gets
        if policy.rules or default_key or traits.has_resource:
            arguments = normalize_arguments(arguments, bound)
        verdict = policy.judge(tool, arguments)
        if verdict.decision is not Decision.ALLOW:
            return None
        resources = tool.resolve_resources(arguments) if traits.has_resource else ()
    except KeyboardInterrupt:
        raise
    except BaseException:
        # what JSON cannot hold, or the author's own validator: `admit` says what it is
        return None
    return Admitted(
        call,
        tool,
        traits,
        arguments,
        bound,
        verdict,
        key=default_key,
        resources=resources,
    )


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


def is_plain_write(call: Admitted) -> bool:
    """Whether a call is a write that asks nobody, neither before it nor once the ledger has answered."""
    traits = call.traits
    return (
        traits.writes
        and not traits.may_ask_later
        and call.verdict.decision is not Decision.ASK
    )


class PlainWrite(Struct, eq=False):
    """A write that has gone well so far, and what it was answered.

    Attributes:
        asked: When the ledger was asked for its claim, on the run's clock.
        began: When its tool was started.
        returned: What its tool returned.
        outcome: How it ended, while its settlement is under way.
    """

    call: Admitted
    is_reserved: bool = False
    claim: Claim | None = None
    claimed: Claimed | None = None
    asked: float | None = None
    began: float | None = None
    returned: Returned | None = None
    outcome: CallOutcome | None = None

    def begin(self, settings: RunSettings) -> Effect[Admitted]:
        """Return the first effect."""
        call = self.call
        if call.resources or call.traits.is_rated:
            return Reserve(call)
        return self._make_claim(settings)

    def answer(
        self, answer: Any, settings: RunSettings
    ) -> Effect[Admitted] | ToolResult | None:
        """Return the next effect, or the result; None where the execution has to go on, from this answer."""
        call = self.call
        if self.outcome is not None:
            # whether it met its row or not: what has happened is certain
            return shape_plainly(self.outcome, settings)
        claimed = self.claimed
        claim = self.claim
        if claimed is not None and claim is not None:
            if type(answer) is not Returned or not answer.plain:
                return None
            outcome = make_outcome(call, answer, 1)
            value, outcome.body = results.copy_plain(outcome.value)
            secrets = settings.secrets_for(call.traits.label)
            if secrets is not None and not secrets.spares(value, outcome.body):
                return None
            outcome.done_under = claimed.key
            self.returned = answer
            self.outcome = outcome
            return Settle(
                claim.scope,
                claim.key,
                claimed.fence,
                state="done",
                value=value,
                locks=claim.locks,
            )
        if claim is not None:
            if answer.state is not ClaimState.FRESH:
                return None
            self.claimed = answer
            self.began = began = settings.now()
            return start_attempt(call, 1, began, settings)
        if answer is not True:
            return None
        self.is_reserved = True
        return self._make_claim(settings)

    def _make_claim(self, settings: RunSettings) -> Claim:
        self.claim = claim = claim_for(self.call, settings)
        self.asked = settings.now()
        return claim

    def answers(self) -> Iterator[Any]:
        """Yield what it was answered so far, without the last answer."""
        if self.is_reserved:
            yield True
        if self.claimed is not None:
            yield self.claimed
        if self.returned is not None:
            yield self.returned


def take_last_step(
    call: Admitted, outcome: Returned, settings: RunSettings
) -> ToolResult | None:
    """Return the result of a plain call whose first attempt returned, or None when its execution has more to do."""
    if call.repairs or call.note or outcome.size > materialize.LONG_BYTES:
        return None
    traits = call.traits
    value = outcome.value
    if not outcome.plain and results.repeats_a_name(value):
        return None
    most_bytes = traits.result_bytes or settings.result_bytes
    text = results.encode_if_it_fits(value, most_bytes)
    # `_may_be_shown`, inlined: every call comes here
    if (
        type(text) is str
        and is_clean(text)
        and (
            (secrets := settings.secrets_for(traits.label)) is None
            or secrets.text(text) == text
        )
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
    if not _may_be_shown(text, settings.secrets_for(traits.label)):
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


def _may_be_shown(
    text: str | bytes | None, secrets: KnownSecrets | None
) -> TypeGuard[str]:
    """Whether a text is what the model may read: all of a value, with nothing to remove."""
    return (
        type(text) is str
        and is_clean(text)
        and (secrets is None or secrets.text(text) == text)
    )
