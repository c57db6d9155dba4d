"""Tools in a sandbox, driven through the runtime: what they can do, what they cannot, and what comes out."""

from __future__ import annotations

import asyncio
import importlib
import json
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
from base64 import b64encode
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from uuid import uuid4

import pytest
from hypothesis import given
from hypothesis import strategies as st

import handrail as hr
from handrail import logs
from handrail.calls import Media
from handrail.errors import ConfigError, NoEffect, ToolDefinitionError, ToolError
from handrail.network.descriptors import wait_readable
from handrail.ports import JobEnded
from handrail.sandboxes import bubblewrap, confinement, container, landlock
from handrail.sandboxes import levels as isolation
from handrail.sandboxes.bubblewrap import Bubblewrap
from handrail.workers.processes import ProcessEnded
from handrail.workers.sandboxed import (
    SandboxedCall,
    find_visible_code,
)
from tests.support.boxes import isolated
from tests.support.busy import no_low_descriptors
from tests.support.drivers import BOUND_S
from tests.test_architecture import PACKAGES
from tests.workers.sandboxed_tools import (
    BY_NUMBER,
    CALLS,
    HOW,
    PROBES,
    add,
    add_later,
    count_calls,
    escape,
    escape_from_a_process,
    fail,
    fail_below,
    fail_in_a_row,
    fail_later,
    hoard,
    leave_a_daemon,
    leave_or_find,
    list_folder,
    loop_with_child,
    print_without_end,
    refuse_to_write,
    rows_inside,
    what,
    with_context,
)


@pytest.fixture(params=["asyncio", "sync"])
def call(request):
    """Call a tool on either driver."""

    def called(tool, arguments=None, **how):
        if request.param == "sync":
            with hr.SyncRuntime([tool]) as runtime:
                return runtime.call(tool.name, arguments or {}, **how)

        async def asked():
            async with hr.Runtime([tool]) as runtime:
                return await asyncio.wait_for(
                    runtime.call(tool.name, arguments or {}, **how), BOUND_S + 20
                )

        return asyncio.run(asked())

    return called


# ---------------------------------------------------------------------- as a tool


levels = pytest.mark.parametrize(
    "level", ["process", pytest.param("isolated", marks=isolated)]
)


def at(level, tool):
    return tool.replace(isolation=level)


@levels
@pytest.mark.parametrize("tool", [add, add_later])
def test_plain_and_async_functions_return_their_values(call, tool, level):
    assert call(at(level, tool), {"x": 2, "y": 40}).value == 42


@isolated
def test_what_it_prints_goes_to_the_log_and_is_no_part_of_its_answer(call, caplog):
    with caplog.at_level("DEBUG"):
        assert call(add, {"x": 2, "y": 40}).value == 42
    assert "add printed in its sandbox: b'printed 2 40\\n'" in caplog.text


@isolated
def test_no_call_finds_anything_of_the_one_before():
    with hr.SyncRuntime([count_calls]) as runtime:
        assert [runtime.call("count_calls").value for _ in range(2)] == [1, 1]
    assert CALLS == []


@levels
def test_a_tool_gets_its_context_and_what_is_injected(call, level):
    result = call(
        at(level, with_context),
        {"order": "7"},
        deps={"db": "shop"},
        inject={"tenant": "acme"},
    )
    assert (result.value["deps"], result.value["of"], result.value["left"]) == (
        {"db": "shop"},
        "acme",
        True,
    )
    assert result.value["key"]


@levels
@pytest.mark.parametrize(("kind", "text"), [
    ("point", '{"x":1,"y":2}'), ("rows", '[{"n":0},{"n":1},{"n":2}]'), ("picture", "[image/png chart.png, 4 bytes]"),
    ("pictures", '{"title":"sales","chart":"[image/png, 4 bytes]"}'),
])  # fmt: skip
def test_what_a_tool_returns_is_the_same_as_in_our_own_process(call, level, kind, text):
    result = call(at(level, what), {"kind": kind})
    assert result.text == text
    assert [each.data for each in result.media] == (
        [b"\0PNG"] if "picture" in kind else []
    )


