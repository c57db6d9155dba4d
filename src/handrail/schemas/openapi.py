"""The operations of an OpenAPI 3 document as what a model can be told of them: one flat object of arguments each.

Where a value of that object goes on the wire is a `Place`; `toolbox.openapi` sends it there, `linting` only looks.

Rule 1: reading never fails, whatever the document holds. What cannot be told or sent is left out with one sentence.
Rule 2: references are followed within the document only; nothing is ever fetched.
Rule 3: no two values share a name, and what names a credential is no argument.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from itertools import chain, count
from typing import Any, Literal, TypeAlias, cast

from msgspec import Struct, field

from handrail.effects import EffectClass
from handrail.errors import Json
from handrail.schemas.walk import Schema, map_subschemas, resolve_reference

EFFECTS: Mapping[str, EffectClass] = {
    "get": "read",
    "head": "read",
    "post": "write",
    "put": "write",
    "patch": "write",
    "delete": "destructive",
}
"""What a method says of an operation's effect (RFC 9110, 9.2)."""

MOST_STEPS = 16
"""References that are followed from one to the next."""

MOST_DEFINITIONS = 500
"""Schemas that one operation may refer to, directly or by others."""

MOST_DESCRIPTION_CHARS = 1000
_IGNORED_HEADERS = {"accept", "content-type", "authorization"} | {
    "connection", "content-length", "cookie", "host", "proxy-authorization", "te", "trailer", "transfer-encoding",
    "upgrade",
}  # fmt: skip
"""Headers that are no parameters by the specification, or say where a request goes, where it ends, or as whom."""
_STYLES: Mapping[str, Sequence[str]] = {
    "path": ("simple", "label", "matrix"),
    "query": ("form", "spaceDelimited", "pipeDelimited", "deepObject"),
    "header": ("simple",),
    "cookie": ("form",),
}
"""The styles of each place, the default first."""

Where: TypeAlias = Literal["path", "query", "header", "cookie", "field", "body"]
BodyKind: TypeAlias = Literal["", "json", "form", "multipart", "text"]


class Place(Struct, frozen=True):
    """Where an argument goes: `field` is one field of the body, `body` the body itself.

    Attributes:
        name: On the wire.
        as_json: It is written as JSON text; `style` and `explode` then say nothing.
        media_type: Of a part of a multipart body, where one is said.
        is_file: It is such a part, and a file: the argument is its bytes in base64.
    """

    name: str
    where: Where
    style: str = ""
    explode: bool = False
    as_json: bool = False
    media_type: str = ""
    is_file: bool = False


class Operation(Struct, frozen=True):
    """One operation.

    Attributes:
        places: By the name of the argument.
        body: How the body is written; empty without one.
        media_type: Of the body, as the document says it.
        security: What must go along, one of these: scheme names together. Empty where nothing must.
        server: Its own, in place of the document's.
        returns: The schema of its answer, where the document has one.
        keyed: The service says that it knows an `Idempotency-Key` again.
    """

    name: str
    method: str
    path: str
    description: str
    schema: Schema
    places: Mapping[str, Place]
    body: BodyKind = ""
    media_type: str = ""
    security: Sequence[Sequence[str]] = ()
    server: str = ""
    returns: Json = None
    keyed: bool = False

    @property
    def effect(self) -> EffectClass:
        """What its method says of its effect."""
        return EFFECTS[self.method]


class LeftOut(Struct, frozen=True):
    """An operation that cannot be told or sent, and why."""

    name: str
    method: str
    path: str
    reason: str


class _Fault(Exception):
    """Why an operation is left out."""


def is_one(document: Json) -> bool:
    """Whether it is an OpenAPI document."""
    return isinstance(document, dict) and isinstance(document.get("paths"), dict)


