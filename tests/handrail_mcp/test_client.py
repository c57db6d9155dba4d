"""Any server's tools as a toolset: over standard streams and over HTTP, in both eras of the protocol."""

import asyncio
import os
import signal
import socket
import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path

import pytest

import handrail as hr
from handrail_mcp.toolset import SETTLE_S
from tests.support.drivers import until

STDIO = [sys.executable, "-m", "tests.handrail_mcp.depot", "stdio"]
READS = {
    name: {"effect": "read"}
    for name in (
        "count_stock",
        "walk_through",
        "sleep",
        "fail",
        "ask_address",
        "rebuild",
    )
}
ERAS = ["legacy", "2026-07-28", "auto"]


@pytest.fixture(scope="module")
def effects(tmp_path_factory):
    return tmp_path_factory.mktemp("depot") / "effects"


@pytest.fixture(scope="module")
def address(effects):
    with serve_depot(effects) as url:
        yield url


@contextmanager
def serve_depot(effects):
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [sys.executable, "-m", "tests.handrail_mcp.depot", "http", str(port)]
    with subprocess.Popen(
        command, env=os.environ | {"DEPOT_EFFECTS": str(effects)}
    ) as server:
        try:
            until(lambda: listens(port))
            yield f"http://127.0.0.1:{port}/mcp"
        finally:
            server.kill()


def listens(port):
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


@pytest.fixture(params=["stdio", "http"])
def connect(request, effects):
    """Return what connects to the depot, by either transport."""

    def connect_depot(**options):
        options.setdefault("name", "depot")
        if request.param == "stdio":
            return hr.mcp.connect(STDIO, env={"DEPOT_EFFECTS": str(effects)}, **options)
        return hr.mcp.connect(request.getfixturevalue("address"), **options)

    return connect_depot


@pytest.mark.parametrize("mode", ERAS)
@pytest.mark.anyio
async def test_tools_of_a_server_are_called_through_a_runtime(connect, mode):
    tools = await connect(overrides=READS, mode=mode)
    runtime = hr.Runtime(tools)
    result = await runtime.call("depot_count_stock", {"item": "bolts"})
    wrong = await runtime.call("depot_count_stock", {"itm": "bolts"})
    await runtime.close()
    assert result.value == {"result": 5}
    assert wrong.failure.code == "INVALID_ARGUMENTS"
    assert not tools.connection.is_open


def test_a_blocking_runtime_uses_a_server_too(effects):
    tools = hr.mcp.tools(STDIO, name="depot", overrides=READS)
    with hr.SyncRuntime(tools) as runtime:
        assert runtime.call("depot_count_stock", {"item": "nuts"}).value == {
            "result": 4
        }


@pytest.mark.anyio
async def test_nothing_of_a_server_that_nobody_trusts_runs_unasked(connect, effects):
    async with await connect() as tools:
        runtime = hr.Runtime(tools)
        result = await runtime.call("depot_order", {"item": "bolts"})
        await runtime.close()
    assert result.failure.code == "NOT_APPROVED"
    assert not effects.exists() or "order bolts" not in effects.read_text()


@pytest.mark.anyio
async def test_a_tool_that_fails_says_why(connect):
    async with await connect(overrides=READS) as tools:
        runtime = hr.Runtime(tools)
        result = await runtime.call("depot_fail")
        await runtime.close()
    assert result.failure.code == "TOOL_FAILED"
    assert "the roof leaks" in result.failure.message


@pytest.mark.anyio
async def test_progress_of_a_server_is_progress_of_the_call(connect):
    seen = []
    async with await connect(overrides=READS) as tools:
        runtime = hr.Runtime(tools, observers=[seen.append])
        await runtime.call("depot_walk_through", {"steps": 3})
        await runtime.close()
    told = [
        (each.done, each.note)
        for each in seen
        if isinstance(each, hr.events.Progressed)
    ]
    assert told == [(1, "aisle 1"), (2, "aisle 2"), (3, "aisle 3")]


@pytest.mark.anyio
async def test_a_call_that_runs_out_of_time_is_cancelled_at_the_server(
    connect, effects
):
    async with await connect(
        overrides={"sleep": {"effect": "read", "timeout_s": 0.5}}
    ) as tools:
        runtime = hr.Runtime(tools)
        result = await runtime.call("depot_sleep", {"seconds": 60})
        assert result.failure.code == "TIMEOUT"
        assert "depot" in result.failure.message
        await wait_until(
            lambda: effects.exists() and "sleep cancelled" in effects.read_text()
        )
        await runtime.close()
    effects.unlink()


@pytest.mark.anyio
async def test_a_server_asks_a_person_through_an_approver(connect):
    asked = []

    def answer(question):
        asked.append(question)
        return hr.Approval(True, arguments={"street": "Kai", "number": 3})

    async with await connect(overrides=READS, approver=answer, mode="legacy") as tools:
        runtime = hr.Runtime(tools)
        result = await runtime.call("depot_ask_address")
        await runtime.close()
    assert result.value == {"result": "Kai 3"}
    assert "'depot' asks: Where to?" in asked[0].reason
    assert asked[0].arguments == {"number": 7}
    assert asked[0].parameters["required"] == ["street"]


