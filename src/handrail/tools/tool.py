"""A tool: a callable that a model can call, with what it declares about its effect.

    @tool(effect="read", timeout_s=5)
    async def get_weather(city: str) -> dict: ...          # from type hints and docstring

    FunctionTool(fn, name="user_info.get", parameters={...})  # from a JSON Schema; `fn` gets keyword arguments

    class Documents(BaseTool): ...                          # with state, opened once and closed at the end

Rule 1: what a tool declares is checked when it is declared; what costs time (schema, validator) is compiled on first
        use and once.
Rule 2: a tool that declares no effect counts as a write wherever safety matters.
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from copy import copy, deepcopy
from functools import cache, partial
from itertools import takewhile
from typing import (
    TYPE_CHECKING,
    Annotated,
    Any,
    ClassVar,
    Literal,
    Self,
    TypedDict,
    Unpack,
    get_type_hints,
)

from msgspec import Struct, field
from msgspec.structs import replace

from handrail._lazy import cached_property
from handrail.calls import TRUSTED, Label, Page
from handrail.context import Context, Injected
from handrail.credentials.secret import Secret, reveal_all
from handrail.effects import (
    EffectClass,
    Permission,
    ReplayClass,
    Resource,
    Risk,
)
from handrail.errors import Failure, Json, MissingInjection, ToolDefinitionError
from handrail.sandboxes.levels import Isolation
from handrail.schemas import hints, portability
from handrail.schemas.docstrings import Docs
from handrail.schemas.docstrings import read_docstring as read_docstring
from handrail.schemas.importing import import_schema
from handrail.schemas.validation import Checked, Checker
from handrail.tools import (
    declaration,
    destinations,
    keys,
    paging,
    rate_limits,
)
from handrail.tools.call_rules import CallRules
from handrail.tools.injection import (
    find_injected_kind,
    find_secret_parameters,
    is_injected,
)
from handrail.tools.settings import (
    CONDITION,
    GROUP_OF,
    GROUPS,
    SECONDS,
    TEMPLATE,
    TEXT_OR_TEXTS,
    TEXTS,
    Kind,
    Limits,
    Sandbox,
    Sends,
    Write,
    advise,
    change_group,
    find_kind,
)

DEFAULT_TIMEOUT_S = 30.0


_IMMUTABLE = {str, int, float, bool, type(None)}

_RISK_BY_EFFECT: dict[EffectClass | None, Risk] = {
    "read": "low",
    "write": "medium",
    None: "medium",
    "destructive": "high",
}


class CallTraits(Struct, frozen=True):
    """What every call reads of its tool; see the attributes of `BaseTool` with these names.

    A call reads thirty of them, and a field of a struct takes a fifth of the time of a cached property.
    """

    name: str
    version: str
    writes: bool
    has_resource: bool
    injects: bool
    opens: bool
    in_place: bool
    is_async: bool
    is_isolated: bool
    timeout_s: float
    attempt_timeout_s: float | None
    result_bytes: int | None
    label: Label
    effective_risk: Risk
    required_permission: Permission
    may_need_approval: bool
    may_ask_later: bool
    sends_out: bool
    deferred: bool
    poll: bool
    replay_class: ReplayClass
    repeatable: bool
    repeat_window_s: float
    key_ttl_s: float
    is_rated: bool


class BaseTool:
    """A tool with state. Set what it declares as class attributes and write `run`; its signature is the schema.

        class Search(BaseTool):
            name, effect = "search_docs", "read"

            def open(self): self.index = build_index()
            def run(self, query: str, limit: int = 5) -> list[str]:
                "Search the handbook. ..."
            def close(self): self.index.close()

    `open` is called once before the first call and `close` when the runtime closes, also after an error; both may be
    async. The attributes below are what any tool can declare, and the keyword arguments of `@tool` and `FunctionTool`.
    """

    trace_type: ClassVar[Literal["function", "extension", "datastore"]] = "function"
    """What traces call its kind: a function, one that calls an API of others, or one that asks a store of data."""

    name: str = ""
    """What the model calls it; the function's name by default."""
    description: str
    """What the model reads; the docstring without its sections by default."""
    effect: EffectClass | None = None
    """`read` changes nothing; `write` does; `destructive` cannot be undone. None counts as a write and lint asks."""
    permission: Permission | None = None
    """The permission that a run needs to see and call it; by default `read` for reads and `write` for the others."""
    risk: Risk | None = None
    """By default low for a read, medium for a write, high for a destructive tool. Without an effect: medium for a
    function, high for a tool described by a schema. A person is asked before a call of high risk."""
    timeout_s: Annotated[float, SECONDS] = DEFAULT_TIMEOUT_S
    """Seconds that a call may take from its first start to its end, retries included."""
    isolation: Isolation = "none"
    """How strongly the tool is isolated; a level that this machine cannot give refuses the call."""
    blocking: bool = True
    """A sync tool may block, so it runs in a thread, and so do the functions of `check`, `approve` and `key`. False
    promises that all of these are quick; they then run in the thread of the runtime."""
    key: Annotated[str | Callable[..., str], TEMPLATE] | None = None
    """Names the act of a write across runs: `refund:{order_id}`, or a function of the arguments."""
    replay: Literal["key"] | None = None
    """`key`: the service recognises duplicates by `context.idempotency_key`; a lost answer is asked for again."""
    verify: Callable[..., Any] | None = None
    """Called after a lost answer with `(arguments, context)`: returns `Found(result)`, `NotFound()` or `Unknown()`."""
    resource: Annotated[str | Sequence[str], TEXT_OR_TEXTS] | None = None
    """What a call touches: `user:{user_id}`. Calls on one resource run in order; readers share it."""
    approve: Annotated[bool | str | Callable[..., bool], CONDITION] = False
    """When a person must agree: always, under a condition (`amount > 100`), or when a function says so."""
    check: Callable[..., Any] | None = None
    """The tool's own rule over valid arguments: returns a sentence or raises `ToolError` to refuse, else None."""
    deferred: bool = False
    """Its result comes later, from outside, by `Runtime.deliver`; its call waits as for an approval. The body starts
    what is to give the result (its own value is not used), and for a write it does so at most once."""
    then: Then | None = None
    """The call that code makes whenever a call of this tool has succeeded."""
    tags: Annotated[Collection[str], TEXTS] = ()
    """Labels for `Toolset.filter`."""
    aliases: Annotated[Sequence[str], TEXTS] = ()
    """Words by which users ask for it, also in their own language: selectors find it by them."""
    returns: Any = None
    """What it returns: a type or a JSON Schema; by default the function's hint. `handrail check --run` tests it."""
    examples: Sequence[Mapping[str, Json]] = ()
    """Arguments of calls that must work; `handrail check --run` makes them if the tool is a read."""
    write: Write = Write()
    """What happens when a write is asked for, repeated, interrupted, or its answer is lost."""
    limits: Limits = Limits()
    """When, how often and how long it is called, by whom, and how much goes in and out."""
    sandbox: Sandbox = Sandbox()
    """What it can reach where it is isolated."""
    sends: Sends = Sends()
    """Whose words its results are, and to whom its arguments go."""

    run: Callable[..., Any]

    _DECLARABLE: ClassVar[frozenset[str]]
    _declaration: Literal["changed", "checked", "frozen"]

    def __new__(cls, *_arguments: Any, **_settings: Any) -> Self:
        tool = super().__new__(cls)
        tool._reset_declaration()
        return tool

    def __init_subclass__(cls) -> None:
        cls.name = cls.__dict__.get("name", "") or cls.__name__
        for setting in sorted(cls._DECLARABLE):
            if isinstance(getattr(cls, setting, None), property):
                raise ToolDefinitionError(
                    f"Tool {cls.name!r}: `{setting}` is a property; declare a value, which holds."
                )
        own = set(_own_names(cls))
        for name in sorted(_OWN.intersection(own)):
            if not _is_hook(name, getattr(cls, name, None)):
                raise _refuse_own(cls.name, name)
        for name in sorted(GROUP_OF.keys() & own):
            raise _refuse_ungrouped(cls.name, name)
        for name in GROUPS.keys() & vars(cls).keys():
            inherited = getattr(super(cls, cls), name)
            setattr(cls, name, change_group(name, inherited, vars(cls)[name]))

    def __init__(self) -> None:
        self.validate_declaration()

    # ------------------------------------------------------------------ how a declaration changes, and no longer does

    if not TYPE_CHECKING:

        def __setattr__(self, name, value):
            if name in _OWN:
                raise _refuse_own(self.name, name)
            if name in GROUP_OF:
                raise _refuse_ungrouped(self.name, name)
            self._prepare_change(name)
            if name in GROUPS:
                value = change_group(name, getattr(self, name), value)
            object.__setattr__(self, name, value)

        def __delattr__(self, name):
            self._prepare_change(name)
            object.__delattr__(self, name)

    def _prepare_change(self, name: str) -> None:
        """Refuse to change what a set holds, since people agreed to it; before that, have it checked again."""
        if name not in _DECLARED:
            return
        if self._declaration == "frozen":
            raise ToolDefinitionError(
                f"Tool {self.name!r}: `{name}` holds once a set has the tool; `tool.replace({name}=...)` makes another."
            )
        self._reset_declaration()

    def _reset_declaration(self) -> None:
        """Forget that the declaration was checked, and what followed from it."""
        # Past the class of a user that is a frozen dataclass, whose instances refuse assignments.
        for name in _DERIVED.intersection(vars(self)):
            object.__delattr__(self, name)
        object.__setattr__(self, "_declaration", "changed")

    def _describe(
        self,
        parameters: Mapping[str, Json],
        bind: Callable[[dict[str, Json]], dict[str, Any] | Failure] | None = None,
        injected: Mapping[str, Any] | None = None,
    ) -> None:
        """Replace the schema of the signature; with `bind`, replace the signature itself."""
        self._prepare_change("parameters")
        vars(self)["parameters"] = parameters
        if bind is not None:
            vars(self)["bind"] = bind
            vars(self)["injected_parameters"] = injected or {}

    def _declare(self, settings: Mapping[str, Any], run: Callable[..., Any]) -> None:
        """Set what is declared about `run`.

        Raises:
            ToolDefinitionError: No tool has such a setting.
        """
        for setting, value in settings.items():
            if setting not in self._DECLARABLE:
                name = getattr(run, "__name__", run)
                raise ToolDefinitionError(
                    f"Tool {name!r} declares `{setting}`, which no tool has."
                    f"{advise(setting, self._DECLARABLE)}"
                )
            setattr(self, setting, value)

    def freeze(self) -> None:
        """Freeze the declaration: setting an attribute is refused from now on.

        Raises:
            ToolDefinitionError: The declaration contradicts itself.
        """
        if self._declaration == "frozen":
            return
        self.validate_declaration()
        object.__setattr__(self, "_declaration", "frozen")
        if self.then is not None:
            self.then.tool.freeze()

    def replace(self, **settings: Unpack[ToolSettings]) -> Self:
        """Return a copy of this tool with other settings; a tool does not change once it is in a set.

        Args:
            settings: The attributes of `BaseTool`.

        Raises:
            ToolDefinitionError: The declaration contradicts itself, or is for something that no tool has.
        """
        other = copy(self)
        other._reset_declaration()
        # the copy has pages of its own
        if self._pages_own_rows():
            del vars(other)["run"]
        other._declare(settings, self.run)
        other.validate_declaration()
        return other

    def _pages_own_rows(self) -> bool:
        """Whether `run` was replaced by the pages of what the class's own generator yields."""
        if "run" not in vars(self):
            return False
        rows = paging.find_rows(self.run)
        return rows is not None and getattr(rows, "__func__", None) is getattr(
            type(self), "run", rows
        )

    def validate_declaration(self) -> None:
        """Check the declaration when the tool is made; again when a set takes it, if it has changed since.

        Raises:
            ToolDefinitionError: It contradicts itself, or is for something that no tool has.
        """
        if self._declaration != "changed":
            return
        self._reset_declaration()
        if not callable(getattr(self, "run", None)):
            raise ToolDefinitionError(
                f"{type(self).__name__} has no method `run`; write one with type hints."
            )
        settings = self._settings
        if fault := _find_wrong_kind(settings) or declaration.find_contradiction(
            settings
        ):
            raise ToolDefinitionError(f"Tool {self.name!r}: {fault}.")
        if rows := paging.find_rows(self.run):
            self._page(rows)
        if self.write.required_approvals > 1 and not self.approve:
            self.approve = True
        self._compile_settings()
        if "parameters" in vars(self):  # they were looked at before this was declared
            self._check_names(self.parameters)
        self._check_functions()
        object.__setattr__(self, "_declaration", "checked")

    def _page(self, rows: Callable[..., Any]) -> None:
        """Give a generator's rows page by page."""
        if self.writes or self.isolation != "none" or self.by_schema:
            raise ToolDefinitionError(
                f"Tool {self.name!r} is a generator, which runs only as far as it is read. Only a read can be one, "
                'described by type hints and without isolation: declare effect="read", or return a list.'
            )
        self.run = paging.make_pages(
            rows, self.limits.result_bytes or paging.PAGE_BYTES
        )
        if self.returns is None:
            self.returns = Page

    def _compile_settings(self) -> None:
        """Compile the rate, the templates and the conditions, which checks them."""
        try:
            getattr(self, "rate_limit")  # noqa: B009  # computed for its effect
        except ValueError as error:
            raise ToolDefinitionError(f"Tool {self.name!r}: {error}.") from error
        getattr(self, "call_rules")  # noqa: B009  # likewise

    def check_names(self) -> None:
        """Check that templates and conditions name existing parameters, describing the tool only in case of doubt.

        Raises:
            ToolDefinitionError: One does not.
        """
        if not self._may_name_parameters():
            return
        argument_names = self._argument_names()
        if argument_names is not None:
            described = {
                "properties": {name: {} for name in argument_names},
                "additionalProperties": False,
            }
            if not self._find_unknown_name(described):
                return
        # a name may be an alias, so describe the tool; that raises if it is not
        getattr(self, "parameters")  # noqa: B009

    def _may_name_parameters(self) -> bool:
        return any(self._settings[setting] for setting in _NAMING)

    def _argument_names(self) -> Sequence[str] | None:
        """Return the names of the arguments; None where only the whole description has them."""
        if (
            "parameters" in vars(self)
            or type(self).parameters is not BaseTool.parameters
        ):
            return None
        if self.signature.model is not None:
            return None
        return self.signature.names

    def _check_functions(self) -> None:
        """Check the signatures of the functions among the settings."""
        functions = {
            each: self._settings[each]
            for each in ("check", "approve", "key", "compensate")
        }
        functions["then"] = self.then.arguments if self.then else None
        if not any(map(callable, functions.values())):
            return
        arguments: Sequence[str] | None
        if self.by_schema:
            if declaration.is_open(self.parameters):
                return
            bound: Sequence[str] = tuple(self.parameters.get("properties", ()))
            arguments = bound
        else:
            try:
                bound = self.signature.names
                arguments = self._argument_names()
            except ToolDefinitionError:
                # a hint that cannot be resolved yet, or ever: reported when the tool is described
                return
        if fault := declaration.find_wrong_function(
            functions, bound, arguments, injected=self.list_injected()
        ):
            raise ToolDefinitionError(f"Tool {self.name!r}: {fault}.")

    def _check_names(self, described: Mapping[str, Json]) -> None:
        """Check that templates and conditions look at parameters of the schema."""
        if fault := self._find_unknown_name(described):
            raise ToolDefinitionError(f"Tool {self.name!r}: {fault}")

    def _find_unknown_name(self, described: Mapping[str, Json]) -> str:
        if not self._may_name_parameters():
            return ""
        return declaration.find_unknown_name(
            self._settings,
            described,
            injected=self.list_injected(),
            in_step=self._names_in_step(),
        )

    def _names_in_step(self) -> set[str]:
        if self.then is None:
            return set()
        return self.then.names - {"result"}

    @cached_property
    def _settings(self) -> dict[str, Any]:
        """Return every setting but the description and the groups, whose settings stand among the others."""
        settings = {name: getattr(self, name) for name in _FLAT}
        for group in GROUPS:
            settings |= getattr(self, group).values()
        return settings

    # ------------------------------------------------------------------ what a class of tools may do around its calls

    def open(self) -> Any:
        """Prepare what the tool needs; called once, before its first call."""

    def close(self) -> Any:
        """Release what `open` took."""

    # ------------------------------------------------------------------ what follows from the declaration

    @cached_property
    def writes(self) -> bool:
        """Whether the tool counts as a write."""
        return self.effect != "read"

    @property
    def has_default_key(self) -> bool:
        """Whether the key of a write is its place in the run."""
        resolves = getattr(self.resolve_key, "__func__", None)
        return not self.key and resolves is BaseTool.resolve_key

    @cached_property
    def call_traits(self) -> CallTraits:
        """What every call reads of it."""
        return CallTraits(
            name=self.name,
            version=self.write.version,
            writes=self.writes,
            has_resource=bool(self.resource),
            injects=bool(self.injected_parameters),
            opens=self.opens,
            in_place=self.in_place,
            is_async=self.is_async,
            is_isolated=self.isolation != "none",
            timeout_s=self.timeout_s,
            attempt_timeout_s=self.limits.attempt_timeout_s,
            result_bytes=self.limits.result_bytes,
            label=self.label,
            effective_risk=self.effective_risk,
            required_permission=self.required_permission,
            may_need_approval=bool(self.approve),
            may_ask_later=self.may_ask_later,
            sends_out=self.sends_out,
            deferred=self.deferred,
            poll=self.limits.poll,
            replay_class=self.replay_class,
            repeatable=self.write.repeatable,
            repeat_window_s=self.write.repeat_window_s,
            key_ttl_s=self.write.key_ttl_s,
            is_rated=self.rate_limit is not None,
        )

    @cached_property
    def admission_may_block(self) -> bool:
        """Whether functions of its author, which may block, decide about a call."""
        rules = (self.check, self.approve, self.key)
        return self.blocking and any(callable(each) for each in rules)

    @cached_property
    def in_place(self) -> bool:
        """Whether its first step is taken here, and not in a thread or a process."""
        return (self.is_async or not self.blocking) and self.isolation == "none"

    @cached_property
    def is_async(self) -> bool:
        """Whether `run` is a coroutine function."""
        return inspect.iscoroutinefunction(self.run)

    @cached_property
    def opens(self) -> bool:
        """Whether it has something to open before its first call, or to close at the end."""
        return (
            type(self).open is not BaseTool.open
            or type(self).close is not BaseTool.close
        )

    @cached_property
    def required_permission(self) -> Permission:
        """The permission that a run needs to see it."""
        if self.permission:
            return self.permission
        return "read" if self.effect == "read" else "write"

    @cached_property
    def effective_risk(self) -> Risk:
        """Its risk, declared or by its effect."""
        if self.risk:
            return self.risk
        # its author is elsewhere and has not declared what it does
        if self.effect is None and self.by_schema:
            return "high"
        return _RISK_BY_EFFECT[self.effect]

    def with_steps(self) -> Iterator[BaseTool]:
        """Yield the tool, and those that its `then` makes follow it."""
        tool: BaseTool = self
        yield tool
        while tool.then is not None:
            tool = tool.then.tool
            yield tool

    @property
    def by_schema(self) -> bool:
        """Whether a schema describes it, as of a tool from an MCP server or a document, and not its own signature."""
        return "parameters" in vars(self) and "signature" not in vars(self)

    @cached_property
    def pin(self) -> str:
        """Digest of the tool as it describes and declares itself: what people agree to; the audit log names it too."""
        return keys.digest(
            {
                "tool": self.name,
                "version": self.write.version,
                "description": self.description,
                "effect": self.effect,
                "risk": self.effective_risk,
                "schema": self.parameters,
                **self.sends.differing(),
            }
        )

    @cached_property
    def replay_class(self) -> ReplayClass:
        """What may happen after a lost answer: ask again with the key, verify, or neither."""
        if self.replay == "key":
            return "key"
        return "verify" if self.verify else "none"

    @cached_property
    def asks_before_repeating(self) -> bool:
        """Whether a person is asked before the same write is done again."""
        if self.write.on_repeat is None:
            return self.effect == "destructive"
        return self.write.on_repeat == "ask"

    @cached_property
    def may_ask_later(self) -> bool:
        """Whether a question may follow once the ledger has answered, or the tool has run."""
        if self.deferred:
            return True
        return self.writes and (
            self.write.on_doubt == "ask" or self.asks_before_repeating
        )

    @cached_property
    def label(self) -> Label:
        """The label of its results."""
        trust = self.sends.trust
        if trust is None:
            trust = "trusted" if self.sends.directory else "untrusted"
        label = Label(
            self.name,
            trust,
            self.sends.confidentiality,
            is_directory=self.sends.directory,
        )
        return TRUSTED if replace(label, source="") == TRUSTED else label

    @cached_property
    def sends_out(self) -> bool:
        """Whether a call of it is asked about when nobody trusted has named where its arguments go."""
        if self.effective_risk == "high":
            return True
        return self.writes if self.sends.egress is None else self.sends.egress

    @cached_property
    def sends_texts(self) -> bool:
        """Whether the texts of a call leave to somebody, so that addresses in them matter: as far as is declared, or
        its arguments and its name tell."""
        if self.sends.egress is not None:
            return self.sends.egress
        if self.sends.destination is not None or self.effect is None:
            return True
        return bool(self.destinations) or destinations.names_sending(self.name)

    @cached_property
    def destinations(self) -> Sequence[str]:
        """Names of the arguments that say where a call of it sends things."""
        declared = self.sends.destination
        if declared is None:
            return destinations.find_destinations(self.parameters)
        return (declared,) if isinstance(declared, str) else tuple(declared)

    @cached_property
    def concurrency_slot(self) -> Resource | None:
        """The resource that bounds how many calls of it are under way at once; None without such a bound."""
        if self.limits.max_concurrency is None:
            return None
        return Resource(
            f"tool:{self.name}", exclusive=False, seats=self.limits.max_concurrency
        )

    @cached_property
    def rate_limit(self) -> rate_limits.Rate | None:
        """Its rate, parsed."""
        return rate_limits.parse_rate(self.limits.rate) if self.limits.rate else None

    @cached_property
    def call_rules(self) -> CallRules:
        """The settings that decide about one call, compiled."""
        return CallRules(
            self.name,
            exclusive=self.writes,
            check=self.check,
            approve=self.approve,
            key=self.key,
            resource=self.resource,
            rate_key=self.limits.rate_key,
        )

    # ------------------------------------------------------------------ how it is described

    @cached_property
    def docs(self) -> Docs:
        """The docstring of `run`, else of the class, taken apart; never one of ours, or that of `partial`."""
        run = self.run
        while isinstance(run, partial):
            run = run.func
        authors = takewhile(
            lambda each: not each.__module__.startswith("handrail.tools."),
            type(self).__mro__,
        )
        docstrings = (
            inspect.cleandoc(each.__doc__) for each in authors if each.__doc__
        )
        return read_docstring(inspect.getdoc(run) or next(docstrings, None))

    if not TYPE_CHECKING:

        @cached_property
        def description(self):
            """What the model reads; from the docstring where nobody declared it."""
            return self.docs.description

    @property
    def summary(self) -> str:
        """The first sentence of the description."""
        return read_docstring(self.description).summary

    @cached_property
    def signature(self) -> hints.Signature:
        """The schema of `run` and how validated JSON becomes its keyword arguments."""
        return hints.describe_function(self.run, self.docs, is_injected, name=self.name)

    @cached_property
    def parameters(self) -> dict[str, Json]:
        """The JSON Schema of the arguments, as the model gets it."""
        self._check_names(self.signature.schema)
        self._check_functions()
        return self.signature.schema

    @cached_property
    def strict_parameters(self) -> dict[str, Json] | None:
        """The schema in OpenAI's strict form, or None where that would lose something."""
        strict = portability.for_openai_strict(self.parameters)
        return strict if isinstance(strict, dict) else None

    @cached_property
    def result_schema(self) -> dict[str, Json] | None:
        """The JSON Schema of what it returns: by `returns`, else by the hint of `run`; None if unknown."""
        if isinstance(self.returns, Mapping):
            schema = dict(self.returns)
            if "properties" in schema and schema.get("type") in (None, "object"):
                return import_schema(schema, name=self.name)
            return schema
        hint = self.returns
        if hint is None:
            hint = _get_result_hint(self.run)
        if hint in (None, Any, inspect.Signature.empty):
            return None
        return hints.describe_result(hint)

    @cached_property
    def checker(self) -> Checker:
        """The compiled schema."""
        return Checker(self.parameters)

    @cached_property
    def bind(self) -> Callable[[dict[str, Json]], dict[str, Any] | Failure]:
        """Turns valid JSON into the keyword arguments of `run`, or returns what does not fit after all."""
        return self.signature.bind

    @cached_property
    def injected_parameters(self) -> Mapping[str, Any]:
        """Parameters that the model never sees: name -> `Context`, `Injected` or `InjectedOpenly`."""
        return {
            name: find_injected_kind(hint)
            for name, hint in self.signature.hidden.items()
        }

    @cached_property
    def injected_in_rules(self) -> Mapping[str, frozenset[str]]:
        """Names of the injected values that its rules look at, by setting; mostly empty."""
        if not any(self._settings[setting] for setting in declaration.RULES):
            return {}
        return declaration.list_injected_names(self._settings, self.list_injected())

    def list_injected(self) -> list[str]:
        """Return the names of the parameters that `inject=` fills."""
        return [
            name
            for name, kind in self.injected_parameters.items()
            if issubclass(kind, Injected)
        ]

    @cached_property
    def secret_parameters(self) -> frozenset[str]:
        """The injected parameters that take an `hr.Secret` itself; all others get its text."""
        return find_secret_parameters(self.run, self.injected_parameters.keys())

    def injected_into(self, function: Callable[..., Any]) -> list[str]:
        """Return the injected parameters of the tool that a function of its author names too."""
        taken = declaration.parameter_names(function)
        return [name for name in self.list_injected() if name in taken]

    def with_injected(self, injected: Mapping[str, Any]) -> Self:
        """Return the tool as it decides about a call with these injected values; itself if its rules look at none.

        Raises:
            MissingInjection: A rule looks at a value that was not given.
            SetupError: A template or condition looks at a value that has no text of its own.
        """
        names = self.injected_in_rules
        if not names:
            return self
        for name in sorted(frozenset().union(*names.values()) - injected.keys()):
            raise missing_injection(self, name)
        deciding = copy(self)
        secret = [
            name for name, kind in self.injected_parameters.items() if kind is Injected
        ]
        vars(deciding)["call_rules"] = self.call_rules.with_injected(
            injected, names, secret=secret
        )
        return deciding

    @cached_property
    def _defaults(self) -> Mapping[str, Json]:
        """The default of each optional argument, as JSON."""
        properties = self.parameters.get("properties", {}).items()
        return {
            name: each["default"]
            for name, each in properties
            if isinstance(each, dict) and "default" in each
        }

    # ------------------------------------------------------------------ one call of it

    def check_arguments(self, parsed: dict[str, Json]) -> Checked | Failure:
        """Check parsed JSON against the schema; return the arguments, perhaps with coerced ones, or what is wrong."""
        return self.checker.check(parsed)

    def with_defaults(self, arguments: Mapping[str, Json]) -> dict[str, Json]:
        """Return the arguments, and the default of each that was left out."""
        return {**self._defaults, **arguments}

    def check_rule(self, bound: Mapping[str, Any]) -> Failure | None:
        """Return why the tool's own `check` refuses these arguments; None when it does not.

        Raises:
            SettingError: It failed.
        """
        return self.call_rules.check_rule(bound)

    def resolve_resources(self, arguments: Mapping[str, Json]) -> Sequence[Resource]:
        """Return what a call touches, without the resources that name an absent optional argument."""
        if not self.resource:
            return ()
        return self.call_rules.resolve_resources(self.with_defaults(arguments))

    def resolve_key(
        self, arguments: Mapping[str, Json], otherwise: str
    ) -> str | Failure:
        """Return the key of a write: the declared one, or `otherwise` (its place in the run).

        A declared key that cannot be made refuses the call: under another one it might happen twice.

        Raises:
            SettingError: The function that makes it failed, or named nothing.
        """
        if not self.key:
            return otherwise
        return self.call_rules.resolve_key(self.with_defaults(arguments))

    def bind_call(
        self,
        bound: Mapping[str, Any],
        context: Context[Any] | None,
        injected: Mapping[str, Any],
    ) -> partial[Any]:
        """Return the call, ready to be made: it returns the tool's value, or a coroutine when it `is_async`."""
        # Each attempt has its own: a tool that changes its arguments must not change those of the next attempt.
        traits = self.call_traits
        if not _IMMUTABLE.issuperset(map(type, bound.values())):
            bound = deepcopy(bound)
        if not traits.injects:
            return partial(self.run, **bound)
        extra = {
            name: context if kind is Context else injected[name]
            for name, kind in self.injected_parameters.items()
        }
        if Secret in map(type, extra.values()):
            extra = reveal_all(extra, kept=self.secret_parameters)
        return partial(self.run, **bound, **extra)

    def __repr__(self) -> str:
        return f"<Tool {self.name}: {self.effect or 'undeclared effect'}, {self.timeout_s:g} s>"


