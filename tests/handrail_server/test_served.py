"""A server that is killed, and three who answer one question at once: nothing is lost, and nothing is done twice."""

import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest

import handrail as hr
from handrail.testing import ScriptedServer, call
from tests.handrail_server.served import PATIENCE_S, served_process, wait_until
from tests.support.effort import volume
from tests.support.terminals import program_in_terminal

TOOLS = '''
from pathlib import Path
from time import sleep
import handrail as hr

HERE = Path(__file__).parent

def note(text):
    with (HERE / "world").open("a") as world:
        world.write(text + "\\n")

@hr.tool(effect="destructive")
def delete_order(order_id: str) -> str:
    """Delete an order for good."""
    note(f"deleted {order_id}")
    return f"deleted {order_id}"

@hr.tool(effect="write", timeout_s=600)
def pay(order_id: str) -> str:
    """Pay an order, at a provider that takes its time."""
    note(f"paid {order_id}")
    while not (HERE / "go").exists():
        sleep(0.01)
    return f"paid {order_id}"
'''


on_a_file = pytest.mark.parametrize(
    "store", ["sqlite", pytest.param("postgres", marks=volume)], indirect=True
)


@pytest.fixture
def tools(tmp_path):
    file = tmp_path / "shop.py"
    file.write_text(TOOLS, encoding="utf-8")
    return file


def world(tools: Path) -> list[str]:
    file = tools.parent / "world"
    return file.read_text().splitlines() if file.exists() else []


def kill(process):
    process.send_signal(signal.SIGKILL)
    process.wait(PATIENCE_S)


def serve(store, tools, *words):
    return served_process(
        "--store", store, "--tools", str(tools), *words, folder=tools.parent
    )


@on_a_file
def test_a_server_killed_before_and_after_a_word_loses_nothing(store, tools):
    script = [[call("delete_order", order_id="A-1")], "It is gone."]
    with ScriptedServer(script) as model:
        how = (store, tools, "--model", model.model)
        with serve(*how) as (served, process):
            run = served.post("/runs", {"question": "Delete A-1."}, 201)["id"]
            served.run_until(run, "waiting")
            asked = served.question()
            kill(process)
        # another one has the same question; its word is recorded, and the server dies with it
        with serve(*how[:2]) as (served, process):
            (again,) = [
                each for each in served.get("/approvals")["items"] if each["run"] == run
            ]
            assert again == asked
            assert served.get(f"/runs/{run}")["run"]["status"] == "waiting"
            said = served.word(again)
            assert said.status_code == 200, said.text
            kill(process)
        with serve(*how) as (served, _):
            if served.get(f"/runs/{run}")["run"]["status"] != "done":
                served.client.post(f"/api/v1/runs/{run}/resume", json={})
            page = served.run_until(run, "done")
            late = served.word(again)
    assert page["run"]["final_text"] == "It is gone."
    assert late.status_code == 409
    assert late.json()["error"]["code"] == "already_answered"
    assert world(tools) == ["deleted A-1"]


def test_a_run_that_is_answered_while_no_server_lives_goes_on_with_the_next_one(
    tools, tmp_path
):
    store = f"sqlite:///{tmp_path}/h.db"
    script = [[call("delete_order", order_id="A-1")], "It is gone."]
    with ScriptedServer(script) as model:
        how = (store, tools, "--model", model.model)
        with serve(*how) as (served, process):
            run = served.post("/runs", {"question": "Delete A-1."}, 201)["id"]
            served.run_until(run, "waiting")
            asked = served.question()
            kill(process)
        with hr.SyncRuntime([], store=store) as runtime:
            runtime.approvals.approve(asked["id"], by="ana")
        with serve(*how) as (served, _):
            assert served.run_until(run, "done")["run"]["final_text"] == "It is gone."
    assert world(tools) == ["deleted A-1"]


