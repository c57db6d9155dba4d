"""The loop between a model and its tools, driven by hand: every way it may end, and what goes back to the model."""

import json
from itertools import count

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from handrail.calls import ToolCall, ToolResult
from handrail.core.batch import Batch
from handrail.core.budgets import Budget
from handrail.core.conversation import (
    AskModel,
    Ending,
    Progress,
    RunCalls,
    conversation,
    normalize_turn,
    split_glued_calls,
)
from handrail.core.policy import Policy
from handrail.core.run_settings import RunSettings
from handrail.effects import (
    AskHuman,
    Claim,
    Claimed,
    ClaimState,
    Invoke,
    Raised,
    Returned,
)
from handrail.errors import Code
from handrail.messages import AssistantMessage, ToolMessage, Turn, Usage, UserMessage
from handrail.parsing import jsontext
from handrail.testing import ManualClock, as_turn, call
from handrail.tools.function_tool import FunctionTool
from handrail.tools.settings import Limits
from handrail.tools.toolset import Toolset
from tests.support.effect_script import SOON


def find(name: str = "") -> str:
    """Find a user."""
    return name


def status(job: int) -> str:
    """Look how far a job is."""
    return ""


def pay(amount: float = 1) -> str:
    """Pay."""
    return ""


def drop(user: int) -> str:
    """Delete a user."""
    return ""


TOOLS = Toolset([
    FunctionTool(find, effect="read"),
    FunctionTool(status, effect="read", limits=Limits(poll=True)),
    FunctionTool(pay, effect="write"),
    FunctionTool(drop, effect="destructive"),
])  # fmt: skip


class Talk:
    """A run without a driver: the script is what the model says, and every tool returns what `returns` gives.

    Writes are claimed with the answers of `claims`, the last one again and again. Nobody is there to approve.
    """

    def __init__(
        self,
        *script,
        returns=lambda: "ok",
        budget=Budget(),
        tools=TOOLS,
        claims=(SOON["Claim"],),
    ):
        self.script, self.returns, self.budget, self.claims = (
            list(script),
            returns,
            budget,
            list(claims),
        )
        self.clock, self.tools = ManualClock(), tools
        self.progress = Progress([UserMessage("?")])
        self.asked: list[AskModel] = []
        self.conduct = RunSettings(Policy(), self.clock, lambda: 1.0, run_id="r1")

    def run(self) -> Ending:
        talk = conversation(
            self.progress,
            lambda: self.tools.snapshot(),
            self.budget,
            self.conduct,
            started=0.0,
        )
        answer = None
        while True:
            try:
                asked = talk.send(answer)
            except StopIteration as over:
                return over.value
            if isinstance(asked, AskModel):
                self.asked.append(asked)
                answer = as_turn(self.script[min(asked.number, len(self.script)) - 1])
            else:
                answer = self.carried(asked)

    def carried(self, asked: RunCalls) -> Batch:
        batch = Batch(
            asked.turn.calls, asked.turn.finish, asked.tools, self.conduct,
            budget=self.budget, spent=self.progress.spent, turn=asked.number,
        )  # fmt: skip
        while batch.todo:
            lane, effect = batch.todo.popleft()
            batch.answer(lane, self.answer(effect))
        return batch

    def answer(self, effect):
        match effect:
            case AskHuman():
                return None
            case Claim():
                return self.claims.pop(0) if len(self.claims) > 1 else self.claims[0]
            case Invoke():
                given = self.returns()
                return given if isinstance(given, Raised) else Returned(given)
            case _:
                return SOON[type(effect).__name__]

    @property
    def results(self):
        return [
            message.result
            for message in self.progress.messages
            if isinstance(message, ToolMessage)
        ]

    @property
    def turns(self):
        return [
            message.turn
            for message in self.progress.messages
            if isinstance(message, AssistantMessage)
        ]


# ---------------------------------------------------------------------- how it ends


@pytest.mark.parametrize(("said", "status", "reason", "text"), [
    ("It is 21 °C.", "done", "", "It is 21 °C."),
    (Turn("", finish="stop"), "done", "", ""),
    (Turn("It is 2", finish="length"), "cut", "cut by its length limit", "It is 2"),
    (Turn("", finish="refused", refusal="I cannot help."), "refused", "I cannot help.", ""),
    (Turn("", finish="refused"), "refused", "declined", ""),
    (Turn("", refusal="I cannot help."), "refused", "I cannot help.", ""),
    (Turn("It i", finish="error"), "failed", "broke off", "It i"),
    (Turn(finish="calls", waits_for="a yes or a no"), "failed", "provider waits for a yes or a no", ""),
])  # fmt: skip
def test_an_answer_without_calls_ends_the_run(said, status, reason, text):
    ending = Talk(said).run()
    assert (ending.status, ending.text) == (status, text)
    assert reason in ending.reason


