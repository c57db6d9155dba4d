"""`handrail store`: info, copy and keep, on files."""

import json
import os
import signal
import sqlite3
import subprocess
import sys
from collections import Counter
from contextlib import closing
from datetime import UTC, datetime, timedelta

import pytest
from msgspec.structs import replace

import handrail as hr
from handrail.cli.commands.store import describe_deleted
from handrail.cli.exits import Exit
from handrail.effects import Claim, ClaimState, Settle
from handrail.errors import ConfigError
from handrail.records import ApprovalRequest, AuditEntry
from handrail.stores import retention
from handrail.stores.sqlite import VERSION, SqliteStore
from handrail.sync import SyncRuntime
from handrail.testing import ScriptedModel, call

AN_HOUR = retention.Retention(runs_s=3600.0, results_s=3600.0)
A_WRITE = Claim("", "refund:1", b"fp", "r1", "none", 600.0, guard=False, tool="refund")


def write(store, number, state, lease_s=600.0):
    """Begin a write, and end it unless it stays claimed."""
    act = replace(A_WRITE, key=f"refund:{number}", lease_s=lease_s)
    claimed = store.claim(act).result(10)
    assert claimed.state is ClaimState.FRESH
    if state != "claimed":
        assert store.settle(
            Settle(act.scope, act.key, claimed.fence, state, {"id": number})
        ).result(10)


@pytest.fixture
def place(tmp_path):
    """A store with a write of each kind and a long result."""
    place = f"sqlite:{tmp_path}/store.db"
    with SqliteStore(tmp_path / "store.db") as store:
        for number, state in enumerate(
            ["claimed", "done", "done", "failed", "in_doubt"]
        ):
            write(store, number, state)
        write(store, 9, "claimed", lease_s=-1.0)
        store.save_result("r1", "long\ud800" * 100).result(10)
    return place


def file(place):
    return closing(sqlite3.connect(place.removeprefix("sqlite:"), isolation_level=None))


def rows(place, table="effects"):
    with file(place) as opened:
        named = opened.execute(
            "SELECT name FROM pragma_table_info(?) WHERE name <> 'number'", (table,)
        )
        return sorted(
            opened.execute(
                f"SELECT {', '.join(name for (name,) in named)} FROM {table}"
            ).fetchall()
        )


def days_pass(place, days):
    with file(place) as opened:
        opened.execute(
            "UPDATE effects SET updated = updated - ?, lease_until = lease_until - ?",
            (days * 86_400,) * 2,
        )
        opened.execute("UPDATE kept SET created = created - ?", (days * 86_400,))


def test_info_counts_what_lies_in_a_store(cli, place):
    told = cli("store", "info", place)
    assert told.exit_code == Exit.OK
    assert (
        "2 claimed, 2 done, 1 failed, 1 in doubt; 1 claimed by an owner whose time is over"
        in told.stdout
    )
    assert f"version {VERSION}" in told.stdout


def test_info_is_told_as_json(cli, place):
    told = json.loads(cli("store", "info", place, "--json").stdout)
    assert told["writes"] == {"claimed": 2, "done": 2, "failed": 1, "in_doubt": 1}
    assert (
        told["v"],
        told["version"],
        told["abandoned"],
        told["kept"],
        told["kept_bytes"],
    ) == (1, VERSION, 1, 1, 700)
    assert told["size_bytes"] > 10_000


@pytest.mark.parametrize("words", [
    ("info", "sqlite:{}/none.db"),
    ("keep", "sqlite:{}/none.db", "--runs", "1d"),
    ("copy", "sqlite:{}/none.db", "sqlite:{}/other.db"),
    ("restored", "sqlite:{}/none.db", "--since", "2026-11-27"),
])  # fmt: skip
def test_a_store_that_is_not_there_is_not_made(cli, tmp_path, words):
    told = cli("store", *(word.format(tmp_path) for word in words))
    assert told.exit_code == Exit.USAGE
    assert "there is no store" in told.stderr
    assert not list(tmp_path.iterdir())


def test_a_store_in_memory_cannot_be_looked_after(cli):
    told = cli("store", "info", "memory:")
    assert told.exit_code == Exit.USAGE
    assert "ends with its process" in told.stderr


@pytest.fixture
def paid():
    """What was paid, in the world: it knows nothing of stores."""
    return []


