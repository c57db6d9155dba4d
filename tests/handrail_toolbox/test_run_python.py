"""Run code: what it gives back, what it cannot do, and that nothing of it is left."""

import asyncio
import os
import re
import shlex
import shutil
import signal
import socket
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Event

import pytest
from hypothesis import given
from hypothesis import strategies as st

import handrail as hr
from handrail.network.descriptors import wait_readable
from handrail.ports import Sandbox, SandboxJob
from handrail.sandboxes import confinement
from handrail.sandboxes import host as outside
from handrail.sandboxes.bubblewrap import Bubblewrap
from handrail.sandboxes.host import _parse_report, is_below
from handrail.sandboxes.interpreters import mounts_of_interpreter
from handrail.sandboxes.process import ProcessSandbox, _namespace_command
from handrail.sandboxes.supervisor import record
from handrail.testing.checklist import check
from handrail_toolbox.run_python import RunPython

pytestmark = pytest.mark.skipif(
    bool(ProcessSandbox().lacks), reason="level process needs POSIX"
)
isolated = pytest.mark.skipif(
    bool(Bubblewrap().lacks), reason=f"no isolation here: {Bubblewrap().lacks}"
)
on_linux = pytest.mark.skipif(
    not sys.platform.startswith("linux"), reason="daemons are found by way of /proc"
)
EACH = [
    pytest.param(ProcessSandbox(), id="process"),
    pytest.param(Bubblewrap(), id="bubblewrap", marks=isolated),
]


def ran(sandbox, code, *, cancelled=None, **limits):
    return sandbox.run(
        SandboxJob([sandbox.python, "-I", "-c", code], **limits), cancelled or Event()
    )


# ---------------------------------------------------------------------- both levels


@pytest.mark.parametrize("sandbox", EACH)
def test_a_sandbox_is_one(sandbox):
    assert isinstance(sandbox, Sandbox)


@pytest.mark.parametrize("sandbox", EACH)
def test_a_program_tells_what_it_prints_and_how_it_ended(sandbox):
    ended = ran(
        sandbox, "import sys; print('out'); print('err', file=sys.stderr); sys.exit(3)"
    )
    assert (ended.end, ended.exit_code, ended.stdout, ended.stderr) == (
        "exited",
        3,
        b"out\n",
        b"err\n",
    )


@pytest.mark.parametrize("sandbox", EACH)
def test_files_go_in_and_what_is_new_or_changed_comes_out(sandbox):
    code = "import os; os.mkdir('d'); open('d/b','w').write(open('a').read()*2); open('c','a').write('!')"
    ended = ran(sandbox, code, files={"a": b"x", "c": b"y", "e/f": b"z"})
    assert (ended.stderr, ended.files) == (b"", {"d/b": b"xx", "c": b"y!"})


@pytest.mark.parametrize("sandbox", EACH)
def test_a_planted_link_or_pipe_brings_nothing_back(sandbox):
    code = "import os; os.symlink('/etc/passwd','l'); os.mkfifo('p'); os.symlink('/etc','d'); open('ok','w').write('1')"
    ended = ran(sandbox, code)
    assert (ended.files, sorted(ended.left)) == ({"ok": b"1"}, ["d", "l", "p"])


@pytest.mark.parametrize("sandbox", EACH)
def test_what_comes_back_is_bounded(sandbox):
    code = "open('big','w').write('x'*2000)\nfor i in range(9): open(f'f{i}','w').write('12')"
    ended = ran(sandbox, code, returned_bytes=1000, returned_files=5)
    assert "big" in ended.left
    assert len(ended.files) <= 5


@pytest.mark.parametrize("sandbox", EACH)
def test_the_environment_is_clean(sandbox, monkeypatch):
    monkeypatch.setenv("API_KEY", "the-key-of-the-host")
    code = "import os; print(dict(os.environ))"
    if sandbox.level == "isolated":  # there, the first process is ours too
        code += "; print(open('/proc/1/environ').read())"
    ended = ran(sandbox, code)
    assert (ended.exit_code, b"the-key" in ended.stdout) == (0, False)


@pytest.mark.parametrize("sandbox", EACH)
def test_an_endless_loop_is_ended_at_its_time(sandbox):
    ended = ran(sandbox, "while True: pass", timeout_s=0.2)
    assert (ended.end, ended.exit_code) == ("timeout", None)


