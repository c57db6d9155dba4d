"""What a write that was cut off holds, and what another call that touches the same thing is told."""

import asyncio
import threading

import pytest

import handrail as hr
from handrail.errors import Code
from tests.support.drivers import BOUND_S, until

LONG_S = 300.0


@pytest.fixture(params=["memory", "sqlite"])
def store(request, tmp_path):
    return "memory:" if request.param == "memory" else f"sqlite:///{tmp_path}/h.db"


def test_a_cancelled_write_lets_go_of_its_resource_when_its_coroutine_has_ended(store):
    async def cancel_then_call():
        started = asyncio.Event()

        async def write(number: int) -> str:
            started.set()
            if number == 1:
                await asyncio.Event().wait()
            return "written"

        tool = hr.FunctionTool(
            write, effect="write", key="w:{number}", resource="desk", timeout_s=LONG_S
        )
        async with (
            hr.Runtime([tool], store=store) as runtime,
            hr.Runtime([tool], store=store) as other,
            asyncio.timeout(BOUND_S),
        ):
            caller = asyncio.create_task(runtime.call("write", {"number": 1}))
            await started.wait()
            caller.cancel()
            await asyncio.wait([caller])
            assert (await runtime.call("write", {"number": 2})).value == "written"
            assert (await other.call("write", {"number": 3})).value == "written"
            return await runtime.call("write", {"number": 1})

    again = asyncio.run(cancel_then_call())
    assert again.failure.code == Code.IN_DOUBT


def test_a_write_that_runs_on_is_called_in_doubt_to_whoever_waits_for_its_resource(
    tmp_path,
):
    gate = threading.Event()
    started = []

    def write(number: int) -> str:
        started.append(number)
        if number == 1:
            assert gate.wait(BOUND_S)
        return "written"

    tool = hr.FunctionTool(
        write, effect="write", key="w:{number}", resource="desk", timeout_s=0.5
    )
    store = f"sqlite:///{tmp_path}/h.db"
    with (
        hr.SyncRuntime([tool], store=store) as runtime,
        hr.SyncRuntime([tool], store=store) as other,
    ):
        first = runtime.call("write", {"number": 1})
        locked = other.call("write", {"number": 2})
        gate.set()
        done = until(
            lambda: (call := other.call("write", {"number": 3})).ok and call,
            "it never let go",
        )
    assert first.failure.code == Code.IN_DOUBT
    assert locked.failure.code == Code.IN_PROGRESS
    assert (
        "another call that touches the same thing is in doubt" in locked.failure.message
    )
    assert done.value == "written"
    assert started == [1, 3]
