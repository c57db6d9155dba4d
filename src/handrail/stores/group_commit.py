"""A queue of requests, and the thread that carries them to a database in groups.

A group is whatever was asked for while the last one was being committed: a lone caller waits for nobody, and a hundred
callers share one wait for the disk. Only what nobody waits for may be held back for a moment, until a group is due. The
thread reads the rows that the group names, lets a `Ledger` decide for one caller after another, writes back what
changed, commits, and only then answers.

Rule 1: nobody is answered before the commit; a caller that gets StoreUnavailable holds no claim.
Rule 2: leases are counted by the database's clock, never by ours.
Rule 3: everything of a connection happens in its thread, which begins with the first request.
Rule 4: a fork carries out nothing that was asked of its parent; its first request opens the connection again.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Future
from contextlib import suppress
from threading import Condition, Lock, Thread, current_thread
from typing import Any, TypeVar

from msgspec import Struct

from handrail.effects import Claim
from handrail.errors import Fenced, HandrailError, StoreUnavailable
from handrail.futures import StoreFuture
from handrail.logs import log
from handrail.stores.database import (
    Connection,
    Refused,
    RetryGroup,
    SavedResult,
    Transaction,
    WriteName,
)
from handrail.stores.ledger import Ledger
from handrail.stores.requests import (
    GroupOperation,
    StoreRequest,
    answer_request,
    takes_locks,
    write_name,
)
from handrail.stores.sql_values import encode_name, row_from
from handrail.surroundings.clock import monotonic
from handrail.workers import fork_safety

T = TypeVar("T")

MAX_GROUP_REQUESTS = 512

CLOSE_S = 15.0
"""How long closing waits for a database that carries nothing out: longer than a lock or a new connection may take."""

GATHER_S = 0.002
"""How long a request that nobody waits for is delayed. A write's settlement, records and result come within it and
share a commit."""

# A decision is made again when another process was quicker; each time somebody has got on, so this is never reached.
MAX_DECISIONS = 100

MAX_JOB_RUNS = 3
"""How often a job is run before its caller gets the error: as often as a lock is waited for."""


class _Queued(Struct, eq=False, gc=False):
    """A request, or a job that needs the connection for itself; and the future of its answer."""

    request: StoreRequest | Callable[[Any], Any]
    answer: StoreFuture[Any]


class _SharedRequest(Struct, eq=False, gc=False):
    """One request for all who want the same thing done: their arguments, and the answer to all of them."""

    arguments: list[Any]
    answer: StoreFuture[Any]


class _LaterJob(Struct, eq=False):
    """A job that has the connection for itself once it is due or the store is closed; its argument says which."""

    run: Callable[[Any, bool], None]
    due: float


class Writer:
    """The queue, and the thread behind it."""

    def __init__(self, connection: Connection, name: str) -> None:
        self._connection = connection
        self._process = os.getpid()
        """The process that has opened the connection."""
        self._name = name
        self._rounds = 0
        """How many groups were carried out: whoever closes sees that the database still answers."""
        self._foresees = connection.foresee() is not None
        self._is_open = True
        fork_safety.reset_after_fork(self._reset)

    def _reset(self) -> None:
        self._queue: deque[_Queued] = deque()
        self._shared: dict[Callable[..., Any], _SharedRequest] = {}
        self._later: _LaterJob | None = None
        self._held_until: float | None = None
        """When the queue is to be carried out where nothing in it is urgent; None is at once."""
        self._held_for_s = 0.0
        """For how long the request may be delayed that has set that time."""
        self._lock = Lock()
        self._change = Condition(self._lock)
        self._thread: Thread | None = None

    def reopen(self) -> None:
        """See `ports.ConnectedStore.reopen`."""
        with self._lock:
            if self._is_open and self._thread is None:
                self._start()

    def _start(self) -> None:
        """Start the thread; in a fork, on a connection of its own."""
        if os.getpid() != self._process:
            self._connection.reopen()
            self._process = os.getpid()
        thread = Thread(
            target=self._run, name=f"handrail store {self._name}", daemon=True
        )
        try:
            thread.start()
        except RuntimeError as error:
            raise error_for_caller(error) from error
        self._thread = thread

    def submit(
        self,
        request: StoreRequest | Callable[[Any], T],
        *,
        within_s: float = 0.0,
        is_final: bool = False,
    ) -> Future[Any]:
        """Put a request in the queue, or a job that has the connection for itself.

        Args:
            within_s: How long it may be delayed so that others join its group. An urgent request, or closing the
                store, commits it at once.
            is_final: Nobody can cancel it.

        Raises:
            StoreUnavailable: The store is closed, or cannot be opened again in this fork now.
            SetupError: It cannot be opened again in this fork.
        """
        answer: StoreFuture[Any] = StoreFuture(is_running=is_final)
        with self._lock:
            self._enqueue(_Queued(request, answer), within_s)
        return answer

    def submit_shared(
        self,
        operation: Callable[..., Any],
        arguments: Iterable[Any],
        *,
        within_s: float = 0.0,
    ) -> Future[Any]:
        """Put an operation in the queue whose answer is the same for all callers: one list, one future, one wake-up.

        Nobody can cancel it: other callers share it.

        Args:
            within_s: As `submit`.

        Raises:
            StoreUnavailable, SetupError: As `submit`.
        """
        with self._lock:
            shared = self._shared.get(operation)
            if shared is None:
                shared = _SharedRequest([], StoreFuture(is_running=True))
                request = GroupOperation(operation, shared.arguments)
                self._enqueue(_Queued(request, shared.answer), within_s)
                self._shared[operation] = shared
            elif within_s < self._held_for_s:
                self._hurry(within_s)
            shared.arguments.extend(arguments)
        return shared.answer

    def hurry(self) -> None:
        """Carry out what is held back now."""
        with self._lock:
            self._hurry(0.0)

    def run_later(self, job: Callable[[Any, bool], None], *, within_s: float) -> None:
        """Run a job within some seconds, and in any case before the connection is closed; one that waits already stays.

        Args:
            job: Takes the connection, which it has for itself, and whether the store is being closed. Its errors are
                dropped.
        """
        with self._lock:
            if self._later is None:
                self._later = _LaterJob(job, monotonic() + within_s)
                self._change.notify()

    def _enqueue(self, queued: _Queued, within_s: float = 0.0) -> None:
        if not self._is_open:
            raise StoreUnavailable("the store is closed")
        if self._thread is None:
            self._start()
        queue = self._queue
        queue.append(queued)
        if within_s < self._held_for_s and len(queue) > 1:
            self._hurry(within_s)
        elif len(queue) == 1:
            self._held_until = monotonic() + within_s if within_s else None
            self._held_for_s = within_s
            self._change.notify()

    def _hurry(self, within_s: float) -> None:
        """Carry out the queue after at most `within_s`; 0 is at once."""
        until = self._held_until
        if until is None:
            return
        if not within_s:
            self._held_until = None
            self._held_for_s = 0.0
            self._change.notify()
        elif (sooner := monotonic() + within_s) < until:
            self._held_until = sooner
            self._held_for_s = within_s
            self._change.notify()

    def close(self) -> bool:
        """Carry out the queued requests, then end.

        A database that carries nothing out for `CLOSE_S` is given up: what is queued fails with StoreUnavailable, what
        is under way may still be carried out, and a warning says so.

        Returns:
            Whether the database answered.
        """
        with self._lock:
            was_open = self._is_open
            self._is_open = False
            thread = self._thread
            self._change.notify()
        if thread is None:
            if was_open and os.getpid() == self._process:
                self._connection.close()
            return True
        if thread is current_thread():
            return True
        rounds = -1
        while thread.is_alive() and rounds != self._rounds:
            rounds = self._rounds
            thread.join(CLOSE_S)
        if not thread.is_alive():
            return True
        self._give_up()
        return False

    def _give_up(self) -> None:
        """Refuse what is queued, since the database does not answer."""
        with self._lock:
            left = [each for each in self._queue if each.answer.start()]
            self._queue.clear()
        log.warning(
            "%s was closed though its database had not answered for %g s: %d requests were not carried out, and "
            "nobody knows whether those under way were",
            self._name,
            CLOSE_S,
            len(left),
        )
        for each in left:
            each.answer.set_exception(
                StoreUnavailable(
                    "the store was closed while its database did not answer; this was not carried out"
                )
            )

    def _run(self) -> None:
        while (first := self._wait_for_first()) is not None or self._later is not None:
            self._run_due_job()
            self._rounds += 1
            if first is None:
                continue
            # Requests that arrive before BEGIN returns join this group. One that is sent as a whole needs none.
            start: float | Exception | None = None
            if not callable(first.request) and not self._foresees:
                start = _begin(self._connection)
            requests: list[_Queued] = []
            jobs: list[tuple[Callable[[Any], Any], Future[Any]]] = []
            for each in self._take_group():
                if not each.answer.start():
                    continue
                if callable(each.request):
                    jobs.append((each.request, each.answer))
                else:
                    requests.append(each)
            if requests:
                _run_group(self._connection, requests, start)
            elif start is not None:
                self._connection.rollback()  # every caller has cancelled
            for job, answer in jobs:
                run_job(self._connection, job, answer)
        self._connection.close()

    def _wait_for_first(self) -> _Queued | None:
        """Wait for a request and return it, still in the queue; None once the store is closed or a later job is due."""
        with self._lock:
            while self._is_open:
                due = self._next_due()
                left_s = None if due is None else due - monotonic()
                if left_s is not None and left_s <= 0:
                    break
                self._change.wait(left_s)
            return self._queue[0] if self._queue else None

    def _next_due(self) -> float | None:
        """Return when the next group or job is due; None if nothing waits."""
        times = []
        if self._queue:
            times.append(self._held_until or 0.0)
        if self._later is not None:
            times.append(self._later.due)
        return min(times, default=None)

    def _run_due_job(self) -> None:
        with self._lock:
            is_closing = not self._is_open and not self._queue
            job = self._later
            if job is None or not (is_closing or job.due <= monotonic()):
                return
            self._later = None
        with suppress(Exception):
            job.run(self._connection, is_closing)

    def _take_group(self) -> list[_Queued]:
        with self._lock:
            self._shared.clear()  # later shared requests belong to the next group
            self._held_until = None
            self._held_for_s = 0.0
            count = min(len(self._queue), MAX_GROUP_REQUESTS)
            return [self._queue.popleft() for _ in range(count)]


# ---------------------------------------------------------------------- in the thread


def _begin(connection: Connection) -> float | Exception:
    """Begin a transaction; return its time, or the error, which is raised to the callers of the group."""
    try:
        return connection.begin()
    except Exception as error:
        return error


def _run_group(
    connection: Connection, group: list[_Queued], start: float | Exception | None = None
) -> None:
    """Carry out requests in one transaction, and answer them."""
    try:
        answers = _commit_group(connection, [each.request for each in group], start)
    except (Refused, UnicodeError) as refused:
        if len(group) == 1:
            group[0].answer.set_exception(error_for_caller(refused))
        else:
            # one request is at fault; commit the others without it
            for each in group:
                _run_group(connection, [each])
    except Exception as error:  # whatever it is: nobody may wait for ever
        for each in group:
            each.answer.set_exception(error_for_caller(error))
    else:
        for each, answer in zip(group, answers, strict=True):
            if isinstance(answer, HandrailError):
                each.answer.set_exception(answer)
            else:
                each.answer.set_result(answer)


def _commit_group(
    connection: Connection, requests: Sequence[Any], start: float | Exception | None
) -> list[Any]:
    """Decide and commit requests in one transaction; decide again while other processes are quicker.

    Args:
        start: The time of a transaction that is open already, or the error of opening it.
    """
    connection.forget_waits()
    if start is None:
        answers = _commit_foreseen(connection, requests)
        if answers is not None:
            return answers
    for _ in range(MAX_DECISIONS):
        try:
            if isinstance(start, Exception):
                raise start
            now = connection.begin() if start is None else start
            start = None  # only the first attempt uses it
            return _decide_and_commit(connection, requests, now)
        except RetryGroup:
            start = None
            connection.rollback()
        except BaseException:
            connection.rollback()
            raise
    raise Refused(
        f"other processes were quicker {MAX_DECISIONS} times; nothing was claimed"
    )


def _commit_foreseen(
    connection: Connection, requests: Sequence[Any]
) -> list[Any] | None:
    """Decide on what the database is expected to hold, and commit; return None if that was not possible."""
    transaction = connection.foresee()
    if transaction is None:
        return None
    try:
        return _decide_and_commit(transaction, requests, transaction.begin())
    except RetryGroup:
        return None


def _decide_and_commit(
    connection: Transaction, requests: Sequence[Any], now: float
) -> list[Any]:
    """Answer requests within the transaction, and end it: by a commit where anything changed.

    Entries of journals come before claims: a run that was taken over claims nothing.
    """
    names: list[WriteName] = []
    operations: dict[Callable[..., Any], list[int]] = {}
    for position, request in enumerate(requests):
        if type(request) is GroupOperation:
            operations.setdefault(request.run, []).append(position)
        elif type(request) is not SavedResult:
            names.append(write_name(request))
    rows = connection.rows(names) if names else ()
    try:
        ledger = Ledger(map(row_from, rows), connection.restored)
        answers = _decide(connection, ledger, requests, operations, now)
    except (StoreUnavailable, RetryGroup, Refused):
        raise
    except Exception as error:
        # Nothing is committed yet. A row that cannot be read fails only the request that needs it.
        raise Refused(_describe_failure(error)) from error
    _end_transaction(connection, ledger, requests, has_operations=bool(operations))
    return answers


def _decide(
    connection: Transaction,
    ledger: Ledger,
    requests: Sequence[Any],
    operations: Mapping[Callable[..., Any], Sequence[int]],
    now: float,
) -> list[Any]:
    """Run the operations of a group, then answer its other requests.

    Args:
        operations: The positions of the requests that each of them answers.
    """
    answers: list[Any] = [None] * len(requests)
    fenced: set[tuple[str, int]] = set()
    for run, positions in operations.items():
        arguments = [requests[position].argument for position in positions]
        for position, argument, answer in zip(
            positions, arguments, run(connection, now, arguments), strict=True
        ):
            answers[position] = answer
            if isinstance(answer, Fenced) and argument is not None:
                fenced.add((argument.run_id, argument.epoch))
    for position, request in enumerate(requests):
        if type(request) is GroupOperation:
            continue
        if fenced and type(request) is Claim and _is_fenced(request, fenced):
            answers[position] = Fenced(
                f"the run {request.run_id!r} has been taken over"
            )
        else:
            answers[position] = answer_request(request, ledger, connection, now)
    return answers


def _is_fenced(claim: Claim, fenced: set[tuple[str, int]]) -> bool:
    """Whether a claim came with a journal entry of its run that was refused."""
    return (encode_name(claim.run_id), claim.epoch) in fenced


def _end_transaction(
    connection: Transaction,
    ledger: Ledger,
    requests: Sequence[StoreRequest],
    *,
    has_operations: bool,
) -> None:
    """Write what changed and commit; roll back where nothing did."""
    changed = [row for row in ledger.rows.values() if row.changed]
    results = [each for each in requests if isinstance(each, SavedResult)]
    if not (changed or results or has_operations or any(map(takes_locks, requests))):
        connection.rollback()
        return
    new = [row for row in changed if not row.stored]
    old = [row for row in changed if row.stored]
    connection.write(new, old, results)
    connection.commit()


def run_job(
    connection: Connection, job: Callable[[Any], Any], answer: Future[Any]
) -> None:
    """Run a job on a connection and answer it."""
    connection.forget_waits()
    try:
        result = _run_until_decided(connection, job)
    except Exception as error:
        answer.set_exception(error_for_caller(error))
    else:
        answer.set_result(result)


def _run_until_decided(connection: Connection, job: Callable[[Any], T]) -> T:
    """Run a job, once more on each new connection, and after each wait for a lock."""
    for _ in range(MAX_JOB_RUNS - 1):
        with suppress(RetryGroup):
            return job(connection)
    return job(connection)


def error_for_caller(error: Exception) -> StoreUnavailable:
    """Return an error of one caller's own: two callers that share one would write into each other's traceback."""
    if isinstance(error, StoreUnavailable | Refused):
        copy = StoreUnavailable(str(error))
        copy.__cause__ = error.__cause__
        return copy
    wrapped = StoreUnavailable(_describe_failure(error))
    wrapped.__cause__ = error
    return wrapped


def _describe_failure(error: Exception) -> str:
    return f"the store failed: {type(error).__name__}: {error}"
