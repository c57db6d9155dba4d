"""Hears the notifications of a Postgres channel, in a thread of its own.

Rule 1: a notification only saves the wait for the next poll. It can be lost with its connection; nothing rests on it.
"""

from __future__ import annotations

import socket
from collections.abc import Callable
from threading import Event, Thread

from handrail.logs import log
from handrail.network.descriptors import wait_readable

_AGAIN_S = 1.0
"""How long the thread waits before it connects again."""
_CLOSE_S = 15.0
"""How long it may take to end: it may be connecting."""


class Listener:
    """Calls back with the payload of each notification, from its thread; and with an empty one after each connecting.

    Args:
        conninfo: The connection string.
        channel: The channel; an identifier of ours, so it is not quoted.
        hear: Called with each payload. It must be quick and must not raise.
    """

    def __init__(
        self, conninfo: str, channel: str, hear: Callable[[str], None]
    ) -> None:
        self._conninfo = conninfo
        self._channel = channel
        self._hear = hear
        self._is_closed = Event()
        self._closing, self._closed = socket.socketpair()
        self._thread = Thread(
            target=self._run, name=f"handrail listen {channel}", daemon=True
        )
        self._thread.start()

    def close(self) -> None:
        """Stop listening."""
        self._is_closed.set()
        self._closing.close()  # wakes the thread
        self._thread.join(_CLOSE_S)

    def _run(self) -> None:
        import psycopg  # in the extra `postgres`, which whoever has a store in Postgres has installed

        while not self._is_closed.is_set():
            try:
                with psycopg.connect(self._conninfo, autocommit=True) as database:
                    database.execute(f'LISTEN "{self._channel}"')
                    self._hear("")
                    while not self._is_closed.is_set():
                        wait_readable(database, self._closed)
                        for notice in database.notifies(timeout=0):
                            self._hear(notice.payload)
            except psycopg.Error as error:
                log.debug("lost the connection that listens for work: %s", error)
                self._is_closed.wait(_AGAIN_S)
        self._closed.close()
