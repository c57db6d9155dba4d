"""The scenarios: tools as plain functions, the turns of a scripted model, and what is wanted of the world.

The functions append to a file what they do, so that effects are counted outside of the process that dies.
"""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

from msgspec import Struct, field

How = Literal["plain", "handrail"]
FOLDER = "SCENARIO_FOLDER"
"""The environment variable that names the folder of the world; workers inherit it."""
DIES = "SCENARIO_DIES"
"""Set where the first write kills its process after its effect."""

HANG_S = 3.0
LIMIT_S = 0.5
SECRET = "hunter2-8f61c0"
LARGE = 3_000_000


class ScriptedTurn(Struct, frozen=True):
    """An answer of the scripted model: calls as (id, tool, argument text), or a text."""

    calls: Sequence[tuple[str, str, str]] = ()
    text: str = ""
    finish: Literal["stop", "calls", "length"] = "calls"


class Step(Struct, frozen=True):
    """What one process does with the conversation."""

    resumes: bool = False
    word: Literal["", "approve", "deny", "edit"] = ""
    dies: bool = False
    is_changed: bool = False
    """The tools describe themselves otherwise than before."""


class Talk(Struct):
    """How a conversation went: what its model read, and how it ended."""

    texts: Sequence[str] = ()
    error: str = ""
    waits: bool = False
    turns: int = 0
    took_s: float = 0.0


class Cell(Struct, frozen=True):
    """What happened, in a few words, and whether it is what one wants."""

    text: str
    is_wanted: bool


class World:
    """The file of effects in a folder."""

    def __init__(self, folder: Path) -> None:
        self.file = folder / "effects"

    def effects(self) -> list[str]:
        """Return what was done, in order."""
        return self.file.read_text().splitlines() if self.file.exists() else []


class Scenario(Struct, frozen=True):
    """One scenario.

    Attributes:
        title: The trouble, as the table shows it.
        tools: Functions with their declarations for handrail.
        judge: Says what happened from the world and the last talk.
        asks: Tools that a person must approve.
        at_once: The steps run side by side.
        waits_s: How long after the end the world is looked at.
    """

    title: str
    tools: Mapping[Callable[..., Any], Mapping[str, Any]]
    script: Sequence[ScriptedTurn]
    judge: Callable[[World, Talk], Cell]
    steps: Sequence[Step] = (Step(),)
    asks: Sequence[str] = ()
    at_once: bool = False
    waits_s: float = 0.0
    env: Mapping[str, str] = field(default_factory=dict)


def turn_after(script: Sequence[ScriptedTurn], answered: Sequence[str]) -> ScriptedTurn:
    """Return the model's next turn, given the ids of the calls in the conversation."""
    done = set(answered)
    for turn in script:
        if not turn.calls or not any(id in done for id, _, _ in turn.calls):
            return turn
    return script[-1]


# ---------------------------------------------------------------------- tools


def _record(line: str) -> None:
    with World(Path(os.environ[FOLDER])).file.open("a") as file:
        file.write(line + "\n")


def _die_once() -> None:
    if os.environ.get(DIES):
        os.kill(os.getpid(), signal.SIGKILL)


def pay(order: str, amount: int) -> str:
    """Pay for an order.

    Args:
        order: Number of the order.
        amount: Amount in cents.
    """
    _record(f"{order} {amount}")
    _die_once()
    return f"paid {amount} for {order}"


def pay_slowly(order: str, amount: int) -> str:
    """Pay for an order at a bank that takes a while.

    Args:
        order: Number of the order.
        amount: Amount in cents.
    """
    time.sleep(0.4)
    _record(f"{order} {amount}")
    return f"paid {amount} for {order}"


def pay_and_hang(order: str) -> str:
    """Pay for an order at a bank that does not answer.

    Args:
        order: Number of the order.
    """
    time.sleep(HANG_S)
    _record(order)
    return f"paid for {order}"


def add(by: int) -> str:
    """Add to the counter.

    Args:
        by: What to add.
    """
    file = Path(os.environ[FOLDER]) / "counter"
    count = int(file.read_text()) if file.exists() else 1
    time.sleep(0.2)
    file.write_text(str(count + by))
    return str(count + by)


def append(line: str) -> str:
    """Append a line to the log.

    Args:
        line: The line.
    """
    _record(line)
    return "appended"


def get_weather(city: str) -> str:
    """Get the weather of a city.

    Args:
        city: Name of the city.
    """
    _record(city)
    return f"It is sunny in {city}."


def look_up(order: str) -> str:
    """Look an order up.

    Args:
        order: Number of the order.
    """
    raise RuntimeError(f"could not connect: postgres://shop:{SECRET}@db/orders")


def read_log(name: str) -> str:
    """Read a log.

    Args:
        name: Name of the log.
    """
    return "x" * LARGE


# ---------------------------------------------------------------------- what happened


