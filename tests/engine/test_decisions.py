"""Functions of a tool's author that decide about a call: outside of the event loop, within a time, and only once."""

import asyncio
import threading
import time

import pytest

import handrail as hr
from handrail.core import admission
from handrail.engine import executor
from handrail.errors import Code
from handrail.events import AttemptFailed, AttemptStarted, CallAdmitted
from handrail.testing import ScriptedModel
from handrail.workers.threads import DEFAULT_THREADS


@pytest.fixture(params=["asyncio", "blocking"])
def call(request):
    """A function that makes one call in either runtime: tools, name, arguments, settings of the runtime."""

    def in_loop(tools, name, arguments, **settings):
        async def make():
            async with hr.Runtime(tools, **settings) as runtime:
                return await runtime.call(name, arguments)

        return asyncio.run(make())

    def blocking(tools, name, arguments, **settings):
        with hr.SyncRuntime(tools, **settings) as runtime:
            return runtime.call(name, arguments)

    return in_loop if request.param == "asyncio" else blocking


def make_tool(setting, function, *, blocking=True):
    sent = []

    @hr.tool(effect="write", blocking=blocking, **{setting: function})
    async def send(to: str) -> str:
        """Send a message."""
        sent.append(to)
        return f"sent to {to}"

    return send, sent


ANSWERS = {"check": None, "approve": False, "key": "message:a"}


@pytest.mark.parametrize("setting", ANSWERS)
def test_a_function_that_decides_runs_outside_of_the_loops_thread(call, setting):
    threads = []

    def decide(to):
        threads.append(threading.current_thread())
        return ANSWERS[setting]

    send, sent = make_tool(setting, decide)
    assert call([send], "send", {"to": "a"}).ok
    assert sent == ["a"]
    assert [thread is threading.main_thread() for thread in threads] == [False]


@pytest.mark.parametrize("setting", ANSWERS)
def test_a_function_that_is_declared_quick_runs_in_place(call, setting):
    threads = []

    def decide(to):
        threads.append(threading.current_thread())
        return ANSWERS[setting]

    send, _ = make_tool(setting, decide, blocking=False)
    assert call([send], "send", {"to": "a"}).ok
    assert threads == [threading.main_thread()]


@pytest.mark.parametrize("setting", ANSWERS)
def test_a_function_that_hangs_refuses_its_call_and_nothing_runs(
    call, setting, monkeypatch
):
    monkeypatch.setattr(executor, "LONGEST_ADMISSION_S", 0.1)
    released = threading.Event()

    def decide(to):
        released.wait(20)
        return ANSWERS[setting]

    send, sent = make_tool(setting, decide)
    result = call([send], "send", {"to": "a"})
    released.set()
    assert (result.failure.code, result.failure.retryable) == (Code.TIMEOUT, True)
    assert "was not decided in time" in result.failure.message
    time.sleep(0.05)
    assert sent == []


def test_a_function_that_hangs_holds_up_neither_the_loop_nor_other_calls():
    released = threading.Event()

    def decide(to):
        released.wait(20)

    send, sent = make_tool("check", decide)

    @hr.tool(effect="read")
    async def look() -> int:
        """Look."""
        return 1

    async def main():
        async with hr.Runtime([send, look]) as runtime:
            waiting = asyncio.ensure_future(runtime.call("send", {"to": "a"}))
            await asyncio.sleep(0.05)
            looked = await asyncio.wait_for(runtime.call("look", {}), 5)
            undecided = not waiting.done() and sent == []
            released.set()
            return looked, undecided, await waiting

    looked, undecided, result = asyncio.run(main())
    assert (looked.value, undecided, result.ok, sent) == (1, True, True, ["a"])


def test_a_call_is_cancelled_while_it_is_decided_about_and_does_not_run():
    deciding, released = threading.Event(), threading.Event()

    def decide(to):
        deciding.set()
        released.wait(20)

    send, sent = make_tool("check", decide)
    model = ScriptedModel([hr.Turn(calls=[hr.ToolCall("c1", "send", '{"to": "a"}')])])

    async def main():
        async with hr.Runtime([send]) as runtime:
            running = asyncio.ensure_future(
                runtime.run("Send.", model=model, run_id="mine")
            )
            await asyncio.to_thread(deciding.wait, 5)
            runtime.cancel("mine")
            run = await asyncio.wait_for(running, 5)
            released.set()
            return run

    run = asyncio.run(main())
    assert (run.status, sent) == ("cancelled", [])
    assert run.messages[-1].result.failure.code == Code.CANCELLED


