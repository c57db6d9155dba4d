"""People's words on calls: an approver in this process beside a question that anybody may answer elsewhere."""

from __future__ import annotations

import threading
import time
from functools import partial

import pytest
from msgspec.structs import replace

import handrail as hr
from handrail import admin
from handrail.engine.approvals import make_standing_approval
from handrail.errors import Code, ConfigError, StoreUnavailable
from handrail.events import ApprovalGiven
from handrail.messages import ToolMessage
from handrail.stores.memory import MemoryStore
from handrail.stores.memory_runs import FullMemoryStore
from handrail.stores.sqlite import SqliteStore
from handrail.testing import ScriptedModel, call
from tests.support.drivers import BOUND_S, KINDS, Driver, until


class Office(FullMemoryStore):
    """A store in memory that keeps questions."""


class TwoRooms(FullMemoryStore):
    """A store whose claims know nothing of the questions that it keeps."""

    claims_use_approvals = False


class Desk:
    """An approver that thinks until the test lets it speak, or until its question is taken back."""

    def __init__(self, says=True):
        self.says, self.asked, self.taken_back = says, threading.Event(), []
        self.speak = threading.Event()

    def __call__(self, asked):
        self.asked.set()
        assert self.speak.wait(BOUND_S)
        return self.says

    def withdraw(self, asked, question):
        self.taken_back.append((asked.call.name, question.state, question.by))
        self.speak.set()


REFUND = [call("refund", order="7"), "Done."]


class Shop:
    def __init__(self, kind, approver, store=None, **how):
        self.store, self.refunds, self.down = store or Office(), [], set()
        tool = hr.FunctionTool(self.refund, effect="write", approve=True)
        self.driver = Driver(
            kind, [tool], {"store": self.store, "approver": approver, **how}
        )

    def refund(self, order: str) -> str:
        """Refund an order."""
        if order in self.down:
            raise hr.NoEffect("BANK_DOWN", "The bank is down.")
        self.refunds.append(order)
        return "refunded"

    def begin(self):
        return self.driver.start(
            "run", "Refund 7.", model=ScriptedModel(REFUND), run_id="r_1"
        )

    def resume(self):
        resumed = self.driver.start("resume", "r_1", model=ScriptedModel(REFUND))
        return resumed.result(BOUND_S)

    def question(self, state="open"):
        return until(lambda: self.store.list_approvals(state=state))[0]


@pytest.fixture(params=KINDS)
def shop(request):
    opened = []

    def make(approver, store=None, **how):
        opened.append(Shop(request.param, approver, store, **how))
        return opened[-1]

    yield make
    for each in opened:
        each.driver.close()


def codes_of(run):
    results = [
        message.result for message in run.messages if isinstance(message, ToolMessage)
    ]
    return [result.failure and result.failure.code for result in results]


def test_what_an_approver_says_is_kept_as_if_it_had_been_said_elsewhere(shop):
    made = shop(lambda _: hr.Approval(True, by="maria"))
    assert made.begin().result(BOUND_S).text == "Done."
    assert made.refunds == ["7"]
    kept = made.question("used")
    assert (kept.tool, kept.by) == ("refund", "maria")


def test_a_word_from_elsewhere_counts_while_an_approver_still_thinks_and_its_question_is_taken_back(
    shop,
):
    desk = Desk()
    made = shop(desk)
    run = made.begin()
    assert desk.asked.wait(BOUND_S)
    made.store.decide(made.question().id, granted=True, by="otto")
    assert run.result(BOUND_S).text == "Done."
    assert made.refunds == ["7"]
    assert desk.taken_back == [("refund", "approved", "otto")]


def test_a_denial_from_elsewhere_counts_too(shop):
    made = shop(desk := Desk())
    run = made.begin()
    assert desk.asked.wait(BOUND_S)
    made.store.decide(made.question().id, granted=False, by="otto", reason="not today")
    ended = run.result(BOUND_S)
    assert (codes_of(ended), made.refunds) == ([Code.NOT_APPROVED], [])
    assert "not today" in ended.transcript(debug=True)


