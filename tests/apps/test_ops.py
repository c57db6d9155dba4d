"""The ops app: what it did to the cluster, and what its model read."""

import asyncio
import runpy
import subprocess
import sys
from pathlib import Path

import pytest

from handrail.messages import ToolMessage
from handrail.testing import ScriptedApprover, ScriptedModel
from handrail_toolbox.kubernetes import Kubernetes
from stand_ins.cluster import FAKE_KUBECTL, StandInCluster

FILE = Path(__file__).parents[2] / "examples/apps/ops.py"


@pytest.fixture
def app():
    return runpy.run_path(str(FILE))


def investigated(app, approver):
    """Run the app's story with a person of ours; return the run, and the cluster afterwards."""
    with StandInCluster(app["DEPLOYMENTS"]) as cluster:
        reach = {
            "contexts": [cluster.context],
            "namespaces": ["shop"],
            "kubeconfig": cluster.kubeconfig,
        }
        tools, model = (
            Kubernetes(**reach, kubectl=FAKE_KUBECTL),
            ScriptedModel(app["script"](cluster)),
        )
        return asyncio.run(
            app["investigate"](app["QUESTION"], model, tools, approver)
        ), cluster


def test_the_slow_service_is_restarted_once_and_twice_with_the_same_outcome(
    app, capsys
):
    (first, restarts), (again, restarts_again) = app["main"]([]), app["main"]([])
    assert restarts == restarts_again == ["shop/api-gateway"]
    assert (first.status, first.text) == (
        again.status,
        again.text,
    ) and "122 MiB" in first.text
    assert first.status == "done"


def test_the_model_looked_before_it_asked_for_a_restart_and_never_read_the_password(
    app, capsys
):
    run, _ = investigated(app, ScriptedApprover([True]))
    names = [
        message.result.name
        for message in run.messages
        if isinstance(message, ToolMessage)
    ]
    assert names.index("get_pod_logs") < names.index("rollout_restart") < len(names) - 1
    read = "".join(
        message.result.text
        for message in run.messages
        if isinstance(message, ToolMessage)
    )
    assert "DB_PASSWORD" in read and "not for a model" not in read


def test_whoever_does_not_approve_gets_the_cause_and_no_restart(app, capsys):
    run, cluster = investigated(app, ScriptedApprover([False]))
    assert (run.status, cluster.restarts) == ("done", [])
    assert "256 connections" in run.text and "not approved" in run.text


def test_nobody_there_to_ask_leaves_it_as_it_is(app, capsys):
    run, cluster = investigated(app, ScriptedApprover())
    assert (run.status, cluster.restarts) == ("waiting", [])


def test_it_is_a_program():
    told = subprocess.run(
        [sys.executable, "-W", "error", str(FILE)],
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    assert "restarted: shop/api-gateway" in told.stdout
