"""Worlds that broke a promise once. Each lies in `found/` and is a test for ever."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

from tests.prove.declarations import all_declarations
from tests.prove.scenarios import Scenario
from tests.prove.search import Violation
from tests.prove.stories import STORIES

FOUND = Path(__file__).with_name("found")


def all_scenarios() -> dict[str, Scenario]:
    """Return every scenario by its name."""
    return {each.name: each for each in (*STORIES, *all_declarations())}


def keep(violation: Violation, folder: Path = FOUND) -> Path:
    """Write down how a promise was broken; return the file."""
    words = f"{violation.scenario} {violation.promise} {violation.words}"
    name = re.sub(r"[^a-z0-9]+", "-", words.lower())[:90].strip("-")
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / f"{name}.json"
    body = {
        "scenario": violation.scenario,
        "promise": violation.promise,
        "words": violation.words,
        "disturbances": violation.disturbances,
        "trace": violation.trace,
    }
    file.write_text(json.dumps(body, indent=1, ensure_ascii=False) + "\n")
    return file


def load(file: Path) -> tuple[Scenario, list[tuple[str, int]]]:
    """Return the scenario of a kept world, and what disturbed it."""
    body: dict[str, Any] = json.loads(file.read_text())
    disturbances = [(str(label), int(passed)) for label, passed in body["disturbances"]]
    return all_scenarios()[body["scenario"]], disturbances


def files() -> list[Path]:
    """Return what was kept."""
    return sorted(FOUND.glob("*.json"))
