"""The Kubernetes tools, against a stand-in cluster: by the real `kubectl` where it is installed, and by ours."""

import asyncio
import gc
import json
import os
import shutil
import subprocess
import sys
import warnings
from contextlib import suppress
from math import inf

import pytest

import handrail as hr
from handrail.errors import ConfigError, NoEffect
from handrail.network.descriptors import wait_readable
from handrail.testing import Fault, ScriptedApprover
from handrail.testing.checklist import check
from handrail_toolbox import kubernetes
from handrail_toolbox.kubernetes import (
    MOST_BYTES,
    PASSED_ON,
    Kubernetes,
    Where,
    mask_environment,
)
from stand_ins.cluster import (
    FAKE_KUBECTL,
    Deployment,
    Pods,
    StandInCluster,
    refusal,
)

REAL = shutil.which("kubectl")
KUBECTLS = [
    pytest.param(FAKE_KUBECTL, id="fake"),
    pytest.param(
        (REAL,),
        id="real",
        marks=pytest.mark.skipif(not REAL, reason="kubectl is not installed"),
    ),
]
HERE = {"namespace": "shop", "context": "stand-in"}
LEAKING = Pods(
    ("config reloaded", "pool 512/512", "请求排队"),
    ("out of memory",),
    cpu_millicores=310,
    memory_mib=471,
)


@pytest.fixture
def cluster():
    """Two deployments: one leaks until it is restarted."""
    gateway = Deployment(
        "api-gateway", LEAKING, restarted=Pods(), environment={"DB_PASSWORD": "hunter2"}
    )
    with StandInCluster([gateway, Deployment("orders", replicas=2)]) as made:
        yield made


@pytest.fixture(params=KUBECTLS)
def tools(request, cluster):
    return over(cluster, kubectl=request.param)


def over(cluster, **how):
    reach = {"contexts": ["stand-in"], "namespaces": ["shop"], "kubectl": FAKE_KUBECTL}
    return Kubernetes(**{**reach, "kubeconfig": cluster.kubeconfig, **how})


def called(tools, tool, /, *, approver=None, **arguments):
    """Make one call, in a run of its own; whoever is asked agrees."""
    approver = approver or ScriptedApprover([True])
    with hr.SyncRuntime(tools, approver=approver) as runtime:
        return runtime.call(tool, arguments)


def code_of(result):
    return result.failure.code if result.failure else None


