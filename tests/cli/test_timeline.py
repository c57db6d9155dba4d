"""The fold from events to lines, on values alone."""

import pytest

from handrail.calls import ToolCall, ToolResult
from handrail.cli.timeline import MOST_SHOWN_CHARS, Line, Piece, Timeline
from handrail.effects import Approval
from handrail.errors import Code, Failure
from handrail.events import (
    AnswerRefused,
    AnswerTaken,
    ApprovalAsked,
    ApprovalGiven,
    AskedOtherwise,
    AttemptFailed,
    AttemptStarted,
    CallAdmitted,
    CallFinished,
    ContextFolded,
    FinishedLate,
    HistoryMended,
    HttpExchange,
    LateResult,
    ModelAnswered,
    ModelAsked,
    Progressed,
    RunEnded,
    RunStarted,
    Streamed,
    ToolsSelected,
)
from handrail.messages import ArgumentsDelta, TextDelta, Turn

CALL = ToolCall("c1", "get_order", '{"order_id": "A-1"}')
FAILURE = Failure(Code.INVALID_ARGUMENTS, "`order_id` is required.", "Add it.")


def told(event, **how):
    return Timeline(**how).tell(event)


@pytest.mark.parametrize(("event", "lines"), [
    (ModelAsked(2, 3, 4), [Line("turn", about="turn 2", whole=True)]),
    (ModelAnswered(1, Turn(calls=[CALL])), [Line("call", '{"order_id": "A-1"}', "get_order")]),
    (ModelAnswered(1, Turn("Let me see.", calls=[CALL])), [
        Line("text", "Let me see.", whole=True), Line("call", '{"order_id": "A-1"}', "get_order"),
    ]),
    # the answer is the run's result; whoever prints results prints it
    (ModelAnswered(1, Turn("Paid.")), []),
    (CallAdmitted(CALL, {}, ["trailing_comma", "comment"]), [
        Line("repaired", "repaired: trailing_comma, comment", "get_order", whole=True),
    ]),
    (CallAdmitted(CALL, {}), []),
    (AttemptFailed(CALL, 1, "deadline, stopped", 0.42), [
        Line("retry", "attempt 1: deadline, stopped; again in 0.4 s", "get_order", whole=True),
    ]),
    (AttemptFailed(CALL, 1, "deadline, stopped", 0.01), [
        Line("retry", "attempt 1: deadline, stopped; again at once", "get_order", whole=True),
    ]),
    (AttemptFailed(CALL, 3, "deadline, stopped", None), [
        Line("retry", "attempt 3: deadline, stopped; no further attempt", "get_order", whole=True),
    ]),
    (ApprovalAsked(CALL, {}, "high", "it has high risk"), [
        Line("ask", "a person must agree: it has high risk", "get_order", whole=True),
    ]),
    (ApprovalGiven(CALL, Approval(True, "ada")), [Line("granted", "approved by ada", "get_order", whole=True)]),
    (ApprovalGiven(CALL, Approval(True, "ada", arguments={})), [
        Line("granted", "approved by ada, with edited arguments", "get_order", whole=True),
    ]),
    (ApprovalGiven(CALL, Approval(False, "", "not now")), [
        Line("denied", "denied: not now", "get_order", whole=True),
    ]),
    (ApprovalGiven(CALL, None), [Line("waiting", "nobody is there to approve it", "get_order", whole=True)]),
    (CallFinished(CALL, ToolResult("c1", text="paid", attempts=1), 0.123), [
        Line("result", "0.12 s  paid", "get_order"),
    ]),
    (CallFinished(CALL, ToolResult("c1", text="paid", attempts=2, replayed=True), 1), [
        Line("result", "1.00 s, 2 attempts, repeated from before  paid", "get_order"),
    ]),
    # of a run that goes on
    (CallFinished(CALL, ToolResult("c1", text="paid", attempts=1), 0, recalled=True), [
        Line("result", "recorded before  paid", "get_order"),
    ]),
    # never started: it was refused
    (CallFinished(CALL, ToolResult("c1", failure=FAILURE), 0), [
        Line("refused", "INVALID_ARGUMENTS: `order_id` is required.", "get_order", whole=True),
        Line("advice", "Add it.", whole=True),
    ]),
    (CallFinished(CALL, ToolResult("c1", failure=Failure("X", "No."), attempts=1), 0), [
        Line("failed", "X: No.", "get_order", whole=True),
    ]),
    (FinishedLate(CALL, value=1), [
        Line("late", "finished late, after the model had read another result", "get_order", whole=True),
    ]),
    (FinishedLate(CALL, error="OSError: gone"), [Line("late", "failed late: OSError: gone", "get_order", whole=True)]),
    (LateResult(CALL, "pay", "pay:1", 1, "done"), [
        Line(
            "late", "its late result is not recorded: another process has this write, or somebody has resolved it",
            "get_order", whole=True,
        ),
    ]),
    (AnswerTaken(1, "tool"), []),
    (AnswerTaken(1, "tool", ["trailing_comma"]), [
        Line("repaired", "the answer was repaired: trailing_comma", whole=True),
    ]),
    (AnswerRefused(1, "tool", FAILURE), [
        Line("refused", "the answer does not have its form: `order_id` is required.", whole=True),
    ]),
    (AskedOtherwise("native", "tool", "HTTP 400"), [
        Line(
            "note", "the server does not accept the answer's form as native; asking for it as tool: HTTP 400",
            whole=True,
        ),
    ]),
    (HistoryMended(["a call had no result"]), [
        Line("note", "the conversation was repaired: a call had no result", whole=True),
    ]),
    (ContextFolded(1, 900), [
        Line("note", "1 old result can now be read by a handle; about 900 tokens stay", whole=True),
    ]),
    (ToolsSelected(1, "bm25", ["a", "b"], 40), [Line("note", "2 of 40 tools are shown (bm25)", whole=True)]),
    (ToolsSelected(1, "all", ["a", "b"], 2), []),
    (Progressed(CALL, 3, 4, "copying"), [Line("progress", "75%  copying", "get_order", whole=True)]),
    (Progressed(CALL, 12), [Line("progress", "12", "get_order", whole=True)]),
    (RunEnded("r_1", "done", ""), []),
    (RunEnded("r_1", "failed", "nobody answered"), [Line("ended", "failed: nobody answered", whole=True)]),
    (RunEnded("r_1", "cancelled", "the run was cancelled"), [Line("ended", "the run was cancelled", whole=True)]),
    (RunEnded("r_1", "waiting", "waiting for approval of x"), [
        # named, so that it can be found again
        Line("ended", "waiting for approval of x (run r_1)", whole=True),
    ]),
    (RunStarted("r_1"), []),
    (AttemptStarted(CALL, 1), []),
    (Streamed(TextDelta("It")), []),
])  # fmt: skip
def test_an_event_becomes_lines(event, lines):
    assert told(event) == lines


