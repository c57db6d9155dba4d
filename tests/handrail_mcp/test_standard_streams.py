"""Stdin and stdout of a server: pipes, sockets and files, long messages, and clients that do not read."""

import asyncio
import json
import os
import socket
import subprocess
import sys
import threading
from contextlib import nullcontext

import anyio
import pytest

from handrail_mcp.transports import standard_streams
from handrail_mcp.transports.standard_streams import LineReader, LineWriter
from tests.handrail_mcp.reaching import ROOT
from tests.handrail_mcp.test_server_command import HANDRAIL, INITIALIZE, WEATHER
from tests.support.busy import no_low_descriptors

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="needs POSIX pipes")


def open_pair(kind):
    """Return the descriptors of an end to read and an end to write."""
    if kind == "pipe":
        return os.pipe()
    reading, writing = socket.socketpair()
    return reading.detach(), writing.detach()


@pytest.fixture(params=["pipe", "socket"])
def pair(request):
    ends = list(open_pair(request.param))
    reading = ends[0]
    yield ends
    for end in ends:
        if (
            end != reading
        ):  # a thread may still wait there, and would read from whoever gets its number
            os.close(end)


async def take(reader, count):
    return [await reader.take() for _ in range(count)]


def test_lines_come_whole_however_they_were_written(pair):
    reading, writing = pair

    async def read():
        reader = LineReader(reading)
        os.write(writing, b'{"a":')
        taking = asyncio.ensure_future(take(reader, 4))
        await asyncio.sleep(0)
        os.write(writing, "1}\nBergün\n\nrest".encode())
        os.close(writing)
        pair.remove(writing)
        lines = await taking
        with pytest.raises(anyio.EndOfStream):
            await reader.take()
        return lines

    assert asyncio.run(read()) == ['{"a":1}', "Bergün", "", "rest"]


def test_a_line_that_is_too_long_is_named_and_the_next_one_read(pair, monkeypatch):
    monkeypatch.setattr(standard_streams, "LONGEST_LINE", 100_000)
    reading, writing = pair
    text = b"x" * 300_000 + b"\n" + b"y" * 100_000 + b"\nnext\n"
    thread = threading.Thread(target=write_all, args=(writing, text))
    thread.start()

    async def read():
        return await take(LineReader(reading), 3)

    too_long, longest, following = asyncio.run(read())
    thread.join()
    assert too_long.startswith("[a line of more than")
    assert longest == "y" * 100_000
    assert following == "next"


def write_all(descriptor, data):
    while data:
        data = data[os.write(descriptor, data) :]


def test_many_lines_that_nobody_takes_stay_with_their_sender(pair):
    reading, writing = pair
    lines = [b"%d\n" % number for number in range(100_000)]
    thread = threading.Thread(target=write_all, args=(writing, b"".join(lines)))
    thread.start()

    async def read_late():
        reader = LineReader(reading)
        while reader._room.acquire(blocking=False):  # until there is no room
            reader._room.release()
            await asyncio.sleep(0)
        held = reader._lines.qsize()
        return held, await take(reader, len(lines))

    held, received = asyncio.run(read_late())
    thread.join()
    assert held <= 64
    assert received == [line.decode().strip() for line in lines]


def test_a_client_that_does_not_read_stops_its_writer_alone(pair):
    reading, writing = pair
    text = "ä".encode() * 600_000 + b"\n"

    async def write():
        writer = LineWriter(writing)
        writing_it = asyncio.ensure_future(writer.write(text))
        for _ in range(100):
            await asyncio.sleep(0)
        assert not writing_it.done()
        received = bytearray()
        while len(received) < len(text):
            received += await asyncio.to_thread(os.read, reading, 1 << 16)
        await writing_it
        writer.close()
        return received

    assert asyncio.run(write()) == text
    assert os.get_blocking(writing)


def test_a_reader_who_has_gone_is_an_error(pair):
    reading, writing = pair
    os.close(reading)
    pair.remove(reading)

    async def write():
        await LineWriter(writing).write(b"{}\n")

    with pytest.raises(OSError, match=r"[Bb]roken pipe"):
        asyncio.run(write())


@pytest.mark.parametrize("numbers", [nullcontext, no_low_descriptors])
@pytest.mark.parametrize("kind", ["pipe", "socket"])
def test_a_descriptor_that_does_not_wait_is_waited_for(kind, numbers):
    text = b"x" * 600_000

    async def exchange():
        reader, writer = LineReader(reading), LineWriter(writing)
        _, line = await asyncio.gather(writer.write(text + b"\n"), reader.take())
        writer.close()
        return line

    with numbers():
        reading, writing = open_pair(kind)
        for each in (reading, writing):
            os.set_blocking(each, False)
        line = asyncio.run(asyncio.wait_for(exchange(), 60))
        assert line == text.decode()
        os.close(writing)


LIST_TOOLS = json.dumps({"jsonrpc": "2.0", "id": 2, "method": "tools/list"})
READY = json.dumps({"jsonrpc": "2.0", "method": "notifications/initialized"})
REQUESTS = f"{INITIALIZE}\n{READY}\n{LIST_TOOLS}\n"


