"""Two tenants share a queue: their segments take turns, however many one of them has waiting."""

import asyncio
from pathlib import Path
from tempfile import TemporaryDirectory

from handrail.dispatch.choice import open_dispatcher
from handrail.dispatch.port import Running, Segment
from handrail.futures import wait_for
from handrail.stores.durable import DurableStore
from handrail.stores.sqlite import SqliteStore


async def main(store: DurableStore) -> None:
    dispatcher = open_dispatcher(store)
    for number in range(1, 6):
        await wait_for(dispatcher.enqueue(Segment(f"import-{number}", scope="big")))
    await wait_for(dispatcher.enqueue(Segment("question-1", scope="small")))
    await wait_for(dispatcher.enqueue(Segment("import-urgent", scope="big", priority=9)))
    print("enqueued again:", await wait_for(dispatcher.enqueue(Segment("import-1", scope="big"))))
    done = asyncio.Event()

    async def perform(segment: Segment, running: Running) -> None:
        print(segment.scope, segment.run_id, "attempt", running.attempt)
        if segment.run_id == "import-5":
            done.set()

    shift = asyncio.create_task(dispatcher.work(perform, concurrency=1))
    await done.wait()
    await dispatcher.stop(grace_s=10)
    await shift
    print(await wait_for(dispatcher.stats()))
    dispatcher.close()


with TemporaryDirectory() as folder, SqliteStore(Path(folder) / "runs.db") as store:
    asyncio.run(main(store))
