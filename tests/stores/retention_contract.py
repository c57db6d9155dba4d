"""What every durable store must hold to when it deletes what is old: see `handrail.stores.retention`."""

from __future__ import annotations

import json
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Event

import pytest
from msgspec.structs import replace

from handrail import admin
from handrail.audit import chain
from handrail.effects import Claim, ClaimState, Settle
from handrail.engine.scoped_store import ScopedStore
from handrail.errors import ConfigError
from handrail.records import (
    ApprovalRequest,
    AuditEntry,
    JournalEntry,
    JournalStep,
    RunRecord,
)
from handrail.stores import retention
from handrail.stores.retention import Retention
from handrail.stores.sql_values import MAX_NEW_RUN_CHARACTERS
from handrail.testing.contracts.stores import closed, now
from handrail.tools.keys import default_key

ROOT = Path(__file__).parents[2]
AN_HOUR_S = 3600.0
ALL = Retention(runs_s=0.001, results_s=0.001, audit_s=0.001, writes_s=0.001)
"""Everything is older than this when it is looked at."""


def begin(store, run_id, status="done", *, steps=3, tool="refund", scope="", **how):
    """Store a run in a status, with steps, a write of its own and a record."""
    epoch = now(
        store.begin_run(RunRecord(run_id, {"messages": []}, **how))
    ).record.epoch
    rows = [
        JournalStep(f"{number}.m", "model", {"n": number}) for number in range(steps)
    ]
    now(store.append_entry(JournalEntry(run_id, epoch, rows, status)))
    write(store, f"{run_id}/1/0", run_id, tool=tool, scope=scope)
    now(store.append_audit([AuditEntry(run_id, "CallFinished", {"call": "c"})]))


def write(store, key, run_id, state="done", tool="refund", scope=""):
    fingerprint = f"fp {key}".encode()
    claim = Claim(scope, key, fingerprint, run_id, "none", 600.0, tool=tool)
    fence = now(store.claim(claim)).fence
    if state != "claimed":
        now(store.settle(Settle(scope, key, fence, state, {"n": 1})))
    return claim


def let_it_be_old(store):
    """Wait until the store's clock has gone on."""
    began = store.use_connection(lambda base: base.now())
    while store.use_connection(lambda base: base.now()) <= began + 0.002:
        pass


def kept(store, what=ALL, **how):
    let_it_be_old(store)
    return retention.keep(store, what, rest=lambda _: None, **how)


def names(store):
    return sorted(each.run_id for each in now(store.list_runs(most=1000)))


def records(store):
    return list(now(store.log(most=100_000)))