def test_what_a_function_raises_is_told_to_observers_in_the_runtimes_own_thread(call):
    events = []

    def decide(to):
        raise ZeroDivisionError(to)

    def observe(event):
        events.append((type(event), threading.current_thread()))

    send, sent = make_tool("key", decide)
    result = call([send], "send", {"to": "a"}, observers=[observe])
    assert (result.failure.code, sent) == (Code.INTERNAL_ERROR, [])
    assert {thread for _, thread in events} == {threading.main_thread()}
    kinds = [kind for kind, _ in events]
    assert AttemptFailed in kinds
    assert CallAdmitted not in kinds


def test_edited_arguments_are_decided_about_in_a_thread_too(call):
    seen = []

    def decide(to):
        seen.append((to, threading.current_thread() is threading.main_thread()))

    send, sent = make_tool("check", decide)
    edited = hr.Approval(True, by="anna", arguments={"to": "b"})
    policy = hr.Policy(rules=[hr.Rule("send", then="ask")])
    result = call(
        [send], "send", {"to": "a"}, policy=policy, approver=lambda asked: edited
    )
    assert result.ok
    assert sent == ["b"]
    assert seen == [("a", False), ("b", False)]


def test_the_time_to_decide_is_never_longer_than_what_is_left_of_the_run(call):
    released = threading.Event()
    send, sent = make_tool("check", lambda to: released.wait(20))
    began = time.monotonic()
    result = call([send], "send", {"to": "a"}, budget=hr.Budget(time_s=0.2))
    released.set()
    assert time.monotonic() - began < admission.LONGEST_ADMISSION_S
    assert (result.failure.code, sent) == (Code.TIMEOUT, [])


def test_a_fork_and_an_undo_ask_such_functions_outside_of_the_loops_thread(tmp_path):
    threads = []

    def name_message(to):
        threads.append(threading.current_thread() is threading.main_thread())
        return f"message:{to}"

    @hr.tool(
        effect="write",
        key=name_message,
        write=hr.Write(compensate=lambda to, result: None),
    )
    async def send(to: str) -> str:
        """Send a message."""
        return f"sent to {to}"

    model = ScriptedModel(
        [hr.Turn(calls=[hr.ToolCall("c1", "send", '{"to": "a"}')]), "Sent."]
    )

    async def main():
        async with hr.Runtime([send], store=f"sqlite:///{tmp_path}/h.db") as runtime:
            run = await runtime.run("Send.", model=model, run_id="mine")
            offered = await runtime.undoable("mine")
            forked = await runtime.fork("mine", at_turn=1, model=model)
            return run.text, [each.tool for each in offered], forked.status

    assert asyncio.run(main()) == ("Sent.", ["send"], "done")
    assert threads[0] is False
    assert len(threads) >= 3
    assert not any(threads)


@pytest.mark.parametrize("setting", ANSWERS)
def test_an_interrupt_that_a_function_raises_refuses_its_call_and_no_other(
    call, setting
):
    def decide(to):
        raise KeyboardInterrupt

    send, sent = make_tool(setting, decide)
    result = call([send], "send", {"to": "a"})
    assert (result.failure.code, sent) == (Code.INTERNAL_ERROR, [])


def test_functions_that_hang_keep_no_tool_from_running(monkeypatch):
    monkeypatch.setattr(executor, "LONGEST_ADMISSION_S", 0.1)
    released = threading.Event()

    @hr.tool(effect="read")
    def look() -> int:
        """Look, in a thread."""
        return 1

    def decide(to):
        released.wait(20)

    send, _ = make_tool("check", decide)

    async def fill():
        async with hr.Runtime([send, look]) as runtime:
            hanging = [
                runtime.call("send", {"to": str(n)}) for n in range(DEFAULT_THREADS)
            ]
            refused = await asyncio.gather(*hanging)
            return refused, await asyncio.wait_for(runtime.call("look", {}), 5)

    refused, result = asyncio.run(fill())
    released.set()
    assert {each.failure.code for each in refused} == {Code.TIMEOUT}
    assert result.value == 1


def test_a_read_has_what_is_left_of_the_run_once_it_was_decided_about(call):
    left = []

    @hr.tool(effect="read", check=lambda to: time.sleep(0.3))
    async def look(to: str, context: hr.Context) -> str:
        """Look."""
        left.append(context.remaining_s())
        return to

    assert call([look], "look", {"to": "a"}, budget=hr.Budget(time_s=20)).ok
    assert left[0] <= 19.7


def test_a_decision_that_was_made_in_time_counts_however_late_it_is_read(monkeypatch):
    monkeypatch.setattr(executor, "LONGEST_ADMISSION_S", 0.1)

    def observe(event):
        if isinstance(event, AttemptStarted):
            time.sleep(0.3)  # holds up the thread that reads the decision

    send, sent = make_tool("check", lambda to: None)

    @hr.tool(effect="read", blocking=False)
    def look() -> int:
        """Look."""
        return 1

    message = {
        "role": "assistant",
        "tool_calls": [
            {
                "id": name,
                "type": "function",
                "function": {"name": name, "arguments": arguments},
            }
            for name, arguments in (("send", '{"to": "a"}'), ("look", "{}"))
        ],
    }
    with hr.SyncRuntime([send, look], observers=[observe]) as runtime:
        results = runtime.handle(message)
    assert [each["content"] for each in results] == ["sent to a", "1"]
    assert sent == ["a"]


