"""A Kubernetes cluster that is not there: an HTTP server on this machine to which the real `kubectl` talks.

    with StandInCluster([Deployment("api-gateway")]) as cluster:
        tools = Kubernetes(contexts=[cluster.context], namespaces=["shop"], kubeconfig=cluster.kubeconfig)
        ...
    assert cluster.restarts == ["shop/api-gateway"]

It speaks what `kubectl` of versions 1.20 to 1.33 asks for `get`, `describe`, `logs`, `top`, `rollout restart` and
`rollout status`: discovery, lists and objects, server-side tables, watches, one kind of patch. Where no kubectl is
installed, `FAKE_KUBECTL` is a program that takes the same arguments.

Rule 1: nothing passes by itself: a rollout goes on each time that somebody looks at it.
Rule 2: what is asked is noted before it is answered, so a test can say what was never asked.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from threading import Lock
from typing import Any

from handrail.errors import Json
from handrail.testing import Fault
from handrail.testing.loopback import Answer, Loopback, ReceivedRequest
from stand_ins.cluster.objects import (
    BORN,
    KINDS,
    Deployment,
    Kind,
    Object,
    Placed,
    Pods,
    RolloutProgress,
)

FAKE_KUBECTL: Sequence[str] = (
    sys.executable,
    "-I",
    str(Path(__file__).with_name("kubectl.py")),
)
"""A command that takes the arguments of `kubectl` which the tools use, for machines that have none."""

_RESTARTED_AT = "kubectl.kubernetes.io/restartedAt"


class StandInCluster(Loopback):
    """A cluster with some deployments, behind a real HTTP server on the loopback interface.

    Attributes:
        context: The one context of its kubeconfig.
        kubeconfig: A file for `kubectl --kubeconfig`, there while the cluster is.
        restarts: `namespace/deployment` of every restart, in order: the world that a test asserts.
        broken: What goes wrong, by a part of `METHOD path`: `{"GET /apis/metrics": Fault(503, "...")}`. A fault is
            answered instead of the truth for as long as it is in here.
        unheard: Parts of `METHOD path` of what is carried out, and whose answer is lost.
    """

    context = "stand-in"

    def __init__(self, deployments: Iterable[Deployment]) -> None:
        super().__init__(self._respond)
        self._placed = [Placed(each, RolloutProgress()) for each in deployments]
        self.restarts: list[str] = []
        self.broken: dict[str, Fault] = {}
        self.unheard: set[str] = set()
        self._change = Lock()
        self._folder = TemporaryDirectory(prefix="handrail-cluster-", ignore_cleanup_errors=True)
        self.kubeconfig = Path(self._folder.name, "kubeconfig")
        self.kubeconfig.write_text(json.dumps(self._config(), indent=1), encoding="utf-8")

    def __exit__(self, *_: object) -> None:
        super().__exit__()
        self._folder.cleanup()

    def pods(self, deployment: str) -> Sequence[str]:
        """Return the names of a deployment's present pods."""
        return next(each.pod_names for each in self._placed if each.deployment.name == deployment)

    def _config(self) -> Object:
        """Return the kubeconfig; it is JSON, which is YAML too."""
        address = self.url
        context = {
            "cluster": self.context,
            "user": self.context,
            "namespace": "default",
        }
        return {
            "apiVersion": "v1",
            "kind": "Config",
            "current-context": self.context,
            "clusters": [{"name": self.context, "cluster": {"server": address}}],
            "users": [{"name": self.context, "user": {}}],
            "contexts": [{"name": self.context, "context": context}],
        }

    # ------------------------------------------------------------------ what is asked

    def note(self, asked: ReceivedRequest) -> Fault | None:
        """Record a request; return the fault to answer it with, if any."""
        super().note(asked)
        return next(
            (fault for part, fault in self.broken.items() if part in f"{asked.method} {asked.path}"),
            None,
        )

    def _respond(self, asked: ReceivedRequest) -> Answer | None:
        """Return what the API says to a request; nothing when its answer is to be lost."""
        answer = self._perform(asked)
        if any(part in f"{asked.method} {asked.path}" for part in self.unheard):
            return None
        return answer

    def _perform(self, asked: ReceivedRequest) -> Answer:
        steps = asked.path.strip("/").split("/")
        if (discovery := _discovery(asked.path)) is not None:
            return Answer(json=discovery)
        if len(steps) == 4 and steps[:3] == ["api", "v1", "namespaces"]:
            return self._namespace(steps[3])
        if (resource := _resource(steps)) is None:
            return _refusal(404, "NotFound", "the server could not find the requested resource")
        kind, namespace, name, part = resource
        with self._change:
            if part == "log":
                return self._log(namespace, name, asked.query)
            if asked.method == "PATCH" and kind.name == "deployments":
                return self._patch(namespace, name, asked.json())
        if asked.method != "GET" or part:
            return _refusal(
                405,
                "MethodNotAllowed",
                "the server does not allow this method on the requested resource",
            )
        return self._read(kind, namespace, name, asked)

    def _read(self, kind: Kind, namespace: str, name: str, asked: ReceivedRequest) -> Answer:
        """Return one object or a list, as a table where that is preferred, or what changes from now on."""
        if asked.query.get("watch") in ("true", "1"):
            return Answer(stream=self._watch(kind, namespace, asked.query))
        with self._change:
            objects = [each for each in self._objects(kind, namespace) if _fits(each, asked.query)]
        if name:
            objects = [each for each in objects if each["metadata"]["name"] == name]
            if not objects:
                return _not_found(kind, name)
        if "as=Table" in asked.headers.get("accept", ""):
            return Answer(json=kind.table(objects))
        whole = {
            "kind": f"{kind.kind}List",
            "apiVersion": kind.api,
            "metadata": {"resourceVersion": "1"},
        }
        return Answer(json=objects[0] if name else {**whole, "items": objects})

    def _watch(self, kind: Kind, namespace: str, query: Mapping[str, str]) -> Iterator[bytes]:
        """Yield changes for as long as there are some to come; each is a look at what is being rolled out."""
        more = True
        while more:
            with self._change:
                more = any(each.rollout.goes_on for each in self._placed)
                objects = [each for each in self._objects(kind, namespace) if _fits(each, query)]
            yield from (json.dumps({"type": "MODIFIED", "object": each}).encode() + b"\n" for each in objects)

    def _objects(self, kind: Kind, namespace: str) -> list[Object]:
        """Return the objects of a kind; to look at deployments lets their rollouts go on."""
        objects = []
        for placed in self._placed:
            if namespace != placed.deployment.namespace:
                continue
            objects += kind.objects(placed)
            if kind.name == "deployments" and not placed.rollout.is_ready:
                placed.rollout.looks_left -= 1
                placed.rollout.resource_version += 1
        return objects

    def _namespace(self, name: str) -> Answer:
        """Return a namespace: kubectl looks whether it is there when something in it is not."""
        if all(each.deployment.namespace != name for each in self._placed):
            return _refusal(
                404,
                "NotFound",
                f'namespaces "{name}" not found',
                {"name": name, "kind": "namespaces"},
            )
        metadata = {
            "name": name,
            "uid": "",
            "resourceVersion": "1",
            "creationTimestamp": BORN,
        }
        return Answer(
            json={
                "apiVersion": "v1",
                "kind": "Namespace",
                "metadata": metadata,
                "status": {"phase": "Active"},
            }
        )

    def _find_pod(self, namespace: str, pod: str) -> Placed | None:
        for placed in self._placed:
            if placed.deployment.namespace == namespace and pod in placed.pod_names:
                return placed
        return None

    def _log(self, namespace: str, pod: str, query: Mapping[str, str]) -> Answer:
        own = self._find_pod(namespace, pod)
        if own is None:
            return _not_found(KINDS[0], pod)
        container = query.get("container") or own.deployment.name
        if container != own.deployment.name:
            return _refusal(400, "BadRequest", f"container {container} is not valid for pod {pod}")
        if query.get("previous") == "true":
            lines = own.pods.previous_logs
        else:
            lines = own.pods.logs
        if lines is None:
            message = f'previous terminated container "{container}" in pod "{pod}" not found'
            return _refusal(400, "BadRequest", message)
        if query.get("tailLines", "0") != "0":
            lines = lines[-int(query["tailLines"]) :]
        text = "".join(f"{line}\n" for line in lines)
        most = int(query.get("limitBytes", len(text.encode())))
        return Answer(body=text.encode()[:most])

    def _patch(self, namespace: str, name: str, body: Json) -> Answer:
        """Take a patch of a deployment; the only one that is understood is that of `kubectl rollout restart`."""
        own = next(
            (p for p in self._placed if (p.deployment.namespace, p.deployment.name) == (namespace, name)),
            None,
        )
        kind = next(kind for kind in KINDS if kind.name == "deployments")
        if own is None:
            return _not_found(kind, name)
        try:
            restarted_at = body["spec"]["template"]["metadata"]["annotations"][_RESTARTED_AT]
        except (LookupError, TypeError):
            return _refusal(
                422,
                "Invalid",
                "this stand-in takes no other patch than that of a restart",
            )
        # the same second twice changes nothing, as in a real cluster
        if restarted_at != own.rollout.restarted_at:
            own.rollout.restarted_at = restarted_at
            own.rollout.revision += 1
            own.rollout.resource_version += 1
            own.rollout.looks_left = own.deployment.looks
            self.restarts.append(f"{namespace}/{name}")
        return Answer(json=kind.objects(own)[0])


