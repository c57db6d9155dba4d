"""Which calls of one turn may run together.

Calls that touch the same resource run in the order in which the model wrote them; all others run side by side. A call
may use what an earlier one of the same turn returns, by naming it in an argument:

    {"$call": "call_1", "path": "/user_id"}      the call's id, and a JSON Pointer (RFC 6901) into its result
    "$var1.user_id$"                             the first call of the turn, a path with dots and [n]

A reference is a whole argument. Inside a longer text it counts only for tools that declare `inline_references`:
otherwise a model that quotes a page would pass another call's result to whoever wrote the reference there.

Rule 1: planning never drops a call, and never reorders calls that share a resource.
Rule 2: a resource that is not known yet, because it depends on a result, is taken to be any resource.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from typing import Any

from msgspec import Struct

from handrail.calls import ToolCall
from handrail.effects import Resource
from handrail.errors import Json
from handrail.parsing import jsontext, strictjson
from handrail.schemas.argument_errors import format_value
from handrail.tools import keys
from handrail.tools.tool import BaseTool
from handrail.tools.toolset import Tools, Toolset

# `$name$`, `$name.path$`, `$name[0].path$`: a sum of dollars ("$5-$10") is none, because no call is named `5-`.
_MARK = re.compile(r"\$([A-Za-z_][\w-]*)((?:[.\[][^$]*)?)\$")
_PLACE = re.compile(r"var_?([0-9]{1,4})")
_INDEX = re.compile(r"[0-9]{1,9}")
_DEEPEST = 64

MAX_FILLED_CHARS = 1024 * 1024
"""What references may insert into the arguments of one call: a short text can name a long result a thousand times."""


class Step(Struct, frozen=True):
    """One call as planning sees it. `touches` is None while its resources depend on another call's result."""

    id: str
    tool: str
    arguments: Json
    touches: Sequence[Resource] | None = ()
    after: Sequence[str] = ()


class Plan(Struct, frozen=True):
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
    uses: Sequence[frozenset[int]]


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
    return make_step(call.id, tool, arguments)


def make_step(call_id: str, tool: BaseTool, arguments: Mapping[str, Json]) -> Step:
    """Return how planning sees a call with these arguments, which may hold references."""
    after = (tool.after,) if isinstance(tool.after, str) else tuple(tool.after)
    touches = (
        tool.resolve_resources(arguments)
        if not (tool.resource and mentions_results(arguments))
        else None
    )
    return Step(call_id, tool.name, arguments, touches, after)


def plan_steps(steps: Sequence[Step]) -> Plan:
    """Plan steps whose tools and arguments are known."""
    uses: list[frozenset[int]] = []
    places: dict[str, int] = {}
    for index, step in enumerate(steps):
        uses.append(frozenset(_find_uses(step.arguments, places, before=index)))
        # an id that is there twice means, like a variable, its nearest earlier call
        places[step.id] = index
    queues = _find_queue_waits(steps)
    known = [_union(*pair) for pair in zip(uses, queues, strict=True)]
    waves, circular = _waves(steps, known)
    declared = _find_declared_waits(steps, waves, known if circular else None)
    needs = [_union(*pair) for pair in zip(uses, declared, strict=True)]

    @cache
    def list_ids(some: frozenset[int]) -> list[str]:
        return [steps[index].id for index in sorted(some)]

    return Plan(
        {step.id: list_ids(needs[index]) for index, step in enumerate(steps)},
        [[steps[index].id for index in wave] for wave in waves],
        [_union(*pair) for pair in zip(needs, queues, strict=True)],
        uses,
    )


def _union(one: frozenset[int], other: frozenset[int]) -> frozenset[int]:
    """Return the union: where one is empty the other itself, so that calls which wait for many share one set."""
    if one and other:
        return one | other
    return one or other


def _find_declared_waits(
    steps: Sequence[Step],
    waves: Sequence[Sequence[int]],
    besides: Sequence[frozenset[int]] | None,
) -> list[frozenset[int]]:
    """For each step those of an earlier wave that its `after` names.

    In a circle (two tools, each after the other) whoever is in an earlier wave goes first. Were each call of a circle
    to name all before it, that would take the square of their number; so a step leaves out those that it waits for by
    way of others, among them those that it waits for `besides`.
    """
    members: dict[str, list[int]] = {}  # tool -> its steps, by wave
    ranks: dict[str, list[int]] = {}  # tool -> the number of the wave of each
    for rank, wave in enumerate(waves):
        for index in wave:
            members.setdefault(steps[index].tool, []).append(index)
            ranks.setdefault(steps[index].tool, []).append(rank)

    @cache
    def some(tool: str, begin: int, end: int) -> frozenset[int]:
        return frozenset(members[tool][begin:end])

    waits = [frozenset[int]()] * len(steps)
    # step -> tool -> it waits for all steps of that tool before this wave
    covered: dict[int, dict[str, int]] = {}
    for rank, wave in enumerate(waves):
        for index in wave:
            ends = {
                tool: bisect_left(ranks[tool], rank)
                for tool in set(steps[index].after)
                if tool in ranks
            }
            known: dict[str, int] = {}
            if besides is not None:
                for other in (
                    *besides[index],
                    *(members[tool][end - 1] for tool, end in ends.items() if end),
                ):
                    for tool, before in covered[other].items():
                        known[tool] = max(before, known.get(tool, 0))
                covered[index] = known | dict.fromkeys(ends, rank)
            for tool, end in ends.items():
                waits[index] = _union(
                    waits[index],
                    some(tool, bisect_left(ranks[tool], known.get(tool, 0)), end),
                )
    return waits