_NAMING = ("key", "resource", "approve", "rate_key", "then", "destination")
"""Settings that may look at parameters by their names."""


_INTERNAL = {"_DECLARABLE", "_declaration", "trace_type"}
"""What a tool records about itself, which declares nothing, and what its class is."""


def _own_names(kind: type[BaseTool]) -> Iterator[str]:
    """Yield the names that a class, and those between it and `BaseTool`, give to anything."""
    for each in takewhile(lambda each: each is not BaseTool, kind.__mro__):
        yield from vars(each)
        yield from vars(each).get("__annotations__", ())


def _is_hook(name: str, value: object) -> bool:
    """Whether a class overrides a name of handrail's by the same kind of thing: same parameters, or a property."""
    own = vars(BaseTool).get(name)
    if value is own:  # a bare annotation, which a dataclass makes an attribute
        return False
    if not inspect.isfunction(own):
        return isinstance(value, property | cached_property)
    return inspect.isfunction(value) and list(
        inspect.signature(value).parameters
    ) == list(inspect.signature(own).parameters)


def _refuse_ungrouped(tool_name: str, name: str) -> ToolDefinitionError:
    return ToolDefinitionError(
        f"Tool {tool_name!r}: `{name}` is no attribute of a tool.{advise(name, ())}"
    )


