"""`handrail decode`: what a provider sent, as a body or as a stream."""

import json

import pytest

from handrail.dialects import dialect
from tests.support.weather import CALL, answer_in, every_wire, stream_in

LIMITED = '{"error": {"message": "Slow down.", "type": "requests", "code": "rate_limit_exceeded"}}'


@pytest.mark.parametrize("sent", [answer_in, stream_in], ids=["body", "stream"])
@pytest.mark.parametrize("wire", every_wire(), ids=lambda wire: wire.name)
def test_a_call_is_read_on_every_wire_whether_whole_or_streamed(
    cli, wire, sent, weather
):
    result = cli(
        "decode", "--wire", wire.name, "--tools", weather, "--json", stdin=sent(wire)
    )
    told = json.loads(result.stdout)
    assert (result.exit_code, told["dialect"], told["finish"]) == (
        0,
        wire.name,
        "calls",
    )
    assert [(call["name"], call["value"]) for call in told["calls"]] == [
        (CALL.name, {"city": "Paris"})
    ]
    assert told["usage"]["input_tokens"] == 120


def test_a_person_reads_what_it_cost(cli):
    told = cli(
        "decode", "--wire", "openai-chat", stdin=answer_in(dialect("openai-chat"))
    ).stdout
    assert told.splitlines()[-2:] == ["finish  calls", "tokens  120 in, 18 out"]


@pytest.mark.parametrize(
    "head", ["", ": a comment\n\n", "\ufeff", "\n", "event: message\n"]
)
def test_a_stream_is_known_by_its_first_line(cli, head):
    sent = f'{head}data: {{"choices": [{{"delta": {{"content": "Hi"}}, "finish_reason": "stop"}}]}}\n\n'
    assert "text    Hi" in cli("decode", "--wire", "openai-chat", stdin=sent).stdout


def test_a_stream_without_an_end_is_told_as_cut_and_its_call_as_refused(cli):
    stream = stream_in(dialect("openai-chat"))
    cut = stream[: stream.index('"finish_reason":"tool_calls"')]
    result = cli("decode", "--wire", "openai-chat", stdin=cut)
    assert result.exit_code == 1
    assert "✗ TRUNCATED_CALL" in result.stdout
    assert "error: it has no clean end" in result.stdout


def test_an_error_of_the_provider_is_told_with_what_it_means(cli):
    result = cli("decode", "--wire", "openai-chat", stdin=LIMITED)
    assert (result.exit_code, result.stdout) == (1, "")
    assert "Slow down." in result.stderr
    document = json.loads(
        cli("decode", "--wire", "openai-chat", "--json", stdin=LIMITED).stdout
    )
    assert (document["ok"], document["code"], document["retryable"]) == (
        False,
        "rate_limit_exceeded",
        True,
    )


@pytest.mark.parametrize("sent", ["", "<html>502</html>", "{", "data: {oops}\n\n"])
def test_what_is_no_answer_is_told_in_one_sentence(cli, sent):
    result = cli("decode", "--wire", "openai-chat", stdin=sent)
    assert (result.exit_code, result.stdout, result.stderr.count("\n")) == (1, "", 1)


def test_many_answers_are_read_and_one_that_fails_does_not_stop_the_others(cli):
    wire = dialect("openai-chat")
    lines = [
        json.loads(answer_in(wire)),
        {"id": "s", "body": stream_in(wire)},
        json.loads(LIMITED),
        stream_in(wire),
    ]
    result = cli(
        "decode",
        "--wire",
        "openai-chat",
        "--jsonl",
        stdin="\n".join(map(json.dumps, lines)),
    )
    told = [json.loads(line) for line in result.stdout.splitlines()]
    assert (result.exit_code, [each["ok"] for each in told]) == (
        1,
        [True, True, False, True],
    )
    assert told[0]["calls"] == told[1]["calls"] == told[3]["calls"]
    assert (told[1]["id"], told[2]["code"]) == ("s", "rate_limit_exceeded")


def test_a_prompt_is_no_wire(cli, call_lines):
    result = cli("decode", "--wire", call_lines, stdin="{}")
    assert (result.exit_code, result.stdout) == (2, "")
    assert "use `handrail parse`. Wires are openai-chat" in result.stderr