@pytest.mark.parametrize(("extra", "code", "effects"), [
    ({}, "IN_DOUBT", 1),
    ({"replay": "key"}, None, 2),  # the far side knows its key, and does it once
    ({"verify": True}, None, 1),
])  # fmt: skip
def test_a_write_that_a_restored_store_has_forgotten_is_not_performed_again_unawares(
    cli, tmp_path, paid, extra, code, effects
):
    if "verify" in extra:
        extra = {"verify": lambda arguments, context: hr.Found(arguments["order_id"])}

    @hr.tool(effect="write", key="pay:{order_id}", timeout_s=5, **extra)
    def pay(order_id: str) -> str:
        """Pay an order."""
        paid.append(order_id)
        return order_id

    store, copy = f"sqlite:{tmp_path}/store.db", f"sqlite:{tmp_path}/copy.db"

    def ask():
        with SyncRuntime([pay], store=store) as runtime:
            return runtime.call("pay", {"order_id": "7"})

    with SqliteStore(tmp_path / "store.db"):
        pass
    assert cli("store", "copy", store, copy).exit_code == Exit.OK
    assert ask().ok
    (tmp_path / "store.db").unlink()
    assert cli("store", "copy", copy, store).exit_code == Exit.OK
    an_hour_ago = datetime.now(UTC) - timedelta(hours=1)
    cli("store", "restored", store, "--since", f"{an_hour_ago:%Y-%m-%dT%H:%M:%S}")
    with file(store) as opened:  # what was under way then has ended
        opened.execute("UPDATE restored SET at = at - 600")
    result = ask()
    assert (result.failure and result.failure.code) == code
    assert len(paid) == effects
    if code:
        listed = cli("ledger", "list", "--state", "in_doubt", "--store", store)
        assert "pay:7" in listed.stdout
        cli(
            "ledger", "resolve", "pay:7", "--happened", "--by", "anna", "--store", store
        )
        assert ask().ok
        assert len(paid) == 1


def test_a_run_that_was_under_way_when_the_copy_was_taken_does_nothing_again_unawares(
    cli, tmp_path, paid
):
    @hr.tool(effect="write", approve=True, timeout_s=5)
    def pay(order_id: str) -> str:
        """Pay an order."""
        paid.append(order_id)
        return order_id

    store, copy = f"sqlite:{tmp_path}/store.db", f"sqlite:{tmp_path}/copy.db"
    model = ScriptedModel([call("pay", order_id="7"), "Done."])

    def approve_and_resume():
        with SyncRuntime([pay], store=store) as runtime:
            [question] = runtime.approvals.list(state="open")
            runtime.approvals.approve(question.id, by="anna")
            return runtime.resume(run.id, model=model)

    with SyncRuntime([pay], store=store) as runtime:
        run = runtime.run("Pay it.", model=model)
    cli("store", "copy", store, copy)
    assert approve_and_resume().status == "done"
    (tmp_path / "store.db").unlink()
    cli("store", "copy", copy, store)
    cli("store", "restored", store, "--since", "2020-01-01")
    model = ScriptedModel(["I do not know whether it is paid."])
    resumed = approve_and_resume()
    assert len(paid) == 1
    assert "IN_DOUBT" in [
        message.result.failure and message.result.failure.code
        for message in resumed.messages
        if isinstance(message, hr.messages.ToolMessage)
    ]
    with SyncRuntime([pay], store=store, approver=lambda _: True) as runtime:
        later = runtime.run(
            "Pay it.", model=ScriptedModel([call("pay", order_id="8"), "Done."])
        )
    assert later.status == "done"
    assert paid == ["7", "8"]


def test_a_restored_store_says_so_until_it_is_cleared(cli, place):
    marked = cli("store", "restored", place, "--since", "2020-01-01T00:00:00+02:00")
    assert "what was recorded from 2019-12-31 22:00:00 UTC to " in marked.stdout
    assert "1 failed write is forgotten" in marked.stdout
    assert "is lost" in cli("store", "info", place).stdout
    assert json.loads(cli("store", "info", place, "--json").stdout)["restored"]
    assert "are new again" in cli("store", "restored", place, "--clear").stdout
    assert "was not marked" in cli("store", "restored", place, "--clear").stdout
    assert "is lost" not in cli("store", "info", place).stdout


@pytest.mark.parametrize(("words", "reason"), [
    ((), "Give one of --since TIME and --clear."),
    (("--clear", "--since", "2026-11-27"), "Give one of --since TIME and --clear."),
    (("--since", "2999-01-01"), "in the future"),
    (("--since", "yesterday"), "yesterday"),
])  # fmt: skip
def test_a_mark_names_the_time_of_the_copy_or_is_cleared(cli, place, words, reason):
    told = cli("store", "restored", place, *words)
    assert told.exit_code == Exit.USAGE
    assert reason in told.stderr