@on_a_file
def test_a_server_killed_in_a_write_leaves_it_in_doubt_and_it_is_not_made_again(
    store, tools
):
    script = [[call("pay", order_id="A-1")], "It may be paid."]
    with ScriptedServer(script) as model:
        how = (store, tools, "--model", model.model, "--yes-to", "medium")
        with serve(*how) as (served, process):
            run = served.post("/runs", {"question": "Pay A-1."}, 201)["id"]
            wait_until(lambda: world(tools), bool)
            (claimed,) = served.get("/ledger", params={"run": run})["items"]
            assert claimed["state"] == "claimed"
            kill(process)
        with serve(*how) as (served, _):
            (doubt,) = served.get("/ledger", params={"run": run})["items"]
            assert doubt["state"] == "in_doubt"
            served.post(f"/runs/{run}/resume")
            page = served.run_until(run, "done")
            assert [each["status"] for each in page["calls"]] == ["in_doubt"]
            (row,) = [
                each for each in served.get("/runs")["items"] if each["id"] == run
            ]
            assert row["in_doubt"] == 1
            settled = served.post(
                f"/ledger/{doubt['id']}",
                {"outcome": "done", "note": "seen at the bank"},
            )
            assert settled["state"] == "done"
            again = served.client.post(
                f"/api/v1/ledger/{doubt['id']}", json={"outcome": "not_done"}
            )
            assert (again.status_code, again.json()["error"]["state"]) == (409, "done")
            assert served.get("/audit/verify")["ok"]
    assert world(tools) == ["paid A-1"]


def test_of_console_terminal_and_command_the_first_word_counts_and_the_others_are_told(
    store, tools
):
    script = [[call("delete_order", order_id="A-1")], "It is over."]
    with (
        ScriptedServer(script) as model,
        serve(store, tools) as (served, _),
        program_in_terminal(
            "run", "Delete A-1.", "--tools", str(tools), "--store", store,
            "--model", model.model,
        ) as (person, program),
    ):  # fmt: skip
        person.reads_until(r"\(a\)pprove")
        question = served.question()
        barrier = threading.Barrier(3)
        outcomes = {}

        def by_console():
            barrier.wait()
            outcomes["console"] = served.word(question, "deny", reason="not today")

        def by_command():
            words = [
                "approvals",
                "approve",
                question["id"],
                "--by",
                "maria",
                "--store",
                store,
            ]
            environ = {
                k: v for k, v in os.environ.items() if not k.startswith("HANDRAIL_")
            }
            barrier.wait()
            outcomes["command"] = subprocess.run(
                [sys.executable, "-m", "handrail", *words],
                capture_output=True, text=True, env=environ, timeout=PATIENCE_S,
            )  # fmt: skip

        threads = [threading.Thread(target=each) for each in (by_console, by_command)]
        for each in threads:
            each.start()
        barrier.wait()
        person.types("a\n")
        for each in threads:
            each.join()
        person.reads_all()
        program.wait(PATIENCE_S)
        run = question["run"]
        page = wait_until(
            lambda: served.get(f"/runs/{run}"), lambda page: page["run"]["ended_at"]
        )
        (kept,) = page["approvals"]
        console = outcomes["console"]
        command = outcomes["command"]
        winners = [
            console.status_code == 200,
            command.returncode == 0,
            kept["by"] not in ("maria",) and kept["state"] == "used",
        ]
        assert sum(winners) == 1, (console.text, command, kept)
        if console.status_code != 200:
            told = console.json()["error"]
            assert (console.status_code, told["code"]) == (409, "already_answered")
            assert told["by"] == kept["by"]
        if command.returncode:
            assert (
                "somebody was quicker" in command.stderr
                or "cannot be answered again" in command.stderr
            )
        words = [
            each
            for each in served.get(f"/runs/{run}/audit")["items"]
            if each["event"] == "ApprovalDecided"
        ]
        assert len(words) <= 1
    assert world(tools) == (["deleted A-1"] if kept["state"] == "used" else [])
