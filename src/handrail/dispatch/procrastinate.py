"""The dispatcher on Postgres: segments are jobs of procrastinate, and its own worker performs them.

    dispatcher = ProcrastinateDispatcher(PostgresStore("postgresql://..."))

procrastinate fetches, beats, listens and finishes; a company that runs it keeps its shell, its views and its alarms:
`app_for(store)` is the application for them. What is added here is what a run needs beyond a job:
docs/decisions/0022-procrastinates-own-worker.md has the list.

Rule 1: a job is settled by statements that name the worker and the attempt: a worker that was frozen settles nothing
        that others have taken over.
Rule 2: a job has its run as lock. Only what was handed back has a later time: one segment of a run exists at a time.
Rule 3: what is not done waits again; no job fails.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence, Set
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from typing import Any

from psycopg.errors import ForeignKeyViolation

from handrail.dispatch.job_tables import SCHEMA, SQL, make_tables
from handrail.dispatch.port import HandBack, Running, Segment, Timing
from handrail.dispatch.shift import Shift, ShiftDispatcher
from handrail.errors import ConfigError, StoreUnavailable, describe_install
from handrail.logs import log
from handrail.stores.durable import DurableStore
from handrail.stores.postgres import job_queue
from handrail.stores.sql_values import decode_name
from handrail.surroundings.clock import monotonic

try:
    from procrastinate import App, JobContext, PsycopgConnector, RetryDecision
    from procrastinate.exceptions import ConnectorException
    from procrastinate.job_context import AbortReason
    from procrastinate.jobs import Job, Status
    from procrastinate.manager import JobManager, NotificationCallback
    from procrastinate.retry import BaseRetryStrategy
except ImportError as missing:
    raise ConfigError(
        f"procrastinate is not installed; install it: {describe_install('workers')}"
    ) from missing

TASK = "handrail.segment"
AFTER_DEATH = 1_000_000_000
"""The priority of a job whose worker was found dead: others are turns, which are at most 0."""
AGAIN_S = 0.5
"""Seconds until a database that is away is asked again."""

# A process that is frozen in a transaction holds its rows for as long; see `stores.postgres`.
_OPTIONS = f"-c search_path={SCHEMA} -c idle_in_transaction_session_timeout=3s"


def app_for(store: DurableStore) -> App:
    """Return procrastinate's application for the segments of a store in Postgres, for its shell and its views.

    `procrastinate --app=MODULE.NAME shell` lists jobs and cancels them; a running one stops within a second. Its tasks
    are performed by `handrail worker` only.
    """
    app = App(connector=_connector(store))

    @app.task(name=TASK)
    def perform_segment(**_: Any) -> None:
        raise ConfigError("a segment is performed by `handrail worker`")

    return app


def _connector(store: DurableStore) -> PsycopgConnector:
    return PsycopgConnector(
        conninfo=store.conninfo, kwargs={"options": _OPTIONS}, min_size=2, timeout=5.0
    )


class ProcrastinateDispatcher(ShiftDispatcher):
    """Has segments performed by procrastinate's worker; see `port.Dispatcher`.

    The schema `handrail_jobs` is made when it is not there, and brought up to the installed procrastinate.

    Args:
        store: A store in Postgres.
        timing: How soon things are noticed.

    Raises:
        ConfigError: The tables cannot be made, or a worker would count as dead between two heartbeats.
        StoreUnavailable: The server does not answer.
    """

    def __init__(self, store: DurableStore, *, timing: Timing | None = None) -> None:
        super().__init__(timing)
        if self.timing.dead_s < 2 * self.timing.beat_s:
            raise ConfigError(
                f"a worker that beats every {self.timing.beat_s:g} s may not count as dead after "
                f"{self.timing.dead_s:g} s; make dead_s at least twice beat_s"
            )
        self._store = store
        make_tables(store)

    def _take_no_more(self) -> None:
        if self._working is not None:
            self._working.cancel()  # procrastinate's worker waits for what runs

    async def _work(self, shift: Shift, queues: Sequence[str]) -> None:
        """Run procrastinate's worker, and begin again where it ends: its row was deleted while it was frozen."""
        timing = self.timing
        connector = _connector(self._store)
        names = [job_queue(each) for each in queues]
        taken: dict[str, Any] = {"queues": names} if names else {}
        app = App(connector=connector)
        app.job_manager = jobs = OwnedJobs(connector)

        @app.task(name=TASK, pass_context=True, retry=_WaitsAgain(timing))
        async def perform_segment(context: JobContext, /, **_: Any) -> None:
            await _perform(context, jobs, shift)

        async with app.open_async():
            keeping = asyncio.create_task(_keep_up(jobs, timing))
            try:
                while not shift.is_stopping:
                    with suppress(ConnectorException):
                        await app.run_worker_async(
                            **taken,
                            concurrency=shift.concurrency,
                            delete_jobs="always",
                            install_signal_handlers=False,
                            fetch_job_polling_interval=timing.poll_s,
                            abort_job_polling_interval=1.0,
                            update_heartbeat_interval=timing.beat_s,
                            stalled_worker_timeout=timing.dead_s,
                        )
                    await asyncio.sleep(AGAIN_S)
            finally:
                keeping.cancel()


