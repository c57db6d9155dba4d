"""Rates, seats and breakers: decided by plain functions of plain numbers, kept by both drivers."""

from __future__ import annotations

import json
import threading
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

import handrail as hr
from handrail.errors import Failure, ToolDefinitionError
from handrail.testing import ManualClock, Overlap
from handrail.tools.rate_limits import REST_S, Breaker, Bucket, Limits, Rate, parse_rate


@pytest.mark.parametrize(
    ("text", "starts", "seconds"),
    [("5/s", 5, 1.0), ("30/min", 30, 60.0), ("1000/h", 1000, 3600.0)],
)
def test_a_rate_is_a_number_and_a_unit(text, starts, seconds):
    assert parse_rate(text) == Rate(starts, seconds)


@pytest.mark.parametrize(
    "text", ["", "5", "5/m", "0/s", "-1/s", "1.5/s", "5 / s", "s/5"]
)
def test_what_is_no_rate_is_a_mistake_in_the_declaration(text):
    with pytest.raises(ValueError, match="is no rate"):
        parse_rate(text)


def test_a_full_bucket_lets_its_number_go_at_once_and_then_one_after_another():
    bucket = Bucket(Rate(3, 60.0))
    assert [bucket.take(100.0, 1e9) for _ in range(5)] == pytest.approx(
        [0, 0, 0, 20.0, 40.0]
    )


def test_who_would_wait_too_long_takes_nothing():
    bucket = Bucket(Rate(1, 60.0))
    assert bucket.take(0.0, 10.0) == 0.0
    assert [bucket.take(0.0, 10.0) for _ in range(3)] == [None, None, None]
    assert bucket.take(55.0, 10.0) == pytest.approx(5.0)


@given(st.integers(1, 20), st.floats(0.1, 100), st.lists(st.floats(0, 50), max_size=60))
def test_no_stretch_of_time_sees_twice_as_many_starts_as_the_rate_has(
    starts, seconds, pauses
):
    bucket, now, begun = Bucket(Rate(starts, seconds)), 0.0, []
    for pause in pauses:
        now += pause
        begun.append(now + bucket.take(now, float("inf")))
    for first in begun:
        # a full bucket at once, and as many again while it fills: the law of a token bucket
        assert sum(first <= at < first + seconds * 0.999 for at in begun) <= 2 * starts


def test_a_breaker_opens_after_failures_in_a_row_and_lets_one_try_after_its_rest():
    breaker = Breaker()
    for _ in range(2):
        breaker.note_failed(3, 10.0)
    assert breaker.rest_s(10.0) == 0.0
    breaker.note_failed(3, 10.0)
    assert breaker.rest_s(11.0) == pytest.approx(REST_S - 1)
    # one tries, the others wait for its end
    assert [breaker.rest_s(10.0 + REST_S) for _ in range(2)] == [0.0, 1.0]
    breaker.note_failed(3, 10.0 + REST_S)
    assert breaker.rest_s(11.0 + REST_S) == pytest.approx(REST_S - 1)


def test_what_is_told_says_how_long_and_that_the_same_call_may_succeed_later():
    limits = Limits()
    assert limits.wait_s("search", ("", ""), Rate(1, 60.0), now=0.0, most_s=5.0) == 0.0
    told = limits.wait_s("search", ("", ""), Rate(1, 60.0), now=0.0, most_s=5.0)
    assert isinstance(told, Failure)
    assert (told.code, told.retryable) == ("RATE_LIMITED", True)
    assert "60 s" in told.suggestion
    # counted apart
    assert (
        limits.wait_s("search", ("", "u7"), Rate(1, 60.0), now=0.0, most_s=5.0) == 0.0
    )


@pytest.mark.parametrize(
    "limits", [{"rate": "often"}, {"max_concurrency": 0}, {"breaker": -1}]
)
def test_a_limit_that_means_nothing_is_refused_when_the_tool_is_declared(limits):
    with pytest.raises(ToolDefinitionError, match="x"):
        hr.tool(effect="read", limits=hr.Limits(**limits))(x)


def x(n: int) -> int:
    """Do x."""
    return n


# ---------------------------------------------------------------------- on a runtime


def message(name, *arguments):
    calls = [
        {
            "id": f"c{n}",
            "type": "function",
            "function": {"name": name, "arguments": json.dumps(each)},
        }
        for n, each in enumerate(arguments)
    ]
    return {"role": "assistant", "tool_calls": calls}