def test_an_async_approver_whose_question_was_answered_elsewhere_is_cancelled(shop):
    import asyncio

    asked, cancelled = threading.Event(), threading.Event()

    async def approver(_):
        asked.set()
        try:
            await asyncio.get_running_loop().create_future()
        except asyncio.CancelledError:
            cancelled.set()
            raise

    made = shop(approver)
    run = made.begin()
    assert asked.wait(BOUND_S)
    made.store.decide(made.question().id, granted=True, by="otto")
    assert run.result(BOUND_S).ok
    assert cancelled.wait(BOUND_S)


def test_of_two_words_the_first_one_counts(shop):
    store = Office()

    def slow_to_speak(_):
        (question,) = store.list_approvals()
        store.decide(question.id, granted=False, by="otto", reason="I was first")
        return hr.Approval(True, by="maria")

    made = shop(slow_to_speak, store)
    ended = made.begin().result(BOUND_S)
    assert (codes_of(ended), made.refunds) == ([Code.NOT_APPROVED], [])
    assert made.question("denied").by == "otto"


def test_an_approver_that_has_nobody_to_ask_leaves_the_question_for_somebody_else(shop):
    made = shop(lambda _: None)
    assert made.begin().result(BOUND_S).status == "waiting"
    assert made.question().tool == "refund"


def test_an_approver_that_fails_has_not_agreed_and_leaves_the_question_for_a_person(
    shop,
):
    def broken(_):
        raise OSError("no line")

    made = shop(broken)
    ended = made.begin().result(BOUND_S)
    assert (ended.status, made.refunds) == ("waiting", [])
    assert made.question().tool == "refund"


def test_a_run_that_is_cancelled_takes_its_question_back_and_closes_it(shop):
    made = shop(desk := Desk())
    run = made.begin()
    assert desk.asked.wait(BOUND_S)
    made.driver.runtime.cancel("r_1")
    assert run.result(BOUND_S).status == "cancelled"
    assert [name for name, _, _ in until(lambda: desk.taken_back)] == ["refund"]
    assert (made.question("cancelled").decision_reason, made.refunds) == (
        "the run was cancelled",
        [],
    )


def test_a_run_that_was_cancelled_elsewhere_stops_waiting_for_its_approver(shop):
    made = shop(desk := Desk())
    run = made.begin()
    assert desk.asked.wait(BOUND_S)
    assert made.store.request_cancel("r_1")
    assert run.result(BOUND_S).status == "cancelled"
    assert (desk.taken_back, made.refunds) == ([("refund", "cancelled", "")], [])


@pytest.mark.parametrize("decided", [False, True])
def test_a_cancelled_run_that_is_resumed_asks_anew(shop, decided):
    made = shop(None)
    assert made.begin().result(BOUND_S).status == "waiting"
    closed = made.question()
    if decided:
        made.store.decide(closed.id, granted=True, by="otto")
    assert made.driver.runtime.cancel("r_1")
    with pytest.raises(ConfigError, match="'r_1' was cancelled"):
        admin.approve(made.store, closed.id, by="otto")
    again = made.resume()
    assert (again.status, made.refunds) == ("waiting", [])
    made.store.decide(made.question().id, granted=True, by="otto")
    assert made.resume().ok
    assert made.refunds == ["7"]


class Cancelling(FullMemoryStore):
    """A store in which somebody else cancels `r_1` just before, or just after, its n-th answer."""

    def __init__(self):
        super().__init__()
        self.count, self.at, self.after, self.heeded = 0, None, False, False

    def cancel_at(self, at, after):
        self.count, self.at, self.after = 0, at, after

    def _step(self, answer):
        self.count += 1
        mine = self.count
        if mine == self.at and not self.after:
            self.heeded = self.request_cancel("r_1")
        answered = answer()
        if mine == self.at and self.after:
            self.heeded = self.request_cancel("r_1")
        return answered

    def load_run(self, run_id):
        return self._step(partial(super().load_run, run_id))

    def begin_run(self, record, **how):
        return self._step(partial(super().begin_run, record, **how))

    def append_entry(self, entry):
        return self._step(partial(super().append_entry, entry))

    def ask(self, question, *, within_s):
        return self._step(partial(super().ask, question, within_s=within_s))


