"""The calls of one turn, carried on together, answered by hand in every order."""

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from handrail.calls import ToolCall
from handrail.core.admission import admit
from handrail.core.batch import Batch
from handrail.core.budgets import Budget, Spent
from handrail.core.policy import Policy, Rule
from handrail.core.run_settings import Deadline, RunSettings
from handrail.effects import (
    Admit,
    Approval,
    AskHuman,
    CallCancelled,
    Claim,
    Claimed,
    ClaimState,
    End,
    Invoke,
    NotFound,
    Raised,
    Reserve,
    Returned,
    Unfinished,
    Wait,
)
from handrail.errors import Code, NoEffect, StoreUnavailable, ToolDefinitionError
from handrail.events import CallAdmitted, CallFinished
from handrail.testing import ManualClock
from handrail.tools.function_tool import FunctionTool
from handrail.tools.settings import Limits, Sends
from handrail.tools.toolset import Toolset
from tests.support.effect_script import SOON


def find(name: str) -> dict:
    """Find a user."""
    return {"id": 7, "name": name}


def update(user: int, text: str = "") -> str:
    """Change a user."""
    return "changed"


def send(to: str) -> str:
    """Send something."""
    return "sent"


def tell(text: str) -> str:
    """Say something."""
    return text


TOOLS = Toolset([
    FunctionTool(find, effect="read"),
    FunctionTool(update, effect="write", resource="user:{user}"),
    FunctionTool(send, effect="write", approve=True),
    FunctionTool(tell, effect="read", limits=Limits(after="update")),
])  # fmt: skip


def call(number: int, name: str, arguments="{}") -> ToolCall:
    return ToolCall(
        f"call_{number}",
        name,
        arguments if isinstance(arguments, str) else json.dumps(arguments),
    )


def batch_of(
    *calls,
    tools=TOOLS,
    finish="calls",
    policy=None,
    budget=Budget(),
    spent=None,
    tell=None,
    now=None,
) -> Batch:
    conduct = RunSettings(
        policy or Policy(),
        now or ManualClock(),
        lambda: 1.0,
        run_id="r1",
        deadline=Deadline(300.0),
        tell=tell,
    )
    return Batch(
        calls, finish, tools, conduct, budget=budget, spent=spent or Spent(), turn=3
    )


def started(batch: Batch) -> list[str]:
    """The calls whose tool is to be started now."""
    return [lane.call.id for lane, effect in batch.todo if isinstance(effect, Invoke)]


def carry(batch: Batch, **answers) -> list:
    """Answer everything in the order of asking; by call id where one is given."""
    while batch.todo:
        lane, effect = batch.todo.popleft()
        if isinstance(effect, Admit):
            batch.answer(lane, admit(effect.call, Policy(), effect.default_key))
            continue
        usual = SOON[type(effect).__name__]
        batch.answer(
            lane,
            answers.get(lane.call.id, usual) if isinstance(effect, Invoke) else usual,
        )
    return batch.collect_results()


# ---------------------------------------------------------------------- one call, one result


def test_results_stand_in_the_order_of_the_calls_whoever_ends_first():
    batch = batch_of(call(1, "find", {"name": "a"}), call(2, "find", {"name": "b"}))
    first, second = (batch.todo.popleft()[0] for _ in range(2))
    batch.answer(second, Returned("b"))
    assert not batch.is_done
    batch.answer(first, Returned("a"))
    assert [(result.call_id, result.value) for result in batch.collect_results()] == [
        ("call_1", "a"),
        ("call_2", "b"),
    ]


def test_a_call_that_cannot_be_read_does_not_keep_its_neighbours_from_running():
    results = carry(
        batch_of(
            call(1, "find", "{"), call(2, "find", {"name": "b"}), call(3, "nothing")
        )
    )
    assert [result.failure and result.failure.code for result in results] == [
        Code.TRUNCATED_CALL, None, Code.UNKNOWN_TOOL,
    ]  # fmt: skip


def test_a_turn_without_calls_is_done():
    assert batch_of().collect_results() == []


@pytest.mark.parametrize("finish", ["length", "error", "refused"])
def test_no_call_of_an_answer_that_did_not_end_cleanly_runs(finish):
    batch = batch_of(
        call(1, "find", {"name": "a"}), call(2, "update", {"user": 1}), finish=finish
    )
    assert batch.is_done
    assert {result.failure.code for result in batch.collect_results()} == {
        Code.TRUNCATED_CALL
    }