# ---------------------------------------------------------------------- what the API says whatever is in it


_VERSION = {
    "major": "1",
    "minor": "32",
    "gitVersion": "v1.32.0-handrail",
    "gitCommit": "",
    "gitTreeState": "clean",
    "buildDate": "",
    "goVersion": "",
    "compiler": "",
    "platform": "linux/amd64",
}


def _discovery(path: str) -> Object | None:
    """Return what discovery says at a path, in the form that every version reads."""
    if path == "/version":
        return dict(_VERSION)
    if path == "/api":
        return {
            "kind": "APIVersions",
            "versions": ["v1"],
            "serverAddressByClientCIDRs": [],
        }
    if path == "/apis":
        return _list_groups()
    if path.startswith("/apis/"):
        return _list_resources(path.removeprefix("/apis/"))
    return _list_resources(path.removeprefix("/api/"))


def _list_groups() -> Object:
    groups = sorted({kind.api for kind in KINDS if "/" in kind.api})
    versions = [{"groupVersion": api, "version": api.partition("/")[2]} for api in groups]
    return {
        "kind": "APIGroupList",
        "apiVersion": "v1",
        "groups": [
            {
                "name": version["groupVersion"].partition("/")[0],
                "versions": [version],
                "preferredVersion": version,
            }
            for version in versions
        ],
    }


