"""What a tool's settings say about one call: whether its rule allows it, who must agree, its key, what it touches.

`CallRules` compiles the templates and conditions of a declaration once; compiling them checks them. All methods take
the arguments with their defaults, so that a call which writes a default out gets the same key and resources.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias, cast

from handrail.effects import Resource
from handrail.errors import Code, Failure, Json, ToolError
from handrail.tools import conditions, keys
from handrail.tools.declaration import SettingError

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

    def check_rule(self, bound: Mapping[str, Any]) -> Failure | None:
        """Return why the tool's own `check` refuses these arguments; None when it does not.

        Raises:
            SettingError: It failed.
        """
        if self._check is None:
            return None
        try:
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
            return self._rate_key_template(arguments)
        except (LookupError, TypeError):  # an optional argument that is absent
            return ""

    def resolve_key(self, arguments: Arguments) -> str | Failure:
        """Return the declared key of a write.

        A key that cannot be made refuses the call: under another one it might happen twice.

        Raises:
            SettingError: The function that makes it failed, or named nothing.
        """
        if self._key_template is None:
            return self._call_key_function(arguments)
        try:
            return self._key_template(arguments)
        except (LookupError, TypeError):
            missing = sorted(keys.names_in(cast(str, self._key)))
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
        return str(key)


def _call_setting(
    setting: str, function: Callable[..., Any], arguments: Mapping[str, Any]
) -> Any:
    """Call the author's function that a setting is.

    Raises:
        SettingError: It raised something other than a `ToolError`.
    """
    try:
        return function(**arguments)
    except (KeyboardInterrupt, ToolError):
        raise
    except BaseException as error:
        # it is the author's code: whatever it raises, the call is not allowed
        raise SettingError(setting, function) from error
