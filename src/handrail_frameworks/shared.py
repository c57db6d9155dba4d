"""What the adapters share: a call of either kind of runtime, adopted tools, and questions to people."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from typing import Any, TypeAlias, TypeVar, get_args

from msgspec import Struct

from handrail.calls import ToolCall
from handrail.core.policy import Policy
from handrail.effects import Risk
from handrail.errors import ConfigError
from handrail.events import Event, Progressed
from handrail.ports import Observer
from handrail.records import ApprovalRequest
from handrail.runtime import Runtime
from handrail.sync import SyncRuntime
from handrail.tools.tool import BaseTool
from handrail_frameworks.adopting import adopt

T = TypeVar("T")
RISKS: tuple[Risk, ...] = get_args(Risk)

Declarations: TypeAlias = Mapping[str, Mapping[str, Any]]
"""Declarations for adopted tools, by the tool's name: `{"create_ticket": {"effect": "write", "key": "{title}"}}`."""

Options: TypeAlias = Callable[[Any], Mapping[str, Any]]
"""Returns options of `Runtime.calls`, such as `scope` and `principal`, from what the framework knows of a call.

It may also return `run` and `turn`, in place of the framework's own names.
"""

Steps: TypeAlias = Generator[Callable[[Any], Any], Any, T]
"""Yields what it wants of a runtime, as `lambda runtime: runtime.calls(...)`, and is sent the answer."""


def perform(steps: Steps[T], runtime: SyncRuntime) -> T:
    """Drive steps in the calling thread."""
    try:
        request = next(steps)
        while True:
            request = steps.send(request(runtime))
    except StopIteration as stop:
        value: T = stop.value
        return value


async def perform_async(steps: Steps[T], runtime: Runtime) -> T:
    """Drive steps on the running event loop."""
    try:
        request = next(steps)
        while True:
            request = steps.send(await request(runtime))
    except StopIteration as stop:
        value: T = stop.value
        return value


def hand_over(runtime: Any, calls: Sequence[ToolCall], how: Mapping[str, Any]) -> Any:
    """Hand calls over to a runtime of either kind."""
    return runtime.calls(calls, **how)


# ---------------------------------------------------------------------- tools


class ToolForm(Struct, frozen=True):
    """A tool of the framework, as a model sees it."""

    name: str
    description: str
    parameters: Mapping[str, Any]


def adopt_tools(
    runtime: Runtime, tools: Iterable[ToolForm], declare: Declarations
) -> None:
    """Add tools of the framework to those of a runtime, unless it has adopted the same before.

    Raises:
        ConfigError: A declaration is for none of them.
        DuplicateToolError: The runtime has another tool of that name.
    """
    forms = {form.name: form for form in tools}
    if unknown := declare.keys() - forms.keys():
        raise ConfigError(
            f"`declare` names {sorted(unknown)[0]!r}, and there is no such tool; "
            f"the tools are {', '.join(map(repr, forms)) or 'none'}"
        )
    for form in forms.values():
        settings = declare.get(form.name, {})
        tool = adopt(form.name, form.description, form.parameters, **settings)
        present = runtime.tools.get(form.name)
        if present is not None and is_adopted(present) and present.pin != tool.pin:
            runtime.tools.remove(form.name)
            present = None
        if present is None or not is_adopted(present):
            runtime.tools.add(tool)


def is_adopted(tool: BaseTool) -> bool:
    """Whether the tool's body comes with each call."""
    return "handrail_bodies" in tool.injected_parameters


# ---------------------------------------------------------------------- questions


def may_ask(runtime: Runtime, name: str) -> bool:
    """Whether calls of a tool may need a person, so that it is worth looking for questions about them."""
    tool = runtime.tools.get(name)
    policy = runtime.policy
    if tool is None:
        return False
    asks_by_risk = policy.ask_from is not None and RISKS.index(
        tool.effective_risk
    ) >= RISKS.index(policy.ask_from)
    is_simple = type(policy) is Policy and not policy.rules
    return (
        asks_by_risk
        or bool(tool.approve)
        or tool.write.on_repeat == "ask"
        or not is_simple
    )


def list_questions(
    runtime: Runtime, calls: Sequence[ToolCall], how: Mapping[str, Any]
) -> Steps[list[ApprovalRequest]]:
    """Return the questions that were asked about the run before, where a call may need a person."""
    own_policy = how.get("policy") is not None
    if not own_policy and not any(may_ask(runtime, call.name) for call in calls):
        return []
    questions: list[ApprovalRequest] = (
        yield lambda runtime: runtime.approvals.for_scope(how.get("scope")).list(
            "", run=how["run"]
        )
    )
    return questions


def describe_question(question: ApprovalRequest) -> dict[str, Any]:
    """Return what a person is shown, as JSON. An answer that names `question` counts for this question only."""
    return {
        "question": question.id,
        "tool": question.tool,
        "arguments": dict(question.arguments),
        "reason": question.reason,
        "risk": question.risk,
        "description": question.description,
        "digest": question.digest,
        "required_approvals": question.required_approvals,
        "agreed": list(question.agreed),
    }


def make_unique(call_id: str, earlier: Iterable[str]) -> str:
    """Return an id that no earlier call of the conversation has: some models number calls from 1 in each answer."""
    times = sum(each == call_id for each in earlier)
    return f"{call_id}#{times + 1}" if call_id and times else call_id


def report_progress(send: Callable[[dict[str, Any]], None]) -> Observer:
    """Return an observer that sends the progress of tools, with the ids of their calls."""

    def observe(event: Event) -> None:
        if isinstance(event, Progressed):
            send(
                {
                    "tool_call_id": event.call.id,
                    "tool": event.call.name,
                    "done": event.done,
                    "total": event.total,
                    "note": event.note,
                }
            )

    return observe