class TestEitherKubectl:
    """What holds whichever program is asked."""

    def test_the_last_lines_of_a_log_are_read(self, tools, cluster):
        (pod,) = cluster.pods("api-gateway")
        assert (
            called(tools, "get_pod_logs", pod=pod, tail_lines=2).value
            == "pool 512/512\n请求排队\n"
        )

    def test_the_log_of_the_container_that_died_is_read(self, tools, cluster):
        (pod,) = cluster.pods("api-gateway")
        assert (
            called(tools, "get_pod_logs", pod=pod, previous=True).value
            == "out of memory\n"
        )

    def test_what_kubernetes_says_of_a_log_that_is_not_there_is_told(
        self, tools, cluster
    ):
        result = called(
            tools, "get_pod_logs", pod=cluster.pods("orders")[0], previous=True
        )
        assert (
            code_of(result),
            "previous terminated container" in result.failure.message,
        ) == ("REQUEST_REFUSED", True)

    def test_a_deployment_named_as_a_pod_is_answered_with_its_pods(
        self, tools, cluster
    ):
        result = called(tools, "get_pod_logs", pod="api-gateway")
        assert (
            code_of(result),
            cluster.pods("api-gateway")[0] in result.failure.suggestion,
        ) == ("NOT_FOUND", True)

    def test_a_container_that_the_pod_has_not_is_told(self, tools, cluster):
        result = called(
            tools, "get_pod_logs", pod=cluster.pods("orders")[0], container="sidecar"
        )
        assert (code_of(result), "no container" in result.failure.message) == (
            "NOT_FOUND",
            True,
        )

    def test_usage_has_units(self, tools, cluster):
        (used,) = called(tools, "top_pods", labels="app=api-gateway").value
        assert (used.pod, used.cpu_millicores, used.memory_mib) == (
            *cluster.pods("api-gateway"),
            310,
            471,
        )

    def test_objects_are_listed_as_a_table(self, tools):
        heads, *rows = called(
            tools, "get_resources", kind="deployments"
        ).value.splitlines()
        assert heads.split()[:2] == ["NAME", "READY"]
        assert [row.split()[:2] for row in rows] == [
            ["api-gateway", "1/1"],
            ["orders", "2/2"],
        ]

    def test_an_empty_list_is_told_in_words(self, tools):
        assert (
            called(tools, "get_resources", kind="jobs").value
            == "There are no jobs in namespace `shop`."
        )

    def test_a_pod_is_described_without_the_values_of_its_environment(
        self, tools, cluster
    ):
        told = called(
            tools, "describe_resource", kind="pods", name=cluster.pods("api-gateway")[0]
        ).value
        assert "OOMKilled" in told and "471" not in told and "512Mi" in told
        assert "DB_PASSWORD:  ***" in told and "hunter2" not in told

    def test_a_restart_asks_a_person_and_is_followed_to_its_end(self, tools, cluster):
        before = called(tools, "rollout_status", deployment="api-gateway").value
        approver = ScriptedApprover([True])
        asked = {"deployment": "api-gateway", "last_restart": before.last_restart}
        assert called(tools, "rollout_restart", approver=approver, **asked).ok
        assert approver.asked[0].arguments == {**asked, **HERE}
        under_way = called(tools, "rollout_status", deployment="api-gateway").value
        after = called(
            tools, "rollout_status", deployment="api-gateway", wait_s=60
        ).value
        assert [each.complete for each in (before, under_way, after)] == [
            True,
            False,
            True,
        ]
        assert (
            before.last_restart,
            after.last_restart != "never",
            after.ready_pods,
        ) == ("never", True, 1)
        assert cluster.restarts == ["shop/api-gateway"]

    def test_a_wait_right_after_a_restart_ends_when_the_new_pods_are_ready(
        self, tools, cluster
    ):
        called(tools, "rollout_restart", deployment="orders", last_restart="never")
        told = called(tools, "rollout_status", deployment="orders", wait_s=20).value
        assert (told.complete, told.ready_pods) == (True, 2)

    def test_a_restart_that_is_refused_by_a_person_does_not_happen(
        self, tools, cluster
    ):
        approver = ScriptedApprover([False])
        result = called(
            tools,
            "rollout_restart",
            approver=approver,
            deployment="orders",
            last_restart="never",
        )
        assert (code_of(result), cluster.restarts) == ("NOT_APPROVED", [])

    def test_a_restart_whose_answer_is_lost_is_looked_for_and_found(
        self, tools, cluster
    ):
        cluster.unheard.add("PATCH")
        result = called(
            tools, "rollout_restart", deployment="orders", last_restart="never"
        )
        assert (result.ok, "verified" in result.text) == (True, True)
        assert cluster.restarts == ["shop/orders"]

    def test_a_restart_that_the_server_did_not_carry_out_is_not_left_in_doubt(
        self, tools, cluster
    ):
        cluster.broken["PATCH"] = refusal(500, "InternalError", "etcd has no leader")
        # how long a request that may be in flight is waited for
        once = hr.Limits(max_attempts=1)
        brief = [tools["rollout_restart"].replace(timeout_s=5, limits=once)]
        result = called(
            brief, "rollout_restart", deployment="orders", last_restart="never"
        )
        assert (code_of(result), cluster.restarts) == ("UNAVAILABLE", [])

    def test_a_restart_that_is_out_of_date_does_not_happen(self, tools, cluster):
        assert called(
            tools, "rollout_restart", deployment="orders", last_restart="never"
        ).ok
        result = called(
            tools, "rollout_restart", deployment="orders", last_restart="never"
        )
        assert (code_of(result), cluster.restarts) == (
            "RESTARTED_SINCE",
            ["shop/orders"],
        )

    def test_a_right_that_is_missing_is_told(self, tools, cluster):
        cluster.broken["GET /api/v1/namespaces/shop/pods"] = refusal(
            403, "Forbidden", "user x cannot list pods"
        )
        assert code_of(called(tools, "get_resources", kind="pods")) == "NOT_PERMITTED"

    def test_a_restart_without_the_right_to_it_is_told_and_had_no_effect(
        self, tools, cluster
    ):
        told = 'deployments.apps "orders" is forbidden: User "me" cannot patch resource "deployments"'
        cluster.broken["PATCH"] = refusal(403, "Forbidden", told)
        result = called(
            tools, "rollout_restart", deployment="orders", last_restart="never"
        )
        assert (code_of(result), result.attempts) == ("NOT_PERMITTED", 1)

    def test_a_cluster_that_is_not_there_is_unavailable_and_a_write_had_no_effect(
        self, tools, cluster, monkeypatch
    ):
        known = json.loads(cluster.kubeconfig.read_text())
        # the discard port: nobody listens
        known["clusters"][0]["cluster"]["server"] = "http://127.0.0.1:9"
        cluster.kubeconfig.write_text(json.dumps(known))
        assert (
            code_of(
                called(
                    tools, "rollout_restart", deployment="orders", last_restart="never"
                )
            )
            == "UNAVAILABLE"
        )

    def test_what_nobody_worded_is_a_reference_for_the_log(self, tools, cluster):
        cluster.broken["GET /api/v1/namespaces/shop/services"] = refusal(
            418, "Teapot", "token=hunter2"
        )
        result = called(tools, "get_resources", kind="services")
        assert (code_of(result), "hunter2" in result.text) == ("INTERNAL_ERROR", False)

    def test_a_namespace_that_the_cluster_has_not_is_told(self, cluster, tools):
        wider = over(
            cluster,
            kubectl=next(iter(tools)).kubectl.program,
            namespaces=["shop", "shpo"],
        )
        result = called(wider, "rollout_status", deployment="orders", namespace="shpo")
        assert (code_of(result), "no namespace `shpo`" in result.failure.message) == (
            "NOT_FOUND",
            True,
        )

    def test_a_kubeconfig_of_the_environment_is_found(
        self, cluster, tools, tmp_path, monkeypatch
    ):
        monkeypatch.setenv("KUBECONFIG", str(cluster.kubeconfig))
        # where kubectl keeps what it learnt of an API
        monkeypatch.setenv("HOME", str(tmp_path))
        program = next(iter(tools)).kubectl.program
        assert called(
            over(cluster, kubeconfig=None, kubectl=program),
            "get_resources",
            kind="pods",
        ).ok

    def test_a_wait_that_is_over_says_so(self, cluster, tools):
        with StandInCluster([Deployment("stuck", looks=inf)]) as other:
            stuck = over(other, kubectl=next(iter(tools)).kubectl.program)
            assert called(
                stuck, "rollout_restart", deployment="stuck", last_restart="never"
            ).ok
            told = called(stuck, "rollout_status", deployment="stuck", wait_s=1).value
        assert (told.complete, told.ready_pods) == (False, 0)
        assert "0 of 1" in told.says or "timed out" in told.says


