"""Breaks one rule of handrail after the other, and looks whether the worlds show it: `python -m tests.prove.mutants`.

A search that stays silent about a broken rule is blind. Each mutant patches functions from outside and is undone.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from time import perf_counter
from typing import Any
from unittest.mock import patch

from msgspec.structs import replace

from handrail import records
from handrail.core import execution, retries, writes
from handrail.effects import Claim, Claimed, ClaimState, NotFound, Unknown
from handrail.stores import ledger
from handrail.stores.ledger import Ledger
from handrail.stores.memory import MemoryStore
from handrail.stores.memory_runs import FullMemoryStore
from tests.prove import kept
from tests.prove.__main__ import quieten
from tests.prove.search import Violation, explore

MOST_S = 20.0


@dataclass(frozen=True)
class Mutant:
    """A rule that is broken, and the scenarios of which one must show it."""

    rule: str
    owner: Any
    name: str
    mutate: Callable[[Any], Any]
    """Takes the function, returns the broken one."""
    scenarios: Sequence[str]

    @contextmanager
    def applied(self) -> Iterator[None]:
        with patch.object(
            self.owner, self.name, self.mutate(getattr(self.owner, self.name))
        ):
            yield


def _never(answer: Any) -> Callable[[Any], Callable[..., Any]]:
    return lambda _: lambda *_, **__: answer


def _forget_the_claim(claim: Any) -> Any:
    def answer(self: Ledger, asked: Claim, *more: Any) -> Claimed:
        claimed: Claimed = claim(self, asked, *more)
        if claimed.state is ClaimState.FRESH:
            row = self.rows[asked.scope, asked.key]
            self.forget(row)  # as if the tool started before it was stored
        return claimed

    return answer


def _settle_any(settle: Any) -> Any:
    def answer(self: Ledger, asked: Any) -> bool:
        row = self.rows.get((asked.scope, asked.key))
        if row is None:
            return False
        row.state, row.value = asked.state, asked.value
        return True

    return answer


def _settle_as(state: str) -> Callable[[Any], Any]:
    return lambda settle: lambda self, asked: settle(self, replace(asked, state=state))


def _take_over_as(state: ClaimState) -> Callable[[Any], Any]:
    def mutate(take_over: Any) -> Any:
        def answer(row: Any, *more: Any) -> Claimed:
            claimed: Claimed = take_over(row, *more)
            return replace(claimed, state=state)

        return answer

    return mutate


def _forget_what_is_done(answer: Any) -> Any:
    def mutated(self: Ledger, row: Any, claim: Claim, now: float) -> Any:
        if row is not None and row.state == "done":
            return None
        return answer(self, row, claim, now)

    return mutated


def _lose_the_value(answer: Any) -> Any:
    def mutated(self: Ledger, row: Any, claim: Claim, now: float) -> Any:
        claimed = answer(self, row, claim, now)
        if claimed is not None and claimed.state is ClaimState.DONE:
            return replace(claimed, value=None)
        return claimed

    return mutated


def _answer_other_arguments(answer: Any) -> Any:
    def mutated(self: Ledger, row: Any, claim: Claim, now: float) -> Any:
        if row is not None and row.state == "done":
            return Claimed(ClaimState.DONE, row.fence, row.value)
        return answer(self, row, claim, now)

    return mutated


def _ignore_the_epoch(append: Any) -> Any:
    def mutated(self: FullMemoryStore, entry: Any) -> bool:
        record = self._runs[entry.run_id]
        self._runs[entry.run_id] = replace(record, epoch=entry.epoch)
        answer: bool = append(self, entry)
        return answer

    return mutated


def _take_every_word_for_a_yes(apply: Any) -> Any:
    def mutated(
        call: Any, approval: Any, *more: Any, **named: Any
    ) -> Generator[Any, Any, Any]:
        if approval is not None:
            approval = replace(approval, granted=True, expired=False)
        return (yield from apply(call, approval, *more, **named))

    return mutated


def _take_unknown_for_no(verify: Any) -> Any:
    def mutated(*arguments: Any) -> Generator[Any, Any, Any]:
        happened = yield from verify(*arguments)
        return NotFound() if isinstance(happened, Unknown) else happened

    return mutated


def _say_without_effect(diagnose: Any) -> Any:
    def mutated(*arguments: Any, **named: Any) -> Any:
        return replace(diagnose(*arguments, **named), no_effect=True)

    return mutated


def _count_anybody(_: Any) -> Any:
    return lambda by, question: "again" if by in question.agreed else ""


MUTANTS = [
    Mutant(
        "a claim is stored before the tool starts",
        Ledger,
        "claim",
        _forget_the_claim,
        ["write key"],
    ),
    Mutant(
        "a settlement names its fence",
        Ledger,
        "settle",
        _settle_any,
        ["taken over, replayed", "taken over, verified"],
    ),
    Mutant(
        "what is done is settled as done",
        Ledger,
        "settle",
        _settle_as("failed"),
        ["write", "two runs, one key"],
    ),
    Mutant(
        "an approval is used up",
        MemoryStore,
        "_use_approval",
        _never(None),
        ["write approve x1 repeatable"],
    ),
    Mutant(
        "the same write in one run is a repeat",
        Ledger,
        "_find_repeated",
        _never(None),
        ["write on_repeat=ask"],
    ),
    Mutant(
        "an older epoch adds nothing to a run",
        FullMemoryStore,
        "append_entry",
        _ignore_the_epoch,
        ["taken over", "taken over, key"],
    ),
    Mutant(
        "a lease is waited for",
        ledger.Row,
        "is_leased",
        _never(False),
        ["two runs, one key"],
    ),
    Mutant(
        "a request of a dead process is waited for",
        ledger,
        "_left_s",
        _never(0.0),
        ["a process dies and its request arrives late, verified"],
    ),
    Mutant(
        "an open claim is answered",
        ledger,
        "_answer_open",
        _never(None),
        ["two runs, one key, verified", "two runs, one key"],
    ),
    Mutant(
        "a write that may have happened is in doubt",
        retries,
        "diagnose",
        _say_without_effect,
        ["write"],
    ),
    Mutant(
        "a takeover verifies first",
        ledger,
        "_take_over",
        _take_over_as(ClaimState.FRESH),
        ["write verify"],
    ),
    Mutant(
        "a key that is done is not done again",
        Ledger,
        "_answer",
        _forget_what_is_done,
        ["two runs, one key", "write key"],
    ),
    Mutant(
        "the first result is repeated",
        Ledger,
        "_answer",
        _lose_the_value,
        ["two runs, one key"],
    ),
    Mutant(
        "a key with other arguments is refused",
        Ledger,
        "_answer",
        _answer_other_arguments,
        ["two runs, one key, other amounts"],
    ),
    Mutant(
        "a No is a No",
        execution,
        "apply_approval",
        _take_every_word_for_a_yes,
        ["write approve x1"],
    ),
    Mutant(
        "a No to a repetition is a No",
        writes,
        "apply_approval",
        _take_every_word_for_a_yes,
        ["write on_repeat=ask", "done again in doubt"],
    ),
    Mutant(
        "who asks is no second person",
        records,
        "not_counted",
        _count_anybody,
        ["two must agree, alice asks, resumed by 'alice'"],
    ),
    Mutant(
        "`verify` that cannot tell proves nothing",
        writes,
        "_verify",
        _take_unknown_for_no,
        ["write verify"],
    ),
]  # fmt: skip


def find(mutant: Mutant) -> tuple[Violation | None, int]:
    """Return what shows a mutant, with the fewest disturbances, and how many worlds were looked at."""
    worlds = 0
    scenarios = kept.all_scenarios()
    for most in (0, 1, 2):
        for name in mutant.scenarios:
            known = explore(scenarios[name], most, most_s=MOST_S).found
            with mutant.applied():
                report = explore(
                    scenarios[name], most, most_s=MOST_S, stop_at=1 + len(known)
                )
            worlds += report.worlds
            for kind, violation in report.found.items():
                if kind not in known:
                    return violation, worlds
    return None, worlds


def main(only: Sequence[str]) -> int:
    """Print which mutants are found; return 1 if any is not."""
    quieten()
    missed = 0
    for mutant in MUTANTS:
        if only and not any(each in mutant.rule for each in only):
            continue
        began = perf_counter()
        violation, worlds = find(mutant)
        missed += violation is None
        shown = "NOT FOUND"
        if violation is not None:
            cost = f"{violation.cost} disturbances"
            shown = f"found by {violation.scenario!r}, {cost}: {violation.words}"
        print(
            f"{mutant.rule:48} {shown} [{worlds} worlds, {perf_counter() - began:.1f} s]",
            flush=True,
        )
    print(f"{len(MUTANTS) - missed} of {len(MUTANTS)} mutants are found")
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
