"""One page of the web as text."""

import gzip
import socket
from contextlib import contextmanager, suppress
from threading import Event, Thread

import httpx2
import pytest
from hypothesis import given
from hypothesis import strategies as st

import handrail as hr
from handrail.network.egress import Egress
from handrail.testing.checklist import check
from handrail.testing.loopback import Answer, Loopback
from handrail_toolbox.webpage import ReadPage, text_of_html


def read(drive, answer, path="/"):
    with Loopback(answer if callable(answer) else lambda asked: answer) as server:
        tool = ReadPage(Egress(private=["127.0.0.1"], ports=[server.port]))
        return drive([tool]).call("read_page", {"url": server.url + path})


@pytest.mark.parametrize(("source", "text"), [
    ("<h2>A</h2><p>one<br>two<p>three", "## A\n\none\ntwo\n\nthree"),
    ("a <b>bold</b>  word\n here", "a bold word here"),
    ("<ul><li>x<li>y</ul>after", "- x\n- y\n\nafter"),
    ("<table><tr><th>k<th>v<tr><td>1<td>2</table>", "k | v\n1 | 2"),
    ("5 < 6 &amp;&lt; 7", "5 < 6 &< 7"),
    ("a<script>if (a < b) alert('</p>')</script>b<style>p{}</style>c", "abc"),
    ("a<!-- <p>hidden --> b", "a b"),
    ("a<SCRIPT>x</Script >b", "ab"),
    ("a<nav>menu</nav>b", "ab"),
    ("a<!doctype html><?xml?></>b", "ab"),
    ("a<script>never closed", "a"),
    ("a<!-- never closed", "a"),
    ("a<b title='never closed", "a"),
])  # fmt: skip
def test_html_becomes_text(source, text):
    assert text_of_html(source)[1] == text


@given(
    st.lists(
        st.sampled_from(
            [
                "<",
                ">",
                "<!--",
                "-->",
                "</",
                "<script>",
                "</script",
                "<p>",
                "'",
                "a",
                "&amp",
            ]
        )
    )
)
def test_broken_html_is_read_to_its_end(pieces):
    title, text = text_of_html("".join(pieces))
    assert isinstance(title + text, str)


