"""Measuring what a tool returned, and reading its iterators, which can be read only once.

A value becomes JSON later, on the event loop. There, 425 bytes of YAML in which each list names the next one ten times
would become gigabytes, and some iterators never end. So a value is measured where its tool runs, within the tool's
time, before anything else uses it.

Rule 1: a part that occurs several times counts each time. A part that contains itself is visited once.
Rule 2: no more of an iterator is read than a result may hold.
Imported by sandboxed children too, so it needs only what our errors need.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Iterator
from copy import copy
from itertools import chain, islice
from typing import Any, NamedTuple

from msgspec.structs import force_setattr

from handrail.errors import TooLarge

MOST_VALUES = 1_000_000
"""Values in a result: an order of magnitude beyond any page, and half a second to write."""

MOST_BYTES = 64 * 1024 * 1024
"""Characters of text and bytes in a result; a store keeps it whole."""

LONG_BYTES = 256 * 1024
"""A value that takes more as JSON is encoded in a thread: it would block an event loop for too long."""

_BYTES_AROUND = 4
"""Bytes that a value takes in JSON beside its text: quotes and a comma, or a few digits."""

_AT_ONCE = 64
"""How many items of an iterator are read before they are measured."""


_MOST_INSIDE = 256
"""How many values the inner lists and dicts of a value may hold that is taken at a glance."""


class _Room:
    """How much more a value may hold."""

    __slots__ = ("bytes", "values")

    def __init__(self) -> None:
        self.values = MOST_VALUES
        self.bytes = MOST_BYTES

    def take(self, values: int, size: int) -> None:
        self.values -= values
        self.bytes -= size
        if self.values < 0:
            raise TooLarge(f"more than {MOST_VALUES:,} values")
        if self.bytes < 0:
            raise TooLarge(f"more than {MOST_BYTES // 1024**2} MB")


def is_plain(value: Any, kind: type) -> bool:
    """Whether a value is a scalar, or lists and dicts of scalars whose names are texts, and not long.

    One that holds more than a few values in its inner lists and dicts, or itself, is left to `read`.

    Args:
        kind: The value's own class.
    """
    if kind is not dict and kind is not list:
        return (
            value is None
            or kind is int
            or kind is float
            or kind is bool
            or (kind is str and len(value) <= LONG_BYTES)
        )
    size = 0
    if kind is dict and not _TEXTS.issuperset(map(type, value)):
        return False
    parts = value.values() if kind is dict else value
    for each in parts:
        part = type(each)
        if part is str:
            size += len(each)
        elif part is int or part is float or part is bool or each is None:
            pass
        elif part is dict or part is list:
            return _is_plain_inside(list(parts))
        else:
            return False
    return size + _BYTES_AROUND * len(value) <= LONG_BYTES


def _is_plain_inside(waiting: list[Any]) -> bool:
    """Whether these values and all that they contain, which is added to the list, are plain and not long."""
    size = 0
    for each in waiting:
        kind = type(each)
        if kind is str:
            size += len(each)
        elif kind is dict or kind is list:
            if len(waiting) + len(each) > _MOST_INSIDE or (
                kind is dict and not _TEXTS.issuperset(map(type, each))
            ):
                return False
            waiting += each.values() if kind is dict else each
        elif (
            kind is not int
            and kind is not bool
            and kind is not float
            and each is not None
        ):
            return False
    return size + _BYTES_AROUND * len(waiting) <= LONG_BYTES


class Reading(NamedTuple):
    """A value whose iterators were read, with its size.

    Attributes:
        size: About how many bytes its JSON takes.
        has_iterators: Whether an object in it still holds iterators: one with fields of its own keeps them.
    """

    value: Any
    size: int
    has_iterators: bool


def read(value: Any) -> Reading:
    """Return a value with each iterator in its lists and objects read into a list; raise what an iterator raises.

    Raises:
        TooLarge: It is more than `MOST_VALUES` or `MOST_BYTES`.
    """
    room = _Room()
    left = False
    if _measure(value, room):
        value = _rebuild(value, room)
        left = has_iterators(value)
    size = MOST_BYTES - room.bytes + _BYTES_AROUND * (MOST_VALUES - room.values)
    return Reading(value, size, left)


def _rebuild(value: Any, room: _Room) -> Any:
    """Return a measured value with its iterators read into lists; their items are measured too."""
    kind = type(value)
    if kind is dict:
        return {name: _rebuild(each, room) for name, each in value.items()}
    if kind is list or kind is tuple:
        return kind([_rebuild(each, room) for each in value])
    if not hasattr(kind, "__next__"):
        if has_iterators(value):
            return _rebuild_parts(value, kind, room)
        return value
    items: list[Any] = []
    while batch := list(islice(value, _AT_ONCE)):
        if _measure(batch, room):
            batch = _rebuild(batch, room)
        items += batch
    return items


def _rebuild_parts(value: Any, kind: type, room: _Room) -> Any:
    """Return a copy of a tuple, deque, struct or dataclass with its iterators read; other values as they are."""
    if isinstance(value, tuple | deque):
        parts = [_rebuild(each, room) for each in value]
        if hasattr(kind, "_fields"):
            return kind(*parts)
        return kind(parts)
    set_field: Callable[[Any, str, Any], None] = object.__setattr__
    if hasattr(kind, "__struct_fields__"):
        set_field = force_setattr
    if (names := _names_of_fields(kind)) is None:
        return value
    changed = copy(value)
    for name in names:
        field = getattr(value, name, None)
        if has_iterators(field):
            set_field(changed, name, _rebuild(field, room))
    return changed


def _measure(value: Any, room: _Room) -> bool:
    """Subtract a value's size from `room`; return whether it contains iterators, which are not read."""
    has_iterator = False
    values = 0
    size = 0
    # Go level by level: what is done for a whole level at once needs no step of Python for each value.
    level = [value]
    depth = 0
    while level and values <= room.values and size <= room.bytes:
        depth += 1
        if depth == _DEEPEST and _holds_itself(value):
            values, size = _count_unrolled(value)
            break
        kinds = _find_kinds(level)
        if str in kinds:
            size += sum(map(len, [each for each in level if type(each) is str]))
        if kinds <= _SCALARS:
            break
        if kinds <= _SCALARS_AND_DICT:
            many = [each for each in level if type(each) is dict]
            below = _open_dicts(many, room.values - values)
        else:
            below = _open_level(level, room.values - values)
        level = below.parts
        values += below.values
        size += below.size
        has_iterator = has_iterator or below.has_iterator
    if (values > room.values or size > room.bytes) and _holds_itself(value):
        values, size = _count_unrolled(value)
    room.take(values, size)
    return has_iterator


