"""`handrail call`: one call by hand."""

import json

import pytest


@pytest.mark.parametrize(("words", "code", "says"), [
    (["get_order", '{"order_id": "A-1"}'], 0, ""),
    (["get_order", '{"id": "A-1"}'], 1, "INVALID_ARGUMENTS"),
    # nothing is ever closed for it
    (["get_order", "{'order_id': "], 1, "TRUNCATED_CALL"),
    # two readings
    (["get_order", '{"order_id": "A", "order_id": "B"}'], 1, "BAD_JSON"),
    (["get_ordr", "{}"], 1, "Did you mean `get_order`"),
    # nobody is at the terminal
    (["delete_order", '{"order_id": "A-1"}'], 5, "NOT_APPROVED"),
    (["drop_all"], 5, "NOT_PERMITTED"),
    # a write that ran out of time
    (["pay", '{"order_id": "A-1"}'], 6, "IN_DOUBT"),
    (["get_order", "{}", "--yes-to", "everything"], 2, "risks are low, medium, high"),
    (["get_order", "{}", "--policy", "none.toml"], 2, "error: there is no file none.toml\n"),
    (["get_order", "{}", "--policy", "."], 2, ". is a directory"),
    # a budget is for runs
    (["get_order", "{}", "--max-calls", "3"], 2, "No such option"),
])  # fmt: skip
def test_the_exit_code_and_a_sentence_tell_how_a_call_ended(
    cli, shop, words, code, says
):
    result = cli("call", *words, "--tools", shop)
    assert result.exit_code == code
    assert says in result.stderr
    assert "Traceback" not in result.stderr
    assert bool(result.stdout) == (code == 0)


def test_whoever_names_no_tools_is_told_how(cli):
    result = cli("call", "get_order", '{"order_id": "A-1"}')
    assert (result.exit_code, "Name where the tools are: --tools" in result.stderr) == (
        2,
        True,
    )


def test_a_call_that_nobody_could_be_asked_about_says_how_to_approve_it(cli, shop):
    result = cli("call", "delete_order", '{"order_id": "A-1"}', "--tools", shop)
    assert result.stderr.endswith(
        "call it from a terminal, or approve it with --yes-to high\n"
    )


def test_the_result_is_what_a_model_would_read(cli, shop):
    assert (
        cli("call", "get_order", '{"order_id": "订单"}', "--tools", shop).stdout
        == '{"order_id":"订单","paid":49}\n'
    )


def test_arguments_come_from_stdin_and_are_mended_as_a_models_are(cli, shop):
    result = cli(
        "call",
        "get_order",
        "-",
        "--tools",
        shop,
        "--json",
        stdin="{'order_id': 'A-1',}",
    )
    assert json.loads(result.stdout) == {
        "v": 1, "tool": "get_order", "ok": True, "attempts": 1, "repairs": ["single_quotes", "trailing_comma"],
        "value": {"order_id": "A-1", "paid": 49}, "text": json.loads(result.stdout)["text"],
    }  # fmt: skip


def test_a_failure_as_json_is_the_error_contract(cli, shop):
    result = cli("call", "drop_all", "--tools", shop, "--json")
    told = json.loads(result.stdout)
    assert (result.exit_code, result.stderr) == (5, "")
    assert (told["v"], told["ok"], told["error_code"], told["retryable"]) == (
        1,
        False,
        "NOT_PERMITTED",
        False,
    )


@pytest.mark.parametrize(("risks", "code"), [
    ("high", 0),
    ("LOW, Medium,HIGH", 0),   # as one happens to type it
    ("low,medium", 5),         # up to medium, and this one is high
])  # fmt: skip
def test_consent_on_the_command_line_reaches_up_to_the_named_risk(
    cli, shop, risks, code
):
    assert (
        cli(
            "call",
            "delete_order",
            '{"order_id": "A-1"}',
            "--tools",
            shop,
            "--yes-to",
            risks,
        ).exit_code
        == code
    )


