"""Requests without TLS and without a proxy, to servers that are written by hand."""

import asyncio
from contextlib import asynccontextmanager, suppress

import httpx2
import pytest

from handrail_mcp.wire.plain_http import PlainTransport, can_be_plain

pytestmark = pytest.mark.anyio

OK = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok"
CUT = b"HTTP/1.1 200 OK\r\ncontent-length: 20\r\n\r\nok"
CHUNKED = b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n2\r\nok\r\n3\r\nay!\r\n0\r\n\r\n"
LAST = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\nconnection: close\r\n\r\nok"
EARLY = b"HTTP/1.1 103 Early Hints\r\n\r\n" + OK


@asynccontextmanager
async def served(*answers):
    """Yield a client and what its server saw; each request gets the next answer, and one of None the end."""
    seen = []
    left = list(answers)

    serving = set()

    async def serve(reader, writer):
        serving.add(asyncio.current_task())
        seen.append("connected")
        try:
            while True:
                head = (await reader.readuntil(b"\r\n\r\n")).decode().lower()
                size = 0
                if "content-length: " in head:
                    size = int(head.split("content-length: ")[1].split("\r\n")[0])
                body = await reader.readexactly(size)
                seen.append(f"{head.split()[0]} {body.decode()}".strip())
                answer = left.pop(0)
                if answer is None or answer is CUT:
                    writer.write(answer or b"")
                    break
                writer.write(answer)
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        writer.close()
        with suppress(ConnectionError):
            await writer.wait_closed()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    async with (
        server,
        httpx2.AsyncClient(
            transport=PlainTransport(), base_url=f"http://127.0.0.1:{port}"
        ) as client,
    ):
        yield client, seen
        await client.aclose()
        await asyncio.wait(serving)


@pytest.mark.parametrize(
    ("answer", "text"), [(OK, "ok"), (CHUNKED, "okay!"), (EARLY, "ok")]
)
async def test_requests_one_after_the_other_share_a_connection(answer, text):
    async with served(answer, answer) as (client, seen):
        for body in ("one", "two"):
            answered = await client.post("/mcp", content=body)
            assert (answered.status_code, answered.text) == (200, text)
    assert seen == ["connected", "post one", "post two"]


async def test_requests_at_once_have_a_connection_each():
    async with served(OK, OK) as (client, seen):
        await asyncio.gather(client.post("/", content="a"), client.post("/"))
    assert seen.count("connected") == 2


async def test_a_connection_that_its_server_closes_is_not_used_again():
    async with served(LAST, OK) as (client, seen):
        await client.get("/")
        await client.get("/")
    assert seen == ["connected", "get", "connected", "get"]


async def test_a_request_that_is_not_answered_is_an_error_and_not_sent_again():
    async with served(None, OK) as (client, seen):
        with pytest.raises(httpx2.RemoteProtocolError):
            await client.post("/", content="pay")
    assert seen == ["connected", "post pay"]


async def test_an_answer_that_breaks_off_is_an_error():
    async with served(CUT) as (client, _):
        with pytest.raises(httpx2.RemoteProtocolError):
            await client.get("/")


async def test_something_else_than_http_is_an_error():
    async with served(b"220 mail.example ESMTP\r\n\r\n") as (client, _):
        with pytest.raises(httpx2.RemoteProtocolError):
            await client.get("/")


async def test_nobody_listens():
    async with httpx2.AsyncClient(transport=PlainTransport()) as client:
        with pytest.raises(httpx2.ConnectError):
            await client.get("http://127.0.0.1:9")


async def test_a_body_that_nobody_reads_stops_its_sender():
    size = 64 * 1024 * 1024
    head = f"HTTP/1.1 200 OK\r\ncontent-length: {size}\r\n\r\n".encode()
    async with served(head + b"x" * size) as (client, _):
        transport = client._transport
        async with client.stream("GET", "/") as answer:
            (connection,) = transport._all
            while not connection._is_paused:
                await asyncio.sleep(0)
            assert connection._waiting_bytes < size / 8
            received = 0
            async for part in answer.aiter_raw():
                received += len(part)
        assert received == size


async def test_a_stream_that_is_given_up_is_closed():
    head = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n\r\ndata: 1\n\n"
    async with served(head, OK) as (client, seen):
        async with client.stream("GET", "/") as answer:
            assert await anext(answer.aiter_raw()) == b"data: 1\n\n"
        assert (await client.get("/")).text == "ok"
    assert seen.count("connected") == 2


@pytest.mark.parametrize(
    ("url", "proxies", "expected"),
    [
        ("http://127.0.0.1:8000/mcp", {}, True),
        ("https://mcp.example/mcp", {}, False),
        ("http://mcp.example/mcp", {"http_proxy": "http://proxy.example"}, False),
        ("http://mcp.example/mcp", {"all_proxy": "http://proxy.example"}, False),
        ("http://mcp.example/mcp", {"https_proxy": "http://proxy.example"}, True),
        (
            "http://mcp.example/mcp",
            {"http_proxy": "http://proxy.example", "no_proxy": "mcp.example"},
            True,
        ),
    ],
)
def test_what_goes_by_tls_or_a_proxy_is_left_to_httpx(
    monkeypatch, url, proxies, expected
):
    for name in ("http_proxy", "https_proxy", "all_proxy", "no_proxy"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.upper(), raising=False)
    for name, value in proxies.items():
        monkeypatch.setenv(name, value)
    assert can_be_plain(url) is expected
