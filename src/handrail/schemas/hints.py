"""The JSON Schema of a tool's arguments, from its function's type hints.

`describe_function` gives what a person would write by hand; its `Signature` also turns validated JSON into the
function's keyword arguments. `import_schema` gives a schema that others wrote in the same words (see `importing`).

Rule 1: what the model may send and what the function gets are made from the same hints, by pydantic. Plain hints are
        described as pydantic would describe them; see `plain_hints`.
Rule 2: a mistake in a signature names the parameter.
Rule 3: declaring a tool costs a look at its signature; hints are resolved and types compiled on first use.
        Pydantic's names are written with its module, which imports what is behind them when they are first met.
"""

from __future__ import annotations

import inspect
import sys
import typing
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import cache, reduce
from operator import or_
from types import FunctionType, SimpleNamespace, UnionType
from typing import (
    TYPE_CHECKING,
    Annotated,
    Any,
    NamedTuple,
    NoReturn,
    Union,
    cast,
    get_args,
    get_origin,
)

import pydantic
import typing_extensions
from msgspec import Struct
from pydantic.errors import PydanticUndefinedAnnotation, PydanticUserError
from pydantic_core import PydanticSerializationError, ValidationError, to_json

from handrail import _lazy
from handrail._lazy import cached_property
from handrail.errors import Failure, Json, ToolDefinitionError
from handrail.schemas import argument_errors
from handrail.schemas.argument_errors import ArgumentError
from handrail.schemas.docstrings import Docs
from handrail.schemas.importing import import_schema
from handrail.schemas.plain_hints import describe_plain
from handrail.schemas.simplify import add_description, simplify
from handrail.schemas.walk import Schema

if TYPE_CHECKING:
    from pydantic import fields as pydantic_fields
    from pydantic import json_schema
else:
    pydantic_fields = _lazy.module("pydantic.fields")
    json_schema = _lazy.module("pydantic.json_schema")

__all__ = [
    "Signature",
    "check_parameters",
    "describe_function",
    "describe_result",
    "import_schema",
]


class Signature(Struct, frozen=True, dict=True):
    """What a function takes from the model.

    Attributes:
        tool: The name for errors.
        visible: Parameter name -> type hint, for what the model sends.
        hidden: Parameter name -> type hint, for what the caller fills in.
        docs: The docstring, for descriptions.
        defaults: Parameter name -> what it is when the model sends nothing.
        model: The pydantic model that is the whole input, when it is the type of the one visible parameter.
    """

    tool: str
    visible: Mapping[str, Any]
    hidden: Mapping[str, Any]
    docs: Docs
    defaults: dict[str, Any] = {}
    model: type[pydantic.BaseModel] | None = None

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the parameters that the model fills."""
        return tuple(self.visible)

    @cached_property
    def schema(self) -> Schema:
        """The JSON Schema of the arguments."""
        if self.model is None:
            plain = describe_plain(self.visible, self.defaults, self.docs.parameters)
            if plain is not None:
                return plain
        return self._describe_by_pydantic()

    def _describe_by_pydantic(self) -> Schema:
        try:
            raw = self._adapter.json_schema(schema_generator=_schema_generator())
        except _UNDESCRIBABLE as error:
            self._blame(error)
        schema = simplify(raw)
        if self.model is None:
            self._describe(schema)
        return schema

    def bind(self, arguments: dict[str, Json]) -> dict[str, Any] | Failure:
        """Turn validated JSON into keyword arguments, defaults included; a Failure says what does not fit.

        What the schema cannot say is checked here: a date that does not exist, a model's own validator.
        """
        try:
            bound = self._validate(arguments)
        except ValidationError as error:
            return self._bind_as_json(arguments, error)
        return bound if self.model is None else {self.names[0]: bound}

    @property
    def _fields(self) -> Mapping[str, Any]:
        """The hints as pydantic takes them, with their defaults."""
        defaults = {
            name: _add_default(self.visible[name], default)
            for name, default in self.defaults.items()
        }
        return {**self.visible, **defaults}

    @cached_property
    def _adapter(self) -> pydantic.TypeAdapter[Any]:
        try:
            return pydantic.TypeAdapter(
                self.model or _make_arguments_type(self._fields)
            )
        except _UNDESCRIBABLE as error:
            self._blame(error)

    @cached_property
    def _validate(self) -> Callable[[Json], Any]:
        return self._adapter.validator.validate_python

    def _bind_as_json(
        self, arguments: dict[str, Json], refusal: ValidationError
    ) -> dict[str, Any] | Failure:
        """Bind by way of JSON text: only from JSON does a model in strict mode read text as a date."""
        try:
            bound = self._adapter.validator.validate_json(to_json(arguments))
        except ValidationError as error:
            return argument_errors.make_failure(_explain_all(error, arguments))
        except PydanticSerializationError:
            return argument_errors.make_failure(_explain_all(refusal, arguments))
        return bound if self.model is None else {self.names[0]: bound}

    def _describe(self, schema: Schema) -> None:
        """Add the docstring's texts. Properties are in the order of the parameters, perhaps under an alias."""
        texts = self.docs.parameters
        properties = schema["properties"]
        for parameter, alias in zip(self.visible, list(properties), strict=True):
            if text := texts.get(parameter) or texts.get(alias):
                properties[alias] = add_description(properties[alias], text)

    def _blame(self, error: Exception) -> NoReturn:
        """Find the parameter that cannot be described, and raise the definition error that names it."""
        for name, hint in self._fields.items():
            try:
                pydantic.TypeAdapter(_make_arguments_type({name: hint})).json_schema(
                    schema_generator=_schema_generator()
                )
            except _UNDESCRIBABLE as reason:
                _refuse(
                    self.tool,
                    f"the type of parameter `{name}` has no JSON form ({_first_sentence(reason)}). "
                    "Use a dataclass, a pydantic model or another type that JSON can hold, or mark it as "
                    "injected with `Injected`.",
                    reason,
                )
        _refuse(self.tool, str(error), error)