class _Below(NamedTuple):
    """What the values of a level contain.

    Attributes:
        parts: The values of the next level; incomplete if there are too many.
        values: How many they are.
        size: Characters of names and texts that are not among `parts`.
    """

    parts: list[Any]
    values: int
    size: int
    has_iterator: bool = False


def _open_dicts(many: list[dict[Any, Any]], most: int) -> _Below:
    values = sum(map(len, many))
    if values > most:
        return _Below([], values, 0)
    parts = list(chain.from_iterable(map(dict.values, many)))
    return _Below(parts, values, _size_of_names(many))


def _open_level(level: list[Any], most: int) -> _Below:
    """Open the values of a level whatever they are."""
    parts: list[Any] = []
    values = 0
    size = 0
    has_iterator = False
    for each in level:
        kind = type(each)
        if _is_scalar(kind):
            continue
        if hasattr(kind, "__next__"):
            has_iterator = True
        elif isinstance(each, str | bytes | bytearray):
            size += len(each)
        else:
            own = _parts(each, kind)
            values += len(own)
            if values > most:
                break
            if isinstance(each, dict):
                size += _size_of_names([each])
            parts += own
    return _Below(parts, values, size, has_iterator)


def _find_kinds(level: list[Any]) -> set[type]:
    """Return the classes of values; `str` and `_Unhashable` where a class among them has no hash."""
    try:
        return set(map(type, level))
    except TypeError:
        return {str, _Unhashable}


class _Unhashable:
    """Stands for classes that have no hash."""


def _is_scalar(kind: type) -> bool:
    return (
        kind is int
        or kind is str
        or kind is float
        or kind is bool
        or kind is type(None)
    )


