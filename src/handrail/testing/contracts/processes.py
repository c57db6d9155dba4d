"""What a store that outlives its process must hold to: a store's test class inherits `ProcessContract`.

Whatever promises survival is tested by dying: the other process is killed with SIGKILL, never asked to end. It finds
the store by the kind that begins its place, an entry point of the group `handrail.stores`.
"""

import json
import os
import signal
import subprocess
import sys
from contextlib import contextmanager

import pytest
from msgspec.structs import replace

from handrail.effects import ClaimState, Settle
from handrail.surroundings.clock import monotonic, sleep
from handrail.testing.contracts import other_process
from handrail.testing.contracts.approvals import A_QUESTION, ApprovedClaimContract
from handrail.testing.contracts.claims import A_REFUND, LONG_S, OVER_S
from handrail.testing.contracts.stores import StoreContract, now

PATIENCE_S = 60


class ProcessContract(StoreContract, ApprovedClaimContract):
    """The laws. `open` returns a store that holds nothing."""

    acts_at_once = 5

    def place(self) -> str:
        """Return what `Runtime(store=...)` takes, for the store that was opened last."""
        raise NotImplementedError

    def pass_time(self, seconds: float) -> None:
        """Let every lease and every kept text of the store be so much older."""
        raise NotImplementedError

    @contextmanager
    def other(self, deed, *words):
        """Another process with the store open, ready to do its deed when `began` is called."""
        process = subprocess.Popen(
            [sys.executable, "-m", other_process.__name__, self.place(), deed, *words],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        )  # fmt: skip
        try:
            assert process.stdout.readline() == "ready\n"
            yield process
        finally:
            process.kill()
            process.communicate(timeout=PATIENCE_S)

    @pytest.mark.slow
    @pytest.mark.parametrize(("deed", "acts", "refusal"), [
        ("race", 10, "busy"), ("race_of_runs", 10, "busy"), ("race_of_keys", 150, "busy"),
        ("race_of_begins", 150, "busy"), ("race_for_approvals", 150, "unapproved"),
    ])  # fmt: skip
    def test_exactly_one_thread_of_all_processes_is_fresh(
        self, store, deed, acts, refusal
    ):
        threads, processes = 8, 3
        if deed == "race_for_approvals":
            for number in range(acts):
                self.agreed(store, replace(A_QUESTION, id=f"q_{number}"))
        with (
            self.other(deed, str(acts), str(threads)) as one,
            self.other(deed, str(acts), str(threads)) as two,
            self.other(deed, str(acts), str(threads)) as three,
        ):
            answers = []
            for process in (one, two, three):
                process.stdin.write("go\n")
                process.stdin.flush()
            for process in (one, two, three):
                answers.append(json.loads(process.stdout.readline()))
        for rows in zip(*answers, strict=True):
            states = sorted(state for row in rows for state in row)
            assert states == sorted([refusal] * (threads * processes - 1) + ["fresh"])

    @pytest.mark.proof
    @pytest.mark.parametrize(("replay", "lease_s", "answer"), [
        ("none", LONG_S, ClaimState.IN_DOUBT),   # its lease is over with its process
        ("key", LONG_S, ClaimState.AGAIN),
        ("verify", LONG_S, ClaimState.CHECK),
        ("none", OVER_S, ClaimState.IN_DOUBT),
        ("key", OVER_S, ClaimState.AGAIN),
        ("verify", OVER_S, ClaimState.CHECK),
    ])  # fmt: skip
    def test_a_claim_of_a_process_that_was_killed_is_never_fresh(
        self, store, replay, lease_s, answer
    ):
        with self.other("claim_and_hang", replay, str(lease_s)) as process:
            process.stdin.write("go\n")
            process.stdin.flush()
            assert json.loads(process.stdout.readline()) == "fresh"
            process.kill()
            process.wait(PATIENCE_S)
        assert now(store.claim(replace(A_REFUND, replay=replay))).state is answer

    @pytest.mark.proof
    def test_whoever_goes_on_with_a_dead_process_s_write_learns_for_how_long_its_request_may_be_under_way(
        self, store
    ):
        with self.hanging("verify") as process:
            process.kill()
            process.wait(PATIENCE_S)
        claimed = now(store.claim(replace(A_REFUND, replay="verify")))
        assert claimed.state is ClaimState.CHECK
        assert LONG_S - PATIENCE_S < claimed.left_s <= LONG_S

    @pytest.mark.slow
    def test_processes_that_die_while_they_wait_to_go_on_with_it_make_nobody_wait_longer(
        self, store
    ):
        for answer in ("fresh", "check", "check"):
            with self.other("claim_and_hang", "verify", str(LONG_S)) as process:
                process.stdin.write("go\n")
                process.stdin.flush()
                assert json.loads(process.stdout.readline()) == answer
                process.kill()
                process.wait(PATIENCE_S)
        claimed = now(store.claim(replace(A_REFUND, replay="verify")))
        assert claimed.state is ClaimState.CHECK
        assert LONG_S - PATIENCE_S < claimed.left_s <= LONG_S

    @contextmanager
    def hanging(self, replay, *locks):
        """Another process that has claimed for long, and settles nothing."""
        with self.other("claim_and_hang", replay, str(LONG_S), *locks) as process:
            process.stdin.write("go\n")
            process.stdin.flush()
            assert json.loads(process.stdout.readline()) == "fresh"
            yield process

    @pytest.mark.proof
    def test_a_write_whose_process_has_died_is_listed_as_in_doubt(self, store):
        with self.hanging("none") as process:
            assert [
                now(store.list_writes(state="in_doubt")),
                len(now(store.list_writes(state="claimed"))),
            ] == [[], 1]
            process.kill()
            process.wait(PATIENCE_S)
        assert [
            len(now(store.list_writes(state="in_doubt"))),
            now(store.list_writes(state="claimed")),
        ] == [1, []]

    @pytest.mark.proof
    def test_a_person_need_not_wait_for_a_dead_process_to_say_how_its_write_ended(
        self, store
    ):
        with self.hanging("none") as process:
            assert (
                now(store.resolve("", "refund:881", state="failed", by="maria")).state
                == "claimed"
            )
            process.kill()
            process.wait(PATIENCE_S)
        assert (
            now(store.resolve("", "refund:881", state="failed", by="maria")).state
            == "failed"
        )

    @pytest.mark.proof
    def test_the_same_act_under_another_key_does_not_wait_for_a_dead_process(
        self, store
    ):
        with self.hanging("none") as process:
            assert (
                now(store.claim(replace(A_REFUND, key="another"))).state
                is ClaimState.BUSY
            )
            process.kill()
            process.wait(PATIENCE_S)
        repeated = now(store.claim(replace(A_REFUND, key="another")))
        assert (repeated.state, repeated.repeated) == (ClaimState.IN_DOUBT, True)

    @pytest.mark.slow
    def test_an_owner_that_was_frozen_and_replaced_settles_nothing(self, store):
        with self.other("freeze_and_settle") as process:
            process.stdin.write("go\n")
            process.stdin.flush()
            os.waitid(os.P_PID, process.pid, os.WSTOPPED | os.WNOWAIT)
            taken = now(store.claim(replace(A_REFUND, replay="key")))
            assert taken.state is ClaimState.AGAIN
            process.send_signal(signal.SIGCONT)
            assert json.loads(process.stdout.readline()) is False
        assert now(store.settle(Settle("", "refund:881", taken.fence, "done", "mine")))
        assert now(store.claim(A_REFUND)).value == "mine"

    @pytest.mark.proof
    def test_whatever_took_effect_before_a_kill_is_never_fresh_again(
        self, store, tmp_path
    ):
        """Two processes write as fast as they can and are killed in the middle; the world is then compared."""
        world = tmp_path / "world"
        with (
            self.other("write_for_ever", str(world), "a") as one,
            self.other("write_for_ever", str(world), "b") as two,
        ):
            for process in (one, two):
                process.stdin.write("go\n")
                process.stdin.flush()
            until = monotonic() + PATIENCE_S
            while monotonic() < until and not (
                world.exists() and world.read_bytes().count(b"\n") > 500
            ):
                sleep(0.01)
            for process in (one, two):
                process.kill()
                process.wait(PATIENCE_S)
        effects = world.read_text().split("\n")[:-1]
        assert len(effects) > 500
        keys = [line.split()[0] for line in effects]
        assert {line.split()[1] for line in effects} == {"fresh"}
        assert len(set(keys)) == len(keys)
        self.pass_time(2 * LONG_S)
        asked = [store.claim(replace(A_REFUND, key=key, guard=False)) for key in keys]
        states = [now(claimed).state for claimed in asked]
        # in doubt: the window was hit
        assert set(states) == {ClaimState.DONE, ClaimState.IN_DOUBT}
