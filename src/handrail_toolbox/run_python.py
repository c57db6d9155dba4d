"""Run code: Python that a model wrote, in the strongest sandbox that this machine has.

    RunPython()                                          # isolated, or the call is refused with NOT_ISOLATED
    RunPython(files={"orders.csv": Path("orders.csv")})  # laid into its folder before each run
    RunPython(level="wasm")                              # inside WebAssembly, on Windows and macOS too
    RunPython(network=["api.example.org"])               # may reach this host, by a proxy; a person is asked each time
    RunPython(allow_weaker=True)                         # at least a killable process; a person is asked each time

Isolated, the code sees the standard library and the files it is given; nothing that it does is there afterwards but
what it prints and the files that it makes. So the tool counts as a read. With a network it may change what lies behind
it, and in a mere process it could do anything that the program could: then it is a write that asks.

Levels `wasm` and `monty` run Python only: the code reads the files it is given, and makes none. `monty` knows a part of
the language. See docs/reference/isolation.md.

Rule 1: what comes back is bounded, and is data: nothing of it is run or followed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from tempfile import mkdtemp
from typing import (
    TYPE_CHECKING,
    Annotated,
    Any,
    Literal,
    TypeAlias,
    TypedDict,
    get_args,
)

from pydantic import Field

from handrail import _lazy
from handrail.context import Context
from handrail.errors import Code, ConfigError, ToolError
from handrail.network.egress import Egress, as_egress
from handrail.ports import JobEnded, Sandbox, SandboxJob
from handrail.sandboxes.host import is_below
from handrail.sandboxes.levels import PROGRAM_LEVELS, choose_sandbox, of_program_level
from handrail.tools.settings import Limits, Sends, Write
from handrail.tools.tool import BaseTool

if TYPE_CHECKING:
    from handrail.network import proxy
else:
    proxy = _lazy.module("handrail.network.proxy")
ProgramLevel: TypeAlias = Literal["process", "isolated", "container", "wasm", "monty"]

MOST_CODE = 100_000
"""Characters of code."""

SHOWN_BYTES = 8 * 1024
"""Of a text file that the code made, in the result; of a longer one only the size, and where it was saved."""

_LIMITS = {
    "wasm": "It can make no files, threads, processes or sockets. Print what is wanted.",
    "monty": "It knows a part of Python: functions, classes, comprehensions, and modules such as math, json, re and"
    " datetime. It can make no files. Print what is wanted.",
}
"""What a model reads about a level."""

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
        level: The level it runs at: `isolated` or stronger by default, `container`, `wasm`, `monty`; or `process`, and
            then a person is asked as with `allow_weaker`.
        sandboxes: Where it may run, the strongest first, in place of all that there are; see `levels.list_sandboxes`.
        network: The hosts that the code may reach by HTTP and HTTPS, or an `Egress`; none by default. For levels
            `isolated` and `container`.
        allow_weaker: Run in a mere process where nothing stronger is there: the code can then read your files and use
            your network.
        approve: When a person must agree, as in `@tool`. By default always with `allow_weaker` or `network`.
        timeout_s: What a run may take.
        memory_bytes: What one process of it may address, and what all of them together may hold.

    Raises:
        ConfigError: There is no such level, or it is given with `allow_weaker`; a name of a file does not stay in its
            folder; `outputs` is no folder; or `network` is given where no walls hold it, or no network is.
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
    limits = Limits(max_concurrency=4)

    def __init__(
        self,
        *,
        files: Mapping[str, str | Path | bytes] | None = None,
        outputs: str | Path | None = None,
        level: ProgramLevel = "isolated",
        sandboxes: Sequence[Sandbox] | None = None,
        network: Sequence[str] | Egress | None = None,
        allow_weaker: bool = False,
        approve: bool | str | Callable[..., bool] | None = None,
        timeout_s: float = 10.0,
        memory_bytes: int = 512 * 1024 * 1024,
    ) -> None:
        self._files = dict(files or {})
        self._outputs = None if outputs is None else Path(outputs)
        self._sandboxes = sandboxes
        self._network = None if network is None else as_egress(network)
        self._level = level
        self._allow_weaker = allow_weaker
        _check_level(level, allow_weaker)
        self._run_s = timeout_s
        self._memory_bytes = memory_bytes
        self._check_settings()
        reaches_out = allow_weaker or level == "process" or network is not None
        self.effect = "write" if reaches_out else "read"
        # without files it has nothing but what the model wrote itself
        is_outside = bool(self._files) or reaches_out
        self.sends = Sends(trust="untrusted" if is_outside else "trusted")
        self.approve = reaches_out if approve is None else approve
        self.timeout_s = timeout_s + 2 * _CLOSING_S
        if reaches_out:
            self.limits = Limits(max_concurrency=1)
            # the same code run again is meant to run again
            self.write = Write(repeatable=True)
        super().__init__()
        self.description = self.docs.description
        if level in PROGRAM_LEVELS:
            self.description += "\n\n" + _LIMITS[level]
        if self._files:
            self.description += (
                f"\n\nIn its folder it finds: {', '.join(sorted(self._files))}."
            )
        if self._network is not None:
            self.description += f"\n\n{_describe_network(self._network)}"

    def _check_settings(self) -> None:
        if self._network is not None and self._level not in ("isolated", "container"):
            raise ConfigError(
                f"run_python has no `network` at level {self._level!r}; it has one at isolated and container"
            )
        if self._allow_weaker and self._network is not None:
            raise ConfigError(
                "`network` of run_python holds within walls only, and `allow_weaker` may leave these out; give one"
            )
        for name in self._files:
            if not is_below(name):
                raise ConfigError(
                    f"{name!r} is no relative path such as 'orders.csv', so it can be no file of run_python"
                )
        if self._outputs is not None and not self._outputs.is_dir():
            raise ConfigError(
                f"{self._outputs} is no folder, so it can get no outputs of run_python"
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
        sandbox = self._choose_sandbox()
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
            job_result = self._run_job(sandbox, job, context)
        except OSError as error:
            message = f"The code could not be started ({type(error).__name__})."
            raise ToolError(
                Code.UNAVAILABLE,
                message,
                suggestion="Tell the user, and go on without it.",
            ) from error
        return self._result(job_result, sandbox.level)

    def _run_job(
        self, sandbox: Sandbox, job: SandboxJob, context: Context[Any]
    ) -> JobEnded:
        if self._network is None:
            return sandbox.run(job, context.cancelled)
        with proxy.EgressProxy(self._network) as egress_proxy:
            enclosed = egress_proxy.enclose(job, sandbox.python)
            return sandbox.run(enclosed, context.cancelled)

    def _choose_sandbox(self) -> Sandbox:
        if self._level in PROGRAM_LEVELS:
            return of_program_level(self.name, self._level, among=self._sandboxes)
        return choose_sandbox(
            self.name,
            self._level,
            among=self._sandboxes,
            allow_weaker=self._allow_weaker,
            weaker="allow_weaker=True",
        )

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


def _describe_network(egress: Egress) -> str:
    """Tell a model what its code may reach."""
    if egress.hosts is None:
        hosts = "every public host"
    else:
        hosts = ", ".join(egress.hosts)
    return f"Beyond that, the code can reach {hosts} by HTTP and HTTPS, through the proxy that its environment names."


def _check_level(level: str, allow_weaker: bool) -> None:
    if level not in get_args(ProgramLevel):
        raise ConfigError(
            f"run_python has no level {level!r}; it is one of {', '.join(get_args(ProgramLevel))}"
        )
    if allow_weaker and level != "isolated":
        raise ConfigError(
            f"run_python has either level={level!r} or `allow_weaker`: the first takes no other level"
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
