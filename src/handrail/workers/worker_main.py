"""What runs in a worker process: takes one call after another, and is killed when one takes too long.

Started by `processes`, which calls `main`. It has a session of its own, so that it can be killed with everything that
it started.

Rule 1: it ends itself, with everything that it started, as soon as its parent is gone, in the middle of a call too.
Rule 2: what a tool prints goes to stderr; the parent's stdout is the parent's.
"""

from __future__ import annotations

import ctypes
import importlib
import inspect
import json
import os
import pickle
import signal
import sys
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from functools import lru_cache
from importlib.util import module_from_spec, spec_from_file_location
from threading import Thread
from types import ModuleType
from typing import Any, NamedTuple, cast

from handrail.core import materialize
from handrail.errors import Code, NoEffect, SetupError, TooLarge, ToolError
from handrail.sandboxes.confinement import drop_rights, join_empty_key_ring
from handrail.sandboxes.seccomp import filter_here
from handrail.workers import reimport

_PR_SET_CHILD_SUBREAPER = 36
_OURS = os.path.dirname(os.path.dirname(__file__)) + os.sep  # noqa: PTH120  # pathlib is dear


class Place(NamedTuple):
    """Where a function stands: its module, that module's file if it has one, and its name there."""

    module: str
    file: str
    name: str


@lru_cache(maxsize=10_000)
def function_at(module: str, file: str, name: str) -> Callable[..., Any]:
    """Import and return what stands at a place; of a tool that was made of a function, the function itself."""
    found: Any = _module(module, file)
    for part in name.split("."):
        found = getattr(found, part)
    return cast("Callable[..., Any]", getattr(found, "fn", found))


def order_of(function: Place | bytes, arguments: Mapping[str, Any]) -> bytes:
    """Return one call as bytes: a place, or a function that was pickled by value, and its arguments.

    A bare tuple is pickled and read in a microsecond, a value of a class of ours in sixteen.
    """
    return pickle.dumps((function if isinstance(function, bytes) else tuple(function), arguments))


def main(fd: int, life_fd: int) -> None:
    """Take calls until the parent closes the line.

    Args:
        fd: The line, a socket.
        life_fd: A pipe whose other end the parent holds open as long as it lives.
    """
    import asyncio  # these two are dear to import, and `alone`, which begins anew for each call, can do without
    from multiprocessing.connection import Connection

    join_empty_key_ring()
    drop_rights(filter_here())  # before any thread starts: existing threads would keep their rights
    for each in (fd, life_fd):
        os.set_inheritable(each, False)  # what a tool starts must not keep them open
    os.dup2(2, 1)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the parent, which decides what becomes of a call
    _adopt_orphans()
    _be_killed_with_parent(life_fd)
    Thread(target=_die_with_parent, args=(life_fd,), daemon=True).start()
    with Connection(fd) as line, asyncio.Runner() as runner, suppress(EOFError, OSError):
        line.send_bytes(b"")  # ready: what comes before this has certainly not been begun
        while True:
            outcome = _outcome(line.recv_bytes(), lambda value: runner.run(_awaited(value)))
            line.send_bytes(_written(*outcome))


def alone(order: str) -> None:
    """Carry out the one call that lies in a file, and tell on stdout what became of it, as JSON after an empty line.

    That line says that the tool is about to be started. `boxes` reads the rest, as a stranger's text.
    """
    told = os.dup(1)
    os.dup2(2, 1)
    os.write(told, b"\n")
    with open(order, "rb") as given, open(told, "wb") as line:  # noqa: PTH123  # pathlib is dear too
        line.write(_told(*_outcome(given.read(), _run)))
    with suppress(Exception):  # the tool may have closed them
        sys.stdout.flush()
        sys.stderr.flush()
    os._exit(0)  # threads that the tool has left behind end here


def _run(value: Awaitable[Any]) -> Any:
    import asyncio

    return asyncio.run(_awaited(value))


def _outcome(order: bytes, run: Callable[[Awaitable[Any]], Any]) -> tuple[bool, Any]:
    """Carry out one call; return whether it returned, and its value or what it raised."""
    try:
        place, arguments = pickle.loads(order)
        function = pickle.loads(place) if isinstance(place, bytes) else _found(*place)
        value = function(**arguments)
        if inspect.isawaitable(value):
            value = run(value)
        return True, materialize.read(value)
    except BaseException as error:  # the one broad catch around a user's tool, on this side
        return False, error


def _found(module: str, file: str, name: str) -> Callable[..., Any]:
    """Return the function at a place; what its file does that it must not is told to the engineer, on stderr."""
    try:
        return function_at(module, file, name)
    except SetupError as error:
        print(f"handrail: {error}", file=sys.stderr, flush=True)
        told = "The file of this tool cannot be imported where it is to run."
        raise NoEffect(Code.INTERNAL_ERROR, told, suggestion="Go on without it, and tell the user.") from error