def test_nothing_starts_once_its_event_loop_is_closed():
    deciding, released, ended = (threading.Event() for _ in range(3))

    def decide(to):
        deciding.set()
        released.wait(20)

    sent = []

    @hr.tool(effect="write", check=decide)
    def send(to: str) -> None:
        """Send a message, in a thread."""
        sent.append(to)

    runtime = hr.Runtime([send])
    loop = asyncio.new_event_loop()

    async def hang_up():
        calling = asyncio.ensure_future(runtime.call("send", {"to": "a"}))
        await asyncio.to_thread(deciding.wait, 5)
        return calling

    calling = loop.run_until_complete(hang_up())
    loop.run_until_complete(loop.shutdown_default_executor())
    loop.close()
    released.set()
    threads = runtime._engine.services.deciding_threads
    threads.call(ended.set)
    assert ended.wait(5)
    assert runtime._engine.services.threads.call(sent.copy).result(5) == []
    calling._log_destroy_pending = False


def test_a_call_that_has_run_is_counted_in_a_replay_whatever_is_decided_now(
    tmp_path, monkeypatch
):
    replaying, released = threading.Event(), threading.Event()

    def decide(to):
        if replaying.is_set():
            released.wait(20)

    send, sent = make_tool("check", decide)
    model = ScriptedModel(
        [hr.Turn(calls=[hr.ToolCall("c1", "send", '{"to": "a"}')]), "Sent."]
    )

    async def main():
        async with hr.Runtime([send], store=f"sqlite:///{tmp_path}/h.db") as runtime:
            run = await runtime.run("Send.", model=model, run_id="mine")
            monkeypatch.setattr(executor, "LONGEST_ADMISSION_S", 0.1)
            replaying.set()
            replayed = await runtime.replay("mine", model=model)
            released.set()
            return run.spent.calls, replayed.spent.calls, replayed.text

    assert asyncio.run(main()) == (1, 1, "Sent.")
    assert sent == ["a"]


def test_nothing_is_decided_about_a_call_that_was_cancelled_in_line():
    entered, released = threading.Semaphore(0), threading.Event()
    asked = []

    def decide(to):
        asked.append(to)
        entered.release()
        released.wait(20)

    send, _ = make_tool("check", decide)

    async def main():
        async with hr.Runtime([send]) as runtime:
            calling = [
                asyncio.ensure_future(runtime.call("send", {"to": str(n)}))
                for n in range(DEFAULT_THREADS + 5)
            ]
            for _ in range(DEFAULT_THREADS):
                assert await asyncio.to_thread(entered.acquire, timeout=5)
            # those in line first: a thread that nobody waits for any more makes room for the next in line
            for each in reversed(calling):
                each.cancel()
            await asyncio.wait(calling)
            released.set()
            threads = runtime._engine.services.deciding_threads
            await asyncio.wrap_future(threads.call(asked.copy))

    asyncio.run(main())
    assert len(asked) == DEFAULT_THREADS


def test_a_step_after_a_call_that_would_be_refused_on_resume_is_not_dropped_in_silence(
    tmp_path,
):
    started = asyncio.Event()
    refuses = []

    @hr.tool(effect="write")
    async def notify(to: str) -> str:
        """Notify."""
        started.set()
        await asyncio.sleep(60)
        return "notified"

    @hr.tool(
        effect="read",
        check=lambda to: "not now" if refuses else None,
        then=hr.Then(notify, {"to": "{to}"}),
    )
    async def look(to: str) -> str:
        """Look."""
        return f"looked at {to}"

    model = ScriptedModel(
        [hr.Turn(calls=[hr.ToolCall("c1", "look", '{"to": "a"}')]), "Done."]
    )

    async def main():
        async with hr.Runtime([look], store=f"sqlite:///{tmp_path}/h.db") as runtime:
            running = asyncio.ensure_future(
                runtime.run("Look.", model=model, run_id="mine")
            )
            await asyncio.wait_for(started.wait(), 5)
            running.cancel()
            await asyncio.wait([running])
            refuses.append(True)
            return await runtime.resume("mine", model=model)

    run = asyncio.run(main())
    text = run.messages[-2].result.text
    assert text.startswith("looked at a")
    assert "IN_DOUBT" in text
    assert "whether it was called before is not known" in text