def _paid_once(world: World, talk: Talk) -> Cell:
    cell = _paid(1)(world, talk)
    # Ending a run that asks for the same write a third time is as good as answering it.
    return Cell(cell.text, len(world.effects()) == 1)


def _paid(wanted: int) -> Callable[[World, Talk], Cell]:
    def judge(world: World, talk: Talk) -> Cell:
        count = len(world.effects())
        text = f"{count} payment{'' if count == 1 else 's'}"
        return Cell(_with_error(text, talk), count == wanted and not talk.error)

    return judge


def _with_error(text: str, talk: Talk) -> str:
    return f"{text}, {talk.error}" if talk.error else text


def _hung(world: World, talk: Talk) -> Cell:
    landed = bool(world.effects())
    text = f"answered in {talk.took_s:.1f} s, paid {'later' if landed else 'never'}"
    if landed and talk.took_s >= HANG_S:
        text = f"answered in {talk.took_s:.1f} s, paid"
    return Cell(_with_error(text, talk), talk.took_s < HANG_S - 0.5 and not landed)


def _updated(world: World, talk: Talk) -> Cell:
    count = int((world.file.parent / "counter").read_text())
    return Cell(_with_error(f"1 + 1 + 1 = {count}", talk), count == 3)


def _malformed(world: World, talk: Talk) -> Cell:
    if talk.error:
        return Cell(f"the run ends: {talk.error}", False)
    ran = world.effects() == ["Paris"]
    return Cell("repaired and run" if ran else "refused to the model", ran)


def _unknown(world: World, talk: Talk) -> Cell:
    if talk.error:
        return Cell(f"the run ends: {talk.error}", False)
    named = any("get_weather" in text for text in talk.texts)
    return Cell("told the right name" if named else "told nothing of use", named)


def _secret(world: World, talk: Talk) -> Cell:
    if any(SECRET in text for text in talk.texts):
        return Cell("the model reads the password", False)
    if talk.error:
        return Cell(f"the run ends: {talk.error}", False)
    return Cell("hidden, the run goes on", bool(talk.texts))


def _large(world: World, talk: Talk) -> Cell:
    size = max((len(text) for text in talk.texts), default=0)
    text = f"the model reads {size:,} characters"
    return Cell(_with_error(text, talk), 0 < size < 20_000)


def _circle(world: World, talk: Talk) -> Cell:
    reads = len(world.effects())
    text = f"{reads} reads in {talk.turns} turns"
    return Cell(text, reads <= 3 and talk.turns < len(CIRCLE))


def _approved(world: World, talk: Talk) -> Cell:
    return _did(["A-1 900"], world, talk)


def _edited(world: World, talk: Talk) -> Cell:
    return _did(["A-1 500"], world, talk)


def _did(wanted: list[str], world: World, talk: Talk) -> Cell:
    effects = world.effects()
    text = f"paid {', '.join(effects)}" if effects else "not paid"
    return Cell(_with_error(text, talk), effects == wanted and not talk.error)


def _denied(world: World, talk: Talk) -> Cell:
    has_reason = any("too much" in text for text in talk.texts)
    effects = world.effects()
    reason = "told" if has_reason else "not told"
    text = "paid" if effects else f"not paid, reason {reason}"
    return Cell(_with_error(text, talk), not effects and has_reason)


def _stale(world: World, talk: Talk) -> Cell:
    if world.effects():
        return Cell("paid, by a tool that nobody has seen", False)
    asked = talk.waits or any("APPROVAL_PENDING" in text for text in talk.texts)
    return Cell(_with_error("asked anew" if asked else "not paid", talk), asked)


def _in_order(world: World, talk: Talk) -> Cell:
    effects = world.effects()
    is_right = effects == [str(number) for number in range(8)]
    text = "in order" if is_right else " ".join(effects)
    return Cell(_with_error(text, talk), is_right)


# ---------------------------------------------------------------------- the scenarios


def _calls(
    name: str, *arguments: Mapping[str, Any] | str, first: int = 1
) -> ScriptedTurn:
    return ScriptedTurn(
        calls=[
            (
                f"call_{number}",
                name,
                each if isinstance(each, str) else json.dumps(each),
            )
            for number, each in enumerate(arguments, first)
        ]
    )


END = ScriptedTurn(text="Done.", finish="stop")
PAY = {"order": "A-1", "amount": 900}
EDITED = {"order": "A-1", "amount": 500}
ONE_PAYMENT = (_calls("pay", PAY), END)
CIRCLE = [_calls("get_weather", {"city": "Paris"}, first=n) for n in range(1, 13)]
WRITE = {"effect": "write", "timeout_s": 10}
READ = {"effect": "read", "timeout_s": 10}
REPEATABLE = {"write": {"repeatable": True}}
ASKS = {**WRITE, "approve": "amount > 100"}


