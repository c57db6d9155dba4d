"""Where code keeps control of a run's course: calls that must be made, and calls that must not, at a step.

    flow=[hr.Require("search_docs", turn=1), hr.Forbid("refund", until="get_order")]

A model is told by its provider's `tool_choice` where one can say it. It is held to the rule in any case: a call that
the step does not allow is refused, and an answer before its time is not taken.

Rule 1: what a rule decides follows from the step alone, so a resumed run comes to the same.
Rule 2: a rule is about what the model calls. What code calls (`then=`) is code's own affair.
Rule 3: a model that will not do as it must ends the run after `MOST_OMITTED` turns, with the reason.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from fnmatch import fnmatchcase
from typing import TypeAlias

from msgspec import Struct, field

from handrail.core.batch import Batch
from handrail.errors import Code, ConfigError, Failure, JournalMismatch, Json
from handrail.parsing import names
from handrail.tools.toolset import Toolset

MOST_OMITTED = 3
"""Turns in a row in which a model may leave out what it must call."""


class Step(Struct, frozen=True):
    """Where a run stands when its model is asked.

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
    owed: Require | None = None
    """What must be called now."""
    omitted: int = 0

    def begin(self, turn: int) -> None:
        """A turn begins."""
        self.step = Step(turn, self.step.called, self.step.succeeded)
        if self.owed is None:
            owing = (each for each in self.rules if isinstance(each, Require) and each.turn is not None)
            self.owed = next((each for each in owing if (each.turn or 0) <= turn and self._is_owed(each)), None)

    def choice(self, tools: Toolset) -> str:
        """Return the turn's `tool_choice`; empty where the rules have none."""
        if self.owed is not None:
            may = self.owed_among(tools)
            return may[0] if len(may) == 1 else "required"
        return "none" if len(tools) and all(self.refusal(tool.name) for tool in tools) else ""

    def owed_among(self, tools: Toolset) -> list[str]:
        """Name the tools of which one must be called now; none where nothing must."""
        return [] if self.owed is None else [tool.name for tool in tools if fnmatchcase(tool.name, self.owed.tool)]

    def refusal(self, tool: str) -> Failure | None:
        """Return why the model may not call this tool at this step."""
        if self.owed is not None and not fnmatchcase(tool, self.owed.tool):
            return Failure(
                Code.NOT_PERMITTED,
                f"This step is for `{self.owed.tool}`, and `{tool}` was not called.",
                f"Call `{self.owed.tool}` first.",
            )
        for rule in self.rules:
            if isinstance(rule, Forbid) and self._forbids(rule, tool):
                return _forbidden(rule, tool)
        return None

    def heeded(self, batch: Batch | None, *, answers: bool) -> tuple[str, str]:
        """Note what was called in a turn.

        Args:
            answers: The model wants to answer.

        Returns:
            What the model is told where its answer is not taken, and why the run must stop; each empty by default.
        """
        results = [] if batch is None else [*batch.finished(), *batch.followed.values()]
        ran = {each.name for each in results if each.attempts or each.replayed}
        succeeded = {each.name for each in results if each.ok}
        self.step = Step(self.step.turn, self.step.called | ran, self.step.succeeded | succeeded)
        if answers and self.owed is None:
            owing = (each for each in self.rules if isinstance(each, Require) and each.turn is None)
            self.owed = next(filter(self._is_owed, owing), None)
        if self.owed is None or any(fnmatchcase(name, self.owed.tool) for name in ran):
            self.owed, self.omitted = None, 0
            return "", ""
        self.omitted += 1
        told = f"This was not taken as an answer: call `{self.owed.tool}` first. Answer once you have read its result."
        if self.omitted < MOST_OMITTED:
            return told, ""
        return told, f"the model must call {self.owed.tool}, and in {self.omitted} turns has not"

    def _is_owed(self, rule: Require) -> bool:
        met = any(fnmatchcase(name, rule.tool) for name in self.step.called)
        return not met and (rule.when is None or rule.when(self.step))

    def _forbids(self, rule: Forbid, tool: str) -> bool:
        if not fnmatchcase(tool, rule.tool) or (rule.until and fnmatchcase(tool, rule.until)):
            return False
        if rule.until and any(fnmatchcase(name, rule.until) for name in self.step.succeeded):
            return False
        return rule.when is None or rule.when(self.step)


def _forbidden(rule: Forbid, tool: str) -> Failure:
    if rule.until:
        said = f"`{tool}` may be called once `{rule.until}` has succeeded, in a later turn."
        return Failure(Code.NOT_PERMITTED, said, f"Call `{rule.until}` first, and read what it returns.")
    return Failure(Code.NOT_PERMITTED, f"`{tool}` may not be called at this step.", "Go on without it.")


def course(rules: Rules, tools: Iterable[str]) -> FlowState:
    """Return the course of a run.

    Raises:
        ConfigError: A rule is none, or names no tool of this run.
    """
    known = list(tools)
    for rule in rules:
        if not isinstance(rule, Require | Forbid):
            raise ConfigError(f"flow holds {rule!r}; a rule is a `Require` or a `Forbid`")
        for name in filter(None, (rule.tool, rule.until if isinstance(rule, Forbid) else "")):
            if not any(fnmatchcase(each, name) for each in known):
                near = names.nearest(name, known)
                hint = f"; did you mean {near[0]!r}?" if near else ""
                raise ConfigError(f"flow names {name!r}, which is no tool of this run{hint}")
    return FlowState(tuple(rules))


# ---------------------------------------------------------------------- as a journal keeps them


def rules_as_json(rules: Rules) -> list[Json]:
    """Return rules as a journal keeps them; of a function it keeps that there was one."""
    return [
        ["require", each.tool, each.turn, each.when is not None]
        if isinstance(each, Require)
        else ["forbid", each.tool, each.until, each.when is not None]
        for each in rules
    ]


def rules_from_json(told: Sequence[Json]) -> Rules:
    """Return rules from a journal.

    Raises:
        ConfigError: One of them depends on a function, so they must be given again.
        JournalMismatch: They cannot be read.
    """
    try:
        if any(by_function for *_, by_function in told):
            raise ConfigError("a rule of this run's flow depends on a function, which cannot be kept; give flow= again")
        return [_RULES[kind](tool, beside) for kind, tool, beside, _ in told]
    except (KeyError, TypeError, ValueError) as error:
        raise JournalMismatch(f"the rules of a run's flow cannot be read: {error!r}") from error


_RULES: Mapping[str, Callable[[str, Json], Require | Forbid]] = {"require": Require, "forbid": Forbid}
