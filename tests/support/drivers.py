"""Both drivers behind one face, so that a test says once what both must do.

The asyncio runtime lives on an event loop of its own thread, where it is while nobody asks; the blocking one is called
in a thread of its own for each verb. So a test begins several things, waits for what happens, and never sleeps.
"""

import asyncio
import threading
from concurrent.futures import Future
from contextlib import suppress
from time import monotonic

import handrail as hr

KINDS = ("asyncio", "sync")

BOUND_S = 20.0
"""Beyond it something hangs. No test is meant to come near."""


class Driver:
    """A runtime of either kind. `start` begins a verb and gives a future of its outcome; the others wait for it."""

    def __init__(self, kind, tools, how):
        self.kind, self.events = kind, []
        how["observers"] = (*how.get("observers", ()), self.events.append)
        if kind == "asyncio":
            self._loop = asyncio.new_event_loop()
            self._thread = threading.Thread(target=self._loop.run_forever)
            self._thread.start()
            self.runtime = hr.Runtime(tools, **how)
        else:
            self.runtime = hr.SyncRuntime(tools, **how)

    def start(self, verb, *args, **how) -> Future:
        """Begin a verb of the runtime."""
        work = getattr(self.runtime, verb)
        if self.kind == "asyncio":
            return asyncio.run_coroutine_threadsafe(work(*args, **how), self._loop)
        future = Future()
        threading.Thread(
            target=_settle, args=(future, work, args, how), daemon=True
        ).start()
        return future

    def call(self, name, arguments=None, **how):
        return self.start("call", name, arguments, **how).result(BOUND_S)

    def handle(self, message, **how):
        return self.start("handle", message, **how).result(BOUND_S)

    def run(self, question, **how):
        return self.start("run", question, **how).result(BOUND_S)

    def calls_at_once(self, *calls):
        """Begin each (name, arguments) as a call of its own, and wait for all."""
        begun = [self.start("call", *call) for call in calls]
        return [each.result(BOUND_S) for each in begun]

    def told(self, kind):
        """The events of one kind so far."""
        return [event for event in list(self.events) if isinstance(event, kind)]

    def tasks(self):
        """Tasks that are under way on the loop where async tools run."""
        loop = self._loop if self.kind == "asyncio" else self.runtime._loop_thread._loop
        return asyncio.all_tasks(loop) if loop is not None else set()

    def close(self):
        if self.kind == "sync":
            self.runtime.close()
        elif not self._loop.is_closed():
            asyncio.run_coroutine_threadsafe(_closed(self.runtime), self._loop).result(
                BOUND_S
            )
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join(BOUND_S)
            self._loop.close()


def _settle(future, work, args, how):
    try:
        future.set_result(work(*args, **how))
    except BaseException as error:
        future.set_exception(error)


async def _closed(runtime):
    await runtime.close()
    left = asyncio.all_tasks() - {asyncio.current_task()}
    for task in left:
        task.cancel()
    if left:
        await asyncio.wait(left, timeout=1)


def until(holds, what="it never came true"):
    """Wait until something holds, in a bounded time; return what it gave."""
    end = monotonic() + BOUND_S
    pause = threading.Event()
    while not (found := holds()):
        assert monotonic() < end, what
        pause.wait(0.005)
    return found


class Gate:
    """A place where tools stand until the test lets them on, in any thread or loop. `entered` counts who came."""

    def __init__(self):
        self.entered = self.left = self.cancelled = 0
        self._open = threading.Event()

    def pass_through(self):
        """Stand at the gate, in a thread."""
        self.entered += 1
        assert self._open.wait(BOUND_S), "the test never opened the gate"
        self.left += 1

    async def pass_through_async(self):
        """Stand at the gate, in a task."""
        self.entered += 1
        try:
            while not self._open.is_set():
                await asyncio.sleep(0.002)
        except asyncio.CancelledError:
            self.cancelled += 1
            raise
        self.left += 1

    async def pass_through_stubbornly(self):
        """Stand at the gate in a task that will not be cancelled."""
        self.entered += 1
        while not self._open.is_set():
            with suppress(asyncio.CancelledError):
                await asyncio.sleep(0.002)
        self.left += 1

    def open(self):
        self._open.set()

    def wait_for(self, count=1):
        """Wait until so many have come."""
        until(
            lambda: self.entered >= count, f"{self.entered} of {count} came to the gate"
        )


def chat_message(*calls, text=None):
    """An assistant's message in OpenAI's form."""
    return {
        "role": "assistant",
        "content": text,
        "tool_calls": [
            {
                "id": call.id,
                "type": "function",
                "function": {"name": call.name, "arguments": call.arguments},
            }
            for call in calls
        ],
    }