def operations(document: Mapping[str, Any]) -> Iterator[Operation | LeftOut]:
    """Yield the operations of a document, in its order; a name that comes again is made anew from method and path."""
    taken: set[str] = set()
    for path, item in document["paths"].items():
        item = _object(followed(item, document))
        for method, told in item.items():
            if method not in EFFECTS or not isinstance(told, dict):
                continue
            name = _name(told, method, str(path))
            if name in taken:
                name = _named(f"{method} {path}")
            reader = _Reader(document, method, str(path), item, told)
            try:
                if name in taken:
                    raise _Fault("another operation has its name")
                yield reader.operation(name)
            except _Fault as fault:
                yield LeftOut(name, method, str(path), str(fault))
            except RecursionError:
                yield LeftOut(
                    name, method, str(path), "a schema of it is nested too deep"
                )
            taken.add(name)


def _name(told: Mapping[str, Any], method: str, path: str) -> str:
    said = told.get("operationId")
    return _named(
        said if isinstance(said, str) and said.strip() else f"{method} {path}"
    )


def _named(text: str) -> str:
    """Return a name that every provider takes."""
    return (
        re.sub(r"[^A-Za-z0-9_-]+", "_", text).strip("_")[:64].rstrip("_") or "operation"
    )


class _Reader(Struct):
    """Reads one operation; collects the schemas that it refers to."""

    document: Mapping[str, Any]
    method: str
    path: str
    item: Mapping[str, Any]
    told: Mapping[str, Any]
    definitions: dict[str, Json] = field(default_factory=dict)
    meant: dict[str, str] = field(default_factory=dict)
    properties: dict[str, Json] = field(default_factory=dict)
    places: dict[str, Place] = field(default_factory=dict)
    required: list[str] = field(default_factory=list)
    keyed: bool = False

    def operation(self, name: str) -> Operation:
        if not self.path.startswith("/") or set(self.path) & _ENDS_PATH:
            # It is written behind the server's address: without the slash it would become a part of the host's name.
            raise _Fault(
                "its path does not begin with a slash, or holds what ends a path"
            )
        for said in self._parameters():
            self._take(said)
        lost = set(re.findall(r"\{([^}]*)\}", self.path)) - {
            place.name for place in self.places.values() if place.where == "path"
        }
        if lost:
            raise _Fault(f"nothing says what `{sorted(lost)[0]}` in its path is")
        body, media_type = self._take_body()
        schema: Schema = {
            "type": "object",
            "properties": self.properties,
            "additionalProperties": False,
        }
        if self.required:
            schema["required"] = list(dict.fromkeys(self.required))
        if self.definitions:
            schema["$defs"] = self.definitions
        security = self.told.get("security", self.document.get("security"))
        return Operation(
            name,
            self.method,
            self.path,
            self._description(),
            schema,
            self.places,
            body,
            media_type,
            [[str(scheme) for scheme in _object(each)] for each in _list(security)],
            _server(self.told) or _server(self.item),
            self._returns(),
            self.keyed,
        )

    # ------------------------------------------------------------------ parameters

    def _parameters(self) -> list[dict[str, Any]]:
        """Return the path's parameters and the operation's, which stand in place of those of the same name.

        The names of headers are the same in any case (RFC 9110, 5.1).
        """
        found: dict[tuple[str, str], dict[str, Any]] = {}
        for told in (self.item.get("parameters"), self.told.get("parameters")):
            of_one: dict[tuple[str, str], dict[str, Any]] = {}
            for said in _list(told):
                parameter = self._known(said, "a parameter")
                where = str(parameter.get("in"))
                name = str(parameter.get("name"))
                one = where, name.lower() if where == "header" else name
                if one in of_one and of_one[one].get("name") != name:
                    raise _Fault(
                        f"its headers `{of_one[one].get('name')}` and `{name}` are one on the wire"
                    )
                of_one[one] = parameter
            found |= of_one
        return list(found.values())

    def _take(self, parameter: Mapping[str, Any]) -> None:
        name = parameter.get("name")
        said = parameter.get("in")
        if (
            not isinstance(name, str)
            or not name
            or not isinstance(said, str)
            or said not in _STYLES
        ):
            raise _Fault("one of its parameters has no name or no place")
        where = cast(Where, said)
        needed = parameter.get("required") is True or where == "path"
        if where == "header" and name.lower() in _IGNORED_HEADERS:
            return
        if where == "header" and name.lower() == "idempotency-key":
            self.keyed = True  # sent by us, and never the model's to choose
            return
        if self._is_credential(name, where):
            return
        style = str(parameter.get("style") or _STYLES[where][0])
        content = _object(parameter.get("content"))
        if style not in _STYLES[where]:
            raise _Fault(
                f"its parameter `{name}` has the style {style!r}, which a {where} parameter cannot have"
            )
        schema = self._schema(parameter.get("schema"))
        if content:
            kind, held = next(iter(content.items()))
            if not _is_json(str(kind)):
                raise _Fault(f"its parameter `{name}` is written as {kind}")
            schema = self._schema(_object(held).get("schema"))
        explode = parameter.get("explode")
        place = Place(
            name,
            where,
            style,
            explode if isinstance(explode, bool) else style == "form",
            bool(content),
        )
        self._argue(name, place, _described(schema, parameter), needed)

    def _argue(self, name: str, place: Place, schema: Json, needed: bool) -> None:
        """Add an argument under a name that no other has."""
        said = re.sub(r"[^A-Za-z0-9_.-]+", "_", name).strip("_")[:64] or "value"
        free = next(
            each
            for each in chain(
                (said, f"{said}_in_{place.where}"), (f"{said}_{n}" for n in count(2))
            )
            if each not in self.places
        )
        self.places[free], self.properties[free] = place, schema
        if needed:
            self.required.append(free)

    def _is_credential(self, name: str, where: str) -> bool:
        schemes = _object(
            _object(self.document.get("components")).get("securitySchemes")
        ).values()
        return any(
            each.get("type") == "apiKey"
            and each.get("in") == where
            and _same_name(each.get("name"), name, where)
            for each in (_object(followed(scheme, self.document)) for scheme in schemes)
        )

    # ------------------------------------------------------------------ the body

    def _take_body(self) -> tuple[BodyKind, str]:
        if self.told.get("requestBody") is None:
            return "", ""
        said = self._known(self.told["requestBody"], "its body")
        content = _object(said.get("content"))
        if not content:
            return "", ""
        if self.method in ("get", "head"):
            raise _Fault(
                f"it has a body, which a {self.method.upper()} request cannot have"
            )
        chosen = next(
            (
                found
                for kind in _BODIES
                for found in content
                if _BODIES[kind](str(found))
            ),
            None,
        )
        if chosen is None:
            raise _Fault(
                f"its body is {', '.join(map(str, content))}, of which none can be written"
            )
        kind: BodyKind = next(kind for kind in _BODIES if _BODIES[kind](str(chosen)))
        held = _object(content[chosen])
        whole = self._schema(held.get("schema"))
        flat = self._resolved(whole)
        fields = _object(flat.get("properties"))
        says_more = {
            word for word in flat.keys() & _WHOLE if (word, flat[word]) != _CLOSED
        }
        if kind != "text" and fields and not says_more:
            for name, schema in fields.items():
                if _object(self._resolved(schema)).get("readOnly") is not True:
                    needed = name in _list(flat.get("required"))
                    place = Place(str(name), "field")
                    if kind == "multipart":
                        place, schema = self._part(
                            str(name),
                            schema,
                            _object(_object(held.get("encoding")).get(name)),
                        )
                    self._argue(str(name), place, schema, needed)
        elif kind == "multipart":
            raise _Fault("its body is multipart/form-data, and no plain list of fields")
        else:
            self._argue(
                "body",
                Place("", "body"),
                _described(whole, said),
                said.get("required") is True,
            )
        return kind, str(chosen)

    def _part(
        self, name: str, schema: Json, encoding: Mapping[str, Any]
    ) -> tuple[Place, Json]:
        """Return where a field of a multipart body goes, and how it is told (OpenAPI 3.1, 4.8.14.3)."""
        flat = self._resolved(schema)
        one = self._resolved(flat.get("items")) if flat.get("type") == "array" else flat
        is_file = one.get("format") == "binary" or (
            "contentMediaType" in one and "contentEncoding" not in one
        )
        said = (
            str(encoding.get("contentType") or one.get("contentMediaType") or "")
            .partition(",")[0]
            .strip()
        )
        place = Place(
            name, "field", media_type=said if "*" not in said else "", is_file=is_file
        )
        if not is_file:
            return place, schema
        words = (str(each.get("description", "")).strip() for each in (flat, one))
        text = " ".join([next(filter(None, words), "A file."), "Its bytes in base64."])
        told: Schema = {"type": "string", "contentEncoding": "base64"}
        return place, {
            **({"type": "array", "items": told} if one is not flat else told),
            "description": text,
        }

    # ------------------------------------------------------------------ texts, schemas, references

    def _description(self) -> str:
        """Join summary and description, unless one holds the other; never without a word."""
        summary, text = (
            str(self.told.get(key) or self.item.get(key) or "").strip()
            for key in _TEXTS
        )
        told = text if summary in text else f"{summary}\n{text}".strip()
        if len(told) > MOST_DESCRIPTION_CHARS:
            told = told[: MOST_DESCRIPTION_CHARS - 1].rsplit(" ", 1)[0] + "…"
        if self.told.get("deprecated") is True:
            told = f"{told}\nDeprecated: use it only where nothing else does.".strip()
        return told

    def _returns(self) -> Json:
        for status, answer in _object(self.told.get("responses")).items():
            content = _object(_object(followed(answer, self.document)).get("content"))
            held = next(
                (
                    _object(each)
                    for kind, each in content.items()
                    if _is_json(str(kind))
                ),
                {},
            )
            if str(status)[:1] == "2" and isinstance(held.get("schema"), dict):
                others = self.definitions
                self.definitions = {}
                try:
                    schema = self._schema(held["schema"])
                    return (
                        {**schema, "$defs": self.definitions}
                        if self.definitions
                        else schema
                    )
                except _Fault:
                    # what it returns is told to nobody; it can be called all the same
                    return {}
                finally:
                    self.definitions = others
        return None

    def _known(self, said: Any, what: str) -> dict[str, Any]:
        found = followed(said, self.document)
        if not isinstance(found, dict):
            raise _Fault(
                f"{what} leads out of the document or to nothing: {_reference(said)}"
            )
        return found

    def _schema(self, said: Any) -> Schema:
        """Return a schema with the definitions that it refers to put under `$defs`."""
        return _object(self._moved(said))

    def _moved(self, said: Any) -> Any:
        if not isinstance(said, dict):
            return said
        reference = said.get("$ref")
        if isinstance(reference, str):
            return {
                **{key: self._moved(each) for key, each in said.items()},
                "$ref": self._defined(reference),
            }
        return {
            key: each
            for key, each in map_subschemas(said, self._moved).items()
            if key not in _UNTOLD
        }

    def _defined(self, reference: str) -> str:
        """Put what a reference leads to under `$defs`, once, and return its new address."""
        name = (
            reference.removeprefix("#/components/schemas/")
            .replace("/", ".")
            .lstrip("#.")
        )
        said = re.sub(r"[^A-Za-z0-9_.-]+", "_", name)
        # `用户` and `订单` are both `_` then, and `a/b` is spelled as `a.b` is.
        names = chain((said,), (f"{said}_{n}" for n in count(2)))
        name = next(
            each
            for each in names
            if self.meant.setdefault(each, reference) == reference
        )
        if name not in self.definitions:
            found = resolve_reference(dict(self.document), reference)
            if not isinstance(found, dict | bool):
                raise _Fault(
                    f"a schema leads out of the document or to nothing: {reference}"
                )
            if len(self.definitions) >= MOST_DEFINITIONS:
                raise _Fault(f"it refers to more than {MOST_DEFINITIONS} schemas")
            self.definitions[name] = {}  # it may lead back to itself
            self.definitions[name] = self._moved(found)
        return f"#/$defs/{name}"

    def _resolved(self, schema: Any) -> dict[str, Any]:
        """Return a schema as it stands where it leads to."""
        for _ in range(MOST_STEPS):
            reference = _object(schema).get("$ref")
            if not isinstance(reference, str):
                break
            schema = self.definitions.get(reference.removeprefix("#/$defs/"))
        return _object(schema)


