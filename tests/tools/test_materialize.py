"""What a tool returned: measured before it is written, with its iterators read within bounds."""

import asyncio
import threading
from dataclasses import dataclass
from functools import partial
from itertools import count
from typing import Any

import pydantic
import pytest
from hypothesis import given
from hypothesis import strategies as st

import handrail as hr
from handrail.errors import TooLarge
from handrail.testing.contracts.dialects import check_growth
from handrail.tools.materialize import (
    LONG_BYTES,
    MOST_BYTES,
    MOST_VALUES,
    Reading,
    is_plain,
    read,
)
from handrail.workers.threads import wrap_value


def laughing(levels: int) -> list:
    """Return a list of two that are one, and so on down: small, and 2 ** levels texts when it is written out."""
    here: list = ["ha"]
    for _ in range(levels):
        here = [here, here]
    return here


@dataclass
class Slot:
    rows: Any


TOO_LARGE = {
    "never ends": count,
    "never ends below": lambda: {"a": [{"b": count()}]},
    "never ends in a field": lambda: [Slot(count())],
    "gives what expands": lambda: iter([laughing(40)]),
    "expands": lambda: laughing(40),
    "expands and holds itself": lambda: (lambda here: here.append(here) or here)(
        [laughing(40)]
    ),
    "names expand": lambda: [{"k" * 1000: 1}] * 100_000,
    "a text": lambda: "x" * (MOST_BYTES + 1),
    "one text in many places": lambda: ["x" * 1_000_000] * 100,
    "bytes": lambda: [b"x" * 1_000_000] * 100,
    "rows": lambda: [[0] * 1000] * 1001,
}


@pytest.mark.parametrize("is_async", [True, False])
@pytest.mark.parametrize("what", TOO_LARGE)
def test_more_than_a_result_may_be_is_refused_before_it_is_written(
    drive, is_async, what
):
    async def task():
        return TOO_LARGE[what]()

    def thread():
        return TOO_LARGE[what]()

    result = drive(
        [hr.FunctionTool(task if is_async else thread, name="numbers", effect="read")]
    ).call("numbers")
    assert (result.failure.code, result.failure.retryable, result.attempts) == (
        "TOO_LARGE",
        False,
        1,
    )
    assert "Ask for less" in result.failure.suggestion


class Unhashable(type):
    __hash__ = None


class Odd(metaclass=Unhashable):
    """Of a class that no set and no dictionary takes."""


def test_values_whose_class_has_no_hash_are_measured_with_all_beside_them(drive):
    def odd():
        return [Odd(), "text", {"rows": [Odd(), 1]}]

    text = drive([hr.FunctionTool(odd, effect="read")]).call("odd").text
    assert text == '["<Odd>","text",{"rows":["<Odd>",1]}]'
    with pytest.raises(TooLarge):
        read([Odd(), "x" * (MOST_BYTES + 1)])


def test_a_value_that_holds_itself_is_named_by_its_class_and_not_too_large(drive):
    def ring():
        here: list = [1]
        here.append({"again": here})
        return here

    assert drive([hr.FunctionTool(ring, effect="read")]).call("ring").text == '"<list>"'


class Shown(pydantic.BaseModel):
    """Notes in which thread its JSON is written."""

    _threads: set[str] = pydantic.PrivateAttr(default_factory=set)

    @pydantic.model_serializer
    def _write(self) -> str:
        self._threads.add(threading.current_thread().name)
        return "shown"


@pytest.mark.parametrize("is_async", [True, False])
@pytest.mark.parametrize("length", [10, 100_000])
def test_a_long_result_is_written_in_a_thread(drive, is_async, length):
    shown = Shown()

    async def rows():
        return [shown, *range(length)]

    def rows_in_thread():
        return [shown, *range(length)]

    tool = rows if is_async else rows_in_thread
    driver = drive(
        [hr.FunctionTool(tool, name="rows", description="List.", effect="read")]
    )
    result = driver.call("rows")
    assert result.text.startswith('["shown",0,1,2')
    in_thread = any(name.startswith("handrail-") for name in shown._threads)
    assert in_thread == (length > 10)


def test_a_run_that_is_cancelled_while_a_long_result_is_written_has_the_result():
    writing, go_on = threading.Event(), threading.Event()

    class Slow(pydantic.BaseModel):
        @pydantic.model_serializer
        def _write(self) -> str:
            writing.set()
            assert go_on.wait(20)
            return "slow"

    async def rows():
        return [Slow(), *range(100_000)]

    async def main():
        tool = hr.FunctionTool(rows, description="List.", effect="write", key="once")
        async with hr.Runtime([tool]) as runtime:
            handled = asyncio.create_task(
                runtime.calls([hr.ToolCall("c1", "rows", "{}")], run="r1")
            )
            assert await asyncio.to_thread(writing.wait, 20)
            handled.cancel()
            await asyncio.sleep(0)
            go_on.set()
            with pytest.raises(asyncio.CancelledError):
                await handled
            return await runtime.call("rows")

    again = asyncio.run(main())
    assert again.replayed
    assert again.text.startswith('["slow",0,1')


def test_an_iterator_is_read_no_further_than_a_result_may_hold(drive):
    taken = count()
    drive(
        [
            hr.FunctionTool(
                lambda: taken, name="numbers", description="Count.", effect="read"
            )
        ]
    ).call("numbers")
    assert next(taken) < MOST_VALUES + 100


def test_a_write_that_returns_too_much_is_done_and_says_so_to_whoever_asks_again(drive):
    made = []

    def order(item: str) -> list:
        """Order an item."""
        made.append(item)
        return laughing(40)

    driver = drive([hr.FunctionTool(order, effect="write", key="{item}")])
    first, again = (
        driver.call("order", {"item": "tea"}),
        driver.call("order", {"item": "tea"}),
    )
    assert (made, first.failure.code) == (["tea"], "TOO_LARGE")
    assert (
        "was carried out" in first.failure.message
        and "do not call it again" in first.failure.suggestion
    )
    assert (again.ok, again.replayed, again.failure) == (False, True, first.failure)


@pytest.mark.parametrize("what", ["flat", "nested"])
def test_the_work_of_measuring_grows_with_the_value_and_no_faster(what):
    row = 1 if what == "flat" else {"id": 1, "tags": ["a"]}
    check_growth(lambda size: partial(wrap_value, [row] * size), 100_000)


PARTS = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text()
    | st.just("a" * (LONG_BYTES // 3)) | st.tuples() | st.just(b"bytes"),
    lambda parts: st.lists(parts, max_size=4)
    | st.dictionaries(st.text(max_size=3), parts, max_size=4),
    max_leaves=12,
)  # fmt: skip


@given(value=PARTS)
def test_what_is_plain_at_a_glance_is_read_as_it_is_and_not_long(value):
    if is_plain(value, type(value)):
        reading = read(value)
        assert reading == Reading(value, reading.size, has_iterators=False)
        assert reading.size <= LONG_BYTES + 64  # names of fields, which are short here


@pytest.mark.parametrize(
    "value",
    [[["a" * LONG_BYTES, "b"]], [[1] * 300], {"of": iter(())}, [{"of": [b"b"]}]],
    ids=["long", "many", "iterator", "bytes"],
)
def test_what_is_not_plain_at_a_glance_is_left_to_the_reader(value):
    assert not is_plain(value, type(value))


def test_a_value_within_itself_is_left_to_the_reader():
    value = [1]
    value.append(value)
    assert not is_plain(value, list)
    assert is_plain([[1], [1]], list)
