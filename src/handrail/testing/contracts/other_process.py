"""Another process with the same store: `python -m handrail.testing.contracts.other_process STORE DEED ...`.

It prints `ready` when the store is open and waits for a line; then it does its deed and prints one line of JSON.
"""

import json
import os
import signal
import sys
from concurrent.futures import ThreadPoolExecutor
from itertools import count
from threading import Event

from msgspec.structs import replace

from handrail import plugins
from handrail.effects import Settle
from handrail.errors import RunNameTaken
from handrail.records import RunRecord
from handrail.testing.contracts.claims import A_REFUND, OVER_S


def race(store, acts, threads):
    """Claim every act in every thread; say how often each was fresh."""
    keys = [f"race:{number}" for number in range(int(acts))]

    def claim(_):
        return [
            store.claim(replace(A_REFUND, key=key, guard=False)).result(60).state.value
            for key in keys
        ]

    with ThreadPoolExecutor(int(threads)) as pool:
        return list(zip(*pool.map(claim, range(int(threads))), strict=True))


def race_of_runs(store, acts, threads):
    """Do every act in every thread, each in a run of its own; say how often each was fresh."""

    def claim(thread):
        run = f"{os.getpid()}/{thread}"
        lately = replace(A_REFUND, run_id=run, repeat_window_s=600.0)
        wanted = [
            replace(lately, key=f"{run}/{n}", fingerprint=b"act %d" % n)
            for n in range(int(acts))
        ]
        return [store.claim(act).result(60).state.value for act in wanted]

    with ThreadPoolExecutor(int(threads)) as pool:
        return list(zip(*pool.map(claim, range(int(threads))), strict=True))


def race_of_keys(store, acts, threads):
    """Do every act of one run in every thread, each under a key of its own; say how often each was fresh."""

    def claim(thread):
        key = f"{os.getpid()}/{thread}"
        wanted = [
            replace(A_REFUND, key=f"{key}/{n}", fingerprint=b"act %d" % n)
            for n in range(int(acts))
        ]
        return [store.claim(act).result(60).state.value for act in wanted]

    with ThreadPoolExecutor(int(threads)) as pool:
        return list(zip(*pool.map(claim, range(int(threads))), strict=True))


def race_for_approvals(store, acts, threads):
    """Claim as many writes in every thread, each thread its own, under the same approvals; say how it went."""

    def claim(thread):
        act = replace(A_REFUND, guard=False)
        wanted = [
            replace(act, key=f"{os.getpid()}/{thread}/{n}", approval=f"q_{n}")
            for n in range(int(acts))
        ]
        return [store.claim(each).result(60).state.value for each in wanted]

    with ThreadPoolExecutor(int(threads)) as pool:
        return list(zip(*pool.map(claim, range(int(threads))), strict=True))


def race_of_locks(store, things, threads):
    """Touch every thing in every thread; say how each was answered."""

    def claim(thread):
        keys = [f"{os.getpid()}/{thread}/{n}" for n in range(int(things))]
        wanted = [
            replace(A_REFUND, key=key, guard=False, locks=(f"thing:{n}",))
            for n, key in enumerate(keys)
        ]
        return [store.claim(act).result(60).state.value for act in wanted]

    with ThreadPoolExecutor(int(threads)) as pool:
        return list(zip(*pool.map(claim, range(int(threads))), strict=True))


def race_of_begins(store, runs, threads):
    """Begin every run in every thread; say which was begun, and which name was taken."""

    def begin(_):
        return [
            _begun(store, RunRecord(f"r_{number}", {})) for number in range(int(runs))
        ]

    with ThreadPoolExecutor(int(threads)) as pool:
        return list(zip(*pool.map(begin, range(int(threads))), strict=True))


def race_for_starts(store, starts, threads):
    """Ask for starts of one rate in every thread, until there is none; say how many there were."""

    def take(_):
        rate = {"starts": int(starts), "seconds": 3600.0}
        count = 0
        while (
            given := store.take_starts("b", **rate, most=3, longest_s=0.0)
            .result(60)
            .count
        ):
            count += given
        return count

    with ThreadPoolExecutor(int(threads)) as pool:
        return sum(pool.map(take, range(int(threads))))


def _begun(store, record):
    try:
        store.begin_run(record, new=True).result(60)
    except RunNameTaken:
        return "busy"
    return "fresh"


def claim_and_hang(store, replay, lease_s, *locks):
    """Claim, say so, and never settle."""
    claimed = store.claim(
        replace(A_REFUND, replay=replay, lease_s=float(lease_s), locks=locks)
    ).result(10)
    print(json.dumps(claimed.state.value), flush=True)
    signal.pause()


def freeze_and_settle(store):
    """Claim with a lease that is over, stop until somebody says SIGCONT, then settle as if nothing had been."""
    claimed = store.claim(replace(A_REFUND, replay="key", lease_s=OVER_S)).result(10)
    os.kill(os.getpid(), signal.SIGSTOP)
    return store.settle(
        Settle("", "refund:881", claimed.fence, "done", "frozen")
    ).result(10)


def write_for_ever(store, file, who):
    """Claim, take effect, settle, in 16 threads, until somebody kills us; one of them never gets to settle."""
    world = os.open(file, os.O_WRONLY | os.O_APPEND | os.O_CREAT)

    def write(thread):
        for number in count():
            key = f"{who}/{thread}/{number}"
            claimed = store.claim(replace(A_REFUND, key=key, guard=False)).result(60)
            os.write(world, f"{key} {claimed.state.value}\n".encode())
            if thread == 0:
                Event().wait()
            store.settle(Settle("", key, claimed.fence, "done", number)).result(60)

    with ThreadPoolExecutor(16) as pool:
        list(pool.map(write, range(16)))


RACES = (
    race,
    race_of_runs,
    race_of_keys,
    race_of_locks,
    race_of_begins,
    race_for_approvals,
    race_for_starts,
)
DEEDS = {
    deed.__name__: deed
    for deed in (*RACES, claim_and_hang, freeze_and_settle, write_for_ever)
}

if __name__ == "__main__":
    place, deed, *words = sys.argv[1:]
    kind, _, where = place.partition(":")
    with plugins.load("stores", kind)(where) as store:
        print("ready", flush=True)
        sys.stdin.readline()
        print(json.dumps(DEEDS[deed](store, *words)), flush=True)
        # its claims are those of a process that lives, until nobody wants it any more
        sys.stdin.readline()
