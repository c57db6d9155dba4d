"""Which calls of one turn may run together.

Calls that touch the same resource run in the order in which the model wrote them; all others run side by side. A call
may use what an earlier one of the same turn returns, by naming it in an argument:

    {"$call": "call_1", "path": "/user_id"}      the call's id, and a JSON Pointer (RFC 6901) into its result
    "$var1.user_id$"                             the first call of the turn, a path with dots and [n]

A reference is a whole argument. Inside a longer text it counts only for tools that declare `inline_references`:
otherwise a model that quotes a page would pass another call's result to whoever wrote the reference there.

Rule 1: planning never drops a call, and never reorders calls that share a resource.
Rule 2: a resource that depends on a result, and so cannot be named yet, is taken to be any resource.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Callable, Iterable, Mapping, Sequence
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
    if not isinstance(tools, Toolset):
        tools = Toolset(tools)
    return plan_steps([_step(call, tools) for call in calls])


def _step(call: ToolCall, tools: Toolset) -> Step:
    parsed = jsontext.parse(call.arguments, finish="calls")
    tool = tools.resolve(call.name)
    arguments = parsed.value if isinstance(parsed, jsontext.Parsed) else {}
    if not isinstance(tool, BaseTool):
        return Step(call.id, call.name, arguments)
    return make_step(call.id, tool, arguments)


def make_step(call_id: str, tool: BaseTool, arguments: Mapping[str, Json]) -> Step:
    """Return how planning sees a call with these arguments, which may hold references."""
    after = tool.limits.after
    after = (after,) if isinstance(after, str) else tuple(after)
    touches: Sequence[Resource] | None = None
    if not (tool.resource and mentions_results(arguments)):
        touches = tool.resolve_resources(arguments)
    return Step(call_id, tool.name, arguments, touches, after)


class Waits(Struct, frozen=True):
    """Who waits for whom, by position in the turn: a part of a `Plan`."""

    waits_for: Sequence[frozenset[int]]
    uses: Sequence[frozenset[int]]


def find_waits(steps: Sequence[Step]) -> Waits | Plan:
    """Return what a driver follows of a plan; the whole plan only where a step is declared to come after others."""
    for step in steps:
        if step.after:
            return plan_steps(steps)
    uses = _find_all_uses(steps)
    queues = _find_queue_waits(steps)
    return Waits([_union(*pair) for pair in zip(uses, queues, strict=True)], uses)


def _find_all_uses(steps: Sequence[Step]) -> list[frozenset[int]]:
    uses: list[frozenset[int]] = []
    places: dict[str, int] = {}
    for index, step in enumerate(steps):
        used = _NOTHING
        if step.arguments:
            used = frozenset(_find_uses(step.arguments, places, before=index))
        uses.append(used)
        # an id that is there twice means, like a variable, its nearest earlier call
        places[step.id] = index
    return uses


_NOTHING = frozenset[int]()


def plan_steps(steps: Sequence[Step]) -> Plan:
    """Plan the steps of one turn."""
    uses = _find_all_uses(steps)
    queues = _find_queue_waits(steps)
    certain = [_union(*pair) for pair in zip(uses, queues, strict=True)]
    waves, circular = _waves(steps, certain)
    declared = _DeclaredWaits(steps, waves).find(certain if circular else None)
    needs = [_union(*pair) for pair in zip(uses, declared, strict=True)]

    @cache
    def list_ids(indices: frozenset[int]) -> list[str]:
        return [steps[index].id for index in sorted(indices)]

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


class _DeclaredWaits:
    """Which steps the declared `after` makes a step wait for.

    In a circle (two tools, each after the other) whoever is in an earlier wave goes first. Were each call of a circle
    to name all before it, that would take the square of their number; so a step leaves out those that it waits for by
    way of others.
    """

    def __init__(self, steps: Sequence[Step], waves: Sequence[Sequence[int]]) -> None:
        self.steps = steps
        self.waves = waves
        self.members: dict[str, list[int]] = {}
        """Tool -> its steps, by wave."""
        self.ranks: dict[str, list[int]] = {}
        """Tool -> the number of the wave of each of its steps."""
        self.covered: dict[int, dict[str, int]] = {}
        """Step -> tool -> it waits for all steps of that tool before this wave."""
        for rank, wave in enumerate(waves):
            for index in wave:
                self.members.setdefault(steps[index].tool, []).append(index)
                self.ranks.setdefault(steps[index].tool, []).append(rank)

    def find(self, besides: Sequence[frozenset[int]] | None) -> list[frozenset[int]]:
        """Return for each step those of an earlier wave that its `after` names.

        Args:
            besides: What each step waits for anyway; given where `after` closes a circle.
        """

        @cache
        def take_slice(tool: str, begin: int, end: int) -> frozenset[int]:
            return frozenset(self.members[tool][begin:end])

        waits = [frozenset[int]()] * len(self.steps)
        for rank, wave in enumerate(self.waves):
            for index in wave:
                ends = {
                    tool: bisect_left(self.ranks[tool], rank)
                    for tool in set(self.steps[index].after)
                    if tool in self.ranks
                }
                covered: dict[str, int] = {}
                if besides is not None:
                    covered = self._cover(besides[index], ends)
                    self.covered[index] = covered | dict.fromkeys(ends, rank)
                for tool, end in ends.items():
                    begin = bisect_left(self.ranks[tool], covered.get(tool, 0))
                    waits[index] = _union(waits[index], take_slice(tool, begin, end))
        return waits

    def _cover(self, besides: Iterable[int], ends: Mapping[str, int]) -> dict[str, int]:
        """Return what a step waits for by way of others: tool -> all its steps before this wave."""
        covered: dict[str, int] = {}
        last = (self.members[tool][end - 1] for tool, end in ends.items() if end)
        for other in (*besides, *last):
            for tool, before in self.covered[other].items():
                covered[tool] = max(before, covered.get(tool, 0))
        return covered


def _find_queue_waits(steps: Sequence[Step]) -> list[frozenset[int]]:
    """Return for each step the earlier ones that go first: of what it touches the last writer, or the readers since."""
    queues = _Queues()
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
            mine.update(queues.join(resource, index))
        if step.touches is None or step.touches:
            everyone.append(index)
            if barrier is not None and barrier != index:
                mine.add(barrier)
        # two of its resources may turn out to be one
        waits.append(frozenset(mine - {index}))
    return waits


class _Queues:
    """The steps that touch each resource: its last writer, and the readers since."""

    def __init__(self) -> None:
        self.writers: dict[str, int] = {}
        self.readers: dict[str, list[int]] = {}

    def join(self, resource: Resource, index: int) -> Sequence[int]:
        """Add a step to the queue of a resource; return the steps that it waits for there."""
        readers = self.readers.setdefault(resource.key, [])
        writer = self.writers.get(resource.key)
        waits: Sequence[int] = ()
        if resource.exclusive and readers:
            waits = readers.copy()
        elif writer is not None:
            waits = (writer,)
        if resource.exclusive:
            self.writers[resource.key] = index
            readers.clear()
        else:
            readers.append(index)
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

    `waits` holds what a step waits for besides: only steps before it, so the first step that is left waits for none of
    them any more, and may break a circle.
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
            yield from ((mark[1], mark[2]) for mark in _MARK.finditer(value))
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
    name = value.get("$call")
    path = value.get("path", "")
    return (
        isinstance(name, str)
        and isinstance(path, str)
        and value.keys() <= {"$call", "path"}
    )


def _find_uses(
    arguments: Json, places: Mapping[str, int], before: int
) -> Iterable[int]:
    for name, _ in _references(arguments, 0):
        place = _find_call(name, places, before)
        if place is not None:
            yield place


def _find_call(name: str, places: Mapping[str, int], before: int) -> int | None:
    """Return an earlier call by its id, or by its place: `var1` is the first of the turn."""
    if name in places:
        return places[name]
    numbered = _PLACE.fullmatch(name)
    if numbered is None:
        return None
    index = int(numbered[1]) - 1
    if 0 <= index < before:
        return index
    return None


def positions(ids: Iterable[str]) -> Mapping[str, Sequence[int]]:
    """Return each id with the positions of the calls that have it."""
    by_id: dict[str, list[int]] = {}
    for position, call_id in enumerate(ids):
        by_id.setdefault(call_id, []).append(position)
    return by_id


def _find_earlier(
    name: str, ids: Mapping[str, Sequence[int]], before: int
) -> int | None:
    """Return the nearest earlier call with this id, or the one at the place that it names."""
    among = ids.get(name, ())
    nearest = bisect_left(among, before) - 1
    if nearest >= 0:
        return among[nearest]
    return _find_call(name, {}, before)


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
    return _ReferenceFiller(ids, values, before, inline).fill(arguments)


class _ReferenceFiller:
    """Fills the references of one call; see `fill_references`."""

    def __init__(
        self,
        ids: Mapping[str, Sequence[int]],
        values: Mapping[int, Any],
        before: int,
        inline: bool,
    ) -> None:
        self.ids = ids
        self.values = values
        self.before = before
        self.inline = inline
        self.inserted = 0
        self.opened: dict[int, Json] = {}
        """Place -> its value, parsed if it is a text."""
        self.texts: dict[int, str] = {}
        """A value, by its identity -> its text."""

    def fill(self, value: Json) -> Json:
        """Return a value with every reference replaced by what it names."""
        if isinstance(value, str) and "$" in value:
            return self._fill_text(value)
        if isinstance(value, dict):
            if _is_reference(value):
                path = value.get("path", "")
                return self._resolve(value["$call"], path, _split_pointer)[0]
            return {name: self.fill(each) for name, each in value.items()}
        if isinstance(value, list):
            return [self.fill(each) for each in value]
        return value

    def _fill_text(self, text: str) -> Json:
        mark = _MARK.fullmatch(text)
        if mark and (mark[1] in self.ids or _PLACE.fullmatch(mark[1])):
            return self._resolve(mark[1], mark[2], _split_path)[0]
        return _MARK.sub(self._fill_mark, text)

    def _fill_mark(self, mark: re.Match[str]) -> str:
        name = mark[1]
        if _find_earlier(name, self.ids, self.before) is None and name not in self.ids:
            return mark[0]  # a dollar sign of the text's own
        if not self.inline:
            raise NoSuchResult(
                f"`{mark[0]}` is part of a longer text, and a reference is a whole argument"
            )
        return self._resolve(name, mark[2], _split_path)[1]

    def _resolve(
        self, name: str, path: str, split: Callable[[str], list[str]]
    ) -> tuple[Json, str]:
        """Return what a reference names, and its text."""
        place = _find_earlier(name, self.ids, self.before)
        if place is None:
            raise NoSuchResult(f"`{name}` is no earlier call of this turn")
        if place not in self.values:
            raise NoSuchResult(f"the call `{name}` has no result to refer to")
        value = self.values[place]
        steps = split(path)
        if steps:
            value = _follow_path(self._open(place), steps, name, path)
        text = self._text(value)
        self.inserted += len(text)
        if self.inserted > MAX_FILLED_CHARS:
            raise NoSuchResult(
                f"with `{name}` the arguments would grow beyond {MAX_FILLED_CHARS} characters"
            )
        return value, text

    def _open(self, place: int) -> Json:
        if place not in self.opened:
            self.opened[place] = _parse_text(self.values[place])
        return self.opened[place]

    def _text(self, value: Json) -> str:
        if isinstance(value, str):
            return value
        text = self.texts.get(id(value)) or keys.canonical(value)
        self.texts[id(value)] = text
        return text


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
            raise NoSuchResult(
                f"the result of `{name}` has no `{written.lstrip('./')}`: {_describe(value)}"
            )
    return value


def _describe(value: Json) -> str:
    if isinstance(value, dict) and value:
        return f"it has {', '.join(list(value)[:12])}"
    return f"it is {format_value(value)}"


def _parse_text(value: Json) -> Json:
    """Return a text parsed as JSON, which many tools return in place of an object; anything else as it is."""
    if isinstance(value, str) and value.lstrip()[:1] in ("{", "["):
        try:
            return strictjson.loads(value)
        except strictjson.NotJson:
            pass
    return value
