"""Secrets are taken out of texts and values; what is none stays."""

from __future__ import annotations

import base64
import re
from urllib.parse import quote

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from handrail import redaction
from handrail.redaction import HIDDEN, Redactor

SECRET = "hunter2/plus+more="


@pytest.mark.parametrize("text", [
    SECRET,
    quote(SECRET, safe=""),
    base64.b64encode(f"user:{SECRET}".encode()).decode(),
    base64.b64encode(f"x{SECRET}y".encode()).decode(),
    base64.urlsafe_b64encode(f"us{SECRET}".encode()).decode(),
    SECRET.encode().hex(),
])  # fmt: skip
def test_a_known_secret_is_found_however_it_is_spelled(text):
    told = Redactor([SECRET]).text(f"before {text} after")
    assert HIDDEN in told
    assert told.startswith("before ")
    assert told.endswith(" after")
    assert text not in told


@given(st.text(st.characters(min_codepoint=33, max_codepoint=126), min_size=8, max_size=30), st.text(max_size=20))
def test_no_known_secret_survives_in_base64_whatever_stands_before_it(secret, before):
    told = base64.b64encode(f"{before}{secret}".encode("utf-8", "surrogatepass")).decode()
    assert Redactor([secret]).text(told) != told


@pytest.mark.parametrize("text", [
    "sk-proj-abcdefghijklmnop1234",
    "sk-ant-api03-abcdefghijklmnop",
    "sk_live_abcdefghij0123",
    "ghp_" + "a" * 36,
    "xoxb-1234567890-abcdef",
    "AIza" + "b" * 35,
    "AKIAABCDEFGHIJKLMNOP",
    "eyJhbGciOiJI.eyJzdWIiOiIx.sig",
    "postgres://admin:hunter2@db/shop",
    "Authorization: Bearer abcdef123456",
    "db password=hunter2 host=x",
    "-----BEGIN RSA PRIVATE KEY-----\nabc\n-----END RSA PRIVATE KEY-----",
])  # fmt: skip
def test_what_looks_like_a_key_is_taken_out(text):
    told = Redactor().text(f"log: {text}.")
    assert HIDDEN in told
    assert "hunter2" not in told


@pytest.mark.parametrize("shape", [shape for _, shape in redaction._KINDS])
@settings(max_examples=30)
@given(data=st.data())
def test_whatever_has_the_shape_of_a_key_is_taken_out(shape, data):
    text = data.draw(st.from_regex(shape, alphabet=st.characters(max_codepoint=126)))
    assert Redactor().text(text) == re.sub(redaction._SHAPES, HIDDEN, text) != text


@pytest.mark.parametrize(
    "text", ["order sk-7", "task-1234567890123456789", "the token bucket", "max_tokens=100", "北京"]
)
def test_ordinary_text_stays_as_it_is(text):
    assert Redactor().text(text) == text


def test_values_are_hidden_under_names_that_speak_of_secrets():
    value = {
        "password": "x", "apiKey": "y", "auth": {"access_token": "z", "user": "maria"}, "max_tokens": 100,
        "total_tokens": 7, "list": [{"secret": 1}], "none": None, "token": "",
    }  # fmt: skip
    assert Redactor().value(value) == {
        "password": HIDDEN, "apiKey": HIDDEN, "auth": {"access_token": HIDDEN, "user": "maria"}, "max_tokens": 100,
        "total_tokens": 7, "list": [{"secret": HIDDEN}], "none": None, "token": "",
    }  # fmt: skip


def test_a_short_value_is_no_secret():
    assert Redactor(["a", "7", ""]).text("a banana for 7") == "a banana for 7"


@given(st.text(max_size=200), st.lists(st.text(max_size=12), max_size=4))
def test_no_known_secret_is_left_in_any_text(text, secrets):
    known = [secret for secret in secrets if len(secret) >= 6 and secret not in HIDDEN]
    told = Redactor(known).text("".join([text, *known, text]))
    assert not any(secret in told.replace(HIDDEN, "") for secret in known)
