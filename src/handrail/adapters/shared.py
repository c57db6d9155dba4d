"""What the adapters share: whose a call is, which tools a person must approve, and what a person is shown."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Mapping
from typing import Any, TypeAlias, TypeVar, get_args

from handrail.core.policy import Policy
from handrail.effects import Risk
from handrail.events import Event, Progressed
from handrail.ports import Observer
from handrail.records import ApprovalRequest
from handrail.runtime import Runtime
from handrail.sync import SyncRuntime

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


def may_ask(runtime: Runtime, name: str) -> bool:
    """Whether calls of a tool may need a person, so that it is worth looking for questions about them."""
    tool, policy = runtime.tools.get(name), runtime.policy
    if tool is None:
        return False
    asks_by_risk = policy.ask_from is not None and RISKS.index(
        tool.effective_risk
    ) >= RISKS.index(policy.ask_from)
    is_simple = type(policy) is Policy and not policy.rules
    return (
        asks_by_risk or bool(tool.approve) or tool.on_repeat == "ask" or not is_simple
    )


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
    """Return an id that no earlier call of the conversation has: some models number the calls of each answer anew."""
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
