"""A store whose rows lie in a database: callers put what they want in a queue, a thread carries it there in groups.

A group is whatever was asked for while the last one was being committed: there is no timer, a lone caller waits for
nobody, and a hundred callers share one wait for the disk. The thread reads the rows that the group names, lets a
`Ledger` decide for one caller after another, writes back what changed, commits, and only then answers.

A group goes to the database as one JSON document and not row by row. Each statement lets go of the interpreter's lock,
and with a busy event loop beside it the thread gets it back after milliseconds: docs/decisions/0008-stores.md.

Rule 1: nobody is answered before the commit; who is told StoreUnavailable holds no claim.
Rule 2: leases are counted by the database's clock, never by ours.
Rule 3: everything of a connection happens in its thread; `Base` need not be safe for several.
"""

from __future__ import annotations

import json
import os
import re
import weakref
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from functools import cache
from hashlib import sha256
from importlib import resources
from itertools import chain
from secrets import token_hex
from threading import Condition, Lock, Thread, current_thread
from time import monotonic
from typing import Any, Protocol, TypeAlias, TypeVar

from msgspec import Struct
from msgspec.structs import replace
from pydantic_core import to_json

from handrail.effects import AGAIN, Claim, Claimed, ClaimState, LookUp, Renew, Settle
from handrail.errors import HandrailError, StoreUnavailable
from handrail.process_identity import has_died_here, owner, shares_our_clock
from handrail.stores.ledger import Ledger, Row, Standing, use_of

T = TypeVar("T")

MOST_IN_A_GROUP = 512

# How long a long result can be read on: as long as a run, which a person may take weeks to approve.
KEPT_S = 30 * 24 * 3600.0

# A decision is made again when another process was quicker; each time somebody has got on, so this is never reached.
MOST_DECISIONS = 100

# Some 30 years: a lease must be a number that JSON can spell.
LONGEST_LEASE_S = 1e9


class KeptQuota(Struct):
    """How many bytes of long results are kept; beyond that the oldest are deleted, and `read_result` says so.

    It is checked after every `every` bytes that a process keeps, so it may be exceeded by as much.

    Attributes:
        of_run: Of one run.
        of_store: Of all runs together.
    """

    of_run: int = 64 * 1024 * 1024
    of_store: int = 1024 * 1024 * 1024
    every: int = 16 * 1024 * 1024
    since: int | None = None
    """How many bytes this process has kept since its last check; None before the first one."""

    def is_due(self, size_bytes: int) -> bool:
        """Count a kept text; return whether the quota is to be checked now."""
        self.since = self.every if self.since is None else self.since + size_bytes
        if self.since < self.every:
            return False
        self.since = 0
        return True


class Again(Exception):  # noqa: N818  # no error: the way to say that a group must be decided anew
    """Nothing was committed, and somebody else was quicker or the connection was new: decide again."""


class Refused(Exception):  # noqa: N818
    """The database refused what it was given and is well otherwise: others of the group may pass."""


class KeptText(Struct, frozen=True):
    """A long result on its way to the database, as UTF-8 that also spells what is no character."""

    run_id: str
    handle: str
    body: bytes


Values: TypeAlias = Sequence[Any]
Named: TypeAlias = tuple[str, str, str | None, str | None]
"""Scope and key of a write; and its run and fingerprint, where the same act in that run counts as well."""


