"""Who holds which resource, and who is next: keyed locks for readers and writers, first come, first served.

Pure bookkeeping: `ask` and `release` say who may go on, and a driver lets them. All keys of one call are asked for at
once, so whoever waits for somebody came later, and no circle of waiting can arise.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence

from handrail.effects import Resource
from handrail.errors import Json


class Locks:
    """The resources of one process.

    >>> locks = Locks()
    >>> locks.ask("a", [Resource("user:1")]), locks.ask("b", [Resource("user:1")])
    (True, False)
    >>> locks.release("a")
    ['b']
    """

    def __init__(self) -> None:
        self._lines: dict[str, dict[Hashable, float]] = {}
        """For each key those who asked for it, in order, and with how many in all each can have it."""
        self._asked: dict[Hashable, Mapping[str, float]] = {}

    def ask(self, owner: Hashable, resources: Sequence[Resource]) -> bool:
        """Stand in line for all of these until `release`; True when they are the owner's at once.

        Who holds some already keeps them, and asks for more: a write that still runs, and is to be done again.
        """
        if len(resources) == 1 and owner not in self._asked:
            resource = resources[0]
            if resource.key not in self._lines:  # mostly nobody else wants it
                room = resource.room
                self._asked[owner] = {resource.key: room}
                self._lines[resource.key] = {owner: room}
                return True
        wanted = dict(self._asked.get(owner, {}))
        for resource in resources:
            wanted[resource.key] = min(
                wanted.get(resource.key, float("inf")), resource.room
            )
        self._asked[owner] = wanted
        for key, room in wanted.items():
            self._lines.setdefault(key, {})[owner] = room
        return self._may_go(owner)

    def release(self, owner: Hashable) -> list[Hashable]:
        """Leave every line, held or waiting; return those who may go on now."""
        freed: dict[Hashable, None] = {}
        for key in self._asked.pop(owner, ()):
            line = self._lines[key]
            if len(line) == 1:
                del self._lines[key]
                continue
            before = set(_inside(line))
            del line[owner]
            freed.update(
                dict.fromkeys(other for other in _inside(line) if other not in before)
            )
        if not freed:
            return []
        return [other for other in freed if self._may_go(other)]

    def describe(self) -> list[Json]:
        """Return each resource that somebody wants, with how many hold it and how many wait for it."""
        return [
            {
                "resource": key,
                "held": len(_inside(line)),
                "waiting": len(line) - len(_inside(line)),
            }
            for key, line in self._lines.items()
        ]

    def _may_go(self, owner: Hashable) -> bool:
        return all(owner in _inside(self._lines[key]) for key in self._asked[owner])

    def __repr__(self) -> str:
        return f"<Locks: {len(self._lines)} resources, {len(self._asked)} holding or waiting>"


def _inside(line: Mapping[Hashable, float]) -> list[Hashable]:
    """Whom a key lets in: as many from the head of the line as all of them can bear."""
    inside: list[Hashable] = []
    least = float("inf")
    for owner, room in line.items():
        least = min(least, room)
        if len(inside) >= least:
            break
        inside.append(owner)
    return inside
