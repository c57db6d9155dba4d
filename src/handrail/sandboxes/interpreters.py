"""Which Python runs in a box: our own, or the system's, as nobody cannot read one in root's home."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from handrail.ports import JobEnded, SandboxJob


def find_interpreter(
    run: Callable[[str, SandboxJob], JobEnded], name: str
) -> tuple[str, str]:
    """Return the interpreter that starts in a box, or none and why.

    Args:
        run: Runs a job in a box with this interpreter.
        name: Of what makes the box, for the reason.
    """
    reason = "it holds no Python"
    for python in dict.fromkeys(
        [
            str(Path(sys.executable).resolve()),
            "/usr/local/bin/python3",
            "/usr/bin/python3",
        ]
    ):
        if not Path(python).exists():
            continue
        job = SandboxJob([python, "-I", "-S", "-c", "print('in')"], timeout_s=10)
        try:
            trial = run(python, job)
        except OSError:
            reason = f"{name} does not start"
            continue
        if trial.stdout.strip() == b"in":
            return python, ""
        lines = trial.stderr.decode(errors="replace").strip().splitlines() or [
            "no reason given"
        ]
        reason = f"{name} does not work: {lines[-1][:200]}"
    return "", reason


def mounts_of_interpreter(python: str) -> Sequence[str]:
    """Return what an interpreter that does not lie below /usr needs: the program, its library, and nothing beside them.

    Its prefix may be somebody's home (`~/bin/python3`), or `/`, whose folders are mounted already.
    """
    program = Path(python)
    home = program.parents[1]
    if program.is_relative_to("/usr") or home == Path("/"):
        return []
    version = f"python{sys.version_info.major}.{sys.version_info.minor}"
    library = [*home.glob(f"lib*/{version}"), *home.glob("lib*/libpython*.so*")]
    # its modules link to what else lies in there, and a person's files do not
    if (home / "conda-meta").is_dir():
        library = [home / "lib"]
    return [str(each) for each in (program, *library)]
