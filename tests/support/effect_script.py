"""Calls carried by hand: how they are made, and a world that answers their effects from a table."""

from handrail.calls import ToolCall, ToolResult
from handrail.core.admission import Admitted, ParsedCall, admit
from handrail.core.execution import execute
from handrail.core.policy import Policy
from handrail.core.run_settings import Deadline, RunSettings
from handrail.effects import (
    Admit,
    Approval,
    Claim,
    Claimed,
    ClaimState,
    Compute,
    Invoke,
    Returned,
    Settle,
    Unknown,
    Wait,
)
from handrail.testing import ManualClock

SOON = {
    "AskHuman": Approval(True),
    "Reserve": True,
    "Claim": Claimed(ClaimState.FRESH, fence=7),
    "Invoke": Returned("done"),
    "Verify": Unknown(),
    "Wait": None,
    "Settle": None,
    "Keep": "r_1",
}
"""How every effect ends when nothing goes wrong."""


def admitted(tool, policy: Policy | None = None, /, **arguments) -> Admitted:
    """Return a call with these arguments, as the second of the third turn of run `r1`."""
    outcome = admit(
        ParsedCall(ToolCall("c1", tool.name), tool, arguments),
        policy or Policy(),
        "r1/3/1",
    )
    assert isinstance(outcome, Admitted), outcome
    return outcome


class World:
    """Answers the effects of a call and writes them down. An exception is thrown; a list is answered one by one.

    Waiting moves the clock; so does an invocation with `takes_s`.
    """

    def __init__(
        self, policy: Policy | None = None, *, takes_s: float = 0.0, **answers
    ):
        self.clock, self.takes_s = ManualClock(), takes_s
        self.answers = {**SOON, **answers}
        self.effects, self.events = [], []
        self.conduct = RunSettings(
            policy or Policy(),
            self.clock,
            lambda: 1.0,
            run_id="r1",
            deadline=Deadline(300.0),
            tell=self.events.append,
        )

    def carry(self, call: Admitted) -> ToolResult:
        """Carry a call to its end."""
        execution, answer = execute(call, self.conduct), None
        while True:
            try:
                effect = (
                    execution.throw(answer)
                    if isinstance(answer, Exception)
                    else execution.send(answer)
                )
            except StopIteration as over:
                return over.value.result
            self.effects.append(effect)
            answer = self._answer(effect)

    def _answer(self, effect):
        if isinstance(effect, Wait):
            self.clock.advance(effect.seconds)
        if isinstance(effect, Admit):
            return admit(effect.call, self.conduct.policy, effect.default_key)
        if isinstance(effect, Compute):
            return effect.function()
        if isinstance(effect, Invoke):
            self.clock.advance(self.takes_s)
        answer = self.answers[type(effect).__name__]
        if isinstance(answer, list):
            answer = answer.pop(0) if len(answer) > 1 else answer[0]
        return answer

    @property
    def kinds(self) -> list[str]:
        """The effects by name, in order."""
        return [type(effect).__name__ for effect in self.effects]

    def seen(self, kind: type) -> list:
        """The effects of one kind."""
        return [effect for effect in self.effects if isinstance(effect, kind)]

    @property
    def settled(self) -> str | None:
        """How the write was recorded, if it was."""
        states = [effect.state for effect in self.seen(Settle)]
        assert len(states) <= 1
        return states[0] if states else None

    @property
    def claim(self) -> Claim:
        """The one claim of the call, however often it was asked for."""
        (claim,) = set(self.seen(Claim))
        return claim