@isolated
@pytest.mark.parametrize("folder", ["/box", "/tmp", "/dev/shm"])
def test_more_files_than_a_box_may_hold_end_it(folder):
    code = f"import os\nfor number in range(200_000): os.close(os.open(f'{folder}/{{number}}', os.O_CREAT))"
    ended = ran(Bubblewrap(), code, timeout_s=60)
    assert (ended.end, ended.exit_code) == ("memory", None)


@isolated
def test_what_lies_in_sockets_stays_small():
    code = """
import socket
held = 0
pair = socket.socketpair()
pair[0].setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1 << 30)
pair[0].setblocking(False)
try:
    while True: held += pair[0].send(bytes(4096))
except BlockingIOError: print(held)
"""
    default = int(Path("/proc/sys/net/core/wmem_default").read_text())
    assert 0 < int(ran(Bubblewrap(), code).stdout) <= default


ORDINARY = """
import asyncio, ctypes, socket, sqlite3, ssl, subprocess, tempfile, threading
thread = threading.Thread(target=print, args=("thread",)); thread.start(); thread.join()
print(sqlite3.connect("a.db").execute("select 'sqlite'").fetchone()[0])
print(subprocess.run(["echo", "subprocess"], capture_output=True, text=True).stdout.strip())
async def ran():
    program = await asyncio.create_subprocess_exec("echo", "asyncio", stdout=subprocess.PIPE)
    return (await program.communicate())[0].decode().strip()
print(asyncio.run(ran()))
with socket.create_server(("127.0.0.1", 0)) as server, socket.create_connection(server.getsockname()): print("socket")
print(type(ssl.create_default_context()).__name__, len(socket.if_nameindex()) > 0)
"""


@pytest.mark.parametrize("sandbox", EACH)
def test_ordinary_programs_go_on(sandbox):
    ended = ran(sandbox, ORDINARY)
    said = b"thread\nsqlite\nsubprocess\nasyncio\nsocket\nSSLContext True\n"
    assert (ended.stderr, ended.stdout) == (b"", said)


@on_linux
def test_a_program_starts_with_an_empty_key_ring_and_the_thread_that_starts_it_keeps_its_own():
    """What is in the kernel's hands is seen without the filter, so from a command that has none."""
    rings = (
        "import ctypes; print(ctypes.CDLL(None).syscall(ctypes.c_long(%d), 0, -3, 0))"
    )
    number = confinement._KEYCTL[os.uname().machine]
    confinement.join_empty_key_ring()
    read = [sys.executable, "-c", rings % number]
    place = outside.Launch(["sh", "-c", shlex.join(read) + " >&2"], "/", {}, {})
    ours = subprocess.run(read, capture_output=True, check=True).stdout
    inside = outside.run_job(SandboxJob([]), place, Event()).stderr
    assert (int(inside) > 0, inside == ours) == (True, False)
    assert subprocess.run(read, capture_output=True, check=True).stdout == ours


@on_linux
@pytest.mark.parametrize("sandbox", EACH)
def test_a_program_has_no_capabilities_gains_none_and_is_filtered_as_its_supervisor_is(
    sandbox,
):
    # there, the first process is ours too
    first = ", 1" if sandbox.level == "isolated" else ""
    each = f"(os.getpid(), os.getppid(){first})"
    code = f"import os\nfor number in {each}: print(open(f'/proc/{{number}}/status').read())"
    ended = ran(sandbox, code)
    rights = dict.fromkeys(
        re.findall(
            rb"^(Cap(?:Prm|Eff|Amb)|NoNewPrivs|Seccomp):\s+(\w+)$", ended.stdout, re.M
        )
    )
    none = b"0" * 16
    assert {*rights} == {
        (b"CapPrm", none), (b"CapEff", none), (b"CapAmb", none), (b"NoNewPrivs", b"1"), (b"Seccomp", b"2")
    }  # fmt: skip


@pytest.mark.skipif(
    not hasattr(os, "pidfd_open"), reason="the end is noticed at the next look there"
)
@pytest.mark.parametrize("sandbox", EACH)
def test_the_end_of_a_program_is_noticed_when_it_comes(sandbox, monkeypatch):
    # whoever waits for the next look comes after the time of the job
    monkeypatch.setattr(outside, "LOOK_S", 15.0)
    assert ran(sandbox, "pass", timeout_s=10).end == "exited"


@pytest.mark.parametrize("sandbox", EACH)
def test_what_was_printed_before_the_end_is_kept(sandbox):
    code = "import time; print('begun', flush=True); time.sleep(60)"
    # long enough to start on a busy machine
    assert ran(sandbox, code, timeout_s=3).stdout == b"begun\n"


