"""The identity of a call: templates over arguments, keys of writes, fingerprints.

A key names the act, not the attempt (`refund:881`); a fingerprint tells whether two calls ask for the same thing.

Rule 1: templates see validated arguments, never the model's text.
Rule 2: never the provider's call id: one may send none, and a model that is asked again sends new ones.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Mapping, Sequence
from string import Formatter
from typing import TypeAlias

import msgspec

from handrail.errors import Json, ToolDefinitionError

Template: TypeAlias = Callable[[Mapping[str, Json]], str]
"""Takes validated arguments. Raises LookupError when an argument that it names is absent."""


def template(text: str) -> Template:
    """Compile `refund:{order_id}`; a dot goes into an object (`{user.id}`), braces are doubled to be literal.

    A value cannot forge a separator: `:`, `/`, `%` and whatever else separates the fields are written in it as
    percent escapes, so that `a:{x}:{y}` gives different keys for ("1:2", "3") and ("1", "2:3"). Text that looks like
    another kind of JSON (`null`, `[1]`) is written in quotes. Only a number and its text (7 and "7") are one key.

    >>> template("order:{id}")({"id": "a:b"})
    'order:a%3Ab'

    Raises:
        ToolDefinitionError: The text is not such a template, or nothing that a value cannot hold parts two fields.
    """
    literals, paths = _parse(text)
    if not paths:
        return lambda _: literals[0]
    for literal in literals[1:-1]:
        if not any(_separates(sign) for sign in literal):
            raise ToolDefinitionError(
                f'{text!r} needs a separator such as ":" between two fields, not {literal!r}'
            )
    escapes = {
        ord(sign): _escape(sign)
        for sign in "".join(["%:/", *literals])
        if sign == "%" or _separates(sign)
    }

    first = literals[0]
    fields = list(zip(paths, literals[1:], strict=True))

    def fill(arguments: Mapping[str, Json]) -> str:
        filled = first
        for path, literal in fields:
            value: Json = arguments
            for name in path:
                value = value[name]
            if not isinstance(value, str) or _LIKE_OTHER_JSON.match(value):
                value = canonical(value)
            # letters and digits alone, as most of what names something
            filled += value if value.isalnum() else value.translate(escapes)
            filled += literal
        return filled

    return fill


_LIKE_OTHER_JSON = re.compile(r'["\[{]|(?:null|true|false)\Z')


def _separates(sign: str) -> bool:
    """Whether a sign between fields is escaped in values. A `%` is too, yet every escape begins with one."""
    return not sign.isalnum() and sign != "%"


def _escape(sign: str) -> str:
    return "".join(f"%{byte:02X}" for byte in sign.encode("utf-8", "surrogatepass"))


def fill_json(value: Json, arguments: Mapping[str, Json]) -> Json:
    """Fill the templates in a JSON value, as `fill_text` fills one text."""
    if isinstance(value, Mapping):
        return {name: fill_json(each, arguments) for name, each in value.items()}
    if isinstance(value, list):
        return [fill_json(each, arguments) for each in value]
    if isinstance(value, str):
        return fill_text(value, arguments)
    return value


def names_in_json(value: Json) -> set[str]:
    """Return the arguments that the templates in a JSON value look at."""
    if isinstance(value, str):
        return names_in(value)
    if isinstance(value, Mapping):
        return set().union(*map(names_in_json, value.values()))
    if isinstance(value, list):
        return set().union(*map(names_in_json, value))
    return set()


def fill_text(text: str, arguments: Mapping[str, Json]) -> Json:
    """Fill the fields of a text that names nothing, so that nothing in it is escaped; one field alone keeps its type.

    >>> fill_text("{count}", {"count": 2}), fill_text("{count} left in {place}", {"count": 2, "place": "a:b"})
    (2, '2 left in a:b')

    Raises:
        LookupError, TypeError: A field is not there.
    """
    literals, paths = _parse(text)
    values = [_look_up(path, arguments) for path in paths]
    if literals == ["", ""]:
        return values[0]
    text = literals[0]
    for value, literal in zip(values, literals[1:], strict=True):
        text += (value if isinstance(value, str) else canonical(value)) + literal
    return text


def _look_up(path: Sequence[str], arguments: Mapping[str, Json]) -> Json:
    value: Json = arguments
    for name in path:
        value = value[name]
    return value


def names_in(text: str) -> set[str]:
    """Return the arguments that a template looks at."""
    return {path[0] for path in _parse(text)[1]}


def literals_in(text: str) -> tuple[str, ...]:
    """Return the pieces around the fields: two templates that have the same make the same keys.

    >>> literals_in("order:{id}"), literals_in("order:{order_id}")
    (('order:', ''), ('order:', ''))
    """
    return tuple(_parse(text)[0])


def _parse(text: str) -> tuple[list[str], list[Sequence[str]]]:
    """Return the literal pieces around the fields (always one more than fields), and each field as a path."""
    literals: list[str] = []
    paths: list[Sequence[str]] = []
    literal = ""
    try:
        for before, field, spec, conversion in Formatter().parse(text):
            literal += before
            if field is None:
                continue
            path = field.split(".")
            if spec or conversion or not all(name.isidentifier() for name in path):
                raise ValueError(f"`{{{field}}}` is not an argument's name")
            literals.append(literal)
            paths.append(path)
            literal = ""
    except ValueError as error:
        raise ToolDefinitionError(
            f'{text!r} is not a template such as "order:{{order_id}}": {error}'
        ) from error
    return [*literals, literal], paths


def canonical(value: Json) -> str:
    """Return one text for equal JSON values: keys sorted, no space, integral floats as integers (after RFC 8785)."""
    if type(value) is dict and _AS_IT_IS.issuperset(map(type, value.values())):
        try:
            return _encode_quickly(value).decode()
        except (ValueError, TypeError, OverflowError):
            # half of a surrogate pair, or what else has no form in UTF-8
            pass
    return _encode(_normalize_numbers(value))


_encode_quickly = msgspec.json.Encoder(order="sorted").encode
"""Sorts and spells texts, integers and words as Python's encoder does, in a fifth of its time."""

_encode = json.JSONEncoder(
    sort_keys=True, separators=(",", ":"), ensure_ascii=False
).encode
_AS_IT_IS = frozenset((str, int, bool, type(None)))


def _normalize_numbers(value: Json) -> Json:
    if isinstance(value, float) and value.is_integer():
        return int(value)
    if isinstance(value, dict):
        if _AS_IT_IS.issuperset(map(type, value.values())):
            return value  # nearly always
        return {name: _normalize_numbers(each) for name, each in value.items()}
    if isinstance(value, list | tuple):
        return [_normalize_numbers(each) for each in value]
    return value


def fingerprint(
    tool: str,
    version: str,
    arguments: Mapping[str, Json],
    identity: Sequence[str] = (),
) -> bytes:
    """Return a digest that is equal for two calls that ask for the same act.

    The tool's description is left out: a corrected typo in it must not turn the recovery from a crash into a conflict.

    Args:
        identity: What tells the call from an equal one for somebody else; see `admission.Admitted`. Other injected
            values are left out.
    """
    text = f"{tool}\0{version}\0{canonical(arguments)}"
    if identity:
        text += f"\0{canonical(list(identity))}"
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).digest()


def default_key(run_id: str, turn: int, index: int) -> str:
    """Return the key of a write whose tool declares none: its place in the run."""
    return f"{run_id}/{turn}/{index}"


def digest(value: Json) -> str:
    """Return what tells one JSON value from another, in 64 hexadecimal digits."""
    return hashlib.sha256(canonical(value).encode("utf-8", "surrogatepass")).hexdigest()
