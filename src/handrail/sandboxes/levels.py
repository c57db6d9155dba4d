"""How strongly a tool is kept apart, and which sandbox of this machine does it.

| level | the tool |
|---|---|
| `none` | runs in our process |
| `process` | runs in a warm process that is killed at its deadline: against accidents, not against malice |
| `isolated` | runs in a fresh sandbox: no network, environment, processes or files of ours but what it is shown |
| `container` | the same in a container or a small virtual machine; a plug-in brings it |

Rule 1: a tool gets the level that it demands or a stronger one, never less and never silently.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Literal, TypeAlias, get_args

from handrail import plugins
from handrail.errors import Code, ConfigError, Failure, ToolError
from handrail.ports import Sandbox

Isolation: TypeAlias = Literal["none", "process", "isolated", "container"]

LEVELS = get_args(Isolation)
"""The weakest first."""

_SANDBOXED = LEVELS[2:]


@cache
def offered() -> Sequence[Sandbox]:
    """Return every sandbox that is known, ours and those of plug-ins (`handrail.sandboxes`), the strongest first.

    Raises:
        ConfigError: What a plug-in calls a sandbox is none.
    """
    known: list[Sandbox] = []
    for name in plugins.known("sandboxes"):
        found = plugins.load("sandboxes", name)
        if getattr(found, "level", None) not in LEVELS or not isinstance(found, Sandbox):
            raise ConfigError(f"the sandbox {name!r} of a plug-in is none: {type(found).__name__}; see `ports.Sandbox`")
        known.append(found)
    return sorted(known, key=lambda each: -LEVELS.index(each.level))


def strongest(
    tool: str, least: str = "isolated", *, known: Sequence[Sandbox] | None = None, allow_weaker: bool = False,
    weaker: str = 'isolation="process"',
) -> Sandbox:  # fmt: skip
    """Return the first of the sandboxes that this machine can give.

    Args:
        tool: Who asks, for the error.
        least: The level that it demands.
        known: Which to choose from, the strongest first; all that are `offered` by default.
        allow_weaker: Take a level that keeps less out.
        weaker: How the programmer would allow that, for the error.

    Raises:
        ToolError: `NOT_ISOLATED`, with what a person can do about it.
    """
    known = offered() if known is None else known
    found = next((each for each in known if not each.lacks), None)
    if found is not None and (allow_weaker or LEVELS.index(found.level) >= LEVELS.index(least)):
        return found
    reasons = "; ".join(each.lacks for each in known if each.lacks) or f"no sandbox of level '{least}' is installed"
    offers = f"'{found.level}' only" if found else "none"
    remedy = "Install bubblewrap, run inside WSL2 or a container" if least == "isolated" else "Install one"
    raise ToolError(
        Code.NOT_ISOLATED,
        f"Tool {tool} needs sandbox level '{least}'. This machine offers {offers} ({reasons}). {remedy}, "
        f"or set {weaker}: the tool could then read your files and use your network.",
        suggestion="Tell the user this, and go on without it.",
    )


def refusal(tool: str, level: str) -> Failure | None:
    """Say why a tool may not run here; None when it may. What the machine offers is found out once."""
    if level not in _SANDBOXED:
        return None
    try:
        strongest(tool, level)
    except ToolError as error:
        return error.failure
    return None
