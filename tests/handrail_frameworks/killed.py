"""A process that imports a framework once and forks the ones that die in a write, and those that go on after them.

    python -m tests.handrail_frameworks.killed WAY FOLDER STORE

It prints what the world and the model saw of each case.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import partial
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from secrets import token_hex
from typing import Any

from msgspec import Struct, field

import handrail as hr
from handrail.events import CallFinished
from handrail_frameworks.bench.play import (
    TARGETS,
    Case,
    Player,
    find_versions,
    load_player,
)
from handrail_frameworks.bench.scenarios import Scenario, ScriptedTurn, Step, Talk

PLACES = ["before the call", "before the effect", "after the effect", "after the call"]
KINDS = ["none", "verify", "key"]
PAY = '{"order": "A-1"}'
END = ScriptedTurn(text="Done.", finish="stop")


class Way(Struct, frozen=True):
    """A way in which a framework keeps a run and goes on with it.

    Attributes:
        player: A module and its function, in place of the player of the target.
        needs: A module that is in no extra.
        options: For the player.
        looks_first: The run reads something first, so that the framework has kept a step when its process dies.
        asks: A person must agree; the process that dies has the word.
        asks_model_again: The framework has not kept the call: the model writes it again, with another id.
    """

    target: str
    player: tuple[str, str] | None = None
    needs: str = ""
    options: Mapping[str, Any] = field(default_factory=dict)
    looks_first: bool = False
    asks: bool = False
    asks_model_again: bool = False

    @property
    def missing(self) -> str:
        """What is not installed."""
        if find_versions()[self.target] is None:
            return f"{self.target} is not installed: pip install -e '.[frameworks]'"
        if self.needs and find_spec(self.needs) is None:
            return f"{self.needs} is not installed"
        return ""

    def load(self) -> Player:
        if self.player is None:
            return partial(load_player(self.target), **self.options)
        module, function = self.player
        return partial(getattr(import_module(module), function), **self.options)

    def script(self) -> list[ScriptedTurn]:
        id = f"call_{os.getpid()}" if self.asks_model_again else "call_1"
        look = ScriptedTurn(calls=[("look_1", "look", "{}")])
        turns = [ScriptedTurn(calls=[(id, "pay", PAY)]), END]
        return [look, *turns] if self.looks_first else turns


STEPS = ("tests.handrail_frameworks.durable_pydantic_ai", "play_steps")
DBOS = ("tests.handrail_frameworks.durable_pydantic_ai", "play_dbos")
WAYS: Mapping[str, Way] = {
    **{target: Way(target) for target in TARGETS},
    "langgraph, durability sync": Way("langgraph", options={"durability": "sync"}),
    "langgraph, durability exit": Way(
        "langgraph", options={"durability": "exit"}, asks_model_again=True
    ),
    "langgraph-sync, durability exit": Way(
        "langgraph-sync", options={"durability": "exit"}, asks_model_again=True
    ),
    "pydantic-ai, first step": Way(
        "pydantic-ai", STEPS, "pydantic_ai_harness", asks_model_again=True
    ),
    "pydantic-ai, second step": Way(
        "pydantic-ai",
        STEPS,
        "pydantic_ai_harness",
        looks_first=True,
        asks_model_again=True,
    ),
    "pydantic-ai, DBOS": Way("pydantic-ai", DBOS, "dbos", looks_first=True),
    "pydantic-ai, DBOS step": Way(
        "pydantic-ai", DBOS, "dbos", {"as_steps": True}, looks_first=True
    ),
    "openai-agents, RunState": Way("openai-agents", asks=True),
}


class Bank:
    """Takes payments; the far side honours a key, and can be asked."""

    def __init__(self, folder: Path, dies: str) -> None:
        self.file = folder / "effects"
        self.dies = dies

    def payments(self) -> list[str]:
        return self.file.read_text().splitlines() if self.file.exists() else []

    def die(self, place: str) -> None:
        if self.dies == place:
            os.kill(os.getpid(), signal.SIGKILL)

    def scenario(self, way: Way, kind: str) -> Scenario:
        def look() -> str:
            """Look at the orders."""
            return "one order: A-1"

        def pay(context: hr.Context, order: str) -> str:
            """Pay for an order."""
            self.die("before the effect")
            line = f"{order} {context.idempotency_key}" if kind == "key" else order
            if kind != "key" or line not in self.payments():
                with self.file.open("a") as file:
                    file.write(line + "\n")
            self.die("after the effect")
            return "paid"

        def check(order: str) -> None:
            self.die("before the call")

        def verify(arguments: Mapping[str, Any], context: Any) -> Any:
            return hr.Found("verified") if self.payments() else hr.NotFound()

        ways: dict[str, dict[str, Any]] = {
            "none": {},
            "verify": {"verify": verify},
            "key": {"replay": "key"},
        }
        settings = {"effect": "write", "timeout_s": 1, "check": check, **ways[kind]}
        tools = {look: {"effect": "read"}, pay: {**settings, "approve": way.asks}}
        return Scenario("", tools, way.script(), judge=None)  # type: ignore[arg-type]

    def observe(self, event: object) -> None:
        if isinstance(event, CallFinished) and event.call.name == "pay":
            self.die("after the call")


def fork(work: Callable[[], object]) -> tuple[int, Any]:
    """Do something in a child process; return the signal that ended it, and what it printed."""
    reads, writes = os.pipe()
    child = os.fork()
    if child == 0:
        result = work()
        os.write(writes, json.dumps(result).encode())
        os._exit(0)
    os.close(writes)
    with os.fdopen(reads, "rb") as pipe:
        said = pipe.read()
    _, status = os.waitpid(child, 0)
    return os.WTERMSIG(status) if os.WIFSIGNALED(status) else 0, json.loads(
        said or "null"
    )


class Conversation(Struct, frozen=True):
    """One conversation of a way, which several processes carry one after the other."""

    way: Way
    kind: str
    folder: Path
    store: str
    run: str = field(default_factory=lambda: f"run_{token_hex(8)}")

    def play(self, step: Step, dies: str = "") -> Talk:
        bank = Bank(self.folder, dies)
        case = Case(
            bank.scenario(self.way, self.kind),
            "handrail",
            step,
            self.folder,
            run=self.run,
            observers=[bank.observe],
            store=self.store,
        )
        return self.way.load()(case)

    def play_in_fork(self, step: Step, dies: str = "") -> tuple[int, Any]:
        def work() -> dict[str, Any]:
            talk = self.play(step, dies)
            return {"texts": list(talk.texts), "error": talk.error, "waits": talk.waits}

        return fork(work)

    def die_at(self, place: str) -> dict[str, Any]:
        """Let a process die at a place, and two others go on, one after the other."""
        going_on = Step(resumes=True, word="approve" if self.way.asks else "")
        if self.way.asks:
            _, asked = self.play_in_fork(Step())
            assert asked["waits"], asked
        first = going_on if self.way.asks else Step()
        ended, _ = self.play_in_fork(first, place)
        before = Bank(self.folder, "").payments()
        talks = [self.play_in_fork(going_on)[1] for _ in range(2)]
        return {
            "kind": self.kind,
            "place": place,
            "ended": ended,
            "before": len(before),
            "after": len(Bank(self.folder, "").payments()),
            "talks": talks,
        }


def import_what_children_need(way: Way, root: Path) -> None:
    """Import what a whole conversation imports late, once for all the processes that are forked."""
    folder = root / "warm"
    folder.mkdir()

    def work() -> list[str]:
        Conversation(way, "none", folder, "").play(Step())
        return list(sys.modules)

    for name in fork(work)[1]:
        with suppress(ImportError):
            import_module(name)


def main(way: str, root: Path, store: str) -> None:
    WAYS[way].load()
    import_what_children_need(WAYS[way], root)
    cases = []
    for kind in KINDS:
        for place in PLACES:
            folder = root / f"{way}-{kind}-{place}".replace(" ", "-").replace(",", "")
            folder.mkdir()
            cases.append(Conversation(WAYS[way], kind, folder, store).die_at(place))
    print(json.dumps(cases))


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]), sys.argv[3])
