"""Tools in a sandbox: each call in a fresh one, which is used once.

What `processes` does with a warm worker for level `process` is done here with a `ports.Sandbox` for the levels above.
The call goes in as a file; its outcome comes out as JSON on stdout, bounded, and is read as untrusted text.

Inside, the tool finds the interpreter, installed packages, the package or file that defines it, and what it declares as
`mounts`, all read-only, and an empty folder that is deleted afterwards. Its arguments, and what the caller injects, go
in with the call.

Rule 1: nothing that comes out is unpickled, run or followed; media are taken as bytes, never by address.
Rule 2: a call that did not reach its tool says so: it certainly had no effect.
"""

from __future__ import annotations

import json
import re
import sys
from base64 import b64decode
from collections.abc import Mapping, Sequence
from math import inf, isfinite
from threading import BoundedSemaphore, Event
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from handrail import _lazy, logs
from handrail.calls import Media
from handrail.errors import Code, NoEffect, TooLarge, ToolError
from handrail.ports import JobEnded, Sandbox, SandboxJob
from handrail.sandboxes import levels
from handrail.tools.tool import BaseTool
from handrail.workers.processes import (
    MOST_WORKERS,
    NO_VARIABLES,
    ProcessEnded,
    pickle_order,
)
from handrail.workers.visible_code import find_visible_code

if TYPE_CHECKING:
    from handrail.network import proxy
else:
    proxy = _lazy.module("handrail.network.proxy")

MOST_ANSWER_BYTES = 8 * 1024 * 1024
"""Of what a tool returns, and of what it prints."""

_LOOK_S = 0.05
_BEYOND_S = 5.0
"""How long after the call's time a sandbox ends by itself; its caller has ended it by then."""
_MEDIA_TYPE = re.compile(r"[A-Za-z0-9!#$&^_.+-]{1,127}/[A-Za-z0-9!#$&^_.+-]{1,127}")
"""RFC 6838, section 4.2; without parameters."""
_MAX_NAME_CHARACTERS = 255
_SEATS = BoundedSemaphore(MOST_WORKERS)


