"""`handrail runs`: what is kept of a run, gone on with, cancelled, forked, replayed and exported by later commands."""

import json
import os
import signal
import sqlite3
import subprocess
import sys
import time
from contextlib import closing

import pytest
from msgspec.structs import replace

import handrail as hr
from handrail.calls import ToolCall
from handrail.cli.commands import demo
from handrail.cli.loading import tools_from
from handrail.cli.store_access import command_line, mask_password
from handrail.messages import Turn
from handrail.process_identity import owner
from handrail.records import JournalEntry, describe_time
from handrail.stores.sqlite import SqliteStore
from handrail.testing import ScriptedModel, call
from tests.cli.keeping import ASKING, PAID, recorded
from tests.support.terminals import PATIENCE_S


@pytest.fixture
def waiting(deployed):
    """A deployment with a run that waits for a person."""
    made = deployed()
    made.run, _ = made.begin()
    return made


def until(is_so):
    deadline = time.monotonic() + PATIENCE_S
    while not is_so():
        assert time.monotonic() < deadline
        time.sleep(0.01)


# ---------------------------------------------------------------------- looking


def test_a_run_is_kept_only_when_a_store_is_named(cli, deployed, monkeypatch, tmp_path):
    made = deployed(PAID)
    monkeypatch.delenv("HANDRAIL_STORE")
    monkeypatch.chdir(tmp_path)
    made.begin()
    assert not list(tmp_path.glob("*.db"))
    run, _ = made.begin("--store", "sqlite:///mine.db")
    assert (
        cli("runs", "list", "--store", "sqlite:///mine.db", "--json").stdout.count(run)
        == 1
    )


def test_the_store_may_stand_in_the_settings_of_the_project(
    deployed, monkeypatch, tmp_path
):
    made = deployed(PAID)
    monkeypatch.delenv("HANDRAIL_STORE")
    monkeypatch.chdir(tmp_path)
    (tmp_path / "handrail.toml").write_text(
        '[store]\nplace = "sqlite:///project.db"\n', encoding="utf-8"
    )
    run, _ = made.begin()
    assert run in made("runs", "list").stdout


@pytest.mark.parametrize(("line", "says"), [
    ('audit_keyfile = "audit.key"',
     "'audit_keyfile' is not a setting of store; the settings are place, audit_key_file"),
    ("audit_key_file = 3", "`audit_key_file` of store is 3; write text in quotes"),
])  # fmt: skip
def test_no_run_is_begun_where_the_settings_of_the_store_are_misspelt(
    deployed, monkeypatch, tmp_path, line, says
):
    made = deployed(PAID)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "handrail.toml").write_text(f"[store]\n{line}\n", encoding="utf-8")
    result = made("run", "Delete A-1.", "--tools", made.tools)
    assert (result.exit_code, result.stderr) == (2, f"error: {says}\n")
    assert made.server.requests == []


def test_the_list_has_the_newest_first_with_what_was_asked(deployed):
    made = deployed(PAID)
    first, _ = made.begin()
    second, _ = made.begin()
    assert [run["run_id"] for run in made.json("runs", "list")["runs"]] == [
        second,
        first,
    ]
    assert [run["run_id"] for run in made.json("runs", "list", "-n", "1")["runs"]] == [
        second
    ]
    lines = made("runs", "list").stdout.splitlines()
    assert lines[1].split()[:2] == [second, "done"]
    assert lines[1].endswith("Delete A-1.")


def test_the_list_has_what_calls_alone_have_used(cli, tmp_path):
    @hr.tool(effect="write")
    def pay(order_id: str) -> str:
        """Pay an order."""
        return order_id

    store = f"sqlite:{tmp_path}/store.db"
    message = {
        "role": "assistant",
        "tool_calls": [
            {
                "id": "c1",
                "type": "function",
                "function": {"name": "pay", "arguments": '{"order_id": "7"}'},
            }
        ],
    }
    with hr.SyncRuntime([pay], store=store) as runtime:
        runtime.handle(message, run="ticket-881")
        stored = runtime.run("Hello.", model=ScriptedModel(["Hello."]))
    told = cli("runs", "list", "--store", store).stdout.splitlines()
    [line] = [line for line in told if "ticket-881" in line]
    assert "calls alone" in line
    assert "pay" in line
    assert len([line for line in told if stored.id in line]) == 1
    told = json.loads(cli("runs", "list", "--store", store, "--json").stdout)
    assert [each["run_id"] for each in told["calls"]] == ["ticket-881"]
    assert [each["run_id"] for each in told["runs"]] == [stored.id]


def test_a_list_that_is_cut_says_that_there_are_more(deployed):
    made = deployed(PAID)
    for _ in range(2):
        made.begin()
    cut = made("runs", "list", "-n", "1")
    assert cut.stderr == "there are more; to see as many again: -n 2\n"
    assert made("runs", "list", "-n", "2").stderr == ""


def test_a_run_that_waits_for_a_worker_says_so(deployed):
    made = deployed(PAID)
    made("runs", "submit", "Delete A-1.", "--run-id", "r1", "--queue", "mail")
    shown = made("runs", "show", "r1").stdout
    assert "model    the worker's\n" in shown
    assert "waits for a worker in queue mail\n" in shown
    assert "its process left it" not in shown
    assert made.json("runs", "show", "r1")["queue"] == "mail"
    with SqliteStore(made.place.removeprefix("sqlite:")) as store:
        store.note_segment("r1", "the worker that took it has no tool pay").result(10)
    assert (
        "note:    the worker that took it has no tool pay"
        in made("runs", "show", "r1").stdout
    )
    heads, row, note = made("runs", "list").stdout.splitlines()
    assert row.split()[:4] == ["r1", "queued", "in", "mail"]
    # below the question, where it makes no column wide
    assert note == " " * heads.index("question") + (
        "the worker that took it has no tool pay"
    )


