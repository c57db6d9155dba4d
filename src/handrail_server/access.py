"""Who sends a request, and what they may do.

Without tokens, everybody who reaches the server is its administrator, so it listens on this machine only. With tokens,
a request proves itself by `Authorization: Bearer`, or by the cookie that a browser got for a token. Behind a trusted
proxy that logs people in, a header may name the person instead.

Rule 1: a revoked token opens nothing from the next request on: its file is read again when it changes, and a file with
        a fault gives nobody access.
Rule 2: a cookie is a number that this process has made; it dies with the process, or with its token.
Rule 3: a header names a person only if the request comes from the address of a trusted proxy. A person who has a token
        too gets the role and the tenant of the token.
"""

from __future__ import annotations

import hmac
import secrets
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from ipaddress import IPv4Network, IPv6Network, ip_address, ip_network
from pathlib import Path

from msgspec import Struct

from handrail import logs
from handrail.engine.scoped_store import parse_scope
from handrail.errors import ConfigError
from handrail.invisible import check_name
from handrail.serving.tokens import ROLES, BearerTokens, Owner, Role, digest_of
from handrail.surroundings.clock import monotonic
from handrail_server.rates import RequestRate

SESSION_S = 12 * 3600.0
_MOST_SESSIONS = 10_000
_LONGEST_NAME = 200


class Principal(Struct, frozen=True):
    """Who sends a request.

    Attributes:
        name: Recorded with what they decide.
        scope: Their tenant, of which alone they see anything; None for all of the store.
        proven: Whether a token or a proxy proves the name.
    """

    name: str
    role: Role
    scope: str | None = None
    proven: bool = True

    def may(self, role: Role) -> bool:
        """Whether the role includes another."""
        return ROLES.index(self.role) >= ROLES.index(role)

    def sees(self, run_id: str) -> bool:
        """Whether a run, by its name in the store, is one of theirs."""
        return self.scope is None or parse_scope(run_id) == self.scope


class Proxies(Struct, frozen=True):
    """Reverse proxies that say who sends a request.

    Attributes:
        addresses: Addresses and networks of them, such as `10.0.0.0/8`.
        header: The header that names the person, such as `X-Forwarded-User`.
        role: Of people whom no token names.
    """

    addresses: Sequence[IPv4Network | IPv6Network] = ()
    header: str = ""
    role: Role = "see"

    @classmethod
    def named(cls, addresses: Sequence[str], header: str, role: Role) -> Proxies:
        """Return the proxies of a setting.

        Raises:
            ConfigError: An address is malformed, or only one of the two is given.
        """
        if bool(addresses) is not bool(header):
            raise ConfigError(
                "--proxy and --identity-header go together: whose word counts, and in which header it is"
            )
        try:
            networks = [ip_network(each, strict=False) for each in addresses]
        except ValueError as error:
            raise ConfigError(f"--proxy is an address or a network: {error}") from error
        return cls(networks, header.lower(), role)

    def person_in(self, peer: str, headers: Mapping[str, str]) -> str:
        """Return the person whom a proxy names; empty where none does."""
        if not self.header:
            return ""
        try:
            address = ip_address(peer)
        except ValueError:
            return ""
        if not any(address in network for network in self.addresses):
            return ""
        name = headers.get(self.header, "").strip()
        try:
            check_name(self.header, name)
        except ConfigError:
            return ""
        return name if len(name) <= _LONGEST_NAME else ""


