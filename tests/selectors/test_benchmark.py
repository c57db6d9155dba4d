"""The ablation reaches into the ranking, so a change there can break it unseen."""

import pytest
from benchmarks.selection import STEPS, changed

from handrail.selectors.bm25 import Bm25
from tests.selectors.tools import FEW


@pytest.mark.parametrize(
    ("weights", "parts"), [step[1:] for step in STEPS], ids=[step[0] for step in STEPS]
)
def test_every_row_of_the_ablation_ranks_tools(weights, parts):
    with changed(parts):
        assert Bm25(FEW, weights=weights).top("the current weather", k=1) == [FEW[0]]
