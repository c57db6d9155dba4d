"""Pages: what a tool returns or yields is given to the model piece by piece."""

import asyncio
import re
import threading
from collections.abc import AsyncIterator, Iterator
from functools import partial
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import handrail as hr
from handrail.core.results import LEAST_RESULT_BYTES, as_text, plain, shape
from handrail.errors import ToolDefinitionError
from handrail.invisible import clean
from handrail.testing.checklist import difference_from_schema


class World:
    """What became of a generator: how many rows were taken from it, and how often it was closed."""

    def __init__(self) -> None:
        self.taken = self.closed = 0


def numbers_tool(world: World, *, is_async: bool = False, **declared: Any):
    def numbers(most: int, context: hr.Context[Any]) -> Iterator[dict[str, int]]:
        """List numbers.

        Args:
            most: How many there are.
        """
        try:
            for n in range(most):
                world.taken += 1
                yield {"n": n}
        finally:
            world.closed += 1

    async def numbers_async(most: int) -> AsyncIterator[dict[str, int]]:
        """List numbers.

        Args:
            most: How many there are.
        """
        try:
            for n in range(most):
                world.taken += 1
                yield {"n": n}
        finally:
            world.closed += 1

    return hr.FunctionTool(
        numbers_async if is_async else numbers,
        name="numbers",
        effect="read",
        **declared,
    )


BOTH = pytest.mark.parametrize("is_async", [False, True], ids=["plain", "async"])


def read_all(driver, name, **arguments):
    """Call as a model would, again and again with `next`; return every row and the number of pages."""
    rows, pages, offset = [], 0, 0
    while offset is not None:
        result = driver.call(name, {**arguments, "offset": offset})
        assert result.ok and not result.handle, result.text
        told = hr.jsontext.parse(result.text).value
        assert told["has_more"] is (told["next"] is not None)
        rows, pages, offset = rows + told["rows"], pages + 1, told["next"]
    return rows, pages


# ---------------------------------------------------------------------- generators


@BOTH
def test_the_pages_of_a_generator_are_its_rows(drive, is_async):
    rows, pages = read_all(
        drive([numbers_tool(World(), is_async=is_async)], result_bytes=1024),
        "numbers",
        most=500,
    )
    assert (rows, pages > 3) == ([{"n": n} for n in range(500)], True)


@BOTH
def test_no_more_is_taken_from_a_generator_than_one_page_and_a_row(drive, is_async):
    world = World()
    result = drive([numbers_tool(world, is_async=is_async)]).call(
        "numbers", {"most": 10**12}
    )
    assert (world.taken, world.closed) == (len(result.value.rows) + 1, 1)
    assert world.taken < 2_000


@BOTH
def test_a_generator_is_closed_when_it_fails_in_the_middle(drive, is_async):
    world = World()

    def broken() -> Iterator[int]:
        try:
            yield 1
            raise hr.ToolError(
                "GONE", "The connection is gone.", suggestion="Try later."
            )
        finally:
            world.closed += 1

    async def broken_async() -> AsyncIterator[int]:
        for row in broken():
            yield row

    tool = hr.FunctionTool(
        broken_async if is_async else broken, name="broken", effect="read"
    )
    result = drive([tool]).call("broken", {})
    assert (result.failure.code, world.closed) == ("GONE", 1)


def test_a_generator_without_rows_is_an_empty_page(drive):
    result = drive([numbers_tool(World())]).call("numbers", {"most": 0})
    assert result.text == '{"rows":[],"has_more":false,"next":null}'


def test_an_offset_behind_the_end_is_an_empty_page(drive):
    result = drive([numbers_tool(World())]).call("numbers", {"most": 3, "offset": 99})
    assert result.text == '{"rows":[],"has_more":false,"next":null}'


def test_the_model_is_told_of_the_offset_and_cannot_misuse_it(drive):
    tool = numbers_tool(World())
    assert list(tool.parameters["properties"]) == ["most", "offset"]
    assert tool.parameters["required"] == ["most"]
    failure = drive([tool]).call("numbers", {"most": 3, "offset": -1}).failure
    assert failure.code == hr.Code.INVALID_ARGUMENTS


