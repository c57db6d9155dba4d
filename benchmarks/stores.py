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
from handrail.futures import wait_for
from handrail.ports import Store
from handrail.records import new_run_id
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


async def lone_turns(quick: bool) -> list[Figure]:
    """A lone run of turns with one write each, on SQLite: what a turn commits, and how much later it ends."""
    turns = 10
    model = FakeModel(turns, 1)
    with tempfile.TemporaryDirectory(dir=".", prefix=".benchmark-") as folder:
        place = Path(folder) / "store.db"
        with SqliteStore(place) as store:
            durable = hr.Runtime([WRITE], store=store)
            in_memory = hr.Runtime([WRITE])
            await durable.run("How warm?", model=model)  # makes what is made once
            before = _count_commits(place)
            await durable.run("How warm?", model=model)
            commits = (_count_commits(place) - before) / turns
            spent_s = [
                [await _time_run(runtime, model) for _ in range(5 if quick else 30)]
                for runtime in (durable, in_memory)
            ]
    on_disk_s, in_memory_s = (sorted(each)[len(each) // 2] for each in spent_s)
    return [
        Figure(
            "a lone turn with a write, SQLite: commits", commits, "a turn", goal=3.0
        ),
        Figure(
            "  later than in memory",
            (on_disk_s - in_memory_s) / turns * 1e3,
            "ms",
            goal=2.0,
            note=f"median; {on_disk_s / turns * 1e3:.2f} ms a turn in all",
        ),
    ]


async def _time_run(runtime: hr.Runtime, model: FakeModel) -> float:
    began = time.perf_counter()
    run = await runtime.run("How warm?", model=model)
    assert run.ok, run
    return time.perf_counter() - began


def _count_commits(place: Path) -> int:
    """Return the commits in a WAL file: the frames whose header names the size of the database after a commit.

    The form of the file: https://www.sqlite.org/fileformat2.html#the_write_ahead_log
    """
    written = place.with_name(f"{place.name}-wal").read_bytes()
    page_bytes = int.from_bytes(written[8:12])
    salts = written[16:24]
    return sum(
        written[start + 4 : start + 8] != bytes(4)
        and written[start + 8 : start + 16] == salts
        for start in range(32, len(written), 24 + page_bytes)
    )


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
                store.claim(Claim("", key, fingerprint, run, "none", 60.0))
            )
            assert claimed.state is ClaimState.FRESH
            assert await wait_for(
                store.settle(Settle("", key, claimed.fence, "done", {"id": number}))
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
