"""A program that takes no transport of ours gets a proxy, which goes where it may; in a sandbox it has no other way."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from threading import Event

import httpx2
import pytest

import handrail as hr
from handrail.network import proxy
from handrail.network.proxy import EgressProxy
from handrail.ports import SandboxJob
from handrail.sandboxes.bubblewrap import Bubblewrap
from handrail.testing.loopback import Answer, Loopback
from tests.network.doors import Door
from tests.network.fetched import fetch
from tests.support.boxes import isolated

NAMES = {"inside.example": ["127.0.0.1"], "rebind.example": ["93.184.215.14", "10.0.0.1"]}  # fmt: skip


def resolve(host, port):
    return NAMES.get(host, [host])


@pytest.fixture
def door():
    door = Door()
    yield door
    door.close()


@pytest.fixture
def egress(door):
    """What may reach the door, by the name `inside.example` only."""
    allow = hr.Egress(
        hosts=["inside.example"], private=["127.0.0.1"], ports=[door.port]
    )
    with EgressProxy(allow, resolve=resolve) as serving:
        yield serving


def get(url, serving):
    with httpx2.Client(proxy=serving.url, timeout=5) as client:
        return client.get(url)


def say(serving, *lines):
    """Send a request as it is; return the answer."""
    port = int(serving.url.rpartition(":")[2])
    with socket.create_connection(("127.0.0.1", port), timeout=5) as client:
        client.sendall("\r\n".join([*lines, "", ""]).encode())
        client.shutdown(socket.SHUT_WR)
        return b"".join(iter(lambda: client.recv(4096), b"")).decode()


def token_of(serving):
    user = httpx2.URL(serving.url).userinfo.decode()
    header = httpx2.BasicAuth(*user.split(":"))._auth_header
    return f"Proxy-Authorization: {header}"


def test_a_listed_host_is_reached(egress, door):
    assert get(f"http://inside.example:{door.port}/", egress).text == "inside"
    place = f"inside.example:{door.port}"
    answer = say(egress, f"CONNECT {place} HTTP/1.1", token_of(egress), "", "GET / HTTP/1.1")  # fmt: skip
    assert answer.startswith("HTTP/1.1 200 Connection established")
    assert answer.endswith("inside")
    assert door.connections == 2


@pytest.mark.parametrize("host", [
    "127.0.0.1", "2130706433", "0x7f000001", "[::1]", "[::ffff:127.0.0.1]", "localhost", "0", "0.0.0.0",
    "other.example", "inside.example.evil.example", "169.254.169.254", "user@inside.example", "INSIDE.example@127.1",
])  # fmt: skip
@pytest.mark.parametrize("tunnel", [True, False])
def test_nothing_else_is(egress, door, host, tunnel):
    if tunnel:
        line = f"CONNECT {host}:{door.port} HTTP/1.1"
    else:
        line = f"GET http://{host}:{door.port}/ HTTP/1.1"
    answer = say(egress, line, token_of(egress))
    allowed = tunnel and host == "user@inside.example"  # CONNECT knows no user
    if not allowed:
        assert answer.split()[1] in ("400", "403")
        assert door.connections == 0


@pytest.mark.parametrize("host", ["rebind.example", "10.0.0.1", "127.0.0.1", "[::1]"])
def test_without_a_list_only_public_addresses_are_reached(door, host):
    allow = hr.Egress(ports=[door.port])
    with EgressProxy(allow, resolve=resolve) as serving:
        answer = say(serving, f"CONNECT {host}:{door.port} HTTP/1.1", token_of(serving))
    assert answer.split()[1] == "403"
    assert door.connections == 0


@pytest.mark.parametrize("line", [
    "GET / HTTP/1.1", "GET file:///etc/passwd HTTP/1.1", "GET ftp://inside.example/ HTTP/1.1",
    "CONNECT inside.example HTTP/1.1", "CONNECT inside.example:99999 HTTP/1.1", "GET http://[::1 HTTP/1.1",
    "\x16\x03\x01\x02",
    "GET http://inside.example/\nHost: x HTTP/1.1",
    "GET " + "a" * proxy.MOST_HEAD_BYTES + " HTTP/1.1",
])  # fmt: skip
def test_a_request_that_is_none_gets_a_sentence(egress, line):
    assert say(egress, line, token_of(egress)).split()[1] in ("400", "431")


def test_who_does_not_know_the_token_is_not_served(egress, door):
    place = f"http://inside.example:{door.port}/"
    for header in ("X: y", "Proxy-Authorization: Basic aGFuZHJhaWw6eA=="):
        assert say(egress, f"GET {place} HTTP/1.1", header).split()[1] == "407"
    assert door.connections == 0
    assert egress.url not in repr(egress)


def test_the_server_reads_its_own_name_and_never_the_token(door):
    with Loopback(lambda _: Answer(json={})) as server:
        allow = hr.Egress(private=["127.0.0.1"], ports=[server.port])
        with EgressProxy(allow, resolve=resolve) as serving:
            line = f"GET http://inside.example:{server.port}/a?b=c HTTP/1.1"
            say(serving, line, "Host: other.example", token_of(serving), "X-Own: 1")
    [asked] = server.asked
    assert (asked.path, asked.query) == ("/a", {"b": "c"})
    assert asked.headers["host"] == f"inside.example:{server.port}"
    assert asked.headers["x-own"] == "1"
    assert "proxy-authorization" not in asked.headers


def test_an_ordinary_program_takes_it_from_its_environment(egress, door):
    code = f"import urllib.request as r; print(r.urlopen('http://inside.example:{door.port}/').read())"
    ended = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, **egress.environment},
        capture_output=True,
        text=True,
        timeout=30,
    )
    assert ended.stdout == "b'inside'\n", ended.stderr


def test_who_is_not_entered_any_more_is_not_served(door):
    with EgressProxy() as serving:
        url = serving.url
    with (
        httpx2.Client(proxy=url, timeout=5) as client,
        pytest.raises(httpx2.ConnectError),
    ):
        client.get("http://inside.example/")


CODE = """
import urllib.request, sys, os
for url in {urls}:
    try:
        print(urllib.request.urlopen(url, timeout=5).read().decode())
    except Exception as error:
        print(getattr(error, 'code', type(error).__name__))
