"""Tool names as a provider accepts them, and back.

A tool is called what its author calls it: `user_info.get`, `查询天气`. Providers accept few characters and few of them.
A `NameMap` spells the names of one request so that the provider takes them and each stays distinct.

Rule 1: a name that the provider accepts is never changed.
Rule 2: two tools never share a wire name, so both stay callable; which gets which does not depend on their order.
Rule 3: `from_wire(to_wire(name)) == name` for every tool of the map.
"""

from __future__ import annotations

import hashlib
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from functools import cache, lru_cache

from msgspec import Struct, field

from handrail.calls import ToolCall

_HASH_CHARS = 8
"""Of SHA-256 in hex: among 1,000 tools that need one, two agree with a chance of about one in 8,600; then it grows."""


class NameRule(Struct, frozen=True, cache_hash=True):
    """Which names a provider accepts.

    Attributes:
        characters: The accepted characters, as a regular expression writes them in brackets.
        most_chars: The longest accepted name.
        first: The characters accepted in the first place; empty means any of `characters`.
    """

    characters: str
    most_chars: int
    first: str = ""

    def accepts(self, name: str) -> bool:
        """Whether the provider takes the name as it is."""
        return _pattern(self).fullmatch(name) is not None


class NameMap(Struct, frozen=True):
    """The wire names of one set of tools. Names that it does not know pass through, spelled by the same rule."""

    rule: NameRule
    _wire: Mapping[str, str] = field(default_factory=dict)
    _own: Mapping[str, str] = field(default_factory=dict)

    def to_wire(self, name: str) -> str:
        """Return the name for the provider.

        A name outside the map comes from an older turn, whose tool is gone, or from a model that invented it. It is
        spelled acceptably too, because a provider refuses the whole history for one such name.
        """
        if name in self._wire:
            return self._wire[name]
        return _acceptable(name, self.rule)

    def from_wire(self, name: str) -> str:
        """Return the tool's own name, or the name as it is if no tool is spelled so."""
        return self._own.get(name, name)

    def own_calls(self, calls: Sequence[ToolCall]) -> tuple[ToolCall, ...]:
        """Return calls as they came, under the tools' own names."""
        if not self._own:
            return tuple(calls)
        return tuple(
            ToolCall(call.id, self.from_wire(call.name), call.arguments, call.program)
            for call in calls
        )


def wire_names(names: Iterable[str], rule: NameRule) -> NameMap:
    """Return the map for the tools of these names.

    >>> names = wire_names(["get", "user_info.get", "user_info_get"], NameRule("a-zA-Z0-9_-", 64))
    >>> names.to_wire("get"), names.to_wire("user_info_get"), names.to_wire("user_info.get")
    ('get', 'user_info_get', 'user_info_get_a4b98e29')
    """
    every = set(names)
    refused = {name for name in every if not rule.accepts(name)}
    if not refused:
        return NameMap(rule)
    wire: dict[str, str] = {}
    spelled = {name: _spell(name, rule) for name in refused}
    wanted_by = Counter(spelled.values())
    taken = every - refused
    for name in sorted(refused):
        chosen = spelled[name]
        hash_chars = _HASH_CHARS
        crowded = wanted_by[chosen] > 1
        while crowded or chosen in taken:
            chosen = _spell_with_hash(name, rule, hash_chars)
            crowded = False
            hash_chars += 4
        taken.add(chosen)
        wire[name] = chosen
    return NameMap(rule, wire, {chosen: name for name, chosen in wire.items()})


@lru_cache(maxsize=4096)
def _acceptable(name: str, rule: NameRule) -> str:
    # Cached, because every call of a history is spelled again in every turn.
    if rule.accepts(name):
        return name
    return _spell(name, rule)


@cache
def _pattern(rule: NameRule) -> re.Pattern[str]:
    return re.compile(
        f"[{rule.first or rule.characters}][{rule.characters}]{{0,{rule.most_chars - 1}}}"
    )


def _spell(name: str, rule: NameRule) -> str:
    """Return the name with `_` for what is refused, and a hash where that alone would say too little."""
    legible = _legible(name, rule)
    says_all = name.isascii() and legible.strip("_") and rule.accepts(legible)
    if says_all:
        return legible
    return _spell_with_hash(name, rule, _HASH_CHARS)


def _spell_with_hash(name: str, rule: NameRule, hash_chars: int) -> str:
    digest = hashlib.sha256(name.encode("utf-8", "surrogatepass")).hexdigest()[
        :hash_chars
    ]
    stem = (
        _legible(name, rule)[: rule.most_chars - len(digest) - 1].rstrip("_") or "tool"
    )
    return f"{stem}_{digest}"


def _legible(name: str, rule: NameRule) -> str:
    spelled = re.sub(f"[^{rule.characters}]+", "_", name)
    if not rule.first or re.match(f"[{rule.first}]", spelled):
        return spelled
    return f"tool_{spelled}"
