"""Admission decides about values only: it reaches nothing outside of the process, whatever a tool demands."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from threading import current_thread

import pytest

import handrail as hr
from handrail.calls import ToolCall
from handrail.core.admission import ParsedCall, admit
from handrail.core.policy import Policy
from handrail.errors import Code, Failure
from handrail.sandboxes import bubblewrap, levels
from handrail.tools.function_tool import FunctionTool

OUTSIDE = (
    "subprocess.",
    "open",
    "socket.",
    "os.fork",
    "os.posix_spawn",
    "os.exec",
    "os.system",
    "os.listdir",
)

_watched: list[list[str]] = []


def _note(event: str, _arguments: object) -> None:
    if _watched and event.startswith(OUTSIDE):
        _watched[-1].append(event)


sys.addaudithook(_note)  # stays for the process, and does nothing while nobody watches


@contextmanager
def watching() -> Iterator[list[str]]:
    """Give a list of the processes, files and sockets that are begun meanwhile."""
    _watched.append([])
    try:
        yield _watched[-1]
    finally:
        _watched.pop()


def refund(order: str, amount: float) -> str:
    """Give money back."""
    return f"{amount} for {order}"


def admission(isolation, found):
    tool = FunctionTool(
        refund,
        effect="write",
        key="refund:{order}",
        approve="amount > 1",
        isolation=isolation,
    )
    parsed = ParsedCall(ToolCall("c1", "refund"), tool, {"order": "881", "amount": 1})
    return lambda: admit(parsed, Policy(), isolation=found)


NOTHING_YET = None
PROCESS_ONLY = levels.IsolationLevels(
    [levels.LevelOffer("isolated", "it is broken"), levels.LevelOffer("process", "")]
)
CONTAINER = levels.IsolationLevels([levels.LevelOffer("container", "")])


@pytest.fixture
def unknown_machine():
    """Nobody has looked for sandboxes: whoever asks for one starts processes."""
    levels.list_sandboxes.cache_clear()
    bubblewrap._probe.cache_clear()
    yield
    levels.list_sandboxes.cache_clear()
    bubblewrap._probe.cache_clear()


@pytest.mark.parametrize("isolation", levels.LEVELS)
@pytest.mark.parametrize(("found", "offered"), [
    (NOTHING_YET, levels.LEVELS),
    (PROCESS_ONLY, ("none", "process")),
    (CONTAINER, levels.LEVELS),
])  # fmt: skip
def test_admission_starts_no_process_and_opens_no_file_or_socket(
    unknown_machine, isolation, found, offered
):
    admit_call = admission(isolation, found)
    admission("none", None)()  # loads what is compiled and imported once
    with watching() as begun:
        outcome = admit_call()
    assert begun == []
    code = outcome.code if isinstance(outcome, Failure) else None
    assert code == (None if isolation in offered else Code.NOT_ISOLATED)


def test_a_process_a_file_and_a_socket_would_be_noticed(unknown_machine):
    with watching() as begun:
        _ = [each.lacks for each in levels.offered()]
    assert begun != []


def test_the_levels_are_searched_in_another_thread_before_the_first_call_and_once(
    monkeypatch,
):
    searched = []
    monkeypatch.setattr(
        levels, "offered", lambda: searched.append(current_thread().name) or []
    )
    levels.SEARCH.reset()
    tool = FunctionTool(refund, effect="read", isolation="isolated")
    try:
        with hr.SyncRuntime([tool]) as runtime:
            assert searched == []
            results = [
                runtime.call("refund", {"order": "881", "amount": 1}) for _ in range(2)
            ]
    finally:
        levels.SEARCH.reset()
    assert [result.failure.code for result in results] == [Code.NOT_ISOLATED] * 2
    assert searched == ["handrail sandboxes"]


def test_a_program_without_isolated_tools_searches_nothing():
    levels.SEARCH.reset()
    with hr.SyncRuntime(
        [FunctionTool(refund, effect="read", isolation="none")]
    ) as runtime:
        assert runtime.call("refund", {"order": "881", "amount": 1}).ok
    assert levels.SEARCH.found is None
    assert not hr.Toolset([refund]).needs_sandbox


def test_a_step_that_needs_a_sandbox_counts_for_the_tool_that_it_follows():
    step = FunctionTool(refund, effect="write", isolation="isolated")
    first = FunctionTool(
        refund,
        name="first",
        effect="write",
        then=hr.Then(step, {"order": "1", "amount": 1}),
    )
    assert hr.Toolset([first]).needs_sandbox
