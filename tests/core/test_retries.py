"""What is known of a failed attempt, and when there is another."""

import math
import socket
import urllib.error
from email.message import Message
from types import SimpleNamespace

import httpx2
import pytest
from hypothesis import given
from hypothesis import strategies as st

from handrail.core.retries import (
    Backoff,
    diagnose,
    next_model_wait,
    retry_after_s,
    without_effect,
)
from handrail.effects import End, Raised, Unfinished
from handrail.errors import (
    ONLY_OURS,
    Code,
    Failure,
    ModelError,
    NoEffect,
    StoreUnavailable,
    ToolDefinitionError,
    ToolError,
)
from handrail.records import ModelWait


def known_of(end, *, one_request=True) -> tuple:
    outcome = Raised(end) if isinstance(end, Exception) else end
    diagnosis = diagnose(outcome, "pay", 30.0, one_request=one_request)
    return diagnosis.failure.code, diagnosis.passing, diagnosis.no_effect


def like(name: str, *bases: type) -> Exception:
    """An error of a library that is not installed here, by the name of its class."""
    return type(name, bases or (Exception,), {})("canary")


def answered(status: int, **headers: str) -> Exception:
    request = httpx2.Request("POST", "https://pay.example/refunds")
    return httpx2.HTTPStatusError(
        "canary", request=request, response=httpx2.Response(status, headers=headers)
    )


# ---------------------------------------------------------------------- exceptions


@pytest.mark.parametrize("kind", [ToolError, NoEffect])
@pytest.mark.parametrize("code", sorted(ONLY_OURS))
def test_what_only_handrail_says_a_tool_says_in_words_and_not_by_code(code, kind):
    error = kind(
        str(code), "Words.", suggestion="Do.", retryable=True, details=[{"n": 1}]
    )
    told = diagnose(Raised(error), "pay", 30.0).failure
    assert told == Failure(
        Code.TOOL_ERROR, "Words.", "Do.", retryable=True, details=({"n": 1},)
    )
    assert error.failure.code == code


@pytest.mark.parametrize(("error", "code", "passing", "no_effect"), [
    # nobody took the request
    (ConnectionRefusedError(), Code.UNAVAILABLE, True, True),
    (socket.gaierror(-2, "name unknown"), Code.UNAVAILABLE, True, True),
    (httpx2.ConnectError("canary"), Code.UNAVAILABLE, True, True),
    (httpx2.ConnectTimeout("canary"), Code.UNAVAILABLE, True, True),
    # no connection was free
    (httpx2.PoolTimeout("canary"), Code.UNAVAILABLE, True, True),
    (like("NewConnectionError"), Code.UNAVAILABLE, True, True),          # urllib3
    (like("ClientConnectorError", OSError), Code.UNAVAILABLE, True, True),  # aiohttp
    # requests
    (like("ConnectTimeout", like("ConnectionError", OSError).__class__), Code.UNAVAILABLE, True, True),
    (urllib.error.URLError(ConnectionRefusedError()), Code.UNAVAILABLE, True, True),
    # it may have arrived
    (TimeoutError(), Code.TIMEOUT, True, False),
    (httpx2.ReadTimeout("canary"), Code.TIMEOUT, True, False),
    (httpx2.WriteTimeout("canary"), Code.TIMEOUT, True, False),
    # aiohttp
    (like("ServerTimeoutError", like("ServerConnectionError").__class__), Code.TIMEOUT, True, False),
    (urllib.error.URLError(TimeoutError()), Code.TIMEOUT, True, False),
    # broken off after sending, perhaps
    (ConnectionResetError(), Code.UNAVAILABLE, True, False),
    (BrokenPipeError(), Code.UNAVAILABLE, True, False),
    (httpx2.ReadError("canary"), Code.UNAVAILABLE, True, False),
    (httpx2.RemoteProtocolError("canary"), Code.UNAVAILABLE, True, False),
    (like("ConnectionError", OSError), Code.UNAVAILABLE, True, False),   # requests
    (like("ServerDisconnectedError"), Code.UNAVAILABLE, True, False),    # aiohttp
    # a tool that asks a model
    (ModelError("canary"), Code.UNAVAILABLE, False, False),
    # a tool with a ledger of its own
    (StoreUnavailable("canary"), Code.UNAVAILABLE, True, False),
    # a bug: nobody knows how far it came
    (ValueError("canary"), Code.INTERNAL_ERROR, False, False),
    (KeyError("canary"), Code.INTERNAL_ERROR, False, False),
    (FileNotFoundError("canary"), Code.INTERNAL_ERROR, False, False),
    (ToolDefinitionError("canary"), Code.INTERNAL_ERROR, False, False),
    # worded, and nothing said of its effect
    (ToolError("MINE", "Mine."), "MINE", False, False),
    # whoever says `again` says `nothing happened`
    (ToolError("MINE", "Mine.", retryable=True), "MINE", True, True),
    (NoEffect("MINE", "Mine."), "MINE", False, True),
    (NoEffect("MINE", "Mine.", retryable=True), "MINE", True, True),
])  # fmt: skip
def test_an_exception_tells_whether_it_may_pass_and_whether_something_happened(
    error, code, passing, no_effect
):
    assert known_of(error) == (code, passing, no_effect)


