"""Writes the request of an operation: each argument in its place, in the style that the document declares.

Rule 1: an argument is one value of one request: it never becomes another path, parameter, header or host.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from hashlib import sha256
from mimetypes import guess_extension
from typing import TypeAlias
from urllib.parse import quote

import httpx2
from msgspec.structs import replace

from handrail.errors import Code, Json, NoEffect
from handrail.schemas.openapi import Operation, Place

_Part: TypeAlias = tuple[str, tuple[str | None, bytes, str | None]]
"""Its name, and its file's name, content and media type."""


@dataclass
class RequestBuilder:
    """A request on its way: what of it is written so far."""

    path: str
    query: list[str] = field(default_factory=list)
    keys: list[str] = field(default_factory=list)  # in the query too, and in no log
    headers: list[tuple[str, str]] = field(default_factory=list)
    cookies: list[str] = field(default_factory=list)
    content: bytes | None = None


def write_request(
    operation: Operation, given: Mapping[str, Json], query_keys: set[str]
) -> RequestBuilder:
    """Return the request of an operation with these arguments.

    Args:
        query_keys: Names under which credentials go in the query, which no argument may take.

    Raises:
        NoEffect: An argument cannot stand in its place.
    """
    request = RequestBuilder(operation.path)
    fields: dict[str, Json] = {}
    parts: list[_Part] = []
    request.headers.append(("Accept", "application/json, */*;q=0.5"))
    for argument, value in given.items():
        place = operation.places[argument]
        if place.where == "field":
            if operation.body == "form":
                _check_names(operation, argument, value, set())
            fields[place.name] = value
            if operation.body == "multipart":
                parts += _parts(argument, place, value)
        else:
            _write_argument(request, operation, argument, value, query_keys=query_keys)
    if any(segment in (".", "..") for segment in request.path.split("/")):
        raise _no_segment(
            next(
                name
                for name, place in operation.places.items()
                if place.where == "path"
            ),
            "dots",
        )
    _write_body(request, operation, fields, parts)
    return request


def _write_argument(
    request: RequestBuilder,
    operation: Operation,
    argument: str,
    value: Json,
    *,
    query_keys: set[str],
) -> None:
    """Write an argument that is not a field of the body."""
    place = operation.places[argument]
    match place.where:
        case "path":
            request.path = request.path.replace(
                f"{{{place.name}}}", _in_path(argument, place, value)
            )
        case "query":
            if (place.explode or place.style == "deepObject") and not place.as_json:
                _check_names(operation, argument, value, query_keys)
            request.query += _in_query(place, value)
        case "header":
            request.headers.append((place.name, _in_header(argument, place, value)))
        case "cookie":
            request.cookies.append(
                f"{quote(place.name, safe='')}={quote(_text(value, place), safe='')}"
            )
        case "body":
            request.content = _body(operation, value)


def _write_body(
    request: RequestBuilder,
    operation: Operation,
    fields: Mapping[str, Json],
    parts: list[_Part],
) -> None:
    """Write the fields of the body, and the header that names its type."""
    if operation.body == "multipart":
        _take_parts(request, parts)
    elif fields or (
        operation.body and request.content is None and _has_fields(operation)
    ):
        request.content = _body(operation, fields)
    if request.content is not None and operation.body != "multipart":
        request.headers.append(
            ("Content-Type", operation.media_type.replace("*/*", "application/json"))
        )


def _parts(argument: str, place: Place, value: Json) -> list[_Part]:
    """Return a field of a multipart body as its parts: an array is several of one name (RFC 7578, 4.3)."""
    values = value if isinstance(value, list) else [value]
    return [_part(argument, place, each) for each in values]


def _part(argument: str, place: Place, value: Json) -> _Part:
    if place.is_file:
        kind = place.media_type or "application/octet-stream"
        try:
            data = base64.b64decode(value, validate=True)
        except (ValueError, TypeError):
            raise NoEffect(
                Code.INVALID_ARGUMENTS,
                f"`{argument}` is a file, which is given in base64, and this is none.",
                suggestion=f"Call again with the bytes of `{argument}` in base64.",
            ) from None
        return place.name, (place.name + (guess_extension(kind) or ""), data, kind)
    kind = place.media_type or (
        "application/json" if isinstance(value, dict | list) else ""
    )
    if _is_json(kind):
        text = json.dumps(value, ensure_ascii=False)
    else:
        text = _plain(value)
    return place.name, (None, text.encode(), kind or None)


def _take_parts(request: RequestBuilder, parts: list[_Part]) -> None:
    """Write a multipart body. A write that is sent again is the same to the byte: its boundary is made of its parts."""
    boundary = sha256(repr(parts).encode()).hexdigest()[:32]
    content_type = f"multipart/form-data; boundary={boundary}"
    encoded = httpx2.Request(
        "POST",
        "http://body",
        headers={"content-type": content_type},
        files=parts,
    )
    request.content = encoded.read() or f"--{boundary}--\r\n".encode()
    request.headers.append(("Content-Type", content_type))


def _is_json(kind: str) -> bool:
    return kind == "application/json" or kind.endswith("+json")


