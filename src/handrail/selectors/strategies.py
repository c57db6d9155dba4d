"""What a model is shown of many tools, turn by turn.

    all         every tool
    bm25        those that the question is about
    search      those, and `search_tools`, by which the model finds the others itself
    two-stage   `load_tools`, which lists every tool in one line and loads what the model names
    auto        all of them while they are few; `search` beyond

Rule 1: what is shown follows from the tools and the conversation alone, so a resumed run shows what it showed before.
        What is new is appended, never inserted: a provider's cache reads a request as far as it is the same.
Rule 2: a tool that the model has called, found or loaded stays shown.
Rule 3: selecting hides nothing for safety's sake: a permitted tool can be called unseen. That is the policy's work.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from hashlib import blake2b
from typing import Any

from handrail.calls import ToolCall
from handrail.messages import SEARCH_TOOLS, AssistantMessage, Message, UserMessage
from handrail.parsing.names import nearest
from handrail.ports import Ranking, Selection
from handrail.selectors.bm25 import Bm25
from handrail.tools.function_tool import FunctionTool
from handrail.tools.settings import Sends
from handrail.tools.tool import BaseTool
from handrail.tools.toolset import Toolset

MOST_TOOLS = 30
"""Tools that `auto` shows without choosing. Providers advise 20 and see accuracy fall beyond 30 to 50."""

MOST_TOKENS = 10_000
"""What their definitions may cost each turn before `auto` chooses, however few they are: a twelfth of 128k."""

CHARACTERS_PER_TOKEN = 4
"""For English and JSON. Chinese has fewer characters per token, so there the choice begins a little late."""


MOST_DISCOVERED = 60
"""Tools that a conversation of many questions collects. Beyond, starting over with fewer tools costs less."""

SEARCH = SEARCH_TOOLS
LOAD = "load_tools"

EVERYTHING = Selection("all", None)


class All:
    """Shows every tool."""

    name = "all"
    waits = False

    def select(self, tools: Toolset, messages: Sequence[Message]) -> Selection:  # noqa: ARG002  # `Selector`
        """See `Selector.select`."""
        return EVERYTHING

    def own_tools(self, tools: Toolset) -> Sequence[BaseTool]:  # noqa: ARG002  # `Selector`
        """See `Selector.own_tools`: none."""
        return ()


class Ranked:
    """Shows the tools that the question is about, and those that the conversation has called.

    Args:
        rank: Makes the ranking of a toolset, once for each state of it.
        most: How many the question brings.
        waits: The ranking asks a server, so it is asked in a thread.
    """

    name = "bm25"

    def __init__(
        self,
        rank: Callable[[Iterable[Any]], Ranking] = Bm25,
        *,
        most: int = 10,
        waits: bool = False,
    ) -> None:
        self._rank = rank
        self._most = most
        self.waits = waits

    def select(self, tools: Toolset, messages: Sequence[Message]) -> Selection:
        """See `Selector.select`."""
        return Selection(self.name, self._discover(tools, messages).names)

    def _discover(self, tools: Toolset, messages: Sequence[Message]) -> Discovery:
        """Return the tools that the conversation has brought, by its questions and its calls."""
        discovery = Discovery(tools)
        for message in messages:
            if isinstance(message, UserMessage):
                discovery.ask(self._top(tools, message.text, self._most))
            elif isinstance(message, AssistantMessage):
                discovery.answer()
                for call in message.turn.calls:
                    discovery.call(call.name, self._list_brought(tools, call))
        return discovery

    def _list_brought(self, tools: Toolset, call: ToolCall) -> Sequence[str]:  # noqa: ARG002  # for those that search
        """Return the names of the tools that a call has brought, beside the one that it calls."""
        return ()

    def _top(self, tools: Toolset, query: str, most: int) -> Sequence[str]:
        # Asked again each turn rather than read from a result, which may have been folded away by then.
        if not most:
            return ()
        # A question may be a whole document, and no text of a user is stored longer than needed: its digest will do.
        key = (blake2b(query.encode("utf-8", "replace"), digest_size=16).digest(), most)
        ranked: dict[Any, Sequence[str]] = tools.compute_once((self, "ranked"), dict)
        if key not in ranked:
            if len(ranked) >= MOST_CACHED_SEARCHES:
                ranked.clear()
            hits = self.ranking(tools).top(query, most)
            ranked[key] = tuple(tool.name for tool in hits)
        return ranked[key]

    def own_tools(self, tools: Toolset) -> Sequence[BaseTool]:  # noqa: ARG002  # `Selector`
        """See `Selector.own_tools`: none."""
        return ()

    def ranking(self, tools: Toolset) -> Ranking:
        """Return the ranking of these tools, computed again once the set has changed."""
        ranking: Ranking = tools.compute_once(
            (self, "ranking"), lambda: self._rank(tools)
        )
        return ranking


class Searching(Ranked):
    """Shows what `Ranked` shows, and `search_tools`: what the model finds with it is shown from the next turn on.

    Args:
        most: How many tools the question itself brings; 0 leaves all to the model.
        found: How many tools one search brings.
    """

    name = "search"

    def __init__(
        self,
        rank: Callable[[Iterable[Any]], Ranking] = Bm25,
        *,
        most: int = 8,
        found: int = 5,
        waits: bool = False,
    ) -> None:
        super().__init__(rank, most=most, waits=waits)
        self._found = found

    def select(self, tools: Toolset, messages: Sequence[Message]) -> Selection:
        """See `Selector.select`."""
        discovery = self._discover(tools, messages)
        return Selection(
            self.name,
            (SEARCH, *discovery.names),
            search=SEARCH,
            deferrable=(SEARCH, *discovery.initial_names),
            deferred=discovery.found_names,
        )

    def _list_brought(self, tools: Toolset, call: ToolCall) -> Sequence[str]:
        if call.name != SEARCH:
            return ()
        arguments = _arguments(call) or {}
        return self._top(tools, str(arguments.get("query", "")), self._found)

    def own_tools(self, tools: Toolset) -> Sequence[BaseTool]:
        """See `Selector.own_tools`: `search_tools`."""
        tool: BaseTool = tools.compute_once((self, "tool"), lambda: self._tool(tools))
        return [tool]

    def _tool(self, tools: Toolset) -> BaseTool:
        def search_tools(query: str) -> dict[str, Any]:
            names = self._top(tools, query, self._found)
            matches = [tool for name in names if (tool := tools.get(name))]
            if not matches:
                return {
                    "tools": [],
                    "note": "Nothing was found. Ask for what the tool does in other words, or in another language.",
                }
            return {"tools": _lines(matches), "note": "These can be called now."}

        return FunctionTool(
            search_tools,
            name=SEARCH,
            effect="read",
            sends=Sends(trust="trusted"),
            description=f"Find tools among {len(tools)}, most of which are not listed here. Use it when none of the "
            "tools that you see does what is needed. Do not guess names of tools. The tools that are found can be "
            "called from the next turn on.",
            parameters=_one_argument(
                "query", {"type": "string", "description": "What the tool must do."}
            ),
        )


class TwoStage:
    """Shows one line for each tool, in the description of `load_tools`; the model loads those that it wants whole.

    Tools that carry tags are listed in groups, and a group can be loaded by its name.

    Args:
        most_lines: Beyond as many tools, groups are listed without their tools, which a group's name still loads.
    """

    name = "two-stage"
    waits = False

    def __init__(self, *, most_lines: int = 300) -> None:
        self._most_lines = most_lines

    def select(self, tools: Toolset, messages: Sequence[Message]) -> Selection:
        """See `Selector.select`."""
        discovery = Discovery(tools)
        for call in _calls(messages):
            loaded: Sequence[str] = ()
            if call.name == LOAD and (arguments := _arguments(call)):
                loaded = _resolve_names(tools, arguments.get("names"))[0]
            discovery.call(call.name, loaded)
        return Selection(self.name, (LOAD, *discovery.names))

    def own_tools(self, tools: Toolset) -> Sequence[BaseTool]:
        """See `Selector.own_tools`: `load_tools`."""
        tool: BaseTool = tools.compute_once((self, "tool"), lambda: self._tool(tools))
        return [tool]

    def _tool(self, tools: Toolset) -> BaseTool:
        def load_tools(names: list[str]) -> dict[str, Any]:
            chosen, unknown = _resolve_names(tools, names)
            answer: dict[str, Any] = {"loaded": list(chosen)}
            if unknown:
                answer["unknown"] = {
                    name: nearest(name, [tool.name for tool in tools])
                    for name in unknown
                }
            return answer

        names = {
            "type": "array",
            "items": {"type": "string"},
            "minItems": 1,
            "description": "Of tools or groups.",
        }
        return FunctionTool(
            load_tools,
            name=LOAD,
            effect="read",
            sends=Sends(trust="trusted"),
            description="Load tools before you call them; their parameters are shown from the next turn on. Load all "
            f"that you need at once. There are these:\n{list_tools(tools, self._most_lines)}",
            parameters=_one_argument("names", names),
        )


class Automatic:
    """Shows all tools while they are few, and beyond that what `search` shows. See MOST_TOOLS and MOST_TOKENS."""

    name = "auto"

    def __init__(
        self,
        *,
        most_tools: int = MOST_TOOLS,
        most_tokens: int = MOST_TOKENS,
        beyond: Searching | None = None,
    ) -> None:
        self._limits = (most_tools, most_tokens)
        self._beyond = beyond or Searching()
        self.waits = self._beyond.waits

    def select(self, tools: Toolset, messages: Sequence[Message]) -> Selection:
        """See `Selector.select`."""
        if not self.chooses(tools):
            return EVERYTHING
        return self._beyond.select(tools, messages)

    def own_tools(self, tools: Toolset) -> Sequence[BaseTool]:
        """See `Selector.own_tools`: `search_tools` where it chooses."""
        if self.chooses(tools):
            return self._beyond.own_tools(tools)
        return ()

    def chooses(self, tools: Toolset) -> bool:
        """Whether these are too many to show. Where a tool of yours has the name of ours, all are shown."""
        chooses: bool = tools.compute_once(self._limits, self._too_many, tools)
        return chooses

    def _too_many(self, tools: Toolset) -> bool:
        if SEARCH in tools:
            return False
        return len(tools) > self._limits[0] or tokens(tools) > self._limits[1]


MOST_CACHED_SEARCHES = 1_000


def tokens(tools: Iterable[Any]) -> int:
    """Return about how many tokens the definitions of these tools cost in every turn."""
    written = (
        json.dumps([tool.name, tool.description, tool.parameters], ensure_ascii=False)
        for tool in tools
    )
    return sum(map(len, written)) // CHARACTERS_PER_TOKEN


class Discovery:
    """The tools that a conversation has brought, in the order in which it did.

    Beyond `MOST_DISCOVERED`, a new question starts over with its own tools and those that were called.
    """

    def __init__(self, tools: Toolset) -> None:
        self._tools = tools
        self._shown: dict[str, None] = {}
        self._called: dict[str, None] = {}
        self._initial: dict[str, None] = {}
        self._found: dict[str, None] = {}
        self._is_answered = False

    @property
    def names(self) -> tuple[str, ...]:
        """All that are to be shown."""
        return tuple(self._shown)

    @property
    def initial_names(self) -> tuple[str, ...]:
        """The tools of the first question, and those that the model called without a search."""
        return tuple(self._initial)

    @property
    def found_names(self) -> tuple[str, ...]:
        """The tools that a call has brought, without the initial ones."""
        return tuple(self._found)

    def answer(self) -> None:
        """Note that the model has answered: what comes now is new to it."""
        self._is_answered = True

    def ask(self, names: Iterable[str]) -> None:
        """Take the tools that a question brings."""
        new = in_order(self._tools, names)
        if len(self._shown.keys() | set(new)) > MOST_DISCOVERED:
            self._shown = dict(self._called)
        self._shown |= dict.fromkeys(new)
        if not self._is_answered:
            self._initial |= dict.fromkeys(new)

    def call(self, name: str, brought: Sequence[str]) -> None:
        """Take the tool that a call names, and those that the call brings."""
        if name in self._tools:
            self._called.setdefault(name)
            self._shown.setdefault(name)
            if name not in self._found:
                self._initial.setdefault(name)
        new = [each for each in brought if each in self._tools]
        self._shown |= dict.fromkeys(new)
        self._found |= dict.fromkeys(each for each in new if each not in self._initial)


def _arguments(call: ToolCall) -> Mapping[str, Any] | None:
    """Return the arguments of a call, which a history holds as they were understood; None if they cannot be read."""
    try:
        arguments = json.loads(call.arguments)
    except ValueError:
        return None
    return arguments if isinstance(arguments, dict) else None


def in_order(tools: Toolset, chosen: Iterable[str]) -> tuple[str, ...]:
    """Return those names that are in the set, in its order."""
    places: Mapping[str, int] = tools.compute_once("places", partial(_number, tools))
    return tuple(sorted(set(chosen) & places.keys(), key=places.__getitem__))


def _number(tools: Toolset) -> Mapping[str, int]:
    return {tool.name: place for place, tool in enumerate(tools)}


def list_tools(tools: Toolset, most_lines: int) -> str:
    """Return the tools line by line, those with tags below their group."""
    groups = group_by_tag(tools)
    plain = len(tools) <= most_lines or not groups.keys() - {""}
    lines: list[str] = []
    for group, members in sorted(groups.items()):
        if group:
            lines.append(f"[{group}] {len(members)} tools")
        if plain or not group:
            lines += (f"{name}: {summary}" for name, summary in _lines(members).items())
    return "\n".join(lines)


def group_by_tag(tools: Iterable[BaseTool]) -> dict[str, list[BaseTool]]:
    """Return the tools by their first tag; those without one under an empty name."""
    groups: dict[str, list[BaseTool]] = {}
    for tool in tools:
        groups.setdefault(next(iter(tool.tags), ""), []).append(tool)
    return groups


def _calls(messages: Sequence[Message]) -> Iterator[ToolCall]:
    for message in messages:
        if isinstance(message, AssistantMessage):
            yield from message.turn.calls


def _lines(tools: Iterable[Any]) -> dict[str, str]:
    return {tool.name: tool.summary for tool in tools}


def _resolve_names(tools: Toolset, names: Any) -> tuple[Sequence[str], Sequence[str]]:
    """Return the tools that these names mean, a group's name all of its tools, and the names that mean none."""
    chosen: dict[str, None] = {}
    unknown: list[str] = []
    groups = group_by_tag(tools)
    if not isinstance(names, list):
        names = [names]
    for name in names:
        if name in tools:
            chosen[name] = None
        elif isinstance(name, str) and name and name in groups:
            chosen |= dict.fromkeys(tool.name for tool in groups[name])
        else:
            unknown.append(str(name))
    return list(chosen), unknown


def _one_argument(name: str, schema: dict[str, Any]) -> dict[str, Any]:
    return {
        "type": "object",
        "properties": {name: schema},
        "required": [name],
        "additionalProperties": False,
    }


SELECTORS = {
    "auto": Automatic(),
    "all": All(),
    "bm25": Ranked(),
    "search": Searching(),
    "two-stage": TwoStage(),
}
"""Ours by name. None of them holds anything of a run, so all runtimes share them."""
