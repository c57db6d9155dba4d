"""The servers that people have in their editors and chat programs, moved behind a gateway, and back.

    moved = move_servers(Path("~/.cursor/mcp.json").expanduser(), config, command)

The forms: `mcpServers` (Claude Desktop, Claude Code, Cursor, Windsurf), `servers` (VS Code's mcp.json) and
`mcp.servers` (VS Code's settings.json), as JSON with or without comments.

Rule 1: the file is copied byte for byte before anything in it is changed; the copy lies beside it.
Rule 2: a file that was changed after the import is not restored: somebody may have added to it.
Rule 3: of two imports of a file at once, one is refused, so that the copy is always of the original.
Rule 4: what the gateway could not start as the client would stays where it is, and is named.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, TypeAlias

from msgspec import Struct

from handrail.errors import ConfigError
from handrail_mcp.gateways.shared_files import write_whole
from handrail_mcp.server_settings import read_server

Entry: TypeAlias = dict[str, Any]
"""What a client's file says of one server."""

GATEWAY = "handrail"
"""Under this name a client finds the gateway."""

KEPT = ".before-handrail"
"""What is added to the name of a file that was imported, for the copy as it was."""

PLACES = (("mcpServers",), ("servers",), ("mcp", "servers"))
"""Where clients keep their servers."""

_KEYS = {"command", "args", "env", "cwd", "url", "headers"}
_UNUSED_KEYS = {
    "type",
    "transport",
    "disabled",
    "enabled",
    "alwaysAllow",
    "autoApprove",
}
_MOST_CHARS = 32
_MOST_DEPTH = 100
_UNACCEPTABLE = re.compile(r"[^A-Za-z0-9_.-]+")
_VARIABLE = re.compile(r"\$\{([^}]*)\}")
_ENVIRONMENT = re.compile(r"(?:env:)?([A-Za-z_][A-Za-z0-9_]*)")
_CLIENT_VARIABLES = {"userHome", "workspaceFolder", "workspaceRoot", "pathSeparator"}


class Imported(Struct, frozen=True):
    """What was read from a client's file.

    Attributes:
        servers: What the gateway takes over, in the form of its own configuration.
        left: Why a server stays with the client, by its name.
        text: The file as it is to be now.
    """

    servers: Mapping[str, Entry]
    left: Mapping[str, str]
    text: str


def read_client_config(text: str, command: Sequence[str], name: str) -> Imported:
    """Return the servers of a client's file, and the file with a gateway in their place.

    Args:
        command: Starts the gateway.
        name: Of the file, for messages.

    Raises:
        ConfigError: The file is not JSON, or has servers under none of `PLACES`.
    """
    document = _parse_json(text, name)
    place = next((each for each in PLACES if _at(document, each)), None)
    if place is None:
        places = ", ".join(".".join(each) for each in PLACES)
        raise ConfigError(f"{name} has no MCP servers under any of {places}")
    servers: dict[str, Entry] = {}
    left: dict[str, str] = {}
    remaining: dict[str, Any] = {}
    for server, entry in _at(document, place).items():
        here = _make_name(server)
        why = "it is the gateway" if server == GATEWAY else _why_left(here, entry)
        if here in servers:
            why = f"another server is called {here!r} here"
        if why:
            left[server] = why
            remaining[server] = entry
        else:
            servers[here] = _translate(entry)
    if not servers:
        reasons = "; ".join(f"{server!r}: {why}" for server, why in left.items())
        raise ConfigError(f"{name} has no server that can be moved: {reasons}")
    remaining[GATEWAY] = {"command": command[0], "args": list(command[1:])}
    _put(document, place, remaining)
    return Imported(servers, left, _write_json(document))


def preview_move(file: Path, command: Sequence[str]) -> Imported:
    """Return what `move_servers` would do to a client's file, and change nothing.

    Raises:
        ConfigError: As for `move_servers`.
    """
    file = file.resolve()
    if _copy_of(file).exists():
        raise _refuse_again(file)
    return read_client_config(_decode(_read(file), file), command, str(file))


