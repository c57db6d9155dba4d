"""A program that takes the arguments of `kubectl` which handrail's tools use, where the real one is not installed.

It asks the API server of a kubeconfig that is written as JSON, such as a `StandInCluster` makes; words on stderr and
exit codes are those of kubectl 1.32. Only the standard library is used, so that it starts at once.

Rule: arguments that the tools never give the real one are an error here, so that no test passes by accident.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import datetime, timezone
from pathlib import Path
from time import monotonic, sleep
from typing import Any
from urllib.error import HTTPError, URLError
from urllib.parse import urlencode, urlsplit
from urllib.request import Request, urlopen

from msgspec import Struct

_APPS = {"deployments", "replicasets", "statefulsets", "daemonsets"}
_KINDS = {*_APPS, "jobs", "pods", "services", "events"}
_OPTIONS = {
    "kubeconfig",
    "cache-dir",
    "context",
    "namespace",
    "output",
    "selector",
    "sort-by",
    "tail",
    "container",
    "since",
    "previous",
    "no-headers",
    "timeout",
    "watch",
}
_TABLE = "application/json;as=Table;v=v1;g=meta.k8s.io,application/json"
_NAMESPACE = "/api/v1/namespaces/{}"
_RESTARTED_AT = "kubectl.kubernetes.io/restartedAt"


class _Failed(Exception):
    """What goes to stderr; the exit code is 1."""


class _Cluster(Struct, frozen=True):
    """A namespace of the cluster that the kubeconfig names for a context."""

    server: str
    namespace: str

    def ask(
        self,
        path: str,
        *,
        accept: str = "application/json",
        patch: Any = None,
        **query: str,
    ) -> bytes:
        """Send a request below the namespace; return the body of the answer."""
        asked = "?" + urlencode(query) if query else ""
        request = Request(
            self.server + path.format(self.namespace) + asked,
            headers={"Accept": accept},
        )
        if patch is not None:
            request.method = "PATCH"
            request.data = json.dumps(patch).encode()
            request.add_header("Content-Type", "application/strategic-merge-patch+json")
        try:
            with urlopen(request) as answer:
                body: bytes = answer.read()
                return body
        except HTTPError as error:
            if error.code == 404 and path != _NAMESPACE:
                # as the real one, to say so if it is the namespace that is not there
                self.ask(_NAMESPACE)
            raise _Failed(_refusal(error)) from error
        except URLError as error:
            if isinstance(error.reason, ConnectionRefusedError):
                host = urlsplit(self.server).netloc
                message = f"The connection to the server {host} was refused - did you specify the right host or port?"
                raise _Failed(message) from error
            raise _Failed(f"Unable to connect to the server: {error.reason}") from error
        except ConnectionError as error:
            raise _Failed("Unable to connect to the server: EOF") from error

    def get(self, path: str, **query: str) -> Any:
        """Return the document at a path."""
        return json.loads(self.ask(path, **query))


def _refusal(error: HTTPError) -> str:
    try:
        status = json.loads(error.read())
        return f"Error from server ({status['reason']}): {status['message']}"
    except (ValueError, KeyError, TypeError):
        reason = {
            503: "ServiceUnavailable",
            500: "InternalError",
            403: "Forbidden",
            429: "TooManyRequests",
        }
        return f"Error from server ({reason.get(error.code, 'Unknown')}): the server was unable to answer"


def _path(kind: str, name: str = "") -> str:
    if kind not in _KINDS:
        raise _Failed(f'error: the server doesn\'t have a resource type "{kind}"')
    if kind in _APPS:
        api = "/apis/apps/v1"
    elif kind == "jobs":
        api = "/apis/batch/v1"
    else:
        api = "/api/v1"
    return f"{api}/namespaces/{{}}/{kind}" + (f"/{name}" if name else "")


class _CommandLine(Struct, frozen=True):
    """A command line: its options without their dashes, and the words behind the command."""

    options: Mapping[str, str]
    words: Sequence[str]

    @property
    def selector_query(self) -> dict[str, str]:
        """The query of `--selector`."""
        if self.options.get("selector"):
            return {"labelSelector": self.options["selector"]}
        return {}


def _target(words: Sequence[str]) -> tuple[str, str]:
    """Read `KIND`, `KIND NAME` or `KIND/NAME`; a kind is in the plural or the singular."""
    kind, _, name = words[0].partition("/")
    kind = kind if kind.endswith("s") else f"{kind}s"
    return kind, name or (words[1] if len(words) > 1 else "")


# ---------------------------------------------------------------------- commands


def _get(cluster: _Cluster, asked: _CommandLine) -> Iterator[str]:
    kind, name = _target(asked.words)
    output = asked.options.get("output", "")
    if output == "json":
        yield json.dumps(cluster.get(_path(kind, name), **asked.selector_query), indent=4)
        return
    table = json.loads(cluster.ask(_path(kind, name), accept=_TABLE, **asked.selector_query))
    if output == "name":
        if kind in _APPS:
            group = ".apps"
        elif kind == "jobs":
            group = ".batch"
        else:
            group = ""
        yield from (f"{kind[:-1]}{group}/{row['cells'][0]}" for row in table["rows"])
    elif table["rows"]:
        heads = [column["name"].upper() for column in table["columnDefinitions"]]
        yield from _columns([heads, *([str(cell) for cell in row["cells"]] for row in table["rows"])])
    else:
        print(f"No resources found in {cluster.namespace} namespace.", file=sys.stderr)


def _logs(cluster: _Cluster, asked: _CommandLine) -> Iterator[str]:
    names = {"tail": "tailLines", "container": "container", "previous": "previous"}
    query = {names[name]: value for name, value in asked.options.items() if name in names}
    if "since" in asked.options:
        query["sinceSeconds"] = asked.options["since"].removesuffix("s")
    try:
        cluster.get(_path("pods", asked.words[0]))
    except _Failed as error:
        if "(NotFound)" in str(error):
            message = f'{str(error)[0].lower()}{str(error)[1:]} in namespace "{cluster.namespace}"'
            raise _Failed(f"error: {message}") from error
        raise
    yield (cluster.ask(_path("pods", asked.words[0]) + "/log", **query).decode("utf-8", "replace").removesuffix("\n"))


def _top(cluster: _Cluster, asked: _CommandLine) -> Iterator[str]:
    metrics = cluster.get("/apis/metrics.k8s.io/v1beta1/namespaces/{}/pods", **asked.selector_query)
    usages = [(each["metadata"]["name"], each["containers"][0]["usage"]) for each in metrics["items"]]
    rows = [[name, usage["cpu"], f"{int(usage['memory'][:-2]) // 1024}Mi"] for name, usage in sorted(usages)]
    if "no-headers" in asked.options:
        heads = []
    else:
        heads = [["NAME", "CPU(cores)", "MEMORY(bytes)"]]
    yield from _columns([*heads, *rows])


def _describe(cluster: _Cluster, asked: _CommandLine) -> Iterator[str]:
    kind, name = _target(asked.words)
    item = cluster.get(_path(kind, name))
    yield from (f"Name:       {name}", f"Namespace:  {cluster.namespace}")
    yield f"Labels:     {','.join(f'{key}={value}' for key, value in item['metadata']['labels'].items())}"
    spec = item["spec"].get("template", item).get("spec", {})
    statuses = {each["name"]: each for each in item["status"].get("containerStatuses", [])}
    if containers := spec.get("containers"):
        yield "Containers:"
    for container in containers or []:
        yield from _describe_container(container, statuses.get(container["name"], {}))
    if "replicas" in item["spec"]:
        yield f"Replicas:   {item['spec']['replicas']} desired | {item['status'].get('readyReplicas', 0)} ready"
    events = cluster.get(_path("events"), fieldSelector=f"involvedObject.name={name}")["items"]
    yield from (
        "Events:",
        *(f"  {each['type']}  {each['reason']}  {each['message']}" for each in events),
    )


def _describe_container(container: Any, status: Any) -> Iterator[str]:
    yield f"  {container['name']}:"
    yield f"    Image:  {container['image']}"
    if terminated := status.get("lastState", {}).get("terminated"):
        yield "    Last State:   Terminated"
        yield f"      Reason:     {terminated['reason']}"
        yield f"      Exit Code:  {terminated['exitCode']}"
    yield "    Limits:"
    for what, most in container["resources"]["limits"].items():
        yield f"      {what}:  {most}"
    if container["env"]:
        yield "    Environment:"
        for each in container["env"]:
            yield f"      {each['name']}:  {each['value']}"
    else:
        yield "    Environment:  <none>"


def _rollout(cluster: _Cluster, asked: _CommandLine) -> Iterator[str]:
    what, *target = asked.words
    kind, name = _target(target)
    if what == "restart":
        cluster.get(_path(kind, name))
        now = datetime.now(timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")  # noqa: UP017  # as old as the machine's Python
        patch = {"spec": {"template": {"metadata": {"annotations": {_RESTARTED_AT: now}}}}}
        cluster.ask(_path(kind, name), patch=patch, fieldManager="kubectl-rollout")
        yield f"deployment.apps/{name} restarted"
        return
    until = monotonic() + float(asked.options.get("timeout", "0s").removesuffix("s") or 0)
    printed = ""
    while True:
        deployment = cluster.get(_path(kind, name))
        wanted = deployment["spec"]["replicas"]
        ready = deployment["status"].get("availableReplicas", 0)
        waiting = (
            f'Waiting for deployment "{name}" rollout to finish: {ready} of {wanted} updated replicas are available...'
        )
        if ready == wanted:
            yield f'deployment "{name}" successfully rolled out'
            return
        if waiting != printed:
            yield waiting
            printed = waiting
        if asked.options.get("watch") == "false":
            return
        if "timeout" in asked.options and monotonic() >= until:
            raise _Failed("error: timed out waiting for the condition")
        sleep(0.01)


def _columns(rows: Sequence[Sequence[str]]) -> Iterator[str]:
    if rows:
        widths = [max(map(len, column)) for column in zip(*rows)]  # noqa: B905  # as old as the machine's Python
        yield from ("   ".join(map(str.ljust, row, widths)).rstrip() for row in rows)


_COMMANDS: Mapping[str, Callable[[_Cluster, _CommandLine], Iterator[str]]] = {
    "get": _get,
    "logs": _logs,
    "top": _top,
    "describe": _describe,
    "rollout": _rollout,
}


def _read_cluster(options: Mapping[str, str]) -> _Cluster:
    """Read the kubeconfig, which is JSON here."""
    file = options.get("kubeconfig") or os.environ.get("KUBECONFIG") or "~/.kube/config"
    config = json.loads(Path(file).expanduser().read_text(encoding="utf-8"))
    context = options.get("context", config["current-context"])
    contexts = {each["name"]: each["context"] for each in config["contexts"]}
    if context not in contexts:
        raise _Failed(f'error: context "{context}" does not exist')
    servers = {each["name"]: each["cluster"]["server"] for each in config["clusters"]}
    own = contexts[context]
    return _Cluster(
        servers[own["cluster"]],
        options.get("namespace", own.get("namespace", "default")),
    )


def main(arguments: Sequence[str]) -> int:
    """Carry out a command line; return the exit code."""
    options: dict[str, str] = {}
    words: list[str] = []
    for each in arguments:
        if not each.startswith("-"):
            words.append(each)
            continue
        name, _, value = each.removeprefix("--").partition("=")
        if name not in _OPTIONS:
            print(f"error: unknown flag: {each}", file=sys.stderr)
            return 1
        options[name] = value or "true"
    try:
        if not words or words[0] not in _COMMANDS:
            raise _Failed(f'error: unknown command "{words[0] if words else ""}" for "kubectl"')
        for line in _COMMANDS[words[0]](_read_cluster(options), _CommandLine(options, words[1:])):
            print(line)
    except _Failed as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