@pytest.mark.parametrize(("status", "code", "passing", "no_effect"), [
    (400, Code.INTERNAL_ERROR, False, True),      # refused as it stands
    (401, Code.INTERNAL_ERROR, False, True),
    (403, Code.INTERNAL_ERROR, False, True),
    (404, Code.INTERNAL_ERROR, False, True),
    # the server gave up waiting, perhaps after it had begun
    (408, Code.UNAVAILABLE, True, False),
    # a conflict, perhaps with our own earlier request
    (409, Code.INTERNAL_ERROR, False, False),
    (422, Code.INTERNAL_ERROR, False, True),
    (425, Code.UNAVAILABLE, True, False),
    (429, Code.RATE_LIMITED, True, True),         # refused before it was looked at
    (500, Code.UNAVAILABLE, True, False),
    (501, Code.INTERNAL_ERROR, False, False),     # it will not learn it
    (502, Code.UNAVAILABLE, True, False),
    (503, Code.UNAVAILABLE, True, False),
    (504, Code.UNAVAILABLE, True, False),
    (529, Code.UNAVAILABLE, True, False),         # overloaded, as Anthropic says it
    (302, Code.INTERNAL_ERROR, False, False),
    # it was done, and the answer could not be used
    (200, Code.INTERNAL_ERROR, False, False),
])  # fmt: skip
def test_a_status_tells_whether_it_may_pass_and_whether_something_happened(
    status, code, passing, no_effect
):
    assert known_of(answered(status)) == (code, passing, no_effect)


@pytest.mark.parametrize("error", [
    ConnectionRefusedError(), socket.gaierror(-2, "name unknown"), httpx2.ConnectError("canary"),
    httpx2.PoolTimeout("canary"), urllib.error.URLError(ConnectionRefusedError()), answered(404), answered(429),
])  # fmt: skip
def test_where_there_may_have_been_other_requests_the_one_that_failed_says_nothing_of_them(
    error,
):
    code, passing, _ = known_of(error)
    assert known_of(error, one_request=False) == (code, passing, False)


@pytest.mark.parametrize(
    "error", [NoEffect("MINE", "Mine."), ToolError("MINE", "Mine.", retryable=True)]
)
def test_the_author_s_word_that_nothing_happened_holds_however_many_requests_there_were(
    error,
):
    assert known_of(error, one_request=False)[2]


@pytest.mark.parametrize("error", [
    answered(503),
    urllib.error.HTTPError("https://pay.example", 503, "canary", Message(), None),
    # SDKs of providers
    type("APIStatusError", (Exception,), {"status_code": 503})(),
    # aiohttp
    type("ClientResponseError", (Exception,), {"status": 503, "headers": None})(),
    # requests
    type("HTTPError", (Exception,), {"response": SimpleNamespace(status_code=503, headers=7)})(),
    ModelError("canary", status=503),
])  # fmt: skip
def test_a_status_is_found_where_http_libraries_keep_it(error):
    assert known_of(error) == (Code.UNAVAILABLE, True, False)


