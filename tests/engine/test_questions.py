"""Questions to people around a call: in its result, in the queue, previewed, and decided by words that come with it."""

from __future__ import annotations

import asyncio
import threading

import pytest

import handrail as hr
from handrail.errors import StoreUnavailable
from handrail.stores.memory import MemoryStore
from handrail.stores.memory_runs import FullMemoryStore
from handrail.testing import ScriptedModel
from tests.support.drivers import BOUND_S

CALL = hr.ToolCall("c1", "refund", '{"order": "7", "amount": 3}')


class Bank:
    """A shop that refunds when a person agrees, under a runtime of either kind."""

    def __init__(self, kind, store, **settings):
        self.refunds: list[tuple[str, float]] = []
        self.reads = 0
        self.text = "Refund an order."
        self.kind = kind
        self.runtime = kind(self.tools(), store=store, **settings)

    def tools(self):
        def refund(order: str, amount: float) -> str:
            self.refunds.append((order, amount))
            return "refunded"

        def look(order: str) -> str:
            """Look at an order."""
            self.reads += 1
            return order * 100_000

        return [
            hr.FunctionTool(
                refund, description=self.text, effect="write", approve="amount > 1"
            ),
            hr.FunctionTool(look, effect="read"),
        ]

    def do(self, verb, *args, **options):
        """Return what a method of the runtime returns, on either kind."""
        value = verb(*args, **options)
        if asyncio.iscoroutine(value):
            return asyncio.run(asyncio.wait_for(value, BOUND_S))
        return value

    def hand_over(self, call=CALL, *, words=None, run="t", **options):
        [result] = self.do(self.runtime.calls, [call], run=run, words=words, **options)
        return result


@pytest.fixture(params=["memory", "sqlite"])
def store(request, tmp_path):
    return "memory:" if request.param == "memory" else f"sqlite:///{tmp_path}/h.db"


@pytest.fixture(params=[hr.Runtime, hr.SyncRuntime])
def bank(request, store):
    made = Bank(request.param, store)
    yield made
    made.do(made.runtime.close)


# -- the question in the result, and in the queue ----------------------------------------------------------------------


def test_a_pending_result_holds_its_question(bank):
    result = bank.hand_over()
    question = result.question
    assert result.failure.code == hr.Code.APPROVAL_PENDING
    assert (question.tool, question.call_id, question.run_id) == ("refund", "c1", "t")
    assert question.arguments == {"order": "7", "amount": 3}
    assert question.state == "open"
    assert bank.do(bank.runtime.approvals.list) == [question]
    assert bank.do(bank.runtime.approvals.get, question.id) == question


def test_a_call_of_no_run_and_of_no_key_stores_no_question(bank):
    result = bank.do(bank.runtime.call, "refund", {"order": "7", "amount": 3})
    assert result.failure.code == hr.Code.NOT_APPROVED
    assert result.question is None
    assert bank.do(bank.runtime.approvals.list, "") == []


def test_an_answer_in_the_queue_lets_the_next_equal_call_run_once(bank):
    queue = bank.runtime.approvals
    question = bank.hand_over().question
    approved = bank.do(queue.approve, question.id, by="anna")
    assert (approved.state, approved.by) == ("approved", "anna")
    assert bank.hand_over().ok
    assert bank.refunds == [("7", 3.0)]
    assert [each.state for each in bank.do(queue.list, "")] == ["used"]


def test_an_edited_call_that_is_handed_over_again_has_its_result(bank):
    question = bank.hand_over().question
    other = {"order": "7", "amount": 2}
    bank.do(bank.runtime.approvals.edit, question.id, other, by="anna")
    first = bank.hand_over()
    again = bank.hand_over()
    assert (first.value, again.value, again.replayed) == ("refunded", "refunded", True)
    assert bank.refunds == [("7", 2.0)]
    changed = hr.ToolCall("c1", "refund", '{"order": "8", "amount": 3}')
    assert bank.hand_over(changed).failure.code == hr.Code.IDEMPOTENCY_KEY_REUSED
    assert bank.refunds == [("7", 2.0)]


