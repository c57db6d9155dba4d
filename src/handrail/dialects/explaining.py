"""Which parts of a tool's declaration reach a provider: in a field, in the description, or not at all.

No table lists which provider takes what. A request is encoded with a part of the declaration and without it; the
fields in which the two differ are where the part goes. So an explanation cannot differ from the request.

Rule 1: a request is explained by the output of its wire's `encode_request`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from copy import deepcopy
from typing import Any, Literal, TypeAlias

from msgspec import Struct
from msgspec.structs import replace

from handrail.dialects import Dialect, ToolLike
from handrail.dialects.wires.base import BaseWire
from handrail.dialects.writing import fitting_examples
from handrail.errors import ConfigError, Json
from handrail.messages import Message, Options, Output, UserMessage
from handrail.schemas import portability
from handrail.schemas.walk import IN_LIST, IN_MAP, IN_ONE, split_words
from handrail.tools.tool import BaseTool

Reach: TypeAlias = Literal["sent", "in words", "not sent", "kept here"]
"""How far a part gets: sent in a field, sent in the description, left out, or enforced by handrail itself."""

_INFORMATIVE: Mapping[str, Any] = {
    "description": "",
    "examples": (),
    "result_schema": None,
}
"""The settings that inform a model, each with its empty value. Every other setting is a rule that handrail enforces."""

_NAMES: Mapping[str, str] = {"result_schema": "returns"}

_ELSEWHERE = frozenset({"name", "parameters", "callers", "strict_parameters"})
"""Settings that have an explanation of their own."""

_QUESTION: Sequence[Message] = (UserMessage("?"),)
_OTHER_NAME = "handrail_probe"
_DESCRIPTION = "description"
_PROMPT = "prompt"
"""The field of a request that is one text."""


class Part(Struct, frozen=True):
    """A part of a declaration, and how far it gets.

    Attributes:
        name: The setting; a keyword of a parameter is `city.pattern`.
        reach: How far it gets.
        field: Where in the definition that is sent; empty where nothing is.
        note: A sentence for a person, if there is something to say.
    """

    name: str
    reach: Reach
    field: str = ""
    note: str = ""

    def as_json(self) -> dict[str, Json]:
        """Return it for `--json`; without what is empty."""
        facts = {
            "part": self.name,
            "reach": self.reach,
            "field": self.field,
            "note": self.note,
        }
        return {key: value for key, value in facts.items() if value}


def explain_tool(wire: Dialect, tool: BaseTool, *, strict: bool) -> list[Part]:
    """Return how far each part of a tool's declaration gets on this wire."""
    probe = _Probe(wire, tool, Options(strict=strict))
    parts = [_explain_name(probe), *_explain_informative(probe)]
    parts += [_explain_parameters(probe), *_explain_keywords(probe)]
    parts.append(_explain_strict(probe))
    if "program" in tool.callers:
        parts.append(_explain_callers(probe))
    parts += _explain_rules(probe)
    return parts


def explain_request(wire: Dialect, tool: BaseTool, model: str) -> list[Part]:
    """Return what a request says of what a run wishes: which call it wants, how it is cached, what the answer is."""
    wishes: Mapping[str, Options] = {
        "a call that must be made": Options(tool_choice=tool.name),
        "one call an answer": Options(parallel=False),
        "what `Require` and `Forbid` allow": Options(allowed=frozenset([tool.name])),
        "an effort": Options(effort="low"),
        "the form of an answer": Options(output=Output({"type": "object", "properties": {}})),
        "the prompt cache": Options(cache="auto"),
    }  # fmt: skip
    without = Options(model=model, cache=None)
    parts = [
        _explain_wish(wire, tool, name, without, wish) for name, wish in wishes.items()
    ]
    parts.append(_explain_deferral(wire, model))
    return parts


# ---------------------------------------------------------------------- a declaration


