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
        value: Any = _read(path)
        for step in ("tool", "handrail") if path.name == "pyproject.toml" else ():
            if isinstance(value, dict):
                value = value.get(step, {})
        if isinstance(value, dict):
            _check_tables(value, path)
            value = value.get(command, {})
        if not isinstance(value, dict):
            raise ConfigError(f"`{command}` in {path} is {value!r}; write a table")
        if value or file:
            return value
    return {}


def _check_tables(settings: Mapping[str, Any], path: Path) -> None:
    for name in settings:
        if name not in TABLES:
            near = nearest(name, TABLES)
            if near:
                advice = f"did you mean {near[0]!r}?"
            else:
                advice = f"known are {', '.join(TABLES)}"
            raise ConfigError(
                f"{path} has {name!r}, which is not a setting of handrail; {advice}"
            )


def _read(path: Path) -> Any:
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise ConfigError(f"{path} cannot be read: {error}") from error