@BOTH
@pytest.mark.parametrize("is_asked_before", [False, True])
def test_a_generator_stays_one_whatever_else_it_is_told(
    drive, is_async, is_asked_before
):
    tool = numbers_tool(World(), is_async=is_async, limits=hr.Limits(result_bytes=1024))
    assert not is_asked_before or tool.parameters
    for declared in ({"effect": "write"}, {"isolation": "process"}):
        with pytest.raises(ToolDefinitionError, match="is a generator"):
            tool.replace(**declared)
    rows, pages = read_all(
        drive([tool.replace(limits=hr.Limits(result_bytes=8192))]), "numbers", most=500
    )
    more_rows, more_pages = read_all(drive([tool]), "numbers", most=500)
    assert rows == more_rows == [{"n": n} for n in range(500)]
    assert pages < more_pages / 4


def test_a_generator_of_a_class_reads_what_it_has_opened_itself_under_another_name_too(
    drive,
):
    class Orders(hr.BaseTool):
        """List orders."""

        effect = "read"

        def open(self):
            self.rows = [self.name]

        def run(self) -> Iterator[str]:
            yield from self.rows

    tools = hr.Toolset([Orders()]).rename({"Orders": "list_orders"})
    assert drive(tools).call("list_orders").value.rows == ["list_orders"]


def test_a_generator_with_arguments_filled_in_is_a_tool_like_any_other(drive):
    def numbers(most: int, step: int = 1) -> Iterator[int]:
        """List numbers."""
        yield from range(0, most, step)

    tool = hr.FunctionTool(
        partial(numbers, step=5),
        name="numbers",
        description="List numbers.",
        effect="read",
    )
    assert drive([tool.replace(timeout_s=9)]).call(
        "numbers", {"most": 12}
    ).value.rows == [0, 5, 10]


def test_a_generator_that_takes_an_offset_starts_there_itself(drive):
    asked = []

    @hr.tool(effect="read")
    def quick(offset: int = 0) -> Iterator[int]:
        """List numbers, from an index.

        Args:
            offset: Where to start.
        """
        asked.append(offset)
        yield from range(offset, 1_000)

    rows, pages = read_all(drive([quick], result_bytes=600), "quick")
    assert (rows, len(asked), asked[-1] > 700) == (list(range(1_000)), pages, True)


def test_a_row_that_is_larger_than_a_page_is_shown_cut_and_the_rest_can_be_read(drive):
    @hr.tool(effect="read")
    def logs() -> Iterator[dict[str, str]]:
        """List log files."""
        yield {"log": "x" * 50_000}
        yield {"log": "short"}

    driver = drive([logs])
    first = driver.call("logs", {})
    assert (first.value.next, len(first.text) <= 16 * 1024, bool(first.note)) == (
        1,
        True,
        True,
    )
    assert driver.call("logs", {"offset": 1}).value.rows == [{"log": "short"}]


def test_a_generator_that_is_skipped_for_ever_ends_with_its_call():
    ended = threading.Event()

    @hr.tool(effect="read", timeout_s=0.2, limits=hr.Limits(max_attempts=1))
    def endless() -> Iterator[int]:
        """Count."""
        try:
            while True:
                yield 1
        finally:
            ended.set()

    with hr.SyncRuntime([endless]) as runtime:
        assert (
            runtime.call("endless", {"offset": 10**15}).failure.code == hr.Code.TIMEOUT
        )
        assert ended.wait(30)  # the thread is free again


def test_a_generator_called_by_hand_is_the_generator_that_it_is():
    assert list(numbers_tool(World())(3, None)) == [{"n": 0}, {"n": 1}, {"n": 2}]


@pytest.mark.parametrize(
    "declared", [{}, {"effect": "write"}, {"effect": "read", "isolation": "process"}]
)
def test_a_generator_is_a_tool_only_as_a_read_in_this_process(declared):
    def rows() -> Iterator[int]:
        """List."""
        yield 1

    with pytest.raises(hr.ToolDefinitionError, match="generator"):
        hr.FunctionTool(rows, **declared)


def test_a_class_of_tools_may_yield_its_rows(drive):
    class Shelf(hr.BaseTool):
        """List books."""

        name, effect = "shelf", "read"

        def open(self):
            self.books = ["A", "B"]

        def run(self) -> Iterator[str]:
            yield from self.books

    assert drive([Shelf()]).call("shelf", {}).value.rows == ["A", "B"]


def test_rows_without_a_json_form_count_as_long_as_they_are_told(drive):
    @hr.tool(effect="read")
    def odd() -> Iterator[object]:
        """List odd things."""
        for n in range(5_000):
            yield ["\ud800", complex(n, 1), object]

    result = drive([odd]).call("odd", {})
    assert (result.ok, 100 < result.value.next < 1_000) == (True, True)


