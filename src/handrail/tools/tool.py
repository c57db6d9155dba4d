"""A tool: a callable that a model is told about, with what it declares about its effect.

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
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from copy import copy
from functools import partial
from itertools import takewhile
from pathlib import Path
from types import MappingProxyType, UnionType
from typing import (
    TYPE_CHECKING,
    Annotated,
    Any,
    ClassVar,
    Generic,
    Literal,
    Self,
    TypeAlias,
    TypedDict,
    Union,
    Unpack,
    cast,
    get_args,
    get_origin,
    get_type_hints,
    overload,
)

import pydantic
from msgspec import Struct, field
from pydantic_core import to_jsonable_python
from typing_extensions import ParamSpec, TypeVar

from handrail._lazy import cached_property
from handrail.calls import Page
from handrail.context import Context, Injected, InjectedOpenly
from handrail.effects import EffectClass, Permission, ReplayClass, Resource, Risk
from handrail.errors import Code, Failure, Json, ToolDefinitionError, ToolError
from handrail.parsing import names, strictjson
from handrail.sandboxes.levels import Isolation
from handrail.schemas import hints, portability
from handrail.schemas.docstrings import Docs
from handrail.schemas.docstrings import read as read_docstring
from handrail.schemas.importing import imported
from handrail.schemas.validation import Checked, Checker
from handrail.tools import conditions, declaration, keys, paging, rate_limits
from handrail.tools.declaration import SettingError

P = ParamSpec("P")
R = TypeVar("R")
F = TypeVar("F", bound=Callable[..., Any])
# Over the function's whole type: a list of tools with different signatures is still a list of tools for a type checker.
F_co = TypeVar("F_co", covariant=True, default=Callable[..., Any])

DEFAULT_TIMEOUT_S = 30.0

Fits: TypeAlias = Callable[[dict[str, Json]], bool]

_SAFE = {str, int, float, bool, type(None)}

_RISK_OF: dict[EffectClass | None, Risk] = {"read": "low", "write": "medium", None: "medium", "destructive": "high"}


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

    name: str = ""
    """What the model calls it; the function's name by default."""
    description: str
    """What the model reads; the docstring without its sections by default."""
    effect: EffectClass | None = None
    """`read` changes nothing; `write` does; `destructive` cannot be undone. None counts as a write and lint asks."""
    permission: Permission | None = None
    """What a run must be allowed to see it; by default `read` for reads and `write` for the others."""
    risk: Risk | None = None
    """By default low for reads, medium for writes, high for the destructive; medium for a function that declares no
    effect, high for a tool by schema that declares none. High asks a person."""
    timeout_s: float = DEFAULT_TIMEOUT_S
    """What a call may take from its first start to its end, retries included."""
    attempt_timeout_s: float | None = None
    """What one attempt may take. Without it a hanging read uses up its `timeout_s` and is not tried again."""
    max_attempts: int = 3
    """How often a read is started at most, when it fails in a way that may pass."""
    isolation: Isolation = "none"
    """How strongly the tool is kept apart; a level that this machine cannot give refuses the call."""
    mounts: Sequence[str | Path] = ()
    """Files and folders that an isolated tool sees where they are, read-only, beside its own code."""
    memory_bytes: int = 512 * 1024 * 1024
    """What each process of an isolated tool may address, and what all of them together may hold."""
    blocking: bool = True
    """A sync function may block, so it runs in a thread. False promises that it is quick; it then runs in place."""
    key: str | Callable[..., str] | None = None
    """Names the act of a write across runs: `refund:{order_id}`, or a function of the arguments."""
    replay: Literal["key"] | None = None
    """`key`: the far side tells duplicates apart by `context.idempotency_key`; a lost answer may be asked for again."""
    key_ttl_s: float = 24 * 3600.0
    """With `replay="key"`: how long the far side knows a key again. What was begun before that is in doubt."""
    verify: Callable[..., Any] | None = None
    """Asked after a lost answer, as `verify(arguments, context)`: `Found(result)`, `NotFound()` or `Unknown()`."""
    one_request: bool = False
    """A call makes one request and changes nothing else: a request that was not sent, or was refused, had no effect."""
    compensate: Callable[..., Any] | None = None
    """Takes a write back, as `compensate(order_id=…, result=…)`. Offered to a person afterwards, see `Runtime.undo`."""
    resource: str | Sequence[str] | None = None
    """What a call touches: `user:{user_id}`. Calls on one resource run in order; readers share it."""
    approve: bool | str | Callable[..., bool] = False
    """When a person must agree: always, under a condition (`amount > 100`), or when a function says so."""
    required_approvals: int = 1
    """How many different people must agree wherever somebody is asked; several, without `approve`, are always asked."""
    check: Callable[..., Any] | None = None
    """The tool's own rule over valid arguments: returns a sentence or raises `ToolError` to refuse, else None."""
    after: str | Sequence[str] = ()
    """Names of tools whose calls of the same turn must end first."""
    inline_references: bool = False
    """`$var1.rate$` within a longer text is replaced by the result that it names, as a whole argument is anyway. Only
    for a text that nobody else may have written, such as a formula: what a model quotes may hold such a mark."""
    repeatable: bool = False
    """Calling it twice with the same arguments in one run is meant; do not answer with the first result."""
    repeat_window_s: float = 0.0
    """A write with the same arguments counts as a repeat also in other runs, for so long after it was begun."""
    on_repeat: Literal["return_previous", "ask"] | None = None
    """What becomes of a repeat: the first result is given again, or a person is asked; by default if destructive."""
    on_doubt: Literal["tell", "ask"] = "tell"
    """When nobody knows whether it happened: the model is told, or the run waits for a person to look."""
    poll: bool = False
    """Asking again and again is its use; never counted as repeating itself."""
    then: Then | None = None
    """The call that code makes whenever a call of this tool has succeeded."""
    ends_run: bool = False
    """A call of it that succeeds ends the run: what it returns is the answer, and the model is not asked again."""
    max_concurrency: int | None = None
    """How many calls of it may be under way at once in this process; more wait in line."""
    rate: str | None = None
    """How often it may be started: `5/s`, `30/min`, `1000/h`. More wait, or are told when to come back."""
    rate_key: str | None = None
    """What its rate is counted for, each apart: `{user_id}`."""
    breaker: int = 5
    """After so many attempts in a row that could not reach what it needs, it is left alone for 30 s; 0 never is."""
    tags: Collection[str] = ()
    """For `Toolset.filter`."""
    aliases: Sequence[str] = ()
    """Words by which users ask for it, also in their own language: selectors find it by them."""
    result_bytes: int | None = None
    """How much of a result the model reads; the runtime's size otherwise."""
    argument_bytes: int = 1024 * 1024
    """How long the arguments of a call may be, as JSON in UTF-8."""
    argument_values: int = 10_000
    """How many keys and items the arguments of a call may hold."""
    coerce: bool = True
    """Accept text that is exactly a number, boolean, list or object where the schema wants one; told in the result."""
    version: str = ""
    """Part of a write's fingerprint: change it when the same arguments come to mean another act."""
    returns: Any = None
    """What it returns: a type or a JSON Schema, held by `handrail check --run`; by default the hint of the function."""
    examples: Sequence[Mapping[str, Json]] = ()
    """Arguments of calls that must work; `handrail check --run` makes them if the tool is a read."""
    lint_ignore: Mapping[str, str] = MappingProxyType({})
    """Rules of `handrail lint` that do not hold for it, each with the reason: `{"write-without-key": "..."}`."""

    run: Callable[..., Any]

    _DECLARABLE: ClassVar[frozenset[str]]
    _pinned: tuple[Any, str] = (None, "")
    _settled: bool = False
    _held: bool = False

    def __init_subclass__(cls) -> None:
        cls.name = cls.__dict__.get("name", "") or cls.__name__
        worked_out = [each for each in sorted(cls._DECLARABLE) if isinstance(getattr(cls, each, None), property)]
        if worked_out:
            raise ToolDefinitionError(
                f"Tool {cls.name!r}: `{worked_out[0]}` is a property; declare a value, which holds."
            )

    def __init__(self) -> None:
        self.validate_declaration()

    if not TYPE_CHECKING:

        def __setattr__(self, name, value):
            self._heed_change(name)
            object.__setattr__(self, name, value)

        def __delattr__(self, name):
            self._heed_change(name)
            object.__delattr__(self, name)

    def _heed_change(self, name: str) -> None:
        """Refuse it once a set has the tool, for people agree to what it is; before that the tool is checked anew."""
        if name not in _DECLARED:
            return
        if self._held:
            instead = f"`tool.replace({name}=...)` makes another"
            if name not in self._DECLARABLE:
                instead = "it is a tool's own, so keep yours under another name"
            raise ToolDefinitionError(f"Tool {self.name!r}: `{name}` holds once a set has the tool; {instead}.")
        if self._settled:
            self._unsettle()

    def _unsettle(self) -> None:
        """Forget what followed from the declaration, and that it was checked."""
        for each in _FOLLOWING.intersection(vars(self)):
            del vars(self)[each]
        vars(self).update(_settled=False, _held=False)  # past a subclass that is frozen

    def freeze(self) -> None:
        """Be what it is from now on, since a set has it.

        Raises:
            ToolDefinitionError: The declaration contradicts itself.
        """
        self.validate_declaration()
        vars(self)["_held"] = True
        if self.then is not None and not self.then.tool._held:
            self.then.tool.freeze()

    def replace(self, **settings: Unpack[ToolSettings]) -> Self:
        """Return this tool with other declarations; a tool does not change once a set has it.

        Args:
            settings: The attributes of `BaseTool`.

        Raises:
            ToolDefinitionError: The declaration contradicts itself, or is for something that no tool has.
        """
        other = copy(self)
        other._unsettle()
        rows = paging.rows_of(self.run) if "run" in vars(self) else None
        if rows is not None and getattr(rows, "__func__", None) is getattr(type(self), "run", rows):
            del vars(other)["run"]  # the pages of our rows: it opens what it reads itself, and has its own
        for setting, value in settings.items():
            if setting not in self._DECLARABLE:
                raise ToolDefinitionError(_unknown_setting(self.run, setting))
            setattr(other, setting, value)
        other.validate_declaration()
        return other

    def open(self) -> Any:
        """Prepare what the tool needs; called once, before its first call."""

    def close(self) -> Any:
        """Let go of what `open` took."""

    # ------------------------------------------------------------------ what follows from the declaration

    @cached_property
    def writes(self) -> bool:
        """Whether the tool counts as a write."""
        return self.effect != "read"

    @cached_property
    def plain_check(self) -> Fits | None:
        """Says of arguments that they fit, where a read leaves nothing else to decide but whether the policy agrees."""
        declares = self.approve or self.check or self.resource or self.after or self.rate or self.then or self.ends_run
        checks = self.check_arguments, self.check_rule
        if self.writes or declares or self.concurrency_slot or self.isolation != "none":
            return None
        return self.checker.fits if [getattr(each, "__func__", None) for each in checks] == _CHECKS else None

    @cached_property
    def in_place(self) -> bool:
        """Whether its first step is taken here, and not in a thread or a process."""
        return (self.is_async or not self.blocking) and self.isolation == "none"

    @cached_property
    def opens(self) -> bool:
        """Whether it has something to open before its first call, or to close at the end."""
        return type(self).open is not BaseTool.open or type(self).close is not BaseTool.close

    @cached_property
    def required_permission(self) -> Permission:
        """The permission that a run needs to see it."""
        return self.permission or ("read" if self.effect == "read" else "write")

    @cached_property
    def effective_risk(self) -> Risk:
        """Its risk, declared or by its effect."""
        if self.effect is None and self.by_schema:  # its author is elsewhere and has not said what it does
            return self.risk or "high"
        return self.risk or _RISK_OF[self.effect]

    @property
    def by_schema(self) -> bool:
        """Whether a schema describes it, as of a tool from an MCP server or a document, and not its own signature."""
        return "parameters" in vars(self) and "signature" not in vars(self)

    @property
    def pin(self) -> str:
        """Digest of the tool as it describes and declares itself: what people agree to; the audit log names it too."""
        told = (self.name, self.version, self.description, self.effect, self.effective_risk, self.parameters)
        if self._pinned[0] != told:
            shown = {"tool": self.name, "version": self.version, "description": self.description}
            does = {"effect": self.effect, "risk": self.effective_risk}
            vars(self)["_pinned"] = told, keys.digest({**shown, **does, "schema": self.parameters})
        return self._pinned[1]

    @property
    def replay_class(self) -> ReplayClass:
        """What may happen after a lost answer: ask again with the key, verify, or neither."""
        return "key" if self.replay == "key" else "verify" if self.verify else "none"

    @cached_property
    def asks_before_repeating(self) -> bool:
        """Whether a person is asked before the same write is done again."""
        return (self.on_repeat or ("ask" if self.effect == "destructive" else "")) == "ask"

    @cached_property
    def may_ask_later(self) -> bool:
        """Whether a person may be asked once the ledger has spoken."""
        return self.writes and (self.on_doubt == "ask" or self.asks_before_repeating)

    @cached_property
    def docs(self) -> Docs:
        """The docstring of `run`, else of the class, taken apart; never one of ours, or that of `partial`."""
        run = self.run
        while isinstance(run, partial):
            run = run.func
        authors = takewhile(lambda each: each.__module__ != __name__, type(self).__mro__)
        told = (inspect.cleandoc(each.__doc__) for each in authors if each.__doc__)
        return read_docstring(inspect.getdoc(run) or next(told, None))

    if not TYPE_CHECKING:

        @cached_property
        def description(self):
            """What is told to the model; read from the docstring where nobody declared it."""
            return self.docs.description

    @property
    def summary(self) -> str:
        """The first sentence of the description."""
        return read_docstring(self.description).summary

    @cached_property
    def signature(self) -> hints.Signature:
        """The schema of `run` and how validated JSON becomes its keyword arguments."""
        return hints.of_function(self.run, self.docs, is_hidden, name=self.name)

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
            said = dict(self.returns)
            is_object = said.get("type") in (None, "object") and "properties" in said
            return imported(said, name=self.name) if is_object else said
        hint = self.returns if self.returns is not None else _result_hint(self.run)
        return None if hint in (None, Any, inspect.Signature.empty) else hints.of_result(hint)

    @cached_property
    def checker(self) -> Checker:
        """The compiled schema."""
        return Checker(self.parameters, coerce=self.coerce)

    @cached_property
    def bind(self) -> Callable[[dict[str, Json]], dict[str, Any] | Failure]:
        """Turns valid JSON into the keyword arguments of `run`, or says what does not fit after all."""
        return self.signature.bind

    @cached_property
    def as_written(self) -> bool:
        """Whether a flat object that fits goes to `run` as it stands, with its defaults: `bind` would do no more.

        Not where a tool describes or binds its arguments in a way of its own.
        """
        if getattr(self.bind, "__func__", None) is not hints.Signature.bind:
            return False
        if getattr(self.bind, "__self__", None) is not self.signature:
            return False
        return self.parameters is self.signature.schema and self.signature.as_written

    @cached_property
    def injected_parameters(self) -> Mapping[str, Any]:
        """Parameters that the model never sees: name -> `Context`, `Injected` or `InjectedOpenly`."""
        return {name: hidden_kind(hint) for name, hint in self.signature.hidden.items()}

    @cached_property
    def _resources(self) -> Sequence[keys.Template]:
        declared = [self.resource] if isinstance(self.resource, str) else self.resource or ()
        return [keys.template(text) for text in declared]

    @cached_property
    def concurrency_slot(self) -> Resource | None:
        """What a call sits on while it is under way, where they are counted."""
        if self.max_concurrency is None:
            return None
        return Resource(f"tool:{self.name}", exclusive=False, seats=self.max_concurrency)

    @cached_property
    def rate_limit(self) -> rate_limits.Rate | None:
        """Its rate."""
        return rate_limits.rate(self.rate) if self.rate else None

    @cached_property
    def _rate_key(self) -> keys.Template | None:
        return keys.template(self.rate_key) if self.rate_key else None

    @cached_property
    def _approval(self) -> Callable[..., Any] | None:
        if isinstance(self.approve, str):
            return conditions.condition(self.approve)
        return None

    @cached_property
    def _key(self) -> keys.Template | None:
        return keys.template(self.key) if isinstance(self.key, str) else None

    @cached_property
    def _defaults(self) -> Mapping[str, Json]:
        """What an argument is that was left out: a call that writes it out must get the same key and resource."""
        properties = self.parameters.get("properties", {}).items()
        return {name: each["default"] for name, each in properties if isinstance(each, dict) and "default" in each}

    # ------------------------------------------------------------------ what a call needs to know

    def check_arguments(self, parsed: dict[str, Json]) -> Checked | Failure:
        """Check parsed JSON against the schema; return the arguments, perhaps with coerced ones, or what is wrong."""
        return self.checker.check(parsed)

    def normalize_arguments(self, arguments: dict[str, Json], bound: Mapping[str, Any]) -> dict[str, Json]:
        """Return the arguments as what decides sees them: what the function gets, as JSON, defaults filled in."""
        if bound == arguments:
            return arguments
        whole = len(bound) == 1 and next(iter(bound.values()))
        try:
            seen = to_jsonable_python(whole if isinstance(whole, pydantic.BaseModel) else bound, inf_nan_mode="strings")
        except ValueError:  # a type without a JSON form: what was sent is all there is to look at
            return arguments
        return seen if isinstance(seen, dict) else arguments

    def check_rule(self, bound: Mapping[str, Any]) -> Failure | None:
        """Ask the tool's own `check`; it refuses with a sentence, or a `ToolError`.

        Raises:
            SettingError: It failed.
        """
        if self.check is None:
            return None
        try:
            said = self._asked("check", bound)
        except ToolError as error:
            return error.told
        if said is None or said is True:
            return None
        text = said if isinstance(said, str) and said else f"the rule of {self.name} does not allow these arguments"
        advice = "Call again with arguments that fit the rule, or tell the user why not."
        return Failure(Code.RULE_VIOLATED, text, advice)

    def needs_approval(self, arguments: Mapping[str, Json]) -> bool:
        """Whether a person must agree to these arguments. A condition that cannot be evaluated asks.

        Raises:
            SettingError: The function that says so failed.
        """
        if not self.approve or self.approve is True:
            return bool(self.approve)
        if self._approval is None:
            return bool(self._asked("approve", arguments))
        try:
            return bool(self._approval(arguments))
        except KeyboardInterrupt:
            raise
        except BaseException:  # a missing argument, a type that does not compare: when unsure, ask
            return True

    def resolve_resources(self, arguments: Mapping[str, Json]) -> Sequence[Resource]:
        """What this call touches; an optional argument that is absent and named in a template leaves that one out."""
        if not self._resources:
            return ()
        touched, whole = [], {**self._defaults, **arguments}
        for fill in self._resources:
            try:
                touched.append(Resource(fill(whole), exclusive=self.writes))
            except (LookupError, TypeError):
                continue
        return touched

    def with_defaults(self, arguments: Mapping[str, Json]) -> dict[str, Json]:
        """Return the arguments with those that were left out as they are by default."""
        return {**self._defaults, **arguments}

    def resolve_rate_key(self, arguments: Mapping[str, Json]) -> str:
        """What this call's rate is counted for; empty when it is counted with all others."""
        try:
            return self._rate_key({**self._defaults, **arguments}) if self._rate_key else ""
        except (LookupError, TypeError):  # an optional argument that is absent
            return ""

    def resolve_key(self, arguments: Mapping[str, Json], otherwise: str) -> str | Failure:
        """Return the key of this write: the declared one, or `otherwise` (its place in the run).

        A declared key that cannot be made refuses the call: under another one it might happen twice.

        Raises:
            SettingError: The function that gives it failed, or named nothing.
        """
        if not self.key:
            return otherwise
        whole = {**self._defaults, **arguments}
        if self._key is None:
            named = self._asked("key", whole)
            if named is None or named == "":
                error = ValueError(f"the key function of {self.name} returned {named!r}, which names nothing")
                raise SettingError("key", self.key) from error
            return str(named)
        try:
            return self._key(whole)
        except (LookupError, TypeError):
            wanted = ", ".join(f"`{name}`" for name in sorted(keys.names_in(cast(str, self.key))))
            text = f"`{self.name}` needs {wanted}, so that the same act is not done twice."
            return Failure(Code.INVALID_ARGUMENTS, text, f"Call again with {wanted}.")

    def _asked(self, setting: str, given: Mapping[str, Any]) -> Any:
        """Call the author's function that a setting is.

        Raises:
            SettingError: It raised something other than a `ToolError`.
        """
        function = getattr(self, setting)
        try:
            return function(**given)
        except (KeyboardInterrupt, ToolError):
            raise
        except BaseException as error:  # it is the author's code: whatever it raises, the call is not allowed
            raise SettingError(setting, function) from error

    @cached_property
    def is_async(self) -> bool:
        """Whether `run` is a coroutine function."""
        return inspect.iscoroutinefunction(self.run)

    def bind_call(
        self, bound: Mapping[str, Any], context: Context[Any] | None, injected: Mapping[str, Any]
    ) -> partial[Any]:
        """Return the call, ready to be made: it gives the tool's value, or a coroutine when it `is_async`."""
        # Each attempt has its own: a tool that changes its arguments must not change those of the next attempt.
        if not (self.as_written or _SAFE.issuperset(map(type, bound.values()))):
            bound = strictjson.copied(bound)
        if self.injected_parameters:
            given = {
                name: context if kind is Context else injected[name] for name, kind in self.injected_parameters.items()
            }
            return partial(self.run, **bound, **given)
        return partial(self.run, **bound)

    # ------------------------------------------------------------------ checks when it is declared

    def validate_declaration(self) -> None:
        """Check the declaration: when the tool is made, and when a set takes it if it was not, or changed since.

        Raises:
            ToolDefinitionError: It contradicts itself, or is for something that no tool has.
        """
        if self._settled:
            return
        self._unsettle()
        if not callable(getattr(self, "run", None)):
            raise ToolDefinitionError(f"{type(self).__name__} has no method `run`; write one with type hints.")
        if fault := declaration.fault_in(self._declared()):
            raise ToolDefinitionError(f"Tool {self.name!r}: {fault}.")
        if self.then is not None and not isinstance(self.then, Then):
            raise ToolDefinitionError(f"Tool {self.name!r}: `then` is a `Then(tool, arguments)`, not {self.then!r}.")
        if rows := paging.rows_of(self.run):
            self._page(rows)
        if self.required_approvals > 1 and not self.approve:
            self.approve = True
        try:
            _ = self.rate_limit
        except ValueError as error:
            raise ToolDefinitionError(f"Tool {self.name!r}: {error}.") from error
        _ = self._resources, self._approval, self._key, self._rate_key  # compiling a template or condition checks it
        if "parameters" in vars(self):  # they were looked at before this was declared
            self._check_names(self.parameters)
        self._check_functions()
        vars(self)["_settled"] = True

    def _page(self, rows: Callable[..., Any]) -> None:
        """Let a generator's rows come page by page."""
        if self.writes or self.isolation != "none" or self.by_schema:
            raise ToolDefinitionError(
                f"Tool {self.name!r} is a generator, which runs only as far as it is read. Only a read can be one, "
                'described by type hints and without isolation: declare effect="read", or return a list.'
            )
        self.run = paging.paged(rows, self.result_bytes or paging.PAGE_BYTES)
        self.returns = Page if self.returns is None else self.returns

    def check_names(self) -> None:
        """Check that templates and conditions name existing parameters, describing the tool only in case of doubt.

        Raises:
            ToolDefinitionError: One does not.
        """
        if self.key or self.resource or self.approve or self.rate_key or self.then:
            _ = self._names_hold

    @cached_property
    def _names_hold(self) -> bool:
        """Always true, computed once; see `check_names`."""
        names = self._names()
        if names is not None:
            described = {"properties": {name: {} for name in names}, "additionalProperties": False}
            if not declaration.strange_name(self._declared(), described, self._looked_at_by_step()):
                return True
        return self.parameters is not None  # a name may be an alias, so describe the tool; that raises if it is not

    def _names(self) -> Sequence[str] | None:
        """The names of the arguments; None where only the whole description tells them."""
        if "parameters" in vars(self) or type(self).parameters is not BaseTool.parameters:
            return None
        return self.signature.names if self.signature.model is None else None

    def _check_functions(self) -> None:
        """Check the signatures of the functions among the settings."""
        declared = {each: getattr(self, each) for each in ("check", "approve", "key", "compensate")}
        declared["then"] = self.then.arguments if self.then else None
        if not any(map(callable, declared.values())):
            return
        if self.by_schema:
            if declaration.is_open(self.parameters):
                return
            bound: Sequence[str] = tuple(self.parameters.get("properties", ()))
            arguments: Sequence[str] | None = bound
        else:
            try:
                bound, arguments = self.signature.names, self._names()
            except ToolDefinitionError:  # a hint that cannot be resolved yet, or ever: told when the tool is described
                return
        if fault := declaration.wrong_function(declared, bound, arguments):
            raise ToolDefinitionError(f"Tool {self.name!r}: {fault}.")

    def _looked_at_by_step(self) -> set[str]:
        return self.then.names - {"result"} if self.then else set()

    def _check_names(self, described: Mapping[str, Json]) -> None:
        """Check that templates and conditions look at parameters that there are; known once the schema is."""
        if fault := declaration.strange_name(self._declared(), described, self._looked_at_by_step()):
            raise ToolDefinitionError(f"Tool {self.name!r}: {fault}")

    def _declared(self) -> dict[str, Any]:
        return {each: getattr(self, each) for each in self._DECLARABLE if each != "description"}

    def __repr__(self) -> str:
        return f"<Tool {self.name}: {self.effect or 'undeclared effect'}, {self.timeout_s:g} s>"


