"""What every sandbox promises, as tests for a plug-in's own suite: `ports.Sandbox` in practice.

    class TestMySandbox(SandboxContract):
        def make_sandbox(self):
            return MySandbox("https://sandboxes.example")

The tests run small Python programs in it. They need pytest.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Mapping
from pathlib import Path
from tempfile import NamedTemporaryFile
from threading import Event, Thread, Timer
from typing import Any

import pytest

from handrail.ports import JobEnded, Sandbox, SandboxJob
from handrail.sandboxes.levels import LEVELS, PROGRAM_LEVELS

_BOUND_S = 60.0


class SandboxContract:
    """The tests. Derive a class whose name begins with `Test`, and give it `make_sandbox`.

    Attributes:
        returns_files: Whether a program can make files that come back.
        has_processes: Whether a program can start others.
    """

    returns_files = True
    has_processes = True

    def make_sandbox(self) -> Sandbox:
        """Return the sandbox to try; a test is skipped with what it `lacks` here."""
        raise NotImplementedError

    @pytest.fixture
    def sandbox(self) -> Sandbox:
        sandbox = self.make_sandbox()
        if sandbox.lacks:
            pytest.skip(f"{sandbox.level}: {sandbox.lacks}")
        return sandbox

    def run(
        self,
        sandbox: Sandbox,
        code: str,
        *,
        cancelled: Event | None = None,
        files: Mapping[str, bytes] | None = None,
        **limits: Any,
    ) -> JobEnded:
        """Run a program."""
        job = SandboxJob(
            [sandbox.python, "-I", "-X", "utf8", "main.py"],
            files={**(files or {}), "main.py": code.encode()},
            **{"timeout_s": _BOUND_S, **limits},
        )
        return sandbox.run(job, cancelled or Event())

    def test_it_is_a_sandbox_of_a_known_level(self, sandbox: Sandbox) -> None:
        assert isinstance(sandbox, Sandbox)
        assert sandbox.level in (*LEVELS[1:], *PROGRAM_LEVELS)

    def test_output_and_exit_code_come_back(self, sandbox: Sandbox) -> None:
        ended = self.run(sandbox, "print('out')\nraise SystemExit('err')")
        assert (ended.end, ended.exit_code) == ("exited", 1)
        assert (ended.stdout, ended.stderr) == (b"out\n", b"err\n")

    def test_a_program_reads_the_files_of_its_job(self, sandbox: Sandbox) -> None:
        ended = self.run(sandbox, "print(open('a').read())", files={"a": b"given"})
        assert (ended.exit_code, ended.stdout) == (0, b"given\n")

    def test_what_a_program_makes_comes_back(self, sandbox: Sandbox) -> None:
        if not self.returns_files:
            ended = self.run(sandbox, "open('made', 'w')")
            assert ended.exit_code != 0
            assert not ended.files
            return
        code = "import os\nos.mkdir('d')\nopen('d/made', 'w').write('x')\nos.symlink('/etc/passwd', 'l')"
        ended = self.run(sandbox, code, files={"a": b"given"})
        assert dict(ended.files) == {"d/made": b"x"}
        assert "l" in ended.left

    def test_a_program_is_ended_at_its_time(self, sandbox: Sandbox) -> None:
        ended = self.run(sandbox, "while True: pass", timeout_s=0.5)
        assert (ended.end, ended.exit_code) == ("timeout", None)

    def test_a_program_that_sleeps_is_ended_too(self, sandbox: Sandbox) -> None:
        ended = self.run(sandbox, "import time\ntime.sleep(5)", timeout_s=0.5)
        assert (ended.end, ended.exit_code) == ("timeout", None)

    def test_a_program_is_ended_when_its_call_is(self, sandbox: Sandbox) -> None:
        cancelled = Event()
        timer = Timer(0.3, cancelled.set)
        timer.start()
        ended = self.run(sandbox, "while True: pass", cancelled=cancelled)
        timer.join()
        assert (ended.end, ended.exit_code) == ("cancelled", None)

    def test_it_runs_programs_after_one_was_ended(self, sandbox: Sandbox) -> None:
        self.run(sandbox, "while True: pass", timeout_s=0.3)
        assert self.run(sandbox, "print(1)").stdout == b"1\n"

    def test_long_output_is_cut(self, sandbox: Sandbox) -> None:
        code = "for _ in range(200): print('x' * 9999)"
        ended = self.run(sandbox, code, output_bytes=1000)
        assert len(ended.stdout) == 1000
        assert ended.dropped_bytes == 200 * 10_000 - 1000

    def test_too_much_memory_is_an_error_inside(self, sandbox: Sandbox) -> None:
        code = "held = [bytearray(2**20) for _ in range(600)]\nprint('held')"
        ended = self.run(sandbox, code, memory_bytes=256 * 2**20)
        assert ended.stdout == b""
        assert ended.exit_code != 0

    def test_the_environment_is_clean(
        self, sandbox: Sandbox, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("A_SECRET", "the-secret-of-the-host")
        ended = self.run(sandbox, "import os\nprint(dict(os.environ))")
        assert b"the-secret" not in ended.stdout

    def test_it_reaches_no_file_of_the_host(self, sandbox: Sandbox) -> None:
        if sandbox.level == "process":
            pytest.skip("level process keeps no files out")
        with NamedTemporaryFile("w", suffix="-of-the-host") as file:
            file.write("the-text-of-the-host")
            file.flush()
            Path(file.name).chmod(0o644)
            ended = self.run(sandbox, f"print(open({file.name!r}).read())")
        assert ended.exit_code != 0
        assert b"the-text" not in ended.stdout + ended.stderr

    def test_it_reaches_no_port_of_the_host(self, sandbox: Sandbox) -> None:
        if sandbox.level == "process":
            pytest.skip("level process keeps no network out")
        with socket.create_server(("127.0.0.1", 0)) as server:
            port = server.getsockname()[1]
            reached: list[object] = []
            Thread(target=_accept, args=(server, reached), daemon=True).start()
            code = f"import socket\nsocket.create_connection(('127.0.0.1', {port}), 2)\nprint('in')"
            ended = self.run(sandbox, code)
            server.shutdown(socket.SHUT_RDWR)  # it wakes whoever waits in accept
        assert (ended.stdout, reached) == (b"", [])

    def test_a_program_leaves_nothing_for_the_next(self, sandbox: Sandbox) -> None:
        if self.returns_files:
            self.run(sandbox, "open('left', 'w').write('x')")
        self.run(sandbox, "import json\njson.left = 1")
        code = "import json\nprint(hasattr(json, 'left'))"
        assert self.run(sandbox, code).stdout == b"False\n"
        if self.returns_files:
            code = "import os\nprint(os.path.exists('left'))"
            assert self.run(sandbox, code).stdout == b"False\n"

    def test_a_grandchild_ends_with_its_program(self, sandbox: Sandbox) -> None:
        if not self.has_processes:
            ended = self.run(sandbox, "import os\nos.fork()\nprint('forked')")
            assert ended.stdout == b""
            return
        code = "import os, time\nif os.fork() == 0:\n    os.setsid()\n    time.sleep(600)\nprint(1)"
        ended = self.run(
            sandbox, code
        )  # it would wait for the output of the grandchild
        assert (ended.end, ended.stdout) == ("exited", b"1\n")


def _accept(server: socket.socket, reached: list[object]) -> None:
    try:
        caller, _ = server.accept()
    except OSError:
        return
    reached.append(os.getpid())
    caller.close()