def test_runs_that_wait_for_their_model_are_woken_and_others_are_named(deployed):
    made = deployed(PAID)
    for name in ("away1", "away2", "lease", "queued"):
        made("runs", "submit", "Go.", "--run-id", name)
    with SqliteStore(made.place.removeprefix("sqlite:")) as store:
        for name, turn in {"away1": 1, "away2": 1, "lease": 0}.items():
            store.take_segment(name, 1, after_death=False).result(10)
            store.finish_segment(
                name, 1, wait_s=300.0, why="why", model_turn=turn
            ).result(10)
    assert "now:     handrail runs wake away1" in made("runs", "show", "away1").stdout
    assert "runs wake" not in made("runs", "show", "lease").stdout
    one = made("runs", "wake", "away1", "queued")
    assert (one.exit_code, one.stdout) == (
        2, "away1 is queued: its model is asked again now\n",
    )  # fmt: skip
    assert "the run 'queued' does not wait for its model: it is queued in" in one.stderr
    every = made("runs", "wake", "--all", "--json")
    assert every.exit_code == 0
    told = json.loads(every.stdout)
    assert told["woken"] == ["away2"]
    assert [*told["left"]] == ["lease"]
    rest = made("runs", "wake", "--all")
    assert rest.exit_code == 0
    assert "does not wait for its model: not before" in rest.stderr
    for words in ([], ["away1", "--all"]):
        assert made("runs", "wake", *words).exit_code == 2


def test_a_name_that_is_taken_by_another_question_is_refused_with_commands(deployed):
    made = deployed(PAID)
    first = ("runs", "submit", "Go.", "--run-id", "r1", "--scope", "acme")
    assert made(*first).stdout == made(*first).stdout == "@acme/r1\n"
    refused = made(*first, "--model", "openai:other")
    assert (refused.exit_code, refused.stdout) == (2, "")
    assert "a run '@acme/r1' is stored already, with another question" in refused.stderr
    assert "handrail runs show @acme/r1" in refused.stderr
    assert "resume(" not in refused.stderr
    waited = made("runs", "wait", "@acme/r1", "--within", "0")
    assert "the run '@acme/r1' has not ended" in waited.stderr


def test_a_run_of_a_provider_that_is_not_here_is_submitted_with_a_warning(deployed):
    made = deployed(PAID)
    submitted = made("runs", "submit", "Go.", "--run-id", "r1", "--model", "opnai:gpt")
    assert (submitted.exit_code, submitted.stdout) == (0, "r1\n")
    assert submitted.stderr == (
        "this process has no provider 'opnai' (did you mean openai:gpt?): "
        "the run waits until a worker has it\n"
    )
    known = made("runs", "submit", "Go.", "--run-id", "r2", "--model", "openai:gpt")
    assert (known.exit_code, known.stderr) == (0, "")


def test_a_run_that_waits_for_its_model_says_so_and_not_that_it_waits_for_a_worker(
    deployed,
):
    made = deployed(PAID)
    made("runs", "submit", "Delete A-1.", "--run-id", "r1", "--queue", "mail")
    with SqliteStore(made.place.removeprefix("sqlite:")) as store:
        store.take_segment("r1", 1, after_death=False).result(10)
        away = {"wait_s": 60.0, "why": "its model is away", "model_turn": 1}
        store.finish_segment("r1", 1, **away).result(10)
        [told] = store.list_submitted(["r1"]).result(10).values()
    assert told.note == (f"not before {describe_time(told.wake_at)}: its model is away")
    assert made("runs", "show", "r1").stdout.endswith(
        f"\nwaits in queue mail, {told.note}\nnow:     handrail runs wake r1\n"
    )
    _, row, below = made("runs", "list").stdout.splitlines()
    assert row.split()[:4] == ["r1", "queued", "in", "mail"]
    assert below.strip() == told.note
    assert made.json("runs", "show", "r1")["note"] == told.note


def test_who_answers_for_a_run_of_workers_is_not_told_to_resume_it(deployed):
    made = deployed([call("delete_order", order_id="A-1"), "Deleted."])
    model = os.environ["HANDRAIL_MODEL"]
    made("runs", "submit", "Delete A-1.", "--run-id", "r1", "--model", model)
    assert made.process("runs", "resume", "r1", "--tools", made.tools).returncode == 3
    shown = made("runs", "show", "r1").stdout
    assert shown.endswith("(or deny)\nthen a worker resumes the run by itself\n")
    waited = made("runs", "wait", "r1")
    assert (waited.exit_code, waited.stdout) == (3, "")
    assert waited.stderr.splitlines() == [
        "r1 is waiting for approval of delete_order",
        f"decide:  handrail approvals show {made.question()['id']}",
        "then a worker resumes the run by itself",
    ]
    approved = made("approvals", "approve", made.question()["id"], "--by", "maria")
    assert (
        "go on:   nothing to do: a worker resumes the run by itself\n"
        in approved.stdout
    )
    assert made.json("runs", "list")["runs"][0]["status"] == "queued"


@pytest.mark.parametrize(
    ("state", "says"),
    [
        ("UPDATE runs SET status = 'running', owner = '{owner}'", "a worker resumes the run by itself"),
        ("UPDATE runs SET status = 'done'; DELETE FROM submitted", "the run has gone on and ended"),
    ],
)  # fmt: skip
def test_an_answer_says_what_follows_however_quick_the_worker_is(deployed, state, says):
    made = deployed([call("delete_order", order_id="A-1"), "Deleted."])
    model = os.environ["HANDRAIL_MODEL"]
    made("runs", "submit", "Delete A-1.", "--run-id", "r1", "--model", model)
    made.process("runs", "resume", "r1", "--tools", made.tools)
    question = made.question()["id"]
    with sqlite3.connect(made.place.removeprefix("sqlite:")) as store:
        store.executescript(state.format(owner=owner()))
    approved = made("approvals", "approve", question, "--by", "maria")
    assert f"go on:   nothing to do: {says}\n" in approved.stdout


def test_the_list_can_be_of_one_status(waiting):
    assert [
        run["run_id"]
        for run in waiting.json("runs", "list", "--status", "waiting")["runs"]
    ] == [waiting.run]
    result = waiting("runs", "list", "--status", "failed")
    assert (result.stdout, result.stderr) == (
        "",
        "there are no failed runs in this store\n",
    )


def test_a_run_that_waits_tells_its_story_and_the_commands_to_go_on(waiting):
    shown = waiting("runs", "show", waiting.run).stdout
    id = waiting.question()["id"]
    milestones = [
        f"{waiting.run}  waiting for approval of delete_order",
        "> Delete A-1.",
        "\n  turn 1",
        '→ get_order  {"order_id": "A-1"}',
        '→ delete_order  {"order_id": "A-1"}',
        '✓ get_order  {"order_id":"A-1","paid":49}',
        "? delete_order  a person must agree: delete_order has high risk",
        "… delete_order  has no result yet",
        f"decide:  handrail approvals approve {id}",
        f"go on:   handrail runs resume {waiting.run} --tools ...",
    ]
    places = [shown.find(each) for each in milestones]
    assert -1 not in places, shown
    assert places == sorted(places)


