"""What is left to a person once the ledger has spoken: a write done twice, and one of which nobody knows the end."""

from __future__ import annotations

import pytest

import handrail as hr
from handrail import admin
from handrail.effects import Approval
from handrail.errors import Code, ToolDefinitionError
from handrail.messages import ToolMessage
from handrail.stores.sqlite import SqliteStore
from handrail.testing import ScriptedModel, call
from tests.support.drivers import BOUND_S, KINDS, Driver, until

TWICE = [call("close", account="7"), call("close", account="7"), "Closed."]


class Bank:
    """Accounts on a store in a file, and whoever is asked."""

    def __init__(self, kind, folder, approver=None, **declared):
        self.store = SqliteStore(folder / "bank.db")
        self.closed, self.keys, self.breaks = [], [], 0
        tool = hr.FunctionTool(
            self.close,
            **{"effect": "write", "sends": hr.Sends(trust="trusted"), **declared},
        )
        how = {"policy": hr.Policy(ask_from=None), "backoff": hr.Backoff(0, 0)}
        self.driver = Driver(
            kind, [tool], {**how, "store": self.store, "approver": approver}
        )

    def close(self, account: str, context: hr.Context[None]) -> str:
        """Close an account. It may break after it has taken effect."""
        self.closed.append(account)
        self.keys.append(context.idempotency_key)
        if self.breaks:
            self.breaks -= 1
            raise ConnectionResetError
        return f"closed {len(self.closed)}"

    def run(self, verb="run", *about, script=TWICE, run_id="r_1"):
        about = about or (("Close 7.",) if verb == "run" else (run_id,))
        how = {"run_id": run_id} if verb == "run" else {}
        return self.driver.start(
            verb, *about, model=ScriptedModel(script), **how
        ).result(BOUND_S)

    def question(self):
        (found,) = self.store.list_approvals().result(BOUND_S)
        return found

    def end(self):
        self.driver.close()
        self.store.close()


@pytest.fixture(params=KINDS)
def bank(request, tmp_path):
    opened = []

    def make(**declared):
        opened.append(Bank(request.param, tmp_path, **declared))
        return opened[-1]

    yield make
    for each in opened:
        each.end()


def told(run):
    return [
        message.result for message in run.messages if isinstance(message, ToolMessage)
    ]


# -- done twice --------------------------------------------------------------------------------------------------------


def test_a_write_repeated_in_a_run_gives_its_first_result_again(bank):
    made = bank()
    assert [result.value for result in told(made.run())] == ["closed 1", "closed 1"]
    assert made.closed == ["7"]


@pytest.mark.parametrize(
    "declared", [{"write": hr.Write(on_repeat="ask")}, {"effect": "destructive"}]
)
def test_a_person_is_asked_before_a_repeat_that_may_be_meant_and_a_yes_does_it_again(
    bank, declared
):
    made = bank(**declared)
    assert made.run().status == "waiting"
    assert "already done" in made.question().reason
    admin.approve(made.store, made.question().id, by="maria")
    ended = made.run("resume")
    assert [result.value for result in told(ended)] == ["closed 1", "closed 2"]
    assert len(set(made.keys)) == 2


def test_a_no_gives_the_first_result_again(bank):
    made = bank(write=hr.Write(on_repeat="ask"))
    made.run()
    admin.deny(made.store, made.question().id, by="maria")
    assert [result.value for result in told(made.run("resume"))] == [
        "closed 1",
        "closed 1",
    ]
    assert made.closed == ["7"]


def test_a_destructive_write_may_say_that_its_repeats_need_no_word(bank):
    made = bank(effect="destructive", write=hr.Write(on_repeat="return_previous"))
    assert made.run().ok
    assert made.closed == ["7"]


def test_a_repeat_is_seen_across_runs_within_its_window(bank):
    made = bank(write=hr.Write(repeat_window_s=300.0))
    made.run()
    other = made.run(run_id="r_2", script=[call("close", account="7"), "Closed."])
    assert [(result.value, result.replayed) for result in told(other)] == [
        ("closed 1", True)
    ]
    assert made.closed == ["7"]


# -- in doubt ----------------------------------------------------------------------------------------------------------

ONCE = [call("close", account="7"), "Closed."]


def doubtful(made):
    """A run whose write broke off, so that nobody knows whether it happened."""
    made.breaks = 1
    run = made.run(script=ONCE)
    assert run.status == "waiting"
    assert "nobody knows whether it happened" in made.question().reason
    return run


