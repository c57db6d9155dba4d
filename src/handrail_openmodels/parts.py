"""What this package adds to `handrail`; see `handrail.plugins`."""

from __future__ import annotations

from collections.abc import Mapping

# fmt: off
_PROMPTS = {
    "deepseek": ("deepseek-r1", "deepseek-v3", "deepseek-v3.1", "deepseek-v3.2", "deepseek-v4"),
    "hermes": ("hermes", "hermes-2-pro", "hermes-vllm", "qwen2.5", "qwen3"),
    "llama3": (
        "llama3", "llama3.1", "llama3.2", "llama3.3", "llama3-vllm", "llama3.2-vllm", "llama3-pythonic", "llama4",
    ),
    "mistral": (
        "mistral", "mistral-v2", "mistral-v3", "mistral-v3-tekken", "mistral-nemo", "mistral-vllm",
        "mistral-vllm-parallel", "mistral-v7", "mistral-v7-tekken", "mistral-v11", "mistral-v13", "devstral",
    ),
    "more_families": (
        "qwen3-coder", "qwen3.5", "glm4", "kimi-k2", "kimi-k2-thinking", "harmony", "gpt-oss",
        "minimax-m2", "granite3", "lfm2", "nemotron-nano-v2", "gemma4",
    ),
    "newer_families": ("glm4.7", "granite4", "granite4.1", "nemotron3", "minimax-m3"),
    "further_families": (
        "qwq", "mimo", "step3.5", "seed-oss", "ling3", "spark", "laguna", "xlam", "xlam-llama", "toolace",
        "internlm2", "functionary-v3.1", "hy3", "command-r7b", "reka", "phi4-mini",
    ),
    "react": ("react",),
}
UNPROMPTED = (
    "apertus", "apriel", "command-a", "command-r", "ernie4.5", "firefunction-v2",
    "functionary-v3.2", "functiongemma", "functools", "generic-json", "gigachat", "granite-20b",
    "hunyuan", "jamba", "kimi-k3", "longcat", "minicpm5", "muse", "olmo3",
    "plain", "step3",
)
"""Dialects that read answers and write no prompts, so that no model can be asked in them."""
# fmt: on
PROMPTS: dict[str, str] = {
    name: f"handrail_openmodels.prompts.{module}:DIALECTS"
    for module, names in _PROMPTS.items()
    for name in names
}
"""Where the prompts of open models are, by the name of their dialect. A model is named with it too, unless a provider
has the name: `hermes:NAME@ADDRESS`."""

PARTS: Mapping[str, Mapping[str, str]] = {
    "names": {"grammar": "handrail_openmodels.grammars:grammar"},
    "dialects": {
        **PROMPTS,
        **dict.fromkeys(UNPROMPTED, "handrail_openmodels.prompts.read_only:DIALECTS"),
    },
    "readers": dict.fromkeys(
        UNPROMPTED, "handrail_openmodels.prompts.read_only:DIALECTS"
    ),
    "models": dict.fromkeys(PROMPTS, "handrail_openmodels.completion:COMPLETIONS"),
    "raw_wires": dict.fromkeys(
        (*PROMPTS, *UNPROMPTED),
        "handrail_openmodels.prompts.completion_wire:make_raw_wires",
    ),
}
"""Of `readers`, the names count: nobody can be asked in these dialects."""
