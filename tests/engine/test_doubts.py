"""Why a write is in doubt, as people read it wherever a doubt is shown."""

import asyncio

import pytest

import handrail as hr
from handrail.futures import result_now
from handrail.stores.memory import MemoryStore
from handrail.stores.sqlite import SqliteStore
from handrail.surroundings.clock import unix_time
from tests.support.drivers import BOUND_S, KINDS


@pytest.fixture(params=["memory", "sqlite"])
def store(request, tmp_path):
    if request.param == "memory":
        yield MemoryStore()
        return
    with SqliteStore(tmp_path / "h.db") as opened:
        yield opened


def pay_in(store, kind, raises, **declared):
    """Call a write whose attempts raise these, in order; return the ledger's row of it."""
    left = list(raises)

    @hr.tool(effect="write", key="pay:{n}", timeout_s=5, **declared)
    async def pay(n: int) -> str:
        """Pay."""
        raise left.pop(0)

    how = {"store": store, "backoff": hr.Backoff(first_s=0.0)}
    if kind == "sync":
        with hr.SyncRuntime([pay], **how) as runtime:
            runtime.call("pay", {"n": 1}, run="desk")
    else:

        async def main():
            async with hr.Runtime([pay], **how) as runtime:
                paying = runtime.call("pay", {"n": 1}, run="desk")
                await asyncio.wait_for(paying, BOUND_S)

        asyncio.run(main())
    (write,) = result_now(store.list_writes(run_id="desk"))
    return write


@pytest.mark.parametrize("kind", KINDS)
def test_the_ledger_says_after_which_attempt_and_exception_a_write_is_in_doubt(
    store, kind
):
    write = pay_in(store, kind, [ConnectionResetError("token=secret")])
    assert (write.state, write.value) == ("in_doubt", None)
    assert write.why(unix_time()) == "attempt 1: ConnectionResetError"


@pytest.mark.parametrize("kind", KINDS)
def test_the_attempt_that_may_have_taken_effect_is_named_and_not_a_later_one(
    store, kind
):
    lost_then_refused = [ConnectionResetError(), hr.NoEffect("refused")]
    write = pay_in(store, kind, lost_then_refused, replay="key")
    assert write.why(unix_time()) == "attempt 1: ConnectionResetError"


@pytest.mark.parametrize("kind", KINDS)
def test_a_write_that_has_ended_is_not_explained(store, kind):
    write = pay_in(store, kind, [hr.NoEffect("refused")])
    assert (write.state, write.why(unix_time())) == ("failed", "")


@pytest.mark.parametrize("run", ["desk", None])
def test_who_is_asked_whether_to_repeat_a_write_in_doubt_reads_why_it_is(store, run):
    @hr.tool(effect="write", key="pay:{n}", write=hr.Write(on_doubt="ask"))
    def pay(n: int) -> str:
        """Pay."""
        raise ConnectionResetError("token=secret")

    with hr.SyncRuntime([pay], store=store) as runtime:
        runtime.call("pay", {"n": 1}, run=run)
        # asks a question of its own, and knows what the ledger says
        runtime.call("pay", {"n": 1}, run="later")
    questions = result_now(store.list_approvals(state="open"))
    assert {each.run_id for each in questions} == {run or "key:pay:1", "later"}
    for question in questions:
        assert question.reason.endswith(". Why: attempt 1: ConnectionResetError")


def test_what_is_known_of_a_doubt_by_now_makes_no_second_question(store):
    @hr.tool(
        effect="write",
        key="pay:{n}",
        write=hr.Write(on_doubt="ask"),
        verify=lambda arguments, context: hr.Unknown(),
    )
    def pay(n: int) -> str:
        """Pay."""
        raise ConnectionResetError

    for _ in range(2):
        with hr.SyncRuntime([pay], store=store) as runtime:
            runtime.call("pay", {"n": 1}, run="desk")
        assert len(result_now(store.list_approvals(state="open"))) == 1
