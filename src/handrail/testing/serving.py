"""What the servers of `handrail.testing` stand on: a port of 127.0.0.1, and a thread that serves it while entered.

A handler finds whose it is in `self.server.owner`.
"""

from __future__ import annotations

import sys
from http.server import BaseHTTPRequestHandler
from socketserver import BaseRequestHandler, ThreadingTCPServer
from threading import Thread
from typing import Any, Generic, Self, TypeVar

Owner = TypeVar("Owner", bound="Serving")


class Serving:
    """A server at a free port: it listens once it is made, and answers while it is entered.

    Attributes:
        host: Always 127.0.0.1.
        port: Given by the system.
    """

    def __init__(self, handler: type[BaseRequestHandler]) -> None:
        self._server = OwnedServer(self, handler)
        self.host = "127.0.0.1"
        self.port = int(self._server.server_address[1])

    def __enter__(self) -> Self:
        # Polled often, because `shutdown` waits for the poll.
        self._thread = Thread(
            target=self._server.serve_forever,
            kwargs={"poll_interval": 0.01},
            daemon=True,
        )
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


class OwnedServer(ThreadingTCPServer, Generic[Owner]):
    """A thread for each connection. Nobody waits for one when it ends."""

    daemon_threads = True
    block_on_close = False
    allow_reuse_address = True
    request_queue_size = 512

    def __init__(self, owner: Owner, handler: type[BaseRequestHandler]) -> None:
        self.owner = owner
        super().__init__(("127.0.0.1", 0), handler)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Stay quiet of a client that went away; anything else is a fault of ours."""
        if not isinstance(sys.exc_info()[1], ConnectionError):
            super().handle_error(request, client_address)


class Handler(BaseHTTPRequestHandler):
    """One persistent connection that speaks HTTP/1.1."""

    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True

    def log_message(self, format: str, *args: Any) -> None:
        """Stay quiet: the test looks at the recorded requests."""