def _first_sentence(reason: Exception) -> str:
    """Return what pydantic says is wrong, without its advice, which is for the author of a model's configuration."""
    line = str(reason).splitlines()[0]
    return line.partition(". Set `arbitrary_types_allowed")[0].removesuffix(".")


_UNDESCRIBABLE = (PydanticUserError, PydanticUndefinedAnnotation, TypeError, ValueError)


def describe_function(
    fn: Callable[..., Any],
    docs: Docs,
    injected: Callable[[Any], bool] = lambda _hint: False,
    *,
    name: str = "",
) -> Signature:
    """Describe a function from its type hints.

    Args:
        injected: Says of a type hint whether the caller fills the parameter; the model never sees it.
        name: What errors call the tool; the function's name by default.

    Raises:
        ToolDefinitionError: Names the parameter that cannot be described. The hints are resolved here; the types are
            looked at when `schema` or `bind` is first used.
    """
    tool = name or getattr(fn, "__name__", type(fn).__name__)
    parameters = _find_parameters(fn, tool)
    hints = _resolve_hints(parameters.annotations, _find_globals(fn), tool)
    hidden = {name: hint for name, hint in hints.items() if injected(hint)}
    visible = {name: hint for name, hint in hints.items() if name not in hidden}
    defaults = {
        name: default
        for name, default in parameters.defaults.items()
        if name in visible
    }
    return Signature(
        tool=tool,
        visible=visible,
        hidden=hidden,
        docs=docs,
        defaults=defaults,
        model=None if defaults else _find_only_model(visible),
    )


@cache
def prepare() -> None:
    """Import what describing a tool takes, so that no thread is importing it when the process is forked.

    pydantic imports most of itself when it is first used. A fork inherits the lock of a module that another thread is
    importing, and waits for it for good.
    """
    pydantic.TypeAdapter(_typed_dict("Nothing", {"at": int}))


def find_hints(fn: Callable[..., Any]) -> dict[str, Any]:
    """Return the type hints of a function's parameters, without those that cannot be resolved."""
    found: dict[str, Any] = {}
    for name, annotation in inspect.get_annotations(fn).items():
        with suppress(ToolDefinitionError):
            found |= _resolve_hints({name: annotation}, _find_globals(fn), name)
    found.pop("return", None)
    return found


class _Parameters(NamedTuple):
    """The annotations and defaults of a function's parameters, by name and in order."""

    annotations: Mapping[str, Any]
    defaults: Mapping[str, Any]


def _find_parameters(fn: Callable[..., Any], tool: str) -> _Parameters:
    """Return a function's parameters.

    Raises:
        ToolDefinitionError: One has no type hint, or cannot be given by name.
    """
    if is_plainly_hinted(fn):
        return _read_code(cast(FunctionType, fn))
    parameters = check_parameters(fn, name=tool)
    return _Parameters(
        {each.name: each.annotation for each in parameters},
        {
            each.name: each.default
            for each in parameters
            if each.default is not each.empty
        },
    )


def _read_code(fn: FunctionType) -> _Parameters:
    """Return the parameters of a plainly hinted function from its code: ten times as fast as `inspect.signature`."""
    code = fn.__code__
    names = code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]
    by_place = fn.__defaults__ or ()
    first = code.co_argcount - len(by_place)
    defaults = dict(zip(names[first : code.co_argcount], by_place, strict=True))
    by_name = fn.__kwdefaults__ or {}
    for name in names[code.co_argcount :]:
        if name in by_name:
            defaults[name] = by_name[name]
    annotations = fn.__annotations__
    return _Parameters({name: annotations[name] for name in names}, defaults)


