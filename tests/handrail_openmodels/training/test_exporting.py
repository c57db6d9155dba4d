"""Recorded runs as training data: nothing lost, nothing taught that was refused, no secret."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections import Counter
from contextlib import closing

import pytest

import handrail as hr
from handrail.core.admission import ParsedCall, parse_call
from handrail.errors import Failure
from handrail.futures import result_now
from handrail.messages import (
    AssistantMessage,
    ToolCall,
    ToolMessage,
    Turn,
    UserMessage,
)
from handrail.stores.sqlite import SqliteStore
from handrail.testing import ScriptedModel, call
from handrail_openmodels.training import (
    Selection,
    TrainingExport,
    export_runs,
    read_pair,
    read_row,
)
from handrail_openmodels.training.exporting import load_runs
from handrail_openmodels.training.forms import FORMS
from tests.credentials.test_canaries import (
    CANARY,
    QUESTION,
    SCRIPT,
    Vault,
    check_clean,
)
from tests.support.effort import examples

RUNS = examples(40, 300)
KEY = "sk-canary0123456789abcdefghij"


@hr.tool(effect="read", tags=["weather"])
def get_weather(city: str, days: int = 1) -> dict:
    """查询天气。"""
    return {"城市": city, "days": [{"high": 20.5, "note": "晴\n风"}] * days}


@hr.tool(effect="write", key="refund:{order}:{amount}", approve="amount > 100")
def refund(order: str, amount: float, password: str = "") -> str:
    """Pay money back."""
    return f"refunded {amount} for {order}"


def lower(question):
    """A person who makes large refunds smaller."""
    if question.arguments["amount"] > 900:
        return hr.Approval(granted=False, by="Ann", reason="too much")
    return hr.Approval(granted=True, by="Ann", arguments={**question.arguments, "amount": 100.0})  # fmt: skip


def script(number):
    """One of ten kinds of run."""
    city = f"北京{number}"
    kinds = [
        [call("get_weather", city=city), "晴。"],
        [[call("get_weather", city=city), call("get_weather", city="Oslo", days=3)], "两个城市都好。"],
        # refused and corrected
        [call("get_weather", town=city), call("get_weather", city=city), "好了。"],
        [call("get_wether", city=city), call("get_weather", city=city), "found"],
        [*[call("get_weather", city=city, days=each) for each in ("many", "no", 1)], "at last"],
        [ToolCall("j", "get_weather", "{'city': \"奥斯陆\",}"), "mended"],
        # refused and never corrected
        [call("get_weather", town=city), "I cannot."],
        # changed by a person, denied by a person
        [call("refund", order=f"A-{number}", amount=500), "done"],
        [call("refund", order=f"B-{number}", amount=1000), "not allowed"],
        [call("refund", order=f"C-{number}", amount=5, password=KEY), f"paid with {KEY}"],
    ]  # fmt: skip
    return kinds[number % len(kinds)]


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    file = f"sqlite:///{tmp_path_factory.mktemp('runs') / 'handrail.db'}"
    with hr.SyncRuntime([get_weather, refund], store=file, approver=lower) as runtime:
        for number in range(RUNS):
            runtime.run(f"第{number}个问题", model=ScriptedModel(script(number)), system="用工具。")  # fmt: skip
    return file


@pytest.fixture(scope="module")
def stored(place):
    store = SqliteStore(place.removeprefix("sqlite:"))
    yield store
    store.close()


TOOLS = hr.Toolset([get_weather, refund])


def exported(store, form, **how):
    export = TrainingExport(form, tools=TOOLS, **how)
    return list(export_runs(store, export)), export.summary


def test_runs_submitted_without_tools_are_not_said_to_have_other_tools(tmp_path):
    with SqliteStore(str(tmp_path / "runs.db")) as store:
        with hr.SyncRuntime([], store=store) as runtime:
            runtime.run("Hello.", model=ScriptedModel(["Good day."]))
        rows, summary = exported(store, "hermes")
    assert (len(rows), list(summary.lines())) == (1, ["1 row from 1 run"])


def calls_in(steps):
    """Calls and results of a run as its journal holds them."""
    calls = [
        (name, json.loads(text) if text.startswith('{"') else {"city": "奥斯陆"})
        for step in steps
        if step.kind == "model"
        for _, name, text in step.body.get("calls", ())
    ]
    return calls, [step.body["text"] for step in steps if step.kind == "call"]


@pytest.mark.parametrize("form", FORMS)
def test_every_run_reads_back_to_the_calls_and_results_of_its_journal(stored, form):
    rows, summary = exported(stored, form, redact=False, mistakes="keep")
    assert (summary.runs, summary.rows) == (RUNS, RUNS)
    for row, run in zip(rows, load_runs(stored), strict=True):
        again = read_row(form, json.loads(json.dumps(row)))
        told = [(each.name, json.loads(each.arguments)) for each in again.calls]
        assert (told, [each.text for each in again.results]) == calls_in(run.steps)


@pytest.mark.parametrize("form", FORMS)
def test_no_mistake_is_taught(stored, form):
    rows, summary = exported(stored, form)
    for row in rows:
        example = read_row(form, row)
        for number, turn in enumerate(example.turns):
            if number not in example.masked:
                assert [check(each) for each in turn.calls] == [None] * len(turn.calls)
    if FORMS[form].has_weights:
        assert len(rows) == RUNS
        assert summary.notes["answers that are not to be learnt"] >= RUNS * 6 // 10
    else:
        # a call that nobody corrected, and one that a person denied
        assert len(rows) == RUNS * 8 // 10
        assert summary.left_out["a refused call was never corrected"] == RUNS * 2 // 10


def check(call):
    """Return why a tool's own checker refuses a call."""
    parsed = parse_call(call, TOOLS, "calls")
    if not isinstance(parsed, ParsedCall):
        return parsed.code
    checked = parsed.tool.check_arguments(parsed.arguments)
    return checked.code if isinstance(checked, Failure) else None


