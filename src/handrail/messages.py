"""A conversation in handrail's own terms, whatever the provider calls its parts.

Messages are frozen, so a dialect may encode each one once and cache the bytes.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Literal, TypeAlias

from msgspec import Struct, field

from handrail.calls import Media, ToolCall, ToolResult
from handrail.errors import ConfigError, Json

Finish: TypeAlias = Literal["stop", "calls", "length", "refused", "error"]
"""How the model ended: it finished, wants tools, was cut, declined, or the connection broke."""


class Usage(Struct, frozen=True):
    """Tokens as the provider counted them; 0 where it did not say.

    Attributes:
        input_tokens: All tokens that the model read, including those read from and written to the provider's cache.
        cached_tokens: Those of them read from the cache, at a fraction of the price.
        cache_written_tokens: Those of them written to the cache, at a higher price with some providers.
    """

    input_tokens: int = 0
    output_tokens: int = 0
    cached_tokens: int = 0
    reasoning_tokens: int = 0
    cache_written_tokens: int = 0

    @property
    def cache_read_share(self) -> float:
        """Which part of the input was read from the provider's cache, from 0 to 1."""
        return self.cached_tokens / self.input_tokens if self.input_tokens else 0.0

    def __add__(self, other: Usage) -> Usage:
        return Usage(
            self.input_tokens + other.input_tokens,
            self.output_tokens + other.output_tokens,
            self.cached_tokens + other.cached_tokens,
            self.reasoning_tokens + other.reasoning_tokens,
            self.cache_written_tokens + other.cache_written_tokens,
        )


class Turn(Struct, frozen=True):
    """One answer of a model.

    Attributes:
        calls: In the order in which the model wrote them.
        refusal: The provider's own refusal text, where it has one.
        raw: The provider's message as received, so that signatures and encrypted parts go back byte for byte.
        server_side: Calls that the provider ran itself (web search, code), with their results, as it reported them.
        waits_for: What the provider needs to continue, other than results of calls; part of a sentence.
    """

    text: str = ""
    reasoning: str = ""
    calls: Sequence[ToolCall] = ()
    finish: Finish = "stop"
    usage: Usage = Usage()
    refusal: str = ""
    raw: Mapping[str, Json] | None = None
    server_side: Sequence[Mapping[str, Json]] = ()
    waits_for: str = ""

    def __eq__(self, other: object) -> bool:
        """Whether both say the same, whatever a provider wrapped it in."""
        return isinstance(other, Turn) and all(
            getattr(self, name) == getattr(other, name) for name in _SAID
        )

    def __hash__(self) -> int:
        return hash(tuple(getattr(self, name) for name in _SAID))

    def __repr__(self) -> str:
        fields = ", ".join(
            f"{name}={getattr(self, name)!r}" for name in _SAID if getattr(self, name)
        )
        return f"Turn({fields})"


_SAID = ("text", "reasoning", "calls", "finish", "usage", "refusal")


class SystemMessage(Struct, frozen=True):
    """The engineer's instructions to the model, before the conversation."""

    text: str


class UserMessage(Struct, frozen=True):
    """What a person says.

    Attributes:
        parts: The whole content in order, where it is more than text: `Media`, and parts as the chat form spells them
            (`text`, `image_url`, `input_audio`, `file`), which every dialect translates. Any other part is the
            provider's own and passes unchanged.
    """

    text: str
    parts: Sequence[Mapping[str, Json] | Media] = ()


class AssistantMessage(Struct, frozen=True):
    """An answer of the model: its text and its calls."""

    turn: Turn


class ToolMessage(Struct, frozen=True):
    """The result of one call, on its way to the model."""

    result: ToolResult


Message: TypeAlias = SystemMessage | UserMessage | AssistantMessage | ToolMessage


Way: TypeAlias = Literal["native", "tool", "prompt"]
"""How an answer of a given form is asked for: the provider holds it to a schema, the model gives it as a call of a tool
that takes it, or the prompt describes the form."""


Cache: TypeAlias = Literal["auto", "5m", "1h"]
"""For how long a provider is asked to keep what a request begins with."""


Effort: TypeAlias = Literal["low", "medium", "high"]
"""How long a model that reasons is to think."""


class Output(Struct, frozen=True):
    """The form that an answer must have: a JSON Schema, and a name for it that providers accept."""

    schema: Mapping[str, Json]
    name: str = "answer"


SEARCH_TOOLS = "search_tools"
"""The tool by which a model searches for others."""

ALLOW_MCP_CALL = "allow_mcp_call"
"""The tool that answers a provider's question about a call on an MCP server; see `tools.mcp_approval`."""


class Deferral(Struct, frozen=True):
    """Tools that the provider loads itself where a search found them, so that what precedes stays as it was.

    Attributes:
        search: The name of the tool by which the model searches.
        names: Of the tools that are loaded so.
    """

    search: str
    names: frozenset[str] = frozenset()


