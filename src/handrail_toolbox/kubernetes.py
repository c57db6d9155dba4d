"""Look into a Kubernetes cluster, and restart a deployment, by `kubectl`.

    tools = Kubernetes(contexts=["staging"], namespaces=["shop", "billing"])
    runtime = hr.Runtime(tools)                    # a Toolset: `--tools ops.py` finds it at the top level of a file

The program names the clusters and namespaces, never the model: it chooses among these. There is no tool that
reads a Secret, and what `describe` tells of environment variables is masked.

Rule 1: `kubectl` is started by a list of arguments, never by a shell. A value of the model's follows `--option=`,
        or is a name, which cannot begin with `-`.
Rule 2: a restart names the restart before it. So it happens once for one observation, whoever asks for it, and a lost
        answer is settled by looking: the time there is another one, or the same.
Rule 3: what `kubectl` says on stderr goes to the model only where the API server worded it for a caller.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
import signal
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Annotated, Any, Literal, TypeAlias, cast

from msgspec import Struct
from msgspec.structs import replace
from pydantic import Field

from handrail._lazy import cached_property
from handrail.context import Context
from handrail.effects import Found, NotFound
from handrail.errors import Code, ConfigError, Json, NoEffect
from handrail.parsing import names
from handrail.schemas.hints import Signature
from handrail.tools.settings import Limits, Sends
from handrail.tools.tool import BaseTool
from handrail.tools.toolset import Toolset

MOST_BYTES = 1 << 20
"""What is read of an output. Longer ones end early, logs begin late; the runtime cuts further for the model."""

_MOST_WORDS_BYTES = 16 * 1024  # of stderr, of which one line is looked at

PASSED_ON = ("PATH", "HOME", "KUBECONFIG")
"""What of our environment `kubectl` gets."""

# RFC 1123 subdomain, as Kubernetes names objects
_NAME = r"^[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?$"
_PAIR = r"[A-Za-z0-9_./-]+=[A-Za-z0-9_.-]+"
_LABELS = rf"^({_PAIR}(,{_PAIR})*)?$"

Name: TypeAlias = Annotated[str, Field(pattern=_NAME)]
Container: TypeAlias = Annotated[
    str, Field(pattern=r"^([a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?)?$")
]
Labels: TypeAlias = Annotated[str, Field(pattern=_LABELS)]
Described: TypeAlias = Literal[
    "pods",
    "deployments",
    "replicasets",
    "statefulsets",
    "daemonsets",
    "jobs",
    "services",
]
Listed: TypeAlias = Literal[
    "pods",
    "deployments",
    "replicasets",
    "statefulsets",
    "daemonsets",
    "jobs",
    "services",
    "events",
]


class Kubernetes(Toolset):
    """The tools over some namespaces of some clusters.

    Args:
        contexts: Contexts of the kubeconfig that may be used.
        namespaces: Namespaces that may be looked into, the same in each cluster.
        kubectl: The program, or the command that begins it.
        kubeconfig: A file; otherwise `kubectl` finds its own.
        environment: Of which `PASSED_ON` is passed on.

    Raises:
        ConfigError: Nothing may be reached, or a name cannot be one.
    """

    def __init__(
        self,
        *,
        contexts: Sequence[str],
        namespaces: Sequence[str],
        kubectl: str | Sequence[str] = "kubectl",
        kubeconfig: str | os.PathLike[str] | None = None,
        environment: Mapping[str, str] = os.environ,
    ) -> None:
        program = (kubectl,) if isinstance(kubectl, str) else tuple(kubectl)
        passed_on = {
            name: environment[name] for name in PASSED_ON if name in environment
        }
        file = os.fspath(kubeconfig) if kubeconfig is not None else ""
        reach = Kubectl(
            program,
            _require_names("contexts", contexts),
            _require_names("namespaces", namespaces),
            file,
            passed_on,
        )
        super().__init__(make(reach) for make in _TOOLS)


def _require_names(what: str, names: Sequence[str]) -> tuple[str, ...]:
    if isinstance(names, str) or not names:
        raise ConfigError(
            f'`{what}` is {names!r}; list what the tools may reach, such as {what}=["staging"]'
        )
    pattern = r"[^-\s][^\s]*" if what == "contexts" else _NAME
    for each in names:
        if not (isinstance(each, str) and re.fullmatch(pattern, each)):
            raise ConfigError(f"`{what}` has {each!r}, which cannot be the name of one")
    return tuple(dict.fromkeys(names))


# ---------------------------------------------------------------------- kubectl


class Where(Struct, frozen=True):
    """A namespace of a cluster."""

    context: str
    namespace: str


class CommandOutput(Struct, frozen=True):
    """What `kubectl` wrote before it ended."""

    code: int
    out: str
    words: str


class Kubectl(Struct, frozen=True):
    """`kubectl`, and what it may reach."""

    program: Sequence[str]
    contexts: Sequence[str]
    namespaces: Sequence[str]
    kubeconfig: str
    environment: Mapping[str, str]

    async def ask(
        self, where: Where, *words: str, name: str = "", newest: bool = False
    ) -> str:
        """Run a command and return its output.

        Args:
            words: Ours, or checked: what a model writes goes into `name`, or behind `--option=`.
            newest: Cut an output that is too long at its beginning.

        Raises:
            ToolError: It failed, in a way that has words for the model.
            ConnectionError: The connection broke, and nobody knows what became of it.
        """
        output = await self.run_command(
            where,
            *words,
            name=name,
            newest=newest,
        )
        if output.code != 0:
            raise failure_from(output.words, where)
        return output.out

    async def run_command(
        self, where: Where, *words: str, name: str = "", newest: bool = False
    ) -> CommandOutput:
        """Run a command and return its output, whatever its exit code."""
        if where.context not in self.contexts or where.namespace not in self.namespaces:
            message = f"`{where.namespace}` of `{where.context}` is none of the namespaces that may be looked into."
            raise NoEffect(
                Code.NOT_PERMITTED,
                message,
                suggestion="Choose one that the parameter names.",
            )
        if name and not re.fullmatch(_NAME, name.rpartition("/")[2]):
            message = f"{name[:80]!r} cannot be the name of an object in Kubernetes."
            raise NoEffect(
                Code.INVALID_ARGUMENTS,
                message,
                suggestion="Find its name with `get_resources`.",
            )
        return await _run_process(
            [*self.program, *self._own_options(where), *words, *filter(None, [name])],
            self.environment,
            newest=newest,
        )

    async def deployment(self, where: Where, name: str) -> Json:
        """Return a deployment as the API tells it.

        Raises:
            ToolError: As `ask`, and NOT_FOUND.
        """
        return json.loads(
            await self.one(where, "deployments", name, "get", "--output=json")
        )

    async def one(
        self, where: Where, kind: str, name: str, *words: str, newest: bool = False
    ) -> str:
        """Ask about one object; if none has that name, the error lists those that exist."""
        target = name if words[0] == "logs" else f"{kind}/{name}"
        output = await self.run_command(
            where,
            *words,
            name=target,
            newest=newest,
        )
        if output.code == 0:
            return output.out
        if _server_reason(output.words) != "NotFound" or "namespaces" in output.words:
            raise failure_from(output.words, where)
        there = await self.run_command(where, "get", kind, "--output=name")
        there_are = [line.rpartition("/")[2] for line in there.out.splitlines()]
        near = [each for each in there_are if each.startswith(f"{name}-")][
            :3
        ] or names.nearest(name, there_are)
        if near:
            advice = f"Did you mean {' or '.join(f'`{each}`' for each in near)}?"
        else:
            advice = _list_names(kind, there_are)
        raise NoEffect(
            "NOT_FOUND",
            f"There is no `{name}` among the {kind} of namespace `{where.namespace}`.",
            suggestion=advice,
        )

    def _own_options(self, where: Where) -> list[str]:
        options = [f"--context={where.context}", f"--namespace={where.namespace}"]
        if not self.kubeconfig:
            return options
        # Where kubectl keeps what it learnt of an API: beside the file, as it does beside ~/.kube/config.
        cache = os.path.join(os.path.dirname(os.path.abspath(self.kubeconfig)), "cache")  # noqa: PTH100, PTH118, PTH120
        return [f"--kubeconfig={self.kubeconfig}", f"--cache-dir={cache}", *options]


def _list_names(kind: str, names: Sequence[str]) -> str:
    some = ", ".join(f"`{each}`" for each in names[:10])
    if names:
        return f"There are {some}."
    return f"There are no {kind} in it; ask the user which namespace is meant."


async def _run_process(
    command: Sequence[str], environment: Mapping[str, str], *, newest: bool
) -> CommandOutput:
    """Run a command to its end. If the call is given up, kill the command and everything that it started."""
    pipe = asyncio.subprocess.PIPE
    nothing = asyncio.subprocess.DEVNULL
    try:
        process = await asyncio.create_subprocess_exec(
            *command,
            stdin=nothing,
            stdout=pipe,
            stderr=pipe,
            env=dict(environment),
            start_new_session=True,
        )
    except (FileNotFoundError, PermissionError) as error:
        message = f"The program `{os.path.basename(command[0])}` is not here."  # noqa: PTH119
        raise NoEffect(
            "KUBECTL_NOT_SET_UP",
            message,
            suggestion="Tell the user that it must be installed.",
        ) from error
    try:
        out, words = await asyncio.gather(
            _read_bounded(
                cast(asyncio.StreamReader, process.stdout), MOST_BYTES, newest=newest
            ),
            _read_bounded(
                cast(asyncio.StreamReader, process.stderr),
                _MOST_WORDS_BYTES,
                newest=True,
            ),
        )
        return CommandOutput(await process.wait(), out, words)
    except BaseException:
        # The group, also when its first process has ended: what that began may hold our pipes open.
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        # Its streams too: what it began in a session of its own may hold them open, and `wait` waits for their end.
        process._transport.close()  # type: ignore[attr-defined]  # there since Python 3.4, but not in the type stubs
        await process.wait()
        raise


async def _read_bounded(
    stream: asyncio.StreamReader, most: int, *, newest: bool
) -> str:
    """Read to the end, and keep the first or the last `most` bytes of it, whole lines where it was cut."""
    data = b""
    while piece := await stream.read(1 << 16):
        data += piece if newest else piece[: max(0, most + 1 - len(data))]
        if newest and len(data) > 2 * most:
            data = data[-most - 1 :]
    if len(data) > most:
        if newest:
            data = data[-most:].partition(b"\n")[2]
        else:
            data = data[:most].rpartition(b"\n")[0]
    return data.decode("utf-8", "replace")


# ---------------------------------------------------------------------- what went wrong


class Trouble(Struct, frozen=True):
    """A failure that `kubectl` reports in certain words; nothing was changed.

    Attributes:
        sign: A pattern in its words.
        message: For the model; `{namespace}` and `{words}`, the words of the API server, are filled in.
    """

    sign: str
    code: str
    message: str
    suggestion: str
    retryable: bool = False


_TELL = "Tell the user; calling again will not help."
_LATER = "Try again later."

_TROUBLES = (
    Trouble(
        r"\(Forbidden\)| is forbidden:",
        Code.NOT_PERMITTED,
        "The account here has no right to this in namespace `{namespace}`.",
        _TELL,
    ),
    Trouble(
        r"\(Unauthorized\)|must be logged in",
        "NOT_AUTHENTICATED",
        "The cluster does not know the account here.",
        _TELL,
    ),
    Trouble(
        r"\(TooManyRequests\)",
        Code.RATE_LIMITED,
        "The cluster asks for fewer requests.",
        _LATER,
        True,
    ),
    Trouble(
        r"already been triggered within the past second",
        "TOO_SOON",
        "It was restarted within this second.",
        "Look with `rollout_status` first.",
    ),
    Trouble(
        r"\(Conflict\)",
        "CONFLICT",
        "Somebody else was changing it.",
        "Look at it again, then decide.",
        True,
    ),
    Trouble(
        r'namespaces "[^"]*" not found',
        "NOT_FOUND",
        "The cluster has no namespace `{namespace}`.",
        _TELL,
    ),
    Trouble(
        r"metrics not available|Metrics API",
        "NO_METRICS",
        "This cluster tells no usage (no metrics-server).",
        "Go on without it.",
    ),
    Trouble(
        r"container \S+ is not valid for pod",
        "NOT_FOUND",
        "The pod has no container of that name.",
        "Leave `container` out, or look with `describe_resource` which there are.",
    ),
    Trouble(
        r"\((?:NotFound|BadRequest|Invalid|MethodNotAllowed)\)",
        "REQUEST_REFUSED",
        "Kubernetes refused: {words}",
        "Call again with what it asks for, or look with `describe_resource`.",
    ),
    Trouble(
        r"unable to parse requirement",
        "REQUEST_REFUSED",
        "`labels` has a name or a value that no label can have.",
        'Call again with labels as `describe_resource` shows them, such as "app=orders".',
    ),
    Trouble(
        r"doesn't have a resource type",
        "NOT_FOUND",
        "This cluster has no such kind.",
        "Go on without it.",
    ),
    Trouble(
        r"context .* does not exist|no context exists|context was not found|invalid configuration",
        "KUBECTL_NOT_SET_UP",
        "The kubeconfig here does not know that cluster.",
        _TELL,
    ),
    Trouble(
        r"was refused|connection refused|no such host|no route to host",
        Code.UNAVAILABLE,
        "The cluster cannot be reached just now.",
        _LATER,
        True,
    ),
)

_BROKEN_OFF = re.compile(
    r"Unable to connect|failed to patch|\bEOF\b|timeout|timed out|connection reset|connection lost|deadline exceeded"
    r"|\((?:InternalError|ServerTimeout|Timeout|ServiceUnavailable)\)|currently unable to handle the request",
    re.I,
)
_SERVER_SAYS = re.compile(r"error from server \((\w+)\):\s*(.*)", re.I)


class KubectlFailed(Exception):
    """`kubectl` failed for a reason that no message to a model covers; its own message goes to the log."""


def failure_from(words: str, where: Where) -> Exception:
    """Return the error for what `kubectl` wrote when it failed."""
    for trouble in _TROUBLES:
        if re.search(trouble.sign, words, re.I):
            server_text = _SERVER_SAYS.search(words)
            message = trouble.message.format(
                namespace=where.namespace,
                words=server_text[2][:300] if server_text else "",
            )
            return NoEffect(
                trouble.code,
                message,
                suggestion=trouble.suggestion,
                retryable=trouble.retryable,
            )
    if _BROKEN_OFF.search(words):
        # it may have been carried out: for a write, `verify` is asked
        return ConnectionError(words[:500])
    return KubectlFailed(words[:2000])


def _server_reason(words: str) -> str:
    match = _SERVER_SAYS.search(words)
    return match[1] if match else ""


# ---------------------------------------------------------------------- the tools


class _OverKubectl(BaseTool):
    """A tool whose `context` and `namespace` are among those that may be reached; an only one is the default."""

    def __init__(self, kubectl: Kubectl) -> None:
        self.kubectl = kubectl
        super().__init__()

    @cached_property
    def signature(self) -> Signature:
        """That of `run`, with the namespaces and clusters of this one."""
        inherited = super().signature
        reach = {
            "namespace": _among(self.kubectl.namespaces),
            "context": _among(self.kubectl.contexts),
        }
        return replace(inherited, visible={**inherited.visible, **reach})


def _among(permitted: Sequence[str]) -> Any:
    # made from values, which no checker follows
    choice: Any = Literal[tuple(permitted)]
    if len(permitted) == 1:
        return Annotated[choice, Field(default=permitted[0])]
    return choice


class GetPodLogs(_OverKubectl):
    """`kubectl logs`."""

    name = "get_pod_logs"
    effect = "read"
    timeout_s = 30
    limits = Limits(attempt_timeout_s=15)
    aliases = ("日志", "容器日志", "pod 日志", "kubectl logs")

    async def run(
        self,
        pod: Name,
        namespace: str,
        context: str,
        container: Container = "",
        tail_lines: Annotated[int, Field(ge=1, le=1000)] = 200,
        since_s: Annotated[int | None, Field(ge=1, le=604_800)] = None,
        previous: bool = False,
    ) -> str:
        """Read the last lines of a pod's log.

        Use it to find out why a service fails or is slow. Not for what the cluster itself noted (scheduling, probes,
        kills): those are the events in `describe_resource`. Returns the lines as text, the newest last.

        Args:
            pod: Full name of the pod, such as "api-gateway-ddb605d8-h7z9t"; `get_resources` lists them.
            namespace: Namespace of the pod.
            context: Cluster that the pod runs in.
            container: Container, where the pod has several; its first by default.
            tail_lines: How many lines, counted from the end.
            since_s: Only lines of the last so many seconds, such as 600; all by default.
            previous: Read the container that died before the present one, to see why it crashed.
        """
        options = [f"--tail={tail_lines}"]
        if container:
            options.append(f"--container={container}")
        if since_s:
            options.append(f"--since={since_s}s")
        if previous:
            options.append("--previous")
        where = Where(context, namespace)
        lines = await self.kubectl.one(
            where, "pods", pod, "logs", *options, newest=True
        )
        return _mask_passwords(lines) or "The log has no such lines."


class PodUsage(Struct, frozen=True):
    """What a pod uses; 1,000 millicores are one core."""

    pod: str
    cpu_millicores: int
    memory_mib: int


class TopPods(_OverKubectl):
    """`kubectl top pods`."""

    name = "top_pods"
    effect = "read"
    timeout_s = 20
    limits = Limits(attempt_timeout_s=10)
    aliases = ("资源使用", "CPU 内存", "指标", "kubectl top")

    async def run(
        self, namespace: str, context: str, labels: Labels = ""
    ) -> list[PodUsage]:
        """Measure how much CPU and memory pods use just now.

        Use it to find a leak or an overload. The limits that these numbers are held against are in `describe_resource`.
        Returns one entry per pod: CPU in millicores (1,000 are one core), memory in MiB.

        Args:
            namespace: Namespace of the pods.
            context: Cluster that the pods run in.
            labels: Only pods with these labels, such as "app=api-gateway,tier=web"; all by default.
        """
        options = [f"--selector={labels}"] if labels else []
        table = await self.kubectl.ask(
            Where(context, namespace), "top", "pods", "--no-headers", *options
        )
        rows = [line.split() for line in table.splitlines()]
        return [
            PodUsage(row[0], millicores(row[1]), mebibytes(row[2]))
            for row in rows
            if len(row) == 3
        ]


def millicores(text: str) -> int:
    """Read a quantity of CPU.

    >>> millicores("250m"), millicores("2")
    (250, 2000)
    """
    if text.endswith("m"):
        return int(text[:-1])
    return round(float(text) * 1000)


_MEBI = {
    "Ki": 1 / 1024,
    "Mi": 1.0,
    "Gi": 1024.0,
    "Ti": 1024.0**2,
}


def mebibytes(text: str) -> int:
    """Read a quantity of memory.

    >>> mebibytes("64Mi"), mebibytes("2Gi"), mebibytes("1048576")
    (64, 2048, 1)
    """
    unit = _MEBI.get(text[-2:])
    if unit:
        return round(float(text[:-2]) * unit)
    return round(float(text) / 1024**2)


class GetResources(_OverKubectl):
    """`kubectl get`."""

    name = "get_resources"
    effect = "read"
    timeout_s = 20
    limits = Limits(attempt_timeout_s=10)
    aliases = ("列出资源", "有哪些 pod", "事件", "kubectl get")

    async def run(
        self, kind: Listed, namespace: str, context: str, labels: Labels = ""
    ) -> str:
        """List the objects of one kind as a table: names, state, restarts, age.

        Use it to learn names and to see what is not ready. One object in detail is `describe_resource`. Secrets are not
        shown to you.

        Args:
            kind: What to list; events are in the order of time.
            namespace: Namespace to look in.
            context: Cluster to look in.
            labels: Only objects with these labels, such as "app=api-gateway"; all by default.
        """
        options = [f"--selector={labels}"] if labels else []
        if kind == "events":
            options.append("--sort-by=.lastTimestamp")
        table = await self.kubectl.ask(Where(context, namespace), "get", kind, *options)
        with_labels = f" with {labels}" if labels else ""
        return table or f"There are no {kind} in namespace `{namespace}`{with_labels}."


class DescribeResource(_OverKubectl):
    """`kubectl describe`."""

    name = "describe_resource"
    effect = "read"
    timeout_s = 20
    limits = Limits(attempt_timeout_s=10)
    aliases = ("资源详情", "查看 pod 状态", "为什么重启", "kubectl describe")

    async def run(
        self, kind: Described, name: Name, namespace: str, context: str
    ) -> str:
        """Describe one object: its limits, its state, why it was last ended, and what the cluster noted about it.

        Use it when a pod is not ready or keeps restarting. For a list of objects call `get_resources`, for what a
        program printed `get_pod_logs`. Values of environment variables are masked.

        Args:
            kind: Kind of the object.
            name: Full name of the object, such as "api-gateway"; `get_resources` lists them.
            namespace: Namespace of the object.
            context: Cluster that the object is in.
        """
        return mask_environment(
            await self.kubectl.one(Where(context, namespace), kind, name, "describe")
        )


class RolloutState(Struct, frozen=True):
    """How far a deployment's newest version has come; `last_restart` is a time or "never"."""

    deployment: str
    complete: bool
    says: str
    ready_pods: int
    wanted_pods: int
    last_restart: str