def test_every_rejected_call_is_refused_and_every_chosen_one_taken(stored):
    rows, summary = exported(stored, "preference")
    reasons = Counter()
    for row in rows:
        pair = read_pair(row)
        (chosen,), (rejected,) = pair.chosen, pair.rejected
        assert [check(each) for each in chosen.turn.calls] == [None]
        (wrong,) = rejected.turn.calls
        reasons[check(wrong)] += 1
        if check(wrong) is None:  # a person refused it
            assert json.loads(wrong.arguments)["amount"] == 500
            assert json.loads(chosen.turn.calls[0].arguments)["amount"] == 100.0
    tenth = RUNS // 10
    assert reasons == {"INVALID_ARGUMENTS": 3 * tenth, "UNKNOWN_TOOL": tenth, None: tenth}  # fmt: skip
    assert summary.left_out["a pair: a refused call was never corrected"] == 2 * tenth


@pytest.mark.parametrize("form", [*FORMS, "preference"])
def test_what_looks_like_a_secret_is_in_no_row(stored, form):
    rows, summary = exported(stored, form)
    assert KEY not in json.dumps(rows)
    assert any(KEY in json.dumps(each.record.result) for each in load_runs(stored))
    if form != "preference":
        assert summary.notes["texts with secrets taken out"] >= RUNS * 2 // 10
        assert '"password"' in json.dumps(rows[0]).replace("\\", "")  # still described
    masked = [read_row(form, row).masked for row in rows[9::10]] if form == "openai" else []  # fmt: skip
    assert all(masked)  # `***` is nothing to learn


