"""A stand-in for an HTTP service: a real server on 127.0.0.1 that answers by a function of the request.

with Loopback(lambda asked: Answer(json={"path": asked.path})) as server:
    httpx2.get(f"{server.url}/anything")
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from threading import Lock
from urllib.parse import parse_qs, urlsplit

from msgspec import Struct, field

from handrail.errors import Json
from handrail.surroundings.clock import sleep
from handrail.testing import Fault
from handrail.testing.serving import Handler, OwnedServer, Serving


class ReceivedRequest(Struct, frozen=True):
    """A request as the server got it; names of headers are in small letters, of a repeated query the first counts."""

    method: str
    path: str
    query: Mapping[str, str]
    headers: Mapping[str, str]
    body: bytes

    def json(self) -> Json:
        """Return the body as JSON; None if it is no JSON."""
        try:
            document: Json = json.loads(self.body)
        except ValueError:
            return None
        return document


class Answer(Struct, frozen=True):
    """What the server says: JSON, `body` as it is, or piece by piece what `stream` yields, until the client leaves."""

    status: int = 200
    json: Json = None
    headers: Mapping[str, str] = field(default_factory=dict)
    body: bytes | None = None
    stream: Iterable[bytes] | None = None


class Loopback(Serving):
    """An HTTP server on the loopback interface, at a free port.

    Args:
        answer: What it says to a request; None closes the connection without a word.
        faults: What goes wrong first: the n-th request gets the n-th fault, those after the last are answered.

    Attributes:
        asked: The requests that it got, in order.
        url: Its address without a path.
    """

    def __init__(
        self,
        answer: Callable[[ReceivedRequest], Answer | None],
        *,
        faults: Iterable[Fault | None] = (),
    ) -> None:
        self.answer = answer
        self.faults = list(faults)
        self.asked: list[ReceivedRequest] = []
        self._lock = Lock()
        super().__init__(_LoopbackHandler)
        self.url = f"http://{self.host}:{self.port}"

    def note(self, asked: ReceivedRequest) -> Fault | None:
        """Keep a request, and return what is to go wrong with it."""
        with self._lock:
            self.asked.append(asked)
            number = len(self.asked) - 1
        if number < len(self.faults):
            return self.faults[number]
        return None


class _LoopbackHandler(Handler):
    server: OwnedServer[Loopback]

    def _any(self) -> None:
        split = urlsplit(self.path)
        body = self.rfile.read(int(self.headers.get("content-length") or 0))
        query = {
            name: values[0]
            for name, values in parse_qs(split.query, keep_blank_values=True).items()
        }
        headers = {name.lower(): value for name, value in self.headers.items()}
        asked = ReceivedRequest(self.command, split.path, query, headers, body)
        fault = self.server.owner.note(asked)
        if fault is None:
            self._send(self.server.owner.answer(asked))
            return
        sleep(fault.delay_s)
        if fault.body is None:
            self.close_connection = True
            return
        self._send(
            Answer(fault.status, headers=fault.headers, body=fault.body.encode())
        )

    do_GET = do_POST = do_HEAD = do_PATCH = _any  # the names that http.server looks for

    def _send(self, answer: Answer | None) -> None:
        if answer is None:
            self.close_connection = True
            return
        if answer.stream is not None:
            self._pour(answer.stream)
            return
        headers = {name.lower(): value for name, value in answer.headers.items()}
        data = answer.body
        kind = "text/plain; charset=utf-8"
        if data is None:
            data = json.dumps(answer.json, ensure_ascii=False).encode()
            kind = "application/json; charset=utf-8"
        self.send_response(answer.status)
        for name, value in {
            "content-type": kind,
            "content-length": str(len(data)),
            **headers,
        }.items():
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
        # whatever else there might be, nothing more is sent until the client has gone
        self.rfile.read(1)
        self.close_connection = True


__all__ = ["Answer", "Loopback", "ReceivedRequest"]
