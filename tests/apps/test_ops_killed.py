"""The restart of the ops app, when `handrail run` is killed in the middle of it and another process goes on."""

from __future__ import annotations

import json
import shlex
import shutil
import signal
import subprocess
import sys

from examples.apps.ops import DEPLOYMENTS, QUESTION, script

from handrail.testing import ScriptedServer
from stand_ins.cluster import FAKE_KUBECTL, StandInCluster

# It restarts for real; then, the first time, whoever called it is gone before it learns of that.
KUBECTL = """#!/bin/sh
{program} "$@"; code=$?
case "$*" in *restart*) if mkdir {killed} 2>/dev/null; then kill -9 $PPID; fi;; esac
exit $code
"""


def test_a_restart_in_which_the_process_died_happened_once_and_the_answer_arrives(
    tmp_path,
):
    with (
        StandInCluster(DEPLOYMENTS) as cluster,
        ScriptedServer(script(cluster)) as server,
    ):
        kubectl = tmp_path / "kubectl"
        program = shutil.which("kubectl") or shlex.join(FAKE_KUBECTL)
        kubectl.write_text(
            KUBECTL.format(program=program, killed=tmp_path / "killed"),
            encoding="utf-8",
        )
        kubectl.chmod(0o755)
        reach = f"[{cluster.context!r}], namespaces=['shop'], kubeconfig={str(cluster.kubeconfig)!r}"
        tools = tmp_path / "ops_tools.py"
        tools.write_text(
            "from handrail_toolbox.kubernetes import Kubernetes\n"
            f"tools = Kubernetes(contexts={reach}, kubectl={str(kubectl)!r})\n",
            encoding="utf-8",
        )

        def handrail(*words):
            command = [
                sys.executable,
                "-m",
                "handrail",
                *words,
                "--store",
                f"sqlite:///{tmp_path / 'kept.db'}",
            ]
            return subprocess.run(
                command,
                capture_output=True,
                text=True,
                encoding="utf-8",
                timeout=60,
                check=False,
            )

        how = (
            "--tools",
            str(tools),
            "--yes-to",
            "high",
            "--model",
            f"openai:scripted@{server.base_url}",
        )
        assert handrail("run", QUESTION, *how).returncode == -signal.SIGKILL
        assert cluster.restarts == ["shop/api-gateway"]
        (run,) = json.loads(handrail("runs", "list", "--json").stdout)["runs"]
        gone_on = handrail("runs", "resume", run["run_id"], *how)
        assert (gone_on.returncode, cluster.restarts) == (0, ["shop/api-gateway"]), (
            gone_on.stderr
        )
        assert "Restarted with approval" in gone_on.stdout