async def _awaited(value: Any) -> Any:
    return await value


def _written(returned: bool, value: Any) -> bytes:
    """Return the answer as bytes that the parent can read: what has no pickle goes as JSON, or as its words."""
    with suppress(Exception):
        told = pickle.dumps((returned, value))
        if not returned:
            pickle.loads(told)  # exceptions with constructors of their own pickle well and unpickle badly
        return told
    if not returned:
        return pickle.dumps((False, RuntimeError(f"{type(value).__name__}: {value}")))
    try:
        from pydantic_core import to_jsonable_python  # dear to import, and rarely needed

        return pickle.dumps((True, to_jsonable_python(value, fallback=repr)))
    except Exception as error:
        return pickle.dumps((False, RuntimeError(f"its result cannot leave the process: {error}")))


def _told(returned: bool, value: Any) -> bytes:
    """Return the answer of a call that was alone: plain JSON, since whoever reads it trusts no pickle from there."""
    if not returned:
        return json.dumps({"raised": _told_error(value)}).encode()
    with suppress(TypeError, ValueError, RecursionError):  # most values are JSON as they are
        return json.dumps({"returned": value}, allow_nan=False).encode()
    from handrail.calls import Media  # dear to import
    from handrail.core.results import media_in, plain

    if not media_in(value):
        return json.dumps({"returned": plain(value)}).encode()
    if isinstance(value, Media):
        return json.dumps({"returned": None, "media": [[None, *_told_media(value)]]}).encode()
    places = list(value.items() if isinstance(value, dict) else enumerate(value))
    media = [[place, *_told_media(each)] for place, each in places if isinstance(each, Media)]
    rest = [None if isinstance(each, Media) else plain(each) for _, each in places]
    told = dict(zip((place for place, _ in places), rest, strict=True)) if isinstance(value, dict) else rest
    return json.dumps({"returned": told, "media": media}).encode()


def _told_media(media: Any) -> list[str]:
    return [media.media_type, media.base64, media.url, media.name]


def _told_error(error: BaseException) -> dict[str, Any]:
    if isinstance(error, ToolError):
        failure = {**error.failure.as_json(), "details": list(error.failure.details)}
        return {**failure, "retry_after_s": error.retry_after_s, "no_effect": isinstance(error, NoEffect),
                "too_large": isinstance(error, TooLarge)}  # fmt: skip
    kind = type(error).__name__
    return {"text": f"{kind}: {error}", "kind": kind, "place": _place(error)}


def _place(error: BaseException) -> str:
    """Say where in the tool's own file an exception came from: in the last step there, of whatever was called on."""
    steps, trace = [], error.__traceback__
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


def _module(name: str, file: str) -> ModuleType:
    """Return the module of that name; one that is no importable module, as a script or a file of tools, by its file."""
    known = sys.modules.get(name)
    if known is not None and (name != "__main__" or getattr(known, "__file__", "") == file):
        return known
    with reimport.of(file or name):
        return _imported(name, file)


def _imported(name: str, file: str) -> ModuleType:
    if name != "__main__":
        with suppress(ImportError):
            module = importlib.import_module(name)
            if not file or getattr(module, "__file__", file) == file:
                return module
    spec = spec_from_file_location("__handrail_main__" if name == "__main__" else name, file)
    if spec is None or spec.loader is None:
        raise ImportError(f"the module {name!r} cannot be imported again from {file!r}")
    module = module_from_spec(spec)
    # Before it is run: what it defines is pickled under this name, and looked for here.
    sys.modules[name] = sys.modules[spec.name] = module
    try:
        spec.loader.exec_module(module)
    except BaseException:  # half of it is no module: the next call tries again
        del sys.modules[name], sys.modules[spec.name]
        raise
    return module


def _adopt_orphans() -> None:
    """Become the parent of grandchildren whose own parent has ended, so that they are found when we are killed."""
    with suppress(OSError, AttributeError):  # Linux only
        ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def _be_killed_with_parent(life_fd: int) -> None:
    """Have the kernel kill our group when the parent's end is closed (Linux).

    The thread that does so as well waits for the interpreter's lock, which a library in C may hold while it writes.
    """
    try:
        import fcntl

        fcntl.fcntl(life_fd, fcntl.F_SETOWN, -os.getpgrp())
        fcntl.fcntl(life_fd, fcntl.F_SETSIG, signal.SIGKILL)
        fcntl.fcntl(life_fd, fcntl.F_SETFL, fcntl.fcntl(life_fd, fcntl.F_GETFL) | os.O_ASYNC)
    except (ImportError, AttributeError, OSError):
        return


def _die_with_parent(life_fd: int) -> None:
    with suppress(OSError):
        os.read(life_fd, 1)  # nothing is ever written: it ends when the parent's end is closed, by whatever cause
    os.killpg(0, signal.SIGKILL)
