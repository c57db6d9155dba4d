"""Which calls of one turn may run together.

Calls that touch the same resource run in the order in which the model wrote them; all others run side by side. A call
may use what an earlier one of the same turn returns, by naming it in an argument:

    {"$call": "call_1", "path": "/user_id"}      the call's id, and a JSON Pointer (RFC 6901) into its result
    "$var1.user_id$"                             the first call of the turn, a path with dots and [n]

Rule 1: planning never drops a call, and never reorders calls that share a resource.
Rule 2: a resource that is not known yet, because it depends on a result, is taken to be any resource.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from handrail import jsontext, keys
from handrail.calls import ToolCall
from handrail.effects import Resource
from handrail.errors import Json
from handrail.tools import BaseTool
from handrail.toolset import Tools, Toolset

# `$name$`, `$name.path$`, `$name[0].path$`: a sum of dollars ("$5-$10") is none, because no call is named `5-`.
_MARK = re.compile(r"\$([A-Za-z_][\w-]*)((?:[.\[][^$]*)?)\$")
_PLACE = re.compile(r"var_?([0-9]{1,4})")
_INDEX = re.compile(r"[0-9]{1,9}")
_DEEPEST = 64


@dataclass(frozen=True, slots=True)
class Step:
    """One call as planning sees it. `touches` is None while its resources depend on another call's result."""

    id: str
    tool: str
    arguments: Json
    touches: Sequence[Resource] | None = ()
    after: Sequence[str] = ()


@dataclass(frozen=True, slots=True)
class Plan:
    """Who waits for whom.

    Attributes:
        depends_on: Call id -> ids of the calls whose results it uses or that are declared to come first.
        waves: Call ids that may run together, wave by wave, order of resources included.
        waits_for: The same by position in the turn: for each call the positions that must have ended. This is what a
            driver follows; a wave need not be over for the next one to begin.
    """

    depends_on: Mapping[str, Sequence[str]]
    waves: Sequence[Sequence[str]]
    waits_for: Sequence[frozenset[int]]
    uses: Sequence[frozenset[int]] = field(repr=False)


def plan(calls: Sequence[ToolCall], tools: Tools) -> Plan:
    """Plan the calls of one turn. A call that cannot be read or has no tool waits for nothing."""
    known = tools if isinstance(tools, Toolset) else Toolset(tools)
    return plan_steps([_step(call, known) for call in calls])


def _step(call: ToolCall, tools: Toolset) -> Step:
    parsed = jsontext.parse(call.arguments, finish="calls")
    tool = tools.resolve(call.name)
    arguments = parsed.value if isinstance(parsed, jsontext.Parsed) else {}
    if not isinstance(tool, BaseTool):
        return Step(call.id, call.name, arguments)
    return step_of(call.id, tool, arguments)


def step_of(call_id: str, tool: BaseTool, arguments: Mapping[str, Json]) -> Step:
    """Return how planning sees a call with these arguments, which may hold references."""
    after = (tool.after,) if isinstance(tool.after, str) else tuple(tool.after)
    touches = tool.resources_of(arguments) if not (tool.resource and mentions_results(arguments)) else None
    return Step(call_id, tool.name, arguments, touches, after)


def plan_steps(steps: Sequence[Step]) -> Plan:
    """Plan steps whose tools and arguments are known."""
    uses: list[frozenset[int]] = []
    places: dict[str, int] = {}
    for index, step in enumerate(steps):
        uses.append(frozenset(_used(step.arguments, places, before=index)))
        places[step.id] = index  # an id that is there twice means, like a variable, its nearest earlier call
    declared = [_declared(step, steps, index) for index, step in enumerate(steps)]
    queues = _in_queues(steps)
    waits = [uses[i] | declared[i] | queues[i] for i in range(len(steps))]
    waves = _waves(waits)
    # Only `after` can close a circle (two tools, each after the other): whoever is in an earlier wave then goes first.
    rank = {index: number for number, wave in enumerate(waves) for index in wave}
    waits = [frozenset(j for j in wait if rank[j] < rank[i]) for i, wait in enumerate(waits)]
    return Plan(
        {step.id: [steps[j].id for j in sorted(uses[i] | declared[i])] for i, step in enumerate(steps)},
        [[steps[index].id for index in wave] for wave in waves],
        waits,
        uses,
    )


def _declared(step: Step, steps: Sequence[Step], index: int) -> frozenset[int]:
    if not step.after:
        return frozenset()
    return frozenset(j for j, other in enumerate(steps) if j != index and other.tool in step.after)


