"""The settings of a project: a command's table in `handrail.toml`, or below `[tool.handrail]` in pyproject.toml."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from os import environ
from pathlib import Path
from typing import Any

from handrail.errors import ConfigError
from handrail.parsing.names import advise

TABLES = ("store", "retention", "lint", "mcp", "otel", "schedule")
"""All tables that the settings may have."""

FILES = ("handrail.toml", "pyproject.toml")
"""Where settings are looked for, in the present folder; the first that has the table is taken."""


def table(command: str, file: Path | None = None) -> Mapping[str, Any]:
    """Return a command's settings; without a file, those of the present folder, or none.

    Raises:
        ConfigError: A file cannot be read, or what is written there is no table.
    """
    if file:
        return _read_table(command, file)
    for path in map(Path, FILES):
        if path.is_file() and (values := _read_table(command, path)):
            return values
    return {}


def apply_otel() -> None:
    """Set the environment variables of the table `[otel]`, unless they are set: the environment decides.

    Raises:
        ConfigError: The table has another key than `enabled` and `content`, or one that is neither true nor false.
    """
    for name, value in table("otel").items():
        variable = _OTEL.get(name)
        if variable is None or not isinstance(value, bool):
            raise ConfigError(
                f"[otel] has {name} = {value!r}; it takes `enabled` and `content`, each true or false"
            )
        environ.setdefault(variable, "true" if value else "false")


_OTEL = {"enabled": "HANDRAIL_OTEL", "content": "HANDRAIL_CAPTURE_CONTENT"}


def _read_table(command: str, path: Path) -> Mapping[str, Any]:
    value: Any = _read(path)
    if path.name == "pyproject.toml":
        for step in ("tool", "handrail"):
            if isinstance(value, dict):
                value = value.get(step, {})
    if isinstance(value, dict):
        _check_tables(value, path)
        value = value.get(command, {})
    if not isinstance(value, dict):
        raise ConfigError(f"`{command}` in {path} is {value!r}; write a table")
    return value


def _check_tables(settings: Mapping[str, Any], path: Path) -> None:
    for name in settings:
        if name not in TABLES:
            advice = advise(name, TABLES, f"the settings are {', '.join(TABLES)}")
            raise ConfigError(
                f"{path} has {name!r}, which is not a setting of handrail; {advice}"
            )


def _read(path: Path) -> Any:
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise ConfigError(f"{path} cannot be read: {error}") from error