@pytest.mark.parametrize(
    "piece",
    [
        "<",
        "<!--",
        "<!",
        "<a ",
        "<script",
        "<script>",
        "<svg><",
        "</script",
        "&#",
        "<p>",
    ],
)
def test_hostile_html_is_read_in_one_pass(piece):
    """Half a megabyte; a reader that goes back at each piece would need an hour."""
    text_of_html(piece * (512 * 1024 // len(piece)))


def test_a_character_reference_of_five_thousand_digits_does_not_end_the_page():
    assert text_of_html(f"<p>before</p>&#{'1' * 5000};")[1].startswith("before")


@pytest.mark.parametrize(("kind", "body", "text"), [
    ("text/html; charset=gb2312", "<p>中文</p>".encode("gb2312"), "中文"),
    ("text/html", '<meta charset="big5"><p>中文</p>'.encode("big5"), "中文"),
    ("text/html", "<p>中文</p>".encode("gb18030"), "中文"),
    # codecs that no page of the web has
    ("text/html; charset=utf-7", b"<p>+AGE-</p>", "+AGE-"),
    ("text/html; charset=punycode", b"<p>plain-</p>", "plain-"),
    ("text/html; charset=utf-8", b"<p>caf\xe9</p>", "caf"),
    ("application/json", b'{"a": 1}', '{"a": 1}'),
    ("text/plain", b"<b>as it is", "<b>as it is"),
])  # fmt: skip
def test_a_page_is_read_in_its_own_encoding(drive, kind, body, text):
    assert (
        read(drive, Answer(headers={"content-type": kind}, body=body))
        .value["text"]
        .startswith(text)
    )


@pytest.mark.parametrize(("answer", "code"), [
    (Answer(404, body=b"gone"), "PAGE_NOT_FOUND"),
    (Answer(403, body=b"no"), "PAGE_UNREADABLE"),
    (Answer(200, headers={"content-type": "image/png"}, body=b"\x89PNG"), "PAGE_UNREADABLE"),
    (Answer(302, headers={"location": "/"}, body=b""), "PAGE_UNREADABLE"),
    (Answer(200, headers={"content-encoding": "br"}, body=b"x"), "UNREADABLE"),
    (Answer(200, headers={"content-encoding": "gzip"}, body=b"no gzip"), "UNREADABLE"),
])  # fmt: skip
def test_what_is_no_page_is_a_sentence(drive, answer, code):
    failure = read(drive, answer).failure
    assert failure.code == code and failure.suggestion


def test_a_redirect_within_what_is_allowed_is_followed_and_told(drive):
    def answer(asked):
        return (
            Answer(301, headers={"location": "/new"}, body=b"")
            if asked.path == "/old"
            else Answer(body=b"here")
        )

    assert read(drive, answer, "/old").value["url"].endswith("/new")


def test_an_answer_that_drips_on_is_left_at_the_deadline():
    # when it is sent, after the first piece, after the second
    seconds = iter([5.0, 5.0, 0.0])
    with Loopback(lambda asked: Answer(body=bytes(1024 * 1024))) as server:
        tool = ReadPage(Egress(private=["127.0.0.1"], ports=[server.port]))
        tool.open()
        with pytest.raises(httpx2.ReadTimeout):
            tool.fetch("GET", server.url, lambda: next(seconds))
        tool.close()


@contextmanager
def pouring(*heads):
    """A server that says to each request one of these, and then 64 MB. Gives its port, and what of them was taken."""
    taken = []
    open_ones = []

    def serve():
        for head in heads:
            connection, _ = listening.accept()
            open_ones.append(connection)
            with connection, suppress(OSError):
                connection.recv(65536)
                connection.sendall(head)
                for _ in range(64):
                    connection.sendall(b"100000\r\n" + bytes(0x100000) + b"\r\n")
                    taken.append(1)

    with socket.create_server(("127.0.0.1", 0)) as listening:
        serving = Thread(target=serve, daemon=True)
        serving.start()
        yield listening.getsockname()[1], taken
        for connection in open_ones:
            with suppress(OSError):  # it is closed
                connection.shutdown(socket.SHUT_RDWR)
        serving.join(30)


@pytest.mark.slow
def test_the_body_of_a_redirect_is_not_read(drive):
    there = (
        b"HTTP/1.1 302 Found\r\nlocation: /new\r\ntransfer-encoding: chunked\r\n\r\n"
    )
    here = (
        b"HTTP/1.1 200 OK\r\ncontent-type: text/plain\r\ncontent-length: 4\r\n\r\nhere"
    )
    with pouring(there, here) as (port, taken):
        tool = ReadPage(Egress(private=["127.0.0.1"], ports=[port]))
        page = drive([tool]).call("read_page", {"url": f"http://127.0.0.1:{port}/"})
    assert page.value["text"] == "here"
    assert len(taken) < 64  # no more than what fits into the buffers of two sockets


def test_a_body_that_comes_byte_by_byte_is_looked_at_byte_by_byte():
    # when it is sent, after the first byte, after the second
    seconds = iter([5.0, 5.0, 0.0])
    enough = Event()

    def drip():
        while not enough.wait(0.01):
            yield b"a"

    with Loopback(lambda asked: Answer(stream=drip())) as server:
        tool = ReadPage(Egress(private=["127.0.0.1"], ports=[server.port]))
        tool.open()
        with pytest.raises(httpx2.ReadTimeout):
            tool.fetch("GET", server.url, lambda: next(seconds))
        enough.set()
        tool.close()


def test_what_follows_a_packed_body_is_not_read(drive):
    packed = gzip.compress(b"all of it")
    head = b"HTTP/1.1 200 OK\r\ncontent-type: text/plain\r\ncontent-encoding: gzip\r\n"
    head += b"transfer-encoding: chunked\r\n\r\n"
    with pouring(b"%s%x\r\n%s\r\n" % (head, len(packed), packed)) as (port, taken):
        tool = ReadPage(Egress(private=["127.0.0.1"], ports=[port]))
        page = drive([tool]).call("read_page", {"url": f"http://127.0.0.1:{port}/"})
    assert (page.value["text"], len(taken) < 64) == ("all of it", True)


@pytest.mark.parametrize(
    "url",
    ["example.org", "file:///etc/passwd", "http://", "https:///x", "", "javascript:1"],
)
def test_what_is_no_address_is_a_sentence(drive, url):
    assert (
        drive([ReadPage()]).call("read_page", {"url": url}).failure.code
        == "BAD_ADDRESS"
    )


def test_it_declares_what_it_does():
    assert (hr.lint([ReadPage()]).findings, check([ReadPage()]).missing) == ([], [])
