"""What other processes do with the store: it is seen, and runs that were answered there go on here."""

import asyncio
import signal
import sqlite3
from contextlib import closing

import pytest

import handrail as hr
from handrail import admin
from handrail.futures import result_now
from handrail.serving.tokens import make_entry
from handrail.stores.memory_runs import FullMemoryStore
from handrail.stores.sqlite import SqliteStore
from handrail.testing import ScriptedModel, ScriptedServer, call
from handrail_server.access import Access, Principal
from handrail_server.rates import RequestRate
from handrail_server.run_index import RunFilter, RunIndex
from tests.handrail_server.served import (
    PATIENCE_S,
    delete_order,
    get_order,
    scripted,
    served_process,
    serving,
    wait_until,
)

EVERYBODY = Principal("anna", "administer")
ALL = RunFilter()


def test_a_question_that_is_answered_elsewhere_lets_the_run_go_on_here(tmp_path):
    place = f"{tmp_path}/h.db"
    with serving(model=scripted(), store=f"sqlite:///{place}") as served:
        run = served.post("/runs", {"question": "Delete A-1."}, 201)["id"]
        served.run_until(run, "waiting")
        with SqliteStore(place) as elsewhere:
            admin.approve(elsewhere, served.question()["id"], by="maria")
        page = served.run_until(run, "done")
    assert page["approvals"][0]["by"] == "maria"


def test_whoever_listens_to_a_run_hears_that_its_last_question_was_answered(tmp_path):
    place = f"{tmp_path}/h.db"
    with serving(model=scripted(), store=f"sqlite:///{place}") as served:
        run = served.post("/runs", {"question": "Delete A-1."}, 201)["id"]
        with served.client.stream("GET", f"/api/v1/runs/{run}/events") as answer:
            events = (
                line for line in answer.iter_lines() if line.startswith("event: ")
            )
            heard_of_question = "event: approvals_changed"
            assert heard_of_question in events
            with SqliteStore(place) as elsewhere:
                (question,) = elsewhere.list_approvals().result()
                admin.approve(elsewhere, question.id, by="maria")
            until_end = iter(events.__next__, "event: run_ended")
            assert heard_of_question in until_end


def test_a_run_that_goes_on_acts_for_whoever_it_began_for(tmp_path):
    place = f"{tmp_path}/h.db"
    entry = make_entry("anna", role="administer")
    file = tmp_path / "tokens.toml"
    file.write_text(entry.text)
    script = [
        [call("delete_order", order_id="A-1")],
        [call("delete_order", order_id="A-2")],
        "Both are gone.",
    ]
    with serving(
        model=scripted(*script), store=f"sqlite:///{place}", access=Access(file)
    ) as served, SqliteStore(place) as elsewhere:  # fmt: skip
        served.client.headers["authorization"] = f"Bearer {entry.token}"
        run = served.post("/runs", {"question": "Delete both."}, 201)["id"]
        first = served.question()["id"]
        served.run_until(run, "waiting")
        admin.approve(elsewhere, first, by="maria")
        wait_until(lambda: served.question()["id"], lambda id: id != first)
        second = served.question()["id"]
        assert admin.question(elsewhere, second).principal == "anna"
        served.run_until(run, "waiting")

        # a fork of it that waits goes on in the same way
        fork = served.post(f"/runs/{run}/fork", {"at": 1}, 201)["id"]
        served.run_until(fork, "waiting")
        asked = served.get("/approvals")["items"]
        (forked,) = [each["id"] for each in asked if each["run"] == fork]
        admin.approve(elsewhere, forked, by="maria")
        again = wait_until(
            lambda: served.get(f"/runs/{fork}")["approvals"],
            lambda approvals: len(approvals) > 1,
        )
        assert again[0]["by"] == "maria"


def test_runs_that_are_over_are_not_read_again_and_again():
    with serving(model=scripted("Hello.", "Hello.")) as served:
        for _ in range(2):
            run = served.post("/runs", {"question": "Hello?"}, 201)["id"]
            served.run_until(run, "done")
        wait_until(lambda: len(served.deployment._waiting_for_others), lambda n: not n)


@pytest.mark.parametrize("later", ['{"calls": [{"of": "a later version"}]}', "{"])
def test_one_run_that_cannot_be_read_does_not_cost_the_list(tmp_path, later):
    place = f"{tmp_path}/h.db"
    store = f"sqlite:///{place}"
    with serving(model=scripted("Hello."), store=store) as served:
        runs = [
            served.post("/runs", {"question": "Hello?"}, 201)["id"] for _ in range(2)
        ]
        for run in runs:
            served.run_until(run, "done")
    with closing(sqlite3.connect(place)) as database, database:
        change = "UPDATE steps SET body = ? WHERE run_id = ? AND kind = 'model'"
        database.execute(change, (later, runs[0]))
    with serving(store=store) as served:
        listed = served.get("/runs")["items"]
    assert {each["id"] for each in listed} == set(runs)


def test_a_key_that_was_sent_with_another_question_is_refused():
    with serving(model=scripted("Hello.")) as served:
        how = {"headers": {"idempotency-key": "monday"}}
        run = served.post("/runs", {"question": "Hello?"}, 201, **how)
        again = served.post("/runs", {"question": "Hello?"}, 201, **how)
        assert (again["id"], again["new"]) == (run["id"], False)
        other = served.post("/runs", {"question": "Delete A-1."}, 422, **how)
        assert other["error"]["code"] == "key_reused"


