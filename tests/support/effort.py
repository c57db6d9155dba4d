"""How much the tests try: with `HANDRAIL_LONG_TESTS=1` all that they can, else what fits into each run."""

from __future__ import annotations

import os

import pytest

IS_LONG = "HANDRAIL_LONG_TESTS" in os.environ

long_only = pytest.mark.skipif(not IS_LONG, reason="HANDRAIL_LONG_TESTS=1 runs it")


def examples(in_each_run: int, long: int) -> int:
    """Return how many examples a property is tried on."""
    return long if IS_LONG else in_each_run
