"""What is asyncio's own: cancelled tasks, streams of events, several event loops.

What both drivers do alike is in `test_carrier` (calls) and `test_host` (runs).
"""

import asyncio
import gc
import threading
from contextlib import asynccontextmanager

import pytest

import handrail as hr
from handrail.errors import Code
from handrail.events import CallFinished, FinishedLate, ModelAsked, RunEnded, RunStarted
from handrail.futures import wait_for
from handrail.stores.memory import MemoryStore
from handrail.testing import Overlap, ScriptedModel, ScriptedServer, call
from tests.engine.test_engine import WaitingModel, codes_of, get_weather
from tests.engine.test_executor import SHORT_S, Documents, tool_at
from tests.support.drivers import BOUND_S, Gate, chat_message, until

pytestmark = pytest.mark.anyio


@pytest.fixture
def gate():
    made = Gate()
    yield made
    made.open()


async def here(gate, count=1):
    """Wait at an event loop until so many have come to the gate."""
    async with asyncio.timeout(BOUND_S):
        while gate.entered < count:
            await asyncio.sleep(0)


@asynccontextmanager
async def nothing_left_of(runtime):
    """Wait, when the block is left, until nothing of what was begun in it is under way."""
    before = asyncio.all_tasks()
    yield
    async with asyncio.timeout(BOUND_S):
        while asyncio.all_tasks() - before or runtime._engine.services.given_up:
            await asyncio.sleep(0.001)


# -- the task that asks is cancelled -----------------------------------------------------------------------------------


@pytest.mark.parametrize("how", ["task", "stubborn", "thread"])
async def test_a_cancelled_call_is_cancelled_and_leaves_nothing_behind(gate, how):
    async with (
        hr.Runtime([tool_at(gate, how=how, timeout_s=BOUND_S)]) as runtime,
        nothing_left_of(runtime),
    ):
        asking = asyncio.create_task(runtime.call("work"))
        await here(gate)
        asking.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asking
        gate.open()
    assert gate.cancelled == (how == "task")


async def test_a_write_cut_off_by_a_cancelled_task_is_in_doubt(gate):
    async with hr.Runtime(
        [tool_at(gate, how="task", effect="write", timeout_s=BOUND_S)]
    ) as runtime:
        asking = asyncio.create_task(runtime.call("work", run="r"))
        await here(gate)
        asking.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asking
        assert (await runtime.call("work", run="r")).failure.code == Code.IN_DOUBT
    assert gate.entered == 1


async def test_a_cancelled_run_is_told_as_ended(gate):
    events = []
    async with (
        hr.Runtime([], observers=[events.append]) as runtime,
        nothing_left_of(runtime),
    ):
        running = asyncio.create_task(
            runtime.run("?", model=WaitingModel(["never"], gate), run_id="r")
        )
        await here(gate)
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running
        assert events[-1] == RunEnded(
            "r", "cancelled", "the task that ran it was cancelled"
        )
        assert runtime.cancel("r") is False
    assert gate.cancelled == 1


@pytest.mark.parametrize(
    ("ended_by", "stands"), [("its task", "queued"), ("the runtime", "cancelled")]
)
async def test_a_kept_run_whose_task_is_cancelled_stands_as_one_to_go_on_with(
    gate, tmp_path, ended_by, stands
):
    tools = [tool_at(gate, how="task", timeout_s=BOUND_S)]
    async with hr.Runtime(tools, store=f"sqlite:///{tmp_path}/handrail.db") as runtime:
        running = asyncio.create_task(
            runtime.run("?", model=ScriptedModel([call("work"), "done"]), run_id="r")
        )
        await here(gate)
        assert running.cancel() if ended_by == "its task" else runtime.cancel("r")
        await asyncio.wait([running])
        kept = await wait_for(runtime._engine.runs.load_run("r"))
    assert kept.record.status == stands


async def test_a_time_limit_around_a_call_holds(gate):
    async with hr.Runtime([tool_at(gate, how="task", timeout_s=BOUND_S)]) as runtime:
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(SHORT_S):
                await runtime.call("work")
        # the task goes on
        assert (await runtime.call("nothing")).failure.code == Code.UNKNOWN_TOOL


async def test_a_tool_that_uses_time_limits_of_its_own_disturbs_no_other(gate):
    @hr.tool(effect="read")
    async def limited(n: int) -> str:
        """Give up early."""
        try:
            async with asyncio.timeout(0.001):
                await gate.pass_through_async()
        except TimeoutError:
            return f"gave up {n}"

    async with hr.Runtime([limited, get_weather]) as runtime:
        calls = [
            each
            for n in range(8)
            for each in (call("limited", n=n), call("get_weather", city=str(n)))
        ]
        told = await runtime.handle(chat_message(*calls))
    assert [each["content"] for each in told[::2]] == [f"gave up {n}" for n in range(8)]