@pytest.mark.parametrize("sandbox", EACH)
def test_long_output_is_cut_by_the_host(sandbox):
    ended = ran(
        sandbox,
        "for _ in range(2000): print('x' * 9999)",
        timeout_s=60,
        output_bytes=1000,
    )
    assert (ended.end, len(ended.stdout), ended.dropped_bytes) == (
        "exited",
        1000,
        19_999_000,
    )


@pytest.mark.parametrize("sandbox", EACH)
def test_a_call_that_is_given_up_ends_at_once(sandbox):
    given_up = Event()
    given_up.set()
    assert (
        ran(sandbox, "while True: pass", cancelled=given_up, timeout_s=60).end
        == "cancelled"
    )


@pytest.mark.parametrize("sandbox", EACH)
def test_too_much_memory_is_an_error_inside(sandbox):
    ended = ran(sandbox, "x = bytearray(4 * 1024**3)", memory_bytes=256 * 1024**2)
    assert (ended.exit_code, b"MemoryError" in ended.stderr) == (1, True)


CROWD = """
import os, time
{before}
for _ in range(5):
    if os.fork() == 0:
        {each}
        time.sleep({rest})
        os._exit(0)
for _ in range(5): os.wait()
"""


@on_linux
@pytest.mark.parametrize("sandbox", EACH)
def test_a_crowd_that_holds_too_much_memory_together_is_ended(sandbox):
    code = CROWD.format(before="", each="held = b'x' * (60 * 1024**2)", rest=600)
    ended = ran(sandbox, code, memory_bytes=200 * 1024**2, timeout_s=60)
    assert (ended.end, ended.exit_code) == ("memory", None)


@on_linux
@pytest.mark.parametrize("sandbox", EACH)
def test_memory_that_a_crowd_has_in_common_counts_once(sandbox):
    code = CROWD.format(before="held = b'x' * (60 * 1024**2)", each="", rest=0.3)
    assert ran(sandbox, code, memory_bytes=200 * 1024**2, timeout_s=60).end == "exited"


@pytest.mark.parametrize("sandbox", EACH)
def test_a_program_that_is_not_there_is_told(sandbox):
    ended = sandbox.run(SandboxJob(["/nowhere/program"]), Event())
    assert (ended.exit_code, ended.stderr[:25]) == (127, b"it could not be started: ")


DAEMON = """
import os, time
done, tell = os.pipe()
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        line = os.open(PLACE, os.O_WRONLY)
        os.write(line, b'.')
        os.write(tell, b'.')
        while True: time.sleep(60)
    os._exit(0)
os.read(done, 1)
print('parent', flush=True)
"""


class Line:
    """A pipe in the file system: who holds it open is alive, in whatever namespace."""

    def __init__(self, place):
        os.mkfifo(place)
        self.place, self._reader = (
            str(place),
            os.open(place, os.O_RDONLY | os.O_NONBLOCK),
        )

    def until_held(self):
        assert wait_readable(self._reader, timeout_s=10)
        assert os.read(self._reader, 1) == b"."

    def until_let_go(self):
        """Return what was still written, once nobody holds it any more."""
        os.set_blocking(self._reader, True)
        assert wait_readable(self._reader, timeout_s=10)
        told = os.read(self._reader, 100)
        os.close(self._reader)
        return told


@on_linux
@pytest.mark.parametrize("then", ["", "time.sleep(600)"], ids=["exits", "is ended"])
def test_a_daemonised_grandchild_ends_with_its_program(tmp_path, then, kept):
    line, given_up = Line(tmp_path / "line"), Event()
    with ThreadPoolExecutor() as pool:
        running = pool.submit(
            ran,
            ProcessSandbox(),
            f"PLACE = {line.place!r}{DAEMON}{then}",
            cancelled=given_up,
            timeout_s=60,
        )
        line.until_held()
        if then:
            given_up.set()
        assert running.result().end == ("cancelled" if then else "exited")
    assert line.until_let_go() == b""


WALK = """
import os, time
walking = os.open(PLACE, os.O_WRONLY)
for _ in range(4):
    if os.fork() == 0:
        for _ in range(4000):  # each goes on in a child, in a session of its own, and ends
            if os.fork():
                os._exit(0)
            os.setsid()
        os.write(walking, b'got away')
        os._exit(0)
time.sleep(0.2)
"""


