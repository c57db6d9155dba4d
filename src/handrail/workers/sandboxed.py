"""Tools in a sandbox: each call in a fresh one, which nobody was in before and nobody is in afterwards.

What `processes` does with a warm worker for level `process` is done here with a `ports.Sandbox` for the levels above.
The call goes in as a file; what became of it comes out as JSON on stdout, bounded, and is read as a stranger's text.

Inside, the tool finds the interpreter, installed packages, the package or file in which it stands, and what it declares
as `mounts`, all read-only, and an empty folder that is gone afterwards. What it is given goes along: its arguments, and
what the caller injects.

Rule 1: nothing that comes out is unpickled, run or followed; of media the bytes are taken, and no address.
Rule 2: a call that did not reach its tool says so: it certainly had no effect.
"""

from __future__ import annotations

import json
import re
import sys
import sysconfig
from base64 import b64decode
from collections.abc import Mapping, Sequence
from math import inf, isfinite
from pathlib import Path
from threading import BoundedSemaphore, Event
from typing import Any

from msgspec.structs import replace

from handrail import logs
from handrail.calls import Media
from handrail.errors import Code, NoEffect, TooLarge, ToolError
from handrail.ports import JobEnded, SandboxJob
from handrail.sandboxes import levels
from handrail.tools.tool import BaseTool
from handrail.workers.processes import MOST_WORKERS, ProcessEnded, pickled, place_of

MOST_ANSWER_BYTES = 8 * 1024 * 1024
"""Of what a tool returns, and of what it prints."""

_LOOK_S = 0.05
_BEYOND_S = 5.0
"""A box ends itself so long after the call's time: whoever ends the call has ended it by then."""
_MEDIA_TYPE = re.compile(r"[A-Za-z0-9!#$&^_.+-]{1,127}/[A-Za-z0-9!#$&^_.+-]{1,127}")
"""RFC 6838, section 4.2; without parameters."""
_LONGEST_NAME = 255
_INSTALLED = ("site-packages", "dist-packages")
_SEATS = BoundedSemaphore(MOST_WORKERS)


class SandboxedCall:
    """One call on its way to a sandbox, or in one; see `processes.WorkerCall`, which it stands beside."""

    __slots__ = ("_cancelled", "_job", "tool")

    def __init__(self, tool: BaseTool, arguments: Mapping[str, Any], timeout_s: float) -> None:
        self.tool, self._cancelled = tool, Event()
        path, mounts = visible_to(tool)
        program = (
            f"import sys; sys.path += {path!r}; "
            f"sys.version_info[:2] == {sys.version_info[:2]!r} or sys.exit('its Python is another version'); "
            "from handrail.workers.worker_main import alone; alone('order')"
        )
        self._job = SandboxJob(
            ["-I", "-S", "-B", "-X", "utf8", "-c", program],
            files={"order": pickled(place_of(tool), arguments, tool.name)},
            mounts=mounts,
            timeout_s=timeout_s + _BEYOND_S,
            memory_bytes=tool.memory_bytes,
            output_bytes=MOST_ANSWER_BYTES,
            returned_files=0,
        )

    def __call__(self) -> Any:
        """Wait for a seat, then for the answer; in a thread.

        Raises:
            ProcessEnded: It was killed, or died.
            NoEffect: `NOT_ISOLATED`: there is no sandbox, or none with what the tool needs.
        """
        while not _SEATS.acquire(timeout=_LOOK_S):
            if self._cancelled.is_set():
                raise ProcessEnded(f"{self.tool.name!r} was ended while it waited for a sandbox", begun=False)
        try:
            return self._answer()
        finally:
            _SEATS.release()

    def kill(self) -> None:
        """End the call, wherever it is; `__call__` says so. Without effect once it has been answered."""
        self._cancelled.set()

    def _answer(self) -> Any:
        try:
            sandbox = levels.strongest(self.tool.name, self.tool.isolation)
        except ToolError as error:
            raise _not_isolated(error.failure.message) from error
        try:
            ended = sandbox.run(replace(self._job, argv=[sandbox.python, *self._job.argv]), self._cancelled)
        except OSError as error:
            raise ProcessEnded(f"the sandbox of {self.tool.name!r} did not start: {error}", begun=False) from error
        return self._believed(ended)

    def _believed(self, ended: JobEnded) -> Any:
        """Read what came out.

        Raises:
            ToolError, NoEffect: As the tool raised it.
            RuntimeError: It raised something else (`logs.RaisedElsewhere`), or its answer is none.
        """
        begun = ended.stdout.startswith(b"\n")
        if ended.stderr:
            logs.log.debug("%s printed in its sandbox: %r", self.tool.name, ended.stderr[:2000])
        if ended.end != "exited" and (begun or ended.end == "cancelled"):
            raise ProcessEnded(f"the sandbox of {self.tool.name!r} was ended: {ended.end}", begun=begun)
        if not begun:
            logs.log.warning("the sandbox of %s could not be set up: %r", self.tool.name, ended.stderr[-500:])
            raise _not_isolated(
                f"The sandbox of `{self.tool.name}` could not be set up on this machine; the log says why."
            )
        try:
            told = json.loads(ended.stdout, parse_constant=_refused, parse_float=_number)
            raised = _raised(told["raised"]) if "raised" in told else None
            value = None if raised else self._value(told["returned"], told.get("media", ()))
        except (ValueError, TypeError, LookupError, RecursionError) as error:
            what = "is too large" if len(ended.stdout) >= MOST_ANSWER_BYTES else f"is none (exit {ended.exit_code})"
            raise RuntimeError(f"the answer of {self.tool.name!r} from its sandbox {what}") from error
        if raised:
            raise raised
        return value

    def _value(self, told: Any, media: Sequence[Sequence[Any]]) -> Any:
        """Return a value with what is to be looked at put in its place; a place of None is the value itself.

        Raises:
            ToolError: Of its media something is not taken. Somebody else would fetch an address, from where we are.
        """
        for place, kind, data, url, name in media:
            if why := _not_taken(kind, url, name):
                raise ToolError(
                    Code.TOOL_ERROR,
                    f"`{self.tool.name}` returned media {why}, which is not taken from a sandbox.",
                    suggestion="Go on without it, or tell the user that this part failed.",
                )
            shown = Media(kind, b64decode(data, validate=True), name=name)
            if place is None:
                return shown
            told[place] = shown
        return told


