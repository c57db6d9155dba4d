"""Running pytest as a user of the plugin does, without the plugins of other packages: those take seconds to import."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path


def run_pytest(*options: str | Path, folder: Path) -> subprocess.CompletedProcess[str]:
    """Run pytest in a folder, with the plugin of handrail alone."""
    quick = ["-q", "-p", "no:cacheprovider", "-p", "handrail.pytest_plugin"]
    return subprocess.run(
        [sys.executable, "-B", "-m", "pytest", *quick, *options],
        cwd=folder,
        capture_output=True,
        text=True,
        env={**os.environ, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"},
        check=False,
    )