def check_parameters(
    fn: Callable[..., Any], *, name: str = ""
) -> list[inspect.Parameter]:
    """Return a function's parameters; cheap enough for the moment a tool is declared.

    Raises:
        ToolDefinitionError: One has no type hint, or cannot be given by name.
    """
    tool = name or getattr(fn, "__name__", type(fn).__name__)
    parameters = list(inspect.signature(fn).parameters.values())
    for parameter in parameters:
        if complaint := _KINDS.get(parameter.kind):
            _refuse(tool, complaint.format(name=parameter.name))
        if parameter.annotation is parameter.empty:
            _refuse(
                tool,
                f"parameter `{parameter.name}` has no type hint. Add one (`{parameter.name}: str`), "
                "or mark it as injected with `Injected`.",
            )
    return parameters


def is_plainly_hinted(fn: Callable[..., Any]) -> bool:
    """Whether `check_parameters` finds nothing wrong with a function, where that can be seen without its signature.

    Making a signature takes most of the time of declaring a tool.
    """
    # what wraps another function, or declares a signature, has an attribute that says so
    if type(fn) is not FunctionType or fn.__dict__:
        return False
    code = fn.__code__
    if code.co_posonlyargcount or code.co_flags & _ANY_NUMBER:
        return False
    names = code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]
    return fn.__annotations__.keys() >= set(names)


_ANY_NUMBER = inspect.CO_VARARGS | inspect.CO_VARKEYWORDS

_KINDS: Mapping[Any, str] = {
    inspect.Parameter.VAR_POSITIONAL: "parameter `*{name}` takes any number of values. "
    "Name a list (`{name}: list[str]`).",
    inspect.Parameter.VAR_KEYWORD: "parameter `**{name}` takes any names. Name each parameter, or a dict "
    "(`{name}: dict[str, str]`).",
    inspect.Parameter.POSITIONAL_ONLY: "parameter `{name}` is positional-only, and a model gives values by name. "
    "Take the `/` out of the signature.",
}


def _refuse(tool: str, complaint: str, cause: Exception | None = None) -> NoReturn:
    raise ToolDefinitionError(
        f"Tool {tool!r} cannot be described to a model: {complaint}"
    ) from cause


def _find_globals(fn: Callable[..., Any]) -> dict[str, Any]:
    """Return the names that a function's hints are written in, under wrappers, partials, methods and instances."""
    inner: Any = fn
    for _ in range(20):  # deeper than any decorated partial of a method
        inner = inspect.unwrap(inner)
        if hasattr(inner, "__globals__"):
            return cast(dict[str, Any], inner.__globals__)
        inner = (
            getattr(inner, "func", None)
            or getattr(inner, "__func__", None)
            or type(inner).__call__
        )
    return {}


def _resolve_hints(
    annotations: Mapping[str, Any], globals_: dict[str, Any], tool: str
) -> dict[str, Any]:
    """Evaluate the hints that are written as text, one parameter at a time so that an error can name it."""
    hints = {}
    for name, annotation in annotations.items():
        plain = _resolve_plain_hint(annotation, globals_)
        if plain is not None:
            hints[name] = plain
            continue
        try:
            holder = SimpleNamespace(__annotations__={name: annotation})
            hints[name] = _modernize(
                typing.get_type_hints(holder, globals_, include_extras=True)[name]
            )
        except Exception as error:
            # evaluating a hint runs its author's text; NameError is the likely one
            _refuse(
                tool,
                f"the type hint of parameter `{name}`, {annotation!r}, cannot be resolved ({error}). "
                "Import or define what it names at the top of its module.",
                error,
            )
    return hints


def _resolve_plain_hint(annotation: Any, globals_: Mapping[str, Any]) -> Any:
    """Return the type that most annotations are, or name; None for any other, which takes ten times as long."""
    if isinstance(annotation, str):
        plain = _PLAIN.get(annotation)
        return plain if annotation not in globals_ else None
    return annotation if any(annotation is each for each in _PLAIN.values()) else None


_PLAIN = {each.__name__: each for each in (str, int, float, bool)}


def describe_result(hint: Any) -> Schema | None:
    """Return the JSON Schema of a value of this type as it is written out; None where it has no JSON form."""
    try:
        return pydantic.TypeAdapter(_modernize(hint)).json_schema(mode="serialization")
    except (*_UNDESCRIBABLE, NameError):
        return None


