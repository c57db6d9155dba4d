"""How a wire format or a prompt format spells requests, calls and results. One file per dialect, one contract for all.

A dialect is pure: it turns values into text or dictionaries and back, and never opens a connection, reads a clock
(except one that it was given, to see what has expired) or keeps state between two calls. Only a `DialectStream` has
state, that of one answer on its way.

Rule 1: decoding never invents. A call is what the provider sent; text that is no call stays text.
Rule 2: whatever a provider sends, decoding gives a `Turn` or raises `ModelError`; no other exception leaves a dialect.
Rule 3: a stream never takes back a delta: all deltas, joined, equal the turn that `close` returns, except for what was
        incomplete when the stream ended (an event, or half a character), which only that turn contains.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Protocol, TypeAlias, cast, runtime_checkable

from msgspec import Struct

from handrail import plugins
from handrail.calls import ToolCall, ToolResult
from handrail.errors import ConfigError, Json, ModelError
from handrail.messages import Delta, Message, Options, Turn
from handrail.ports import Described

Conversation: TypeAlias = (
    "str | Message | Mapping[str, Json] | Iterable[Message | Mapping[str, Json]]"
)
"""Whatever `messages.conversation_of` accepts."""


class ToolLike(Protocol):
    """What a dialect needs to know of a tool.

    It also looks for an attribute `strict_parameters`; None or absent means that there is no strict form without loss.
    """

    @property
    def name(self) -> str: ...

    @property
    def description(self) -> str: ...

    @property
    def parameters(self) -> Mapping[str, Json]: ...


class DialectStream(Protocol):
    """One answer on its way: fed as it arrives, in pieces of any size, cut anywhere."""

    def feed(self, chunk: str | bytes) -> list[Delta]:
        """Take the next piece and return what is new in it, in order.

        Raises:
            ModelError: The provider reported an error, or sent something unreadable. Deltas that came before the error
                are returned first; the error is then raised by the next `feed` or by `close`.
        """
        ...

    def close(self) -> Turn:
        """Return the whole turn. Without a clean end its `finish` is `error`.

        Raises:
            ModelError: As `feed`, or nothing at all was received.
        """
        ...


@runtime_checkable
class Dialect(Protocol):
    """How a provider or a model family spells requests, calls and results."""

    @property
    def name(self) -> str:
        """The name under which `dialect` finds it."""
        ...

    def encode_request(
        self,
        messages: Conversation,
        tools: Iterable[ToolLike] | None = None,
        options: Options | None = None,
    ) -> Any:
        """Return the request: a dictionary for a wire dialect, the prompt's text for a prompt dialect."""
        ...

    def decode(
        self, body: Json | bytes, tools: Iterable[ToolLike] | None = None
    ) -> Turn:
        """Return the model's turn from a whole answer.

        Args:
            tools: The tools of the request; they translate wire names back to the tools' own.

        Raises:
            ModelError: The body is an error, or unreadable.
        """
        ...

    def stream(self, tools: Iterable[ToolLike] | None = None) -> DialectStream:
        """Return a reader for one streamed answer."""
        ...

    def encode_results(
        self, calls: Sequence[ToolCall], results: Sequence[ToolResult]
    ) -> Any:
        """Return what carries the results back to the model, in the order of the calls."""
        ...


@runtime_checkable
class WireDialect(Dialect, Protocol):
    """A dialect of an HTTP API with tools of its own: bodies are JSON objects, errors have a status."""

    def path(self, model: str, *, stream: bool) -> str:
        """Return where below the provider's base address requests go, with a leading slash."""
        ...

    def definitions(
        self, tools: Iterable[ToolLike], *, strict: bool = False
    ) -> list[dict[str, Json]]:
        """Return the tools as the provider wants them described."""
        ...

    def decode_message(
        self, message: Mapping[str, Json], tools: Iterable[ToolLike] | None = None
    ) -> Turn:
        """Return the turn from one assistant message, or from a whole answer that holds one."""
        ...

    def decode_conversation(self, body: Mapping[str, Json]) -> list[Message]:
        """Return the messages in a request's body, as some client wrote it.

        Raises:
            ConfigError: The messages cannot be read.
            ModelError: What a client sends back of an answer cannot be read.
        """
        ...

    def classify(
        self, status: int | None, headers: Mapping[str, str], body: Json | bytes
    ) -> ModelError:
        """Return what an error answer means: whether to try again, and after how long."""
        ...


class Envelope(Struct, frozen=True):
    """What an answer says of itself beside the turn. Not every provider says all of it.

    Attributes:
        model: The model's name.
        id: The answer's own.
        created: Unix time in seconds.
        usage: Whether a stream reports the usage where the client may choose.
    """

    model: str
    id: str
    created: int
    usage: bool = True


@runtime_checkable
class ServerDialect(WireDialect, Protocol):
    """A wire dialect with the provider's side, for servers that speak it."""

    def encode_error(self, message: str, *, status: int, type: str) -> dict[str, Json]:
        """Return the body of an error answer; `type` is one of OpenAI's words, such as `invalid_request_error`."""
        ...

    def decode_request(
        self, body: Mapping[str, Json]
    ) -> tuple[list[Message], list[Described], Options]:
        """Return what a client asked."""
        ...

    def encode_turn(
        self, turn: Turn, envelope: Envelope, tools: Iterable[ToolLike] | None = None
    ) -> dict[str, Json]:
        """Return the body that the provider would send for a turn."""
        ...

    def encode_stream(
        self,
        turn: Turn,
        envelope: Envelope,
        tools: Iterable[ToolLike] | None = None,
        *,
        piece_chars: int = 12,
    ) -> Iterator[str]:
        """Return the pieces that the provider would stream for a turn, each of about so many characters of text."""
        ...


def compute_once(tools: object, key: Hashable, make: Callable[[], Any]) -> Any:
    """Return what `make` makes of these tools, from memory where they have one."""
    if hasattr(tools, "compute_once"):
        return tools.compute_once(key, make)
    return make()


def dialect(name: str) -> Dialect:
    """Return the dialect of that name: ours, or one that an installed package offers.

    Raises:
        ConfigError: There is no such dialect; the message lists those that there are.
    """
    return cast(Dialect, plugins.load("dialects", name))


def wire_dialect(name: str) -> WireDialect:
    """Return the dialect of a provider's messages.

    Raises:
        ConfigError: There is no such dialect, or it writes prompts.
    """
    loaded = _WIRES.get(name)
    if loaded is not None:
        return loaded
    wire = dialect(name)
    if not isinstance(wire, WireDialect):
        raise ConfigError(
            f"{name!r} is a prompt's dialect; messages come in one of a provider's, such as 'openai-chat'"
        )
    _WIRES[name] = wire
    return wire


# Finding a dialect and checking it against its protocol costs 40 microseconds, on every message.
_WIRES: dict[str, WireDialect] = {}


def message_fields(message: Any) -> Mapping[str, Json]:
    """Return a provider's message as a dictionary, also from an SDK's object."""
    if isinstance(message, (dict, Mapping)):
        return message
    dump = getattr(message, "model_dump", None) or getattr(message, "to_dict", None)
    if dump is None:
        raise ConfigError(
            f"a message is a dictionary or an SDK's object, not {type(message).__name__}"
        )
    return cast(Mapping[str, Json], dump())
