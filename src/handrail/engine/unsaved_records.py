"""Records that a store could not save: this process holds them, and offers them again until the store has answered.

They are outcomes of writes that ended while the store was unreachable or its disk full, and the last entries of runs
that this process left. Until the store has them, a repeated call of such a write in this process is answered from here.

Rule 1: only records that may be sent twice are held: a settlement names its fence, an entry its epoch. A store that has
        the record already, or has given the write or the run to another process, changes nothing.
Rule 2: no caller waits here: a thread offers the records again, and ends when none is left. It runs a generator that
        yields what it waits for, so that a simulation needs no thread; see `spawn`.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from concurrent.futures import Future
from contextlib import suppress
from threading import Condition, Thread
from typing import Any, TypeAlias, TypeVar

from msgspec import Struct

from handrail import logs
from handrail.effects import Claim, Claimed, ClaimState, Settle
from handrail.errors import Fenced
from handrail.futures import StoreAnswer, result_now
from handrail.ports import LedgerStore, LookUpStore, RunStore, Store
from handrail.records import JournalEntry
from handrail.surroundings.clock import monotonic
from handrail.workers import fork_safety

T = TypeVar("T")

FIRST_WAIT_S = 0.1
LONGEST_WAIT_S = 30.0
"""How long to wait before records are offered again: doubling."""

MOST_UNSAVED = 10_000
LONGEST_HELD_S = 24 * 3600.0
"""Beyond either limit a record is given up: its write is in doubt, as after a crash; its run stays this process's."""

Steps: TypeAlias = "Generator[float | Future[Any], None, None]"
"""Work that yields what it waits for before it goes on: seconds, or an answer of the store, of whatever kind."""


class _Unsaved(Struct, eq=False):
    """One settlement or entry; of a settlement also its claim, and whom to tell when somebody else has the write."""

    record: Settle | JournalEntry
    until: float
    claim: Claim | None = None
    refused: Callable[[], Any] | None = None

    @property
    def name(self) -> tuple[str | int, ...]:
        record = self.record
        if isinstance(record, JournalEntry):
            return record.run_id, record.epoch
        return record.scope, record.key, record.fence