def test_a_store_that_is_named_stands_in_the_commands_to_go_on(waiting, monkeypatch):
    monkeypatch.delenv("HANDRAIL_STORE")
    shown = waiting("runs", "show", waiting.run, "--store", waiting.place).stdout
    assert (
        f"handrail runs resume {waiting.run} --tools ... --store {waiting.place}"
        in shown
    )


def test_a_password_is_not_shown():
    place = "postgresql://me:s3cr3t:@x@host/database"
    assert mask_password(place) == "postgresql://me:***@host/database"
    assert "s3cr3t" not in command_line("runs list", place)


def test_a_run_that_is_over_tells_its_answer(paid):
    shown = paid("runs", "show", paid.run).stdout
    assert "It is paid." in shown
    assert shown.endswith("the run has ended\n")
    assert "resume" not in shown


def test_a_persons_word_is_part_of_the_story(waiting):
    waiting("approvals", "approve", waiting.question()["id"], "--by", "maria")
    waiting("runs", "resume", waiting.run, "--tools", waiting.tools)
    assert (
        "✓ delete_order  approved by maria"
        in waiting("runs", "show", waiting.run).stdout
    )


def test_a_run_is_shown_as_one_document(waiting):
    told = waiting.json("runs", "show", waiting.run)
    assert (told["v"], told["run_id"], told["status"], told["question"]) == (
        1,
        waiting.run,
        "waiting",
        "Delete A-1.",
    )
    assert [(each["name"], each["has_result"]) for each in told["turns"][0]["calls"]] == [
        ("get_order", True), ("delete_order", False)
    ]  # fmt: skip
    assert [each["tool"] for each in told["questions"]] == ["delete_order"]
    assert told["result"]["status"] == "waiting"


def test_debug_shows_every_message_and_wire_what_the_provider_sent(paid):
    assert "[call call_" in paid("runs", "show", paid.run, "--debug").stdout
    shown = paid("runs", "show", paid.run, "--wire").stdout
    assert '"tool_calls": [' in shown


def test_what_is_shown_cannot_move_the_cursor(deployed):
    made = deployed(
        [call("get_order", order_id="A\x1b[2K"), "It is\x1b[2K paid.\u202e"]
    )
    run, _ = made.begin()
    for words in (
        ("list",),
        ("show", run),
        ("show", run, "-v"),
        ("show", run, "--debug"),
        ("show", run, "--wire"),
    ):
        shown = made("runs", *words).stdout
        assert "\x1b" not in shown, words
        assert "\u202e" not in shown, words


# ---------------------------------------------------------------------- going on


def test_a_run_does_not_go_on_without_the_tools_that_it_waits_for(waiting, weather):
    before = recorded(waiting, waiting.run)
    for words, says in (
        ([], "it has called delete_order"),
        (["--tools", weather], "it has called delete_order"),
    ):
        result = waiting("runs", "resume", waiting.run, *words)
        assert (result.exit_code, result.stdout) == (2, "")
        assert says in result.stderr
    assert recorded(waiting, waiting.run) == before


def test_nobody_is_told_to_resume_a_run_whose_worker_lives_or_has_just_died(deployed):
    made = deployed(PAID)
    made("runs", "submit", "Delete A-1.", "--run-id", "r1")
    name = "from handrail.process_identity import owner; print(owner())"
    dead = subprocess.check_output([sys.executable, "-c", name], text=True).strip()
    for worker, says in (
        (owner(), "another worker resumes it by itself if its worker dies"),
        (dead, "its worker died\nanother worker resumes it by itself about 20 s after"),
    ):
        with closing(sqlite3.connect(made.place.removeprefix("sqlite:"))) as file:
            file.execute("UPDATE runs SET status = 'running', owner = ?", (worker,))
            file.commit()
        shown = made("runs", "show", "r1").stdout
        assert says in shown
        assert "runs resume" not in shown


def test_a_run_submitted_without_tools_is_not_said_to_have_started_with_others(
    deployed,
):
    made = deployed(PAID)
    made("runs", "submit", "Delete A-1.", "--run-id", "r1")
    result = made("runs", "resume", "r1", "--tools", made.tools)
    assert result.exit_code == 2
    assert "the tools differ" not in result.stderr
    assert "on the command line --model" in result.stderr


def test_tools_that_have_changed_are_mentioned(waiting, tmp_path):
    file = tmp_path / "shop.py"
    more = (
        '@hr.tool(effect="read")\ndef more() -> str:\n    """More."""\n    return ""\n'
    )
    file.write_text(f"{file.read_text()}\n{more}")
    result = waiting("runs", "resume", waiting.run, "--tools", waiting.tools)
    assert result.exit_code == 3
    assert "the tools differ from those that this run started with" in result.stderr


def test_a_budget_that_is_used_up_is_raised_by_the_command_that_goes_on(deployed):
    made = deployed(PAID)
    run, ended = made.begin("--max-turns", "1")
    assert ended.exit_code == 4
    assert made("runs", "resume", run, "--tools", made.tools).exit_code == 4
    gone_on = made("runs", "resume", run, "--tools", made.tools, "--max-turns", "5")
    assert (gone_on.exit_code, gone_on.stdout) == (0, "It is paid.\n")
    assert len(made.server.requests) == 2


def test_another_model_can_go_on(waiting, deployed):
    other = deployed([ASKING[0], "The other one says so."])
    waiting("approvals", "approve", waiting.question()["id"])
    words = ("--tools", waiting.tools, "--model", other.server.model, "--json")
    told = json.loads(waiting("runs", "resume", waiting.run, *words).stdout)
    assert (told["run_id"], told["text"]) == (waiting.run, "The other one says so.")


KILLED = '''
import os, signal
from pathlib import Path
import handrail as hr

HERE = Path(__file__).parent

@hr.tool(effect="write", replay="key")
def book(room: int, context: hr.Context[None]) -> str:
    """Book a room, at a far side that knows a key again."""
    keys = HERE / "keys"
    known = keys.read_text().split() if keys.exists() else []
    if context.idempotency_key not in known:
        keys.write_text(" ".join([*known, context.idempotency_key]))
    if len(known) == 0:
        os.kill(os.getpid(), signal.SIGKILL)
    return f"room {room}"
'''


