"""Tools in processes of their own: warm workers that can be killed, and are, when a call's time is over.

A thread cannot be stopped, so what a blocking tool does may land after its deadline. A process can. A worker stays
alive from call to call, so that a call costs two messages; one that was killed is replaced at once.

Level `process` protects against accidents, not against malice: the tool runs as our user with our environment, files
and network, but without capabilities and the system calls that `seccomp` refuses, and, on Linux 6.12, without signals
to processes that it did not start. A tool that declares `mounts` or `writable` reaches those files only (`FileWall`).

The level has two forms, because what runs there differs. A tool's function is the author's own code, called often with
Python values: a warm worker, here. A program that a model wrote is run once, with files and limits: a fresh process,
`sandboxes.process`. Both drop their rights by `sandboxes.confinement`.

Rule 1: a killed call leaves nothing running: the worker is killed with everything that it started.
Rule 2: a worker runs one call at a time, and is never killed for a call that it has already answered.
Rule 3: an answer that names another call or another process is dropped, and its worker killed.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from functools import lru_cache
from pathlib import Path
from threading import Condition, Thread
from typing import TYPE_CHECKING, Any

from handrail import _lazy
from handrail.errors import ToolDefinitionError
from handrail.surroundings.clock import monotonic
from handrail.tools.tool import BaseTool
from handrail.workers import fork_safety

if TYPE_CHECKING:
    import pickle
    from multiprocessing import connection

    from handrail.workers import worker_main
    from handrail.workers.file_walls import FileWall
else:
    pickle = _lazy.module("pickle")
    connection = _lazy.module("multiprocessing.connection")
    worker_main = _lazy.module("handrail.workers.worker_main")

NO_VARIABLES: Mapping[str, str] = {}
MOST_WORKERS = max(4, 2 * (os.cpu_count() or 1))
MAX_HUNT_S = 5.0
"""How long processes that go on forking are hunted before the worker, by which they are found, is killed anyway."""


class ProcessEnded(Exception):  # not always an error: mostly we killed it
    """The process of a call ended before it answered: killed at its deadline, or by its own doing.

    Attributes:
        started: Whether the call had reached a process; else the tool was certainly not started.
    """

    def __init__(self, message: str, *, started: bool = True) -> None:
        super().__init__(message)
        self.started = started


class WorkerCall:
    """One call on its way to a worker, or in one."""

    __slots__ = ("_pool", "killed", "order", "tool")

    def __init__(
        self,
        pool: ProcessPool,
        tool: BaseTool,
        arguments: Mapping[str, Any],
        environment: Mapping[str, str] = NO_VARIABLES,
    ) -> None:
        self._pool = pool  # of workers with the files that the tool declares
        self.tool = tool.name
        self.order = pickle_order(tool, arguments, environment)
        self.killed = False

    def __call__(self) -> Any:
        """Wait for a worker, then for its answer; in a thread.

        Raises:
            ProcessEnded: It was killed, or died.
            NoEffect: `NOT_ISOLATED`: this kernel cannot keep other files from the tool.
        """
        if self._pool.wall is not None:
            self._pool.wall.check(self.tool)
        worker = self._pool.take(self)
        started = False
        try:
            worker.wait_until_ready()
            if self.killed:
                raise EOFError
            started = True
            answer = worker.call(self.order)
        except (EOFError, OSError) as error:
            end = self._pool.replace_worker(worker)
            if self.killed:
                end = "was killed"
            raise ProcessEnded(
                f"the process of {self.tool!r} {end}", started=started
            ) from error
        self._pool.give_back(self, worker)
        has_returned, value = pickle.loads(answer)
        if not has_returned:
            raise value
        return value

    def kill(self) -> None:
        """End the call, wherever it is; `__call__` says so. Without effect once it has been answered."""
        self._pool.kill(self)


class ProcessPool:
    """A pool of worker processes that grows when all are busy, up to `most`.

    Attributes:
        wall: The files that its workers reach; None for all.
    """

    def __init__(self, most: int = MOST_WORKERS, wall: FileWall | None = None) -> None:
        self._most = most
        self.wall = wall
        self._idle: list[Worker] = []
        self._busy: dict[WorkerCall, Worker] = {}
        fork_safety.reset_after_fork(self.reset)

    def reset(self) -> None:
        """See `fork_safety.reset_after_fork`: the workers belong to the parent, answer it, and end with it."""
        for worker in (*self._idle, *self._busy.values()):
            worker.close_line()
        self._idle = []
        self._busy = {}
        self._size = 0
        self._change = Condition()
        self._closed = False

    def take(self, call: WorkerCall) -> Worker:
        """Wait for a worker, and reserve it for a call until it is given back."""
        with self._change:
            while not (self._idle or self._size < self._most or call.killed):
                self._change.wait()
            if call.killed:
                raise ProcessEnded(
                    f"{call.tool!r} was ended while it waited for a process",
                    started=False,
                )
            while self._idle:
                worker = self._idle.pop()
                if worker.is_alive():
                    self._busy[call] = worker
                    return worker
                worker.end()  # somebody killed it while it waited
                self._size -= 1
            self._size += 1
        worker = self._start_worker()
        with self._change:
            self._busy[call] = worker
            if call.killed:  # meanwhile
                worker.kill()
        return worker

    def give_back(self, call: WorkerCall, worker: Worker) -> None:
        """Return a worker that has answered, so that it can take the next call."""
        with self._change:
            del self._busy[call]
            if self._closed or call.killed:  # in the moment between its answer and this
                self._size -= 1
                worker.close()
            else:
                self._idle.append(worker)
            self._change.notify()

    def replace_worker(self, worker: Worker) -> str:
        """End a worker and start another in its place; return how it ended."""
        end = worker.end()
        with self._change:
            self._busy = {
                call: each for call, each in self._busy.items() if each is not worker
            }
            self._size -= 1
            needs_another = not (self._closed or self._idle)
            if needs_another:
                self._size += 1
            self._change.notify()
        if needs_another:
            Thread(
                target=self._add_worker, name="handrail-respawn", daemon=True
            ).start()
        return end

    def kill(self, call: WorkerCall) -> None:
        """End a call: kill its worker, or end its wait for one."""
        with self._change:
            call.killed = True
            worker = self._busy.get(call)
            if worker is not None:
                worker.kill()
            self._change.notify_all()

    def close(self) -> None:
        """End every worker: idle ones at once, busy ones with what they do."""
        with self._change:
            self._closed = True
            idle = self._idle
            self._idle = []
            self._size -= len(idle)
        for worker in idle:
            worker.close()

    def _add_worker(self) -> None:
        worker = self._start_worker()
        with self._change:
            if self._closed:
                self._size -= 1
                worker.close()
            else:
                self._idle.append(worker)
                self._change.notify()

    def _start_worker(self) -> Worker:
        try:
            return Worker(self.wall)
        except BaseException:
            with self._change:
                self._size -= 1
                self._change.notify()
            raise

    def __repr__(self) -> str:
        return f"<ProcessPool: {self._size} of {self._most}, {len(self._idle)} idle>"


class Worker:
    """One process, and the line to it."""

    def __init__(self, wall: FileWall | None = None) -> None:
        self._line, worker_line = connection.Pipe()
        self._is_ready = False
        self._calls = 0
        # The worker ends when our end of this pipe is closed, by whatever cause.
        life, self._life = os.pipe()
        fds = (worker_line.fileno(), life)
        # it looks for modules where we do
        path = [str(Path(each or ".").resolve()) for each in sys.path]
        self._folder = ""
        environment = None
        files = None
        if wall is not None:
            self._folder = tempfile.mkdtemp(prefix="handrail-worker-")
            environment = {**os.environ, "TMPDIR": self._folder}
            files = (wall.readable, (*wall.writable, self._folder))
        program = (
            f"import sys; sys.path[:0] = {path!r}; "
            f"from handrail.workers.worker_main import main; main(*{fds!r}, {files!r})"
        )
        command = [sys.executable, "-c", program]
        try:
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                pass_fds=fds,
                start_new_session=True,
                env=environment,
            )
        finally:
            worker_line.close()
            os.close(life)

    def wait_until_ready(self) -> None:
        """Wait until the process can take a call.

        Raises:
            EOFError: It is gone.
        """
        if not self._is_ready:
            self._line.recv_bytes()
            self._is_ready = True

    def call(self, order: bytes) -> bytes:
        """Send a call; return the pickle of whether it returned, and of what it returned or raised.

        Raises:
            EOFError: The process is gone, or another one answered in its place.
        """
        line: connection.Connection[Any, Any] = self._line
        self._calls += 1
        line.send_bytes(order)
        answer = line.recv_bytes()
        header = worker_main.ANSWER_HEADER
        if answer[: header.size] != header.pack(self._calls, self._process.pid):
            raise EOFError("another process answered, or to another call")
        return answer[header.size :]

    def is_alive(self) -> bool:
        """Whether the process runs."""
        return self._process.poll() is None

    def kill(self) -> None:
        """Kill the process and all its descendants.

        The kernel kills its group in one step, which no fork outruns. Processes that left the group are found by their
        parents: each is stopped first, so that it starts no other meanwhile. One that loses its parent meanwhile
        becomes a child of the stopped worker, which adopts it, so it is found at the next look. The worker itself is
        killed when there is none left; processes that go on forking are hunted in a thread of its own.
        """
        with suppress(ProcessLookupError):
            os.kill(self._process.pid, signal.SIGSTOP)
        ended: set[int] = set()
        if _kill_below(self._process.pid, ended):
            Thread(
                target=self._hunt, args=(ended,), name="handrail-hunt", daemon=True
            ).start()
        else:
            self._kill_group()

    def _hunt(self, ended: set[int]) -> None:
        until = monotonic() + MAX_HUNT_S
        while _kill_below(self._process.pid, ended) and monotonic() < until:
            pass
        self._kill_group()

    def _kill_group(self) -> None:
        if self._process.returncode is None:  # else its number may be another's by now
            with suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)

    def end(self) -> str:
        """Make sure that the process has ended; return how it ended."""
        if self.is_alive():
            self.kill()
        code = self._process.wait()
        self.close_line()
        self._remove_folder()
        if code < 0:
            return f"was ended by signal {-code}"
        return f"ended with exit code {code}"

    def close(self) -> None:
        """Let an idle process end."""
        self.close_line()
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(timeout=0.5)
        self.end()

    def close_line(self) -> None:
        """Close our ends of both pipes. The worker ends once no process has them open."""
        self._line.close()
        if self._life >= 0:
            os.close(self._life)
            self._life = -1

    def _remove_folder(self) -> None:
        if self._folder:
            shutil.rmtree(self._folder, ignore_errors=True)


def _kill_below(pid: int, ended: set[int]) -> bool:
    """Kill every process below this one, which is stopped; return whether any was found.

    A list of children may miss one whose parent ends just then. That parent is new among the ended ones, which stay in
    the list, because nobody waits for them: only a look that finds no new process has missed none.

    Args:
        ended: Processes that have ended; those of this look are added.
    """
    pids = {*_descendants(pid, ended)}
    for each in pids:
        with suppress(ProcessLookupError):
            os.kill(each, signal.SIGKILL)
        if not _is_running(each):
            ended.add(each)
    return bool(pids)


def _descendants(pid: int, ended: set[int]) -> Iterator[int]:
    """Stop and yield every process below this one but those that have ended (Linux; elsewhere none)."""
    try:
        children = " ".join(
            each.read_text() for each in Path(f"/proc/{pid}/task").glob("*/children")
        )
    except OSError:
        return
    for child in {*map(int, children.split())} - ended:
        with suppress(ProcessLookupError):
            os.kill(child, signal.SIGSTOP)
        yield from _descendants(child, ended)
        yield child


def _is_running(pid: int) -> bool:
    """Whether a process exists and has not ended."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (OSError, IndexError):
        return False
    return state not in "ZX"


