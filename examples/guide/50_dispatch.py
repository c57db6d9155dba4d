"""Two tenants share a worker: their runs take turns, however many one of them has waiting."""

import asyncio
from pathlib import Path
from tempfile import TemporaryDirectory

import handrail as hr
from handrail.dispatch.choice import open_dispatcher
from handrail.dispatch.port import Running, Segment


async def main(place: str) -> None:
    async with hr.Runtime([], store=place) as runtime:
        for number in range(1, 5):
            await runtime.submit("Import.", run_id=f"import-{number}", scope="big")
        await runtime.submit("Answer.", run_id="question", scope="small")
        await runtime.submit("Import now.", run_id="import-urgent", scope="big", priority=1)
        dispatcher = open_dispatcher(runtime.store)
        done = asyncio.Event()

        async def perform(segment: Segment, running: Running) -> None:  # what `Worker` does: `runtime.resume`
            print(segment.run_id, "attempt", running.attempt)
            if segment.run_id == "@big/import-4":
                done.set()

        shift = asyncio.create_task(dispatcher.work(perform, concurrency=1))
        await done.wait()
        await dispatcher.stop(grace_s=10)
        await shift


with TemporaryDirectory() as folder:
    asyncio.run(main(f"sqlite:///{Path(folder) / 'runs.db'}"))
