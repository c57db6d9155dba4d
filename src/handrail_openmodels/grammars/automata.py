"""Text that must not hold certain marks, as a machine that reads one character at a time (Aho and Corasick, 1975).

GBNF has no "anything but": its rules are the states of this machine.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

from msgspec import Struct


class State(Struct):
    """What the characters read so far may be the beginning of.

    Attributes:
        after: The state after a character; any other character leads to the first state.
        found: The longest mark that ends here, if one does.
    """

    after: dict[str, int]
    found: str = ""


def find_marks(marks: Sequence[str]) -> list[State]:
    """Return the machine that finds these marks, the first state first."""
    states = [State({})]
    fails = [0]
    for mark in marks:
        here = 0
        for character in mark:
            if character not in states[here].after:
                states[here].after[character] = len(states)
                states.append(State({}))
                fails.append(0)
            here = states[here].after[character]
        states[here].found = mark
    waiting = deque(states[0].after.values())
    while waiting:
        here = waiting.popleft()
        fallback = states[fails[here]]
        if len(fallback.found) > len(states[here].found):
            states[here].found = fallback.found
        own = states[here].after
        for character, there in own.items():
            fails[there] = fallback.after.get(character, 0)
            waiting.append(there)
        states[here].after = {**fallback.after, **own}
    return states