def test_calls_are_carried_out_and_their_results_fed_back_in_order():
    talk = Talk(
        [call("find", name="a"), call("find", name="b")],
        "Found.",
        returns=map(str, count()).__next__,
    )
    assert talk.run() == Ending("done", text="Found.")
    assert [type(message) for message in talk.progress.messages] == [
        UserMessage, AssistantMessage, ToolMessage, ToolMessage, AssistantMessage,
    ]  # fmt: skip
    assert [result.text for result in talk.results] == ["0", "1"]
    assert talk.progress.spent.turns == 2


def test_usage_adds_up_over_the_turns():
    talk = Talk(
        Turn(calls=[call("find")], finish="calls", usage=Usage(10, 1)),
        Turn("x", usage=Usage(20, 2)),
    )
    talk.run()
    assert talk.progress.spent.usage == Usage(30, 3)


@pytest.mark.parametrize(("budget", "reason"), [
    (Budget(turns=1), "1 of 1 turns"),
    # 100 in and 20 out, as the scripted model counts
    (Budget(tokens=100), "120 of 100 tokens"),
])  # fmt: skip
def test_a_used_up_budget_ends_the_run_with_the_last_words(budget, reason):
    looking = Turn(
        "Let me look.", calls=[call("find")], finish="calls", usage=Usage(100, 20)
    )
    talk = Talk(looking, "Never said.", budget=budget)
    ending = talk.run()
    assert (ending.status, ending.text) == ("budget", "Let me look.")
    assert reason in ending.reason


def test_a_model_that_has_made_its_calls_may_still_answer():
    talk = Talk(
        Turn(calls=[call("find")], finish="calls"),
        "What I know.",
        budget=Budget(calls=1),
    )
    assert (talk.run().status, talk.progress.messages[-1].turn.text) == (
        "done",
        "What I know.",
    )


def test_a_model_that_goes_on_calling_without_calls_left_is_ended():
    calling = Turn("Once more.", calls=[call("find")], finish="calls")
    talk = Talk(calling, calling, "Never said.", budget=Budget(calls=1))
    ending = talk.run()
    assert (ending.status, ending.text) == ("budget", "Once more.")
    assert "1 of 1 calls" in ending.reason


def test_a_run_whose_time_is_over_asks_no_model():
    talk = Talk("Never said.", budget=Budget(time_s=60))
    talk.clock.advance(60)
    assert (talk.run().status, talk.asked) == ("budget", [])


def test_a_run_waits_when_nobody_is_there_to_approve():
    talk = Talk([call("find"), call("drop", user=7)], "Never said.")
    ending = talk.run()
    assert (ending.status, ending.reason) == ("waiting", "waiting for approval of drop")
    # what did not wait has its result
    assert [result.ok for result in talk.results] == [True, False]


def test_the_tools_are_asked_for_anew_in_every_turn():
    talk = Talk([call("find")], "Done.", tools=Toolset([find]))
    talk.returns = lambda: talk.tools.add(FunctionTool(pay)) or "ok"
    talk.run()
    assert [[tool.name for tool in asked.tools] for asked in talk.asked] == [
        ["find"],
        ["find", "pay"],
    ]


def test_a_cut_answer_runs_none_of_its_calls_and_the_model_may_go_on():
    talk = Talk(
        Turn(calls=[call("find", name="a")], finish="length"), "Again, shorter."
    )
    assert talk.run().status == "done"
    assert talk.results[0].failure.code == Code.TRUNCATED_CALL


# ---------------------------------------------------------------------- circles


def test_a_model_that_repeats_itself_is_told_and_then_stopped():
    talk = Talk([call("find", name="a")])
    ending = talk.run()
    assert (ending.status, len(talk.asked)) == ("stopped", 3)
    assert "3 times" in ending.reason
    assert "once more is refused" in talk.results[1].text
    assert talk.results[2].failure.code == Code.REPEATED_CALL


def test_a_model_that_is_told_and_does_something_else_goes_on():
    again = [call("find", name="a")]
    talk = Talk(again, again, [call("find", name="b")], again, "Done.")
    assert talk.run().status == "done"


def test_a_failing_call_repeated_is_a_circle_too():
    assert Talk([call("nobody")]).run().status == "stopped"


def test_the_reference_of_an_internal_error_is_no_news():
    talk = Talk([call("find")], returns=lambda: Raised(KeyError()))
    assert talk.run().status == "stopped"
    references = {result.failure.message for result in talk.results[:2]}
    assert len(references) == 2


@pytest.mark.parametrize(("said", "returns"), [
    # declared: asking again is its use
    ([call("status", job=1)], lambda: "running"),
    # another result is news
    ([call("find", name="a")], map(str, count()).__next__),
])  # fmt: skip
def test_legitimate_polling_is_never_stopped(said, returns):
    talk = Talk(*[said] * 20, "Done.", returns=returns)
    assert talk.run().status == "done"


def test_the_same_call_twice_in_one_turn_is_no_circle():
    pair = [call("find", name="a"), call("find", name="a")]
    talk = Talk(pair, pair, "Done.")
    assert talk.run().status == "done"
    assert talk.results[0].note == talk.results[1].note == ""


