"""A stand-in for an HTTP service: a real server on 127.0.0.1 that answers by a function of the request.

with Loopback(lambda asked: Answer(json={"path": asked.path})) as server:
    httpx2.get(f"{server.url}/anything")
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Lock, Thread
from typing import Any, TypeVar
from urllib.parse import parse_qs, urlsplit

from handrail.errors import Json
from handrail.testing import Fault

Self = TypeVar("Self", bound="Loopback")


@dataclass(frozen=True, slots=True)
class Asked:
    """A request as the server got it; names of headers are in small letters, of a repeated query the first counts."""

    method: str
    path: str
    query: Mapping[str, str]
    headers: Mapping[str, str]
    body: bytes

    def json(self) -> Json:
        """Return the body as JSON; None when it is none."""
        try:
            told: Json = json.loads(self.body)
        except ValueError:
            return None
        return told


@dataclass(frozen=True, slots=True)
class Answer:
    """What the server says: JSON, `body` as it is, or piece by piece what `stream` yields, until the client leaves."""

    status: int = 200
    json: Json = None
    headers: Mapping[str, str] = field(default_factory=dict)
    body: bytes | None = None
    stream: Iterable[bytes] | None = None


class Loopback:
    """An HTTP server on the loopback interface, at a free port.

    Args:
        answer: What it says to a request; None closes the connection without a word.
        faults: What goes wrong first: the n-th request gets the n-th fault, those after the last are answered.

    Attributes:
        asked: The requests that it got, in order.
        url: Its address without a path.
    """

    def __init__(self, answer: Callable[[Asked], Answer | None], *, faults: Iterable[Fault | None] = ()) -> None:
        self.answer, self.faults = answer, list(faults)
        self.asked: list[Asked] = []
        self._lock = Lock()
        self._server = _Server(self)
        self.port: int = self._server.server_address[1]
        self.url = f"http://127.0.0.1:{self.port}"

    def __enter__(self: Self) -> Self:
        # Polled often, because `shutdown` waits for the poll.
        self._thread = Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def noted(self, asked: Asked) -> Fault | None:
        """Keep a request, and return what is to go wrong with it."""
        with self._lock:
            self.asked.append(asked)
            number = len(self.asked) - 1
        return self.faults[number] if number < len(self.faults) else None


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False

    def __init__(self, loopback: Loopback) -> None:
        self.loopback = loopback
        super().__init__(("127.0.0.1", 0), _Handler)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Stay quiet of a client that went away; anything else is a fault of ours."""
        if not isinstance(sys.exc_info()[1], ConnectionError):
            super().handle_error(request, client_address)


class _Handler(BaseHTTPRequestHandler):
    server: _Server

    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True

    def log_message(self, format: str, *args: Any) -> None:
        """Stay quiet: the requests are kept for the test to look at."""

    def _any(self) -> None:
        split = urlsplit(self.path)
        body = self.rfile.read(int(self.headers.get("content-length") or 0))
        query = {name: values[0] for name, values in parse_qs(split.query, keep_blank_values=True).items()}
        headers = {name.lower(): value for name, value in self.headers.items()}
        asked = Asked(self.command, split.path, query, headers, body)
        fault = self.server.loopback.noted(asked)
        if fault is None:
            self._send(self.server.loopback.answer(asked))
            return
        time.sleep(fault.delay_s)
        if fault.body is None:
            self.close_connection = True
            return
        self._send(Answer(fault.status, headers=fault.headers, body=fault.body.encode()))

    do_GET = do_POST = do_HEAD = do_PATCH = _any  # noqa: N815  # the names that http.server looks for

    def _send(self, answer: Answer | None) -> None:
        if answer is None:
            self.close_connection = True
            return
        if answer.stream is not None:
            self._pour(answer.stream)
            return
        told = {name.lower(): value for name, value in answer.headers.items()}
        data, kind = answer.body, "text/plain; charset=utf-8"
        if data is None:
            data, kind = json.dumps(answer.json, ensure_ascii=False).encode(), "application/json; charset=utf-8"
        self.send_response(answer.status)
        for name, value in {"content-type": kind, "content-length": str(len(data)), **told}.items():
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(data)

    def _pour(self, pieces: Iterable[bytes]) -> None:
        self.send_response(200)
        self.send_header("content-type", "application/json")
        self.send_header("transfer-encoding", "chunked")
        self.end_headers()
        for piece in pieces:
            self.wfile.write(b"%x\r\n%s\r\n" % (len(piece), piece))
        self.rfile.read(1)  # whatever else there might be, nothing more is said until the client has gone
        self.close_connection = True


__all__ = ["Answer", "Asked", "Loopback"]