def test_a_restart_happens_once_whatever_dies(crash, cluster):
    restart = over(cluster)["rollout_restart"]
    asked = {"deployment": "orders", "last_restart": "never", **HERE}
    crash(
        restart,
        asked,
        effects=lambda: len(cluster.restarts),
        approver=ScriptedApprover([True, True]),
    )


def test_two_runs_that_saw_the_same_restart_once(cluster):
    with hr.SyncRuntime(
        over(cluster), approver=ScriptedApprover([True, True])
    ) as runtime:
        asked = {"deployment": "orders", "last_restart": "never"}
        first, again = (
            runtime.call("rollout_restart", asked),
            runtime.call("rollout_restart", asked),
        )
    assert (first.ok, again.replayed, cluster.restarts) == (True, True, ["shop/orders"])


def test_another_restart_after_the_last_one_is_another_act(cluster):
    restart = over(cluster)["rollout_restart"]
    seen = ("never", "2026-11-21T08:00:59Z", "2026-11-21T08:00:59Z")
    keys = [
        restart.resolve_key({"deployment": "orders", "last_restart": each, **HERE}, "")
        for each in seen
    ]
    assert (keys[0] != keys[1], keys[1] == keys[2]) == (True, True)


@pytest.mark.parametrize(("name", "said"), [
    ("get_pod_logs", {"pod": "--kubeconfig=/etc/passwd"}),
    ("get_pod_logs", {"pod": "a;reboot"}),
    ("get_pod_logs", {"pod": "../secrets/x"}),
    ("get_pod_logs", {"pod": "orders\n"}),
    ("get_pod_logs", {"pod": "orders", "container": "-f"}),
    ("get_pod_logs", {"pod": "orders", "tail_lines": 1_000_000}),
    ("get_resources", {"kind": "secrets"}),
    ("get_resources", {"kind": "pods,secrets"}),
    ("get_resources", {"kind": "pods", "labels": "app=x --all-namespaces"}),
    ("get_resources", {"kind": "pods", "namespace": "kube-system"}),
    ("get_resources", {"kind": "pods", "context": "production"}),
    ("describe_resource", {"kind": "secrets", "name": "db"}),
    ("describe_resource", {"kind": "pods", "name": "secret/db"}),
    ("rollout_restart", {"deployment": "-n=kube-system", "last_restart": "never"}),
])  # fmt: skip
def test_what_reaches_further_than_it_may_is_refused_and_nothing_is_asked(
    cluster, name, said
):
    result = called(over(cluster), name, **said)
    assert (code_of(result), result.attempts, cluster.asked) == (
        "INVALID_ARGUMENTS",
        0,
        [],
    )


