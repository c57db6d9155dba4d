"""A server that is a program: what waits for one that does not read."""

import asyncio
import sys

import pytest
from mcp import types
from mcp.shared.message import SessionMessage

from handrail_mcp.targets import ServerProgram
from handrail_mcp.transports import child
from handrail_mcp.transports.child import ServerProcess

pytestmark = [pytest.mark.anyio, pytest.mark.slow]

DEAF = ServerProgram([sys.executable, "-c", "import signal; signal.pause()"])


def message(size_bytes):
    params = {"text": "x" * size_bytes}
    return SessionMessage(
        types.JSONRPCNotification(jsonrpc="2.0", method="n", params=params)
    )


async def test_who_gives_up_on_a_server_that_does_not_read_leaves_nothing_behind(
    monkeypatch,
):
    monkeypatch.setattr(child, "_MOST_WAITING_BYTES", 1_000_000)
    server = await ServerProcess.start(DEAF)
    try:
        pipe = server.process.stdin.transport
        await server.write_message(message(2_000_000))
        full = pipe.get_write_buffer_size()
        assert full > 1_000_000
        for _ in range(20):
            writing = asyncio.create_task(server.write_message(message(1_000_000)))
            await asyncio.sleep(0)
            assert not writing.done()
            writing.cancel()
            with pytest.raises(asyncio.CancelledError):
                await writing
        assert pipe.get_write_buffer_size() == full
    finally:
        pipe.abort()
        await server.stop()