def test_an_edit_in_the_queue_is_what_runs(bank):
    question = bank.hand_over().question
    edit = bank.runtime.approvals.edit
    with pytest.raises(hr.ConfigError, match="does not take these arguments"):
        bank.do(edit, question.id, {"order": 7}, by="anna")
    bank.do(edit, question.id, {"order": "7", "amount": 2}, by="anna")
    assert bank.hand_over().ok
    assert bank.refunds == [("7", 2.0)]


def test_a_denial_in_the_queue_is_told_with_its_reason(bank):
    question = bank.hand_over().question
    bank.do(bank.runtime.approvals.deny, question.id, by="anna", reason="too much")
    result = bank.hand_over()
    assert result.failure.code == hr.Code.NOT_APPROVED
    assert "too much" in result.text
    assert bank.refunds == []


@pytest.mark.parametrize("is_approved", [False, True])
def test_a_withdrawn_question_is_asked_anew(bank, is_approved):
    queue = bank.runtime.approvals
    question = bank.hand_over().question
    if is_approved:
        bank.do(queue.approve, question.id, by="anna")
    closed = bank.do(queue.withdraw, question.id, by="ben")
    assert (closed.state, closed.by) == ("cancelled", "ben")
    for word in (queue.approve, queue.withdraw):
        with pytest.raises(
            hr.ConfigError, match=r"withdrawn by ben|cannot be withdrawn"
        ):
            bank.do(word, question.id, by="otto")
    again = bank.hand_over().question
    assert again.id != question.id
    assert again.state == "open"
    assert bank.refunds == []


def test_what_was_used_cannot_be_withdrawn(bank):
    queue = bank.runtime.approvals
    question = bank.hand_over().question
    bank.do(queue.approve, question.id, by="anna")
    assert bank.hand_over().ok
    with pytest.raises(hr.ConfigError, match="cannot be withdrawn: it is used by anna"):
        bank.do(queue.withdraw, question.id, by="ben")


def test_a_tenant_sees_its_own_questions(bank):
    mine = bank.hand_over(scope="acme").question
    assert bank.do(bank.runtime.approvals.list, "") == []
    queue = bank.runtime.approvals.for_scope("acme")
    assert bank.do(queue.list) == [mine]
    with pytest.raises(hr.ConfigError, match="there is no question"):
        bank.do(bank.runtime.approvals.approve, mine.id, by="mallory")
    bank.do(queue.approve, mine.id, by="anna")
    assert bank.hand_over(scope="acme").ok


# -- words that come with the calls ------------------------------------------------------------------------------------


def test_a_word_without_a_question_before_it_decides_nothing(bank):
    result = bank.hand_over(words={"c1": True})
    assert result.question.state == "open"
    assert bank.refunds == []


@pytest.mark.parametrize("scope", ["", "acme"])
def test_a_message_that_comes_twice_agrees_to_nothing_that_nobody_has_seen(bank, scope):
    options = {"scope": scope, "run": "fresh"}
    shown = bank.hand_over(**options).question
    other = hr.ToolCall("c1", "refund", '{"order": "7", "amount": 999}')
    for _ in range(3):
        result = bank.hand_over(other, words={"c1": True}, **options)
        assert result.question.state == "open"
        assert result.question.id != shown.id
    assert bank.refunds == []
    word = hr.Approval(True, by="anna", question=result.question.id)
    assert bank.hand_over(other, words={"c1": word}, **options).ok
    assert bank.refunds == [("7", 999.0)]


def test_a_word_on_another_call_decides_what_was_asked_in_vain_before(bank):
    bank.hand_over(words={"c1": True})
    again = hr.ToolCall("c2", "refund", CALL.arguments)
    assert preview(bank).decision == "ask"
    assert bank.hand_over(again, words={"c2": True}).ok


def test_an_edit_that_does_not_fit_leaves_the_question_open(bank):
    bank.hand_over()
    edit = hr.Approval(True, "anna", arguments={"order": 7, "sum": 2})
    assert bank.hand_over(words={"c1": edit}).question.state == "open"
    assert bank.hand_over(words={"c1": hr.Approval(True, by="anna")}).ok
    assert bank.refunds == [("7", 3.0)]


