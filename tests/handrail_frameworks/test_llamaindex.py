"""handrail under LlamaIndex."""

from __future__ import annotations

import pytest

pytest.importorskip("llama_index.core", reason="LlamaIndex is not installed")

from handrail_frameworks.bench.play import play
from handrail_frameworks.bench.scenarios import SCENARIOS

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("default")]


@pytest.mark.parametrize(
    "name", ["hung", "repeated", "killed", "secret", "approve", "deny", "edit", "stale"]
)
def test_a_scenario_ends_as_wanted(name):
    cell = play("llamaindex", name, "handrail")
    # how soon the answer comes says more of a busy machine than of the code
    is_right = "paid never" in cell.text if name == "hung" else cell.is_wanted
    assert is_right, (SCENARIOS[name].title, cell.text)
