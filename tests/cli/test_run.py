"""`handrail run`: one question against a scripted server."""

import json
import socket

import pytest

from handrail.messages import Turn
from handrail.testing import Fault, ScriptedServer, call

# Said by the server, so that a test does not wait for the retries that these answers otherwise earn.
NO_RETRY = {"x-should-retry": "false"}


@pytest.fixture
def ask(cli, shop):
    """Ask a scripted server; its script is the first argument."""

    def run(script, *words, faults=(), stdin=None):
        with ScriptedServer(script, faults=faults) as server:
            return cli(
                "run",
                "How is A-1?",
                "--tools",
                shop,
                "--model",
                server.model,
                *words,
                stdin=stdin,
            )

    return run


def test_the_answer_is_on_stdout_and_what_happened_on_stderr(ask):
    result = ask([call("get_order", order_id="A-1"), "It is paid."])
    assert (result.exit_code, result.stdout) == (0, "It is paid.\n")
    assert "→ get_order" in result.stderr
    assert "✓ get_order" in result.stderr


def test_quiet_leaves_only_the_answer(ask):
    result = ask([call("get_order", order_id="A-1"), "It is paid."], "-q")
    assert (result.stdout, result.stderr) == ("It is paid.\n", "")


def test_json_is_one_document(ask):
    result = ask([call("get_order", order_id="A-1"), "It is paid."], "--json")
    document = json.loads(result.stdout)
    assert (document["v"], document["status"], document["text"], document["calls"]) == (
        1,
        "done",
        "It is paid.",
        1,
    )
    assert result.stderr == ""


def test_jsonl_is_one_event_a_line_and_the_run_at_the_end(ask):
    result = ask([call("get_order", order_id="A-1"), "It is paid."], "--jsonl")
    records = [json.loads(line) for line in result.stdout.splitlines()]
    assert all(record["v"] == 1 for record in records)
    told = [record["event"] for record in records]
    assert told[0] == "run_started"
    assert told[-2:] == ["run_ended", "run"]
    assert (
        told.index("call_admitted")
        < told.index("attempt_started")
        < told.index("call_finished")
    )
    assert (
        "http_exchange" not in told
        # only when asked for: it is long, and may hold what was meant for one pair of eyes
    )
    assert records[-1]["run"]["text"] == "It is paid."


