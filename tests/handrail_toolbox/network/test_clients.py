"""The network guard: nothing but the public internet is reached, whatever the address looks like."""

import asyncio
import gzip
import socket
import time
import tracemalloc
from contextlib import suppress
from ipaddress import ip_address
from itertools import cycle
from threading import Thread

import httpx2
import pytest

import handrail as hr
from handrail.network.clients import AsyncHttpx2Transport, http_client
from handrail.network.connections import make_client, proxy_for
from handrail.network.egress import Egress, is_public, system_resolve
from handrail.testing.loopback import Answer, Loopback
from handrail_toolbox.webpage import ReadPage
from handrail_toolbox.wikipedia import Wikipedia

EXAMPLE = "93.184.215.14"


@pytest.fixture
def server():
    """A service behind the firewall, which must not be asked."""
    with Loopback(lambda asked: Answer(json={"secret": True})) as loopback:
        yield loopback


def got(url, egress=None, **resolver):
    """Return the answer that an async client gets."""

    async def get():
        transport = AsyncHttpx2Transport(egress, **resolver)
        async with httpx2.AsyncClient(transport=transport) as client:
            return await client.get(url)

    return asyncio.run(get())


def refused(url, egress=None, **resolver):
    """Return why neither client goes there."""
    with (
        http_client(egress, **resolver) as client,
        pytest.raises(hr.ToolError) as raised,
    ):
        client.get(url)
    with pytest.raises(hr.ToolError) as raised_too:
        got(url, egress, **resolver)
    assert raised.value.failure == raised_too.value.failure
    return raised.value.failure.code


@pytest.mark.parametrize("host", [
    "127.0.0.1", "127.1", "0x7f.0.0.1", "0x7f000001", "0177.0.0.1", "2130706433", "017700000001",
    "localhost", "localhost.", "LOCALHOST", "0.0.0.0", "0", "[::]", "[::1]", "[::ffff:127.0.0.1]", "[::ffff:7f00:1]",
    "[0:0:0:0:0:ffff:127.0.0.1]", "[::127.0.0.1]", "[64:ff9b::127.0.0.1]", "[2002:7f00:1::]", "[fe80::1]",
    "169.254.169.254", "0xa9fea9fe", "[fd00:ec2::254]", "100.100.100.200", "168.63.129.16", "[::ffff:169.254.169.254]",
    "10.0.0.1", "172.16.0.1", "192.168.1.1", "100.64.0.1", "198.18.0.1", "192.0.2.1", "224.0.0.1", "255.255.255.255",
    "240.0.0.1", "[ff02::1]", "[2001:db8::1]", "[2001:0:7f00:1::]", "[fec0::1]", "127.0.0.1%2f@example.org",
])  # fmt: skip
def test_no_spelling_of_a_private_address_is_reached(server, host):
    url = f"http://{host}:{server.port}/latest/meta-data"
    try:
        code = refused(url, Egress(ports=[server.port]))
    except (httpx2.InvalidURL, httpx2.UnsupportedProtocol):
        code = "no address"
    assert code in ("NOT_PERMITTED", "HOST_NOT_FOUND", "no address")
    assert server.asked == []


@pytest.mark.parametrize("url", [
    "ftp://example.org/", "file:///etc/passwd", "gopher://127.0.0.1:6379/_FLUSHALL",
    "http://user@example.org/", "http://example.org:80@127.0.0.1/", "http://user:password@example.org/",
    "http://example.org:22/", "http://example.org:6379/", "https://example.org:80443/",
])  # fmt: skip
def test_an_address_of_another_kind_is_refused_before_it_is_resolved(url):
    asked = []
    try:
        code = refused(url, resolve=lambda *host: asked.append(host) or [EXAMPLE])
    except (httpx2.InvalidURL, httpx2.UnsupportedProtocol):
        code = "NOT_PERMITTED"
    assert (code, asked) == ("NOT_PERMITTED", [])


@pytest.mark.parametrize("addresses", [
    ["127.0.0.1"],
    [EXAMPLE, "127.0.0.1"],       # one public address does not vouch for the other
    [EXAMPLE, "fd00::1"],
    ["fe80::1%eth0"],
])  # fmt: skip
def test_a_name_is_refused_when_one_of_its_addresses_is_private(server, addresses):
    egress = Egress(ports=[server.port])
    assert (
        refused(
            f"http://rebind.example:{server.port}/",
            egress,
            resolve=lambda *_: addresses,
        )
        == "NOT_PERMITTED"
    )
    assert server.asked == []