class RolloutStatus(_OverKubectl):
    """`kubectl rollout status`."""

    name = "rollout_status"
    effect = "read"
    timeout_s = 75
    limits = Limits(poll=True)
    resource = "deployment:{context}/{namespace}/{deployment}"
    aliases = ("发布状态", "滚动更新", "重启完成了吗", "kubectl rollout status")

    async def run(
        self,
        deployment: Name,
        namespace: str,
        context: str,
        wait_s: Annotated[int, Field(ge=0, le=60)] = 0,
    ) -> RolloutState:
        """Say whether a deployment's newest version serves, and when the deployment was restarted last.

        Use it before `rollout_restart`, which needs `last_restart`, and after it, with `wait_s`, until it is complete.
        Returns whether it is complete, how many pods are ready, and the time of the last restart or "never".

        Args:
            deployment: Name of the deployment, such as "api-gateway".
            namespace: Namespace of the deployment.
            context: Cluster that the deployment runs in.
            wait_s: How many seconds to wait for it to be complete; 0 looks once.
        """
        where = Where(context, namespace)
        if wait_s:
            patience = f"--timeout={wait_s}s"
        else:
            patience = "--watch=false"
        output = await self.kubectl.run_command(
            where, "rollout", "status", patience, name=f"deployment/{deployment}"
        )
        # report here what it cannot reach or find
        found = await self.kubectl.deployment(where, deployment)
        status = found.get("status", {})
        wanted = found["spec"].get("replicas", 1)
        lines = (output.out or output.words).strip().splitlines() or ["it says nothing"]
        return RolloutState(
            deployment=deployment,
            complete=output.code == 0 and "successfully rolled out" in output.out,
            says=lines[-1][:300],
            ready_pods=status.get("readyReplicas", 0),
            wanted_pods=wanted,
            last_restart=last_restart_time(found),
        )