_CHECKS = [BaseTool.check_arguments, BaseTool.check_rule]
"""What says whether arguments fit. A class that has its own is asked each time."""

_OURS = {"_DECLARABLE", "_pinned", "_settled", "_held"}
"""What a tool keeps about itself, which declares nothing."""

BaseTool._DECLARABLE = frozenset(BaseTool.__annotations__) - {"run"} - _OURS

_DECLARED = (frozenset(BaseTool.__annotations__) | vars(BaseTool).keys()) - _OURS
"""What no longer changes once a set has a tool. A class of yours keeps other things in its instances."""

_FOLLOWING = frozenset(name for name, each in vars(BaseTool).items() if isinstance(each, cached_property)) - {
    "docs", "description", "signature", "parameters", "bind", "injected_parameters", "_defaults",
}  # fmt: skip
"""What follows from the declaration, and is found out when it is first asked for. How `run` looks is not among it."""


class ToolSettings(TypedDict, total=False):
    """The settings of a tool for type checkers, by the names and types of the attributes of `BaseTool`."""

    name: str
    description: str
    effect: EffectClass | None
    permission: Permission | None
    risk: Risk | None
    timeout_s: float
    attempt_timeout_s: float | None
    max_attempts: int
    isolation: Isolation
    mounts: Sequence[str | Path]
    memory_bytes: int
    blocking: bool
    key: str | Callable[..., str] | None
    replay: Literal["key"] | None
    key_ttl_s: float
    verify: Callable[..., Any] | None
    one_request: bool
    compensate: Callable[..., Any] | None
    resource: str | Sequence[str] | None
    approve: bool | str | Callable[..., bool]
    required_approvals: int
    check: Callable[..., Any] | None
    after: str | Sequence[str]
    inline_references: bool
    repeatable: bool
    repeat_window_s: float
    on_repeat: Literal["return_previous", "ask"] | None
    on_doubt: Literal["tell", "ask"]
    poll: bool
    then: Then | None
    ends_run: bool
    max_concurrency: int | None
    rate: str | None
    rate_key: str | None
    breaker: int
    tags: Collection[str]
    aliases: Sequence[str]
    result_bytes: int | None
    argument_bytes: int
    argument_values: int
    coerce: bool
    version: str
    returns: Any
    examples: Sequence[Mapping[str, Json]]
    lint_ignore: Mapping[str, str]