class RetentionContract:
    """The laws. `open` returns a store that holds nothing, `again` another one on the same rows."""

    def test_an_ended_run_goes_whole_and_its_name_begins_anew(self, store):
        begin(store, "old")
        deleted = kept(store)
        assert (deleted.runs, deleted.steps > 0, deleted.effects) == (1, True, 1)
        assert now(store.load_run("old")) is None
        assert now(store.list_writes()) == []
        begin(store, "old")
        assert len(now(store.load_run("old")).steps) == 3

    @pytest.mark.parametrize("scope", ["", "@acme/"])
    def test_the_own_writes_of_a_run_go_with_it_whatever_the_length_of_its_name(
        self, store, scope
    ):
        longest = f"{scope}{'r' * (MAX_NEW_RUN_CHARACTERS - len(scope))}"
        now(store.begin_run(RunRecord(longest, {})))
        key = default_key(longest.removeprefix(scope), 1_000_000, 1_000_000)
        write(store, key, longest)
        now(store.append_entry(JournalEntry(longest, 1, status="done")))
        deleted = kept(store, Retention(runs_s=0.001))
        assert (deleted.runs, deleted.effects) == (1, 1)
        assert now(store.list_writes()) == []

    def test_a_key_of_an_author_stays_though_it_begins_with_the_name_of_its_run(
        self, store
    ):
        begin(store, "A-2")
        write(store, "A-2/refund", "A-2")
        assert kept(store, Retention(runs_s=0.001)).runs == 1
        assert [each.key for each in now(store.list_writes())] == ["A-2/refund"]

    def test_a_run_that_was_deleted_since_it_was_loaded_does_not_begin_anew(
        self, store
    ):
        begin(store, "old")
        loaded = now(store.load_run("old")).record
        assert kept(store).runs == 1
        with pytest.raises(ConfigError, match="deleted meanwhile"):
            now(store.begin_run(loaded))
        assert now(store.load_run("old")) is None

    @pytest.mark.parametrize("status", ["running", "waiting", "queued", "poisoned"])
    def test_a_run_without_an_end_stays_with_all_that_it_has(self, store, status):
        begin(store, "open", status)
        begin(store, "open.1.0.1")  # one of its calls started it
        now(store.save_result("open", "long"))
        assert kept(store) == retention.Deleted()
        assert names(store) == ["open", "open.1.0.1"]
        assert len(records(store)) == 2

    def test_a_run_in_doubt_or_asked_about_or_forked_from_stays(self, store):
        begin(store, "doubtful")
        write(store, "doubtful/2/0", "doubtful", "in_doubt")
        begin(store, "asking")
        question = ApprovalRequest(
            "q", "asking", "c", "refund", "d", {}, "high", "large"
        )
        now(store.ask(question, within_s=AN_HOUR_S))
        begin(store, "parent")
        begin(store, "child", "waiting", forked_from="parent", forked_at=1)
        begin(store, "ended")
        assert kept(store).runs == 1
        assert names(store) == ["asking", "child", "doubtful", "parent"]
        now(store.resolve("", "doubtful/2/0", state="done", by="anna"))
        now(store.withdraw("q", by="anna"))
        assert kept(store).runs == 2

    def test_a_younger_run_stays(self, store):
        begin(store, "young")
        young = Retention(
            runs_s=AN_HOUR_S, results_s=AN_HOUR_S, audit_s=AN_HOUR_S, writes_s=AN_HOUR_S
        )
        assert kept(store, young) == retention.Deleted()

    def test_a_write_with_a_key_is_known_again_until_its_own_period_is_over(
        self, store
    ):
        begin(store, "run")
        refund = write(store, "order:7", "run")
        mail = write(store, "mail:7", "run", tool="send")
        doubtful = write(store, "order:8", "gone", "in_doubt")
        assert kept(store, Retention(runs_s=0.001)).effects == 1
        assert kept(store, Retention(tools_s={"send": 0.001})).effects == 1
        assert (
            now(store.claim(replace(refund, run_id="other"))).state is ClaimState.DONE
        )
        assert now(store.claim(replace(mail, run_id="other"))).state is ClaimState.FRESH
        assert (
            kept(
                store, Retention(tools_s={"refund": AN_HOUR_S}, writes_s=0.001)
            ).effects
            == 0
        )
        assert kept(store, Retention(writes_s=0.001)).effects == 1
        assert (
            now(store.claim(replace(doubtful, run_id="other"))).state
            is ClaimState.IN_DOUBT
        )

    def test_long_results_go_by_their_own_age_but_those_of_a_run_under_way(self, store):
        begin(store, "open", "waiting")
        begin(store, "done")
        waiting = now(store.save_result("open", "w" * 1000))
        ended = now(store.save_result("done", "d" * 1000))
        lone = now(store.save_result("nobody", "n" * 1000))
        assert kept(store, Retention(results_s=0.001)).kept == 2
        assert now(store.load_result("open", waiting)) == "w" * 1000
        assert now(store.load_result("done", ended)) is None
        assert now(store.load_result("nobody", lone)) is None

    def test_a_dry_run_counts_what_would_go_and_deletes_nothing(self, store):
        now(store.append_audit([AuditEntry("", "X", {})]))
        group = chain.group_records("gone", [("X", "{}"), ("Y", "{}")])
        now(store.append_audit([group]))
        let_it_be_old(store)
        begin(store, "old")
        begin(store, "waits", "waiting")
        begin(store, "fork", forked_from="old", forked_at=1)
        now(store.save_result("fork", "long"))
        write(store, "order:7", "old")
        for number in range(2):
            write(store, f"mail:{number}", "fork", "failed")
        question = ApprovalRequest("q", "lone", "c", "refund", "d", {}, "high", "large")
        now(store.ask(question, within_s=-1.0))
        said = kept(store, dry_run=True)
        assert names(store) == ["fork", "old", "waits"]
        assert kept(store) == said
        said = kept(store, dry_run=True)
        assert names(store) == ["old", "waits"]
        assert kept(store) == said
        assert kept(store, dry_run=True) == retention.Deleted()

    def test_a_shortened_log_verifies_and_a_beginning_that_was_cut_off_is_found(
        self, store
    ):
        store.audit_key = b"a key of the log"
        for number in range(8):
            begin(store, f"run-{number}")
        before = records(store)
        assert kept(store, by="anna").audit == 8
        [shortened] = left = records(store)
        assert shortened.body == {"by": "anna", "through": 8, "hash": before[-1].hash}
        begin(store, "later", "waiting")
        left = records(store)
        assert chain.verify(left, keys=[store.audit_key]) == (2, None)
        assert (
            chain.verify(left, keys=[store.audit_key], checkpoint=(8, before[-1].hash))[
                1
            ]
            is None
        )
        assert chain.verify(
            left, keys=[store.audit_key], checkpoint=(5, before[4].hash)
        )[1]
        # what a keeper leaves that is killed in the middle
        assert chain.verify([*before[5:], *left], keys=[store.audit_key]) == (5, None)
        _, broken = chain.verify(left[1:], keys=[store.audit_key])
        assert "no record says that it was shortened" in broken.why
        other = replace(shortened, prev=before[-2].hash)
        assert chain.verify([other, *left[1:]], keys=[store.audit_key])[1]
        assert kept(store) == retention.Deleted()

    def test_a_log_is_shortened_again_and_over_the_seam_of_a_new_key(self, store):
        store.audit_key = b"the first of the keys"
        begin(store, "one")
        now(store.replace_audit_key(b"the second of the keys", by="anna"))
        for number in range(3):
            begin(store, f"run-{number}")
            assert kept(store).audit
            found = chain.verify(
                records(store),
                keys=[b"the first of the keys", b"the second of the keys"],
            )
            assert found == (1, None)
        # a key that the log never had is still missed
        found = chain.verify(
            records(store), keys=[b"the second of the keys", b"a third one"]
        )
        assert "no record was hashed with" in found[1].why

    def test_a_log_under_another_key_is_not_shortened(self, store):
        begin(store, "old")
        store.audit_key = b"another key of the log"
        with pytest.raises(ConfigError, match="without a key"):
            admin.keep(store, ALL)
        assert names(store) == ["old"]

    def test_a_tenants_view_deletes_nothing_and_one_pass_takes_each_tenants_own(
        self, store
    ):
        for scope in ("a", "b"):
            status = "done" if scope == "a" else "waiting"
            begin(ScopedStore(store, scope), "r", status, scope=scope)
            with pytest.raises(ConfigError, match="as a whole"):
                admin.keep(ScopedStore(store, scope), ALL)
        assert kept(store).effects == 1
        assert names(store) == ["@b/r"]
        assert [each.scope for each in now(store.list_writes())] == ["b"]

    def test_two_keepers_at_once_delete_everything_once(self, store):
        for number in range(40):
            begin(store, f"run-{number}")
        begin(store, "waits", "waiting")
        other = self.again()
        let_it_be_old(store)
        with ThreadPoolExecutor(2) as pool:
            deleted = list(
                pool.map(
                    lambda each: retention.keep(each, ALL, rest=lambda _: None),
                    (store, other),
                )
            )
        assert sum(each.runs for each in deleted) == 40
        assert sum(each.effects for each in deleted) == 40
        assert names(store) == ["waits"]
        assert chain.verify(records(store))[1] is None
        closed(other)

    def test_a_log_that_is_shortened_while_it_is_verified_is_in_order(self, store):
        for number in range(9):
            begin(store, f"run-{number}")
        let_it_be_old(store)

        def read_pages():
            after = 0
            while page := now(store.log(after=after, most=3)):
                yield from page
                after = page[-1].seq
                retention.keep(store, ALL, rest=lambda _: None)

        assert chain.verify_during_retention(read_pages)[:2] == (1, None)
        begin(store, "later", "waiting")
        store.use_connection(
            lambda base: base.run("UPDATE audit SET body = '{}' WHERE seq = 11")
        )
        count, broken, last = chain.verify_during_retention(read_pages)
        assert (count, broken.seq, last.seq) == (1, 11, 11)

    def test_two_keepers_that_shorten_the_log_at_once_name_all_keys_that_went(
        self, store, monkeypatch
    ):
        keys = [b"the first of the keys", b"the second of the keys"]
        store.audit_key = keys[0]
        begin(store, "one")
        now(store.replace_audit_key(keys[1], by="anna"))
        for number in range(3):
            begin(store, f"run-{number}")
        other = self.again()
        other.audit_key = keys[1]
        find_shortening = retention._Sweep._find_recorded_shortening

        def be_slow(sweep):
            said = find_shortening(sweep)
            monkeypatch.undo()
            with monkeypatch.context() as before:
                before.setattr(retention._Sweep, "_last_record_before", lambda *_: 4)
                assert kept(other).audit == 4
            return said

        monkeypatch.setattr(retention._Sweep, "_find_recorded_shortening", be_slow)
        assert kept(store).audit == 2
        assert chain.verify(records(store), keys=keys) == (2, None)
        closed(other)

    def test_a_keeper_leaves_the_log_as_it_is_where_another_one_was_quicker(
        self, store, monkeypatch
    ):
        for number in range(3):
            begin(store, f"run-{number}")
        other = self.again()
        find_shortening = retention._Sweep._find_recorded_shortening

        def be_slow(sweep):
            said = find_shortening(sweep)
            monkeypatch.undo()
            assert kept(other).audit == 3
            return said

        monkeypatch.setattr(retention._Sweep, "_find_recorded_shortening", be_slow)
        assert kept(store).audit == 0
        assert chain.verify(records(store)) == (1, None)
        closed(other)

    def test_a_run_that_is_taken_over_before_its_transaction_stays(self, store):
        begin(store, "old")
        begin(store, "older")
        let_it_be_old(store)
        sweep = retention._Sweep(
            store, store.open_connection(), ALL, "", dry_run=False, rest=lambda _: None
        )
        seen = sweep._runs_that_stay(["old", "older"])
        assert seen == set()
        now(store.begin_run(RunRecord("old", {"messages": []})))
        numbers = [
            number
            for (number,) in store.use_connection(
                lambda base: base.run("SELECT number FROM runs")
            )
        ]
        sweep._in_transaction(lambda: sweep._delete_whole_runs(numbers, sweep._now))
        sweep._connection.close()
        assert names(store) == ["old"]

    @pytest.mark.parametrize(
        "what", [Retention(results_s=0.001), Retention(writes_s=0.001)]
    )
    def test_a_run_that_is_resumed_between_two_transactions_keeps_what_it_has(
        self, store, what
    ):
        for run_id in ("old", "resumed"):
            begin(store, run_id)
            text = "x" * retention.MAX_PIECE_BYTES
            handle = now(store.save_result(run_id, text))
            for number in range(25):  # as many as the first transaction deletes
                write(store, f"{run_id}:{number}", run_id)
        let_it_be_old(store)

        def resume(_):
            now(store.begin_run(RunRecord("resumed", {"messages": []})))

        retention.keep(store, what, rest=resume)
        writes = now(store.list_writes(run_id="resumed"))
        assert len(writes) == 26
        assert now(store.load_result("resumed", handle)) == text

    def test_a_store_is_kept_again_and_again_until_it_is_told_to_stop(self, store):
        stop, passes = Event(), []
        begin(store, "first")

        def tell(deleted):
            passes.append(deleted.runs)
            if len(passes) == 2:
                stop.set()
            else:
                begin(store, "second")

        often = replace(ALL)
        retention.keep_regularly(store, often, stop, tell=tell)
        assert passes == [1, 1]

    @pytest.mark.proof
    def test_a_keeper_that_is_killed_between_any_two_statements_leaves_whole_runs_and_a_whole_log(
        self, store
    ):
        answer = subprocess.run(
            [sys.executable, "-m", "tests.stores.killed_keepers", self.place()],
            cwd=ROOT, capture_output=True, text=True, timeout=300,
        )  # fmt: skip
        assert answer.returncode == 0, answer.stderr
        said = json.loads(answer.stdout)
        assert said["killed"] >= 10
        assert said["broken"] == []


PERIODS = [
    ({"runs_s": 10.0, "audit_s": 5.0}, "at least as long as the runs"),
    ({"audit_s": 5.0}, "at least as long as the runs"),
    ({"runs_s": 0.0}, "above 0"),
    ({"tools_s": {"refund": float("inf")}}, "above 0"),
]
