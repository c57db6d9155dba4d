"""The production checklist: what a toolset and its runtime still lack before a model may use them.

    checklist = check(tools)                         # the defaults of a runtime
    checklist = check(runtime.tools, runtime)        # this runtime
    checklist = await run_examples(tools)            # reads are called with their examples, held to what they return

Every line says pass, or what is missing and the one parameter that supplies it.

Rule 1: only the examples of reads are run, under a policy that permits reads only.
Rule 2: a line is about what this code can see; a tool that passes may still be wrong.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from msgspec import Struct
from pydantic_core import PydanticSerializationError, to_jsonable_python

from handrail import plugins
from handrail.core.budgets import Budget
from handrail.core.policy import Policy
from handrail.errors import Json, MissingInjection, ToolDefinitionError
from handrail.linting import Finding, Settings, lint, source_checks
from handrail.runtime import Runtime
from handrail.schemas import argument_errors
from handrail.schemas.walk import compile_schema
from handrail.sync import SyncRuntime
from handrail.tools.keys import names_in
from handrail.tools.tool import BaseTool
from handrail.tools.toolset import Tools, Toolset

MOST_RESULT_BYTES = 64 * 1024
"""About 16,000 tokens: an eighth of a 128k context for one result."""
MOST_TIMEOUT_S = 120.0
"""Nobody waits longer for an answer; what takes longer is started by one tool and asked after by another."""

_WORDING = frozenset(
    {
        "definition-broken",
        "description-missing",
        "description-repeats-name",
        "description-short",
        "description-vague",
        "name-empty",
        "look-alike",
        "name-twice",
        "parameter-undocumented",
        "too-many-tools",
        "effect-contradicted",
    }
)
"""The rules of lint whose breaking makes a model pick the wrong tool, or fill it wrongly."""


class Missing(Struct, frozen=True):
    """What is missing, and the one thing that mends it."""

    what: str
    fix: str


class Line(Struct, frozen=True):
    """One line of the checklist: an item, for one tool or (`tool` empty) for the runtime."""

    item: str
    tool: str
    says: str
    fix: str = ""
    trouble: str = ""

    @property
    def passes(self) -> bool:
        """Whether nothing is missing."""
        return not self.fix

    def as_json(self) -> dict[str, Json]:
        """Return the line as JSON."""
        return {
            "item": self.item,
            "tool": self.tool,
            "pass": self.passes,
            "trouble": self.trouble,
            "says": self.says,
            "fix": self.fix,
        }


class Item(Struct, frozen=True):
    """One item: its name, the trouble that comes of it, and what is missing for a tool."""

    name: str
    trouble: str
    missing: Callable[[BaseTool], Iterator[Missing]]
    passes: str


class Checklist(Struct, frozen=True):
    """All lines, those of each tool together."""

    lines: Sequence[Line]

    @property
    def passes(self) -> bool:
        """Whether nothing is missing."""
        return all(line.passes for line in self.lines)

    @property
    def missing(self) -> Sequence[Line]:
        """The lines that do not pass."""
        return [line for line in self.lines if not line.passes]

    def as_json(self) -> dict[str, Json]:
        """Return the checklist as one JSON document."""
        return {"pass": self.passes, "lines": [line.as_json() for line in self.lines]}

    def __repr__(self) -> str:
        return f"<Checklist of {len(self.lines)} lines: {len(self.missing)} missing>"


# ---------------------------------------------------------------------- items of a tool


def _unrepeatable(tool: BaseTool) -> Iterator[Missing]:
    if tool.effect is None:
        yield Missing(
            "declares no effect, so it counts as a write without a key",
            'effect="read", or "write" with a key',
        )
    elif tool.writes and not (tool.key or tool.verify or tool.replay):
        first = next(iter(tool.parameters.get("required", ())), "…")
        yield Missing(
            "another run, or a start after a crash, cannot tell the same act from a new one",
            f'key="{tool.name}:{{{first}}}", and in it all that makes two acts two',
        )
    if tool.write.one_request and len(lines := source_checks.requests_in(tool.run)) > 1:
        numbers = ", ".join(map(str, lines))
        yield Missing(
            f"declares `hr.Write(one_request=True)` and makes {len(lines)} (lines {numbers} of it): when a later one "
            "fails, the write counts as not done and is started again",
            "`raise hr.NoEffect(…)` where nothing happened, in place of `hr.Write(one_request=True)`",
        )


def _endless(tool: BaseTool) -> Iterator[Missing]:
    if tool.timeout_s > MOST_TIMEOUT_S:
        yield Missing(
            f"may take {tool.timeout_s:g} s, and everybody waits for it",
            f"timeout_s={MOST_TIMEOUT_S:g} or less",
        )
    in_a_thread = not tool.is_async and tool.blocking and tool.isolation == "none"
    ends = source_checks.checks_cancellation(tool.run) or source_checks.ends_by_itself(
        tool.run
    )
    if in_a_thread and not ends:
        yield Missing(
            "a thread cannot be ended: the call is answered at its deadline, and the thread hangs on",
            'isolation="process", blocking=False where it is quick for certain, or a look at `context.cancelled`',
        )
    for seen in source_checks.blocking_calls(tool.run):
        yield Missing(f"{seen.what} (line {seen.line} of it)", seen.instead)


def _racing(tool: BaseTool) -> Iterator[Missing]:
    if (
        tool.effect in ("write", "destructive")
        and not tool.resource
        and tool.limits.max_concurrency != 1
    ):
        if isinstance(tool.key, str):
            parameters = sorted(names_in(tool.key))
        else:
            parameters = list(tool.parameters.get("required", ()))
        what = next(iter(parameters), "…")
        yield Missing(
            "two calls on one thing run at once",
            f'resource="{str(what).removesuffix("_id")}:{{{what}}}"',
        )


def _too_large(tool: BaseTool) -> Iterator[Missing]:
    if (tool.limits.result_bytes or 0) > MOST_RESULT_BYTES:
        yield Missing(
            f"one result may take {tool.limits.result_bytes:,} bytes of the context",
            f"result_bytes={MOST_RESULT_BYTES} or less; the model reads on with `read_result`",
        )


def _unclear(tool: BaseTool) -> Iterator[Missing]:
    for seen in source_checks.unclear_errors(tool.run):
        yield Missing(f"{seen.what} (line {seen.line} of it)", seen.instead)


def _without_approval(tool: BaseTool) -> Iterator[Missing]:
    if (
        tool.effect == "destructive"
        and tool.effective_risk != "high"
        and not tool.approve
    ):
        yield Missing(
            "is destructive, and its lowered risk means that nobody is asked",
            "approve=True",
        )


ITEMS: Sequence[Item] = (
    Item(
        "idempotency",
        "a retry creates the ticket twice",
        _unrepeatable,
        "a retry changes nothing, or its key shows it",
    ),
    Item("timeout", "a query hangs the service", _endless, "ends at its deadline"),
    Item(
        "concurrency",
        "two calls race",
        _racing,
        "calls on one thing wait for each other",
    ),
    Item(
        "result size",
        "a result blows the context",
        _too_large,
        "is cut to its size, and can be read on",
    ),
    Item(
        "errors",
        "the model does not know how to go on",
        _unclear,
        "fails in words for the model",
    ),
    Item(
        "approvals",
        "it is deleted before anybody knew",
        _without_approval,
        "asks where it must",
    ),
)
DESCRIPTION = "description"
WRONG_TOOL = "the wrong tool is picked"
"""What comes of a description that lint complains of; it is judged beside the others, so it is no `Item`."""


# ---------------------------------------------------------------------- the list


def check(
    tools: Tools,
    runtime: Runtime | SyncRuntime | None = None,
    settings: Settings | None = None,
) -> Checklist:
    """Go through the list for every tool, and for the runtime if one is given."""
    if isinstance(tools, Toolset):
        toolset = tools
    else:
        toolset = Toolset(tools)
    by_tool: dict[str, list[Finding]] = {}
    for finding in lint(toolset, settings).findings:
        if finding.rule in _WORDING:
            by_tool.setdefault(finding.tool, []).append(finding)
    lines: list[Line] = []
    for tool in toolset:
        lines += _tool_lines(tool, by_tool.get(tool.name, ()))
    for each in by_tool.get("", ()):  # about all tools together
        lines.append(Line(DESCRIPTION, "", each.message, each.rewrite, WRONG_TOOL))
    if runtime:
        lines += _lines_of_runtime(runtime)
    return Checklist(lines)


def _tool_lines(tool: BaseTool, findings: Sequence[Finding]) -> Iterator[Line]:
    try:
        _ = tool.parameters
    except ToolDefinitionError as error:
        yield Line(DESCRIPTION, tool.name, str(error), "describe its parameters")
        return
    for item in ITEMS:
        missing = list(item.missing(tool))
        yield from (
            Line(item.name, tool.name, each.what, each.fix, item.trouble)
            for each in missing
        )
        if not missing:
            yield Line(item.name, tool.name, item.passes)
    yield from (
        Line(DESCRIPTION, tool.name, each.message, each.rewrite, WRONG_TOOL)
        for each in findings
    )
    if not findings:
        yield Line(DESCRIPTION, tool.name, "differs from the others")


def _lines_of_runtime(runtime: Runtime | SyncRuntime) -> Iterator[Line]:
    """Judge what holds for all tools: who is asked, what a run may spend, what is recorded."""
    yield _judge_approvals(runtime)
    yield _judge_provenance(runtime)
    yield _judge_budget(runtime.budget)
    if runtime.result_bytes > MOST_RESULT_BYTES:
        yield Line(
            "result size",
            "",
            f"one result may take {runtime.result_bytes:,} bytes",
            f"result_bytes={MOST_RESULT_BYTES}",
        )
    else:
        yield Line(
            "result size", "", f"a result is cut at {runtime.result_bytes:,} bytes"
        )
    if isinstance(
        getattr(runtime.store, "wrapped", runtime.store),
        plugins.load("stores", "memory"),
    ):
        text = "runs, keys of writes and the record of what was done are gone when the process ends"
        yield Line("audit", "", text, 'store="sqlite:///handrail.db"')
    else:
        yield Line("audit", "", "what was done is recorded")


def _judge_approvals(runtime: Runtime | SyncRuntime) -> Line:
    asks = any(
        tool.approve
        or runtime.policy.ask_from in ("low", "medium")
        or tool.effective_risk == "high"
        for tool in runtime.tools
    )
    if not asks:
        return Line("approvals", "", "no tool asks a person")
    if runtime.policy.own_approval:
        return Line(
            "approvals",
            "",
            "the person on whose behalf a call is made may approve it",
            "own_approval=False in the policy",
        )
    if runtime.approver is not None:
        return Line("approvals", "", "somebody is there to be asked")
    trouble = "a tool asks a person and there is nobody to ask: its runs wait"
    return Line("approvals", "", trouble, "approver=…")


def _judge_provenance(runtime: Runtime | SyncRuntime) -> Line:
    if runtime.policy.provenance == "ask":
        says = "a run that has read a stranger's words asks before it sends elsewhere"
        return Line("provenance", "", says)
    return Line(
        "provenance",
        "",
        "whoever wrote a page that a run reads may have it send data anywhere, and nobody is asked",
        'provenance="ask" in the policy',
    )


def _judge_budget(budget: Budget) -> Line:
    for name in ("time_s", "calls", "turns"):
        if getattr(budget, name) is None:
            return Line("limits", "", "a run may go on for ever", f"Budget({name}=…)")
    spend = f"{budget.time_s:g} s, {budget.calls} calls and {budget.turns} turns"
    return Line("limits", "", f"a run ends after {spend}")


# ---------------------------------------------------------------------- examples


async def run_examples(
    tools: Tools, *, deps: Any = None, inject: Mapping[str, Any] | None = None
) -> Checklist:
    """Call the reads with their examples, and hold what they return to what they declare."""
    if isinstance(tools, Toolset):
        toolset = tools
    else:
        toolset = Toolset(tools)
    lines: list[Line] = []
    policy = Policy(max_permission="read", ask_from=None)
    async with Runtime(toolset, policy=policy) as runtime:
        for tool in toolset:
            if tool.effect != "read":
                lines.append(
                    Line("examples", tool.name, "is no read, and is not run here")
                )
            elif not tool.examples:
                lines.append(
                    Line(
                        "examples", tool.name, "has no example to run", "examples=[{…}]"
                    )
                )
            for example in tool.examples if tool.effect == "read" else ():
                lines.append(await _try(runtime, tool, example, deps, inject))
    return Checklist(lines)


async def _try(
    runtime: Runtime,
    tool: BaseTool,
    example: Mapping[str, Json],
    deps: Any,
    inject: Any,
) -> Line:
    arguments = argument_errors.format_value(dict(example))
    try:
        result = await runtime.call(
            tool.name,
            example,
            deps=deps,
            inject=inject,
        )
    except MissingInjection as error:
        return Line("examples", tool.name, f"cannot be run here: {error}", "--inject")
    if result.failure:
        return Line(
            "examples",
            tool.name,
            f"fails for {arguments}: {result.failure.code}: {result.failure.message}",
            "examples",
        )
    if difference := difference_from_schema(tool, result.value):
        return Line(
            "examples",
            tool.name,
            f"for {arguments} it returned what it did not promise: {difference}",
            "returns",
        )
    return Line("examples", tool.name, f"returns what it promises for {arguments}")


def difference_from_schema(tool: BaseTool, value: Any) -> str:
    """Say how a value differs from what the tool declares to return; empty when it does not, or declares nothing."""
    schema = tool.result_schema
    if schema is None:
        return ""
    try:
        plain = to_jsonable_python(value)
    except (PydanticSerializationError, ValueError) as error:
        return f"it has no JSON form ({error})"
    violation = next(iter(compile_schema(schema).iter_errors(plain)), None)
    if violation is None:
        return ""
    place = "/".join(map(str, violation.instance_path))
    return f"{f'at {place}: ' if place else ''}{violation.message[:200]}"
