"""Keepers that are killed: `python -m tests.stores.killed_keepers STORE [STEP]`.

One keeper after the other is killed with SIGKILL before its first, second, third... statement; what it leaves is looked
at by the next process. Prints how many were killed, and what was broken.
"""

import json
import os
import signal
import sys

from handrail import plugins
from handrail.audit import chain
from handrail.stores import retention
from tests.stores import retention_contract as deeds
from tests.support.effort import IS_LONG

RUNS_A_ROUND = 3
STEP = 1 if IS_LONG else 4
"""Of how many statements one is tried."""


class KilledConnection:
    """A connection whose process is killed before one of its statements."""

    def __init__(self, connection, before):
        self._connection = connection
        self._left = before

    def __getattr__(self, name):
        if name in ("run", "begin", "commit"):
            self._left -= 1
            if self._left == 0:
                os.kill(os.getpid(), signal.SIGKILL)
        return getattr(self._connection, name)


def open_store(place):
    kind, _, where = place.partition(":")
    return plugins.load("stores", kind)(where)


def keep_until_killed(place, round_, before):
    """Fill the store, and keep it until the process is killed."""
    store = open_store(place)
    for number in range(RUNS_A_ROUND):
        deeds.begin(store, f"run-{round_}-{number}")
    deeds.now(store.save_result(f"run-{round_}-0", "long"))
    deeds.let_it_be_old(store)
    open_connection = store.open_connection
    store.open_connection = lambda: KilledConnection(open_connection(), before)
    retention.keep(store, deeds.ALL, rest=lambda _: None)
    store.close()


def look(place):
    """Return what is broken in the store."""
    store = open_store(place)
    broken = []

    def rows(statement):
        return store.use_connection(lambda base: base.run(statement))

    steps = "SELECT count(*) FROM steps WHERE steps.run_id = runs.run_id"
    counts = f"SELECT runs.run_id FROM runs WHERE entered <> ({steps})"
    broken += [f"the run {run_id} has lost steps" for (run_id,) in rows(counts)]
    lone = "FROM {0} WHERE run_id NOT IN (SELECT run_id FROM runs)"
    for table in ("steps", "effects", "approvals"):
        [[count]] = rows(f"SELECT count(*) {lone.format(table)}")
        if count:
            broken.append(f"{count} {table} of no run")
    _, why = chain.verify(deeds.records(store))
    if why:
        broken.append(why.why)
    store.close()
    return broken


def in_process(deed, *given):
    """Do it in a process of its own; return what it said, or None if it was killed."""
    reading, writing = os.pipe()
    child = os.fork()
    if not child:
        os.write(writing, json.dumps(deed(*given)).encode())
        os._exit(0)
    os.close(writing)
    with os.fdopen(reading) as said:
        text = said.read()
    _, status = os.waitpid(child, 0)
    if os.WIFSIGNALED(status):
        assert os.WTERMSIG(status) == signal.SIGKILL
        return "killed"
    return json.loads(text)


def main(place):
    killed, broken, before, round_ = 0, [], 1, 0
    while in_process(keep_until_killed, place, round_, before) == "killed":
        killed += 1
        round_ += 1
        broken += in_process(look, place)
        before += STEP
    broken += in_process(look, place)
    print(json.dumps({"killed": killed, "broken": broken}))


if __name__ == "__main__":
    main(sys.argv[1])
