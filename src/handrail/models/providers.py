"""Where providers are, what they speak, and which environment variables hold their keys: one row each.

Every one of them can be named with another address, as a proxy or a server of one's own needs it:
`groq:NAME@http://localhost:8000/v1`.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any, cast

import httpx2
from msgspec import Struct, field

from handrail.dialects import WireDialect, dialect
from handrail.errors import ConfigError
from handrail.models.http_model import HttpModel

_MOST_PORT = 65_535


class Provider(Struct, frozen=True):
    """Where a provider is, and which environment variables say otherwise or hold its key.

    Attributes:
        dialect: What it speaks.
        address: Where it is; empty where every customer has an address of their own. A server on this machine
            (`http://`) wants no key.
        other_key_variable: Where the key is looked for as well, because the provider's own clients do.
        compatible: What servers at any other address speak; `dialect` where this is empty.
        key_header: The header that carries the key, with `{key}` in its place.
        headers: Sent with every request.
    """

    name: str
    dialect: str
    address: str
    key_variable: str
    address_variable: str
    compatible: str = ""
    other_key_variable: str = ""
    key_header: str = "authorization: Bearer {key}"
    headers: Mapping[str, str] = field(default_factory=dict)

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
            ConfigError: The provider wants a key and none is there, or the address is none.
        """
        known: Mapping[str, str] = os.environ
        if environment is not None:
            known = environment
        name, _, beside = name.partition("@")
        address = beside or base_url or known.get(self.address_variable) or self.address
        kept = {each: known.get(each, "").strip() for each in (self.key_variable, self.other_key_variable)}
        variable = next((each for each, found in kept.items() if found), self.key_variable)
        key = (api_key or kept[variable]).strip()  # `$(cat key)` brings a newline along
        if not address:
            raise ConfigError(
                f"{self.name} is at another address for everybody: "
                f"set {self.address_variable}, or write {self.name}:{name}@ADDRESS"
            )
        if not key and address == self.address and address.startswith("https://"):
            raise ConfigError(
                f"there is no key for {self.name}: set {self.key_variable}, "
                f"or name a compatible server, such as {self.name}:{name}@http://localhost:8000/v1"
            )
        if not address.startswith(("http://", "https://")):
            raise ConfigError(f"the address {_shown(address)!r} of {self.name} does not begin with http:// or https://")
        try:
            url = httpx2.URL(address)
        except httpx2.InvalidURL as error:
            # which quotes what may be half of a password
            if "@" in address:
                why = ""
            else:
                why = f": {error}"
            raise ConfigError(f"the address {_shown(address)!r} of {self.name} is no address{why}") from None
        if not url.host or (url.port or 0) > _MOST_PORT:
            raise ConfigError(
                f"the address {_shown(address)!r} of {self.name} is no address: "
                f"it needs a host, and a port of at most {_MOST_PORT} where it names one"
            )
        if not (key.isascii() and key.isprintable()):
            raise ConfigError(f"the key {'' if api_key else f'in {variable} '}has characters that no header can carry")
        header, _, form = self.key_header.partition(": ")
        headers = {**self.headers, **({header: form.format(key=key)} if key else {})}
        if address == self.address:
            spoken = self.dialect
        else:
            spoken = self.compatible or self.dialect
        return self.model_at(name, spoken, address, headers, key_variable="" if api_key else variable)

    def model_at(self, name: str, spoken: str, address: str, headers: Mapping[str, str], **how: Any) -> HttpModel:
        """Return the model at an address; `how` goes to it unchanged."""
        return HttpModel(name, cast(WireDialect, dialect(spoken)), address, headers, **how)


def _shown(address: str) -> str:
    """Return an address, valid or not, without a user's name, a password or what it asks."""
    told, at, place = address.partition("?")[0].rpartition("@")
    scheme, colon, _ = told.partition("://")
    if at:
        return f"{scheme + colon if colon else ''}***@{place}"
    return place


_ROWS = (
    Provider(
        "openai",
        "openai-chat",
        "https://api.openai.com/v1",
        "OPENAI_API_KEY",
        "OPENAI_BASE_URL",
        compatible="openai-compatible",
    ),
    Provider(
        "azure",
        "openai-chat",
        "",
        "AZURE_OPENAI_API_KEY",
        "AZURE_OPENAI_BASE_URL",  # https://RESOURCE.openai.azure.com/openai/v1
        key_header="api-key: {key}",
    ),
    Provider(
        "openai-responses",
        "openai-responses",
        "https://api.openai.com/v1",
        "OPENAI_API_KEY",
        "OPENAI_BASE_URL",
    ),
    Provider(
        "anthropic",
        "anthropic",
        "https://api.anthropic.com",
        "ANTHROPIC_API_KEY",
        "ANTHROPIC_BASE_URL",
        key_header="x-api-key: {key}",
        # The version of October 2026 takes no temperature from anybody, and few compatible servers know it.
        headers={"anthropic-version": "2023-06-01"},
    ),
    Provider(
        "gemini",
        "gemini",
        "https://generativelanguage.googleapis.com",
        "GEMINI_API_KEY",
        "GOOGLE_GEMINI_BASE_URL",
        other_key_variable="GOOGLE_API_KEY",
        key_header="x-goog-api-key: {key}",
    ),
    Provider(
        "cohere",
        "cohere",
        "https://api.cohere.com",
        "CO_API_KEY",
        "CO_API_URL",
        other_key_variable="COHERE_API_KEY",
    ),
)
_COMPATIBLE = {
    # Of companies, looked up in November 2026.
    "groq": "https://api.groq.com/openai/v1",
    "deepseek": "https://api.deepseek.com/v1",
    "openrouter": "https://openrouter.ai/api/v1",
    "together": "https://api.together.ai/v1",
    "mistral": "https://api.mistral.ai/v1",
    "xai": "https://api.x.ai/v1",
    "fireworks": "https://api.fireworks.ai/inference/v1",
    "cerebras": "https://api.cerebras.ai/v1",
    "moonshot": "https://api.moonshot.ai/v1",
    "zai": "https://api.z.ai/api/paas/v4",
    "dashscope": "https://dashscope.aliyuncs.com/compatible-mode/v1",
    "nvidia": "https://integrate.api.nvidia.com/v1",
    # On this machine, at the port that each takes when it is not told another.
    "ollama": "http://localhost:11434/v1",
    "vllm": "http://localhost:8000/v1",
    "llamacpp": "http://localhost:8080/v1",
    "lmstudio": "http://localhost:1234/v1",
}
"""Who speaks OpenAI's chat form: the key of `groq` is in `GROQ_API_KEY`, another address in `GROQ_BASE_URL`."""


def _compatible(name: str, address: str) -> Provider:
    return Provider(
        name,
        "openai-compatible",
        address,
        f"{name.upper()}_API_KEY",
        f"{name.upper()}_BASE_URL",
    )


PROVIDERS: Mapping[str, Provider] = {
    row.name: row for row in (*_ROWS, *(_compatible(*each) for each in _COMPATIBLE.items()))
}
"""By the name that stands before the colon of a model's name: `openai:NAME`. `plugins` lists the same names."""
