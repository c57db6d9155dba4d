"""What holds under every framework that tells a tool little: the scenarios that `handrail bench` plays."""

from __future__ import annotations

import pytest

from handrail_frameworks.bench.play import play
from handrail_frameworks.bench.scenarios import SCENARIOS

PROMISES = pytest.mark.parametrize(
    "name", ["hung", "repeated", "killed", "secret", "approve", "deny", "edit", "stale"]
)


def check_scenario(target: str, name: str) -> None:
    cell = play(target, name, "handrail")
    # how soon the answer comes says more of a busy machine than of the code
    is_right = "paid never" in cell.text if name == "hung" else cell.is_wanted
    assert is_right, (SCENARIOS[name].title, cell.text)
