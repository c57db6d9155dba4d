"""The operations of an OpenAPI 3 document, as a model sees them: one flat object of arguments each.

Where a value of that object goes on the wire is a `Place`; `toolbox.openapi` sends it there, `linting` only looks.

Rule 1: reading never fails, whatever the document holds. What cannot be described or sent is left out with one
        sentence.
Rule 2: references are followed within the document only; nothing is ever fetched.
Rule 3: no two values share a name, and what names a credential is no argument.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from itertools import chain, count
from typing import Any, Literal, TypeAlias, TypeGuard

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
        media_type: Of a part of a multipart body, where the document names one.
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
        keyed: The service takes an `Idempotency-Key`.
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
    """An operation that cannot be described or sent, and why."""

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
    """Yield the operations of a document, in its order; a repeated name gives way to method and path."""
    taken: set[str] = set()
    for path, item in document["paths"].items():
        item = _object(follow_reference(item, document))
        for method, spec in item.items():
            if method not in EFFECTS or not isinstance(spec, dict):
                continue
            name = _choose_name(spec, method, str(path))
            if name in taken:
                name = _sanitize_name(f"{method} {path}")
            reader = _Reader(document, method, str(path), item, spec)
            try:
                if name in taken:
                    raise _Fault("another operation has its name")
                yield reader.read_operation(name)
            except _Fault as fault:
                yield LeftOut(name, method, str(path), str(fault))
            except RecursionError:
                yield LeftOut(
                    name, method, str(path), "a schema of it is nested too deep"
                )
            taken.add(name)


def _choose_name(spec: Mapping[str, Any], method: str, path: str) -> str:
    name = spec.get("operationId")
    if isinstance(name, str) and name.strip():
        return _sanitize_name(name)
    return _sanitize_name(f"{method} {path}")


def _sanitize_name(text: str) -> str:
    """Return a name that every provider takes."""
    name = re.sub(r"[^A-Za-z0-9_-]+", "_", text).strip("_")[:64].rstrip("_")
    return name or "operation"


class _Reader(Struct):
    """Reads one operation; collects the schemas that it refers to."""

    document: Mapping[str, Any]
    method: str
    path: str
    item: Mapping[str, Any]
    spec: Mapping[str, Any]
    definitions: dict[str, Json] = field(default_factory=dict)
    references: dict[str, str] = field(default_factory=dict)
    """The reference behind each name in `definitions`."""
    properties: dict[str, Json] = field(default_factory=dict)
    places: dict[str, Place] = field(default_factory=dict)
    required: list[str] = field(default_factory=list)
    keyed: bool = False

    def read_operation(self, name: str) -> Operation:
        if not self.path.startswith("/") or set(self.path) & _ENDS_PATH:
            # It is written behind the server's address: without the slash it would become a part of the host's name.
            raise _Fault(
                "its path does not begin with a slash, or holds what ends a path"
            )
        for parameter in self._merge_parameters():
            self._add_parameter(parameter)
        in_path = {
            place.name for place in self.places.values() if place.where == "path"
        }
        lost = set(re.findall(r"\{([^}]*)\}", self.path)) - in_path
        if lost:
            raise _Fault(f"nothing says what `{sorted(lost)[0]}` in its path is")
        body, media_type = self._add_body()
        schema: Schema = {
            "type": "object",
            "properties": self.properties,
            "additionalProperties": False,
        }
        if self.required:
            schema["required"] = list(dict.fromkeys(self.required))
        if self.definitions:
            schema["$defs"] = self.definitions
        security = self.spec.get("security", self.document.get("security"))
        return Operation(
            name=name,
            method=self.method,
            path=self.path,
            description=self._describe(),
            schema=schema,
            places=self.places,
            body=body,
            media_type=media_type,
            security=[
                [str(scheme) for scheme in _object(each)] for each in _list(security)
            ],
            server=find_server(self.spec) or find_server(self.item),
            returns=self._find_result_schema(),
            keyed=self.keyed,
        )

    # ------------------------------------------------------------------ parameters

    def _merge_parameters(self) -> list[dict[str, Any]]:
        """Return the path's parameters and the operation's, which override those of the same name."""
        merged = self._read_parameters(self.item.get("parameters"))
        merged |= self._read_parameters(self.spec.get("parameters"))
        return list(merged.values())

    def _read_parameters(self, listed: Any) -> dict[tuple[str, str], dict[str, Any]]:
        """Return a list's parameters by place and name. Names of headers ignore case (RFC 9110, 5.1)."""
        parameters: dict[tuple[str, str], dict[str, Any]] = {}
        for each in _list(listed):
            parameter = self._follow(each, "a parameter")
            where = str(parameter.get("in"))
            name = str(parameter.get("name"))
            key = where, name.lower() if where == "header" else name
            if key in parameters and parameters[key].get("name") != name:
                raise _Fault(
                    f"its headers `{parameters[key].get('name')}` and `{name}` are one on the wire"
                )
            parameters[key] = parameter
        return parameters

    def _add_parameter(self, parameter: Mapping[str, Any]) -> None:
        name = parameter.get("name")
        where = parameter.get("in")
        if not isinstance(name, str) or not isinstance(where, str):
            raise _Fault("one of its parameters has no name or no place")
        if not name or not _is_place(where):
            raise _Fault("one of its parameters has no name or no place")
        if where == "header" and name.lower() in _IGNORED_HEADERS:
            return
        if where == "header" and name.lower() == "idempotency-key":
            self.keyed = True  # sent by us, and never the model's to choose
            return
        if self._is_credential(name, where):
            return
        style = str(parameter.get("style") or _STYLES[where][0])
        if style not in _STYLES[where]:
            raise _Fault(
                f"its parameter `{name}` has the style {style!r}, which a {where} parameter cannot have"
            )
        explode = parameter.get("explode")
        if not isinstance(explode, bool):
            explode = style == "form"
        schema, as_json = self._read_parameter_schema(name, parameter)
        self._add_argument(
            name,
            Place(name, where, style, explode=explode, as_json=as_json),
            _add_description(schema, parameter),
            needed=parameter.get("required") is True or where == "path",
        )

    def _read_parameter_schema(
        self, name: str, parameter: Mapping[str, Any]
    ) -> tuple[Schema, bool]:
        """Return a parameter's schema, and whether its value is written as JSON."""
        schema = self._import_schema(parameter.get("schema"))
        content = _object(parameter.get("content"))
        if not content:
            return schema, False
        kind, media = next(iter(content.items()))
        if not _is_json(str(kind)):
            raise _Fault(f"its parameter `{name}` is written as {kind}")
        return self._import_schema(_object(media).get("schema")), True

    def _add_argument(
        self, name: str, place: Place, schema: Json, *, needed: bool
    ) -> None:
        """Add an argument under a name that no other has."""
        plain = re.sub(r"[^A-Za-z0-9_.-]+", "_", name).strip("_")[:64] or "value"
        names = chain(
            (plain, f"{plain}_in_{place.where}"), (f"{plain}_{n}" for n in count(2))
        )
        free = next(each for each in names if each not in self.places)
        self.places[free] = place
        self.properties[free] = schema
        if needed:
            self.required.append(free)

    def _is_credential(self, name: str, where: str) -> bool:
        components = _object(self.document.get("components"))
        for each in _object(components.get("securitySchemes")).values():
            scheme = _object(follow_reference(each, self.document))
            if (
                scheme.get("type") == "apiKey"
                and scheme.get("in") == where
                and _is_same_name(scheme.get("name"), name, where)
            ):
                return True
        return False

    # ------------------------------------------------------------------ the body

    def _add_body(self) -> tuple[BodyKind, str]:
        """Add the body's arguments; return how it is written, and its media type."""
        if self.spec.get("requestBody") is None:
            return "", ""
        body = self._follow(self.spec["requestBody"], "its body")
        content = _object(body.get("content"))
        if not content:
            return "", ""
        if self.method in ("get", "head"):
            raise _Fault(
                f"it has a body, which a {self.method.upper()} request cannot have"
            )
        kind, media_type = _choose_body(content)
        media = _object(content[media_type])
        schema = self._import_schema(media.get("schema"))
        fields = self._list_fields(schema)
        if kind != "text" and fields:
            encodings = _object(media.get("encoding"))
            self._add_fields(kind, schema, encodings)
        elif kind == "multipart":
            raise _Fault("its body is multipart/form-data, and no plain list of fields")
        else:
            self._add_argument(
                "body",
                Place("", "body"),
                _add_description(schema, body),
                needed=body.get("required") is True,
            )
        return kind, str(media_type)

    def _list_fields(self, schema: Schema) -> dict[str, Any]:
        """Return the properties of a body; none where its schema says more than its properties do."""
        flat = self._resolve(schema)
        for word in flat.keys() & _WHOLE:
            if (word, flat[word]) != _CLOSED:
                return {}
        return _object(flat.get("properties"))

    def _add_fields(
        self, kind: BodyKind, schema: Schema, encodings: Mapping[str, Any]
    ) -> None:
        required = _list(self._resolve(schema).get("required"))
        for name, part in self._list_fields(schema).items():
            if _object(self._resolve(part)).get("readOnly") is True:
                continue
            place = Place(str(name), "field")
            if kind == "multipart":
                encoding = _object(encodings.get(name))
                place, part = self._read_part(str(name), part, encoding)
            self._add_argument(str(name), place, part, needed=name in required)

    def _read_part(
        self, name: str, schema: Json, encoding: Mapping[str, Any]
    ) -> tuple[Place, Json]:
        """Return where a field of a multipart body goes, and its schema for the model (OpenAPI 3.1, 4.8.14.3)."""
        flat = self._resolve(schema)
        item = flat
        if flat.get("type") == "array":
            item = self._resolve(flat.get("items"))
        is_file = item.get("format") == "binary" or (
            "contentMediaType" in item and "contentEncoding" not in item
        )
        listed = encoding.get("contentType") or item.get("contentMediaType") or ""
        media_type = str(listed).partition(",")[0].strip()
        if "*" in media_type:
            media_type = ""
        place = Place(name, "field", media_type=media_type, is_file=is_file)
        if not is_file:
            return place, schema
        texts = (str(each.get("description", "")).strip() for each in (flat, item))
        text = next(filter(None, texts), "A file.") + " Its bytes in base64."
        file: Schema = {"type": "string", "contentEncoding": "base64"}
        if item is not flat:
            file = {"type": "array", "items": file}
        return place, {**file, "description": text}

    # ------------------------------------------------------------------ texts, schemas, references

    def _describe(self) -> str:
        """Join summary and description, unless one holds the other; may be empty."""
        summary = self._read_text("summary")
        text = self._read_text("description")
        if summary not in text:
            text = f"{summary}\n{text}".strip()
        if len(text) > MOST_DESCRIPTION_CHARS:
            text = text[: MOST_DESCRIPTION_CHARS - 1].rsplit(" ", 1)[0] + "…"
        if self.spec.get("deprecated") is True:
            text = f"{text}\nDeprecated: use it only where nothing else does.".strip()
        return text

    def _read_text(self, key: str) -> str:
        return str(self.spec.get(key) or self.item.get(key) or "").strip()

    def _find_result_schema(self) -> Json:
        for status, response in _object(self.spec.get("responses")).items():
            response = _object(follow_reference(response, self.document))
            schema = _find_json_schema(_object(response.get("content")))
            if str(status)[:1] == "2" and isinstance(schema, dict):
                return self._import_result_schema(schema)
        return None

    def _import_result_schema(self, schema: Schema) -> Json:
        others = self.definitions
        self.definitions = {}
        try:
            result = self._import_schema(schema)
            if self.definitions:
                result = {**result, "$defs": self.definitions}
            return result
        except _Fault:
            # an operation can be called without a schema of what it returns
            return {}
        finally:
            self.definitions = others

    def _follow(self, value: Any, what: str) -> dict[str, Any]:
        """Return the object that a value is, or that its reference leads to."""
        target = follow_reference(value, self.document)
        if not isinstance(target, dict):
            raise _Fault(
                f"{what} leads out of the document or to nothing: {_format_reference(value)}"
            )
        return target

    def _import_schema(self, value: Any) -> Schema:
        """Return a schema with the definitions that it refers to put under `$defs`."""
        return _object(self._import(value))

    def _import(self, value: Any) -> Any:
        if not isinstance(value, dict):
            return value
        reference = value.get("$ref")
        if isinstance(reference, str):
            schema = {key: self._import(each) for key, each in value.items()}
            schema["$ref"] = self._import_definition(reference)
            return schema
        return {
            key: each
            for key, each in map_subschemas(value, self._import).items()
            if key not in _NOT_FOR_MODELS
        }

    def _import_definition(self, reference: str) -> str:
        """Put what a reference leads to under `$defs`, once, and return its new address."""
        path = reference.removeprefix("#/components/schemas/")
        plain = re.sub(r"[^A-Za-z0-9_.-]+", "_", path.replace("/", ".").lstrip("#."))
        # `用户` and `订单` are both `_` then, and `a/b` is spelled as `a.b` is.
        names = chain((plain,), (f"{plain}_{n}" for n in count(2)))
        name = next(
            each
            for each in names
            if self.references.setdefault(each, reference) == reference
        )
        if name not in self.definitions:
            target = resolve_reference(dict(self.document), reference)
            if not isinstance(target, dict | bool):
                raise _Fault(
                    f"a schema leads out of the document or to nothing: {reference}"
                )
            if len(self.definitions) >= MOST_DEFINITIONS:
                raise _Fault(f"it refers to more than {MOST_DEFINITIONS} schemas")
            self.definitions[name] = {}  # it may lead back to itself
            self.definitions[name] = self._import(target)
        return f"#/$defs/{name}"

    def _resolve(self, schema: Any) -> dict[str, Any]:
        """Return the schema that a chain of references under `$defs` leads to; empty where it leads nowhere."""
        for _ in range(MOST_STEPS):
            reference = _object(schema).get("$ref")
            if not isinstance(reference, str):
                break
            schema = self.definitions.get(reference.removeprefix("#/$defs/"))
        return _object(schema)