@pytest.fixture(params=["namespace", "supervisor"])
def kept(request, monkeypatch):
    """How a process is kept: in a process namespace, or, where there is none, by a supervisor alone."""
    _namespace_command.cache_clear()
    if request.param == "supervisor":
        monkeypatch.setenv("PATH", "/nowhere")
    elif not _namespace_command():
        pytest.skip("no process namespace here")
    yield request.param
    _namespace_command.cache_clear()


@on_linux
@pytest.mark.skipif(not _namespace_command(), reason="no process namespace here")
def test_in_a_namespace_code_cannot_kill_its_supervisor(tmp_path):
    line = Line(tmp_path / "line")
    ran(
        ProcessSandbox(),
        f"PLACE = {line.place!r}{WALK}os.kill(os.getppid(), 9); time.sleep(600)",
        timeout_s=1,
    )
    assert line.until_let_go() == b""


@on_linux
@pytest.mark.parametrize("then", ["", "time.sleep(600)"], ids=["exits", "is ended"])
def test_no_crowd_that_forks_on_outruns_its_end(tmp_path, then, kept):
    line = Line(tmp_path / "line")
    ran(ProcessSandbox(), f"PLACE = {line.place!r}{WALK}{then}", timeout_s=1)
    assert line.until_let_go() == b""  # none came to its last step


@on_linux
def test_when_the_host_is_killed_the_program_ends_too(tmp_path):
    line = Line(tmp_path / "line")
    code = f"import os; os.write(os.open({line.place!r}, os.O_WRONLY), b'.')\nwhile True: pass"
    host = subprocess.Popen([
        sys.executable, "-c",
        "from threading import Event; from handrail.ports import SandboxJob\n"
        "from handrail.sandboxes.process import ProcessSandbox\n"
        f"s = ProcessSandbox(); s.run(SandboxJob([s.python, '-c', {code!r}], timeout_s=60), Event())",
    ])  # fmt: skip
    line.until_held()
    host.send_signal(signal.SIGKILL)
    host.wait()
    assert line.until_let_go() == b""


# ---------------------------------------------------------------------- isolated


@isolated
@pytest.mark.parametrize(("attempt", "code"), [
    ("read the host's users", "open('/etc/passwd').read()"),
    ("read the host's files", f"open({__file__!r}).read()"),
    ("write outside", "open('/usr/x', 'w')"),
    ("write to the root", "open('/x', 'w')"),
    ("become root", "import os; os.setuid(0); open('/etc/shadow')"),
    ("open a nested user namespace", "import subprocess; subprocess.run(['unshare', '-Ur', 'true'], check=True)"),
    ("mount", "import subprocess; subprocess.run(['mount', '-t', 'tmpfs', 'x', '/tmp'], check=True)"),
    ("fill the disk", "for i in range(99): open(f'/tmp/{i}', 'wb').write(b'x' * 1024**2)"),
    ("fill the memory by way of /dev", "for i in range(99): open(f'/dev/{i}', 'wb').write(b'x' * 1024**2)"),
    ("fill the shared memory", "for i in range(99): open(f'/dev/shm/{i}', 'wb').write(b'x' * 1024**2)"),
    ("fill its folder", "for i in range(99): open(f'{i}', 'wb').write(b'x' * 1024**2)"),
    ("write a huge file", "open('f', 'wb').write(b'x' * 40 * 1024**2)"),
    ("fork without end", "import os\nfor i in range(400):\n    if os.fork() == 0:\n        while True: pass"),
])  # fmt: skip
def test_isolated_code_cannot(attempt, code):
    ended = ran(Bubblewrap(), code, timeout_s=60)
    assert ended.exit_code not in (0, None), attempt
    assert ended.stdout == b""


@isolated
@pytest.mark.parametrize(("family", "address"), [
    (socket.AF_INET, ("127.0.0.1", 0)), (socket.AF_UNIX, "\0handrail-test-abstract"),
])  # fmt: skip
def test_isolated_code_reaches_nobody_who_listens_on_this_machine(family, address):
    with socket.socket(family) as listener:
        listener.bind(address)
        listener.listen()
        code = f"import socket; socket.socket({int(family)}).connect({listener.getsockname()!r})"
        assert ran(ProcessSandbox(), code).exit_code == 0
        assert ran(Bubblewrap(), code).exit_code == 1


@isolated
def test_isolated_code_sees_no_process_but_its_own(tmp_path):
    ended = ran(
        Bubblewrap(),
        "import os; print(sum(name.isdigit() for name in os.listdir('/proc')))",
    )
    assert int(ended.stdout) <= 4  # bwrap, the supervisor, and itself