LOAD, BEGIN, ASK, LAST = 1, 2, 3, 4
"""The answers of the store that resuming a run takes which waits, and waits again."""


@pytest.mark.parametrize(
    ("at", "after", "status"),
    [
        (LOAD, True, "cancelled"),
        (BEGIN, False, "cancelled"),
        (BEGIN, True, "cancelled"),
        (ASK, False, "cancelled"),
        (ASK, True, "cancelled"),
        (LAST, False, "cancelled"),
        (LAST, True, "waiting"),  # it was cancelled once it waited
    ],
)
def test_a_run_that_is_cancelled_at_any_moment_of_its_resuming_ends_cancelled(
    shop, at, after, status
):
    store = Cancelling()
    made = shop(None, store)
    assert made.begin().result(BOUND_S).status == "waiting"
    store.cancel_at(at, after)
    resuming = made.driver.start("resume", "r_1", model=ScriptedModel(REFUND))
    ended = resuming.result(BOUND_S)
    assert store.heeded
    assert (ended.status, made.refunds) == (status, [])
    stored = store.load_run("r_1").record
    assert (stored.status, stored.result["status"]) == ("cancelled", status)
    assert store.list_approvals() == []


def test_a_call_of_no_run_asks_the_approver_and_keeps_no_question(shop):
    made = shop(lambda _: True)
    assert made.driver.call("refund", {"order": "7"}).ok
    assert made.store.list_approvals(state="") == []


def test_a_question_that_was_answered_before_is_not_asked_again(shop):
    first = shop(lambda _: None)
    assert first.begin().result(BOUND_S).status == "waiting"
    first.store.decide(first.question().id, granted=True, by="otto")
    second = shop(desk := Desk(), first.store)
    assert second.resume().ok
    assert (second.refunds, desk.asked.is_set()) == (["7"], False)


# -- several people ----------------------------------------------------------------------------------------------------


def names(*by):
    """An approver by whom these people answer, one after the other; then nobody is there."""
    left = [hr.Approval(True, by=each) for each in by]
    return lambda _: left.pop(0) if left else None


def of_two(shop, approver, **how):
    made = shop(approver, **how)
    made.driver.runtime.tools.redeclare("refund", write=hr.Write(required_approvals=2))
    return made


def test_where_two_must_agree_both_may_do_so_here(shop):
    made = of_two(shop, names("anna", "ben"))
    assert made.begin().result(BOUND_S).ok
    assert (made.refunds, made.question("used").by) == (["7"], "anna and ben")


def test_who_is_asked_second_sees_who_has_agreed(shop):
    asked = []

    def approver(question):
        asked.append((question.required_approvals, tuple(question.agreed)))
        return hr.Approval(True, by=f"person {len(asked)}")

    assert of_two(shop, approver).begin().result(BOUND_S).ok
    assert asked == [(2, ()), (2, ("person 1",))]


def test_who_is_asked_after_a_restart_sees_who_has_agreed_before_it(shop):
    made = of_two(shop, names("anna"))
    assert made.begin().result(BOUND_S).status == "waiting"
    asked = []
    again = of_two(
        shop, lambda question: asked.append(tuple(question.agreed)), store=made.store
    )
    assert again.resume().status == "waiting"
    assert asked == [("anna",)]


def test_a_word_from_elsewhere_counts_as_the_second_one(shop):
    made = of_two(shop, desk := Desk(hr.Approval(True, by="anna")))
    run = made.begin()
    assert desk.asked.wait(BOUND_S)
    made.store.decide(made.question().id, granted=True, by="ben")
    desk.speak.set()
    assert run.result(BOUND_S).ok
    assert made.question("used").by == "ben and anna"


def test_a_standing_word_does_not_stand_for_two(shop):
    made = of_two(shop, None)
    assert made.begin().result(BOUND_S).status == "waiting"
    question = made.question()
    made.store.grant(make_standing_approval(question, "rule", by="anna"))
    left = [
        hr.Approval(True, by="anna", scope="run"),
        hr.Approval(True, by="ben", scope="run"),
    ]
    again = of_two(shop, lambda _: left.pop(0), store=made.store)
    assert again.resume().ok
    assert len(made.store.list_standing_approvals()) == 1
    assert left == []


