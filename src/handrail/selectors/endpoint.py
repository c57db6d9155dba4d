"""Embeddings from a server: an OpenAI-compatible `/v1/embeddings`, as most providers, ollama and vLLM have it.

Rule 1: what is raised names the address and what it answered, never the key.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, field

import httpx2

from handrail.errors import ModelError


@dataclass(frozen=True, slots=True)
class Endpoint:
    """An embedding model behind an address; call it with texts.

    Attributes:
        model: The embedding model's name there.
        base_url: Up to and with `/v1`.
        key_variable: The environment variable that holds the key; a server that wants none is asked without.
    """

    model: str
    base_url: str = "https://api.openai.com/v1"
    key_variable: str = "OPENAI_API_KEY"
    timeout_s: float = 30.0
    client: httpx2.Client = field(
        default_factory=httpx2.Client, repr=False, compare=False
    )

    def __call__(self, texts: list[str]) -> Sequence[Sequence[float]]:
        """Return one vector for each text.

        Raises:
            ModelError: There is no usable answer.
        """
        key = os.environ.get(self.key_variable, "").strip()
        if key:
            headers = {"authorization": f"Bearer {key}"}
        else:
            headers = {}
        body = {"model": self.model, "input": texts, "encoding_format": "float"}
        where = f"{self.base_url.rstrip('/')}/embeddings"
        try:
            answer = self.client.post(
                where, json=body, headers=headers, timeout=self.timeout_s
            )
            if answer.is_error:
                raise ModelError(
                    f"{where} answered {answer.status_code} to {len(texts)} texts",
                    code="embeddings",
                )
            rows = sorted(answer.json()["data"], key=lambda row: row["index"])
            vectors = [[float(number) for number in row["embedding"]] for row in rows]
        except httpx2.HTTPError as error:
            raise ModelError(
                f"{where} gave no answer: {type(error).__name__}", code="embeddings"
            ) from error
        except (ValueError, TypeError, LookupError) as error:
            raise ModelError(
                f"{where} answered with something that holds no embeddings",
                code="embeddings",
            ) from error
        return vectors
