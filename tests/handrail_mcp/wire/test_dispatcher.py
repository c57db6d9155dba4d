"""Requests and answers on lines: two ends of two pipes, each with a dispatcher."""

import asyncio
import os
import sys
from contextlib import asynccontextmanager

import pytest
from mcp import types
from mcp.shared.exceptions import MCPError

from handrail_mcp.standard_streams import ClientLines
from handrail_mcp.wire.dispatcher import LineDispatcher
from handrail_mcp.wire.polled import PolledLines, PolledWriter

pytestmark = [
    pytest.mark.anyio,
    pytest.mark.skipif(sys.platform == "win32", reason="needs POSIX pipes"),
]

WAIT_S = 20


class Ends:
    """Descriptors of both directions, and what is open of them."""

    def __init__(self):
        self.at_server, self.from_client = os.pipe()
        self.at_client, self.from_server = os.pipe()

    def close(self, *which):
        for end in which or ("at_server", "from_client", "at_client", "from_server"):
            descriptor = getattr(self, end)
            if descriptor is not None:
                os.close(descriptor)
                setattr(self, end, None)


class Peer:
    """A server whose handler is a function of a test; it remembers what it was told."""

    def __init__(self, answer):
        self.answer = answer
        self.notices = []

    async def take(self, context, method, params):
        return await self.answer(context, method, params)

    async def hear(self, _, method, params):
        self.notices.append((method, params))


@asynccontextmanager
async def running(peer, inline=()):
    """Yield a client's dispatcher, the ends of the pipes, and the server's run."""
    ends = Ends()
    server = LineDispatcher(
        ClientLines(PolledLines(ends.at_server), PolledWriter(ends.from_server)),
        inline=frozenset(inline),
    )
    client = LineDispatcher(
        ClientLines(PolledLines(ends.at_client), PolledWriter(ends.from_client))
    )
    told = Peer(None)
    serving = asyncio.ensure_future(server.run(peer.take, peer.hear))
    asking = asyncio.ensure_future(client.run(told.take, told.hear))
    await asyncio.sleep(0)
    try:
        async with asyncio.timeout(WAIT_S):
            yield client, ends, serving
    finally:
        for task in (asking, serving):
            task.cancel()
        await asyncio.gather(asking, serving, return_exceptions=True)
        ends.close()


async def echo(_, method, params):
    if method == "fail":
        raise MCPError(types.INVALID_PARAMS, "no", {"why": "so"})
    return {"method": method, "params": params}


async def test_a_request_is_answered_and_a_refusal_reaches_whoever_asked():
    async with running(Peer(echo)) as (client, _, _):
        assert await client.send_raw_request("a", {"x": "ü"}) == {
            "method": "a",
            "params": {"x": "ü"},
        }
        assert await client.send_raw_request("b", None) == {
            "method": "b",
            "params": None,
        }
        with pytest.raises(MCPError, match="no") as refused:
            await client.send_raw_request("fail", None)
    assert refused.value.error.data == {"why": "so"}


async def test_whoever_waits_learns_that_the_peer_has_gone():
    begun = asyncio.Event()

    async def wait_forever(*_):
        begun.set()
        await asyncio.Event().wait()

    async with running(Peer(wait_forever)) as (client, _, serving):
        asking = asyncio.ensure_future(client.send_raw_request("a", None))
        await begun.wait()
        serving.cancel()
        with pytest.raises(MCPError) as ended:
            await asking
    assert ended.value.error.code == types.CONNECTION_CLOSED


async def test_a_caller_who_gives_up_ends_the_handler():
    begun, ended = asyncio.Event(), asyncio.Event()

    async def wait_forever(context, *_):
        begun.set()
        try:
            await asyncio.Event().wait()
        finally:
            if context.cancel_requested.is_set():
                ended.set()

    async with running(Peer(wait_forever)) as (client, _, _):
        asking = asyncio.ensure_future(client.send_raw_request("a", None))
        await begun.wait()
        asking.cancel()
        await ended.wait()


async def test_a_request_that_is_cancelled_before_it_begins_is_not_answered():
    """Both lines arrive at once, so the handler has not taken its first step."""
    handled = []

    async def note(_, method, params):
        handled.append(method)
        return {"of": method}

    async with running(Peer(note), inline={"open"}) as (client, ends, _):
        request = b'{"jsonrpc":"2.0","id":"x","method":"open"}\n'
        cancelled = b'{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":"x"}}\n'
        held_back = b'{"jsonrpc":"2.0","id":"y","method":"z"}\n'
        os.write(ends.from_client, request + held_back)
        # taken after the inline request, as everything is that follows it
        os.write(ends.from_client, cancelled)
        assert await client.send_raw_request("later", None) == {"of": "later"}
        os.write(
            ends.from_client,
            request.replace(b"open", b"act") + cancelled,
        )
        assert await client.send_raw_request("last", None) == {"of": "last"}
    assert handled == ["open", "z", "later", "last"]


async def test_nothing_is_taken_until_an_inline_request_is_answered():
    order = []
    opened = asyncio.Event()

    async def note(_, method, params):
        order.append(f"{method} begins")
        if method == "open":
            await opened.wait()
        order.append(f"{method} ends")
        return {}

    async with running(Peer(note), inline={"open"}) as (client, _, _):
        opening = asyncio.ensure_future(client.send_raw_request("open", None))
        acting = asyncio.ensure_future(client.send_raw_request("act", None))
        while not order:
            await asyncio.sleep(0)
        opened.set()
        await asyncio.gather(opening, acting)
    assert order == ["open begins", "open ends", "act begins", "act ends"]


async def test_progress_and_notices_are_told_and_an_error_of_a_handler_ends_nothing():
    heard = []

    async def hear(progress, total, note):
        heard.append((progress, total, note))
        if len(heard) == 1:
            raise ValueError("of whoever listens")

    async def report(context, method, params):
        if method == "break":
            raise ValueError("of a handler")
        await context.progress(1, 2, "half")
        await context.progress(2)
        return {}

    peer = Peer(report)
    async with running(peer) as (client, _, _):
        await client.send_raw_request("a", None, {"on_progress": hear})
        await client.notify("notifications/x", {"n": 1})
        with pytest.raises(MCPError):
            await client.send_raw_request("break", None)
        await client.send_raw_request("a", None)
    assert heard == [(1.0, 2.0, "half"), (2.0, None, None)]
    assert peer.notices == [("notifications/x", {"n": 1})]


async def test_lines_that_are_no_messages_and_strange_answers_are_passed_over():
    async with running(Peer(echo)) as (client, ends, _):
        os.write(ends.from_client, b'nonsense\n{"id":1}\n\n\xff\n')
        os.write(ends.from_server, b'{"jsonrpc":"2.0","id":99,"result":{}}\n')
        assert (await client.send_raw_request("a", None))["method"] == "a"


async def test_a_request_that_nobody_can_read_fails():
    async with running(Peer(echo)) as (client, ends, serving):
        serving.cancel()
        await asyncio.wait([serving])
        ends.close("at_server")
        with pytest.raises(MCPError) as ended:
            await client.send_raw_request("a", None)
    assert ended.value.error.code == types.CONNECTION_CLOSED