def _in_queues(steps: Sequence[Step]) -> list[frozenset[int]]:
    """For each step the earlier ones that go first: of what it touches the last writer, or the readers since."""
    writer: dict[str, int] = {}
    readers: dict[str, list[int]] = {}
    everyone: list[int] = []  # all that touch something, for a step that may touch anything
    barrier: int | None = None  # the last such step
    waits: list[frozenset[int]] = []
    for index, step in enumerate(steps):
        mine: set[int] = set()
        if step.touches is None:
            mine.update(everyone)
            barrier = index
        for resource in step.touches or ():
            since = readers.setdefault(resource.key, [])
            last = writer.get(resource.key)
            mine.update(since if resource.exclusive and since else () if last is None else (last,))
            if resource.exclusive:
                writer[resource.key] = index
                since.clear()
            else:
                since.append(index)
        if step.touches is None or step.touches:
            everyone.append(index)
            if barrier is not None and barrier != index:
                mine.add(barrier)
        waits.append(frozenset(mine - {index}))  # two of its resources may turn out to be one
    return waits


def _waves(waits: Sequence[frozenset[int]]) -> list[list[int]]:
    left, waves = dict(enumerate(waits)), []
    while left:
        wave = [index for index, wait in left.items() if not wait & left.keys()] or [next(iter(left))]
        waves.append(wave)
        for index in wave:
            del left[index]
    return waves


# ---------------------------------------------------------------------- references


def mentions_results(arguments: Json) -> bool:
    """Whether any argument has the form of a reference to another call's result."""
    return any(True for _ in _references(arguments, 0))


def _references(value: Json, depth: int) -> Iterable[tuple[str, str]]:
    """Yield (name of the call, path) for every reference in a value."""
    if depth > _DEEPEST:
        return
    if isinstance(value, str):
        if "$" in value:
            yield from ((found[1], found[2]) for found in _MARK.finditer(value))
    elif isinstance(value, dict):
        if _is_reference(value):
            yield value["$call"], value.get("path", "")
        else:
            for each in value.values():
                yield from _references(each, depth + 1)
    elif isinstance(value, list):
        for each in value:
            yield from _references(each, depth + 1)


def _is_reference(value: Mapping[str, Json]) -> bool:
    named, path = value.get("$call"), value.get("path", "")
    return isinstance(named, str) and isinstance(path, str) and value.keys() <= {"$call", "path"}


def _used(arguments: Json, places: Mapping[str, int], before: int) -> Iterable[int]:
    for name, _ in _references(arguments, 0):
        place = _place_of(name, places, before)
        if place is not None:
            yield place


def _place_of(name: str, places: Mapping[str, int], before: int) -> int | None:
    """An earlier call by its id, or by its place: `var1` is the first of the turn."""
    if name in places:
        return places[name]
    by_place = _PLACE.fullmatch(name)
    index = int(by_place[1]) - 1 if by_place else -1
    return index if 0 <= index < before else None


class NoSuchResult(Exception):
    """A reference names a call that has no result, or a path that is not in it. The text is for the model."""


def filled(arguments: Json, ids: Sequence[str], values: Mapping[int, Any], before: int) -> Json:
    """Return arguments with every reference replaced by what it names.

    Args:
        ids: Ids of the calls of this turn, in order.
        values: Position -> result, as plain JSON, of the calls that have one.
        before: Position of the call itself: it can only refer back.

    Raises:
        NoSuchResult: A reference names no earlier call with a value, or a path that its value does not have.
    """
    places = {call_id: index for index, call_id in enumerate(ids[:before])}

    def value_of(name: str, path: str, marked: bool) -> Json:
        place = _place_of(name, places, before)
        if place is None:
            raise NoSuchResult(f"`{name}` is no earlier call of this turn")
        if place not in values:
            raise NoSuchResult(f"the call `{name}` has no result to refer to")
        return _walked(values[place], _dotted(path) if marked else _pointed(path), name, path)

    def fill(value: Json) -> Json:
        if isinstance(value, str) and "$" in value:
            whole = _MARK.fullmatch(value)
            if whole and (whole[1] in ids or _PLACE.fullmatch(whole[1])):
                return value_of(whole[1], whole[2], marked=True)
            return _MARK.sub(inlined, value)
        if isinstance(value, dict):
            if _is_reference(value):
                return value_of(value["$call"], value.get("path", ""), marked=False)
            return {name: fill(each) for name, each in value.items()}
        if isinstance(value, list):
            return [fill(each) for each in value]
        return value

    def inlined(found: re.Match[str]) -> str:
        if _place_of(found[1], places, before) is None:
            return found[0]  # a dollar sign of the text's own
        value = value_of(found[1], found[2], marked=True)
        return value if isinstance(value, str) else keys.canonical(value)

    return fill(arguments)


def _pointed(path: str) -> list[str]:
    return [part.replace("~1", "/").replace("~0", "~") for part in path.removeprefix("/").split("/")] if path else []


def _dotted(path: str) -> list[str]:
    return [part for part in re.split(r"[.\[\]]+", path) if part]


def _walked(value: Json, path: Sequence[str], name: str, written: str) -> Json:
    for part in path:
        if isinstance(value, dict) and part in value:
            value = value[part]
        elif isinstance(value, list) and _INDEX.fullmatch(part) and int(part) < len(value):
            value = value[int(part)]
        else:
            has = f"it has {', '.join(list(value)[:12])}" if isinstance(value, dict) else "it is no object"
            raise NoSuchResult(f"the result of `{name}` has no `{written.lstrip('./')}`: {has}")
    return value
