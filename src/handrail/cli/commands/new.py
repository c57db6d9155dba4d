"""`handrail new`: a small project of one's own that runs at once."""

from __future__ import annotations

import re
from importlib import resources
from pathlib import Path
from string import Template

import click

from handrail.cli import options
from handrail.cli.store_access import say
from handrail.errors import ConfigError

FILES = {
    "tools.py": "tools.py.txt",
    "test_tools.py": "test_tools.py.txt",
    "handrail.toml": "handrail.toml.txt",
    "README.md": "README.md.txt",
    ".gitignore": "gitignore.txt",
}
"""What a project begins with: its name there, and the template's in `cli/project/`."""

_NAME = r"[a-z][a-z0-9_-]{0,49}"


@click.command("new")
@click.argument("name")
@click.option("--dry-run", is_flag=True, help="Only say what would be written.")
@options.debug
def command(name: str, dry_run: bool) -> None:
    """Create a project: tools, a test that kills them, and settings, in a new folder.

    NAME is the folder's name: small letters, digits, `-` and `_`. Nothing that is there is overwritten.

    \b
    Example:
      handrail new shop && cd shop && python -m pytest
    """
    if not re.fullmatch(_NAME, name):
        raise ConfigError(
            f"{name!r} cannot be the name; take small letters, digits, `-` and `_`, such as shop"
        )
    folder = Path(name)
    if _is_taken(folder):
        raise ConfigError(f"there is something at {name} already; nothing was written")
    texts = {
        each: _template(source).substitute(name=name) for each, source in FILES.items()
    }
    listed = ", ".join(f"{name}/{each}" for each in texts)
    if dry_run:
        say(f"would write {listed}")
        return
    _write(folder, texts)
    say(f"wrote {listed}")
    say(f"go on:  cd {name} && python -m pytest")


def _is_taken(folder: Path) -> bool:
    """Whether something is there; an empty folder can be used."""
    if folder.is_symlink():
        return True
    if folder.is_dir():
        return any(folder.iterdir())
    return folder.exists()


def _template(source: str) -> Template:
    return Template(
        resources.files("handrail.cli")
        .joinpath("project", source)
        .read_text(encoding="utf-8")
    )


def _write(folder: Path, texts: dict[str, str]) -> None:
    """Write the files.

    Raises:
        ConfigError: The folder cannot be written to, or somebody else creates the same project at this moment.
    """
    try:
        folder.mkdir(exist_ok=True)
        for name, text in texts.items():
            with (folder / name).open("x", encoding="utf-8") as file:
                file.write(text)
    except OSError as error:
        raise ConfigError(f"{folder} cannot be written: {error.strerror}") from error