async def _perform(context: JobContext, jobs: OwnedJobs, shift: Shift) -> None:
    """Perform the segment of a job. Whoever asks for its end is told to the run, which settles its writes first."""
    job = context.job
    assert job.id is not None
    segment = Segment(
        decode_name(job.lock or ""),
        int(str(job.task_kwargs["number"])),
        decode_name(str(job.task_kwargs["queue"])),
    )
    running = Running(
        segment,
        job.attempts + 1,
        after_death=job.priority >= AFTER_DEATH,
        is_ours=lambda: jobs.owns(job),
    )
    performing = shift.start(running)
    attempt = (job.id, job.attempts)
    jobs.held[attempt] = (job, running)
    try:
        while not (performing.done() or shift.left.done()):
            try:
                await shift.until_over(performing)
            except asyncio.CancelledError:
                task = asyncio.current_task()
                if context.abort_reason() is not AbortReason.USER_REQUEST or not task:
                    performing.cancel()
                    raise
                task.uncancel()
                running.cancelled.set()
    finally:
        del jobs.held[attempt]
    if not performing.done():
        raise asyncio.CancelledError
    performing.result()


class _WaitsAgain(BaseRetryStrategy):
    """Whatever is not done waits again, in its old turn: what was handed back for a while, all else not at all."""

    def __init__(self, timing: Timing) -> None:
        self._timing = timing

    def get_retry_decision(
        self, *, exception: BaseException, job: Job
    ) -> RetryDecision:
        turn = int(str(job.task_kwargs["turn"]))
        if not isinstance(exception, HandBack):
            return RetryDecision(priority=turn)
        wait = timedelta(seconds=self._timing.wait_before(job.attempts + 2))
        return RetryDecision(priority=turn, retry_at=datetime.now(UTC) + wait)


