"""An open model behind a raw completion endpoint: our prompts, the model's own language, the server only goes on.

    hermes:NAME@http://localhost:8000/v1             vLLM or llama.cpp, with the prompts of Hermes and Qwen
    llama3.1:NAME@http://localhost:11434/api         Ollama, raw

The name before the colon is that of a prompt dialect. The address decides between the two endpoints: one that ends in
`/api` is Ollama's.

    hermes:NAME@http://localhost:8000/v1?grammar=vllm            holds the model to the calls that it may make now
    hermes:NAME@http://localhost:8000/v1?grammar=vllm,optional   goes on without where the server refuses that

Rule 1: a request has one constraint at most: a grammar of calls, or the form of the answer.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import date
from typing import TYPE_CHECKING, Any, cast
from urllib.parse import parse_qsl, urlencode

from msgspec.structs import replace

from handrail import _lazy, logs
from handrail.dialects import DialectStream, dialect, writing
from handrail.dialects.wires.request_bytes import RequestEncoder
from handrail.errors import ConfigError, ModelError
from handrail.messages import Options, Turn
from handrail.models.http_model import HttpModel
from handrail.models.providers import Provider
from handrail.ports import Listener, Request
from handrail_openmodels import parts
from handrail_openmodels.prompts.completion_wire import Completions, Generate
from handrail_openmodels.prompts.dialect import PromptDialect

if TYPE_CHECKING:
    from handrail_openmodels import grammars
else:
    grammars = _lazy.module("handrail_openmodels.grammars")

ENGINES = ("vllm", "sglang", "llama.cpp")
"""The servers that take a grammar with a completion."""

_REFUSED = (400, 422, 501)
_ADDRESS = "http://localhost:8000/v1"
"""Where vLLM serves by default."""


class CompletionModel(HttpModel):
    """One model behind a raw completion endpoint.

    Args:
        name: What the server calls the model.
        prompts: How the model's family is asked, and answers.
        address: The server's base address; one that ends in `/api` is Ollama's.
        today: Returns the date that the prompts of some families mention.
        engine: Which server it is, `vllm`, `sglang` or `llama.cpp`: with every request it then gets the grammar of the
            calls that may be made at this step.
        optional: Go on without grammar, with a warning in the log, where the server refuses one.
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
        engine: str = "",
        optional: bool = False,
        **how: Any,
    ) -> None:
        place = (
            address.rstrip("/").removesuffix("/generate").removesuffix("/completions")
        )
        if engine and engine not in ENGINES:
            raise ConfigError(
                f"grammar={engine} names no server that takes grammars; known are {', '.join(ENGINES)}"
            )
        wire: Completions = Completions(prompts, engine=engine)
        if place.endswith("/api"):
            if engine:
                raise ConfigError("Ollama takes no grammar: leave out `grammar=`")
            wire = Generate(prompts)
        super().__init__(name, wire, place.removesuffix("/api"), headers, **how)
        self._today = today
        self._is_optional = optional

    async def ask(self, request: Request, listener: Listener | None = None) -> Turn:
        """Return the model's answer; see `ports.Model.ask`."""
        try:
            return await super().ask(request, listener)
        except ModelError as error:
            engine = self.wire.engine
            if not engine or error.status not in _REFUSED:
                raise
            if not self._is_optional:
                raise ModelError(
                    f"{error}; the request held a grammar (grammar={engine}), which this server may not take: "
                    f"write grammar={engine},optional to go on without",
                    status=error.status,
                    code=error.code,
                ) from None
            logs.log.warning(
                "%s refuses a grammar (grammar=%s) and is asked without one from now on: %s",
                self.name,
                engine,
                error,
            )
            self.wire = replace(self.wire, engine="")
        return await super().ask(request, listener)

    def body(self, request: Request, streamed: bool) -> bytes:
        """Return a request as bytes, with a prompt of today; see `HttpModel.body`."""
        self.wire = self.wire.on(self._today())
        self._encoder = RequestEncoder(self.wire)  # the date is the wire's
        return super().body(replace(request, options=self._hold(request)), streamed)

    def read(self, answer: bytes, request: Request) -> Turn:
        """Return the turn of a whole answer to the request."""
        return self.wire.decode(
            answer, request.tools, opened=self._find_opening(request)
        )

    def reader(self, request: Request) -> DialectStream:
        """Return a reader for a streamed answer to the request."""
        return self.wire.stream(request.tools, opened=self._find_opening(request))

    def _find_opening(self, request: Request) -> str:
        options = self._hold(request)
        return self.wire.prompt.answer_opening(request.tools, options)

    def _hold(self, request: Request) -> Options:
        """Return the options with the grammar of what may be called now, where the server takes one.

        The grammar demands a call by itself, so the prompt does not open one.
        """
        options = request.options
        if not self.wire.engine or options.tool_choice == "none":
            return options
        tools = writing.as_collection(request.tools)
        if not tools:
            return options
        forbidden: list[str] = []
        if options.allowed is not None:
            forbidden = [
                each.name for each in tools if each.name not in options.allowed
            ]
        grammar = grammars.grammar(
            tools,
            self.wire.prompt,
            tool_choice=options.tool_choice,
            parallel=options.parallel is not False,
            forbidden=forbidden,
        )
        extra = {**grammar.fields(self.wire.engine), **options.extra}
        return replace(options, tool_choice="auto", extra=extra)


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
        """Return the model; see `Provider.model_at`. `grammar=` in the address is ours, and is not sent.

        Raises:
            ConfigError: `grammar=` names none of the supported servers.
        """
        prompts = cast(PromptDialect, dialect(dialect_name))
        place, _, query = address.partition("?")
        asked = parse_qsl(query, keep_blank_values=True)
        wanted = dict(asked).get("grammar", "")
        if wanted:
            engine, _, word = wanted.partition(",")
            if word not in ("", "optional"):
                raise ConfigError(
                    f"grammar={wanted} is not understood: write grammar={engine}, or grammar={engine},optional"
                )
            settings |= {"engine": engine, "optional": bool(word)}
            rest = urlencode([each for each in asked if each[0] != "grammar"])
            address = f"{place}?{rest}" if rest else place
        return CompletionModel(name, prompts, address, headers, **settings)


COMPLETIONS: Mapping[str, CompletionServer] = {
    name: CompletionServer(
        name, name, _ADDRESS, "COMPLETION_API_KEY", "COMPLETION_BASE_URL"
    )
    for name in parts.PROMPTS
}
"""By the name of the prompt dialect."""
