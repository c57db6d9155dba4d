"""The providers by name: what each speaks, where it is, and which environment variables hold its key: one row each.

`plugins` reads this table for the names before the colon of a model's name. It holds data only, so that
listing the names imports no HTTP client.
"""

from __future__ import annotations

from collections.abc import Mapping

from msgspec import Struct, field


class ProviderRow(Struct, frozen=True):
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


_ROWS = (
    ProviderRow(
        "openai",
        "openai-chat",
        "https://api.openai.com/v1",
        "OPENAI_API_KEY",
        "OPENAI_BASE_URL",
        compatible="openai-compatible",
    ),
    ProviderRow(
        "azure",
        "openai-chat",
        "",
        "AZURE_OPENAI_API_KEY",
        "AZURE_OPENAI_BASE_URL",  # https://RESOURCE.openai.azure.com/openai/v1
        key_header="api-key: {key}",
    ),
    ProviderRow(
        "openai-responses",
        "openai-responses",
        "https://api.openai.com/v1",
        "OPENAI_API_KEY",
        "OPENAI_BASE_URL",
    ),
    ProviderRow(
        "anthropic",
        "anthropic",
        "https://api.anthropic.com",
        "ANTHROPIC_API_KEY",
        "ANTHROPIC_BASE_URL",
        key_header="x-api-key: {key}",
        # The version of October 2026 takes no temperature from anybody, and few compatible servers know it.
        headers={"anthropic-version": "2023-06-01"},
    ),
    ProviderRow(
        "gemini",
        "gemini",
        "https://generativelanguage.googleapis.com",
        "GEMINI_API_KEY",
        "GOOGLE_GEMINI_BASE_URL",
        other_key_variable="GOOGLE_API_KEY",
        key_header="x-goog-api-key: {key}",
    ),
    ProviderRow(
        "gemini-interactions",
        "gemini-interactions",
        "https://generativelanguage.googleapis.com",
        "GEMINI_API_KEY",
        "GOOGLE_GEMINI_BASE_URL",
        other_key_variable="GOOGLE_API_KEY",
        key_header="x-goog-api-key: {key}",
        # The revision in which answers are steps; Google's own clients name it too.
        headers={"api-revision": "2026-05-20"},
    ),
    ProviderRow(
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
    # On this machine, at the default port of each.
    "ollama": "http://localhost:11434/v1",
    "vllm": "http://localhost:8000/v1",
    "llamacpp": "http://localhost:8080/v1",
    "lmstudio": "http://localhost:1234/v1",
}
"""Who speaks OpenAI's chat form: the key of `groq` is in `GROQ_API_KEY`, another address in `GROQ_BASE_URL`."""


def _compatible(name: str, address: str) -> ProviderRow:
    return ProviderRow(
        name,
        "openai-compatible",
        address,
        f"{name.upper()}_API_KEY",
        f"{name.upper()}_BASE_URL",
    )


ROWS: Mapping[str, ProviderRow] = {
    row.name: row
    for row in (*_ROWS, *(_compatible(*each) for each in _COMPATIBLE.items()))
}
"""By the name before the colon of a model's name: `openai:NAME`."""

MODELS: Mapping[str, str] = dict.fromkeys(ROWS, "handrail.models.providers:PROVIDERS")
"""What makes the models of each name. A provider precedes a prompt dialect of its name: `mistral:NAME` asks Mistral."""
