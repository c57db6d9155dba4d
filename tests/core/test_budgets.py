"""What a run may spend, and when it has spent it."""

import pytest

from handrail.core.budgets import Budget, Spent, find_stop_reason, spend_call
from handrail.errors import Code, ConfigError
from handrail.messages import Usage

OF_11, NAN = "11.0000 of 11 are spent", float("nan")


@pytest.mark.parametrize(("budget", "spent", "elapsed_s", "why"), [
    (Budget(), Spent(), 0.0, ""),
    (Budget(time_s=60), Spent(), 59.9, ""),
    (Budget(time_s=60), Spent(), 60.0, "60 s of 60 s have passed"),
    # people may take their time
    (Budget(time_s=60), Spent(waited_s=100.0), 120.0, ""),
    (Budget(time_s=None), Spent(), 1e9, ""),
    # it may still answer
    (Budget(calls=2), Spent(calls=2), 0.0, ""),
    (Budget(turns=3), Spent(turns=3), 0.0, "3 of 3 turns are used"),
    (Budget(calls=None, turns=None), Spent(calls=10**6, turns=10**6), 0.0, ""),
    (Budget(tokens=100), Spent(usage=Usage(60, 39)), 0.0, ""),
    (Budget(tokens=100), Spent(usage=Usage(60, 40)), 0.0, "100 of 100 tokens are used"),
    # 2 million at 3.00 and half a million at 10.00 are 6 + 5 = 11.
    (Budget(cost=11, price_per_million=(3, 10)), Spent(usage=Usage(2 * 10**6, 500_000)), 0.0, OF_11),
    (Budget(cost=11.01, price_per_million=(3, 10)), Spent(usage=Usage(2 * 10**6, 500_000)), 0.0, ""),
    # a float ends before
    (Budget(cost=1e30, price_per_million=(1, 1)), Spent(usage=Usage(10**400)), 0.0, ""),
    (Budget(cost=0), Spent(), 0.0, "0.0000 of 0 are spent"),
])  # fmt: skip
def test_a_run_ends_at_the_first_limit_that_it_reaches(budget, spent, elapsed_s, why):
    said = find_stop_reason(budget, spent, elapsed_s)
    assert said == (f"the budget is used up: {why}" if why else "")


@pytest.mark.parametrize("declared", [
    {"time_s": NAN}, {"calls": NAN}, {"turns": NAN}, {"tokens": NAN}, {"context_tokens": NAN}, {"cost": NAN},
    {"per_tool": {"find": NAN}}, {"cost": 1, "price_per_million": (NAN, 1)},
])  # fmt: skip
def test_what_nothing_would_ever_reach_is_no_budget(declared):
    with pytest.raises(ConfigError, match="never be used up"):
        Budget(**declared)


@pytest.mark.parametrize("declared", [
    {"time_s": "5"}, {"calls": [3]}, {"per_tool": {"find": "3"}}, {"per_tool": 5}, {"price_per_million": 3},
])  # fmt: skip
def test_a_budget_of_anything_but_numbers_is_refused_when_it_is_made(declared):
    with pytest.raises(ConfigError, match=r"given in numbers|has calls by tool name"):
        Budget(**declared)


def test_a_call_is_counted_when_it_is_spent():
    spent = Spent()
    assert spend_call(Budget(), spent, "find") is None
    assert spent.calls == 1


def test_a_call_beyond_the_limit_is_refused_and_not_counted():
    spent = Spent(calls=5)
    failure = spend_call(Budget(calls=5), spent, "find")
    assert (failure.code, failure.retryable, spent.calls) == (
        Code.BUDGET_EXHAUSTED,
        False,
        5,
    )


def test_a_tool_has_a_limit_of_its_own():
    budget, spent = Budget(per_tool={"find": 2}), Spent()
    said = [
        spend_call(budget, spent, name)
        for name in ("find", "pay", "find", "find", "pay")
    ]
    assert [failure is None for failure in said] == [True, True, True, False, True]
    assert "`find`" in said[3].message
    assert spent.calls == 4


def test_usage_adds_up():
    assert Usage(1, 2, 3, 4, 5) + Usage(10, 20, 30, 40, 50) == Usage(11, 22, 33, 44, 55)


@pytest.mark.parametrize(("budget", "says"), [
    (Budget(calls=1), "This run may make 1 call, and has made it."),
    (Budget(calls=2), "This run may make 2 calls, and has made them."),
    (Budget(per_tool={"find": 1}), "`find` may be called 1 time in this run"),
])  # fmt: skip
def test_one_call_is_no_calls(budget, says):
    spent = Spent()
    while (failure := spend_call(budget, spent, "find")) is None:
        pass
    assert failure.message.startswith(says)