class Access:
    """Tells who sends a request.

    Args:
        tokens: The accepted ones, or their file; None where everybody who reaches the server may do everything.
        everybody: The name of those, for the record.
        now: Monotonic seconds.
    """

    def __init__(
        self,
        tokens: BearerTokens | Path | None = None,
        *,
        everybody: str = "local",
        proxies: Proxies | None = None,
        now: Callable[[], float] = monotonic,
    ) -> None:
        self._file = tokens if isinstance(tokens, Path) else None
        self._fixed = tokens if isinstance(tokens, BearerTokens) else None
        self._read: BearerTokens | None = None
        self._stamp: tuple[int, ...] = ()
        self._everybody = everybody
        self._proxies = proxies or Proxies()
        self._now = now
        self._failures = RequestRate(0.2, 10)
        self._sessions: OrderedDict[str, tuple[str, float]] = OrderedDict()
        if self._file is not None:
            self._read = BearerTokens.from_toml(self._file)
            self._stamp = _stamp(self._file)

    @property
    def is_open(self) -> bool:
        """Whether no proof is asked for."""
        return self._file is None and self._fixed is None and not self._proxies.header

    @property
    def has_one_name(self) -> bool:
        """Whether all who send requests have the same name: no proof is asked for, or there is one token."""
        fixed = self._fixed
        return self.is_open or (
            fixed is not None and len(fixed) == 1 and not self._proxies.header
        )

    @property
    def identity_header(self) -> str:
        """The header in which a proxy names people, in small letters; empty for none."""
        return self._proxies.header

    def identify(
        self, peer: str, headers: Mapping[str, str], session: str
    ) -> Principal | None:
        """Return who sends a request; None where they have not proved it.

        Args:
            peer: The address that the request comes from.
            headers: By name in small letters.
            session: The value of our cookie.
        """
        if self.is_open:
            return Principal(self._everybody, "administer", proven=False)
        scheme, _, token = headers.get("authorization", "").partition(" ")
        if token:
            if scheme.lower() != "bearer":
                return None
            return self._of_token(digest_of(token.strip()))
        if person := self._proxies.person_in(peer, headers):
            return self._of_person(person)
        return self._of_session(session) if session else None

    def note_failure(self, peer: str) -> bool:
        """Note a request without a valid proof; return whether there were too many from that address."""
        return bool(self._failures.take(peer))

    def open_session(self, token: str) -> str | None:
        """Return a new session for a token; None where it is nobody's."""
        digest = digest_of(token)
        if self._of_token(digest) is None:
            return None
        session = secrets.token_urlsafe(32)
        self._sessions[session] = (digest, self._now() + SESSION_S)
        if len(self._sessions) > _MOST_SESSIONS:
            self._sessions.popitem(last=False)
        return session

    def close_session(self, session: str) -> None:
        """Forget a session."""
        self._sessions.pop(session, None)

    def _of_person(self, person: str) -> Principal | None:
        tokens = self._tokens()
        if tokens is None:
            has_fault = self._file is not None
            return None if has_fault else Principal(person, self._proxies.role)
        owner = tokens.owner_by_principal(person)
        return (
            Principal(person, self._proxies.role)
            if owner is None
            else _principal(owner)
        )

    def _of_session(self, session: str) -> Principal | None:
        entry = self._sessions.get(session)
        if entry is None:
            return None
        digest, until = entry
        if until < self._now():
            self.close_session(session)
            return None
        return self._of_token(digest)

    def _of_token(self, digest: str) -> Principal | None:
        tokens = self._tokens()
        owner = tokens.owner_by_digest(digest) if tokens is not None else None
        return None if owner is None else _principal(owner)

    def _tokens(self) -> BearerTokens | None:
        """Return the tokens as their file has them now; None while it has a fault."""
        if self._file is None:
            return self._fixed
        stamp = _stamp(self._file)
        if stamp != self._stamp:
            self._stamp = stamp
            try:
                self._read = BearerTokens.from_toml(self._file)
            except ConfigError as error:
                self._read = None
                logs.log.error("nobody has access until this is mended: %s", error)
        return self._read


def single_token(token: str, principal: str) -> BearerTokens:
    """Return the tokens of a server with one token, whose owner administers it.

    Raises:
        ConfigError: It is too short.
    """
    if len(token) < 16:
        raise ConfigError("--token has fewer than 16 characters, and could be guessed")
    return BearerTokens({digest_of(token): Owner(principal, role="administer")})


def is_same(one: str, other: str) -> bool:
    """Whether two secrets are the same, without telling by the time it takes where they differ."""
    first, second = (each.encode("utf-8", "surrogatepass") for each in (one, other))
    return hmac.compare_digest(first, second)


def _principal(owner: Owner) -> Principal:
    return Principal(owner.principal, owner.role or "see", owner.scope)


def _stamp(file: Path) -> tuple[int, ...]:
    try:
        status = file.stat()
    except OSError:
        return ()
    return status.st_mtime_ns, status.st_size, status.st_ino
