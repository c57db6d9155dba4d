"""The Python programs of levels `wasm` and `monty`, which have no processes and so no command line of their own.

A job names its program as for an interpreter: options, then a file among the job's own, or `-c` and the text.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from threading import Event, Thread
from typing import Literal, TypeAlias

from msgspec import Struct

from handrail.ports import SandboxJob
from handrail.surroundings.clock import monotonic

EndReason: TypeAlias = Literal["exited", "timeout", "cancelled", "memory", "lost"]
_WITH_VALUE = ("-X", "-W")
_LOOK_S = 0.05


class PythonProgram(Struct, frozen=True):
    """A program: the name that its tracebacks show, its text, and the other files of its job."""

    name: str
    source: str
    files: Mapping[str, bytes]


def read_program(job: SandboxJob) -> PythonProgram:
    """Return the one Python program of a job.

    Raises:
        OSError: The job is something else, which cannot be started there.
    """
    words = list(job.argv[1:])
    while words and words[0].startswith("-") and words[0] != "-c":
        del words[: 2 if words[0] in _WITH_VALUE else 1]
    if words[:1] == ["-c"] and len(words) == 2:
        return PythonProgram("<string>", words[1], job.files)
    if job.mounts or len(words) != 1 or words[0] not in job.files:
        raise OSError("only a Python program without arguments can be started there")
    files = {name: data for name, data in job.files.items() if name != words[0]}
    source = job.files[words[0]].decode("utf-8", "replace")
    return PythonProgram(words[0], source, files)


def lay_files(folder: str, files: Mapping[str, bytes]) -> None:
    """Write the files of a job into a folder; their names stay below it, see `host.is_below`."""
    for name, data in files.items():
        place = Path(folder, name)
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_bytes(data)


class TimeLimit:
    """For the time of a `with` block, kills what runs in it when its time is over or it is cancelled.

    Attributes:
        reached: `timeout` or `cancelled` once it was killed, else empty.
    """

    def __init__(
        self, kill: Callable[[], object], timeout_s: float, cancelled: Event
    ) -> None:
        self.reached: Literal["", "timeout", "cancelled"] = ""
        self._kill = kill
        self._until = monotonic() + timeout_s
        self._cancelled = cancelled
        self._over = Event()
        self._thread = Thread(target=self._watch, name="handrail-deadline", daemon=True)

    def __enter__(self) -> TimeLimit:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()

    def _watch(self) -> None:
        while not self._over.wait(_LOOK_S):
            if self._cancelled.is_set():
                self.reached = "cancelled"
            elif monotonic() > self._until:
                self.reached = "timeout"
            if self.reached:
                self._kill()
                return