@pytest.mark.parametrize(
    ("by", "code"), [(("anna", "ben"), None), (("anna", "anna"), Code.NOT_APPROVED)]
)
def test_where_nothing_is_kept_two_are_asked_all_the_same(shop, by, code):
    made = of_two(shop, names(*by), store=MemoryStore())
    result = made.driver.call("refund", {"order": "7"})
    assert ((result.failure and result.failure.code), bool(made.refunds)) == (
        code,
        code is None,
    )


# -- a policy that has become stricter since ---------------------------------------------------------------------------


ASKS_TWO = hr.Policy(rules=[hr.Rule("refund", "ask", required_approvals=2)])
DENIES = hr.Policy(rules=[hr.Rule("refund", "deny", reason="no refunds this week")])


@pytest.mark.parametrize(("policy", "status", "code"), [
    (ASKS_TWO, "waiting", Code.APPROVAL_PENDING),
    (DENIES, "done", Code.NOT_PERMITTED),
    (hr.Policy(max_permission="read"), "done", Code.NOT_PERMITTED),
])  # fmt: skip
@pytest.mark.parametrize("how", ["a run", "handed over"])
def test_a_kept_approval_does_not_let_a_call_run_that_the_policy_has_become_stricter_about(
    shop, how, policy, status, code
):
    made = shop(None)
    if how == "a run":
        assert made.begin().result(BOUND_S).status == "waiting"
    else:
        assert hand_over(made).failure.code == Code.APPROVAL_PENDING
    made.store.decide(made.question().id, granted=True, by="anna")
    again = shop(None, made.store, policy=policy)
    if how == "a run":
        ended = again.resume()
        assert (ended.status, codes_of(ended)) == (status, [code])
    else:
        assert hand_over(again).failure.code == code
    assert again.refunds == []


@pytest.mark.parametrize("state", ["approved", "open"])
def test_a_tool_that_has_come_to_want_two_people_is_asked_about_anew_also_when_it_is_handed_over_again(
    shop, state
):
    made = shop(None)
    hand_over(made)
    if state == "approved":
        made.store.decide(made.question().id, granted=True, by="anna")
    again = of_two(shop, None, store=made.store)
    assert hand_over(again).failure.code == Code.APPROVAL_PENDING
    (question,) = made.store.list_approvals()
    made.store.decide(question.id, granted=True, by="ben")
    assert hand_over(again).failure.code == Code.APPROVAL_PENDING
    made.store.decide(question.id, granted=True, by="cleo")
    assert hand_over(again).ok


def test_who_agreed_before_is_asked_anew_with_a_second_person(shop):
    made = shop(None)
    assert made.begin().result(BOUND_S).status == "waiting"
    made.store.decide(made.question().id, granted=True, by="anna")
    again = shop(names("anna", "ben"), made.store, policy=ASKS_TWO)
    assert again.resume().ok
    assert (again.refunds, made.question("used").by) == (["7"], "anna and ben")


def test_an_approval_that_was_used_before_the_policy_became_stricter_starts_nothing(
    shop,
):
    """As when the process died between using it and claiming the write, where no claim uses approvals."""
    made = shop(None)
    assert made.begin().result(BOUND_S).status == "waiting"
    id = made.question().id
    made.store.decide(id, granted=True, by="anna")
    assert made.store.use(id)
    made.store._runs["r_1"] = replace(made.store._runs["r_1"], status="running")
    again = shop(None, made.store, policy=ASKS_TWO)
    ended = again.resume()
    assert (codes_of(ended), again.refunds) == ([Code.APPROVAL_PENDING], [])


def test_one_person_s_edit_does_not_reach_what_two_must_agree_to(shop):
    policy = hr.Policy(
        rules=[hr.Rule("refund", "ask", when="order == '9'", required_approvals=2)]
    )
    made = shop(lambda _: hr.Approval(True, "anna", "", {"order": "9"}), policy=policy)
    ended = made.begin().result(BOUND_S)
    assert (codes_of(ended), made.refunds) == ([Code.NOT_APPROVED], [])
    assert "2 people" in ended.transcript(debug=True)