def test_a_copy_holds_what_the_store_held(cli, tmp_path, place):
    copy = f"sqlite:{tmp_path}/copy.db"
    told = cli("store", "copy", place, copy, "--json")
    assert json.loads(told.stdout)["rows"] == {
        "runs": 0, "steps": 0, "effects": 6, "approvals": 0, "submitted": 0, "acts": 0, "grants": 0, "audit": 0,
        "kept": 1,
    }  # fmt: skip
    for table in ("effects", "kept"):
        assert rows(copy, table) == rows(place, table)


@pytest.mark.parametrize(
    "words",
    [("copy", "{place}", "{place}.copy"), ("keep", "{place}", "--runs", "1d")],
)
def test_people_are_told_in_the_words_of_the_other_commands(cli, place, words):
    told = cli("store", *(word.format(place=place) for word in words)).stdout
    assert {"writes", "long results"} <= {
        line.rsplit(maxsplit=1)[0] for line in told.splitlines()
    }
    assert not {"effects", "kept"} & set(told.split())


def test_a_copy_of_many_rows_is_made_in_pieces_and_may_be_begun_again(
    cli, tmp_path, place
):
    with SqliteStore(place.removeprefix("sqlite:")) as store:
        asked = [
            store.claim(replace(A_WRITE, key=f"more:{number}")) for number in range(500)
        ]
        assert {claim.result(10).state for claim in asked} == {ClaimState.FRESH}
    copy = f"sqlite:{tmp_path}/copy.db"
    cli("store", "copy", place, copy)
    with file(copy) as opened:  # as if it had been broken off
        opened.execute("DELETE FROM effects WHERE key > 'more:3'")
    cli("store", "copy", place, copy)
    assert rows(copy) == rows(place)


def test_a_copy_takes_what_ended_since_the_last_one_and_never_goes_back(
    cli, tmp_path, place
):
    copy = f"sqlite:{tmp_path}/copy.db"
    cli("store", "copy", place, copy)
    with SqliteStore(place.removeprefix("sqlite:")) as store:
        assert store.settle(Settle("", "refund:0", 1, "done", "old")).result(10)
    with SqliteStore(copy.removeprefix("sqlite:")) as store:
        assert store.settle(Settle("", "refund:4", 1, "done", "new")).result(10)
    cli("store", "copy", place, copy)
    with SqliteStore(copy.removeprefix("sqlite:")) as store:
        for number, value in ((0, "old"), (4, "new")):
            claimed = store.claim(replace(A_WRITE, key=f"refund:{number}")).result(10)
            assert (claimed.state, claimed.value) == (ClaimState.DONE, value)


def tell(place: str, *events: str) -> None:
    with SqliteStore(place.removeprefix("sqlite:")) as store:
        store.append_audit([AuditEntry("r_1", event, {}) for event in events]).result(
            10
        )


def test_a_log_that_went_on_is_copied_to_its_end_and_one_of_two_that_went_apart_is_left_as_it_is(
    cli, tmp_path, place
):
    copy = f"sqlite:{tmp_path}/copy.db"
    tell(place, *map(str, range(100)))
    assert (
        json.loads(cli("store", "copy", place, copy, "--json").stdout)["rows"]["audit"]
        == 100
    )
    tell(place, "one more")
    cli("store", "copy", place, copy)
    assert rows(copy, "audit") == rows(place, "audit")
    tell(copy, "its own")
    # it has every record of the other one
    assert cli("store", "copy", place, copy).stderr == ""
    tell(place, "its own", "and another")
    before = rows(copy, "audit")
    told = cli("store", "copy", place, copy, "--json")
    assert (
        "audit" in json.loads(told.stdout)["rows"],
        rows(copy, "audit") == before,
    ) == (False, True)
    assert "no record of the audit log was copied" in " ".join(told.stderr.split())
    assert cli("audit", "verify", "--store", copy).exit_code == Exit.OK


def test_a_store_is_not_copied_into_itself(cli, place):
    told = cli("store", "copy", place, place)
    assert told.exit_code == Exit.USAGE
    assert "into itself" in told.stderr