def test_a_service_that_answered_is_not_said_to_be_out_of_reach():
    said = [
        diagnose(Raised(error), "pay", 30.0).failure.message
        for error in (answered(503), ConnectionRefusedError())
    ]
    assert said == [
        "The service behind `pay` answered with HTTP 503.", "The service behind `pay` cannot be reached just now.",
    ]  # fmt: skip


@pytest.mark.parametrize("status", [0, 7, 600, 1205, "503", None, True])
def test_a_number_that_is_no_http_status_is_not_taken_for_one(status):
    assert known_of(type("DatabaseError", (Exception,), {"status": status})()) == (
        Code.INTERNAL_ERROR,
        False,
        False,
    )


@pytest.mark.parametrize(("end", "code", "passing", "no_effect"), [
    (Unfinished(End.NOT_STARTED), Code.TIMEOUT, True, True),
    # what it did until then may have taken effect
    (Unfinished(End.STOPPED), Code.TIMEOUT, True, False),
    (Unfinished(End.RUNNING_ON), Code.TIMEOUT, True, False),
    (Unfinished(End.NOT_STARTED, cancelled=True), Code.CANCELLED, False, True),
    (Unfinished(End.STOPPED, cancelled=True), Code.CANCELLED, False, False),
    (Unfinished(End.RUNNING_ON, cancelled=True), Code.CANCELLED, False, False),
])  # fmt: skip
def test_a_deadline_tells_whether_it_may_pass_and_whether_something_happened(
    end, code, passing, no_effect
):
    assert known_of(end) == (code, passing, no_effect)


@pytest.mark.parametrize(("end", "said"), [
    (End.NOT_STARTED, "was not started"),
    (End.STOPPED, "within 30 s and was stopped"),
    (End.RUNNING_ON, "could not be stopped and may still be running"),
])  # fmt: skip
def test_a_deadline_says_which_of_the_things_happened(end, said):
    assert said in diagnose(Unfinished(end), "pay", 30.0).failure.message


@pytest.mark.parametrize("error", [
    ValueError("canary"), TimeoutError("canary"), like("ReadError"), answered(404), answered(429), answered(503),
])  # fmt: skip
def test_no_text_of_an_exception_is_told(error):
    assert "canary" not in str(diagnose(Raised(error), "pay", 30.0).failure.as_json())


# ---------------------------------------------------------------------- after verification


def test_a_passing_failure_without_effect_may_be_called_again():
    diagnosis = without_effect(diagnose(Raised(TimeoutError()), "pay", 30.0), "pay")
    assert (diagnosis.no_effect, diagnosis.failure.retryable) == (True, True)


def test_a_bug_stays_a_bug_when_it_is_verified_that_nothing_happened():
    diagnosis = without_effect(diagnose(Raised(KeyError()), "pay", 30.0), "pay")
    assert (diagnosis.no_effect, diagnosis.failure.code) == (True, Code.INTERNAL_ERROR)


# ---------------------------------------------------------------------- how long to wait


@pytest.mark.parametrize(("said", "seconds"), [
    ("120", 120.0),
    ("0", 0.0),
    # not by the letter of the RFC, but sent
    ("1.5", 1.5),
    ("-5", 0.0),
    # the example of RFC 9110, one minute before the next day
    ("Fri, 31 Dec 1999 23:59:59 GMT", 59.0),
    ("Fri, 31 Dec 1999 23:00:00 GMT", 0.0),               # long past
    # RFC 850, which a recipient must still read
    ("Friday, 31-Dec-99 23:59:59 GMT", 59.0),
    ("", None),
    (None, None),
    ("soon", None),
    ("inf", None),
    ("1e999", None),
    ("nan", None),
    ("Fri, 99 Dec 1999 23:59:59 GMT", None),
])  # fmt: skip
def test_retry_after_is_seconds_or_a_date(said, seconds):
    assert retry_after_s(said, now=946684740.0) == seconds  # 1999-12-31 23:59:00 UTC