@isolated
def test_code_that_kills_its_supervisor_loses_its_result_and_nothing_goes_on():
    code = "import os, signal; os.kill(os.getppid(), signal.SIGKILL)\nwhile True: pass"
    ended = ran(Bubblewrap(), code, timeout_s=60)
    assert (ended.end, ended.exit_code, ended.files) == ("lost", None, {})


@isolated
def test_code_that_stops_its_supervisor_is_ended_all_the_same():
    code = "import os, signal; os.kill(os.getppid(), signal.SIGSTOP)\nwhile True: pass"
    ended = ran(Bubblewrap(), code, timeout_s=0.5)
    assert (ended.end, ended.files) == ("timeout", {})


def test_of_an_interpreter_in_a_home_only_what_runs_it_is_mounted(tmp_path):
    version = f"python{sys.version_info.major}.{sys.version_info.minor}"
    for each in ("bin", ".ssh", f"lib/{version}", "lib/mail"):
        (tmp_path / each).mkdir(parents=True)
    (tmp_path / "lib/libpython3.so").touch()
    python = tmp_path / "bin/python3"
    mounted = {*mounts_of_interpreter(str(python))}
    assert mounted == {
        str(python),
        str(tmp_path / "lib" / version),
        str(tmp_path / "lib/libpython3.so"),
    }


@pytest.mark.parametrize(
    "python", ["/bin/python3", "/usr/bin/python3", "/usr/local/bin/python3"]
)
def test_an_interpreter_of_the_system_mounts_nothing_more(python):
    assert mounts_of_interpreter(python) == []


@pytest.mark.parametrize("sandbox", EACH)
def test_the_line_of_the_report_is_closed_to_the_program_whatever_its_number(sandbox):
    """A host with many connections open gives it a number above 256."""
    taken = [os.open(os.devnull, os.O_RDONLY) for _ in range(300)]
    try:
        ended = ran(
            sandbox,
            "import os; print([n for n in range(3, 600) if os.path.exists(f'/proc/self/fd/{n}')])",
        )
    finally:
        for each in taken:
            os.close(each)
    assert ended.stdout == b"[]\n"


# ---------------------------------------------------------------------- what is believed of a report


@pytest.mark.parametrize("report", [
    b"", b"garbage", b"\n" * 100, b"exit_code 0 1\n", b"exit_code 0 1\nx", b"exit_code 0 -1\n0", b"file 1 9\nax",
    b"exit_code 0 5\n99999", b"file 2 1\n\xff\xfex", b"x" * 100_000, b"file 1 99999999999999999999999999999999\nax",
    b"exit_code 0 1 2\n0", b"\xff 0 1\n0",
])  # fmt: skip
def test_a_report_that_is_none_brings_nothing(report):
    assert _parse_report(report, SandboxJob([])) == (None, {}, [])


@given(
    st.binary()
    | st.lists(
        st.tuples(
            st.sampled_from(["file", "left", "exit_code", "x"]), st.text(), st.binary()
        )
    )
)
def test_whatever_a_report_says_stays_within_the_limits(told):
    report = told if isinstance(told, bytes) else b"".join(
        record(kind, name.encode("utf-8", "replace").decode(), data) for kind, name, data in told
    )  # fmt: skip
    _, files, left = _parse_report(
        report, SandboxJob([], returned_bytes=10, returned_files=3)
    )
    assert sum(map(len, files.values())) <= 10
    assert max(len(files), len(left)) <= 3
    assert all(is_below(name) for name in (*files, *left))


def test_names_that_leave_their_folder_are_left_out():
    told = [
        ("file", "../a"),
        ("file", "/b"),
        ("file", "c"),
        ("left", "../d"),
        ("left", "e"),
    ]
    report = b"".join(record(*each, b"x") for each in told) + b"torn"
    assert _parse_report(report, SandboxJob([])) == (None, {"c": b"x"}, ["e"])


def test_a_report_that_claims_more_than_was_allowed_is_cut():
    report = b"".join(record("file", name, b"xx") for name in "abcdef")
    assert _parse_report(report, SandboxJob([], returned_bytes=5))[1] == {
        "a": b"xx",
        "b": b"xx",
    }
    assert len(_parse_report(report, SandboxJob([], returned_files=3))[1]) == 3


@pytest.mark.parametrize(
    "name", ["", "/a", "../a", "a/../b", "a//b", ".", "a\nb", "a\\b", "a" * 256]
)
def test_such_a_name_does_not_stay_below(name):
    assert not is_below(name)


# ---------------------------------------------------------------------- the tool


