"""A browser and a server, each once for a module; without a browser these tests are skipped."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.handrail_server.console.desk import Desk, furnish, open_desk

ROOT = Path(__file__).parents[3]


def find_browser() -> str | None:
    """Return the program of a Chromium."""
    named = os.environ.get("HANDRAIL_CHROMIUM")
    return named or shutil.which("chromium") or shutil.which("chromium-browser")


@pytest.fixture(scope="module")
def desk(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Desk]:
    """A server with a run of every kind; `desk.runs` names them by question."""
    with open_desk(tmp_path_factory.mktemp("desk")) as opened:
        opened.runs = furnish(opened)
        yield opened


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    """A real Chromium."""
    playwright = pytest.importorskip("playwright.sync_api")
    program = find_browser()
    if program is None:
        pytest.skip("no Chromium on PATH; HANDRAIL_CHROMIUM can name one")
    with playwright.sync_playwright() as started:
        opened = started.chromium.launch(executable_path=program, args=["--no-sandbox"])
        yield opened
        opened.close()