def test_a_call_that_waits_is_not_counted_however_often_it_is_handed_over(bank):
    budget = hr.Budget(calls=2, per_tool={"refund": 1})
    for _ in range(5):
        question = bank.hand_over(budget=budget, turn="1").question
    bank.do(bank.runtime.approvals.approve, question.id, by="anna")
    assert bank.hand_over(budget=budget, turn="1").ok
    other = hr.ToolCall("c2", "refund", '{"order": "8", "amount": 1}')
    result = bank.hand_over(other, budget=budget, turn="1")
    assert result.failure.code == hr.Code.BUDGET_EXHAUSTED


def test_a_word_decides_the_question_that_stood_before(bank):
    bank.hand_over()
    assert bank.hand_over(words={"c1": hr.Approval(True, by="anna")}).ok
    [question] = bank.do(bank.runtime.approvals.list, "")
    assert (question.state, question.by) == ("used", "anna")
    assert bank.refunds == [("7", 3.0)]


def test_a_denial_that_comes_with_the_call_closes_the_question(bank):
    bank.hand_over()
    result = bank.hand_over(words={"c1": hr.Approval(False, "anna", "not now")})
    assert result.failure.code == hr.Code.NOT_APPROVED
    assert "not now" in result.text
    assert bank.do(bank.runtime.approvals.list) == []


def test_an_edit_that_comes_with_the_call_is_checked_and_runs(bank):
    bank.hand_over()
    edit = hr.Approval(True, "anna", arguments={"order": "7", "amount": 2})
    assert bank.hand_over(words={"c1": edit}).ok
    assert bank.refunds == [("7", 2.0)]


def test_a_word_on_another_question_decides_nothing(bank):
    bank.hand_over()
    word = hr.Approval(True, by="anna", question="a_0123456789abcdef")
    assert bank.hand_over(words={"c1": word}).question.state == "open"
    assert bank.refunds == []


@pytest.mark.parametrize("other", [
    hr.ToolCall("c1", "refund", '{"order": "7", "amount": 9}'),
    hr.ToolCall("c1", "refund", '{"order": "8", "amount": 3}'),
])  # fmt: skip
def test_a_word_on_other_arguments_decides_nothing(bank, other):
    bank.hand_over()
    assert bank.hand_over(other, words={"c1": True}).question.state == "open"
    assert bank.refunds == []


def test_a_word_on_a_tool_that_has_changed_since_decides_nothing(bank):
    shown = bank.hand_over().question
    bank.text = "Refund an order and close the account."
    bank.runtime.tools.remove("refund")
    bank.runtime.tools.add(bank.tools()[0])
    result = bank.hand_over(words={"c1": True})
    assert result.question.id != shown.id
    assert result.question.state == "open"
    assert bank.refunds == []


def test_a_word_for_two_equal_calls_of_a_turn_lets_one_run(bank):
    bank.hand_over()
    pair = [CALL, hr.ToolCall("c2", "refund", CALL.arguments)]
    first, second = bank.do(
        bank.runtime.calls, pair, run="t", words={"c1": True, "c2": True}
    )
    assert first.ok
    assert bank.refunds == [("7", 3.0)]
    # the same write again is answered by the first one's result, or asked about
    assert second.ok or second.failure.code == hr.Code.APPROVAL_PENDING


def test_words_of_two_people_are_counted_apart(store):
    policy = hr.Policy(rules=[hr.Rule("refund", "ask", required_approvals=2)])
    bank = Bank(hr.SyncRuntime, store, policy=policy)
    bank.hand_over(principal="otto")
    for by in ("anna", "anna ", "otto"):
        word = hr.Approval(True, by=by)
        assert bank.hand_over(words={"c1": word}, principal="otto").question
    assert bank.refunds == []
    word = hr.Approval(True, by="ben")
    assert bank.hand_over(words={"c1": word}, principal="otto").ok
    bank.runtime.close()


@pytest.mark.parametrize("word", ["yes", 1, None, {"granted": True}])
def test_what_is_no_word_is_refused_and_nothing_runs(bank, word):
    bank.hand_over()
    with pytest.raises(hr.ConfigError, match="the word on the call 'c1' is"):
        bank.hand_over(words={"c1": word})
    assert bank.refunds == []


