"""Where code keeps control of a run: calls that must be made, and calls that must not, at a step.

    flow=[hr.Require("search_docs", turn=1), hr.Forbid("refund", until="get_order")]

The rule goes to the provider as its `tool_choice` where that can express it. The model is held to it in any case: a
call that the step does not allow is refused, and an answer before its time is not taken.

Rule 1: what a rule decides follows from the step alone, so a resumed run comes to the same.
Rule 2: a rule is about what the model calls. What code calls (`then=`) is code's own affair.
Rule 3: a model that will not do as it must ends the run after `MOST_OMITTED` turns, with the reason.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from fnmatch import fnmatchcase
from typing import TypeAlias

from msgspec import Struct, field
from msgspec.structs import replace

from handrail.calls import ToolResult
from handrail.core.batch import Batch
from handrail.errors import Code, ConfigError, Failure, JournalMismatch, Json
from handrail.parsing import names
from handrail.tools.toolset import Toolset

MOST_OMITTED = 3
"""Turns in a row in which a model may leave out what it must call."""


class Step(Struct, frozen=True):
    """What a rule can depend on when the model is asked.

    Attributes:
        turn: Of this run, from 1.
        called: Tools that have run in it, whatever came of it.
        succeeded: Those of which a call has succeeded.
    """

    turn: int
    called: frozenset[str] = frozenset()
    succeeded: frozenset[str] = frozenset()


When: TypeAlias = Callable[[Step], bool]


class Require(Struct, frozen=True):
    """A call that the model must make; until then every other call is refused.

    Attributes:
        tool: A name, with `*` and `?` as in file names: one of those that match.
        turn: From which turn on; None: before it answers. The rule is met by a call that ran, whatever came of it.
        when: The steps at which the rule holds; all of them by default.
    """

    tool: str
    turn: int | None = None
    when: When | None = None


class Forbid(Struct, frozen=True):
    """A call that the model must not make.

    Attributes:
        tool: A name, with `*` and `?` as in file names.
        until: A tool that must have succeeded first, in an earlier turn.
        when: The steps at which the rule holds; all of them by default.
    """

    tool: str
    until: str = ""
    when: When | None = None


Rules: TypeAlias = "Sequence[Require | Forbid]"


class FlowState(Struct):
    """The rules of one run, and how far it has come among them."""

    rules: Rules
    step: Step = field(default_factory=lambda: Step(0))
    required: Require | None = None
    """What must be called now."""
    omitted: int = 0

    def start_turn(self, turn: int) -> None:
        """Note that a turn begins, and find out what must be called in it."""
        self.step = replace(self.step, turn=turn)
        if self.required is None:
            due = (
                rule
                for rule in self._requirements()
                if rule.turn is not None and rule.turn <= turn
            )
            self.required = next(filter(self._is_unmet, due), None)

    def tool_choice(self, tools: Toolset) -> str:
        """Return the turn's `tool_choice`; empty where the rules have none."""
        if self.required is not None:
            names = self.list_required_tools(tools)
            if len(names) == 1:
                return names[0]
            return "required"
        if len(tools) and all(self.refusal(tool.name) for tool in tools):
            return "none"
        return ""

    def list_required_tools(self, tools: Toolset) -> list[str]:
        """Name the tools of which one must be called now; none where nothing must."""
        if self.required is None:
            return []
        return [
            tool.name for tool in tools if fnmatchcase(tool.name, self.required.tool)
        ]

    def list_allowed_tools(self, tools: Toolset) -> frozenset[str] | None:
        """Name the tools that may be called at this step; None where it is all of them, or none."""
        allowed = frozenset(
            tool.name for tool in tools if self.refusal(tool.name) is None
        )
        return allowed if 0 < len(allowed) < len(tools) else None

    def refusal(self, tool: str) -> Failure | None:
        """Return why the model may not call this tool at this step."""
        required = self.required
        if required is not None and not fnmatchcase(tool, required.tool):
            return Failure(
                Code.NOT_PERMITTED,
                f"This step is for `{required.tool}`, and `{tool}` was not called.",
                f"Call `{required.tool}` first.",
            )
        for rule in self.rules:
            if isinstance(rule, Forbid) and self._forbids(rule, tool):
                return _forbidden(rule, tool)
        return None

    def observe_turn(self, batch: Batch | None, *, answers: bool) -> tuple[str, str]:
        """Note what was called in a turn.

        Args:
            answers: The model wants to answer.

        Returns:
            What the model reads where its answer is not taken, and why the run must stop; each empty by default.
        """
        results: list[ToolResult] = []
        if batch is not None:
            results = [*batch.collect_results(), *batch.followed.values()]
        called = {each.name for each in results if each.attempts or each.replayed}
        self.step = replace(
            self.step,
            called=self.step.called | called,
            succeeded=self.step.succeeded | {each.name for each in results if each.ok},
        )
        if answers and self.required is None:
            self._require_before_answer()
        if self.required is None or _matches_any(self.required.tool, called):
            self.required = None
            self.omitted = 0
            return "", ""
        self.omitted += 1
        tool = self.required.tool
        complaint = f"This was not taken as an answer: call `{tool}` first. Answer once you have read its result."
        if self.omitted < MOST_OMITTED:
            return complaint, ""
        return (
            complaint,
            f"the model must call {tool}, and in {self.omitted} turns has not",
        )

    def _require_before_answer(self) -> None:
        due = (rule for rule in self._requirements() if rule.turn is None)
        self.required = next(filter(self._is_unmet, due), None)

    def _requirements(self) -> Iterator[Require]:
        return (rule for rule in self.rules if isinstance(rule, Require))

    def _is_unmet(self, rule: Require) -> bool:
        return not _matches_any(rule.tool, self.step.called) and (
            rule.when is None or rule.when(self.step)
        )

    def _forbids(self, rule: Forbid, tool: str) -> bool:
        if not fnmatchcase(tool, rule.tool) or (
            rule.until and fnmatchcase(tool, rule.until)
        ):
            return False
        if rule.until and _matches_any(rule.until, self.step.succeeded):
            return False
        return rule.when is None or rule.when(self.step)


