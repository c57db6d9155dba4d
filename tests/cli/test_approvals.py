"""`handrail approvals`: a question asked by one process, answered by another, used by a third."""

import json
from pathlib import Path

import pytest

import handrail as hr
from handrail.cli.loading import tools_from
from handrail.stores.sqlite import SqliteStore
from handrail.testing import call
from tests.support.terminals import PATIENCE_S, program_in_terminal


@pytest.fixture
def waiting(deployed):
    """A deployment with a run that waits for a person."""
    made = deployed()
    made.run, _ = made.begin()
    return made


def resumed(waiting, *words):
    return waiting("runs", "resume", waiting.run, "--tools", waiting.tools, *words)


def test_a_question_is_asked_listed_approved_and_used_by_four_processes(deployed):
    made = deployed()
    asked = made.process("run", "Delete A-1.", "--tools", made.tools)
    assert (asked.returncode, asked.stdout) == (3, "")
    listed = made.process("approvals", "list", "--json")
    (question,) = json.loads(listed.stdout)["questions"]
    assert (question["tool"], question["arguments"], question["risk"]) == (
        "delete_order",
        {"order_id": "A-1"},
        "high",
    )
    assert (
        f"handrail runs resume {question['run_id']} --tools {made.tools}"
        in asked.stderr
    )
    approved = made.process("approvals", "approve", question["id"], "--by", "maria")
    assert (approved.returncode, approved.stderr) == (0, "")
    gone_on = made.process("runs", "resume", question["run_id"], "--tools", made.tools)
    assert (gone_on.returncode, gone_on.stdout) == (0, "It is gone.\n")
    assert "approved by maria" in gone_on.stderr
    assert len(made.server.requests) == 2  # nothing was asked of the model twice


def test_the_list_says_what_waits_and_how_long_there_is(waiting):
    listed = waiting("approvals", "list").stdout
    assert waiting.question()["id"] in listed
    assert 'delete_order  {"order_id": "A-1"}' in listed
    assert "7 d left" in listed


def test_without_a_question_nothing_is_on_stdout(deployed):
    made = deployed(["Nothing to do."])
    made.begin()
    result = made("approvals", "list")
    assert (result.exit_code, result.stdout, result.stderr) == (
        0,
        "",
        "no question is open\n",
    )


def test_a_question_is_shown_with_its_exact_arguments_and_the_commands_that_answer_it(
    waiting,
):
    id = waiting.question()["id"]
    shown = waiting("approvals", "show", id).stdout
    for told in (
        '"order_id": "A-1"',
        "high",
        "delete_order has high risk",
        waiting.run,
        "Delete an order.",
    ):
        assert told in shown
    assert f"approve: handrail approvals approve {id}\n" in shown
    assert f"deny:    handrail approvals deny {id}\n" in shown


def test_arguments_that_would_move_the_cursor_are_shown_escaped(deployed):
    made = deployed([call("delete_order", order_id="A\x1b[2K\u202e1"), "Done."])
    made.begin()
    for words in (("list",), ("show", made.question()["id"])):
        shown = made("approvals", *words).stdout
        assert "\x1b" not in shown
        assert "\u202e" not in shown


def test_a_denial_reaches_the_model_with_its_reason(waiting):
    told = waiting(
        "approvals",
        "deny",
        waiting.question()["id"],
        "--reason",
        "ask the customer",
        "--by",
        "maria",
    )
    assert told.stdout.startswith(
        'denied by maria (ask the customer): delete_order  {"order_id": "A-1"}\n'
    )
    result = resumed(waiting)
    assert result.exit_code == 5
    assert "ask the customer" in json.dumps(waiting.server.requests[-1])


def test_a_call_that_is_asked_about_again_after_a_deploy_says_why(waiting):
    first = waiting.question()["id"]
    assert "asked again" not in waiting("approvals", "show", first).stdout
    waiting("approvals", "approve", first, "--by", "maria")
    tools = Path(waiting.tools)
    before = tools.read_text(encoding="utf-8")
    tools.write_text(before.replace("Delete an order.", "Delete orders."), "utf-8")
    assert resumed(waiting).exit_code == 3
    second = waiting.question()["id"]
    shown = waiting("approvals", "show", second).stdout
    assert f"maria approved this call ({first}); the tool's description" in shown


