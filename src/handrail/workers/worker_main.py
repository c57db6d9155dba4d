"""What runs in a worker process: takes one call after another, and is killed when one takes too long.

Started by `processes`, which calls `main`. It has a session of its own, so that it can be killed with everything that
it started.

Rule 1: it ends itself, with everything that it started, as soon as its parent is gone, in the middle of a call too.
Rule 2: what a tool prints goes to stderr; the parent's stdout is the parent's.
Rule 3: only the process that took a call answers it. A fork that returns from the tool ends here.
"""

from __future__ import annotations

import importlib
import inspect
import json
import os
import pickle
import signal
import struct
import sys
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import lru_cache
from importlib.util import module_from_spec, spec_from_file_location
from threading import Thread
from types import ModuleType
from typing import Any, NamedTuple, cast

from handrail.errors import Code, NoEffect, SetupError, TooLarge, ToolError
from handrail.sandboxes import landlock
from handrail.sandboxes.confinement import drop_rights, join_empty_key_ring
from handrail.sandboxes.seccomp import filter_here
from handrail.sandboxes.supervisor import adopt_orphans
from handrail.tools import materialize
from handrail.workers import fork_safety, reimport

ANSWER_HEADER = struct.Struct("=QQ")
"""What comes before an answer: the number of the call in its worker, from 1, and the process that answers."""

_HOME = os.path.dirname(os.path.dirname(__file__))  # noqa: PTH120  # pathlib is slow to import
_OURS = (f"{_HOME}{os.sep}", f"{_HOME}_")
"""How the files of ours begin: those of this package, and of the packages beside it."""


class FunctionLocation(NamedTuple):
    """How a function is found: its module, that module's file if it has one, and its name there."""

    module: str
    file: str
    name: str


@lru_cache(maxsize=10_000)
def function_at(module: str, file: str, name: str) -> Callable[..., Any]:
    """Import and return a function; of a tool that was made of a function, the function itself."""
    value: Any = _load_module(module, file)
    for part in name.split("."):
        value = getattr(value, part)
    return cast("Callable[..., Any]", getattr(value, "fn", value))


def pickle_call(
    function: FunctionLocation | bytes,
    arguments: Mapping[str, Any],
    environment: Mapping[str, str],
) -> bytes:
    """Return one call as bytes: a location, or a function that was pickled by value; its arguments; and variables.

    A bare tuple is pickled and read in a microsecond, a value of a class of ours in sixteen.
    """
    if isinstance(function, bytes):
        return pickle.dumps((function, arguments, environment))
    return pickle.dumps((tuple(function), arguments, environment))


def main(
    fd: int,
    life_fd: int,
    files: tuple[Sequence[str], Sequence[str]] | None = None,
) -> None:
    """Take calls until the parent closes the line.

    Args:
        fd: The line, a socket.
        life_fd: A pipe whose other end the parent holds open as long as it lives.
        files: What can be read, and what can be written too; None for all files.
    """
    # these two are slow to import, and `run_single_call`, a new process for each call, does without
    import asyncio
    from itertools import count
    from multiprocessing.connection import Connection

    join_empty_key_ring()
    # before any thread starts: existing threads would keep their rights
    drop_rights(filter_here())
    readable, writable = files or (None, ())
    landlock.restrict(readable, writable)
    for each in (fd, life_fd):
        os.set_inheritable(each, False)  # what a tool starts must not keep them open
    os.dup2(2, 1)
    # Ctrl-C is for the parent, which decides about the call
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    adopt_orphans()
    _be_killed_with_parent(life_fd)
    Thread(target=_die_with_parent, args=(life_fd,), daemon=True).start()
    with (
        Connection(fd) as line,
        asyncio.Runner() as runner,
        suppress(EOFError, OSError),
    ):
        # a fork that kept the line open would hide from the parent that this process has ended
        os.register_at_fork(after_in_child=line.close)
        # ready: a call that comes before this has certainly not started
        line.send_bytes(b"")
        for number in count(1):
            has_returned, value = _run_call(
                line.recv_bytes(), lambda value: runner.run(_await(value))
            )
            outcome = _pickle_outcome(has_returned, value)
            # last: pickling runs the tool's code too, which may fork
            line.send_bytes(ANSWER_HEADER.pack(number, os.getpid()) + outcome)


