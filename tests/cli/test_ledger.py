"""`handrail ledger`: what was written, what nobody knows the end of, and a person's word on it."""

import json
import re
import signal
import sqlite3
import time
from contextlib import closing
from datetime import UTC, datetime

import pytest
from msgspec.structs import replace

from handrail.effects import Claim, ClaimState, Settle
from handrail.stores.sqlite import SqliteStore
from handrail.testing import call

CLAIM = Claim("", "refund:1", b"fp", "r_1", "none", 600.0, guard=False, tool="refund")
ABANDONED = replace(CLAIM, key="refund:old", lease_s=-1.0)


@pytest.fixture
def writes(deployed):
    """A deployment with a write of each kind."""
    made = deployed()
    with SqliteStore(made.place.removeprefix("sqlite:")) as store:
        for state in ("done", "failed", "in_doubt", "claimed"):
            claimed = store.claim(replace(CLAIM, key=f"refund:{state}")).result(10)
            if state != "claimed":
                settle = Settle(
                    CLAIM.scope, f"refund:{state}", claimed.fence, state, {"id": 7}
                )
                assert store.settle(settle).result(10)
        store.claim(ABANDONED).result(10)
    return made


def claim_again(deployment, key):
    with SqliteStore(deployment.place.removeprefix("sqlite:")) as store:
        return store.claim(replace(CLAIM, key=key)).result(10)


def resolve(deployment, key, *words):
    return deployment("ledger", "resolve", key, "--by", "maria", *words)


def test_writes_are_listed_the_newest_first_with_how_they_stand(writes):
    lines = writes("ledger", "list").stdout.splitlines()
    assert lines[0].split() == ["tool", "key", "state", "run", "started", "value"]
    told = [(line.split()[1], line.split()[2]) for line in lines[1:]]
    assert told == [
        ("refund:old", "abandoned"), ("refund:claimed", "claimed"), ("refund:in_doubt", "in"),
        ("refund:failed", "failed"), ("refund:done", "done"),
    ]  # fmt: skip
    # only what is done has one
    assert [line.split()[-1] for line in lines if "{" in line or "null" in line] == [
        "7}"
    ]