class UnsavedRecords:
    """The records that one store has not saved yet. Safe for threads.

    Args:
        runs: The same store, where it stores runs.
    """

    def __init__(self, store: Store, runs: RunStore | None) -> None:
        self._store = store
        self._runs = runs
        fork_safety.reset_after_fork(self.reset)

    def reset(self) -> None:
        """See `fork_safety.reset_after_fork`: the records belong to the process that made them."""
        self._unsaved: dict[tuple[str | int, ...], _Unsaved] = {}
        self._change = Condition()
        self._is_offering = False
        self._open = True

    @property
    def is_empty(self) -> bool:
        """Whether the store has saved everything."""
        return not self._unsaved

    def enter(self, entry: JournalEntry) -> None:
        """Record the last entry of a run that ended here, now or as soon as the store takes it."""
        unsaved = _Unsaved(entry, monotonic() + LONGEST_HELD_S)
        try:
            answer = self._ask(unsaved)
        except Exception as error:
            self._note_answer(unsaved, error)
            return
        if isinstance(answer, Future):
            answer.add_done_callback(
                lambda done: self._note_answer(unsaved, done.exception())
            )

    def _note_answer(self, unsaved: _Unsaved, error: BaseException | None) -> None:
        """Hold an entry that the store has not saved; the entry of a run that goes on elsewhere is refused for good."""
        if error is not None and not isinstance(error, Fenced):
            self._hold(unsaved)

    def settle(self, settle: Settle, claim: Claim, refused: Callable[[], Any]) -> None:
        """Record how a write ended as soon as the store takes it.

        Args:
            refused: Called if the store refuses it, because another process has the write or has settled it.
        """
        logs.log.warning(
            "how %s ended could not be recorded; the store is asked again until it answers (key %s)",
            claim.tool,
            settle.key,
        )
        self._hold(_Unsaved(settle, monotonic() + LONGEST_HELD_S, claim, refused))

    def claim(self, claim: Claim) -> StoreAnswer[Claimed]:
        """Claim a write, or answer with its end if that is here and not yet in the store."""
        return self._find_end(claim) or self._store.claim(claim)

    def look_up(self, store: LookUpStore, claim: Claim) -> StoreAnswer[Claimed | None]:
        """Return the state of a write without claiming it."""
        return self._find_end(claim) or store.look_up(claim)

    def _find_end(self, claim: Claim) -> Claimed | None:
        if not self._unsaved:
            return None
        for unsaved in self._select(
            lambda unsaved: (
                unsaved.claim is not None and _is_same_act(unsaved.claim, claim)
            )
        ):
            # the store answers in order: it knows the end before it is asked for the claim
            self._offer(unsaved)
            settle = unsaved.record
            earlier = unsaved.claim
            assert isinstance(settle, Settle) and earlier is not None
            if settle.state == "done" and earlier.fingerprint == claim.fingerprint:
                return Claimed(
                    ClaimState.DONE,
                    settle.fence,
                    settle.value,
                    repeated=earlier.key != claim.key,
                )
        return None

    def offer(self, run_id: str) -> None:
        """Offer the last entry of a run before it is resumed."""
        if self._unsaved:
            for unsaved in self._select(
                lambda unsaved: (
                    isinstance(unsaved.record, JournalEntry)
                    and unsaved.record.run_id == run_id
                )
            ):
                self._offer(unsaved)

    def __len__(self) -> int:
        return len(self._unsaved)

    def close(self) -> None:
        """Offer everything once more, and hold nothing from now on."""
        with self._change:
            self._open = False
            self._change.notify()
        for unsaved in self._select(lambda _: True):
            self._offer(unsaved)

    def _select(self, is_wanted: Callable[[_Unsaved], bool]) -> list[_Unsaved]:
        with self._change:
            return [unsaved for unsaved in self._unsaved.values() if is_wanted(unsaved)]

    def _hold(self, unsaved: _Unsaved) -> None:
        with self._change:
            if not self._open:
                return
            self._unsaved[unsaved.name] = unsaved
            if len(self._unsaved) > MOST_UNSAVED:
                _give_up(self._unsaved.pop(next(iter(self._unsaved))))
            if not self._is_offering:
                # without a thread the next record tries again
                with suppress(RuntimeError):
                    spawn(self)
                    self._is_offering = True

    def _ask(self, unsaved: _Unsaved) -> StoreAnswer[Any]:
        if isinstance(unsaved.record, Settle):
            return self._store.settle(unsaved.record)
        assert self._runs is not None
        return self._runs.append_entry(unsaved.record)

    def _offer(self, unsaved: _Unsaved) -> None:
        """Offer something without waiting for the answer; the thread asks again."""
        with suppress(Exception):
            self._ask(unsaved)

    # ------------------------------------------------------------------ beside all callers

    def run(self) -> None:
        """Offer the records again until the store has them all or this is closed, in the calling thread."""
        for waits_for in self.offer_until_saved():
            if isinstance(waits_for, Future):
                with suppress(Exception):
                    result_now(waits_for)
            else:
                with self._change:
                    self._change.wait_for(lambda: not self._open, waits_for)

    def offer_until_saved(self) -> Steps:
        """Offer the records again until the store has them all or this is closed."""
        wait_s = 0.0
        while True:
            yield wait_s
            with self._change:
                if not self._unsaved or not self._open:
                    self._is_offering = False
                    return
                everything = list(self._unsaved.values())
            wait_s = min(max(2 * wait_s, FIRST_WAIT_S), LONGEST_WAIT_S)
            for unsaved in everything:
                if not (yield from self._is_over(unsaved)):
                    break  # the next one would not be taken either
            else:
                wait_s = FIRST_WAIT_S

    def _is_over(self, unsaved: _Unsaved) -> Generator[Future[Any], None, bool]:
        """Offer a record; return whether it is dealt with. One that the store could not take moves to the end."""
        over = True
        try:
            if (
                (yield from _await_answer(self._ask(unsaved))) is False
                and (yield from self._was_refused(unsaved))
                and unsaved.refused is not None
            ):
                unsaved.refused()
        except Fenced:
            pass  # the run goes on elsewhere
        except Exception:  # whatever a store raises, it did not answer
            if over := unsaved.until < monotonic():
                _give_up(unsaved)
        with self._change:
            if self._unsaved.get(unsaved.name) is unsaved:
                del self._unsaved[unsaved.name]
                if not over:
                    self._unsaved[unsaved.name] = unsaved
        return over

    def _was_refused(self, unsaved: _Unsaved) -> Generator[Future[Any], None, bool]:
        """Whether the ledger has another end. If only the store's answer was lost, it has the same."""
        settle = unsaved.record
        ledger = self._store
        if not isinstance(settle, Settle) or not isinstance(ledger, LedgerStore):
            return False
        write = yield from _await_answer(ledger.load_write(settle.scope, settle.key))
        return write is None or (write.fence, write.state) != (
            settle.fence,
            settle.state,
        )


def _start_thread(records: UnsavedRecords) -> None:
    Thread(target=records.run, name="handrail unrecorded", daemon=True).start()


spawn: Callable[[UnsavedRecords], None] = _start_thread
"""Starts `run` beside all callers. A simulation takes the steps of `offer_until_saved` on its own event loop."""


def _await_answer(answer: StoreAnswer[T]) -> Generator[Future[Any], None, T]:
    if isinstance(answer, Future):
        yield answer
    return result_now(answer)


def _is_same_act(earlier: Claim, claim: Claim) -> bool:
    """Whether two claims are for the same write, by their keys or, within a run, by their fingerprints."""
    if earlier.scope != claim.scope:
        return False
    in_run = claim.guard and bool(claim.run_id) and earlier.run_id == claim.run_id
    return earlier.key == claim.key or (
        in_run and earlier.fingerprint == claim.fingerprint
    )


def _give_up(unsaved: _Unsaved) -> None:
    record = unsaved.record
    name = (
        f"run {record.run_id}"
        if isinstance(record, JournalEntry)
        else f"the write {record.key}"
    )
    logs.log.error(
        "the end of %s could not be recorded, and is not offered to the store any more",
        name,
    )
