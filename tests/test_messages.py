"""What the values of a conversation are to one another."""

import pytest

from handrail.calls import ToolCall
from handrail.errors import ConfigError
from handrail.messages import AssistantMessage, Turn, conversation_of


def test_turns_that_say_the_same_are_one_in_a_set_whatever_a_provider_wrapped_them_in():
    turn = Turn("", calls=(ToolCall("c1", "look_up", "{}"),), finish="calls")
    wrapped = Turn("", calls=turn.calls, finish="calls", raw={"role": "assistant"}, server_side=[{"type": "search"}])
    assert {turn, wrapped} == {turn}
    assert len({AssistantMessage(turn), AssistantMessage(wrapped), AssistantMessage(Turn("else"))}) == 2


@pytest.mark.parametrize(("opening", "words"), [
    (None, "not NoneType"), (["Hi"], "not str"), ([{"role": "user", "content": "Hi"}, object()], "not object"),
    ([{"role": "wizard"}], "wizard"),
])  # fmt: skip
def test_what_is_no_message_is_refused_before_a_model_is_asked(opening, words):
    with pytest.raises(ConfigError, match=words):
        conversation_of(opening)
