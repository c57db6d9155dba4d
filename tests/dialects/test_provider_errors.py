"""What a provider's error means."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from handrail.dialects.provider_errors import classify

NOW = datetime(2026, 11, 20, 12, 0, tzinfo=UTC)


@pytest.mark.parametrize(("status", "retryable"), [
    (400, False), (401, False), (402, False), (403, False), (404, False), (413, False), (422, False),
    (408, True), (409, True), (425, True), (429, True),
    (500, True), (502, True), (503, True), (504, True), (529, True),
])  # fmt: skip
def test_a_status_decides_where_no_word_is_known(status, retryable):
    for body in (
        "",
        "<html>",
        {},
        {"error": {"message": "m"}},
        {"error": "m"},
        b"\xff",
    ):
        error = classify(status, {}, body)
        assert (error.status, error.retryable) == (status, retryable)


@pytest.mark.parametrize(("status", "told", "retryable"), [
    # an empty account stays empty
    (429, {"code": "insufficient_quota", "type": "insufficient_quota"}, False),
    (429, {"code": "rate_limit_exceeded", "type": "requests"}, True),
    # a gateway's wrong status
    (500, {"code": "context_length_exceeded"}, False),
    # in mid-stream there is no status
    (None, {"type": "overloaded_error"}, True),
    (200, {"type": "overloaded_error"}, True),
    # OpenRouter puts it into the body
    (200, {"code": 502}, True),
    (200, {"code": "429"}, True),
    # Groq as well
    (200, {"status_code": 400, "code": "tool_use_failed"}, False),
    (None, {"code": "never_heard_of"}, False),
    (None, {}, False),
])  # fmt: skip
def test_a_known_word_overrules_the_status(status, told, retryable):
    assert (
        classify(status, {}, {"error": {"message": "m", **told}}).retryable is retryable
    )


@pytest.mark.parametrize(("headers", "wait_s"), [
    ({}, None),
    ({"retry-after": "7"}, 7.0),
    ({"Retry-After": "0.5"}, 0.5),
    ({"retry-after-ms": "1500", "retry-after": "7"}, 1.5),               # the finer one
    ({"retry-after": "Fri, 20 Nov 2026 12:00:30 GMT"}, 30.0),
    ({"retry-after": "Fri, 20 Nov 2026 11:00:00 GMT"}, 0.0),             # past
    ({"retry-after": "-3"}, 0.0),
    ({"retry-after": "soon"}, None), ({"retry-after": "nan"}, None), ({"retry-after": "inf"}, None),
])  # fmt: skip
def test_the_wait_is_as_told(headers, wait_s):
    assert classify(429, headers, {}, now=NOW).retry_after_s == wait_s


def test_without_a_clock_the_answers_own_date_is_taken():
    headers = {
        "retry-after": "Fri, 20 Nov 2026 12:00:30 GMT",
        "date": "Fri, 20 Nov 2026 12:00:00 GMT",
    }
    assert classify(503, headers, {}).retry_after_s == 30.0
    assert (
        classify(503, {"retry-after": headers["retry-after"]}, {}).retry_after_s is None
    )


def test_google_asks_to_wait_in_the_body():
    body = {"error": {"code": 429, "status": "RESOURCE_EXHAUSTED", "message": "m", "details": [
        {"@type": "type.googleapis.com/google.rpc.QuotaFailure"},
        {"@type": "type.googleapis.com/google.rpc.RetryInfo", "retryDelay": "17.5s"},
    ]}}  # fmt: skip
    error = classify(429, {}, body)
    assert (error.retryable, error.retry_after_s, error.code) == (
        True,
        17.5,
        "RESOURCE_EXHAUSTED",
    )


def test_a_reason_that_cannot_be_written_is_told_as_far_as_it_can():
    body = (
        '{"error": {"message": "m\\ud800", "details": [{"retryDelay": "'
        + "9" * 400
        + 's"}]}}'
    )
    error = classify(429, {}, body)
    assert (str(error).endswith("m?"), error.retry_after_s) == (True, 1e9)
    assert (
        classify(None, {}, {"error": {"message": "m\ud800", "code": "c\ud800"}}).code
        == "c?"
    )


def test_a_server_that_says_outright_whether_to_retry_is_believed():
    assert classify(400, {"x-should-retry": "true"}, {}).retryable
    assert not classify(500, {"X-Should-Retry": "false"}, {}).retryable


def test_a_person_reads_status_code_and_reason_in_a_bounded_sentence():
    told = str(
        classify(
            404,
            {},
            {"error": {"message": "no model x" * 1000, "code": "model_not_found"}},
        )
    )
    assert told.startswith(
        "the model's provider answered with an error (404 model_not_found): no model x"
    )
    assert len(told) < 700