_ENDS_PATH = {"?", "#", "\\"}
_TEXTS = ("summary", "description")
_WHOLE = {"allOf", "anyOf", "oneOf", "not", "if", "additionalProperties", "patternProperties", "dependentSchemas"} | {
    "minProperties", "maxProperties", "dependentRequired", "unevaluatedProperties", "propertyNames",
}  # fmt: skip
"""Words that say something of an object as a whole, so that its fields cannot be told apart from it."""
_CLOSED = ("additionalProperties", False)
"""Except this one: the object of arguments takes no other fields either."""
_UNTOLD = {"xml", "externalDocs", "discriminator"}
"""Words of OpenAPI's schemas that say nothing to a model."""


def _is_json(kind: str) -> bool:
    plain = kind.partition(";")[0].strip().lower()
    return plain in ("application/json", "*/*") or plain.endswith("+json")


_BODIES: Mapping[BodyKind, Any] = {
    "json": _is_json,
    "form": lambda kind: (
        kind.partition(";")[0].strip().lower() == "application/x-www-form-urlencoded"
    ),
    "multipart": lambda kind: (
        kind.partition(";")[0].strip().lower() == "multipart/form-data"
    ),
    "text": lambda kind: kind.partition(";")[0].strip().lower() == "text/plain",
}
"""The bodies that can be written, the best first."""


