"""The tools of one deployment as its models see them: what the policy permits, and what a selector shows of that.

Rule 1: what is shown is among what is permitted; a selector narrows and never widens.
Rule 2: what is not shown can be called all the same: a model may know a tool from an earlier turn.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from handrail import plugins
from handrail.calls import ToolCall
from handrail.core.policy import Policy
from handrail.engine.read_result import READ_RESULT
from handrail.errors import ConfigError, DuplicateToolError, HandrailError, ModelError
from handrail.messages import Message
from handrail.ports import Selection, Selector
from handrail.tools.mcp_approval import QUESTION
from handrail.tools.tool import BaseTool
from handrail.tools.toolset import Toolset

DEFAULT = "auto"


class ToolVisibility:
    """What models are shown of these tools, and what their calls may name.

    Args:
        selector: One of ours by name, or a `Selector`; a run may have another.
    """

    def __init__(
        self, tools: Toolset, policy: Policy, selector: str | Selector = DEFAULT
    ) -> None:
        self._tools = tools
        self._policy = policy
        # Ours is imported when a model is first asked: whoever only carries out calls never needs it.
        self._selector: Selector | None = (
            None if selector == DEFAULT else resolve_selector(selector)
        )
        self._permitted: tuple[Toolset, Toolset, Toolset] | None = None
        self._callable: tuple[Toolset, Toolset] | None = None

    @property
    def selector(self) -> Selector:
        """What chooses where a run does not say otherwise."""
        if self._selector is None:
            self._selector = resolve_selector(DEFAULT)
        return self._selector

    def find_permitted(self) -> tuple[Toolset, Toolset]:
        """Return the tools that the policy lets a model use, and these with `read_result`."""
        now = self._tools.snapshot()
        found = self._permitted
        if found is None or found[0] is not now:
            permitted = now.filter(self._policy.sees)
            found = (now, permitted, _add_read_result(permitted))
            # in one step: other threads may look meanwhile
            self._permitted = found
        return found[1:]

    def permitted_tools(self, *, reads_on: bool = False) -> Toolset:
        """Return the tools that the policy lets a model use, with `read_result` where there is something to read."""
        return self.find_permitted()[reads_on]

    def offered_tools(self, *, reads_on: bool) -> Toolset:
        """Return the permitted tools and those that the selector itself offers."""
        permitted = self.permitted_tools(reads_on=reads_on)
        own = self._own_tools(None)
        return permitted + own if own else permitted

    def callable_tools(
        self, calls: Sequence[ToolCall] = (), selector: Selector | None = None
    ) -> Toolset:
        """Return every tool that a call may name: one that the policy hides is refused rather than unknown.

        Args:
            calls: Where one of them names none of these, those that the selector itself offers are there too.
        """
        now = self._tools.snapshot()
        if self._callable is None or self._callable[0] is not now:
            self._callable = (now, _add_approval(_add_read_result(now)))
        tools = self._callable[1]
        if tools.has_all(calls):
            return tools
        return tools + self._own_tools(selector)

    def choose_tools(
        self, names: Iterable[str], tools: Toolset, selector: Selector | None
    ) -> Toolset:
        """Return those of these names that are permitted or the selector's own, in their order.

        Raises:
            DuplicateToolError: A tool of the user's has the name of one of the selector's.
        """
        own = {tool.name: tool for tool in self._own_tools(selector)}
        return Toolset(
            tool
            for name in dict.fromkeys(names)
            if (tool := own.get(name) or tools.get(name))
        )

    def _own_tools(self, selector: Selector | None) -> Sequence[BaseTool]:
        selector = selector or self.selector
        own: Sequence[BaseTool] = selector.own_tools(self.permitted_tools())
        for tool in own:
            if tool.name in self._tools:
                raise DuplicateToolError(
                    f"a tool of yours is called {tool.name!r}, which the selector {selector.name!r} offers; "
                    "rename it, or choose another selector"
                )
        return own


def select_tools(
    selector: Selector, permitted: Toolset, messages: Sequence[Message]
) -> Selection:
    """Ask a selector what the next turn shows; in a thread where it `waits`.

    Raises:
        ModelError: It raised.
    """
    try:
        return selector.select(permitted, messages)
    except HandrailError:
        raise
    except Exception as error:  # somebody else's code: its text may hold anything
        raise ModelError(
            f"the selector {selector.name} raised {type(error).__name__}",
            code="selector",
        ) from error


def resolve_selector(selector: str | Selector) -> Selector:
    """Return a selector by its name.

    Raises:
        ConfigError: There is none of that name, or it is not a `Selector`.
    """
    loaded = (
        plugins.load("selectors", selector) if isinstance(selector, str) else selector
    )
    if not isinstance(loaded, Selector):
        raise ConfigError(
            f"{selector!r} is no selector: it needs `name`, `waits`, `select` and `own_tools`"
        )
    return loaded


def add_mcp_approval(tools: Toolset) -> Toolset:
    """Return the tools with the one that answers a provider's questions about calls on MCP servers.

    Raises:
        DuplicateToolError: A tool of the user's has its name.
    """
    added: Toolset = tools.compute_once(QUESTION, lambda: _add_approval(tools))
    return added


def _add_approval(tools: Toolset) -> Toolset:
    return _add_own(tools, QUESTION)


def _add_read_result(tools: Toolset) -> Toolset:
    return _add_own(tools, READ_RESULT)


def _add_own(tools: Toolset, own: BaseTool) -> Toolset:
    if tools.get(own.name) not in (None, own):
        raise DuplicateToolError(
            f"a tool of yours is called {own.name!r}, which is handrail's own; rename it"
        )
    return tools if own.name in tools else Toolset([*tools, own])