def test_progress_is_told_by_the_tenth_and_whenever_a_tool_says_something_else():
    timeline = Timeline()
    steps = [
        Progressed(CALL, n, 1000, "reading" if n < 500 else "writing")
        for n in range(1000)
    ]
    texts = [line.text for step in steps for line in timeline.tell(step)]
    assert texts == [
        f"{n}%  {'reading' if n < 50 else 'writing'}" for n in range(0, 100, 10)
    ]


def test_a_choice_of_tools_is_told_when_it_changes():
    timeline = Timeline()
    turns = [["a"], ["a"], ["a", "b"], ["a", "b"]]
    lines = [
        timeline.tell(ToolsSelected(turn, "bm25", tools, 9))
        for turn, tools in enumerate(turns, 1)
    ]
    assert [bool(each) for each in lines] == [True, False, True, False]


def test_text_arrives_in_pieces_where_streaming_is_wanted():
    timeline = Timeline(streams=True)
    assert timeline.tell(Streamed(TextDelta("It "))) == [Piece("It ")]
    assert timeline.tell(Streamed(ArgumentsDelta(0, "get_order", "{"))) == []
    assert timeline.tell(ModelAnswered(1, Turn("It "))) == []  # told already


def test_a_server_that_does_not_stream_is_told_in_one_piece():
    timeline = Timeline(streams=True)
    timeline.tell(ModelAsked(1, 1, 0))
    assert timeline.tell(ModelAnswered(1, Turn("Paid."))) == [Piece("Paid.")]


def test_two_calls_of_one_tool_are_numbered_and_all_names_of_a_turn_have_one_width():
    timeline = Timeline()
    twin, other = ToolCall("c2", "get_order", "{}"), ToolCall("c3", "note", "{}")
    lines = timeline.tell(ModelAnswered(1, Turn(calls=[CALL, twin, other])))
    assert [line.about for line in lines] == [
        "get_order#1",
        "get_order#2",
        "note       ",
    ]
    assert timeline.tell(AttemptFailed(twin, 1, "x", None))[0].about == "get_order#2"


def test_calls_of_one_id_are_not_numbered_because_nothing_tells_them_apart():
    lines = told(ModelAnswered(1, Turn(calls=[CALL, CALL])))
    assert [line.about for line in lines] == ["get_order", "get_order"]


def test_long_arguments_and_results_are_shortened_unless_all_is_wanted():
    result = ToolResult("c1", text="x\n" * 1000, attempts=1)
    short = told(CallFinished(CALL, result, 0))[0].text
    assert len(short) < MOST_SHOWN_CHARS + 20
    assert short.endswith("…")
    assert "\n" not in short
    assert told(CallFinished(CALL, result, 0), detail="all")[0].text.count("x") == 1000


def test_where_only_ends_are_wanted_nothing_else_is_told():
    assert told(ModelAsked(1, 1, 1), detail="ends") == []
    assert told(RunEnded("r_1", "failed", "why"), detail="ends") == [
        Line("ended", "failed: why", whole=True)
    ]


def test_the_wire_is_told_only_when_asked_for():
    exchange = HttpExchange("POST", "http://h/v1", {}, "{}", 200, "{}")
    assert told(exchange) == []
    assert told(exchange, wire=True)[0].text.startswith("> POST http://h/v1")