def test_a_call_that_raises_while_it_is_admitted_fails_alone():
    tools = Toolset([find, FunctionTool(update, effect="write", key=lambda **_: 1 / 0)])
    results = carry(
        batch_of(
            call(1, "update", {"user": 1}), call(2, "find", {"name": "b"}), tools=tools
        )
    )
    assert [result.failure and result.failure.code for result in results] == [
        Code.INTERNAL_ERROR,
        None,
    ]


def test_a_tool_that_cannot_be_used_as_declared_is_raised_to_the_engineer():
    tools = Toolset([FunctionTool(update, effect="write", key="{usr}")])
    with pytest.raises(ToolDefinitionError, match="`usr`"):
        batch_of(call(1, "update", {"user": 1}), tools=tools)


# ---------------------------------------------------------------------- who waits for whom


def test_calls_on_one_resource_go_one_after_the_other_and_others_beside_them():
    batch = batch_of(
        call(1, "update", {"user": 1}),
        call(2, "update", {"user": 1}),
        call(3, "update", {"user": 2}),
    )
    assert [lane.call.id for lane, _ in batch.todo] == ["call_1", "call_3"]
    carry(batch)
    assert batch.is_done


def test_a_call_waits_for_the_tools_that_it_is_declared_to_come_after():
    batch = batch_of(call(1, "tell", {"text": "done"}), call(2, "update", {"user": 1}))
    assert [lane.call.id for lane, _ in batch.todo] == ["call_2"]
    carry(batch)
    assert batch.is_done


def test_a_call_goes_on_when_what_it_waited_for_has_failed():
    batch = batch_of(call(1, "update", {"user": 1}), call(2, "update", {"user": 1}))
    results = carry(
        batch, call_1=Raised(NoEffect("NO_SUCH_USER", "There is no user 1."))
    )
    assert [result.ok for result in results] == [False, True]


@pytest.mark.parametrize("written", ['{"user": {"$call": "call_1", "path": "/id"}}', '{"user": "$call_1.id$"}',
                                     '{"user": "$var1.id$"}',
                                     '{"user": {"\\u0024call": "call_1", "path": "/id"}}'])  # fmt: skip
def test_a_reference_is_replaced_by_what_the_earlier_call_returned(written):
    batch = batch_of(call(1, "find", {"name": "Ada"}), call(2, "update", written))
    assert started(batch) == ["call_1"]
    carry(batch, call_1=Returned({"id": 7}))
    assert batch.states[1].admitted.bound == {"user": 7, "text": ""}


def test_the_key_and_the_resource_of_a_call_are_those_of_what_it_refers_to():
    batch = batch_of(
        call(1, "find", {"name": "Ada"}), call(2, "update", '{"user": "$call_1.id$"}')
    )
    carry(batch, call_1=Returned({"id": 7}))
    assert batch.states[1].admitted.resources[0].key == "user:7"


def test_what_a_reference_brings_is_checked_like_any_argument():
    batch = batch_of(
        call(1, "find", {"name": "Ada"}), call(2, "update", '{"user": "$call_1.name$"}')
    )
    results = carry(batch, call_1=Returned({"name": "1; DROP TABLE users"}))
    assert results[1].failure.code == Code.INVALID_ARGUMENTS


def test_what_a_result_contains_is_not_read_as_a_reference():
    batch = batch_of(
        call(1, "find", {"name": "Ada"}),
        call(2, "find", {"name": "Bob"}),
        call(3, "tell", '{"text": "$call_2$"}'),
    )
    carry(batch, call_1=Returned("secret of Ada"), call_2=Returned("$call_1$"))
    assert batch.states[2].admitted.bound == {"text": "$call_1$"}


def test_a_call_that_refers_to_a_failed_one_does_not_run_and_is_told_why():
    batch = batch_of(
        call(1, "find", {"name": "Ada"}), call(2, "update", '{"user": "$call_1.id$"}')
    )
    result = carry(batch, call_1=Raised(ValueError()))[1]
    assert (result.failure.code, result.attempts) == (Code.INVALID_ARGUMENTS, 0)
    assert "`call_1` has no result" in result.failure.message


