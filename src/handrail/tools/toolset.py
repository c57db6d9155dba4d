"""The tools that a run can see.

A `Toolset` may change between two turns; a turn works on a snapshot, so that it never sees half a change.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from typing import Any, TypeAlias, Unpack

from msgspec import Struct, field
from msgspec.structs import replace

from handrail import plugins
from handrail.calls import ToolCall
from handrail.effects import Permission
from handrail.errors import (
    Code,
    ConfigError,
    DuplicateToolError,
    Failure,
    Json,
    ToolDefinitionError,
)
from handrail.parsing import names
from handrail.sandboxes import levels
from handrail.tools import keys
from handrail.tools.function_tool import FunctionTool
from handrail.tools.tool import BaseTool, ToolSettings

Tools: TypeAlias = "Toolset | Iterable[BaseTool | Toolset | Callable[..., Any]]"

COVERED: Mapping[Permission, Sequence[Permission]] = {
    "read": ("read",),
    "write": ("read", "write"),
    "admin": ("read", "write", "admin"),
}
"""What a run may use that has a permission: admin covers write, write covers read."""


class _State(Struct):
    """A set of tools that no longer changes, and what was made of it: its definitions, its snapshot."""

    by_name: Mapping[str, BaseTool]
    needs_sandbox: bool = False
    made: dict[Hashable, Any] = field(default_factory=dict)
    snapshot: Toolset | None = None


class Toolset:
    """Tools by name, in order.

    Every change replaces the state as a whole; `snapshot` hands out the present one. Functions are taken as tools as
    they are.

    Raises:
        DuplicateToolError: Two tools of one name.
    """

    def __init__(self, tools: Tools = ()) -> None:
        self._state = _State({})
        given: object = tools
        if isinstance(given, BaseTool | str) or not isinstance(given, Iterable):
            raise ConfigError(
                f"tools is {given!r}; it takes a list of tools, such as [get_weather], or a Toolset"
            )
        self.add(*tools)

    def add(self, *tools: BaseTool | Toolset | Callable[..., Any]) -> None:
        """Add tools at the end, all or none; of a set those that it has now."""
        grown = dict(self._state.by_name)
        for tool in _as_tools(tools):
            if tool.name in grown:
                raise DuplicateToolError(
                    f"Two tools are called {tool.name!r}. Rename one (`FunctionTool(fn, name=...)`), "
                    "or set a group apart with `Toolset.prefix`."
                )
            grown[tool.name] = tool
        _check_steps(grown)
        _check_keys(grown)
        self._state = _make_state(grown)

    def remove(self, *tool_names: str) -> None:
        """Remove tools by name, all or none.

        Raises:
            KeyError: One of them is not here.
        """
        left = dict(self._state.by_name)
        for name in tool_names:
            del left[name]
        self._state = _make_state(left)

    def replace_all(self, tools: Tools) -> None:
        """Put other tools in the place of all, at once: nobody sees a mixture."""
        self._state = Toolset(tools)._state

    def redeclare(self, name: str, /, **settings: Unpack[ToolSettings]) -> None:
        """Put in a tool's place the same one with other declarations, as `BaseTool.replace` makes it.

        Where it is the step of a `then=`, it is so with these declarations too.

        Raises:
            KeyError: It is not here.
            ToolDefinitionError, DuplicateToolError: There can be no such tool, or not here.
        """
        old = self[name]
        new = old.replace(**settings)
        self._state = Toolset(_with_step(tool, old, new) for tool in self)._state

    def snapshot(self) -> Toolset:
        """Return the tools as they are now, the same object until the set changes; later changes do not reach it."""
        state = self._state
        # somebody may have changed a snapshot
        if state.snapshot is None or state.snapshot._state is not state:
            state.snapshot = Toolset()
            state.snapshot._state = state
        return state.snapshot

    @property
    def by_name(self) -> Mapping[str, BaseTool]:
        """The tools as they are now; later changes do not reach it."""
        return self._state.by_name

    @property
    def needs_sandbox(self) -> bool:
        """Whether a tool of the set, or a step that follows one, demands a sandbox."""
        return self._state.needs_sandbox

    def get(self, name: str) -> BaseTool | None:
        """Return the tool of that name, or None."""
        return self._state.by_name.get(name)

    def resolve(
        self, name: str, sees: Callable[[BaseTool], bool] | None = None
    ) -> BaseTool | Failure:
        """Return the tool that the model meant by `name`, or why there is none.

        Template tokens and prefixes that leak into names are stripped (`functions.get_weather`); a name that is only
        similar is suggested, never run by guess.

        Args:
            sees: Which tools may be named in the refusal; all of them by default.
        """
        by_name = self._state.by_name
        if tool := by_name.get(name):
            return tool
        if resolved := names.resolve_name(name, by_name):
            return by_name[resolved]
        return self._refuse_unknown(name, sees)

    def _refuse_unknown(
        self, name: str, sees: Callable[[BaseTool], bool] | None
    ) -> Failure:
        shown = name if len(name) <= 80 else name[:77] + "..."
        visible = [
            tool.name
            for tool in self
            if "direct" in tool.limits.callers and (sees is None or sees(tool))
        ]
        near = [f"`{each}`" for each in names.nearest(name, visible)]
        if near:
            advice = f"Did you mean {' or '.join(near)}? Call it by exactly that name."
        elif visible:
            listed = ", ".join(f"`{each}`" for each in visible[:20])
            if len(visible) > 20:
                listed += f" and {len(visible) - 20} more"
            advice = f"The tools are {listed}."
        else:
            advice = "There are no tools here; answer without one."
        return Failure(Code.UNKNOWN_TOOL, f"There is no tool `{shown}`.", advice)

    def filter(
        self,
        where: Callable[[BaseTool], bool] | None = None,
        *,
        only: Iterable[str] | None = None,
        tag: str | None = None,
        permission: Permission | None = None,
    ) -> Toolset:
        """Return the tools that fit everything given.

        Args:
            where: Keeps a tool when true.
            only: Names to keep.
            tag: Keeps tools that carry it.
            permission: Keeps tools that a run with this permission may use.
        """
        by_name = self._state.by_name
        tools = list(by_name.values())
        if only is not None:
            tools = [by_name[name] for name in dict.fromkeys(only) if name in by_name]
        if where is not None:
            tools = [tool for tool in tools if where(tool)]
        if tag is not None:
            tools = [tool for tool in tools if tag in tool.tags]
        if permission is not None:
            covered = COVERED[permission]
            tools = [tool for tool in tools if tool.required_permission in covered]
        return Toolset(tools)

    def prefix(self, text: str) -> Toolset:
        """Return the same tools under longer names."""
        return self.rename({name: text + name for name in self._state.by_name})

    def rename(self, new_names: Mapping[str, str]) -> Toolset:
        """Return the same tools, some under new names; their keys and fingerprints follow the new name."""
        by_name = self._state.by_name.items()
        return Toolset(
            tool.replace(name=new_names[name]) if name in new_names else tool
            for name, tool in by_name
        )

    def __add__(self, other: Tools) -> Toolset:
        return Toolset([*self, *other])

    def definitions(
        self, dialect: str = "openai-chat", *, strict: bool = False
    ) -> list[dict[str, Json]]:
        """Return the definitions as they go over a provider's wire, made once for each state of the set.

        Args:
            dialect: A provider's, or `mcp` for what an MCP server lists.
        """
        kind = "forms" if dialect in plugins.FORMS else "dialects"
        form = plugins.load(kind, dialect)
        definitions: list[dict[str, Json]] = form.definitions(
            self.snapshot(), strict=strict
        )
        return definitions

    def has_all(self, calls: Sequence[ToolCall]) -> bool:
        """Whether each of these calls names a tool of this set."""
        by_name = self._state.by_name
        for call in calls:  # noqa: SIM110  # a generator costs more than all its answers
            if call.name not in by_name:
                return False
        return True

    def compute_once(self, key: Hashable, make: Callable[..., Any], *args: Any) -> Any:
        """Return what `make(*args)` returned for a key; call it again once the set has changed."""
        made = self._state.made
        if key not in made:
            made[key] = make(*args)
        return made[key]

    def summary(self) -> str:
        """Return one line per tool: its name and the first sentence of its description."""
        return "\n".join(f"{tool.name}: {tool.summary}" for tool in self)

    def __iter__(self) -> Iterator[BaseTool]:
        return iter(self._state.by_name.values())

    def __len__(self) -> int:
        return len(self._state.by_name)

    def __contains__(self, name: object) -> bool:
        return name in self._state.by_name

    def __getitem__(self, name: str) -> BaseTool:
        return self._state.by_name[name]

    def __repr__(self) -> str:
        listed = ", ".join(list(self._state.by_name)[:8])
        if len(self) > 8:
            listed += ", ..."
        return f"<Toolset of {len(self)}: {listed}>"


def _make_state(by_name: Mapping[str, BaseTool]) -> _State:
    with_steps = (each for tool in by_name.values() for each in tool.with_steps())
    needs_sandbox = any(each.isolation in levels.SANDBOXED for each in with_steps)
    return _State(by_name, needs_sandbox)


def _as_tools(
    given: Iterable[BaseTool | Toolset | Callable[..., Any]],
) -> Iterator[BaseTool]:
    for each in given:
        if isinstance(each, Toolset):
            yield from each.by_name.values()
        else:
            yield _as_tool(each)


def _as_tool(given: BaseTool | Callable[..., Any]) -> BaseTool:
    if isinstance(given, BaseTool):
        given.freeze()
        return given
    if isinstance(given, type) and issubclass(given, BaseTool):
        raise ToolDefinitionError(
            f"{given.__name__} is a class of tools; make one: `{given.__name__}()`."
        )
    if callable(given):
        return FunctionTool(given)
    raise ToolDefinitionError(
        f"{given!r} is no tool: neither a function nor a `BaseTool`."
    )


def _check_steps(tools: Mapping[str, BaseTool]) -> None:
    """Check that no step has the name of another tool: its writes are recorded under its name."""
    named = dict(tools)
    for tool in tools.values():
        while tool.then is not None:
            tool = tool.then.tool
            # a method is a new object at each look
            if named.setdefault(tool.name, tool).run != tool.run:
                raise DuplicateToolError(
                    f"The step {tool.name!r} of a `then=` has another tool's name; rename one."
                )


def _check_keys(tools: Mapping[str, BaseTool]) -> None:
    """Check that no two writes make the same keys: the second would be refused as the first one, done again."""
    owners: dict[tuple[str, ...], BaseTool] = {}
    for tool in (each for given in tools.values() for each in given.with_steps()):
        # what a function returns is known at the call
        if not (isinstance(tool.key, str) and tool.key):
            continue
        owner = owners.setdefault(keys.literals_in(tool.key), tool)
        if owner.name != tool.name:
            raise ToolDefinitionError(
                f"{owner.name!r} and {tool.name!r} have one key, {owner.key!r}, and what has one key is done once. "
                f"Give each its own: key={_own_key(owner)!r} and key={_own_key(tool)!r}."
            )


def _own_key(tool: BaseTool) -> str:
    """Return a key for a tool that begins with its name."""
    text = str(tool.key)
    fields = text[text.find("{") :] if "{" in text else text
    return f"{tool.name}:{fields}"


def _with_step(tool: BaseTool, old: BaseTool, new: BaseTool) -> BaseTool:
    """Return a tool with one step, however far on, in another's place."""
    if tool is old:
        return new
    if tool.then is None:
        return tool
    step = _with_step(tool.then.tool, old, new)
    if step is tool.then.tool:
        return tool
    return tool.replace(then=replace(tool.then, tool=step))