def test_what_was_checked_is_what_is_connected_to(server):
    """A name that answers differently each time is asked once for a connection."""
    answers = cycle([["127.0.0.1"], ["169.254.169.254"]])
    egress = Egress(private=["127.0.0.1"], ports=[server.port])
    with http_client(egress, resolve=lambda *_: next(answers)) as client:
        assert client.get(f"http://rebind.example:{server.port}/").json() == {
            "secret": True
        }
    assert server.asked[0].headers["host"] == f"rebind.example:{server.port}"
    answers = cycle([["127.0.0.1"], ["169.254.169.254"]])
    answer = got(
        f"http://rebind.example:{server.port}/",
        egress,
        resolve=lambda *_: next(answers),
    )
    assert answer.json() == {"secret": True}


@pytest.mark.parametrize("location", [
    "http://169.254.169.254/latest/meta-data/", "//10.0.0.1/", "http://inside.example/", "http://0xa9fea9fe/",
    "https://[::1]/", "http://admin:admin@outside.example/", "http://outside.example:22/", "ftp://outside.example/",
])  # fmt: skip
def test_every_redirect_is_checked_again(location):
    hosts = {"outside.example": ["127.0.0.1"], "inside.example": ["192.168.0.1"]}
    with Loopback(
        lambda asked: Answer(302, headers={"location": location}, body=b"")
    ) as server:
        egress = Egress(private=["127.0.0.1"], ports=[server.port, 80, 443])
        client = http_client(
            egress,
            resolve=lambda *to: hosts.get(to[0]) or system_resolve(*to),
            follow_redirects=True,
        )
        with (
            client,
            pytest.raises((hr.ToolError, httpx2.UnsupportedProtocol)) as raised,
        ):
            client.get(f"http://outside.example:{server.port}/")
    assert (
        isinstance(raised.value, httpx2.UnsupportedProtocol)
        or raised.value.failure.code == "NOT_PERMITTED"
    )
    assert len(server.asked) == 1


def test_proxies_of_the_environment_are_not_used(server, monkeypatch):
    for name in ("http_proxy", "HTTP_PROXY", "https_proxy", "ALL_PROXY", "all_proxy"):
        monkeypatch.setenv(name, server.url)
    code = refused("http://metadata.example/", resolve=lambda *_: ["169.254.169.254"])
    assert (code, server.asked) == ("NOT_PERMITTED", [])


@pytest.mark.parametrize(("host", "goes"), [
    ("docs.example.org", True), ("DOCS.example.org.", True), ("a.b.example.org", True), ("status.example.net", True),
    ("example.org", False), ("evilexample.org", False), ("example.org.evil.net", False), (EXAMPLE, False),
])  # fmt: skip
def test_a_list_of_hosts_lets_nothing_else_through(server, host, goes):
    egress = Egress(
        hosts=["*.example.org", "status.example.net"],
        private=["127.0.0.1"],
        ports=[server.port],
    )
    with http_client(egress, resolve=lambda *_: ["127.0.0.1"]) as client:
        try:
            client.get(f"http://{host}:{server.port}/")
        except hr.ToolError as error:
            assert error.failure.code == "NOT_PERMITTED"
    assert bool(server.asked) is goes


@pytest.mark.parametrize(("address", "public"), [
    (EXAMPLE, True), ("1.1.1.1", True), ("2606:4700:4700::1111", True), ("2a00:1450:4001::1", True),
    ("5f00::1", False), ("4000::1", False), ("::", False), ("2001:db8::1", False), ("239.255.255.250", False),
])  # fmt: skip
def test_public_is_what_is_routed_to_one_machine(address, public):
    assert is_public(ip_address(address)) is public


def test_a_second_address_is_tried_when_the_first_does_not_answer(server):
    addresses = ["127.0.0.2", "127.0.0.1"]  # the server listens at the second only
    egress = Egress(private=["127.0.0.0/8"], ports=[server.port])
    with http_client(egress, resolve=lambda *_: addresses) as client:
        assert client.get(f"http://two.example:{server.port}/").status_code == 200
    assert (
        got(
            f"http://two.example:{server.port}/", egress, resolve=lambda *_: addresses
        ).status_code
        == 200
    )


def test_a_mistake_in_the_exceptions_is_told_when_they_are_made():
    with pytest.raises(hr.ConfigError, match=r"10\.2\.0\.0/16"):
        Egress(private=["localhost"])
    with pytest.raises(hr.ConfigError, match="lists"):
        Egress(hosts="example.org")  # else each letter would be a host


