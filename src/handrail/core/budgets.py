"""What a run may spend, and when it has spent it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from numbers import Number

from msgspec import Struct, field

from handrail.errors import Code, ConfigError, Failure
from handrail.messages import Usage

_MOST_PRICED_TOKENS = 2**53


class Budget(Struct, frozen=True):
    """What a run may spend; None is no limit.

    Attributes:
        time_s: From start to end, without the time that people took to answer.
        calls: Calls that reach a tool.
        turns: Answers of the model.
        tokens: Input and output tokens together, as the provider counts them.
        context_tokens: What one request may hold. Beyond it old results become handles, which the model can read
            again. None, because no provider tells how large its window is, and what a model sees is not rewritten
            unless somebody asked for it; three quarters of the model's window is a good value.
        cost: In the currency of `price_per_million`.
        per_tool: Calls by tool name.

    Raises:
        ConfigError: One of them is no number, or is NaN, which nothing ever reaches.
    """

    time_s: float | None = 300.0
    calls: int | None = 50
    turns: int | None = 50
    tokens: int | None = None
    context_tokens: int | None = None
    per_tool: Mapping[str, int] = field(default_factory=dict)
    cost: float | None = None
    price_per_million: tuple[float, float] = (0.0, 0.0)
    """Price of a million input and a million output tokens, for `cost`."""

    def __post_init__(self) -> None:
        most = (
            self.time_s,
            self.calls,
            self.turns,
            self.tokens,
            self.context_tokens,
            self.cost,
        )
        if not (
            isinstance(self.per_tool, Mapping)
            and isinstance(self.price_per_million, Sequence)
        ):
            raise ConfigError(
                f"`per_tool` has calls by tool name, `price_per_million` two prices: {self!r}"
            )
        amounts = [
            each
            for each in (*most, *self.per_tool.values(), *self.price_per_million)
            if each is not None
        ]
        if not all(isinstance(each, Number) for each in amounts):
            raise ConfigError(f"a budget is given in numbers: {self!r}")
        if any(each != each for each in amounts):
            raise ConfigError(
                f"a budget of NaN would never be used up, and None says so: {self!r}"
            )


class Spent(Struct):
    """What a run has spent so far. `waited_s` is what people took to answer; it does not count."""

    turns: int = 0
    calls: int = 0
    usage: Usage = Usage()
    waited_s: float = 0.0
    per_tool: dict[str, int] = {}

    @property
    def cache_read_share(self) -> float:
        """Which part of the input tokens was read from the provider's cache, from 0 to 1."""
        return self.usage.cache_read_share

    def cost(self, budget: Budget) -> float:
        """Return what the tokens so far cost at the budget's prices."""
        for_input, for_output = budget.price_per_million
        # A model that counts absurdly is bounded: a float holds no more, and ends the run all the same.
        input_tokens = min(self.usage.input_tokens, _MOST_PRICED_TOKENS)
        output_tokens = min(self.usage.output_tokens, _MOST_PRICED_TOKENS)
        return (input_tokens * for_input + output_tokens * for_output) / 1e6


def find_stop_reason(budget: Budget, spent: Spent, elapsed_s: float) -> str:
    """Return which part of the budget forbids another turn, as a sentence for people; empty when none does.

    Calls do not: a model that has made its last one may still answer with what it knows; see `calls_used_up`.
    """
    worked_s = elapsed_s - spent.waited_s
    tokens = spent.usage.input_tokens + spent.usage.output_tokens
    if budget.time_s is not None and worked_s >= budget.time_s:
        return f"the budget is used up: {worked_s:.0f} s of {budget.time_s:g} s have passed"
    if budget.turns is not None and spent.turns >= budget.turns:
        return f"the budget is used up: {spent.turns} of {budget.turns} turns are used"
    if budget.tokens is not None and tokens >= budget.tokens:
        return f"the budget is used up: {tokens} of {budget.tokens} tokens are used"
    if budget.cost is not None and spent.cost(budget) >= budget.cost:
        return f"the budget is used up: {spent.cost(budget):.4f} of {budget.cost:g} are spent"
    return ""


def calls_used_up(budget: Budget, spent: Spent) -> str:
    """Return that the run has made all its calls, as a sentence for people; empty while it has not."""
    if budget.calls is None or spent.calls < budget.calls:
        return ""
    return f"the budget is used up: {spent.calls} of {budget.calls} calls are used"


def spend_call(budget: Budget, spent: Spent, tool: str) -> Failure | None:
    """Count one call to a tool, or return why there may be no more of it."""
    if budget.calls is not None and spent.calls >= budget.calls:
        return Failure(
            Code.BUDGET_EXHAUSTED,
            f"This run may make {_times(budget.calls, 'call')}, and has made {'it' if budget.calls == 1 else 'them'}.",
            "Answer with what you have, and say what is missing.",
        )
    most = budget.per_tool.get(tool)
    if most is not None and spent.per_tool.get(tool, 0) >= most:
        return Failure(
            Code.BUDGET_EXHAUSTED,
            f"`{tool}` may be called {_times(most, 'time')} in this run, and has been.",
            "Go on without it: use what it has returned, or another tool.",
        )
    spent.calls += 1
    if budget.per_tool:
        spent.per_tool[tool] = spent.per_tool.get(tool, 0) + 1
    return None


def return_call(spent: Spent, tool: str) -> None:
    """Take a call back that was counted and has not started: it waits, and is counted when it is made again."""
    spent.calls -= 1
    if tool in spent.per_tool:
        spent.per_tool[tool] -= 1


def _times(count: int, noun: str) -> str:
    if count == 1:
        return f"1 {noun}"
    return f"{count} {noun}s"
