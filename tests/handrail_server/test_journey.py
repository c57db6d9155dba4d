"""A run over HTTP: started, waiting, approved, ended; and what its page says of it."""

import threading

import pytest

import handrail as hr
from handrail.testing import call
from handrail_server.tool_stats import percentile_ms
from tests.handrail_server.served import get_order, scripted, serving, wait_until


@pytest.fixture
def served(tmp_path):
    with serving(model=scripted(), store=f"sqlite:///{tmp_path}/h.db") as served:
        yield served


def _what_the_function_got(call):
    return call["arguments"]["final"]


def test_a_run_waits_for_a_word_and_goes_on_with_it(served):
    run = served.post("/runs", {"question": "Delete A-1."}, status=201)["id"]
    waiting = served.run_until(run, "waiting")
    question = served.question()
    assert question["run"] == run
    assert (question["tool"], question["arguments"]) == (
        "delete_order",
        {"order_id": "A-1"},
    )
    assert [each["status"] for each in waiting["calls"]] == ["ok", "waiting"]
    assert _what_the_function_got(waiting["calls"][1]) is None, "it was not called"
    said = served.word(question)
    assert said.status_code == 200, said.text
    assert said.json()["goes_on"]
    done = served.run_until(run, "done")
    assert done["run"]["final_text"] == "It is gone."
    assert [each["status"] for each in done["calls"]] == ["ok", "ok"]
    assert _what_the_function_got(done["calls"][1]) == {"order_id": "A-1"}
    assert [each["state"] for each in done["approvals"]] == ["used"]
    assert served.get("/approvals")["items"] == []


def test_the_card_of_a_call_has_every_step_from_the_text_to_the_text(served):
    run = served.post("/runs", {"question": "Delete A-1."}, status=201)["id"]
    served.run_until(run, "waiting")
    served.word(served.question())
    page = served.run_until(run, "done")
    first, second = page["calls"]
    assert first["arguments"]["raw"] == '{"order_id": "A-1"}'
    assert first["arguments"]["coerced"] == {"order_id": "A-1"}
    assert first["result"]["shown"].startswith('{"order_id":"A-1"')
    assert first["started_at"] <= first["ended_at"]
    assert [each["kind"] for each in first["segments"]][-1] == "attempt"
    kinds = [each["kind"] for each in second["segments"]]
    assert kinds[0] == "approval" and kinds[-1] == "attempt"
    assert all(each["start_ms"] <= each["end_ms"] for each in second["segments"]), (
        second["segments"]
    )
    assert second["key"] and second["ledger"]["state"] == "done"
    steps = [each["step"] for each in second["decisions"]]
    assert steps == ["schema", "risk", "approval", "ledger", "result"]
    assert second["risk"] == "high"


def test_the_same_card_is_made_from_the_log_after_a_restart(served, tmp_path):
    run = served.post("/runs", {"question": "Delete A-1."}, status=201)["id"]
    served.run_until(run, "waiting")
    served.word(served.question())
    live = served.run_until(run, "done")
    with serving(store=f"sqlite:///{tmp_path}/h.db") as again:
        kept = again.get(f"/runs/{run}")
    assert [each["arguments"] for each in kept["calls"]] == [
        each["arguments"] for each in live["calls"]
    ]
    assert [each["decisions"] for each in kept["calls"]] == [
        each["decisions"] for each in live["calls"]
    ]
    kinds = {each["kind"] for call in kept["calls"] for each in call["segments"]}
    assert {"attempt", "approval"} <= kinds
    assert kept["run"] == live["run"]


def test_while_one_call_runs_it_is_running_and_the_one_beside_it_has_ended(tmp_path):
    may_end = threading.Event()

    @hr.tool(effect="write", key="report")
    def write_report() -> str:
        """Write a report."""
        assert may_end.wait(30)
        return "written"

    model = scripted([call("write_report"), call("get_order", order_id="A-1")], "Done.")
    store = f"sqlite:///{tmp_path}/h.db"
    with serving(write_report, get_order, model=model, store=store) as served:
        run = served.post("/runs", {"question": "Report."}, status=201)["id"]
        states = ["running", "ok"]
        try:
            wait_until(
                lambda: [c["status"] for c in served.get(f"/runs/{run}")["calls"]],
                states.__eq__,
            )
        finally:
            may_end.set()
        served.run_until(run, "done")


def test_a_denial_is_read_by_the_model_with_its_reason(served):
    run = served.post("/runs", {"question": "Delete A-1."}, status=201)["id"]
    served.run_until(run, "waiting")
    served.word(served.question(), "deny", reason="ask the customer first")
    page = served.run_until(run, "done")
    assert page["calls"][1]["status"] == "denied"
    assert "ask the customer first" in page["calls"][1]["result"]["shown"]
    assert _what_the_function_got(page["calls"][1]) is None
    assert page["run"]["failed"] == 0, "a denial is no failure of the tool"


