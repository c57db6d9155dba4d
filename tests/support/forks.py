"""Runs something in a fork of this process, and returns what it returned."""

import json
import os
import select
import signal
import warnings

from tests.support.drivers import BOUND_S


def in_fork(work):
    """Return what `work` returns in a fork, as JSON; raise AssertionError with what it raised."""
    reading, writing = os.pipe()
    with warnings.catch_warnings():  # that threads may be lost is what is tested
        warnings.simplefilter("ignore", DeprecationWarning)
        child = os.fork()
    if child == 0:
        try:
            answer = {"returned": work()}
        except BaseException as error:
            answer = {"raised": f"{type(error).__name__}: {error}"}
        os.write(writing, json.dumps(answer).encode())
        os._exit(0)
    os.close(writing)
    try:
        ready, _, _ = select.select([reading], [], [], BOUND_S)
        if not ready:
            os.kill(child, signal.SIGKILL)
        answer = os.read(reading, 1 << 16)
    finally:
        os.close(reading)
        os.waitpid(child, 0)
    assert answer, "the fork hangs or has died"
    told = json.loads(answer)
    assert "returned" in told, told["raised"]
    return told["returned"]
