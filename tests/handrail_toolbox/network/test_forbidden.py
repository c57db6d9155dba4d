"""No spelling, redirect, name server or proxy leads a guarded client to this machine: the server counts connections."""

import pytest

import handrail as hr
from handrail.network.egress import system_resolve
from tests.handrail_toolbox.network.clients import CLIENTS, by_read_page
from tests.network.doors import Dns, Door

PUBLIC = "93.184.215.14"
FORMS = [
    "127.0.0.1", "127.1", "127.0.1", "2130706433", "017700000001", "0x7f000001", "0x7f.0.0.1", "0177.0.0.1",
    "0x7f.1", "127.0.0.1.", "0.0.0.0", "0", "localhost", "LOCALHOST.", "[::1]", "[::]", "[0:0:0:0:0:0:0:1]",
    "[::ffff:127.0.0.1]", "[::ffff:7f00:1]", "[::127.0.0.1]", "[64:ff9b::127.0.0.1]", "[64:ff9b:1::7f00:1]",
    "[2002:7f00:1::]", "[2001:0:7f00:1::]", "[::1%25lo]", "[fe80::1%25lo]", "[fe80::1]", "[fd00:ec2::254]",
    "169.254.169.254", "0xa9fea9fe", "[::ffff:a9fe:a9fe]", "100.100.100.200", "168.63.129.16", "10.0.0.1",
    "①②⑦.⓪.⓪.①", "127。0。0。1", "user@127.0.0.1", "example.org@127.0.0.1",
]  # fmt: skip
"""Ways to spell this machine, the clouds' metadata services, and other private addresses."""


@pytest.fixture
def door():
    door = Door()
    yield door
    door.close()


@pytest.fixture(params=CLIENTS.values(), ids=CLIENTS)
def get(request):
    return request.param


def check_refused(get, url, allow, **how):
    """Check that a client does not get an answer from inside, for whatever reason it gives."""
    with pytest.raises(Exception) as raised:  # each library has its own
        assert get(url, allow, **how) != "inside"
        raise ConnectionError("somebody else answered")
    assert not isinstance(raised.value, AssertionError)
    return raised.value


def test_the_door_is_there_for_a_client_that_may(get, door):
    allow = hr.Egress(private=["127.0.0.1"], ports=[door.port])
    assert get(f"http://127.0.0.1:{door.port}/", allow) == "inside"
    assert door.connections == 1


@pytest.mark.parametrize("form", FORMS)
def test_no_spelling_of_an_address_that_is_not_public_is_connected_to(get, door, form):
    check_refused(get, f"http://{form}:{door.port}/", hr.Egress(ports=[door.port]))
    assert door.connections == 0


@pytest.mark.parametrize("form", ["127.0.0.1", "2130706433", "[::1]", "0xa9fea9fe"])
def test_a_ready_made_tool_has_the_same_guard(door, form):
    allow = hr.Egress(ports=[door.port])
    error = check_refused(by_read_page, f"http://{form}:{door.port}/", allow)
    assert error.failure.code == "NOT_PERMITTED"
    assert door.connections == 0


@pytest.mark.parametrize("form", ["127.0.0.1", "2130706433", "[::1]", "localhost"])
def test_no_redirect_leads_inside(get, door, form):
    place = f"http://{form}:{door.port}/"
    outside = Door(
        f"HTTP/1.1 302 Found\r\nlocation: {place}\r\ncontent-length: 0\r\n\r\n".encode()
    )

    def resolve(host, port):
        if host == "outside.example":
            return ["127.0.0.2"]
        return system_resolve(host, port)

    allow = hr.Egress(private=["127.0.0.2"], ports=[outside.port, door.port])
    url = f"http://outside.example:{outside.port}/"
    check_refused(get, url, allow, resolve=resolve)
    outside.close()
    assert outside.connections == 1
    assert door.connections == 0


@pytest.mark.parametrize(
    "turns",
    [
        [[PUBLIC], ["127.0.0.1"]],
        [["127.0.0.1"], [PUBLIC]],
        [[PUBLIC, "127.0.0.1"]],
        [["127.0.0.1", PUBLIC]],
        [["0.0.0.0"]],
    ],
    ids=str,
)
def test_no_name_that_resolves_anew_leads_inside(get, door, turns):
    names = Dns(turns)
    allow = hr.Egress(ports=[door.port])
    url = f"http://rebind.example:{door.port}/"
    check_refused(get, url, allow, resolve=names.resolve)
    check_refused(get, url, allow, resolve=names.resolve)
    names.close()
    assert names.asked == 2  # once for each connection
    assert door.connections == 0


def test_no_proxy_of_the_environment_is_asked(get, door, monkeypatch):
    for name in ("http_proxy", "https_proxy", "all_proxy", "HTTP_PROXY", "ALL_PROXY"):
        monkeypatch.setenv(name, f"http://127.0.0.1:{door.port}")
    allow = hr.Egress(ports=[80])
    check_refused(get, "http://metadata.example/", allow, resolve=lambda *_: [PUBLIC])
    assert door.connections == 0


@pytest.mark.parametrize(
    "host", ["evil.example", "docs.example.org.evil.example", "evildocs.example.org"]
)
def test_only_listed_hosts_are_resolved(get, host):
    asked = []
    error = check_refused(
        get,
        f"https://{host}/",
        ["docs.example.org"],
        resolve=lambda name, _: asked.append(name) or [PUBLIC],
    )
    assert error.failure.code == "NOT_PERMITTED"
    assert asked == []


@pytest.mark.parametrize("around", ["transport", "mounts", "proxy"])
def test_nothing_leads_around_the_guard(around):
    for make in (hr.http_client, hr.async_http_client):
        with pytest.raises(hr.ConfigError, match=f"`{around}` would lead around"):
            make(**{around: None})


def test_a_host_header_does_not_name_another_host(door):
    allow = hr.Egress(hosts=["127.0.0.1"], private=["127.0.0.1"], ports=[door.port])
    url = f"http://127.0.0.1:{door.port}/"
    with hr.http_client(allow) as client:
        assert client.get(url).text == "inside"
        with pytest.raises(hr.ToolError, match="Host header"):
            client.get(url, headers={"host": "other.example"})
    assert door.connections == 1