class Then(Struct, frozen=True):
    """A fixed step: the call that code makes, each time, once a call of the tool that declares it has succeeded.

        @hr.tool(effect="write", key="order:{order_id}", then=hr.Then(send_receipt, {"order": "{order_id}"}))

    It is a call like any other, with every check, its own key and its own result, which the model reads as a note
    beside the first one's. It need not be among the tools that a model sees.

    Attributes:
        tool: What is called.
        arguments: A template: text that is one field (`"{order_id}"`, `"{result.total}"`) becomes that value, of
            whatever type; fields among other text are written out; a dot goes into an object. Or a function that gets
            the first call's arguments and its `result`, plain JSON, and returns the arguments, or None for no step.

    Raises:
        ToolDefinitionError: `tool` is no tool, or a text is no template.
    """

    tool: BaseTool
    arguments: Mapping[str, Json] | Callable[..., Mapping[str, Json] | None] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if not isinstance(self.tool, BaseTool):
            raise ToolDefinitionError(f"`Then` calls a tool, made with @tool or a class, and {self.tool!r} is none.")
        _ = self.names  # parsing the templates checks them

    @property
    def names(self) -> set[str]:
        """What the templates look at: arguments of the first call, and `result`."""
        texts = () if callable(self.arguments) else _texts_in(dict(self.arguments))
        return set().union(*map(keys.names_in, texts))

    def given(self, arguments: Mapping[str, Json], result: Json) -> Mapping[str, Json] | None:
        """Return the arguments of the step; None where there is to be none.

        Raises:
            LookupError, TypeError: A template looks at what is not there; a function may raise anything.
        """
        if callable(self.arguments):
            return self.arguments(**arguments, result=result)
        known = {**arguments, "result": result}
        return {name: _filled(value, known) for name, value in self.arguments.items()}