@cache
def _kind_of(setting: str) -> Kind | None:
    """Return what a setting must be, by its type."""
    declaring = GROUPS[GROUP_OF[setting]] if setting in GROUP_OF else BaseTool
    # the types of all settings would cost every import of handrail, which makes tools of its own
    names = vars(sys.modules[declaring.__module__])
    return find_kind(eval(declaring.__annotations__[setting], names))


def _find_wrong_kind(settings: Mapping[str, Any]) -> str:
    for name, value in settings.items():
        if value is _USUAL[name]:
            continue
        kind = _kind_of(name)
        if kind is not None and not kind.is_one(value):
            return f"`{name}` is {kind.what}, not {value!r}"
    return ""


def _refuse_own(tool_name: str, name: str) -> ToolDefinitionError:
    return ToolDefinitionError(
        f"Tool {tool_name!r}: handrail itself uses the name `{name}`; keep yours under another name, "
        f"such as `my_{name.lstrip('_')}`."
    )


BaseTool._DECLARABLE = frozenset(BaseTool.__annotations__) - {"run"} - _INTERNAL
_FLAT = BaseTool._DECLARABLE - {"description"} - GROUPS.keys()
_USUAL = {name: vars(BaseTool)[name] for name in _FLAT}
for _group in GROUPS.values():
    _USUAL |= _group.usual

