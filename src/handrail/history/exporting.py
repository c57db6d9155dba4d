"""A stored run as lines of JSON: a line for the run, then one for each step; see `journal`. Nothing is left out."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from msgspec.structs import asdict

from handrail.errors import Json
from handrail.records import StoredRun


def journal_lines(stored: StoredRun) -> Iterator[Mapping[str, Json]]:
    """Yield the lines of a run."""
    yield {"v": 1, "kind": "run", **asdict(stored.record)}
    for step in stored.steps:
        yield {"v": 1, "run_id": stored.record.run_id, **asdict(step)}
