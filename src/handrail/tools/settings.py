"""The settings of a tool that are read together, in four frozen groups; and what a value of any setting must be.

    @hr.tool(effect="write", key="refund:{order_id}", write=hr.Write(on_doubt="ask"), limits=hr.Limits(rate="5/s"))

Each setting is declared once, with its type, default and meaning: here, or as an attribute of `BaseTool`. Its type says
what a value must be.

Rule 1: a group changes what it names and leaves the rest, wherever it is set: in a class over the class above it, on a
        tool, by `BaseTool.replace`, in the overrides of an MCP server.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from pathlib import Path
from types import UnionType
from typing import (
    TYPE_CHECKING,
    Annotated,
    Any,
    ClassVar,
    Literal,
    NamedTuple,
    Self,
    TypeVar,
    Union,
    dataclass_transform,
    get_args,
    get_origin,
)

from handrail import _lazy
from handrail.calls import Confidentiality, Integrity
from handrail.effects import Caller
from handrail.errors import ToolDefinitionError
from handrail.parsing import names

if TYPE_CHECKING:
    from handrail.network import egress
    from handrail.network.egress import Egress
else:
    egress = _lazy.module("handrail.network.egress")
    Egress = Any  # few tools have a network of their own

KEY_TTL_S = 24 * 3600.0
"""For how long a service recognises a key, where nobody declares it."""


class Kind(NamedTuple):
    """What a setting is, in words, and whether a value is one."""

    what: str
    is_one: Callable[[Any], bool]


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _is_whole(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _are_texts(value: Any) -> bool:
    # read twice, a generator is empty
    if not isinstance(value, Collection) or isinstance(value, str | bytes):
        return False
    return all(isinstance(each, str) for each in value)


# NaN is not above 0
SECONDS = Kind(
    "a number of seconds above 0",
    lambda value: _is_number(value) and value > 0,
)
_WINDOW = Kind(
    "a number of seconds, at least 0",
    lambda value: _is_number(value) and value >= 0,
)
_COUNT = Kind(
    "a whole number, at least 1",
    lambda value: _is_whole(value) and value >= 1,
)
_COUNT_OR_NONE = Kind(
    "a whole number, at least 0",
    lambda value: _is_whole(value) and value >= 0,
)
_ARGUMENT_BYTES = Kind(
    "a whole number, at least 1,024",
    lambda value: _is_whole(value) and value >= 1024,
)
TEXTS = Kind("a list of texts", _are_texts)
TEXT_OR_TEXTS = Kind(
    "text or a list of texts",
    lambda value: isinstance(value, str) or _are_texts(value),
)
_CALLERS = Kind(
    f"a list of {' and '.join(map(repr, get_args(Caller)))}, or of one of them",
    lambda value: (
        _are_texts(value) and len(value) > 0 and {*value} <= {*get_args(Caller)}
    ),
)
_PATHS = Kind(
    "a list of files and folders",
    lambda value: isinstance(value, Sequence) and not isinstance(value, str | bytes),
)
_HOSTS = Kind(
    "a list of hosts or an `Egress`",
    lambda value: _are_texts(value) or isinstance(value, egress.Egress),
)
TEMPLATE = Kind(
    "a template or a function",
    lambda value: isinstance(value, str) or callable(value),
)
CONDITION = Kind(
    "True, False, a condition or a function",
    lambda value: isinstance(value, bool | str) or callable(value),
)
_PLAIN: Mapping[Any, Kind] = {
    bool: Kind("True or False", lambda value: isinstance(value, bool)),
    str: Kind("text", lambda value: isinstance(value, str)),
    Callable: Kind("a function", callable),
}


def find_kind(hint: Any) -> Kind | None:
    """Return what a setting with this type hint must be; None where anything will do."""
    origin = get_origin(hint)
    if origin is Annotated:
        [kind] = hint.__metadata__
        return kind if isinstance(kind, Kind) else None
    if origin in (Union, UnionType):
        [one] = (each for each in get_args(hint) if each is not type(None))
        inner = find_kind(one)
        if inner is None:
            return None
        return Kind(inner.what, lambda value: value is None or inner.is_one(value))
    if origin is Literal:
        words = get_args(hint)
        return Kind(f"one of {', '.join(words)}", words.__contains__)
    if plain := _PLAIN.get(origin or hint):
        return plain
    if isinstance(hint, type) and hint is not Any:
        return Kind(f"a `{hint.__name__}`", lambda value: isinstance(value, hint))
    return None


@dataclass_transform(kw_only_default=True, frozen_default=True)
class Group:
    """Some settings of a tool, as a frozen value that knows which of them it names.

    Raises:
        ToolDefinitionError: It has no such setting.
    """

    usual: ClassVar[Mapping[str, Any]]
    """The settings of the group, and what each is where nobody declares it."""

    def __init_subclass__(cls) -> None:
        cls.usual = {name: vars(cls)[name] for name in cls.__annotations__}

    def __init__(self, **named: Any) -> None:
        for name in named:
            if name not in self.usual:
                raise ToolDefinitionError(
                    f"`hr.{type(self).__name__}` has no `{name}`.{advise(name, self.usual)}"
                )
        vars(self).update(named)

    def __setattr__(self, name: str, value: Any) -> None:
        raise AttributeError(f"`hr.{type(self).__name__}` is frozen; make another")

    def __eq__(self, other: object) -> bool:
        return type(self) is type(other) and vars(self) == vars(other)

    __hash__ = None  # type: ignore[assignment]  # it may hold lists

    def __repr__(self) -> str:
        named = ", ".join(f"{name}={value!r}" for name, value in vars(self).items())
        return f"{type(self).__name__}({named})"

    def values(self) -> dict[str, Any]:
        """Return every setting of the group, with its value."""
        return {**self.usual, **vars(self)}

    def differing(self) -> dict[str, Any]:
        """Return the settings that are not as usual, with their values."""
        return {
            name: value
            for name, value in vars(self).items()
            if value != self.usual[name]
        }

    def changed(self, other: Group | Mapping[str, Any]) -> Self:
        """Return the settings of this group, with what another one names."""
        named = vars(other) if isinstance(other, Group) else other
        return type(self)(**{**vars(self), **named})


class Write(Group):
    """What happens when a write is asked for, repeated, interrupted, or its answer is lost."""

    required_approvals: Annotated[int, _COUNT] = 1
    """How many different people must agree wherever somebody is asked; several, without `approve`, are always asked."""
    one_request: bool = False
    """A call sends one request and changes nothing else: if it was not sent, or was refused, nothing happened."""
    key_ttl_s: Annotated[float, SECONDS] = KEY_TTL_S
    """With `replay="key"`: seconds that the service remembers a key. A write that started longer ago is in doubt."""
    on_doubt: Literal["tell", "ask"] = "tell"
    """What to do with a write in doubt: tell the model, or let the run wait for a person to look."""
    repeatable: bool = False
    """Calls with the same arguments in one run are intended: perform each, instead of returning the first result."""
    repeat_window_s: Annotated[float, _WINDOW] = 0.0
    """Seconds after its start for which a write with the same arguments counts as a repeat in other runs, too."""
    on_repeat: Literal["return_previous", "ask"] | None = None
    """What to do with a repeat: return the first result, or ask a person, the default of a destructive tool."""
    compensate: Callable[..., Any] | None = None
    """Takes a write back, as `compensate(order_id=…, result=…)`. Offered to a person afterwards, see `Runtime.undo`."""
    interrupts: Literal["before"] | None = None
    """`before`: an exception that leaves to the caller (`Runtime.calls`, `passes=`) is raised before the tool does
    anything, so a write that was interrupted by one may run again."""
    version: str = ""
    """Part of a write's fingerprint: change it when the same arguments come to mean another act."""


