"""Runs in memory, beside writes and questions: what `ports` promises of them, for as long as the process lives."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from msgspec.structs import replace

from handrail.errors import Fenced
from handrail.ports import BrowsedRun
from handrail.records import JournalEntry, JournalStep, RunRecord, StoredRun
from handrail.stores.memory import MemoryStore
from handrail.surroundings.clock import monotonic, unix_time


class FullMemoryStore(MemoryStore):
    """Everything that a durable store keeps, except the audit log, in memory. Safe for threads.

    Args:
        clock: Unix time in seconds.
        now: Monotonic seconds.
    """

    def __init__(
        self,
        *,
        clock: Callable[[], float] = unix_time,
        now: Callable[[], float] = monotonic,
    ) -> None:
        super().__init__(clock=clock, now=now)
        self._runs: dict[str, RunRecord] = {}
        self._steps: dict[str, dict[str, JournalStep]] = {}
        self._step_times: dict[str, dict[str, float]] = {}

    # ------------------------------------------------------------------ runs

    def begin_run(
        self,
        record: RunRecord,
        *,
        new: bool = False,
        unchanged: bool = False,
        steps: Sequence[JournalStep] = (),
    ) -> StoredRun:
        """See `ports.RunStore.begin_run`."""
        with self._lock:
            now = self._clock()
            stored = self._runs.get(record.run_id)
            if new and stored is not None:
                raise stored.name_taken()
            if unchanged and (stored is None or not _is_unchanged(stored, record)):
                raise Fenced(
                    f"the run {record.run_id!r} has been taken over, or ended by somebody else"
                )
            earlier = stored or replace(record, created=now, epoch=0)
            taken = replace(
                earlier,
                epoch=earlier.epoch + 1,
                status="running",
                updated=now,
                owner=record.owner,
                cancel_requested=_is_to_end(earlier, record),
                takeovers=earlier.takeovers_at(now),
            )
            self._runs[record.run_id] = taken
            all_steps = self._steps.setdefault(record.run_id, {})
            for step in steps:
                all_steps.setdefault(step.key, step)
                self._note_time(record.run_id, step.key, now)
            has_steps = unchanged and steps
            return StoredRun(taken, () if has_steps else tuple(all_steps.values()))

    def append_entry(self, entry: JournalEntry) -> bool:
        """See `ports.RunStore.append_entry`."""
        with self._lock:
            record = self._runs.get(entry.run_id)
            if record is None or record.epoch != entry.epoch:
                raise Fenced(f"the run {entry.run_id!r} has been taken over")
            status = entry.status or record.status
            # a run whose end is wanted does not wait
            if entry.status == "waiting" and record.cancel_requested:
                status = "cancelled"
            steps = self._steps[entry.run_id]
            now = self._clock()
            for step in entry.steps:
                steps.setdefault(step.key, step)
                self._note_time(entry.run_id, step.key, now)
            self._runs[entry.run_id] = replace(
                record,
                status=status,
                result=record.result if entry.result is None else entry.result,
                updated=now,
            )
            if status == "cancelled":
                self._close_approvals(entry.run_id)
            return record.cancel_requested

    def load_run(self, run_id: str) -> StoredRun | None:
        """See `ports.RunStore.load_run`."""
        with self._lock:
            record = self._runs.get(run_id)
            if record is None:
                return None
            return StoredRun(record, tuple(self._steps[run_id].values()))

    def list_runs(self, *, status: str = "", most: int = 100) -> Sequence[RunRecord]:
        """See `ports.RunStore.list_runs`."""
        with self._lock:
            newest_first = reversed(self._runs.values())
            return [record for record in newest_first if status in ("", record.status)][
                :most
            ]

    def _note_time(self, run_id: str, key: str, now: float) -> None:
        self._step_times.setdefault(run_id, {}).setdefault(key, now)

    def browse_runs(
        self, *, before: int | None = None, since: float = 0.0, most: int = 100
    ) -> Sequence[BrowsedRun]:
        """See `ports.BrowsableRunStore.browse_runs`."""
        with self._lock:
            numbered = list(enumerate(self._runs.items(), 1))
            return [
                BrowsedRun(
                    number, StoredRun(record, tuple(self._steps[run_id].values()))
                )
                for number, (run_id, record) in reversed(numbered)
                if (before is None or number < before) and record.updated >= since
            ][:most]

    def step_times(self, run_id: str) -> Mapping[str, float]:
        """See `ports.BrowsableRunStore.step_times`."""
        with self._lock:
            return dict(self._step_times.get(run_id, {}))

    def request_cancel(self, run_id: str) -> bool:
        """See `ports.RunStore.request_cancel`."""
        with self._lock:
            record = self._runs.get(run_id)
            if record is None or record.status not in (
                "running",
                "waiting",
                "queued",
                "poisoned",
            ):
                return False
            cancelled = replace(record, cancel_requested=True)
            if record.status != "running":  # nobody drives it, and nobody is to
                cancelled = replace(
                    cancelled, status="cancelled", epoch=record.epoch + 1
                )
            self._runs[run_id] = cancelled
            self._close_approvals(run_id)
            return True


def _is_unchanged(stored: RunRecord, loaded: RunRecord) -> bool:
    """Whether nobody has taken a run over since it was loaded, and nobody has ended it but with an answer."""
    if stored.epoch != loaded.epoch:
        return False
    is_ended = stored.status in ("cancelled", "failed", "poisoned")
    return stored.status == loaded.status or not is_ended


def _is_to_end(stored: RunRecord, loaded: RunRecord) -> bool:
    """Whether the end of a run that is taken over is still wanted, by its state and by what was loaded."""
    if not stored.cancel_requested:
        return False
    if stored.status == "cancelled":
        read = (loaded.epoch, loaded.status)
        # cancelled since it was loaded, by whoever wants its end
        return loaded.epoch > 0 and read != (stored.epoch, "cancelled")
    return stored.status in ("running", "queued", "waiting")
