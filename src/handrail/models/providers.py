"""Models of the providers in `provider_table`, asked over HTTP.

Every one of them can be named with another address, as a proxy or a server of one's own needs it:
`groq:NAME@http://localhost:8000/v1`.
"""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Mapping
from typing import Any, cast
from urllib.parse import parse_qsl, urlsplit

import httpx2
from msgspec.structs import asdict

from handrail.dialects import WireDialect, dialect
from handrail.dialects.wires.base import BaseWire
from handrail.errors import ConfigError
from handrail.models.http_model import HttpModel
from handrail.models.provider_table import ROWS, ProviderRow

_MOST_PORT = 65_535


class Provider(ProviderRow, frozen=True):
    """A provider: called with a model's name, it returns the model."""

    def __call__(
        self,
        name: str,
        *,
        base_url: str | None = None,
        api_key: str | None = None,
        environment: Mapping[str, str] | None = None,
    ) -> HttpModel:
        """Return a model. `name` may end in `@ADDRESS` for a compatible server: `qwen3@http://localhost:8000/v1`.

        Raises:
            ConfigError: The provider needs a key and none is set, or the address is malformed.
        """
        variables: Mapping[str, str] = os.environ
        if environment is not None:
            variables = environment
        name, _, named_address = name.partition("@")
        address = (
            named_address
            or base_url
            or variables.get(self.address_variable)
            or self.address
        )
        key_variable = self._find_key_variable(variables)
        # `$(cat key)` brings a newline along
        key = (api_key or variables.get(key_variable, "")).strip()
        self._check_address(address, name, has_key=bool(key))
        if not (key.isascii() and key.isprintable()):
            source = "" if api_key else f"in {key_variable} "
            raise ConfigError(
                f"the key {source}has characters that no header can carry"
            )
        if address == self.address:
            dialect_name = self.dialect
        else:
            dialect_name = self.compatible or self.dialect
        return self.model_at(
            name,
            dialect_name,
            address,
            headers=self._headers(key),
            key_variable="" if api_key else key_variable,
        )

    def model_at(
        self,
        name: str,
        dialect_name: str,
        address: str,
        headers: Mapping[str, str],
        **settings: Any,
    ) -> HttpModel:
        """Return the model at an address; `settings` go to it unchanged.

        Raises:
            ConfigError: The address names a grammar, which only prompts of open models can have.
        """
        if "grammar" in dict(
            parse_qsl(urlsplit(address).query, keep_blank_values=True)
        ):
            raise ConfigError(
                f"{self.name}:{name} takes no grammar, since its server writes the calls: leave out `grammar=`, "
                f"or name the prompt of your model instead of {self.name}, such as hermes:{name}@..."
            )
        return HttpModel(
            name,
            self._wire(dialect_name, address),
            address,
            headers,
            provider=self.name,
            **settings,
        )

    def _wire(self, dialect_name: str, address: str) -> WireDialect:
        """Return the dialect, which knows whether the server is the API's own."""
        wire = cast(WireDialect, dialect(dialect_name))
        if not isinstance(wire, BaseWire):
            return wire
        # Where every customer has an address of their own, all of these are the provider's.
        is_own = address == self.address or not self.address
        return dataclasses.replace(wire, server="own" if is_own else "copy")

    def _headers(self, key: str) -> dict[str, str]:
        headers = dict(self.headers)
        if key:
            header, _, form = self.key_header.partition(": ")
            headers[header] = form.format(key=key)
        return headers

    def _find_key_variable(self, variables: Mapping[str, str]) -> str:
        """Return the variable that holds the key: the second one where only that is set."""
        if variables.get(self.key_variable, "").strip():
            return self.key_variable
        if variables.get(self.other_key_variable, "").strip():
            return self.other_key_variable
        return self.key_variable

    def _check_address(self, address: str, name: str, *, has_key: bool) -> None:
        if not address:
            raise ConfigError(
                f"{self.name} is at another address for everybody: "
                f"set {self.address_variable}, or write {self.name}:{name}@ADDRESS"
            )
        if not has_key and address == self.address and address.startswith("https://"):
            raise ConfigError(
                f"there is no key for {self.name}: set {self.key_variable}, "
                f"or name a compatible server, such as {self.name}:{name}@http://localhost:8000/v1"
            )
        self._check_address_form(address)

    def _check_address_form(self, address: str) -> None:
        if not address.startswith(("http://", "https://")):
            raise ConfigError(
                f"the address {_mask(address)!r} of {self.name} does not begin with http:// or https://"
            )
        try:
            url = httpx2.URL(address)
        except httpx2.InvalidURL as error:
            # The client's sentence quotes what may be half of a password.
            why = "" if "@" in address else f": {error}"
            raise ConfigError(
                f"the address {_mask(address)!r} of {self.name} is no address{why}"
            ) from None
        if not url.host or (url.port or 0) > _MOST_PORT:
            raise ConfigError(
                f"the address {_mask(address)!r} of {self.name} is no address: "
                f"it needs a host, and a port of at most {_MOST_PORT} where it names one"
            )


def _mask(address: str) -> str:
    """Return an address, valid or not, without user name, password and query."""
    credentials, at, host_and_path = address.partition("?")[0].rpartition("@")
    if not at:
        return host_and_path
    scheme, colon, _ = credentials.partition("://")
    prefix = scheme + colon if colon else ""
    return f"{prefix}***@{host_and_path}"


PROVIDERS: Mapping[str, Provider] = {
    name: Provider(**asdict(row)) for name, row in ROWS.items()
}
"""By the name before the colon of a model's name: `openai:NAME`."""
