"""A store whose rows lie in a database: claims, settlements and long results, carried there in groups.

Rule 1: names are encoded here, before they are put in the queue; the thread of the connection sees encoded names only.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any, TypeVar

from msgspec import Struct
from msgspec.structs import replace

from handrail.effects import Claim, Claimed, LookUp, Renew, Settle
from handrail.stores import group_commit
from handrail.stores.database import Connection, SavedResult
from handrail.stores.group_commit import GATHER_S, Writer
from handrail.stores.reading import Reader
from handrail.stores.sql_values import (
    are_short_names,
    encode_journal,
    encode_name,
    statements,
)
from handrail.surroundings.chance import token_hex

T = TypeVar("T")

_SQL = statements("locks.sql")

# Some 30 years: a lease must be a number that JSON can hold, and a tool may have any timeout. How long a lease is
# chosen to be is another matter, see `core.execution`.
MAX_STORABLE_LEASE_S = 1e9


class ResultQuota(Struct):
    """How many bytes of long results are stored; beyond that the oldest are deleted, and `read_result` says so.

    It is checked after every `check_every_bytes` that a process saves, so it may be exceeded by as much.

    Attributes:
        run_bytes: Of one run.
        store_bytes: Of all runs together.
    """

    run_bytes: int = 64 * 1024 * 1024
    store_bytes: int = 1024 * 1024 * 1024
    check_every_bytes: int = 16 * 1024 * 1024
    unchecked_bytes: int | None = None
    """How many bytes this process has saved since its last check; None before the first one."""

    def count(self, size_bytes: int) -> bool:
        """Count a saved result; return whether the quota is to be checked now."""
        if self.unchecked_bytes is None:
            self.unchecked_bytes = self.check_every_bytes
        else:
            self.unchecked_bytes += size_bytes
        if self.unchecked_bytes < self.check_every_bytes:
            return False
        self.unchecked_bytes = 0
        return True


class DurableStore:
    """What durable stores share; a store of a kind says how its database is opened. Safe for threads.

    Args:
        connection: An open connection, from now on the store's own.
        place: Where the rows lie, for people: no password.

    Attributes:
        quota: How much of long results is stored; assign another `ResultQuota` to change it.
    """

    has_own_connections = False
    """Whether `open_writer` opens a connection: where many may write at once."""
    conninfo = ""
    """With what further connections to the database are opened, where there are any. It may hold a password."""

    def __init__(self, connection: Connection, place: str) -> None:
        self.place = place
        self.quota = ResultQuota()
        self._writer = Writer(connection, place)
        self._reader = Reader(self._writer, connection.open_reading, place)
        self._open_another = connection.open_another
        # Also when the interpreter ends: what was asked until then is committed.
        self._finalizer = weakref.finalize(self, _close, self._writer, self._reader)

    def claim(self, claim: Claim) -> Future[Claimed]:
        """See `ports.Store.claim`."""
        return self._writer.submit(_encode_claim(claim))

    def look_up(self, claim: Claim) -> Future[Claimed | None]:
        """See `ports.LookUpStore.look_up`."""
        return self._writer.submit(LookUp(_encode_claim(claim)))

    def settle(self, settle: Settle) -> Future[bool]:
        """See `ports.Store.settle`.

        Raises:
            StoreUnavailable: It was not recorded: the write stays in doubt.
        """
        scope = settle.scope
        key = settle.key
        if not are_short_names(scope, key):
            scope = encode_name(scope)
            key = encode_name(key)
        value = None if settle.value is None else encode_journal(settle.value)
        return self._writer.submit(
            Settle(
                scope,
                key,
                settle.fence,
                settle.state,
                value=value,
                locks=settle.locks,
                has_ended=settle.has_ended,
            ),
            within_s=GATHER_S if settle.may_wait else 0.0,
            # what has happened is recorded, whoever stops waiting for that
            is_final=settle.may_wait,
        )

    def hurry(self) -> None:
        """See `ports.GatheringStore.hurry`."""
        self._writer.hurry()

    def renew(self, renew: Renew) -> Future[bool]:
        """See `ports.LeaseStore.renew`."""
        scope = encode_name(renew.scope)
        key = encode_name(renew.key)
        lease_s = min(renew.lease_s, MAX_STORABLE_LEASE_S)
        return self._writer.submit(
            replace(renew, scope=scope, key=key, lease_s=lease_s)
        )

    def save_result(self, run_id: str, text: str) -> Future[str]:
        """See `ports.Store.save_result`."""
        body = text.encode("utf-8", "surrogatepass")
        handle = self._writer.submit(
            SavedResult(encode_name(run_id), f"r_{token_hex(6)}", body)
        )
        if self.quota.count(len(body)):
            limits = (self.quota.run_bytes, self.quota.store_bytes)
            self._writer.submit(
                lambda connection: connection.run(_SQL["make_room"], limits)
            )
        return handle

    def load_result(self, run_id: str, handle: str) -> Future[str | None]:
        """See `ports.Store.load_result`."""
        run_id = encode_name(run_id)
        handle = encode_name(handle)

        def read(connection: Connection) -> str | None:
            body = connection.load_result(run_id, handle)
            return None if body is None else body.decode("utf-8", "surrogatepass")

        return self._reader.ask(read)

    def use_connection(self, job: Callable[[Any], T]) -> T:
        """Run a job on the connection between two groups, and wait for it."""
        result: T = self._writer.submit(job).result()
        return result

    def open_writer(self) -> Writer:
        """Return a writer for rows that have no part in this store's groups, such as the segments of runs.

        Where a database has one writer at a time it is the store's own, which the store closes. Where
        `has_own_connections`, it is a new one with a connection of its own, and the caller closes it.
        """
        return self._writer

    def open_connection(self) -> Connection:
        """Open one more connection, for long work in small transactions; the caller closes it.

        Raises:
            StoreUnavailable: It cannot be opened now.
        """
        return self._open_another()

    def reopen(self) -> None:
        """See `ports.ConnectedStore.reopen`. The first request of a fork does it too."""
        self._writer.reopen()

    def close(self) -> None:
        """Carry out the requests until now and close the database. Later requests are refused."""
        self._finalizer()

    def __enter__(self) -> DurableStore:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        closed = "" if self._finalizer.alive else ", closed"
        return f"<{type(self).__name__}: {self.place}{closed}>"


def _close(writer: Writer, reader: Reader) -> None:
    # a database that does not answer is waited for once, not by each connection
    reader.close(wait_s=group_commit.CLOSE_S if writer.close() else 0.0)


def _encode_claim(claim: Claim) -> Claim:
    if (
        not claim.locks
        and claim.lease_s <= MAX_STORABLE_LEASE_S
        and are_short_names(
            claim.scope, claim.key, claim.run_id, claim.tool, claim.place
        )
    ):
        return claim  # nearly always
    return replace(
        claim,
        scope=encode_name(claim.scope),
        key=encode_name(claim.key),
        run_id=encode_name(claim.run_id),
        tool=encode_name(claim.tool),
        place=encode_name(claim.place),
        locks=tuple({encode_name(each) for each in claim.locks}),
        lease_s=min(claim.lease_s, MAX_STORABLE_LEASE_S),
    )
