"""Runs that begin by the clock: `[schedule.NAME]` in `handrail.toml`.

    [schedule.report]
    cron = "0 7 * * mon-fri"
    time_zone = "Europe/Berlin"
    question = "Write the report of yesterday."

Every worker with a schedule looks at the clock and submits what is due. A run is named after its entry and its tick, so
that each tick is submitted once, whichever workers see it.

Rule 1: a tick of the last minute is submitted by a worker that starts after it: a restart loses none. An older one is
        not: nobody wants a week of reports at once. The same holds for a worker that was frozen, and after the clock
        was set. Only what the store did not take is submitted later.
"""

from __future__ import annotations

import asyncio
import logging
import re
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any, Protocol
from zoneinfo import ZoneInfo

from msgspec import Struct

from handrail.dispatch.submitting import check_model, check_place
from handrail.engine.scoped_store import check_scope
from handrail.errors import (
    ConfigError,
    RunNameTaken,
    StoreUnavailable,
    describe_install,
)

try:
    from cronsim import CronSim, CronSimError
except ImportError as missing:
    raise ConfigError(
        f"a schedule needs cronsim; install it: {describe_install('workers')}"
    ) from missing

log = logging.getLogger("handrail.worker")

CATCH_UP = timedelta(seconds=60)
"""How old a tick may be that a worker finds: longer than it sleeps, and than its store takes to fail."""

_LONGEST_SLEEP_S = 15.0
_MOST_LEFT = 1000
"""How many ticks may wait for a store that does not answer; beyond that the oldest are dropped."""
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,99}")
_KEYS = {
    "cron": str, "question": str, "time_zone": str, "queue": str, "model": str, "system": str, "scope": str,
    "priority": int,
}  # fmt: skip


class Submits(Protocol):
    """What a schedule needs of a `Runtime`."""

    async def submit(self, question: str, *, model: str = "", **options: Any) -> str:
        """See `Runtime.submit`."""
        ...


class Scheduled(Struct, frozen=True):
    """A run that begins by the clock.

    Attributes:
        cron: Five fields, as in crontab(5).
        time_zone: In which the fields are read, such as `Europe/Berlin`.
        model: By name; empty for the worker's.
        scope: The tenant.
    """

    name: str
    cron: str
    question: str
    time_zone: str = "UTC"
    queue: str = "default"
    model: str = ""
    system: str = ""
    scope: str = ""
    priority: int = 0

    def ticks(self, after: datetime, until: datetime) -> list[datetime]:
        """Return the ticks after one moment up to another, in UTC."""
        zone = ZoneInfo(self.time_zone)
        found = []
        for tick in CronSim(self.cron, after.astimezone(zone)):
            if tick > until:
                break
            found.append(tick.astimezone(UTC))
        return found

    def next_tick(self, after: datetime) -> datetime:
        """Return the first tick after a moment, in UTC."""
        zone = ZoneInfo(self.time_zone)
        tick: datetime = next(CronSim(self.cron, after.astimezone(zone)))
        return tick.astimezone(UTC)

    def run_id(self, tick: datetime) -> str:
        """Return the name of the run of a tick.

        >>> from datetime import datetime, timezone
        >>> Scheduled("report", "0 7 * * *", "...").run_id(datetime(2026, 11, 23, 7, tzinfo=timezone.utc))
        'report-20261123T0700Z'
        """
        return f"{self.name}-{tick:%Y%m%dT%H%MZ}"


def read_schedule(tables: Mapping[str, Any]) -> list[Scheduled]:
    """Return the entries of the tables `[schedule.NAME]`.

    Raises:
        ConfigError: An entry has another key, lacks one, its cron or time zone cannot be read, or `Runtime.submit`
            would refuse it.
    """
    return [_read_entry(name, table) for name, table in tables.items()]