class Options(Struct, frozen=True):
    """How a model is asked.

    Attributes:
        tool_choice: `auto`, `required`, `none`, or the name of the one tool that must be called.
        parallel: Whether several calls in one answer are welcome; None leaves it to the provider.
        strict: Ask the provider to hold to the schemas where a tool's schema allows it without loss.
        output: Hold the answer's text to this form, by the provider's own means.
        provider_tools: Tools that the provider runs itself (web search, code), as it describes them; passed through.
        extra: Further fields of the provider's request body, passed through unchanged.
        boundaries: Put marks around each result of a tool that no result can forge, and explain them to the model; see
            `dialects.boundaries`. Of `Runtime.run` only.
        cache: Ask the provider to keep what requests begin with (tools, system message, conversation), and to read it
            at a fraction of the price. `auto` says what that needs to providers that take it for certain; `5m` and
            `1h` say it to any server whose API has a field for it; None says nothing.
        effort: How long the model is to think, in each provider's own field; refused where it has none.
        allowed: Set by `Runtime.run(flow=...)`: the tools that may be called now, for providers that take it. The
            others stay described, so that the cache holds.
        deferral: Set by `Runtime.run` where its selector searches and the provider takes part in that.
    """

    model: str = ""
    tool_choice: str = "auto"
    parallel: bool | None = None
    strict: bool = False
    max_tokens: int | None = None
    temperature: float | None = None
    stream: bool = False
    output: Output | None = None
    provider_tools: Sequence[Mapping[str, Json]] = ()
    extra: Mapping[str, Json] = field(default_factory=dict)
    boundaries: bool = False
    cache: Cache | None = "auto"
    effort: Effort | None = None
    allowed: frozenset[str] | None = None
    deferral: Deferral | None = None


class TextDelta(Struct, frozen=True):
    """The next piece of the answer's text."""

    text: str


class ReasoningDelta(Struct, frozen=True):
    """The next piece of the model's reasoning, where the provider shows it."""

    text: str


class ArgumentsDelta(Struct, frozen=True):
    """The next piece of one call's argument text; `index` counts the calls of this turn from 0."""

    index: int
    name: str
    text: str


Delta: TypeAlias = TextDelta | ReasoningDelta | ArgumentsDelta


def conversation_of(
    opening: str
    | Message
    | Mapping[str, Json]
    | Iterable[Message | Mapping[str, Json]],
    *,
    system: str = "",
) -> list[Message]:
    """Return messages from a question, from messages, or from dictionaries in the chat form that every tool exports.

    A dictionary has `role` (`system`, `developer`, `user`, `assistant`, `tool`) and `content`, an assistant's one
    perhaps `tool_calls`, a tool's one `tool_call_id`.

    Raises:
        ConfigError: A dictionary without one of these roles, or what is no message at all.
    """
    if system:
        return [SystemMessage(system), *conversation_of(opening)]
    if isinstance(opening, str):
        return [UserMessage(opening)]
    if isinstance(opening, Mapping) or not isinstance(opening, Iterable):
        opening = [opening]
    return [_message(each) for each in opening]


def _message(message: Message | Json) -> Message:
    if isinstance(message, Message):
        return message
    if not isinstance(message, Mapping):
        what = type(message).__name__
        raise ConfigError(
            f"a message is a dictionary with a role, or one such as `hr.UserMessage`, not {what}"
        )
    role = message.get("role")
    content = message.get("content")
    text = content if isinstance(content, str) else _join_texts(content)
    match role:
        case "system" | "developer":
            return SystemMessage(text)
        case "user":
            if isinstance(content, str) or content is None:
                return UserMessage(text)
            return UserMessage(text, tuple(content))
        case "assistant":
            return AssistantMessage(_turn(message, text))
        case "tool":
            call_id = str(message.get("tool_call_id", ""))
            name = str(message.get("name", ""))
            return ToolMessage(ToolResult(call_id, name, value=text, text=text))
        case _:
            raise ConfigError(
                f"a message has the role {role!r}; it is system, developer, user, assistant or tool"
            )


def _turn(message: Mapping[str, Json], text: str) -> Turn:
    calls = [_call(call) for call in message.get("tool_calls") or ()]
    return Turn(
        text,
        calls=calls,
        finish="calls" if calls else "stop",
        refusal=str(message.get("refusal") or ""),
        raw=message,
    )


def _join_texts(content: Json) -> str:
    return "".join(
        part.get("text", "") for part in content or () if isinstance(part, Mapping)
    )


def _call(call: Mapping[str, Json]) -> ToolCall:
    function = call.get("function") or call
    arguments = function.get("arguments", "{}")
    if not isinstance(arguments, str):
        raise ConfigError(
            f"the arguments of call {call.get('id')!r} are not a string; the chat form holds JSON text"
        )
    return ToolCall(str(call.get("id", "")), str(function.get("name", "")), arguments)
