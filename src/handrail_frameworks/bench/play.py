"""Plays one scenario on one framework, and prints what happened as one line of JSON.

    python -m handrail_frameworks.bench.play TARGET SCENARIO
    python -m handrail_frameworks.bench.play                    # which targets are installed, with their versions

What must die, wait for a person or run beside another is a step in a process of its own.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Protocol

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from handrail.ports import Observer, Store
from handrail.runtime import Runtime
from handrail.tools.function_tool import FunctionTool
from handrail_frameworks.bench.scenarios import (
    DIES,
    FOLDER,
    SCENARIOS,
    Cell,
    How,
    Scenario,
    Step,
    Talk,
    World,
)

STEP_TIMEOUT_S = 60


class Case(Struct, frozen=True):
    """One step of a scenario, for a framework to carry out."""

    scenario: Scenario
    how: How
    step: Step
    folder: Path
    run: str = "thread-1"
    observers: Sequence[Observer] = ()
    store: Store | str = ""
    """handrail's store; a SQLite file in the folder by default."""

    def make_runtime(self) -> Runtime:
        """Return a runtime with the tools as handrail declares them."""
        tools = [
            FunctionTool(fn, **_describe(fn, self.step), **settings)
            for fn, settings in self.scenario.tools.items()
        ]
        store = self.store or f"sqlite:///{self.folder / 'handrail.db'}"
        return Runtime(tools, store=store, observers=self.observers)

    def functions(self) -> list[tuple[Callable[..., Any], str]]:
        """Return the functions with their descriptions, for the framework's own tools."""
        return [
            (fn, _describe(fn, self.step)["description"]) for fn in self.scenario.tools
        ]


def _describe(fn: Callable[..., Any], step: Step) -> dict[str, Any]:
    description = (fn.__doc__ or "").splitlines()[0]
    if step.is_changed:
        description += " Pays twice the amount."
    return {"description": description}


class Player(Protocol):
    """Carries out a step on a framework. Errors of the framework's run are its own to report, in `Talk.error`."""

    def __call__(self, case: Case) -> Talk: ...


TARGETS: Mapping[str, tuple[str, str, Sequence[str]]] = {
    "langgraph": (
        "on_langchain",
        "play_async",
        ("langchain", "langgraph", "langgraph-checkpoint-sqlite"),
    ),
    "langgraph-sync": (
        "on_langchain",
        "play_sync",
        ("langchain", "langgraph", "langgraph-checkpoint-sqlite"),
    ),
    "pydantic-ai": ("on_pydantic_ai", "play", ("pydantic-ai-slim",)),
    "openai-agents": ("on_openai_agents", "play", ("openai-agents",)),
    "agno": ("on_agno", "play", ("agno",)),
    "adk": ("on_adk", "play", ("google-adk",)),
    "strands": ("on_strands", "play", ("strands-agents",)),
    "agent-framework": ("on_agent_framework", "play", ("agent-framework-core",)),
    "llamaindex": ("on_llamaindex", "play", ("llama-index-core",)),
}
"""Each target: the module that plays it, its function, and the distributions that it needs."""


def load_player(target: str) -> Player:
    """Import the framework of a target.

    Raises:
        ModuleNotFoundError: It is not installed.
    """
    module, function, _ = TARGETS[target]
    home = import_module(f"handrail_frameworks.bench.{module}")
    player: Player = getattr(home, function)
    return player


def find_versions() -> dict[str, dict[str, str] | None]:
    """Return the installed versions of what each target needs; None where something is missing."""
    found: dict[str, dict[str, str] | None] = {}
    for target, (_, _, names) in TARGETS.items():
        try:
            found[target] = {name: version(name) for name in names}
        except PackageNotFoundError:
            found[target] = None
    return found


def play(target: str, name: str, how: How) -> Cell:
    """Play a scenario in a new world; return what happened."""
    scenario = SCENARIOS[name]
    with TemporaryDirectory() as folder:
        os.environ[FOLDER] = folder
        if len(scenario.steps) == 1:
            talk = play_step(target, name, how, 0)
        elif scenario.at_once:
            talk = _play_at_once(target, name, how)
        else:
            for number in range(len(scenario.steps)):
                talk = _finish_step(_start_step(target, name, how, number))
        time.sleep(scenario.waits_s)
        return scenario.judge(World(Path(folder)), talk)


def play_step(target: str, name: str, how: How, number: int) -> Talk:
    """Carry out one step of a scenario in this process."""
    scenario = SCENARIOS[name]
    step = scenario.steps[number]
    if step.dies:
        os.environ[DIES] = "1"
    player = load_player(target)
    if scenario.at_once:
        _wait_for_the_others(number, len(scenario.steps))
    began = time.monotonic()
    talk = player(Case(scenario, how, step, Path(os.environ[FOLDER])))
    return talk if talk.took_s else replace(talk, took_s=time.monotonic() - began)


def _wait_for_the_others(number: int, count: int) -> None:
    """Begin when every process has imported its framework, so that they are at it together."""
    folder = Path(os.environ[FOLDER])
    (folder / f"ready-{number}").touch()
    over = time.monotonic() + STEP_TIMEOUT_S / 2
    while len(list(folder.glob("ready-*"))) < count and time.monotonic() < over:
        time.sleep(0.01)


def _start_step(target: str, name: str, how: How, number: int) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", __spec__.name, target, name, how, str(number)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def _finish_step(process: subprocess.Popen[str]) -> Talk:
    """Wait for a step; a killed one has nothing to say."""
    try:
        out, err = process.communicate(timeout=STEP_TIMEOUT_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.communicate()
        return Talk(error=f"no end in {STEP_TIMEOUT_S} s")
    if process.returncode < 0:
        return Talk(error="killed")
    if process.returncode:
        return Talk(error=(err.strip().splitlines() or ["?"])[-1][:200])
    return msgspec.json.decode(out.splitlines()[-1], type=Talk)


def _play_at_once(target: str, name: str, how: How) -> Talk:
    steps = range(len(SCENARIOS[name].steps))
    processes = [_start_step(target, name, how, number) for number in steps]
    talks = [_finish_step(process) for process in processes]
    return next((talk for talk in talks if talk.error), talks[-1])


def main(
    target: str = "", name: str = "", how: How | None = None, step: str = ""
) -> None:
    """Print the versions, or play a scenario plain and with handrail, or one step of it."""
    result: Any
    ours = os.dup(1)
    os.dup2(2, 1)  # what a framework prints, now or from a thread later, is not ours
    if not target:
        result = find_versions()
    elif how is not None:
        result = play_step(target, name, how, int(step))
    else:
        both: tuple[How, How] = ("plain", "handrail")
        result = {how: play(target, name, how) for how in both}
    with os.fdopen(ours, "w") as out:
        out.write(json.dumps(msgspec.to_builtins(result)) + "\n")
    os._exit(0)  # a tool that hangs in a thread has been looked at, and holds nobody up


if __name__ == "__main__":
    main(*sys.argv[1:])  # type: ignore[arg-type]  # a program's arguments are strings
