"""A key in what a stranger wrote is hidden from the model and from all that is kept, unless the policy shows it."""

from __future__ import annotations

import json

import pytest

import handrail as hr
from handrail.core.redaction import HIDDEN
from handrail.testing import ScriptedModel, call

KEY = "sk-proj-abc123def456ghi789jkl012"
AWS_ID = "AKIAIOSFODNN7EXAMPLE"
AWS_SECRET = "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY"
FORMS = {
    "a text": f"the key is {KEY}",
    "in a value": {"rows": [{"name": "ci", "of it": KEY}]},
    "two fields": {"id": AWS_ID, "of it": AWS_SECRET},
    "a failure": hr.ToolError("REFUSED", f"{KEY} was revoked", suggestion=f"not {KEY}"),
    "a long text": f"{KEY} " + "word " * 10_000 + KEY,
}


def read(value, effect="read", policy=None, store="memory:", **settings):
    @hr.tool(effect=effect, risk="low", **settings)
    def look():
        """Look."""
        if isinstance(value, Exception):
            raise value
        return value

    with hr.SyncRuntime([look], policy=policy, store=store) as runtime:
        run = runtime.run("Look.", model=ScriptedModel([[call("look")], "Done."]))
        assert run.ok
        [message] = [each for each in run.messages if isinstance(each, hr.ToolMessage)]
        return message.result, run.id


def holds(result):
    shown = result.text + json.dumps(result.value, default=str) + str(result.failure)
    return KEY in shown or AWS_SECRET in shown


@pytest.mark.parametrize("value", FORMS.values(), ids=FORMS)
@pytest.mark.parametrize("effect", ["read", "write", None])
def test_a_key_in_a_result_of_the_world_is_hidden_from_the_model(value, effect):
    result, _ = read(value, effect)
    assert HIDDEN in result.text
    assert not holds(result)


@pytest.mark.parametrize("value", FORMS.values(), ids=FORMS)
@pytest.mark.parametrize(
    "settings",
    [
        {"sends": hr.Sends(trust="trusted")},
        {"policy": hr.Policy(foreign_secrets="show")},
    ],
)
def test_a_tool_that_returns_keys_by_design_and_a_policy_that_shows_them(
    value, settings
):
    result, _ = read(value, **settings)
    assert holds(result)


@pytest.mark.parametrize("policy", [None, hr.Policy(foreign_secrets="show")])
@pytest.mark.parametrize("value", FORMS.values(), ids=FORMS)
def test_no_key_reaches_the_audit_log_whatever_the_policy_shows(
    value, policy, tmp_path
):
    @hr.tool(effect="write")
    def send(body: dict) -> None:
        """Send."""

    store = f"sqlite:///{tmp_path}/h.db"
    shown = json.loads(json.dumps(value, default=str))
    body = shown if isinstance(shown, dict) else {"text": shown}
    with hr.SyncRuntime([send], policy=policy, store=store) as runtime:
        model = ScriptedModel([[call("send", body=body)], "Done."])
        run = runtime.run("Send.", model=model)
        records = runtime.store.log(run_id=run.id).result()
    kept = json.dumps([each.body for each in records])
    assert KEY not in kept
    assert AWS_SECRET not in kept


def test_code_of_yours_gets_what_a_tool_returned():
    @hr.tool(effect="read")
    def look() -> str:
        """Look."""
        return KEY

    with hr.SyncRuntime([look]) as runtime:
        assert runtime.call("look").value == KEY
        message = {
            "role": "assistant",
            "content": None,
            "tool_calls": [
                {
                    "id": "c1",
                    "type": "function",
                    "function": {"name": "look", "arguments": "{}"},
                }
            ],
        }
        assert runtime.handle(message)[0]["content"] == HIDDEN


@pytest.mark.parametrize("store", ["memory:", "sqlite"])
def test_a_write_that_is_repeated_shows_its_key_no_second_time(store, tmp_path):
    @hr.tool(effect="write", key="make")
    def make() -> str:
        """Make."""
        return KEY

    place = store if store == "memory:" else f"sqlite:///{tmp_path}/h.db"
    with hr.SyncRuntime([make], store=place) as runtime:
        for _ in range(2):
            model = ScriptedModel([[call("make")], "Done."])
            run = runtime.run("Make.", model=model)
            texts = [
                each.result.text
                for each in run.messages
                if isinstance(each, hr.ToolMessage)
            ]
            assert len(texts) == 1
            assert KEY not in texts[0]


def test_the_switch_is_one_of_two_words():
    with pytest.raises(hr.ConfigError, match="foreign_secrets is 'no'"):
        hr.Policy(foreign_secrets="no")