class _Probe:
    """Encodes a request with one tool, and with that tool changed."""

    def __init__(
        self,
        wire: Dialect,
        tool: BaseTool,
        options: Options,
        changes: Mapping[str, Any] | None = None,
    ) -> None:
        self.wire = wire
        self.tool = tool
        self.options = options
        self._changes = changes or {}
        self.sent = self.encode()

    def encode(self, options: Options | None = None, **changes: Any) -> Json:
        """Return the part of the request that describes the tool, with these settings in place of its own."""
        tool = _Changed(self.tool, {**self._changes, **changes})
        return _encode(self.wire, tool, options or self.options)

    def differences(self, options: Options | None = None, **changes: Any) -> list[str]:
        """Return the fields that differ once the tool is changed."""
        before = self.sent if options is None else self.encode(options)
        return list(_differences(before, self.encode(options, **changes)))


class _Changed:
    """A tool as a wire sees it, with some of its settings replaced."""

    def __init__(self, tool: BaseTool, changes: Mapping[str, Any]) -> None:
        self._tool = tool
        self.__dict__.update(changes)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._tool, name)


def _explain_name(probe: _Probe) -> Part:
    fields = probe.differences(name=_OTHER_NAME)
    field = _shortest(fields)
    sent = str(dict(_leaves(probe.sent)).get(field, ""))
    note = ""
    if probe.tool.name not in sent:
        note = f"as {sent!r}, since the provider takes no such name"
    return Part("name", "sent", field, note)


def _explain_informative(probe: _Probe) -> Iterator[Part]:
    for setting, absent in _INFORMATIVE.items():
        value = getattr(probe.tool, setting)
        if not value:
            continue
        fields = probe.differences(**{setting: absent})
        name = _NAMES.get(setting, setting)
        if setting == "description" and fields:
            yield Part(name, "sent", _shortest(fields))
            continue
        part = _part(name, fields)
        if part.field == _PROMPT and setting == "examples":
            part = Part(name, "in words", _PROMPT)
        if part.reach == "not sent":
            note = ""
            with_programs = _find_with_programs(probe, **{setting: absent})
            if with_programs:
                note = "sent only where a program may call the tool"
            elif setting == "examples" and not fitting_examples(probe.tool):
                note = "none of them fits the parameters"
            part = Part(name, "not sent", _shortest(with_programs), note)
        yield part


def _explain_parameters(probe: _Probe) -> Part:
    own = probe.tool.parameters
    if not own.get("properties"):
        return Part("parameters", "sent", "", "it takes none")
    path, schema = _find_schema(probe.sent, own)
    if schema is None:  # the text of a prompt
        return Part("parameters", "sent", _shortest(probe.differences(parameters={})))
    if schema == own:
        note = "as they are"
    else:
        note = "in the provider's own form; what it has no keyword for is listed below"
    return Part("parameters", "sent", path, note)


def _explain_keywords(probe: _Probe) -> Iterator[Part]:
    """Yield the keywords of parameters that are not sent as they are."""
    # an example may fit only without a keyword
    plain = _Probe(probe.wire, probe.tool, probe.options, {"examples": ()})
    for path, keyword in _keywords(probe.tool.parameters):
        changed = _without_keyword(probe.tool.parameters, path, keyword)
        fields = plain.differences(
            parameters=changed, strict_parameters=_strict_form(changed)
        )
        part = _part(".".join([*_words(path), keyword]), fields)
        if part.reach != "sent":
            yield part


def _explain_strict(probe: _Probe) -> Part:
    """Say whether the provider can hold a model to the schema."""
    loose = probe.encode(replace(probe.options, strict=False))
    held = probe.encode(replace(probe.options, strict=True))
    fields = list(_differences(loose, held))
    if not fields:
        note = "there is no strict form, or this schema would lose something in it; arguments are checked here"
        return Part("strict", "kept here", "", note)
    field = _shortest(fields)
    if probe.options.strict:
        return Part("strict", "sent", field)
    return Part("strict", "not sent", field, "sent with `Options(strict=True)`")


