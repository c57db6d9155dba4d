"""Names: what is refused wherever one comes in, and what becomes of runs whose names an earlier version took."""

import sqlite3
from contextlib import closing
from functools import partial

import pytest

import handrail as hr
from handrail import admin
from handrail.errors import ConfigError
from handrail.futures import result_now
from handrail.records import ApprovalRequest, RunRecord, StandingApproval
from handrail.stores.sqlite import SqliteStore
from handrail.testing import ScriptedModel, call

UNSEEN = "a\u202eb\n"
NO_NAME = r"is 'a.u202eb.n'; a name cannot contain .u202e"


@hr.tool(effect="read")
def get_weather(city: str) -> str:
    """Look up the weather."""
    return f"sunny in {city}"


def leave(flow):
    """Take no step."""


@pytest.mark.parametrize(
    "come_in",
    [
        lambda runtime: runtime.run("?", model=ScriptedModel(["Hi"]), run_id=UNSEEN),
        lambda runtime: runtime.submit("?", run_id=UNSEEN),
        lambda runtime: runtime.submit("?", queue=UNSEEN),
        lambda runtime: runtime.submit("?", scope=UNSEEN),
        lambda runtime: runtime.workflow(leave, run_id=UNSEEN),
        lambda runtime: runtime.calls([call("get_weather", city="Oslo")], run=UNSEEN),
        lambda runtime: runtime.preview(call("get_weather", city="Oslo"), run=UNSEEN),
        lambda runtime: hr.SyncSession(
            runtime, id=UNSEEN, model=ScriptedModel(["Hi"])
        ).run("?"),
        lambda runtime: runtime.cancel("r", by=UNSEEN),
    ],
)
@pytest.mark.parametrize("kind", ["sqlite", "memory"])
def test_a_name_that_a_list_would_not_show_as_it_is_is_refused(tmp_path, kind, come_in):
    place = f"sqlite:///{tmp_path}/handrail.db" if kind == "sqlite" else "memory"
    with hr.SyncRuntime([get_weather], store=place) as runtime:
        with pytest.raises(ConfigError, match=NO_NAME):
            come_in(runtime)
        if kind == "sqlite":  # the one in memory keeps no runs
            assert result_now(runtime.store.list_runs()) == []


@pytest.mark.parametrize(
    "decide",
    [
        partial(admin.approve, id="q"),
        partial(admin.deny, id="q"),
        partial(admin.withdraw, id="q"),
        partial(admin.revoke, id="g"),
        partial(admin.resolve, scope="pay", key="k", happened=True),
        partial(admin.cancel, run_id="r"),
    ],
)
@pytest.mark.parametrize(
    ("by", "says"), [("", "by is ''; it takes a name"), (UNSEEN, NO_NAME)]
)
def test_nobody_without_a_name_decides(tmp_path, decide, by, says):
    with SqliteStore(tmp_path / "handrail.db") as store:
        result_now(store.begin_run(RunRecord("r", {})))
        asked = ApprovalRequest("q", "r", "c", "pay", "digest", {}, "high", "", "")
        result_now(store.ask(asked, within_s=60))
        result_now(store.grant(StandingApproval("g", "", "pay", "pin", "risk", "anna")))
        with pytest.raises(ConfigError, match=says):
            decide(store, by=by)
        assert result_now(store.list_approvals())[0].state == "open"
        assert len(result_now(store.list_standing_approvals())) == 1
        assert not result_now(store.load_run("r")).record.cancel_requested
        assert result_now(store.log()) == []


def test_a_run_that_an_earlier_version_named_so_is_read_and_resumed(tmp_path):
    place = tmp_path / "handrail.db"
    with hr.SyncRuntime([get_weather], store=f"sqlite:///{place}") as runtime:
        runtime.submit("Hi?", run_id="r")
    with closing(sqlite3.connect(place)) as file, file:
        file.execute("UPDATE runs SET run_id = ?", (UNSEEN,))
    with hr.SyncRuntime([get_weather], store=f"sqlite:///{place}") as runtime:
        assert runtime.resume(UNSEEN, model=ScriptedModel(["Hi."])).text == "Hi."
        assert runtime.result(UNSEEN).text == "Hi."
        again = runtime.run("And?", model=ScriptedModel(["Bye."]), after=UNSEEN)
        assert again.text == "Bye."
