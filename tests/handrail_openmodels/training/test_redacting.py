"""Secrets that stand in no row of training data, however the model wrote them, and what becomes of their calls."""

from __future__ import annotations

import json
from contextlib import closing
from typing import Any

import pytest

import handrail as hr
from handrail.messages import AssistantMessage, ToolCall, Turn, UserMessage
from handrail.stores.sqlite import SqliteStore
from handrail.testing import ScriptedModel
from handrail_openmodels.training import TrainingExport, export_runs
from handrail_openmodels.training.forms import FORMS
from handrail_openmodels.training.redacting import Redaction


@hr.tool(effect="read")
def log_in(user: str = "", password: Any = None, headers: Any = None) -> str:
    """Log in."""
    return "ok"


def exported(folder, lines, form, *, tools=(log_in,), question="Go.", **how):
    """Record a run and return its rows and the summary."""
    with closing(SqliteStore(str(folder / "handrail.db"))) as store:
        with hr.SyncRuntime(list(tools), store=store) as runtime:
            runtime.run(question, model=ScriptedModel(lines))
        export = TrainingExport(form, tools=hr.Toolset(list(tools)), **how)
        return list(export_runs(store, export)), export.summary


LEAKY = [
    '{"user":"a","password":["hunter2"],}',
    '\n{"user":"a","password":["hunter2"]}',
    "{'user': 'a', 'password': {'old': ['hunter2']}}",
    '{user: "a", password: ["hunter2"]}',
    '{"headers": {"Authorization": ["x hunter2 z"]},}',
    '```json\n{"password": ["hunter2"]}\n```',
    '{"user": "{\\"password\\": [\\"hunter2\\"]}"}',
]


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("arguments", LEAKY)
def test_a_secret_in_arguments_that_are_no_strict_json_is_in_no_row(
    tmp_path, form, arguments
):
    lines = [ToolCall("c1", "log_in", arguments), "Done."]
    rows, _ = exported(tmp_path, lines, form)
    assert len(rows) == 1
    assert "hunter2" not in json.dumps(rows)
    assert "***" in json.dumps(rows)


def test_a_secret_in_arguments_that_cannot_be_read_is_in_no_row(tmp_path):
    lines = [ToolCall("c1", "log_in", '{password: ["hunter2"'), "I cannot."]
    rows, _ = exported(tmp_path, lines, "openai")
    (call,) = rows[0]["messages"][1]["tool_calls"]
    assert json.loads(call["function"]["arguments"]) == {"INVALID_JSON": "***"}


def test_a_secret_in_the_chosen_call_of_a_pair_leaves_the_pair_out(tmp_path):
    lines = [
        ToolCall("c1", "log_in", '{"usr": "a"}'),
        ToolCall("c2", "log_in", '{"password": ["hunter2"],}'),
        "Done.",
    ]
    rows, summary = exported(tmp_path, lines, "preference")
    assert rows == []
    assert summary.left_out == {"a pair: its answers held a secret": 1}


@pytest.mark.parametrize(("text", "shown"), [
    (' {"password": ["hunter2"]}', '{"password": "***"}'),
    ('{"mypassword": "hunter2", "n": 1}', '{"mypassword": "***", "n": 1}'),
    ('{"a": "b", "password": 12345678}', '{"a": "b", "password": "***"}'),
    ('{"max_tokens": 500, "password": ""}', '{"max_tokens": 500, "password": ""}'),
    ('Got {"password": ["hun]ter2", {"x": 1}], "n": 1}.', 'Got {"password": "***", "n": 1}.'),
    ('Got {\\"password\\": [\\"hunter2\\"]}.', 'Got {\\"password\\": \\"***\\"}.'),
    ('{"n": 1, "password": ["hunter2', '{"n": 1, "password": "***"'),
    ('{"city": ["Oslo"]} and {"password": ["x"]}', '{"city": ["Oslo"]} and {"password": "***"}'),
    ('{"pins": [87654321, 1]}', '{"pins": ["***", 1]}'),
])  # fmt: skip
def test_json_loses_its_secrets_and_stays_json_where_it_was(text, shown):
    redaction = Redaction(["87654321"])
    assert redaction.redact_text(text) == shown
    assert redaction.changed == (text != shown)


def test_a_secret_in_the_provider_s_own_message_is_in_no_row(tmp_path):
    raw = {
        "role": "assistant",
        "content": "Hi.",
        "reasoning_content": "password=hunter2!",
    }
    before = [
        UserMessage("Hello."),
        AssistantMessage(Turn("Hi.", raw=raw)),
        UserMessage("Go."),
    ]
    rows, _ = exported(tmp_path, ["Done."], "openai", question=before)
    assert len(rows) == 1
    assert "hunter2" not in json.dumps(rows)


def test_a_secret_in_json_in_a_part_of_a_question_is_in_no_row(tmp_path):
    words = '{"password": ["hunter2"]}'
    question = [UserMessage(words, ({"type": "text", "text": words},))]
    for form in ("openai", "hermes"):
        rows, _ = exported(tmp_path, ["Done."], form, question=question)
        assert "hunter2" not in json.dumps(rows)


NO_WEIGHTS = [name for name, form in FORMS.items() if not form.has_weights]
REFUSED = "with its secrets taken out, a tool would refuse a call"


@hr.tool(effect="read")
def unlock(user: str, password: int) -> str:
    """Unlock."""
    return "ok"


@pytest.mark.parametrize("form", NO_WEIGHTS)
def test_a_run_whose_call_the_tool_would_refuse_without_its_secret_is_not_taught(
    tmp_path, form
):
    lines = [ToolCall("c1", "unlock", '{"user":"a","password":12345678}'), "Done."]
    rows, summary = exported(tmp_path, lines, form, tools=[unlock])
    assert (rows, summary.left_out) == ([], {REFUSED: 1})


@pytest.mark.parametrize(("arguments", "count"), [
    ('{"user":"a","password":12345678}', 0),
    ('{"user":"a","password":["hunter2"]}', 0),
    ('{"user":"a","password":"hunter2"}', 1),
])  # fmt: skip
def test_without_tools_a_run_is_left_out_if_more_than_texts_became_stars(
    tmp_path, arguments, count
):
    lines = [ToolCall("c1", "log_in", arguments), "Done."]
    exported(tmp_path, lines, "hermes")
    with closing(SqliteStore(str(tmp_path / "handrail.db"))) as store:
        rows = list(export_runs(store, TrainingExport("hermes")))
    assert len(rows) == count


def test_a_form_with_weights_shows_such_a_call_and_does_not_teach_it(tmp_path):
    lines = [ToolCall("c1", "unlock", '{"user":"a","password":12345678}'), "Done."]
    (row,), _ = exported(tmp_path, lines, "openai", tools=[unlock])
    answer = row["messages"][1]
    assert answer["weight"] == 0
    (call,) = answer["tool_calls"]
    shown = {"user": "a", "password": "***"}
    assert json.loads(call["function"]["arguments"]) == shown