_ENDS_PATH = {"?", "#", "\\"}
_WHOLE = {"allOf", "anyOf", "oneOf", "not", "if", "additionalProperties", "patternProperties", "dependentSchemas"} | {
    "minProperties", "maxProperties", "dependentRequired", "unevaluatedProperties", "propertyNames",
}  # fmt: skip
"""Words that say something of an object as a whole, so that its fields cannot be arguments of their own."""
_CLOSED = ("additionalProperties", False)
"""Except this one: the object of arguments takes no other fields either."""
_NOT_FOR_MODELS = {"xml", "externalDocs", "discriminator"}
"""Words of OpenAPI's schemas that say nothing to a model."""


def _is_json(kind: str) -> bool:
    plain = _strip(kind)
    return plain in ("application/json", "*/*") or plain.endswith("+json")


def _strip(media_type: str) -> str:
    """Return a media type without its parameters."""
    return media_type.partition(";")[0].strip().lower()


_BODIES: Mapping[BodyKind, Any] = {
    "json": _is_json,
    "form": lambda kind: _strip(kind) == "application/x-www-form-urlencoded",
    "multipart": lambda kind: _strip(kind) == "multipart/form-data",
    "text": lambda kind: _strip(kind) == "text/plain",
}
"""The bodies that can be written, the best first."""