def test_a_process_that_is_killed_in_the_middle_of_a_write_is_replaced_by_another(
    deployed, tmp_path
):
    (tmp_path / "rooms.py").write_text(KILLED, encoding="utf-8")
    made = deployed([call("book", room=7), "Booked."], tools=str(tmp_path / "rooms.py"))
    assert (
        made.process("run", "Book 7.", "--tools", made.tools).returncode
        == -signal.SIGKILL
    )
    (run,) = made.json("runs", "list")["runs"]
    assert run["status"] == "running"
    assert "its process died" in made("runs", "show", run["run_id"]).stdout
    assert "running (its process died)" in made("runs", "list").stdout
    gone_on = made.process("runs", "resume", run["run_id"], "--tools", made.tools)
    assert (gone_on.returncode, gone_on.stdout) == (0, "Booked.\n")
    assert "taken over" not in gone_on.stderr  # there was nobody to take it from
    assert len((tmp_path / "keys").read_text().split()) == 1
    assert len(made.server.requests) == 2


BEHIND_A_DOOR = """
import time
from pathlib import Path

import handrail as hr

HERE = Path(__file__).parent


@hr.tool(effect="read", timeout_s=60)
def look(room: int) -> str:
    \"""Look at a room, for as long as the door is closed.\"""
    (HERE / "inside").touch()
    while not (HERE / "open").exists():
        time.sleep(0.01)
    return f"room {room}"
"""


@pytest.fixture
def slow(deployed, tmp_path):
    """A deployment with a run that is under way in another process, which lives."""
    (tmp_path / "rooms.py").write_text(BEHIND_A_DOOR, encoding="utf-8")
    made = deployed([call("look", room=7), "Seen."], tools=str(tmp_path / "rooms.py"))
    with made.started("run", "Look at 7.", "--tools", made.tools) as other:
        until(lambda: (tmp_path / "inside").exists() or other.poll() is not None)
        assert other.poll() is None, other.stderr.read()
        (run,) = made.json("runs", "list")["runs"]
        made.run, made.other, made.open = (
            run.get("run_id", run.get("run")),
            other,
            (tmp_path / "open").touch,
        )
        yield made
        other.kill()


def test_a_run_whose_process_lives_is_not_taken_from_it_unasked(slow):
    refused = slow.process("runs", "resume", slow.run, "--tools", slow.tools)
    assert refused.returncode == 2
    assert f"is under way in process {slow.other.pid} of " in refused.stderr
    assert "`--anyway`" in refused.stderr
    slow.open()
    out, _ = slow.other.communicate(timeout=30)
    assert (slow.other.returncode, out) == (0, "Seen.\n")


def test_who_insists_takes_a_run_from_a_process_that_lives(slow, tmp_path):
    (tmp_path / "inside").unlink()
    with slow.started(
        "runs", "resume", slow.run, "--tools", slow.tools, "--anyway"
    ) as taken:
        until((tmp_path / "inside").exists)
        slow.open()
        out, err = taken.communicate(timeout=30)
    assert (taken.returncode, out) == (0, "Seen.\n")
    assert "is taken over" in err


DEADLY = KILLED.replace("if len(known) == 0", "if not (HERE / 'mended').exists()")


def test_a_run_that_kills_every_process_is_poisoned_until_somebody_has_looked_and_insists(
    deployed, tmp_path
):
    (tmp_path / "rooms.py").write_text(DEADLY, encoding="utf-8")
    made = deployed([call("book", room=7), "Booked."], tools=str(tmp_path / "rooms.py"))
    assert (
        made.process("run", "Book 7.", "--tools", made.tools).returncode
        == -signal.SIGKILL
    )
    (run,) = made.json("runs", "list")["runs"]
    every = ("runs", "resume", "--all", "--tools", made.tools)
    for _ in range(5):
        assert made.process(*every).returncode == -signal.SIGKILL
    shown = made("runs", "show", run["run_id"]).stdout
    assert "5 times in a row" in shown
    assert f"runs resume {run['run_id']} --tools ... --anyway" in shown
    refused = made.process(*every)
    assert refused.returncode == 2
    assert "is poisoned: it was taken over 5 times in a row" in refused.stderr
    again = made.process(*every)
    assert (again.returncode, again.stdout) == (0, "")
    assert (
        f"skipped, because poisoned (resume one with `runs resume RUN --anyway`): {run['run_id']}"
        in again.stderr
    )
    assert (
        made.process("runs", "resume", run["run_id"], "--tools", made.tools).returncode
        == 2
    )
    (listed,) = made.json("runs", "list", "--status", "poisoned")["runs"]
    assert (listed["ended"], listed["takeovers"]) == ("poisoned", 5)
    assert "poisoned" in made("runs", "list").stdout

    (tmp_path / "mended").touch()
    gone_on = made.process(
        "runs", "resume", run["run_id"], "--tools", made.tools, "--anyway"
    )
    assert (gone_on.returncode, gone_on.stdout) == (0, "Booked.\n")
    assert len((tmp_path / "keys").read_text().split()) == 1
    assert (
        made("runs", "resume", "--all", "--anyway", "--tools", made.tools).exit_code
        == 2
    )


DOUBTFUL = KILLED.replace('replay="key"', 'write=hr.Write(on_doubt="ask")')


@pytest.mark.parametrize(("word", "rooms", "told"), [
    (("--happened", "--value", '"room 7, I looked"'), 1, "room 7, I looked"),
    # under the same key, which this far side knows again
    (("--did-not-happen",), 1, "room 7"),
])  # fmt: skip
def test_after_a_kill_a_write_of_which_nobody_knows_the_end_waits_for_who_looks(
    deployed, tmp_path, word, rooms, told
):
    (tmp_path / "rooms.py").write_text(DOUBTFUL, encoding="utf-8")
    made = deployed([call("book", room=7), "Booked."], tools=str(tmp_path / "rooms.py"))
    assert (
        made.process("run", "Book 7.", "--tools", made.tools).returncode
        == -signal.SIGKILL
    )
    (run,) = made.json("runs", "list")["runs"]
    resume = ("runs", "resume", run["run_id"], "--tools", made.tools)
    assert made.process(*resume).returncode == 3
    assert "Look first" in made("approvals", "show", made.question()["id"]).stdout
    (write,) = made.json("ledger", "list", "--state", "in_doubt")["writes"]
    assert (
        made("ledger", "resolve", write["key"], *word, "--by", "maria").exit_code == 0
    )
    gone_on = made.process(*resume)
    assert (gone_on.returncode, gone_on.stdout) == (0, "Booked.\n")
    assert told in json.dumps(made.server.requests[-1])
    assert len((tmp_path / "keys").read_text().split()) == rooms


