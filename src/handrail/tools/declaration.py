"""Whether the settings of a tool contradict each other, and what its rules look at.

A declaration is checked when the tool is made, and refused with one sentence; no call has to fail for it.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from handrail import _lazy
from handrail.errors import Json
from handrail.parsing import names
from handrail.sandboxes.levels import SANDBOXED
from handrail.tools import conditions, keys
from handrail.tools.settings import KEY_TTL_S

if TYPE_CHECKING:
    from handrail.network import egress
else:
    egress = _lazy.module("handrail.network.egress")

RULES = ("check", "approve", "key", "resource", "rate_key")
"""Settings that decide about a call by its arguments, and by the injected values that they name."""


class SettingError(Exception):  # it carries an error, its cause
    """A setting's function, such as `check`, raised; `admission.admit` refuses the call and logs it.

    Attributes:
        setting: Its name.
        function: What was called.
    """

    def __init__(self, setting: str, function: Any) -> None:
        super().__init__(f"`{setting}` raised")
        self.setting = setting
        self.function = function


def is_async(function: object) -> bool:
    """Whether a function, or an object that is called like one, gives something that must be awaited."""
    return inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(
        type(function).__call__ if callable(function) else None
    )


def find_contradiction(declared: Mapping[str, Any]) -> str:
    """Say which settings of a declaration contradict each other, as the rest of a sentence; empty when none do."""
    if fault := _find_meaningless(declared):
        return fault
    if declared["mounts"] and declared["isolation"] == "none":
        return '`mounts` is for an isolated tool; declare isolation="isolated" or "process"'
    if declared["writable"] and declared["isolation"] != "process":
        return '`writable` is for a tool of isolation="process"; an isolated one writes nothing of yours'
    if declared["network"] is not None and declared["isolation"] not in SANDBOXED:
        return '`network` is for a tool of isolation="isolated" or "container"; any other one has yours'
    if declared["directory"] and declared["trust"] == "untrusted":
        return "its results are `untrusted` and a `directory`, which people trust"
    for setting in ("check", "approve", "key"):
        if is_async(declared[setting]):
            return f"`{setting}` must be a plain function; it does not wait"
    if declared["verify"] is not None:
        return _find_misfit("verify", declared["verify"], "arguments", "context")
    return ""


def _find_meaningless(declared: Mapping[str, Any]) -> str:
    """Say which setting would never be looked at, because of another one."""
    if declared["effect"] == "read":
        for setting in _OF_WRITES:
            if _is_declared(setting, declared):
                return f"it is a read, to which `{setting}` means nothing"
    for one, other, why in _NOT_BOTH:
        if _is_declared(one, declared) and _is_declared(other, declared):
            return f"it declares `{one}` and `{other}`: {why}"
    if declared["replay"] is None and declared["key_ttl_s"] != KEY_TTL_S:
        return '`key_ttl_s` says for how long the service knows a key again; add replay="key"'
    return ""


def _is_declared(setting: str, declared: Mapping[str, Any]) -> bool:
    value = declared[setting]
    return bool(value) and (setting, value) != ("on_doubt", "tell")


def find_wrong_function(
    declared: Mapping[str, Any],
    bound: Sequence[str],
    arguments: Sequence[str] | None,
    *,
    injected: Collection[str] = (),
) -> str:
    """Return which function has the wrong signature, as the rest of a sentence; empty if none has.

    Args:
        declared: The settings, and under `then` the function that makes the arguments of a step, if it is one.
        bound: Names of the parameters that `run` gets from a model.
        arguments: Names of the JSON arguments; None if they cannot be listed.
        injected: Names of the parameters that the caller fills: a rule gets those that it names.
    """
    named = {"check": bound, "compensate": (*bound, "result")}
    if arguments is not None:
        named["approve"] = arguments
        named["key"] = arguments
        named["then"] = (*arguments, "result")
    for setting, parameters in named.items():
        function = declared[setting]
        if callable(function):
            by_name = dict.fromkeys(parameters, ...)
            if setting != "then":
                taken = parameter_names(function).intersection(injected)
                by_name |= dict.fromkeys(taken, ...)
            if fault := _find_misfit(setting, function, **by_name):
                return fault
    return ""


def _find_misfit(
    setting: str, function: Callable[..., Any], *by_place: str, **by_name: Any
) -> str:
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):  # a built-in without a signature
        return ""
    try:
        signature.bind(*by_place, **by_name)
    except TypeError as error:
        form = ", ".join([*by_place, *(f"{name}=…" for name in by_name)])
        return f"`{setting}` is called as `{setting}({form})`, and the function given cannot be: {error}"
    return ""


def find_unknown_name(
    declared: Mapping[str, Any],
    described: Mapping[str, Json],
    *,
    injected: Collection[str],
    in_step: Iterable[str],
) -> str:
    """Say which template or condition looks at a parameter that there is not; empty when none does.

    Args:
        described: The schema of the parameters.
        injected: Names of the parameters that the caller fills; `then` cannot look at them.
        in_step: What `then` looks at.
    """
    if is_open(described):
        return ""
    arguments = set(described.get("properties") or {})
    looked_at = _list_names(declared)
    looked_at["then"] = set(in_step)
    for setting, named in looked_at.items():
        allowed = arguments.union(injected) if setting in RULES else arguments
        for name in sorted(named - allowed):
            near = names.nearest(name, sorted(allowed))
            hint = f" Did you mean `{near[0]}`?" if near else ""
            return (
                f"`{setting}` looks at `{name}`, which is none of its parameters.{hint}"
            )
    return ""


def _list_names(declared: Mapping[str, Any]) -> dict[str, set[str]]:
    """Return the parameters that templates and conditions look at, by setting."""
    resource = declared["resource"]
    key = declared["key"]
    rate_key = declared["rate_key"]
    approve = declared["approve"]
    destination = declared["destination"]
    listed: dict[str, set[str]] = {}
    if destination:
        is_one = isinstance(destination, str)
        listed["destination"] = {destination} if is_one else set(destination)
    if resource:
        templates = [resource] if isinstance(resource, str) else resource
        listed["resource"] = set().union(*map(keys.names_in, templates))
    if isinstance(key, str):
        listed["key"] = keys.names_in(key)
    if rate_key:
        listed["rate_key"] = keys.names_in(rate_key)
    if isinstance(approve, str):
        listed["approve"] = conditions.names_in(approve)
    return listed


def list_injected_names(
    declared: Mapping[str, Any], injected: Collection[str]
) -> dict[str, frozenset[str]]:
    """Return the injected parameters that rules look at, by setting; without the settings that look at none.

    A function looks at those that its signature names; `**arguments` names none.
    """
    looked_at = _list_names(declared)
    for setting in RULES:
        if callable(declared[setting]):
            looked_at[setting] = parameter_names(declared[setting])
    common = {
        setting: frozenset(looked_at.get(setting, ())).intersection(injected)
        for setting in RULES
    }
    return {setting: named for setting, named in common.items() if named}


def parameter_names(function: Callable[..., Any]) -> set[str]:
    """Return the names that a function takes by keyword; empty for a built-in without a signature."""
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):
        return set()
    by_keyword = (
        inspect.Parameter.POSITIONAL_OR_KEYWORD,
        inspect.Parameter.KEYWORD_ONLY,
    )
    return {each.name for each in parameters if each.kind in by_keyword}


def is_open(described: Mapping[str, Json]) -> bool:
    """Whether the schema of the parameters allows names that it does not list."""
    more = described.get("additionalProperties")
    if described.keys() & _MORE_NAMES or more:
        return True
    return not described.get("properties") and more is not False


_OF_WRITES = (
    "key", "replay", "verify", "one_request", "compensate", "on_repeat", "on_doubt", "repeat_window_s",
)  # fmt: skip
_DELIVERED = "its delivery says how it ended, and nothing else is asked"
_NOT_BOTH = (
    ("replay", "verify", "a lost answer is asked for again under the key, and `verify` is never asked"),
    ("deferred", "replay", _DELIVERED),
    ("deferred", "verify", _DELIVERED),
    ("deferred", "on_doubt", _DELIVERED),
    ("repeatable", "key", "calls with one key are performed once, and repeatable ones each time"),
    ("repeatable", "on_repeat", "each call is performed, and none is a repeat"),
    ("repeatable", "repeat_window_s", "each call is performed, and none is a repeat"),
)  # fmt: skip
"""Pairs of settings of which one would never be looked at, and why."""
# Words of a schema by which arguments may have names that its `properties` do not list.
_MORE_NAMES = {
    "$ref",
    "$dynamicRef",
    "allOf",
    "anyOf",
    "oneOf",
    "if",
    "dependentSchemas",
    "patternProperties",
}
