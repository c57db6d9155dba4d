"""What tests of sandboxes need: a sandbox, and a checkout that its user can read."""

import os
import stat
from pathlib import Path

import pytest

from handrail.sandboxes.bubblewrap import Bubblewrap

ROOT = Path(__file__).parents[2]


def why_no_box() -> str:
    """Return why no tool of these tests can run in a sandbox here; empty where it can.

    What root starts runs there as nobody, who cannot look into a private folder such as `mktemp -d` makes.
    """
    if os.geteuid() == 0:
        for folder in ROOT, *ROOT.parents:
            if not folder.stat().st_mode & stat.S_IXOTH:
                return (
                    f"{folder} is private to root, and a sandbox of root runs as nobody"
                )
    return Bubblewrap().lacks


isolated = pytest.mark.skipif(
    bool(why_no_box()), reason=f"no isolation here: {why_no_box()}"
)