async def test_tools_that_answer_at_once_keep_their_context_variables_apart():
    import contextvars

    var = contextvars.ContextVar("var", default="clean")

    @hr.tool(effect="read")
    async def leave(n: int) -> str:
        """Leave something behind."""
        found = var.get()
        var.set(f"left by {n}")
        return found

    async with hr.Runtime([leave]) as runtime:
        told = await runtime.handle(
            chat_message(*(call("leave", n=n) for n in range(8)))
        )
    assert {each["content"] for each in told} == {"clean"}
    assert var.get() == "clean"


async def test_a_tool_may_call_other_tools_and_run_a_model_in_its_first_step():
    @hr.tool(effect="read")
    async def at_once() -> str:
        """Answer at once."""
        return "at once"

    @hr.tool(effect="read")
    async def slowly() -> str:
        """Answer in a later step."""
        await asyncio.sleep(0)
        return "slowly"

    @hr.tool(effect="read")
    async def caller(name: str) -> str:
        """Call another tool."""
        answered = await runtime.call(name)
        await asyncio.sleep(0)
        return f"it said {answered.value}"

    @hr.tool(effect="read")
    async def ask_a_model() -> str:
        """Run a model that calls both."""
        model = ScriptedModel([[call("at_once"), call("slowly")], "both answered"])
        return (await runtime.run("?", model=model)).text

    calls = [
        call("caller", name="at_once"),
        call("caller", name="slowly"),
        call("ask_a_model"),
    ]
    async with (
        hr.Runtime([at_once, slowly, caller, ask_a_model]) as runtime,
        asyncio.timeout(BOUND_S),
    ):
        run = await runtime.run("?", model=ScriptedModel([calls, "done"]))
    assert [
        message.result.value
        for message in run.messages
        if isinstance(message, hr.ToolMessage)
    ] == [
        "it said at once",
        "it said slowly",
        "both answered",
    ]


async def test_two_cancellations_are_no_worse_than_one(gate):
    async with (
        hr.Runtime([tool_at(gate, how="stubborn", timeout_s=BOUND_S)]) as runtime,
        nothing_left_of(runtime),
    ):
        asking = asyncio.create_task(runtime.call("work"))
        await here(gate)
        asking.cancel()
        await asyncio.sleep(0)
        asking.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asking
        gate.open()


# -- streams of events -------------------------------------------------------------------------------------------------


async def test_a_stream_gives_the_events_in_order_and_the_run_at_its_end():
    async with hr.Runtime([get_weather]) as runtime:
        stream = runtime.stream(
            "?", model=ScriptedModel([call("get_weather", city="Oslo"), "21"])
        )
        with pytest.raises(RuntimeError, match="has not ended: read all of its events"):
            _ = stream.run
        names = [type(event).__name__ async for event in stream]
    assert names == [
        "RunStarted", "ModelAsked", "ModelAnswered", "CallAdmitted", "AttemptStarted", "CallFinished",
        "ModelAsked", "Streamed", "ModelAnswered", "RunEnded",
    ]  # fmt: skip
    assert stream.run.text == "21"


async def test_leaving_a_stream_early_cancels_its_run(gate):
    async with (
        hr.Runtime([tool_at(gate, how="task", timeout_s=BOUND_S)]) as runtime,
        nothing_left_of(runtime),
    ):
        events = runtime.stream(
            "?", model=ScriptedModel([call("work"), "never"])
        ).__aiter__()
        async for event in events:
            if isinstance(event, ModelAsked):
                break
        await events.aclose()
    assert gate.left == 0


async def test_a_stream_of_a_run_that_cannot_begin_raises():
    async with hr.Runtime([]) as runtime:
        with pytest.raises(hr.ConfigError):
            async for _ in runtime.stream("?", model="nobody:nothing"):
                pass


# -- event loops -------------------------------------------------------------------------------------------------------