def test_a_run_of_another_process_is_told_to_listeners_and_listed(tmp_path):
    place = f"{tmp_path}/h.db"
    with serving(store=f"sqlite:///{place}") as served:
        assert served.get("/runs")["items"] == []
        with served.client.stream("GET", "/api/v1/events") as answer:
            lines = answer.iter_lines()
            next(lines)

            async def elsewhere():
                async with hr.Runtime(
                    [get_order], store=f"sqlite:///{place}"
                ) as runtime:
                    await runtime.run(
                        "Hello?", model=ScriptedModel(["Hello."]), run_id="r_else"
                    )

            asyncio.run(elsewhere())
            assert any("r_else" in line for line in lines)
        listed = wait_until(lambda: served.get("/runs")["items"], bool)
        assert (listed[0]["id"], listed[0]["status"]) == ("r_else", "done")


def test_what_a_run_of_workers_waits_for_is_listed_and_shown(tmp_path):
    place = f"{tmp_path}/h.db"
    with hr.SyncRuntime([], store=f"sqlite:///{place}") as client:
        for name in ("r_away", "r_left", "r_new"):
            client.submit("Hello?", run_id=name, queue="mail")
    with SqliteStore(place) as store:
        result_now(store.take_segment("r_away", 1, after_death=False))
        away = {"wait_s": 60.0, "why": "its model is away", "model_turn": 1}
        result_now(store.finish_segment("r_away", 1, **away))
        result_now(store.note_segment("r_left", "it has no tool pay"))
        told = result_now(store.list_submitted(["r_away"]))["r_away"].note
    notes = {"r_away": told, "r_left": "it has no tool pay", "r_new": None}
    assert "its model is away" in told
    store = f"sqlite:///{place}"
    with serving(model=scripted("Hello."), store=store) as served:
        listed = served.get("/runs")["items"]
        assert {each["id"]: each["note"] for each in listed} == notes
        for name, note in notes.items():
            run = served.get(f"/runs/{name}")["run"]
            assert (run["status"], run["queue"], run["note"]) == (
                "queued",
                "mail",
                note,
            )
        assert served.post("/runs/r_away/wake") == {"id": "r_away", "status": "queued"}
        assert served.get("/runs/r_away")["run"]["note"] is None
        refused = served.post("/runs/r_new/wake", status=422)
        assert "it is queued in mail already" in str(refused)
        run = served.post("/runs", {"question": "Hello?"}, 201)["id"]
        shown = served.run_until(run, "done")["run"]
        assert (shown["queue"], shown["note"]) == (None, None)


TOOLS = """
import asyncio
from pathlib import Path
import handrail as hr

@hr.tool(effect="read")
async def get_order(order_id: str) -> str:
    \"\"\"Look up an order.\"\"\"
    Path("inside").touch()
    await asyncio.Event().wait()
"""


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_a_server_whose_terminal_is_closed_leaves_its_runs_as_one_that_is_told_to_end(
    tmp_path, number
):
    (tmp_path / "tools.py").write_text(TOOLS)
    store = f"sqlite:///{tmp_path}/h.db"
    with ScriptedServer([call("get_order", order_id="A-1")]) as model:
        words = ("--store", store, "--tools", "tools.py", "--model", model.model)
        with served_process(*words, folder=tmp_path) as (served, process):
            run = served.post("/runs", {"question": "Is A-1 paid?"}, 201)["id"]
            wait_until((tmp_path / "inside").exists, bool)
            process.send_signal(number)
            assert process.wait(PATIENCE_S) == 128 + signal.SIGTERM
    with SqliteStore(tmp_path / "h.db") as left:
        assert result_now(left.load_run(run)).record.status == "queued"


def run_one(store, name, *script):
    async def run():
        async with hr.Runtime([get_order, delete_order], store=store) as runtime:
            await runtime.run(
                f"Question of {name}", model=ScriptedModel(list(script)), run_id=name
            )

    asyncio.run(run())


def test_pages_of_a_list_meet_without_a_gap_or_a_run_twice():
    store = FullMemoryStore()
    for number in range(7):
        run_one(store, f"r_{number}", "Hello.")
    index = RunIndex(store)
    index.refresh()
    seen, before = [], None
    while True:
        found, before = index.search(ALL, EVERYBODY, before=before, most=3)
        seen += [each.id for each in found]
        if before is None:
            break
    assert seen == [f"r_{number}" for number in reversed(range(7))]


def test_a_change_is_seen_at_the_next_look_and_only_once():
    store = FullMemoryStore()
    run_one(store, "r_1", "Hello.")
    index = RunIndex(store)
    assert index.refresh(at_least=0) == ()
    assert index.refresh(at_least=0) == []
    run_one(store, "r_2", "Hello.")
    assert [each.id for each in index.refresh(at_least=0)] == ["r_2"]
    assert index.refresh(at_least=0) == []


def test_a_thousand_sockets_listen_and_one_that_never_reads_slows_none():
    count = 1000
    with serving(rate=RequestRate(10_000, 10_000)) as served:
        hub = served.deployment.hub
        host, _, port = served.url.removeprefix("http://").partition(":")
        request = f"GET /api/v1/events HTTP/1.1\r\nhost: {host}\r\n\r\n".encode()

        async def connect():
            reader, writer = await asyncio.open_connection(host, int(port))
            writer.write(request)
            return reader, writer

        async def listen_all():
            connections = [await connect() for _ in range(count + 1)]
            async with asyncio.timeout(PATIENCE_S):
                while hub.listeners <= count:
                    await asyncio.sleep(0.05)
            # the last of them is never read
            heard = [
                asyncio.ensure_future(reader.readuntil(b"event: mark"))
                for reader, _ in connections[:-1]
            ]
            hub.publish("mark")
            await asyncio.wait_for(asyncio.gather(*heard), PATIENCE_S)
            for _, writer in connections:
                writer.close()

        asyncio.run(listen_all())
        # the server sees that they have hung up, or it would hold a thousand sockets at its end
        wait_until(lambda: hub.listeners, lambda left: left == 0)
