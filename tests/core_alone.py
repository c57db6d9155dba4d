"""Runs tests of the core where no other package of `src` can be imported, or those of one with the core alone.

    python -m tests.core_alone [PACKAGE] [ARGUMENTS OF PYTEST]

`build/core_alone` becomes a virtual environment that has what this one has, but neither entry points of the other
packages nor, by a finder that refuses them, the packages; so every process that a test starts is without them too.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import sysconfig
import venv
from importlib import metadata
from pathlib import Path

from tests.test_architecture import SATELLITES, SRC

ROOT = SRC.parent
PACKAGE = next((name for name in sys.argv[1:2] if name in SATELLITES), "")
REFUSED = sorted({*SATELLITES} - {PACKAGE})
HOME = ROOT / "build" / "_".join(["core_alone", PACKAGE]).rstrip("_")
NEEDS_OTHERS = ("apps", "docs", "handrail_*", "observers/test_otel_over_the_wire.py")
"""Folders of tests that are of other packages, or of all together."""

FINDER = f"""
import sys

class Refusing:
    @staticmethod
    def find_spec(name, path=None, target=None):
        if name.partition(".")[0] in {REFUSED}:
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)

sys.meta_path.insert(0, Refusing)
"""


def make_environment() -> Path:
    """Make the environment; return its Python."""
    shutil.rmtree(HOME, ignore_errors=True)
    venv.create(HOME, symlinks=True)
    python = HOME / "bin" / "python"
    here = Path(sysconfig.get_path("purelib"))
    there = HOME / here.relative_to(sys.prefix)
    (there / "without_satellites.py").write_text(FINDER, encoding="utf-8")
    lines = f"{SRC}\n{here}\nimport without_satellites\n"
    (there / "core_alone.pth").write_text(lines, encoding="utf-8")
    _copy_metadata(there)
    for script in Path(sys.prefix, "bin").iterdir():
        _copy_script(script, python)
    return python


def _copy_metadata(folder: Path) -> None:
    """Copy what is known of the distribution, without the entry points of other packages."""
    known = metadata.distribution("handrail")
    target = folder / f"handrail-{known.version}.dist-info"
    target.mkdir()
    for name in ("METADATA", "direct_url.json"):
        target.joinpath(name).write_text(known.read_text(name) or "", encoding="utf-8")
    points = known.read_text("entry_points.txt") or ""
    alone = re.sub(rf"(?m)^.*= ({'|'.join(REFUSED)})\b.*\n", "", points)
    target.joinpath("entry_points.txt").write_text(alone, encoding="utf-8")


def _copy_script(script: Path, python: Path) -> None:
    first = f"#!{Path(sys.prefix, 'bin', 'python')}".encode()
    copy = python.parent / script.name
    if copy.exists() or not script.is_file():
        return
    content = script.read_bytes()
    if content.startswith(first):
        rest = content.partition(b"\n")[2]
        copy.write_bytes(f"#!{python}\n".encode() + rest)
        copy.chmod(0o755)


def main() -> int:
    """Play the demo and run pytest there; return the exit code of the first that fails."""
    chosen = [f"--ignore-glob={ROOT}/tests/{each}" for each in NEEDS_OTHERS]
    if PACKAGE:
        chosen = [f"tests/{PACKAGE}"]
    python = make_environment()
    demo = [python, "-m", "handrail", "demo", "--no-input"]
    tests = [python, "-m", "pytest", "-q", *chosen, "-m", "not others"]
    for command in (demo, [*tests, *sys.argv[2 if PACKAGE else 1 :]]):
        if code := subprocess.run(command, cwd=ROOT, check=False).returncode:
            return code
    return 0


if __name__ == "__main__":
    sys.exit(main())
