"""Where a program runs apart: sandboxes, the strongest first.

| level | keeps out |
|---|---|
| `isolated` | files, network, other processes, the environment; bounds time, output, disk, processes |
| `process` | the environment; bounds time, output, memory: against accidents, not against malice |

Rule 1: a weaker one is taken only where the programmer has said so.
"""

from __future__ import annotations

from collections.abc import Sequence

from handrail.errors import Code, ToolError
from handrail.ports import Sandbox
from handrail.sandboxes.bubblewrap import Bubblewrap
from handrail.sandboxes.process import Process

KNOWN: Sequence[Sandbox] = (Bubblewrap(), Process())
"""What there is, the strongest first."""


ENOUGH = ("isolated", "container")
"""Levels that keep a stranger's code from what is ours."""


def strongest(tool: str, *, known: Sequence[Sandbox] = KNOWN, allow_weaker: bool = False) -> Sandbox:
    """Return the first of the sandboxes that this machine can give.

    Args:
        tool: Who asks, for the error.
        known: Which to choose from, the strongest first.
        allow_weaker: Take a level that keeps less out than `isolated`.

    Raises:
        ToolError: `NOT_ISOLATED`, with what a person can do about it.
    """
    found = next((each for each in known if not each.lacks), None)
    if found is not None and (allow_weaker or found.level in ENOUGH):
        return found
    reasons = "; ".join(each.lacks for each in known if each.lacks)
    offers = f"'{found.level}' only" if found else "none"
    raise ToolError(
        Code.NOT_ISOLATED,
        f"Tool {tool} needs sandbox level 'isolated'. This machine offers {offers} ({reasons}). Install bubblewrap, "
        "run inside WSL2 or a container, or set allow_weaker=True: the tool could then read your files and use your "
        "network.",
        suggestion="Tell the user this, and go on without it.",
    )
