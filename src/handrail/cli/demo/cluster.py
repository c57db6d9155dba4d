"""A stand-in cluster in memory, and the tools that act on it. Nothing here leaves the process.

The tools are declared as one would declare them for a real cluster; only their bodies are short.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import Annotated, Literal

from pydantic import Field

import handrail as hr

POD = "api-gateway-7c9d"
SERVICE = "api-gateway"

_LOGS = [
    "14:02:11 INFO  config reloaded, upstream pool rebuilt",
    "14:02:11 WARN  256 connections of the old pool were not closed",
    "14:07:48 INFO  GET /orders 200 41 ms",
    "14:19:30 WARN  upstream pool 480/512 in use",
    "14:21:02 ERROR upstream pool exhausted (512/512), request queued 2410 ms",
    "14:21:03 WARN  GET /orders 200 2794 ms",
]
_LEAKING = {"cpu": 0.31, "memory": 0.92, "latency_p99": 2.81}
_FRESH = {"cpu": 0.12, "memory": 0.24, "latency_p99": 0.09}


@dataclass
class Cluster:
    """One service with one pod, slow because it leaks connections until it is restarted.

    Attributes:
        restarts: How often each service was restarted: what the demo is judged by.
        hanging: How many of the next questions for metrics get no answer.
    """

    restarts: dict[str, int] = field(default_factory=dict)
    hanging: int = 1

    @property
    def metrics(self) -> dict[str, float]:
        """The pod's numbers just now."""
        if self.restarts.get(SERVICE):
            return _FRESH
        return _LEAKING

    @property
    def logs(self) -> list[str]:
        """The pod's log, oldest line first."""
        if self.restarts.get(SERVICE):
            return ["14:26:00 INFO  started, upstream pool 3/512 in use"]
        return _LOGS


@hr.tool(effect="read", timeout_s=10)
async def get_pod_logs(
    context: hr.Context[Cluster],
    pod: str,
    tail_lines: Annotated[int, Field(ge=1, le=1000)] = 20,
) -> list[str]:
    """Read the last lines of a pod's log.

    Args:
        pod: Name of the pod, such as "api-gateway-7c9d".
        tail_lines: How many lines, counted from the end.
    """
    _check_pod(pod)
    await asyncio.sleep(0.3)
    return context.deps.logs[-tail_lines:]


# A hanging attempt is ended by `attempt_timeout_s`; what is left of `timeout_s` goes to the next one.
@hr.tool(effect="read", timeout_s=10, limits=hr.Limits(attempt_timeout_s=1.0))
async def get_pod_metrics(
    context: hr.Context[Cluster],
    pod: str,
    metric: Literal["all", "cpu", "memory", "latency_p99"] = "all",
) -> dict[str, float]:
    """Read the current metrics of a pod: shares of its limit from 0 to 1, latencies in seconds.

    Args:
        pod: Name of the pod, such as "api-gateway-7c9d".
        metric: One metric, or all of them.
    """
    _check_pod(pod)
    cluster = context.deps
    if cluster.hanging:
        cluster.hanging -= 1
        await asyncio.sleep(3600)
    await asyncio.sleep(0.1)
    if metric == "all":
        return cluster.metrics
    return {metric: cluster.metrics[metric]}


# Destructive means high risk, and high risk asks a person. Two restarts of one service never overlap.
@hr.tool(effect="destructive", resource="service:{service}", timeout_s=30)
async def restart_service(
    context: hr.Context[Cluster],
    service: str,
    reason: str,  # noqa: ARG001  # for people
) -> str:
    """Restart a service. Requests in flight are lost.

    Args:
        service: Name of the service, such as "api-gateway".
        reason: Why, for the people who are on call.
    """
    if service != SERVICE:
        raise hr.NoEffect(
            "SERVICE_NOT_FOUND",
            f"There is no service `{service}`.",
            suggestion=f"Did you mean `{SERVICE}`?",
        )
    await asyncio.sleep(0.5)
    restarts = context.deps.restarts
    restarts[service] = restarts.get(service, 0) + 1
    return f"{service} restarted, 1 of 1 pods ready"


TOOLS = hr.Toolset([get_pod_logs, get_pod_metrics, restart_service])


def _check_pod(pod: str) -> None:
    if pod != POD:
        raise hr.ToolError(
            "POD_NOT_FOUND",
            f"There is no pod `{pod}`.",
            suggestion=f"The pods are: {POD}.",
        )