@pytest.mark.parametrize("risk", ["medium", "high"])
def test_consent_to_a_risk_includes_the_risks_below_it(
    cli, shop, asks_about_notes, risk
):
    words = (
        "note",
        '{"order_id": "A-1"}',
        "--tools",
        shop,
        "--policy",
        asks_about_notes,
        "--verbose",
    )
    assert cli("call", *words, "--yes-to", "low").exit_code == 5
    said = cli("call", *words, "--yes-to", risk)
    assert said.exit_code == 0
    # for the record, what the person said
    assert f"approved by --yes-to {risk}" in said.stderr


def test_a_policy_denies_by_rule(cli, shop, tmp_path):
    rules = tmp_path / "policy.toml"
    rules.write_text(
        '[[rules]]\ntool = "note"\nthen = "deny"\nreason = "notes are frozen"\n'
    )
    result = cli(
        "call", "note", '{"order_id": "A-1"}', "--tools", shop, "--policy", str(rules)
    )
    assert result.exit_code == 5
    assert "notes are frozen" in result.stderr


def test_verbose_shows_attempts_on_stderr_and_leaves_stdout_alone(cli, shop):
    result = cli("call", "get_order", '{"order_id": "down"}', "--tools", shop, "-v")
    assert (result.exit_code, result.stdout) == (1, "")
    assert "attempt 1: ConnectionRefusedError" in result.stderr
    assert "UNAVAILABLE" in result.stderr


def test_what_a_tool_prints_goes_to_stderr(cli, talkative):
    result = cli("call", "look", "--tools", talkative, "--json")
    assert json.loads(result.stdout)["value"] == "seen"
    assert result.stderr == "imported\nlooking\n"


def test_injected_parameters_are_filled_from_the_command_line_as_text(cli, tenants):
    result = cli(
        "call",
        "orders_of",
        '{"day": 3}',
        "--tools",
        tenants,
        "--inject",
        "tenant=a=b",
        "--inject",
        "more=1",
    )
    assert (result.exit_code, result.stdout) == (0, "a=b on 3\n")


@pytest.mark.parametrize(("words", "says"), [
    ([], "'orders_of' needs `tenant` from you; add: --inject tenant=..."),
    (["--inject", "tenant"], "--inject has 'tenant'; write it as NAME=VALUE"),
    (["--inject", "=acme"], "--inject has '=acme'"),
])  # fmt: skip
def test_an_injected_parameter_that_nobody_fills_is_told_with_the_option(
    cli, tenants, words, says
):
    result = cli("call", "orders_of", '{"day": 3}', "--tools", tenants, *words)
    assert (result.exit_code, result.stdout) == (2, "")
    assert says in result.stderr


@pytest.mark.parametrize(("words", "times"), [((), 1), (("--debug",), 3)])
def test_what_is_down_is_said_once_and_for_each_attempt_with_debug(
    cli, shop, caplog, words, times
):
    result = cli("call", "get_order", '{"order_id": "down"}', "--tools", shop, *words)
    assert result.exit_code == 1
    told = [
        record.getMessage()
        for record in caplog.records
        if record.levelname == "WARNING"
    ]
    assert len(told) == times
    assert all(
        "get_order raised in run" in each and "ConnectionRefusedError" in each
        for each in told
    )


def test_with_a_store_a_write_is_done_once_over_many_commands(cli, tmp_path):
    tools = tmp_path / "tickets.py"
    tools.write_text(
        'import handrail as hr\nfrom pathlib import Path\n\n\n@hr.tool(effect="write", key="ticket:{title}")\n'
        'def open_ticket(title: str) -> str:\n    """Open a ticket."""\n'
        '    with (Path(__file__).parent / "opened").open("a") as file:\n'
        '        file.write(title + "\\n")\n    return "T-1"\n'
    )
    words = (
        "call",
        "open_ticket",
        '{"title": "slow"}',
        "--tools",
        str(tools),
        "--json",
    )
    kept = [
        json.loads(cli(*words, "--store", f"sqlite:///{tmp_path}/kept.db").stdout)
        for _ in range(2)
    ]
    assert [(told["value"], told.get("replayed")) for told in kept] == [
        ("T-1", None),
        ("T-1", True),
    ]
    assert (tmp_path / "opened").read_text() == "slow\n"
    # nothing is kept unless a store is named
    assert "replayed" not in json.loads(cli(*words).stdout)
    assert (tmp_path / "opened").read_text() == "slow\nslow\n"
