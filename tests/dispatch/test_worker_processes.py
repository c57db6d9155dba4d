"""`handrail worker` as a process of its own: told to end, asked for its health, killed, and many at once."""

import json
import os
import re
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import pytest
from click.testing import CliRunner
from msgspec.structs import replace

import handrail as hr
from handrail.cli import main
from handrail.futures import result_now
from handrail.records import Submission
from handrail.stores.sqlite import SqliteStore
from handrail.testing import Fault, ScriptedServer, call
from stand_ins.mail import Mailbox
from tests.support.effort import examples, volume

pytest.importorskip("psycopg", reason="no psycopg: install handrail[postgres]")

from benchmarks import workers

SOON_S = 120
HANDRAIL = [sys.executable, "-m", "handrail"]
TOOLS = '''
import time
from pathlib import Path
import handrail as hr

@hr.tool(effect="read", timeout_s=300)
def hold() -> str:
    """Wait until the gate is open."""
    Path("inside").touch()
    while not Path("gate").exists():
        time.sleep(0.02)
    return "held"
'''


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A folder with tools and a store; whatever is started runs in it."""
    (tmp_path / "tools.py").write_text(TOOLS)
    monkeypatch.setenv("HANDRAIL_STORE", f"sqlite:///{tmp_path}/runs.db")
    monkeypatch.setenv("OPENAI_API_KEY", "none")
    monkeypatch.setenv("PYTHONUNBUFFERED", "1")
    return tmp_path


@pytest.fixture
def model():
    with ScriptedServer([call("hold"), "Done."]) as server:
        yield server.model


@contextmanager
def worker(folder: Path, model: str, *words: str, **how):
    """Start a worker; yield it once it takes runs. What it logs is in the file `log`."""
    with (folder / "log").open("ab") as log:
        started = subprocess.Popen(
            [*HANDRAIL, "worker", "--tools", "tools.py", "--model", model, *words],
            cwd=folder, stdout=log, stderr=log, **how,
        )  # fmt: skip
    try:
        wait_until(
            lambda: f"worker {started.pid} takes runs" in logged(folder), started
        )
        yield started
    finally:
        started.kill()
        started.wait()


def logged(folder: Path) -> str:
    return (folder / "log").read_text()


def wait_until(holds, process=None) -> None:
    until = time.monotonic() + SOON_S
    while not holds():
        assert process is None or process.poll() is None, "the worker has ended"
        assert time.monotonic() < until
        time.sleep(0.02)


def handrail(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*HANDRAIL, *words], cwd=folder, capture_output=True, text=True, timeout=SOON_S
    )


@pytest.mark.parametrize("told", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_a_worker_that_is_told_to_end_finishes_what_it_has_begun(folder, model, told):
    submitted = handrail(folder, "runs", "submit", "Go.", "--run-id", "r", "--json")
    assert json.loads(submitted.stdout)["run_id"] == "r"
    listed = handrail(folder, "runs", "list")
    assert "queued in default" in listed.stdout
    with worker(folder, model, "--health", "0", "--grace", "100") as process:
        wait_until((folder / "inside").exists, process)
        assert f":{process.pid}" in handrail(folder, "runs", "list").stdout
        assert re.match(r"\d{4}-\d\d-\d\d [\d:,]{12} UTC INFO ", logged(folder))
        address = logged(folder).partition("health is answered on ")[2].split()[0]
        assert urllib.request.urlopen(f"{address}/readyz", timeout=SOON_S).status == 200
        # a wrapper, such as `timeout`, tells the process and then its group: both wait for the process here
        again = signal.SIGINT if told == signal.SIGTERM else signal.SIGTERM
        for number in (signal.SIGSTOP, told, again, signal.SIGCONT):
            process.send_signal(number)
        wait_until(lambda: "ending: " in logged(folder), process)
        process.send_signal(signal.SIGHUP)
        with pytest.raises(urllib.error.HTTPError, match="503") as refused:
            urllib.request.urlopen(f"{address}/readyz", timeout=SOON_S)
        refused.value.close()
        (folder / "gate").touch()
        assert process.wait(SOON_S) == 0
    waited = handrail(folder, "runs", "wait", "r", "--within", "50")
    assert (waited.returncode, waited.stdout) == (0, "Done.\n")
    assert "run r, segment 1, attempt 1, queue default: done" in logged(folder)


def test_a_worker_keeps_its_store_by_the_settings(folder, model):
    (folder / "handrail.toml").write_text('[retention]\nruns = "1s"\n')
    (folder / "gate").touch()
    handrail(folder, "runs", "submit", "Go.", "--run-id", "r")
    with SqliteStore(folder / "runs.db") as store, worker(folder, model) as process:
        wait_until(lambda: result_now(store.load_run("r")) is None, process)
        wait_until(lambda: "deleted, as [retention] says: 1 run," in logged(folder))
        process.send_signal(signal.SIGTERM)
        assert process.wait(SOON_S) == 0
    assert "run r, segment 1, attempt 1, queue default: done" in logged(folder)


def test_a_run_that_an_earlier_version_named_so_is_one_line_of_the_log(folder, model):
    (folder / "gate").touch()
    handrail(folder, "runs", "submit", "Go.", "--run-id", "r")
    with SqliteStore(folder / "runs.db") as store:
        record = result_now(store.load_run("r")).record
        result_now(store.request_cancel("r"))
        odd = replace(record, run_id="a\n2026 INFO b\u202e", epoch=0)
        result_now(store.submit_run(odd, Submission()))
        with worker(folder, model) as process:
            wait_until(
                lambda: result_now(store.load_run(odd.run_id)).record.status == "done",
                process,
            )
            process.send_signal(signal.SIGTERM)
            assert process.wait(SOON_S) == 0
    said = "run a\\x0a2026 INFO b\\u202e, segment 1, attempt 1, queue default: done"
    assert said in logged(folder)


@pytest.mark.others
def test_a_worker_tells_people_that_a_question_waits(folder):
    (folder / "tools.py").write_text(TOOLS.replace('"read"', '"destructive"'))
    handrail(folder, "runs", "submit", "Go.", "--run-id", "r")
    with ScriptedServer([call("hold"), "Done."]) as server, Mailbox() as box:
        told = f"mail:ops@example.com?server={box.host}&port={box.port}&tls=none&sender=bot@example.com"
        with worker(folder, server.model, "--notify", told) as process:
            waited = handrail(folder, "runs", "wait", "r", "--within", "50")
            wait_until(lambda: box.mails, process)
        assert " at once, with 1 tool\n" in logged(folder)
    assert waited.returncode == 3
    assert "handrail approvals approve a_" in box.mails[0].get_content()


def test_a_run_that_waits_for_its_model_outlives_the_worker_that_asked(folder):
    (folder / "gate").touch()
    with ScriptedServer([call("hold"), "Done."]) as server:
        # it answers once, and is away then
        server.faults = [None]
        server.outage = Fault(503, '{"error": {"message": "overloaded"}}')
        handrail(folder, "runs", "submit", "Go.", "--run-id", "r")
        with worker(folder, server.model, "--health", "0") as process:
            wait_until(lambda: "put back for" in logged(folder), process)
            address = logged(folder).partition("health is answered on ")[2].split()[0]
            assert (
                urllib.request.urlopen(f"{address}/readyz", timeout=SOON_S).status
                == 200
            )
            process.kill()
            process.wait()
        why = "its model is away: scripted at http://127.0.0.1:"
        assert f" s ({why}" in logged(folder)
        assert f" UTC: {why}" in handrail(folder, "runs", "show", "r").stdout
        listed = handrail(folder, "runs", "list").stdout
        assert listed.splitlines()[2].strip().startswith("not before ")
        waited = handrail(folder, "runs", "wait", "r", "--within", "0.1")
        assert (waited.returncode, why in waited.stderr) == (2, True)
        asked = len(server.requests)
        server.outage = None
        with worker(folder, server.model):
            waited = handrail(folder, "runs", "wait", "r", "--within", "50")
    assert (waited.stdout, len(server.requests) - asked) == ("Done.\n", 1)
    assert "run r, segment 2, attempt 1, queue default: done" in logged(folder)


@volume
def test_what_has_not_ended_within_the_grace_goes_on_in_another_worker(folder, model):
    handrail(folder, "runs", "submit", "Go.", "--run-id", "r")
    with worker(folder, model, "--grace", "0.1") as process:
        wait_until((folder / "inside").exists, process)
        process.send_signal(signal.SIGTERM)
        wait_until(lambda: "ending: " in logged(folder))
        (folder / "gate").touch()  # a thread cannot be stopped, only waited for
        assert process.wait(SOON_S) == 0
    with worker(folder, model):
        waited = handrail(folder, "runs", "wait", "r", "--within", "50")
    assert waited.stdout == "Done.\n"


def test_a_second_worker_of_a_file_stands_by_and_says_so(folder, model):
    handrail(folder, "runs", "submit", "Go.", "--run-id", "r")
    with worker(folder, model) as first:
        wait_until((folder / "inside").exists, first)
        with worker(folder, model) as second:
            wait_until(lambda: "the worker stands by: " in logged(folder), second)
            first.kill()
            (folder / "gate").touch()
            waited = handrail(folder, "runs", "wait", "r", "--within", "50")
    assert waited.stdout == "Done.\n"
    assert f":{first.pid}" in logged(folder).partition("stands by: ")[2].splitlines()[0]
    assert "the worker has sqlite:" in logged(folder)


def test_a_second_signal_ends_a_worker_at_once(folder, model):
    handrail(folder, "runs", "submit", "Go.", "--run-id", "r")
    with worker(folder, model, "--grace", "50") as process:
        wait_until((folder / "inside").exists, process)
        process.send_signal(signal.SIGTERM)
        wait_until(lambda: "ending: " in logged(folder))

        def has_ended():
            process.send_signal(signal.SIGTERM)
            return process.poll() is not None

        wait_until(has_ended)
        assert process.returncode == 128 + signal.SIGTERM


def test_a_worker_under_nohup_outlives_its_terminal(folder, model):
    ignore = partial(signal.signal, signal.SIGHUP, signal.SIG_IGN)
    with worker(folder, model, preexec_fn=ignore) as process:
        process.send_signal(signal.SIGHUP)
        (folder / "gate").touch()
        handrail(folder, "runs", "submit", "Go.", "--run-id", "r")
        waited = handrail(folder, "runs", "wait", "r", "--within", "50")
        assert (waited.stdout, process.poll()) == ("Done.\n", None)


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (["--store", "memory:"], "no runs"),
        (["--model", "gpt"], "provider"),
        (["--health", "nowhere"], "--health has"),
        (["--schedule", "none.toml"], "there is no file none.toml"),
        (["--concurrency", "0"], "--concurrency"),
        (["--grace", "nan"], "not a number of seconds"),
        (["--queue", ""], "queue is ''"),
    ],
)
def test_a_worker_that_cannot_work_says_why(folder, words, reason):
    ended = CliRunner().invoke(
        main, ["worker", "--tools", str(folder / "tools.py"), *words]
    )
    assert ended.exit_code == 2
    assert reason in ended.output
    assert "Traceback" not in ended.output


def test_a_worker_whose_schedule_cannot_be_kept_takes_no_run(folder, model):
    pytest.importorskip("cronsim", reason="no cronsim: install handrail[workers]")
    (folder / "gate").touch()
    (folder / "schedule.toml").write_text('[schedule.report]\ncron = "0 7 * *"\n')
    handrail(folder, "runs", "submit", "Go.", "--run-id", "r")
    how = ("--tools", "tools.py", "--model", model, "--schedule", "schedule.toml")
    refused = handrail(folder, "worker", *how)
    assert refused.returncode == 2
    assert "takes runs" not in refused.stderr
    assert refused.stderr.endswith("error: [schedule.report] has no `question`\n")


def test_a_worker_names_a_provider_of_its_schedule_that_it_lacks(folder, model):
    pytest.importorskip("cronsim", reason="no cronsim: install handrail[workers]")
    (folder / "schedule.toml").write_text(
        '[schedule.report]\ncron = "0 7 * * *"\nquestion = "Go."\nmodel = "opnai:gpt"\n'
    )
    with worker(folder, model, "--schedule", "schedule.toml"):
        assert (
            "WARNING [schedule.report]: this process has no provider 'opnai' (did you mean openai:gpt?): "
            "its runs wait until a worker has it\n"
        ) in logged(folder)


def test_killed_workers_lose_nothing_and_do_nothing_twice(tmp_path):
    check(place=f"sqlite:///{tmp_path}/runs.db", folder=tmp_path)


@volume
@pytest.mark.server
def test_workers_survive_kills_freezes_restarts_and_a_deploy(tmp_path):
    with workers.server_of_our_own() as server:
        check(place=server.dsn, folder=tmp_path, server=server)


def check(*, place, folder, server=None):
    trouble = workers.Trouble(
        kills=examples(2, 10), freezes=examples(0, 2), restarts=1 if server else 0
    )
    trouble.deployed = not server
    runs = examples(8, 60)
    verdict = workers.measure(
        runs, trouble, place=place, folder=folder, server=server, seconds=300, seed=os.getpid(),
        timing=workers.Timing(beat_s=0.5, dead_s=2.0, sweep_s=0.5),
    )  # fmt: skip
    assert verdict.broken == {"second effects": [], "lost": [], "unfinished": []}
    assert len(trouble.killed) >= 2


def test_a_submitter_and_a_worker_need_nothing_but_the_store(folder, model):
    (folder / "gate").touch()
    with hr.SyncRuntime(store=os.environ["HANDRAIL_STORE"]) as runtime:
        runtime.submit("Go.", run_id="r", scope="acme", principal="ben", priority=5)
        with worker(folder, model):
            run = runtime.result("r", scope="acme", within_s=SOON_S)
        [record] = result_now(runtime.store.list_runs())
    assert (run.id, run.text, record.run_id) == ("r", "Done.", "@acme/r")


def test_the_benchmark_says_in_one_sentence_what_its_own_server_needs(monkeypatch):
    monkeypatch.setattr(workers, "find_spec", lambda name: None)
    with (
        pytest.raises(
            SystemExit, match=r"needs psycopg and pytest: .* or name a store"
        ),
        workers.server_of_our_own(),
    ):
        pass