def test_times_are_those_of_the_store_with_their_zone_wherever_somebody_sits(
    writes, monkeypatch
):
    monkeypatch.setenv("TZ", "Asia/Tokyo")
    time.tzset()
    monkeypatch.delenv("TZ")
    try:
        line = writes("ledger", "list").stdout.splitlines()[1]
        shown = writes("ledger", "show", "refund:claimed").stdout
    finally:
        time.tzset()
    begun = writes.json("ledger", "list", "-n", "1")["writes"][0]["begun"]
    at = datetime.fromtimestamp(begun, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
    assert line.rstrip().endswith(f" {at}")
    assert len(re.findall(r"\d\d:\d\d:\d\d UTC$", shown, re.M)) == 3


def test_writes_can_be_listed_by_state_and_by_run(writes):
    abandoned, doubted = writes.json("ledger", "list", "--state", "in_doubt")["writes"]
    assert (abandoned["key"], abandoned["state"], abandoned["abandoned"]) == (
        "refund:old",
        "claimed",
        True,
    )
    assert (doubted["key"], doubted["run_id"], doubted["replay"]) == (
        "refund:in_doubt",
        "r_1",
        "none",
    )
    (only,) = writes.json("ledger", "list", "--state", "abandoned", "-n", "1")["writes"]
    assert only["key"] == "refund:old"
    assert writes.json("ledger", "list", "--run", "r_other")["writes"] == []
    result = writes("ledger", "list", "--run", "r_other")
    assert (result.exit_code, result.stdout, result.stderr) == (
        0,
        "",
        "no write is there\n",
    )


def test_a_write_that_waits_for_an_earlier_request_is_not_said_to_have_started(writes):
    with closing(sqlite3.connect(writes.place.removeprefix("sqlite:"))) as file:
        file.execute("UPDATE effects SET begun = begun + 3600 WHERE key LIKE '%old%'")
        file.commit()
    for words in (["list"], ["show", "refund:old"]):
        assert "not before 20" in writes("ledger", *words).stdout


def test_a_write_is_shown_with_the_commands_that_say_how_it_ended(writes):
    shown = writes("ledger", "show", "refund:in_doubt").stdout
    assert "nobody but a person can find out whether it has happened" in shown
    assert "handrail ledger resolve refund:in_doubt --happened\n" in shown
    assert "handrail ledger resolve refund:in_doubt --did-not-happen\n" in shown


def test_a_write_whose_end_is_known_takes_no_word_and_offers_none(writes):
    shown = writes("ledger", "show", "refund:done").stdout
    assert '"id": 7' in shown
    assert "resolve" not in shown


@pytest.mark.parametrize("key", ["refund:in_doubt", "refund:old"])
def test_a_write_that_happened_is_not_done_again_and_gives_its_value(writes, key):
    told = resolve(writes, key, "--happened", "--value", '{"id": 12}')
    assert told.exit_code == 0
    assert f"recorded by maria: {key} happened; it is not repeated" in told.stdout
    again = claim_again(writes, key)
    assert (again.state, again.value) == (ClaimState.DONE, {"id": 12})
    assert writes.json("ledger", "show", key)["resolved_by"] == "maria"


@pytest.mark.parametrize("key", ["refund:in_doubt", "refund:old"])
def test_the_key_of_a_write_that_did_not_happen_is_free(writes, key):
    told = resolve(writes, key, "--did-not-happen")
    assert "did not happen; its key is free" in told.stdout
    assert claim_again(writes, key).state is ClaimState.FRESH


@pytest.mark.parametrize(("key", "says"), [
    ("refund:done", "it happened"),
    ("refund:failed", "it did not happen"),
    ("refund:claimed", "it is under way, for 10 min at most"),
])  # fmt: skip
def test_a_write_whose_end_is_known_or_still_to_come_takes_no_word(writes, key, says):
    before = writes.json("ledger", "show", key)
    result = resolve(writes, key, "--happened")
    assert (result.exit_code, result.stdout) == (2, "")
    assert result.stderr == f"error: the write {key} cannot be resolved: {says}\n"
    assert writes.json("ledger", "show", key) == before


def test_a_second_word_is_told_whose_was_the_first(writes):
    resolve(writes, "refund:in_doubt", "--did-not-happen")
    result = resolve(writes, "refund:in_doubt", "--happened")
    assert result.stderr.endswith("it did not happen, resolved by maria\n")


@pytest.mark.parametrize(("words", "says"), [
    ([], "say what you found: --happened or --did-not-happen"),
    (["--did-not-happen", "--value", "1"], "--value is the result of a write that happened"),
    (["--happened", "--value", "{"], "--value is not JSON"),
])  # fmt: skip
def test_a_word_that_is_not_clear_changes_nothing(writes, words, says):
    result = resolve(writes, "refund:in_doubt", *words)
    assert (result.exit_code, result.stdout) == (2, "")
    assert says in result.stderr
    assert writes.json("ledger", "show", "refund:in_doubt")["state"] == "in_doubt"


@pytest.mark.parametrize("words", [("show",), ("resolve", "--happened")])
def test_an_unknown_write_is_one_sentence(writes, words):
    result = writes("ledger", words[0], "refund:none", *words[1:])
    assert (result.exit_code, result.stdout) == (2, "")
    assert "error: there is no write 'refund:none' in this store" in result.stderr


def test_a_store_whose_writes_cannot_be_looked_into_says_so(writes):
    result = writes("ledger", "list", "--store", "memory:")
    assert (result.exit_code, result.stdout) == (2, "")
    assert "keeps no writes that could be looked into" in result.stderr


KILLED = '''
import os, signal
import handrail as hr

@hr.tool(effect="write")
def send(letter: str) -> str:
    """Send a letter, at a far side that knows no keys."""
    if letter == "first":
        os.kill(os.getpid(), signal.SIGKILL)
    return "sent"
'''


def test_a_write_whose_process_was_killed_is_in_doubt_until_a_person_has_looked(
    deployed, tmp_path
):
    (tmp_path / "letters.py").write_text(KILLED, encoding="utf-8")
    made = deployed(
        [call("send", letter="first"), "I do not know."],
        tools=str(tmp_path / "letters.py"),
    )
    assert (
        made.process("run", "Send it.", "--tools", made.tools).returncode
        == -signal.SIGKILL
    )
    (run,) = made.json("runs", "list")["runs"]
    assert (
        made.process("runs", "resume", run["run_id"], "--tools", made.tools).returncode
        == 6
    )
    look = f"handrail ledger show {run['run_id']}/1/0\n"
    assert look in made("runs", "show", run["run_id"]).stdout
    (doubted,) = made.json("ledger", "list", "--state", "in_doubt")["writes"]
    assert (doubted["tool"], doubted["run_id"]) == ("send", run["run_id"])
    told = made.process(
        "ledger",
        "resolve",
        doubted["key"],
        "--happened",
        "--value",
        '"sent"',
        "--json",
    )
    assert json.loads(told.stdout)["state"] == "done"


def test_a_doubt_says_why_and_where_more_is_wherever_it_is_shown(deployed):
    made = deployed()
    claim = replace(CLAIM, run_id="desk")
    with SqliteStore(made.place.removeprefix("sqlite:")) as store:
        fence = store.claim(claim).result(10).fence
        why = "attempt 2: ConnectionResetError"
        store.settle(Settle("", claim.key, fence, "in_doubt", why)).result(10)
    assert why in made("ledger", "list").stdout
    shown = made("ledger", "show", claim.key).stdout
    assert re.search(rf"why +{why}", shown)
    assert "audit tail --run desk" in shown
    assert made.json("ledger", "show", claim.key)["why"] == why
    # calls alone have used this run: it has no journal
    told = made("runs", "show", "desk").stdout
    assert "was used by calls alone" in told
    assert re.search(rf"refund:1 +in doubt +{why}", told)
    assert "ledger list --run desk" in told
    (write,) = made.json("runs", "show", "desk")["writes"]
    assert (write["key"], write["why"]) == (claim.key, why)


def test_the_doubt_of_a_write_whose_process_died_says_so(writes):
    assert "its process died" in writes("ledger", "show", "refund:old").stdout
    assert "why" not in writes("ledger", "show", "refund:done").stdout