def test_edited_arguments_are_what_runs(waiting):
    told = waiting(
        "approvals",
        "approve",
        waiting.question()["id"],
        "--edit",
        '{"order_id": "B-2"}',
    )
    assert 'with edited arguments: delete_order  {"order_id": "B-2"}' in told.stdout
    assert resumed(waiting).exit_code == 0
    assert "deleted B-2" in json.dumps(waiting.server.requests[-1])
    assert (
        'with {"order_id": "B-2"} instead'
        in waiting("runs", "show", waiting.run).stdout
    )


def test_edited_arguments_may_come_from_stdin(waiting):
    told = waiting(
        "approvals",
        "approve",
        waiting.question()["id"],
        "--edit",
        "-",
        stdin='{"order_id": "B-2"}',
    )
    assert '{"order_id": "B-2"}' in told.stdout


@pytest.mark.parametrize(("edited", "says"), [
    ('{"id": "B-2"}', "`order_id` is required"),
    ('{"order_id": 7.5}', "`order_id` must be"),
])  # fmt: skip
def test_edited_arguments_that_do_not_fit_the_tool_are_refused_at_once_and_decide_nothing(
    waiting, edited, says
):
    result = waiting("approvals", "approve", waiting.question()["id"], "--edit", edited)
    assert (result.exit_code, result.stdout) == (2, "")
    assert says in result.stderr
    assert result.stderr.count("\n") == 1
    assert waiting.question()["state"] == "open"


@pytest.mark.parametrize("edited", ["no json", "[1]", '"text"'])
def test_edited_arguments_that_are_no_object_decide_nothing(waiting, edited):
    result = waiting("approvals", "approve", waiting.question()["id"], "--edit", edited)
    assert (result.exit_code, result.stdout) == (2, "")
    assert result.stderr.count("\n") == 1
    assert waiting.question()["state"] == "open"


def test_the_first_word_counts(waiting):
    id = waiting.question()["id"]
    waiting("approvals", "deny", id, "--by", "maria")
    result = waiting("approvals", "approve", id, "--by", "paul")
    assert (result.exit_code, result.stdout) == (2, "")
    assert (
        result.stderr
        == f"error: the question {id!r} cannot be answered again: it is denied by maria\n"
    )


def test_who_decides_is_the_user_of_the_system_unless_told(waiting, monkeypatch):
    monkeypatch.setenv("LOGNAME", "otto")
    told = waiting("approvals", "approve", waiting.question()["id"], "--json")
    assert json.loads(told.stdout)["by"] == "otto"


def test_a_used_question_is_still_listed_with_all(waiting):
    waiting("approvals", "approve", waiting.question()["id"], "--by", "maria")
    resumed(waiting)
    assert waiting.json("approvals", "list")["questions"] == []
    (used,) = waiting.json("approvals", "list", "--state", "all", "--run", waiting.run)[
        "questions"
    ]
    assert (used["state"], used["by"]) == ("used", "maria")
    again = waiting("approvals", "approve", used["id"], "--by", "paul")
    assert again.stderr.endswith(
        "cannot be answered again: it is used, approved by maria\n"
    )


def test_what_the_command_line_approves_is_kept_as_its_word(waiting):
    assert resumed(waiting, "--yes-to", "high").exit_code == 0
    (used,) = waiting.json("approvals", "list", "--state", "used")["questions"]
    assert used["by"] == "--yes-to high"


def test_the_command_line_does_not_overrule_a_person(waiting):
    waiting("approvals", "deny", waiting.question()["id"], "--by", "maria")
    assert resumed(waiting, "--yes-to", "high").exit_code == 5


def test_a_word_that_was_given_elsewhere_is_not_asked_for_at_the_terminal_again(
    waiting,
):
    waiting("approvals", "approve", waiting.question()["id"], "--by", "maria")
    words = (
        "runs",
        "resume",
        waiting.run,
        "--tools",
        waiting.tools,
        "--store",
        waiting.place,
    )
    with program_in_terminal(*words) as (person, program):
        seen = person.reads_all()
        assert program.wait(PATIENCE_S) == 0
    assert "approved by maria" in seen
    assert "(a)pprove" not in seen


def test_what_is_said_at_the_terminal_is_kept_and_used_like_any_other_word(waiting):
    words = (
        "runs",
        "resume",
        waiting.run,
        "--tools",
        waiting.tools,
        "--store",
        waiting.place,
    )
    with program_in_terminal(*words) as (person, program):
        person.reads_until(r"\(a\)pprove")
        # another process could answer it meanwhile
        assert waiting.question()["state"] == "open"
        person.types("d\n")
        person.reads_until("Why")
        person.types("not today\n")
        person.reads_all()
        assert program.wait(PATIENCE_S) == 5
    (kept,) = waiting.json("approvals", "list", "--state", "all")["questions"]
    assert (kept["state"], kept["decision_reason"]) == ("denied", "not today")


