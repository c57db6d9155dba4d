"""What durability costs: a claim and a settlement on the disk before anybody goes on, and whole runs of them."""

from __future__ import annotations

import asyncio
import tempfile
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from hashlib import sha256
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import handrail as hr
from benchmarks import denominators
from benchmarks.denominators import Provider
from benchmarks.loops import FakeModel
from benchmarks.measuring import Figure, interleaved
from benchmarks.one_call import READ, get_weather
from handrail.effects import Claim, ClaimState, Settle
from handrail.engine.active_run import new_run_id
from handrail.futures import wait_for
from handrail.ports import Store
from handrail.stores.sqlite import SqliteStore

CALLERS = (1, 4, 16, 64)
WRITES_A_RUN = 5
WRITE = hr.FunctionTool(get_weather, effect="write")


def durable_writes(quick: bool) -> list[Figure]:
    """Claim and settle, by callers at once, on a new file and on a server: in turn, the better of two rounds."""
    best: dict[tuple[str, int], Figure] = {}
    for _ in range(1 if quick else 2):
        for kind, opened in (("sqlite", sqlite), ("postgres", postgres)):
            with opened() as store:
                for callers in CALLERS if store else ():
                    figure = _figure(
                        kind, store, callers, (100 if quick else 400) * min(callers, 32)
                    )
                    best[kind, callers] = min(
                        best.get((kind, callers), figure),
                        figure,
                        key=lambda each: each.value,
                    )
    return list(best.values())


DURABLE_GOALS = {
    "SQLite, reads": 3.5,
    "SQLite, writes": 6.0,
    "Postgres, reads": 6.0,
    "Postgres, writes": 11.0,
}
"""Times the loop by hand."""


async def durable_crowd(quick: bool) -> list[Figure]:
    """200 runs at once of 5 turns x 2 calls, 10 ms model, every step of every run on the disk: CPU of this process."""
    count = 50 if quick else 200
    provider, model = Provider(5, 2, 0.01), FakeModel(5, 2, 0.01)

    def crowd(runtime: hr.Runtime) -> Callable[[], Awaitable[Any]]:
        return lambda: asyncio.gather(
            *(runtime.run("How warm?", model=model) for _ in range(count))
        )

    with sqlite() as file, postgres() as server:
        stores = {
            "in memory": "memory",
            "SQLite": file,
            **({"Postgres": server} if server else {}),
        }
        kinds = {"reads": READ, "writes": WRITE}
        runtimes = {
            f"{name}, {kind}": hr.Runtime([tool], store=store)
            for name, store in stores.items()
            for kind, tool in kinds.items()
        }
        times = await interleaved(
            {
                "hand": lambda: asyncio.gather(
                    *(denominators.loop(provider) for _ in range(count))
                ),
                **{name: crowd(each) for name, each in runtimes.items()},
            },
            rounds=2 if quick else 5,
            times=1,
        )
    return [
        Figure(
            f"{count} runs at once, all durable: {name}",
            times[name] / times["hand"],
            "x hand",
            DURABLE_GOALS.get(name),
            note=f"{(times[name] - times['hand']) / count / 10 * 1e6:.0f} us a call above hand",
        )
        for name in runtimes
    ]  # fmt: skip


def _figure(kind: str, store: Any, callers: int, count: int) -> Figure:
    asyncio.run(writes(store, callers, callers * WRITES_A_RUN))  # warm
    began, cpu = time.perf_counter(), time.process_time()
    asyncio.run(writes(store, callers, count))
    seconds, cpu = time.perf_counter() - began, time.process_time() - cpu
    return Figure(
        f"{kind}: claim + settle durable, {callers} callers", seconds / count * 1e6, "us a write",
        1e6 / 18_000 if (kind, callers) == ("sqlite", 64) else None,
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
            claimed = await wait_for(
                store.claim(Claim("refund", key, fingerprint, run, "none", 60.0))
            )
            assert claimed.state is ClaimState.FRESH
            assert await wait_for(
                store.settle(
                    Settle("refund", key, claimed.fence, "done", {"id": number})
                )
            )

    await asyncio.gather(*(caller() for _ in range(callers)))


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
    if find_spec("psycopg") is None or find_spec("pytest") is None:
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