@isolated
def test_a_long_text_comes_back_whole_and_one_beyond_all_bounds_is_a_failure(call):
    assert call(what, {"kind": "text"}).value == "天" * 1_000_000
    assert call(what, {"kind": "too large"}).failure.code == "INTERNAL_ERROR"
    assert call(what, {"kind": "function"}).text == "<function>"


@isolated
@pytest.mark.parametrize(("how", "code"), [
    ("tool", "NO_SUCH_ORDER"), ("value", "INTERNAL_ERROR"), ("sys.exit", "INTERNAL_ERROR"), ("exit", "INTERNAL_ERROR"),
])  # fmt: skip
def test_a_failure_there_is_a_failure_here(call, how, code):
    result = call(fail, {"how": how})
    assert result.failure.code == code
    assert "secret" not in result.text


@isolated
def test_a_write_that_says_that_it_had_no_effect_is_believed_as_in_our_own_process(
    call,
):
    assert call(refuse_to_write).failure.as_json() == {
        "success": False, "error_code": "CLOSED", "error_message": "The desk is closed.",
        "suggestion": "Come back at nine.", "retryable": True,
    }  # fmt: skip


@isolated
def test_a_tool_that_is_made_inside_a_function_goes_by_value(call):
    base = 40

    def inner(x: int) -> int:
        """Add to what stands around."""
        return base + x

    assert call(hr.FunctionTool(inner, **HOW), {"x": 2}).value == 42


# ---------------------------------------------------------------------- what it sees


@isolated
def test_it_sees_its_own_module_and_nothing_that_lies_beside_it(
    call, open_folder, monkeypatch
):
    own = "import os\ndef look():\n    '''Look.'''\n    return os.listdir(os.path.dirname(__file__))\n"
    (open_folder / "own_tool.py").write_text(own)
    (open_folder / ".env").write_text("KEY=secret")
    monkeypatch.syspath_prepend(open_folder)
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    monkeypatch.delitem(sys.modules, "own_tool", raising=False)
    look = importlib.import_module("own_tool").look
    assert call(hr.FunctionTool(look, **HOW)).value == ["own_tool.py"]


@isolated
def test_it_sees_what_it_declares_and_cannot_change_it(call, open_folder):
    (open_folder / "orders.csv").write_text("a,1\n")

    def look(path: str) -> list[str]:
        """Read a file, and try to write it."""
        try:
            Path(path).write_text("changed")
        except OSError as error:
            return [Path(path).read_text(), type(error).__name__]
        return ["it could be written"]

    tool = hr.FunctionTool(look, **HOW, sandbox=hr.Sandbox(mounts=[open_folder]))
    assert call(tool, {"path": str(open_folder / "orders.csv")}).value == [
        "a,1\n",
        "OSError",
    ]


@pytest.fixture
def open_folder():
    """A folder that others may read: as root, a sandbox is entered as nobody."""
    with tempfile.TemporaryDirectory(prefix="handrail-shown-") as folder:
        Path(folder).chmod(0o755)
        yield Path(folder)


@isolated
def test_what_cannot_be_shown_to_it_refuses_the_call_and_tells_the_log_why(
    call, caplog
):
    tool = hr.FunctionTool(
        list_folder.fn, **HOW, sandbox=hr.Sandbox(mounts=["/nowhere/there"])
    )
    result = call(tool, {"folder": "/"})
    assert result.failure.code == "NOT_ISOLATED"
    assert "/nowhere/there" in caplog.text
    assert "/nowhere/there" not in result.text


def test_installed_packages_are_shown_whole_and_of_a_project_the_tool_s_own_code():
    path, mounts = find_visible_code(add)
    assert str(Path(hr.__file__).parent) in mounts
    assert str(Path(__file__).parents[1]) in mounts
    assert str(Path(__file__).parents[2]) not in mounts
    assert {Path(each).name for each in mounts} <= {
        "site-packages",
        "dist-packages",
        "tests",
        *PACKAGES,
    }
    assert set(path) <= {str(Path(each or ".").resolve()) for each in sys.path}