def run_single_call(order: str) -> None:
    """Run the one call in a file, and write its outcome to stdout, as JSON after an empty line.

    That line says that the tool is about to be started. `sandboxed` reads the rest, as untrusted text.
    """
    stdout = os.dup(1)
    os.dup2(2, 1)
    os.write(stdout, b"\n")
    with open(order, "rb") as file, open(stdout, "wb") as line:  # noqa: PTH123  # pathlib is slow to import too
        has_returned, value = _run_call(file.read(), _run)
        line.write(_outcome_as_json(has_returned, value))
    with suppress(Exception):  # the tool may have closed them
        sys.stdout.flush()
        sys.stderr.flush()
    os._exit(0)  # threads that the tool has left behind end here


def _run(value: Awaitable[Any]) -> Any:
    import asyncio

    return asyncio.run(_await(value))


def _run_call(order: bytes, run: Callable[[Awaitable[Any]], Any]) -> tuple[bool, Any]:
    """Run one call; return whether it returned, and its value or what it raised. A fork of the tool does not return."""
    process = os.getpid()
    try:
        location, arguments, environment = pickle.loads(order)
        function = (
            pickle.loads(location)
            if isinstance(location, bytes)
            else _load_function(*location)
        )
        with _variables(environment):
            value = function(**arguments)
            if inspect.isawaitable(value):
                value = run(value)
            outcome = True, materialize.read(value).value
    except BaseException as error:
        # the one broad catch around a user's tool, on this side
        outcome = False, error
    if os.getpid() != process:
        fork_safety.end_fork(None if outcome[0] else outcome[1])
    return outcome


@contextmanager
def _variables(environment: Mapping[str, str]) -> Iterator[None]:
    """Set environment variables for the time of one call."""
    os.environ.update(environment)
    try:
        yield
    finally:
        for name in environment:
            os.environ.pop(name, None)


def _load_function(module: str, file: str, name: str) -> Callable[..., Any]:
    """Return a function; if its file does at import what it must not, print that to stderr, for the engineer."""
    try:
        return function_at(module, file, name)
    except SetupError as error:
        print(f"handrail: {error}", file=sys.stderr, flush=True)
        raise NoEffect(
            Code.INTERNAL_ERROR,
            "The file of this tool cannot be imported where it is to run.",
            suggestion="Go on without it, and tell the user.",
        ) from error


async def _await(value: Any) -> Any:
    return await value


def _pickle_outcome(has_returned: bool, value: Any) -> bytes:
    """Return an outcome as bytes that the parent can read: what cannot be pickled goes as JSON, or as text."""
    with suppress(Exception):
        pickled = pickle.dumps((has_returned, value))
        if not has_returned:
            # exceptions with constructors of their own pickle well and unpickle badly
            pickle.loads(pickled)
        return pickled
    if not has_returned:
        return pickle.dumps((False, RuntimeError(f"{type(value).__name__}: {value}")))
    try:
        # slow to import, and rarely needed
        from pydantic_core import to_jsonable_python

        return pickle.dumps((True, to_jsonable_python(value, fallback=repr)))
    except Exception as error:
        return pickle.dumps(
            (False, RuntimeError(f"its result cannot leave the process: {error}"))
        )


