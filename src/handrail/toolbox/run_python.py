"""Run code: Python that a model wrote, in the strongest sandbox that this machine has.

    RunPython()                                          # isolated, or the call is refused with NOT_ISOLATED
    RunPython(files={"orders.csv": Path("orders.csv")})  # laid into its folder before each run
    RunPython(allow_weaker=True)                         # at least a killable process; a person is asked each time

Isolated, the code sees the standard library and the files it is given; nothing that it does is there afterwards but
what it prints and the files that it makes. So the tool counts as a read. In a mere process it could do anything that
the program could: then it is a write that asks.

Rule 1: what comes back is bounded, and is data: nothing of it is run or followed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from tempfile import mkdtemp
from typing import Annotated, Any, TypedDict

from pydantic import Field

from handrail.context import Context
from handrail.errors import Code, ConfigError, ToolError
from handrail.ports import JobEnded, Sandbox, SandboxJob
from handrail.sandboxes.host import is_below
from handrail.sandboxes.levels import strongest
from handrail.tools.tool import BaseTool

MOST_CODE = 100_000
"""Characters of code."""

SHOWN_BYTES = 8 * 1024
"""Of a text file that the code made, in the result; of a longer one only the size, and where it was saved."""

_CLOSING_S = 3.0
"""What is left of the tool's time for ending the code and bringing files back."""


class Made(TypedDict):
    """A file that the code made: its text, or why there is none here."""

    name: str
    bytes: int
    text: str
    note: str


class Ran(TypedDict):
    """How a piece of code ended. `end`: exited, timeout, cancelled, memory, lost; `level` is the sandbox it ran in."""

    end: str
    exit_code: int | None
    stdout: str
    stderr: str
    dropped_bytes: int
    files: list[Made]
    left: list[str]
    level: str


class RunPython(BaseTool):
    """A tool that runs Python code.

    Args:
        files: What the code finds in its folder: a path that is read at each run, or bytes, by name.
        outputs: A folder that gets what the code makes, each run in a new folder of its own.
        sandboxes: Where it may run, the strongest first, in place of all that there are; see `isolation.offered`.
        allow_weaker: Run in a mere process where nothing stronger is there: the code can then read your files and use
            your network.
        approve: When a person must agree, as in `@tool`. By default always with `allow_weaker`, else never.
        timeout_s: What a run may take.
        memory_bytes: What one process of it may address, and what all of them together may hold.

    Raises:
        ConfigError: A name of a file does not stay in its folder, or `outputs` is no folder.
    """

    name = "run_python"
    aliases = (
        "运行代码",
        "执行代码",
        "运行 Python",
        "计算",
        "数据分析",
        "code interpreter",
        "execute",
    )
    max_concurrency: int | None = 4

    def __init__(
        self,
        *,
        files: Mapping[str, str | Path | bytes] | None = None,
        outputs: str | Path | None = None,
        sandboxes: Sequence[Sandbox] | None = None,
        allow_weaker: bool = False,
        approve: bool | str | Callable[..., bool] | None = None,
        timeout_s: float = 10.0,
        memory_bytes: int = 512 * 1024 * 1024,
    ) -> None:
        self._files = dict(files or {})
        self._outputs = None if outputs is None else Path(outputs)
        self._sandboxes = sandboxes
        self._allow_weaker = allow_weaker
        self._run_s = timeout_s
        self._memory_bytes = memory_bytes
        for name in self._files:
            if not is_below(name):
                raise ConfigError(
                    f"{name!r} is no relative path such as 'orders.csv', so it can be no file of run_python"
                )
        if self._outputs is not None and not self._outputs.is_dir():
            raise ConfigError(
                f"{self._outputs} is no folder, so it can get no outputs of run_python"
            )
        self.effect = "write" if allow_weaker else "read"
        self.approve = allow_weaker if approve is None else approve
        self.timeout_s = timeout_s + 2 * _CLOSING_S
        if allow_weaker:
            self.max_concurrency = 1
            self.repeatable = True
            self.lint_ignore = {
                "write-without-key": "The same code run again is meant to run again."
            }
        super().__init__()
        self.description = self.docs.description
        if self._files:
            self.description += (
                f"\n\nIn its folder it finds: {', '.join(sorted(self._files))}."
            )

    def run(
        self,
        code: Annotated[str, Field(min_length=1, max_length=MOST_CODE)],
        context: Context[Any],
    ) -> Ran:
        """Run a Python program and read what it prints and the files that it makes.

        Use it for what takes a program: working through data, counting, simulating, checking an idea. Not for plain
        arithmetic, and not to reach the network or other files: it has the standard library and its own folder only.
        Each call starts anew; nothing is remembered. Returns its exit code, stdout, stderr and files. An exit code
        other than 0 with a traceback in stderr means that the code has a fault: mend it and call again.

        Args:
            code: A whole Python 3 program, such as "print(sum(range(10)))". Print what you want to see.
        """
        sandbox = strongest(
            self.name,
            known=self._sandboxes,
            allow_weaker=self._allow_weaker,
            weaker="allow_weaker=True",
        )
        seconds = min(self._run_s, context.remaining_s() - _CLOSING_S)
        if seconds <= 0:
            raise ToolError(
                Code.TIMEOUT,
                "There is no time left to run code.",
                suggestion="Go on without it.",
            )
        try:
            files = {
                name: each if isinstance(each, bytes) else Path(each).read_bytes()
                for name, each in self._files.items()
            }
            job = self._job(sandbox, code, files, seconds)
            job_result = sandbox.run(job, context.cancelled)
        except OSError as error:
            message = f"The code could not be started ({type(error).__name__})."
            raise ToolError(
                Code.UNAVAILABLE,
                message,
                suggestion="Tell the user, and go on without it.",
            ) from error
        return self._result(job_result, sandbox.level)

    def _job(
        self, sandbox: Sandbox, code: str, given: Mapping[str, bytes], seconds: float
    ) -> SandboxJob:
        program = "main.py"
        while program in given:
            program = f"_{program}"
        return SandboxJob(
            [sandbox.python, "-I", "-X", "utf8", program],
            files={**given, program: code.encode("utf-8", "replace")},
            timeout_s=seconds,
            memory_bytes=self._memory_bytes,
        )

    def _result(self, ended: JobEnded, level: str) -> Ran:
        if self._outputs and ended.files:
            folder = Path(mkdtemp(prefix="run-", dir=self._outputs))
        else:
            folder = None
        made = [_save_file(name, data, folder) for name, data in ended.files.items()]
        return Ran(
            end=ended.end,
            exit_code=ended.exit_code,
            stdout=ended.stdout.decode("utf-8", "replace"),
            stderr=ended.stderr.decode("utf-8", "replace"),
            dropped_bytes=ended.dropped_bytes,
            files=made,
            left=list(ended.left),
            level=level,
        )


def _save_file(name: str, data: bytes, folder: Path | None) -> Made:
    """Say what a file holds, and save it where it is wanted: the folder is new, so nothing can lie in the way."""
    note = ""
    if folder is not None:
        place = folder / name
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_bytes(data)
        note = f"saved for the user as {folder.name}/{name}"
    try:
        if len(data) <= SHOWN_BYTES and b"\0" not in data:
            text = data.decode()
        else:
            text = ""
    except UnicodeDecodeError:
        text = ""
    if data and not text:
        note = note or "not shown: too long, or no text"
    return Made(
        name=name,
        bytes=len(data),
        text=text,
        note=note,
    )