def _asked(
    word: Literal["approve", "deny", "edit"],
    judge: Callable[[World, Talk], Cell],
    title: str,
    *,
    is_changed: bool = False,
) -> Scenario:
    """A payment that a person must approve; the word comes in another process."""
    return Scenario(
        title,
        {pay: ASKS},
        ONE_PAYMENT,
        judge,
        steps=[Step(), Step(resumes=True, word=word, is_changed=is_changed)],
        asks=["pay"],
    )


SCENARIOS: Mapping[str, Scenario] = {
    "hung": Scenario(
        f"a payment hangs for {HANG_S:.0f} s, its limit is {LIMIT_S} s",
        {pay_and_hang: {**WRITE, "timeout_s": LIMIT_S, "isolation": "process"}},
        [_calls("pay_and_hang", {"order": "A-1"}), END],
        _hung,
        waits_s=HANG_S + 0.5,
    ),
    "parallel": Scenario(
        "two updates of one counter in one turn",
        {add: {**WRITE, "resource": "counter", **REPEATABLE}},
        [_calls("add", {"by": 1}, {"by": 1}), END],
        _updated,
    ),
    "repeated": Scenario(
        "the model asks for one payment three times",
        {pay: WRITE},
        [*(_calls("pay", PAY, first=number) for number in (1, 2, 3)), END],
        _paid_once,
    ),
    "killed": Scenario(
        "kill -9 after the payment, then the run is resumed",
        {pay: WRITE},
        ONE_PAYMENT,
        _paid(1),
        steps=[Step(dies=True), Step(resumes=True)],
    ),
    "workers": Scenario(
        "two workers carry one conversation at once",
        {pay_slowly: WRITE},
        [_calls("pay_slowly", PAY), END],
        _paid(1),
        steps=[Step(), Step()],
        at_once=True,
    ),
    "order": Scenario(
        "eight lines to one log in one turn",
        {append: {**WRITE, "resource": "log", **REPEATABLE}},
        [_calls("append", *({"line": str(number)} for number in range(8))), END],
        _in_order,
    ),
    "cut": Scenario(
        "the model's answer is cut at its limit, in the call",
        {pay: WRITE},
        [
            ScriptedTurn(calls=[("call_1", "pay", json.dumps(PAY))], finish="length"),
            END,
        ],
        _paid(0),
    ),
    "malformed": Scenario(
        "a read whose arguments are not quite JSON",
        {get_weather: READ},
        [_calls("get_weather", "{'city': 'Paris',}"), END],
        _malformed,
    ),
    "unknown": Scenario(
        "a tool's name is misspelled",
        {get_weather: READ},
        [_calls("get_wether", {"city": "Paris"}), END],
        _unknown,
    ),
    "secret": Scenario(
        "an exception holds a password",
        {look_up: READ},
        [_calls("look_up", {"order": "A-1"}), END],
        _secret,
    ),
    "large": Scenario(
        "a result of 3 MB",
        {read_log: READ},
        [_calls("read_log", {"name": "web"}), END],
        _large,
    ),
    "circle": Scenario(
        "the model reads the same again and again",
        {get_weather: READ},
        [*CIRCLE, END],
        _circle,
    ),
    "approve": _asked("approve", _approved, "approved in another process"),
    "deny": _asked("deny", _denied, "denied in another process, with a reason"),
    "edit": _asked("edit", _edited, "approved with another amount"),
    "stale": _asked(
        "approve",
        _stale,
        "the tool has changed between question and approval",
        is_changed=True,
    ),
}

LIMITS: Mapping[tuple[str, str], str] = {
    (
        "openai-agents",
        "unknown",
    ): "the SDK ends the run before a tool sees the call, "
    'unless RunConfig has tool_not_found_behavior="return_error_to_model"',
    ("agno", "unknown"): "agno answers the call itself: no such tool",
    ("agno", "cut"): "agno does not keep why the model's answer ended",
    ("adk", "malformed"): "what is no JSON reaches a tool as no arguments",
    ("adk", "workers"): "ADK ends the run of the worker whose session is stale",
    ("strands", "malformed"): "what is no JSON reaches a tool as no arguments",
    ("strands", "unknown"): "Strands answers the call itself: no such tool",
    ("strands", "cut"): "Strands ends the run itself, without the call",
    ("agent-framework", "deny"): "a denial there gives the model no reason",
    ("agent-framework", "unknown"): "the framework answers the call itself",
    ("agent-framework", "malformed"): "the text reaches a tool under another name",
    ("agent-framework", "cut"): "a middleware is not told how the answer ended",
    ("llamaindex", "cut"): "LlamaIndex does not tell a tool how the answer ended",
    ("llamaindex", "malformed"): "the LLM class parses the arguments",
    ("llamaindex", "unknown"): "LlamaIndex answers before a tool sees the call",
}
"""What a framework decides before handrail sees the call, by target and scenario: named, and not counted as a fault."""