def _check_names(
    operation: Operation, argument: str, value: Json, keys: set[str]
) -> None:
    """Refuse an object whose names, which go on the wire by themselves, are those of something else.

    Servers may not mind the case of a name, so it makes no difference here.
    """
    place = operation.places[argument]
    others = {
        each.name
        for name, each in operation.places.items()
        if each.where == place.where and name != argument
    }
    reserved = {each.casefold() for each in others | keys}
    inside = tuple(
        f"{each}[" for each in reserved if each.startswith(f"{place.name.casefold()}[")
    )  # of objects like this
    for name, wire_name in _names_in(place, value):
        if wire_name.casefold() in reserved or wire_name.casefold().startswith(inside):
            raise NoEffect(
                Code.INVALID_ARGUMENTS,
                f"`{argument}` must not hold `{name}`: the service would take it for another value.",
                suggestion=f"Call again without `{name}` in `{argument}`.",
            )


def _names_in(place: Place, value: Json) -> Iterator[tuple[str, str]]:
    """Yield the names in an object, each with its spelling on the wire."""
    if not isinstance(value, dict):
        return
    for name, each in value.items():
        if place.style != "deepObject":
            yield name, name
            continue
        wire_name = f"{place.name}[{name}]"
        yield name, wire_name
        yield from _names_in(replace(place, name=wire_name), each)


def _has_fields(operation: Operation) -> bool:
    return any(place.where == "field" for place in operation.places.values())


def _body(operation: Operation, value: Json) -> bytes:
    if operation.body == "text":
        text = (
            value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
        )
        return text.encode()
    if operation.body == "json":
        return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode()
    fields = value if isinstance(value, dict) else {"value": value}
    pairs = (
        pair
        for name, each in fields.items()
        for pair in _in_query(Place(name, "query", "form", True), each)
    )
    return "&".join(pairs).encode()


def _in_path(argument: str, place: Place, value: Json) -> str:
    """Write a path parameter (RFC 6570): `simple` a,b; `label` .a.b; `matrix` ;name=a,b."""
    if place.style == "matrix":
        return _in_matrix(place, value)
    between = "." if place.style == "label" and place.explode else ","
    if place.as_json:
        text = quote_value(json.dumps(value, ensure_ascii=False))
    elif isinstance(value, dict) and place.explode:
        text = between.join(
            f"{quote_value(key)}={quote_value(each)}" for key, each in value.items()
        )
    else:
        text = between.join(map(quote_value, _flat(value)))
    if not text:
        raise _no_segment(argument, "empty")
    return f".{text}" if place.style == "label" else text


def _in_matrix(place: Place, value: Json) -> str:
    name = quote(place.name, safe="")
    if isinstance(value, dict) and place.explode:
        return "".join(
            f";{quote_value(key)}={quote_value(each)}" for key, each in value.items()
        )
    if isinstance(value, list) and place.explode:
        return "".join(f";{name}={quote_value(each)}" for each in value)
    return f";{name}={','.join(map(quote_value, _flat(value)))}"


def _no_segment(argument: str, what: str) -> NoEffect:
    """Return the refusal of a path segment that servers would read as another path, or as none."""
    return NoEffect(
        Code.INVALID_ARGUMENTS,
        f"`{argument}` becomes a part of the path, and must not be {what}.",
        suggestion=f"Call again with a whole `{argument}`.",
    )


def _in_query(place: Place, value: Json) -> list[str]:
    """Write a query parameter: a list of `name=value`, each escaped whole."""
    name = quote_value(place.name)
    if place.as_json:
        return [f"{name}={quote_value(json.dumps(value, ensure_ascii=False))}"]
    if isinstance(value, dict) and place.style == "deepObject":
        return [
            pair
            for key, each in value.items()
            for pair in _in_query(
                Place(f"{place.name}[{key}]", "query", "deepObject", True), each
            )
        ]
    if isinstance(value, dict) and place.explode:
        return [
            f"{quote_value(key)}={quote_value(each)}" for key, each in value.items()
        ]
    if isinstance(value, list) and place.explode:
        return [f"{name}={quote_value(each)}" for each in value]
    between = _BETWEEN.get(place.style, ",")
    return [f"{name}={between.join(map(quote_value, _flat(value)))}"]


_BETWEEN = {"spaceDelimited": "%20", "pipeDelimited": "%7C"}


def _in_header(argument: str, place: Place, value: Json) -> str:
    text = _text(value, place)
    if not text.isascii() or not text.isprintable():
        raise NoEffect(
            Code.INVALID_ARGUMENTS,
            f"`{argument}` is sent as a header, which holds printable ASCII only.",
            suggestion=f"Call again with a plain `{argument}`.",
        )
    return text


def _text(value: Json, place: Place) -> str:
    if place.as_json:
        return json.dumps(value, ensure_ascii=True)
    if isinstance(value, dict) and place.explode:
        return ",".join(f"{key}={_plain(each)}" for key, each in value.items())
    return ",".join(map(_plain, _flat(value)))


def _flat(value: Json) -> list[Json]:
    if isinstance(value, dict):
        return [part for pair in value.items() for part in pair]
    return value if isinstance(value, list) else [value]


def _plain(value: Json) -> str:
    if isinstance(value, str):
        return value
    if value is None:
        return ""
    return json.dumps(value, ensure_ascii=False)


def quote_value(value: Json) -> str:
    """Return a value as it is in a URL, escaped whole."""
    return quote(_plain(value), safe="", errors="surrogatepass")