def _choose_body(content: Mapping[str, Any]) -> tuple[BodyKind, str]:
    """Return the best way to write a body, and its media type."""
    for kind, is_kind in _BODIES.items():
        for media_type in content:
            if is_kind(str(media_type)):
                return kind, media_type
    raise _Fault(
        f"its body is {', '.join(map(str, content))}, of which none can be written"
    )


def _find_json_schema(content: Mapping[str, Any]) -> Any:
    for media_type, media in content.items():
        if _is_json(str(media_type)):
            return _object(media).get("schema")
    return None


def _is_place(where: str) -> TypeGuard[Where]:
    return where in _STYLES


def _is_same_name(one: Any, other: str, where: str) -> bool:
    """Whether two parameters are one on the wire, where the case of a header's name says nothing."""
    return one == other or (where == "header" and str(one).lower() == other.lower())


def _add_description(schema: Schema, owner: Mapping[str, Any]) -> Json:
    text = owner.get("description")
    if not isinstance(text, str) or not text.strip():
        return schema
    return {**schema, "description": text}


def find_server(owner: Mapping[str, Any]) -> str:
    """Return the first server of a document, a path or an operation, its variables filled; empty without one."""
    first = _object(next(iter(_list(owner.get("servers"))), None))
    url = first.get("url")
    if not isinstance(url, str):
        return ""
    for name, variable in _object(first.get("variables")).items():
        url = url.replace(f"{{{name}}}", str(_object(variable).get("default", "")))
    return url


def follow_reference(value: Any, document: Mapping[str, Any]) -> Any:
    """Return what a reference leads to within the document, or None; a few steps, since one may lead back to itself."""
    for _ in range(MOST_STEPS):
        reference = _object(value).get("$ref")
        if not isinstance(reference, str):
            return value
        value = resolve_reference(dict(document), reference)
    return None


def _format_reference(value: Any) -> str:
    return str(_object(value).get("$ref", "it is no object"))[:200]


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