def test_a_run_that_ends_with_a_write_in_doubt_says_where_to_look(deployed, tmp_path):
    (tmp_path / "rooms.py").write_text(
        DOUBTFUL.replace(', write=hr.Write(on_doubt="ask")', ""), encoding="utf-8"
    )
    made = deployed(
        [call("book", room=7), "I do not know."], tools=str(tmp_path / "rooms.py")
    )
    made.process("run", "Book 7.", "--tools", made.tools)
    (run,) = made.json("runs", "list")["runs"]
    gone_on = made.process("runs", "resume", run["run_id"], "--tools", made.tools)
    assert (gone_on.returncode, gone_on.stdout) == (6, "I do not know.\n")
    (write,) = made.json(
        "ledger", "list", "--state", "in_doubt", "--run", run["run_id"]
    )["writes"]
    waited = made("runs", "wait", run["run_id"])
    assert (waited.exit_code, waited.stdout) == (6, "I do not know.\n")
    assert "done, 1 in doubt  " in made("runs", "list").stdout
    assert made.json("runs", "list")["runs"][0]["in_doubt"] == 1
    shown = made("runs", "show", run["run_id"]).stdout
    for told in (gone_on.stderr, waited.stderr, shown):
        assert "book may or may not have happened (its process died" in told
        assert "; a person must look" in told
        assert f"look:    handrail ledger show {write['key']}" in told
    assert (
        "taken over                     once from a process"
        in made("runs", "show", run["run_id"]).stdout
    )


SHELF = '''
import handrail as hr


def take(name: str, result: str) -> None:
    """Take a thing off the shelf."""


@hr.tool(effect="write", write=hr.Write(compensate=take))
def put(name: str) -> str:
    """Put a thing on the shelf."""
    return f"{name} is there"
'''


def test_a_write_that_was_taken_back_is_shown_as_such(deployed, tmp_path):
    (tmp_path / "shelf.py").write_text(SHELF, encoding="utf-8")
    made = deployed(
        [call("put", name="cup"), "It is there."], tools=str(tmp_path / "shelf.py")
    )
    run_id, _ = made.begin()
    assert made.json("runs", "show", run_id)["undone"] == []
    with hr.SyncRuntime(tools_from([made.tools]), store=made.place) as runtime:
        assert [result.ok for result in runtime.undo(run_id)] == [True]
    assert "put, step 1.0, was taken back\n" in made("runs", "show", run_id).stdout
    assert made.json("runs", "show", run_id)["undone"] == [
        {"tool": "put", "step": "1.0"}
    ]


@pytest.mark.parametrize(
    ("word", "says"),
    [("--happened", "happened"), ("--did-not-happen", "did not happen")],
)
def test_a_run_whose_doubt_was_resolved_says_so_and_sends_nobody_to_look(
    deployed, tmp_path, word, says
):
    (tmp_path / "rooms.py").write_text(
        DOUBTFUL.replace(', write=hr.Write(on_doubt="ask")', ""), encoding="utf-8"
    )
    made = deployed(
        [call("book", room=7), call("book", room=7), "I do not know."],
        tools=str(tmp_path / "rooms.py"),
    )
    made.process("run", "Book 7.", "--tools", made.tools)
    (run,) = made.json("runs", "list")["runs"]
    resume = ("runs", "resume", run["run_id"], "--tools", made.tools)
    made.process(*resume)
    (write,) = made.json("ledger", "list", "--state", "in_doubt")["writes"]
    assert "in doubt" in made("runs", "list").stdout
    made("ledger", "resolve", write["key"], word, "--by", "maria")
    assert "in doubt" not in made("runs", "list").stdout
    for told in (
        made("runs", "show", run["run_id"]).stdout,
        made.process(*resume).stderr,
    ):
        assert (
            f"book was in doubt when the model read its result; maria has since recorded that it {says}\n"
            in told
        )
        assert "must look" not in told
        assert "look:" not in told


def test_a_doubt_that_another_run_began_is_looked_for_where_it_stands(
    deployed, tmp_path
):
    shared = 'effect="write", key="book:{room}"'
    (tmp_path / "rooms.py").write_text(
        KILLED.replace('effect="write", replay="key"', shared), encoding="utf-8"
    )
    made = deployed(
        [call("book", room=7), call("book", room=7), "I do not know."],
        tools=str(tmp_path / "rooms.py"),
    )
    made.process("run", "Book 7.", "--tools", made.tools)
    second = made.process("run", "Book 7.", "--tools", made.tools)
    assert second.returncode == 6
    assert "look:    handrail ledger show book:7\n" in second.stderr
    made("ledger", "resolve", "book:7", "--happened", "--by", "maria")
    (run,) = made.json("runs", "list", "--status", "done")["runs"]
    assert (
        "maria has since recorded that it happened\n"
        in made("runs", "show", run["run_id"]).stdout
    )


def test_every_run_whose_process_is_gone_or_whose_questions_are_answered_goes_on_at_once(
    deployed, tmp_path
):
    (tmp_path / "rooms.py").write_text(KILLED, encoding="utf-8")
    made = deployed([call("book", room=7), "Booked."], tools=str(tmp_path / "rooms.py"))
    assert (
        made.process("run", "Book 7.", "--tools", made.tools).returncode
        == -signal.SIGKILL
    )
    (killed,) = made.json("runs", "list")["runs"]
    with SqliteStore(made.place.removeprefix("sqlite:")) as store:
        begun = replace(store.load_run(killed["run_id"]).result(10).record, epoch=0)
        # One that somebody drives: this very process; and one of another machine, of which nothing is known here.
        store.begin_run(replace(begun, run_id="r_mine", owner=owner())).result(10)
        store.begin_run(
            replace(begun, run_id="r_far", owner=f"elsewhere.{begun.owner}")
        ).result(10)
        # One that a process which lives has left: its store was away for a moment.
        store.begin_run(replace(begun, run_id="r_left", owner=owner())).result(10)
        store.append_entry(JournalEntry("r_left", 1, status="queued")).result(10)
    resumed = made.process("runs", "resume", "--all", "--tools", made.tools)
    assert (resumed.returncode, resumed.stdout) == (0, "Booked.\nBooked.\n")
    stand = {run["run_id"]: run["status"] for run in made.json("runs", "list")["runs"]}
    assert stand == {
        killed["run_id"]: "done",
        "r_left": "done",
        "r_mine": "running",
        "r_far": "running",
    }
    again = made.process("runs", "resume", "--all", "--tools", made.tools)
    assert (again.returncode, again.stdout) == (0, "")
    assert "nothing to resume" in again.stderr