@pytest.mark.parametrize(
    ("answer", "action"),
    [(False, "decline"), (None, "cancel"), (hr.Approval(True), "cancel")],
)
@pytest.mark.anyio
async def test_a_form_that_nobody_fills_in_is_not_accepted(connect, answer, action):
    how = {"overrides": READS, "mode": "legacy"}
    async with await connect(approver=lambda _: answer, **how) as tools:
        runtime = hr.Runtime(tools)
        result = await runtime.call("depot_ask_address")
        await runtime.close()
    assert result.value == {"result": action}


@pytest.mark.anyio
async def test_a_child_inherits_nothing_that_it_was_not_given(monkeypatch, effects):
    monkeypatch.setenv("SECRET_TOKEN", "hunter2")
    async with await hr.mcp.connect(
        STDIO, name="depot", env={"DEPOT_EFFECTS": str(effects)}, trust="hints"
    ) as tools:
        runtime = hr.Runtime(tools)
        result = await runtime.call("depot_read_environment")
        await runtime.close()
    assert "SECRET_TOKEN" not in result.text
    assert "DEPOT_EFFECTS" in result.text


@pytest.mark.anyio
async def test_any_task_any_loop_and_any_thread_may_call_and_close(connect):
    tools = await connect(overrides=READS)
    runtime = hr.Runtime(tools)
    blocking = runtime.blocking
    results = await asyncio.gather(
        asyncio.to_thread(blocking.call, "depot_count_stock", {"item": "ab"}),
        asyncio.create_task(runtime.call("depot_count_stock", {"item": "abc"})),
    )
    assert [each.value["result"] for each in results] == [2, 3]
    await asyncio.create_task(tools.aclose())
    again = await runtime.call("depot_count_stock", {"item": "abcd"})
    assert again.value == {"result": 4}
    await asyncio.to_thread(asyncio.run, tools.aclose())
    assert not tools.connection.is_open


@pytest.mark.anyio
async def test_what_was_to_be_listed_again_does_not_open_a_closed_connection(connect):
    tools = await connect(overrides=READS)
    await tools.aclose()
    # opened again, after which its tools are to be listed again, a moment later
    await tools.connection.call("count_stock", {"item": "a"})
    await tools.aclose()
    await asyncio.sleep(3 * SETTLE_S)
    assert not tools.connection.is_open
    assert tools.connection._current is None


def test_tools_that_were_connected_on_a_loop_that_ended_are_connected_again(effects):
    tools = asyncio.run(hr.mcp.connect(STDIO, name="depot", overrides=READS))

    async def call():
        runtime = hr.Runtime(tools)
        result = await runtime.call("depot_count_stock", {"item": "abc"})
        await runtime.close()
        return result.value

    assert asyncio.run(call()) == {"result": 3}
    assert asyncio.run(call()) == {"result": 3}


@pytest.mark.anyio
async def test_closing_on_its_own_loop_without_await_is_refused_and_does_not_hang(
    connect,
):
    tools = await connect()
    with pytest.raises(hr.SetupError, match=r"await tools\.aclose"):
        tools.close()
    await tools.aclose()


@pytest.mark.anyio
async def test_a_server_cannot_take_the_place_of_a_tool_of_ours(connect):
    async with await connect(prefix="read_", overrides=READS) as tools:
        assert "read_result" not in tools
        assert "'result' of 'depot' is left out" in tools.problems[0]


@pytest.mark.parametrize("mode", ["legacy", "2026-07-28"])
@pytest.mark.anyio
async def test_tools_follow_a_server_that_changes_and_pins_hold_against_it(
    effects, tmp_path, mode
):
    pins = hr.mcp.Pins(tmp_path / "pins.json")
    env = {"DEPOT_EFFECTS": str(effects)}
    how = {"name": "depot", "env": env, "mode": mode, "overrides": READS}
    first = await hr.mcp.connect(STDIO, pins=pins, **how)
    pins.agree("depot")
    await first.aclose()
    plain = await hr.mcp.connect(STDIO, **how)
    pinned = await hr.mcp.connect(STDIO, pins=pins, **how)
    told = []
    plain.listen(lambda: told.append(len(plain)))
    before = len(plain)
    for tools in (plain, pinned):
        runtime = hr.Runtime(tools)
        await ready_to_hear(tools)
        await runtime.call("depot_rebuild")
        await wait_until(lambda: "depot_annex" in plain.by_name)
        await wait_until(lambda tools=tools: tools is plain or tools.quarantined)
        await runtime.close()
    assert told == [before + 1]
    assert "depot_annex" not in pinned.by_name
    assert pinned.quarantined["annex"].state == "unknown"


async def ready_to_hear(tools):
    """Wait until the server has taken the subscription of 2026-07-28, of which nothing is told to us."""
    if tools.connection.protocol_version == "2026-07-28":
        await asyncio.sleep(1)


async def wait_until(fact):
    """Wait until something holds, on a loop that goes on meanwhile."""
    await asyncio.to_thread(until, fact)


@pytest.mark.skipif(sys.platform != "linux", reason="the kernel's promise is Linux's")
def test_a_server_dies_with_a_client_that_is_killed(tmp_path):
    program = f"""
import time
import handrail as hr
tools = hr.mcp.tools({STDIO!r})
print(tools.connection._current.child.pid, flush=True)
time.sleep(600)
"""
    with subprocess.Popen(
        [sys.executable, "-c", program], stdout=subprocess.PIPE, text=True
    ) as client:
        child = int(client.stdout.readline())
        os.kill(child, 0)
        client.send_signal(signal.SIGKILL)
    until(lambda: not is_alive(child))


def is_alive(pid):
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2]
        return state.split()[0] != "Z"
    except OSError:
        return False
