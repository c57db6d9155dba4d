"""`handrail config`: the settings in force, and where each comes from."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import click
from msgspec import Struct
from msgspec.structs import asdict

from handrail.cli import options, settings
from handrail.cli.printer import console, print_columns
from handrail.cli.store_access import mask_password, print_json
from handrail.core.redaction import HIDDEN, Redactor, is_secret_name
from handrail.models.providers import PROVIDERS

VARIABLES = (
    "HANDRAIL_STORE", "HANDRAIL_AUDIT_KEY_FILE", "HANDRAIL_MODEL", "HANDRAIL_WEBHOOK_SECRET", "HANDRAIL_GATEWAY",
    "HANDRAIL_OTEL", "HANDRAIL_CAPTURE_CONTENT", "HANDRAIL_DEBUG", "TAVILY_API_KEY", "HTTP_PROXY", "HTTPS_PROXY",
    "http_proxy", "https_proxy", "ALL_PROXY", "all_proxy", "NO_PROXY", "no_proxy",
)  # fmt: skip
"""What is read from the environment, beside keys and addresses of providers and credentials of OpenAPI documents."""

_REFERENCE = re.compile(r"(?:\w{1,20} )?\$\{\w+\}")
"""A variable in place of a value, such as `Bearer ${TOKEN}`."""
_CREDENTIAL = "HANDRAIL_AUTH_"
_SEALED_TABLES = ("env", "headers")
"""Tables of an MCP server whose values are shown only where they are `${NAME}`."""
_ENVIRONMENT = "environment"
_HERE = "the current folder"
_DEFAULT = "default"


class Setting(Struct, frozen=True):
    """A setting in force: its value as it may be shown, and where it comes from."""

    name: str
    value: str
    source: str
    is_exposed: bool = False
    """Whether it is a secret in a file of settings."""


@click.command("config")
@options.as_json
@options.debug
def command(as_json: bool) -> None:
    """Show the settings in force, and where each comes from; secrets are masked.

    \b
    Examples:
      handrail config
      handrail config --json
    """
    found = [*_of_commands(), *_of_environment(), *_of_files()]
    if as_json:
        print_json({"settings": [asdict(each) for each in found]})
        return
    rows = [(each.name, each.source, each.value) for each in found]
    print_columns(console(), rows, heads=("setting", "from", "value"))
    for each in found:
        if each.is_exposed:
            advice = "put it into the environment, and write ${NAME} in its place"
            click.echo(f"{each.name} in {each.source} is a secret: {advice}", err=True)


def _of_commands() -> Iterator[Setting]:
    """Yield the defaults of every command's options."""
    if os.environ.get("HANDRAIL_STORE"):
        source = _ENVIRONMENT
    elif options.store_setting("place"):
        source = _file_of("store")
    else:
        source = _HERE if options.default_store() != options.NO_STORE else _DEFAULT
    yield Setting("store", mask_password(options.default_store()), source)
    if os.environ.get("HANDRAIL_AUDIT_KEY_FILE"):
        source = _ENVIRONMENT
    elif options.key_file():
        source = _file_of("store")
    else:
        source = _DEFAULT
    yield Setting("audit key file", options.key_file() or "none", source)


def _of_environment() -> Iterator[Setting]:
    keys = {
        name
        for each in PROVIDERS.values()
        for name in (each.key_variable, each.other_key_variable)
        if name
    }
    addresses = {each.address_variable for each in PROVIDERS.values()}
    credentials = {name for name in os.environ if name.startswith(_CREDENTIAL)}
    for name in (*VARIABLES, *sorted(keys | addresses | credentials)):
        value = os.environ.get(name)
        if value:
            is_secret = name in keys or name in credentials
            yield Setting(name, _mask(name, value, is_secret=is_secret), _ENVIRONMENT)


def _of_files() -> Iterator[Setting]:
    """Yield the other settings in the files."""
    for table in settings.TABLES:
        values = settings.table(table)
        if values:
            yield from _of_table(table, values, _file_of(table), is_sealed=False)


def _of_table(
    name: str, values: Mapping[str, Any], source: str, *, is_sealed: bool
) -> Iterator[Setting]:
    for key, value in values.items():
        inner = f"{name}.{key}"
        if isinstance(value, Mapping):
            sealed = is_sealed or key in _SEALED_TABLES
            yield from _of_table(inner, value, source, is_sealed=sealed)
            continue
        text = value if isinstance(value, str) else str(value)
        shown = _mask(key, text, is_secret=is_sealed)
        yield Setting(inner, shown, source, is_exposed=shown != text)


def _mask(name: str, value: str, *, is_secret: bool = False) -> str:
    """Return a value as it may be shown; a reference to a variable is no secret."""
    if _REFERENCE.fullmatch(value):
        return value
    if is_secret or is_secret_name(name):
        return HIDDEN
    return Redactor().text(mask_password(value))


def _file_of(table: str) -> str:
    """Return the file that a table is taken from."""
    for file in settings.FILES:
        if Path(file).is_file() and settings.table(table, Path(file)):
            return file
    return _DEFAULT