def _modernize(hint: Any) -> Any:
    """Replace `typing.TypedDict`, within containers and unions, by the form that pydantic needs before Python 3.12."""
    if sys.version_info >= (3, 12):
        return hint
    if typing.is_typeddict(hint) and type(hint).__module__ == "typing":
        return _modernize_typed_dict(hint)
    origin = get_origin(hint)
    parts = get_args(hint)
    if not parts or origin in (typing.Literal, None) or isinstance(parts[0], list):
        return hint
    if origin is Annotated:
        inner = _modernize(parts[0])
        if inner == parts[0]:
            return hint
        return Annotated[(inner, *hint.__metadata__)]
    modern = tuple(map(_modernize, parts))
    if modern == parts:
        return hint
    if origin in (Union, UnionType):
        return reduce(or_, modern)
    return origin[modern]


def _modernize_typed_dict(hint: Any) -> Any:
    fields = typing.get_type_hints(hint, include_extras=True)
    modern = {name: _modernize(kind) for name, kind in fields.items()}
    for name in modern.keys() - hint.__required_keys__:
        modern[name] = typing_extensions.NotRequired[modern[name]]
    return _typed_dict(hint.__name__, modern)


def _add_default(hint: Any, default: Any) -> Any:
    if not isinstance(default, pydantic_fields.FieldInfo):
        default = pydantic.Field(default=default)
    return Annotated[hint, default]


def _find_only_model(visible: Mapping[str, Any]) -> type[pydantic.BaseModel] | None:
    """Return the model when it is the type of the only parameter."""
    if len(visible) != 1:
        return None
    (hint,) = visible.values()
    if not isinstance(hint, type) or get_origin(hint):
        return None
    if not issubclass(hint, pydantic.BaseModel) or hint.__pydantic_root_model__:
        return None
    return hint


def _make_arguments_type(hints: Mapping[str, Any]) -> Any:
    arguments = _typed_dict("Arguments", dict(hints))
    arguments.__pydantic_config__ = pydantic.ConfigDict(extra="forbid")
    return arguments


# made from values, which no type checker follows
_typed_dict: Any = typing_extensions.TypedDict


def _explain_all(error: ValidationError, arguments: Json) -> list[ArgumentError]:
    return [
        _explain(cast(dict[str, Any], details), arguments)
        for details in error.errors(include_url=False)
    ]


def _explain(details: dict[str, Any], arguments: Json) -> ArgumentError:
    """Word one error of pydantic. Its own texts name types and bounds; a validator's text is its author's."""
    kind = str(details["type"])
    reason = str(details["msg"])
    path = _find_path(arguments, details["loc"], missing=kind == "missing")
    field = argument_errors.format_path(path)
    place = argument_errors.name_path(path)
    if kind == "missing":
        return ArgumentError(
            field, "missing", f"{place} is required.", advice=f"add {place}"
        )
    opening = next((text for text in _OPENINGS if reason.startswith(text)), "")
    reason = reason.removeprefix(opening)[:200]
    reason = argument_errors.replace_surrogates(reason).rstrip(".")
    if opening == _MUST_BE:
        was = argument_errors.format_value(details["input"])
        return ArgumentError(
            field,
            "type",
            argument_errors.capitalize(f"{place} must be {reason}; it was {was}."),
            advice=f"make {place} {reason}",
            expected=reason,
        )
    return ArgumentError(
        field,
        "rule",
        argument_errors.capitalize(f"{place} was refused: {reason}."),
        advice=f"correct {place}",
    )


_MUST_BE = "Input should be "
_OPENINGS = (_MUST_BE, "Value error, ", "Assertion failed, ")


def _find_path(
    arguments: Json, steps: tuple[int | str, ...], *, missing: bool
) -> list[int | str]:
    """Keep the steps that lead through the arguments; pydantic's also name branches of unions and validators."""
    path: list[int | str] = []
    here = arguments
    for i, step in enumerate(steps):
        inside = (isinstance(here, dict) and step in here) or (
            isinstance(here, list) and isinstance(step, int) and step < len(here)
        )
        if inside:
            here = here[step]
            path.append(step)
        elif missing and i == len(steps) - 1:
            path.append(step)
    return path


@cache
def _schema_generator() -> type[json_schema.GenerateJsonSchema]:
    class Plain(json_schema.GenerateJsonSchema):
        """Pydantic's generator, in the order of declaration, and silent about defaults that JSON cannot hold."""

        def __init__(self, *args: Any, **options: Any) -> None:
            super().__init__(*args, **options)
            self.ignored_warning_kinds = {"skipped-choice", "non-serializable-default"}

        def sort(self, value: Json, parent_key: str | None = None) -> Any:  # noqa: ARG002  # pydantic's signature
            """Keep the order."""
            return value

    return Plain