def _explain_callers(probe: _Probe) -> Part:
    fields = _find_with_programs(probe, callers=("direct",))
    if not fields:
        note = "no programs run there; calls of others are refused"
        return Part("callers", "kept here", "", note)
    note = "where the request has the provider's tool that runs programs; other calls are refused"
    return Part("callers", "sent", ", ".join(fields), note)


def _explain_rules(probe: _Probe) -> Iterator[Part]:
    """Yield the other settings that the tool declares, which handrail enforces: a provider learns nothing of them."""
    for setting in sorted(BaseTool._DECLARABLE - _INFORMATIVE.keys() - _ELSEWHERE):
        if setting in _NAMES.values():
            continue
        usual = getattr(BaseTool, setting, None)
        if getattr(probe.tool, setting) == usual:
            continue
        fields = probe.differences(**{setting: usual})
        if fields:
            yield _part(setting, fields)
        else:
            yield Part(setting, "kept here")


def _part(name: str, fields: Sequence[str]) -> Part:
    """Return a part by the fields that depend on it."""
    described = [each for each in fields if each.endswith(_DESCRIPTION)]
    if not fields:
        return Part(name, "not sent")
    if len(described) == len(fields):
        return Part(name, "in words", _shortest(fields))
    return Part(
        name, "sent", _common([each for each in fields if each not in described])
    )


def _find_with_programs(probe: _Probe, **changes: Any) -> list[str]:
    """Return the fields that depend on a part where the request runs programs that may call the tool."""
    runner = _runner(probe.wire)
    if not runner:
        return []
    tools = [{"type": runner, "name": "handrail_programs"}]
    options = replace(probe.options, provider_tools=tools)
    whole = _Probe(probe.wire, probe.tool, options, {"callers": ("direct", "program")})
    return whole.differences(**changes)


def _runner(wire: Dialect) -> str:
    return str(getattr(wire, "runs_programs", ""))


# ---------------------------------------------------------------------- a request


def _explain_wish(
    wire: Dialect, tool: BaseTool, name: str, without: Options, wish: Options
) -> Part:
    """Say where a request speaks of what a run wishes."""
    changes = {
        field: getattr(wish, field)
        for field in Options.__struct_fields__
        if getattr(wish, field) != getattr(Options(), field)
    }
    if name == "the prompt cache":
        changes = {"cache": "auto"}
    try:
        before = _encode(wire, tool, without, digest=True)
        after = _encode(wire, tool, replace(without, **changes), digest=True)
    except ConfigError as error:
        return Part(name, "not sent", "", f"refused: {error}")
    fields = list(_differences(before, after))
    if not fields:
        return Part(name, "kept here")
    return Part(name, "sent", _shortest(fields))


def _explain_deferral(wire: Dialect, model: str) -> Part:
    name = "tools that a search found"
    defers = isinstance(wire, BaseWire) and wire.defers_tools(model)
    if defers:
        return Part(name, "sent", "", "the provider loads them into the conversation")
    return Part(
        name, "sent", "", "appended to the tools, in the order in which they were found"
    )


# ---------------------------------------------------------------------- comparing


def _encode(
    wire: Dialect, tool: ToolLike, options: Options, *, digest: bool = False
) -> Json:
    """Return a request without its conversation, and without the digest of all the rest unless that is wanted."""
    request = wire.encode_request(_QUESTION, [tool], options)
    if isinstance(request, str):
        return {_PROMPT: request}
    body = dict(request)
    body.pop(getattr(wire, "history", ""), None)
    if not digest:
        body.pop("prompt_cache_key", None)
    return body