def _refuse_again(file: Path) -> ConfigError:
    return ConfigError(
        f"{file} was imported before; put it back first: handrail gateway restore {file}"
    )


def move_servers(file: Path, command: Sequence[str]) -> Imported:
    """Put a gateway in the place of the servers in a client's file; keep the file as it was beside it.

    Args:
        command: Starts the gateway.

    Raises:
        ConfigError: It cannot be read or written, was imported before, or has nothing to import.
    """
    file = file.resolve()
    copy = _copy_of(file)
    if copy.exists():
        raise _refuse_again(file)
    before = _read(file)
    imported = read_client_config(_decode(before, file), command, str(file))
    mode = file.stat().st_mode & 0o777
    try:
        write_whole(copy, before, mode, is_new=True)
    except FileExistsError:
        raise _refuse_again(file) from None
    try:
        write_whole(file, imported.text.encode(), mode)
    except ConfigError:
        copy.unlink(missing_ok=True)
        raise
    return imported


def restore(file: Path, *, force: bool = False) -> None:
    """Put a client's file back as it was, byte for byte.

    Args:
        force: Even if it was changed after the import.

    Raises:
        ConfigError: It was not imported, or was changed since.
    """
    file = file.resolve()
    copy = _copy_of(file)
    if not copy.exists():
        raise ConfigError(f"{file} was not imported: there is no {copy.name}")
    before = _read(copy)
    if not force and file.exists():
        after = _read(file)
        if after == before:  # the import ended before it changed the file
            copy.unlink()
            return
        now = _decode(after, file)
        command = _gateway_command(now, str(file))
        written = read_client_config(_decode(before, copy), command, str(copy)).text
        if now != written:
            raise ConfigError(
                f"{file} was changed after the import; compare it with {copy.name}, then put that back with --force"
            )
    write_whole(file, before, copy.stat().st_mode & 0o777)
    copy.unlink()


def _copy_of(file: Path) -> Path:
    return file.with_name(file.name + KEPT)


def _read(file: Path) -> bytes:
    try:
        return file.read_bytes()
    except OSError as error:
        raise ConfigError(f"{file} cannot be read: {error.strerror}") from error


def _decode(data: bytes, file: Path) -> str:
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise ConfigError(f"{file} is not UTF-8: {error.reason}") from error


def _gateway_command(text: str, name: str) -> list[str]:
    document = _parse_json(text, name)
    for place in PLACES:
        entry = _at(document, place).get(GATEWAY)
        if isinstance(entry, dict) and isinstance(entry.get("args"), list):
            return [str(entry.get("command", "")), *map(str, entry["args"])]
    return [""]


# ---------------------------------------------------------------------- one server


def _make_name(name: str) -> str:
    """Return what a server is called in the gateway's file, where a name has no spaces.

    >>> _make_name("Figma Dev Mode MCP")
    'Figma_Dev_Mode_MCP'
    """
    return _UNACCEPTABLE.sub("_", name).strip("_.-")[:_MOST_CHARS]


def _why_left(name: str, entry: object) -> str:
    """Return why a server stays with its client; empty if it can be moved."""
    if not isinstance(entry, dict):
        return "it is no table of settings"
    if entry.get("disabled") is True or entry.get("enabled") is False:
        return "it is disabled"
    addresses = [key for key in ("url", "serverUrl", "httpUrl") if key in entry]
    if ("command" in entry) == bool(addresses):
        return "it has neither a command nor an address, or both"
    if entry.get("type") == "sse" or entry.get("transport") == "sse":
        return "it speaks the old HTTP+SSE transport"
    for variable in _variables_in(entry):
        if variable.startswith("input:"):
            return f"its client asks for ${{{variable}}}"
        if variable in _CLIENT_VARIABLES or not _ENVIRONMENT.fullmatch(
            variable.partition(":-")[0]
        ):
            return f"only its client knows ${{{variable}}}"
    unknown = entry.keys() - _KEYS - _UNUSED_KEYS - {"serverUrl", "httpUrl"}
    if unknown:
        return f"it has settings that are not known here: {', '.join(sorted(unknown))}"
    try:
        read_server(name, _translate(entry))
        json.dumps(entry, ensure_ascii=False).encode()
    except ConfigError as error:
        return str(error)
    except UnicodeEncodeError:
        return "it holds half a character"
    return ""


