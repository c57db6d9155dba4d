"""What the calls of one runtime share."""

from handrail.engine.shared import RecentNames


def test_the_oldest_name_is_forgotten_first():
    names = RecentNames(most=2)
    for name in ("a", "b", "b", "c"):
        names.add(name)
    assert [name in names for name in "abc"] == [False, True, True]
    assert (names.discard("b"), names.discard("b"), len(names)) == (True, False, 1)