class RolloutRestart(_OverKubectl):
    """`kubectl rollout restart`."""

    name = "rollout_restart"
    effect = "write"
    sends = Sends(trust="trusted")  # it answers in our own words
    risk = "high"
    approve = True
    timeout_s = 30
    resource = "deployment:{context}/{namespace}/{deployment}"
    key = "restart:{context}/{namespace}/{deployment}@{last_restart}"
    aliases = ("重启", "重启服务", "滚动重启", "kubectl rollout restart")

    async def run(
        self,
        deployment: Name,
        last_restart: Annotated[str, Field(pattern=r"^(never|[0-9TZ:.+-]{10,40})$")],
        namespace: str,
        context: str,
    ) -> str:
        """Restart all pods of a deployment, one after the other. A person is asked first.

        Use it when a restart mends what you have found, such as a leak. Not for a fault that comes back at once, such
        as a wrong setting: say so instead. Ask `rollout_status` afterwards, with `wait_s`, whether it is complete.

        Args:
            deployment: Name of the deployment, such as "api-gateway".
            last_restart: When it was restarted last, as `rollout_status` tells: a time such as "2026-11-02T08:30:00Z",
                or "never". If it was restarted since, nothing happens.
            namespace: Namespace of the deployment.
            context: Cluster that the deployment runs in.
        """
        where = Where(context, namespace)
        if (
            now := last_restart_time(await self.kubectl.deployment(where, deployment))
        ) != last_restart:
            raise NoEffect(
                "RESTARTED_SINCE",
                f"`{deployment}` was not restarted now: its last restart is {now}.",
                suggestion="Look whether that restart helped before you ask for another.",
            )
        await self.kubectl.ask(
            where, "rollout", "restart", name=f"deployment/{deployment}"
        )
        return _RESTARTING.format(deployment)

    async def verify(
        self,
        arguments: Mapping[str, Json],
        context: Context[Any],  # noqa: ARG002  # `BaseTool.verify`
    ) -> Found | NotFound:
        """Look whether it was restarted since the restart that the model knew of."""
        where = Where(arguments["context"], arguments["namespace"])
        deployment = await self.kubectl.deployment(where, arguments["deployment"])
        if last_restart_time(deployment) == arguments["last_restart"]:
            return NotFound()
        return Found(_RESTARTING.format(arguments["deployment"]))