# -- previews ----------------------------------------------------------------------------------------------------------


def preview(bank, name="refund", arguments=CALL.arguments, **options):
    return bank.do(
        bank.runtime.preview, name, arguments, run="t", call_id="c1", **options
    )


def test_a_preview_allows_what_would_run_and_runs_nothing(bank):
    for _ in range(5):
        seen = preview(bank, "look", {"order": "7"}, budget=hr.Budget(calls=1))
        assert seen.decision == "allow"
        assert seen.failure is None
    assert bank.reads == 0
    assert bank.do(bank.runtime.call, "look", {"order": "7"}, run="t").ok


@pytest.mark.parametrize(("name", "arguments", "code"), [
    ("refunds", "{}", "UNKNOWN_TOOL"),
    ("refund", "{", "TRUNCATED_CALL"),
    ("refund", '{"order": 7, "amount": "x"}', "INVALID_ARGUMENTS"),
])  # fmt: skip
def test_a_preview_denies_with_what_the_model_would_be_told(
    bank, name, arguments, code
):
    seen = preview(bank, name, arguments)
    assert (seen.decision, seen.question) == ("deny", None)
    real = bank.hand_over(hr.ToolCall("c1", name, arguments))
    assert (seen.failure, seen.failure.code) == (real.failure, code)


def test_a_preview_denies_what_the_budget_forbids(bank):
    bank.do(bank.runtime.call, "look", {"order": "7"}, run="t")
    seen = preview(bank, "look", {"order": "8"}, budget=hr.Budget(calls=1))
    assert seen.failure.code == hr.Code.BUDGET_EXHAUSTED


def test_a_preview_denies_the_call_that_would_close_a_circle(bank):
    decisions = []
    for number in range(3):
        asked = hr.ToolCall(f"c{number}", "look", '{"order": "7"}')
        seen = bank.do(
            bank.runtime.preview, "look", asked.arguments, run="t", call_id=asked.id
        )
        decisions.append(seen.decision)
        real = bank.do(bank.runtime.calls, [asked], run="t")[0]
    assert decisions == ["allow", "allow", "deny"]
    assert seen.failure == real.failure
    assert seen.failure.code == hr.Code.REPEATED_CALL


def test_a_preview_stores_the_question_that_a_word_answers_later(bank):
    seen = preview(bank)
    assert seen.decision == "ask"
    assert bank.do(bank.runtime.approvals.list) == [seen.question]
    assert preview(bank).question == seen.question
    assert bank.hand_over(words={"c1": hr.Approval(True, by="anna")}).ok
    assert bank.refunds == [("7", 3.0)]
    # the ledger answers it now, and nobody is asked
    assert preview(bank).decision == "allow"
    assert bank.refunds == [("7", 3.0)]


def test_a_preview_uses_no_approval_and_asks_nobody_here(store):
    asked = []
    bank = Bank(hr.SyncRuntime, store, approver=lambda each: asked.append(each))
    question = preview(bank).question
    assert asked == []
    bank.runtime.approvals.approve(question.id, by="anna")
    for _ in range(3):
        assert preview(bank).decision == "allow"
    assert bank.hand_over().ok
    assert asked == []
    bank.runtime.close()


def test_a_preview_of_a_denied_call_denies_it_as_often_as_it_is_asked(bank):
    question = preview(bank).question
    bank.do(bank.runtime.approvals.deny, question.id, by="anna", reason="no")
    for _ in range(3):
        assert preview(bank).failure.code == hr.Code.NOT_APPROVED
    assert bank.hand_over().failure.code == hr.Code.NOT_APPROVED


def test_observers_hear_nothing_of_a_preview(bank):
    heard = []
    preview(bank, observers=[heard.append])
    assert heard == []


# -- what is offered, and one engine under both runtimes ---------------------------------------------------------------