def _texts_in(value: Json) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping | list):
        for each in value.values() if isinstance(value, Mapping) else value:
            yield from _texts_in(each)


def _filled(value: Json, known: Mapping[str, Json]) -> Json:
    if isinstance(value, Mapping):
        return {name: _filled(each, known) for name, each in value.items()}
    if isinstance(value, list):
        return [_filled(each, known) for each in value]
    return keys.written(value, known) if isinstance(value, str) else value


class FunctionTool(BaseTool, Generic[F_co]):
    """A function as a tool; it can still be called as the function it is.

    Args:
        fn: Sync or async. Its type hints and docstring describe it, unless `parameters` does.
        parameters: JSON Schema 2020-12 of the arguments; `fn` then gets them as keyword arguments, plain JSON values.
        settings: The attributes of `BaseTool`.

    Raises:
        ToolDefinitionError: It cannot be described to a model, or the declaration contradicts itself.
    """

    fn: F_co

    def __init__(
        self: FunctionTool[F],
        fn: F,
        *,
        parameters: Mapping[str, Json] | None = None,
        **settings: Unpack[ToolSettings],
    ) -> None:
        for setting, value in settings.items():
            if setting not in self._DECLARABLE:
                raise ToolDefinitionError(_unknown_setting(fn, setting))
            setattr(self, setting, value)
        self.fn = fn
        self.run = fn
        if "name" not in settings:
            self.name = getattr(fn, "__name__", type(fn).__name__)
        if parameters is None:
            hints.parameters_of(fn, name=self.name)
        else:
            self._take(parameters)
        self.validate_declaration()

    def _take(self, parameters: Mapping[str, Json]) -> None:
        """Be described by a schema. What is set here stands in place of what a signature would give."""
        self.parameters = hints.imported(parameters, name=self.name)
        self.bind = strictjson.copied
        self.injected_parameters = {}

    def __call__(self: FunctionTool[Callable[P, R]], *args: P.args, **kwargs: P.kwargs) -> R:
        return self.fn(*args, **kwargs)