DESK = """
import os

import handrail as hr
from handrail.testing import ScriptedModel, call


@hr.tool(effect="write", key="refund:{order_id}", approve=True, timeout_s=5)
def refund(order_id: str) -> str:
    return "paid"


DESK = hr.agent_tool(
    hr.Runtime([refund], store=os.environ["HANDRAIL_STORE"]), name="desk", description="Leave a refund to the desk.",
    model=ScriptedModel([call("refund", order_id="A-1"), "It is paid."]),
)
"""


@pytest.fixture
def desk(deployed, tmp_path):
    """A deployment whose run waits, because an agent that one of its calls asked waits for a person."""
    (tmp_path / "desk.py").write_text(DESK, encoding="utf-8")
    made = deployed(
        [call("desk", task="Refund A-1."), "The desk has paid."],
        tools=f"{tmp_path / 'desk.py'}:DESK",
    )
    made.told = made.process("run", "Refund A-1.", "--tools", made.tools)
    assert made.told.returncode == 3
    made.run = made.question()["run_id"].removesuffix(".1.0.1")
    return made


def test_a_run_whose_agent_waits_goes_on_with_all_others_once_that_question_is_answered(
    desk,
):
    words = ("runs", "resume", "--all", "--tools", desk.tools)
    assert "nothing to resume" in desk.process(*words).stderr
    desk("approvals", "approve", desk.question()["id"], "--by", "maria")
    resumed = desk.process(*words)
    assert (resumed.returncode, resumed.stdout) == (0, "The desk has paid.\n")
    assert {run["status"] for run in desk.json("runs", "list")["runs"]} == {"done"}


def test_who_approves_what_an_agent_asked_is_told_to_go_on_with_the_run_that_asked_the_agent(
    desk,
):
    approved = desk(
        "approvals", "approve", desk.question()["id"], "--by", "maria"
    ).stdout
    assert f"go on:   handrail runs resume {desk.run} --tools ...\n" in approved


def test_a_run_whose_agent_waits_names_the_question_and_no_risk_that_would_not_help(
    desk,
):
    assert (
        f"decide:  handrail approvals show {desk.question()['id']}\n"
        in desk.told.stderr
    )
    assert "--yes-to" not in desk.told.stderr


@pytest.mark.parametrize("words", [(), ("r_1", "--all")])
def test_one_run_is_resumed_or_all_of_them(waiting, words):
    assert waiting("runs", "resume", *words, "--tools", waiting.tools).exit_code == 2


def test_a_persons_word_is_told_beside_its_own_call_where_every_turn_counts_its_calls_anew(
    deployed,
):
    deletes = [
        Turn(
            calls=[ToolCall("call_0", "delete_order", f'{{"order_id": "{n}"}}')],
            finish="calls",
        )
        for n in "AB"
    ]
    made = deployed([*deletes, "Both are gone."])
    run, _ = made.begin()
    made("approvals", "approve", made.question()["id"], "--by", "maria")
    made("runs", "resume", run, "--tools", made.tools)
    shown = made("runs", "show", run).stdout
    first, second = shown.split("turn 2")
    assert "approved by maria" in first
    assert "a person must agree" in second
    assert shown.count("approved by maria") == 1


def test_a_run_that_is_over_tells_its_answer_again_and_does_nothing(paid):
    asked = len(paid.server.requests)
    again = paid("runs", "resume", paid.run, "--tools", paid.tools)
    assert (again.exit_code, again.stdout) == (0, "It is paid.\n")
    assert len(paid.server.requests) == asked


def test_a_chat_is_one_kept_run(deployed):
    made = deployed(PAID)
    assert (
        made("chat", "--tools", made.tools, stdin="Is A-1 paid?\nAnd now?\n").exit_code
        == 0
    )
    (run,) = made.json("runs", "list")["runs"]
    assert run["question"] == "Is A-1 paid?"
    shown = made("runs", "show", run["run_id"]).stdout
    assert shown.index("> Is A-1 paid?") < shown.index("> And now?")


def test_the_demo_can_be_kept_looked_at_and_replayed(deployed, monkeypatch):
    monkeypatch.setattr(demo, "PAUSE_S", 0.0)
    made = deployed()
    told = json.loads(made("demo", "--no-input", "--lang", "en", "--json").stdout)
    assert "→ restart_service" in made("runs", "show", told["run_id"]).stdout
    replayed = made(
        "runs", "replay", told["run_id"], "--tools", "handrail.cli.demo.cluster:TOOLS"
    )
    assert (replayed.exit_code, replayed.stdout) == (0, told["text"] + "\n")


@pytest.mark.parametrize(
    "words", [("runs", "list"), ("ledger", "list"), ("audit", "tail")]
)
def test_a_list_of_more_than_any_store_holds_is_the_whole_list(paid, words):
    whole = paid(*words, "-n", "1000000").stdout
    for most in (2**63 - 1, 10**30):
        assert paid(*words, "-n", str(most)).stdout == whole


def test_runs_of_workers_are_left_to_them_unless_one_is_named(deployed):
    made = deployed([call("get_order", order_id="A-1"), "It is paid."] * 2)
    left, _ = made.begin()
    made("runs", "submit", "Delete A-1.", "--run-id", "r1", "--queue", "mail")
    file = made.place.removeprefix("sqlite:")
    with closing(sqlite3.connect(file)) as database, database:
        database.execute("UPDATE runs SET status = 'queued' WHERE run_id = ?", (left,))
    every = made("runs", "resume", "--all", "--tools", made.tools)
    assert every.exit_code == 0
    assert (
        "left to the workers of this store (resume one with `runs resume RUN`): r1\n"
        in every.stderr
    )
    statuses = {
        run["run_id"]: run["status"] for run in made.json("runs", "list")["runs"]
    }
    assert statuses == {left: "done", "r1": "queued"}
    how = ("--tools", made.tools, "--model", made.server.model)
    assert made("runs", "resume", "r1", *how).exit_code == 0
    nothing = made("runs", "resume", "--all", "--tools", made.tools)
    assert (nothing.exit_code, nothing.stdout) == (0, "")
    assert "nothing to resume" in nothing.stderr


