"""What the values of a conversation are to one another."""

from handrail.calls import ToolCall
from handrail.messages import AssistantMessage, Turn


def test_turns_that_say_the_same_are_one_in_a_set_whatever_a_provider_wrapped_them_in():
    turn = Turn("", calls=(ToolCall("c1", "look_up", "{}"),), finish="calls")
    wrapped = Turn("", calls=turn.calls, finish="calls", raw={"role": "assistant"}, server_side=[{"type": "search"}])
    assert {turn, wrapped} == {turn}
    assert len({AssistantMessage(turn), AssistantMessage(wrapped), AssistantMessage(Turn("else"))}) == 2
