"""Answers of HTTP that leave in one piece, in order, also right before the end of a connection."""

import asyncio

from handrail.serving.one_piece import GatheringTransport


class Recorded(asyncio.Transport):
    """Remembers what is done to it."""

    def __init__(self):
        super().__init__({"peername": ("127.0.0.1", 1)})
        self.done = []

    def write(self, data):
        self.done.append(data)

    def close(self):
        self.done.append("closed")


def test_what_is_written_in_one_turn_is_written_at_once():
    async def write():
        below = Recorded()
        transport = GatheringTransport(below)
        transport.write(b"head ")
        transport.write(b"")
        transport.write(b"body")
        assert below.done == []
        await asyncio.sleep(0)
        transport.write(b"next")
        await asyncio.sleep(0)
        return below.done, transport.get_extra_info("peername")

    assert asyncio.run(write()) == ([b"head body", b"next"], ("127.0.0.1", 1))


def test_what_was_written_before_the_end_is_written_first():
    async def write():
        below = Recorded()
        transport = GatheringTransport(below)
        transport.write(b"last")
        transport.close()
        await asyncio.sleep(0)
        return below.done

    assert asyncio.run(write()) == [b"last", "closed"]