"""


@isolated
def test_a_program_in_a_sandbox_reaches_what_is_listed_and_nothing_else(egress, door):
    sandbox = Bubblewrap()
    urls = [f"http://{host}:{door.port}/" for host in ("inside.example", "127.0.0.1")]
    direct = f"\nimport socket\nprint(socket.socket().connect_ex(('127.0.0.1', {door.port})))\n"
    code = CODE.format(urls=urls) + direct
    job = SandboxJob([sandbox.python, "-I", "-c", code], timeout_s=20)
    enclosed = egress.enclose(job, sandbox.python)
    assert not any(egress._token in word for word in enclosed.argv)
    ended = sandbox.run(enclosed, Event())
    inside, refused, direct = ended.stdout.decode().split()
    assert (inside, refused) == ("inside", "403"), ended.stderr
    assert direct != "0"  # no way around
    assert (ended.end, ended.exit_code) == ("exited", 0)
    assert door.connections == 1


@pytest.mark.others
@isolated
def test_code_of_a_model_reaches_its_hosts_when_a_person_agrees(door):
    from handrail_toolbox.run_python import RunPython

    allow = hr.Egress(hosts=["127.0.0.1"], private=["127.0.0.1"], ports=[door.port])
    tool = RunPython(network=allow)
    assert (tool.effect, tool.approve) == ("write", True)
    assert "can reach 127.0.0.1" in tool.description
    code = CODE.format(urls=[f"http://127.0.0.1:{door.port}/", "http://localhost/"])
    with hr.SyncRuntime(
        [tool], approver=lambda _: hr.Approval(True, by="me")
    ) as runtime:
        result = runtime.call("run_python", {"code": code})
    assert result.value["stdout"] == "inside\n403\n", result
    assert door.connections == 1


@isolated
def test_an_isolated_tool_reaches_its_hosts_only(door):
    allow = hr.Egress(hosts=["127.0.0.1"], private=["127.0.0.1"], ports=[door.port])
    tool = hr.FunctionTool(
        fetch,
        effect="read",
        isolation="isolated",
        sandbox=hr.Sandbox(network=allow),
        timeout_s=30,
    )
    with hr.SyncRuntime([tool]) as runtime:
        results = [
            runtime.call("fetch", {"url": f"http://{host}:{door.port}/"})
            for host in ("127.0.0.1", "localhost", "[::1]")
        ]
    texts = [each.value if each.ok else each.failure for each in results]
    assert [str(each)[:6] for each in texts] == ["inside", "403 Tr", "403 Tr"], texts
    assert door.connections == 1


@pytest.mark.parametrize(("how", "why"), [
    ({"isolation": "process"}, "`network` is for a tool of isolation"), ({}, "`network` is for a tool of isolation"),
    ({"isolation": "isolated", "sandbox": hr.Sandbox(network="example.org")}, "a list of hosts"),
])  # fmt: skip
def test_a_network_is_declared_for_walls_only(how, why):
    with pytest.raises(hr.ToolDefinitionError, match=why):
        hr.FunctionTool(
            fetch,
            **{"effect": "read", "sandbox": hr.Sandbox(network=["example.org"]), **how},
        )


@pytest.mark.others
def test_a_network_and_a_mere_process_are_refused_together():
    from handrail_toolbox.run_python import RunPython

    with pytest.raises(hr.ConfigError, match="within walls"):
        RunPython(network=["example.org"], allow_weaker=True)