def test_read_result_is_offered_once_there_is_something_to_read(bank):
    def names(run=None):
        return [tool.name for tool in bank.runtime.offered(run)]

    assert names() == ["refund", "look", "read_result"]
    bank.do(bank.runtime.call, "refund", {"order": "7", "amount": 1}, run="t")
    assert names("t") == ["refund", "look"]
    bank.do(bank.runtime.call, "look", {"order": "7"}, run="t")
    assert names("t") == ["refund", "look", "read_result"]


def test_what_the_policy_hides_is_not_offered(bank):
    offered = bank.runtime.offered(policy=hr.Policy(max_permission="read"))
    assert [tool.name for tool in offered] == ["look", "read_result"]


def test_the_blocking_runtime_shares_locks_budgets_and_memory():
    count = 0

    @hr.tool(effect="write", resource="counter", write=hr.Write(repeatable=True))
    def add(name: str) -> int:
        """Add one."""
        nonlocal count
        before = count
        threading.Event().wait(0.002)
        count = before + 1
        return count

    runtime = hr.Runtime([add], budget=hr.Budget(calls=64))

    def hand_over(name):
        [result] = runtime.blocking.calls(
            [hr.ToolCall(name, "add", f'{{"name": "{name}"}}')], run="t"
        )
        return result

    async def main():
        async with runtime:
            here = [
                runtime.calls(
                    [hr.ToolCall(f"a{n}", "add", f'{{"name": "a{n}"}}')], run="t"
                )
                for n in range(32)
            ]
            there = [asyncio.to_thread(hand_over, f"b{n}") for n in range(32)]
            done = await asyncio.gather(*here, *there)
            refused = await runtime.call("add", {"name": "z"}, run="t")
            return done, refused

    done, refused = asyncio.run(asyncio.wait_for(main(), BOUND_S))
    assert len(done) == 64
    assert count == 64
    assert refused.failure.code == hr.Code.BUDGET_EXHAUSTED


def test_the_blocking_runtime_is_closed_with_its_runtime():
    async def main():
        async with hr.Runtime([]) as runtime:
            assert runtime.blocking is runtime.blocking
            blocking = runtime.blocking
        with pytest.raises(hr.SetupError, match="closed"):
            blocking.call("look")

    asyncio.run(main())


# -- when something fails, and whose queue it is -----------------------------------------------------------------------


class Silent(MemoryStore):
    """A store that does not answer what is asked about questions."""

    def list_approvals(self, **wanted):
        raise StoreUnavailable("it is silent")


@pytest.mark.parametrize("kind", [hr.Runtime, hr.SyncRuntime])
def test_a_silent_store_decides_nothing_in_a_preview(kind):
    bank = Bank(kind, Silent())
    seen = preview(bank)
    assert seen.decision == "deny"
    assert seen.failure.code == hr.Code.UNAVAILABLE
    assert bank.hand_over().failure.code == hr.Code.UNAVAILABLE
    assert bank.refunds == []
    bank.do(bank.runtime.close)


def test_a_queue_for_no_scope_in_particular_is_the_runtimes_own(store):
    bank = Bank(hr.SyncRuntime, store, scope="acme")
    question = bank.hand_over().question
    assert bank.runtime.approvals.for_scope(None).list() == [question]
    assert bank.runtime.approvals.for_scope("").list() == []
    bank.runtime.close()


# -- many questions ----------------------------------------------------------------------------------------------------


class Counting(FullMemoryStore):
    """A store that counts the questions that it gives out."""

    given = 0

    def list_approvals(self, **wanted):
        found = super().list_approvals(**wanted)
        self.given += len(found)
        return found


def test_what_is_read_for_a_question_does_not_grow_with_those_of_its_run():
    @hr.tool(effect="write", approve=True)
    def act(n: int) -> None:
        """Act."""

    def count(questions):
        store = Counting()
        asked = [hr.ToolCall(f"c{n}", "act", f'{{"n": {n}}}') for n in range(questions)]
        model = ScriptedModel([asked, "Done."])
        with hr.SyncRuntime([act], store=store) as runtime:
            runtime.run("Act.", model=model, run_id="r")
            for each in runtime.approvals.list():
                runtime.approvals.approve(each.id, by="ana")
            assert runtime.resume("r", model=model).ok
        return store.given / questions

    assert count(40) <= count(10)
