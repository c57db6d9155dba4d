"""What is the blocking driver's own: interrupts, generators, its background loop.

What both drivers do alike is in `test_carrier` (calls) and `test_host` (runs).
"""

import asyncio
import gc
import os
import signal
import subprocess
import sys
import threading

import pytest

import handrail as hr
from handrail.errors import Code
from handrail.events import FinishedLate, RunEnded, RunStarted
from handrail.testing import ScriptedModel, ScriptedServer, call
from tests.engine.test_engine import WaitingModel, get_weather
from tests.engine.test_executor import Documents, tool_at
from tests.support.drivers import BOUND_S, Gate, until


@pytest.fixture
def gate():
    made = Gate()
    yield made
    made.open()


def loops():
    return [
        thread for thread in threading.enumerate() if thread.name == "handrail-loop"
    ]


def test_it_works_inside_a_running_event_loop():
    async def main():
        with hr.SyncRuntime([get_weather]) as runtime:
            model = ScriptedModel([call("get_weather", city="Oslo"), "21"])
            return runtime.call("get_weather", {"city": "Oslo"}), runtime.run(
                "?", model=model
            )

    result, run = asyncio.run(main())
    assert (result.value["celsius"], run.text) == (21, "21")


def test_a_tool_may_call_the_runtime_that_runs_it():
    runtime = hr.SyncRuntime([get_weather])
    runtime.tools.add(
        hr.FunctionTool(
            lambda: runtime.call("get_weather", {"city": "Oslo"}).value,
            name="ask",
            effect="read",
        )
    )
    with runtime:
        assert runtime.call("ask").value["city"] == "Oslo"


def test_an_async_tool_that_calls_the_blocking_runtime_it_runs_on_is_told_instead_of_hanging():
    runtime, raised = hr.SyncRuntime([get_weather]), []

    @hr.tool(effect="read")
    async def ask() -> None:
        """Ask."""
        try:
            runtime.call("get_weather", {"city": "Oslo"})
        except hr.SetupError as error:
            raised.append(str(error))
            raise

    runtime.tools.add(ask)
    with runtime:
        assert runtime.call("ask").failure.code == Code.INTERNAL_ERROR
    assert "event loop" in raised[0]


# -- the keyboard ------------------------------------------------------------------------------------------------------


def interrupt_when(gate):
    """Press Ctrl-C, as far as the main thread can tell, once somebody has come to the gate."""

    def press():
        gate.wait_for()
        signal.pthread_kill(threading.main_thread().ident, signal.SIGINT)

    threading.Thread(target=press, daemon=True).start()


@pytest.mark.parametrize("how", ["task", "thread", "stubborn"])
def test_an_interrupt_ends_a_call(gate, how):
    with hr.SyncRuntime([tool_at(gate, how=how, timeout_s=BOUND_S)]) as runtime:
        interrupt_when(gate)
        with pytest.raises(KeyboardInterrupt):
            runtime.call("work")
        assert gate.cancelled == (how == "task")
        gate.open()
        assert runtime.call("work").ok  # and leaves the runtime usable


def test_an_interrupted_write_is_in_doubt_and_settled_when_it_reports(gate):
    events = []
    tool = tool_at(gate, how="thread", effect="write", timeout_s=BOUND_S)
    with hr.SyncRuntime([tool], observers=[events.append]) as runtime:
        interrupt_when(gate)
        with pytest.raises(KeyboardInterrupt):
            runtime.call("work", run="r")
        assert runtime.call("work", run="r").failure.code == Code.IN_DOUBT
        gate.open()
        until(lambda: any(isinstance(event, FinishedLate) for event in events))
        assert runtime.call("work", run="r").value == "went through"


def test_an_interrupt_while_the_model_is_asked_ends_the_run(gate):
    events = []
    with hr.SyncRuntime([], observers=[events.append]) as runtime:
        interrupt_when(gate)
        with pytest.raises(KeyboardInterrupt):
            runtime.run("?", model=WaitingModel(["never"], gate), run_id="r")
        assert events[-1] == RunEnded("r", "cancelled", "interrupted")
        until(lambda: gate.cancelled == 1)


# -- streams of events -------------------------------------------------------------------------------------------------


def test_a_stream_gives_the_events_and_returns_the_run():
    with hr.SyncRuntime([get_weather]) as runtime:
        stream = runtime.stream(
            "?", model=ScriptedModel([call("get_weather", city="Oslo"), "21"])
        )
        events = []
        while True:
            try:
                events.append(next(stream))
            except StopIteration as end:
                assert end.value.text == "21"
                break
    assert (type(events[0]), type(events[-1])) == (RunStarted, RunEnded)