def test_no_more_calls_are_under_way_at_once_than_there_are_seats():
    seen, both = Overlap(), threading.Barrier(2, timeout=5)

    @hr.tool(effect="read", limits=hr.Limits(max_concurrency=2))
    def look(n: int) -> int:
        """Look at something."""
        with seen:
            both.wait()  # two are inside, each time
            return n

    with hr.SyncRuntime([look]) as runtime:
        told = runtime.handle(message("look", *({"n": n} for n in range(6))))
    assert [each["content"] for each in told] == ["0", "1", "2", "3", "4", "5"]
    assert seen.most_inside == 2


def test_calls_beyond_the_rate_wait_within_their_time_and_are_told_beyond_it():
    begun = []

    @hr.tool(effect="read", limits=hr.Limits(rate="5/s"), timeout_s=0.3)
    def look(n: int) -> int:
        """Look at something."""
        begun.append(time.monotonic())
        return n

    with hr.SyncRuntime([look]) as runtime:
        asked = time.monotonic()
        told = [
            json.loads(each["content"])
            for each in runtime.handle(message("look", *({"n": n} for n in range(8))))
        ]
    assert told[:6] == [0, 1, 2, 3, 4, 5]
    assert [each["error_code"] for each in told[6:]] == ["RATE_LIMITED"] * 2
    assert max(begun) - asked >= 0.2  # the sixth had to wait for a fifth of a second


def test_a_rate_is_counted_apart_for_what_it_names():
    @hr.tool(
        effect="write",
        limits=hr.Limits(rate="1/h", rate_key="{user}"),
        write=hr.Write(repeatable=True),
        timeout_s=0.1,
    )
    def remind(user: str) -> str:
        """Remind somebody."""
        return user

    with hr.SyncRuntime([remind]) as runtime:
        users = [runtime.call("remind", {"user": user}) for user in ("a", "b", "a")]
    assert [each.ok for each in users] == [True, True, False]
    assert users[2].failure.code == "RATE_LIMITED"


def test_a_service_that_is_down_is_left_alone_and_tried_again_after_a_while():
    clock, asked, up = ManualClock(100.0), [], []

    @hr.tool(effect="read", limits=hr.Limits(max_attempts=1, breaker=3), blocking=False)
    def ask() -> str:
        """Ask the service."""
        asked.append(1)
        if not up:
            raise ConnectionRefusedError("no")
        return "here"

    with hr.SyncRuntime([ask], now=clock) as runtime:
        codes = [runtime.call("ask").failure.code for _ in range(6)]
        assert codes == ["UNAVAILABLE"] * 6
        assert len(asked) == 3
        clock.advance(REST_S + 1)
        up.append(1)
        assert [runtime.call("ask").text for _ in range(2)] == ["here", "here"]
        assert len(asked) == 5


def test_what_a_tool_refuses_by_its_own_word_does_not_open_its_breaker():
    @hr.tool(effect="read", limits=hr.Limits(max_attempts=1, breaker=1), blocking=False)
    def ask(order: int) -> str:
        """Ask for an order."""
        raise hr.ToolError("NO_SUCH_ORDER", f"There is no order {order}.")

    with hr.SyncRuntime([ask]) as runtime:
        assert [runtime.call("ask", {"order": n}).failure.code for n in range(4)] == [
            "NO_SUCH_ORDER"
        ] * 4


def test_a_write_that_is_held_back_keeps_its_key_free():
    clock, up = ManualClock(100.0), []

    @hr.tool(
        effect="write",
        key="pay:{order}",
        limits=hr.Limits(breaker=1),
        write=hr.Write(one_request=True),
        blocking=False,
    )
    def pay(order: str) -> str:
        """Pay for an order."""
        if not up:
            raise ConnectionRefusedError("no")
        return "paid"

    with hr.SyncRuntime([pay], now=clock) as runtime:
        assert runtime.call("pay", {"order": "1"}).failure.code == "UNAVAILABLE"
        held = runtime.call("pay", {"order": "2"})
        assert held.failure.code == "UNAVAILABLE"
        assert "left alone" in held.failure.message
        clock.advance(REST_S + 1)
        up.append(1)
        assert [runtime.call("pay", {"order": order}).text for order in ("1", "2")] == [
            "paid",
            "paid",
        ]
