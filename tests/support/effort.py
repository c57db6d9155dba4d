"""How much the tests try: with `HANDRAIL_LONG_TESTS=1`, as in `make test-all`, all that they can; else each kind."""

from __future__ import annotations

import os
from collections import Counter, defaultdict
from collections.abc import Hashable, Iterable, Sequence

import pytest

IS_LONG = "HANDRAIL_LONG_TESTS" in os.environ

volume = pytest.mark.volume
"""On a test or one of its cases: another one shows the same."""

each_value_once = pytest.mark.each_value_once
"""On a test with several parameters: a case that shows no new value of any is volume."""

DRIVERS_AND_STORES = {
    *("asyncio", "sync", "blocking", "Runtime", "SyncRuntime"),
    *("memory", "sqlite", "postgres"),
    *("FullMemoryStore", "SqliteStore"),
}
"""What is below or above a test that is repeated over them: each shows the same by its contract."""


def examples(in_each_run: int, long: int) -> int:
    """Return how many examples a property is tried on."""
    return long if IS_LONG else in_each_run


def beyond_each_value(items: Iterable[pytest.Item]) -> list[pytest.Item]:
    """Return the cases that differ from others in what they are combined with only, of tests that do not say which."""
    tests = defaultdict(list)
    for item in items:
        tests[item.nodeid.partition("[")[0]].append(item)
    beyond = []
    for of_test in tests.values():
        cases = [shown_by(item) for item in of_test]
        if max(map(len, cases)) == 1 or any(map(is_volume, of_test)):
            continue
        chosen = cases_of_new_values(cases)
        beyond += [item for at, item in enumerate(of_test) if at not in chosen]
    return beyond


def is_volume(item: pytest.Item) -> bool:
    return item.get_closest_marker("volume") is not None


def shown_by(item: pytest.Item) -> set[Hashable]:
    """Return the driver, the store, and the rest of a case as one value or, where the test says so, as several."""
    callspec = getattr(item, "callspec", None)
    values = {
        (name, named(value))
        for name, value in (callspec.params if callspec else {}).items()
    }
    if item.get_closest_marker("each_value_once"):
        return values
    below = {(name, value) for name, value in values if value in DRIVERS_AND_STORES}
    return {*below, frozenset(values - below)}


def named(value: object) -> Hashable:
    """Return what tells a value of a parameter from the others."""
    if isinstance(value, type):
        return value.__name__
    return value if isinstance(value, str | int | None) else id(value)


def cases_of_new_values(cases: Sequence[set[Hashable]]) -> set[int]:
    """Return the positions of a few cases that together show every value, each about as often."""
    left, unseen = dict(enumerate(cases)), set().union(*cases)
    used = Counter[Hashable]()
    chosen = set()
    while unseen:
        best = max(
            left,
            key=lambda at: (
                len(left[at] & unseen),
                -sum(used[value] for value in left[at]),
            ),
        )
        used.update(left[best])
        unseen -= left.pop(best)
        chosen.add(best)
    return chosen