def _find_queue_waits(steps: Sequence[Step]) -> list[frozenset[int]]:
    """For each step the earlier ones that go first: of what it touches the last writer, or the readers since."""
    writer: dict[str, int] = {}
    readers: dict[str, list[int]] = {}
    # the last step that may touch anything, and all since that touch something
    everyone: list[int] = []
    barrier: int | None = None  # that step
    waits: list[frozenset[int]] = []
    for index, step in enumerate(steps):
        mine: set[int] = set()
        if step.touches is None:
            mine.update(everyone)
            everyone.clear()
            barrier = index
        for resource in step.touches or ():
            since = readers.setdefault(resource.key, [])
            last = writer.get(resource.key)
            if resource.exclusive and since:
                mine.update(since)
            elif last is not None:
                mine.add(last)
            if resource.exclusive:
                writer[resource.key] = index
                since.clear()
            else:
                since.append(index)
        if step.touches is None or step.touches:
            everyone.append(index)
            if barrier is not None and barrier != index:
                mine.add(barrier)
        # two of its resources may turn out to be one
        waits.append(frozenset(mine - {index}))
    return waits


class _Blocks(Struct):
    """What keeps the steps of a plan from running.

    Attributes:
        left: Of each tool the steps that have not run.
        counts: Of each step by how many steps and tools it is blocked.
        followers: Of each step those that wait for it.
        behind: Of each tool the steps of other tools that come after all of its steps.
    """

    left: dict[str, set[int]]
    counts: list[int]
    followers: list[list[int]]
    behind: dict[str, list[int]]


def _waves(
    steps: Sequence[Step], waits: Sequence[frozenset[int]]
) -> tuple[list[list[int]], bool]:
    """Return who may run together, wave by wave, and whether `after` closed a circle; only `after` can.

    `waits` holds what a step waits for besides: each of it stands before the step, so the first step that is left has
    none of it left, and may break a circle.
    """
    blocks = _count_blocks(steps, waits)
    counts = blocks.counts
    waves: list[list[int]] = []
    done: set[int] = set()
    circular = False
    first = 0
    wave = [index for index, count in enumerate(counts) if not count]
    while len(done) < len(steps):
        if not wave:
            while first in done:
                first += 1
            wave = [first]
            circular = True
        waves.append(wave)
        done.update(wave)
        freed = _run_wave(steps, wave, blocks)
        wave = []
        for index in freed:
            counts[index] -= 1
            if not counts[index] and index not in done:
                wave.append(index)
        wave.sort()
    return waves, circular


def _count_blocks(steps: Sequence[Step], waits: Sequence[frozenset[int]]) -> _Blocks:
    left: dict[str, set[int]] = {}
    for index, step in enumerate(steps):
        left.setdefault(step.tool, set()).add(index)
    counts = [len(wait) for wait in waits]
    followers: list[list[int]] = [[] for _ in steps]
    behind: dict[str, list[int]] = {}
    for index, step in enumerate(steps):
        for other in waits[index]:
            followers[other].append(index)
        for tool in set(step.after):
            if tool != step.tool:
                behind.setdefault(tool, []).append(index)
            counts[index] += len(left.get(tool, ())) > (tool == step.tool)
    return _Blocks(left, counts, followers, behind)


def _run_wave(steps: Sequence[Step], wave: Sequence[int], blocks: _Blocks) -> list[int]:
    """Take the steps of a wave out of `left`; return those that are blocked by one less, each as often as that."""
    freed: list[int] = []
    for index in wave:
        tool = steps[index].tool
        left = blocks.left[tool]
        left.remove(index)
        freed += blocks.followers[index]
        if not left:
            freed += blocks.behind.get(tool, ())
        elif len(left) == 1:  # the last step of a tool that comes after itself
            freed += (last for last in left if tool in steps[last].after)
    return freed


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
    named = value.get("$call")
    path = value.get("path", "")
    return (
        isinstance(named, str)
        and isinstance(path, str)
        and value.keys() <= {"$call", "path"}
    )


def _find_uses(
    arguments: Json, places: Mapping[str, int], before: int
) -> Iterable[int]:
    for name, _ in _references(arguments, 0):
        place = _find_by_number(name, places, before)
        if place is not None:
            yield place