def test_memory_is_above_nothing():
    with pytest.raises(
        ToolDefinitionError, match="`memory_bytes` is a whole number, at least 1, not 0"
    ):
        hr.FunctionTool(list_folder.fn, sandbox=hr.Sandbox(memory_bytes=0))


@pytest.mark.parametrize(
    "how",
    [
        {"sandbox": hr.Sandbox(mounts=["/tmp"])},
        {"sandbox": hr.Sandbox(mounts="/tmp"), "isolation": "isolated"},
    ],
)
def test_mounts_are_a_list_for_isolated_tools(how):
    with pytest.raises(
        ToolDefinitionError,
        match=r"`mounts` is (a list of files and folders|for an isolated tool)",
    ):
        hr.FunctionTool(list_folder.fn, **how)


# ---------------------------------------------------------------------- what it cannot do


# What the probes of system calls share. The numbers of x86_64 and aarch64 are in `handrail.sandboxes.seccomp`.

# Each ends with what it got, or raises. Most were tried on ready-made sandboxes too; see docs/reference/isolation.md.
HARMLESS = [*PROBES][:-4]


OPEN_TO_A_PROCESS = {
    "read the users", "read a secret in the environment", "read a secret of other processes", "write outside",
    "reach a port of this machine", "reach an abstract socket", "list keys",
    *(["kill the runtime"] if landlock.abi() < landlock.ABI_OF_SCOPES else []),
}  # fmt: skip


@pytest.fixture
def world(tmp_path, monkeypatch, key):
    """What a tool may try to reach: a port, an abstract socket, a file, a secret, a key, us."""
    monkeypatch.setenv("PROBE_SECRET", "the-secret")
    name = f"\0handrail-probe-{uuid4()}"
    with socket.socket() as port, socket.socket(socket.AF_UNIX) as abstract:
        port.bind(("127.0.0.1", 0))
        abstract.bind(name)
        for listener in (port, abstract):
            listener.listen()
            threading.Thread(target=_greet, args=(listener,), daemon=True).start()
        outside = str(tmp_path / "outside")
        yield {
            "port": port.getsockname()[1],
            "name": name,
            "outside": outside,
            "runtime": os.getpid(),
            "key": key,
        }
        for listener in (port, abstract):
            listener.shutdown(socket.SHUT_RDWR)  # it wakes whoever waits in accept


@pytest.fixture
def key():
    """A key in the session's ring: a new one, so that none of a person's is touched, and none stays."""
    confinement.join_empty_key_ring()
    calls: dict[str, object] = {"os": os}
    exec(BY_NUMBER, calls)
    name = f"handrail-probe-{uuid4()}"
    with suppress(OSError):  # a container may refuse keys; the probes find none then
        calls["call"](*calls["add_key"], b"user", name.encode(), b"the-secret", 10, -3)
    return name


def _greet(listener):
    while True:
        try:
            caller, _ = listener.accept()
        except OSError:
            return
        with caller:
            caller.sendall(b"hello")


@isolated
@pytest.mark.parametrize("probe", PROBES)
def test_an_isolated_tool_cannot(probe, world):
    with hr.SyncRuntime([escape]) as runtime:
        result = runtime.call("escape", {"probe": probe, "world": world})
    assert result.failure is not None, result.value
    assert result.failure.code == "INTERNAL_ERROR"
    assert not Path(world["outside"]).exists()


@isolated
def test_a_process_with_a_thousand_files_open_runs_isolated_tools():
    """`select.select` refuses descriptors of 1,024 and above, and a busy server has no others left."""
    with no_low_descriptors(), hr.SyncRuntime([add]) as runtime:
        result = runtime.call("add", {"x": 2, "y": 40})
    assert result.value == 42


@pytest.mark.parametrize("probe", HARMLESS)
def test_at_level_process_the_same_probe_gets_out_or_not(probe, world):
    """The level keeps no files, network or environment from a tool, and all the system calls that it does not need."""
    with hr.SyncRuntime([escape_from_a_process]) as runtime:
        result = runtime.call("escape_from_a_process", {"probe": probe, "world": world})
    assert result.ok is (probe in OPEN_TO_A_PROCESS)