_RESTARTING = "{} is being restarted. Ask `rollout_status` whether it is complete."


def last_restart_time(deployment: Json) -> str:
    """Return when a deployment was restarted last, as `kubectl rollout restart` notes it, or "never"."""
    annotations = (
        deployment["spec"]["template"].get("metadata", {}).get("annotations") or {}
    )
    return str(annotations.get("kubectl.kubernetes.io/restartedAt", "never"))


_TOOLS = (
    GetPodLogs,
    TopPods,
    GetResources,
    DescribeResource,
    RolloutStatus,
    RolloutRestart,
)


# ---------------------------------------------------------------------- what is masked

_SECRET_WORDS = re.compile(r"pass|secret|token|api.?key|credential", re.I)
_IN_ADDRESS = re.compile(r"(?<=://)([^/@:\s]*):[^/\s\"']*@")
"""Up to the last `@`: a password may hold one."""
_PROBE = re.compile(r"\s*(?:Liveness|Readiness|Startup):")
_IN_A_COMMAND = re.compile(
    # NAME=value and --name=value, also within `sh -c "..."`; --name value; a header of a probe or of curl.
    r"""(?ix) (\b[\w-]*(?:pass|pwd|secret|token|api.?key|credential)[\w-]*=["']?) [^\s"']+
    | (--?[\w-]*(?:pass|secret|token|api.?key|credential)[\w-]*\s+["']?) [^\s"'-][^\s"']*
    | (\b(?:authorization|[\w-]*(?:token|api.?key|secret|cookie))\s*:\s*(?:(?:bearer|basic|token)\s+)?) [^\s"']+
    | (\b(?:bearer|basic)\s+) [A-Za-z0-9+/_.~=-]{6,}""",
)


