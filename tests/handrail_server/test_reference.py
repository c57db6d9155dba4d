"""The reference of the HTTP API: its table is the code's, and its programs run as they stand there."""

import os
import re
import shutil
import subprocess

import pytest

from handrail.testing import ScriptedServer, call
from tests.handrail_server.served import PATIENCE_S, served_process, wait_until
from tests.support import api_page

TOOLS = '''
import handrail as hr

@hr.tool(effect="destructive")
def delete_order(order_id: str) -> str:
    """Delete an order for good."""
    return f"deleted {order_id}"
'''
EXPECTED = [
    "",
    'waiting\ndelete_order waiting\ndelete_order {"order_id":"A-1"} because delete_order has high risk\n',
    "approved\ntrue\n",
    "already_answered\nused\n",
    None,
    "Delete the order A-1.\ndelete_order done\ntrue\n",
]


def test_the_table_of_operations_is_that_of_the_code():
    assert api_page.shown() == api_page.wanted(), (
        "run: python -m tests.docs.test_pages --write"
    )


def test_the_programs_of_the_page_run_as_they_stand_there(tmp_path):
    for program in ("curl", "jq", "bash"):
        if shutil.which(program) is None:
            pytest.skip(f"no {program} here")
    blocks = re.findall(
        r"```bash\n(.*?)```", api_page.PAGE.read_text(encoding="utf-8"), re.S
    )
    (tmp_path / "shop.py").write_text(TOOLS)
    script = [[call("delete_order", order_id="A-1")], "It is gone."]
    with (
        ScriptedServer(script) as model,
        served_process(
            "--store", f"sqlite:///{tmp_path}/h.db", "--tools", "shop.py",
            "--model", model.model, folder=tmp_path,
        ) as (served, _),
    ):  # fmt: skip
        printed = []
        for number, block in enumerate(blocks):
            if number == 1:
                served.question()
            if number == 3:
                run = (tmp_path / "run.txt").read_text().strip()
                served.run_until(run, "done")
            ran = subprocess.run(
                ["bash", "-euo", "pipefail", "-c", block], cwd=tmp_path, text=True,
                capture_output=True, timeout=PATIENCE_S,
                env={**os.environ, "HANDRAIL": served.url},
            )  # fmt: skip
            assert ran.returncode == 0, ran.stderr
            printed.append(ran.stdout)
        assert wait_until(lambda: served.get("/audit/verify"), bool)["ok"]
    heard = printed[4].split()
    assert {"run_started", "call_admitted", "approval_asked", "run_ended"} <= set(heard)
    assert [None if n == 4 else each for n, each in enumerate(printed)] == EXPECTED