def in_threads(count, work):
    """Run `work(n)` in so many threads, each with an event loop of its own; raise what one of them raised."""
    failed = []

    def run(n):
        try:
            asyncio.run(asyncio.wait_for(work(n), BOUND_S))
        except BaseException as error:
            failed.append(error)

    threads = [threading.Thread(target=run, args=(n,)) for n in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(BOUND_S)
    if failed:
        raise failed[0]


@pytest.mark.parametrize("asynchronous", [False, True])
def test_event_loops_in_several_threads_share_tools_resources_and_the_ledger(
    asynchronous,
):
    documents, seen, made = Documents(asynchronous=asynchronous), Overlap(), []

    @hr.tool(effect="write", resource="the-one", write=hr.Write(repeatable=True))
    async def update() -> None:
        """Update."""
        async with seen:
            await asyncio.sleep(0)

    @hr.tool(effect="write", key="once")
    def once() -> str:
        """Do it once."""
        made.append(1)
        return "done"

    runtime = hr.Runtime([documents, update, once])

    async def work(n):
        for _ in range(10):
            results = await asyncio.gather(
                runtime.call("update"),
                runtime.call("once"),
                runtime.call("search", {"query": str(n)}),
            )
            assert [result.value for result in results] == [None, "done", str(n)]

    in_threads(4, work)
    assert (seen.most_inside, seen.entered, made) == (1, 40, [1])
    asyncio.run(runtime.close())
    assert (documents.log.count("open"), documents.log[-1]) == (1, "close")


def test_one_runtime_serves_one_event_loop_after_another():
    with ScriptedServer([call("get_weather", city="Oslo"), "21"]) as server:
        runtime = hr.Runtime([get_weather])

        async def once():
            async with runtime:
                return await runtime.run("?", model=server.model)

        assert [asyncio.run(once()).text for _ in range(3)] == ["21"] * 3


def test_a_late_report_is_recorded_after_its_event_loop_has_ended(gate):
    events = []
    tool = tool_at(gate, how="thread", effect="write")
    runtime = hr.Runtime([tool], store=MemoryStore(), observers=[events.append])
    assert asyncio.run(runtime.call("work", run="r")).failure.code == Code.IN_DOUBT
    gate.open()
    until(lambda: any(isinstance(event, FinishedLate) for event in events))
    assert asyncio.run(runtime.call("work", run="r")).value == "went through"


@pytest.mark.slow
def test_a_runtime_that_nobody_closes_leaves_no_warning():
    async def main():
        runtime = hr.Runtime(
            [get_weather, hr.FunctionTool(lambda: 1, name="one", effect="read")]
        )
        assert (await runtime.call("get_weather", {"city": "Oslo"})).ok
        assert (await runtime.call("one")).ok
        with pytest.raises(hr.ConfigError):
            await runtime.run("?", model="openai:x@nowhere")

    asyncio.run(main())
    gc.collect()  # warnings are errors, also those of what is collected


async def test_finished_runs_are_told_to_the_observers_of_the_run_and_of_the_runtime():
    mine, ours = [], []
    async with hr.Runtime([get_weather], observers=[ours.append]) as runtime:
        run = await runtime.run(
            "?",
            model=ScriptedModel([call("get_weather", city="Oslo"), "21"]),
            observers=[mine.append],
        )
    assert mine == ours
    assert isinstance(mine[0], RunStarted) and isinstance(mine[-1], RunEnded)
    assert [
        event.result.value for event in mine if isinstance(event, CallFinished)
    ] == [{"city": "Oslo", "celsius": 21}]
    assert codes_of(run) == [None]


async def test_tools_that_call_others_in_their_first_step_leave_no_task_for_each_call():
    @hr.tool(effect="read")
    async def inner() -> int:
        """Count."""
        return 1

    @hr.tool(effect="read")
    async def outer() -> int:
        """Ask another."""
        return (await runtime.call("inner", {})).value

    async with hr.Runtime([inner, outer]) as runtime:
        before = len(asyncio.all_tasks())
        for _ in range(100):
            assert (await runtime.call("outer", {})).value == 1
        assert len(asyncio.all_tasks()) - before <= 2


# -- what a runtime shows ----------------------------------------------------------------------------------------------

SETTINGS = [
    "approver",
    "budget",
    "observers",
    "policy",
    "result_bytes",
    "store",
    "tools",
]
VERBS = [
    "approvals", "blocking", "call", "calls", "cancel", "close", "deliver", "fork", "handle", "offered", "preview",
    "replay", "result", "resume", "run", "stream", "submit", "undo", "undoable", "workflow",
]  # fmt: skip


@pytest.fixture(params=[hr.Runtime, hr.SyncRuntime])
def kind(request):
    return request.param


def test_a_runtime_shows_its_settings_and_its_verbs_and_nothing_else(kind):
    assert [name for name in dir(kind([])) if not name.startswith("_")] == sorted(
        SETTINGS + VERBS
    )


@pytest.mark.parametrize("name", SETTINGS)
def test_a_setting_cannot_be_changed_by_half(kind, name):
    runtime = kind([])
    before = getattr(runtime, name)
    with pytest.raises(
        hr.ConfigError,
        match=f"`{name}` of a {kind.__name__} cannot be changed; make another",
    ):
        setattr(runtime, name, None)
    with pytest.raises(
        hr.ConfigError,
        match=f"`{name}` of a {kind.__name__} cannot be changed; make another",
    ):
        delattr(runtime, name)
    assert getattr(runtime, name) is before


@pytest.mark.parametrize("name", ["polcy", "run", "_engine"])
def test_nothing_else_can_be_set_on_a_runtime(kind, name):
    with pytest.raises(hr.ConfigError, match=f"is read-only; `{name}` cannot be set"):
        setattr(kind([]), name, None)