def _holds_itself(value: Any) -> bool:
    """Whether a value contains itself. Each part is visited once, however often it occurs."""
    done = set[int]()
    path = set[int]()
    waiting = [(value, False)]
    while waiting:
        each, leaving = waiting.pop()
        if leaving:
            path.discard(id(each))
            done.add(id(each))
        elif id(each) in path:
            return True
        elif id(each) not in done and (parts := _parts(each, type(each))):
            path.add(id(each))
            waiting.append((each, True))
            waiting += [
                (part, False)
                for part in parts
                if not isinstance(part, str | int | float | None)
            ]
    return False


def _count_unrolled(value: Any) -> tuple[int, int]:
    """Return how many values and bytes a value that contains itself has, up to a little more than a result may hold.

    On each path a part that contains itself is visited once, as Python prints it.
    """
    values = 0
    size = 0
    path: list[int] = []
    on_path: set[int] = set()
    waiting: list[Iterator[Any]] = [iter((value,))]
    while waiting and values <= MOST_VALUES and size <= MOST_BYTES:
        each = next(waiting[-1], _END)
        if each is _END:
            waiting.pop()
            if path:
                on_path.discard(path.pop())
        elif isinstance(each, str | bytes | bytearray):
            size += len(each)
        elif (parts := _parts(each, type(each))) and id(each) not in on_path:
            values += len(parts)
            if isinstance(each, dict):
                size += _size_of_names([each])
            path.append(id(each))
            on_path.add(id(each))
            waiting.append(iter(parts))
    return values, size


_END = object()


def _size_of_names(many: list[dict[Any, Any]]) -> int:
    try:
        return sum(map(len, chain.from_iterable(many)))
    except TypeError:  # a name that is a number
        names = chain.from_iterable(many)
        return sum(len(name) for name in names if isinstance(name, str))


def has_iterators(value: Any) -> bool:
    """Whether there is an iterator anywhere in a value: in its lists and objects, and in what has fields."""
    left = [value]
    seen = set[int]()
    while left:
        each = left.pop()
        kind = type(each)
        if kind is str or kind is int or kind is float:
            continue
        if hasattr(kind, "__next__"):
            return True
        parts = _parts(each, kind)
        # Most lists and objects hold nothing but scalars, which is found out without a step for each of them.
        if not _SCALARS.issuperset(map(type, parts)) and id(each) not in seen:
            seen.add(id(each))
            left += parts
    return False


def find_odd_objects(value: Any) -> Iterator[dict[Any, Any]]:
    """Yield the objects in a value that have a name which is no text; of one that contains itself, some twice."""
    level = [value]
    values = 0
    for _ in range(_DEEPEST):
        if not level or values > MOST_VALUES:
            break
        values += len(level)
        kinds = _find_kinds(level)
        if kinds <= _SCALARS:
            break
        many = [each for each in level if isinstance(each, dict)]
        if not _TEXTS.issuperset(map(type, chain.from_iterable(many))):
            yield from (each for each in many if not _TEXTS.issuperset(map(type, each)))
        if kinds <= _SCALARS_AND_DICT:
            level = _open_dicts(many, MOST_VALUES).parts
        else:
            level = _open_level(level, MOST_VALUES).parts


_DEEPEST = 300
"""Levels of a value; pydantic writes no JSON that is deeper (255)."""

_TEXTS = frozenset((str,))
_SCALARS = frozenset((str, int, float, bool, type(None)))
_SCALARS_AND_DICT = _SCALARS | {dict}


def _parts(value: Any, kind: type) -> Collection[Any]:
    if isinstance(value, dict):
        return value.values()
    if isinstance(value, _MANY):
        return value
    if (names := _names_of_fields(kind)) is not None:
        return [getattr(value, name, None) for name in names]
    if hasattr(kind, "__pydantic_fields__"):
        fields: Collection[Any] = vars(value).values()
        return fields
    return ()


def _names_of_fields(kind: type) -> Collection[str] | None:
    """Return the names of the fields of a struct or a dataclass."""
    return getattr(kind, "__struct_fields__", None) or getattr(
        kind, "__dataclass_fields__", None
    )


_MANY = (list, tuple, set, frozenset, deque)