@pytest.mark.parametrize("written", [
    {"text": "$call_2.id$"},                     # itself
    {"text": {"$call": "call_9"}},               # nobody
    {"text": "$call_1.nothing$"},
    {"text": "$call_1[2].id$"},
    # more digits than Python turns into a number
    {"text": f"$var{'9' * 5000}$"},
    {"text": "$call_1[²]$"},                     # a digit, but no number
    {"text": {"$call": "call_1", "path": 5}},    # a path that is none
])  # fmt: skip
def test_a_reference_to_nothing_ends_its_own_call_only(written):
    batch = batch_of(call(1, "find", {"name": "Ada"}), call(2, "tell", written))
    results = carry(batch)
    assert results[0].ok
    assert results[1].ok or results[1].failure.code == Code.INVALID_ARGUMENTS


def test_a_dollar_sign_of_the_texts_own_is_left_alone():
    batch = batch_of(call(1, "tell", {"text": "$PATH$ costs $5-$10, $HOME"}))
    assert carry(batch)[0].ok
    assert batch.states[0].admitted.bound == {"text": "$PATH$ costs $5-$10, $HOME"}


QUOTING = call(2, "tell", {"text": "user $call_1$ is $call_1.active$"})


def test_a_text_that_a_model_may_have_copied_takes_in_no_other_call_s_result():
    batch = batch_of(call(1, "find", {"name": "Ada"}), QUOTING)
    results = carry(batch, call_1=Returned({"id": 7, "active": True}))
    assert results[1].attempts == 0
    assert results[1].failure.code == Code.INVALID_ARGUMENTS
    assert "`$call_1$` is part of a longer text" in results[1].failure.message


def test_for_a_tool_that_says_so_a_value_inside_a_text_is_written_as_json():
    tools = Toolset(
        [
            FunctionTool(find, effect="read"),
            FunctionTool(tell, effect="read", sends=Sends(inline_references=True)),
        ]
    )
    batch = batch_of(call(1, "find", {"name": "Ada"}), QUOTING, tools=tools)
    carry(batch, call_1=Returned({"id": 7, "active": True}))
    assert batch.states[1].admitted.bound == {
        "text": 'user {"active":true,"id":7} is true'
    }


# ---------------------------------------------------------------------- budget, policy, cancelling


def test_the_call_beyond_the_budget_is_refused_and_the_earlier_ones_run():
    results = carry(
        batch_of(
            *(call(n, "find", {"name": str(n)}) for n in range(3)),
            budget=Budget(calls=2),
        )
    )
    assert [result.failure and result.failure.code for result in results] == [
        None,
        None,
        Code.BUDGET_EXHAUSTED,
    ]


def test_a_call_that_is_refused_costs_nothing():
    spent = Spent()
    carry(
        batch_of(
            call(1, "find", {"nome": "a"}),
            call(2, "nothing"),
            call(3, "find", {"name": "b"}),
            spent=spent,
        )
    )
    assert spent.calls == 1


def test_a_tool_has_its_own_limit():
    calls = [
        call(1, "find", {"name": "a"}),
        call(2, "find", {"name": "b"}),
        call(3, "tell", {"text": "c"}),
    ]
    results = carry(batch_of(*calls, budget=Budget(per_tool={"find": 1})))
    assert [result.ok for result in results] == [True, False, True]


def test_a_denied_call_waits_for_nobody():
    batch = batch_of(
        call(1, "send", {"to": "a"}), policy=Policy(rules=[Rule("send", then="deny")])
    )
    assert batch.collect_results()[0].failure.code == Code.NOT_PERMITTED


def test_a_neighbour_does_not_wait_while_a_person_thinks():
    batch = batch_of(call(1, "send", {"to": "a"}), call(2, "find", {"name": "b"}))
    kinds = {lane.call.id: type(effect) for lane, effect in batch.todo}
    assert kinds == {"call_1": AskHuman, "call_2": Invoke}


def test_an_edit_gives_another_call_which_the_effects_carry_and_the_lane_holds_in_the_end():
    batch = batch_of(call(1, "send", {"to": "a"}))
    lane, _ = batch.todo.popleft()
    asked_about = lane.admitted
    batch.answer(lane, Approval(True, arguments={"to": "b"}))
    batch.answer(lane, Claimed(ClaimState.FRESH, fence=1))
    lane, effect = batch.todo.pop()
    assert effect.call.bound == {"to": "b"}
    batch.answer(lane, Returned("sent"))
    batch.answer(lane, None)
    assert batch.is_done
    assert lane.admitted == effect.call
    assert asked_about.bound == {"to": "a"}


