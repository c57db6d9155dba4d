"""The runs of a store in rows, in memory: what a list shows and a search looks through.

The store is read through once, a few hundred runs at a time so that nobody who writes waits long. After that only what
has changed is read again.

Rule 1: a row is what the store said at the last look, never older than a second when it is shown.
"""

from __future__ import annotations

import time
from bisect import bisect_left
from collections.abc import Callable, Iterator, Sequence
from threading import Lock

from msgspec import Struct

from handrail.futures import result_now
from handrail.history.summaries import RunSummary, summarize
from handrail.ports import BrowsableRunStore, RunStore
from handrail.server.access import Principal

PAGE = 200
FRESH_S = 1.0
_OVERLAP_S = 5.0
"""Changes so long before the newest known one are read again: transactions may be committed in another order."""
_MOST_WITHOUT_BROWSING = 1_000


class RunFilter(Struct, frozen=True):
    """Which runs are looked for; an empty member asks for nothing.

    Attributes:
        words: Each is in the question, or in the name of the run.
    """

    words: tuple[str, ...] = ()
    status: str = ""
    tool: str = ""
    failure: str = ""
    is_waiting: bool = False

    def takes(self, row: Row) -> bool:
        """Whether a run is looked for."""
        summary = row.summary
        return (
            (not self.status or summary.status == self.status)
            and (not self.tool or self.tool in summary.tools)
            and (not self.failure or self.failure in summary.failures)
            and (not self.is_waiting or summary.status == "waiting")
            and all(word in row.text for word in self.words)
        )


class Row(Struct, frozen=True):
    """A run in the index; `text` is what words are looked for in."""

    number: int
    summary: RunSummary
    text: str


class RunIndex:
    """The rows of a store's runs. Safe for threads."""

    def __init__(
        self, store: object, now: Callable[[], float] = time.monotonic
    ) -> None:
        self._store = store
        self._now = now
        self._lock = Lock()
        self._rows: dict[int, Row] = {}
        self._numbers: list[int] = []
        self._newest = 0.0
        self._looked = float("-inf")
        self._is_read = False

    def refresh(self, *, at_least: float = FRESH_S) -> Sequence[RunSummary]:
        """Read what has changed, unless that was done this long ago; return what has, since the last time."""
        with self._lock:
            if self._now() - self._looked < at_least:
                return ()
            changed = [each.summary for each in self._read() if self._enter(each)]
            is_news = self._is_read
            self._is_read = True
            self._looked = self._now()
            return changed if is_news else ()

    def _read(self) -> Iterator[Row]:
        store = self._store
        if isinstance(store, BrowsableRunStore):
            since = max(0.0, self._newest - _OVERLAP_S)
            after = 0
            while True:
                runs = result_now(
                    store.browse_runs(after=after, since=since, most=PAGE)
                )
                for each in runs:
                    yield _make_row(each.number, summarize(each.stored))
                if len(runs) < PAGE:
                    return
                after = runs[-1].number
        if isinstance(store, RunStore):
            records = result_now(store.list_runs(most=_MOST_WITHOUT_BROWSING))
            for number, record in enumerate(reversed(records), 1):
                stored = result_now(store.load_run(record.run_id))
                if stored is not None:
                    yield _make_row(number, summarize(stored))

    def _enter(self, row: Row) -> bool:
        """Take a row; return whether it is new or differs from the one before."""
        before = self._rows.get(row.number)
        if before is not None and before.summary == row.summary:
            return False
        if before is None:
            place = bisect_left(self._numbers, row.number)
            self._numbers.insert(place, row.number)
        self._rows[row.number] = row
        self._newest = max(self._newest, row.summary.updated)
        return True

    def search(
        self, wanted: RunFilter, by: Principal, *, before: int | None, most: int
    ) -> tuple[list[RunSummary], int | None]:
        """Return runs, the newest first, and what to go on with; None when these were the last.

        Args:
            before: Only runs with a smaller number.
        """
        with self._lock:
            numbers = self._numbers
            end = len(numbers) if before is None else bisect_left(numbers, before)
            found: list[RunSummary] = []
            for place in range(end - 1, -1, -1):
                row = self._rows[numbers[place]]
                if not wanted.takes(row) or not by.sees(row.summary.id):
                    continue
                if len(found) == most:
                    return found, numbers[place] + 1
                found.append(row.summary)
            return found, None

    def __len__(self) -> int:
        return len(self._rows)


def _make_row(number: int, summary: RunSummary) -> Row:
    return Row(number, summary, f"{summary.question}\n{summary.id}".casefold())
