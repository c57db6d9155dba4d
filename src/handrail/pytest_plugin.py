"""Fixtures for tests of your own tools, there as soon as handrail is installed: `crash` and `cassette`.

    def test_a_refund_happens_once_whatever_dies(crash, tmp_path):      # runs once for each boundary
        crash(refund, {"order_id": "A-1"}, effects=lambda: count_in(tmp_path))

Rule: whoever uses neither pays for neither; nothing of handrail is imported before a test asks for a fixture.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from handrail.testing.cassettes import Cassette
    from handrail.testing.crashes import Crash

_BOUNDARIES = (
    "before claim",
    "after claim",
    "after effect",
    "after settle",
    "after journal",
)


@pytest.fixture(params=_BOUNDARIES, ids=lambda boundary: boundary.replace(" ", "-"))
def crash(request: pytest.FixtureRequest, tmp_path: Path) -> Crash:
    """Kill a call of your tool at one boundary, resume, count; see `handrail.testing.crashes.Crash`."""
    from handrail.testing.crashes import Boundary, Crash

    return Crash(Boundary(request.param), f"sqlite:///{tmp_path}/crash.db")


def pytest_configure(config: pytest.Config) -> None:
    """Register the markers of `handrail.testing.contracts`."""
    config.addinivalue_line("markers", "slow: takes seconds")
    config.addinivalue_line("markers", "proof: kills processes")


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add `--record-cassettes`."""
    purpose = "ask real models and run real tools, and record their answers in the cassettes of the tests that run"
    parser.getgroup("handrail").addoption(
        "--record-cassettes", action="store_true", help=purpose
    )


@pytest.fixture
def cassette(request: pytest.FixtureRequest) -> Iterator[Cassette]:
    """Play `cassettes/<test>.json` beside the test's file; see `handrail.testing.cassettes.Cassette`."""
    from handrail.testing.cassettes import Cassette

    name = re.sub(r"[^\w.-]+", "-", request.node.name).strip("-")
    file = request.path.parent / "cassettes" / f"{request.path.stem}.{name}.json"
    cassette = Cassette(file, record=request.config.getoption("--record-cassettes"))
    yield cassette
    cassette.close()
