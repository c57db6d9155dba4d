"""Servers that count who comes, and a hostile name server."""

from __future__ import annotations

import random
import socket
import struct
from contextlib import closing, suppress
from threading import Thread

INSIDE = b"HTTP/1.1 200 OK\r\ncontent-length: 6\r\ncontent-type: text/plain\r\nconnection: close\r\n\r\ninside"


class Door:
    """A server on this machine, by IPv4 and IPv6 at one port, that counts every connection.

    Args:
        answer: What it says to each.
    """

    def __init__(self, answer=INSIDE):
        self.connections = 0
        self._answer = answer
        self._listening = [_listen_where_nobody_knocks()]
        self.port = self._listening[0].getsockname()[1]
        with suppress(OSError):
            self._listening.append(
                socket.create_server(("::1", self.port), family=socket.AF_INET6)
            )
        for each in self._listening:
            Thread(target=self._serve, args=(each,), daemon=True).start()

    def _serve(self, listening):
        with suppress(OSError):
            while True:
                taken, _ = listening.accept()
                self.connections += 1
                with taken, suppress(OSError):
                    taken.recv(65536)
                    taken.sendall(self._answer)

    def close(self):
        for each in self._listening:
            # ends the `accept` under way, which `close` does not
            with suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
            each.close()


def _listen_where_nobody_knocks():
    """Return a server on a port that the system gives to nobody: a client of a server that has ended may still call."""
    while True:
        with suppress(OSError):
            return socket.create_server(("0.0.0.0", random.randrange(20_000, 30_000)))


class Dns:
    """A name server of somebody hostile: its answers to A take turns, and hold for no second.

    Args:
        turns: The addresses of each answer.
    """

    def __init__(self, turns):
        self.asked = 0
        self._turns = turns
        self._socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self._socket.bind(("127.0.0.1", 0))
        Thread(target=self._serve, daemon=True).start()

    def _serve(self):
        with suppress(OSError):
            while True:
                query, client = self._socket.recvfrom(512)
                addresses = self._turns[self.asked % len(self._turns)]
                self.asked += 1
                head = query[:2] + struct.pack(
                    "!HHHHH", 0x8180, 1, len(addresses), 0, 0
                )
                answers = b"".join(
                    b"\xc0\x0c"
                    + struct.pack("!HHIH", 1, 1, 0, 4)
                    + socket.inet_aton(each)
                    for each in addresses
                )
                self._socket.sendto(head + query[12:] + answers, client)

    def resolve(self, host, port):
        """Ask it, as a resolver does."""
        labels = b"".join(
            bytes([len(each)]) + each.encode() for each in host.rstrip(".").split(".")
        )
        query = struct.pack("!HHHHHH", 7, 0x0100, 1, 0, 0, 0)
        query += labels + b"\0" + struct.pack("!HH", 1, 1)
        with closing(socket.socket(socket.AF_INET, socket.SOCK_DGRAM)) as asking:
            asking.settimeout(5)
            asking.sendto(query, self._socket.getsockname())
            answer = asking.recv(512)
        count = struct.unpack("!H", answer[6:8])[0]
        records = answer[len(query) :]
        return [
            socket.inet_ntoa(records[start + 12 : start + 16])
            for start in range(0, 16 * count, 16)
        ]

    def close(self):
        self._socket.close()