def test_a_write_in_doubt_is_told_to_the_model_unless_its_tool_says_otherwise(bank):
    made = bank()
    made.breaks = 1
    assert [result.failure.code for result in told(made.run(script=ONCE))] == [
        Code.IN_DOUBT
    ]


def test_a_write_in_doubt_that_a_person_runs_again_is_a_new_write(bank):
    made = bank(write=hr.Write(on_doubt="ask"))
    doubtful(made)
    admin.approve(made.store, made.question().id, by="maria")
    ended = made.run("resume", script=ONCE)
    assert [result.value for result in told(ended)] == ["closed 2"]
    assert len(set(made.keys)) == 2
    states = {
        write.key: write.state for write in made.store.list_writes().result(BOUND_S)
    }
    assert states == {made.keys[0]: "in_doubt", made.keys[1]: "done"}


def test_a_new_write_that_is_in_doubt_too_asks_anew(bank):
    made = bank(write=hr.Write(on_doubt="ask"))
    doubtful(made)
    first = made.question()
    admin.approve(made.store, first.id, by="maria")
    made.breaks = 1
    assert made.run("resume", script=ONCE).status == "waiting"
    assert made.question().id != first.id
    admin.approve(made.store, made.question().id, by="maria")
    assert made.run("resume", script=ONCE).ok
    assert len(set(made.keys)) == 3


def test_a_no_leaves_a_write_in_doubt(bank):
    made = bank(write=hr.Write(on_doubt="ask"))
    doubtful(made)
    admin.deny(made.store, made.question().id, by="maria")
    ended = made.run("resume", script=ONCE)
    assert [result.failure.code for result in told(ended)] == [Code.IN_DOUBT]
    assert made.closed == ["7"]


def test_who_is_here_may_have_it_done_again_at_once(bank):
    made = bank(write=hr.Write(on_doubt="ask"), approver=lambda _: True)
    made.breaks = 1
    assert [result.value for result in told(made.run(script=ONCE))] == ["closed 2"]


def test_a_doubt_that_a_person_answers_with_another_act_does_that_act_once(bank):
    made = bank(write=hr.Write(on_doubt="ask"), key="close:{account}")
    made.run(script=[call("close", account="8"), "Closed."], run_id="r_0")
    doubtful(made)
    admin.approve(made.store, made.question().id, by="maria", edited={"account": "8"})
    assert [result.value for result in told(made.run("resume", script=ONCE))] == [
        "closed 1"
    ]
    assert made.closed == ["8", "7"]


@pytest.mark.parametrize("edited", [None, {"account": "9"}])
def test_nothing_is_held_while_somebody_is_asked_and_everything_is_let_go_at_the_end(
    bank, edited
):
    seen = []

    def approve(_):
        until(lambda: "8" in made.closed)  # in line behind the call that is asked about
        seen.extend(made.closed)
        return Approval(True, arguments=edited)

    made = bank(
        write=hr.Write(on_doubt="ask"),
        approver=approve,
        resource="account:{account}",
        limits=hr.Limits(max_concurrency=1),
    )
    made.breaks = 1
    script = [
        [call("close", account="7"), call("close", account="8")],
        call("close", account="10"),
        "Closed.",
    ]
    assert made.run(script=script).status == "done"
    assert (seen, made.closed) == (
        ["7", "8"],
        ["7", "8", edited["account"] if edited else "7", "10"],
    )


def test_a_key_that_the_far_side_may_have_forgotten_is_not_sent_again(bank):
    made = bank(replay="key", key="close:{account}", limits=hr.Limits(max_attempts=1))
    made.breaks = 1
    made.driver.call("close", {"account": "7"})
    made.store.use_connection(
        lambda base: base.run("UPDATE effects SET begun = begun - 25 * 3600")
    )
    assert made.driver.call("close", {"account": "7"}).failure.code == Code.IN_DOUBT
    assert made.closed == ["7"]


@pytest.mark.parametrize("declared", [
    {"on_repeat": "guess"}, {"on_doubt": "forget"}, {"key_ttl_s": 0}, {"repeat_window_s": -1}
])  # fmt: skip
def test_what_cannot_be_meant_is_refused_when_it_is_declared(declared):
    with pytest.raises(ToolDefinitionError, match=next(iter(declared))):
        hr.FunctionTool(
            lambda: 1, name="pay", effect="write", write=hr.Write(**declared)
        )
