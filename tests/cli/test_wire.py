"""What was on the wire, for a person."""

import json
import shlex
import subprocess

from handrail.events import HttpExchange
from handrail.history.wire import as_curl, exchange_text

EXCHANGE = HttpExchange(
    "POST",
    "http://127.0.0.1:8000/v1/chat/completions",
    {"content-type": "application/json", "authorization": "Bearer ***"},
    '{"messages":[{"role":"user","content":"it\'s 北京"}]}',
    200,
    '{"choices":[]}',
)


def test_requests_and_answers_are_laid_out_and_marked():
    text = exchange_text(EXCHANGE)
    assert text.startswith(
        "> POST http://127.0.0.1:8000/v1/chat/completions\n> content-type: application/json\n"
    )
    assert '>       "content": "it\'s 北京"\n' in text
    assert '< 200\n< {\n<   "choices": []\n< }\n' in text


def test_a_stream_is_shown_as_it_came():
    text = exchange_text(
        HttpExchange(
            "POST", "http://h", {}, "{}", 200, 'data: {"a":1}\n\ndata: [DONE]\n\n'
        )
    )
    assert '< data: {"a":1}\n<\n< data: [DONE]\n' in text


def test_the_curl_command_sends_the_same_body_and_takes_the_key_from_the_shell():
    words = shlex.split(as_curl(EXCHANGE))
    assert words[:3] == ["curl", "-sS", EXCHANGE.url]
    assert "authorization: Bearer $KEY" in words
    assert json.loads(words[words.index("-d") + 1]) == json.loads(EXCHANGE.body)


def test_nothing_beside_a_masked_key_is_read_by_the_shell():
    tricky = HttpExchange("POST", "h", {"x": '*** $(id) `id` " \\'}, "", 200, "")
    command = as_curl(tricky).replace("curl", "printf %s", 1)
    how = {"env": {"KEY": "k"}, "text": True}
    printed = subprocess.check_output(["/bin/sh", "-c", command], **how)
    assert 'x: k $(id) `id` " \\' in printed


def test_nothing_in_a_body_can_leave_its_quotes():
    tricky = HttpExchange(
        "POST", "http://h/$(touch x)", {"x": "`id`"}, "'; touch x; '$(id)", 200, ""
    )
    assert shlex.split(as_curl(tricky)) == [
        "curl",
        "-sS",
        tricky.url,
        "-H",
        "x: `id`",
        "-d",
        tricky.body,
    ]
