"""What a store that outlives its process must hold to beyond `contract`: other processes, their death, and time.

Whatever promises survival is tested by dying: the other process is killed with SIGKILL, never asked to end.
"""

import json
import os
import signal
import time
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import closing, suppress
from functools import partial
from itertools import count
from threading import Event, Thread

import pytest
from msgspec.structs import replace

from handrail import process_identity
from handrail.audit.chain import KEY_BEGUN, KEY_REPLACED, group_records, verify
from handrail.effects import AGAIN, ClaimState, Renew, Settle
from handrail.errors import ConfigError, Fenced, StoreUnavailable
from handrail.ports import ApprovalStore, AuditStore, LedgerStore, RunStore
from handrail.records import (
    ApprovalRequest,
    AuditEntry,
    JournalEntry,
    JournalStep,
    RunRecord,
    UnwrittenEntry,
    new_run_id,
)
from handrail.stores import group_commit, maintenance, sql_runs
from handrail.stores.database import RetryGroup
from handrail.stores.durable import ResultQuota
from handrail.stores.requests import GroupOperation
from handrail.stores.sqlite import SqliteStore
from handrail.testing.contracts.claims import A_REFUND, LONG_S, OVER_S
from handrail.testing.contracts.processes import PATIENCE_S, ProcessContract
from handrail.testing.contracts.scopes import ScopeContract
from handrail.testing.contracts.stores import closed, now
from tests.stores.retention_contract import RetentionContract
from tests.support.forks import in_fork

TABLES = {
    "runs",
    "submitted",
    "steps",
    "approvals",
    "grants",
    "kept",
    "effects",
    "acts",
    "locks",
    "audit",
}
"""Every table that holds what a run does. `workers`, `restored` and `schema_version` belong to no tenant."""