def _read_entry(name: str, table: Any) -> Scheduled:
    if not _NAME.fullmatch(name):
        raise ConfigError(
            f"a table [schedule.NAME] is named {name!r}; write letters, digits, `-`, `_` and `.`"
        )
    where = f"[schedule.{name}]"
    if not isinstance(table, Mapping):
        raise ConfigError(f"{where} is {table!r}; write a table")
    for key, value in table.items():
        kind = _KEYS.get(key)
        if kind is None:
            raise ConfigError(
                f"{where} has {key!r}, which is not a setting of it; the settings are {', '.join(_KEYS)}"
            )
        if not isinstance(value, kind) or isinstance(value, bool):
            wanted = "a whole number" if kind is int else "text in quotes"
            raise ConfigError(f"`{key}` of {where} is {value!r}; write {wanted}")
    for key in ("cron", "question"):
        if not table.get(key, "").strip():
            raise ConfigError(f"{where} has no `{key}`")
    entry = Scheduled(name, **table)
    _check_times(entry, where)
    try:
        check_model(entry.model)
        check_place(entry.queue, entry.priority)
        check_scope(entry.scope)
    except ConfigError as error:
        raise ConfigError(f"{where}: {error}") from error
    return entry


def _check_times(entry: Scheduled, where: str) -> None:
    try:
        ZoneInfo(entry.time_zone)
    except (OSError, ValueError, LookupError) as error:
        raise ConfigError(
            f"`time_zone` of {where} is {entry.time_zone!r}, which this machine does not know; write one such as "
            "Europe/Berlin (the package tzdata has them all)"
        ) from error
    if len(entry.cron.split()) != 5:
        raise ConfigError(
            f"`cron` of {where} is {entry.cron!r}; write five fields: minute, hour, day, month, day of the week"
        )
    try:
        entry.next_tick(datetime(2026, 1, 1, tzinfo=UTC))
    except (CronSimError, StopIteration) as error:
        raise ConfigError(
            f"`cron` of {where} is {entry.cron!r}, which never comes or cannot be read: {error}"
        ) from error


class Scheduler:
    """Submits the runs of a schedule when they are due.

    Args:
        now: The time, with its zone; a test may move it by hand.

    Raises:
        ConfigError: Two entries have the same name, and their runs would have it too.
    """

    def __init__(
        self,
        runtime: Submits,
        entries: Sequence[Scheduled],
        *,
        now: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        names = [(entry.scope, entry.name) for entry in entries]
        for scope, name in names:
            if names.count((scope, name)) > 1:
                raise ConfigError(
                    f"two schedules are named {name!r}: their runs would have one name, so give one of them another"
                )
        self._runtime = runtime
        self._entries = entries
        self._now = now
        self._looked = now() - CATCH_UP
        self._left: deque[tuple[Scheduled, datetime]] = deque(maxlen=_MOST_LEFT)
        """Ticks that came and were not submitted yet, the oldest first."""

    async def work(self) -> None:
        """Submit what is due, until the task is cancelled."""
        while True:
            await self.submit_due()
            now = self._now()
            soonest = min(entry.next_tick(now) for entry in self._entries)
            # not for longer: somebody may set the clock
            await asyncio.sleep(
                min((soonest - now).total_seconds() + 0.05, _LONGEST_SLEEP_S)
            )

    async def submit_due(self) -> int:
        """Submit the runs of all ticks since the last look; return how many were new."""
        self._find_ticks()
        count = 0
        while self._left:
            entry, tick = self._left[0]
            try:
                count += await self._submit(entry, tick)
            except StoreUnavailable as error:  # the same ticks again, at the next look
                log.warning("the schedule %s: %s", entry.name, error)
                self._left.rotate(-1)  # then another one comes first
                break
            self._left.popleft()
        return count

    def _find_ticks(self) -> None:
        """Note the ticks since the last look. A clock that was set back shows some again: their runs have names."""
        now = self._now()
        since = max(self._looked, now - CATCH_UP)
        self._looked = now
        for entry in self._entries:
            self._left.extend((entry, tick) for tick in entry.ticks(since, now))

    async def _submit(self, entry: Scheduled, tick: datetime) -> bool:
        run_id = entry.run_id(tick)
        submit = partial(
            self._runtime.submit,
            entry.question,
            model=entry.model,
            system=entry.system,
            run_id=run_id,
            queue=entry.queue,
            priority=entry.priority,
            scope=entry.scope,
        )
        try:
            await submit()
        except RunNameTaken:
            pass
        else:
            log.info("the schedule %s has submitted the run %s", entry.name, run_id)
            return True
        try:
            await submit(idempotent=True)  # another worker was quicker
        except RunNameTaken:
            log.warning(
                "the schedule %s did not submit the run %s: a run of that name asks something else; "
                "rename one of the two schedules",
                entry.name,
                run_id,
            )
        return False
