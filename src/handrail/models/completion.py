"""An open model behind a raw completion endpoint: our prompts, the model's own language, the server only goes on.

    hermes:NAME@http://localhost:8000/v1             vLLM or llama.cpp, with the prompts of Hermes and Qwen
    llama3.1:NAME@http://localhost:11434/api         Ollama, raw

The name before the colon is that of a prompt dialect. The address decides between the two endpoints: one that ends in
`/api` is Ollama's.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import date
from typing import Any, cast

from handrail import plugins
from handrail.dialects import DialectStream, dialect
from handrail.dialects.prompts.completion_wire import Completions, Generate
from handrail.dialects.prompts.dialect import PromptDialect
from handrail.dialects.wires.request_bytes import RequestEncoder
from handrail.messages import Turn
from handrail.models.http_model import HttpModel
from handrail.models.providers import Provider
from handrail.ports import Request

_ADDRESS = "http://localhost:8000/v1"
"""Where vLLM serves by default."""


class CompletionModel(HttpModel):
    """One model behind a raw completion endpoint.

    Args:
        name: What the server calls the model.
        prompts: How the model's family is asked, and answers.
        address: The server's base address; one that ends in `/api` is Ollama's.
        today: Returns the date that the prompts of some families mention.
        how: As for `HttpModel`.
    """

    wire: Completions

    def __init__(
        self,
        name: str,
        prompts: PromptDialect,
        address: str,
        headers: Mapping[str, str],
        *,
        today: Callable[[], date] = date.today,
        **how: Any,
    ) -> None:
        place = (
            address.rstrip("/").removesuffix("/generate").removesuffix("/completions")
        )
        wire: Completions = Completions(prompts)
        if place.endswith("/api"):
            wire = Generate(prompts)
        super().__init__(name, wire, place.removesuffix("/api"), headers, **how)
        self._today = today

    def body(self, request: Request, streamed: bool) -> bytes:
        """Return a request as bytes, with a prompt of today; see `HttpModel.body`."""
        self.wire = self.wire.on(self._today())
        self._encoder = RequestEncoder(self.wire)  # the date is the wire's
        return super().body(request, streamed)

    def read(self, answer: bytes, request: Request) -> Turn:
        """Return the turn of a whole answer to the request."""
        return self.wire.decode(answer, request.tools, opened=self._opened(request))

    def reader(self, request: Request) -> DialectStream:
        """Return a reader for a streamed answer to the request."""
        return self.wire.stream(request.tools, opened=self._opened(request))

    def _opened(self, request: Request) -> str:
        return self.wire.prompt.answer_opening(request.tools, request.options)


class CompletionServer(Provider, frozen=True):
    """A server of one's own, asked with the prompts of one family."""

    def model_at(
        self,
        name: str,
        dialect_name: str,
        address: str,
        headers: Mapping[str, str],
        **settings: Any,
    ) -> HttpModel:
        """Return the model; see `Provider.model_at`."""
        prompts = cast(PromptDialect, dialect(dialect_name))
        return CompletionModel(name, prompts, address, headers, **settings)


COMPLETIONS: Mapping[str, CompletionServer] = {
    name: CompletionServer(
        name, name, _ADDRESS, "COMPLETION_API_KEY", "COMPLETION_BASE_URL"
    )
    for name in plugins.PROMPTS
}
"""By the name of the prompt dialect."""
