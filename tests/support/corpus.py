"""Where the real cases lie, and how they are read. Nothing of them is copied into the project."""

import gzip
import json
import os
from pathlib import Path

import pytest

CORPUS = Path(
    os.environ.get("HANDRAIL_CORPUS") or Path(__file__).parents[3] / "shared" / "data"
)


def rows(name: str) -> list[dict]:
    """Return the rows of one set; skip the whole module where the corpus is absent."""
    path = CORPUS / name
    if not path.exists():
        pytest.skip(
            f"the corpus is absent ({name}); set HANDRAIL_CORPUS",
            allow_module_level=True,
        )
    text = (
        gzip.decompress(path.read_bytes()).decode()
        if path.suffix == ".gz"
        else path.read_text(encoding="utf-8")
    )
    if path.suffix == ".json":
        return json.loads(text)
    return [json.loads(line) for line in text.split("\n") if line]