def _variables_in(value: Any) -> list[str]:
    if isinstance(value, str):
        return _VARIABLE.findall(value)
    if isinstance(value, dict):
        return [name for each in value.values() for name in _variables_in(each)]
    if isinstance(value, list):
        return [name for each in value for name in _variables_in(each)]
    return []


def _translate(entry: Entry) -> Entry:
    """Return a server as the gateway's configuration has it: an environment variable is `${NAME}` there."""
    translated = {
        key: each for key, each in entry.items() if key in _KEYS and each is not None
    }
    for key in ("env", "headers"):
        if isinstance(translated.get(key), dict):
            translated[key] = {
                name: _as_text(each) for name, each in translated[key].items()
            }
    for key in ("serverUrl", "httpUrl"):
        if key in entry:
            translated["url"] = entry[key]
    changed: Entry = _map_text(translated, lambda text: re.sub(r"\$\{env:", "${", text))
    return changed


def _as_text(value: Any) -> Any:
    """Return a number as text: clients take one in an environment."""
    return json.dumps(value) if isinstance(value, bool | int | float) else value


def _map_text(value: Any, change: Any) -> Any:
    if isinstance(value, str):
        return change(value)
    if isinstance(value, dict):
        return {key: _map_text(each, change) for key, each in value.items()}
    if isinstance(value, list):
        return [_map_text(each, change) for each in value]
    return value


# ---------------------------------------------------------------------- JSON with comments

# Each ends at the end of the text at the latest: else an open one is looked for again and again.
_STRING = r"""("(?:\\.|[^"\\])*(?:"|\Z))"""
_COMMENT = re.compile(_STRING + r"|/\*.*?(?:\*/|\Z)|//[^\r\n]*", re.DOTALL)
_TRAILING_COMMA = re.compile(_STRING + r"|,(?=\s*[}\]])", re.DOTALL)


def _parse_json(text: str, name: str) -> dict[str, Any]:
    """Return a JSON object; comments and commas before a closing bracket are allowed, as editors allow them.

    Raises:
        ConfigError: The text is no JSON, or no object.
    """
    plain = text
    for pattern in (_COMMENT, _TRAILING_COMMA):
        plain = pattern.sub(lambda match: match[1] or "", plain)
    try:
        document = json.loads(plain)
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"{name} is not JSON: {error}") from error
    if not isinstance(document, dict):
        raise ConfigError(f"{name} is not a JSON object")
    if _is_deep(document):
        raise ConfigError(f"{name} is nested in more than {_MOST_DEPTH} levels")
    return document


def _is_deep(document: Any) -> bool:
    level = [document]
    for _ in range(_MOST_DEPTH):
        level = [
            inner
            for each in level
            if isinstance(each, dict | list)
            for inner in (each.values() if isinstance(each, dict) else each)
        ]
    return bool(level)


def _write_json(document: Mapping[str, Any]) -> str:
    try:
        text = json.dumps(document, ensure_ascii=False, indent=2)
        text.encode()
    except UnicodeEncodeError:
        # half a character has no UTF-8
        return json.dumps(document, indent=2)
    return text


def _at(document: Mapping[str, Any], place: Sequence[str]) -> dict[str, Any]:
    value: Any = document
    for key in place:
        value = value.get(key) if isinstance(value, Mapping) else None
    return value if isinstance(value, dict) else {}


def _put(document: dict[str, Any], place: Sequence[str], servers: Entry) -> None:
    for key in place[:-1]:
        document = document[key]
    document[place[-1]] = servers