_DECLARED = (frozenset(BaseTool.__annotations__) | vars(BaseTool).keys()) - _INTERNAL
"""What no longer changes once a set has a tool. A class of yours keeps other things in its instances."""

_OWN = frozenset(
    name for name in vars(BaseTool).keys() - BaseTool._DECLARABLE - {"open", "close", "trace_type"}
    if not name.startswith("__")
) | {"_declaration"}  # fmt: skip
"""Names that handrail itself uses. A class of yours keeps its things under other names."""

_DERIVED = frozenset(name for name, each in vars(BaseTool).items() if isinstance(each, cached_property)) - {
    "docs", "description", "signature", "parameters", "bind", "injected_parameters", "_defaults",
}  # fmt: skip
"""What follows from the declaration, and is computed when it is first asked for. How `run` looks is not among it."""


class ToolSettings(TypedDict, total=False):
    """The settings of a tool for type checkers, by the names and types of the attributes of `BaseTool`."""

    name: str
    description: str
    effect: EffectClass | None
    permission: Permission | None
    risk: Risk | None
    timeout_s: float
    isolation: Isolation
    blocking: bool
    key: str | Callable[..., str] | None
    replay: Literal["key"] | None
    verify: Callable[..., Any] | None
    resource: str | Sequence[str] | None
    approve: bool | str | Callable[..., bool]
    check: Callable[..., Any] | None
    deferred: bool
    then: Then | None
    tags: Collection[str]
    aliases: Sequence[str]
    returns: Any
    examples: Sequence[Mapping[str, Json]]
    write: Write
    limits: Limits
    sandbox: Sandbox
    sends: Sends


