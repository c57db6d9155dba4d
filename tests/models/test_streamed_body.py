"""The body of a streamed answer: read from the connection, as the client would have read it."""

import asyncio
import gzip
import socket
import threading
from contextlib import contextmanager, suppress
from itertools import pairwise

import httpcore2
import httpx2
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from handrail.models.streamed_body import ChunkedBody, open_body, wrap_connections
from tests.support.drivers import BOUND_S

HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n"
CHUNKED = HEAD + b"transfer-encoding: chunked\r\n\r\n"
CHUNKS = b"4\r\nWiki\r\n6\r\npedia \r\nE\r\nin \r\n\r\nchunks.\r\n0\r\n\r\n"
TEXT = b"Wikipedia in \r\n\r\nchunks."


@contextmanager
def server_of(*connections):
    """A server that sends, on each connection in turn, these bytes after each request, and then closes it."""
    with socket.create_server(("127.0.0.1", 0)) as listening:

        def serve():
            for answers in connections:
                connection, _ = listening.accept()
                # a client hangs up on an answer that is none, perhaps before it was sent to its end
                with connection, suppress(ConnectionError):
                    for answer in answers:
                        request = b""
                        while b"\r\n\r\n" not in request:
                            request += connection.recv(65536) or b"\r\n\r\n"
                        for piece in answer:
                            connection.sendall(piece)

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        yield f"http://127.0.0.1:{listening.getsockname()[1]}/"
        thread.join(BOUND_S)


def read_all(url, *, times=1, timeout_s=BOUND_S, is_wrapped=True):
    """Return the bodies of so many answers, or the class of the error that reading one raises."""

    async def main():
        async with httpx2.AsyncClient() as client:
            if is_wrapped:
                wrap_connections(client)
            return [await read_one(client) for _ in range(times)]

    async def read_one(client):
        try:
            async with client.stream("GET", url) as answer:
                body = open_body(answer)
                text = b""
                while body is not None and (piece := await body.read(timeout_s)):
                    text += piece
                async for piece in answer.aiter_bytes():
                    text += piece
                return text
        except httpx2.HTTPError as error:
            return type(error)

    return asyncio.run(asyncio.wait_for(main(), BOUND_S))


def each_byte(data):
    return [data[n : n + 1] for n in range(len(data))]


@pytest.mark.parametrize("cut", [lambda data: [data], each_byte])
def test_chunks_are_read_whole_or_byte_by_byte_and_the_connection_serves_again(cut):
    answer = cut(CHUNKED + CHUNKS)
    with server_of([answer, answer]) as url:
        assert read_all(url, times=2) == [TEXT, TEXT]


class Pieces(httpcore2.AsyncMockStream):
    """A connection on which these pieces have come."""

    held = b""

    async def receive(self, timeout_s):
        return await self.read(65536, timeout_s)


@settings(max_examples=200, deadline=None)
@given(
    chunks=st.lists(st.binary(min_size=1, max_size=40), max_size=6),
    cuts=st.lists(st.integers(0, 300), max_size=12),
    ending=st.sampled_from(
        [b"0\r\n\r\n", b"0\r\na: b\r\n\r\nmore", b"3;a=b\r\nabc\r\n", b"x\r\n", b""]
    ),
)
def test_what_is_no_plain_chunk_is_left_where_it_begins_however_it_is_cut(
    chunks, cuts, ending
):
    sent = b"".join(b"%X\r\n%s\r\n" % (len(each), each) for each in chunks) + ending
    places = sorted({0, len(sent), *(cut for cut in cuts if cut < len(sent))})
    pieces = [sent[a:b] for a, b in pairwise(places)]

    async def read():
        stream = Pieces(pieces)
        body = ChunkedBody(stream)
        text = b""
        while piece := await body.read(None):
            text += piece
        rest = stream.held
        while more := await stream.read(65536):
            rest += more
        return text, rest

    assert asyncio.run(read()) == (b"".join(chunks), ending)


@pytest.mark.parametrize(
    "answer",
    [
        CHUNKED + b"3;name=value\r\nabc\r\n2\r\nde\r\n0\r\nsum: 7\r\n\r\n",
        CHUNKED + b"00000000003\r\nabc\r\n0\r\n\r\n",
        b"HTTP/1.1 100 Continue\r\n\r\n" + CHUNKED + CHUNKS,
        HEAD + b"content-length: 4\r\n\r\na\n\nb",
        b"HTTP/1.0 200 OK\r\n\r\na\n\nb",
        CHUNKED.replace(b"\r\n", b"\n") + CHUNKS,
        HEAD + b"transfer-encoding: chunked\r\ncontent-encoding: gzip\r\n\r\n"
        + b"%x\r\n%s\r\n0\r\n\r\n" % (len(gzip.compress(TEXT)), gzip.compress(TEXT)),
        CHUNKED + b"3\r\nabc\r\n",
        CHUNKED + b"3\r\nab",
        CHUNKED + b"3\r\nabcde\r\n0\r\n\r\n",
        CHUNKED + b"3\r\nabc\n0\r\n\r\n",
        CHUNKED + b"xyz\r\nabc\r\n",
        CHUNKED + b"-3\r\nabc\r\n",
        b"SSH-2.0-OpenSSH_9.6\r\n",
    ],
    ids=["extension and trailer", "long size", "interim answer", "length", "HTTP/1.0", "bare line feeds",
         "compressed", "cut between chunks", "cut in a chunk", "long chunk", "no line break", "no size",
         "negative", "no HTTP"],
)  # fmt: skip
@pytest.mark.parametrize("cut", [lambda data: [data], each_byte])
def test_an_answer_of_any_other_form_is_read_or_refused_as_the_client_does(cut, answer):
    with server_of([cut(answer)], [cut(answer)]) as url:
        assert read_all(url) == read_all(url, is_wrapped=False)


def test_silence_within_a_body_is_an_error_after_its_time():
    ended = threading.Event()

    def wait_between():
        yield CHUNKED + b"3\r\nabc\r\n"
        ended.wait(BOUND_S)

    with server_of([wait_between()]) as url:
        assert read_all(url, timeout_s=0.01) == [httpx2.ReadTimeout]
        ended.set()


def test_the_client_that_is_installed_lets_bodies_be_read_from_its_connections():
    async def main(url):
        async with httpx2.AsyncClient() as client:
            wrap_connections(client)
            async with client.stream("GET", url) as answer:
                return open_body(answer)

    with server_of([[CHUNKED + CHUNKS]]) as url:
        assert isinstance(asyncio.run(main(url)), ChunkedBody)


def test_a_client_that_connects_in_a_way_of_its_own_reads_its_bodies_itself():
    transport = httpx2.MockTransport(lambda request: httpx2.Response(200, text="a"))

    async def main():
        async with httpx2.AsyncClient(transport=transport) as client:
            wrap_connections(client)
            async with client.stream("GET", "http://127.0.0.1/") as answer:
                return open_body(answer)

    assert asyncio.run(main()) is None