@pytest.mark.parametrize("form", [*FORMS, "preference"])
@pytest.mark.parametrize("sealed", [True, False])
def test_no_canary_is_in_any_row(tmp_path, form, sealed):
    file = tmp_path / "handrail.db"
    secrets = [CANARY] if sealed else []
    with hr.SyncRuntime(Vault().tools, store=f"sqlite:///{file}", secrets=secrets) as runtime:  # fmt: skip
        key = hr.Secret.of(CANARY) if sealed else CANARY
        runtime.run(QUESTION, model=ScriptedModel(SCRIPT), inject={"key": key})
    store = SqliteStore(str(file))
    tools = hr.Toolset(Vault().tools)
    export = TrainingExport(form, tools=tools, mistakes="keep", secrets=[] if sealed else [CANARY])  # fmt: skip
    rows = list(export_runs(store, export))
    store.close()
    text = json.dumps(rows, ensure_ascii=False)
    check_clean(text, form)
    assert "⟦secret:" not in text and "\u27e6" not in text
    assert len(rows) == (form != "preference")


def test_filters_choose_runs_and_the_summary_counts_the_others(stored):
    for selection, wanted in [
        (Selection(tools=["refund"]), 3),
        (Selection(tags=["weather"]), 7),
        (Selection(min_calls=2, max_calls=2), 3),
        (Selection(statuses=["failed"]), 0),
        (Selection(scope="acme"), 0),
        (Selection(scope=""), 10),
        (Selection(until=1.0), 0),
        (Selection(since=1.0), 10),
    ]:
        rows, summary = exported(stored, "openai", selection=selection)
        assert len(rows) == wanted * RUNS // 10, selection
        assert summary.runs == RUNS == len(rows) + sum(summary.left_out.values())


def test_a_run_whose_calls_the_tools_of_today_refuse_is_left_out(stored):
    @hr.tool(effect="read", name="get_weather")
    def changed(place: str) -> str:
        """Weather."""
        return place

    export = TrainingExport("hermes", tools=hr.Toolset([changed, refund]))
    rows = list(export_runs(stored, export))
    reason = "its tools have changed: they would refuse a call"
    assert export.summary.left_out[reason] == RUNS * 6 // 10
    assert not any("get_weather" in str(read_row("hermes", row).calls) for row in rows)


def test_one_answer_with_two_refused_calls_gives_one_pair_with_both_corrected(tmp_path):
    wrong = [call("get_weather", town="a"), call("get_weather", town="b")]
    right = [call("get_weather", city="a"), call("get_weather", city="b")]
    store = SqliteStore(str(tmp_path / "handrail.db"))
    with hr.SyncRuntime([get_weather], store=store) as runtime:
        runtime.run("both", model=ScriptedModel([wrong, right, "ok"]))
    (row,) = export_runs(store, TrainingExport("preference", tools=hr.Toolset([get_weather])))  # fmt: skip
    calls = row["chosen"][0]["tool_calls"]
    assert [each["function"]["arguments"]["city"] for each in calls] == ["a", "b"]
    store.close()


def test_a_later_call_about_something_else_corrects_nothing(tmp_path):
    lines = [
        call("get_weather", town="a"),
        call("refund", order="A", amount=1),
        call("get_weather", city="b"),
        "ok",
    ]
    store = SqliteStore(str(tmp_path / "handrail.db"))
    with hr.SyncRuntime([get_weather, refund], store=store) as runtime:
        runtime.run("q", model=ScriptedModel(lines))
    export = TrainingExport("preference", tools=TOOLS)
    assert not list(export_runs(store, export))
    assert export.summary.left_out["a pair: a refused call was never corrected"] == 1
    store.close()


KILLED = """
import os, signal, sys
from dataclasses import dataclass
import handrail as hr
from handrail.testing import ScriptedModel, call

@dataclass
class Report:
    order: str

@hr.tool(effect="write", key="{order}")
def refund(order: str) -> str:
    "Pay money back."
    os.kill(os.getpid(), signal.SIGKILL)

with hr.SyncRuntime([refund], store=sys.argv[1]) as runtime:
    runtime.run("Go.", model=ScriptedModel([call("refund", order="o1")]), output=Report)
"""


