"""`handrail worker`: carries out the runs that were submitted to a store."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import sys
from collections.abc import Sequence
from contextlib import ExitStack, redirect_stdout
from pathlib import Path
from threading import Event
from time import gmtime
from typing import Any

import click

from handrail import logs
from handrail.cli import options, settings
from handrail.cli.commands.store import describe_deleted
from handrail.cli.exits import Exit
from handrail.cli.loading import file_at
from handrail.cli.options import Setup
from handrail.cli.store_access import RUNS, mask_password, open_store
from handrail.dispatch.choice import open_dispatcher
from handrail.dispatch.health import HealthServer
from handrail.dispatch.submitting import describe_missing_provider
from handrail.dispatch.worker import AWAIT_MODEL_S, Worker, log
from handrail.errors import ConfigError
from handrail.invisible import printable
from handrail.serving import listening
from handrail.stores.retention import Deleted, Retention, keep_regularly, retention_from

_SAME_S = 1.0
"""Signals within this time of the first are ignored: a wrapper, such as `timeout`, tells a process and its group."""


@click.command("worker")
@options.setup
@options.store
@options.model(required=False, reads_environment=True)
@click.option(
    "--concurrency",
    metavar="N",
    type=click.IntRange(min=1, max=1000),
    default=8,
    show_default=True,
    help="How many runs are carried out at once.",
)
@click.option(
    "--queue",
    "queues",
    metavar="NAME",
    multiple=True,
    help="Take runs from this queue only. May be given several times; all queues without it.",
)
@click.option(
    "--health",
    metavar="HOST:PORT",
    default="",
    help="Answer /healthz and /readyz on this address, or on this port of 127.0.0.1.",
)
@click.option(
    "--grace",
    "grace_s",
    metavar="SECONDS",
    type=options.Seconds(min=0),
    default=30.0,
    show_default=True,
    help="How long runs may go on after SIGTERM, before they are handed over.",
)
@click.option(
    "--await-model",
    "await_model_s",
    metavar="SECONDS",
    type=options.Seconds(min=0),
    default=AWAIT_MODEL_S,
    show_default="86400, a day",
    help="How long a run may wait for its model while the provider is away, before it fails; 0 fails it at once.",
)
@click.option(
    "--schedule",
    "schedule_file",
    metavar="FILE",
    type=click.Path(path_type=Path),
    help="Also submit the runs of its tables [schedule.NAME] when they are due; those of handrail.toml without it.",
)
@click.option(
    "--notify",
    metavar="WHERE",
    default=None,
    help="Tell people that a question waits: webhook:URL, or mail:ADDRESS?server=HOST&sender=ADDRESS.",
)
@options.debug
def command(
    setup: Setup,
    store: str,
    model: str | None,
    concurrency: int,
    queues: Sequence[str],
    health: str,
    grace_s: float,
    await_model_s: float,
    schedule_file: Path | None,
    notify: str | None,
) -> int:
    """Carry out the runs that were submitted to a store.

    On Postgres any number of workers do so together; of a SQLite file one does, and others stand by.

    Runs come from `Runtime.submit`, `handrail runs submit` and schedules. A run that waits for a person is left until
    somebody answers, in whatever process; a run whose worker died goes on in another one; a run whose model is away
    waits until it answers. SIGTERM takes no more runs and ends when those under way have ended, or hands them over
    after --grace; a second one ends at once.

    \b
    Examples:
      handrail worker --store postgresql://user@host/database --tools shop.tools --model openai:NAME
      handrail worker --store sqlite:///handrail.db --tools shop.tools --queue mail --concurrency 2
      handrail worker --tools shop.tools --health 0.0.0.0:8080 --schedule schedule.toml
    """
    setup.check_injected(setup.tools.filter(setup.policy.sees))
    address = listening.parse_address(health, "--health") if health else None
    tables = settings.table("schedule", schedule_file and file_at(schedule_file))
    if schedule_file and not tables:
        raise ConfigError(f"{schedule_file} has no table [schedule.NAME]")
    retention = retention_from(settings.table("retention"))
    _log_to_stderr()
    with ExitStack() as opened:
        opened.enter_context(redirect_stdout(sys.stderr))  # what tools print
        run_store = opened.enter_context(open_store(store, create=True, writes=True))
        RUNS.of(run_store, store)
        return asyncio.run(
            _work(
                setup,
                run_store,
                where=mask_password(store),
                model=model,
                concurrency=concurrency,
                queues=queues,
                address=address,
                grace_s=grace_s,
                await_model_s=await_model_s,
                tables=tables,
                retention=retention,
                notify=notify,
            )
        )


async def _work(
    setup: Setup,
    store: Any,
    *,
    where: str,
    model: str | None,
    concurrency: int,
    queues: Sequence[str],
    address: tuple[str, int] | None,
    grace_s: float,
    await_model_s: float,
    tables: Any,
    retention: Retention,
    notify: str | None,
) -> int:
    async with setup.unattended_runtime(store, notify=notify) as runtime:
        if model:
            runtime._engine.resolve_model(model)  # a name that is none is found now
        scheduler = _open_schedule(runtime, tables) if tables else None
        dispatcher = open_dispatcher(store)
        worker = Worker(
            runtime,
            dispatcher,
            model=model,
            inject=setup.inject,
            concurrency=concurrency,
            queues=queues,
            await_model_s=await_model_s,
        )
        health = HealthServer(worker.why_not_ready)
        beside: list[asyncio.Task[None]] = []
        stop = Event()
        try:
            if address is not None:
                log.info("health is answered on %s", await health.listen(*address))
            if scheduler is not None:
                beside.append(asyncio.ensure_future(scheduler.work()))
            if retention.periods():
                keeping = asyncio.to_thread(
                    keep_regularly,
                    store,
                    retention,
                    stop,
                    by="handrail worker",
                    tell=_log_deleted,
                )
                beside.append(asyncio.ensure_future(keeping))
            else:
                log.info("nothing is deleted here: [retention] has no period")
            ending = _end_on_signals(worker, grace_s)
            log.info(
                "worker %d takes runs of %s from %s, %d at once, with %s",
                os.getpid(),
                where,
                f"the queues {', '.join(queues)}" if queues else "all queues",
                concurrency,
                _describe_tools(len(setup.tools)),
            )
            await _until_one_ends(worker, beside)
            if ending:
                await asyncio.gather(*ending)
        finally:
            stop.set()
            for task in beside:
                task.cancel()
            await health.close()
    log.info("worker %d has ended", os.getpid())
    return Exit.OK


def _describe_tools(count: int) -> str:
    if not count:
        return "no tools: a run that needs one is left to other workers (--tools)"
    return "1 tool" if count == 1 else f"{count} tools"


async def _until_one_ends(worker: Worker, beside: Sequence[asyncio.Task[None]]) -> None:
    working = asyncio.ensure_future(worker.work())
    await asyncio.wait((working, *beside), return_when=asyncio.FIRST_COMPLETED)
    for task in beside:
        if task.done():  # it never ends by itself
            await worker.stop(grace_s=0.0)
            await working
            task.result()
    await working


def _open_schedule(runtime: Any, tables: Any) -> Any:
    """Return what submits the runs of a schedule.

    Raises:
        ConfigError: An entry cannot be used; no run was taken yet.
    """
    from handrail.dispatch.schedule import (  # of an extra
        Scheduler,
        read_schedule,
    )

    entries = read_schedule(tables)
    for entry in entries:
        if missing := describe_missing_provider(entry.model):
            log.warning(
                "[schedule.%s]: this process has %s: its runs wait until a worker has it",
                entry.name,
                missing,
            )
    return Scheduler(runtime, entries)


def _log_deleted(deleted: Deleted) -> None:
    log.info("deleted, as [retention] says: %s", describe_deleted(deleted))


def _end_on_signals(worker: Worker, grace_s: float) -> list[asyncio.Task[None]]:
    """Stop the worker at the first signal to end, and the process at the second; return what stops it.

    SIGHUP, which a closed terminal sends, counts as the first signal and never as the second; `nohup` ignores it.
    """
    loop = asyncio.get_running_loop()
    ending: list[asyncio.Task[None]] = []
    began_at = 0.0

    def end(number: int) -> None:
        nonlocal began_at
        if ending and (number == signal.SIGHUP or loop.time() - began_at < _SAME_S):
            return
        if ending:
            log.warning("ended at once; runs under way go on elsewhere")
            os._exit(128 + number)
        began_at = loop.time()
        count = len(worker.runs_here)
        runs = "1 run" if count == 1 else f"{count} runs"
        log.info("ending: %s under way may go on for %g s", runs, grace_s)
        ending.append(asyncio.ensure_future(worker.stop(grace_s=grace_s)))

    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, end, int(number))
    if signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:
        loop.add_signal_handler(signal.SIGHUP, end, int(signal.SIGHUP))
    return ending


class _Line(logging.Formatter):
    """Formats log records; a message, with the names and reasons in it, is one line, and only a traceback has more."""

    def formatMessage(self, record: logging.LogRecord) -> str:
        return printable(super().formatMessage(record))

    def formatException(self, ei: Any) -> str:
        return printable(super().formatException(ei), keep="\n\t")


def _log_to_stderr() -> None:
    """Print a line for each segment, and each warning of handrail, with the time."""
    handler = logging.StreamHandler(sys.stderr)
    formatter = _Line("%(asctime)s %(levelname)s %(message)s")
    formatter.converter = gmtime  # like every time that the command line prints
    formatter.default_msec_format = "%s,%03d UTC"
    handler.setFormatter(formatter)
    log.addHandler(handler)
    # with --debug there is a handler already
    if not logs.log.handlers:
        logs.log.addHandler(handler)
    log.setLevel(logging.INFO)
    log.propagate = False
