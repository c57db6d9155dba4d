"""The settings of a project: a command's table in `handrail.toml`, or below `[tool.handrail]` in pyproject.toml."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from handrail.errors import ConfigError
from handrail.parsing.names import nearest

TABLES = ("store", "lint")
"""All tables that the settings may have."""

FILES = ("handrail.toml", "pyproject.toml")
"""Where settings are looked for, in the present folder; the first that has the table is taken."""


def table(command: str, file: Path | None = None) -> Mapping[str, Any]:
    """Return a command's settings; without a file, those of the present folder, or none.

    Raises:
        ConfigError: A file cannot be read, or what stands there is no table.
    """
    for path in [file] if file else map(Path, FILES):
        if not (file or path.is_file()):
            continue
        found: Any = _read(path)
        for step in ("tool", "handrail") if path.name == "pyproject.toml" else ():
            if isinstance(found, dict):
                found = found.get(step, {})
            else:
                found = found
        if isinstance(found, dict):
            _check_tables(found, path)
            found = found.get(command, {})
        if not isinstance(found, dict):
            raise ConfigError(f"`{command}` in {path} is {found!r}; it is a table")
        if found or file:
            return found
    return {}


def _check_tables(settings: Mapping[str, Any], path: Path) -> None:
    for name in settings:
        if name not in TABLES:
            near = nearest(name, TABLES)
            if near:
                advice = f"did you mean {near[0]!r}?"
            else:
                advice = f"known are {', '.join(TABLES)}"
            raise ConfigError(f"{path} has {name!r}, which is no setting of handrail; {advice}")


def _read(path: Path) -> Any:
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise ConfigError(f"{path} cannot be read: {error}") from error