@pytest.mark.parametrize(("where", "name"), [
    (Where("stand-in", "kube-system"), "orders"),
    (Where("production", "shop"), "orders"),
    (Where("stand-in", "shop"), "--all"),
    (Where("stand-in", "shop"), "pods/--all"),
    (Where("stand-in", "shop"), "orders\n"),
])  # fmt: skip
def test_what_may_be_reached_is_looked_at_again_before_kubectl_is_started(
    cluster, where, name
):
    kubectl = next(iter(over(cluster))).kubectl
    with pytest.raises(NoEffect):
        asyncio.run(kubectl.ask(where, "get", "pods", name=name))
    assert cluster.asked == []


def test_no_tool_ever_asks_for_a_secret(cluster):
    tools = over(cluster)
    (pod,) = cluster.pods("api-gateway")
    called(tools, "describe_resource", kind="pods", name=pod)
    called(tools, "describe_resource", kind="deployments", name="api-gateway")
    assert cluster.asked and not [
        each.path for each in cluster.asked if "secret" in each.path
    ]


# ---------------------------------------------------------------------- the process


def program(*lines):
    """Return a command that does this instead of kubectl."""
    return (sys.executable, "-c", "\n".join(lines))


def asked(command, cluster, **how):
    kubectl = next(iter(over(cluster, kubectl=command))).kubectl
    return asyncio.run(kubectl.ask(Where("stand-in", "shop"), "get", "pods", **how))


