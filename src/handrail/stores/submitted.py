"""Runs that were submitted to workers: how each is carried out, and when its next segment is enqueued.

A submitted run has a row here until it is over. Its segments are numbered; a dispatcher, see `dispatch`, gives each to
one worker.

Rule 1: a run and the segment that carries it on are changed in one transaction: neither is there without the other.
Rule 2: whoever may enqueue a segment holds the run's row first. So an answer that comes while a worker ends its segment
        is found by one of the two, and never by neither.
Rule 3: where segments cannot be enqueued yet, since no worker has made their tables, the first sweep of one enqueues
        them: no person's decision fails for that.
Rule 4: a run that must wait for a lease has no segment meanwhile, so no worker can die in it. A sweep enqueues the
        same segment afterwards: earlier deaths in it still count. A run whose model is away waits in the same way, but
        the sweep enqueues its next segment: no worker died in this one.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from typing import Any

from msgspec.structs import replace

from handrail.errors import ConfigError, RunNameTaken
from handrail.journal.codec import model_key
from handrail.records import (
    ModelWait,
    RunRecord,
    StoredRun,
    Submission,
    SubmittedRun,
    describe_time,
)
from handrail.stores.database import Database
from handrail.stores.limits import SharedLimitRows
from handrail.stores.sql_values import (
    decode_name,
    encode_journal,
    encode_json,
    encode_name,
    encode_run_id,
    statements,
)

_SQL = statements("submitted.sql")

STALE_S = 60.0
"""How many seconds after a sweep has looked at a run the next one looks at it again, for a segment that was lost."""

AGAIN_S = 5.0
"""Seconds until a sweep looks again at a run whose wait is over, and whose segment a worker still holds."""

LOOK_AGAIN_S = 60.0
"""Seconds until a waiting run without a question of its own looks again."""

MAX_SWEPT = 50
"""How many runs of each kind one sweep looks at; the next sweep looks at the others."""

_OVER = ("done", "failed", "cancelled", "poisoned")


class SubmittedRuns(SharedLimitRows):
    """What a store of runs has for workers."""

    # what `DurableRuns` has
    _submit: Callable[[Callable[[Any, float], Any]], Future[Any]]
    _load_stored: Callable[[Database, str], StoredRun | None]

    def _enqueue_segment(self, database: Database, segment: Sequence[Any]) -> bool:
        """Enqueue a segment by run, number, queue and lane, all encoded; return False where it is there.

        The segments of a lane wait one behind the other, and lanes take turns.

        Raises:
            ConfigError: There are no tables for it yet.
        """
        raise NotImplementedError

    def submit_run(
        self, record: RunRecord, submission: Submission
    ) -> Future[RunRecord]:
        """See `ports.SubmittedRunStore.submit_run`."""
        run_id = encode_run_id(record.run_id)
        described = (
            run_id,
            record.toolset,
            record.journal_v,
            encode_journal(record.input),
        )
        placed = (
            encode_name(submission.queue),
            submission.priority,
            encode_json(list(submission.tools)),
        )

        def submit(database: Database, now: float) -> RunRecord | RunNameTaken:
            if not database.run(_SQL["submit"], (*described, now, now)):
                stored = self._load_stored(database, run_id)
                assert stored is not None
                return stored.record.name_taken()
            database.run(_SQL["place"], (run_id, *placed, now))
            self._enqueue(database, [run_id, 1, *placed[:2]])
            return replace(record, status="queued", epoch=1, created=now, updated=now)

        return self._submit(submit)

    def take_segment(
        self, run_id: str, number: int, *, after_death: bool
    ) -> Future[SubmittedRun | None]:
        """See `ports.SubmittedRunStore.take_segment`."""
        run_id = encode_name(run_id)

        def take(database: Database, _: float) -> SubmittedRun | None:
            rows = database.run(_SQL["placed"], (run_id,))
            if not rows:
                return None
            submission = _submission(rows[0])
            stored = self._load_stored(database, run_id)
            if stored is None or stored.record.status in _OVER:
                database.run(_SQL["forget"], (run_id,))
                return None
            if number < submission.segment:
                return None
            if after_death and stored.record.status == "running":
                [[deaths]] = database.run(_SQL["died"], (run_id,))
                submission = replace(submission, deaths=deaths)
            database.run(_SQL["begin"], (run_id,))
            return SubmittedRun(stored, submission)

        return self._submit(take)

    def finish_segment(
        self,
        run_id: str,
        number: int,
        *,
        wait_s: float = 0.0,
        why: str = "",
        model_turn: int = 0,
    ) -> Future[RunRecord | None]:
        """See `ports.SubmittedRunStore.finish_segment`."""
        run_id = encode_name(run_id)

        def finish(database: Database, now: float) -> RunRecord | None:
            held = database.run(_SQL["lock"], (now, run_id))
            stored = self._load_stored(database, run_id)
            if stored is None or stored.record.status in _OVER:
                database.run(_SQL["forget"], (run_id,))
                return None if stored is None else stored.record
            if not held or held[0][0] != number:
                return stored.record
            if stored.record.status == "waiting":
                if held[0][1]:
                    self._go_on(database, run_id, now)
                else:
                    _set_wake_up(database, run_id, now)
            elif stored.record.status == "queued":
                # whoever has asked for its end does not wait for it
                if wait_s and not stored.record.cancel_requested:
                    _postpone(database, run_id, now, wait_s, why, model_turn)
                else:
                    self._enqueue_next(database, run_id, now)
            return stored.record

        return self._submit(finish)

    def note_segment(self, run_id: str, note: str) -> Future[None]:
        """See `ports.SubmittedRunStore.note_segment`."""
        given = (encode_json(note), encode_name(run_id))

        def write_note(database: Database, _: float) -> None:
            database.run(_SQL["note"], given)

        return self._submit(write_note)

    def sweep_submitted(self) -> Future[int]:
        """See `ports.SubmittedRunStore.sweep_submitted`."""

        def sweep(database: Database, now: float) -> int:
            count = 0
            for row in database.run(_SQL["expired"], (now, MAX_SWEPT)):
                count += self._wake_up(database, row, now)
            for row in database.run(_SQL["stale"], (now - STALE_S, MAX_SWEPT)):
                count += self._recover(database, row, now)
            return count

        return self._submit(sweep)

    def wake_run(self, run_id: str) -> Future[bool]:
        """See `ports.SubmittedRunStore.wake_run`."""
        run_id = encode_name(run_id)

        def wake(database: Database, now: float) -> bool:
            if not database.run(_SQL["hold"], (run_id,)):
                return False
            stored = self._load_stored(database, run_id)
            submission = _submission(database.run(_SQL["placed"], (run_id,))[0])
            if stored is None or not waits_for_model(stored, submission):
                return False
            for row in database.run(_SQL["stop_waiting"], (now, run_id)):
                self._enqueue(database, row)
                return True
            return False

        return self._submit(wake)

    def list_submitted(
        self, run_ids: Sequence[str]
    ) -> Future[Mapping[str, Submission]]:
        """See `ports.SubmittedRunStore.list_submitted`."""
        names = [(encode_name(each),) for each in run_ids]

        def load(database: Database) -> dict[str, Submission]:
            rows = database.run_with(_SQL["placed"], names) if names else []
            return {decode_name(row[0]): _submission(row) for row in rows}

        return self._writer.submit(load)

    def list_cancelled(self, run_ids: Sequence[str]) -> Future[Sequence[str]]:
        """See `ports.SubmittedRunStore.list_cancelled`."""
        names = [(encode_name(each),) for each in run_ids]

        def load(database: Database) -> list[str]:
            rows = database.run_with(_SQL["cancelled"], names) if names else []
            return [decode_name(row[0]) for row in rows]

        return self._writer.submit(load)

    # ------------------------------------------------------------------ in a transaction

    def _note_answer(
        self, database: Database, run_ids: Sequence[str], now: float
    ) -> None:
        """Let the submitted runs that wait for a question go on, or those that their runs were started by."""
        names = {
            name for id in run_ids for name in _names_of_outer_runs(encode_name(id))
        }
        for name in sorted(names, reverse=True):  # all lock them in one order
            self._wake(database, name, now)

    def _wake(self, database: Database, run_id: str, now: float) -> bool:
        """Let a run go on; one that a worker carries out at this moment goes on once the worker is done."""
        if not database.run(_SQL["answered"], (run_id,)):
            return False
        return self._go_on(database, run_id, now)

    def _wake_up(self, database: Database, row: Sequence[Any], now: float) -> bool:
        """Let a run go on whose question has expired, or whose wait for a lease or a model is over."""
        run_id, *_, status, _ = row
        if status == "waiting":
            # The question before the run, as an answer locks them in Postgres: in the other order, both could wait for
            # each other.
            database.run(_SQL["expire"], (*_names_within(run_id), now))
            return self._wake(database, run_id, now)
        is_enqueued = self._recover(database, row, now)
        again_at = None
        if status == "queued" and not is_enqueued:
            # the worker that postponed it still holds the segment: for a moment, or because it is frozen
            again_at = now + AGAIN_S
        database.run(_SQL["wake_at"], (again_at, run_id))
        return is_enqueued

    def _go_on(self, database: Database, run_id: str, now: float) -> bool:
        """Enqueue the next segment of a run that waits. Its row is held."""
        if not database.run(_SQL["queue_waiting"], (now, run_id)):
            return False
        self._enqueue_next(database, run_id, now)
        return True

    def _enqueue_next(self, database: Database, run_id: str, now: float) -> None:
        [row] = database.run(_SQL["next"], (now, run_id))
        self._enqueue(database, row)

    def _recover(self, database: Database, row: Sequence[Any], now: float) -> bool:
        """Enqueue a segment that is nowhere, or forget a run that is over; return whether something was enqueued."""
        run_id, number, queue, priority, status, woken = row
        if not database.run(_SQL["lock"], (now, run_id)):
            return False
        if status is None or status in _OVER:
            database.run(_SQL["forget"], (run_id,))
            return False
        if status == "waiting":
            # An approved question is no reason to go on: a delivered result stays approved, and so does a call whose
            # tool has another description now.
            if woken:
                return self._go_on(database, run_id, now)
            _set_wake_up(database, run_id, now)  # somebody may have resumed it by hand
            return False
        return self._enqueue(database, (run_id, number, queue, priority))

    def _enqueue(self, database: Database, row: Sequence[Any]) -> bool:
        """Enqueue a segment by run, number, queue and priority."""
        run_id, number, queue, priority = row
        segment = (run_id, number, queue, _lane_of(run_id, priority))
        try:
            return self._enqueue_segment(database, segment)
        except ConfigError:
            database.run(_SQL["soon"], (run_id,))
            return False


def _lane_of(run_id: str, priority: int) -> str:
    """Return the lane of a run's segments: of its tenant, or of those of its tenant that do not wait behind the others.

    >>> _lane_of("@acme/r_7", 0), _lane_of("@acme/r_7", 1), _lane_of("r_7", 0)
    ('@acme', '@acme!', '')
    """
    # only the runs of a tenant have a name that begins so
    tenant = run_id.partition("/")[0] if run_id.startswith("@") else ""
    return f"{tenant}!" if priority > 0 else tenant


def _postpone(
    database: Database,
    run_id: str,
    now: float,
    wait_s: float,
    why: str,
    model_turn: int,
) -> None:
    """Let a run wait for a lease, or for a model that is away. Its row is held."""
    wake_at = now + wait_s
    note = encode_json(f"not before {describe_time(wake_at)}: {why}")
    # before that it is not taken for a run whose segment was lost either
    given = (wake_at, wake_at - STALE_S, note)
    if model_turn:
        counted = (model_turn, model_turn, wait_s, model_turn)
        database.run(_SQL["await_model"], (*given, *counted, run_id))
    else:
        database.run(_SQL["postpone"], (*given, run_id))


def waits_for_model(stored: StoredRun, submission: Submission) -> bool:
    """Whether a run waits in the store because its model is away, and not for a lease."""
    if stored.record.status != "queued" or stored.record.cancel_requested:
        return False
    turn = submission.model_wait.turn
    # a lease is of a call, which the model has asked for in its answer
    return turn > 0 and all(step.key != model_key(turn) for step in stored.steps)


def _set_wake_up(database: Database, run_id: str, now: float) -> None:
    """Let a waiting run go on once its question has expired, or that of a run which its calls have started.

    One that waits for the question of another run, such as the result of a write that both have asked for, looks again.
    """
    [[wake_at]] = database.run(_SQL["waits"], _names_within(run_id))
    if wake_at is None:
        wake_at = now + LOOK_AGAIN_S
    database.run(_SQL["wake_at"], (wake_at, run_id))


def _names_within(run_id: str) -> tuple[str, str, str]:
    """Return a run's name, and the bounds of the names of the runs that its calls have started."""
    # those begin with that of the run and a dot, which a slash follows in order
    return (run_id, f"{run_id}.", f"{run_id}/")


def _names_of_outer_runs(run_id: str) -> Iterator[str]:
    """Yield a run, and the runs in whose calls it may have been started; see `engine.nested_runs`.

    >>> list(_names_of_outer_runs("r_7.2.0.1"))
    ['r_7.2.0.1', 'r_7.2.0', 'r_7.2', 'r_7']
    """
    while run_id:
        yield run_id
        run_id = run_id.rpartition(".")[0]


def _submission(row: Sequence[Any]) -> Submission:
    _, queue, priority, tools, segment, deaths, note, wake_at, *wait = row
    return Submission(
        queue=decode_name(queue),
        priority=priority,
        tools=tuple(json.loads(tools)),
        segment=segment,
        deaths=deaths,
        note=json.loads(note),
        wake_at=wake_at or 0.0,
        model_wait=ModelWait(*wait),
    )