def _find_by_number(name: str, places: Mapping[str, int], before: int) -> int | None:
    """An earlier call by its id, or by its place: `var1` is the first of the turn."""
    if name in places:
        return places[name]
    by_place = _PLACE.fullmatch(name)
    index = int(by_place[1]) - 1 if by_place else -1
    return index if 0 <= index < before else None


def positions(ids: Iterable[str]) -> Mapping[str, Sequence[int]]:
    """Return each id with the positions of the calls that have it."""
    found: dict[str, list[int]] = {}
    for position, call_id in enumerate(ids):
        found.setdefault(call_id, []).append(position)
    return found


def _earlier(name: str, ids: Mapping[str, Sequence[int]], before: int) -> int | None:
    """Return the nearest earlier call with this id, or the one at the place that it names."""
    among = ids.get(name, ())
    nearest = bisect_left(among, before) - 1
    if nearest >= 0:
        return among[nearest]
    return _find_by_number(name, {}, before)


class NoSuchResult(Exception):
    """A reference names a call that has no result, a path that is not in it, or too much. The text is for the model."""


def fill_references(
    arguments: Json,
    ids: Mapping[str, Sequence[int]],
    values: Mapping[int, Any],
    before: int,
    *,
    inline: bool = False,
) -> Json:
    """Return arguments with every reference replaced by what it names.

    Args:
        ids: Id -> positions of the calls of this turn that have it, in order; see `positions`.
        values: Position -> result, as plain JSON, of the calls that have one.
        before: Position of the call itself: it can only refer back.
        inline: Whether references within a longer text are replaced.

    Raises:
        NoSuchResult: A reference names no earlier call with a value, or a path that its value does not have; it is
            inside a longer text without `inline`; or all references together insert more than `MAX_FILLED_CHARS`.
    """
    texts: dict[int, str] = {}  # a value, by its identity -> its text
    inserted = 0

    @cache
    def opened(place: int) -> Json:
        return _parse_text(values[place])

    def value_of(name: str, path: str, marked: bool) -> tuple[Json, str]:
        """Return what a reference names, and its text."""
        nonlocal inserted
        place = _earlier(name, ids, before)
        if place is None:
            raise NoSuchResult(f"`{name}` is no earlier call of this turn")
        if place not in values:
            raise NoSuchResult(f"the call `{name}` has no result to refer to")
        steps = _split_path(path) if marked else _split_pointer(path)
        value = (
            _follow_path(opened(place), steps, name, path) if steps else values[place]
        )
        if isinstance(value, str):
            text = value
        else:
            text = texts[id(value)] = texts.get(id(value)) or keys.canonical(value)
        inserted += len(text)
        if inserted > MAX_FILLED_CHARS:
            raise NoSuchResult(
                f"with `{name}` the arguments would grow beyond {MAX_FILLED_CHARS} characters"
            )
        return value, text

    def fill(value: Json) -> Json:
        if isinstance(value, str) and "$" in value:
            whole = _MARK.fullmatch(value)
            if whole and (whole[1] in ids or _PLACE.fullmatch(whole[1])):
                return value_of(whole[1], whole[2], marked=True)[0]
            return _MARK.sub(inlined, value)
        if isinstance(value, dict):
            if _is_reference(value):
                return value_of(value["$call"], value.get("path", ""), marked=False)[0]
            return {name: fill(each) for name, each in value.items()}
        if isinstance(value, list):
            return [fill(each) for each in value]
        return value

    def inlined(found: re.Match[str]) -> str:
        if _earlier(found[1], ids, before) is None and found[1] not in ids:
            return found[0]  # a dollar sign of the text's own
        if not inline:
            raise NoSuchResult(
                f"`{found[0]}` stands within a longer text, and a reference is a whole argument"
            )
        return value_of(found[1], found[2], marked=True)[1]

    return fill(arguments)


def _split_pointer(path: str) -> list[str]:
    if path:
        return [
            part.replace("~1", "/").replace("~0", "~")
            for part in path.removeprefix("/").split("/")
        ]
    return []


def _split_path(path: str) -> list[str]:
    return [part for part in re.split(r"[.\[\]]+", path) if part]


def _follow_path(value: Json, path: Sequence[str], name: str, written: str) -> Json:
    for part in path:
        if isinstance(value, dict) and part in value:
            value = value[part]
        elif (
            isinstance(value, list)
            and _INDEX.fullmatch(part)
            and int(part) < len(value)
        ):
            value = value[int(part)]
        else:
            names = ", ".join(list(value)[:12]) if isinstance(value, dict) else ""
            has = f"it has {names}" if names else f"it is {format_value(value)}"
            raise NoSuchResult(
                f"the result of `{name}` has no `{written.lstrip('./')}`: {has}"
            )
    return value


def _parse_text(value: Json) -> Json:
    """Return what a text is as JSON, which many tools return in place of an object; anything else as it is."""
    if isinstance(value, str) and value.lstrip()[:1] in ("{", "["):
        try:
            return strictjson.loads(value)
        except strictjson.NotJson:
            pass
    return value