@pytest.mark.parametrize("probe", HARMLESS)
def test_the_same_probe_gets_out_of_a_program_that_is_in_no_sandbox(probe, world):
    """Else it would show nothing of the sandbox. What this machine has not itself, no sandbox can be tried with."""
    program = "import json, os, sys; world = json.load(sys.stdin); exec(world['probe'], world | {'os': os})"
    given = json.dumps({**world, "probe": PROBES[probe]})
    tried = subprocess.run(
        [sys.executable, "-c", program],
        input=given,
        capture_output=True,
        text=True,
        timeout=60,
    )
    if tried.returncode and probe not in OPEN_TO_A_PROCESS:
        pytest.skip(
            f"this machine refuses it to everybody: {tried.stderr.splitlines()[-1]}"
        )
    assert (tried.returncode, tried.stderr) == (0, "")


@isolated
def test_a_call_is_stopped_at_its_time_with_all_that_it_started(open_folder):
    line = open_folder / "line"
    os.mkfifo(line)
    line.chmod(0o666)
    reader = os.open(line, os.O_RDONLY | os.O_NONBLOCK)
    tool = loop_with_child.replace(sandbox=hr.Sandbox(mounts=[open_folder]))
    with hr.SyncRuntime([tool]) as runtime:
        failure = runtime.call("loop_with_child", {"line": str(line)}).failure
    assert (failure.code, failure.message) == (
        "TIMEOUT",
        "`loop_with_child` did not finish within 4 s and was stopped.",
    )
    assert os.read(reader, 1) == b""  # nobody holds the line any more
    os.close(reader)


@isolated
@pytest.mark.parametrize(
    ("memory_bytes", "ok"), [(256 * 1024**2, False), (1024**3, True)]
)
def test_what_it_may_address_is_declared(memory_bytes, ok):
    def take() -> int:
        """Take 300 MiB."""
        return len(bytearray(300 * 1024**2))

    with hr.SyncRuntime(
        [hr.FunctionTool(take, **HOW, sandbox=hr.Sandbox(memory_bytes=memory_bytes))]
    ) as runtime:
        assert runtime.call("take").ok is ok


@isolated
def test_a_crowd_that_holds_too_much_memory_together_is_ended(caplog):
    with caplog.at_level("DEBUG"), hr.SyncRuntime([hoard]) as runtime:
        assert runtime.call("hoard").failure.code == "INTERNAL_ERROR"
    assert "the sandbox of 'hoard' was ended: memory" in caplog.text


@isolated
def test_what_it_prints_is_dropped_beyond_a_bound_and_is_no_part_of_its_answer(call):
    assert call(print_without_end).value == 1


@isolated
def test_a_daemonised_grandchild_ends_with_its_call(open_folder):
    line = open_folder / "line"
    os.mkfifo(line)
    line.chmod(0o666)
    tool = hr.FunctionTool(
        leave_a_daemon.fn,
        effect="write",
        isolation="isolated",
        sandbox=hr.Sandbox(mounts=[open_folder]),
    )
    reader = os.open(line, os.O_RDONLY | os.O_NONBLOCK)
    with hr.SyncRuntime([tool]) as runtime:
        assert runtime.call("leave_a_daemon", {"line": str(line)}).value == "left"
    os.set_blocking(reader, True)
    assert os.read(reader, 1) == b""  # the end: nobody holds the line any more
    os.close(reader)


@isolated
def test_nothing_that_a_call_leaves_anywhere_is_found_by_the_next_one():
    with hr.SyncRuntime([leave_or_find]) as runtime:
        left = runtime.call("leave_or_find", {"what": "leave"}).value
        assert {"/box/left", "/tmp/left", "/dev/shm/left", "a segment of memory"} <= {
            *left
        }
        assert runtime.call("leave_or_find", {"what": "find"}).value == []


