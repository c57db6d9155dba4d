"""What the values of a conversation are to one another."""

import threading

import pytest

from handrail.calls import ToolCall
from handrail.context import Context
from handrail.errors import ConfigError
from handrail.messages import AssistantMessage, Turn, conversation_of


def test_turns_that_say_the_same_are_one_in_a_set_whatever_a_provider_wrapped_them_in():
    turn = Turn("", calls=(ToolCall("c1", "look_up", "{}"),), finish="calls")
    wrapped = Turn(
        "",
        calls=turn.calls,
        finish="calls",
        raw={"role": "assistant"},
        server_side=[{"type": "search"}],
    )
    assert {turn, wrapped} == {turn}
    assert (
        len(
            {
                AssistantMessage(turn),
                AssistantMessage(wrapped),
                AssistantMessage(Turn("else")),
            }
        )
        == 2
    )


@pytest.mark.parametrize(("opening", "words"), [
    (None, "not NoneType"), (["Hi"], "not str"), ([{"role": "user", "content": "Hi"}, object()], "not object"),
    ([{"role": "wizard"}], "wizard"),
])  # fmt: skip
def test_what_is_no_message_is_refused_before_a_model_is_asked(opening, words):
    with pytest.raises(ConfigError, match=words):
        conversation_of(opening)


def test_the_repr_of_a_call_and_its_context_names_them_and_shows_nothing_of_what_they_hold():
    call = ToolCall("c1", "log_in", '{"password": "hunter2-hunter2"}')
    context = Context(
        {"key": "hunter2-hunter2"},
        "r1",
        "c1",
        "log_in",
        2,
        0.0,
        threading.Event(),
        "pay:hunter2-hunter2",
    )
    assert repr(call) == "<ToolCall c1 log_in: arguments of 31 chars>"
    assert repr(context) == "<Context of log_in in run r1: call c1, attempt 2>"
    assert "hunter2" not in repr(Turn(calls=[call], finish="calls"))