def _differences(one: Json, other: Json, path: str = "") -> Iterator[str]:
    """Yield the paths of the values that two documents do not share."""
    if isinstance(one, Mapping) and isinstance(other, Mapping):
        for key in dict.fromkeys([*one, *other]):
            below = f"{path}.{key}" if path else str(key)
            yield from _differences(
                one.get(key, _ABSENT), other.get(key, _ABSENT), below
            )
    elif isinstance(one, list) and isinstance(other, list) and len(one) == len(other):
        for number, pair in enumerate(zip(one, other, strict=True)):
            yield from _differences(*pair, f"{path}[{number}]")
    elif one != other:
        yield path


_ABSENT: Any = object()


def _leaves(document: Json, path: str = "") -> Iterator[tuple[str, Json]]:
    """Yield each value that holds no others, with its path."""
    if isinstance(document, Mapping):
        for key, value in document.items():
            yield from _leaves(value, f"{path}.{key}" if path else str(key))
    elif isinstance(document, list):
        for number, value in enumerate(document):
            yield from _leaves(value, f"{path}[{number}]")
    else:
        yield path, document


def _shortest(fields: Sequence[str]) -> str:
    return min(fields, key=len, default="")


def _common(fields: Sequence[str]) -> str:
    """Return the field that all of these are in."""
    split = [each.split(".") for each in fields]
    shared: list[str] = []
    for names in zip(*split, strict=False):
        if len(set(names)) > 1:
            break
        shared.append(names[0])
    return ".".join(shared)


# ---------------------------------------------------------------------- schemas

_Path: TypeAlias = "tuple[str | int, ...]"

_STRUCTURE = split_words(
    "type properties $defs definitions $ref description title required additionalProperties"
)
"""Keywords that bound no value; the line on the parameters as a whole explains them."""


def _keywords(schema: Json, path: _Path = ()) -> Iterator[tuple[_Path, str]]:
    """Yield each keyword in a schema that bounds a value, with the place of its schema."""
    if not isinstance(schema, Mapping):
        return
    for keyword, value in schema.items():
        if keyword in IN_MAP and isinstance(value, Mapping):
            for name, part in value.items():
                yield from _keywords(part, (*path, keyword, name))
        elif keyword in IN_LIST and isinstance(value, list):
            for number, part in enumerate(value):
                yield from _keywords(part, (*path, keyword, number))
        elif keyword in IN_ONE and isinstance(value, Mapping):
            yield from _keywords(value, (*path, keyword))
        elif keyword not in _STRUCTURE and path:
            yield path, keyword


def _without_keyword(
    schema: Mapping[str, Json], path: _Path, keyword: str
) -> dict[str, Json]:
    changed: dict[str, Json] = deepcopy(dict(schema))
    place: Any = changed
    for step in path:
        place = place[step]
    del place[keyword]
    return changed


def _words(path: _Path) -> list[str]:
    """Return a place in a schema as a person names it: by its parameters."""
    return [str(step) for step in path if str(step) not in ("properties", "$defs")]


def _strict_form(schema: dict[str, Json]) -> Json:
    """Return what `strict_parameters` of a tool with this schema are."""
    strict = portability.for_openai_strict(schema)
    return strict if isinstance(strict, dict) else None


def _find_schema(
    document: Json, schema: Mapping[str, Json], path: str = ""
) -> tuple[str, Json]:
    """Return the place and the text of a schema in a request that has the same parameters; None if none has."""
    parts: Iterable[tuple[str, Json]] = ()
    if isinstance(document, Mapping):
        properties = document.get("properties")
        names = dict(schema.get("properties") or {}).keys()
        if isinstance(properties, Mapping) and properties.keys() == names:
            return path, dict(document)
        parts = [(f"{path}.{key}" if path else key, document[key]) for key in document]
    elif isinstance(document, list):
        parts = [(f"{path}[{number}]", each) for number, each in enumerate(document)]
    for place, part in parts:
        found = _find_schema(part, schema, place)
        if found[1] is not None:
            return found
    return "", None