# ---------------------------------------------------------------------- names


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("cancel", "r1", "--by", ""), "--by is ''; it takes a name"),
        (
            ("cancel", "r1", "--by", "a\n"),
            "--by is 'a\\n'; a name cannot contain \\x0a",
        ),
        (("submit", "?", "--run-id", ""), "run_id is ''; it takes a name"),
        (("submit", "?", "--run-id", "a\u202e"), "run_id is 'a\\u202e'; a name cannot"),
        (("submit", "?", "--queue", "\x1b[2J"), "queue is '\\x1b[2J'; a name cannot"),
        (("submit", "?", "--scope", "a\u200b"), "scope is 'a\\u200b'; a name cannot"),
    ],
)
def test_what_is_no_name_is_refused_in_one_sentence(deployed, words, says):
    made = deployed(PAID)
    made("runs", "submit", "Delete A-1.", "--run-id", "r1")
    refused = made("runs", *words)
    assert (refused.exit_code, refused.stdout) == (2, "")
    assert refused.stderr.startswith(f"error: {says}")
    assert refused.stderr.count("\n") == 1
    [run] = made.json("runs", "list")["runs"]
    assert (run["run_id"], run["status"]) == ("r1", "queued")


def test_a_run_that_an_earlier_version_named_so_is_shown_and_cancelled_on_lines_of_its_own(
    deployed,
):
    made = deployed(PAID)
    made("runs", "submit", "Delete A-1.", "--run-id", "r1")
    odd, shown = "a\n2 is done\u202e", "a\\x0a2 is done\\u202e"
    with (
        closing(sqlite3.connect(made.place.removeprefix("sqlite:"))) as file,
        file,
    ):
        file.execute("UPDATE runs SET run_id = ?", (odd,))
        file.execute("UPDATE submitted SET run_id = ?", (odd,))
    assert made("runs", "list").stdout.splitlines()[1].startswith(f"{shown}  queued")
    assert made("runs", "show", odd).stdout.startswith(f"{shown}  queued\n")
    assert made("runs", "cancel", odd).stdout == (
        f"{shown} is cancelled; it was queued, and no process was driving it\n"
    )
    assert made("runs", "wait", odd).stderr.count("\n") == 1
    assert made.json("runs", "list")["runs"][0]["run_id"] == odd


# ---------------------------------------------------------------------- cancel, fork, replay


SLOW = '''
import time
from pathlib import Path
import handrail as hr

HERE = Path(__file__).parent

@hr.tool(effect="write", timeout_s=60)
def save(place: str) -> str:
    """Save, once the door is open."""
    (HERE / "inside").touch()
    while not (HERE / "door").exists():
        time.sleep(0.01)
    return "saved"
'''


def test_a_run_is_cancelled_from_another_process_when_its_write_has_ended(
    deployed, tmp_path
):
    (tmp_path / "slow.py").write_text(SLOW, encoding="utf-8")
    made = deployed(
        [call("save", place="here"), "Never said."], tools=str(tmp_path / "slow.py")
    )
    with made.started("run", "Save it.", "--tools", made.tools) as program:
        until((tmp_path / "inside").exists)
        (run,) = made.json("runs", "list", "--status", "running")["runs"]
        assert "asked to end" in made.process("runs", "cancel", run["run_id"]).stdout
        (tmp_path / "door").touch()
        assert program.wait(PATIENCE_S) == 130
    shown = made("runs", "show", run["run_id"]).stdout
    assert "cancelled: the run was cancelled" in shown
    assert "✓ save  saved" in shown  # what had begun was finished, and is known
    # the store may have said so while the model was asked again
    assert len(made.server.requests) <= 2


def test_a_run_that_waits_is_cancelled_at_once_and_a_second_time_without_harm(waiting):
    assert waiting("runs", "cancel", waiting.run).stdout.startswith(
        f"{waiting.run} is cancelled; it was waiting"
    )
    assert waiting.json("runs", "show", waiting.run)["status"] == "cancelled"
    again = waiting("runs", "cancel", waiting.run)
    assert (again.exit_code, again.stdout) == (
        0,
        f"{waiting.run} was cancelled already\n",
    )


def test_a_run_that_another_process_drives_is_asked_to_end(paid):
    with SqliteStore(paid.place.removeprefix("sqlite:")) as store:
        # as one that drives it now
        store.begin_run(recorded(paid, paid.run).record).result(10)
        told = paid.json("runs", "cancel", paid.run)
        assert (told["was"], told["status"]) == ("running", "running")
        assert store.load_run(paid.run).result(10).record.cancel_requested


def test_of_a_run_whose_process_is_gone_it_is_said_who_ends_it(paid):
    program = "from handrail.process_identity import owner; print(owner(), end='')"
    gone = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    ).stdout
    with SqliteStore(paid.place.removeprefix("sqlite:")) as store:
        store.begin_run(replace(recorded(paid, paid.run).record, owner=gone)).result(10)
    assert (
        "its process is gone, so it ends when another process resumes it"
        in paid("runs", "cancel", paid.run).stdout
    )


def test_a_tenant_s_run_is_listed_with_its_scope_and_gone_on_with_under_that_name(
    deployed,
):
    made, run = deployed(), "@acme/ticket-1"
    with hr.SyncRuntime(
        tools_from([made.tools]), store=made.place, scope="acme"
    ) as runtime:
        assert (
            runtime.run(
                "Delete A-1.", model=made.server.model, run_id="ticket-1"
            ).status
            == "waiting"
        )
    assert [each["run_id"] for each in made.json("runs", "list")["runs"]] == [run]
    question = made.question()
    assert question["run_id"] == run
    assert (
        f"runs resume {run}"
        in made("approvals", "approve", question["id"], "--by", "maria").stdout
    )
    gone_on = made("runs", "resume", run, "--tools", made.tools, "--json")
    assert (gone_on.exit_code, json.loads(gone_on.stdout)["run_id"]) == (0, run)
    (write,) = made.json("ledger", "list")["writes"]
    assert (write["scope"], write["tool"]) == ("acme", "delete_order")
    assert made.json("runs", "show", run)["status"] == "done"


def test_the_question_of_a_cancelled_run_is_closed_and_says_so(waiting):
    id = waiting.question()["id"]
    waiting("runs", "cancel", waiting.run)
    assert waiting("approvals", "list").stdout == ""
    result = waiting("approvals", "approve", id, "--by", "maria")
    told = f"error: the run {waiting.run!r} was cancelled, and the question {id!r} is closed with it\n"
    assert (result.exit_code, result.stdout, result.stderr) == (2, "", told)