def test_a_cancelled_batch_ends_what_has_not_begun():
    batch = batch_of(call(1, "update", {"user": 1}), call(2, "update", "{'user': 1}"))
    batch.cancel_unstarted()
    assert batch.results[0] is None
    assert (batch.results[1].failure.code, batch.results[1].repairs) == (
        Code.CANCELLED,
        ("single_quotes",),
    )
    lane, _ = batch.todo.popleft()
    batch.throw(lane, CallCancelled())
    assert batch.is_done


def test_every_call_tells_that_it_ended_and_only_what_was_admitted_that_it_began():
    told = []
    carry(
        batch_of(call(1, "find", {"name": "a"}), call(2, "nothing"), tell=told.append)
    )
    assert [event.call.id for event in told if isinstance(event, CallAdmitted)] == [
        "call_1"
    ]
    assert sorted(
        event.call.id for event in told if isinstance(event, CallFinished)
    ) == ["call_1", "call_2"]


def test_a_thousand_calls_that_wait_for_each_other_end():
    chain = [call(n, "update", {"user": 1, "text": str(n)}) for n in range(1000)]
    spent = Spent()
    assert all(
        result.ok
        for result in carry(batch_of(*chain, budget=Budget(calls=None), spent=spent))
    )
    assert spent.calls == 1000


# ---------------------------------------------------------------------- the law

ARGUMENTS = {
    "find": [
        '{"name": "a"}',
        "{",
        '{"nome": 1}',
        '{"name": "$call_0.id$"}',
        '{"name": {"$call": "call_1"}}',
    ],
    "update": [
        '{"user": 1}',
        '{"user": 2}',
        '{"user": "$call_0.id$"}',
        '{"user": "$var2$"}',
        "{'user': 1,}",
    ],
    "send": ['{"to": "a"}', '{"to": "$call_3$"}', "[]"],
    "tell": ['{"text": "$call_1$"}', '{"text": "x"}'],
    "nothing": ["{}"],
}
CALLS = st.sampled_from(sorted(ARGUMENTS)).flatmap(
    lambda name: st.sampled_from(ARGUMENTS[name]).map(lambda text: (name, text))
)
ODD_ANSWERS = {
    AskHuman: [None, Approval(True), Approval(False), Approval(True, arguments={"to": "b"}), CallCancelled()],
    Reserve: [True, True, False, CallCancelled()],
    Claim: [Claimed(state, 1, "earlier") for state in ClaimState] + [StoreUnavailable(), CallCancelled()],
    Invoke: [Returned({"id": 7}), Returned("x" * 20_000), Raised(ValueError()), Raised(ConnectionResetError()),
             Unfinished(End.STOPPED), Unfinished(End.RUNNING_ON), Unfinished(End.NOT_STARTED, cancelled=True)],
}  # fmt: skip


@settings(max_examples=250, deadline=None)
@given(made=st.lists(CALLS, max_size=6), data=st.data())
def test_each_call_gets_exactly_one_result_in_order_whatever_is_answered_when(
    made, data
):
    told, clock = [], ManualClock()
    calls = [ToolCall(f"call_{n}", name, text) for n, (name, text) in enumerate(made)]
    batch = batch_of(*calls, tell=told.append, budget=Budget(calls=5), now=clock)
    steps = 0
    while not batch.is_done:
        steps += 1
        assert batch.todo, "a call is not done, and nobody is asked for anything"
        assert steps < 1000
        if data.draw(st.integers(0, 20)) == 20:
            batch.cancel_unstarted()
        place = data.draw(st.integers(0, len(batch.todo) - 1))
        lane, effect = batch.todo[place]
        del batch.todo[place]
        answers = ODD_ANSWERS.get(type(effect), [SOON[type(effect).__name__]])
        answer = data.draw(st.sampled_from(answers))
        if isinstance(effect, Wait):
            clock.advance(effect.seconds)
        (batch.throw if isinstance(answer, Exception) else batch.answer)(lane, answer)
    assert [result.call_id for result in batch.collect_results()] == [
        each.id for each in calls
    ]
    assert sorted(
        event.call.id for event in told if isinstance(event, CallFinished)
    ) == [each.id for each in calls]
    assert not batch.todo


def test_a_verified_write_is_answered_like_any_other():
    tools = Toolset(
        [FunctionTool(update, effect="write", verify=lambda *_: NotFound())]
    )
    results = carry(
        batch_of(call(1, "update", {"user": 1}), tools=tools),
        call_1=Raised(ValueError()),
    )
    assert results[0].failure.code == Code.IN_DOUBT