class Keeper(Protocol):
    """What a connection can do for whatever is no claim: runs, questions, locks, upkeep."""

    def run(self, statement: str, given: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        """Run a statement with `?` for what is given; return its rows."""
        ...

    def run_with(self, statement: str, rows: Sequence[Sequence[Any]]) -> list[tuple[Any, ...]]:
        """Run a statement whose `VALUES (?)` stands for all these rows; return its own."""
        ...

    def add(self, statement: str, rows: Sequence[Sequence[Any]]) -> None:
        """Run a statement for each of these, in one transaction."""
        ...

    def columns(self, table: str) -> list[str]:
        """Name the columns of a table."""
        ...

    def now(self) -> float:
        """Return the time by the database's clock."""
        ...

    def size_bytes(self) -> int:
        """Return how much room it takes."""
        ...

    def shrink(self, *, rewrite: bool) -> None:
        """Make the space of deleted rows reusable; with `rewrite` return it to the disk, which blocks all others."""
        ...


class Base(Keeper, Protocol):
    """A connection to a database. Whatever fails raises StoreUnavailable, `Again` or `Refused`, with nothing committed.

    Only `commit` may leave it open whether it succeeded, when the connection broke in the middle.
    """

    def begin(self) -> float:
        """Begin a transaction; return the time."""
        ...

    def rows(self, named: Sequence[Named]) -> Iterable[Values]:
        """Return the rows that a group names.

        That is the row of each key and, where a run is named, the last row of the same act in that run that did not
        fail; ordered by `begun`. Their values are in the order of `Row`.
        """
        ...

    def write(self, new: Sequence[Row], old: Sequence[Row], texts: Sequence[KeptText]) -> None:
        """Write rows that were not there, rows that were, and texts."""
        ...

    def commit(self) -> None:
        """Make it durable."""
        ...

    def rollback(self) -> None:
        """Let it not have been. It does not fail."""
        ...

    def load_result(self, run_id: str, handle: str) -> bytes | None:
        """Return what was kept and has not expired."""
        ...

    def close(self) -> None:
        """Close the connection."""
        ...


class GroupOperation(Struct, frozen=True):
    """Something to be done in the transaction of a group: once for all of a group that share `do`.

    Attributes:
        do: Takes the connection, the time and what was `given` with each; returns an answer for each. An error among
            them is raised to its own caller, and stands for nothing having changed. It may be done twice, the first
            time in vain.
    """

    do: Callable[[Any, float, Sequence[Any]], Sequence[Any]]
    given: Any = None


Want: TypeAlias = Claim | LookUp | Settle | Renew | KeptText | GroupOperation


class _Ask(Struct, eq=False):
    """What a caller wants, or a job that needs the connection for itself; and where the answer goes."""

    want: Want | Callable[[Any], Any]
    answer: Future[Any]
    shared: bool = False


class Writer:
    """The queue, and the thread behind it."""

    def __init__(self, base: Base, name: str) -> None:
        self._base = base
        self._asked: deque[_Ask] = deque()
        self._shared: dict[Callable[..., Any], tuple[list[Any], Future[Any]]] = {}
        self._open, self._guard = True, Lock()
        self._change = Condition(self._guard)
        self._process = os.getpid()
        self._thread = Thread(target=self._run, name=f"handrail store {name}", daemon=True)
        self._thread.start()

    def ask(self, want: Want | Callable[[Any], T]) -> Future[Any]:
        """Put something in the queue.

        Raises:
            StoreUnavailable: The store is closed, or the process is a fork of the one that opened it.
        """
        self._check_process()
        ask = _Ask(want, Future())
        with self._guard:
            self._put(ask)
        return ask.answer

    def share(self, do: Callable[..., Any], given: Iterable[Any]) -> Future[Any]:
        """Have something done whose answer is the same for all who want it: they share a list, a future, a wake-up.

        Nobody can cancel it: it is others' too.

        Raises:
            StoreUnavailable: As `ask`.
        """
        self._check_process()
        with self._guard:
            shared = self._shared.get(do)
            if shared is None:
                answer: Future[Any] = Future()
                answer.set_running_or_notify_cancel()
                shared = [], answer
                self._put(_Ask(GroupOperation(do, shared[0]), answer, shared=True))
                self._shared[do] = shared
            shared[0].extend(given)
        return shared[1]

    def _check_process(self) -> None:
        # Before the lock is touched: whoever held it when the process was forked is not there to let it go.
        if os.getpid() != self._process:
            raise StoreUnavailable("the store was opened before this process was forked; open it anew here")

    def _put(self, ask: _Ask) -> None:
        if not self._open:
            raise StoreUnavailable("the store is closed")
        if not self._asked:
            self._change.notify()
        self._asked.append(ask)

    def close(self) -> None:
        """Carry out what was asked until now, then end. In a fork nothing is ours to close."""
        if os.getpid() != self._process:
            return
        with self._guard:
            self._open = False
            self._change.notify()
        if current_thread() is not self._thread:
            self._thread.join()

    def _run(self) -> None:
        while (first := self._next()) is not None:
            # Whoever comes while a transaction waits for its beginning is still of its group.
            begun = None if callable(first.want) else _begun(self._base)
            asks = [ask for ask in self._group() if ask.shared or ask.answer.set_running_or_notify_cancel()]
            if together := [ask for ask in asks if not callable(ask.want)]:
                _together(self._base, together, begun)
            elif begun is not None:
                self._base.rollback()  # everyone has gone away
            for ask in asks:
                if callable(ask.want):
                    _alone(self._base, ask, ask.want)
        self._base.close()

    def _next(self) -> _Ask | None:
        """Wait for somebody to ask; None once the store is closed and everything is done."""
        with self._guard:
            while not self._asked and self._open:
                self._change.wait()
            return self._asked[0] if self._asked else None

    def _group(self) -> list[_Ask]:
        with self._guard:
            self._shared.clear()  # from now on the next group's
            return [self._asked.popleft() for _ in range(min(len(self._asked), MOST_IN_A_GROUP))]


class DurableStore:
    """What durable stores share; a store of a kind says how its database is opened. Safe for threads.

    Args:
        base: An open connection, from now on the store's own.
        place: Where the rows lie, for people: no password.

    Attributes:
        quota: How much of long results is kept; assign another `KeptQuota` to change it.
    """

    def __init__(self, base: Base, place: str) -> None:
        self.place, self.quota = place, KeptQuota()
        self._writer = writer = Writer(base, place)
        # Also when the interpreter ends: what was asked until then is committed.
        self._closed = weakref.finalize(self, writer.close)

    def claim(self, claim: Claim) -> Future[Claimed]:
        """See `ports.Store.claim`."""
        return self._writer.ask(_spelled_claim(claim))

    def look_up(self, claim: Claim) -> Future[Claimed | None]:
        """See `ports.LookUpStore.look_up`."""
        return self._writer.ask(LookUp(_spelled_claim(claim)))

    def settle(self, settle: Settle) -> Future[bool]:
        """See `ports.Store.settle`.

        Raises:
            StoreUnavailable: It was not recorded: the write stays in doubt.
        """
        scope, key = spelled(settle.scope), spelled(settle.key)
        value = None if settle.value is None else encoded(settle.value)
        return self._writer.ask(Settle(scope, key, settle.fence, settle.state, value, settle.locks))

    def renew(self, renew: Renew) -> Future[bool]:
        """See `ports.LeaseStore.renew`."""
        lease_s = min(renew.lease_s, LONGEST_LEASE_S)
        return self._writer.ask(replace(renew, scope=spelled(renew.scope), key=spelled(renew.key), lease_s=lease_s))

    def save_result(self, run_id: str, text: str) -> Future[str]:
        """See `ports.Store.save_result`."""
        body = text.encode("utf-8", "surrogatepass")
        handle = self._writer.ask(KeptText(spelled(run_id), f"r_{token_hex(6)}", body))
        if self.quota.is_due(len(body)):
            quota = self.quota.of_run, self.quota.of_store
            self._writer.ask(lambda base: base.run(_SQL["make_room"], quota))
        return handle

    def load_result(self, run_id: str, handle: str) -> Future[str | None]:
        """See `ports.Store.load_result`."""
        run_id, handle = spelled(run_id), spelled(handle)

        def read(base: Base) -> str | None:
            body = base.load_result(run_id, handle)
            return None if body is None else body.decode("utf-8", "surrogatepass")

        return self._writer.ask(read)

    def alone(self, job: Callable[[Any], T]) -> T:
        """Do something with the connection between two groups, and wait for it."""
        answer: T = self._writer.ask(job).result()
        return answer

    def close(self) -> None:
        """Carry out what was asked until now and close the database. Whatever is asked later is refused."""
        self._closed()

    def __enter__(self) -> DurableStore:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<{type(self).__name__}: {self.place}{'' if self._closed.alive else ', closed'}>"


# ---------------------------------------------------------------------- in the thread


def _begun(base: Base) -> float | Exception:
    """Begin a transaction; return its time, or what went wrong."""
    try:
        return base.begin()
    except Exception as error:  # told to whoever waits for it
        return error


def _together(base: Base, asks: list[_Ask], begun: float | Exception | None = None) -> None:
    try:
        answers = _carried(base, [ask.want for ask in asks], begun)
    except Refused as refused:
        if len(asks) == 1:
            asks[0].answer.set_exception(_told(refused))
        else:
            for ask in asks:  # one of them is to blame, and the others shall not suffer for it
                _together(base, [ask])
    except Exception as error:  # whatever it is: nobody may wait for ever
        for ask in asks:
            ask.answer.set_exception(_told(error))
    else:
        for ask, answer in zip(asks, answers, strict=True):
            if isinstance(answer, HandrailError):
                ask.answer.set_exception(answer)
            else:
                ask.answer.set_result(answer)


def _carried(base: Base, wants: Sequence[Any], begun: float | Exception | None) -> list[Any]:
    """One transaction, which may have `begun`; from the beginning when somebody else was quicker."""
    named = [_named(want) for want in wants if isinstance(want, (Claim, LookUp, Settle, Renew))]
    texts = [want for want in wants if isinstance(want, KeptText)]
    deeds = _by_kind(wants)
    for _ in range(MOST_DECISIONS):
        try:
            had, begun = begun, None
            if isinstance(had, Exception):
                raise had
            now = had or base.begin()
            ledger = Ledger(map(_row, base.rows(named)) if named else ())
            answers = [
                None if isinstance(want, GroupOperation) else _decided(want, ledger, base, now) for want in wants
            ]
            for do, places in deeds.items():
                for place, answer in zip(places, do(base, now, [wants[each].given for each in places]), strict=True):
                    answers[place] = answer
            locks = any(isinstance(want, Claim | Settle | Renew) and want.locks for want in wants)
            changed = [row for row in ledger.rows.values() if row.changed]
            if not (changed or texts or deeds or locks):
                base.rollback()
                return answers
            new, old = [row for row in changed if not row.stored], [row for row in changed if row.stored]
            base.write(new, old, texts)
            base.commit()
            return answers
        except Again:
            base.rollback()
        except BaseException:
            base.rollback()
            raise
    raise StoreUnavailable(f"other processes were quicker {MOST_DECISIONS} times; nothing was claimed")


def _alone(base: Base, ask: _Ask, job: Callable[[Any], Any]) -> None:
    try:
        try:
            answer = job(base)
        except Again:  # on a new connection; jobs can be begun again
            answer = job(base)
    except Exception as error:
        ask.answer.set_exception(_told(error))
    else:
        ask.answer.set_result(answer)


# ---------------------------------------------------------------------- spelling for a database

_ODD = re.compile("[\0\x10\ud800-\udfff]")
_SPELLED = re.compile("\x10([0-9a-f]{4})")

# Postgres has room for some 2,700 bytes in an index, where two names of up to four bytes a character must fit.
LONGEST_NAME = 300


def spelled(name: str) -> str:
    r"""Return a name as every database can hold it, and no two names alike.

    NUL and lone surrogates are written as hexadecimal digits behind a DLE, the rest of a long name as its digest.

    >>> spelled("refund:881"), spelled("a\0b")
    ('refund:881', 'a\x100000b')
    """
    if name.isprintable() and len(name) <= LONGEST_NAME:
        return name  # nearly always, at a fifth of the time
    if _ODD.search(name):
        name = _ODD.sub(lambda odd: f"\x10{ord(odd[0]):04x}", name)
    if len(name) > LONGEST_NAME:
        name = f"{name[:200]}\x10sha256:{sha256(name.encode()).hexdigest()}"
    return name


def read_name(name: str) -> str:
    """Return the name that was `spelled` so, unless it was too long and ends in its digest."""
    return _SPELLED.sub(lambda odd: chr(int(odd[1], 16)), name) if "\x10" in name else name


def values(row: Row) -> tuple[Any, ...]:
    """Return what a database holds of a row, in the order of `Row`."""
    return (
        row.scope, row.key, row.fingerprint.hex(), row.run_id, row.state, row.replay, row.fence, row.lease_until,
        row.begun, row.value, row.epoch,
    )  # fmt: skip


MOST_ROWS = 256
"""In one statement: no database takes more than 32,766 values there, and a longer one gains nothing."""


def widened(statement: str, rows: Sequence[Sequence[Any]]) -> Iterator[tuple[str, list[Any]]]:
    """Yield a statement with as many rows in its `VALUES (?)`, and their values, until there is none left.

    In pieces of a power of two, so that few statements, which a connection prepares once, serve every number of them.
    """
    at = 0
    while left := len(rows) - at:
        count = min(1 << (left.bit_length() - 1), MOST_ROWS)
        some = rows[at : at + count]
        yield _widened(statement, count, len(some[0])), list(chain.from_iterable(some))
        at += count


@cache
def _widened(statement: str, rows: int, values: int) -> str:
    row = f"({', '.join('?' * values)})"
    return statement.replace("(?)", ", ".join([row] * rows))


def statements(file: str) -> dict[str, str]:
    """Return the statements of a `.sql` file of this package; each stands below a line `-- name: what it is for`."""
    text = resources.files("handrail.stores").joinpath(file).read_text(encoding="utf-8")
    _, *parts = re.split(r"^-- (\w+): .*\n", text, flags=re.MULTILINE)
    return dict(zip(parts[::2], parts[1::2], strict=True))


def encoded(value: Any, write: Callable[[Any], str] = json.dumps) -> str:
    """Return a value as ASCII JSON, in which nothing is odd.

    Raises:
        StoreUnavailable: It is no JSON.
    """
    try:
        return write(value)
    except (TypeError, ValueError, RecursionError) as error:
        raise StoreUnavailable(f"what is to be kept is no JSON: {error}") from error


def journaled(value: Any) -> str:
    """Return what `journal` made as ASCII JSON, at a third of what `encoded` takes.

    Raises:
        StoreUnavailable: It is no JSON.
    """
    try:
        return to_json(value, ensure_ascii=True).decode()
    except ValueError:  # a lone surrogate, or too deep; or indeed no JSON
        return encoded(value)


_SQL = statements("locks.sql")


def _spelled_claim(claim: Claim) -> Claim:
    names = spelled(claim.scope), spelled(claim.key), spelled(claim.run_id)
    if claim.locks:
        claim = replace(claim, locks=tuple({spelled(each) for each in claim.locks}))
    if names == (claim.scope, claim.key, claim.run_id) and claim.lease_s <= LONGEST_LEASE_S:
        return claim
    lease_s = min(claim.lease_s, LONGEST_LEASE_S)
    return replace(claim, scope=names[0], key=names[1], run_id=names[2], lease_s=lease_s)


def _named(want: Claim | LookUp | Settle | Renew) -> Named:
    if isinstance(want, LookUp):
        want = want.claim
    if not isinstance(want, Claim) or not want.guard or not want.run_id:
        return want.scope, want.key, None, None
    return want.scope, want.key, want.run_id, want.fingerprint.hex()


def _row(found: Values) -> Row:
    scope, key, fingerprint, *others = found
    row = Row(scope, key, bytes.fromhex(fingerprint), *others)
    row.stored, row.changed = True, False
    return row


def _by_kind(wants: Sequence[Want]) -> dict[Callable[..., Any], list[int]]:
    """Return where the deeds of each kind stand."""
    kinds: dict[Callable[..., Any], list[int]] = {}
    for place, want in enumerate(wants):
        if isinstance(want, GroupOperation):
            kinds.setdefault(want.do, []).append(place)
    return kinds


def _decided(want: Claim | LookUp | Settle | KeptText, ledger: Ledger, base: Base, now: float) -> Any:
    if isinstance(want, KeptText):
        return want.handle
    if isinstance(want, Settle):
        settled = ledger.settle(want)
        if settled and want.locks and want.state != "in_doubt":  # what may still happen keeps what it touches
            base.run(_SQL["unlock"], (_holder(want), want.fence))
        return settled
    if isinstance(want, Renew):
        renewed = ledger.renew(want, now)
        if renewed and want.locks:
            base.run(_SQL["renew"], (now + want.lease_s, monotonic() + want.lease_s, _holder(want), want.fence))
        return renewed
    if isinstance(want, LookUp):
        if want.claim.guard and want.claim.repeat_window_s > 0:
            _recall(want.claim, ledger, base, now)
        return _read_value(ledger.look_up(want.claim, now))
    row = ledger.rows.get((want.scope, want.key))
    past: dict[str, _Hold] = {}
    if want.locks and not (row is not None and row.state == "done"):
        past = {resource: hold for resource in want.locks for hold in _others_hold(want, resource, base)}
        if any(hold.lasts(now) for hold in past.values()):
            return Claimed(ClaimState.LOCKED)
    looks_back = want.guard and want.repeat_window_s > 0
    seen = _recall(want, ledger, base, now) if looks_back else ""
    approval = _approval(want, base) if want.approval else None
    claimed = ledger.claim(want, now, approval)
    if approval is not None and claimed.state.taken:
        _use(want, approval, claimed.fence, base)
    if want.locks and claimed.state.taken:
        _lock(want, claimed.fence, past, base, now)
    if looks_back and claimed.state is ClaimState.FRESH:
        _remember(want, seen, base, now)
    return _read_value(claimed)


def _read_value(claimed: Claimed | None) -> Claimed | None:
    return claimed if claimed is None or claimed.value is None else replace(claimed, value=json.loads(claimed.value))


def _holder(want: Claim | Settle | Renew) -> str:
    """Return who holds the locks of a write: whoever may go on with it, or does it again, inherits them."""
    return f"{want.scope}\x1f{want.key.partition(AGAIN)[0]}"


class _Hold(Struct, frozen=True):
    """The row of a lock; `ticks` is `until` by the monotonic clock of its owner's machine."""

    holder: str
    fence: int
    until: float
    owner: str
    ticks: float

    def lasts(self, now: float) -> bool:
        """Whether the write may still be under way: its owner has not died, and its lease is not over.

        The lease of a process of this machine is measured by the monotonic clock, which nobody can set.
        """
        if has_died_here(self.owner):
            return False
        return self.ticks >= monotonic() if shares_our_clock(self.owner) else self.until >= now


_NOBODY = _Hold("", 0, 0.0, "", 0.0)


def _others_hold(want: Claim, resource: str, base: Keeper) -> list[_Hold]:
    """Return the rows of other writes that hold a resource, or that held it and did not release it."""
    return [_Hold(*row) for row in base.run(_SQL["held"], (resource, _holder(want)))]


def _lock(want: Claim, fence: int, past: Mapping[str, _Hold], base: Keeper, now: float) -> None:
    """Take what a write touches, in one order for all, so that nobody waits in a circle.

    Args:
        past: Locks of others that are over but were not released.

    Raises:
        Again: Somebody else was quicker, in a transaction that we could not see.
    """
    lease = now + want.lease_s, owner(), monotonic() + want.lease_s
    for resource in sorted(want.locks):
        hold = past.get(resource, _NOBODY)
        seen = hold.holder, hold.fence, hold.until
        if not base.run(_SQL["lock"], (resource, _holder(want), fence, *lease, *seen)):
            raise Again


def _approval(want: Claim, base: Keeper) -> Standing | None:
    found = base.run(_SQL["approval"], (spelled(want.approval),))
    return Standing(*found[0]) if found else None


def _use(want: Claim, approval: Standing, fence: int, base: Keeper) -> None:
    """Record that a claim has used its approval.

    Raises:
        Again: Somebody else was quicker, in a transaction that we could not see.
    """
    used_by = use_of(want.scope, want.key, fence)
    if not base.run(_SQL["use"], (used_by, spelled(want.approval), approval.state, approval.used_by)):
        raise Again


def _recall(want: Claim, ledger: Ledger, base: Keeper, now: float) -> str:
    """Let the ledger know of the same act in any run; return the key of one that is there and stands for nothing."""
    seen = ""
    for key, *found in base.run(_SQL["recall"], (want.scope, want.fingerprint.hex(), now - want.repeat_window_s)):
        row = _row(found) if found[0] is not None else None
        if row is None or row.state == "failed":
            seen = key
        elif ledger.lately(want) is None:
            ledger.note(row)
    return seen


def _remember(want: Claim, seen: str, base: Keeper, now: float) -> None:
    """Note the act for other runs.

    Raises:
        Again: Somebody else was quicker, in a transaction that we could not see.
    """
    given = (want.scope, want.fingerprint.hex(), want.key, now, now - want.repeat_window_s, seen)
    if not base.run(_SQL["remember"], given):
        raise Again


def _told(error: Exception) -> StoreUnavailable:
    """Return an error of one caller's own: two that share one would write into each other's traceback."""
    known = isinstance(error, StoreUnavailable | Refused)
    told = StoreUnavailable(str(error) if known else f"the store failed: {type(error).__name__}: {error}")
    told.__cause__ = error.__cause__ if known else error
    return told