def mask_environment(described: str) -> str:
    """Return the output of `kubectl describe` without values of environment variables and secret options.

    >>> print(mask_environment("    Environment:\\n      DB_PASSWORD:  hunter2\\n    Mounts:  <none>"))
        Environment:
          DB_PASSWORD:  ***
        Mounts:  <none>
    """
    masker = _Masker()
    lines = [
        line
        for each in described.splitlines()
        if (line := masker.mask(each)) is not None
    ]
    return _mask_passwords("\n".join(lines))


class _Masker(Struct):
    """Masks the lines of `kubectl describe`, one after the other.

    Attributes:
        block: The block that the last line was in: Environment, Args, Command, or none.
        indent: Of the block's heading.
        inner: Indent of the first variable of an Environment.
        follows: Whether the next line is the value of an option that names a secret.
    """

    block: str = ""
    indent: int = 0
    inner: int = 0
    follows: bool = False

    def mask(self, line: str) -> str | None:
        """Return the line without secrets; None for a further line of a variable's value."""
        depth = len(line) - len(line.lstrip())
        if self.block and line.strip() and depth <= self.indent:
            self.block = ""
        if not self.block and (
            head := re.fullmatch(r"\s*(Environment|Args|Command):\s*", line)
        ):
            self.block = head[1]
            self.indent = depth
            self.inner = 0
            self.follows = False
            return line
        if self.block == "Environment":
            return self._mask_variable(line, depth)
        if self.block:
            return self._mask_argument(line)
        return _mask_command(line) if _PROBE.match(line) else line

    def _mask_variable(self, line: str, depth: int) -> str | None:
        self.inner = self.inner or depth
        variable = re.match(r"(\s*[^:\s]+:\s*)(.*)", line)
        if depth != self.inner or variable is None:
            return None
        return line if variable[2].startswith("<set to ") else f"{variable[1]}***"

    def _mask_argument(self, line: str) -> str:
        is_named = bool(_SECRET_WORDS.search(line.partition("=")[0]))
        masked_line = line
        if self.follows:
            masked_line = re.sub(r"\S.*", "***", line)
        elif is_named:
            masked_line = re.sub(r"(?<==).*", "***", line)
        self.follows = is_named and "=" not in line and len(line.split()) == 1
        return _mask_command(masked_line)


def _mask_command(line: str) -> str:
    """Mask in a command line what is a secret by the word before it."""
    return _IN_A_COMMAND.sub(
        lambda found: f"{next(filter(None, found.groups()))}***", line
    )


def _mask_passwords(text: str) -> str:
    return _IN_ADDRESS.sub(r"\1:***@", text)