# -- calls of a named run, which are handed over again to learn their answer -------------------------------------------


class Counter:
    """An approver that counts what it is asked, and says what it is told to."""

    def __init__(self, *says):
        self.says, self.asked = list(says), 0

    def __call__(self, _):
        self.asked += 1
        return self.says.pop(0)


def hand_over(made, order="7"):
    return made.driver.call("refund", {"order": order}, run="desk")


def test_a_no_is_told_once_and_then_the_same_call_is_asked_about_anew(shop):
    made = shop(None)
    hand_over(made)
    made.store.decide(made.question().id, granted=False, by="otto")
    assert hand_over(made).failure.code == Code.NOT_APPROVED
    assert hand_over(made).failure.code == Code.APPROVAL_PENDING
    assert len(made.store.list_approvals()) == 1


def test_who_is_here_is_asked_each_time(shop):
    made = shop(approver := Counter(False, False, True))
    codes = [
        (result := hand_over(made)).failure and result.failure.code for _ in range(3)
    ]
    assert codes == [Code.NOT_APPROVED, Code.NOT_APPROVED, None]
    assert (approver.asked, made.refunds) == (3, ["7"])


def test_each_of_two_equal_calls_needs_a_word_of_its_own(shop):
    made = shop(None)
    made.driver.runtime.tools.redeclare("refund", write=hr.Write(repeatable=True))
    refund = {"name": "refund", "arguments": '{"order": "7"}'}
    two = {
        "role": "assistant",
        "tool_calls": [
            {"id": id, "type": "function", "function": refund} for id in ("a", "b")
        ],
    }
    made.driver.handle(two, run="desk")
    made.store.decide(made.question().id, granted=True, by="otto")
    answers = [message["content"] for message in made.driver.handle(two, run="desk")]
    assert sorted("refunded" in answer for answer in answers) == [False, True]
    assert made.refunds == ["7"]


def test_a_used_word_is_good_for_the_call_that_has_happened_and_not_for_another_one_that_has_not(
    shop, tmp_path
):
    with SqliteStore(tmp_path / "office.db") as store:
        made = shop(None, store)

        def with_a_word(order):
            hand_over(made, order)
            admin.approve(
                store, store.list_approvals().result(BOUND_S)[0].id, by="otto"
            )
            return hand_over(made, order)

        made.down.add("7")
        assert with_a_word("7").failure.code == "BANK_DOWN"
        assert with_a_word("8").ok
        made.down.clear()
        assert hand_over(made, "8").replayed
        assert hand_over(made, "7").failure.code == Code.APPROVAL_PENDING
        assert made.refunds == ["8"]


@pytest.mark.parametrize("kind_of_store", [Office, TwoRooms])
def test_of_two_calls_at_once_one_uses_the_approval_and_the_other_one_is_asked_about(
    shop, kind_of_store
):
    made = shop(None, kind_of_store())
    made.driver.runtime.tools.redeclare("refund", write=hr.Write(repeatable=True))
    # three calls each, within the run's 50
    orders = [str(number) for number in range(15)]
    for order in orders:
        hand_over(made, order)
        made.store.decide(made.question().id, granted=True, by="otto")
        two = [
            made.driver.start("call", "refund", {"order": order}, run="desk")
            for _ in range(2)
        ]
        codes = [
            (result := each.result(BOUND_S)).failure and result.failure.code
            for each in two
        ]
        assert sorted(codes, key=str) == [Code.APPROVAL_PENDING, None]
        made.store.decide(made.question().id, granted=False, by="otto")
    assert made.refunds == orders