@given(
    st.text() | st.from_regex(r"[A-Z][a-z]{2}, \d+ [A-Z][a-z]{2} \d+ \d+:\d+:\d+ .*")
)
def test_whatever_retry_after_says_it_is_a_wait_or_nothing(said):
    wait_s = retry_after_s(said, now=0.0)
    assert wait_s is None or 0 <= wait_s < float("inf")


def test_the_far_side_s_wait_is_told_to_the_model():
    diagnosis = diagnose(Raised(answered(429, **{"Retry-After": "7"})), "pay", 30.0)
    assert diagnosis.after_s == 7
    assert "7 s" in diagnosis.failure.suggestion


@pytest.mark.parametrize(("attempt", "ceiling_s"), [
    (2, 0.2),     # the first retry comes soon
    (3, 0.4),     # then doubling
    (6, 3.2),
    (7, 5.0),     # 6.4 s, cut to the most
    (5000, 5.0),  # far out, where an unbounded power would overflow
])  # fmt: skip
def test_the_wait_doubles_up_to_its_ceiling(attempt, ceiling_s):
    assert Backoff().before(attempt, jitter=1.0) == ceiling_s


@given(attempt=st.integers(2, 10_000), jitter=st.floats(0, 1))
def test_the_jitter_spreads_the_whole_wait(attempt, jitter):
    backoff = Backoff(first_s=0.5, most_s=60)
    assert backoff.before(attempt, jitter) == pytest.approx(
        jitter * backoff.before(attempt, 1.0)
    )


# ---------------------------------------------------------------------- runs whose model is away


DAY_S = 86_400.0


@pytest.mark.parametrize(
    ("tries", "least_s", "most_s"),
    [
        (0, 2.5, 5.0),  # the first wait is short
        (1, 5.0, 10.0),  # then doubling
        (5, 80.0, 160.0),
        (6, 150.0, 300.0),  # 320 s, cut to the most
        (5000, 150.0, 300.0),
    ],
)
def test_a_run_waits_ever_longer_for_a_model_that_is_away(tries, least_s, most_s):
    wait = ModelWait(turn=1, tries=tries, most_s=DAY_S)
    away = ModelError("it cannot be reached", retryable=True)
    waits = [next_model_wait(wait, away, jitter) for jitter in (0.0, 1.0)]
    assert waits == [least_s, most_s]


@pytest.mark.parametrize(
    ("asked_s", "least_s", "most_s"),
    [
        (1.0, 2.5, 5.0),  # less than would be waited anyway
        (60.0, 60.0, 90.0),  # those who were refused together are spread
        (3600.0, 3600.0, 3750.0),
        (DAY_S, DAY_S, DAY_S),  # all that may be waited
    ],
)
def test_no_wait_is_shorter_than_the_provider_has_asked_for(asked_s, least_s, most_s):
    wait = ModelWait(turn=1, most_s=DAY_S)
    busy = ModelError("slow down", status=429, retryable=True, retry_after_s=asked_s)
    waits = [next_model_wait(wait, busy, jitter) for jitter in (0.0, 1.0)]
    assert waits == [least_s, most_s]


@pytest.mark.parametrize(
    ("error", "waited_s"),
    [
        (ModelError("no such key", status=401), 0.0),
        (ModelError("it wrote no call", retryable=True, answered=True), 0.0),
        (ModelError("away", retryable=True), DAY_S),
        (ModelError("away", retryable=True, retry_after_s=DAY_S + 1), 0.0),
        (ModelError("away", retryable=True, retry_after_s=math.inf), 0.0),
        (ModelError("away", retryable=True, retry_after_s=math.nan), 0.0),
    ],
)
def test_a_run_does_not_wait_where_that_does_not_help(error, waited_s):
    wait = ModelWait(turn=1, tries=3, waited_s=waited_s, most_s=DAY_S)
    assert next_model_wait(wait, error, 0.5) is None


def test_the_last_try_comes_at_the_end_of_the_wait():
    wait = ModelWait(turn=1, tries=300, waited_s=DAY_S - 20.0, most_s=DAY_S)
    assert next_model_wait(wait, ModelError("away", retryable=True), 0.5) == 20.0
    assert wait.at_turn(1) is wait
    # the model has answered since
    assert wait.at_turn(2) == ModelWait(turn=2, most_s=DAY_S)