class Then(Struct, frozen=True):
    """A fixed step: a call that handrail itself makes each time a call of the declaring tool has succeeded.

        @hr.tool(effect="write", key="order:{order_id}", then=hr.Then(send_receipt, {"order": "{order_id}"}))

    It is a call like any other, with every check, its own key and its own result. The model reads that result as a note
    on the first one. It need not be among the tools that a model sees.

    Attributes:
        tool: What is called.
        arguments: A template: text that is one field (`"{order_id}"`, `"{result.total}"`) becomes that value, of
            whatever type; fields among other text are written out; a dot goes into an object. Or a function that gets
            the first call's arguments and its `result`, plain JSON, and returns the arguments, or None for no step.

    Raises:
        ToolDefinitionError: `tool` is no tool, or a text is no template.
    """

    tool: BaseTool
    arguments: Mapping[str, Json] | Callable[..., Mapping[str, Json] | None] = field(
        default_factory=dict
    )

    def __post_init__(self) -> None:
        if not isinstance(self.tool, BaseTool):
            raise ToolDefinitionError(
                f"`Then` calls a tool, made with @tool or a class, and {self.tool!r} is none."
            )
        if declaration.is_async(self.arguments):
            raise ToolDefinitionError(
                f"The function of a `Then` makes the arguments of `{self.tool.name}` and must be a plain one; "
                "it does not wait."
            )
        _ = self.names  # parsing the templates checks them

    @property
    def names(self) -> set[str]:
        """What the templates look at: arguments of the first call, and `result`."""
        if callable(self.arguments):
            return set()
        return keys.names_in_json(dict(self.arguments))

    def fill_arguments(
        self, arguments: Mapping[str, Json], result: Json
    ) -> Mapping[str, Json] | None:
        """Return the arguments of the step; None where there is to be none.

        Raises:
            LookupError, TypeError: A template looks at what is not there; a function may raise anything.
        """
        if callable(self.arguments):
            return self.arguments(**arguments, result=result)
        fields = {**arguments, "result": result}
        return {
            name: keys.fill_json(value, fields)
            for name, value in self.arguments.items()
        }


def missing_injection(tool: BaseTool, name: str) -> MissingInjection:
    """Return the error of a tool that needs a value which nobody gave."""
    return MissingInjection(
        f"tool {tool.name!r} needs `{name}`, which is injected and was not given; "
        f"pass inject={{{name!r}: ...}}"
    )


def _get_result_hint(run: Callable[..., Any]) -> Any:
    try:
        return get_type_hints(inspect.unwrap(run), include_extras=True).get("return")
    except (NameError, TypeError, AttributeError):
        # a name that only type checkers see, or no function
        return None
