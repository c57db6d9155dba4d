"""What all wires have in common, whatever their form.

Rule 1: a set of tools is described once. Sent again, it is the same list, so that its bytes can be reused.
Rule 2: a demand that no model could meet is never sent: it is a mistake in setting up.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

from handrail import plugins
from handrail.dialects import ToolLike, compute_once, provider_errors
from handrail.dialects.wires.prompt_caching import Server
from handrail.dialects.writing import as_collection
from handrail.errors import ConfigError, Json, ModelError
from handrail.messages import Message, Options, Way


@dataclass(frozen=True, slots=True)
class BaseWire(ABC):
    """The part of a `WireDialect` that is the same for every form.

    Attributes:
        output_by: How an answer of a given form is asked for; see `structured_output`.
        server: Whose server is asked; some fields are sent only where support is certain.
        history: The field of a request that holds the conversation; see `request_bytes`.
        runs_programs: The beginning of the type of the provider's tool that runs programs; empty without one.
    """

    name: str
    output_by: Way = "native"
    server: Server = ""
    history: ClassVar[str] = "messages"
    runs_programs: ClassVar[str] = ""

    def definitions(
        self, tools: Iterable[ToolLike], *, strict: bool = False
    ) -> list[dict[str, Json]]:
        """Return the tools as the provider wants them described.

        Args:
            strict: Hold the model to the schema of each tool whose strict form loses nothing. The others are sent
                plainly, so that one such tool does not cost the others their strictness.
        """
        tools = as_collection(tools)
        defined: list[dict[str, Json]] = compute_once(
            tools, (type(self), self.server, strict), lambda: self.define(tools, strict)
        )
        return defined

    def marks_history(self, messages: Sequence[Message], options: Options) -> bool:
        """Whether the request has marks in its history, which move on with the next one."""
        return False

    def defers_tools(self, model: str) -> bool:
        """Whether the provider itself loads the tools that a search of ours found; see `Options.deferral`."""
        return False

    def asks_about_mcp(self, options: Options) -> bool:
        """Whether an answer may hold questions about calls on MCP servers, which are ours to answer."""
        return False

    @abstractmethod
    def define(
        self, tools: Collection[ToolLike], strict: bool
    ) -> list[dict[str, Json]]:
        """Describe the tools; `definitions` caches the result."""

    def classify(
        self, status: int | None, headers: Mapping[str, str], body: Json | bytes
    ) -> ModelError:
        """Return what an error answer means; see `provider_errors.classify`."""
        return provider_errors.classify(status, headers, body)


def check_choice(
    choice: str,
    tools: Collection[ToolLike],
    provided: Sequence[Mapping[str, Json]] = (),
    *,
    by_name: bool = False,
) -> None:
    """Check that a request can demand the call that `tool_choice` says.

    Args:
        provided: Tools that the provider runs itself.
        by_name: One of those may be named too.

    Raises:
        ConfigError: It names a tool that is not there, or demands a call where there is none.
    """
    if choice in ("auto", "none"):
        return
    if not (tools or provided):
        raise ConfigError(f"tool_choice is {choice!r}, but the request has no tools")
    if by_name:
        others = [str(each.get("name")) for each in provided]
    else:
        others = []
    if (
        choice != "required"
        and choice not in others
        and all(tool.name != choice for tool in tools)
    ):
        there = len(tools) + len(others)
        raise ConfigError(
            f"tool_choice names {choice!r}, which is not among the {there} tools of the request"
        )


def sendable_allowed(
    options: Options, tools: Collection[ToolLike], *, server: Server
) -> tuple[str, ...]:
    """Return the names of the tools that may be called, where a request can say so; empty where it cannot.

    Only an API's own server takes it. A list leaves out the provider's own tools and those that it loads itself.
    """
    if options.allowed is None or server != "own":
        return ()
    if options.provider_tools or options.deferral is not None:
        return ()
    if options.tool_choice not in ("auto", "required"):
        return ()
    return tuple(tool.name for tool in tools if tool.name in options.allowed)


def refuse_effort(name: str, options: Options) -> None:
    """Check that nobody asks for an effort where a request has no field for it.

    Raises:
        ConfigError: Somebody does.
    """
    if options.effort is not None:
        raise ConfigError(
            f"the dialect {name!r} has no field for the effort; leave `effort` out, or say it in `extra`"
        )


def merge_field(
    extra: Mapping[str, Json], field: str, own: Mapping[str, Json]
) -> dict[str, Json]:
    """Return the caller's object for a field with ours in it; what the caller says counts.

    Raises:
        ConfigError: The caller's field is no object.
    """
    given = extra.get(field) or {}
    if not isinstance(given, Mapping):
        raise ConfigError(
            f"the option `{field}` is no object, so `{next(iter(own))}` has no place in it"
        )
    return {**own, **given}


def foreign(what: str, why: str) -> ConfigError:
    """Return the error for a message of another dialect: read anyway, its calls would be passed over in silence."""
    return ConfigError(
        f"this is no {what} ({why}); the dialects are {', '.join(plugins.list_names('dialects'))}"
    )