def test_a_page_keeps_the_promise_of_a_generators_hint(drive):
    tool = numbers_tool(World())
    assert (
        difference_from_schema(tool, drive([tool]).call("numbers", {"most": 3}).value)
        == ""
    )


def test_a_cancelled_async_generator_is_closed():
    world, begun = World(), asyncio.Event()

    @hr.tool(effect="read")
    async def slow() -> AsyncIterator[int]:
        """Wait."""
        try:
            yield 1
            begun.set()
            await asyncio.Event().wait()
        finally:
            world.closed += 1

    async def give_up():
        async with hr.Runtime([slow]) as runtime:
            call = asyncio.create_task(runtime.call("slow", {}))
            await begun.wait()
            call.cancel()
            with pytest.raises(asyncio.CancelledError):
                await call

    asyncio.run(give_up())
    assert world.closed == 1


# ---------------------------------------------------------------------- pages that a tool returns


@pytest.mark.parametrize(("page", "text"), [
    (hr.Page([1, 2]), '{"rows":[1,2],"has_more":false,"next":null}'),
    (hr.Page([1], next="c2"), '{"rows":[1],"has_more":true,"next":"c2"}'),
    (hr.Page([[1, "a"]], next=1, offset=0, columns=["id", "name"]),
     '{"columns":["id","name"],"rows":[[1,"a"]],"has_more":true,"next":1}'),
    (hr.Page(()), '{"rows":[],"has_more":false,"next":null}'),
])  # fmt: skip
def test_a_page_is_told_with_the_way_on(page, text):
    assert as_text(page) == text


def test_a_page_that_fits_is_told_whole():
    assert shape(hr.Page([1, 2], next="c2")).cut == ""


def test_a_page_with_a_place_is_made_smaller_and_goes_on_at_the_first_row_not_shown():
    page = hr.Page([{"n": n} for n in range(500)], next=1500, offset=1000)
    shaped = shape(page, 1024)
    told = hr.jsontext.parse(shaped.text).value
    assert (told["next"], told["has_more"], shaped.cut, shaped.whole) == (
        1000 + len(told["rows"]),
        True,
        "",
        "",
    )


def test_a_page_with_a_mark_of_its_own_keeps_the_mark_and_what_was_left_out(drive):
    @hr.tool(effect="read")
    def search() -> hr.Page:
        """Search."""
        return hr.Page([f"row {n}" for n in range(5_000)], next="mark-7")

    driver = drive([search], result_bytes=1024)
    result = driver.call("search", {})
    told = hr.jsontext.parse(result.text).value
    assert (told["next"], told["rows"][0], result.handle in told["note"]) == (
        "mark-7",
        "row 0",
        True,
    )
    assert (told["rows"][-1], told["has_more"]) == ("row 4999", True)


def test_names_that_differ_in_hidden_characters_alone_both_stay():
    shaped = shape([{"id": 1, "id\u200b": 2, "\x7fid": 3}], 512)
    assert shaped.text == '[{"id":1,"id\\\\u200b":2,"\\\\x7fid":3}]'
    assert shaped.hidden == 2


def as_seen(value):
    """Return a JSON value with all names of its objects, without hidden characters, gone or escaped."""
    if isinstance(value, dict):
        return [(as_seen(name), as_seen(part)) for name, part in value.items()]
    if isinstance(value, list):
        return [as_seen(each) for each in value]
    if isinstance(value, str):
        return re.sub(r"\\(x..|u.{4}|U.{8})", "", clean(value))
    return value


@settings(max_examples=60, deadline=None)
@given(
    rows=st.lists(
        st.text(max_size=300)
        | st.integers()
        | st.dictionaries(st.text(max_size=5), st.text(max_size=90))
    ),
    most=st.integers(LEAST_RESULT_BYTES, 4096),
    offset=st.integers(0, 9),
)
def test_a_cut_page_never_loses_a_row(rows, most, offset):
    shaped = shape(hr.Page(rows, next=None, offset=offset), most)
    told = plain(hr.Page(rows)) if not rows else hr.jsontext.parse(shaped.text).value
    assert len(shaped.text.encode()) <= most
    if not shaped.cut:
        shown = len(told["rows"])
        whole = plain(rows)
        if told["rows"] != whole[:shown]:  # hidden characters were removed
            assert shaped.hidden
            assert as_seen(told["rows"]) == as_seen(whole[:shown])
        assert told["next"] == (None if shown == len(rows) else offset + shown)
