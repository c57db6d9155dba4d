"""A ticket system behind a bad network: a real HTTP server that loses, delays and repeats, and honours keys.

    with TicketServer(Jitter(seed=7)) as server:
        httpx2.post(f"{server.url}/tickets", json={...}, headers={"Idempotency-Key": key})
    assert len(server.tickets) == 1

    POST /tickets    makes a ticket: 201. The same key again: 200, the same ticket, `Idempotent-Replayed: true`.
                     The same key with another body: 422. No key: a new ticket each time. The answer repeats the key.
    GET  /tickets    all tickets

What goes wrong with a request is drawn from the seed by the request's number.
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from enum import Enum
from threading import Lock

from msgspec import Struct

from handrail.errors import Json
from handrail.network.descriptors import wait_readable
from handrail.testing.serving import Handler, OwnedServer, Serving

# A client that is still there after so long will not go away: it is answered after all.
_PATIENCE_S = 30.0


class Fate(Enum):
    """What becomes of a request and of its answer."""

    ARRIVES = "arrives"
    REQUEST_LOST = "request lost"
    ANSWER_LOST = "answer lost"
    ANSWER_LATE = "answer late"
    REQUEST_TWICE = "request delivered twice"
    ANSWER_TWICE = "answer sent twice"


class Jitter(Struct, frozen=True):
    """How bad the network is.

    Attributes:
        seed: What is drawn from.
        share: How many of all requests meet each of the five misfortunes, from 0 to 0.2.
    """

    seed: int = 0
    share: float = 0.06

    def fate(self, number: int) -> Fate:
        """Return what becomes of the n-th request."""
        drawn = random.Random(self.seed * 1_000_003 + number).random()
        place = int(drawn / self.share) if self.share else len(Fate)
        if place < len(Fate) - 1:
            return list(Fate)[1 + place]
        return Fate.ARRIVES


class TicketServer(Serving):
    """See the module.

    Attributes:
        url: Where it listens.
        tickets: What it holds, in order.
        fates: What became of each request.
        delivered: How many requests reached it: how many tickets there would be without keys.
        made: Called with every ticket that is made, before anything is answered.
    """

    def __init__(self, jitter: Jitter | None = None) -> None:
        self.jitter = jitter or Jitter(share=0.0)
        self.tickets: list[dict[str, Json]] = []
        self.fates: list[Fate] = []
        self.delivered = 0
        self.made: Callable[[dict[str, Json]], None] = lambda _ticket: None
        self._by_key: dict[str, dict[str, Json]] = {}
        self._lock = Lock()
        super().__init__(_TicketHandler)
        self.url = f"http://{self.host}:{self.port}"

    def next_fate(self) -> Fate:
        """Note a request and return what is to become of it."""
        with self._lock:
            self.fates.append(self.jitter.fate(len(self.fates)))
            return self.fates[-1]

    def make(self, key: str, fields: dict[str, Json]) -> tuple[int, dict[str, Json]]:
        """Make a ticket, or find the one that was made under this key; return the status and the answer."""
        with self._lock:
            self.delivered += 1
            earlier = self._by_key.get(key) if key else None
            if earlier is not None and earlier["asked"] != fields:
                return 422, {"error": "this key was used for another ticket"}
            if earlier is not None:
                return 200, earlier["ticket"]
            ticket = {"ticket_id": f"T{len(self.tickets) + 1}", **fields}
            self.tickets.append(ticket)
            self._by_key[key] = {"asked": fields, "ticket": ticket}
        self.made(ticket)
        return 201, ticket


class _TicketHandler(Handler):
    server: OwnedServer[TicketServer]

    def do_GET(self) -> None:  # the name that http.server looks for
        self._answer(200, self.server.owner.tickets)

    def do_POST(self) -> None:
        system = self.server.owner
        try:
            fields = json.loads(self.rfile.read(int(self.headers.get("content-length") or 0)))
        except ValueError:
            self._answer(400, {"error": "no JSON"})
            return
        fate = system.next_fate()
        if fate is Fate.REQUEST_LOST:
            self.close_connection = True
            return
        key = self.headers.get("idempotency-key", "")
        for _ in range(2 if fate is Fate.REQUEST_TWICE else 1):
            status, ticket = system.make(key, fields)
        if fate is Fate.ANSWER_LOST or (fate is Fate.ANSWER_LATE and self._wait_for_client_to_leave()):
            self.close_connection = True
            return
        for _ in range(2 if fate is Fate.ANSWER_TWICE else 1):
            self._answer(status, ticket)

    def _wait_for_client_to_leave(self) -> bool:
        """Wait until the client has lost its patience: then its end of the line can be read, and says nothing."""
        return wait_readable(self.connection, timeout_s=_PATIENCE_S)

    def _answer(self, status: int, body: Json) -> None:
        data = json.dumps(body, ensure_ascii=False).encode()
        self.send_response(status)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(data)))
        if key := self.headers.get("idempotency-key"):
            # By this alone a client knows that an answer which was sent twice is not the one to its next request.
            self.send_header("idempotency-key", key)
        if status == 200 and self.command == "POST":
            self.send_header("idempotent-replayed", "true")
        self.end_headers()
        self.wfile.write(data)


__all__ = ["Fate", "Jitter", "TicketServer"]