def _same_name(one: Any, other: str, where: str) -> bool:
    """Whether two parameters are one on the wire, where the case of a header's name says nothing."""
    return one == other or (where == "header" and str(one).lower() == other.lower())


def _described(schema: Schema, said: Mapping[str, Any]) -> Json:
    text = said.get("description")
    return (
        {**schema, "description": text}
        if isinstance(text, str) and text.strip()
        else schema
    )


def _server(said: Mapping[str, Any]) -> str:
    """Return the first server, its variables filled with their defaults; empty without one."""
    first = _object(next(iter(_list(said.get("servers"))), None))
    url = first.get("url")
    if not isinstance(url, str):
        return ""
    for name, variable in _object(first.get("variables")).items():
        url = url.replace(f"{{{name}}}", str(_object(variable).get("default", "")))
    return url


def server_of(document: Mapping[str, Any]) -> str:
    """Return the document's own server; empty without one."""
    return _server(document)


def followed(said: Any, document: Mapping[str, Any]) -> Any:
    """Return what a reference leads to within the document, or None; a few steps, since one may lead back to itself."""
    for _ in range(MOST_STEPS):
        reference = _object(said).get("$ref")
        if not isinstance(reference, str):
            return said
        said = resolve_reference(dict(document), reference)
    return None


def _reference(said: Any) -> str:
    return str(_object(said).get("$ref", "what stands there is no object"))[:200]


def _object(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


# ---------------------------------------------------------------------- as definitions


def definitions(document: Mapping[str, Any]) -> Iterator[dict[str, Json]]:
    """Yield a definition for each operation that is a tool, with its `method` beside what other definitions have."""
    for each in operations(document):
        if isinstance(each, Operation):
            yield {
                "name": each.name,
                "description": each.description,
                "parameters": each.schema,
                "method": each.method,
                "returns": each.returns,
            }