@pytest.mark.parametrize(
    ("share", "expected_ms"), [(0.5, 2000.0), (0.75, 3000.0), (0.95, 4000.0)]
)
def test_half_of_the_calls_ended_within_the_time_called_p50(share, expected_ms):
    assert percentile_ms([1.0, 2.0, 3.0, 4.0], share) == expected_ms


def test_a_request_with_a_key_starts_one_run(served, caplog):
    headers = {"idempotency-key": "monday"}
    body = {"question": "Delete A-1."}
    one = served.client.post("/api/v1/runs", json=body, headers=headers).json()["id"]
    served.run_until(one, "waiting")
    other = served.client.post("/api/v1/runs", json=body, headers=headers).json()["id"]
    assert one == other
    assert len(served.get("/runs")["items"]) == 1
    assert not [each for each in caplog.records if one in each.getMessage()]


def test_the_list_is_searched_by_words_status_tool_and_who_waits(served):
    waits = served.post("/runs", {"question": "Delete the order."}, status=201)["id"]
    served.run_until(waits, "waiting")

    def found(**query):
        return [each["id"] for each in served.get("/runs", params=query)["items"]]

    assert found() == found(waiting="1") == found(q="ORDER delete") == [waits]
    assert found(tool="delete_order", status="waiting") == [waits]
    assert found(q="refund") == found(status="done") == found(tool="pay") == []
    assert found(failure="IN_DOUBT") == []


@pytest.mark.parametrize(
    "path", ["/runs?status=gone", "/approvals?state=gone", "/ledger?state=gone"]
)
def test_a_filter_that_nothing_can_pass_is_refused(served, path):
    answer = served.client.get(f"/api/v1{path}")
    error = answer.json()["error"]
    assert (answer.status_code, error["code"]) == (422, "bad_parameter")
    assert " is one of " in error["message"]


def test_a_run_is_cancelled_and_forked(served):
    run = served.post("/runs", {"question": "Delete A-1."}, status=201)["id"]
    served.run_until(run, "waiting")
    for _ in range(2):  # a second click is no fault
        assert served.post(f"/runs/{run}/cancel")["status"] == "cancelled"
    assert served.get("/approvals")["items"] == []
    fork = served.post(f"/runs/{run}/fork", {"at": 1}, status=201)["id"]
    assert fork != run
    assert served.get(f"/runs/{fork}")["run"]["forked_from"] == run


def test_every_reading_operation_answers(served):
    run = served.post("/runs", {"question": "Delete A-1."}, status=201)["id"]
    served.run_until(run, "waiting")
    served.word(served.question())
    served.run_until(run, "done")
    roles = [each["role"] for each in served.get(f"/runs/{run}/messages")["items"]]
    assert roles == ["user", "assistant", "tool", "tool", "assistant"]
    assert (
        served.get(f"/runs/{run}/wire")["items"] == []
    )  # a scripted model has no wire
    names = [each["event"] for each in served.get(f"/runs/{run}/audit")["items"]]
    assert "ApprovalDecided" in names and names[0] == "RunStarted"
    prompt = served.get(f"/runs/{run}/prompt", params={"dialect": "openai-chat"})
    assert prompt["body"]["messages"][0]["role"] == "user"
    exported = served.client.get(f"/api/v1/runs/{run}/export").text.splitlines()
    assert len(exported) == 5
    (write,) = served.get("/ledger")["items"]
    assert (write["state"], write["run"]) == ("done", run)
    assert served.get("/audit")["items"][0]["seq"] == 1
    assert served.get("/audit/verify")["ok"] is True
    tools = {each["name"]: each for each in served.get("/tools")["items"]}
    assert tools["delete_order"]["calls"] == 1 and tools["delete_order"]["tokens"] > 0
    assert tools["delete_order"]["p95_ms"] is not None
    assert served.get("/live")["locks"] == []
    assert served.get("/servers")["items"] == []
    paths = served.get("/openapi.json")["paths"]
    assert "/api/v1/runs/{id}" in paths


@pytest.mark.others
def test_a_run_is_told_as_the_prompt_of_an_open_model(served):
    run = served.post("/runs", {"question": "Delete A-1."}, status=201)["id"]
    served.run_until(run, "waiting")
    prompt = served.get(f"/runs/{run}/prompt", params={"dialect": "hermes-2-pro"})
    assert "delete_order" in prompt["text"]


def test_a_tool_is_called_by_hand_with_every_check(served):
    result = served.post("/tools/get_order/call", {"arguments": {"order_id": "B-2"}})
    assert result["ok"] and "B-2" in result["text"]
    refused = served.post("/tools/get_order/call", {"arguments": {"order": 1}})
    assert refused["failure"]["error_code"] == "INVALID_ARGUMENTS"
    waits = served.post("/tools/delete_order/call", {"arguments": {"order_id": "B-2"}})
    assert waits["question"] == served.question()["id"]
