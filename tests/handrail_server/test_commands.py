"""`handrail demo --console` and `handrail runs show RUN --console`: the console beside a run, and on a kept one."""

import re

from tests.handrail_server.served import PATIENCE_S, Served, wait_until
from tests.support.terminals import program_in_terminal


def test_the_demo_is_approved_in_the_console_and_its_run_is_shown_when_it_is_kept(
    tmp_path,
):
    store = f"sqlite:///{tmp_path}/demo.db"
    with program_in_terminal(
        "demo", "--console", "--store", store, BROWSER="true", cwd=tmp_path
    ) as (person, program):
        shown = person.reads_until(r"http://127\.0\.0\.1:\d+/")
        served = Served(re.search(r"http://[\d.:]+/", shown)[0])
        with served.client:
            person.reads_until(r"\(a\)pprove")
            question = served.question()
            assert question["tool"] == "restart_service"
            assert served.word(question).status_code == 200
            person.reads_until("taken back: it is approved")
            person.reads_until("restarted 1 time")
            run = served.get(f"/runs/{question['run']}")
            assert run["run"]["status"] == "done"
            exchange = served.get(f"/runs/{question['run']}/wire")["items"][0]
            assert exchange["curl"].startswith("curl -sS http://127.0.0.1")
            person.reads_until("Ctrl-C")
        person.presses_ctrl_c()
        assert program.wait(PATIENCE_S) == 0
    with program_in_terminal(
        "runs", "show", question["run"], "--console", "--store", store, BROWSER="true"
    ) as (person, program):
        shown = person.reads_until(r"http://\S+; end")
        url = re.search(r"http://\S+/", shown)[0].partition("#")[0]
        assert f"#/runs/{question['run']}" in shown
        served = Served(url)
        with served.client:
            kept = wait_until(
                lambda: served.get(f"/runs/{question['run']}"), lambda page: page
            )
        assert [each["status"] for each in kept["calls"]] == [
            each["status"] for each in run["calls"]
        ]
        attempts = [
            each["n"]
            for card in kept["calls"]
            for each in card["segments"]
            if each["kind"] == "attempt"
        ]
        assert 2 in attempts
        assert {"single_quotes", "trailing_comma"} <= {
            name for card in kept["calls"] for name in card["arguments"]["repairs"]
        }
        person.presses_ctrl_c()
        program.wait(PATIENCE_S)