def test_a_run_that_is_over_cannot_be_cancelled(paid):
    result = paid("runs", "cancel", paid.run)
    assert (result.exit_code, result.stdout) == (2, "")
    assert (
        result.stderr
        == f"error: the run {paid.run!r} is over (done); there is nothing to cancel\n"
    )


def test_a_fork_is_a_run_of_its_own(paid):
    told = json.loads(
        paid(
            "runs", "fork", paid.run, "--at-turn", "2", "--tools", paid.tools, "--json"
        ).stdout
    )
    assert told["run_id"] != paid.run
    assert told["text"] == "It is paid."
    assert len(paid.server.requests) == 3  # its first turn was the other run's
    shown = paid("runs", "show", told["run_id"]).stdout
    assert f"of {paid.run} at turn 2" in shown


def test_a_fork_at_a_turn_that_was_never_reached_is_refused(paid):
    result = paid("runs", "fork", paid.run, "--at-turn", "9", "--tools", paid.tools)
    assert (result.exit_code, result.stdout) == (2, "")
    assert "has 2 turns" in result.stderr


def test_a_replay_asks_nobody_and_needs_no_server(paid):
    asked, before = len(paid.server.requests), recorded(paid, paid.run)
    result = paid("runs", "replay", paid.run, "--tools", paid.tools)
    assert (result.exit_code, result.stdout) == (0, "It is paid.\n")
    assert "ended as recorded" in result.stderr
    assert len(paid.server.requests) == asked
    assert recorded(paid, paid.run) == before


def test_a_replay_of_a_run_that_has_not_ended_says_where_the_journal_does(waiting):
    result = waiting("runs", "replay", waiting.run, "--tools", waiting.tools)
    assert result.exit_code == 1
    assert "ends before step 1.1" in result.stderr


def test_a_replay_that_ends_otherwise_is_an_error(paid):
    with closing(
        sqlite3.connect(paid.place.removeprefix("sqlite:"), isolation_level=None)
    ) as file:
        file.execute(
            "UPDATE runs SET result = replace(result, 'It is paid.', 'It is free.')"
        )
    result = paid("runs", "replay", paid.run, "--tools", paid.tools)
    assert result.exit_code == 1
    assert "the replay ended differently" in result.stderr


# ---------------------------------------------------------------------- what cannot be

VERBS = [
    ("show", []),
    ("resume", []),
    ("cancel", []),
    ("fork", ["--at-turn", "1"]),
    ("replay", []),
    pytest.param("export", [], marks=pytest.mark.others),
]


@pytest.mark.parametrize(("verb", "words"), VERBS)
def test_an_unknown_run_is_one_sentence(paid, verb, words):
    result = paid("runs", verb, "r_none", *words)
    assert (result.exit_code, result.stdout) == (2, "")
    assert result.stderr.startswith("error: there is no run 'r_none' in this store")
    assert result.stderr.count("\n") == 1


@pytest.mark.parametrize(("verb", "words"), VERBS)
def test_a_store_that_keeps_no_runs_says_so(paid, verb, words):
    result = paid("runs", verb, paid.run, *words, "--store", "memory:")
    assert (result.exit_code, result.stdout) == (2, "")
    assert (
        "the store 'memory:' keeps no runs; name one that does: --store sqlite:///handrail.db"
        in result.stderr
    )


@pytest.mark.parametrize(("place", "says"), [
    ("sqlite:{}/none.db", "there is no store"),
    ("oracle:x", "there is no store 'oracle'; known are memory, sqlite"),
])  # fmt: skip
def test_a_store_that_is_not_there_is_told_and_not_made(cli, tmp_path, place, says):
    result = cli("runs", "list", "--store", place.format(tmp_path))
    assert (result.exit_code, result.stdout) == (2, "")
    assert says in result.stderr
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("change", ["input = '[]'", "journal_v = 99"])
def test_a_journal_that_cannot_be_read_is_one_sentence_and_hides_no_other_run(
    paid, change
):
    other, _ = paid.begin()
    with closing(
        sqlite3.connect(paid.place.removeprefix("sqlite:"), isolation_level=None)
    ) as file:
        file.execute(f"UPDATE runs SET {change} WHERE run_id = ?", (paid.run,))
    for words in (
        ("show", paid.run),
        ("replay", paid.run, "--tools", paid.tools),
    ):
        result = paid("runs", *words)
        assert (result.exit_code, result.stdout) == (1, "")
        assert "journal" in result.stderr
        assert result.stderr.count("\n") == 1
    listed = paid("runs", "list").stdout
    assert paid.run in listed
    assert other in listed


# -- ids ---------------------------------------------------------------------------------------------------------------


def test_a_run_has_one_name_in_every_document(waiting):
    documents = [
        waiting.json("runs", "list")["runs"][0],
        waiting.json("runs", "show", waiting.run),
        waiting.json("runs", "show", waiting.run)["result"],
        waiting.json("approvals", "list")["questions"][0],
        waiting.json("runs", "cancel", waiting.run),
    ]
    assert [each["run_id"] for each in documents] == [waiting.run] * len(documents)


@pytest.mark.parametrize("words", [
    ("runs", "show"), pytest.param(("runs", "export"), marks=pytest.mark.others), ("approvals", "list", "--run"),
    ("audit", "export", "--run"), ("runs", "cancel"),
])  # fmt: skip
def test_the_beginning_of_an_id_is_enough_where_no_other_begins_so(waiting, words):
    found = waiting(*words, waiting.run[:-3])
    assert (found.exit_code, waiting.run in found.stdout) == (0, True)


def test_a_run_goes_on_by_the_beginning_of_its_id(waiting):
    waiting("approvals", "approve", waiting.question()["id"][:8])
    assert (
        waiting("runs", "resume", waiting.run[:-3], "--tools", waiting.tools).exit_code
        == 0
    )


def test_a_beginning_that_two_ids_share_is_refused_with_both(waiting):
    other, _ = waiting.begin()
    refused = waiting("runs", "show", "r_")
    assert refused.exit_code == 2
    assert waiting.run in refused.stderr
    assert other in refused.stderr


def test_the_text_of_an_answer_that_was_cut_is_shown_once(deployed):
    cut = Turn(
        "Let me look.", calls=[call("get_order", order_id="A-1")], finish="length"
    )
    made = deployed([cut])
    run, _ = made.begin("--max-turns", "1")
    assert made("runs", "show", run).stdout.count("Let me look.") == 1
