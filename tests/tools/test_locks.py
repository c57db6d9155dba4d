"""Who may go on, and who is next."""

from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from handrail.effects import Resource
from handrail.tools.locks import Locks


def alone(*keys: str) -> list[Resource]:
    return [Resource(key) for key in keys]


def shared(*keys: str) -> list[Resource]:
    return [Resource(key, exclusive=False) for key in keys]


def test_whoever_comes_first_goes_first():
    locks = Locks()
    assert [locks.ask(owner, alone("u1")) for owner in "abc"] == [True, False, False]
    assert [locks.release(owner) for owner in "abc"] == [["b"], ["c"], []]


def test_readers_share():
    locks = Locks()
    assert [locks.ask(owner, shared("u1")) for owner in "abc"] == [True, True, True]


def test_a_writer_waits_for_every_reader():
    locks = Locks()
    for owner in "ab":
        locks.ask(owner, shared("u1"))
    assert not locks.ask("w", alone("u1"))
    assert [locks.release("a"), locks.release("b")] == [[], ["w"]]


def test_a_reader_does_not_overtake_a_writer_that_waits():
    locks = Locks()
    locks.ask("r1", shared("u1"))
    locks.ask("w", alone("u1"))
    assert not locks.ask("r2", shared("u1"))


def test_all_readers_after_a_writer_go_on_together():
    locks = Locks()
    locks.ask("w", alone("u1"))
    for owner in ("r1", "r2"):
        locks.ask(owner, shared("u1"))
    locks.ask("w2", alone("u1"))
    assert locks.release("w") == ["r1", "r2"]


def test_a_call_holds_all_of_its_resources_or_none():
    locks = Locks()
    locks.ask("a", alone("u1"))
    locks.ask("b", alone("u2"))
    assert not locks.ask("c", alone("u1", "u2"))
    assert [locks.release("a"), locks.release("b")] == [[], ["c"]]


def test_two_calls_that_name_two_resources_crosswise_do_not_wait_for_each_other_for_ever():
    locks = Locks()
    assert [locks.ask("a", alone("u1", "u2")), locks.ask("b", alone("u2", "u1"))] == [
        True,
        False,
    ]
    assert locks.release("a") == ["b"]


def test_a_resource_that_is_named_twice_is_one():
    locks = Locks()
    assert locks.ask("a", [*shared("u1"), *alone("u1")])
    assert not locks.ask("b", shared("u1"))
    assert locks.release("a") == ["b"]


def test_whoever_leaves_the_line_lets_the_others_by():
    locks = Locks()
    locks.ask("r1", shared("u1"))
    locks.ask("w", alone("u1"))
    locks.ask("r2", shared("u1"))
    assert locks.release("w") == ["r2"]


def test_who_asks_for_more_keeps_what_it_holds_and_leaves_all_of_it_at_once():
    locks = Locks()
    locks.ask("a", alone("u1"))
    assert locks.ask("a", alone("u2"))
    assert [locks.ask("b", alone("u1")), locks.ask("c", alone("u2"))] == [False, False]
    assert sorted(locks.release("a")) == ["b", "c"]


def test_leaving_without_having_asked_is_nothing():
    assert Locks().release("nobody") == []


def test_nothing_is_remembered_of_resources_that_nobody_wants():
    locks = Locks()
    for number in range(100):
        locks.ask(number, alone(f"u{number}"))
        locks.release(number)
    assert repr(locks) == "<Locks: 0 resources, 0 holding or waiting>"


class ManyCallers(RuleBasedStateMachine):
    """Callers ask and leave at random; a list of who asked when says who ought to be inside."""

    def __init__(self):
        super().__init__()
        self.locks, self.inside, self.number = Locks(), set(), 0
        self.asked: dict[int, list[Resource]] = {}

    @rule(
        resources=st.lists(
            st.builds(Resource, st.sampled_from("abc"), st.booleans()), max_size=3
        )
    )
    def ask(self, resources):
        self.number += 1
        self.asked[self.number] = resources
        if self.locks.ask(self.number, resources):
            self.inside.add(self.number)

    @precondition(lambda self: self.asked)
    @rule(data=st.data())
    def leave(self, data):
        owner = data.draw(st.sampled_from(sorted(self.asked)))
        del self.asked[owner]
        self.inside.discard(owner)
        freed = self.locks.release(owner)
        assert not self.inside & set(freed), "somebody was let in twice"
        self.inside |= set(freed)

    def meet(self, first: int, second: int) -> bool:
        return any(
            mine.key == its.key and (mine.exclusive or its.exclusive)
            for mine in self.asked[first]
            for its in self.asked[second]
        )

    @invariant()
    def nobody_is_inside_with_whom_it_must_not_meet(self):
        for owner in self.inside:
            assert not any(
                self.meet(owner, other) for other in self.inside if other < owner
            )

    @invariant()
    def everyone_is_inside_who_meets_nobody_that_came_before(self):
        """So the one that came first is always inside: nobody starves, and nobody waits in a circle."""
        for owner in self.asked:
            first = not any(
                self.meet(owner, other) for other in self.asked if other < owner
            )
            assert (owner in self.inside) is first


ManyCallers.TestCase.settings = settings(
    max_examples=60, stateful_step_count=30, deadline=None
)
test_any_order_of_asking_and_leaving = ManyCallers.TestCase


@settings(max_examples=100, deadline=None)
@given(
    wishes=st.lists(
        st.lists(
            st.builds(Resource, st.sampled_from("abc"), st.booleans()), max_size=3
        ),
        max_size=12,
    )
)
def test_everyone_gets_its_turn_when_those_inside_leave(wishes):
    locks = Locks()
    inside = {owner for owner, wish in enumerate(wishes) if locks.ask(owner, wish)}
    served = 0
    while inside:
        inside |= set(locks.release(inside.pop()))
        served += 1
    assert served == len(wishes)
