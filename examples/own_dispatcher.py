"""An adapter for an engine that a company runs already: our table is its outbox, the engine starts and retries."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

from handrail.dispatch.lease import LeaseDispatcher
from handrail.dispatch.port import Dispatcher, DispatchStats, Perform, Running, Segment, Timing, Transaction
from handrail.futures import StoreAnswer, wait_for
from handrail.stores.durable import DurableStore
from handrail.stores.sqlite import SqliteStore


class Engine:
    """A stand-in for DBOS or Temporal: it starts a workflow of an id once, and retries it until it succeeds."""

    def __init__(self) -> None:
        self.workflow: Callable[[Segment, int], Awaitable[None]] | None = None
        self.started: dict[str, asyncio.Task[None]] = {}

    def start(self, workflow_id: str, segment: Segment) -> None:
        if workflow_id not in self.started:
            self.started[workflow_id] = asyncio.create_task(self._retry(segment))

    async def _retry(self, segment: Segment) -> None:
        for attempt in range(1, 4):
            try:
                assert self.workflow is not None
                await self.workflow(segment, attempt)
                return
            except ConnectionError:
                print(f"the engine retries {segment.run_id}")


class EngineDispatcher:
    """Segments wait in the store until they are handed to the engine, which performs them."""

    def __init__(self, store: DurableStore, engine: Engine, *, timing: Timing | None = None) -> None:
        self._outbox = LeaseDispatcher(store, timing=timing)
        self._engine = engine
        self._running: dict[str, Running] = {}

    def enqueue(self, segment: Segment, *, connection: Transaction | None = None) -> StoreAnswer[bool]:
        return self._outbox.enqueue(segment, connection=connection)  # in our transaction, as the run itself

    def cancel(self, run_id: str) -> StoreAnswer[bool]:
        if running := self._running.get(run_id):
            running.cancelled.set()  # with a real engine: a signal to its workflow
        return self._outbox.cancel(run_id)

    async def work(self, perform: Perform, *, concurrency: int, queues: Sequence[str] = ()) -> None:
        async def workflow(segment: Segment, attempt: int) -> None:
            running = self._running[segment.run_id] = Running(segment, attempt)
            try:
                await perform(segment, running)  # the run's epoch fences an attempt that was replaced
            finally:
                del self._running[segment.run_id]

        async def hand_over(segment: Segment, _: Running) -> None:
            self._engine.start(f"{segment.run_id}/{segment.number}", segment)  # twice is once, by the id

        self._engine.workflow = workflow
        await self._outbox.work(hand_over, concurrency=concurrency, queues=queues)

    async def stop(self, *, grace_s: float) -> None:
        await self._outbox.stop(grace_s=grace_s)

    def requeue_dead(self) -> StoreAnswer[int]:
        return self._outbox.requeue_dead()  # those that were not handed over yet; the engine looks after the others

    def stats(self) -> StoreAnswer[DispatchStats]:
        return self._outbox.stats()

    def close(self) -> None:
        self._outbox.close()


async def main(store: DurableStore) -> None:
    dispatcher: Dispatcher = EngineDispatcher(store, Engine())
    done = asyncio.Event()

    async def perform(segment: Segment, running: Running) -> None:
        if running.attempt == 1:
            raise ConnectionError("the worker lost its network")
        print(f"performed {segment.run_id}, attempt {running.attempt}")
        done.set()

    await wait_for(dispatcher.enqueue(Segment("ticket-881")))
    shift = asyncio.create_task(dispatcher.work(perform, concurrency=4))
    await done.wait()
    await dispatcher.stop(grace_s=10)
    await shift
    dispatcher.close()


with TemporaryDirectory() as folder, SqliteStore(Path(folder) / "runs.db") as store:
    asyncio.run(main(store))