def test_a_call_that_waited_for_an_equal_one_does_not_run_under_that_one_s_approval(
    shop,
):
    made, begun, go_on = shop(None), threading.Event(), threading.Event()

    def refund(order: str) -> str:
        """Refund an order."""
        made.refunds.append(order)
        begun.set()
        assert go_on.wait(BOUND_S)
        raise hr.NoEffect("BANK_DOWN", "The bank is down.")

    made.driver.runtime.tools.remove("refund")
    made.driver.runtime.tools.add(hr.FunctionTool(refund, effect="write", approve=True))
    hand_over(made)
    made.store.decide(made.question().id, granted=True, by="otto")
    first = made.driver.start("call", "refund", {"order": "7"}, run="desk")
    assert begun.wait(BOUND_S)
    second = made.driver.start("call", "refund", {"order": "7"}, run="desk")
    go_on.set()
    codes = {first.result(BOUND_S).failure.code, second.result(BOUND_S).failure.code}
    assert (codes, made.refunds) == ({"BANK_DOWN", Code.APPROVAL_PENDING}, ["7"])


def test_an_approval_that_no_write_has_used_ends_with_its_time(shop):
    clock = [time.time()]
    store = FullMemoryStore(clock=lambda: clock[0])
    made = shop(None, store, policy=hr.Policy(approval_s=60.0))
    assert made.begin().result(BOUND_S).status == "waiting"
    made.store.decide(made.question().id, granted=True, by="otto")
    clock[0] += 61.0
    ended = made.resume()
    assert (codes_of(ended), made.refunds) == ([Code.APPROVAL_EXPIRED], [])


# -- what the ledger answers needs no approval -------------------------------------------------------------------------


def test_nobody_is_asked_about_a_write_that_the_ledger_answers(shop):
    made = shop(approver := Counter(True))
    tools = made.driver.runtime.tools
    tools.redeclare("refund", key="refund:{order}")
    assert hand_over(made).ok
    tools.redeclare(
        "refund", write=hr.Write(version="2")
    )  # the same key now names another act
    assert hand_over(made).failure.code == Code.IDEMPOTENCY_KEY_REUSED
    tools.redeclare("refund", write=hr.Write(version=""))
    assert hand_over(made).replayed
    assert (approver.asked, made.refunds) == (1, ["7"])


@pytest.mark.parametrize("store", [MemoryStore, FullMemoryStore])
def test_nobody_is_asked_about_a_write_that_is_in_doubt(shop, store):
    made = shop(approver := Counter(True), store())
    made.down.add("7")
    tools = made.driver.runtime.tools
    tools.remove("refund")

    def refund(order: str) -> str:
        """Refund an order."""
        made.refunds.append(order)
        raise ValueError("whatever")

    tools.add(
        hr.FunctionTool(refund, effect="write", approve=True, key="refund:{order}")
    )
    codes = [hand_over(made).failure.code for _ in range(2)]
    assert (codes, approver.asked, made.refunds) == ([Code.IN_DOUBT] * 2, 1, ["7"])


def test_a_write_in_doubt_that_a_person_may_have_done_again_is_asked_about_once(shop):
    made = shop(approver := Counter(True, True))
    tools = made.driver.runtime.tools
    tools.remove("refund")

    def refund(order: str) -> str:
        """Refund an order."""
        made.refunds.append(order)
        if len(made.refunds) == 1:
            raise ValueError("whatever")
        return "refunded"

    tools.add(
        hr.FunctionTool(
            refund,
            effect="write",
            approve=True,
            key="refund:{order}",
            write=hr.Write(on_doubt="ask"),
        )
    )
    assert hand_over(made).ok
    assert (approver.asked, made.refunds) == (2, ["7", "7"])


# -- when something fails ----------------------------------------------------------------------------------------------


class Silent(TwoRooms):
    """A store that does not answer what is asked of these methods."""

    def __init__(self, *silent):
        super().__init__()
        self.silent = set(silent)

    def _asked(self, name):
        if name in self.silent:
            raise StoreUnavailable(name)

    def ask(self, question, *, within_s):
        self._asked("ask")
        return super().ask(question, within_s=within_s)

    def decide(self, id, **word):
        self._asked("decide")
        return super().decide(id, **word)

    def use(self, id):
        self._asked("use")
        return super().use(id)

    def list_standing_approvals(self, *, tool=""):
        self._asked("grants")
        return super().list_standing_approvals(tool=tool)