def _matches_any(pattern: str, names: Iterable[str]) -> bool:
    return any(fnmatchcase(name, pattern) for name in names)


def _forbidden(rule: Forbid, tool: str) -> Failure:
    if rule.until:
        message = f"`{tool}` may be called once `{rule.until}` has succeeded, in a later turn."
        return Failure(
            Code.NOT_PERMITTED,
            message,
            f"Call `{rule.until}` first, and read what it returns.",
        )
    return Failure(
        Code.NOT_PERMITTED,
        f"`{tool}` may not be called at this step.",
        "Go on without it.",
    )


def start_flow(rules: Rules, tools: Iterable[str]) -> FlowState:
    """Return the state of a run's rules at its start.

    Raises:
        ConfigError: A rule is none, or names no tool of this run.
    """
    known_names = list(tools)
    for rule in rules:
        if not isinstance(rule, Require | Forbid):
            raise ConfigError(
                f"flow holds {rule!r}; a rule is a `Require` or a `Forbid`"
            )
        for name in _tools_named_by(rule):
            if not any(fnmatchcase(each, name) for each in known_names):
                nearest = names.nearest(name, known_names)
                hint = f"; did you mean {nearest[0]!r}?" if nearest else ""
                raise ConfigError(
                    f"flow names {name!r}, which is no tool of this run{hint}"
                )
    return FlowState(tuple(rules))


def _tools_named_by(rule: Require | Forbid) -> list[str]:
    if isinstance(rule, Forbid) and rule.until:
        return [rule.tool, rule.until]
    return [rule.tool]


# ---------------------------------------------------------------------- as a journal stores them


def rules_as_json(rules: Rules) -> list[Json]:
    """Return rules as a journal stores them; of a function it stores that there was one."""
    return [_rule_as_json(rule) for rule in rules]


def _rule_as_json(rule: Require | Forbid) -> Json:
    depends_on_function = rule.when is not None
    if isinstance(rule, Require):
        return ["require", rule.tool, rule.turn, depends_on_function]
    return ["forbid", rule.tool, rule.until, depends_on_function]


def rules_from_json(stored: Sequence[Json]) -> Rules:
    """Return rules from a journal.

    Raises:
        ConfigError: One of them depends on a function, so they must be given again.
        JournalMismatch: They cannot be read.
    """
    try:
        if any(by_function for *_, by_function in stored):
            raise ConfigError(
                "a rule of this run's flow depends on a function, which cannot be stored; give flow= again"
            )
        return [_RULES[kind](tool, beside) for kind, tool, beside, _ in stored]
    except (KeyError, TypeError, ValueError) as error:
        raise JournalMismatch(
            f"the rules of a run's flow cannot be read: {error!r}"
        ) from error


_RULES: Mapping[str, Callable[[str, Json], Require | Forbid]] = {
    "require": Require,
    "forbid": Forbid,
}