def locate_function(tool: BaseTool) -> worker_main.FunctionLocation | bytes:
    """Return how another process finds a tool's function: by import path, or by value if cloudpickle is installed.

    Raises:
        ToolDefinitionError: It cannot be found; the message says what to do.
    """
    return _locate(tool.run, tool.name)


@lru_cache(maxsize=10_000)
def _locate(
    function: Callable[..., Any], tool: str
) -> worker_main.FunctionLocation | bytes:
    module = getattr(function, "__module__", None)
    name = getattr(function, "__qualname__", "")
    if module and _can_import(module, name, function):
        file = getattr(sys.modules[module], "__file__", None) or ""
        return worker_main.FunctionLocation(module, file, name)
    try:
        import cloudpickle  # type: ignore[import-untyped, import-not-found, unused-ignore]  # optional

        by_value: bytes = cloudpickle.dumps(function)
        return by_value
    except ImportError:
        what = (
            "is defined inside another function"
            if "<locals>" in name
            else "has no name in its module"
        )
        raise ToolDefinitionError(
            f"Tool {tool!r} cannot run in a process of its own: its function {what}, so that the process cannot import "
            "it. Define it at the top of a module, or install cloudpickle."
        ) from None
    except Exception as error:
        raise ToolDefinitionError(
            f"Tool {tool!r} cannot run in a process of its own: {error}"
        ) from error


def _can_import(module: str, name: str, function: Callable[..., Any]) -> bool:
    """Whether a function, or the tool that was made of it, has this name in its module."""
    value: Any = sys.modules.get(module)
    for part in name.split("."):
        value = getattr(value, part, None)
    return value is not None and (
        value is function or getattr(value, "fn", None) is function
    )


def pickle_order(
    tool: BaseTool, arguments: Mapping[str, Any], environment: Mapping[str, str]
) -> bytes:
    """Return a call as bytes.

    Args:
        environment: Variables that the process has during the call.

    Raises:
        ToolDefinitionError: A value that the caller injected cannot leave this process.
    """
    function = locate_function(tool)
    try:
        return worker_main.pickle_call(function, arguments, environment)
    except Exception as error:
        raise ToolDefinitionError(
            f"Tool {tool.name!r} runs in a process of its own, and its arguments cannot be sent there: {error}. "
            "Inject plain values (an address, a name), and let the tool open what it needs."
        ) from error
