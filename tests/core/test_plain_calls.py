"""Plain calls: two steps without a generator give what the generator would have given."""

from collections.abc import Iterator
from dataclasses import dataclass

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from handrail.calls import ToolCall
from handrail.core import results
from handrail.core.attempts import CallOutcome, Times, make_outcome, start_attempt
from handrail.core.batch import Batch
from handrail.core.budgets import Budget, Spent
from handrail.core.execution import execute, shape_at_length
from handrail.core.plain_calls import (
    is_plain,
    shape_plainly,
    take_last_step,
)
from handrail.core.policy import Policy, Rule
from handrail.core.redaction import KnownSecrets
from handrail.effects import (
    CallCancelled,
    Claimed,
    ClaimState,
    Compute,
    End,
    Invoke,
    Raised,
    Returned,
    Unfinished,
    Unknown,
    Wait,
)
from handrail.errors import Failure, NoEffect, StoreUnavailable, TooLarge
from handrail.tools import materialize
from handrail.tools.function_tool import FunctionTool
from handrail.tools.settings import Limits, Write
from handrail.tools.toolset import Toolset
from handrail.workers.threads import wrap_value
from tests.support.effect_script import World, admitted


def look_up(city: str) -> str:
    """Look something up."""
    return city


@dataclass
class Rows:
    """Rows that are read as they are asked for."""

    rows: Iterator[object]


def reading(**declared) -> FunctionTool:
    return FunctionTool(look_up, effect="read", **declared)


TEXTS = st.text(max_size=30) | st.sampled_from(
    ["the password is hunter2", "x" * 300, "\ud800", "<b>", "巴黎"]
)
SCALARS = TEXTS | st.none() | st.booleans() | st.integers() | st.floats()
VALUES = st.recursive(
    SCALARS,
    lambda inner: (
        st.lists(inner, max_size=4) | st.dictionaries(TEXTS, inner, max_size=4)
    ),
    max_leaves=12,
)
LIMITS = st.none() | st.integers(1, 200)


CHOICES = {
    "as_iterator": st.booleans(),
    "redacts": st.booleans(),
    "limit": LIMITS,
    "attempt_s": LIMITS,
}


@settings(max_examples=300, deadline=None)
@given(value=VALUES, began=st.floats(-400, 0), **CHOICES)
def test_the_two_steps_of_a_plain_call_are_those_of_its_execution(
    value, as_iterator, limit, attempt_s, began, redacts
):
    call = admitted(
        reading(limits=Limits(result_bytes=limit, attempt_timeout_s=attempt_s)),
        city="Bern",
    )
    run = replace(
        World().conduct, secrets=KnownSecrets(["hunter2"]) if redacts else None
    )

    def outcome() -> Returned:
        """What a driver answers, which reads iterators."""
        return wrap_value(
            Rows(iter(value)) if as_iterator and isinstance(value, list) else value
        )

    assert is_plain(call)
    assert start_attempt(call, 1, began, run) == next(
        execute(call, run, Times(began=began))
    )
    quick = outcome()
    result = take_last_step(call, quick, run) or end_of_execution(
        execute(call, run, Times(began=began)), quick
    )
    assert fields_of(result) == fields_of(
        end_of_execution(execute(call, run, Times(began=began)), outcome())
    )


@settings(max_examples=300, deadline=None)
@given(
    value=VALUES,
    limit=LIMITS,
    redacts=st.booleans(),
    replayed=st.booleans(),
    note=st.sampled_from(["", "", "late"]),
)
def test_a_result_that_is_shaped_plainly_is_that_which_is_shaped_at_length(
    value, limit, redacts, replayed, note
):
    call = admitted(reading(limits=Limits(result_bytes=limit)), city="Bern")
    run = replace(
        World().conduct, secrets=KnownSecrets(["hunter2"]) if redacts else None
    )
    outcome = CallOutcome(
        call, value, attempts=2, replayed=replayed, note=note, done_under="r_1/1/0"
    )
    plain = shape_plainly(outcome, run)
    if plain is not None:
        with pytest.raises(StopIteration) as end:
            next(shape_at_length(outcome, run))
        assert fields_of(plain) == fields_of(end.value.value)


@settings(max_examples=300, deadline=None)
@given(value=VALUES | st.lists(VALUES, max_size=3))
def test_what_is_found_plain_once_is_kept_and_shown_as_if_looked_at_again(value):
    returned = wrap_value(value)
    assert returned.plain is materialize.is_plain(value, type(value))
    if returned.plain:
        copied, body = results.copy_plain(value)
        assert repr(copied) == repr(results.plain(value))
        call, run = admitted(reading(), city="Bern"), World().conduct
        known = make_outcome(call, returned, 1)
        unknown = make_outcome(call, Returned(value), 1)
        assert fields_of(known) == fields_of(replace(unknown, plain=True))
        if body is not None:
            encoded = shape_plainly(replace(known, body=body), run)
            assert repr(encoded) == repr(shape_plainly(known, run))
        texts = [shape_plainly(each, run) for each in (known, unknown)]
        assert len({each and fields_of(each) for each in texts}) == 1


class LongWay(Batch):
    """A batch in which each write has an execution from its first step."""

    def _start_plain_write(self, state, call):
        self._start(state, call)


def saving(**declared) -> FunctionTool:
    return FunctionTool(look_up, name="save", effect="write", **declared)


