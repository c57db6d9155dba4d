"""Ops assistant: "api-gateway is slow. Why?" It looks into the cluster, asks before a restart, and sees if it helped.

    python examples/apps/ops.py                # a stand-in cluster, a scripted model; the app approves by itself
    python examples/apps/ops.py --ask          # you approve, or not
    python examples/apps/ops.py --model openai:NAME --context staging --namespace shop "why is api-gateway slow?"

The last line works on a real cluster, by your kubeconfig and your `kubectl`; it asks you before every restart. Shown:
calls side by side, a high-risk write that waits for a person and happens once, a result checked before it is believed.
"""

import argparse
import asyncio
import shutil
from contextlib import nullcontext

import handrail as hr
from handrail.approvers.terminal import TerminalApprover
from handrail.cli.printer import Printer, console
from handrail.cli.timeline import Timeline
from handrail.testing import ScriptedApprover, ScriptedModel, call
from handrail_toolbox.kubernetes import Kubernetes
from stand_ins.cluster import FAKE_KUBECTL, Deployment, Pods, StandInCluster

QUESTION = "api-gateway is slow. Why? Mend it if you can."
SYSTEM = (
    "You assist the engineer on call. Look at logs and usage before you conclude. Restart only what a restart mends, "
    "and check afterwards whether it did. Say what you saw, what you did, and what is left to do."
)
LEAKING = Pods(
    logs=[
        "14:02:11 INFO  config reloaded, upstream pool rebuilt",
        "14:02:11 WARN  256 connections of the old pool were not closed",
        "14:21:02 ERROR upstream pool exhausted (512/512), request queued 2410 ms",
        "14:21:03 WARN  GET /orders 200 2794 ms",
    ],
    cpu_millicores=310,
    memory_mib=471,
)
FRESH = Pods(logs=["14:26:00 INFO  started, upstream pool 3/512 in use"], cpu_millicores=120, memory_mib=122)
DEPLOYMENTS = [
    Deployment("api-gateway", LEAKING, restarted=FRESH, environment={"DB_PASSWORD": "not for a model"}),
    Deployment("orders", Pods(cpu_millicores=90, memory_mib=140), replicas=2),
]
CAUSE = (
    "Since the config reload at 14:02, 256 connections of the old pool were never closed; the pool is full (512/512), "
    "requests queue for 2.4 s, and memory is at 471 of 512 MiB. CPU is at 31 %: it is not too small."
)


def after_the_question(messages):
    """Go on only if the restart was approved."""
    if '"error_code"' in messages[-1].result.text:
        return f"{CAUSE}\nThe restart was not approved, so it is still slow. Mend the leak in the config reload."
    return call("rollout_status", deployment="api-gateway", wait_s=30)


def script(cluster):
    """Return what the scripted model says: it looks, looks closer, restarts, and checks."""
    (pod,) = cluster.pods("api-gateway")
    return [
        [call("get_resources", kind="pods"), call("top_pods")],
        [
            call("get_pod_logs", pod=pod, tail_lines=50),
            call("describe_resource", kind="pods", name=pod),
            call("rollout_status", deployment="api-gateway"),
        ],
        call("rollout_restart", deployment="api-gateway", last_restart="never"),
        after_the_question,
        call("top_pods", labels="app=api-gateway"),
        f"{CAUSE}\nRestarted with approval: 1 of 1 pods ready, memory down to 122 MiB. "
        "Mend the leak in the config reload, or it comes back.",
    ]


async def investigate(question, model, tools, approver):
    """Ask, print what happens meanwhile, and return the run."""
    printer = Printer(Timeline(), console())
    printer.question(question)
    async with hr.Runtime(tools, approver=approver, observers=[printer]) as runtime:
        run = await runtime.run(question, model=model, system=SYSTEM, budget=hr.Budget(time_s=120, calls=20))
    printer.say(run.text or run.reason)
    return run


def main(arguments=None):
    """Run the app; return the run, and the restarts of the stand-in cluster."""
    parser = argparse.ArgumentParser(description="An ops assistant.")
    parser.add_argument("question", nargs="?", default=QUESTION)
    parser.add_argument("--ask", action="store_true", help="ask you before a restart, also in the stand-in cluster")
    parser.add_argument("--model", help="a real model, such as openai:NAME")
    parser.add_argument("--context", help="a context of your kubeconfig; without it, the stand-in cluster")
    parser.add_argument("--namespace", default="shop", help="the namespace that may be looked into")
    options = parser.parse_args(arguments)
    if options.context and not options.model:
        parser.error("--context needs --model: the scripted model knows the stand-in cluster only")
    asks = options.ask or options.context
    approver = TerminalApprover() if asks else ScriptedApprover([hr.Approval(True, by="the app itself, not a person")])
    with nullcontext() if options.context else StandInCluster(DEPLOYMENTS) as cluster:
        reach = {"contexts": [options.context or cluster.context], "namespaces": [options.namespace]}
        if cluster:
            reach |= {"kubeconfig": cluster.kubeconfig, "kubectl": shutil.which("kubectl") or FAKE_KUBECTL}
        model = options.model or ScriptedModel(script(cluster))
        run = asyncio.run(investigate(options.question, model, Kubernetes(**reach), approver))
    if cluster:
        print(f"\nIn the stand-in cluster these were restarted: {', '.join(cluster.restarts) or 'none'}.")
    return run, cluster.restarts if cluster else None


if __name__ == "__main__":
    main()
