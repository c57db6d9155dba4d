"""Starts a server and ends what it leaves behind (Linux): `python -I -S launcher.py PARENT COMMAND...`.

It adopts every process below the server whose own parent has ended, so that a daemon is found too. It ends with the
last of them, with the exit code of the server.

Rule 1: it kills them all on `STOP`, when PARENT dies, and when the server has ended after SIGTERM or has failed. A
        server that exits with 0 may have started its successor, so what it leaves runs on until then.
Rule 2: it imports the standard library only, and little of that: each start of a server waits for it.
"""

# ruff: noqa: PTH120  (pathlib is one of the imports that are not worth their time here)

from __future__ import annotations

import os
import signal
import sys
from typing import NoReturn

STOP = signal.SIGUSR1 if sys.platform != "win32" else signal.SIGTERM

_PR_SET_PDEATHSIG = 1
_PR_SET_DUMPABLE = 4


def main(parent: int, command: list[str]) -> NoReturn:
    """Run the server to its end."""
    sys.path.append(os.path.dirname(__file__))
    from supervisor import (  # type: ignore[import-not-found]
        adopt_orphans,
        end_everything,
    )

    mask = signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
    _control(_PR_SET_PDEATHSIG, STOP)
    adopt_orphans()
    if os.getppid() != parent:  # it died before the kernel was asked
        os._exit(1)
    launcher = os.getpid()
    server = os.fork()
    if server == 0:
        _control(_PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != launcher:
            os._exit(1)
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)
        _become(command)
    # whoever reads from the server waits until nobody can write to it
    nothing = os.open(os.devnull, os.O_RDWR)
    for stream in (0, 1, 2):
        os.dup2(nothing, stream)
    code: int | None = None
    is_closing = False
    while code is None or not (code or is_closing):
        number = signal.sigwait({signal.SIGCHLD, signal.SIGTERM, STOP})
        is_closing |= number == signal.SIGTERM
        try:
            while (ended := os.waitpid(-1, os.WNOHANG))[0]:
                if ended[0] == server:
                    code = os.waitstatus_to_exitcode(ended[1])
        except ChildProcessError:
            break
        if number == STOP:
            break
    end_everything()
    _end_as(-signal.SIGKILL if code is None else code)


def _control(option: int, value: int) -> None:
    """Call `prctl`, if this Python can."""
    try:
        import ctypes

        ctypes.CDLL(None).prctl(option, value, 0, 0, 0)
    except Exception:  # a Python without ctypes: the server still runs
        return


def _become(command: list[str]) -> NoReturn:
    try:
        os.execvp(command[0], command)
    except OSError as error:
        os.write(2, f"{command[0]}: {error.strerror}\n".encode())
    finally:
        os._exit(1)


def _end_as(code: int) -> NoReturn:
    """End with an exit code; a negative one is a signal."""
    if code < 0:
        _control(_PR_SET_DUMPABLE, 0)  # the server has left a core dump already
        if -code != signal.SIGKILL:
            signal.signal(-code, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_SETMASK, ())
        os.kill(os.getpid(), -code)
    os._exit(code & 0xFF)


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2:])
