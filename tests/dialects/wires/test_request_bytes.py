"""Requests as bytes: they tell the same whether or not anything was kept, and a turn spells only what is new."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

import handrail as hr
from handrail import plugins
from handrail.calls import Media, ToolCall, ToolResult
from handrail.dialects.wires import request_bytes
from handrail.dialects.wires.request_bytes import RequestEncoder
from handrail.messages import (
    AssistantMessage,
    Options,
    SystemMessage,
    ToolMessage,
    Turn,
    UserMessage,
)

WIRES = [
    name
    for name in plugins.list_names("dialects")
    if hasattr(hr.dialect(name), "history")
]
OPTIONS = Options("m", temperature=0.5)


@hr.tool(effect="read")
def look_up(city: str) -> str:
    """Look something up."""
    return city


TOOLS = hr.Toolset([look_up])
TEXTS = st.sampled_from(["", " ", "yes", "北京"])
# it stands at a request's head
RAWS = [None, None, *({"type": "message", "container": {"id": id}} for id in "ab")]
A_DOT = Media("image/png", b"\x89PNG")


@st.composite
def exchanges(draw):
    """Say something and hear something, soundly or not."""
    ids = draw(st.lists(st.sampled_from(["a", "b", "c", "d", "e"]), max_size=2))
    calls = [
        ToolCall(id, "look_up", draw(st.sampled_from(['{"city": "Oslo"}', "{broken"])))
        for id in ids
    ]
    answer = AssistantMessage(
        Turn(
            draw(TEXTS),
            calls=calls,
            finish="calls" if calls else "stop",
            raw=draw(st.sampled_from(RAWS)),
        )
    )
    results = [
        ToolMessage(
            ToolResult(
                call.id,
                call.name,
                value=1,
                text="1",
                media=draw(st.sampled_from([(), (A_DOT,)])),
            )
        )
        for call in calls[: draw(st.integers(0, 2)) or None]
    ]
    said = [UserMessage(text) for text in draw(st.lists(TEXTS, max_size=1))]
    told = [
        SystemMessage(text)
        for text in draw(st.sampled_from([[], [], [], ["Be brief."]]))
    ]
    return [answer, *results, *told, *said]


def fresh(wire, messages, options=OPTIONS):
    return json.loads(
        json.dumps(hr.dialect(wire).encode_request(messages, TOOLS, options))
    )


@pytest.mark.parametrize("wire", WIRES)
@given(opening=TEXTS, turns=st.lists(exchanges(), max_size=6))
def test_what_is_gone_on_with_tells_what_is_spelled_anew(wire, opening, turns):
    kept, messages = (
        RequestEncoder(hr.dialect(wire)),
        [SystemMessage("Help."), UserMessage(opening)],
    )
    for turn in [[], *turns]:
        messages = [*messages, *turn]
        assert json.loads(kept.body(messages, TOOLS, OPTIONS)) == fresh(wire, messages)


def exchange(number):
    call = ToolCall(f"call_{number}", "look_up", f'{{"city": "Oslo {number}"}}')
    return [
        AssistantMessage(Turn(calls=[call], finish="calls")),
        ToolMessage(ToolResult(call.id, call.name, value=number, text=str(number))),
    ]


class Counting:
    """A wire that counts the messages it is given to spell."""

    def __init__(self, wire):
        self.wire, self.spelled = hr.dialect(wire), []
        self.history, self.definitions = self.wire.history, self.wire.definitions

    def encode_request(self, messages, tools, options):
        self.spelled.append(len(messages))
        return self.wire.encode_request(messages, tools, options)


@pytest.mark.parametrize("wire", WIRES)
def test_a_turn_spells_only_what_is_new(wire):
    counting = Counting(wire)
    kept, messages = (
        RequestEncoder(counting),
        [SystemMessage("Help."), UserMessage("How warm is it?")],
    )
    for number in range(5):
        body = kept.body(messages, TOOLS, OPTIONS)
        messages = [*messages, *exchange(number)]
    assert counting.spelled == [2, 2, 2, 2, 2]
    assert json.loads(body) == fresh(wire, messages[:-2])


CHANGES = {
    "a message is another object": lambda messages, options: ([UserMessage("!"), *messages[1:]], options),
    "the options are others": lambda messages, options: (messages, replace(options, temperature=1.0)),
    "something was taken out": lambda messages, options: (messages[1:], options),
    "an id comes again": lambda messages, options: ([*messages[:-2], *exchange(0)], options),
    "a result is missing": lambda messages, options: (messages[:-1], options),
    "the engineer speaks": lambda messages, options: ([*messages, SystemMessage("Hurry.")], options),
    "no call is welcome": lambda messages, options: (messages, replace(options, tool_choice="none")),
}  # fmt: skip


@pytest.mark.parametrize("wire", WIRES)
@pytest.mark.parametrize("change", CHANGES)
def test_nothing_stale_is_told_when(change, wire):
    kept, messages = (
        RequestEncoder(hr.dialect(wire)),
        [SystemMessage("Help."), UserMessage("?"), *exchange(0)],
    )
    kept.body(messages, TOOLS, OPTIONS)
    changed, options = CHANGES[change]([*messages, *exchange(1)], OPTIONS)
    assert json.loads(kept.body(changed, TOOLS, options)) == fresh(
        wire, changed, options
    )


@pytest.mark.parametrize("wire", WIRES)
@pytest.mark.parametrize("before", [0, 1, 2])
def test_a_result_that_comes_late_stands_behind_its_call_all_the_same(wire, before):
    kept, messages = RequestEncoder(hr.dialect(wire)), [UserMessage("?")]
    call, result = exchange(7)
    for new in ([], exchange(0))[:before]:
        messages = [*messages, *new]
        kept.body(messages, TOOLS, OPTIONS)
    for new in (
        [call, UserMessage("And?")],
        [AssistantMessage(Turn("Wait.")), result, UserMessage("So?")],
    ):
        messages = [*messages, *new]
        assert json.loads(kept.body(messages, TOOLS, OPTIONS)) == fresh(wire, messages)


@pytest.mark.parametrize("wire", WIRES)
def test_a_run_that_may_not_call_tells_what_depends_on_its_calls_anew(wire):
    kept, messages, options = (
        RequestEncoder(hr.dialect(wire)),
        [UserMessage("?")],
        replace(OPTIONS, tool_choice="none"),
    )
    for new in ([], exchange(0)):
        messages = [*messages, *new]
        assert json.loads(kept.body(messages, TOOLS, options)) == fresh(
            wire, messages, options
        )


def test_tools_that_have_changed_are_told_anew():
    @hr.tool(name="look.up", effect="read")
    def other() -> str:
        """Look elsewhere."""
        return ""

    tools, messages = hr.Toolset([look_up]), [UserMessage("?"), *exchange(0)]
    kept = RequestEncoder(hr.dialect("openai-chat"))
    kept.body(messages, tools, OPTIONS)
    tools.add(other)
    messages = [*messages, *exchange(1)]
    anew = json.loads(
        json.dumps(hr.dialect("openai-chat").encode_request(messages, tools, OPTIONS))
    )
    assert json.loads(kept.body(messages, tools, OPTIONS)) == anew


def test_a_users_own_field_for_the_history_has_the_say():
    options = replace(
        OPTIONS, extra={"messages": [{"role": "user", "content": "mine"}]}
    )
    kept, messages = (
        RequestEncoder(hr.dialect("openai-chat")),
        [UserMessage("?"), *exchange(0)],
    )
    for more in ([], exchange(1)):
        told = json.loads(kept.body([*messages, *more], TOOLS, options))
        assert told["messages"] == [{"role": "user", "content": "mine"}]


def test_more_than_is_kept_is_spelled_anew(monkeypatch):
    monkeypatch.setattr(request_bytes, "MOST_CACHED_BYTES", 1000)
    counting = Counting("openai-chat")
    kept = RequestEncoder(counting)
    runs = [[UserMessage("?" * 600)], [UserMessage("!" * 600)]]
    for run in runs:
        kept.body(run, TOOLS, OPTIONS)
    for run in reversed(runs):
        kept.body([*run, *exchange(0)], TOOLS, OPTIONS)
    assert counting.spelled == [1, 1, 2, 3]