def test_a_question_at_a_terminal_may_be_answered_from_another_process_and_is_then_taken_back(
    waiting,
):
    words = (
        "runs",
        "resume",
        waiting.run,
        "--tools",
        waiting.tools,
        "--store",
        waiting.place,
    )
    with program_in_terminal(*words) as (person, program):
        person.reads_until(r"\(a\)pprove")
        waiting("approvals", "approve", waiting.question()["id"], "--by", "maria")
        seen = person.reads_all()
        assert program.wait(PATIENCE_S) == 0
    assert "taken back: it is approved by maria" in seen
    assert "It is gone." in seen


def test_a_question_outlives_the_process_that_asked_it_at_a_terminal(waiting):
    words = (
        "runs",
        "resume",
        waiting.run,
        "--tools",
        waiting.tools,
        "--store",
        waiting.place,
    )
    with program_in_terminal(*words) as (person, program):
        person.reads_until(r"\(a\)pprove")
        program.kill()
        program.wait(PATIENCE_S)
    waiting("approvals", "approve", waiting.question()["id"], "--by", "maria")
    gone_on = waiting.process("runs", "resume", "--all", "--tools", waiting.tools)
    assert (gone_on.returncode, gone_on.stdout) == (0, "It is gone.\n")


@pytest.mark.parametrize("scope", ["run", "rule"])
def test_a_word_for_more_than_one_call_is_listed_answers_the_next_question_and_is_revoked(
    waiting, scope
):
    waiting(
        "approvals",
        "approve",
        waiting.question()["id"],
        "--for",
        scope,
        "--by",
        "maria",
    )
    assert resumed(waiting).exit_code == 0
    (rule,) = waiting.json("approvals", "standing")["standing"]
    assert (rule["tool"], rule["by"]) == ("delete_order", "maria")
    assert rule["run_id"] == (waiting.run if scope == "run" else "")
    assert rule["id"] in waiting("approvals", "standing").stdout

    _, second = waiting.begin()
    # another run, so the word for this one does not hold
    assert second.exit_code == (0 if scope == "rule" else 3)

    told = waiting("approvals", "revoke", rule["id"], "--by", "otto")
    assert "asked about again" in told.stdout
    assert waiting("approvals", "standing").stdout == ""
    assert waiting.begin()[1].exit_code == 3
    assert waiting("approvals", "revoke", rule["id"]).exit_code == 2
    words = [(each["event"], each["body"]["by"]) for each in decisions_in(waiting)]
    assert words == [
        ("ApprovalDecided", "maria"),
        ("Granted", "maria"),
        ("Revoked", "otto"),
    ]


def decisions_in(waiting):
    with SqliteStore(waiting.place.removeprefix("sqlite:")) as store:
        log = [each.as_json() for each in store.log().result(PATIENCE_S)]
    return [
        each
        for each in log
        if each["event"] in ("ApprovalDecided", "Granted", "Revoked")
    ]


def test_a_denial_is_in_the_audit_log_with_who_and_why(waiting):
    waiting(
        "approvals",
        "deny",
        waiting.question()["id"],
        "--by",
        "maria",
        "--reason",
        "ask first",
    )
    (denial,) = decisions_in(waiting)
    assert denial["run_id"] == waiting.run
    assert [denial["body"][name] for name in ("by", "granted", "reason", "tool")] == [
        "maria", False, "ask first", "delete_order"
    ]  # fmt: skip


def test_other_arguments_are_for_one_call_only(waiting):
    words = (
        "approvals",
        "approve",
        waiting.question()["id"],
        "--for",
        "run",
        "--edit",
        '{"order_id": "B-2"}',
    )
    assert waiting(*words).exit_code == 2
    assert waiting.question()["state"] == "open"


def test_the_next_step_of_a_client_s_call_is_the_client_s(deployed):
    made = deployed()
    run = "mcp:shop:process:1:editor"
    with SqliteStore(made.place.removeprefix("sqlite:")) as store:
        runtime = hr.SyncRuntime(tools_from([made.tools]), store=store)
        runtime.call("delete_order", {"order_id": "A-1"}, run=run)
    told = made("approvals", "approve", made.question()["id"]).stdout
    assert told.endswith(
        "go on:   the client makes the same call again, in the same session or with the same key\n"
    )