def test_the_model_reads_why_and_never_which_address(server, drive):
    result = drive([ReadPage()]).call("read_page", {"url": "http://localhost/"})
    assert result.failure.code == "NOT_PERMITTED"
    assert "private network" in result.failure.message
    assert "127." not in str(result.failure) and "::1" not in str(result.failure)


def test_a_name_of_which_nobody_could_be_asked_is_no_name_that_is_not_there(
    drive, caplog, monkeypatch
):
    def offline(*_, **__):
        raise socket.gaierror(socket.EAI_AGAIN, "Temporary failure in name resolution")

    monkeypatch.setattr(socket, "getaddrinfo", offline)
    page = (
        drive([ReadPage()]).call("read_page", {"url": "https://example.org/"}).failure
    )
    wiki = (
        drive(Wikipedia(api="https://{language}.wiki.example/api"))
        .call("search_wikipedia", {"query": "x"})
        .failure
    )
    assert page.message.replace("read_page", "search_wikipedia") == wiki.message
    assert (page.code, wiki.code, page.retryable) == (
        "UNAVAILABLE",
        "UNAVAILABLE",
        True,
    )
    for tool, host in (
        ("read_page", "example.org"),
        ("search_wikipedia", "en.wiki.example"),
    ):
        said = f"{tool} got no connection to {host}: [Errno {socket.EAI_AGAIN}] Temporary failure in name resolution"
        assert f"{said}; look at this machine's network" in caplog.text


def test_a_log_line_about_a_proxy_names_it_without_its_password(
    drive, caplog, monkeypatch
):
    with socket.create_server(("127.0.0.1", 0)) as listening:
        port = listening.getsockname()[1]
    monkeypatch.setenv("http_proxy", f"http://me:hunter2@127.0.0.1:{port}")
    monkeypatch.delenv("no_proxy", raising=False)
    drive(Wikipedia(api="http://wiki.example/{language}")).call(
        "search_wikipedia", {"query": "x"}
    )
    assert (
        f"no connection to wiki.example by the proxy 127.0.0.1:{port}: " in caplog.text
    )
    assert "hunter2" not in caplog.text


def test_a_service_is_reached_through_the_proxy_of_the_environment_unless_it_is_excepted(
    monkeypatch,
):
    with (
        Loopback(lambda asked: Answer(json={"by": "proxy"})) as proxy,
        make_client() as client,
    ):
        monkeypatch.setenv("http_proxy", proxy.url)
        monkeypatch.setenv("no_proxy", "near.example")
        assert client.get("http://far.example/x?y=1").json() == {"by": "proxy"}
        assert proxy_for(httpx2.URL("http://near.example/")) == ""


def guarded(port, timeout):
    return http_client(Egress(private=["127.0.0.1"], ports=[port]), timeout=timeout)


def plain(_, timeout):
    return make_client(timeout=timeout)


@pytest.mark.parametrize("client_at", [guarded, plain])
@pytest.mark.parametrize(
    ("first", "drop"),
    [(b"HTTP/1.1 200 OK\r\nx: ", b"a"), (b"", b"HTTP/1.1 103 E\r\n\r\n")],
)
def test_the_head_of_an_answer_has_one_deadline_however_it_drips(
    client_at, first, drop
):
    """A timeout for each byte would be hours; 400 drops at 20 ms are eight seconds, the timeout is a fifth of one."""
    with (
        socket.create_server(("127.0.0.1", 0)) as listening,
        client_at(port := listening.getsockname()[1], timeout=0.2) as client,
    ):

        def serve():
            taken, _ = listening.accept()
            with taken, suppress(OSError):
                taken.sendall(first)
                for _ in range(400):
                    taken.sendall(drop)
                    time.sleep(0.02)

        Thread(target=serve, daemon=True).start()
        with pytest.raises(httpx2.ReadTimeout):
            client.get(f"http://127.0.0.1:{port}/")


@pytest.mark.slow
def test_a_packed_bomb_is_cut_while_it_is_unpacked(drive):
    bomb = gzip.compress(b"a" * (64 * 1024 * 1024))  # 64 KB on the wire
    headers = {"content-type": "text/plain", "content-encoding": "gzip"}
    with Loopback(lambda asked: Answer(headers=headers, body=bomb)) as server:
        driver = drive([ReadPage(Egress(private=["127.0.0.1"], ports=[server.port]))])
        # whatever is loaded once is loaded
        driver.call("read_page", {"url": "http://127.0.0.1:1/"})
        tracemalloc.start()
        result = driver.call("read_page", {"url": server.url})
        most = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
    assert result.value["cut"]
    # the text in two forms or three, and never what it unpacks to
    assert most < 32 * 1024 * 1024
