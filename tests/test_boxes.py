"""Tools in a sandbox, driven through the runtime: what they can do, what they cannot, and what comes out."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

import handrail as hr
from handrail.sandboxes.bubblewrap import Bubblewrap

pytestmark = pytest.mark.skipif(bool(Bubblewrap().lacks), reason=f"no isolation here: {Bubblewrap().lacks}")


@dataclass
class Point:
    x: int
    y: int


def boxed(function):
    """Make a function a tool that runs in a sandbox."""
    return hr.tool(effect="read", isolation="isolated", attempts=1, timeout_s=20)(function)


@boxed
def add(x: int, y: int) -> int:
    """Add two numbers."""
    return x + y


@boxed
async def add_later(x: int, y: int) -> int:
    """Add two numbers, in a while."""
    return x + y


@pytest.fixture
def call():
    """Call a tool in a runtime of its own."""

    def called(tool, arguments=None, **how):
        with hr.SyncRuntime([tool]) as runtime:
            return runtime.call(tool.name, arguments or {}, **how)

    return called


@pytest.mark.parametrize("tool", [add, add_later])
def test_plain_and_async_functions_return_their_values(call, tool):
    result = call(tool, {"x": 2, "y": 40})
    assert result.value == 42, result