ONLY_PROCESSES = {"sandboxes": [ProcessSandbox()]}


def called(tool, code, **how):
    async def asked():
        async with hr.Runtime([tool], **how) as runtime:
            return await runtime.call("run_python", {"code": code})

    return asyncio.run(asked())


@isolated
def test_code_runs_in_the_strongest_sandbox_with_its_files(tmp_path):
    (tmp_path / "orders.csv").write_text("a,1\nb,2\n")
    tool = RunPython(files={"orders.csv": tmp_path / "orders.csv", "note.txt": b"hi"})
    code = "print(sum(int(l.split(',')[1]) for l in open('orders.csv'))); open('out.txt','w').write('天气')"
    result = called(tool, code)
    assert (
        result.value["level"],
        result.value["stdout"],
        result.value["exit_code"],
    ) == ("isolated", "3\n", 0)
    assert result.value["files"] == [
        {"name": "out.txt", "bytes": 6, "text": "天气", "note": ""}
    ]
    assert "note.txt, orders.csv" in tool.description


def test_without_isolation_nothing_runs_and_a_person_is_told_what_to_do(tmp_path):
    result = called(
        RunPython(**ONLY_PROCESSES), f"open({str(tmp_path / 'ran')!r}, 'w')"
    )
    assert (result.failure.code, [*tmp_path.iterdir()]) == ("NOT_ISOLATED", [])
    assert "This machine offers 'process' only" in result.failure.message
    assert "allow_weaker=True" in result.failure.message


def test_a_mere_process_is_used_when_the_programmer_says_so_and_a_person_agrees():
    tool = RunPython(**ONLY_PROCESSES, allow_weaker=True)
    assert (
        called(tool, "print(1)", approver=lambda _: False).failure.code
        == "NOT_APPROVED"
    )
    result = called(tool, "print(1)", approver=lambda _: True)
    assert (result.value["stdout"], result.value["level"]) == ("1\n", "process")


@on_linux
def test_at_the_deadline_of_the_call_the_code_is_ended_too(tmp_path):
    line = Line(tmp_path / "line")
    code = f"import os; os.write(os.open({line.place!r}, os.O_WRONLY), b'.')\nwhile True: pass"
    tool = RunPython(**ONLY_PROCESSES, allow_weaker=True, approve=False, timeout_s=60)

    async def given_up():
        async with hr.Runtime([tool]) as runtime:
            asked = asyncio.ensure_future(runtime.call("run_python", {"code": code}))
            await asyncio.to_thread(line.until_held)
            asked.cancel()
            return await asyncio.to_thread(line.until_let_go)

    assert asyncio.run(given_up()) == b""


def test_a_fault_in_the_code_is_a_result_to_learn_from():
    result = called(
        RunPython(**ONLY_PROCESSES, allow_weaker=True, approve=False), "1/0"
    )
    assert (result.ok, result.value["exit_code"]) == (True, 1)
    assert "ZeroDivisionError" in result.value["stderr"]


def test_what_the_code_makes_is_saved_for_the_user(tmp_path):
    tool = RunPython(
        **ONLY_PROCESSES, allow_weaker=True, approve=False, outputs=tmp_path
    )
    result = called(tool, "open('chart.png','wb').write(b'\\0PNG')")
    (folder,) = tmp_path.iterdir()
    assert (folder / "chart.png").read_bytes() == b"\0PNG"
    assert (
        result.value["files"][0]["note"]
        == f"saved for the user as {folder.name}/chart.png"
    )


@pytest.mark.parametrize(("how", "told"), [
    ({"files": {"../a": b""}}, "no relative path"), ({"outputs": "/nowhere/there"}, "no folder"),
])  # fmt: skip
def test_a_setting_that_cannot_be_is_said_when_the_tool_is_made(how, told):
    with pytest.raises(hr.ConfigError, match=told):
        RunPython(**how)


def test_the_sentence_for_a_person_names_why_bubblewrap_is_missing(monkeypatch):
    from handrail.sandboxes import bubblewrap

    monkeypatch.setattr(shutil, "which", lambda _: None)
    bubblewrap._probe.cache_clear()
    try:
        assert Bubblewrap().lacks in (
            "bubblewrap is not installed",
            "bubblewrap is for Linux",
        )
    finally:
        bubblewrap._probe.cache_clear()


def test_lint_and_check_find_nothing():
    assert (hr.lint([RunPython()]).findings, check([RunPython()]).missing) == ([], [])
    assert hr.lint([RunPython(allow_weaker=True)]).findings == []