@pytest.mark.parametrize("tools", [None, TOOLS])
def test_a_write_that_a_crash_interrupted_is_a_call_in_doubt_and_no_answer(
    tmp_path, tools
):
    file = tmp_path / "handrail.db"
    words = [sys.executable, "-c", KILLED, f"sqlite:///{file}"]
    assert subprocess.run(words, check=False).returncode == -signal.SIGKILL
    with closing(SqliteStore(str(file))) as store:
        export = TrainingExport("hermes", tools=tools, selection=Selection(statuses=()))
        (row,) = export_runs(store, export)
    again = read_row("hermes", row)
    (turn,) = again.turns
    wanted = ("", [("refund", '{"order": "o1"}')])
    assert (turn.text, [(each.name, each.arguments) for each in turn.calls]) == wanted
    assert "IN_DOUBT" in again.results[0].text


@pytest.mark.parametrize("named", [True, False])
def test_a_call_that_gives_the_answer_its_form_is_the_answer_s_text(tmp_path, named):
    mine = hr.FunctionTool(lambda: "mine", name="answer", effect="read")
    lines = [call("answer"), ToolCall("c2", "functions.answer_2", "{'order': 'o1',}")]
    form = {"type": "object", "properties": {"order": {"type": "string"}}}
    with closing(SqliteStore(str(tmp_path / "handrail.db"))) as store:
        with hr.SyncRuntime([mine], store=store) as runtime:
            model = ScriptedModel(lines)
            runtime.run("Go.", model=model, output=hr.Form(form, by="tool"))
        tools = hr.Toolset([mine]) if named else None
        (row,) = export_runs(store, TrainingExport("hermes", tools=tools))
    first, last = read_row("hermes", row).turns
    assert ([each.name for each in first.calls], first.text) == (["answer"], "")
    assert (last.calls, last.text) == ((), '{"order":"o1"}')


def test_the_summary_tells_calls_left_out_from_calls_that_a_person_changed(stored):
    _, summary = exported(stored, "hermes")
    changed = RUNS // 10
    assert summary.notes["calls taught as a person changed them"] == changed
    assert summary.notes["corrected calls left out"] == 4 * changed


def test_the_refused_answer_is_masked_where_messages_before_it_are_left_out(tmp_path):
    before = [
        UserMessage("a"),
        AssistantMessage(Turn("b")),
        ToolMessage(hr.ToolResult("none", "get_weather", value="c", text="c")),
        AssistantMessage(Turn()),
        UserMessage("d"),
    ]
    lines = ["b", call("get_weather", town="x"), call("get_weather", city="x"), "ok"]
    with closing(SqliteStore(str(tmp_path / "handrail.db"))) as store:
        with hr.SyncRuntime([get_weather], store=store) as runtime:
            runtime.run(before, model=ScriptedModel(lines))
        (row,) = export_runs(store, TrainingExport("openai"))
    answers = [each for each in row["messages"] if each["role"] == "assistant"]
    assert [each.get("weight") for each in answers] == [None, 0, None, None]


def test_forms_without_weights_cannot_mask():
    with pytest.raises(hr.ConfigError, match="cannot say"):
        TrainingExport("hermes", mistakes="mask")
    with pytest.raises(hr.ConfigError, match="no form 'alpaca'"):
        TrainingExport("alpaca")


def test_a_selection_by_tags_needs_the_tools():
    with pytest.raises(hr.ConfigError, match="needs `tools`"):
        TrainingExport("hermes", selection=Selection(tags=["weather"]))


def test_a_running_run_and_an_unknown_name_are_told(stored):
    with pytest.raises(hr.ConfigError, match="no run 'r_none'"):
        list(export_runs(stored, TrainingExport("hermes"), ["r_none"]))
    assert result_now(stored.list_runs(most=1))
