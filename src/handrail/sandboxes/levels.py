"""Levels of isolation for a tool, and the sandboxes of this machine that provide them.

| level | the tool |
|---|---|
| `none` | runs in our process |
| `process` | runs in a warm process that is killed at its deadline: against accidents, not against malice |
| `isolated` | runs in a fresh sandbox: no network, environment, processes or files of ours but what it is shown |
| `container` | the same in a container or a small virtual machine; a plug-in brings it |

Two more levels are for Python programs that a model wrote, see `toolbox.run_python`; a tool cannot demand them, for its
own code needs this machine's Python: `wasm`, a Python inside a WebAssembly machine, and `monty`, a subset of Python.

Only starting its sandboxes shows which levels a machine offers. A thread does that once, when a toolset with such a
tool is first used. Admission reads the result, and starts no process itself.

Rule 1: a tool gets the level that it demands or a stronger one, never less and never silently.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from concurrent.futures import Future
from functools import cache
from threading import Lock, Thread
from typing import Literal, Protocol, TypeAlias, TypeVar, get_args

from msgspec import Struct

from handrail import plugins
from handrail.errors import Code, ConfigError, Failure, ToolError
from handrail.ports import Sandbox

Isolation: TypeAlias = Literal["none", "process", "isolated", "container"]

LEVELS = get_args(Isolation)
"""The weakest first."""

SANDBOXED = LEVELS[2:]
"""Those that a sandbox gives, which may be missing on this machine."""


_REMEDIES = {
    "isolated": "Install bubblewrap, run inside WSL2 or a container",
    "container": "Install runc or gVisor's runsc (Debian: apt install runc)",
}
PROGRAM_LEVELS = ("monty", "wasm")
"""Those that run Python programs only."""


class _Offer(Protocol):
    @property
    def level(self) -> str: ...
    @property
    def lacks(self) -> str: ...


T = TypeVar("T", bound=_Offer)


def offered() -> Sequence[Sandbox]:
    """Return every sandbox that a tool can demand, ours and those of plug-ins, the strongest first.

    Raises:
        ConfigError: A plug-in's object is no sandbox.
    """
    sandboxes = [each for each in list_sandboxes() if each.level in LEVELS]
    return sorted(sandboxes, key=lambda each: -LEVELS.index(each.level))


@cache
def list_sandboxes() -> Sequence[Sandbox]:
    """Return every sandbox, ours and those of plug-ins (`handrail.sandboxes`).

    Raises:
        ConfigError: A plug-in's object is no sandbox.
    """
    sandboxes: list[Sandbox] = []
    for name in plugins.list_names("sandboxes"):
        sandbox = plugins.load("sandboxes", name)
        level = getattr(sandbox, "level", None)
        if level not in (*LEVELS, *PROGRAM_LEVELS) or not isinstance(sandbox, Sandbox):
            raise ConfigError(
                f"the sandbox {name!r} of a plug-in is none: {type(sandbox).__name__}; see `ports.Sandbox`"
            )
        sandboxes.append(sandbox)
    return sandboxes


def of_program_level(
    tool: str, level: str, *, among: Sequence[Sandbox] | None = None
) -> Sandbox:
    """Return the sandbox of a level that runs Python programs only; never another one.

    Args:
        tool: Who asks, for the error.
        level: One of `PROGRAM_LEVELS`.
        among: The sandboxes to choose from; all of this machine by default.

    Raises:
        ToolError: `NOT_ISOLATED`, with what a person can do about it.
    """
    sandboxes = list_sandboxes() if among is None else among
    offers = [each for each in sandboxes if each.level == level]
    for each in offers:
        if not each.lacks:
            return each
    reasons = "; ".join(each.lacks for each in offers) or "no sandbox has that level"
    raise ToolError(
        Code.NOT_ISOLATED,
        f"Tool {tool} needs sandbox level '{level}', which this machine cannot give: {reasons}.",
        suggestion="Tell the user this, and go on without it.",
    )


def choose_sandbox(
    tool: str,
    least: str = "isolated",
    *,
    among: Sequence[Sandbox] | None = None,
    allow_weaker: bool = False,
    weaker: str = 'isolation="process"',
) -> Sandbox:
    """Return the sandbox of this level, or the next stronger one, that this machine can give; starts it to find out.

    Args:
        tool: Who asks, for the error.
        least: The level that it demands.
        among: The sandboxes to choose from, the strongest first; all that are `offered` by default.
        allow_weaker: Take a level that keeps less out.
        weaker: How the programmer would allow that, for the error.

    Raises:
        ToolError: `NOT_ISOLATED`, with what a person can do about it.
    """
    sandboxes = offered() if among is None else among
    return _choose(sandboxes, tool, least, allow_weaker=allow_weaker, weaker=weaker)


def _choose(
    offers: Sequence[T], tool: str, least: str, *, allow_weaker: bool, weaker: str
) -> T:
    sufficient = [
        each for each in offers if LEVELS.index(each.level) >= LEVELS.index(least)
    ]
    rest = [each for each in offers if each not in sufficient]
    # of those that suffice, the one that costs least
    for each in reversed(sufficient):
        if not each.lacks:
            return each
    best = next((each for each in rest if not each.lacks), None)
    if best is not None and allow_weaker:
        return best
    reasons = (
        "; ".join(each.lacks for each in reversed(sufficient) if each.lacks)
        or f"no sandbox of level '{least}' is installed"
    )
    best_level = f"'{best.level}' only" if best else "none"
    remedy = _REMEDIES.get(least, "Install one")
    raise ToolError(
        Code.NOT_ISOLATED,
        f"Tool {tool} needs sandbox level '{least}'. This machine offers {best_level} ({reasons}). {remedy}, "
        f"or set {weaker}: the tool could then read your files and use your network.",
        suggestion="Tell the user this, and go on without it.",
    )


# ---------------------------------------------------------------------- what admission is given


class LevelOffer(Struct, frozen=True):
    """One sandbox: its level, and why this machine cannot give it; empty when it can."""

    level: str
    lacks: str


class IsolationLevels(Struct, frozen=True):
    """What sandboxes this machine offers, the strongest first."""

    offers: Sequence[LevelOffer]

    def refuse(self, tool: str, level: str) -> Failure | None:
        """Return why a tool that demands this level may not run here; None when it may."""
        if level not in SANDBOXED:
            return None
        try:
            _choose(
                self.offers,
                tool,
                level,
                allow_weaker=False,
                weaker='isolation="process"',
            )
        except ToolError as error:
            return error.failure
        return None


class LevelSearch:
    """One search for the levels of this machine, in a thread, once per process."""

    def __init__(self) -> None:
        self._guard = Lock()
        self._future: Future[IsolationLevels] | None = None

    def start(self) -> Future[IsolationLevels]:
        """Start the search unless it was started; return what it will find.

        The future raises `ConfigError` if a plug-in's object is no sandbox.
        """
        with self._guard:
            if self._future is None:
                future: Future[IsolationLevels] = Future()
                Thread(
                    target=self._search,
                    args=(future,),
                    name="handrail sandboxes",
                    daemon=True,
                ).start()
                self._future = future
            return self._future

    def _search(self, future: Future[IsolationLevels]) -> None:
        try:
            offers = [LevelOffer(each.level, each.lacks) for each in offered()]
        except BaseException as error:
            # a plug-in's own code; whoever waits for the answer gets it
            future.set_exception(error)
        else:
            future.set_result(IsolationLevels(offers))

    @property
    def found(self) -> IsolationLevels | None:
        """What was found; None while nobody knows."""
        future = self._future
        if future is None or not future.done() or future.exception() is not None:
            return None
        return future.result()

    def reset(self) -> None:
        """Forget what was found."""
        # whoever held the old one when the process was forked never releases it
        self._guard = Lock()
        self._future = None

    def reset_in_fork(self) -> None:
        """Forget a search that was under way when the process was forked: no thread is left to end it."""
        if self.found is None:
            self.reset()


SEARCH = LevelSearch()

if hasattr(os, "register_at_fork"):  # elsewhere nothing forks
    os.register_at_fork(after_in_child=SEARCH.reset_in_fork)