class OwnedJobs(JobManager):
    """procrastinate's jobs, settled only by the worker that has them. A database that is away is waited for.

    Attributes:
        held: The jobs that this process performs, by id and attempts: it may have lost a job, and taken it again.
        absent_at: When the database was last found to be away, in monotonic seconds.
    """

    def __init__(self, connector: PsycopgConnector) -> None:
        super().__init__(connector)
        self.held: dict[tuple[int, int], tuple[Job, Running]] = {}
        self.absent_at = float("-inf")
        self._worker_id: int | None = None
        self._strays: Set[tuple[int, int]] = frozenset()
        """What the database said to be ours at the last look, and was not performed."""

    async def fetch_job(
        self, queues: Iterable[str] | None, worker_id: int
    ) -> Job | None:
        """Return the next job; None too while the database is away, so that what runs goes on."""
        self._worker_id = worker_id
        try:
            return await super().fetch_job(queues, worker_id)
        except ConnectorException as error:
            if isinstance(error.__cause__, ForeignKeyViolation):
                # our row was deleted while we were frozen, and our jobs were given to others
                for _, running in self.held.values():
                    running.lost.set()
                raise
            self.absent_at = monotonic()
            return None

    async def finish_job(self, job: Job, status: Status, delete_job: bool) -> None:
        """Delete a job that is done."""
        await self._settle(job, "finish", status=status.value, delete_job=delete_job)

    async def retry_job(
        self,
        job: Job,
        retry_at: datetime | None = None,
        priority: int | None = None,
        queue: str | None = None,
        lock: str | None = None,
    ) -> None:
        """Let a job wait again."""
        given = {"priority": priority, "queue": queue, "lock": lock}
        await self._settle(job, "retry", retry_at=retry_at, **given)

    async def take_from_dead(self, dead_s: float) -> None:
        """Let the jobs of workers wait again that have been silent for so long."""
        given = {"retry_at": None, "queue": None, "lock": None}
        for job in await self.get_stalled_jobs(
            seconds_since_heartbeat=dead_s, task_name=TASK
        ):
            if await self._settle(job, "retry", priority=AFTER_DEATH, **given):
                log.warning(
                    "the worker %s counts as dead; its run %s waits for another one",
                    job.worker_id or "of a deleted row",
                    decode_name(job.lock or "")[:100],
                )

    async def owns(self, job: Job) -> bool:
        """Whether this worker still has a job.

        Raises:
            StoreUnavailable: The database does not say.
        """
        try:
            return await self._run(job, "owned")
        except ConnectorException as error:
            raise StoreUnavailable("the database of the jobs is away") from error

    async def _settle(self, job: Job, what: str, **given: Any) -> bool:
        """Run a statement on a job if its worker still has it, as soon as the database is there."""
        while True:
            try:
                return await self._run(job, what, **given)
            except ConnectorException:
                self.absent_at = monotonic()
                await asyncio.sleep(AGAIN_S)

    async def _run(self, job: Job, what: str, **given: Any) -> bool:
        whose = {"worker_id": job.worker_id, "attempts": job.attempts}
        rows = await self.connector.execute_query_all_async(
            SQL["mine"] + SQL[what], job_id=job.id, **whose, **given
        )
        return bool(rows)

    async def update_heartbeat(self, worker_id: int) -> None:
        """Say that a worker is alive; without an error, which would end it."""
        try:
            await super().update_heartbeat(worker_id)
        except ConnectorException:
            self.absent_at = monotonic()

    async def list_jobs_to_abort_async(self, queue: str | None = None) -> Iterable[int]:
        """Return the jobs whose end was asked for; none while the database is away."""
        try:
            return await super().list_jobs_to_abort_async(queue)
        except ConnectorException:
            return []

    async def listen_for_jobs(
        self,
        *,
        on_notification: NotificationCallback,
        queues: Iterable[str] | None = None,
    ) -> None:
        """Listen, again and again: a notification only saves the wait for the next poll."""
        while True:
            with suppress(ConnectorException):
                await super().listen_for_jobs(
                    on_notification=on_notification, queues=queues
                )
            await asyncio.sleep(AGAIN_S)

    async def compare(self) -> None:
        """Compare what runs here with what the database says that this process has.

        What another worker has got is lost. What nobody performs waits again, once it was seen twice: the answer to a
        fetch may be lost.
        """
        held = dict(self.held)
        workers = [*{self._worker_id, *(job.worker_id for job, _ in held.values())}]
        rows = await self.connector.execute_query_all_async(
            SQL["held"], workers=workers
        )
        ours = {(row["id"], row["attempts"]): Job.from_row(row) for row in rows}
        for attempt in held.keys() - ours.keys():
            held[attempt][1].lost.set()
        strays = ours.keys() - self.held.keys()
        for attempt in strays & self._strays:
            await self.retry_job(ours[attempt])
        self._strays = strays


async def _keep_up(jobs: OwnedJobs, timing: Timing) -> None:
    """Do what procrastinate leaves to its application: look for dead workers, and beat while this one stops.

    Nobody is judged before the database has been in reach for two heartbeats: all who live have beaten by then.
    """
    while True:
        # a worker of procrastinate that stops sends no heartbeat while its last jobs run
        for worker_id in {job.worker_id for job, _ in jobs.held.values()}:
            if worker_id is not None:
                await jobs.update_heartbeat(worker_id)
        try:
            await jobs.compare()
            if monotonic() - jobs.absent_at > 2 * timing.beat_s + AGAIN_S:
                await jobs.take_from_dead(timing.dead_s)
        except ConnectorException as error:
            log.warning("cannot look for dead workers: %s", error.__cause__ or error)
        await asyncio.sleep(timing.sweep_s)