def test_a_stream_that_was_read_has_its_run():
    with hr.SyncRuntime([get_weather]) as runtime:
        stream = runtime.stream(
            "?", model=ScriptedModel([call("get_weather", city="Oslo"), "21"])
        )
        with pytest.raises(RuntimeError, match="read all of its events first"):
            _ = stream.run
        assert [type(event) for event in stream][-1] is RunEnded
        assert stream.run.text == "21"
        assert list(stream) == []
        assert stream.run.text == "21"  # however often it is asked for more


def test_leaving_the_loop_over_a_stream_that_somebody_holds_cancels_its_run(gate):
    ended = []
    with hr.SyncRuntime(
        [tool_at(gate, how="task", timeout_s=BOUND_S)], observers=[ended.append]
    ) as runtime:
        stream = runtime.stream("?", model=ScriptedModel([call("work"), "never"]))
        for event in stream:
            if type(event).__name__ == "AttemptStarted":
                break
        assert (ended[-1].status, gate.left) == ("cancelled", 0)
        with pytest.raises(RuntimeError):
            _ = stream.run


def test_leaving_a_stream_early_cancels_its_run(gate):
    ended = []
    with hr.SyncRuntime(
        [tool_at(gate, how="task", timeout_s=BOUND_S)], observers=[ended.append]
    ) as runtime:
        stream = runtime.stream("?", model=ScriptedModel([call("work"), "never"]))
        for event in stream:
            if type(event).__name__ == "AttemptStarted":
                break
        stream.close()
    assert (ended[-1].status, gate.left) == ("cancelled", 0)
    assert not [
        thread for thread in threading.enumerate() if thread.name == "handrail-stream"
    ]


def test_a_stream_of_a_run_that_cannot_begin_raises():
    with hr.SyncRuntime([]) as runtime, pytest.raises(hr.ConfigError):
        list(runtime.stream("?", model="nobody:nothing"))


# -- the end -----------------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_closing_ends_the_background_loop_and_what_is_left_on_it(gate, caplog):
    before = len(loops())
    runtime = hr.SyncRuntime([tool_at(gate, how="stubborn"), Documents()])
    with runtime:
        assert runtime.call("work").failure.code == Code.TIMEOUT
        assert len(loops()) == before + 1
        gate.open()
    assert len(loops()) == before
    gc.collect()
    assert "Task was destroyed" not in caplog.text


def test_a_runtime_can_be_used_again_after_it_was_closed():
    with ScriptedServer([call("get_weather", city="Oslo"), "21"]) as server:
        runtime = hr.SyncRuntime([get_weather])
        for _ in range(2):
            with runtime:
                assert runtime.run("?", model=server.model).text == "21"


@pytest.mark.slow
def test_a_runtime_that_nobody_closes_leaves_no_warning():
    runtime = hr.SyncRuntime(
        [get_weather, hr.FunctionTool(lambda: 1, name="one", effect="read")]
    )
    assert runtime.call("get_weather", {"city": "Oslo"}).ok
    assert runtime.call("one").ok
    del runtime
    gc.collect()  # warnings are errors, also those of what is collected


FORKS = """
import os
import handrail as hr
from tests.engine.test_engine import get_weather
from handrail.testing import ScriptedModel, call

def waits(city: str) -> str:
    "Wait for the weather of a city."
    return city

runtime = hr.SyncRuntime([get_weather, hr.FunctionTool(waits, effect="read")])

def answers():
    script = [[call("get_weather", city="Oslo"), call("waits", city="Oslo")], "21"]
    print(runtime.run("?", model=ScriptedModel(script)).text, flush=True)

answers()
if (child := os.fork()) == 0:
    answers()
    runtime.close()
    os._exit(0)
os.waitpid(child, 0)
answers()
runtime.close()
"""


@pytest.mark.slow
@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_runtime_that_was_used_before_a_fork_works_on_both_sides_of_it():
    command = [sys.executable, "-W", "ignore::DeprecationWarning", "-c", FORKS]
    assert subprocess.check_output(command, text=True, timeout=BOUND_S).split() == [
        "21",
        "21",
        "21",
    ]


def test_threads_that_share_a_runtime_share_its_loop():
    before = len(loops())
    with hr.SyncRuntime([get_weather]) as runtime:
        threads = [
            threading.Thread(
                target=runtime.call, args=("get_weather", {"city": str(n)})
            )
            for n in range(8)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(BOUND_S)
        assert len(loops()) == before + 1
