"""`handrail doctor`: what this machine has, tested where that is harmless.

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
from threading import Event
from time import perf_counter

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
from handrail.cli.store_access import mask_password, open_store
from handrail.cli.walls import walls
from handrail.errors import ConfigError, StoreUnavailable
from handrail.invisible import json_text
from handrail.ports import Sandbox, SandboxJob
from handrail.runtime import Runtime
from handrail.sandboxes.levels import list_sandboxes
from handrail.stores.sqlite import path_from_url

_KEYS = ("OPENAI_API_KEY",)
_PLAIN = (
    "OPENAI_BASE_URL",
    "HANDRAIL_DEBUG",
    "NO_COLOR",
    "FORCE_COLOR",
    "COLUMNS",
    "TERM",
)
_MODEL = "HANDRAIL_MODEL"
_PARTS = ("models", "dialects", "stores", "approvers")


class CheckResult(Struct, frozen=True):
    """One checked thing; one that is not `ok` keeps handrail from working, one that is not `there` does no harm."""

    subject: str
    found: str
    ok: bool = True
    there: bool = True

    @property
    def mark(self) -> str:
        """The mark before its line."""
        if not self.ok:
            return "✗"
        if self.there:
            return "✓"
        return "-"


@click.command("doctor")
@options.as_json
def command(as_json: bool) -> int:
    """Show what this machine has, and what is missing.

    The store is opened, or a file is made where it is to be; the model's name and key are looked up, and nothing is
    sent to it. Keys are shown masked. The exit code is 1 when something that is needed is missing or does not work.

    \b
    Example:
      handrail doctor --json
    """
    results = list(examine(os.environ))
    if as_json:
        click.echo(
            json_text({"v": 1, "findings": [asdict(result) for result in results]})
        )
    else:
        rows = [(result.mark, result.subject, result.found) for result in results]
        print_columns(console(), rows)
    if all(result.ok for result in results):
        return Exit.OK
    return Exit.ERROR


def examine(environment: Mapping[str, str]) -> Iterator[CheckResult]:
    """Check everything, in the order in which one would ask."""
    yield from _check_installation()
    yield from _check_isolation()
    yield from _check_variables(environment)
    if environment.get(_MODEL):
        yield _model(environment[_MODEL])
    yield _store(environment)
    yield _audit_key()
    yield CheckResult("terminal", _terminal())
    yield CheckResult(
        "encoding",
        f"{sys.stdout.encoding or 'unknown'}, locale {locale.getlocale()[0] or 'C'}",
    )


def _check_installation() -> Iterator[CheckResult]:
    yield CheckResult("handrail", __version__)
    yield CheckResult(
        "python",
        f"{platform.python_version()} at {sys.executable}",
        sys.version_info >= (3, 11),
    )
    for requirement in metadata.requires("handrail") or ():
        if "extra ==" not in requirement:
            yield _package(requirement)
    for kind in _PARTS:
        yield CheckResult(kind, ", ".join(plugins.list_names(kind)))


def _check_isolation() -> Iterator[CheckResult]:
    for sandbox in list_sandboxes():
        lacks = sandbox.lacks
        found = lacks or _try_sandbox(sandbox)
        yield CheckResult(f"sandbox {sandbox.level}", found, there=not lacks)
    for wall in walls():
        yield CheckResult(f"wall {wall.name}", wall.state, there=wall.there)


def _try_sandbox(sandbox: Sandbox) -> str:
    """Run an empty program twice, and say how long the second took: the first may start what stays."""
    job = SandboxJob([sandbox.python, "-I", "-S", "-c", "pass"])
    taken_s = 0.0
    for _ in range(2):
        started = perf_counter()
        try:
            ended = sandbox.run(job, Event())
        except OSError as error:
            return f"does not start: {error}"
        taken_s = perf_counter() - started
        if ended.exit_code != 0:
            return f"does not work: {ended.stderr[-200:].decode(errors='replace')}"
    return f"works; an empty program takes {taken_s * 1e3:.0f} ms"


def _check_variables(environment: Mapping[str, str]) -> Iterator[CheckResult]:
    for name in _KEYS:
        key = environment.get(name, "")
        yield CheckResult(name, mask_key(key) or "not set", there=bool(key))
    for name in _PLAIN:
        if name in environment:
            yield CheckResult(name, environment[name])


def mask_key(key: str) -> str:
    """Return enough of a key to distinguish it from another one, and no more."""
    if not key:
        return ""
    if len(key) >= 20:
        return f"set, {len(key)} characters, ends in …{key[-4:]}"
    return f"set, {len(key)} characters"


def _package(requirement: str) -> CheckResult:
    name = re.split(r"[^A-Za-z0-9._-]", requirement, maxsplit=1)[0]
    try:
        return CheckResult(name, metadata.version(name))
    except metadata.PackageNotFoundError:
        return CheckResult(
            name, f"missing; install it: pip install '{requirement}'", ok=False
        )


def _store(environment: Mapping[str, str]) -> CheckResult:
    """Check the store, and say which setting names it."""
    place = default_store()
    source = "in this folder"
    if environment.get("HANDRAIL_STORE"):
        source = "by HANDRAIL_STORE"
    elif store_setting("place"):
        source = "by `place` in the table `store` of the settings"
    elif place == NO_STORE:
        return CheckResult(
            "store", "none: what is recorded ends with the process", there=False
        )
    try:
        works = _check_store(place)
    except (ConfigError, StoreUnavailable) as error:
        return CheckResult(
            "store", f"{mask_password(place)}, {source}: {error}", ok=False
        )
    return CheckResult("store", f"{mask_password(place)}, {source}: {works}")


def _check_store(place: str) -> str:
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
            raise ConfigError(
                f"no file can be made in {file.parent}: {error.strerror}"
            ) from error
    with open_store(place):
        return "it opens"


def _model(name: str) -> CheckResult:
    """Check that a model of this name exists and has the key that its provider needs."""
    try:
        asyncio.run(_check_model(name))
    except ConfigError as error:
        return CheckResult(_MODEL, f"{name}: {error}", ok=False)
    return CheckResult(_MODEL, name)


async def _check_model(name: str) -> None:
    async with Runtime([]) as runtime:
        runtime._engine.resolve_model(name)


def _audit_key() -> CheckResult:
    """Say where the key of the audit log is, and whether it can be read; nothing of the key."""
    if not (file := key_file()):
        return CheckResult(
            "audit key", "none: the audit log is hashed without one", there=False
        )
    try:
        key_in(file)
    except ConfigError as error:
        return CheckResult("audit key", str(error), ok=False)
    return CheckResult("audit key", f"in {file}")


def _terminal() -> str:
    streams = {"stdin": sys.stdin, "stdout": sys.stdout, "stderr": sys.stderr}
    ours = [
        name
        for name, stream in streams.items()
        if stream is not None and stream.isatty()
    ]
    width = console().width
    edge = "output is not wrapped" if width == NO_EDGE else f"{width} columns"
    return f"{', '.join(ours) or 'none'}; {edge}"
