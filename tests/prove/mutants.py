"""Breaks one rule of handrail after the other, and looks whether the worlds show it: `python -m tests.prove.mutants`.

A search that stays silent about a broken rule is blind. A mutant is a function of handrail that is compiled with one
piece of its text changed, and put in its place while the worlds are looked at; no file is changed.
"""

from __future__ import annotations

import argparse
import inspect
import sys
import textwrap
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from time import process_time
from typing import Any
from unittest.mock import patch

from handrail import records
from handrail.core import deferred, execution, retries, writes
from handrail.core.batch import Batch
from handrail.engine import resume
from handrail.engine.executor import BatchExecutor
from handrail.engine.leases import Lease
from handrail.stores import ledger
from handrail.stores.ledger import Ledger
from handrail.stores.memory_runs import FullMemoryStore
from tests.prove import kept
from tests.prove.__main__ import quieten
from tests.prove.search import Violation, explore

MOST_S = 30.0


@dataclass(frozen=True)
class Mutant:
    """A rule that is broken.

    Attributes:
        owner: The module or class that has the function.
        changes: Pieces of its text, each with what stands there instead.
        scenarios: Those of which one must show it.
    """

    rule: str
    owner: Any
    name: str
    changes: Sequence[tuple[str, str]]
    scenarios: Sequence[str]

    @contextmanager
    def applied(self) -> Iterator[None]:
        """Put the broken function in the place of the right one, also where that was imported."""
        right = getattr(self.owner, self.name)
        broken = self._compile()
        users = [
            each
            for each in sys.modules.values()
            if getattr(each, "__dict__", {}).get(self.name) is right
        ]
        with ExitStack() as stack:
            for owner in {id(each): each for each in (self.owner, *users)}.values():
                stack.enter_context(patch.object(owner, self.name, broken))
            yield

    def _compile(self) -> Any:
        function = getattr(self.owner, self.name)
        text = textwrap.dedent(inspect.getsource(function))
        for old, new in self.changes:
            assert old in text, f"{self.name} no longer says: {old}"
            text = text.replace(old, new)
        names: dict[str, Any] = {}
        exec(compile(text, f"<{self.name}, broken>", "exec"), function.__globals__, names)  # fmt: skip
        return names[self.name]


