"""Raw completion endpoints as wires: a prompt goes in, the text that goes on comes out.

`Completions` is `/v1/completions` as vLLM and llama.cpp serve it, `Generate` is Ollama's `/api/generate` with
`raw: true`. Both carry any `PromptDialect`; what they share is that an answer, and each piece of a streamed one, is a
text with perhaps a reason why it ended.

Rule 1: the prompt goes without its first token, because these servers add it on their own, and two of them make an
        answer worse.
Rule 2: control tokens must come back in the text: calls begin with them.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from datetime import UTC, date, datetime
from typing import Self

from msgspec import Struct
from msgspec.structs import replace

from handrail.calls import ToolCall, ToolResult
from handrail.dialects import (
    Conversation,
    Envelope,
    ToolLike,
    json_bodies,
    provider_errors,
    writing,
)
from handrail.dialects.wires.event_stream import EventStream
from handrail.dialects.wires.sse import EventSplitter, ServerEvent
from handrail.errors import Json, ModelError
from handrail.messages import (
    AssistantMessage,
    Delta,
    Finish,
    Message,
    Options,
    Turn,
    Usage,
    UserMessage,
)
from handrail.ports import Described
from handrail_openmodels.prompts.dialect import PromptDialect, PromptStream

MOST_TOKENS = 4096
"""Of one answer, where the options do not say. The endpoint's own default is 16, which no call survives; much more is
refused by servers that must fit prompt and answer into one context."""

_FINISHES: Mapping[str, Finish] = {
    "stop": "stop",
    "eos": "stop",
    "limit": "length",
    "length": "length",
    "content_filter": "refused",
    "abort": "error",
}
_WORDS: Mapping[Finish, str] = {
    "stop": "stop",
    "calls": "stop",
    "length": "length",
    "refused": "content_filter",
    "error": "abort",
}


class CompletionChunk(Struct, frozen=True):
    """A whole answer, or a piece of a streamed one.

    Attributes:
        finish: Why the answer ended, or None where it has not.
    """

    text: str = ""
    finish: Finish | None = None
    usage: Usage | None = None


class Completions(Struct, frozen=True):
    """`/v1/completions` with the prompts of one family; a `WireDialect` without tools of its own.

    Attributes:
        opened: The block that the prompt has opened; set by `answering`, on the server's side only.
        engine: The server: `vllm`, `sglang` or `llama.cpp`; empty if unknown. Decides in which field a request asks
            for the form of its answer.
    """

    prompt: PromptDialect
    opened: str | None = None
    engine: str = ""

    @property
    def name(self) -> str:
        """The name of the family's dialect."""
        return self.prompt.name

    def on(self, today: date) -> Self:
        """Return this wire with prompts that mention the date."""
        if self.prompt.today == today:
            return self
        return replace(self, prompt=self.prompt.on(today))

    def path(self, model: str, *, stream: bool) -> str:
        """Return where requests go; see `WireDialect.path`."""
        return "/v1/completions"

    def definitions(
        self, tools: Iterable[ToolLike], *, strict: bool = False
    ) -> list[dict[str, Json]]:
        """Return nothing: tools are described in the prompt."""
        return []

    # ------------------------------------------------------------------ asking

    def encode_request(
        self,
        messages: Conversation,
        tools: Iterable[ToolLike] | None = None,
        options: Options | None = None,
    ) -> dict[str, Json]:
        """Return the request's body.

        A form for the answer (`output`) is described in the prompt. Where no tool may be called the server gets it as
        well, and holds the answer to it (vLLM and llama.cpp each have a field for that, and ignore the other's).
        """
        options = options or Options()
        tools = writing.as_collection(tools)
        prompt = self.prompt.encode_request(messages, tools, options).removeprefix(
            self.prompt.template.bos
        )
        may_call = bool(tools) and options.tool_choice != "none"
        if may_call or options.output is None:
            guide = None
        else:
            guide = dict(options.output.schema)
        return {**self.fields(prompt, options, guide), **options.extra}

    def fields(self, prompt: str, options: Options, guide: Json) -> dict[str, Json]:
        """Return what a request says; `guide` is the schema that the server is to hold the answer to, if any."""
        fields: dict[str, Json] = {
            "model": options.model,
            "prompt": prompt,
            "max_tokens": options.max_tokens or MOST_TOKENS,
            "temperature": options.temperature,
            "stop": list(self.prompt.stops) or None,
            "stream": options.stream or None,
            "stream_options": {"include_usage": True} if options.stream else None,
            "skip_special_tokens": False,  # vLLM's word for rule 2
            "preserved_tokens": list(self.prompt.tokens) or None,  # llama.cpp's
        }
        if guide is not None:
            form = {
                "type": "json_schema",
                "json_schema": {"name": "answer", "schema": guide},
            }
            both: dict[str, Json] = {"response_format": form, "json_schema": guide}
            of_engine: Mapping[str, dict[str, Json]] = {
                "vllm": {"structured_outputs": {"json": guide}},
                "sglang": {"response_format": form},
                "llama.cpp": {"json_schema": guide},
            }
            fields |= of_engine.get(self.engine, both)
        return {name: value for name, value in fields.items() if value is not None}

    # ------------------------------------------------------------------ being answered

    def parse_chunk(self, body: Mapping[str, Json]) -> CompletionChunk:
        """Return what an answer, or one event of a stream, says."""
        choices = body.get("choices")
        if choices:
            first = (json_bodies.items(choices, "`choices`") or [{}])[0]
        else:
            first = {}
        choice = json_bodies.mapping(first, "a choice")
        usage = body.get("usage")
        return CompletionChunk(
            json_bodies.string(choice.get("text") or "", "`text`"),
            _finish(choice.get("finish_reason")),
            _tokens(usage) if usage else None,
        )

    def decode(
        self,
        body: Json | bytes,
        tools: Iterable[ToolLike] | None = None,
        *,
        opened: str = "",
    ) -> Turn:
        """Return the turn of a whole answer; `opened` is what the prompt already held of it.

        Raises:
            ModelError: The body is an error, or unreadable.
        """
        answer = json_bodies.parse_object(body)
        if not self.is_answer(answer):
            if provider_errors.error_in(answer):
                raise provider_errors.classify(None, {}, answer)
            raise json_bodies.unreadable(f"it has none of {self.name}'s text in it")
        chunk = self.parse_chunk(answer)
        turn = self.prompt.decode(chunk.text, tools, opened=opened, finish=chunk.finish)
        return replace(turn, usage=chunk.usage or Usage())

    def is_answer(self, body: Mapping[str, Json]) -> bool:
        """Whether a body holds an answer."""
        return bool(body.get("choices"))

    def stream(
        self, tools: Iterable[ToolLike] | None = None, *, opened: str = ""
    ) -> EventStream:
        """Return a reader for one streamed answer."""
        return _CompletionStream(self, writing.as_collection(tools), opened)

    def encode_results(
        self, calls: Sequence[ToolCall], results: Sequence[ToolResult]
    ) -> str:
        """Return the text of the results, as the prompts hold it."""
        return self.prompt.encode_results(calls, results)

    def decode_message(
        self, message: Mapping[str, Json], tools: Iterable[ToolLike] | None = None
    ) -> Turn:
        """Return the turn of a whole answer; there is no smaller message here."""
        return self.decode(dict(message), tools)

    def classify(
        self, status: int | None, headers: Mapping[str, str], body: Json | bytes
    ) -> ModelError:
        """Return what an error answer means; see `WireDialect.classify`."""
        return provider_errors.classify(status, headers, body)

    def decode_conversation(self, body: Mapping[str, Json]) -> list[Message]:
        """Return the prompt as one message; see `decode_request`."""
        return self.decode_request(body)[0]

    # ------------------------------------------------------------------ the server's side

    def encode_error(self, message: str, *, status: int, type: str) -> dict[str, Json]:
        """Return the body of an error answer."""
        return {
            "error": {"message": message, "type": type, "param": None, "code": None}
        }

    def decode_request(
        self, body: Mapping[str, Json]
    ) -> tuple[list[Message], list[Described], Options]:
        """Return what a client asked: the prompt as one message, then an empty answer for each one that it holds."""
        prompt = json_bodies.string(body.get("prompt"), "`prompt`")
        answers = [AssistantMessage(Turn())] * self.prompt.count_answers(prompt)
        options = Options(
            model=str(body.get("model", "")),
            stream=bool(body.get("stream", self.streams_by_default)),
        )
        return [UserMessage(prompt), *answers], [], options

    @property
    def one_call_each(self) -> bool:
        """Whether a conversation counts each call of an answer as an answer of its own."""
        return self.prompt.template.single

    @property
    def stream_type(self) -> str:
        """The content type of a stream."""
        return "text/event-stream"

    def answering(self, body: Mapping[str, Json]) -> Self:
        """Return this wire as it goes on after the prompt of that request."""
        return replace(
            self,
            opened=self.prompt.find_opening(
                json_bodies.string(body.get("prompt"), "`prompt`")
            ),
        )

    @property
    def streams_by_default(self) -> bool:
        """Whether a request without the field `stream` gets a stream."""
        return False

    def encode_turn(
        self, turn: Turn, envelope: Envelope, tools: Iterable[ToolLike] | None = None
    ) -> dict[str, Json]:
        """Return the body that the server would send for a turn. It leaves out the mark at which it stopped."""
        return self.encode_chunk(
            CompletionChunk(self._text(turn), turn.finish, turn.usage), envelope
        )

    def encode_stream(
        self,
        turn: Turn,
        envelope: Envelope,
        tools: Iterable[ToolLike] | None = None,
        *,
        piece_chars: int = 12,
    ) -> Iterator[str]:
        """Return the events that the server would stream for a turn. One with `error` breaks off."""
        for text in writing.pieces(self._text(turn), piece_chars):
            yield writing.event(self.encode_chunk(CompletionChunk(text), envelope))
        if turn.finish != "error":
            yield writing.event(
                self.encode_chunk(
                    CompletionChunk("", turn.finish, turn.usage), envelope
                )
            )
            yield "data: [DONE]\n\n"

    def encode_chunk(
        self, chunk: CompletionChunk, envelope: Envelope
    ) -> dict[str, Json]:
        """Return an answer, or an event of a stream, with the fields of a chunk; see `parse_chunk`."""
        finish = chunk.finish and _WORDS[chunk.finish]
        fields: dict[str, Json] = {
            "id": envelope.id,
            "object": "text_completion",
            "created": envelope.created,
            "model": envelope.model,
            "choices": [
                {
                    "index": 0,
                    "text": chunk.text,
                    "logprobs": None,
                    "finish_reason": finish,
                }
            ],
        }
        if chunk.usage:
            tokens = chunk.usage.input_tokens, chunk.usage.output_tokens
            fields["usage"] = {
                "prompt_tokens": tokens[0],
                "completion_tokens": tokens[1],
                "total_tokens": sum(tokens),
            }
        return fields

    def _text(self, turn: Turn) -> str:
        return self.prompt.answer(turn, opened=self.opened).removesuffix(
            next(iter(self.prompt.stops), "")
        )


