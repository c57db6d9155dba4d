"""A generator as a tool: its rows are given to the model page by page.

    @tool(effect="read")
    def orders(user_id: str) -> Iterator[dict]:            # or an async generator
        for row in connection.execute(...):
            yield row

The model gets a parameter `offset` beside the tool's own and reads a `Page`: as many rows as a result may hold, and in
`next` the offset to go on with. A generator that takes `offset` itself starts there; with any other, the rows before
it are read and dropped.

Rule 1: no more rows are taken from a generator than are shown, and one that shows whether there are more.
Rule 2: a generator is closed wherever its reading ends: full, exhausted, failed or given up.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from contextlib import aclosing, closing
from functools import wraps
from typing import Annotated, Any

import pydantic
from pydantic_core import PydanticSerializationError, to_json

from handrail.calls import Page
from handrail.context import Context

PAGE_BYTES = 16 * 1024
"""How much of a generator is read for one page; a smaller size of results makes the page smaller afterwards."""

_ROOM_FOR_THE_REST = 96

# Hidden from the model; a generator that is skipped through for too long is left when its call is given up.
_CALLER = inspect.Parameter(
    "_caller", inspect.Parameter.KEYWORD_ONLY, annotation=Context[Any]
)


def find_rows(run: Callable[..., Any]) -> Callable[..., Any] | None:
    """Return the generator function, plain or async, that a function is or gives the pages of; None of any other."""
    if inspect.isgeneratorfunction(run) or inspect.isasyncgenfunction(run):
        return run
    return getattr(run, "pages_of", None)


def make_pages(
    run: Callable[..., Any], page_bytes: int = PAGE_BYTES
) -> Callable[..., Any]:
    """Return a function that gives one `Page` of what a generator function yields; async if that is."""
    signature = inspect.signature(run)
    starts_there = "offset" in signature.parameters

    def begin(own: dict[str, Any]) -> tuple[Any, Gathering]:
        if starts_there:
            offset = own.get("offset", 0)
            to_skip = 0
        else:
            offset = own.pop("offset", 0)
            to_skip = offset
        return run(**own), Gathering(offset, to_skip, page_bytes - _ROOM_FOR_THE_REST)

    def page(*, _caller: Context[Any], **own: Any) -> Page:
        source, gathered = begin(own)
        with closing(source):
            for row in source:
                if _caller.cancelled.is_set() or not gathered.take(row):
                    break
        return gathered.page()

    async def page_async(*, _caller: Context[Any], **own: Any) -> Page:
        source, gathered = begin(own)
        async with aclosing(source):
            async for row in source:
                if _caller.cancelled.is_set() or not gathered.take(row):
                    break
        return gathered.page()

    is_async = inspect.isasyncgenfunction(run)
    wrapper: Any = wraps(run)(page_async if is_async else page)
    added = [_CALLER] if starts_there else [_make_offset(), _CALLER]
    wrapper.__signature__ = signature.replace(
        parameters=[*signature.parameters.values(), *added], return_annotation=Page
    )
    wrapper.pages_of = run
    wrapper.__annotations__ = {**getattr(run, "__annotations__", {}), "return": Page}
    return wrapper  # type: ignore[no-any-return]  # it has the attributes of `run`


def _make_offset() -> inspect.Parameter:
    text = (
        "How many rows to leave out from the start: `next` of the page before, else 0."
    )
    hint = Annotated[int, pydantic.Field(ge=0, description=text)]
    return inspect.Parameter(
        "offset", inspect.Parameter.KEYWORD_ONLY, default=0, annotation=hint
    )


class Gathering:
    """The rows of one page, while they come.

    Args:
        offset: The place of the first row that is taken, among all.
        to_skip: How many come before it.
        room_bytes: How long the rows may be together as JSON; the first one always has a place.
        most_rows: How many there may be.
    """

    def __init__(
        self, offset: int, to_skip: int, room_bytes: int, most_rows: int | None = None
    ) -> None:
        self.offset = offset
        self.to_skip = to_skip
        self.room_bytes = room_bytes
        self.most_rows = most_rows
        self.rows: list[Any] = []
        self.has_more = False

    def take(self, row: Any) -> bool:
        """Take one row more; False when it has no place here."""
        if self.to_skip:
            self.to_skip -= 1
            return True
        self.room_bytes -= _size(row) + 1
        if self.rows and (self.room_bytes < 0 or len(self.rows) == self.most_rows):
            self.has_more = True
            return False
        self.rows.append(row)
        return True

    def page(self, columns: Sequence[str] = ()) -> Page:
        """Return what came."""
        following = self.offset + len(self.rows) if self.has_more else None
        return Page(self.rows, following, self.offset, columns)


def _size(row: Any) -> int:
    """Return the bytes of a row as JSON; of what has no such form, about those of its `repr`."""
    try:
        return len(to_json(row, inf_nan_mode="strings", fallback=repr))
    except (PydanticSerializationError, ValueError, TypeError, RecursionError):
        return len(repr(row))
