"""Rates and breakers that hold for all processes of a store: what one process knows of them.

The store counts, see `ports.LimitStore`. So that a call does not cost a commit where its rate is far away, a process
takes a few starts at once and gives them to its calls.

Rule 1: starts that were taken and not used within a second are void, so a process that was frozen meanwhile does not
        use them.
Rule 2: a breaker protects and decides nothing about a write: where the store does not answer, a process goes by what it
        has seen itself.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from functools import partial
from threading import Lock
from typing import TypeVar

from msgspec import Struct

from handrail.errors import Code, Failure, HandrailError
from handrail.futures import StoreAnswer
from handrail.ports import LimitStore
from handrail.records import BreakerState, Starts
from handrail.tools.rate_limits import (
    REST_S,
    Breaker,
    Rate,
    rate_failure,
    rest_failure,
)

T = TypeVar("T")
U = TypeVar("U")

SHARE_S = 1.0
"""How long a process may use starts that it has taken."""

SMALLEST_PART = 20
"""A process takes at most one of so many parts of a rate at once."""

LOOK_S = 1.0
"""How often a process that makes calls looks for breakers which others have opened."""

_MOST_SHARES = 10_000

_LONGEST_REST_S = REST_S + 10.0
"""What rests for longer was noted before the store's clock was set back: the store lets a call try it."""


class Share(Struct):
    """The starts of one bucket that a process has taken and not used.

    Attributes:
        left: How many, until `until`.
        taken: How many there were.
        size: How many are wanted the next time: twice as many where the last were used up in time.
        asked: When the store was asked for that many; it may not have answered yet.
    """

    left: int = 0
    until: float = float("-inf")
    taken: int = 0
    size: int = 1
    asked: float = float("-inf")

    def spend(self, now: float) -> bool:
        """Use a start; False where there is none."""
        if self.left < 1 or now > self.until:
            return False
        self.left -= 1
        return True

    def resize(self, most: int, now: float) -> None:
        """Choose how many starts to ask for, by what became of the last ones."""
        if self.taken and now <= self.until:
            self.size *= 2
        elif self.taken:
            self.size = self.taken - self.left
        self.size = max(1, min(self.size, most))
        self.asked = now

    def add(self, count: int) -> None:
        """Take what the store has given for `size`; one of them is used at once."""
        self.taken = count
        self.left = max(0, count - 1)
        self.until = self.asked + SHARE_S
        self.asked = float("-inf")