class Generate(Completions, frozen=True):
    """Ollama's `/api/generate`, raw: its own templates are left out, and the prompt comes from ours."""

    @property
    def stream_type(self) -> str:
        """See `Completions.stream_type`."""
        return "application/x-ndjson"

    def path(self, model: str, *, stream: bool) -> str:
        """Return where requests go; see `WireDialect.path`."""
        return "/api/generate"

    def fields(self, prompt: str, options: Options, guide: Json) -> dict[str, Json]:
        """Return what a request with that prompt says; see `Completions.fields`."""
        sampling: dict[str, Json] = {
            "num_predict": options.max_tokens or MOST_TOKENS,
            "temperature": options.temperature,
            "stop": list(self.prompt.stops) or None,
        }
        fields: dict[str, Json] = {
            "model": options.model,
            "prompt": prompt,
            "raw": True,
            "stream": options.stream,  # Ollama streams by default
            "format": guide,
            "options": {
                name: value for name, value in sampling.items() if value is not None
            },
        }
        return {name: value for name, value in fields.items() if value is not None}

    def parse_chunk(self, body: Mapping[str, Json]) -> CompletionChunk:
        """Return what an answer, or one line of a stream, says."""
        text = json_bodies.string(body.get("response") or "", "`response`")
        if not body.get("done"):
            return CompletionChunk(text)
        usage = Usage(
            json_bodies.count(body, "prompt_eval_count"),
            json_bodies.count(body, "eval_count"),
        )
        return CompletionChunk(text, _finish(body.get("done_reason")) or "stop", usage)

    def is_answer(self, body: Mapping[str, Json]) -> bool:
        """Whether a body holds an answer."""
        return "response" in body

    def stream(
        self, tools: Iterable[ToolLike] | None = None, *, opened: str = ""
    ) -> EventStream:
        """Return a reader for one streamed answer, a JSON object a line."""
        return _CompletionStream(
            self, writing.as_collection(tools), opened, _LineSplitter()
        )

    @property
    def streams_by_default(self) -> bool:
        """Whether a request without the field `stream` gets a stream."""
        return True

    def encode_error(self, message: str, *, status: int, type: str) -> dict[str, Json]:
        """Return the body of an error answer."""
        return {"error": message}

    def encode_stream(
        self,
        turn: Turn,
        envelope: Envelope,
        tools: Iterable[ToolLike] | None = None,
        *,
        piece_chars: int = 12,
    ) -> Iterator[str]:
        """Return the lines that Ollama would stream for a turn. One with `error` breaks off."""
        for text in writing.pieces(self._text(turn), piece_chars):
            yield _line(self.encode_chunk(CompletionChunk(text), envelope))
        if turn.finish != "error":
            yield _line(
                self.encode_chunk(
                    CompletionChunk("", turn.finish, turn.usage), envelope
                )
            )

    def encode_chunk(
        self, chunk: CompletionChunk, envelope: Envelope
    ) -> dict[str, Json]:
        """Return an answer, or a line of a stream, with the fields of a chunk; see `parse_chunk`."""
        at = datetime.fromtimestamp(envelope.created, UTC).isoformat()
        head = {"model": envelope.model, "created_at": at}
        fields: dict[str, Json] = {
            **head,
            "response": chunk.text,
            "done": bool(chunk.finish),
        }
        if chunk.finish:
            fields["done_reason"] = _WORDS[chunk.finish]
        if chunk.usage:
            fields |= {
                "prompt_eval_count": chunk.usage.input_tokens,
                "eval_count": chunk.usage.output_tokens,
            }
        return fields