MUTANTS = [
    # what was broken once
    Mutant(
        "a later attempt does not cover a doubt", writes, "_attempt_write",
        [
            ("was_doubtful or not diagnosis.no_effect", "not diagnosis.no_effect"),
            ("doubtful=was_doubtful", "doubtful=False"),
        ],
        ["write replay=key"],
    ),
    Mutant(
        "who asks keeps being who asks, whoever resumes", resume, "open_stored_run",
        [("principal=asked.principal", "principal=engine.principal if principal is None else principal")],
        ["two must agree, alice asks, resumed by 'bob'"],
    ),
    Mutant(
        "no result is asked for of a write that others have given up", Ledger, "await_result",
        [("return False", "return True")],
        ["taken over, deferred"],
    ),
    Mutant(
        "an owner who was replaced takes nothing back", Ledger, "_answer",
        [("0 < claim.epoch < row.epoch", "False")],
        ["taken over, key"],
    ),
    Mutant(
        "a result that is there is read by another run", deferred, "ask_for_result",
        [("name_write(claim.scope, claim.key, fence)", '""')],
        ["two runs, one key, deferred"],
    ),
    Mutant(
        "what is delivered after a crash is used", writes, "_perform",
        [(
            "case ClaimState.STARTED:",
            "case ClaimState.STARTED:\n            return CallOutcome(held.call, failure=retries.in_doubt('')), None\n"
            "        case _ if False:",
        )],
        ["write deferred"],
    ),
    Mutant(
        "a started write is never refused", deferred, "read_delivery",
        [("if call.traits.writes:", "if False:")],
        ["write deferred"],
    ),
    Mutant(
        "what was started is asked for before today's declaration", Batch, "_find_started",
        [("if self._started is None:", "if True:")],
        ["deploy: one more parameter", "deploy: not permitted"],
    ),
    Mutant(
        "the doubt of an earlier process outlives the key", writes, "_perform",
        [("doubtful=claimed.state is ClaimState.AGAIN", "doubtful=False")],
        ["two runs, one key, replayed and forgotten"],
    ),
    Mutant(
        "a request that was cut off may still arrive", writes, "_diagnose",
        [("and early_s > 0", "and False"), ("isinstance(outcome, Unfinished)", "False")],
        ["an attempt is cut off and its request arrives late, verified"],
    ),
    Mutant(
        "a resumed claim without an answer is in doubt", execution, "_leave",
        [("settings.epoch > 1", "False")],
        ["write"],
    ),
    Mutant(
        "a repetition in vain leaves the doubt", writes, "perform_write",
        [("if doubt is not None and latest.failure is not None:", "if False:")],
        ["done again in doubt"],
    ),
    Mutant(
        "a deferred write that ran is not told as not started", writes, "_read_result",
        [("pass  # it was started, and waits", "raise")],
        ["write deferred"],
    ),
    Mutant(
        "a write that was looked up is settled without a claim", BatchExecutor, "perform",
        [(" and state in self.leases", "")],
        ["write deferred approve x1"],
    ),
    Mutant(
        "who has taken a write over asks once more before the start", Lease, "covers",
        [("if not self._is_confirmed:", "if False:")],
        ["taken over, verified"],
    ),
    # rules of the ledger
    Mutant(
        "a claim is stored before the tool starts", Ledger, "_add_row",
        [("return Claimed(ClaimState.FRESH, fence)", "self.forget(row)\n    return Claimed(ClaimState.FRESH, fence)")],
        ["write key"],
    ),
    Mutant(
        "a settlement names its fence", Ledger, "settle",
        [("or row.fence != settle.fence", ""), ("if row.is_settled:", "if False:")],
        ["taken over, replayed", "taken over, verified"],
    ),
    Mutant(
        "what is done is settled as done", Ledger, "settle",
        [("row.state = settle.state", "row.state = 'failed'")],
        ["write"],
    ),
    Mutant(
        "a key that is done is not done again", Ledger, "_answer",
        [('row.state == "failed"', 'row.state in ("failed", "done")')],
        ["two runs, one key"],
    ),
    Mutant(
        "the first result is repeated", Ledger, "_answer",
        [("ClaimState.DONE, row.fence, row.value", "ClaimState.DONE, row.fence, None")],
        ["two runs, one key"],
    ),
    Mutant(
        "a key with other arguments is refused", Ledger, "_answer",
        [("row.fingerprint != claim.fingerprint", "False")],
        ["two runs, one key, other amounts"],
    ),
    Mutant(
        "the same write in one run is a repeat", Ledger, "_find_repeated",
        [("if not claim.guard:", "if True:")],
        ["write on_repeat=ask"],
    ),
    Mutant(
        "a lease is waited for", ledger.Row, "is_leased",
        [("self.lease_until >= now", "False")],
        ["two runs, one key"],
    ),
    Mutant(
        "a request of a dead process is waited for", ledger, "_left_s",
        [("max(0.0, row.lease_until - now)", "0.0")],
        ["a process dies and its request arrives late, verified"],
    ),
    Mutant(
        "what nobody could find is not begun again", writes, "_check_then_write",
        [("case NotFound():", "case NotFound() | Unknown():")],
        ["verify cannot tell"],
    ),
    Mutant(
        "a takeover verifies first", ledger, "_take_over",
        [("ClaimState.CHECK", "ClaimState.FRESH")],
        ["write verify"],
    ),
    Mutant(
        "what may be forgotten is not asked for again", ledger, "_answer_open",
        [('row.replay == "key" and now > row.begun + claim.key_ttl_s', "False")],
        ["two runs, one key, replayed and forgotten at once"],
    ),
    # rules of attempts
    Mutant(
        "a write that may have happened is in doubt", retries, "diagnose",
        [("replace(diagnosis, no_effect=False)", "replace(diagnosis, no_effect=True)")],
        ["write"],
    ),
    Mutant(
        "`verify` that cannot tell proves nothing", writes, "_verify",
        [("return happened", "return NotFound()")],
        ["verify cannot tell"],
    ),
    Mutant(
        "what is in doubt is not repeated by itself", writes, "_may_repeat",
        [('(not doubtful or tool.replay_class == "key")', "True")],
        ["write"],
    ),
    # rules of people and of runs
    Mutant(
        "an older epoch adds nothing to a run", FullMemoryStore, "append_entry",
        [("or record.epoch != entry.epoch", "")],
        ["taken over", "taken over, key"],
    ),
    Mutant(
        "an approval that has expired starts nothing", ledger, "_is_approved",
        [("in_time = approval.expires >= now", "in_time = True")],
        ["approved, and claimed too late"],
    ),
    Mutant(
        "who asks is no second person", records, "not_counted",
        [("if name and name == _looks(asked.principal)", "if False")],
        ["two must agree, alice asks, resumed by 'alice'"],
    ),
    Mutant(
        "nobody counts twice", records, "not_counted",
        [("if several and name in map(_looks, asked.agreed):", "if False:")],
        ["two must agree, and one of them has two names"],
    ),
]  # fmt: skip


def find(mutant: Mutant) -> tuple[Violation | None, int]:
    """Return what shows a mutant, with the fewest disturbances, and how many worlds were looked at."""
    worlds = 0
    scenarios = kept.all_scenarios()
    with mutant.applied():
        for name in mutant.scenarios:
            report = explore(scenarios[name], 2, most_s=MOST_S, stop_at=1)
            worlds += report.worlds
            for violation in report.found.values():
                return violation, worlds
    return None, worlds


def main(given: Sequence[str] | None = None) -> int:
    """Print which mutants are found; return 1 if any is not."""
    parser = argparse.ArgumentParser(prog="python -m tests.prove.mutants", description=__doc__)  # fmt: skip
    parser.add_argument("only", nargs="*", help="rules with one of these in their name")
    parser.add_argument("--keep", action="store_true", help="keep what shows them as tests")  # fmt: skip
    arguments = parser.parse_args(given)
    quieten()
    wanted = [
        each
        for each in MUTANTS
        if not arguments.only or any(words in each.rule for words in arguments.only)
    ]
    missed = 0
    for mutant in wanted:
        began = process_time()
        violation, worlds = find(mutant)
        missed += violation is None
        shown = "NOT FOUND"
        if violation is not None:
            shown = f"{violation.cost} disturbances, {violation.scenario!r}: {violation.words}"
            if arguments.keep:
                kept.keep(violation)
        seconds = process_time() - began
        print(f"{mutant.rule:58} {shown} [{worlds} worlds, {seconds:.1f} s]", flush=True)  # fmt: skip
    print(f"{len(wanted) - missed} of {len(wanted)} mutants are found")
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
