"""What costs seconds is computed once in a run of the tests, also where several processes share the run."""

from __future__ import annotations

import fcntl
import json
import os
from collections.abc import Callable
from typing import Any

import pytest


def compute_once(
    name: str, compute: Callable[[], Any], folders: pytest.TempPathFactory
) -> Any:
    """Return what `compute` returns, as JSON has it; the first process computes it, the others wait and read it."""
    if "PYTEST_XDIST_WORKER" not in os.environ:
        return json.loads(json.dumps(compute()))
    shared = folders.getbasetemp().parent  # of all processes of this run
    with (shared / f"{name}.json").open("a+", encoding="utf-8") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        file.seek(0)
        text = file.read()
        if not text:
            text = json.dumps(compute())
            file.write(text)
    return json.loads(text)