@isolated
def test_when_the_host_is_killed_in_the_middle_of_a_call_its_box_ends(open_folder):
    line = open_folder / "line"
    os.mkfifo(line)
    line.chmod(0o666)
    (open_folder / "host.py").write_text(f"""
import os
import handrail as hr

@hr.tool(effect="read", isolation="isolated", sandbox=hr.Sandbox(mounts=[{str(open_folder)!r}]), timeout_s=60)
def hold() -> None:
    "Hold a line for ever."
    os.write(os.open({str(line)!r}, os.O_WRONLY), b".")
    while True:
        pass

if __name__ == "__main__":
    with hr.SyncRuntime([hold]) as runtime:
        print(runtime.call("hold").text)
""")
    reader = os.open(line, os.O_RDONLY | os.O_NONBLOCK)
    host = subprocess.Popen([sys.executable, open_folder / "host.py"])
    assert wait_readable(reader, timeout_s=BOUND_S)
    host.kill()
    host.wait()
    os.set_blocking(reader, True)
    assert os.read(reader, 10) == b"."
    assert os.read(reader, 10) == b""  # the end: nobody holds the line any more
    os.close(reader)


CROWD = """
import asyncio, os
from pathlib import Path
import handrail as hr
from handrail.sandboxes.supervisor import descendants
from tests.workers.sandboxed_tools import add

async def crowd():
    async with hr.Runtime([add]) as runtime:
        calls = (runtime.call("add", {"x": number, "y": 1}) for number in range(12))
        return [result.value for result in await asyncio.gather(*calls)]

def held():
    return len([*Path("/proc/self/fd").iterdir()]), [*descendants(os.getpid(), stop=False)]

asyncio.run(crowd())
before = held()
assert asyncio.run(crowd()) == [number + 1 for number in range(12)]
assert held() == before, (before, held())
assert before[1] == []
"""


@isolated
def test_many_calls_at_once_get_their_own_answers_and_leave_no_descriptor_and_no_process():
    # in an interpreter of its own: processes of other tests may start or end meanwhile
    command = [sys.executable, "-c", CROWD]
    ended = subprocess.run(command, capture_output=True, text=True)
    assert ended.returncode == 0, ended.stderr


# ---------------------------------------------------------------------- where there is no sandbox


@pytest.fixture
def plugged_in(tmp_path, monkeypatch):
    """Install a plug-in with a sandbox, as a package would; return its folder."""
    told = tmp_path / "plug_in-1.dist-info"
    told.mkdir()
    (told / "METADATA").write_text("Metadata-Version: 2.1\nName: plug-in\nVersion: 1\n")
    monkeypatch.syspath_prepend(tmp_path)
    yield told
    isolation.list_sandboxes.cache_clear()
    isolation.SEARCH.reset()


@dataclass(frozen=True)
class Container:
    """A sandbox that says that it is a container, and runs its program in bubblewrap."""

    level: str = "container"
    lacks: str = ""
    python: str = Bubblewrap().python

    def run(self, job, cancelled):
        RUN_IN_CONTAINER.append(job)
        return Bubblewrap().run(job, cancelled)


CONTAINER = Container()
RUN_IN_CONTAINER = []


@isolated
def test_a_plug_in_brings_another_level_which_goes_before_our_own(plugged_in, call):
    tool = hr.FunctionTool(list_folder.fn, effect="read", isolation="container")
    (plugged_in / "entry_points.txt").write_text(
        "[handrail.sandboxes]\ncontainers = tests.workers.test_sandboxed:CONTAINER\n"
    )
    isolation.list_sandboxes.cache_clear()
    isolation.SEARCH.reset()
    RUN_IN_CONTAINER.clear()
    assert CONTAINER in isolation.offered()
    assert call(tool, {"folder": "/box"}).value == ["order"]
    assert len(RUN_IN_CONTAINER) == 1


