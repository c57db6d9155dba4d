"""The declarations crossed: six settings with each other, and each further one with every value of the six.

A combination that handrail refuses is counted with its sentence. A new setting of writes belongs here, or is refused in
the combinations in which it means nothing.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from itertools import product
from random import Random
from typing import Any

from handrail.errors import ToolDefinitionError
from tests.prove.scenarios import DIES, LOST, Scenario

Settings = Mapping[str, Any]

EFFECTS: tuple[Settings, ...] = (
    {"effect": "write"},
    {},
    {"effect": "destructive"},
    {"effect": "read"},
)
SIX: tuple[tuple[Settings, ...], ...] = (
    EFFECTS,
    ({}, {"key": "pay:{order}"}),
    ({}, {"replay": "key"}),
    ({}, {"verify": True}),
    ({}, {"deferred": True}),
    ({}, {"approve": True}, {"approve": True, "required_approvals": 2}),
)
FURTHER: tuple[Settings, ...] = (
    {"on_repeat": "ask"},
    {"on_doubt": "ask"},
    {"one_request": True},
    {"repeatable": True},
    {"resource": "till"},
    {"max_attempts": 1},
    {"attempt_timeout_s": 5.0},
)


def name_of(settings: Settings) -> str:
    """Return a declaration in few words."""
    words = [str(settings.get("effect", "undeclared"))]
    for setting, value in settings.items():
        if setting in ("effect", "required_approvals"):
            continue
        if setting == "approve":
            words.append(f"approve x{settings.get('required_approvals', 1)}")
        elif value is True or setting in ("key", "resource"):
            words.append(setting)
        else:
            words.append(f"{setting}={value}")
    return " ".join(words)


def scenario_of(settings: Settings) -> Scenario:
    """Return the scenario of a declaration: what may go wrong with it, and who takes part."""
    far_side: tuple[str, ...] = (LOST, "NoEffect", DIES)
    if "one_request" in settings or "max_attempts" in settings:
        far_side += ("refused",)
    if "attempt_timeout_s" in settings:
        far_side += ("hangs", "effect, hangs", "hangs, effect late")
    orders: tuple[str, ...] = ("A",)
    if {"on_repeat", "repeatable"} & settings.keys():
        orders = ("A", "A")
    elif "resource" in settings:
        orders = ("A", "B")
    return Scenario(
        name_of(settings),
        settings,
        orders=orders,
        far_honours_keys="replay" in settings,
        far_side=far_side,
        people=("bob", "carol"),
        cancels=True,
    )


def find_refusal(scenario: Scenario) -> str:
    """Return why handrail refuses a declaration; empty if it takes it."""
    try:
        scenario.tools_at(is_deployed=False)
    except ToolDefinitionError as error:
        return str(error)
    return ""


def _merge(parts: tuple[Settings, ...]) -> Settings:
    merged: dict[str, Any] = {}
    for part in parts:
        merged |= part
    return merged


def cross_six() -> Iterator[Scenario]:
    """Yield every combination of the six."""
    for parts in product(*SIX):
        yield scenario_of(_merge(parts))


def cross_pairs() -> Iterator[Scenario]:
    """Yield each further setting with every value of the six, the others as they are where nobody declares them."""
    bases: list[Settings] = [*EFFECTS]
    bases += [_merge((EFFECTS[0], each)) for values in SIX[1:] for each in values[1:]]
    for further in FURTHER:
        for base in bases:
            yield scenario_of({**base, **further})


def all_declarations() -> Iterator[Scenario]:
    """Yield both."""
    yield from cross_six()
    yield from cross_pairs()


def by_chance(seed: int) -> Scenario:
    """Return a combination of all settings at once, by chance."""
    random = Random(seed)
    parts = [random.choice(values) for values in SIX]
    parts += [each for each in FURTHER if random.random() < 0.4]
    scenario = scenario_of(_merge(tuple(parts)))
    return replace(scenario, name=f"by chance {seed}: {scenario.name}")