def _list_resources(api: str) -> Object | None:
    kinds = [kind for kind in KINDS if kind.api == api]
    if not kinds:
        return None
    return {
        "kind": "APIResourceList",
        "apiVersion": "v1",
        "groupVersion": api,
        "resources": [
            {
                "name": kind.name,
                "singularName": kind.singular,
                "namespaced": True,
                "kind": kind.kind,
                "verbs": ["get", "list", "watch", "patch"],
                "shortNames": list(kind.short),
            }
            for kind in kinds
        ],
    }


def _resource(steps: list[str]) -> tuple[Kind, str, str, str] | None:
    """Read `/api/v1/namespaces/shop/pods/NAME/log`: kind, namespace, name and part, the last two perhaps empty."""
    for kind in KINDS:
        own = kind.api.split("/")
        if steps[1 : len(own) + 1] == own:
            match steps[len(own) + 1 :]:
                case ["namespaces", namespace, plural, *rest] if plural == kind.name and len(rest) <= 2:
                    name, part = (*rest, "", "")[:2]
                    return kind, namespace, name, part
    return None


def _fits(each: Object, query: Mapping[str, str]) -> bool:
    """Whether an object fits the equalities of a query's selectors."""
    labels = each["metadata"].get("labels", {})
    for part in filter(None, query.get("labelSelector", "").split(",")):
        name, _, value = part.partition("=")
        if labels.get(name) != value:
            return False
    for part in filter(None, query.get("fieldSelector", "").split(",")):
        name, _, value = part.partition("=")
        value_found: Any = each
        for step in name.split("."):
            value_found = value_found.get(step, {}) if isinstance(value_found, dict) else {}
        if value_found != value:
            return False
    return True


def _not_found(kind: Kind, name: str) -> Answer:
    details = {"name": name, "kind": kind.name, "group": kind.group.removeprefix(".")}
    return _refusal(404, "NotFound", f'{kind.name}{kind.group} "{name}" not found', details)


def _refusal(status: int, reason: str, message: str, details: Object | None = None) -> Answer:
    status_object = {
        "kind": "Status",
        "apiVersion": "v1",
        "metadata": {},
        "status": "Failure",
        "code": status,
        "reason": reason,
        "message": message,
        "details": details or {},
    }
    return Answer(status, json=status_object)


def refusal(status: int, reason: str, message: str) -> Fault:
    """Return a fault with which a real API server says no: `refusal(403, "Forbidden", "...")`."""
    return Fault(status, json.dumps(_refusal(status, reason, message).json))


__all__ = ["FAKE_KUBECTL", "Deployment", "Pods", "StandInCluster", "refusal"]
