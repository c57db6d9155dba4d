"""What a tool's settings say about one call: whether its rule allows it, who must agree, its key, what it touches.

`CallRules` compiles the templates and conditions of a declaration once; compiling them checks them. All methods take
the arguments with their defaults, so that a call which writes a default out gets the same key and resources.

A rule also sees the injected values that it names, once `with_injected` has given them. Functions get them as they are,
conditions as JSON.

Rule 1: no key, resource or rate key holds an injected secret: a template has its digest, and of a function that takes
        one the whole key is digested.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Collection, Mapping, Sequence
from copy import copy
from typing import Any, TypeAlias, cast

from handrail.credentials.secret import reveal_all
from handrail.effects import Resource
from handrail.errors import Code, Failure, Json, ToolError
from handrail.tools import conditions, keys
from handrail.tools.declaration import SettingError
from handrail.tools.injection import hide_secret, plain_value
from handrail.tools.normal_form import as_text

Arguments: TypeAlias = Mapping[str, Json]


class CallRules:
    """The compiled settings of one tool that decide about its calls.

    Args:
        name: The tool's name, for refusals.
        exclusive: Whether a call has its resources for itself.

    Raises:
        ToolDefinitionError: A text is no template, or no condition.
    """

    def __init__(
        self,
        name: str,
        *,
        exclusive: bool,
        check: Callable[..., Any] | None,
        approve: bool | str | Callable[..., bool],
        key: str | Callable[..., str] | None,
        resource: str | Sequence[str] | None,
        rate_key: str | None,
    ) -> None:
        self._name = name
        self._exclusive = exclusive
        self._check = check
        self._approve = approve
        self._approval_condition: conditions.Condition | None = None
        if isinstance(approve, str) and approve:
            self._approval_condition = conditions.condition(approve)
        self._key = key
        self._key_template = keys.template(key) if isinstance(key, str) else None
        resources = [resource] if isinstance(resource, str) else resource or ()
        self._resource_templates = [keys.template(text) for text in resources]
        self._rate_key_template = keys.template(rate_key) if rate_key else None
        functions = {"check": check, "approve": approve, "key": key}
        self._functions = {name for name, each in functions.items() if callable(each)}
        self._injected: Mapping[str, Mapping[str, Any]] = {}
        self._hides_key = False

    def with_injected(
        self,
        values: Mapping[str, Any],
        names: Mapping[str, Collection[str]],
        *,
        secret: Collection[str],
    ) -> CallRules:
        """Return these rules for a call with injected values.

        Args:
            values: By name.
            names: Which of them each setting looks at.
            secret: Names of those that no key may hold.

        Raises:
            SetupError: A template or condition looks at a value that has no text of its own.
        """
        rules = copy(self)
        rules._injected = {
            setting: self._prepare(
                setting, reveal_all({name: values[name] for name in named}), secret
            )
            for setting, named in names.items()
        }
        in_key_function = names.get("key", ()) if "key" in self._functions else ()
        rules._hides_key = not set(secret).isdisjoint(in_key_function)
        return rules

    def _prepare(
        self, setting: str, values: Mapping[str, Any], secret: Collection[str]
    ) -> Mapping[str, Any]:
        """Return injected values as a setting sees them."""
        if setting in self._functions:
            return values
        plain = {name: plain_value(name, value) for name, value in values.items()}
        if setting == "approve":
            return plain
        return {
            name: hide_secret(value) if name in secret else value
            for name, value in plain.items()
        }

    def _add_injected(
        self, setting: str, arguments: Mapping[str, Any]
    ) -> Mapping[str, Any]:
        values = self._injected.get(setting)
        return {**arguments, **values} if values else arguments

    @property
    def names_injected_act(self) -> bool:
        """Whether injected values tell its calls apart: its key looks at some, or its resources do."""
        return "key" in self._injected or "resource" in self._injected

    def check_rule(self, bound: Mapping[str, Any]) -> Failure | None:
        """Return why the tool's own `check` refuses these arguments; None when it does not.

        Raises:
            SettingError: It failed.
        """
        if self._check is None:
            return None
        try:
            bound = self._add_injected("check", bound)
            answer = _call_setting("check", self._check, bound)
        except ToolError as error:
            return error.failure_for_model
        if answer is None or answer is True:
            return None
        reason = f"the rule of {self._name} does not allow these arguments"
        if isinstance(answer, str) and answer:
            reason = answer
        advice = (
            "Call again with arguments that fit the rule, or tell the user why not."
        )
        return Failure(Code.RULE_VIOLATED, reason, advice)

    def needs_approval(self, arguments: Arguments) -> bool:
        """Whether a person must agree to these arguments. A condition that cannot be evaluated asks.

        Raises:
            SettingError: The function that decides failed.
        """
        if not self._approve or self._approve is True:
            return bool(self._approve)
        arguments = self._add_injected("approve", arguments)
        if self._approval_condition is None:
            function = cast(Callable[..., bool], self._approve)
            return bool(_call_setting("approve", function, arguments))
        try:
            return bool(self._approval_condition(arguments))
        except KeyboardInterrupt:
            raise
        except BaseException:
            # a missing argument, a type that does not compare: when unsure, ask
            return True

    def resolve_resources(self, arguments: Arguments) -> Sequence[Resource]:
        """Return what a call touches, without the resources that name an absent optional argument."""
        resources = []
        arguments = self._add_injected("resource", arguments)
        for fill in self._resource_templates:
            try:
                resources.append(Resource(fill(arguments), exclusive=self._exclusive))
            except (LookupError, TypeError):
                continue
        return resources

    def resolve_rate_key(self, arguments: Arguments) -> str:
        """Return what a call's rate is counted for; empty when it is counted with all others."""
        if self._rate_key_template is None:
            return ""
        try:
            return self._rate_key_template(self._add_injected("rate_key", arguments))
        except (LookupError, TypeError):  # an optional argument that is absent
            return ""

    def resolve_key(self, arguments: Arguments) -> str | Failure:
        """Return the declared key of a write.

        A key that cannot be made refuses the call: under another one it might happen twice.

        Raises:
            SettingError: The function that makes it failed, or named nothing.
        """
        arguments = self._add_injected("key", arguments)
        if self._key_template is None:
            return self._call_key_function(arguments)
        try:
            return self._key_template(arguments)
        except (LookupError, TypeError):
            injected = self._injected.get("key", {}).keys()
            missing = sorted(keys.names_in(cast(str, self._key)) - injected)
            names = ", ".join(f"`{name}`" for name in missing)
            return Failure(
                Code.INVALID_ARGUMENTS,
                f"`{self._name}` needs {names}, so that the same act is not done twice.",
                f"Call again with {names}.",
            )

    def _call_key_function(self, arguments: Arguments) -> str:
        function = cast(Callable[..., str], self._key)
        key = _call_setting("key", function, arguments)
        if key is None or key == "":
            error = ValueError(
                f"the key function of {self._name} returned {key!r}, which names nothing"
            )
            raise SettingError("key", function) from error
        try:
            text = as_text(key)
        except ValueError as error:
            raise SettingError("key", function) from error
        return hide_secret(text) if self._hides_key else text


def _call_setting(
    setting: str, function: Callable[..., Any], arguments: Mapping[str, Any]
) -> Any:
    """Call the author's function that a setting is.

    Raises:
        SettingError: It raised something other than a `ToolError`.
    """
    try:
        answer = function(**arguments)
        if inspect.iscoroutine(answer):
            answer.close()
            raise TypeError(f"`{setting}` gave a coroutine, and nobody awaits it")
    except (KeyboardInterrupt, ToolError):
        raise
    except BaseException as error:
        # it is the author's code: whatever it raises, the call is not allowed
        raise SettingError(setting, function) from error
    return answer