@isolated
def test_a_tool_takes_no_stronger_level_than_it_demands_where_that_is_here(
    plugged_in, call
):
    (plugged_in / "entry_points.txt").write_text(
        "[handrail.sandboxes]\ncontainers = tests.workers.test_sandboxed:CONTAINER\n"
    )
    isolation.list_sandboxes.cache_clear()
    RUN_IN_CONTAINER.clear()
    tool = hr.FunctionTool(list_folder.fn, effect="read", isolation="isolated")
    assert call(tool, {"folder": "/box"}).value == ["order"]
    assert RUN_IN_CONTAINER == []


def test_what_a_plug_in_calls_a_sandbox_and_is_none_is_told_by_its_name(plugged_in):
    (plugged_in / "entry_points.txt").write_text(
        "[handrail.sandboxes]\nfoam = tests.workers.test_sandboxed:HOW\n"
    )
    isolation.list_sandboxes.cache_clear()
    isolation.SEARCH.reset()
    with pytest.raises(
        ConfigError, match="the sandbox 'foam' of a plug-in is none: dict"
    ):
        isolation.offered()


def test_without_a_sandbox_nobody_is_asked_nothing_runs_and_a_person_is_told_what_to_do(
    tmp_path, monkeypatch
):
    monkeypatch.setattr(shutil, "which", lambda _: None)
    bubblewrap._probe.cache_clear()
    container._probe.cache_clear()
    isolation.SEARCH.reset()
    asked = []
    tool = hr.FunctionTool(list_folder.fn, effect="destructive", isolation="isolated")
    try:
        with hr.SyncRuntime(
            [tool], approver=lambda question: asked.append(question)
        ) as runtime:
            result = runtime.call("list_folder", {"folder": "/"})
    finally:
        bubblewrap._probe.cache_clear()
        container._probe.cache_clear()
        isolation.SEARCH.reset()
    assert (result.failure.code, result.attempts, asked) == ("NOT_ISOLATED", 0, [])
    assert (
        "This machine offers 'process' only (bubblewrap is " in result.failure.message
    )
    assert 'set isolation="process"' in result.failure.message


# ---------------------------------------------------------------------- what is believed


def believed(stdout: bytes, **how):
    return SandboxedCall(add, {"x": 1, "y": 2}, 1.0)._read_answer(
        JobEnded("exited", 0, stdout, b"", **how)
    )


def test_an_answer_is_a_value_with_what_is_to_be_looked_at():
    shown = ["chart", "image/png", b64encode(b"\0PNG").decode(), "", "a.png"]
    told = {"returned": {"chart": None}, "media": [shown]}
    assert believed(b"\n" + json.dumps(told).encode()) == {
        "chart": Media("image/png", b"\0PNG", name="a.png")
    }


@pytest.mark.parametrize("told", [
    b"", b"garbage", b"null", b"[]", b"{}", b'{"returned": NaN}', b'{"returned": 1}{}', b'{"raised": 1}',
    b'{"raised": {"error_code": "X"}}', b'{"returned": 1, "media": 7}',
    b'{"returned": [], "media": [[0, "image/png", "", "", ""]]}',
    b'{"returned": {}, "media": [["x", "image/png", "no base64", "", ""]]}', b"[" * 100_000, b"\xff", b"9" * 5000,
    b'{"returned": 1e999}', b'{"returned": {"a": [-1e999]}}',
    *(b'{"raised": {"error_code": "X", "error_message": "", "suggestion": "", "retryable": true, "no_effect": true,'
      b'"details": [], "retry_after_s": %s}}' % each for each in (b'"x"', b"[1]", b"true", b"1e999", b"-5")),
])  # fmt: skip
def test_an_answer_that_is_none_is_a_failure_of_the_tool(told):
    with pytest.raises(RuntimeError, match="the answer of 'add' from its sandbox"):
        believed(b"\n" + told)