def test_the_wire_can_be_looked_at(ask, monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", "sk-very-secret-and-long-enough")
    result = ask(["It is paid."], "--wire")
    assert "> POST http://127.0.0.1:" in result.stderr
    assert "> authorization: Bearer ***" in result.stderr
    assert '"authorization: Bearer $KEY"' in result.stderr  # as curl
    assert "very-secret" not in result.output


def test_debug_shows_every_message(ask):
    result = ask([call("get_order", order_id="A-1"), "It is paid."], "--debug", "-q")
    assert "[call call_" in result.stderr
    assert "[result call_" in result.stderr
    assert result.stdout == "It is paid.\n"


def test_the_question_may_come_from_stdin(cli):
    with ScriptedServer([lambda messages: messages[-1].text.upper()]) as server:
        assert (
            cli("run", "-", "--model", server.model, stdin="how warm?").stdout
            == "HOW WARM?\n"
        )


@pytest.mark.parametrize(
    ("question", "stdin"), [("", None), (" \n", None), ("-", ""), ("-", "\n")]
)
def test_an_empty_question_is_not_asked(cli, question, stdin):
    with ScriptedServer(["Yes."]) as server:
        result = cli("run", question, "--model", server.model, stdin=stdin)
        assert (result.exit_code, server.requests) == (2, [])
    assert "The question is empty" in result.stderr


def test_the_system_text_is_told_first(cli):
    with ScriptedServer(["Yes."]) as server:
        cli("run", "Ready?", "--model", server.model, "--system", "Be short.")
        assert server.requests[0]["messages"][0] == {
            "role": "system",
            "content": "Be short.",
        }


@pytest.mark.parametrize(("script", "words", "code", "says"), [
    ([call("delete_order", order_id="A-1"), "Waiting."], [], 3, "waiting for approval of delete_order (run r_"),
    ([call("delete_order", order_id="A-1"), "Deleted."], ["--yes-to", "high"], 0, "approved by --yes-to high"),
    ([call("drop_all"), "I may not."], [], 5, "NOT_PERMITTED"),
    ([call("pay", order_id="A-1"), "I do not know."], [], 6, "IN_DOUBT"),
    ([call("get_order", order_id="A-1"), "Paid."], ["--max-turns", "1"], 4, "1 of 1 turns are used"),
    ([Turn("It is", finish="length")], [], 1, "was cut by its length limit"),
    ([Turn("", refusal="I cannot help with that.")], [], 1, "refused: I cannot help with that."),
    # the same call again and again
    ([call("get_order", order_id="A-1")], [], 1, "stopped: "),
])  # fmt: skip
@pytest.mark.parametrize("quiet", [[], ["-q"]])
def test_the_exit_code_and_a_sentence_tell_how_a_run_ended(
    ask, script, words, code, says, quiet
):
    result = ask(script, *words, *quiet)
    assert result.exit_code == code
    # then the sentence is about a call, and quiet does not show calls
    ended_well = code in (0, 5, 6)
    assert says in result.stderr or (quiet and ended_well)


def test_a_run_that_waits_names_the_risk_that_nobody_agreed_to(ask, asks_about_notes):
    result = ask(
        [call("note", order_id="A-1"), "Waiting."],
        "--policy",
        asks_about_notes,
        "--yes-to",
        "low",
    )
    assert result.exit_code == 3
    assert (
        "`note` has medium risk: --yes-to medium approves it unasked" in result.stderr
    )


@pytest.mark.parametrize(("fault", "says"), [
    (Fault(401, '{"error": {"message": "Incorrect API key", "code": "invalid_api_key"}}'), "401 invalid_api_key"),
    (Fault(429, '{"error": {"message": "Slow down", "code": "rate_limit"}}', headers=NO_RETRY), "Slow down"),
    (Fault(500, "<html>Bad</html>", headers=NO_RETRY), "500"),
    (Fault(200, "this is not JSON"), "failed: "),
    (Fault(200, "{}"), "failed: "),
])  # fmt: skip
def test_a_server_that_fails_is_told_in_a_sentence(ask, fault, says):
    result = ask(["never said"], faults=[fault] * 3)
    assert (result.exit_code, result.stdout) == (1, "")
    assert says in result.stderr
    assert "127.0.0.1" in result.stderr  # who failed
    assert "Traceback" not in result.stderr


def test_a_server_that_is_down_is_told_with_its_address(cli):
    with socket.socket() as taken:
        # bound and not listening: nobody else gets it, and it refuses
        taken.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        result = cli("run", "?", "--model", f"openai:any@http://{address}/v1")
    assert result.exit_code == 1
    assert f"failed: any at http://{address}/v1/chat/completions" in result.stderr
    assert "cannot be reached" in result.stderr


@pytest.mark.parametrize(("words", "says"), [
    # no model at all
    ([], "HANDRAIL_MODEL"),
    (["--model", "openai:gpt"], "set OPENAI_API_KEY"),                     # no key
    (["--model", "nobody:x"], "there is no model 'nobody'; known are openai"),
    (["--model", "opnai:x"], "there is no model 'opnai'; did you mean 'openai'?"),
    (["--model", "gpt"], "write `provider:name`"),
    (["--model", "openai:x@localhost"], "does not begin with http"),
    (["--model", "openai:x@http://h", "--json", "--jsonl"], "choose one"),
    (["--model", "openai:x@http://h", "--max-seconds", "0"], "not in the range"),
])  # fmt: skip
def test_bad_configuration_is_told_before_anything_is_asked(cli, words, says):
    result = cli("run", "?", *words)
    assert (result.exit_code, result.stdout) == (2, "")
    assert says in result.stderr


def test_the_model_comes_from_the_environment(cli, monkeypatch):
    with ScriptedServer(["Yes."]) as server:
        monkeypatch.setenv("HANDRAIL_MODEL", server.model)
        assert cli("run", "Ready?").stdout == "Yes.\n"


@pytest.mark.parametrize("form", ["--json", "--jsonl"])
def test_what_a_tool_prints_stays_out_of_the_json(cli, talkative, form):
    with ScriptedServer([call("look"), "Seen."]) as server:
        result = cli(
            "run", "Look!", "--tools", talkative, "--model", server.model, form
        )
    assert json.loads(result.stdout.splitlines()[-1])["v"] == 1
    assert all(json.loads(line) for line in result.stdout.splitlines())
    assert result.stderr == "imported\nlooking\n"


def test_an_injected_parameter_is_filled_or_missed_before_the_model_is_asked(
    cli, tenants
):
    with ScriptedServer(
        [call("orders_of", day=3), lambda messages: messages[-1].result.text]
    ) as server:
        words = ("run", "Which?", "--tools", tenants, "--model", server.model)
        missed = cli(*words)
        assert (missed.exit_code, server.requests) == (2, [])
        assert "--inject tenant=..." in missed.stderr
        assert cli(*words, "--inject", "tenant=acme").stdout == "acme on 3\n"


SECRETIVE = """
import handrail as hr

@hr.tool(effect="read", sends=hr.Sends(trust="trusted"))
def log_in(user: str, password: str) -> dict:
    \"\"\"Log in.\"\"\"
    return {"token": "ghp_0123456789abcdefghijABCDEFGHIJ012345", "note": "AWS_SECRET_ACCESS_KEY=wJalrXUtnFEMIK7MDENG"}

@hr.tool(effect="read", limits=hr.Limits(max_attempts=1))
def broken() -> str:
    \"\"\"Fail.\"\"\"
    raise RuntimeError("\\x1b]0;owned\\x07 password=wJalrXUtnFEMIK7MDENG host=db")
"""


@pytest.mark.parametrize(
    "flags", [(), ("--verbose",), ("--wire",), ("--wire", "--jsonl")]
)
def test_no_secret_of_a_call_is_on_the_screen_unless_it_is_wanted_raw(
    cli, tmp_path, flags
):
    tools = tmp_path / "secretive.py"
    tools.write_text(SECRETIVE)
    script = [
        call("log_in", user="a", password="correct-horse-7"),
        call("broken"),
        "Done.",
    ]
    shown = {}
    for raw in ((), ("--raw",)):
        with ScriptedServer(script) as server:
            result = cli(
                "run", "?", "--tools", str(tools), "--model", server.model, *flags, *raw
            )
        wire = [
            line for line in result.stdout.splitlines() if '"http_exchange"' in line
        ]
        shown[raw] = result.stderr + "".join(wire)
    if flags:
        assert "correct-horse-7" in shown["--raw",]
        assert "ghp_0123" in shown["--raw",]
    for secret in ("correct-horse-7", "ghp_0123", "wJalr"):
        assert secret not in shown[()]


def test_what_a_tool_raised_cannot_paint_the_terminal_of_whoever_debugs(cli, tmp_path):
    tools = tmp_path / "secretive.py"
    tools.write_text(SECRETIVE)
    result = cli("call", "broken", "{}", "--tools", str(tools), "--debug")
    assert "\\x1b]0;owned\\x07" in result.stderr
    assert "\x1b]" not in result.stderr
    assert "password=***" in result.stderr
    assert "wJalr" not in result.stderr