@pytest.mark.parametrize("answer", [
    hr.Approval("yes"),
    hr.Approval(True, arguments={"order": object()}),
    hr.Approval(True, arguments=["7"]),
])  # fmt: skip
def test_an_answer_that_cannot_be_meant_is_no_agreement(shop, answer):
    made = shop(lambda _: answer)
    assert (codes_of(made.begin().result(BOUND_S)), made.refunds) == (
        [Code.NOT_APPROVED],
        [],
    )


def test_a_word_for_an_unknown_number_of_calls_is_for_one(shop):
    made = shop(lambda _: hr.Approval(True, by=None, scope="for ever"))
    assert made.begin().result(BOUND_S).ok
    assert made.store.list_standing_approvals() == []
    assert made.question("used").by == ""


@pytest.mark.parametrize("name", ["ask", "decide", "use", "grants"])
def test_a_store_that_does_not_answer_lets_nothing_run_and_the_call_has_its_result(
    shop, name
):
    made = shop(lambda _: True, Silent(name))
    ended = made.begin().result(BOUND_S)
    assert (codes_of(ended), made.refunds) == ([Code.UNAVAILABLE], [])


def test_an_approver_that_cannot_take_its_question_back_costs_nobody_s_word(shop):
    class Stubborn(Desk):
        def withdraw(self, asked, question):
            self.speak.set()
            raise OSError("the line is dead")

    made = shop(desk := Stubborn())
    run = made.begin()
    assert desk.asked.wait(BOUND_S)
    made.store.decide(made.question().id, granted=True, by="otto")
    assert run.result(BOUND_S).text == "Done."


# -- standing approvals -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("scope", "again"), [("once", 2), ("run", 2), ("rule", 1)])
def test_a_word_holds_for_as_many_calls_as_it_is_meant_for(shop, scope, again):
    made = shop(approver := Counter(hr.Approval(True, "maria", scope=scope), True))
    made.begin().result(BOUND_S)
    other = [call("refund", order="8"), "Done."]
    made.driver.start(
        "run", "Refund 8.", model=ScriptedModel(other), run_id="r_2"
    ).result(BOUND_S)
    assert (approver.asked, made.refunds) == (again, ["7", "8"])


def test_a_word_for_this_run_holds_for_its_other_calls(shop):
    made = shop(approver := Counter(hr.Approval(True, "maria", scope="run")))
    script = [call("refund", order="7"), call("refund", order="8"), "Done."]
    made.driver.start(
        "run", "Refund both.", model=ScriptedModel(script), run_id="r_1"
    ).result(BOUND_S)
    assert (approver.asked, made.refunds) == (1, ["7", "8"])
    (told,) = [
        event.approval.by
        for event in made.driver.told(ApprovalGiven)
        if "g_" in event.approval.by
    ]
    assert told.startswith("maria (g_")


def test_a_standing_word_is_recorded_as_if_it_had_been_said_elsewhere(shop, tmp_path):
    with SqliteStore(tmp_path / "office.db") as store:
        shop(lambda _: hr.Approval(True, "maria", scope="rule"), store).begin().result(
            BOUND_S
        )
        (grant,) = store.list_standing_approvals().result(BOUND_S)
        (told,) = [
            each for each in store.log().result(BOUND_S) if each.event == "Granted"
        ]
    assert (told.run_id, told.body["by"], told.body["grant"], told.body["tool"]) == (
        "r_1",
        "maria",
        grant.id,
        "refund",
    )


@pytest.mark.parametrize(("declared", "other"), [
    ("description", "Refund an order, and whatever else it likes."),
    ("effect", "destructive"),
])  # fmt: skip
def test_a_standing_word_does_not_hold_for_a_tool_that_describes_or_declares_itself_otherwise(
    shop, declared, other
):
    made = shop(approver := Counter(hr.Approval(True, "maria", scope="rule"), False))
    made.begin().result(BOUND_S)
    made.driver.runtime.tools.redeclare("refund", **{declared: other})
    hand_over(made, "8")
    assert (approver.asked, made.refunds) == (2, ["7"])
