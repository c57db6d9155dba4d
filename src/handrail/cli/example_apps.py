"""Where the apps of `examples/apps` are, in a checkout or in an installed package."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from handrail.errors import ConfigError

_PACKAGE = Path(__file__).parents[1]
PLACES = (_PACKAGE / "examples", _PACKAGE.parents[1] / "examples" / "apps")
"""Where the apps are: in an installed package, in a checkout."""


def app_files() -> Mapping[str, Path]:
    """Return the apps by name.

    Raises:
        ConfigError: They are not installed.
    """
    for place in PLACES:
        if files := sorted(place.glob("[!_]*.py")):
            return {file.stem: file for file in files}
    raise ConfigError(
        "the apps are not installed; they are in `examples/apps` of the repository"
    )
