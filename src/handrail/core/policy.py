"""Whether a call may run: permission first, then rules, then risk.

Rule 1: when unsure whether something is allowed, it is not; when unsure whether a person must agree, one must.
Rule 2: the first rule that matches wins, and its place in the list is the only order there is.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import Enum
from fnmatch import fnmatchcase
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, TypeVar, cast, get_args

from msgspec import Struct
from msgspec.structs import fields, force_setattr, replace

from handrail import _lazy
from handrail.effects import Permission, Risk
from handrail.errors import ConfigError, Json, SetupError
from handrail.tools import conditions, keys
from handrail.tools.tool import BaseTool
from handrail.tools.toolset import COVERED

if TYPE_CHECKING:
    import tomllib
else:
    tomllib = _lazy.module("tomllib")

T = TypeVar("T")
Then: TypeAlias = Literal["allow", "ask", "deny"]

_RISKS: Sequence[Risk] = get_args(Risk)


class Decision(Enum):
    """What a policy says of a call."""

    ALLOW = "allow"
    ASK = "ask"
    DENY = "deny"


class Verdict(Struct, frozen=True):
    """A decision, the risk it was taken at, why (the rule or the default that decided), and how many must agree.

    Raises:
        ValueError: It says none of the three, or asks nobody. Raised in a `judge`, this refuses the call.
    """

    decision: Decision
    risk: Risk
    reason: str = ""
    required_approvals: int = 1

    def __post_init__(self) -> None:
        # "deny" is taken for what it says: to be no `DENY` would allow it
        if type(self.decision) is not Decision:
            force_setattr(self, "decision", Decision(self.decision))
        if type(self.required_approvals) is not int or self.required_approvals < 1:
            raise ValueError(
                f"`required_approvals` of a verdict is {self.required_approvals!r}; it is a whole number, at least 1"
            )


class Rule(Struct, frozen=True):
    """What becomes of calls to the tools that match `tool` (`*` and `?` as in file names).

    `when` is a condition over the arguments (`amount > 100`). One that cannot be evaluated, for instance because the
    argument is absent, does not match a rule that allows, and does match one that asks or denies.

    `arguments` has a constraint for each argument that it names: a regular expression that matches the whole text
    (`path = "/data/[a-z]+"`), or a JSON Schema (`amount = {type = "number", maximum = 100}`). All must be met. An
    absent argument does not meet that of a rule that allows, and does meet that of one that asks or denies.

    Where it asks, `required_approvals` different people must agree. The person on whose behalf the run acts is not one
    of them; where one is enough, `Policy.own_approval` permits it. A tool may ask for more approvals than the rule.
    """

    tool: str = "*"
    then: Then = "ask"
    when: str = ""
    reason: str = ""
    required_approvals: int = 1
    arguments: Mapping[str, Json] = {}

    def __post_init__(self) -> None:
        if not isinstance(self.tool, str):
            raise ConfigError(f"a rule is for the tool {self.tool!r}, which is no name")
        if self.then not in get_args(Then):
            raise ConfigError(
                f"a rule for {self.tool!r} says {self.then!r}; it is one of {', '.join(get_args(Then))}"
            )
        if type(self.required_approvals) is not int or self.required_approvals < 1:
            raise ConfigError(
                f"`required_approvals` of a rule for {self.tool!r} is {self.required_approvals!r}; "
                "it is a whole number, at least 1"
            )
        if self.required_approvals > 1 and self.then != "ask":
            raise ConfigError(
                f"a rule for {self.tool!r} says {self.then!r} and `required_approvals`, which only 'ask' takes"
            )
        if self.when:
            conditions.condition(self.when)
        if not isinstance(self.arguments, Mapping):
            raise ConfigError(
                f"`arguments` of a rule for {self.tool!r} is {self.arguments!r}; write a table"
            )
        if self.arguments:
            conditions.constrain(self.arguments, permits=self.then == "allow")

    def matches(self, tool: BaseTool, arguments: Mapping[str, Json]) -> bool:
        """Whether this rule is about this call."""
        if not fnmatchcase(tool.name, self.tool):
            return False
        if self.arguments:
            permits = self.then == "allow"
            if not conditions.constrain(self.arguments, permits=permits)(arguments):
                return False
        if not self.when:
            return True
        try:
            return bool(conditions.condition(self.when)(arguments))
        except (LookupError, TypeError, ArithmeticError):
            return self.then != "allow"


class Policy(Struct, frozen=True):
    """What a run may do.

    Attributes:
        max_permission: Tools that need more are not shown to the model, and refused if called.
        ask_from: The lowest risk at which a person must agree; None asks for no risk (rules and tools still may).
        rules: The first that matches decides, before risk is looked at. None can grant a permission.
        approval_s: How long a stored question to a person stays open.
        own_approval: Whether the person on whose behalf a run acts may approve its calls, where one approval is enough.
            Without it somebody else must; where no principal is named, everybody may.
        provenance: `ask` asks a person before a run that has read words from outside sends something to where nobody
            trusted has named, or lets out private values; `off` does not look.
        foreign_secrets: `hide` takes keys of the known kinds out of what a model reads of others' words (results that
            are not `trusted`); `show` leaves them in.
    """

    max_permission: Permission = "write"
    ask_from: Risk | None = "high"
    rules: Sequence[Rule] = ()
    approval_s: float = 7 * 24 * 3600.0
    done_before: frozenset[str] = frozenset()
    """Writes that the run which this one was forked from has done: a person is asked before they are done again."""
    provenance: Literal["ask", "off"] = "ask"
    foreign_secrets: Literal["hide", "show"] = "hide"
    own_approval: bool = False

    def __post_init__(self) -> None:
        if self.max_permission not in get_args(Permission):
            permissions = ", ".join(get_args(Permission))
            raise ConfigError(
                f"max_permission is {self.max_permission!r}; it is one of {permissions}"
            )
        if self.ask_from is not None and self.ask_from not in _RISKS:
            risks = ", ".join(_RISKS)
            raise ConfigError(
                f"ask_from is {self.ask_from!r}; it is one of {risks}, or None ('never' in a file)"
            )
        if self.provenance not in ("ask", "off"):
            raise ConfigError(
                f"provenance is {self.provenance!r}; it is 'ask' or 'off'"
            )
        if self.foreign_secrets not in ("hide", "show"):
            raise ConfigError(
                f"foreign_secrets is {self.foreign_secrets!r}; it is 'hide' or 'show'"
            )
        if type(self.own_approval) is not bool:
            raise ConfigError(
                f"own_approval is {self.own_approval!r}; it is True or False"
            )
        approval_s: object = self.approval_s
        if (
            isinstance(approval_s, bool)
            or not isinstance(approval_s, int | float)
            or approval_s != approval_s
        ):
            raise ConfigError(
                f"approval_s is {approval_s!r}; it is a number of seconds"
            )
        force_setattr(self, "rules", tuple(self.rules))

    def sees(self, tool: BaseTool) -> bool:
        """Whether this tool is shown to the model."""
        return tool.required_permission in COVERED[self.max_permission]

    def judge(self, tool: BaseTool, arguments: Mapping[str, Json]) -> Verdict:
        """Decide about one call with validated arguments."""
        traits = tool.call_traits
        risk = traits.effective_risk
        if not self.sees(tool):
            return Verdict(
                Decision.DENY,
                risk,
                f"{tool.name} needs the permission {tool.required_permission}",
            )
        if self.done_before and self._was_done_before(tool, arguments):
            before = f"the run that this one was forked from has already done this {tool.name}"
            return Verdict(Decision.ASK, risk, before, tool.write.required_approvals)
        for rule in self.rules:
            if rule.matches(tool, arguments):
                reason = rule.reason or f"rule for {rule.tool}: {rule.then}"
                return Verdict(
                    Decision(rule.then),
                    risk,
                    reason,
                    max(rule.required_approvals, tool.write.required_approvals),
                )
        if traits.may_need_approval and tool.call_rules.needs_approval(arguments):
            reason = f"{tool.name} asks for approval"
            if isinstance(tool.approve, str):
                reason += f" when {tool.approve}"
            return Verdict(Decision.ASK, risk, reason, tool.write.required_approvals)
        if risk in _ASKED_FROM[self.ask_from]:
            return Verdict(
                Decision.ASK,
                risk,
                f"{tool.name} has {risk} risk",
                tool.write.required_approvals,
            )
        return _ALLOWED[risk]

    def _was_done_before(self, tool: BaseTool, arguments: Mapping[str, Json]) -> bool:
        return tool.writes and describe_write(tool.name, arguments) in self.done_before

    @classmethod
    def from_toml(cls, path: str | Path) -> Policy:
        """Read a policy from a TOML file.

        Its keys are `max_permission`, `ask_from`, `provenance`, `foreign_secrets`, `own_approval`, and `[[rules]]` with
        `tool`, `then`, `when`, `arguments`, `reason`, `required_approvals`. TOML has no null: `ask_from = "never"` asks
        for no risk.

        Raises:
            ConfigError: The file cannot be read, or holds a key that no policy has.
        """
        try:
            return read_policy(tomllib.loads(Path(path).read_text(encoding="utf-8")))
        except (OSError, ValueError, TypeError, SetupError) as error:
            raise ConfigError(
                f"the policy {str(path)!r} cannot be used: {error}"
            ) from error


_ASKED_FROM: Mapping[Risk | None, Sequence[Risk]] = {
    None: (),
    **{risk: _RISKS[n:] for n, risk in enumerate(_RISKS)},
}
_ALLOWED: Mapping[Risk, Verdict] = {
    risk: Verdict(Decision.ALLOW, risk, "within the policy") for risk in _RISKS
}


def describe_write(tool: str, arguments: Mapping[str, Json]) -> str:
    """Return a write's tool and arguments as one text, whatever its key."""
    return f"{tool}({keys.canonical(dict(arguments))})"


def read_policy(given: Mapping[str, Any]) -> Policy:
    """Return a policy from the table of a file, see `Policy.from_toml`.

    Raises:
        ConfigError: It holds a key that no policy has, or a value that makes no sense.
    """
    table = dict(given)
    tables = table.pop("rules", [])
    if not isinstance(tables, list) or not all(
        isinstance(each, dict) for each in tables
    ):
        raise ConfigError(f"rules is {tables!r}; each rule is a table [[rules]]")
    rules = [_build(Rule, each) for each in tables]
    if table.get("ask_from") == "never":
        table["ask_from"] = None
    return replace(_build(Policy, table), rules=rules)


def _build(kind: type[T], table: dict[str, Any]) -> T:
    """Return a value with the fields that a table gives; a misspelt key is an error, never dropped."""
    keys_of_kind = [each.name for each in fields(cast(Any, kind))]
    for key in table:
        if key not in keys_of_kind:
            raise ConfigError(
                f"{key!r} is no key of a {kind.__name__.lower()}; its keys are {', '.join(keys_of_kind)}"
            )
    return kind(**table)
