"""Events as JSON lines."""

import io
import json
from dataclasses import dataclass

import pytest

from handrail.calls import ToolCall, ToolResult
from handrail.cli.jsonl import Recorder, event_record
from handrail.errors import Failure
from handrail.events import (
    CallAdmitted,
    CallFinished,
    HttpExchange,
    ModelAnswered,
    RunStarted,
    Streamed,
)
from handrail.messages import ArgumentsDelta, TextDelta, Turn
from handrail.testing import ManualClock

CALL = ToolCall("c1", "get_order", "{}")


@pytest.mark.parametrize(("event", "fields"), [
    (RunStarted("r_1", "m"), {"event": "run_started", "run_id": "r_1", "model": "m", "by": ""}),
    (Streamed(TextDelta("It")), {"event": "streamed", "delta": {"kind": "text", "text": "It"}}),
    (Streamed(ArgumentsDelta(0, "f", "{")), {
        "event": "streamed", "delta": {"kind": "arguments", "index": 0, "name": "f", "text": "{"},
    }),
    (CallAdmitted(CALL, {"city": "北京"}, ("comment",), "", "low", "within the policy", "ab12", "none"), {
        "event": "call_admitted", "call": {"id": "c1", "name": "get_order", "arguments": "{}", "program": ""},
        "arguments": {"city": "北京"}, "repairs": ["comment"], "key": "", "risk": "low", "why": "within the policy",
        "pin": "ab12", "isolation": "none", "tainted_by": None,
    }),
])  # fmt: skip
def test_a_record_has_the_fields_of_its_event(event, fields):
    wanted = {"v": 1, "at_s": 1.235, "run_id": "", **fields}
    assert event_record(event, 1.23456) == wanted


@dataclass
class Odd:
    value: object


def test_a_value_of_any_kind_can_be_written():
    for value in (Odd({1, 2}), object(), float("nan"), b"\xff", {"a": Odd(1)}):
        json.dumps(
            event_record(CallFinished(CALL, ToolResult("c1", value=value), 0), 0),
            allow_nan=False,
        )


def test_a_failure_is_written_whole():
    record = event_record(
        CallFinished(CALL, ToolResult("c1", failure=Failure("X", "No.", "Ask.")), 0.5),
        1,
    )
    assert record["result"]["failure"] == {
        "code": "X", "message": "No.", "suggestion": "Ask.", "retryable": False, "details": [],
    }  # fmt: skip


def test_a_providers_raw_message_is_left_out():
    record = event_record(ModelAnswered(1, Turn("Hi", raw={"signature": "secret"})), 0)
    assert "secret" not in json.dumps(record)


def test_time_counts_from_the_start_and_the_wire_is_written_only_when_asked_for():
    clock, quiet, open_ = ManualClock(5.0), io.StringIO(), io.StringIO()
    recorders = [Recorder(quiet, now=clock), Recorder(open_, wire=True, now=clock)]
    clock.advance(2.5)
    for recorder in recorders:
        recorder(RunStarted("r_1"))
        recorder(HttpExchange("POST", "http://h", {}, "{}", 200, "{}"))
    assert [json.loads(line)["at_s"] for line in quiet.getvalue().splitlines()] == [2.5]
    assert len(open_.getvalue().splitlines()) == 2


class Gone(io.StringIO):
    def write(self, text):
        raise BrokenPipeError


def test_without_a_reader_a_run_goes_on_in_silence_and_the_end_says_so():
    recorder = Recorder(Gone())
    recorder(RunStarted("r_1"))
    recorder(RunStarted("r_1"))
    with pytest.raises(BrokenPipeError):
        recorder.write({})
