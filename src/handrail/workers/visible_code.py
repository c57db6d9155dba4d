"""Which files an isolated tool sees of its own: code, and what it declares as `mounts`."""

from __future__ import annotations

import sys
import sysconfig
from collections.abc import Sequence
from pathlib import Path

from handrail.tools.tool import BaseTool

_INSTALLED = ("site-packages", "dist-packages")


def find_visible_code(tool: BaseTool) -> tuple[Sequence[str], Sequence[str]]:
    """Return `sys.path` of the tool's sandbox, and which of our files and folders are mounted there, read-only.

    Folders of installed packages are mounted whole. In other folders, such as a project's, `.env` or a database may lie
    beside the code: of those the tool sees its own package or file, handrail, and the packages of ours beside it.
    """
    standard_library = Path(sysconfig.get_path("stdlib")).resolve()
    inside_already = (standard_library, standard_library / "lib-dynload")
    folders = dict.fromkeys(Path(each or ".").resolve() for each in sys.path)
    path = [
        str(each) for each in folders if each.is_dir() and each not in inside_already
    ]
    installed = [each for each in path if Path(each).name in _INSTALLED]
    ours = Path(__file__).parents[1]
    code = [
        str(ours),
        *map(str, ours.parent.glob(f"{ours.name}_*")),
        _code_path(getattr(tool.run, "__module__", None) or ""),
    ]
    wanted = [
        str(Path(each).resolve()) for each in (*code, *tool.sandbox.mounts) if each
    ]
    mounts = [
        *installed,
        *(each for each in wanted if not _is_below_any(each, installed)),
    ]
    return path, list(dict.fromkeys(mounts))


def _is_below_any(path: str, folders: Sequence[str]) -> bool:
    return any(Path(path).is_relative_to(folder) for folder in folders)


def _code_path(module: str) -> str | None:
    """Return the folder of a module's outermost package, or its own file."""
    top = sys.modules.get(module.partition(".")[0])
    file = getattr(top, "__file__", None)
    if file and hasattr(top, "__path__"):
        return str(Path(file).parent)
    return getattr(sys.modules.get(module), "__file__", None)
