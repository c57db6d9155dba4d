"""A process with as many files open as a busy server."""

from __future__ import annotations

import os
import resource
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

import pytest

FIRST_HIGH = 1024
"""The first descriptor that `select.select` refuses."""


@contextmanager
def no_low_descriptors() -> Iterator[None]:
    """Have every descriptor below `FIRST_HIGH` taken, so that whatever is opened now gets a higher one."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = 2 * FIRST_HIGH
    if hard not in (resource.RLIM_INFINITY,) and hard < wanted:
        pytest.skip(f"this process may open {hard} files only")
    with ExitStack() as undo:
        if soft < wanted:
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
            undo.callback(resource.setrlimit, resource.RLIMIT_NOFILE, (soft, hard))
        descriptor = 0
        while descriptor < FIRST_HIGH:
            descriptor = os.open(os.devnull, os.O_RDONLY)
            undo.callback(os.close, descriptor)
        yield


@contextmanager
def no_descriptors_left() -> Iterator[None]:
    """Have this process at its limit of open files."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with ExitStack() as undo:
        first = os.open(os.devnull, os.O_RDONLY)
        undo.callback(os.close, first)
        resource.setrlimit(resource.RLIMIT_NOFILE, (first + 1, hard))
        undo.callback(resource.setrlimit, resource.RLIMIT_NOFILE, (soft, hard))
        yield
