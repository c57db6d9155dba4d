"""Where a server is: a program that is started, or an address.

npx -y @modelcontextprotocol/server-everything      a command line, as a shell splits it
["uvx", "mcp-server-git"]                           the same as a list
https://mcp.example/mcp                             an address (streamable HTTP)
"""

from __future__ import annotations

import os
import shlex
from collections.abc import Mapping, Sequence
from pathlib import PurePath
from typing import Any, TypeAlias
from urllib.parse import urlsplit

import httpx2
from mcp.client.stdio import get_default_environment
from msgspec import Struct, field

from handrail.errors import ConfigError

Target: TypeAlias = "ServerProgram | Address"

_RUNNERS = {"npx", "uvx", "bunx", "pipx", "uv", "node", "python", "python3", "docker"}
"""Programs that say nothing about the server that they start."""

_SCHEMES = ("http://", "https://")


class ServerProgram(Struct, frozen=True):
    """A server that is started as a child process and spoken to over its standard streams.

    Attributes:
        command: The program and its arguments.
        env: Its environment beyond the few variables that every program needs; nothing else is handed on.
        cwd: The folder that it is started in; the present one if empty.
    """

    command: Sequence[str]
    env: Mapping[str, str] = field(default_factory=dict)
    cwd: str = ""

    @property
    def environment(self) -> dict[str, str]:
        """The whole environment of the process."""
        return {**get_default_environment(), **self.env}

    @property
    def default_name(self) -> str:
        """What the server is called unless somebody names it."""
        words = [PurePath(word).name for word in self.command if word[:1] != "-"]
        named = [word for word in words if word.removesuffix(".exe") not in _RUNNERS]
        name = (named or words)[0]
        return name.partition("@")[0].removesuffix(".py").removesuffix(".js") or name

    def __str__(self) -> str:
        return shlex.join(self.command)


class Address(Struct, frozen=True):
    """A server at an address.

    Attributes:
        headers: Sent with every request, such as a token.
        auth: What signs requests, such as the `OAuthClientProvider` of the package `mcp`.
    """

    url: str
    headers: Mapping[str, str] = field(default_factory=dict)
    auth: httpx2.Auth | None = None

    @property
    def default_name(self) -> str:
        """What the server is called unless somebody names it."""
        return urlsplit(self.url).hostname or "mcp"

    def __str__(self) -> str:
        parts = urlsplit(self.url)
        # neither a password nor a token in the query is shown
        return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path}"


def make_target(
    where: str | Sequence[str] | Target,
    *,
    env: Mapping[str, str] | None = None,
    cwd: str | os.PathLike[str] = "",
    headers: Mapping[str, str] | None = None,
    auth: httpx2.Auth | None = None,
) -> Target:
    """Return the server that a command line, a list of words or an address names.

    Raises:
        ConfigError: It names none, or what is given beside it is for the other kind.
    """
    if isinstance(where, ServerProgram | Address):
        return where
    if isinstance(where, str) and where.startswith(_SCHEMES):
        if env or cwd:
            raise ConfigError(
                f"`env` and `cwd` are for a server that is started, and {where!r} is an address"
            )
        if not urlsplit(where).hostname:
            raise ConfigError(f"{where!r} names no host")
        return Address(where, dict(headers or {}), auth)
    words = _split(where)
    if headers or auth is not None:
        raise ConfigError(
            f"`headers` and `auth` are for an address (http:// or https://), and {words[0]!r} is a program"
        )
    return ServerProgram(words, dict(env or {}), os.fspath(cwd))


def _split(where: Any) -> tuple[str, ...]:
    if isinstance(where, str):
        try:
            words = shlex.split(where)
        except ValueError as error:
            raise ConfigError(
                f"the command line {where!r} cannot be read: {error}"
            ) from error
    elif isinstance(where, Sequence) and all(isinstance(each, str) for each in where):
        words = list(where)
    else:
        raise ConfigError(
            f"a server is a command line, a list of words or an address, not {where!r}"
        )
    if not words or not words[0]:
        raise ConfigError("no server is named: give a command line or an address")
    if any("\0" in word for word in words):
        raise ConfigError(f"the command line {words!r} holds a NUL character")
    return tuple(words)