def _outcome_as_json(has_returned: bool, value: Any) -> bytes:
    """Return an outcome as plain JSON: the parent unpickles nothing that comes from a sandbox."""
    if not has_returned:
        return json.dumps({"raised": _error_as_json(value)}).encode()
    # most values are JSON as they are
    with suppress(TypeError, ValueError, RecursionError):
        return json.dumps({"returned": value}, allow_nan=False).encode()
    from handrail.calls import Media  # slow to import
    from handrail.core.results import media_in, plain

    if not media_in(value):
        return json.dumps({"returned": plain(value)}).encode()
    if isinstance(value, Media):
        return json.dumps(
            {"returned": None, "media": [[None, *_media_as_json(value)]]}
        ).encode()
    items = list(value.items() if isinstance(value, dict) else enumerate(value))
    media = [
        [key, *_media_as_json(each)] for key, each in items if isinstance(each, Media)
    ]
    rest = {
        key: None if isinstance(each, Media) else plain(each) for key, each in items
    }
    returned = rest if isinstance(value, dict) else list(rest.values())
    return json.dumps({"returned": returned, "media": media}).encode()


def _media_as_json(media: Any) -> list[str]:
    return [media.media_type, media.base64, media.url, media.name]


def _error_as_json(error: BaseException) -> dict[str, Any]:
    if isinstance(error, ToolError):
        return {
            **error.failure.as_json(),
            "details": list(error.failure.details),
            "retry_after_s": error.retry_after_s,
            "no_effect": isinstance(error, NoEffect),
            "too_large": isinstance(error, TooLarge),
        }
    kind = type(error).__name__
    return {"text": f"{kind}: {error}", "kind": kind, "place": _describe_origin(error)}


def _describe_origin(error: BaseException) -> str:
    """Return the last line in the tool's own file on the way to an exception."""
    steps = []
    trace = error.__traceback__
    while trace is not None:
        steps.append((trace.tb_frame.f_code, trace.tb_lineno))
        trace = trace.tb_next
    own = ""
    for code, _ in steps:
        if code.co_filename.startswith(_OURS):
            own = ""
        elif not own:
            own = code.co_filename
    code, line = [step for step in steps if step[0].co_filename == own or not own][-1]
    return f"{code.co_name} ({os.path.basename(code.co_filename)}:{line})"  # noqa: PTH119


def _load_module(name: str, file: str) -> ModuleType:
    """Return the module of that name; a script or a file of tools, which cannot be imported by name, by its file."""
    loaded = sys.modules.get(name)
    if loaded is not None and (
        name != "__main__" or getattr(loaded, "__file__", "") == file
    ):
        return loaded
    with reimport.importing(file or name):
        return _import_module(name, file)


def _import_module(name: str, file: str) -> ModuleType:
    if name != "__main__":
        with suppress(ImportError):
            module = importlib.import_module(name)
            if not file or getattr(module, "__file__", file) == file:
                return module
    spec = spec_from_file_location(
        "__handrail_main__" if name == "__main__" else name, file
    )
    if spec is None or spec.loader is None:
        raise ImportError(f"the module {name!r} cannot be imported again from {file!r}")
    module = module_from_spec(spec)
    # Before it is run: what it defines is pickled under this name, and looked for here.
    sys.modules[name] = module
    sys.modules[spec.name] = module
    try:
        spec.loader.exec_module(module)
    except BaseException:  # half of it is no module: the next call tries again
        del sys.modules[name], sys.modules[spec.name]
        raise
    return module


def _be_killed_with_parent(life_fd: int) -> None:
    """Have the kernel kill our group when the parent's end is closed (Linux).

    The thread that does so as well waits for the interpreter's lock, which a library in C may hold while it writes.
    """
    try:
        import fcntl

        fcntl.fcntl(life_fd, fcntl.F_SETOWN, -os.getpgrp())
        fcntl.fcntl(life_fd, fcntl.F_SETSIG, signal.SIGKILL)
        fcntl.fcntl(
            life_fd, fcntl.F_SETFL, fcntl.fcntl(life_fd, fcntl.F_GETFL) | os.O_ASYNC
        )
    except (ImportError, AttributeError, OSError):
        return


def _die_with_parent(life_fd: int) -> None:
    with suppress(OSError):
        # nothing is ever written: it ends when the parent's end is closed, by whatever cause
        os.read(life_fd, 1)
    os.killpg(0, signal.SIGKILL)