class SharedLimits:
    """The rates and breakers of a store, as one process sees them; it has the methods of `rate_limits.Limits`.

    Args:
        now: Monotonic seconds.
    """

    def __init__(self, store: LimitStore, now: Callable[[], float]) -> None:
        self.troubled: dict[str, Breaker] = {}
        """Tools whose last attempt failed, in any process, as far as this one knows."""
        self._store = store
        self._now = now
        self.reset()

    def reset(self) -> None:
        """Start without shares and with a free lock: in a fork, those of its parent stay the parent's."""
        self._shares: dict[str, Share] = {}
        self._looked = float("-inf")
        self._lock = Lock()

    def wait_s(
        self,
        tool: str,
        key: tuple[str, str],
        rate: Rate,
        *,
        now: float,
        most_s: float,
    ) -> StoreAnswer[float | Failure]:
        """See `Limits.wait_s`."""
        bucket = json.dumps([tool, *key])
        with self._lock:
            share = self._shares.pop(bucket, None) or Share()
            self._shares[bucket] = share  # the oldest comes first
            if len(self._shares) > _MOST_SHARES:
                del self._shares[next(iter(self._shares))]
            if share.spend(now):
                return 0.0
            leads = now - share.asked > SHARE_S  # else another call asks for the share
            if leads:
                share.resize(rate.starts // SMALLEST_PART, now)
            most = share.size if leads else 1

        def take(given: Starts) -> float | Failure:
            if leads:
                with self._lock:
                    share.add(given.count)
            if given.count:
                return given.wait_s
            return rate_failure(tool, key[1], rate, given.wait_s)

        ask = partial(
            self._store.take_starts,
            bucket,
            starts=rate.starts,
            seconds=rate.seconds,
            most=most,
            longest_s=most_s,
        )
        return _answer(ask, take, otherwise=uncounted(tool))

    def look(self) -> None:
        """Learn which tools other processes could not use, at most once a second; waits for nothing."""
        now = self._now()
        if now - self._looked < LOOK_S:
            return
        self._looked = now
        self._tell(self._store.list_breakers, partial(self._take_breakers, now))

    def rests(self, tool: str, now: float) -> StoreAnswer[Failure | None]:
        """See `Limits.rests`."""
        breaker = self.troubled.get(tool)
        if breaker is None or breaker.is_closed:
            return None
        if breaker.until > now:
            return rest_failure(tool, breaker.failures, breaker.until - now)
        failures = breaker.failures

        def take(rest_s: float) -> Failure | None:
            return rest_failure(tool, failures, rest_s) if rest_s > 0 else None

        ask = partial(self._store.try_tool, tool, within_s=REST_S)
        return _answer(ask, take, otherwise=None)

    def note_reached(self, tool: str) -> None:
        """See `Limits.note_reached`."""
        if self.troubled.pop(tool, None) is not None:
            self._tell(partial(self._store.note_reached, tool), _ignore)

    def note_failed(self, tool: str, most: int, now: float) -> None:
        """See `Limits.note_failed`."""
        # at once, for the next call of this process; the store's count follows
        self.troubled.setdefault(tool, Breaker()).note_failed(most, now)
        self._tell(
            partial(self._store.note_unreached, tool, most=most, rest_s=REST_S),
            partial(self._take_breaker, now),
        )

    # ------------------------------------------------------------------ what the store says

    def _take_breaker(self, asked: float, state: BreakerState) -> None:
        rests_until = float("-inf")
        if state.rest_s is not None:
            rest_s = state.rest_s if state.rest_s <= _LONGEST_REST_S else 0.0
            rests_until = asked + rest_s
        self.troubled[state.tool] = Breaker(state.failures, rests_until)

    def _take_breakers(self, asked: float, states: Sequence[BreakerState]) -> None:
        named = {state.tool for state in states}
        for tool in [*self.troubled]:
            if tool not in named:
                self.troubled.pop(tool, None)
        for state in states:
            self._take_breaker(asked, state)

    def _tell(
        self, ask: Callable[[], StoreAnswer[T]], take: Callable[[T], None]
    ) -> None:
        """Ask the store without waiting for it; where it does not answer, nothing is taken."""
        _answer(ask, take, otherwise=None)


def uncounted(tool: str) -> Failure:
    """Return the failure of a call whose rate the store has not counted."""
    return Failure(
        Code.UNAVAILABLE,
        f"How often `{tool}` may be started is not known now: the store does not answer.",
        "Go on without it, or try again later.",
        retryable=True,
    )


def _answer(
    ask: Callable[[], StoreAnswer[T]], take: Callable[[T], U], *, otherwise: U
) -> StoreAnswer[U]:
    """Ask the store, and return its answer with `take` applied; `otherwise` where it fails."""
    try:
        answer = ask()
    except HandrailError:
        return otherwise
    if not isinstance(answer, Future):
        return take(answer)
    taken: Future[U] = Future()
    taken.set_running_or_notify_cancel()  # nobody can cancel it: the store has been asked

    def complete(done: Future[T]) -> None:
        try:
            taken.set_result(take(done.result()))
        except HandrailError:
            taken.set_result(otherwise)
        except Exception as error:
            taken.set_exception(error)

    answer.add_done_callback(complete)
    return taken


def _ignore(_: object) -> None:
    """Take an answer that says nothing."""
