"""The runs of a store in rows, in memory: what a list shows and a search looks through.

The store is read once in full, a few hundred runs at a time so that writers do not wait long. After that only changes
are read.

Rule 1: a row shows the store as of the last refresh, at most a second ago.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterator, Sequence
from threading import Lock

from msgspec import Struct

from handrail.futures import result_now
from handrail.history.summaries import RunSummary, summarize
from handrail.ports import BrowsableRunStore, RunStore
from handrail.surroundings.clock import monotonic
from handrail_server.access import Principal

PAGE = 200
FRESH_S = 1.0
_OVERLAP_S = 5.0
"""How far before the newest row changes are read again: transactions may be committed out of order."""
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

    def choose(self, rows: Sequence[RunRow]) -> Sequence[RunRow]:
        """Return the runs that are looked for; one quick pass over all of them for each member."""
        for word in self.words:
            rows = [row for row in rows if word in row.text]
        if status := "waiting" if self.is_waiting else self.status:
            rows = [row for row in rows if row.summary.status == status]
        if self.is_waiting and self.status not in ("", "waiting"):
            rows = []
        if tool := self.tool:
            rows = [row for row in rows if tool in row.summary.tools]
        if failure := self.failure:
            rows = [row for row in rows if failure in row.summary.failures]
        return rows


class RunRow(Struct, frozen=True):
    """A run in the index; `text` is what words are looked for in."""

    number: int
    summary: RunSummary
    text: str


class RunIndex:
    """The rows of a store's runs. Safe for threads."""

    def __init__(self, store: object, now: Callable[[], float] = monotonic) -> None:
        self._store = store
        self._now = now
        self._reading = Lock()
        self._lock = Lock()
        self._rows: list[RunRow] = []
        """By rising number."""
        self._newest = 0.0
        self._looked = float("-inf")
        self.is_complete = False
        """Whether the store was read through; until then the newest runs are there."""

    def refresh(self, *, at_least: float = FRESH_S) -> Sequence[RunSummary]:
        """Read the changed runs, unless the last look is less than `at_least` seconds ago; return them.

        The first look reads every run, and returns none.
        """
        with self._reading:
            if self._now() - self._looked < at_least:
                return ()
            since = self._newest - _OVERLAP_S if self.is_complete else 0.0
            changed: list[RunSummary] = []
            for rows in self._read(max(0.0, since)):
                with self._lock:
                    changed += [each.summary for each in rows if self._enter(each)]
            was_complete = self.is_complete
            self.is_complete = True
            self._looked = self._now()
            return changed if was_complete else ()

    def read_newest(self) -> None:
        """Read the newest runs: while the store has not been read through, that is what people ask for."""
        store = self._store
        if isinstance(store, BrowsableRunStore):
            runs = result_now(store.browse_runs(most=PAGE))
            with self._lock:
                for each in runs:
                    self._enter(_make_row(each.number, summarize(each.stored)))

    def _read(self, since: float) -> Iterator[list[RunRow]]:
        """Yield what was changed since a time, the newest runs first."""
        store = self._store
        if isinstance(store, BrowsableRunStore):
            before: int | None = None
            while runs := result_now(
                store.browse_runs(before=before, since=since, most=PAGE)
            ):
                yield [_make_row(each.number, summarize(each.stored)) for each in runs]
                before = runs[-1].number
        elif isinstance(store, RunStore):
            records = result_now(store.list_runs(most=_MOST_WITHOUT_BROWSING))
            loaded = [result_now(store.load_run(each.run_id)) for each in records]
            yield [
                _make_row(len(loaded) - place, summarize(each))
                for place, each in enumerate(loaded)
                if each is not None
            ]

    def _enter(self, row: RunRow) -> bool:
        """Take a row; return whether it is new or differs from the one before."""
        self._newest = max(self._newest, row.summary.updated)
        place = bisect_left(self._rows, row.number, key=_number)
        if place < len(self._rows) and self._rows[place].number == row.number:
            if self._rows[place].summary == row.summary:
                return False
            self._rows[place] = row
        else:
            self._rows.insert(place, row)
        return True

    def search(
        self, wanted: RunFilter, by: Principal, *, before: int | None, most: int
    ) -> tuple[list[RunSummary], int | None]:
        """Return runs, the newest first, and the `before` of the next page; None after the last page.

        Args:
            before: Only runs with a smaller number.
        """
        with self._lock:
            rows: Sequence[RunRow] = self._rows
            if before is not None:
                rows = rows[: bisect_left(rows, before, key=_number)]
            chosen = wanted.choose(rows)
            if by.scope is not None:
                chosen = [row for row in chosen if by.sees(row.summary.id)]
            found = [row.summary for row in chosen[-1 : -most - 1 : -1]]
            has_more = len(chosen) > most
            return found, chosen[-most].number if has_more else None

    def __len__(self) -> int:
        return len(self._rows)


def _number(row: RunRow) -> int:
    return row.number


def _make_row(number: int, summary: RunSummary) -> RunRow:
    return RunRow(number, summary, f"{summary.question}\n{summary.id}".casefold())
