"""Secrets are taken out of texts and values; what is none stays."""

from __future__ import annotations

import base64
import re
from functools import partial
from urllib.parse import quote

import pytest
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st

from handrail.core import redaction
from handrail.core.redaction import (
    HIDDEN,
    NO_SECRETS,
    ForeignSecrets,
    KnownSecrets,
    Redactor,
)
from handrail.invisible import is_unseen
from handrail.testing.contracts.dialects import check_growth
from tests.support.corpus import CORPUS, rows

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


@given(
    st.text(
        st.characters(min_codepoint=33, max_codepoint=126), min_size=8, max_size=30
    ),
    st.text(max_size=20),
)
def test_no_known_secret_survives_in_base64_whatever_stands_before_it(secret, before):
    told = base64.b64encode(
        f"{before}{secret}".encode("utf-8", "surrogatepass")
    ).decode()
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


@pytest.mark.parametrize("kind", redaction._KINDS)
@settings(max_examples=30)
@given(data=st.data())
def test_whatever_has_the_shape_of_a_key_is_taken_out(kind, data):
    text = data.draw(st.from_regex(kind, alphabet=st.characters(max_codepoint=126)))
    key = re.search(kind, text)[1]
    assume(key is not None)  # only a whole token of three parts is one
    assert HIDDEN in Redactor().text(text)
    assert key not in Redactor().text(text)


KEYS = {
    "AWS": "AWS_SECRET_ACCESS_KEY=wJalrXUtnFEMIK7MDENGbPxRfiCYzEXAMPLEKEY",
    "JSON in a text": 'answered {"user": "a", "password": "hunter2 hunter2"}',
    "JSON in JSON": '{\\"password\\": \\"hunter2-hunter2\\"}',
    "an escaped quote in it": '{"password": "hunter2\\"hunter2"}',
    "a list": 'told {"passwords": ["hunter2 1", "abcdefgh"], "user": "a"}',
    "a list over lines": "told {\"tokens\": [\n \"\",        'hunter2',\n        'abcdefgh'\n    ]",
    "a list in JSON in JSON": '{\\"api_keys\\": [\\"hunter2-1\\", \\"abcdefgh\\"]}',
    "a list that is cut": 'secrets: ["1", "hunter2-abcdefgh',
    "a colon": "password: hunter2-hunter2",
    "capitals": "DB_PASSWORD=hunter2-hunter2",
    "a query": "https://x.example/?api_key=abcdef0123456789hunter2&page=2",
    "a token": "token=abcdef0123456789hunter2",
    "Basic": "Authorization: Basic dXNlcjpodW50ZXIyaHVudGVyMg==",
    "a cookie": "Cookie: sid=abcdef; theme=hunter2",
    "Chinese": "密码：hunter2-hunter2",
    "GitLab": "glpat-abcdefghij0123456789",
    "npm": "npm_abcdefghijklmnopqrstuvwxyz0123456789",
    "PyPI": "pypi-AgEIcHlwaS5vcmcCJGFiY2RlZmdo0123456789",
    "Hugging Face": "hf_abcdefghijklmnopqrstuvwxyz01234567",
    "Google": "ya29.a0AfB_byCabcdefghijklmnop",
    "SendGrid": "SG.abcdefghijklmnopqrstuv.abcdefghijklmnopqrstuvwxyz0123456789ABCDEFG",
    "Azure": "AccountKey=abcdefghijklmnopqrstuvwxyz0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789ABC==;",
    "Slack": "https://hooks.slack.com/services/T00000000/B00000000/XXXXXXXXXXXXXXXXXXXXXXXX",
    "Tavily": "tvly-abcdefghijklmnopqrstuvwxyz",
    "an address without a user": "redis://:hunter2@cache/0",
    "a private key that is cut": "-----BEGIN PRIVATE KEY-----\nMIIEvQIBADANBgkqhkiG9w0hunter2",
    "a letter that nobody sees": "s\u200bk-proj-abcdefghijklmnopqrst",
    "wide letters": "ｓｋ-proj-abcdefghijklmnopqrst",
    "slanted letters": "𝐬𝐤-proj-abcdefghijklmnopqrst",
}


@pytest.mark.parametrize("text", KEYS.values(), ids=KEYS)
def test_a_key_is_known_by_its_prefix_or_the_name_before_it_also_in_disguise(text):
    told = Redactor().text(f"log: {text} .")
    assert HIDDEN in told
    assert not re.search(r"hunter2|abcdefgh|XXXX|wJalr|dXNlcj|AgEI|MIIE", told), told


def test_a_known_secret_is_found_between_letters_that_nobody_sees():
    assert (
        Redactor(["correct horse"]).text("it is c\u200borrect \u2060horse, 好")
        == f"it is {HIDDEN}, 好"
    )


