"""Ends the runs of this process that another process has cancelled.

One question to the store serves all runs of a deployment, so a thousand runs cost as much as one.
"""

from __future__ import annotations

from asyncio import AbstractEventLoop
from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from contextvars import Context
from functools import partial
from weakref import WeakSet

from handrail.engine.active_run import ActiveRun
from handrail.futures import StoreAnswer, then
from handrail.logs import log
from handrail.ports import SubmittedRunStore

CANCEL_LOOK_S = 0.5
"""Seconds between two questions to the store while a run is under way: a cancelled run ends within a second."""


class CancelWatch:
    """Asks a store again and again which of its runs to end, as long as one is under way.

    Args:
        store: Keeps the runs of all tenants.
        live: The runs under way, by their names in the store.
    """

    def __init__(self, store: SubmittedRunStore, live: Mapping[str, ActiveRun]) -> None:
        self._store = store
        self._live = live
        self._loops: WeakSet[AbstractEventLoop] = WeakSet()
        """The event loops with a timer for the next question."""
        self._answer: StoreAnswer[None] = None

    def begin(self, loop: AbstractEventLoop) -> None:
        """Begin to ask on a running event loop. Safe to call from any thread."""
        if loop not in self._loops:
            self._loops.add(loop)
            loop.call_soon_threadsafe(self._set_timer, loop, context=Context())

    def _set_timer(self, loop: AbstractEventLoop) -> None:
        loop.call_later(CANCEL_LOOK_S, self._ring, loop)

    def _ring(self, loop: AbstractEventLoop) -> None:
        # Before the look at the runs: a thread that adds one sets a new timer, or its run is seen here.
        self._loops.discard(loop)
        if self._live:
            self.begin(loop)
            self._ask()

    def _ask(self) -> None:
        runs = {name: run for name, run in [*self._live.items()] if run.is_recorded}
        is_asking = isinstance(self._answer, Future) and not self._answer.done()
        if is_asking or not runs:
            return
        try:
            cancelled = self._store.list_cancelled(list(runs))
        except Exception as error:
            # a driver's own errors too: each run learns by itself that its store is away
            log.debug("the store does not say which runs to end: %s", error)
        else:
            # only these: a run that was resumed meanwhile is not to end
            self._answer = then(cancelled, partial(_cancel, runs))


def _cancel(runs: Mapping[str, ActiveRun], cancelled: Sequence[str]) -> None:
    for name in cancelled:
        runs[name].cancel()
