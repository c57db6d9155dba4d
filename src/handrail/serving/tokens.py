"""Bearer tokens of an HTTP server: whose calls are made with each, and for which tenant.

    [[token]]
    principal = "anna"
    sha256 = "6b86b273ff34fce19d6b804eff5a3f5747ada4eaa22f1d49c01e52ddb7875b4b"

    [[token]]
    principal = "billing"
    env = "BILLING_TOKEN"       # the environment has the token
    scope = "acme"              # the tenant, see `Runtime(scope=)`
    role = "approve"            # in `handrail serve`: see, approve or administer

Rule 1: no token appears in clear in a file, a log, an error or anything that a tool can read.
Rule 2: a file with a fault gives nobody access: each fault is an error at the start.
"""

from __future__ import annotations

import json
import os
import re
import secrets
import tomllib
from collections.abc import Mapping
from hashlib import sha256
from pathlib import Path
from typing import Any, Literal, Self, TypeAlias, get_args

from msgspec import Struct

from handrail.engine.scoped_store import check_scope
from handrail.errors import ConfigError
from handrail.invisible import check_name

LEAST_CHARACTERS = 16
"""A shorter token can be guessed."""

Role: TypeAlias = Literal["see", "approve", "administer"]
"""What somebody may do at a server with roles. Each role includes those before it."""

ROLES: tuple[Role, ...] = get_args(Role)

_KEYS = ("principal", "sha256", "env", "scope", "role")
_LONGEST_NAME = 200


class Owner(Struct, frozen=True):
    """Who has a token.

    Attributes:
        principal: On whose behalf calls with it are made.
        scope: The tenant; None for the runtime's own.
        role: What the owner may do at a server with roles; empty where the entry does not say.
    """

    principal: str
    scope: str | None = None
    role: Role | Literal[""] = ""


class BearerTokens:
    """The tokens that a server accepts.

    Args:
        owners: By the SHA-256 of the token, in lower-case hex.
    """

    def __init__(self, owners: Mapping[str, Owner]) -> None:
        self._owners = dict(owners)

    @classmethod
    def from_toml(
        cls, path: str | Path, environ: Mapping[str, str] | None = None
    ) -> Self:
        """Read tokens from a file.

        Raises:
            ConfigError: The file cannot be read, or an entry is not as it must be.
        """
        path = Path(path)
        try:
            document = tomllib.loads(path.read_text(encoding="utf-8"))
        except (OSError, ValueError) as error:
            raise ConfigError(f"{path} cannot be read: {error}") from error
        entries = document.pop("token", [])
        if document:
            raise ConfigError(
                f"{path} has {next(iter(document))!r}; it has nothing but tables [[token]]"
            )
        is_list = isinstance(entries, list)
        if not is_list or not all(isinstance(each, dict) for each in entries):
            raise ConfigError(f"the tokens in {path} are tables: write [[token]]")
        if not entries:
            raise ConfigError(f"{path} has no [[token]], so nobody could call")
        owners: dict[str, Owner] = {}
        for number, entry in enumerate(entries, 1):
            place = f"token {number} of {path}"
            digest = _read_digest(
                entry, place, os.environ if environ is None else environ
            )
            if digest in owners:
                raise ConfigError(f"{place} is the same token as an earlier one")
            owners[digest] = _read_owner(entry, place)
        return cls(owners)

    def owner_of(self, token: str) -> Owner | None:
        """Return whose token it is; None for a token that is nobody's."""
        return self._owners.get(digest_of(token))

    def owner_by_digest(self, digest: str) -> Owner | None:
        """Return whose token has this SHA-256; None where it is nobody's."""
        return self._owners.get(digest)

    def owner_by_principal(self, principal: str) -> Owner | None:
        """Return the owner of the first token of a principal; None where nobody of that name has a token."""
        owners = self._owners.values()
        return next((each for each in owners if each.principal == principal), None)

    def __len__(self) -> int:
        return len(self._owners)

    def __repr__(self) -> str:
        return f"<Tokens of {len(self)}>"


def digest_of(token: str) -> str:
    """Return what a file has in place of a token."""
    return sha256(token.encode("utf-8", "surrogatepass")).hexdigest()


class TokenEntry(Struct, frozen=True):
    """A new token, and what the file has of it."""

    token: str
    text: str


def make_entry(
    principal: str, scope: str = "", role: Role | Literal[""] = ""
) -> TokenEntry:
    """Make a token that cannot be guessed.

    Raises:
        ConfigError: The principal or the scope is no name.
    """
    entry = {"principal": principal, "scope": scope or None, "role": role}
    owner = _read_owner(entry, "the token")
    token = f"hr_{secrets.token_urlsafe(32)}"
    # JSON's strings are TOML's
    lines = [
        "[[token]]",
        f"principal = {json.dumps(owner.principal, ensure_ascii=False)}",
    ]
    if owner.scope is not None:
        lines.append(f"scope = {json.dumps(owner.scope, ensure_ascii=False)}")
    if owner.role:
        lines.append(f'role = "{owner.role}"')
    lines.append(f'sha256 = "{digest_of(token)}"')
    return TokenEntry(token, "\n".join(lines) + "\n\n")


def _read_digest(
    entry: Mapping[str, Any], place: str, environ: Mapping[str, str]
) -> str:
    if unknown := [name for name in entry if name not in _KEYS]:
        raise ConfigError(
            f"{place} has {unknown[0]!r}; it may have {', '.join(_KEYS)}, and never the token itself"
        )
    if ("sha256" in entry) == ("env" in entry):
        raise ConfigError(
            f"{place} has either `sha256`, the hash of the token, or `env`, the name of a variable with it"
        )
    if "sha256" in entry:
        digest = entry["sha256"]
        if not isinstance(digest, str) or not re.fullmatch("[0-9a-fA-F]{64}", digest):
            raise ConfigError(f"`sha256` of {place} is no SHA-256: 64 digits in hex")
        return digest.lower()
    token = environ.get(str(entry["env"]), "")
    if len(token) < LEAST_CHARACTERS:
        lack = (
            "is not set"
            if not token
            else f"has fewer than {LEAST_CHARACTERS} characters"
        )
        raise ConfigError(f"the variable {entry['env']} of {place} {lack}")
    return digest_of(token)


def _read_owner(entry: Mapping[str, Any], place: str) -> Owner:
    try:
        principal = check_name("principal", entry.get("principal"))
    except ConfigError:
        # its text shows the value, which may be a token that was pasted into the wrong line
        raise ConfigError(
            f"`principal` of {place} is no name: write who has the token, without invisible characters"
        ) from None
    if len(principal) > _LONGEST_NAME:
        raise ConfigError(
            f"`principal` of {place} has {len(principal)} characters; at most {_LONGEST_NAME} are possible"
        )
    scope = entry.get("scope")
    if scope is not None:
        check_scope(scope)
    role = entry.get("role", "")
    if role not in ("", *ROLES):
        raise ConfigError(
            f"`role` of {place} is {role!r}; the roles are {', '.join(ROLES)}"
        )
    return Owner(principal.strip(), scope, role)
