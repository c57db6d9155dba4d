"""What every store must hold to for tenants who share it: nothing crosses, whatever has one name in both."""

import pytest
from msgspec.structs import replace

from handrail.effects import ClaimState, Settle
from handrail.engine.approvals import make_standing_approval
from handrail.engine.scoped_store import ScopedStore
from handrail.ports import AuditStore
from handrail.records import (
    ApprovalRequest,
    AuditEntry,
    JournalEntry,
    JournalStep,
    RunRecord,
)
from handrail.testing.contracts.claims import A_REFUND
from handrail.testing.contracts.stores import closed, now

RUN = RunRecord("r", {"messages": []})
QUESTION = ApprovalRequest(
    "a_1", "r", "c", "refund", "d", {"order": "7"}, "high", "it is large", pin="p"
)
TOUCHING = replace(A_REFUND, locks=("order:7",))


class ScopeContract:
    """The laws. `open` returns a store that holds nothing."""

    def open(self):
        raise NotImplementedError

    @pytest.fixture
    def shared(self):
        store = self.open()
        yield store
        closed(store)

    @pytest.fixture(params=[("a", "b"), ("b", "a"), ("a", "ab"), ("ü ", "ü")], ids=str)
    def tenants(self, shared, request):
        return [ScopedStore(shared, scope) for scope in request.param]

    def test_a_run_of_one_tenant_is_none_to_the_other(self, tenants):
        mine, other = tenants
        now(mine.begin_run(RUN))
        now(
            mine.append_entry(
                JournalEntry(
                    "r",
                    1,
                    [JournalStep("1.m", "model", {"text": "my card"})],
                    "waiting",
                )
            )
        )
        assert (now(other.load_run("r")), now(other.list_runs())) == (None, [])
        assert now(other.request_cancel("r")) is False
        begun = now(other.begin_run(RUN, new=True))
        assert (begun.record.run_id, begun.record.epoch, list(begun.steps)) == (
            "r",
            1,
            [],
        )
        now(
            other.append_entry(
                JournalEntry(
                    "r", 1, [JournalStep("1.m", "model", {"text": "hers"})], "done"
                )
            )
        )
        kept = now(mine.load_run("r"))
        assert (kept.record.run_id, kept.record.status, [step.body for step in kept.steps]) == (
            "r", "waiting", [{"text": "my card"}],
        )  # fmt: skip
        assert [each.status for each in now(mine.list_runs())] == ["waiting"]

    def test_a_question_of_one_tenant_is_seen_answered_and_used_by_nobody_of_the_other(
        self, tenants
    ):
        mine, other = tenants
        id = now(mine.ask(QUESTION, within_s=60.0)).id
        assert (
            now(other.list_approvals(state=""))
            == now(other.list_approvals(state="", run_id="r"))
            == []
        )
        assert now(other.decide(id, granted=True, by="eve")) is None
        hers = now(other.ask(QUESTION, within_s=60.0))
        assert (hers.state, hers.id == id) == ("open", False)
        now(mine.decide(id, granted=True, by="anna"))
        assert now(other.use(id)) is False
        assert [
            (each.run_id, each.state) for each in now(other.list_approvals(state=""))
        ] == [("r", "open")]
        now(other.begin_run(RUN))
        assert now(other.request_cancel("r"))
        assert [
            (each.run_id, each.state) for each in now(mine.list_approvals(state=""))
        ] == [("r", "approved")]
        assert now(mine.use(id))

    @pytest.mark.parametrize("extent", ["run", "rule"])
    @pytest.mark.parametrize("where", ["here", "by a command"])
    def test_a_standing_word_holds_for_the_tenant_in_which_it_was_given(
        self, shared, tenants, extent, where
    ):
        mine, other = tenants
        question = now(mine.ask(QUESTION, within_s=60.0))
        now(mine.grant(make_standing_approval(question, extent, by="anna")))
        # which sees names as they are kept, and gives the same word
        if where == "by a command":
            [as_kept] = now(shared.list_approvals())
            now(shared.grant(make_standing_approval(as_kept, extent, by="anna")))
        [grant] = now(mine.list_standing_approvals(tool="refund"))
        assert (grant.run_id, grant.by) == ("r" if extent == "run" else "", "anna")
        assert (
            now(other.list_standing_approvals()),
            now(other.revoke(grant.id, by="eve")),
        ) == ([], False)
        assert (
            now(
                other.grant(
                    make_standing_approval(
                        now(other.ask(QUESTION, within_s=60.0)), extent, by="eve"
                    )
                )
            ).by
            == "eve"
        )
        assert now(mine.revoke(grant.id, by="anna"))
        assert (
            now(mine.list_standing_approvals()),
            len(now(other.list_standing_approvals())),
        ) == ([], 1)

    def test_a_tenant_s_rows_are_found_behind_newer_ones_of_another(self, shared):
        mine, other = ScopedStore(shared, "a"), ScopedStore(shared, "b")
        now(mine.begin_run(replace(RUN, run_id="first")))
        now(mine.claim(replace(A_REFUND, scope="a")))
        for number in range(3):
            now(other.begin_run(replace(RUN, run_id=f"later-{number}")))
            now(other.claim(replace(A_REFUND, scope="b", key=str(number), guard=False)))
        assert [each.run_id for each in now(mine.list_runs(most=1))] == ["first"]
        assert [
            each.scope for each in now(mine.list_writes(run_id=A_REFUND.run_id, most=1))
        ] == ["a"]

    def test_a_kept_text_of_one_tenant_is_unknown_to_the_other(self, tenants):
        mine, other = tenants
        handle = now(mine.save_result("r", "secret"))
        assert (
            now(mine.load_result("r", handle)),
            now(other.load_result("r", handle)),
        ) == ("secret", None)

    def test_a_lock_of_one_tenant_holds_up_nobody_of_the_other(self, tenants):
        mine, other = tenants
        claims = [
            (mine, "a", "1"),
            (mine, "a", "2"),
            (other, "b", "1"),
        ]
        states = [
            now(store.claim(replace(TOUCHING, scope=scope, key=key, guard=False))).state
            for store, scope, key in claims
        ]
        assert states[::2] == [ClaimState.FRESH, ClaimState.FRESH]
        assert states[1] is (ClaimState.LOCKED if self.has_locks else ClaimState.FRESH)

    has_locks = True

    def test_a_write_of_one_tenant_is_listed_found_and_resolved_by_nobody_of_the_other(
        self, shared
    ):
        mine, other = ScopedStore(shared, "a"), ScopedStore(shared, "b")
        claim = replace(A_REFUND, scope="a", repeat_window_s=600.0)
        fence = now(mine.claim(claim)).fence
        now(mine.settle(Settle("a", "refund:881", fence, "in_doubt")))
        if not hasattr(mine, "writes"):
            return
        assert (now(other.list_writes()), now(other.list_writes(run_id="r1"))) == (
            [],
            [],
        )
        assert now(other.load_write("a", "refund:881")) is None
        assert now(other.resolve("a", "refund:881", state="failed", by="eve")) is None
        assert now(other.release("a", "refund:881", fence=fence, by="eve")) is False
        assert [each.state for each in now(mine.list_writes(run_id="r1"))] == [
            "in_doubt"
        ]
        assert (
            now(mine.resolve("a", "refund:881", state="done", by="anna", value=1)).state
            == "done"
        )
        assert now(other.claim(replace(claim, scope="b"))).state is ClaimState.FRESH

    def test_an_audit_record_is_told_to_its_tenant_only_and_says_whose_it_is(
        self, shared, tenants
    ):
        mine, other = tenants
        if not isinstance(mine, AuditStore):
            return
        now(mine.append_audit([AuditEntry("r", "RunStarted", {"model": "m"})]))
        assert (now(other.log()), now(other.log(run_id="r"))) == ([], [])
        assert [each.run_id for each in now(mine.log(run_id="r"))] == ["r"]
        assert [each.run_id.endswith("/r") for each in now(shared.log())] == [True]

    def test_who_opens_the_store_itself_sees_the_runs_of_all_tenants_with_their_scope(
        self, shared
    ):
        for scope in ("a", "b"):
            now(ScopedStore(shared, scope).begin_run(RUN))
            now(ScopedStore(shared, scope).ask(QUESTION, within_s=60.0))
        now(shared.begin_run(RUN))
        assert [each.run_id for each in now(shared.list_runs())] == [
            "r",
            "@b/r",
            "@a/r",
        ]
        assert [each.run_id for each in now(shared.list_approvals())] == [
            "@a/r",
            "@b/r",
        ]

    def test_every_method_of_the_store_that_names_a_run_is_translated(self, shared):
        passed_by = {
            name
            for name in dir(shared)
            if not name.startswith("_") and callable(getattr(shared, name))
        }
        passed_by -= set(dir(ScopedStore(shared, "a")))
        # what administrators need of the whole store
        administrative = {
            "use_connection",
            "open_connection",
            "reopen",
            "replace_audit_key",
            "browse_runs",
            "complete_log",
            "step_times",
            "open_writer",
            "take_segment",
            "finish_segment",
            "note_segment",
            "sweep_submitted",
            "wake_run",
            "list_submitted",
            "list_cancelled",
            # of tools and not of runs; the bucket of a rate names its tenant
            "take_starts",
            "try_tool",
            "note_reached",
            "note_unreached",
            "list_breakers",
        }
        assert passed_by <= administrative