class Limits(Group):
    """When, how often and how long a tool is called, by whom, and how much goes in and out."""

    attempt_timeout_s: Annotated[float, SECONDS] | None = None
    """Seconds that one attempt may take. Without it a hanging read uses up its `timeout_s` and is not retried."""
    max_attempts: Annotated[int, _COUNT] = 3
    """How many times at most a read is started, while it fails in a way that may be temporary."""
    max_concurrency: Annotated[int, _COUNT] | None = None
    """How many calls of it may be under way at once in this process; further calls wait in line."""
    rate: str | None = None
    """How often it may be started: `5/s`, `30/min`, `1000/h`. More calls wait, or are refused with a time to wait."""
    rate_key: str | None = None
    """A template whose values each have a rate of their own: `{user_id}`."""
    breaker: Annotated[int, _COUNT_OR_NONE] = 5
    """After this many attempts in a row that could not reach its service, it pauses for 30 s; 0 switches this off."""
    callers: Annotated[Sequence[Caller], _CALLERS] = ("direct",)
    """Who of a model's side may call it: the model itself (`direct`), a program that it writes and its provider runs
    (`program`), or both. Other calls are refused with `NOT_PERMITTED`. Calls by code of yours are not bound by it."""
    after: Annotated[str | Sequence[str], TEXT_OR_TEXTS] = ()
    """Names of tools whose calls of the same turn must end first."""
    poll: bool = False
    """The tool is meant to be called again and again; its repeated calls never count as a loop."""
    ends_run: bool = False
    """A successful call ends the run: what it returns is the answer, and the model is not asked again."""
    argument_bytes: Annotated[int, _ARGUMENT_BYTES] = 1024 * 1024
    """How long the arguments of a call may be, as JSON in UTF-8. They hold at most 10,000 keys and items."""
    result_bytes: Annotated[int, _COUNT] | None = None
    """How much of a result the model reads; the runtime's size otherwise."""


