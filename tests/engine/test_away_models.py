"""Which models a process takes for being away, and who tries them."""

import pytest

from handrail.engine.model_calls import LONGEST_TRIAL_S, AwayModels
from handrail.errors import ModelError
from handrail.testing import ManualClock, ScriptedModel

AWAY = ModelError("overloaded with a question of a tenant", status=503, retryable=True)


@pytest.fixture
def clock():
    return ManualClock()


@pytest.fixture
def away(clock):
    return AwayModels(clock)


@pytest.fixture
def model():
    return ScriptedModel(["Done."])


def is_held_back(away, model, *, waits=True) -> bool:
    try:
        away.check(model, waits=waits)
    except ModelError as error:
        assert error.retryable
        assert "tenant" not in str(error)
        return True
    return False


def fail_trials(away, model, clock, *rests_s):
    """Let a model fail once, and then at the end of each of these rests."""
    away.note_failure(model, AWAY)
    for rest_s in rests_s:
        clock.advance(rest_s - 0.1)
        assert is_held_back(away, model)
        clock.advance(0.1)
        assert not is_held_back(away, model)
        away.note_failure(model, AWAY)


def test_a_model_that_is_away_is_tried_ever_more_seldom(away, model, clock):
    fail_trials(away, model, clock, 2.0, 4.0, 8.0, 16.0, 30.0, 30.0)


@pytest.mark.parametrize(
    ("asked_s", "rest_s"), [(1.0, 2.0), (60.0, 60.0), (1e6, 300.0)]
)
def test_no_run_tries_it_sooner_than_its_provider_has_asked_for(
    away, model, clock, asked_s, rest_s
):
    away.note_failure(model, ModelError("", retryable=True, retry_after_s=asked_s))
    clock.advance(rest_s - 0.1)
    assert is_held_back(away, model)
    clock.advance(0.1)
    assert not is_held_back(away, model)


def test_one_run_tries_it_and_the_others_wait_for_the_end_of_that(away, model, clock):
    away.note_failure(model, AWAY)
    clock.advance(2.0)
    assert not is_held_back(away, model)
    clock.advance(30.0)  # it is slow to fail
    assert is_held_back(away, model)
    # a run that was cancelled says nothing more
    clock.advance(LONGEST_TRIAL_S - 30.0)
    assert not is_held_back(away, model)


def test_runs_that_fail_together_count_once(away, model, clock):
    for _ in range(8):
        away.note_failure(model, AWAY)
    assert not is_held_back(away, model, waits=False)
    clock.advance(2.0)
    assert not is_held_back(away, model)


def test_a_run_that_has_not_waited_asks_until_a_second_trial_fails(away, model, clock):
    away.note_failure(model, AWAY)
    assert not is_held_back(away, model, waits=False)
    clock.advance(2.0)
    assert not is_held_back(away, model)
    away.note_failure(model, AWAY)
    assert is_held_back(away, model, waits=False)


def test_the_first_answer_ends_it(away, model, clock):
    fail_trials(away, model, clock, 2.0, 4.0)
    away.note_answer(model)
    assert not is_held_back(away, model)
    # and the next outage begins anew
    fail_trials(away, model, clock, 2.0)


def test_other_models_are_not_held_back(away, model):
    away.note_failure(model, AWAY)
    assert not is_held_back(away, ScriptedModel(["Done."]))


@pytest.mark.parametrize(
    "error",
    [
        ModelError("no such key", status=401),
        ModelError("it wrote no call", retryable=True, answered=True),
    ],
)
def test_a_refusal_says_that_a_model_is_not_away(away, model, clock, error):
    away.note_failure(model, error)
    assert not is_held_back(away, model)
    fail_trials(away, model, clock, 2.0)
    away.note_failure(model, error)
    assert not is_held_back(away, model)