@pytest.mark.parametrize(("kind", "url", "name"), [
    ("image/png", "file:///etc/passwd", ""), ("image/png", "http://169.254.169.254/", ""), ("image/png", 7, ""),
    ("image/png\r\nX-A: b", "", ""), ("image", "", ""), ("image/png; a=b", "", ""), ("", "", ""), (None, "", ""),
    ("image/png", "", "../../n"), ("image/png", "", "..\\n"), ("image/png", "", ".."), ("image/png", "", "a\nb"),
    ("image/png", "", "a\u202eb"), ("image/png", "", "a" * 256), ("image/png", "", ["a"]),
])  # fmt: skip
@pytest.mark.parametrize("place", [None, "chart"])
def test_of_media_the_bytes_are_taken_and_neither_an_address_nor_what_is_no_name_or_type(
    kind, url, name, place
):
    shown = [place, kind, b64encode(b"\0PNG").decode(), url, name]
    with pytest.raises(
        ToolError, match=r"`add` returned media .*, which is not taken from a sandbox"
    ) as told:
        believed(
            b"\n" + json.dumps({"returned": {"chart": None}, "media": [shown]}).encode()
        )
    assert told.value.failure.code == "TOOL_ERROR"
    # a stranger's text
    assert not [
        each for each in (url, name, kind) if each and str(each) in str(told.value)
    ]


@pytest.mark.parametrize(
    "seconds", [float("inf"), float("nan"), -5, "soon", [1], 10**400]
)
def test_a_wait_that_is_no_time_says_nothing(seconds):
    assert ToolError("BUSY", "Later.", retry_after_s=seconds).retry_after_s is None


def test_what_a_sandbox_tells_of_an_exception_goes_to_the_log_short_and_on_one_line(
    caplog,
):
    told = {
        "raised": {
            "text": "E: a\nCRITICAL b",
            "kind": "E\nCRITICAL " + "x" * 5000,
            "place": "f (a\x1b[31m.py:1)",
        }
    }
    with (
        caplog.at_level("WARNING"),
        pytest.raises(RuntimeError, match="E: a CRITICAL b") as raised,
    ):
        believed(b"\n" + json.dumps(told).encode())
    logs.log_exception("add raised", raised.value)
    (line,) = [record.getMessage() for record in caplog.records]
    assert (
        line.startswith("add raised: E CRITICAL xxx")
        and line.isprintable()
        and len(line) < 300
    )
    assert line.endswith(" in f (a [31m.py:1), as reported from its sandbox")


@levels
@pytest.mark.parametrize(("where", "value"), [
    ("bare", ["0", "1"]), ("object", {"rows": ["0", "1"]}), ("list", [["0", "1"]])
])  # fmt: skip
def test_iterators_are_read_where_the_tool_runs(level, where, value, call):
    assert call(at(level, rows_inside), {"where": where}).value == value


@isolated
@pytest.mark.parametrize("how", ["sync", "async", "generator", "below"])
def test_the_log_names_what_an_isolated_tool_raised_and_its_line_and_not_its_words(
    how, call, caplog
):
    tool = {
        "sync": fail,
        "async": fail_later,
        "generator": fail_in_a_row,
        "below": fail_below,
    }[how]
    with caplog.at_level("WARNING"):
        assert call(tool, {"how": "secret"}).failure.code == "INTERNAL_ERROR"
    kind = "JSONDecodeError" if how in ("generator", "below") else "ValueError"
    function = "<genexpr>" if how == "generator" else tool.name
    assert f": {kind} in {function} (sandboxed_tools.py:" in caplog.text
    assert "secret" not in caplog.text


@given(st.binary())
def test_whatever_comes_out_is_a_value_or_one_of_few_exceptions(told):
    try:
        believed(told)
    except (RuntimeError, ToolError):
        pass


def test_a_box_that_was_never_set_up_certainly_had_no_effect():
    with pytest.raises(NoEffect, match="could not be set up"):
        believed(b"")


@pytest.mark.parametrize(("end", "stdout", "begun"), [
    ("timeout", b"\n", True), ("lost", b"\n", True), ("cancelled", b"\n", True), ("cancelled", b"", False),
])  # fmt: skip
def test_a_box_that_was_ended_says_whether_its_tool_had_begun(end, stdout, begun):
    with pytest.raises(ProcessEnded) as told:
        SandboxedCall(add, {"x": 1, "y": 2}, 1.0)._read_answer(
            JobEnded(end, None, stdout, b"")
        )
    assert told.value.started is begun
