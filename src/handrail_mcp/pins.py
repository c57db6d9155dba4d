"""Pins: the descriptions of a server's tools to which a person has agreed.

    pins = hr.mcp.Pins("mcp-pins.json")
    tools = hr.mcp.tools("shop-server", pins=pins)
    tools.problems                      # "`refund` of 'shop' has changed since somebody agreed to it; ..."
    print(pins.diff("shop", "refund"))  # what is new, line by line, hidden characters shown
    pins.agree("shop", ["refund"])      # from now on it can be called

A server may change a tool's description overnight, and a model does what a description says. So a tool is callable only
while its name, texts, schemas and hints are those that somebody agreed to. A tool that is new, renamed or changed is
quarantined: no model sees it, and no call reaches it.

Rule 1: a person agrees to what was shown: a tool that has changed again since then stays quarantined.
Rule 2: the file is replaced as a whole, and one process at a time changes it.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping
from difflib import unified_diff
from pathlib import Path
from typing import Any, Literal, TypeAlias

from mcp import types
from msgspec import Struct

from handrail import logs
from handrail.errors import ConfigError, Json
from handrail.invisible import printable
from handrail.tools.keys import digest
from handrail_mcp.gateways.shared_files import hold_lock, write_whole

PinState: TypeAlias = Literal["agreed", "unknown", "changed", "gone"]
"""Whether a tool is as somebody agreed to; `gone` is one that the server no longer lists."""

_VERSION = 1


class Pin(Struct, frozen=True):
    """One tool of a server.

    Attributes:
        agreed: The description to which somebody agreed; None if nobody has.
        seen: The latest description; None once the server no longer lists the tool.
    """

    server: str
    tool: str
    agreed: Mapping[str, Json] | None
    seen: Mapping[str, Json] | None

    @property
    def state(self) -> PinState:
        """Whether it may be called."""
        if self.seen is None:
            return "gone"
        if self.agreed is None:
            return "unknown"
        return "agreed" if self.agreed == self.seen else "changed"

    @property
    def digest(self) -> str:
        """Names exactly what it says of itself now."""
        return digest(self.seen)

    def diff(self) -> str:
        """Return what has changed, as lines with `-` and `+`; empty when nothing has."""
        before = _write_lines(self.agreed)
        after = _write_lines(self.seen)
        name = f"{self.server}/{self.tool}"
        lines = unified_diff(
            before,
            after,
            fromfile=f"{name} (agreed)" if self.agreed else "nothing",
            tofile=f"{name} (now)" if self.seen else "nothing",
            lineterm="",
            n=2,
        )
        return "\n".join(printable(line) for line in lines)


def describe_tool(tool: types.Tool) -> dict[str, Json]:
    """Return everything that a model or a person reads about a tool."""
    described = tool.model_dump(
        by_alias=True,
        mode="json",
        exclude_none=True,
        include={"name", "title", "description", "input_schema", "output_schema"},
    )
    if tool.annotations is not None:
        described["annotations"] = tool.annotations.model_dump(
            by_alias=True, mode="json", exclude_none=True
        )
    return described


class Pins:
    """The pins of any number of servers, in one file.

    Args:
        path: A JSON file, which is made when somebody first agrees. Keep it under version control.

    Raises:
        ConfigError: It cannot be read, or holds something else.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path)
        self._read()

    def __repr__(self) -> str:
        return f"<Pins in {self.path}>"

    def look(self, server: str, tools: Iterable[types.Tool]) -> dict[str, Pin]:
        """Note what a server lists, and return the pins of its tools by their names, those that are gone included."""
        listed = {tool.name: describe_tool(tool) for tool in tools}
        stored = self.get(server)
        pins = {
            name: Pin(server, name, _agreed_description(stored.get(name)), described)
            for name, described in listed.items()
        }
        for name, pin in stored.items():
            if name not in listed:
                pins[name] = Pin(server, name, pin.agreed, None)
        if pins != stored:
            try:
                self._store(server, pins)
            except ConfigError as error:
                # what nobody agreed to cannot be called all the same
                logs.log.warning("what %r lists is not noted: %s", server, error)
        return pins

    def get(self, server: str = "") -> dict[str, Pin]:
        """Return the pins of a server by the names of its tools; of all servers by `server/tool`."""
        servers = self._read()
        if server:
            return servers.get(server, {})
        return {
            f"{name}/{tool}": pin
            for name, pins in servers.items()
            for tool, pin in pins.items()
        }

    def diff(self, server: str, tool: str = "") -> str:
        """Return what has changed about a tool, or about all tools of a server, since somebody agreed."""
        pins = self.get(server)
        if tool:
            pins = {tool: _find(pins, server, tool)}
        return "\n".join(filter(None, (pin.diff() for pin in pins.values())))

    def agree(
        self,
        server: str,
        tools: Iterable[str] | None = None,
        *,
        digests: Mapping[str, str] | None = None,
    ) -> list[str]:
        """Agree to what tools say of themselves now; return the names of those that are callable by this.

        Args:
            tools: Their names at the server; all of it without.
            digests: `Pin.digest` of what was shown, by tool: one that differs is not agreed to.

        Raises:
            ConfigError: There is no such server or tool, or a tool has changed since it was shown.
        """
        with hold_lock(self.path):
            servers = self._read()
            if server not in servers:
                raise ConfigError(f"{self.path} knows no server {server!r}")
            pins = servers[server]
            names = list(pins) if tools is None else list(tools)
            agreed = []
            for name in names:
                pin = _find(pins, server, name)
                if digests is not None and digests.get(name) != pin.digest:
                    raise ConfigError(
                        f"{name!r} of {server!r} has changed since it was shown; look at it again"
                    )
                if pin.seen is None:
                    del pins[name]
                elif pin.state != "agreed":
                    pins[name] = Pin(server, name, pin.seen, pin.seen)
                    agreed.append(name)
            self._write(servers)
        return agreed

    def forget(self, server: str) -> None:
        """Remove the pins of a server; each of its tools is unknown again."""
        with hold_lock(self.path):
            servers = self._read()
            if servers.pop(server, None) is not None:
                self._write(servers)

    # ------------------------------------------------------------------ the file

    def _store(self, server: str, pins: Mapping[str, Pin]) -> None:
        """Store what was seen. What somebody has agreed to meanwhile, in another process, stays."""
        with hold_lock(self.path):
            servers = self._read()
            stored = servers.get(server, {})
            servers[server] = {
                name: Pin(server, name, _agreed_description(stored.get(name)), pin.seen)
                for name, pin in pins.items()
            }
            self._write(servers)

    def _read(self) -> dict[str, dict[str, Pin]]:
        try:
            text = self.path.read_text(encoding="utf-8")
        except FileNotFoundError:
            return {}
        except (OSError, UnicodeError) as error:
            raise ConfigError(
                f"the pins in {self.path} cannot be read: {error}"
            ) from error
        try:
            document = json.loads(text)
            if document["version"] != _VERSION:
                raise ConfigError(
                    f"the pins in {self.path} are of version {document['version']!r}, which this handrail does not know"
                )
            return {
                server: {
                    tool: Pin(server, tool, pin["agreed"], pin["seen"])
                    for tool, pin in pins.items()
                }
                for server, pins in document["servers"].items()
            }
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise ConfigError(f"{self.path} is no file of pins: {error}") from error

    def _write(self, servers: Mapping[str, Mapping[str, Pin]]) -> None:
        document: dict[str, Any] = {
            "version": _VERSION,
            "servers": {
                server: {
                    tool: {"agreed": pin.agreed, "seen": pin.seen}
                    for tool, pin in sorted(pins.items())
                }
                for server, pins in sorted(servers.items())
            },
        }
        # ASCII only: a reader of the file sees hidden characters, too
        text = json.dumps(document, indent=1) + "\n"
        write_whole(self.path, text.encode(), 0o600)


def _agreed_description(pin: Pin | None) -> Mapping[str, Json] | None:
    return pin.agreed if pin is not None else None


def _find(pins: Mapping[str, Pin], server: str, tool: str) -> Pin:
    if tool not in pins:
        raise ConfigError(f"no tool {tool!r} of the server {server!r} was seen")
    return pins[tool]


def _write_lines(described: Mapping[str, Json] | None) -> list[str]:
    """Return a description as lines, so that a long text is compared line by line."""
    if described is None:
        return []
    lines: list[str] = []
    for key, value in described.items():
        if isinstance(value, str):
            first, *rest = value.split("\n")
            lines.append(f"{key}: {first}")
            lines += [f"    {line}" for line in rest]
        else:
            text = json.dumps(value, ensure_ascii=False, indent=2, sort_keys=True)
            first, *rest = text.split("\n")
            lines.append(f"{key}: {first}")
            lines += rest
    return lines