class Sandbox(Group):
    """What an isolated tool can reach."""

    mounts: Annotated[Sequence[str | Path], _PATHS] = ()
    """Files and folders that an isolated tool can read, at their own paths, besides its own code. A tool of level
    `process` that declares some, or `writable`, reaches no others of yours (Linux 6.2)."""
    writable: Annotated[Sequence[str | Path], _PATHS] = ()
    """Files and folders that a tool of level `process` can change, and read."""
    network: Annotated[Sequence[str] | Egress, _HOSTS] | None = None
    """The hosts that an isolated tool can reach by HTTP and HTTPS, such as `["api.example.org"]`, or an `Egress`; none
    by default. Its environment names the proxy for it."""
    memory_bytes: Annotated[int, _COUNT] = 512 * 1024 * 1024
    """The address space of each process of an isolated tool, and the memory of all of them together."""


class Sends(Group):
    """Whose words a tool's results are, and to whom its arguments go; see `Policy.provenance`."""

    trust: Integrity | None = None
    """Whether its results are the words of somebody whom you trust. By default they are `untrusted`: anybody may have
    written what a read finds, what the far side answers to a write, or what is delivered."""
    confidentiality: Confidentiality = "public"
    """`private`: numbers in its results leave only to a destination that the result names, or when a person agrees."""
    directory: bool = False
    """Its results name people and places to which things may be sent, as the user's own words do: contacts, the members
    of a channel. They are trusted then. It must not repeat what it was asked with."""
    egress: bool | None = None
    """Whether its arguments leave to somebody: by default those of a write do, and of a read do not."""
    destination: Annotated[str | Sequence[str], TEXT_OR_TEXTS] | None = None
    """The arguments that say where a call sends things. By default those of a type such as `guards.EmailAddress`, and
    those that are called `to`, `recipient`, `email`, `url`, `channel`, `iban` and the like."""
    inline_references: bool = False
    """Replace `$var1.rate$` within a longer text, too, by the result that it names; an argument that is nothing else is
    always replaced. Only for text such as a formula: text that a model quotes from others may hold such a mark."""


GROUPS: Mapping[str, type[Group]] = {
    "write": Write,
    "limits": Limits,
    "sandbox": Sandbox,
    "sends": Sends,
}
"""The groups, by the name of the setting that takes each."""

GROUP_OF = {name: group for group, kind in GROUPS.items() for name in kind.usual}
"""In which group each setting stands that stands in one."""


def advise(name: str, known: Iterable[str]) -> str:
    """Return how a setting is declared that was named in the wrong place, or like no other; empty if nobody knows."""
    group = GROUP_OF.get(name)
    if group is not None:
        return f" It belongs to `{group}=hr.{GROUPS[group].__name__}({name}=...)`."
    near = names.nearest(name, [*known, *GROUP_OF])
    if not near:
        return ""
    if near[0] in known:
        return f" Did you mean `{near[0]}`?"
    return f" Did you mean `{near[0]}`?{advise(near[0], known)}"


G = TypeVar("G", bound=Group)


def change_group(name: str, group: G, value: object) -> G:
    """Return a group with what `value` names: another one of its kind, or an object from TOML or JSON.

    Raises:
        ToolDefinitionError: It is neither, or names what the group does not have.
    """
    if not isinstance(value, Mapping | type(group)):
        raise ToolDefinitionError(
            f"`{name}` is an `hr.{type(group).__name__}(...)`, not {value!r}"
        )
    return group.changed(value)