def _not_taken(kind: Any, url: Any, name: Any) -> str:
    """Say what of media is not taken, if anything: its name and its type go into requests, paths and logs."""
    if url != "":
        return "with an address instead of its bytes"
    if not (isinstance(kind, str) and _MEDIA_TYPE.fullmatch(kind)):
        return "whose type has not the form type/subtype"
    if not isinstance(name, str) or len(name) > _LONGEST_NAME or name in (".", "..") or set(name) & {"/", "\\"}:
        return "whose name is not that of a file"
    return "" if name.isprintable() else "whose name holds what nobody sees"


def _not_isolated(message: str) -> NoEffect:
    return NoEffect(Code.NOT_ISOLATED, message, suggestion="Tell the user this, and go on without it.")


def _refused(word: str) -> None:
    raise ValueError(f"{word} is no number of JSON")


def _number(written: str) -> float:
    if isfinite(number := float(written)):
        return number
    raise ValueError(f"{written[:20]} is too large")


def _raised(told: Mapping[str, Any]) -> Exception:
    """Return what a tool raised: a failure that it worded, or any other exception by its words, which go to the log."""
    if "text" in told:
        return logs.RaisedElsewhere(*(str(told[part]) for part in ("text", "kind", "place")))
    if told.get("too_large") is True:
        return TooLarge("more than may leave its sandbox")
    kind, after_s = NoEffect if told["no_effect"] is True else ToolError, told["retry_after_s"]
    if after_s is not None and not (type(after_s) in (int, float) and 0 <= after_s < inf):
        raise ValueError("no time to wait")
    return kind(
        str(told["error_code"]), str(told["error_message"]), suggestion=str(told["suggestion"]),
        retryable=told["retryable"] is True, retry_after_s=after_s,
        details=[each for each in told["details"] if isinstance(each, dict)],
    )  # fmt: skip


def visible_to(tool: BaseTool) -> tuple[Sequence[str], Sequence[str]]:
    """Return where Python looks for modules in the tool's sandbox, and what of ours is shown there, read-only.

    Folders of installed packages are shown whole. Elsewhere, in a project's folder, there may lie `.env` or a database
    beside the code: of those folders the tool sees its own package or file, and handrail.
    """
    ours = Path(sysconfig.get_path("stdlib")).resolve()
    folders = [each for each in dict.fromkeys(Path(each or ".").resolve() for each in sys.path) if each.is_dir()]
    path = [str(each) for each in folders if each not in (ours, ours / "lib-dynload")]  # of these it has its own
    installed = [each for each in path if Path(each).name in _INSTALLED]
    code = [_code_of("handrail"), _code_of(getattr(tool.run, "__module__", None) or "")]
    mounts = [str(Path(each).resolve()) for each in (*code, *tool.mounts) if each]
    beside = [each for each in mounts if not any(Path(each).is_relative_to(folder) for folder in installed)]
    return path, list(dict.fromkeys([*installed, *beside]))


def _code_of(module: str) -> str | None:
    """Return the folder of a module's outermost package, or its own file."""
    top = sys.modules.get(module.partition(".")[0])
    file = getattr(top, "__file__", None)
    if file and hasattr(top, "__path__"):
        return str(Path(file).parent)
    return getattr(sys.modules.get(module), "__file__", None)