@pytest.mark.parametrize("link", [os.symlink, os.link])
def test_a_store_is_not_copied_into_itself_under_another_name(
    cli, tmp_path, place, link
):
    file = place.removeprefix("sqlite:")
    link(file, tmp_path / "other.db")
    result = cli("store", "copy", place, f"sqlite:///{tmp_path}/other.db")
    assert (result.exit_code, "cannot be copied into itself" in result.stderr) == (
        2,
        True,
    )
    assert sorted(tmp_path.glob("other.db*")) == [tmp_path / "other.db"]


def test_keep_lets_go_what_ended_long_ago_and_keeps_what_nobody_knows_the_end_of(
    cli, place
):
    days_pass(place, 31)
    with SqliteStore(place.removeprefix("sqlite:")) as store:
        write(store, "new", "done")
    words = ("store", "keep", place, "--runs", "30d", "--tool", "refund=30d", "--json")
    gone = {
        "effects": 3, "acts": 0, "kept": 1, "steps": 0, "approvals": 0, "runs": 0, "audit": 0
    }  # fmt: skip
    assert json.loads(cli(*words, "--dry-run").stdout)["rows"] == gone
    assert json.loads(cli(*words).stdout)["rows"] == gone
    with file(place) as opened:
        left = opened.execute("SELECT state FROM effects ORDER BY state").fetchall()
    assert left == [("claimed",), ("claimed",), ("done",), ("in_doubt",)]


def fill(place, runs):
    """Put old runs of three steps and a write each into a store, and as many that wait."""
    with file(place) as opened:
        for number in range(runs):
            for status in ("done", "waiting"):
                run = f"{status}-{number}"
                opened.execute(
                    "INSERT INTO runs(run_id, journal_v, status, input, created, updated) VALUES (?, 1, ?, '', 0, 0)",
                    (run, status),
                )
                steps = [(run, f"{step}.m", "x" * 300) for step in range(3)]
                opened.executemany(
                    "INSERT INTO steps VALUES (?, ?, 0, 'model', 1, ?, 0, 0)", steps
                )


def test_keep_takes_work_in_proportion_to_what_lies_in_a_store(tmp_path):
    """Counted in instructions of SQLite's machine: a batch that looked through all runs would square them."""
    work = []
    for runs in (100, 800):
        place, counted = f"sqlite:{tmp_path}/{runs}.db", Counter()
        SqliteStore(place.removeprefix("sqlite:")).close()
        fill(place, runs)
        with SqliteStore(place.removeprefix("sqlite:")) as store:
            connection = store.open_connection()
            connection._db.set_progress_handler(
                lambda counted=counted: counted.update("i"), 100
            )
            store.open_connection = lambda connection=connection: connection
            gone = retention.keep(store, AN_HOUR, rest=lambda _: None)
        assert (gone.runs, gone.steps) == (runs, 3 * runs)
        work.append(counted["i"])
    # eight times as much; 60 times where each batch looks through all
    assert work[1] < 12 * work[0]


def test_keep_leaves_the_store_to_others_after_each_piece_and_for_longer(tmp_path):
    place, rests = f"sqlite:{tmp_path}/store.db", []
    SqliteStore(place.removeprefix("sqlite:")).close()
    fill(place, 120)
    with (
        SqliteStore(place.removeprefix("sqlite:")) as store,
        SqliteStore(place.removeprefix("sqlite:")) as service,
    ):

        def rest(seconds):
            rests.append(seconds)
            write(service, len(rests), "done")  # another process gets in

        assert retention.keep(store, AN_HOUR, rest=rest).runs == 120
    assert len(rests) >= 3
    assert all(seconds > 0 for seconds in rests)


def test_keep_returns_room_to_the_disk_in_small_steps(cli, tmp_path):
    place, rests = f"sqlite:{tmp_path}/store.db", []
    with SqliteStore(tmp_path / "store.db") as store:
        store.save_result("r1", "x" * 3_000_000).result(10)
    days_pass(place, 31)
    before = (tmp_path / "store.db").stat().st_size
    with SqliteStore(tmp_path / "store.db") as store:
        assert retention.keep(store, AN_HOUR, rest=rests.append).kept == 1
    assert (tmp_path / "store.db").stat().st_size < before / 2
    assert len(rests) > 3