def test_no_invisible_character_hides_a_key():
    unseen = [char for char in map(chr, range(0x80, 0x110000)) if is_unseen(char)]
    redactor = Redactor()
    missed = [
        char
        for char in unseen
        if redactor.text(f"ghp_{'a' * 10}{char}{'b' * 26}") != HIDDEN
    ]
    assert not missed


PIECES = [
    "eyJ-", "eyJaaaaaaaa.", "-----BEGIN PRIVATE KEY-----", "-----BEGIN ", "://", "://a:", "sk-", "SG.",
    "SG." + "a" * 60, "ghp_" + "a" * 29 + " ", "Bearer ", "password=", 'password:"', '"password\\":',
    "authorization: bearer ", 'token: ["', 'token: ["a",', "token: [ ",
    "cookie: a", "token: bearer  ", "s\u200bk-", "ｓｋ-", "𝐬", "a\u0338",
]  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("piece", PIECES)
def test_redaction_takes_linear_time_whatever_is_repeated(piece):
    def work(chars):
        return partial(Redactor().text, piece * (chars // len(piece)))

    check_growth(work, 100_000)


@pytest.mark.slow
@pytest.mark.parametrize(
    "piece", [SECRET[:-1], SECRET[0], SECRET, SECRET.encode().hex()[:-1]]
)
def test_known_secrets_are_found_in_linear_time_whole_and_in_pieces(piece):
    known = KnownSecrets([SECRET])

    def in_pieces(chars):
        text = piece * (chars // len(piece))

        def stream():
            held = ""
            for place in range(0, len(text), 5):
                held += text[place : place + 5]
                held = held[known.certain_length(held) :]

        return stream

    check_growth(in_pieces, 20_000)
    check_growth(
        lambda chars: partial(known.text, piece * (chars // len(piece))), 100_000
    )


def test_no_text_of_ordinary_arguments_is_taken_for_a_key():
    calls = [
        call
        for row in rows("bfcl/single_turn.jsonl.gz")
        for call in row["gold_calls"] or ()
    ]
    assert len(calls) > 1000
    redactor, taken = Redactor(), []
    redactor.value(
        calls, lambda text: taken.append(text) if redactor.text(text) != text else text
    )
    assert taken == []


@pytest.mark.parametrize(
    "count", ["max_tokens='", 'Input-Tokens: "', "max_tokens=['", "totalToken: '"]
)
def test_a_count_of_tokens_hides_no_secret_behind_it(count):
    text = f"{count} and password=hunter22"
    assert Redactor().text(text) == f"{count} and password={HIDDEN}"


@pytest.mark.parametrize(
    "text",
    [
        "order sk-7",
        "task-1234567890123456789",
        "the token bucket",
        "max_tokens=100",
        "北京",
        "token: 5",
        "tokens: [5, 17]",
        "passwords: []",
        "the token: of our love",
        "secret: ingredients",
        "total tokens: 123456",
        "北京，密码：请重置",
        "https://a.example:8080/x?key=value",
        "no api key: ask for one",
    ],
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


_BESIDE_OTHERS = st.lists(
    st.sampled_from([
        "token", "password", "密码", "=", "：", '"', "\uff07", "[", ",", "{", "max_", "Bearer ", "sk-", "://", "u:p4@",
        "hunter2x9", "abcdefgh12345678", "\u0130", "\u212a", "\u200b", "\n", "    ", "-----BEGIN PRIVATE KEY-----",
    ]),
    max_size=7,
).map("".join)  # fmt: skip


@given(st.lists(_BESIDE_OTHERS, min_size=2, max_size=3))
@example(['to\u212aen="hunter2x9"', "\u0130"])  # this letter's small form is two
@example(["token=a\uff071bcdefgh", "\u200b"])  # beside a disguise, a wide quote
def test_what_is_found_in_a_text_is_found_beside_any_other_text(texts):
    redactor = Redactor()
    together = "\n\n\n\n\n".join(texts)
    has_secret = any(redactor.text(each) != each for each in texts)
    assert not has_secret or redactor.text(together) != together


def test_letters_that_hide_nothing_are_no_disguise():
    usual = [
        char
        for char in map(chr, range(0x80, 0x10000))
        if not re.match(redaction._UNUSUAL, char)
    ]
    assert {"é", "，", "：", "—", "ひ", "密"} <= set(usual)
    assert not [char for char in usual if re.match(redaction._DISGUISED, char)]


# ---------------------------------------------------------------------- secrets of AWS, which have no form of their own


AWS_ID = "AKIAIOSFODNN7EXAMPLE"
AWS_SECRET = "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY"
DIGEST = "356a192b7913b04c54574d18c28d46e6395428ab"


@pytest.mark.parametrize("redact", [Redactor().value, ForeignSecrets(NO_SECRETS).value])
@pytest.mark.parametrize("value", [
    f"{AWS_ID} {AWS_SECRET}",
    f"{AWS_ID}:{AWS_SECRET}",
    f"id={AWS_ID}, and {AWS_SECRET}.",
    {"id": AWS_ID, "of it": AWS_SECRET},
    {"rows": [[AWS_SECRET, 1], {"id": AWS_ID}]},
    [f"export A={AWS_ID}", f"export B={AWS_SECRET}"],
])  # fmt: skip
def test_a_secret_of_aws_is_taken_out_beside_its_id(value, redact):
    told = str(redact(value))
    assert AWS_ID not in told
    assert AWS_SECRET not in told


@pytest.mark.parametrize("redact", [Redactor().value, ForeignSecrets(NO_SECRETS).value])
def test_a_digest_stays_beside_an_id_of_aws_and_forty_letters_stay_without_one(redact):
    assert DIGEST in str(redact({"id": AWS_ID, "commit": DIGEST}))
    assert redact({"text": AWS_SECRET}) == {"text": AWS_SECRET}


# ---------------------------------------------------------------------- what others wrote and a model reads


def foreign(text):
    return ForeignSecrets(NO_SECRETS).text(text)


@pytest.mark.parametrize("text", [
    "sk-proj-abc123def456ghi789jkl012",
    "sk-ant-api03-" + "aB3_" * 20,
    "sk_live_abcdefghij0123",
    "rk_test_abcdefghij0123",
    "ghp_" + "a" * 36,
    "gho_" + "a" * 36,
    "github_pat_11ABCDEFG0" + "a" * 40,
    "glpat-abcdefghij0123456789",
    "xoxb-1234567890-abcdef",
    "https://hooks.slack.com/services/T00000000/B00000000/XXXXXXXXXXXXXXXXXXXXXXXX",
    "AIza" + "b" * 35,
    "ya29.a0AfB_byCabcdefghijklmnop",
    "GOCSPX-abcdefghij0123456789",
    AWS_ID,
    "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0In0.c2lnbmF0dXJl",
    "-----BEGIN RSA PRIVATE KEY-----\n" + "MIIEabcd" * 16 + "\n-----END RSA PRIVATE KEY-----",
    "-----BEGIN OPENSSH PRIVATE KEY-----\\n" + "b3BlbnNz" * 16,
    "postgres://admin:hunter2@db/shop",
    "hf_abcdefghijklmnopqrstuvwxyz01234567",
    "npm_abcdefghijklmnopqrstuvwxyz0123456789",
])  # fmt: skip
def test_a_key_in_others_words_is_taken_out_of_what_a_model_reads(text):
    told = foreign(f"It says: {text} .")
    assert HIDDEN in told
    assert told.endswith(".")


@pytest.mark.parametrize("text", [
    DIGEST,
    "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08",
    "81d6d314-85db-47c2-a986-d234ffe967b8",
    "https://x.example/sk-learn-in-ten-minutes-a-short-introduction-2024",
    "the file begins with -----BEGIN PRIVATE KEY----- and ends like it",
    "Bearer authentication is what it takes; password: required",
    "postgres://user:password@host:5432/db",
    "max_tokens=4096 token_count: 12 key=value",
    "data:image/png;base64," + base64.b64encode(bytes(range(256)) * 300).decode(),
    base64.urlsafe_b64encode(bytes(range(256)) * 300).decode(),
])  # fmt: skip
def test_what_only_resembles_a_key_stays_in_what_a_model_reads(text):
    assert foreign(text) == text


@given(st.binary(max_size=4000))
def test_no_picture_in_base64_loses_a_letter(data):
    text = base64.b64encode(data).decode()
    assert foreign(text) == text


@pytest.mark.parametrize("name", ["bfcl", "acebench", "mcp_tools", "retrieval", "wire"])
def test_no_text_of_the_corpus_loses_a_word(name):
    paths = sorted((CORPUS / name).glob("*.jsonl*"))
    if not paths:
        pytest.skip("the corpus is absent; set HANDRAIL_CORPUS")
    texts = [str(row) for path in paths for row in rows(f"{name}/{path.name}")]
    assert [text for text in texts if foreign(text) != text] == []


@pytest.mark.slow
@pytest.mark.parametrize(
    "piece", [*PIECES, AWS_ID, f"{AWS_ID} ", "AKIA", "sk-" + "a" * 15 + "-"]
)
def test_others_words_are_looked_through_in_linear_time(piece):
    check_growth(lambda chars: partial(foreign, piece * (chars // len(piece))), 100_000)
