"""What a server's hints about a tool mean for its declaration.

A hint is what the server says of itself, so it counts only where somebody trusts that server (`trust="hints"`). A tool
without hints, or of a server that nobody trusts, is a write of high risk: a person is asked, and it is never repeated
by itself. `overrides` of a person count before any hint.

https://modelcontextprotocol.io/specification/2025-11-25/schema#toolannotations
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from mcp import types

from handrail.calls import Confidentiality, Integrity
from handrail.tools.settings import Sends, change_group
from handrail.tools.tool import ToolSettings
from handrail_mcp.server_settings import Trust

UNTRUSTED = "untrusted"
"""The tag of a tool whose results come from the open world, such as the web."""

_FOLLOWS_FROM_EFFECT = ("permission", "risk", "replay")


def read_hints(hints: types.ToolAnnotations | None, trust: Trust) -> ToolSettings:
    """Return the declaration that follows from hints.

    A missing `destructiveHint` means a destructive tool by the specification. It is declared as a write of high risk,
    which asks a person just as well, without the permission `admin`.
    """
    if trust == "none" or hints is None:
        return {"effect": "write", "risk": "high"}
    if hints.read_only_hint:
        return _read(open_world=hints.open_world_hint is not False)
    if hints.destructive_hint is None:
        return {"effect": "write", "risk": "high"}
    if hints.destructive_hint:
        return {"effect": "destructive", "permission": "admin", "risk": "high"}
    if hints.idempotent_hint:
        return {"effect": "write", "risk": "medium", "replay": "key"}
    return {"effect": "write", "risk": "medium"}


def _read(*, open_world: bool) -> ToolSettings:
    if open_world:
        return {"effect": "read", "risk": "low", "tags": (UNTRUSTED,)}
    return {"effect": "read", "risk": "low"}


def declare(
    hints: types.ToolAnnotations | None,
    trust: Trust,
    override: Mapping[str, Any],
    *,
    results: Integrity = "untrusted",
    confidentiality: Confidentiality = "public",
) -> ToolSettings:
    """Return a tool's declaration: what follows from its hints, changed as somebody here says.

    An override of the effect takes the place of all that follows from the hints about it.

    Args:
        results: The label of what the tools of the server return, unless an override says otherwise; so is
            `confidentiality`.
    """
    declared: dict[str, Any] = dict(read_hints(hints, trust))
    if "effect" in override:
        for setting in _FOLLOWS_FROM_EFFECT:
            declared.pop(setting, None)
    sends = Sends(confidentiality=confidentiality)
    sends = change_group("sends", sends, override.get("sends", {}))
    if not sends.directory:
        sends = Sends(trust=results).changed(sends)
    declared.update(override, sends=sends)
    settings: ToolSettings = declared  # type: ignore[assignment]
    return settings
