"""A process that imports a framework once and forks the ones that die in a write, and those that go on after them.

Started by `test_killed` with the name of a target and a folder; prints what the world and the model saw of each case.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import handrail as hr
from handrail.events import CallFinished
from handrail.testing.frameworks.play import Case, load_player
from handrail.testing.frameworks.scenarios import Scenario, ScriptedTurn, Step

PLACES = ["before the call", "before the effect", "after the effect", "after the call"]
KINDS = ["none", "verify", "key"]
CALL = ScriptedTurn(calls=[("call_1", "pay", '{"order": "A-1"}')])
SCRIPT = [CALL, ScriptedTurn(text="Done.", finish="stop")]


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

    def scenario(self, kind: str) -> Scenario:
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
        return Scenario("", {pay: settings}, SCRIPT, judge=None)  # type: ignore[arg-type]

    def observe(self, event: object) -> None:
        if isinstance(event, CallFinished):
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


def play(target: str, folder: Path, kind: str, dies: str, *, resumes: bool) -> Any:
    bank = Bank(folder, dies)
    case = Case(
        bank.scenario(kind),
        "handrail",
        Step(resumes=resumes),
        folder,
        observers=[bank.observe],
    )
    talk = load_player(target)(case)
    return {"texts": list(talk.texts), "error": talk.error}


def main(target: str, root: Path) -> None:
    load_player(target)
    cases = []
    for kind in KINDS:
        for place in PLACES:
            folder = root / f"{kind}-{place.replace(' ', '-')}"
            folder.mkdir()
            ended, _ = fork(lambda: play(target, folder, kind, place, resumes=False))
            before = Bank(folder, "").payments()
            talks = [
                fork(lambda: play(target, folder, kind, "", resumes=True))[1]
                for _ in range(2)
            ]
            cases.append({
                "kind": kind,
                "place": place,
                "ended": ended,
                "before": len(before),
                "after": len(Bank(folder, "").payments()),
                "talks": talks,
            })  # fmt: skip
    print(json.dumps(cases))


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
