"""Rates and breakers as rows of a store, so that they hold for all processes that use it; see `ports.LimitStore`.

Rule 1: all is counted by the database's clock.
Rule 2: where many write at once each statement is a transaction of its own, which ends on the server: a process that is
        frozen in the middle holds no row that others wait for.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import Future
from functools import cache
from typing import Any

from handrail.records import BreakerState, Starts
from handrail.stores.database import Database
from handrail.stores.durable import DurableStore
from handrail.stores.requests import GroupOperation
from handrail.stores.sql_values import decode_name, encode_name, statements

_CLOCKS = {
    False: ("(julianday('now') - 2440587.5) * 86400.0", ""),
    True: (
        "CAST(extract(epoch FROM clock_timestamp()) AS double precision)",
        " FOR UPDATE SKIP LOCKED",
    ),
}
"""The time, and how rows are passed by that somebody holds; in SQLite and on a server."""

_FORGET_EVERY = 100
"""After how many takes a process deletes the buckets that are full again."""


@cache
def _sql(is_shared: bool) -> dict[str, str]:
    clock, holding = _CLOCKS[is_shared]
    return {
        name: text.replace(":now", clock).replace(":holding", holding)
        for name, text in statements("limits.sql").items()
    }


class SharedLimitRows(DurableStore):
    """What a store has for rates and breakers."""

    _takes = 0

    def take_starts(
        self, bucket: str, *, starts: int, seconds: float, most: int, longest_s: float
    ) -> Future[Starts]:
        """See `ports.LimitStore.take_starts`."""
        name = encode_name(bucket)
        given = (name, most, seconds / starts, seconds, min(longest_s, 1e9))
        self._takes += 1
        is_time = self._takes % _FORGET_EVERY == 0

        def take(database: Database, sql: dict[str, str]) -> Starts:
            rows = database.run(sql["take"], given)
            if not rows and database.run(sql["set_back"], (name,)):
                rows = database.run(sql["take"], given)
            if is_time:
                database.run(sql["forget_full"])
            if rows:
                [[count, wait_s]] = rows
                return Starts(int(count), max(0.0, float(wait_s)))
            return Starts(0, float(database.run(sql["next_start"], (name,))[0][0]))

        return self._ask(take)

    def note_unreached(
        self, tool: str, *, most: int, rest_s: float
    ) -> Future[BreakerState]:
        """See `ports.LimitStore.note_unreached`."""
        given = (encode_name(tool), most, rest_s, rest_s)

        def note(database: Database, sql: dict[str, str]) -> BreakerState:
            [row] = database.run(sql["unreached"], given)
            return _state(row)

        return self._ask(note)

    def note_reached(self, tool: str) -> Future[None]:
        """See `ports.LimitStore.note_reached`."""
        name = encode_name(tool)

        def note(database: Database, sql: dict[str, str]) -> None:
            database.run(sql["reached"], (name,))

        return self._ask(note)

    def try_tool(self, tool: str, *, within_s: float) -> Future[float]:
        """See `ports.LimitStore.try_tool`."""
        name = encode_name(tool)

        def take(database: Database, sql: dict[str, str]) -> float:
            if database.run(sql["try"], (within_s, name)):
                return 0.0
            for rest_s, tried_s in database.run(sql["rest"], (name,)):
                return max(float(rest_s), 1.0 if (tried_s or 0.0) > 0 else 0.0)
            return 0.0

        return self._ask(take)

    def list_breakers(self) -> Future[Sequence[BreakerState]]:
        """See `ports.LimitStore.list_breakers`."""

        sql = _sql(self.has_own_connections)

        def load(database: Database) -> list[BreakerState]:
            return [_state(row) for row in database.run(sql["breakers"])]

        return self._writer.submit(load)

    def _ask(self, operation: Callable[[Database, dict[str, str]], Any]) -> Future[Any]:
        """Carry out an operation: between two groups on a server, in a group where one writes at a time."""
        sql = _sql(self.has_own_connections)
        if self.has_own_connections:
            return self._writer.submit(lambda database: operation(database, sql))
        return self._writer.submit(
            GroupOperation(lambda database, _now, _: [operation(database, sql)])
        )


def _state(row: Sequence[Any]) -> BreakerState:
    tool, failures, rest_s = row
    return BreakerState(
        decode_name(tool), int(failures), None if rest_s is None else float(rest_s)
    )
