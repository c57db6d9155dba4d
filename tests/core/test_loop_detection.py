"""Whether a model turns in a circle."""

from copy import deepcopy

import pytest
from hypothesis import given
from hypothesis import strategies as st

from handrail.core.loop_detection import STOPPED_AT, LoopDetector


def rounds(*steps) -> list[int]:
    """What is said of each step; a letter is a call with its result, and `a1` `a2` are one call with two results."""
    repeats = LoopDetector()
    return [
        repeats.count_rounds((step[1:] or "same", step[0], {"q": step[0]}, False))
        for step in steps
    ]


@pytest.mark.parametrize(("steps", "said"), [
    ("a", [1]),
    ("a b c d", [1, 1, 1, 1]),
    ("a a", [1, 2]),                                    # told
    ("a a a", [1, 2, 3]),                               # and stopped
    ("a b a b", [1, 1, 1, 2]),
    ("a b a b a b", [1, 1, 1, 2, 2, 3]),
    ("a b c a b c a b c", [1, 1, 1, 1, 1, 2, 2, 2, 3]),
    # a circle of four is not seen: the budget ends it
    ("a b c d a b c d a b c d", [1] * 12),
    ("x y a a a", [1, 1, 1, 2, 3]),                     # whatever came before
    # something else in between starts anew
    ("a a b a a", [1, 2, 1, 1, 2]),
    ("a b b a b b", [1, 1, 2, 1, 1, 2]),
    ("a a1 a2", [1, 1, 1]),                             # news
    ("a1 a2 a1 a2 a1 a2", [1, 1, 1, 2, 2, 3]),          # a result that flickers is none
    ("a a a1 a a", [1, 2, 1, 1, 2]),
])  # fmt: skip
def test_circles_of_one_two_and_three_calls_are_counted(steps, said):
    assert rounds(*steps.split()) == said


def test_other_arguments_are_another_call():
    repeats = LoopDetector()
    assert [
        repeats.count_rounds(("[]", "find", {"page": page})) for page in (1, 2, 3, 4)
    ] == [1, 1, 1, 1]


def test_the_order_of_arguments_does_not_matter():
    repeats = LoopDetector()
    repeats.count_rounds(("[]", "find", {"a": 1, "b": 2}))
    assert repeats.count_rounds(("[]", "find", {"b": 2, "a": 1})) == 2


@given(st.lists(st.sampled_from("ab"), max_size=20))
def test_polling_whose_result_changes_is_never_a_circle(calls):
    repeats = LoopDetector()
    assert all(
        repeats.count_rounds((f"result {n}", name, {})) == 1
        for n, name in enumerate(calls)
    )


@given(st.lists(st.sampled_from("abcd"), max_size=30))
def test_a_count_is_how_often_the_same_steps_stand_at_the_end(calls):
    said = rounds(*calls)
    for n, count in enumerate(said):
        seen = "".join(calls[: n + 1])
        # the third ends the run
        assert min(count, 3) == max(times(seen, length) for length in (1, 2, 3))


def times(seen: str, length: int) -> int:
    """How often the last `length` letters stand at the end, up to three times. The slow and obvious way."""
    return max(
        (
            n
            for n in (1, 2, 3)
            if len(seen) >= length * n and seen.endswith(seen[-length:] * n)
        ),
        default=1,
    )


@given(st.lists(st.sampled_from("abc"), max_size=30), st.sampled_from("abc"))
def test_the_calls_that_close_a_circle_are_known_before_they_are_made(calls, following):
    detector = LoopDetector()
    for name in calls:
        detector.count_rounds(("same", name, {}, False))
    is_closing = (following, {}) in detector.find_closing_calls()
    rounds = detector.count_rounds(("same", following, {}, False))
    assert is_closing == (rounds >= 3)


def test_what_may_change_closes_no_circle_before_it_is_made():
    detector = LoopDetector()
    for _ in range(2):
        detector.count_rounds(("busy", "a", {}, True))
    assert detector.find_closing_calls() == []


@given(st.lists(st.sampled_from("abc"), max_size=14), st.sampled_from("abcd"))
def test_a_call_is_refused_beforehand_just_where_its_old_result_closes_a_circle(
    earlier, name
):
    repeats = LoopDetector()
    for each in earlier:
        repeats.count_rounds(("same", each, {}, False))
    closing = repeats.find_closing_calls()
    rounds_after = deepcopy(repeats).count_rounds(("same", name, {}, False))
    assert ((name, {}) in closing) == (rounds_after >= STOPPED_AT)