def _result_hint(run: Callable[..., Any]) -> Any:
    try:
        return get_type_hints(inspect.unwrap(run), include_extras=True).get("return")
    except (NameError, TypeError, AttributeError):  # a name known to type checkers only, or no function
        return None


def is_hidden(hint: Any) -> bool:
    """Whether a parameter with this type hint is kept from the model."""
    return hidden_kind(hint) is not None


def hidden_kind(hint: Any) -> type[Any] | None:
    """Return `Context` or `Injected` when the hint names it, also inside `Annotated` and `Optional`."""
    if isinstance(hint, Injected):
        return Injected if hint.secret else InjectedOpenly
    if hint is Injected:
        return Injected
    if hint is Context or get_origin(hint) is Context:
        return Context
    found = (hidden_kind(part) for part in get_args(hint)) if get_origin(hint) in _LOOKED_INTO else ()
    return next(filter(None, found), None)


_LOOKED_INTO = (Annotated, Union, UnionType)


def _unknown_setting(fn: Callable[..., Any], setting: str) -> str:
    near = names.nearest(setting, BaseTool._DECLARABLE)
    hint = f" Did you mean `{near[0]}`?" if near else ""
    return f"Tool {getattr(fn, '__name__', fn)!r} declares `{setting}`, which no tool has.{hint}"


@overload
def tool(fn: F, /, **settings: Unpack[ToolSettings]) -> FunctionTool[F]: ...
@overload
def tool(**settings: Unpack[ToolSettings]) -> Callable[[F], FunctionTool[F]]: ...
def tool(
    fn: Callable[..., Any] | None = None, /, **settings: Unpack[ToolSettings]
) -> FunctionTool | Callable[[Callable[..., Any]], FunctionTool]:
    """Make a function a tool: `@tool`, or `@tool(effect="read", timeout_s=5)` with the attributes of `BaseTool`.

    The schema comes from the type hints, the texts from the docstring (Google, NumPy, Sphinx or Chinese headings). The
    tool can be called as the function, with its signature.
    """

    def make_tool(function: Callable[..., Any]) -> FunctionTool:
        return FunctionTool(function, **settings)

    return make_tool if fn is None else make_tool(fn)
