"""What holds under every framework that tells a tool little: the scenarios that `handrail bench` plays."""

from __future__ import annotations

import pytest

from handrail.testing.frameworks.play import play
from handrail.testing.frameworks.scenarios import SCENARIOS

PROMISES = pytest.mark.parametrize(
    "name", ["hung", "repeated", "killed", "secret", "approve", "deny", "edit", "stale"]
)


def check_scenario(target: str, name: str) -> None:
    cell = play(target, name, "handrail")
    assert cell.is_wanted, (SCENARIOS[name].title, cell.text)
