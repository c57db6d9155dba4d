"""Reads the file of a gateway: the servers behind it, and the rules for calls.

    [gateway]
    store = "sqlite:///gateway.db"          # beside the file, unless a whole place is given
    ask_from = "high"

    [[gateway.rules]]                       # the first that matches decides
    tool = "files_write_file"
    then = "allow"
    arguments = { path = "/data/[a-z]+" }

    [mcp.servers.files]
    command = "npx"
    args = ["-y", "@modelcontextprotocol/server-filesystem", "/data"]

Rule 1: an unknown key is an error: a misspelt rule would never apply.
Rule 2: without a file there is no gateway; nothing is guessed.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from msgspec import Struct

from handrail.core.budgets import Budget
from handrail.core.policy import Policy, read_policy
from handrail.errors import ConfigError, SetupError, describe_install
from handrail.parsing.names import advise
from handrail_mcp.gateways.shared_files import hold_lock, write_whole
from handrail_mcp.server_settings import ServerSettings, read_servers

try:
    import tomli_w
except ImportError as missing:  # the commands of the gateway import this module first
    raise ConfigError(
        f"the Model Context Protocol needs the extra `mcp`: {describe_install('mcp')}"
    ) from missing

_TEXTS = ("name", "store", "pins", "instructions")
_NUMBERS = ("definition_tokens", "result_bytes", "calls", "time_s")
_POLICY_KEYS = ("max_permission", "ask_from", "approval_s", "own_approval", "rules")
_KEYS = (*_TEXTS, *_NUMBERS, *_POLICY_KEYS)


class GatewaySettings(Struct, frozen=True, kw_only=True):
    """The settings of a gateway.

    Attributes:
        servers: By name, in order.
        policy: What may be done; a person is asked before a call of high risk by default.
        store: Where calls, approvals and the audit log are.
        pins: The file of what somebody has agreed to.
        name: The server name that clients read; part of the names of runs.
        instructions: What clients may tell their models.
        definition_tokens: About how many tokens the definitions of all tools may take. Beyond, clients are shown two
            tools that search and call the others. 0 for no limit.
        result_bytes: How much of a result a client gets at once, in bytes of UTF-8.
        budget: What one session may spend.
    """

    servers: Mapping[str, ServerSettings]
    policy: Policy
    store: str
    pins: Path
    name: str = "handrail"
    instructions: str = ""
    definition_tokens: int = 20_000
    result_bytes: int = 50_000
    budget: Budget = Budget(calls=None, turns=None, time_s=None)


def read_gateway(file: Path) -> GatewaySettings:
    """Return the settings in a file.

    Raises:
        ConfigError: It cannot be read, or says something that no gateway understands.
    """
    document = _read_document(file)
    table = document.get("gateway", {})
    if not isinstance(table, dict):
        raise ConfigError(f"`gateway` in {file} is {table!r}; write a table")
    try:
        _check_keys(table)
        policy_table = {key: table[key] for key in _POLICY_KEYS if key in table}
        return GatewaySettings(
            servers=read_servers(document),
            policy=read_policy(policy_table),
            store=_place_store(str(table.get("store", "sqlite:///gateway.db")), file),
            pins=file.parent / str(table.get("pins", "gateway-pins.json")),
            budget=Budget(
                calls=table.get("calls"), turns=None, time_s=table.get("time_s")
            ),
            **{
                key: table[key]
                for key in (
                    "name",
                    "instructions",
                    "definition_tokens",
                    "result_bytes",
                )
                if key in table
            },
        )
    except SetupError as error:
        raise ConfigError(f"{file} cannot be used: {error}") from error


def add_servers(file: Path, servers: Mapping[str, Mapping[str, Any]]) -> None:
    """Add servers to a gateway's file, which is made if there is none. Only its owner can read it: it may hold keys.

    What is written there stays as it is, comments included. One process at a time adds.

    Raises:
        ConfigError: A server of that name is there already with other settings, or the file cannot be written.
    """
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ConfigError(f"{file.parent} cannot be made: {error.strerror}") from error
    with hold_lock(file):
        text = _read_text(file) if file.exists() else "[gateway]\n"
        write_whole(file, _add_tables(text, file, servers).encode(), 0o600)


def _add_tables(text: str, file: Path, servers: Mapping[str, Mapping[str, Any]]) -> str:
    """Return a gateway's file with more servers."""
    document = _parse(text, file)
    present = document.setdefault("mcp", {}).setdefault("servers", {})
    added = {}
    for name, settings in servers.items():
        if present.get(name, settings) != settings:
            raise ConfigError(f"{file} has another server {name!r} already")
        if name not in present:
            present[name] = added[name] = dict(settings)
    if not added:
        return text
    longer = f"{text.rstrip()}\n\n{tomli_w.dumps({'mcp': {'servers': added}})}"
    with suppress(ValueError):
        if tomllib.loads(longer) == document:
            return longer
    # the servers stand in a table that is closed, such as `servers = { ... }`
    return tomli_w.dumps(document)


def _read_document(file: Path) -> dict[str, Any]:
    return _parse(_read_text(file), file)


def _parse(text: str, file: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(text)
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"{file} cannot be read: {error}") from error


def _read_text(file: Path) -> str:
    try:
        return file.read_text(encoding="utf-8")
    except FileNotFoundError:
        raise ConfigError(
            f"there is no {file}; make one from a client's file: handrail gateway import FILE"
        ) from None
    except (OSError, ValueError) as error:
        raise ConfigError(f"{file} cannot be read: {error}") from error


def _check_keys(table: Mapping[str, Any]) -> None:
    for key, value in table.items():
        if key not in _KEYS:
            hint = advise(key, _KEYS, f"the keys are {', '.join(_KEYS)}")
            raise ConfigError(f"`gateway` has no key {key!r}; {hint}")
        if key in _TEXTS and not isinstance(value, str):
            raise ConfigError(f"`{key}` of gateway is {value!r}; write text in quotes")
        if key in _NUMBERS and (type(value) is not int or value < 0):
            raise ConfigError(f"`{key}` of gateway is {value!r}; write a whole number")


def _place_store(store: str, file: Path) -> str:
    """Return a store's place; a relative one is beside the file, because a client starts the gateway anywhere."""
    kind, separator, path = store.partition(":///")
    if separator and kind == "sqlite" and not path.startswith("/"):
        return f"sqlite:///{file.parent.resolve() / path}"
    return store