def test_a_file_of_old_that_cannot_shrink_in_steps_shrinks_when_it_is_told_to(
    cli, tmp_path
):
    place = f"sqlite:{tmp_path}/store.db"
    SqliteStore(tmp_path / "store.db").close()
    with file(place) as opened:
        for words in (
            "PRAGMA journal_mode=DELETE",
            "PRAGMA auto_vacuum=NONE",
            "VACUUM",
        ):
            opened.execute(words)
    fill(place, 200)
    sizes = [(tmp_path / "store.db").stat().st_size]
    for words in ([], ["--rewrite"]):
        assert cli("store", "keep", place, "--runs", "30d", *words).exit_code == 0
        sizes.append((tmp_path / "store.db").stat().st_size)
    assert sizes[0] <= sizes[1] > sizes[2]


@pytest.mark.parametrize("words", [
    (["--audit", "30d"], "at least as long as the runs"),
    ([], "Nothing says how long"),
    (["--runs", "30d", "--watch", "--dry-run"], "--watch takes neither"),
    (["--tool", "refund"], "refund=90d"),
])  # fmt: skip
def test_what_cannot_be_kept_like_that_is_refused(cli, place, words):
    told = cli("store", "keep", place, *words[0])
    assert told.exit_code == Exit.USAGE
    assert words[1] in told.stderr


def test_the_settings_say_how_long_what_is_kept(cli, place, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    settings = tmp_path / "handrail.toml"
    settings.write_text('[retention]\nruns = "30d"\ntools = { refund = "30d" }\n')
    days_pass(place, 31)
    told = cli("store", "keep", place, "--json")
    assert json.loads(told.stdout)["rows"]["effects"] == 3
    settings.write_text('[retention]\nrun = "30d"\n')
    assert (
        "it takes audit, results, runs, tools, writes"
        in cli("store", "keep", place).stderr
    )


@pytest.mark.proof
def test_a_keeper_that_watches_ends_at_a_signal(place):
    days_pass(place, 31)
    words = [sys.executable, "-m", "handrail", "store", "keep", place]
    with subprocess.Popen(
        [*words, "--tool", "refund=30d", "--watch"], stdout=subprocess.PIPE, text=True
    ) as keeper:
        try:
            assert keeper.stdout.readline() == "deleted 3 writes\n"
            keeper.send_signal(signal.SIGTERM)
            assert keeper.wait(30) == 0
        finally:
            keeper.kill()


@pytest.mark.parametrize("age", ["30", "d", "-1d", "1w", ""])
def test_an_age_that_is_none_is_refused_before_anything_goes(cli, place, age):
    told = cli("store", "keep", place, f"--runs={age}")
    assert told.exit_code == Exit.USAGE
    assert "such as 30d" in told.stderr


def test_keep_takes_old_questions_of_no_stored_run(cli, tmp_path):
    with SqliteStore(tmp_path / "store.db") as store:
        for number, within_s in enumerate((-7200.0, 600.0)):
            question = ApprovalRequest(
                f"q_{number}", "thread-1", "c_1", "refund", "d1", {}, "high", "large"
            )
            store.ask(question, within_s=within_s).result()
    place = f"sqlite:{tmp_path}/store.db"
    told = cli("store", "keep", place, "--runs", "1h")
    assert told.exit_code == 0
    with SqliteStore(tmp_path / "store.db") as store:
        left = [each.id for each in store.list_approvals(state="").result()]
    assert left == ["q_1"]


@pytest.mark.parametrize("words", [("info",), ("keep", "--runs", "30d")])
def test_a_store_that_is_given_as_an_option_is_refused_with_the_right_way(
    cli, place, words
):
    refused = cli("store", *words, "--store", place)
    assert (refused.exit_code, refused.stdout) == (2, "")
    assert f"without --store: handrail store {words[0]} STORE" in refused.stderr
    assert "--json" not in refused.stderr


def test_a_single_row_is_counted_as_one():
    deleted = retention.Deleted(runs=1, steps=2, effects=1, acts=1, audit=1)
    told = "1 run, 2 steps, 1 write, 1 act to know again, 1 audit record"
    assert describe_deleted(deleted) == told


@pytest.mark.parametrize(("place", "meant"), [
    ("x.db", "sqlite:///x.db"),
    ("./data/x.sqlite3", "sqlite:///data/x.sqlite3"),
    ("/srv/runs", "sqlite:////srv/runs"),
])  # fmt: skip
def test_a_file_as_a_store_is_answered_with_the_name_of_such_a_store(cli, place, meant):
    for words in (["runs", "list", "--store"], ["store", "info"]):
        assert f"did you mean '{meant}'?" in cli(*words, place).stderr
    with pytest.raises(ConfigError, match=f"did you mean '{meant}'"):
        SyncRuntime([], store=place)
