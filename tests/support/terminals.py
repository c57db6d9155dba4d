"""A terminal for tests: a pseudo-terminal whose person is the test, and programs that run in one."""

import os
import pty
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TextIO

from handrail.network.descriptors import wait_readable

# Generous: what is waited for comes at once, and a test that fails should say what it saw.
PATIENCE_S = 30.0


class Person:
    """Types into a terminal and reads what it shows."""

    def __init__(
        self, master: int, program: "subprocess.Popen[bytes] | None" = None
    ) -> None:
        self._master, self._program = master, program
        self.seen = ""
        self._read_to = 0

    def types(self, text: str) -> None:
        """Type; a line ends with a newline as the Enter key sends it."""
        os.write(self._master, text.encode())

    def presses_ctrl_c(self) -> None:
        """Press Ctrl-C: the terminal sends SIGINT to the program in front."""
        assert self._program is not None
        os.killpg(os.getpgid(self._program.pid), signal.SIGINT)

    def leaves_with_ctrl_c(self) -> int:
        """Press Ctrl-C at a prompt until the program has ended; return its exit code.

        More than once, because a prompt that is just being drawn does not hear the first one.
        """
        assert self._program is not None
        for _ in range(10):
            self.presses_ctrl_c()
            try:
                return self._program.wait(PATIENCE_S / 10)
            except subprocess.TimeoutExpired:
                continue
        raise AssertionError(f"the program would not leave:\n{self.seen}")

    def reads_until(self, pattern: str) -> str:
        """Wait until the terminal shows the pattern after what was read before; return what was shown until then."""
        deadline = time.monotonic() + PATIENCE_S
        while not (
            found := re.compile(pattern, re.DOTALL).search(self.seen, self._read_to)
        ):
            left_s = deadline - time.monotonic()
            if left_s <= 0 or not self._more(left_s):
                raise AssertionError(
                    f"the terminal never showed {pattern!r}:\n{self.seen}"
                )
        shown, self._read_to = self.seen[self._read_to : found.end()], found.end()
        return shown

    def reads_all(self) -> str:
        """Read until the program has ended."""
        while self._more(PATIENCE_S):
            pass
        return self.seen

    def _more(self, timeout_s: float) -> bool:
        if not wait_readable(self._master, timeout_s=timeout_s):
            return False
        try:
            data = os.read(self._master, 65536)
        except OSError:  # how Linux tells that nobody has the other end any more
            return False
        self.seen += data.decode("utf-8", "replace").replace("\r\n", "\n")
        return bool(data)


@contextmanager
def terminal() -> Iterator[tuple[Person, TextIO, TextIO]]:
    """Open a terminal; give its person, its keyboard and its screen."""
    master, slave = pty.openpty()
    with (
        open(os.dup(slave), encoding="utf-8") as keyboard,  # noqa: PTH123
        open(slave, "w", encoding="utf-8") as screen,  # noqa: PTH123
    ):
        yield Person(master), keyboard, screen
    os.close(master)


@contextmanager
def program_in_terminal(
    *words: str, cwd: Path | None = None, **environment: str
) -> Iterator[tuple[Person, "subprocess.Popen[bytes]"]]:
    """Run `handrail` in a terminal of its own; end it if the test has not."""
    master, slave = pty.openpty()
    known = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("HANDRAIL_", "OPENAI_"))
    }
    known |= {"TERM": "dumb", "COLUMNS": "110"} | environment
    program = subprocess.Popen(
        [sys.executable, "-m", "handrail", *words],
        stdin=slave, stdout=slave, stderr=slave, start_new_session=True, cwd=cwd, env=known,
    )  # fmt: skip
    os.close(slave)
    try:
        yield Person(master, program), program
    finally:
        if program.poll() is None:
            program.kill()
        program.wait(PATIENCE_S)
        os.close(master)
