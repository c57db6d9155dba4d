"""Deployments, and what a Kubernetes API tells of them: objects, table columns, logs, usage. Pure.

A deployment has one set of pods per revision; a restart makes the next revision, as it does in a real cluster. Only
what `kubectl` reads is filled in.

Rule: whatever a client reads follows from the `Deployment` and its `RolloutProgress`, so every view of them agrees.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from math import inf
from typing import Any, NamedTuple, TypeAlias
from zlib import crc32

from msgspec import Struct, field

Object: TypeAlias = dict[str, Any]

BORN = "2026-11-01T08:00:00Z"
"""When everything in the cluster was made."""

# what Kubernetes makes the ends of names of: no vowels, so no words
_LETTERS = "bcdfghjklmnpqrstvwxz2456789"


class Pods(Struct, frozen=True):
    """How the pods of a deployment are.

    Attributes:
        logs: Lines of the present container, the oldest first.
        previous_logs: Those of the container that died before it; None when none has.
        cpu_millicores: What a pod uses; 1,000 are one core.
        memory_mib: What a pod uses.
    """

    logs: Sequence[str] = ("started",)
    previous_logs: Sequence[str] | None = None
    cpu_millicores: int = 50
    memory_mib: int = 64


class Deployment(Struct, frozen=True):
    """A deployment with one container of its own name.

    Attributes:
        pods: How its pods are now.
        restarted: How they are after a restart; as before by default.
        environment: Of its container. `kubectl describe` shows it.
        looks: How often a restarted deployment is looked at before its new pods are ready; `inf` for never.
    """

    name: str
    pods: Pods = field(default_factory=Pods)
    restarted: Pods | None = None
    namespace: str = "shop"
    replicas: int = 1
    memory_limit_mib: int = 512
    environment: Mapping[str, str] = field(default_factory=dict)
    looks: float = 3


class RolloutProgress(Struct):
    """The state of a deployment: its revision, when it was restarted last, and how many looks are left until ready."""

    revision: int = 1
    restarted_at: str = ""
    looks_left: float = 0
    resource_version: int = 100

    @property
    def is_ready(self) -> bool:
        """Whether the pods of the present revision serve."""
        return self.looks_left <= 0

    @property
    def goes_on(self) -> bool:
        """Whether another look at it will find something new."""
        return 0 < self.looks_left < inf


class Placed(NamedTuple):
    """A deployment and its state."""

    deployment: Deployment
    rollout: RolloutProgress

    @property
    def pods(self) -> Pods:
        """How its pods are now."""
        if self.rollout.revision > 1:
            restarted = self.deployment.restarted
        else:
            restarted = None
        return restarted or self.deployment.pods

    def set_name(self, revision: int) -> str:
        """The name of the replica set of a revision."""
        return f"{self.deployment.name}-{crc32(f'{self.deployment.name}/{revision}'.encode()):08x}"

    def pod_name(self, number: int) -> str:
        """The name of a pod of the present revision."""
        own = self.set_name(self.rollout.revision)
        rest = crc32(f"{own}/{number}".encode())
        return f"{own}-{''.join(_LETTERS[rest // len(_LETTERS) ** place % len(_LETTERS)] for place in range(5))}"

    @property
    def pod_names(self) -> list[str]:
        """The names of its pods."""
        return [self.pod_name(number) for number in range(self.deployment.replicas)]


# ---------------------------------------------------------------------- objects


def _metadata(placed: Placed, name: str, **more: Any) -> Object:
    own = placed.deployment
    return {
        "name": name,
        "namespace": own.namespace,
        "uid": f"00000000-0000-4000-8000-{crc32(name.encode()):012x}",
        "resourceVersion": str(placed.rollout.resource_version),
        "creationTimestamp": BORN,
        "labels": {"app": own.name},
        **more,
    }


def _template(placed: Placed) -> Object:
    own = placed.deployment
    metadata = {"labels": {"app": placed.deployment.name}}
    if placed.rollout.restarted_at:
        metadata["annotations"] = {"kubectl.kubernetes.io/restartedAt": placed.rollout.restarted_at}
    container = {
        "name": own.name,
        "image": f"registry.example/{own.name}:1.4.2",
        "resources": {"limits": {"cpu": "1", "memory": f"{own.memory_limit_mib}Mi"}},
        "env": [{"name": name, "value": value} for name, value in own.environment.items()],
        "terminationMessagePath": "/dev/termination-log",
        "imagePullPolicy": "IfNotPresent",
    }
    return {
        "metadata": metadata,
        "spec": {"containers": [container], "restartPolicy": "Always"},
    }


def deployments(placed: Placed) -> list[Object]:
    """Return the deployment itself."""
    own = placed.deployment
    rollout = placed.rollout
    ready = own.replicas if rollout.is_ready else 0
    all_of_it = own.replicas
    conditions = [
        {
            "type": "Available",
            "status": "True",
            "reason": "MinimumReplicasAvailable",
            "message": "",
            "lastUpdateTime": BORN,
            "lastTransitionTime": BORN,
        },
        {
            "type": "Progressing",
            "status": "True",
            "reason": "NewReplicaSetAvailable",
            "message": "",
            "lastUpdateTime": BORN,
            "lastTransitionTime": BORN,
        },
    ]
    annotations = {"deployment.kubernetes.io/revision": str(rollout.revision)}
    return [
        {
            "apiVersion": "apps/v1",
            "kind": "Deployment",
            "metadata": _metadata(
                placed,
                own.name,
                generation=rollout.revision,
                annotations=annotations,
            ),
            "spec": {
                "replicas": all_of_it,
                "selector": {"matchLabels": {"app": own.name}},
                "template": _template(placed),
                "strategy": {
                    "type": "RollingUpdate",
                    "rollingUpdate": {"maxSurge": "25%", "maxUnavailable": "25%"},
                },
                "progressDeadlineSeconds": 600,
                "revisionHistoryLimit": 10,
            },
            "status": {
                "observedGeneration": rollout.revision,
                "replicas": all_of_it,
                "updatedReplicas": all_of_it,
                "readyReplicas": ready,
                "availableReplicas": ready,
                "unavailableReplicas": all_of_it - ready,
                "conditions": conditions,
            },
        }
    ]


def replica_sets(placed: Placed) -> list[Object]:
    """Return one replica set per revision; only that of the present one has pods."""
    own = placed.deployment
    rollout = placed.rollout
    sets = []
    for revision in range(1, rollout.revision + 1):
        wanted = own.replicas if revision == rollout.revision else 0
        name = placed.set_name(revision)
        annotations = {"deployment.kubernetes.io/revision": str(revision)}
        sets.append(
            {
                "apiVersion": "apps/v1",
                "kind": "ReplicaSet",
                "metadata": _metadata(
                    placed,
                    name,
                    generation=1,
                    annotations=annotations,
                    ownerReferences=[_owner("Deployment", own.name)],
                ),
                "spec": {
                    "replicas": wanted,
                    "selector": {"matchLabels": {"app": own.name}},
                    "template": _template(placed),
                },
                "status": {
                    "replicas": wanted,
                    "readyReplicas": wanted,
                    "observedGeneration": 1,
                },
            }
        )
    return sets


def pods(placed: Placed) -> list[Object]:
    """Return the pods of the present revision."""
    own = placed.deployment
    template = _template(placed)
    ready = placed.rollout.is_ready
    crashed = placed.pods.previous_logs is not None
    state = {"running": {"startedAt": BORN}}
    owner = _owner("ReplicaSet", placed.set_name(placed.rollout.revision))
    annotations = {key: value for key, value in template["metadata"].items() if key == "annotations"}
    status = {
        "name": own.name,
        "ready": ready,
        "restartCount": int(crashed),
        "state": state,
        "started": True,
        "image": f"registry.example/{own.name}:1.4.2",
        "imageID": "",
        "containerID": "containerd://1",
        "lastState": {"terminated": _TERMINATED} if crashed else {},
    }
    ready_text = "True" if ready else "False"
    conditions = [{"type": each, "status": ready_text} for each in ("Initialized", "Ready", "ContainersReady")]
    return [
        {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": _metadata(
                placed,
                name,
                ownerReferences=[owner],
                **annotations,
            ),
            "spec": {
                **template["spec"],
                "nodeName": "node-1",
                "serviceAccountName": "default",
                "priority": 0,
            },
            "status": {
                "phase": "Running",
                "podIP": f"10.0.0.{number + 10}",
                "hostIP": "10.0.0.1",
                "startTime": BORN,
                "qosClass": "Burstable",
                "containerStatuses": [status],
                "conditions": conditions,
            },
        }
        for number, name in enumerate(placed.pod_names)
    ]


_TERMINATED = {
    "exitCode": 137,
    "reason": "OOMKilled",
    "startedAt": BORN,
    "finishedAt": BORN,
}


def services(placed: Placed) -> list[Object]:
    """Return the service in front of it."""
    own = placed.deployment
    port = {
        "name": "http",
        "protocol": "TCP",
        "port": 80,
        "targetPort": 8080,
    }
    spec = {
        "type": "ClusterIP",
        "clusterIP": "10.1.0.20",
        "clusterIPs": ["10.1.0.20"],
        "sessionAffinity": "None",
        "selector": {"app": own.name},
        "ports": [port],
    }
    return [
        {
            "apiVersion": "v1",
            "kind": "Service",
            "metadata": _metadata(placed, own.name),
            "spec": spec,
            "status": {"loadBalancer": {}},
        }
    ]


def events(placed: Placed) -> list[Object]:
    """Return what the cluster noted of the last restart."""
    own = placed.deployment
    rollout = placed.rollout
    if rollout.revision == 1:
        return []
    new = placed.set_name(rollout.revision)
    about = {
        "kind": "Deployment",
        "namespace": own.namespace,
        "name": own.name,
        "apiVersion": "apps/v1",
        "uid": f"00000000-0000-4000-8000-{crc32(own.name.encode()):012x}",
    }
    return [
        {
            "apiVersion": "v1",
            "kind": "Event",
            "metadata": _metadata(placed, f"{own.name}.{rollout.revision}"),
            "involvedObject": about,
            "reason": "ScalingReplicaSet",
            "type": "Normal",
            "count": 1,
            "message": f"Scaled up replica set {new} to {own.replicas}",
            "source": {"component": "deployment-controller"},
            "firstTimestamp": rollout.restarted_at,
            "lastTimestamp": rollout.restarted_at,
        }
    ]


def pod_metrics(placed: Placed) -> list[Object]:
    """Return what the pods use, as metrics-server tells it."""
    now = placed.pods
    usage = {"cpu": f"{now.cpu_millicores}m", "memory": f"{now.memory_mib * 1024}Ki"}
    return [
        {
            "kind": "PodMetrics",
            "apiVersion": "metrics.k8s.io/v1beta1",
            "metadata": _metadata(placed, name),
            "timestamp": BORN,
            "window": "15s",
            "containers": [{"name": placed.deployment.name, "usage": usage}],
        }
        for name in placed.pod_names
    ]


def _owner(kind: str, name: str) -> Object:
    return {
        "apiVersion": "apps/v1",
        "kind": kind,
        "name": name,
        "controller": True,
        "uid": f"00000000-0000-4000-8000-{crc32(name.encode()):012x}",
    }


# ---------------------------------------------------------------------- kinds, as discovery and tables tell them


Columns: TypeAlias = Mapping[str, Callable[[Object], Any]]


class Kind(Struct, frozen=True):
    """A kind of object.

    Attributes:
        api: Its group and version as they stand in a path: `v1`, `apps/v1`.
        short: Its short names.
        objects: Those of one deployment.
        columns: Of its table: the heading, and the cell of an object.
    """

    api: str
    name: str
    kind: str
    short: Sequence[str] = ()
    objects: Callable[[Placed], list[Object]] = lambda _: []
    columns: Columns = field(default_factory=dict)

    @property
    def singular(self) -> str:
        """The name of one."""
        return self.kind.lower()

    @property
    def group(self) -> str:
        """The group as errors tell it behind the name: `deployments.apps`, nothing for the oldest group."""
        group, slash, _ = self.api.partition("/")
        return f".{group}" if slash else ""

    def table(self, found: Sequence[Object]) -> Object:
        """Return the objects as a server-side table, which is what `kubectl get` prints."""
        columns: Columns = {
            "Name": lambda each: each["metadata"]["name"],
            **self.columns,
            "Age": lambda _: "20d",
        }
        return {
            "kind": "Table",
            "apiVersion": "meta.k8s.io/v1",
            "metadata": {"resourceVersion": "1"},
            "columnDefinitions": [
                {
                    "name": name,
                    "type": "string",
                    "format": "name" if name == "Name" else "",
                    "description": name,
                    "priority": 0,
                }
                for name in columns
            ],
            "rows": [
                {
                    "cells": [cell(each) for cell in columns.values()],
                    "object": {
                        "kind": "PartialObjectMetadata",
                        "apiVersion": "meta.k8s.io/v1",
                        "metadata": each["metadata"],
                    },
                }
                for each in found
            ],
        }


def _ready(each: Object) -> str:
    status = each["status"]
    return f"{status.get('readyReplicas', 0)}/{each['spec']['replicas']}"


def _container(each: Object) -> Object:
    container: Object = each["status"]["containerStatuses"][0]
    return container


KINDS = (
    Kind(
        "v1",
        "pods",
        "Pod",
        short=("po",),
        objects=pods,
        columns={
            "Ready": lambda each: f"{int(_container(each)['ready'])}/1",
            "Status": lambda each: each["status"]["phase"],
            "Restarts": lambda each: str(_container(each)["restartCount"]),
        },
    ),
    Kind(
        "v1",
        "services",
        "Service",
        short=("svc",),
        objects=services,
        columns={
            "Type": lambda each: each["spec"]["type"],
            "Cluster-IP": lambda each: each["spec"]["clusterIP"],
            "Port(s)": lambda each: f"{each['spec']['ports'][0]['port']}/TCP",
        },
    ),
    Kind(
        "v1",
        "events",
        "Event",
        short=("ev",),
        objects=events,
        columns={
            "Type": lambda each: each["type"],
            "Reason": lambda each: each["reason"],
            "Object": lambda each: f"{each['involvedObject']['kind'].lower()}/{each['involvedObject']['name']}",
            "Message": lambda each: each["message"],
        },
    ),
    Kind(
        "apps/v1",
        "deployments",
        "Deployment",
        short=("deploy",),
        objects=deployments,
        columns={
            "Ready": _ready,
            "Up-to-date": lambda each: str(each["status"]["updatedReplicas"]),
            "Available": lambda each: str(each["status"]["availableReplicas"]),
        },
    ),
    Kind(
        "apps/v1",
        "replicasets",
        "ReplicaSet",
        short=("rs",),
        objects=replica_sets,
        columns={
            "Desired": lambda each: str(each["spec"]["replicas"]),
            "Ready": lambda each: str(each["status"]["readyReplicas"]),
        },
    ),
    Kind("apps/v1", "statefulsets", "StatefulSet", ("sts",)),
    Kind("apps/v1", "daemonsets", "DaemonSet", ("ds",)),
    Kind("batch/v1", "jobs", "Job"),
    Kind("metrics.k8s.io/v1beta1", "pods", "PodMetrics", objects=pod_metrics),
)
"""The kinds of the cluster; a kind without `objects` has none."""