class SandboxedCall:
    """One call on its way to a sandbox, or in one; see `processes.WorkerCall`, which has the same methods."""

    __slots__ = ("_cancelled", "_job", "tool")

    def __init__(
        self,
        tool: BaseTool,
        arguments: Mapping[str, Any],
        timeout_s: float,
        environment: Mapping[str, str] = NO_VARIABLES,
    ) -> None:
        self.tool = tool
        self._cancelled = Event()
        path, mounts = find_visible_code(tool)
        program = (
            f"import sys; sys.path += {path!r}; "
            f"sys.version_info[:2] == {sys.version_info[:2]!r} or sys.exit('its Python is another version'); "
            "from handrail.workers.worker_main import run_single_call; run_single_call('order')"
        )
        self._job = SandboxJob(
            ["-I", "-S", "-B", "-X", "utf8", "-c", program],
            files={"order": pickle_order(tool, arguments, environment)},
            mounts=mounts,
            timeout_s=timeout_s + _BEYOND_S,
            memory_bytes=tool.sandbox.memory_bytes,
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
                raise ProcessEnded(
                    f"{self.tool.name!r} was ended while it waited for a sandbox",
                    started=False,
                )
        try:
            return self._answer()
        finally:
            _SEATS.release()

    def kill(self) -> None:
        """End the call, wherever it is; `__call__` says so. Without effect once it has been answered."""
        self._cancelled.set()

    def _answer(self) -> Any:
        try:
            sandbox = levels.choose_sandbox(self.tool.name, self.tool.isolation)
        except ToolError as error:
            raise _not_isolated(error.failure.message) from error
        try:
            ended = self._run_in(sandbox)
        except OSError as error:
            raise ProcessEnded(
                f"the sandbox of {self.tool.name!r} did not start: {error}",
                started=False,
            ) from error
        return self._read_answer(ended)

    def _run_in(self, sandbox: Sandbox) -> JobEnded:
        job = replace(self._job, argv=[sandbox.python, *self._job.argv])
        if self.tool.sandbox.network is None:
            return sandbox.run(job, self._cancelled)
        with proxy.EgressProxy(self.tool.sandbox.network) as egress_proxy:
            return sandbox.run(
                egress_proxy.enclose(job, sandbox.python), self._cancelled
            )

    def _read_answer(self, ended: JobEnded) -> Any:
        """Return what the tool returned, or raise what it raised.

        Raises:
            ToolError, NoEffect: As the tool raised it.
            RuntimeError: It raised something else (`logs.RaisedElsewhere`), or its answer is none.
        """
        started = ended.stdout.startswith(b"\n")
        if ended.stderr:
            logs.log.debug(
                "%s printed in its sandbox: %r", self.tool.name, ended.stderr[:2000]
            )
        if ended.end != "exited" and (started or ended.end == "cancelled"):
            raise ProcessEnded(
                f"the sandbox of {self.tool.name!r} was ended: {ended.end}",
                started=started,
            )
        if not started:
            logs.log.warning(
                "the sandbox of %s could not be set up: %r",
                self.tool.name,
                ended.stderr[-500:],
            )
            raise _not_isolated(
                f"The sandbox of `{self.tool.name}` could not be set up on this machine; the log says why."
            )
        try:
            answer = json.loads(
                ended.stdout, parse_constant=_refuse_constant, parse_float=_parse_number
            )
            if "raised" in answer:
                error_raised, value = _parse_error(answer["raised"]), None
            else:
                error_raised, value = (
                    None,
                    self._put_media(answer["returned"], answer.get("media", ())),
                )
        except (ValueError, TypeError, LookupError, RecursionError) as error:
            what = (
                "is too large"
                if len(ended.stdout) >= MOST_ANSWER_BYTES
                else f"is none (exit {ended.exit_code})"
            )
            raise RuntimeError(
                f"the answer of {self.tool.name!r} from its sandbox {what}"
            ) from error
        if error_raised:
            raise error_raised
        return value

    def _put_media(self, value: Any, media: Sequence[Sequence[Any]]) -> Any:
        """Return a value with its media put at their keys; the key None means the value itself.

        Raises:
            ToolError: Some of its media is refused. Somebody else would fetch an address, from our network.
        """
        for key, kind, data, url, name in media:
            if why := _why_refused(kind, url, name):
                raise ToolError(
                    Code.TOOL_ERROR,
                    f"`{self.tool.name}` returned media {why}, which is not taken from a sandbox.",
                    suggestion="Go on without it, or tell the user that this part failed.",
                )
            shown = Media(kind, b64decode(data, validate=True), name=name)
            if key is None:
                return shown
            value[key] = shown
        return value


def _why_refused(kind: Any, url: Any, name: Any) -> str:
    """Return why media is refused, empty if it is not: its name and its type go into requests, paths and logs."""
    if url != "":
        return "with an address instead of its bytes"
    if not (isinstance(kind, str) and _MEDIA_TYPE.fullmatch(kind)):
        return "whose type has not the form type/subtype"
    if (
        not isinstance(name, str)
        or len(name) > _MAX_NAME_CHARACTERS
        or name in (".", "..")
        or set(name) & {"/", "\\"}
    ):
        return "whose name is not that of a file"
    return "" if name.isprintable() else "whose name has invisible characters"


def _not_isolated(message: str) -> NoEffect:
    return NoEffect(
        Code.NOT_ISOLATED,
        message,
        suggestion="Tell the user this, and go on without it.",
    )


def _refuse_constant(word: str) -> None:
    raise ValueError(f"{word} is no number of JSON")


def _parse_number(text: str) -> float:
    number = float(text)
    if not isfinite(number):
        raise ValueError(f"{text[:20]} is too large")
    return number


def _parse_error(described: Mapping[str, Any]) -> Exception:
    """Return what a tool raised: a ToolError with its fields, or any other exception as text, which goes to the log."""
    if "text" in described:
        return logs.RaisedElsewhere(
            str(described["text"]), str(described["kind"]), str(described["place"])
        )
    if described.get("too_large") is True:
        return TooLarge("more than may leave its sandbox")
    retry_after_s = described["retry_after_s"]
    if retry_after_s is not None and not (
        type(retry_after_s) in (int, float) and 0 <= retry_after_s < inf
    ):
        raise ValueError("no time to wait")
    kind = NoEffect if described["no_effect"] is True else ToolError
    return kind(
        str(described["error_code"]),
        str(described["error_message"]),
        suggestion=str(described["suggestion"]),
        retryable=described["retryable"] is True,
        retry_after_s=retry_after_s,
        details=[each for each in described["details"] if isinstance(each, dict)],
    )