class DurableContract(ProcessContract, ScopeContract, RetentionContract):
    """The laws of stores that survive. `open` returns a store that holds nothing."""

    def again(self):
        """Open one more store on the same rows."""
        raise NotImplementedError

    def test_a_store_is_closed_though_its_database_hangs_and_says_what_was_left(
        self, store, monkeypatch, caplog
    ):
        monkeypatch.setattr(group_commit, "CLOSE_S", 0.2)
        hangs, answers = Event(), Event()

        def hang(_):
            hangs.set()
            assert answers.wait(PATIENCE_S)

        under_way = store._writer.submit(hang)
        assert hangs.wait(PATIENCE_S)
        queued = store._writer.submit(lambda database: database.now())
        question = store._reader.ask(lambda database: database.now())
        store.close()
        for left in (queued, question):
            with pytest.raises(StoreUnavailable, match="was not carried out"):
                left.result(PATIENCE_S)
        assert "2 requests were not carried out" in caplog.text
        # it answers after all
        answers.set()
        assert under_way.result(PATIENCE_S) is None

    def test_a_store_is_closed_though_a_question_to_its_database_hangs(
        self, store, monkeypatch, caplog
    ):
        monkeypatch.setattr(group_commit, "CLOSE_S", 0.2)
        hangs, answers = Event(), Event()

        def hang(_):
            hangs.set()
            assert answers.wait(PATIENCE_S)

        store._reader.ask(hang)
        assert hangs.wait(PATIENCE_S)
        waiting = store._reader.ask(lambda database: database.now())
        store.close()
        with pytest.raises(StoreUnavailable, match="closed before it had answered"):
            waiting.result(PATIENCE_S)
        assert "1 questions were left" in caplog.text
        answers.set()

    def test_a_database_that_hangs_is_waited_for_once_and_not_by_each_connection(
        self, store, monkeypatch
    ):
        monkeypatch.setattr(group_commit, "CLOSE_S", 0.2)
        hanging = [Event(), Event()]
        answers = Event()

        def hang(_):
            hanging.pop().set()
            assert answers.wait(PATIENCE_S)

        waited_s = []
        join = Thread.join

        def note_wait(thread, timeout=None):
            waited_s.append(timeout)
            join(thread, timeout)

        first, second = hanging
        store._reader.ask(hang)
        assert second.wait(PATIENCE_S)
        store._writer.submit(hang)
        assert first.wait(PATIENCE_S)
        monkeypatch.setattr(Thread, "join", note_wait)
        store.close()
        answers.set()
        assert sum(waited_s) == 0.2

    def test_closing_waits_for_questions_for_as_long_as_one_after_the_other_is_answered(
        self, store, monkeypatch
    ):
        join = Thread.join
        gates = [Event() for _ in range(3)]
        answers = [
            store._reader.ask(lambda _, gate=gate: gate.wait(PATIENCE_S))
            for gate in gates
        ]

        def wait_for_one(thread, timeout=None):
            if thread is not store._reader._thread or not gates:
                join(thread, PATIENCE_S)
                return
            before = store._reader._answered
            gates.pop(0).set()
            while store._reader._answered == before:
                time.sleep(0)

        monkeypatch.setattr(Thread, "join", wait_for_one)
        store.close()
        assert [answer.result(0) for answer in answers] == [True, True, True]

    # -- names ---------------------------------------------------------------------------------------------------------

    def test_the_key_of_digests_is_made_once_and_belongs_to_the_store(self):
        store = self.open()
        other = self.again()
        assert len(store.digest_key) == 32
        assert other.digest_key == store.digest_key
        # with a key of the log, whoever has the rows alone cannot check a guess
        other.audit_key = b"k" * 32
        assert other.digest_key != store.digest_key
        closed(other)
        closed(store)

    def test_a_run_whose_name_is_too_long_is_refused_and_not_begun_under_another_one(
        self, store
    ):
        fits, too_long = "r" * 275, "r" * 276
        now(store.begin_run(RunRecord(fits, {})))
        assert now(store.load_run(fits)).record.run_id == fits
        with pytest.raises(ConfigError, match="276 characters, and 275 are possible"):
            now(store.begin_run(RunRecord(too_long, {})))
        assert now(store.load_run(too_long)) is None

    def test_a_run_with_a_longer_name_that_an_earlier_version_stored_goes_on(
        self, store
    ):
        now(store.begin_run(RunRecord("r_1", {})))
        longest = "r" * 300
        store.use_connection(
            lambda database: database.run("UPDATE runs SET run_id = ?", (longest,))
        )
        loaded = now(store.load_run(longest)).record
        assert now(store.begin_run(loaded)).record.epoch == 2

    # -- resources, among processes ------------------------------------------------------------------------------------

    TOUCHING = replace(A_REFUND, locks=("user:1", "order:7"))
    OTHER = replace(
        A_REFUND, key="other", fingerprint=b"other", run_id="r2", locks=("user:1",)
    )

    def test_two_writes_that_touch_one_thing_do_not_run_at_once(self, store):
        other = self.again()
        first = now(store.claim(self.TOUCHING))
        assert now(other.claim(self.OTHER)).state is ClaimState.LOCKED
        assert (
            now(other.claim(replace(self.OTHER, locks=("user:2",)))).state
            is ClaimState.FRESH
        )
        assert now(
            store.settle(
                Settle("", "refund:881", first.fence, "done", 1, self.TOUCHING.locks)
            )
        )
        assert (
            now(other.claim(replace(self.OTHER, key="third", fingerprint=b"3"))).state
            is ClaimState.FRESH
        )
        closed(other)

    def test_what_a_locked_write_asked_for_is_not_taken(self, store):
        now(store.claim(self.TOUCHING))
        wants_both = replace(self.OTHER, locks=("free", "user:1"))
        assert now(store.claim(wants_both)).state is ClaimState.LOCKED
        assert (
            now(
                store.claim(
                    replace(self.OTHER, key="x", fingerprint=b"x", locks=("free",))
                )
            ).state
            is ClaimState.FRESH
        )
        # and its key is still free
        assert now(store.claim(wants_both)).state is ClaimState.LOCKED

    def test_a_write_in_doubt_keeps_what_it_touches_until_its_lease_is_over(
        self, store
    ):
        first = now(store.claim(self.TOUCHING))
        assert now(
            store.settle(
                Settle(
                    "",
                    "refund:881",
                    first.fence,
                    "in_doubt",
                    None,
                    self.TOUCHING.locks,
                )
            )
        )
        locked = now(store.claim(self.OTHER))
        assert locked.state is ClaimState.LOCKED
        assert 0 < locked.left_s <= LONG_S
        self.pass_time(LONG_S + 1)
        assert now(store.claim(self.OTHER)).state is ClaimState.FRESH

    def test_a_write_in_doubt_whose_tool_has_ended_lets_go_of_what_it_touches(
        self, store
    ):
        first = now(store.claim(self.TOUCHING))
        doubt = Settle(
            self.TOUCHING.scope,
            self.TOUCHING.key,
            first.fence,
            "in_doubt",
            locks=self.TOUCHING.locks,
            has_ended=True,
        )
        assert now(store.settle(doubt))
        assert now(store.claim(self.OTHER)).state is ClaimState.FRESH

    def test_who_goes_on_with_a_write_inherits_what_it_touches(self, store):
        again = replace(self.TOUCHING, replay="key", epoch=1)
        now(store.claim(again))
        assert now(store.claim(replace(again, epoch=2))).state is ClaimState.AGAIN
        assert now(store.claim(self.OTHER)).state is ClaimState.LOCKED

    def test_who_does_a_doubtful_write_again_inherits_what_it_touches(self, store):
        first = now(store.claim(self.TOUCHING))
        now(
            store.settle(
                Settle(
                    "",
                    "refund:881",
                    first.fence,
                    "in_doubt",
                    None,
                    self.TOUCHING.locks,
                )
            )
        )
        again = replace(self.TOUCHING, key=f"refund:881{AGAIN}1", guard=False)
        claimed = now(store.claim(again))
        assert claimed.state is ClaimState.FRESH
        assert now(store.claim(self.OTHER)).state is ClaimState.LOCKED
        now(
            store.settle(
                Settle("", again.key, claimed.fence, "done", None, again.locks)
            )
        )
        assert now(store.claim(self.OTHER)).state is ClaimState.FRESH

    def test_a_lease_that_is_renewed_keeps_what_the_write_touches(self, store):
        first = now(store.claim(replace(self.TOUCHING, lease_s=5.0)))
        assert now(
            store.renew(
                Renew("", "refund:881", first.fence, LONG_S, self.TOUCHING.locks)
            )
        )
        self.pass_time(6.0)
        assert now(store.claim(self.OTHER)).state is ClaimState.LOCKED

    def set_clock(self, store, seconds):
        """Set the clock of the store forward, or back: what it wrote down before was so much earlier."""
        store.use_connection(
            lambda base: base.run("UPDATE locks SET until = until - ?", (seconds,))
        )
        store.use_connection(
            lambda base: base.run(
                "UPDATE effects SET lease_until = lease_until - ?", (seconds,)
            )
        )

    @pytest.mark.slow
    @pytest.mark.parametrize("seconds", [10 * LONG_S, -10 * LONG_S])
    def test_a_clock_that_is_set_lets_nobody_touch_what_a_living_process_of_this_machine_holds(
        self, store, seconds
    ):
        with self.hanging("none", *self.TOUCHING.locks) as process:
            self.set_clock(store, seconds)
            assert now(store.claim(self.OTHER)).state is ClaimState.LOCKED
            process.send_signal(signal.SIGSTOP)
            os.waitid(os.P_PID, process.pid, os.WSTOPPED | os.WNOWAIT)
            assert now(store.claim(self.OTHER)).state is ClaimState.LOCKED

    @pytest.mark.proof
    @pytest.mark.parametrize("seconds", [0, -10 * LONG_S])
    def test_what_a_dead_process_held_is_free_at_once_whatever_the_clock_says(
        self, store, seconds
    ):
        with self.hanging("none", *self.TOUCHING.locks) as process:
            self.set_clock(store, seconds)
            assert now(store.claim(self.OTHER)).state is ClaimState.LOCKED
            process.kill()
            process.wait(PATIENCE_S)
        assert now(store.claim(self.OTHER)).state is ClaimState.FRESH

    @pytest.mark.proof
    def test_of_all_who_want_what_a_dead_process_held_one_gets_it(self, store):
        things, threads = 100, 4
        with self.hanging("none", *(f"thing:{n}" for n in range(things))) as process:
            process.kill()
            process.wait(PATIENCE_S)
        with (
            self.other("race_of_locks", str(things), str(threads)) as one,
            self.other("race_of_locks", str(things), str(threads)) as two,
        ):
            for process in (one, two):
                process.stdin.write("go\n")
                process.stdin.flush()
            answers = [json.loads(process.stdout.readline()) for process in (one, two)]
        for rows in zip(*answers, strict=True):
            states = sorted(state for row in rows for state in row)
            assert states == ["fresh"] + ["locked"] * (2 * threads - 1)

    @pytest.mark.parametrize(
        "owner", ["elsewhere:{pid}:{boot}", "{host}:{pid}:another0-1-17", ""]
    )
    def test_what_a_process_holds_of_which_nothing_is_known_here_is_its_own_until_its_lease_is_over(
        self, store, owner
    ):
        host, _, boot = process_identity.owner().rsplit(":", 2)
        owner = owner.format(host=host, pid=2**22 + 1, boot=boot)
        now(store.claim(self.TOUCHING))
        store.use_connection(
            lambda base: base.run("UPDATE locks SET owner = ?", (owner,))
        )
        assert now(store.claim(self.OTHER)).state is ClaimState.LOCKED
        store.use_connection(
            lambda base: base.run("UPDATE locks SET until = until - ?", (LONG_S + 1,))
        )
        assert now(store.claim(self.OTHER)).state is ClaimState.FRESH

    def test_a_window_ends_and_one_of_two_processes_opens_the_next(self, store):
        other = self.again()
        self.settled_lately(store)
        assert now(other.claim(self.LATELY)).state is ClaimState.DONE
        self.pass_time(LONG_S + 1)
        acts = [
            replace(self.LATELY, key=f"act:{n}", run_id=f"other{n}") for n in range(2)
        ]
        assert [now(acts_of.claim(act)).state for acts_of, act in zip((store, other), acts, strict=True)] == [
            ClaimState.FRESH, ClaimState.BUSY
        ]  # fmt: skip
        closed(other)

    # -- the audit log -------------------------------------------------------------------------------------------------

    def test_the_audit_log_is_one_chain_whoever_writes_it(self, store):
        other = self.again()
        with ThreadPoolExecutor(8) as pool:
            notices = [
                AuditEntry(f"r_{n % 3}", "CallFinished", {"n": n, "城": "\ud800"})
                for n in range(40)
            ]
            told = [
                pool.submit((store, other)[n % 2].append_audit, [notice])
                for n, notice in enumerate(notices)
            ]
        assert [now(each.result()) for each in told] == [None] * 40
        assert (
            now(
                store.append_audit(
                    [
                        AuditEntry("r_1", "RunEnded", {}),
                        AuditEntry("r_1", "RunEnded", {"again": True}),
                    ]
                )
            )
            is None
        )
        records = now(other.log())
        assert verify(records) == (42, None)
        assert {record.body.get("n") for record in records[:40]} == set(range(40))
        assert [record.seq for record in now(store.log(after=40))] == [41, 42]
        assert {record.run_id for record in now(store.log(run_id="r_2"))} == {"r_2"}
        closed(other)

    def test_a_step_whose_body_is_a_text_is_read_as_one_with_a_body(self, store):
        assert store.takes_texts
        body = {"text": "北京", "calls": [["c", "look_up", '{"a": "\n"}']]}
        steps = [
            JournalStep("1.m", "model", None, 0.25, json.dumps(body)),
            JournalStep("1.0", "call", {"value": None}, 1e-05),
            JournalStep("2.m", "model", None, 3.0, "{}"),
        ]
        begun = now(store.begin_run(RunRecord("r_1", {}))).record
        now(store.append_entry(JournalEntry("r_1", begun.epoch, steps[:2])))
        now(store.append_entry(JournalEntry("r_1", begun.epoch, steps[2:])))
        assert now(store.load_run("r_1")).steps == (
            JournalStep("1.m", "model", body, 0.25),
            steps[1],
            JournalStep("2.m", "model", {}, 3.0),
        )

    def test_records_that_are_written_by_the_store_have_their_place_among_the_others(
        self, store
    ):
        written = []

        def write(count):
            written.append(count)
            records = [("CallFinished", f'{{"n":{n}}}') for n in range(count)]
            return group_records("any", records)

        now(store.append_audit([AuditEntry("r_1", "RunStarted", {})]))
        both = [UnwrittenEntry("r_1", partial(write, count)) for count in (2, 0)]
        now(store.append_audit([*both, AuditEntry("r_1", "RunEnded", {})]))
        now(store.append_audit([UnwrittenEntry("r_2", partial(write, 0))]))
        records = now(store.log())
        assert [each.event for each in records] == [
            "RunStarted",
            "CallFinished",
            "CallFinished",
            "RunEnded",
        ]
        assert [each.seq for each in records] == [1, 2, 3, 4]
        assert {each.run_id for each in records} == {"r_1"}
        assert verify(records) == (4, None)
        assert written == [2, 0, 0]  # once, though a group may be decided again

    def test_records_that_may_wait_are_committed_together_and_with_whatever_is_urgent(
        self, store, monkeypatch
    ):
        waits = AuditEntry("r_1", "CallFinished", {}, may_wait=True)
        monkeypatch.setattr(sql_runs, "HELD_S", 0.5)
        first = store.append_audit([waits])
        assert store.append_audit([waits]) is first
        assert not first.done()
        now(first)  # by itself, after a while
        monkeypatch.setattr(sql_runs, "HELD_S", 3600.0)
        held = store.append_audit([waits])
        now(store.append_audit([AuditEntry("r_1", "RunEnded", {})]))
        assert held.done()
        held = store.append_audit([waits])
        now(store.claim(A_REFUND))
        assert held.done()
        held = store.append_audit([waits])
        assert verify(now(store.log())) == (6, None)
        assert held.done()
        held = store.append_audit([waits])
        closed(store)
        assert held.done()
        other = self.again()
        assert verify(now(other.log())) == (7, None)
        closed(other)

    def test_a_keyed_log_is_verified_with_the_key_only(self, store):
        store.audit_key = b"secret"
        now(store.append_audit([AuditEntry("r_1", "RunEnded", {})]))
        assert verify(now(store.log()), keys=[b"secret"]) == (1, None)
        assert verify(now(store.log()))[1].seq == 1

    @pytest.mark.parametrize("old", [b"the old key of the log", b""])
    def test_the_key_of_a_log_is_replaced_by_two_records_and_verified_with_both(
        self, store, old, tmp_path
    ):
        new = b"the new key of the log"
        store.audit_key = old
        now(store.append_audit([AuditEntry("r_1", "RunEnded", {})]))
        stale = self.again()
        stale.audit_key = old
        now(stale.append_audit([AuditEntry("r_2", "RunEnded", {})]))
        now(store.replace_audit_key(new, by="anna"))
        now(store.append_audit([AuditEntry("r_3", "RunEnded", {})]))
        # who wrote under the old key before must look again
        with pytest.raises(StoreUnavailable, match="audit log"):
            now(stale.append_audit([AuditEntry("r_4", "RunEnded", {})]))
        with pytest.raises(ConfigError):
            now(stale.replace_audit_key(b"another key of the log", by="eve"))
        # and reads its file, once the new key is there
        file = tmp_path / "audit.key"
        file.write_bytes(new)
        stale.audit_key_file = str(file)
        now(stale.append_audit([AuditEntry("r_5", "RunEnded", {})]))
        records = now(store.log())
        assert [each.event for each in records[2:4]] == [KEY_REPLACED, KEY_BEGUN]
        assert [each.run_id for each in records if each.run_id] == [
            "r_1",
            "r_2",
            "r_3",
            "r_5",
        ]
        assert verify(records, keys=[new, old]) == (6, None)
        assert "was not given" in verify(records, keys=[old])[1].why
        assert (
            verify(records, keys=[new])[1] is None
            if not old
            else verify(records, keys=[new])[1].seq == 1
        )
        closed(stale)

    def test_a_copy_into_a_store_that_others_add_to_leaves_one_chain(
        self, store, tmp_path, monkeypatch
    ):
        continue_log = maintenance._continue_log
        adding = []

        def continue_beside_another(*given):
            continues = continue_log(*given)
            if not adding:
                own = AuditEntry("own", "X", {})
                adding.append(pool.submit(lambda: now(other.append_audit([own]))))
                wait(adding, timeout=0.3)  # in a file it comes behind the copy
            return continues

        monkeypatch.setattr(maintenance, "_continue_log", continue_beside_another)
        with (
            ThreadPoolExecutor(1) as pool,
            SqliteStore(tmp_path / "source.db") as source,
            closing(self.again()) as other,
        ):
            for number in range(3):
                now(source.append_audit([AuditEntry("r", "X", {"n": number})]))
            maintenance.copy_store(source, store)
            adding[0].result(PATIENCE_S)
        records = now(store.log())
        assert "own" in {record.run_id for record in records}
        assert verify(records) == (len(records), None)

    def test_a_thread_that_cannot_be_started_fails_its_own_caller_only(
        self, store, monkeypatch
    ):
        def refuse(_thread):
            raise RuntimeError("can't start new thread")

        with closing(self.again()) as other:
            with monkeypatch.context() as patched:
                patched.setattr(Thread, "start", refuse)
                with pytest.raises(StoreUnavailable, match="can't start new thread"):
                    now(other.claim(A_REFUND))
            assert now(other.claim(A_REFUND)).state is ClaimState.FRESH
            with monkeypatch.context() as patched:
                patched.setattr(Thread, "start", refuse)
                with pytest.raises(StoreUnavailable, match="can't start new thread"):
                    now(other.load_run("r1"))
            assert now(other.load_run("r1")) is None

    def test_text_that_no_database_can_hold_fails_its_own_caller_only(self, store):
        stands = Event()
        store._writer.submit(lambda _: stands.wait(PATIENCE_S))
        odd = store.begin_run(RunRecord("odd", {"messages": []}, toolset="\ud800"))
        claiming = store.claim(A_REFUND)  # in one group with it
        stands.set()
        with pytest.raises(StoreUnavailable, match="UnicodeEncodeError"):
            odd.result(PATIENCE_S)
        assert claiming.result(PATIENCE_S).state is ClaimState.FRESH

    @pytest.mark.parametrize(
        "damage",
        [
            "UPDATE steps SET body = '{'",
            "UPDATE steps SET kind = 'steps', body = '[7]'",
            "UPDATE runs SET result = '{'",
            "UPDATE runs SET input = '{'",
        ],
    )
    def test_a_run_that_cannot_be_read_refuses_its_own_caller_only(self, store, damage):
        step = JournalStep("1.m", "model", {})
        now(store.begin_run(RunRecord("damaged", {}), steps=[step]))
        store.use_connection(lambda database: database.run(damage))
        stands = Event()
        store._writer.submit(lambda _: stands.wait(PATIENCE_S))
        beginning = store.begin_run(RunRecord("damaged", {}, epoch=1))
        claiming = store.claim(A_REFUND)  # in one group with it
        stands.set()
        with pytest.raises(StoreUnavailable, match=r"run 'damaged' cannot be read"):
            beginning.result(PATIENCE_S)
        assert claiming.result(PATIENCE_S).state is ClaimState.FRESH
        with pytest.raises(StoreUnavailable, match=r"run 'damaged' cannot be read"):
            now(store.load_run("damaged"))
        [listed] = now(store.list_runs())
        assert listed.run_id == "damaged"
        [browsed] = now(store.browse_runs())
        assert browsed.stored.record == listed
        [[epoch]] = store.use_connection(
            lambda database: database.run("SELECT epoch FROM runs")
        )
        assert epoch == 1

    def test_the_result_of_a_write_that_cannot_be_read_fails_its_own_caller_only(
        self, store
    ):
        fence = now(store.claim(A_REFUND)).fence
        now(store.settle(Settle(A_REFUND.scope, A_REFUND.key, fence, "done", {})))
        store.use_connection(
            lambda database: database.run("UPDATE effects SET value = '{'")
        )
        stands = Event()
        store._writer.submit(lambda _: stands.wait(PATIENCE_S))
        again = store.claim(A_REFUND)
        other = store.claim(replace(A_REFUND, key="another", fingerprint=b"x"))
        stands.set()
        with pytest.raises(StoreUnavailable, match="JSONDecodeError"):
            again.result(PATIENCE_S)
        assert other.result(PATIENCE_S).state is ClaimState.FRESH

    def test_who_finds_others_quicker_each_time_fails_alone(self, store):
        def decide(_database, _now, _arguments):
            raise RetryGroup

        stands = Event()
        store._writer.submit(lambda _: stands.wait(PATIENCE_S))
        deciding = store._writer.submit(GroupOperation(decide))
        claiming = store.claim(A_REFUND)  # in one group with it
        stands.set()
        with pytest.raises(StoreUnavailable, match="quicker 100 times"):
            deciding.result(PATIENCE_S)
        assert claiming.result(PATIENCE_S).state is ClaimState.FRESH

    def test_a_second_copy_brings_what_was_taken_back_since_the_first(
        self, store, tmp_path
    ):
        with SqliteStore(tmp_path / "source.db") as source:
            fence = now(source.claim(A_REFUND)).fence
            settle = Settle("", A_REFUND.key, fence, "done", {"n": 1})
            assert now(source.settle(settle))
            maintenance.copy_store(source, store)
            assert now(source.release("", A_REFUND.key, fence=fence, by="anna"))
            maintenance.copy_store(source, store)
        assert now(store.claim(A_REFUND)).state is ClaimState.FRESH

    # -- set back to an older copy ------------------------------------------------------------------------------------

    @staticmethod
    def set_back(store):
        """Mark a store as set back to a copy of an hour ago."""
        return maintenance.mark_restored(store, time.time() - 3600)

    @pytest.mark.parametrize(("replay", "lease_s", "answers"), [
        ("none", LONG_S, [ClaimState.IN_DOUBT, ClaimState.IN_DOUBT]),
        ("key", LONG_S, [ClaimState.AGAIN, ClaimState.BUSY]),
        ("verify", OVER_S, [ClaimState.CHECK, ClaimState.CHECK]),
    ])  # fmt: skip
    @pytest.mark.parametrize("is_in_use", [False, True])
    def test_a_key_that_a_restored_store_does_not_know_is_in_doubt_once_it_is_asked_for(
        self, store, replay, lease_s, answers, is_in_use
    ):
        if is_in_use:
            self.settled(store, "done", replay)
        self.set_back(store)
        act = replace(
            A_REFUND, key="refund:882", replay=replay, lease_s=lease_s, guard=False
        )
        assert [now(store.claim(act)).state for _ in answers] == answers
        write = now(store.load_write("", "refund:882"))
        assert write.tool == "refund"
        if replay == "none":
            assert "may have forgotten it" in write.why(time.time())

    def test_nobody_is_asked_about_a_write_that_a_restored_store_does_not_know(
        self, store
    ):
        self.set_back(store)
        assert now(store.look_up(A_REFUND)).state is ClaimState.IN_DOUBT
        assert now(store.load_write("", A_REFUND.key)).state == "in_doubt"

    def test_a_request_of_before_a_store_was_set_back_may_be_under_way_and_is_not_verified_yet(
        self, store
    ):
        self.set_back(store)
        early = now(store.claim(replace(A_REFUND, replay="verify")))
        assert early.state is ClaimState.IN_DOUBT

    def test_a_far_side_may_have_forgotten_a_key_that_was_used_in_lost_times(
        self, store
    ):
        self.set_back(store)
        hours = replace(A_REFUND, replay="key", key_ttl_s=7200.0, guard=False)
        minutes = replace(hours, key="refund:882", key_ttl_s=600.0)
        assert now(store.claim(minutes)).state is ClaimState.IN_DOUBT
        assert now(store.claim(hours)).state is ClaimState.AGAIN

    def test_a_restored_store_knows_what_it_holds_except_that_what_failed_may_have_been_tried_again(
        self, store
    ):
        self.settled(store, "done", value=20)
        other = replace(A_REFUND, key="refund:882", guard=False)
        fence = now(store.claim(other)).fence
        assert now(store.settle(Settle("", "refund:882", fence, "failed")))
        assert self.set_back(store).failed_writes == 1
        assert now(store.claim(A_REFUND)).state is ClaimState.DONE
        assert now(store.claim(other)).state is ClaimState.IN_DOUBT

    @pytest.mark.parametrize("happened", [True, False])
    def test_a_person_settles_a_write_of_lost_times_like_any_other(
        self, store, happened
    ):
        self.set_back(store)
        assert now(store.claim(A_REFUND)).state is ClaimState.IN_DOUBT
        state = "done" if happened else "failed"
        assert now(store.resolve("", A_REFUND.key, state=state, by="anna"))
        expected = ClaimState.DONE if happened else ClaimState.FRESH
        assert now(store.claim(A_REFUND)).state is expected

    def test_a_doubt_of_lost_times_that_a_person_has_done_again_is_done_again(
        self, store
    ):
        before = f"{A_REFUND.key}{AGAIN}1"
        self.set_back(store)
        doubt = now(store.claim(A_REFUND))
        after = replace(
            A_REFUND, key=f"{A_REFUND.key}{AGAIN}{doubt.fence}", guard=False
        )
        assert now(store.claim(after)).state is ClaimState.FRESH
        earlier = replace(A_REFUND, key=before, guard=False)
        assert now(store.claim(earlier)).state is ClaimState.IN_DOUBT

    def test_runs_that_begin_after_a_store_was_set_back_write_as_ever_unless_somebody_named_them(
        self, store
    ):
        old = new_run_id()
        at = self.set_back(store).at
        new = f"r_{int(at * 1000) + 1:011x}{'0' * 16}"
        answers = {}
        for run, place in [
            (old, "1/0"), (new, "1/0"), ("@acme/" + new, "1/0"), ("ticket-7", "1/0"), ("ticket-7", "1a2b3c4d/1/0"),
        ]:  # fmt: skip
            key = f"{run.removeprefix('@acme/')}/{place}"
            act = replace(A_REFUND, scope=run[:5], run_id=run, key=key, guard=False)
            answers[run, place] = now(store.claim(act)).state
        assert list(answers.values()) == [
            ClaimState.IN_DOUBT,
            ClaimState.FRESH,
            ClaimState.FRESH,
            ClaimState.IN_DOUBT,
            ClaimState.FRESH,  # counted in the memory of a process that is alive
        ]

    def test_unknown_keys_are_new_again_once_a_restored_store_is_unmarked(self, store):
        since = self.set_back(store).since
        marked = maintenance.count_contents(store).restored
        assert marked is not None and marked.since == since
        assert now(store.claim(A_REFUND)).state is ClaimState.IN_DOUBT
        assert maintenance.unmark_restored(store)
        assert not maintenance.unmark_restored(store)
        other = replace(A_REFUND, key="refund:882", guard=False)
        assert now(store.claim(other)).state is ClaimState.FRESH
        assert now(store.claim(A_REFUND)).state is ClaimState.IN_DOUBT

    def test_a_process_that_was_at_work_all_along_heeds_the_mark_of_another_one(
        self, store
    ):
        for number in range(3):
            act = replace(A_REFUND, key=f"refund:{number}", guard=False)
            assert now(store.claim(act)).state is ClaimState.FRESH
        with closing(self.again()) as other:
            self.set_back(other)
        act = replace(A_REFUND, guard=False)
        assert now(store.claim(act)).state is ClaimState.IN_DOUBT

    def test_a_store_set_back_twice_has_lost_all_since_the_older_copy(self, store):
        first = self.set_back(store)
        second = maintenance.mark_restored(store, first.at)
        assert (second.since, second.at > first.at) == (first.since, True)
        with pytest.raises(ConfigError, match="in the future"):
            maintenance.mark_restored(store, time.time() + 3600)

    def test_a_copy_of_a_restored_store_is_marked_too(self, store, tmp_path):
        with SqliteStore(tmp_path / "source.db") as source:
            self.set_back(source)
            maintenance.copy_store(source, store)
        assert now(store.claim(A_REFUND)).state is ClaimState.IN_DOUBT

    def test_a_copy_takes_no_run_back_from_who_has_taken_it_over(self, store, tmp_path):
        with SqliteStore(tmp_path / "source.db") as source:
            now(source.begin_run(RunRecord("r", {"messages": []})))
            maintenance.copy_store(source, store)
            taken = now(store.begin_run(RunRecord("r", {"messages": []}))).record
            step = JournalStep("1.m", "model", {})
            now(source.append_entry(JournalEntry("r", 1, [step], "running")))
            maintenance.copy_store(source, store)
            own = JournalStep("1.m", "model", {"said": "by who took it over"})
            now(store.append_entry(JournalEntry("r", 2, [own], "running")))
            maintenance.copy_store(source, store)
        copied = now(store.load_run("r"))
        assert copied.record.epoch == taken.epoch == 2
        assert copied.steps == (own,)

    def test_a_copy_that_breaks_off_leaves_no_run_without_its_steps_and_writes(
        self, store, tmp_path, monkeypatch
    ):
        step = JournalStep("1.m", "model", {"said": 1})
        write = store.use_connection
        left = 0

        def write_and_break_off(job):
            nonlocal left
            left -= 1
            if left < 0:
                raise StoreUnavailable("the connection broke")
            return write(job)

        monkeypatch.setattr(store, "use_connection", write_and_break_off)
        with SqliteStore(tmp_path / "source.db") as source:
            now(source.begin_run(RunRecord("r", {}), steps=[step]))
            fence = now(source.claim(replace(A_REFUND, run_id="r"))).fence
            now(source.settle(Settle("", A_REFUND.key, fence, "done", {})))
            for writes in range(1, 20):
                left = writes
                with suppress(StoreUnavailable):
                    maintenance.copy_store(source, store)
                copied = now(store.load_run("r"))
                if copied is not None:
                    assert copied.steps == (step,)
                    assert now(store.load_write("", A_REFUND.key)) is not None
        assert copied is not None

    @pytest.mark.parametrize(
        ("before", "after"), [(b"one", b"two"), (b"one", b""), (b"", b"two")]
    )
    def test_a_log_is_gone_on_with_under_its_own_key_only_and_nothing_else_suffers(
        self, store, before, after
    ):
        store.audit_key = before
        now(store.append_audit([AuditEntry("r_1", "RunEnded", {})]))
        other = self.again()
        other.audit_key = after
        refused, begun = (
            other.append_audit([AuditEntry("r_2", "RunEnded", {})]),
            other.begin_run(RunRecord("r_2", {})),
        )
        with pytest.raises(StoreUnavailable, match="audit log"):
            now(refused)
        assert now(begun).record.run_id == "r_2"
        assert now(other.log_refuses())
        other.audit_key = before
        assert now(other.log_refuses()) == ""
        now(other.append_audit([AuditEntry("r_2", "RunEnded", {})]))
        assert verify(now(store.log()), keys=[before]) == (2, None)
        closed(other)

    @pytest.mark.parametrize("value", [
        "\0\x7f\u2028\ud83d", "北京😀", 2**70, -0.0, 1e300, 1e-7, 0.1 + 0.2, True, None, [[[]]], {"1": {"": []}},
    ])  # fmt: skip
    def test_what_a_step_holds_comes_back_as_it_was(self, store, value):
        now(store.begin_run(RunRecord("r_1", {"asked": value})))
        now(
            store.append_entry(
                JournalEntry(
                    "r_1",
                    1,
                    [JournalStep("1.0", "call", {"value": value})],
                    "done",
                    {"said": value},
                )
            )
        )
        begun = now(store.load_run("r_1"))
        told = (
            begun.record.input["asked"],
            begun.steps[0].body["value"],
            begun.record.result["said"],
        )
        assert [repr(each) for each in told] == [repr(value)] * 3

    @pytest.mark.parametrize("port", [RunStore, ApprovalStore, LedgerStore, AuditStore])
    def test_it_is_a_store_of_each_of_these_kinds(self, store, port):
        assert isinstance(store, port)

    def test_two_processes_that_agree_at_once_are_both_heard(self, store):
        other = self.again()
        question = ApprovalRequest(
            "q", "r", "c", "refund", "d", {}, "high", "", required_approvals=2
        )
        for number in range(30):
            now(store.ask(replace(question, id=f"q_{number}"), within_s=60.0))
            words = [
                each.decide(f"q_{number}", granted=True, by=by)
                for each, by in ((store, "anna"), (other, "ben"))
            ]
            assert sorted(now(word).state for word in words) == ["approved", "open"]
        closed(other)

    # -- one process --------------------------------------------------------------------------------------------------

    def test_what_one_store_has_done_another_one_on_the_same_rows_knows(self, store):
        other = self.again()
        self.settled(store, "done", value={"id": 3})
        assert now(other.claim(A_REFUND)).value == {"id": 3}
        assert (
            now(other.load_result("r1", now(store.save_result("r1", "long")))) == "long"
        )
        closed(other)

    def test_a_store_that_was_closed_is_opened_with_everything_in_it(self, store):
        self.settled(store, "done", value={"id": 3})
        handle = now(store.save_result("r1", "long"))
        store.close()
        other = self.again()
        assert now(other.claim(A_REFUND)).value == {"id": 3}
        assert now(other.load_result("r1", handle)) == "long"
        closed(other)

    def test_closing_waits_for_what_was_asked(self, store):
        asked = [
            store.claim(replace(A_REFUND, key=f"refund:{n}", guard=False))
            for n in range(700)
        ]
        store.close()
        assert {claimed.result(0).state for claimed in asked} == {ClaimState.FRESH}

    def test_a_closed_store_claims_nothing_and_says_so(self, store):
        store.close()
        store.close()
        with pytest.raises(StoreUnavailable, match="closed"):
            store.claim(A_REFUND)
        assert "closed" in repr(store)

    def test_a_claim_that_was_called_off_in_the_queue_is_not_made(self, store):
        store.save_result("r1", "x" * 3_000_000)  # the thread is busy with it
        asked = [
            store.claim(replace(A_REFUND, key=f"refund:{n}", guard=False))
            for n in range(50)
        ]
        called_off = [number for number, claim in enumerate(asked) if claim.cancel()]
        for number in called_off:
            assert (
                now(
                    store.claim(replace(A_REFUND, key=f"refund:{number}", guard=False))
                ).state
                is ClaimState.FRESH
            )

    def test_sixty_four_callers_at_once_are_all_answered(self, store):
        def write(number):
            act = replace(A_REFUND, key=f"refund:{number}", guard=False)
            claimed = now(store.claim(act))
            assert now(store.settle(Settle("", act.key, claimed.fence, "done", number)))
            return claimed.state, now(store.claim(act)).value

        with ThreadPoolExecutor(64) as threads:
            assert list(threads.map(write, range(256))) == [
                (ClaimState.FRESH, number) for number in range(256)
            ]

    # that is what is tested
    @pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
    @pytest.mark.parametrize("is_used", [True, False])
    def test_a_fork_opens_its_own_connection_at_its_first_use(self, store, is_used):
        if is_used:
            assert now(store.load_result("r1", "none")) is None
            assert (
                now(store.claim(replace(A_REFUND, key="1", run_id=""))).state.name
                == "FRESH"
            )

        def use() -> list[str]:
            claim = now(store.claim(replace(A_REFUND, key="2", run_id="")))
            handle = now(store.save_result("r1", "long"))
            text = now(store.load_result("r1", handle))
            store.close()
            return [claim.state.name, text]

        assert in_fork(use) == ["FRESH", "long"]
        # the parent's connection is as it was, and sees what the fork has written
        assert (
            now(store.claim(replace(A_REFUND, key="2", run_id=""))).state.name
            != "FRESH"
        )
        assert (
            now(store.claim(replace(A_REFUND, key="3", run_id=""))).state.name
            == "FRESH"
        )

    @pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
    def test_forks_beside_threads_that_write_and_ask_use_the_store(self, store):
        is_over = Event()
        failures = []

        def go_on(use):
            try:
                for number in count():
                    if is_over.is_set():
                        return
                    use(number)
            except BaseException as error:
                failures.append(error)

        def claim(name, which):
            claim = replace(A_REFUND, key=name, run_id="")
            return now(which.claim(claim)).state.name

        threads = [
            Thread(target=go_on, args=(lambda each: claim(f"parent {each}", store),)),
            Thread(target=go_on, args=(lambda _: now(store.load_result("r", "h")),)),
        ]
        for thread in threads:
            thread.start()
        try:
            for number in range(12):

                def use(number=number):
                    inherited = claim(f"inherited {number}", store)
                    with closing(self.again()) as another:
                        return [inherited, claim(f"another {number}", another)]

                assert in_fork(use) == ["FRESH", "FRESH"]
        finally:
            is_over.set()
            for thread in threads:
                thread.join(LONG_S)
        assert not failures

    # -- time ---------------------------------------------------------------------------------------------------------

    def test_the_clocks_of_this_process_decide_nothing(self, store, monkeypatch):
        self.claimed(store, "key", lease_s=60)
        for clock in ("time", "monotonic"):
            real = getattr(time, clock)
            monkeypatch.setattr(time, clock, lambda real=real: real() + 86_400)
        assert (
            now(store.claim(replace(A_REFUND, replay="key"))).state is ClaimState.BUSY
        )

    def test_a_lease_ends_with_its_time(self, store):
        self.claimed(store, "key", lease_s=60)
        self.pass_time(59)
        assert (
            now(store.claim(replace(A_REFUND, replay="key"))).state is ClaimState.BUSY
        )
        self.pass_time(2)
        assert (
            now(store.claim(replace(A_REFUND, replay="key"))).state is ClaimState.AGAIN
        )

    def test_a_kept_text_goes_after_its_time(self, store):
        handle = now(store.save_result("r1", "old"))
        self.pass_time(29 * 86_400)
        assert now(store.load_result("r1", handle)) == "old"
        self.pass_time(2 * 86_400)
        assert now(store.load_result("r1", handle)) is None

    @pytest.mark.parametrize(("quota", "left"), [
        (ResultQuota(run_bytes=2_500, check_every_bytes=1_000), {"r1": 2, "r2": 2}),
        (ResultQuota(store_bytes=4_500, check_every_bytes=1_000), {"r1": 1, "r2": 3}),
    ])  # fmt: skip
    def test_old_kept_texts_go_where_a_run_or_the_store_has_too_many(
        self, store, quota, left
    ):
        store.quota = replace(quota)
        places = []
        for run_id in ("r1", "r1", "r1", "r2", "r2", "r2"):
            places.append((run_id, now(store.save_result(run_id, "x" * 1_000))))
            self.pass_moment(store)
        there = [
            run_id
            for run_id, handle in places
            if now(store.load_result(run_id, handle)) is not None
        ]
        assert {run_id: there.count(run_id) for run_id in left} == left

    def pass_moment(self, store):
        """Let the store's clock go on, so that what is kept next is newer."""
        began = store.use_connection(lambda base: base.now())
        while store.use_connection(lambda base: base.now()) <= began:
            pass

    def test_a_step_and_a_settlement_of_one_moment_share_a_commit(self, store):
        """Whatever was asked at once is carried as one group, and one that is fenced does not hinder the others."""
        now(store.begin_run(RunRecord("r1", {})))
        claimed = self.claimed(store)
        store.save_result("r1", "x" * 1_000_000)
        late = store.append_entry(
            JournalEntry("r1", 0, [JournalStep("1.m", "model", "late")])
        )
        mine = store.append_entry(
            JournalEntry("r1", 1, [JournalStep("1.m", "model", {"\ud800": 2**70})])
        )
        assert now(store.settle(Settle("", "refund:881", claimed.fence, "done", 20)))
        with pytest.raises(Fenced):
            now(late)
        assert now(mine) is False
        assert [step.body for step in now(store.load_run("r1")).steps] == [
            {"\ud800": 2**70}
        ]

    def test_every_table_belongs_to_tenants_or_is_known_not_to(self, store):
        tables = {each.name for each in maintenance._TABLES} | {"locks"}
        assert tables == TABLES

    # -- several processes --------------------------------------------------------------------------------------------

    @pytest.mark.proof
    @pytest.mark.parametrize(
        ("replay", "taken"), [("key", ClaimState.AGAIN), ("verify", ClaimState.CHECK)]
    )
    def test_of_many_who_ask_at_once_for_the_write_of_a_dead_process_one_goes_on_with_it(
        self, store, replay, taken
    ):
        with self.hanging(replay) as process:
            process.kill()
            process.wait(PATIENCE_S)
        asked = Event()
        with ThreadPoolExecutor() as others:
            others.submit(
                store.use_connection, lambda _: asked.wait(PATIENCE_S)
            )  # what is asked meanwhile is one group
            answers = [store.claim(replace(A_REFUND, replay=replay)) for _ in range(5)]
            asked.set()
            states = [now(each).state for each in answers]
        assert states == [taken, *[ClaimState.BUSY] * 4]

    @pytest.mark.slow
    def test_a_process_that_was_stopped_keeps_its_lease_and_one_that_nobody_has_buried_does_not(
        self, store
    ):
        with self.hanging("verify") as process:
            process.send_signal(signal.SIGSTOP)
            os.waitid(os.P_PID, process.pid, os.WSTOPPED | os.WNOWAIT)
            assert (
                now(store.claim(replace(A_REFUND, replay="verify"))).state
                is ClaimState.BUSY
            )
            assert maintenance.count_contents(store).abandoned == 0
            process.kill()
            # dead, and its number still taken: a zombie
            os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
            assert maintenance.count_contents(store).abandoned == 1
            assert (
                now(store.claim(replace(A_REFUND, replay="verify"))).state
                is ClaimState.CHECK
            )

    @pytest.mark.parametrize(
        "owner",
        ["elsewhere:{pid}:{boot}", "{host}:{pid}:another0-1-17", "{host}:{pid}", ""],
    )
    def test_the_lease_of_a_process_of_which_nothing_is_known_here_runs_on(
        self, store, owner
    ):
        """On another machine, of another boot or another machine of this name, or without a beginning."""
        self.claimed(store)
        host, _, boot = process_identity.owner().rsplit(":", 2)
        # beyond the largest number on Linux
        owner = owner.format(host=host, pid=2**22 + 1, boot=boot)
        store.use_connection(
            lambda base: base.run("UPDATE effects SET owner = ?", (owner,))
        )
        assert now(store.claim(A_REFUND)).state is ClaimState.BUSY
        gone = f"{host}:{2**22 + 1}:{boot}"
        store.use_connection(
            lambda base: base.run("UPDATE effects SET owner = ?", (gone,))
        )
        assert now(store.claim(A_REFUND)).state is ClaimState.IN_DOUBT
