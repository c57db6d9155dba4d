"""Scenarios written by hand: two processes, deploys, late requests, several people."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tests.prove.scenarios import DIES, FAR_SIDE, LOST, WRITE, Scenario

KEYED: Mapping[str, Any] = {**WRITE, "key": "pay:{order}"}
REPLAYED: Mapping[str, Any] = {**KEYED, "replay": "key"}
VERIFIED: Mapping[str, Any] = {**WRITE, "verify": True}
APPROVED: Mapping[str, Any] = {**WRITE, "approve": True}
FEW = {"far_side": (LOST, "NoEffect", DIES), "store": ("dies after it",), "reads": ()}
"""Of two processes: what goes wrong beside their order."""
TWO: Mapping[str, Any] = {"runs": ("one", "two"), **FEW}
TAKEN_OVER: Mapping[str, Any] = {
    "runs": ("one", "one*"),
    "counts_as_gone": True,
    "is_slow": True,
    "far_side": (LOST, "NoEffect"),
    "store": ("dies after it",),
    "reads": (),
}
ELSEWHERE: Mapping[str, Any] = {**TWO, "is_elsewhere": True}

ALONE = [
    Scenario("a write without a key", WRITE),
    Scenario("verify may raise", VERIFIED, verify=("tells the truth", "cannot tell", "raises")),
    Scenario("verify cannot tell", VERIFIED, verify=("cannot tell",)),
    Scenario("a long result", WRITE, result_bytes=40_000, far_side=(LOST,)),
    Scenario(
        "an answer is lost and its request arrives late, verified", VERIFIED,
        far_side=("answer is lost, effect late", "NoEffect"), store=(), reads=(),
    ),
    Scenario("hangs", WRITE, far_side=("hangs", "effect, hangs", "hangs, effect late")),
    Scenario("hangs, verified", VERIFIED, far_side=("hangs", "effect, hangs")),
    Scenario(
        "an attempt is cut off and its request arrives late, verified",
        {**VERIFIED, "attempt_timeout_s": 5.0},
        far_side=("hangs, effect late", "NoEffect"), store=(), reads=(),
    ),
    Scenario(
        "an attempt is cut off and its request arrives late",
        {**WRITE, "attempt_timeout_s": 5.0},
        far_side=("hangs, effect late", "NoEffect"), store=(), reads=(),
    ),
    Scenario(
        "an attempt is cut off and its request arrives late, replayed",
        {**REPLAYED, "attempt_timeout_s": 5.0}, far_honours_keys=True,
        far_side=("hangs, effect late", "NoEffect"), store=(), reads=(),
    ),
    Scenario(
        "a process dies and its request arrives late, verified", VERIFIED,
        far_side=("dies, effect late", "NoEffect"), store=(), reads=(),
    ),
    Scenario(
        "an attempt reports late", WRITE,
        far_side=("reports late",), swallows_cancellation=True, store=("is silent",), reads=(),
    ),
    Scenario("what it touches is locked elsewhere", {**WRITE, "resource": "till"}, is_locked_elsewhere=True),
    Scenario("cancelled", WRITE, cancels=True),
    Scenario("cancelled, verified", VERIFIED, cancels=True),
    Scenario("no death is seen", KEYED, is_elsewhere=True),
    Scenario("no death is seen, verified", VERIFIED, is_elsewhere=True),
]  # fmt: skip
"""One process and no people."""

DEPLOYS = [
    Scenario("deploy: one more parameter", WRITE, deploy={"more": True}),
    Scenario("deploy: another name", WRITE, deploy={"name": "pay_out"}),
    Scenario("deploy: another name, one key", KEYED, deploy={"name": "pay_out"}),
    Scenario("deploy: a key", WRITE, deploy={"key": "pay:{order}"}),
    Scenario("deploy: replayed", KEYED, far_honours_keys=True, deploy={"replay": "key"}),
    Scenario("deploy: verified", KEYED, deploy={"verify": True}),
    Scenario("deploy: not permitted", WRITE, deploy={"permission": "admin"}),
    Scenario("deploy: a read", WRITE, deploy={"effect": "read"}),
    Scenario("deploy: approved", WRITE, deploy={"approve": True}),
    Scenario("deploy: deferred", WRITE, deploy={"deferred": True}),
    Scenario("deploy: deferred no longer", {**WRITE, "deferred": True}, deploy={"deferred": False}),
]  # fmt: skip
"""A process dies, and the next one has another version of the tool."""

PEOPLE = [
    Scenario("a person edits or withdraws", APPROVED, words_on_approvals=("approves", "denies", "edits", "withdraws")),
    Scenario("a person edits, key", {**APPROVED, **KEYED}, words_on_approvals=("approves", "edits")),
    *(
        Scenario(
            f"two must agree, alice asks, resumed by {resumer!r}", {**APPROVED, "required_approvals": 2},
            people=("alice", "bob", "carol"), principal="alice", resumer=resumer,
        )
        for resumer in ("alice", "bob", "")
    ),
    Scenario(
        "two must agree, and one of them has two names", {**APPROVED, "required_approvals": 2},
        people=("bob", "BOB"),
    ),
    Scenario("approved, and claimed too late", APPROVED, approval_s=30.0, is_slow=True),
    Scenario("own approval", APPROVED, people=("alice", "bob"), principal="alice"),
    Scenario("done again in doubt", {**WRITE, "on_doubt": "ask"}, far_side=FAR_SIDE),
    Scenario("done again in doubt, key", {**KEYED, "on_doubt": "ask"}),
    Scenario("deferred, key", {**KEYED, "deferred": True}),
]  # fmt: skip
"""One process, and people who say this and that."""

TOGETHER = [
    Scenario("two runs, one key", KEYED, **TWO),
    Scenario("two runs, one key, replayed", REPLAYED, far_honours_keys=True, **TWO),
    Scenario(
        "two runs, one key, replayed and forgotten", {**REPLAYED, "key_ttl_s": 100.0},
        far_honours_keys=True, forgets_keys_s=100.0, pause_s=60.0,
        runs=("one", "two"), far_side=("NoEffect", DIES), store=(), reads=(),
    ),
    Scenario(
        "two runs, one key, replayed and forgotten at once", {**REPLAYED, "key_ttl_s": 100.0},
        far_honours_keys=True, forgets_keys_s=100.0, pause_s=200.0,
        runs=("one", "two"), far_side=("NoEffect", DIES), store=(), reads=(),
    ),
    Scenario("two runs, one key, verified", {**KEYED, "verify": True}, **TWO),
    Scenario("two runs, one key, a repeat is asked about", {**KEYED, "on_repeat": "ask"}, **TWO),
    Scenario("two runs, one key, other amounts", KEYED, amounts=(1.0, 2.0), **TWO),
    Scenario("two runs, one key, deferred", {**KEYED, "deferred": True}, **TWO),
    Scenario("two runs, one resource", {**WRITE, "resource": "till"}, **TWO),
    Scenario("two runs, repeats within an hour", {**WRITE, "repeat_window_s": 3600.0}, **TWO),
    Scenario("taken over", WRITE, **TAKEN_OVER),
    Scenario("taken over, key", KEYED, **TAKEN_OVER),
    Scenario("taken over, replayed", REPLAYED, far_honours_keys=True, **TAKEN_OVER),
    Scenario("taken over, verified", VERIFIED, **TAKEN_OVER),
    Scenario("taken over, approved", {**WRITE, "approve": True}, **TAKEN_OVER),
    Scenario("taken over, deferred", {**WRITE, "deferred": True}, **TAKEN_OVER),
]  # fmt: skip
"""Two processes: two runs, or one run that is taken over from a process that lives."""

LONGER = [
    Scenario("two runs, one key, approved", {**KEYED, "approve": True}, **TWO),
    Scenario("two machines, one key", KEYED, **ELSEWHERE),
    Scenario("two machines, one key, verified", {**KEYED, "verify": True}, **ELSEWHERE),
]  # fmt: skip
"""Two processes whose worlds are too many beyond 1."""

STORIES = [*ALONE, *DEPLOYS, *PEOPLE, *TOGETHER, *LONGER]