def test_kubectl_gets_three_variables_of_our_environment(cluster, monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", "sk-hunter2")
    passed = json.loads(
        asked(
            program("import json, os", "print(json.dumps(dict(os.environ)))"), cluster
        )
    )
    # Python itself may set LC_CTYPE
    assert set(passed) - {"LC_CTYPE"} <= set(PASSED_ON) and "PATH" in passed


@pytest.mark.parametrize(("newest", "is_first"), [(False, True), (True, False)])
def test_an_output_without_end_is_bounded(cluster, newest, is_first):
    lines = program("for number in range(300_000): print(f'{number:09}')")  # 3 MB
    kept = asked(lines, cluster, newest=newest).split()
    assert len(kept) * 10 <= MOST_BYTES
    assert (kept[0] == "000000000", kept[-1] == "000299999") == (is_first, not is_first)


@pytest.mark.parametrize("parent", ["child.wait()", "pass"], ids=["stays", "ends"])
def test_a_call_that_is_given_up_leaves_no_process_behind(cluster, tmp_path, parent):
    """Both hold a pipe open for writing; it has an end once the last of them is gone."""
    pipe = tmp_path / "alive"
    os.mkfifo(pipe)
    hangs = program(
        "import subprocess, sys", f"alive = open({str(pipe)!r}, 'wb', buffering=0)",
        "child = subprocess.Popen([sys.executable, '-c', 'import signal; signal.pause()'], stdout=alive)",
        "alive.write(b'here')", parent,
    )  # fmt: skip
    kubectl = next(iter(over(cluster, kubectl=hangs))).kubectl

    async def give_up():
        call = asyncio.create_task(
            kubectl.ask(Where("stand-in", "shop"), "get", "pods")
        )
        alive = await asyncio.to_thread(pipe.open, "rb", buffering=0)
        assert await asyncio.to_thread(alive.read, 4) == b"here"
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call
        return alive

    with asyncio.run(give_up()) as alive:
        assert wait_readable(alive, timeout_s=30) and alive.read(1) == b""


@pytest.mark.parametrize(("words", "code"), [
    ('Error from server (Forbidden): pods is forbidden: User "x" cannot list resource "pods"', "NOT_PERMITTED"),
    ("error: You must be logged in to the server (Unauthorized)", "NOT_AUTHENTICATED"),
    ("Error from server (TooManyRequests): the server has received too many requests", "RATE_LIMITED"),
    ("error: failed to patch: if restart has already been triggered within the past second, please wait", "TOO_SOON"),
    ("Error from server (Conflict): the object has been modified; please apply your changes", "CONFLICT"),
    ('Error from server (NotFound): namespaces "shop" not found', "NOT_FOUND"),
    ("error: Metrics API not available", "NO_METRICS"),
    ("Error from server (NotFound): the server could not find the requested resource", "REQUEST_REFUSED"),
    ("Error from server (BadRequest): container orders in pod x is waiting to start", "REQUEST_REFUSED"),
    ("error: unable to parse requirement: <nil>: Invalid value", "REQUEST_REFUSED"),
    ('error: the server doesn\'t have a resource type "jobs"', "NOT_FOUND"),
    ('error: context "staging" does not exist', "KUBECTL_NOT_SET_UP"),
    ("The connection to the server localhost:8080 was refused - did you specify the right host", "UNAVAILABLE"),
    ("Unable to connect to the server: dial tcp: lookup nowhere: no such host", "UNAVAILABLE"),
    ("Unable to connect to the server: net/http: TLS handshake timeout", "UNAVAILABLE"),
    ("Error from server (ServiceUnavailable): the server is currently unable to handle the request", "UNAVAILABLE"),
    ("error: exec plugin: token=hunter2", "INTERNAL_ERROR"),
    ("", "INTERNAL_ERROR"),
])  # fmt: skip
def test_what_kubectl_says_when_it_fails_has_one_code_and_no_secret(
    cluster, words, code
):
    tools = over(cluster, kubectl=program("import sys", f"sys.exit({words!r} or 1)"))
    tools.redeclare("get_resources", limits=hr.Limits(max_attempts=1))
    result = called(tools, "get_resources", kind="pods")
    assert (code_of(result), "hunter2" in result.text) == (code, False)


def test_a_kubectl_that_is_not_there_is_told(cluster):
    result = called(over(cluster, kubectl="kubectl-of-nowhere"), "top_pods")
    assert (code_of(result), "kubectl-of-nowhere" in result.failure.message) == (
        "KUBECTL_NOT_SET_UP",
        True,
    )


def test_a_cluster_that_hangs_is_given_up_in_time(cluster):
    cluster.broken["GET /apis/metrics"] = Fault(delay_s=60)
    tools = over(cluster)
    tools.redeclare("top_pods", timeout_s=0.5, limits=hr.Limits(attempt_timeout_s=0.5))
    assert code_of(called(tools, "top_pods")) == "TIMEOUT"


def test_a_cluster_that_tells_no_usage_is_not_asked_again(cluster):
    cluster.broken["GET /apis/metrics"] = refusal(
        404, "NotFound", "Metrics API not available"
    )
    result = called(over(cluster), "top_pods")
    assert (code_of(result), result.attempts) == ("NO_METRICS", 1)


# ---------------------------------------------------------------------- as they are described


def test_the_only_namespace_need_not_be_said_and_one_of_several_must(cluster):
    one = over(cluster)["top_pods"].parameters
    several = over(cluster, namespaces=["shop", "billing"])["top_pods"].parameters
    assert one["properties"]["namespace"]["default"] == "shop" and "required" not in one
    assert several["properties"]["namespace"]["enum"] == ["shop", "billing"]
    assert several["required"] == ["namespace"]


def test_they_are_clean_for_lint_and_the_checklist(cluster):
    tools = over(cluster, namespaces=["shop", "billing"])
    assert (list(hr.lint(tools).findings), list(check(tools).missing)) == ([], [])


@pytest.mark.parametrize(("asked", "name"), [
    ("重启 api-gateway", "rollout_restart"),
    ("看一下容器日志", "get_pod_logs"),
    ("哪个 pod 占用 CPU 内存最多", "top_pods"),
    ("why does the pod keep restarting", "describe_resource"),
])  # fmt: skip
def test_they_are_found_by_what_users_say(cluster, asked, name):
    (found,) = hr.selectors.bm25(over(cluster)).top(asked, k=1)
    assert found.name == name


@pytest.mark.parametrize("reach", [
    {"contexts": [], "namespaces": ["shop"]},
    {"contexts": "staging", "namespaces": ["shop"]},
    {"contexts": ["-x"], "namespaces": ["shop"]},
    {"contexts": ["staging"], "namespaces": ["Shop"]},
    {"contexts": ["staging"], "namespaces": [7]},
])  # fmt: skip
def test_what_can_be_no_reach_is_refused_when_they_are_made(reach):
    with pytest.raises(ConfigError):
        Kubernetes(**reach)


DESCRIBED = """\
Containers:
  api:
    Args:
      --port=80
      --db-password=hunter2
      --token
      hunter2
      --verbose
    Environment:
      PASSWORD:  hunter2
                 hunter2 goes on
      EMPTY:
      KEY:       <set to the key 'k' in secret 'db'>  Optional: false
    Mounts:      <none>
Annotations:  source: https://me:hunter2@git.example/x
"""


def test_no_value_of_an_environment_or_of_a_secret_option_is_told():
    told = mask_environment(DESCRIBED)
    assert "hunter2" not in told
    for left in ("--port=80", "--db-password=***", "--verbose", "PASSWORD:  ***", "secret 'db'", "Mounts:      <none>",
                 "https://me:***@git.example/x"):  # fmt: skip
        assert left in told


@pytest.mark.parametrize("said", [
    "    Liveness:  exec [sh -c PGPASSWORD=hunter2 psql -c 'SELECT 1'] delay=0s timeout=1s",
    "    Readiness:  exec [curl -H Authorization: Bearer hunter2 http://localhost/] delay=0s timeout=1s",
    "    Args:\n      -c\n      curl -H \"Authorization: Bearer hunter2\" http://localhost/ timeout=1s",
    "    Args:\n      -H\n      X-Api-Key: hunter2\n      timeout=1s",
    "    Command:\n      tool --token hunter2\n      timeout=1s",
    "    Command:\n      sh\n      -c\n      PGPASSWORD=hunter2 psql\n      timeout=1s",
    "Annotations:  source: postgres://u:p@hunter2@db.example/x timeout=1s",
])  # fmt: skip
def test_no_secret_of_a_command_line_is_told(said):
    told = mask_environment(said)
    assert "hunter2" not in told and "***" in told and told.endswith("timeout=1s")


# ---------------------------------------------------------------------- the stand-ins


@pytest.mark.parametrize(("words", "told"), [
    ((), 'unknown command ""'),
    (("delete", "pods", "x"), 'unknown command "delete"'),
    (("get", "secrets"), 'have a resource type "secrets"'),
    (("get", "pods", "-A"), "unknown flag: -A"),
    (("--context=other", "get", "pods"), 'context "other" does not exist'),
])  # fmt: skip
def test_the_fake_kubectl_does_nothing_that_the_tools_do_not_ask(cluster, words, told):
    ended = subprocess.run(
        [*FAKE_KUBECTL, f"--kubeconfig={cluster.kubeconfig}", *words],
        capture_output=True,
        text=True,
    )
    assert (ended.returncode, told in ended.stderr, cluster.asked) == (1, True, [])


def test_a_command_that_is_given_up_is_not_waited_for_by_its_streams_which_another_process_holds():
    async def gives_up():
        command = ("sh", "-c", "setsid sleep 60 & exec sleep 60")
        async with asyncio.timeout(20):
            with suppress(TimeoutError):
                await asyncio.wait_for(
                    kubernetes._run_process(command, {}, newest=True), 0.1
                )

    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        asyncio.run(gives_up())
        gc.collect()
    assert [str(each.message) for each in caught] == []