@pytest.mark.parametrize("kind", ["socket", "files"])
def test_it_is_served_by_what_a_client_has_for_standard_streams(tmp_path, kind):
    """An editor on Node has sockets, and a person in a shell has files."""
    command = [*HANDRAIL, "serve", "mcp", "--tools", WEATHER]
    if kind == "socket":
        here, there = socket.socketpair()
        with subprocess.Popen(command, stdin=there, stdout=there) as program:
            there.close()
            here.sendall(REQUESTS.encode())
            with here.makefile() as answers:
                said = [json.loads(answers.readline()) for _ in range(2)]
            here.shutdown(socket.SHUT_WR)
            program.wait(20)
        here.close()
    else:
        given = tmp_path / "requests"
        given.write_text(REQUESTS)
        output = tmp_path / "answers"
        with given.open() as requests, output.open("w") as answers:
            program = subprocess.run(
                command, stdin=requests, stdout=answers, timeout=60, check=False
            )
        said = [json.loads(line) for line in output.read_text().splitlines()]
    assert program.returncode == 0
    assert [each["id"] for each in said][:1] == [1]
    if kind == "socket":
        assert said[1]["result"]["tools"]


KEY = {"handrail/idempotency-key": "\ud83d"}
HALF = "cut in an emoji \ud83d"
DEEP = json.loads("[" * 400 + "]" * 400)


@pytest.mark.parametrize("arguments", [{"text": HALF}, {HALF: 1}, {"text": DEEP}])
def test_a_call_with_half_a_character_or_too_many_levels_is_told_why_it_cannot_run(
    tmp_path, arguments
):
    call = {"name": "add_note", "arguments": arguments}
    answer = ask_shop(tmp_path, "tools/call", call)
    failure = answer["result"]["structuredContent"]
    assert failure["error_code"] == "BAD_JSON"
    assert not (tmp_path / "notes").exists()


@pytest.mark.parametrize(
    ("method", "params", "complaint"),
    [
        ("tools/call", {"name": HALF, "arguments": {}}, "There is no tool"),
        ("tools/call", {"name": "add_note", "_meta": KEY}, "no idempotency key"),
        ("prompts/get", {"name": HALF}, "Unknown prompt: cut in an emoji ?"),
        (HALF, {}, "Method not found"),
    ],
)
def test_a_request_with_half_a_character_is_answered(
    tmp_path, method, params, complaint
):
    assert complaint in json.dumps(ask_shop(tmp_path, method, params))


def ask_shop(folder, method, params):
    """Return what the shop answers to a request."""
    request = {"jsonrpc": "2.0", "id": 2, "method": method, "params": params}
    command = [
        sys.executable,
        "-W",
        "ignore",
        "-m",
        "tests.handrail_mcp.shop",
        str(folder),
    ]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd=ROOT, text=True
    ) as program:
        give_up = threading.Timer(60, program.kill)
        give_up.start()
        program.stdin.write(f"{INITIALIZE}\n{READY}\n{json.dumps(request)}\n")
        program.stdin.flush()
        greeting, answer = program.stdout.readline(), program.stdout.readline()
        give_up.cancel()
    assert json.loads(greeting)["id"] == 1
    assert answer, "no answer in 60 s"
    return json.loads(answer)


def test_only_one_server_of_a_process_has_the_standard_streams():
    source = """
import asyncio
from handrail_mcp.transports.standard_streams import open_streams

async def main():
    async with open_streams():
        print("not for the client")
        try:
            async with open_streams():
                print("a second one")
        except RuntimeError as error:
            print(error)
    async with open_streams():
        pass

asyncio.run(main())
print("after")
"""
    done = subprocess.run(
        [sys.executable, "-c", source],
        input="",
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout == "after\n"
    assert "not for the client\nanother server of this process" in done.stderr


def test_texts_of_many_come_whole_and_in_order_also_of_one_who_gave_up(pair):
    reading, writing = pair
    texts = [b"%d:" % number + b"x" * 200_000 + b"\n" for number in range(4)]

    async def write():
        writer = LineWriter(writing)
        tasks = [asyncio.ensure_future(writer.write(text)) for text in texts]
        await asyncio.sleep(0)
        tasks[1].cancel()
        received = bytearray()
        while len(received) < sum(map(len, texts)):
            received += await asyncio.to_thread(os.read, reading, 1 << 16)
        ended = await asyncio.gather(*tasks, return_exceptions=True)
        writer.close()
        return received, [type(each) for each in ended]

    received, ended = asyncio.run(write())
    assert received == b"".join(texts)
    assert ended == [type(None), asyncio.CancelledError, type(None), type(None)]


def test_a_server_whose_answers_nobody_reads_ends():
    reading, writing = os.pipe()
    server = subprocess.Popen(
        [*HANDRAIL, "serve", "mcp", "--tools", WEATHER],
        stdin=subprocess.PIPE,
        stdout=writing,
        stderr=subprocess.PIPE,
    )
    os.close(writing)
    os.close(reading)
    try:
        # its standard input stays open
        server.stdin.write(f"{INITIALIZE}\n".encode())
        server.stdin.flush()
        assert server.wait(30) == 0
        assert b"Traceback" not in server.stderr.read()
    finally:
        server.kill()
        server.communicate()
