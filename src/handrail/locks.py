"""Who holds which resource, and who is next: keyed locks for readers and writers, first come, first served.

Pure bookkeeping: `ask` and `release` say who may go on, and a driver lets them. All keys of one call are taken together
or not at all, so nobody holds one while waiting for another and no circle of waiting can arise.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field

from handrail.effects import Resource


@dataclass(slots=True)
class _Queue:
    """Those who asked for one key, in order of asking; the first ones may be inside."""

    waiting: deque[tuple[Hashable, bool]] = field(default_factory=deque)

    def lets_in(self, owner: Hashable) -> bool:
        """Whether nobody stands before `owner` that it must not pass: a writer passes no one, a reader only readers."""
        for place, (other, exclusive) in enumerate(self.waiting):
            if other == owner:
                return place == 0 or not exclusive
            if exclusive:
                return False
        return False


class Locks:
    """The resources of one process.

    >>> locks = Locks()
    >>> locks.ask("a", [Resource("user:1")]), locks.ask("b", [Resource("user:1")])
    (True, False)
    >>> locks.release("a")
    ['b']
    """

    def __init__(self) -> None:
        self._queues: dict[str, _Queue] = {}
        self._asked: dict[Hashable, dict[str, bool]] = {}

    def ask(self, owner: Hashable, resources: Sequence[Resource]) -> bool:
        """Stand in line for all of these; True when they are the owner's at once."""
        wanted: dict[str, bool] = {}
        for resource in resources:
            wanted[resource.key] = wanted.get(resource.key, False) or resource.exclusive
        self._asked[owner] = wanted
        for key, exclusive in wanted.items():
            self._queues.setdefault(key, _Queue()).waiting.append((owner, exclusive))
        return self._may_go(owner)

    def release(self, owner: Hashable) -> list[Hashable]:
        """Leave every line, held or waiting; return those who may go on now."""
        freed: dict[Hashable, None] = {}
        for key, exclusive in self._asked.pop(owner, {}).items():
            queue = self._queues[key]
            before = {other for other, _ in queue.waiting if other != owner and queue.lets_in(other)}
            queue.waiting.remove((owner, exclusive))
            if not queue.waiting:
                del self._queues[key]
            for other, _ in queue.waiting:
                if other in before:
                    continue  # was let in by this key already; another key held it back, or it is inside
                if not queue.lets_in(other):
                    break
                freed[other] = None
        return [other for other in freed if self._may_go(other)]

    def _may_go(self, owner: Hashable) -> bool:
        return all(self._queues[key].lets_in(owner) for key in self._asked[owner])

    def __repr__(self) -> str:
        return f"<Locks: {len(self._queues)} resources, {len(self._asked)} holding or waiting>"