def test_calls_that_take_turns_are_a_circle():
    a, b = [call("find", name="a")], [call("find", name="b")]
    assert Talk(a, b, a, b, a, b, "Never said.").run().status == "stopped"


# ---------------------------------------------------------------------- the history stays valid


@pytest.mark.parametrize(("written", "goes_back"), [
    ('{"name": "a"}', '{"name": "a"}'),                   # as it was, byte for byte
    ('{"name":  "a" }', '{"name":  "a" }'),
    ("{'name': 'a'}", '{"name":"a"}'),                    # as it was understood
    ('{"name": "a",}', '{"name":"a"}'),
    ("", "{}"),
    ('{"name": "a', '{"INVALID_JSON": "{\\"name\\": \\"a"}'),  # not understood
    ("[1, 2]", '{"INVALID_JSON": "[1, 2]"}'),
    ('{"nome": "a"}', '{"nome": "a"}'),                   # wrong, but JSON
])  # fmt: skip
def test_arguments_go_back_as_they_were_understood(written, goes_back):
    talk = Talk(ToolCall("c1", "find", written), "Done.")
    talk.run()
    assert [each.arguments for each in talk.turns[0].calls] == [goes_back]


def test_glued_calls_of_a_reading_tool_are_taken_apart():
    talk = Talk(ToolCall("c1", "find", '{"name": "a"}{"name": "b"}'), "Done.")
    talk.run()
    apart = [
        ToolCall("c1", "find", '{"name": "a"}'),
        ToolCall("c1_2", "find", '{"name": "b"}'),
    ]
    assert talk.turns[0].calls == apart
    assert [result.call_id for result in talk.results] == ["c1", "c1_2"]


@given(
    text=st.lists(
        st.sampled_from(['{"a": {"b": 1}}', '{"a": [{}, {}]}', "{}", " ", "\n", "\t", ",", "}{"])
    ).map("".join)
)  # fmt: skip
def test_every_text_that_can_be_taken_apart_is_found_at_a_glance(text):
    calls = [ToolCall("c", "find", text)]
    turn = split_glued_calls(Turn(calls=calls, finish="calls"), TOOLS)
    texts = jsontext.split(text) or []
    # equal ones are one, and left to the reader that names the repair
    expected = texts if len(texts) > 1 else [text]
    assert [each.arguments for each in turn.calls] == expected


def test_glued_calls_of_a_writing_tool_are_refused():
    talk = Talk(ToolCall("c1", "pay", '{"amount": 1}{"amount": 2}'), "Done.")
    talk.run()
    assert [(result.call_id, result.failure.code) for result in talk.results] == [
        ("c1", Code.BAD_JSON)
    ]


@pytest.mark.parametrize(
    "written", ['{"name": "a"}', '{"name": "a"} {', '{"name": "}{"}', "}{", ""]
)
def test_what_is_not_glued_is_left_alone(written):
    turn = Turn(calls=[ToolCall("c1", "find", written)], finish="calls")
    assert split_glued_calls(turn, TOOLS) is turn


def test_a_cut_result_shows_the_tool_that_reads_on():
    talk = Talk([call("find")], "Done.", returns=lambda: "x" * 40_000)
    talk.run()
    assert talk.progress.reads_on


@settings(max_examples=100, deadline=None)
@given(
    texts=st.lists(
        st.text("{}[]\":, anme1\n'", max_size=20) | st.just('{"name": "a"}'), max_size=3
    )
)
def test_whatever_the_model_writes_the_history_is_json_and_every_call_has_its_result(
    texts,
):
    talk = Talk(
        [ToolCall(f"c{n}", "find", text) for n, text in enumerate(texts)] or "Nothing.",
        "Done.",
    )
    assert talk.run().status in ("done", "stopped")
    if texts:
        calls = talk.turns[0].calls
        assert all(isinstance(json.loads(each.arguments), dict) for each in calls)
        assert [result.call_id for result in talk.results] == [
            each.id for each in calls
        ]


def test_a_write_that_was_repeated_keeps_the_first_result_and_is_a_circle():
    claims = [SOON["Claim"], Claimed(ClaimState.DONE, 1, "ok", repeated=True)]
    talk = Talk([call("pay", amount=5)], claims=claims)
    assert talk.run().status == "stopped"
    assert [result.replayed for result in talk.results][:2] == [False, True]


def test_mending_leaves_a_valid_turn_the_same_object():
    talk = Talk([call("find")], "Done.")
    talk.run()
    turn = talk.turns[0]
    assert normalize_turn(turn, talk.results) is turn
    assert jsontext.loads(turn.calls[0].arguments) == {}


def test_signatures_go_back_beside_a_call_that_was_mended():
    raw = {"content": [{"type": "thinking", "thinking": "", "signature": "abc"}]}
    turn = Turn(
        calls=[ToolCall("c1", "look", "{'city': 'Bern'}")], finish="calls", raw=raw
    )
    mended = normalize_turn(
        turn, [ToolResult("c1", "look", "fine", repairs=("single_quotes",))]
    )
    assert mended.calls[0].arguments == '{"city":"Bern"}'
    assert mended.raw == raw
