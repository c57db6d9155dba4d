"""`handrail doctor`: what this machine has, tried out where that is harmless.

The store is opened, the model's name and key are looked up, and a file is created and removed. No model is called, so a
key that its provider refuses is not noticed.
"""

from __future__ import annotations

import asyncio
import locale
import os
import platform
import re
import sys
import tempfile
from collections.abc import Iterator, Mapping
from importlib import metadata

import click
from msgspec import Struct
from msgspec.structs import asdict

from handrail import plugins
from handrail._version import __version__
from handrail.audit.log_key import key_in
from handrail.cli import options
from handrail.cli.exits import Exit
from handrail.cli.options import NO_STORE, default_store, key_file, store_setting
from handrail.cli.printer import NO_EDGE, console, print_columns
from handrail.cli.store_access import opened, shown
from handrail.cli.walls import walls
from handrail.errors import ConfigError, StoreUnavailable
from handrail.invisible import json_text
from handrail.runtime import Runtime
from handrail.sandboxes.levels import offered
from handrail.stores.sqlite import path_from_url

_KEYS = ("OPENAI_API_KEY",)
_PLAIN = ("OPENAI_BASE_URL", "HANDRAIL_DEBUG", "NO_COLOR", "FORCE_COLOR", "COLUMNS", "TERM")
_MODEL = "HANDRAIL_MODEL"
_PARTS = ("models", "dialects", "stores", "approvers")


class Finding(Struct, frozen=True):
    """One thing that was looked at; not `ok` keeps handrail from working, not `there` does no harm."""

    subject: str
    found: str
    ok: bool = True
    there: bool = True

    @property
    def mark(self) -> str:
        """What stands before it."""
        if not self.ok:
            return "✗"
        if self.there:
            return "✓"
        return "-"


@click.command("doctor")
@options.as_json
def command(as_json: bool) -> int:
    """Say what this machine has, and what is missing.

    The store is opened, or a file is made where it is to be; the model's name and key are looked up, and nothing is
    sent to it. Keys are shown masked. The exit code is 1 when something that is needed is missing or does not work.

    \b
    Example:
      handrail doctor --json
    """
    findings = list(examined(os.environ))
    if as_json:
        click.echo(json_text({"v": 1, "findings": [asdict(finding) for finding in findings]}))
    else:
        rows = [(finding.mark, finding.subject, finding.found) for finding in findings]
        print_columns(console(), rows)
    if all(finding.ok for finding in findings):
        return Exit.OK
    return Exit.ERROR


def examined(environment: Mapping[str, str]) -> Iterator[Finding]:
    """Look at everything, in the order in which one would ask."""
    yield Finding("handrail", __version__)
    yield Finding("python", f"{platform.python_version()} at {sys.executable}", sys.version_info >= (3, 11))
    for requirement in metadata.requires("handrail") or ():
        if "extra ==" not in requirement:
            yield _package(requirement)
    for kind in _PARTS:
        yield Finding(kind, ", ".join(plugins.known(kind)))
    for sandbox in offered():
        lacks = sandbox.lacks
        yield Finding(f"sandbox {sandbox.level}", lacks or "works", there=not lacks)
    for wall in walls():
        yield Finding(f"wall {wall.name}", wall.state, there=wall.there)
    for name in _KEYS:
        key = environment.get(name, "")
        yield Finding(name, masked(key) or "not set", there=bool(key))
    for name in _PLAIN:
        if name in environment:
            yield Finding(name, environment[name])
    if environment.get(_MODEL):
        yield _model(environment[_MODEL])
    yield _store(environment)
    yield _audit_key()
    yield Finding("terminal", _terminal())
    yield Finding("encoding", f"{sys.stdout.encoding or 'unknown'}, locale {locale.getlocale()[0] or 'C'}")


def masked(key: str) -> str:
    """Return enough of a key to tell it from another one, and no more."""
    if not key:
        return ""
    if len(key) >= 20:
        return f"set, {len(key)} characters, ends in …{key[-4:]}"
    return f"set, {len(key)} characters"


def _package(requirement: str) -> Finding:
    name = re.split(r"[^A-Za-z0-9._-]", requirement, maxsplit=1)[0]
    try:
        return Finding(name, metadata.version(name))
    except metadata.PackageNotFoundError:
        return Finding(name, f"missing; install it: pip install '{requirement}'", ok=False)


def _store(environment: Mapping[str, str]) -> Finding:
    """Say where kept things are looked for, and who says so."""
    place = default_store()
    said = "in this folder"
    if environment.get("HANDRAIL_STORE"):
        said = "by HANDRAIL_STORE"
    elif store_setting("place"):
        said = "by `place` in the table `store` of the settings"
    elif place == NO_STORE:
        return Finding("store", "none: what is done is known until the process ends", there=False)
    try:
        works = _tried(place)
    except (ConfigError, StoreUnavailable) as error:
        return Finding("store", f"{shown(place)}, {said}: {error}", ok=False)
    return Finding("store", f"{shown(place)}, {said}: {works}")


def _tried(place: str) -> str:
    """Check that a store opens, or that its file can be created, and say which.

    Raises:
        ConfigError: It is not a store, or its file cannot be created.
        StoreUnavailable: It cannot be opened now.
    """
    kind, _, where = place.partition(":")
    if kind == "sqlite" and not (file := path_from_url(where)).exists():
        try:
            with tempfile.TemporaryFile(dir=file.parent):
                return "not there yet; it can be made"
        except OSError as error:
            raise ConfigError(f"no file can be made in {file.parent}: {error.strerror}") from error
    with opened(place):
        return "it opens"


def _model(name: str) -> Finding:
    """Check that a model of this name exists and has the key that its provider needs."""
    try:
        asyncio.run(_looked_up(name))
    except ConfigError as error:
        return Finding(_MODEL, f"{name}: {error}", ok=False)
    return Finding(_MODEL, name)


async def _looked_up(name: str) -> None:
    async with Runtime([]) as runtime:
        runtime._engine.resolve_model(name)


def _audit_key() -> Finding:
    """Say where the key of the audit log is, and whether it can be read; nothing of the key."""
    if not (file := key_file()):
        return Finding("audit key", "none: the audit log is hashed without one", there=False)
    try:
        key_in(file)
    except ConfigError as error:
        return Finding("audit key", str(error), ok=False)
    return Finding("audit key", f"in {file}")


def _terminal() -> str:
    known = {"stdin": sys.stdin, "stdout": sys.stdout, "stderr": sys.stderr}
    ours = [name for name, stream in known.items() if stream is not None and stream.isatty()]
    width = console().width
    return f"{', '.join(ours) or 'none'}; {'output is not wrapped' if width == NO_EDGE else f'{width} columns'}"