@pytest.mark.parametrize("verb", ["show", "approve", "deny"])
def test_an_unknown_question_is_one_sentence(waiting, verb):
    result = waiting("approvals", verb, "a_none")
    assert (result.exit_code, result.stdout) == (2, "")
    assert result.stderr.startswith(
        "error: there is no question 'a_none' in this store; `handrail approvals list`"
    )


def test_a_store_that_keeps_no_questions_says_so(waiting):
    result = waiting("approvals", "list", "--store", "memory:")
    assert (result.exit_code, result.stdout) == (2, "")
    assert (
        "the store 'memory:' keeps no questions to people; name one that does: --store sqlite"
        in result.stderr
    )


# -- several people ----------------------------------------------------------------------------------------------------

TWO = '[[rules]]\ntool = "delete_order"\nrequired_approvals = 2\n'


@pytest.fixture
def of_two(deployed, tmp_path, monkeypatch):
    """A deployment whose run waits for two people; otto has begun it."""
    monkeypatch.setenv("LOGNAME", "otto")
    rules = tmp_path / "rules.toml"
    rules.write_text(TWO)
    made = deployed()
    made.rules = ("--policy", str(rules))
    made.run, _ = made.begin(*made.rules)
    return made


def test_two_people_approve_in_processes_of_their_own_and_the_run_goes_on(of_two):
    id = of_two.question()["id"]
    first = of_two.process("approvals", "approve", id, "--by", "anna")
    assert first.stdout.startswith(
        "agreed, 1 of 2 people: anna did; not otto, whom the run acts for: delete_order"
    )
    assert resumed(of_two, *of_two.rules).exit_code == 3
    question = of_two.question()
    assert (
        question["required_approvals"],
        question["agreed"],
        question["principal"],
    ) == (2, ["anna"], "otto")
    assert "open, 1 of 2" in of_two("approvals", "list").stdout
    shown = of_two("approvals", "show", id).stdout
    assert "1 of 2 people: anna did; not otto" in shown
    assert f"approvals approve {id} --by NAME\n" in shown
    second = of_two.process("approvals", "approve", id, "--by", "ben")
    assert second.stdout.startswith("approved by anna and ben: delete_order")
    assert resumed(of_two, *of_two.rules).exit_code == 0
    log = map(json.loads, of_two("audit", "export").stdout.splitlines())
    words = [each["body"] for each in log if each.get("event") == "ApprovalDecided"]
    assert [(each["by"], each["agreed"]) for each in words] == [
        ("anna", ["anna"]),
        ("ben", ["anna", "ben"]),
    ]


@pytest.mark.parametrize(("words", "says"), [
    (("--by", "Anna"), "Anna has agreed already"),
    (("--by", "otto"), "otto is whom the run acts for"),
    ((), "otto is whom the run acts for"),
    (("--by", ""), "--by is ''; it takes a name"),
    (("--by", "ben", "--edit", '{"order_id": "B-2"}'), "other arguments"),
    (("--by", "ben", "--for", "run"), "standing approval"),
])  # fmt: skip
def test_a_word_that_does_not_count_among_two_is_refused_in_one_sentence(
    of_two, words, says
):
    id = of_two.question()["id"]
    of_two("approvals", "approve", id, "--by", "anna")
    refused = of_two("approvals", "approve", id, *words)
    assert (refused.exit_code, refused.stdout, refused.stderr.count("\n")) == (2, "", 1)
    assert says in refused.stderr
    assert of_two.question()["agreed"] == ["anna"]


@pytest.mark.parametrize("policy", ["the same", "a laxer one"])
def test_no_option_of_the_command_line_is_one_of_two_people(of_two, policy):
    rules = of_two.rules if policy == "the same" else ()
    assert resumed(of_two, *rules, "--yes-to", "high").exit_code == 3
    assert of_two.question()["agreed"] == []


def test_two_people_may_agree_at_one_terminal(of_two):
    words = (
        "runs",
        "resume",
        of_two.run,
        "--tools",
        of_two.tools,
        "--store",
        of_two.place,
        *of_two.rules,
    )
    with program_in_terminal(*words) as (person, program):
        for name in ("anna", "ben"):
            person.reads_until(r"\(l\)eave it open")
            person.types("a\n")
            person.reads_until("Your name: ")
            person.types(f"{name}\n")
        assert "It is gone." in person.reads_all()
        assert program.wait(PATIENCE_S) == 0
    (used,) = of_two.json("approvals", "list", "--state", "used")["questions"]
    assert used["by"] == "anna and ben"