def _line(body: Json) -> str:
    return json.dumps(body, ensure_ascii=False) + "\n"


def _tokens(usage: Mapping[str, Json]) -> Usage:
    return Usage(
        json_bodies.count(usage, "prompt_tokens"),
        json_bodies.count(usage, "completion_tokens"),
    )


def _finish(word: Json) -> Finish | None:
    """Return why an answer ended; a reason that nobody knows is no clean end."""
    if isinstance(word, str):
        return _FINISHES.get(word, "error")
    return None


class _CompletionStream(EventStream):
    """One streamed answer of a raw endpoint."""

    def __init__(
        self,
        wire: Completions,
        tools: Collection[ToolLike],
        opened: str,
        splitter: _LineSplitter | None = None,
    ) -> None:
        super().__init__(wire, tools)
        if splitter is not None:
            self._splitter = splitter
        self._wire = wire
        self._opened = opened
        self._reader: PromptStream = wire.prompt.stream(tools, opened=opened)
        self._finish: Finish | None = None
        self._usage = Usage()

    def take(self, event: ServerEvent, deltas: list[Delta]) -> None:
        """Read one event; see `EventStream.take`."""
        payload = json_bodies.parse_object(event.data)
        if payload.get("error"):
            raise provider_errors.classify(None, {}, payload)
        chunk = self._wire.parse_chunk(payload)
        deltas += self._reader.feed(chunk.text)
        self._finish = chunk.finish or self._finish
        self._usage = chunk.usage or self._usage

    def whole(self) -> Turn:
        """Return the turn of all events taken; without a reason for its end it broke off."""
        return replace(self._reader.close(self._finish or "error"), usage=self._usage)

    def decode_plain(self, body: str) -> Turn:
        """Return the turn of a plain answer that came where a stream was asked for."""
        return self._wire.decode(body, self._tools, opened=self._opened)


class _LineSplitter(EventSplitter):
    """Turns the pieces of a stream of JSON lines into events; see `EventSplitter`."""

    def feed(self, chunk: str | bytes) -> list[ServerEvent]:
        """Take the next piece and return the lines that it completes."""
        if isinstance(chunk, str):
            text = chunk
        else:
            text = self._decoder.decode(chunk)
        first, *others = text.split("\n")
        self._line.append(first)
        if not others:
            return []
        lines = ["".join(self._line), *others[:-1]]
        self._line = [others[-1]]
        return [ServerEvent(line) for line in lines if line.strip()]

    def close(self) -> list[ServerEvent]:
        """Return the last line, if it has no end."""
        rest = "".join(self._line) + self._decoder.decode(b"", True)
        self._line = []
        if rest.strip():
            return [ServerEvent(rest)]
        return []


def make_raw_wires(prompt: PromptDialect) -> list[Completions]:
    """Return the wires that carry the prompts of a family, for a server that plays both."""
    return [Completions(prompt), Generate(prompt)]