FAILURES = st.sampled_from(
    [
        StoreUnavailable("the disk is full"),
        CallCancelled(),
        Raised(ValueError("no")),
        Raised(NoEffect("UNAVAILABLE", "not now", retryable=True)),
        Raised(TooLarge("more than 64 MB")),
        Unfinished(End.NOT_STARTED),
        Unfinished(End.RUNNING_ON),
        Unfinished(End.STOPPED, cancelled=True),
    ]
)
CLAIMS = st.builds(
    Claimed,
    st.sampled_from([each for each in ClaimState if each is not ClaimState.UNAPPROVED]),
    fence=st.integers(1, 5),
    value=st.sampled_from([None, "before"]),
    repeated=st.booleans(),
    key=st.sampled_from(["", "r0/1/0"]),
)
FRESH = st.builds(
    Claimed,
    st.just(ClaimState.FRESH),
    fence=st.integers(1, 5),
    key=st.sampled_from(["", "r0/1/0"]),
)
ANSWERS = {
    "Reserve": st.just(True) | st.builds(Failure, st.just("RATE_LIMITED"), TEXTS),
    "Claim": FRESH | FRESH | FRESH | CLAIMS,
    "Invoke": VALUES.map(wrap_value) | VALUES.map(wrap_value) | FAILURES,
    "Settle": st.booleans(),
    "Verify": st.builds(Unknown),
    "Wait": st.none(),
    "Keep": st.just("r_1"),
    "AskHuman": st.none(),
}
TOOLS = [
    saving(),
    saving(resource="city:{city}"),
    saving(limits=Limits(rate="5/min")),
    saving(verify=lambda arguments, context: None),
    saving(write=Write(repeatable=True), limits=Limits(max_attempts=1)),
    saving(limits=Limits(result_bytes=200)),
]


@settings(max_examples=600, deadline=None)
@given(
    data=st.data(),
    tool=st.sampled_from(TOOLS),
    redacts=st.booleans(),
    fails_at=st.integers(0, 12),
    failure=st.sampled_from([StoreUnavailable("full"), CallCancelled()]),
    late=st.booleans(),
    takes_s=st.sampled_from([0.0, 3.0, 12.0]),
)
def test_a_plain_write_asks_for_what_its_execution_asks_for_and_ends_the_same(
    data, tool, redacts, fails_at, failure, late, takes_s
):
    answers = {}

    def answer_to(effect, number):
        if number == fails_at and not isinstance(effect, Invoke | Compute):
            return failure
        if isinstance(effect, Compute):
            return effect.function()
        if number not in answers:
            answers[number] = data.draw(ANSWERS[type(effect).__name__])
            if late and isinstance(answers[number], Returned):
                answers[number].late = True
        return answers[number]

    def carry(kind):
        world = World()
        run = replace(
            world.conduct, secrets=KnownSecrets(["hunter2"]) if redacts else None
        )
        call = ToolCall("c1", "save", '{"city": "Bern"}')
        batch = kind(
            [call], "calls", Toolset([tool]), run, budget=Budget(), spent=Spent()
        )
        effects = []
        while batch.todo:
            state, effect = batch.todo.popleft()
            effects.append(effect)
            if isinstance(effect, Wait):
                world.clock.advance(effect.seconds)
            world.clock.advance(takes_s)
            answer = answer_to(effect, len(effects) - 1)
            if isinstance(answer, Exception):
                batch.throw(state, answer)
            else:
                batch.answer(state, answer)
        [result] = batch.collect_results()
        return effects, world.events, fields_of(result)

    plain, at_length = carry(Batch), carry(LongWay)
    assert list(map(comparable, plain[0])) == list(map(comparable, at_length[0]))
    assert repr(plain[1]) == repr(at_length[1])
    assert plain[2] == at_length[2]


def comparable(effect):
    """An effect, in a form in which NaN is equal to itself and functions are left out."""
    if isinstance(effect, Compute):
        return "Compute"
    return repr({name: getattr(effect, name) for name in effect.__struct_fields__})


def test_a_short_result_without_anything_to_say_of_it_is_shaped_plainly():
    outcome = CallOutcome(admitted(reading(), city="Bern"), {"rows": [1, "a"]})
    assert shape_plainly(outcome, World().conduct).text == '{"rows":[1,"a"]}'
    assert shape_plainly(replace(outcome, note="late"), World().conduct) is None


def end_of_execution(execution, outcome):
    """Answer an execution with this outcome, keep what is too long, and return its result."""
    next(execution)
    try:
        execution.send(outcome)
        execution.send("r_1")
    except StopIteration as stop:
        return stop.value.result
    raise AssertionError(
        "a plain call that returned asks for nothing but to keep its result"
    )


def fields_of(result):
    """Every field, in a form in which NaN is equal to itself."""
    return repr({name: getattr(result, name) for name in result.__struct_fields__})


@pytest.mark.parametrize(
    ("declared", "policy"),
    [
        ({"effect": "write"}, Policy()),
        ({"approve": True}, Policy()),
        ({"resource": "city:{city}"}, Policy()),
        ({"limits": Limits(rate="1/h")}, Policy()),
        ({"limits": Limits(max_concurrency=1)}, Policy()),
        ({}, Policy(rules=[Rule("look_up", "ask")])),
    ],
)
def test_a_call_that_needs_more_than_two_steps_is_not_plain(declared, policy):
    tool = FunctionTool(look_up, **{"effect": "read", **declared})
    assert not is_plain(admitted(tool, policy, city="Bern"))
