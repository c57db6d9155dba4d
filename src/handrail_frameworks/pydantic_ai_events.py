"""The progress of tools in the event stream of pydantic-ai."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Any

from pydantic_ai import CustomEvent, RunContext
from pydantic_ai.exceptions import UserError

from handrail.events import Event, Progressed


@dataclass(kw_only=True)
class ToolProgress(CustomEvent):
    """A tool reports its progress: `done` of `total`, which is None where it does not know."""

    done: float
    total: float | None = None
    note: str = ""


class ProgressStream:
    """Sends the progress of one call into the stream of its run."""

    def __init__(self, ctx: RunContext[Any]) -> None:
        self._ctx = ctx
        self._loop = asyncio.get_running_loop()
        self._waiting: list[ToolProgress] = []
        self._tasks: set[asyncio.Task[None]] = set()

    def observe(self, event: Event) -> None:
        """Take an event of the call, in any thread."""
        if isinstance(event, Progressed):
            progress = ToolProgress(done=event.done, total=event.total, note=event.note)
            self._waiting.append(progress)
            self._loop.call_soon_threadsafe(self._start)

    def _start(self) -> None:
        task = self._loop.create_task(self.drain())
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def drain(self) -> None:
        """Send what waits, in order."""
        while self._waiting:
            try:
                await self._ctx.emit(self._waiting.pop(0))
            except UserError:  # a context without a stream, such as a test's
                return
