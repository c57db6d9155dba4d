"""What a durable write costs: a claim and a settlement, both on the disk before anybody goes on."""

from __future__ import annotations

import asyncio
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from hashlib import sha256
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from benchmarks.measuring import Figure
from handrail.effects import Claim, ClaimState, Settle
from handrail.host import new_run_id
from handrail.ports import Store
from handrail.stores.sqlite import SqliteStore

CALLERS = (1, 4, 16, 64)
WRITES_A_RUN = 5


def durable_writes(quick: bool) -> list[Figure]:
    """Claim and settle, by callers at once, on a new file and on a server: in turn, the better of two rounds."""
    best: dict[tuple[str, int], Figure] = {}
    for _ in range(1 if quick else 2):
        for kind, opened in (("sqlite", sqlite), ("postgres", postgres)):
            with opened() as store:
                for callers in CALLERS if store else ():
                    figure = _figure(kind, store, callers, (100 if quick else 400) * min(callers, 32))
                    best[kind, callers] = min(best.get((kind, callers), figure), figure, key=lambda each: each.value)
    return list(best.values())


def _figure(kind: str, store: Any, callers: int, count: int) -> Figure:
    asyncio.run(writes(store, callers, callers * WRITES_A_RUN))  # warm
    began, cpu = time.perf_counter(), time.process_time()
    asyncio.run(writes(store, callers, count))
    seconds, cpu = time.perf_counter() - began, time.process_time() - cpu
    return Figure(
        f"{kind}: claim + settle durable, {callers} callers", seconds / count * 1e6, "us a write",
        1e6 / 15_000 if (kind, callers) == ("sqlite", 64) else None,
        note=f"{count / seconds:,.0f}/s, {cpu / count * 1e6:.0f} us of our CPU",
    )  # fmt: skip


async def writes(store: Store, callers: int, count: int) -> None:
    """Let callers share `count` writes, each begun when the caller's last one is settled, a few in each run."""
    todo = iter(range(count))

    async def caller() -> None:
        run, turn = new_run_id(), 0
        for number in todo:
            run, turn = (run, turn + 1) if turn < WRITES_A_RUN else (new_run_id(), 1)
            key, fingerprint = f"{run}/{turn}/0", sha256(number.to_bytes(4)).digest()
            claimed = await answer(store.claim(Claim("refund", key, fingerprint, run, "none", 60.0)))
            assert claimed.state is ClaimState.FRESH
            assert await answer(store.settle(Settle("refund", key, claimed.fence, "done", {"id": number})))

    await asyncio.gather(*(caller() for _ in range(callers)))


async def answer(given: Any) -> Any:
    """Wait for a store's answer as `runtime` does: by a call into the loop."""
    if not isinstance(given, Future):
        return given
    loop = asyncio.get_running_loop()
    mine = loop.create_future()
    given.add_done_callback(lambda done: loop.call_soon_threadsafe(lambda: mine.set_result(done.result())))
    return await mine


@contextmanager
def sqlite() -> Iterator[SqliteStore]:
    """A store in a new file on the disk of the working directory: /tmp may lie in memory."""
    with (
        tempfile.TemporaryDirectory(dir=".", prefix=".benchmark-") as folder,
        SqliteStore(Path(folder) / "store.db") as store,
    ):
        yield store


@contextmanager
def postgres() -> Iterator[Any]:
    """A store on a server of our own, whose data lie below /tmp; nothing where there are no programs for it."""
    if find_spec("psycopg") is None:
        yield None
        return
    from tests.stores.servers import Server, binaries

    from handrail.stores.postgres import PostgresStore

    programs = binaries()
    if programs is None:
        yield None
        return
    server = Server(programs)
    try:
        server.start()
        with PostgresStore(server.dsn) as store:
            yield store
    finally:
        server.remove()
